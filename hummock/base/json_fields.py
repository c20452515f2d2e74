"""Validates fields of JSON records, before they are written, and when they are read from stores and files: their types
and sizes are untrusted.
"""

from __future__ import annotations

from typing import Any

from hummock.errors import FormatTooNew, InvalidOption

# What decoding a malformed record may raise; decoders convert these to their own errors.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
U64 = 1 << 64
U32 = 1 << 32
NAME_CHARACTERS_LIMIT = 64
NAME_RULE = f"1 to {NAME_CHARACTERS_LIMIT} letters, digits, '-', '_' or '.'"


def natural(value: Any, limit: int = U64) -> int:
    """`value` itself. ValueError unless it is an integer in [0, limit)."""
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{str(value)[:80]!r} is no integer of 0 .. {limit - 1}")
    return value


def check_natural(name: str, value: Any, limit: int = U64) -> None:
    """As `natural`, for field `name` of a value that is to be stored: `InvalidOption`, which is a ValueError too."""
    if type(value) is not int or not 0 <= value < limit:
        raise InvalidOption(name, value, f"an integer of 0 .. {limit - 1}")


def check_flag(name: str, value: Any) -> None:
    """Raises `InvalidOption` unless the value of field `name` is True or False."""
    if type(value) is not bool:
        raise InvalidOption(name, value, "True or False")


def check_format(what: str, found: Any, newest: int, oldest: int | None = None) -> None:
    """Raises `FormatTooNew` for a format above `newest`; ValueError for one below `oldest` (by default `newest`) or for
    an invalid value.
    """
    if natural(found) > newest:
        raise FormatTooNew(what, found, newest)
    if found < (newest if oldest is None else oldest):
        raise ValueError(f"format {found} of {what} is not {newest}")


def check_magic(what: str, found: bytes, expected: bytes) -> bool:
    """Whether they are equal. Raises `FormatTooNew` if, by the two digits at the end, `found` is newer."""
    if found != expected and found[:-2] == expected[:-2] and found[-2:].isdigit() and found > expected:
        raise FormatTooNew(what, int(found[-2:]), int(expected[-2:]))
    return found == expected


def is_name(text: str) -> bool:
    """Whether it satisfies NAME_RULE, as all names in keys of the meta store do."""
    return 0 < len(text) <= NAME_CHARACTERS_LIMIT and all(
        letter.isascii() and (letter.isalnum() or letter in "-_.") for letter in text)


def word(value: Any) -> str:
    """`value` itself. ValueError unless it is a string."""
    if type(value) is not str:
        raise ValueError(f"{str(value)[:80]!r} is no string")
    return value
