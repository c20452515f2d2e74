"""Functions of single texts, as PostgreSQL defines them. Positions count characters from 1.

Each is called once per distinct combination of arguments, see `per_value`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import AnyStr

from relational.expr.kernels.per_value import NoValue, limited
from relational.expr.kernels.strings import NO_FIELD

_SPECIFIER = re.compile(r"%(?:(?P<position>\d+)\$)?(?P<left>-)?(?P<width>\d+)?(?P<kind>.)", re.DOTALL)
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_$]*")
_WORD = re.compile(r"[^\W_]+")
_RESERVED = (
    "all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create "
    "current_date current_time current_timestamp current_user default deferrable desc distinct do else end except "
    "false fetch for foreign from grant group having in initially intersect into lateral leading limit localtime "
    "localtimestamp not null offset on only or order placing primary references returning select session_user some "
    "symmetric table then to trailing true union unique user using variadic when where window with"
)
_RESERVED_WORDS = frozenset(_RESERVED.split())


def left(text: str, count: int) -> str:
    """The first `count` characters; without the last -count if it is negative."""
    return text[:count]


def right(text: str, count: int) -> str:
    """The last `count` characters; without the first -count if it is negative."""
    return text[-count:] if count else ""


def pad_left(text: str, size: int, fill: str = " ") -> str:
    """Filled up to `size` characters in front, or cut at the end."""
    return _padding(text, size, fill) + text[: max(size, 0)]


def pad_right(text: str, size: int, fill: str = " ") -> str:
    """Filled up to `size` characters at the end, or cut."""
    return text[: max(size, 0)] + _padding(text, size, fill)


def _padding(text: str, size: int, fill: str) -> str:
    missing = limited(size) - len(text)
    return (fill * (missing // len(fill) + 1))[:missing] if missing > 0 and fill else ""


def repeat(text: str, times: int) -> str:
    limited(len(text) * max(times, 0))
    return text * times if text else ""


def initcap(text: str) -> str:
    """The first letter of each word in upper case, the others in lower case."""
    return _WORD.sub(lambda word: word[0][0].upper() + word[0][1:].lower(), text)


def ascii_code(text: str) -> int:
    """The code point of the first character, 0 without one."""
    return ord(text[0]) if text else 0


def character(code: int) -> str:
    """The character of a code point."""
    if code <= 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise NoValue("this code is no character")
    return chr(code)


def position(text: str | bytes, part: str | bytes) -> int:
    """The position of the first occurrence of `part`, 0 without one."""
    return text.find(part) + 1  # type: ignore[arg-type]


def split_part(text: str, separator: str, field: int) -> str:
    """Part number `field` between the separators, from the end if it is negative; empty if there is none."""
    if field == 0:
        raise NoValue(NO_FIELD)
    parts = text.split(separator) if separator else [text]
    at = field - 1 if field > 0 else len(parts) + field
    return parts[at] if 0 <= at < len(parts) and text else ""


def translate(text: str, old: str, new: str) -> str:
    """Each character of `old` replaced by that of `new` at its position, dropped without one."""
    table: dict[int, str | None] = {}
    for at, each in enumerate(old):
        table.setdefault(ord(each), new[at] if at < len(new) else None)
    return text.translate(table)


def overlay(text: str, instead: str, start: int, count: int | None = None) -> str:
    """`count` characters from `start` on replaced; as many as the new ones without it."""
    if start <= 0:
        raise NoValue("a position is 1 at least")
    end = start - 1 + (len(instead) if count is None else count)
    return text[: start - 1] + instead + text[max(end, 0) :]


def overlay_bytes(data: bytes, instead: bytes, start: int, count: int | None = None) -> bytes:
    """As `overlay`, of bytes."""
    latin = overlay(data.decode("latin-1"), instead.decode("latin-1"), start, count)
    return latin.encode("latin-1")


def substring(text: str | bytes, start: int, count: int | None = None) -> str | bytes:
    """At most `count` characters from `start` on, where positions before the first count."""
    first = max(start - 1, 0)
    return text[first:] if count is None else text[first : max(start - 1 + count, first)]


def join_known(separator: str | None, *texts: str | None) -> str | None:
    """The texts that are not NULL, with a separator between them; NULL without a separator."""
    return None if separator is None else separator.join(text for text in texts if text is not None)


def replace(text: str, old: str, new: str) -> str:
    if not old:
        return text
    limited(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def trim(text: AnyStr, characters: AnyStr) -> AnyStr:
    """Of a text or of bytes, like the following two."""
    return text.strip(characters) if characters else text


def trim_left(text: AnyStr, characters: AnyStr) -> AnyStr:
    return text.lstrip(characters) if characters else text


def trim_right(text: AnyStr, characters: AnyStr) -> AnyStr:
    return text.rstrip(characters) if characters else text


def quote_literal(text: str) -> str:
    """As a literal of SQL."""
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f"E{quoted}" if "\\" in text else quoted


def quote_nullable(text: str | None) -> str:
    return "NULL" if text is None else quote_literal(text)


def quote_identifier(text: str) -> str:
    """As a name of SQL, quoted where it must be."""
    if _PLAIN_NAME.fullmatch(text) and text not in _RESERVED_WORDS and "$" not in text:
        return text
    return '"' + text.replace('"', '""') + '"'


def formatted(pattern: str | None, *args: str | None) -> str | None:
    """The pattern with %s, %I and %L replaced by the arguments, in order or by position (%1$s), padded (%-10s)."""
    if pattern is None:
        return None
    found, end, last = [], 0, 0
    while (start := pattern.find("%", end)) >= 0:
        match = _SPECIFIER.match(pattern, start)
        if match is None or match["kind"] not in "sIL%":
            raise NoValue("a format specifier is not %s, %I, %L or %%")
        found.append(pattern[end:start])
        end = match.end()
        if match["kind"] == "%":
            found.append("%")
            continue
        last = int(match["position"] or last + 1)
        if not 0 < last <= len(args):
            raise NoValue("too few arguments for format")
        found.append(_formatted_argument(match, args[last - 1]))
    return "".join(found) + pattern[end:]


def _formatted_argument(match: re.Match[str], value: str | None) -> str:
    if match["kind"] == "L":
        text = quote_nullable(value)
    elif match["kind"] == "I":
        if value is None:
            raise NoValue("NULL is no name")
        text = quote_identifier(value)
    else:
        text = value or ""
    width = limited(int(match["width"] or 0))
    return text.ljust(width) if match["left"] else text.rjust(width)


def normalized(text: str) -> str:
    """In Unicode's normal form C."""
    return unicodedata.normalize("NFC", text)


def hexadecimal(value: int, bits: int) -> str:
    """The digits of the two's complement."""
    return f"{value & ((1 << bits) - 1):x}"


def octet_length(text: str | bytes) -> int:
    return len(text.encode() if isinstance(text, str) else text)


def bit_length(text: str | bytes) -> int:
    return 8 * octet_length(text)
