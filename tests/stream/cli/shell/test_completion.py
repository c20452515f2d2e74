import pytest

from stream.cli.shell.completion import CatalogNames, candidates


@pytest.fixture(scope="module")
def names(shop):
    return CatalogNames.read(shop)


def texts(text, names):
    before, _, after = text.partition("|")
    return [each.text for each in candidates(before, after, names)]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("SEL|", ["SELECT"]),
        ("sel|", ["select"]),
        ("SELECT * FROM |", ['"Odd name"', "large", "orders", "ticks", "totals", "old.orders"]),
        ("SELECT * FROM o|", ["orders", "old.orders", "old"]),
        ("select * from TOT|", ["totals"]),
        ("SELECT * FROM old.|", ["orders"]),
        ("INSERT INTO tot|", ["totals"]),
        ("SELECT reg| FROM orders", ["region"]),
        ("SELECT | FROM totals", ["region", "total"]),
        ("SELECT * FROM orders WHERE am|", ["amount"]),
        ("SELECT o.| FROM orders o", ["id", "region", "amount"]),
        ("SELECT * FROM totals AS t JOIN orders ON t.to|", ["total"]),
        ("SELECT orders.a| FROM orders", ["amount"]),
        ('SELECT * FROM "Odd name" WHERE |', ['"A b"']),
        ('SELECT * FROM "O|', ['"Odd name"']),
        ("SELECT * FROM orders, totals t WHERE t.re|", ["region"]),
        ("SELECT date_tr|", ["date_trunc"]),
        ("SELECT COU|", ["count"]),
        ("SELECT 1; UPDATE ord|", ["orders"]),
        ("CREATE INDEX i ON ord|", ["orders"]),
        ("\\d|", ["\\d", "\\dt", "\\dv", "\\dm", "\\di", "\\ds", "\\dk", "\\df", "\\dn"]),
        ("\\d tot|", ["totals"]),
        ("\\pset |", ["format", "rows", "pager", "expanded"]),
        ("\\pset format c|", ["csv"]),
        ("\\h create s|", ["create source", "create sink", "create schema"]),
        ("\\x o|", ["on", "off"]),
        ("SELECT '\n\\d|", []),
    ],
)
def test_the_likeliest_comes_first(text, first, names):
    assert texts(text, names)[: len(first)] == first


def test_nothing_is_said_of_what_is_unknown(names):
    assert texts("|", names) == texts("SELECT nothere.|", names) == texts("zzz|", names) == []


def test_what_is_replaced_is_what_was_typed(names):
    for before, length in (("SELECT * FROM old.ord", 3), ("\\dt or", 2), ("sel", 3), ("SELECT ", 0)):
        assert {each.length for each in candidates(before, " FROM orders", names)} <= {length}


def test_files_are_completed(names, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.sql").touch()
    monkeypatch.chdir(tmp_path)
    assert texts("\\i |", names) == ["file.sql", "folder/"]
    assert texts(f"\\o {tmp_path}/fi|", names) == ["file.sql"]
    assert texts("\\i nothere/|", names) == []
