"""Functions of bytes: digests, encodings, single bytes and bits. Called once per distinct combination of arguments."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable

from relational.expr.kernels.per_value import NoValue

_LINE = 76
_ESCAPED = re.compile(rb"\\\\|\\([0-3][0-7]{2})|[^\\]", re.DOTALL)
_ENCODINGS = {"utf8": "utf-8", "utf-8": "utf-8", "latin1": "latin-1", "sql_ascii": "ascii", "win1252": "cp1252"}


def digest(name: str) -> Callable[[bytes], bytes]:
    """The function of a hash."""
    return lambda data: hashlib.new(name, data, usedforsecurity=False).digest()


def md5(data: str | bytes) -> str:
    """The MD5 hash in hexadecimal digits."""
    return hashlib.md5(data.encode() if isinstance(data, str) else data, usedforsecurity=False).hexdigest()


def encode(data: bytes, form: str) -> str:
    """As text: hex, base64 (in lines of 76 characters) or escape."""
    if form.lower() == "hex":
        return data.hex()
    if form.lower() == "base64":
        text = base64.b64encode(data).decode()
        return "\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))
    if form.lower() != "escape":
        raise NoValue("an encoding is hex, base64 or escape")
    shown = {0x5C: "\\\\", 0: "\\000"}
    return "".join(shown.get(byte) or (chr(byte) if byte < 0x80 else f"\\{byte:03o}") for byte in data)


def decode(text: str, form: str) -> bytes:
    """The inverse of `encode`."""
    try:
        if form.lower() == "hex":
            return bytes.fromhex(text) if text.isascii() else _invalid()
        if form.lower() == "base64":
            return base64.b64decode(re.sub(r"[ \n\r\t]", "", text), validate=True)
    except (ValueError, binascii.Error):
        _invalid()
    if form.lower() != "escape":
        raise NoValue("an encoding is hex, base64 or escape")
    data = text.encode()
    parts = list(_ESCAPED.finditer(data))
    if sum(len(part[0]) for part in parts) < len(data):
        _invalid()
    return b"".join(bytes([int(part[1], 8)]) if part[1] else part[0][:1] for part in parts)


def _invalid() -> bytes:
    raise NoValue("invalid text for BYTEA")


def byte_at(data: bytes, at: int) -> int:
    """The byte at an offset from 0."""
    return data[_checked(at, len(data))]


def with_byte(data: bytes, at: int, value: int) -> bytes:
    _checked(at, len(data))
    return data[:at] + bytes([value & 0xFF]) + data[at + 1 :]


def bit_at(data: bytes, at: int) -> int:
    """The bit at an offset from 0; the lowest bit of each byte is the first."""
    return data[_checked(at, 8 * len(data)) // 8] >> at % 8 & 1


def with_bit(data: bytes, at: int, value: int) -> bytes:
    if value not in (0, 1):
        raise NoValue("a bit is 0 or 1")
    byte = data[_checked(at, 8 * len(data)) // 8]
    return with_byte(data, at // 8, byte & ~(1 << at % 8) | value << at % 8)


def _checked(at: int, size: int) -> int:
    if not 0 <= at < size:
        raise NoValue("an offset is outside of the bytes")
    return at


def bytes_of(value: int, size: int) -> bytes:
    """A whole number in so many bytes, the highest one first."""
    return value.to_bytes(size, "big", signed=True)


def integer_of(data: bytes) -> int:
    """The inverse of `bytes_of` for 8 bytes."""
    if len(data) != 8:
        raise NoValue("a BIGINT has 8 bytes")
    return int.from_bytes(data, "big", signed=True)


def bit_count(data: bytes) -> int:
    """The number of bits that are 1."""
    return int.from_bytes(data).bit_count()


def converted_from(data: bytes, encoding: str) -> str:
    """The text of bytes in an encoding."""
    try:
        text = data.decode(_encoding(encoding))
    except UnicodeDecodeError:
        raise NoValue("the bytes are no text of this encoding") from None
    if "\0" in text:
        raise NoValue("the bytes are no text of this encoding")
    return text


def converted_to(text: str, encoding: str) -> bytes:
    try:
        return text.encode(_encoding(encoding))
    except UnicodeEncodeError:
        raise NoValue("the encoding lacks a character of this text") from None


def _encoding(name: str) -> str:
    known = _ENCODINGS.get(name.lower())
    if known is None:
        raise NoValue(f"an encoding is one of {', '.join(_ENCODINGS)}")
    return known


def reversed_bytes(value: bytes) -> bytes:
    return value[::-1]
