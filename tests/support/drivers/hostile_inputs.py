"""Hostile inputs: identifiers, object keys, and JSON rows."""

IDENTIFIERS = [
    "", " ", "a b", "..", "../x", "a/b", "a\\b", "a\0b", "a\nb", "'; DROP TABLE meta; --", '"', "`id`", "$(id)",
    "${HOME}", "%s%s%n", "{0.__class__}", "\x1b[31mred", "\u202egnp", "\u00e9", "A" * 65, "[red]x[/red]", "\ud800",
]

OBJECT_KEYS = [
    "/etc/passwd", "../x", "../../../../etc/passwd", "sst/../x", "sst/../../x", "sst/./x", "sst//x", "sst/", "/", ".",
    "..", "", " /..", "sst/..", "..\\x", "sst\\..\\x", "C:\\x", "\\\\host\\share", "sst/a\0.data", "sst/a\n.data",
    "sst/\x1b[2J.data", "sst/" + "a" * 2_000, "sst/" + "a/" * 600 + "b", "sst/\ud800.data", ".temporary/x",
    "file:///etc/passwd", "~/x",
]

JSON_ROWS = [
    b"", b" ", b"null", b"true", b"0", b'"text"', b"[]", b"{}", b"{", b'{"format":1}', b'{"format":2}',
    b'{"format":true}', b'{"format":1,"format":1,"x":1}', b"NaN", b"1e999", b"\xff\xfe", b"[" * 50_000,
    b'{"__class__":"os.system","args":["id"]}', b'{"format":1e400}', b'{"format":1,"id":' + b"9" * 5_000 + b"}",
]
