"""Rows as bytes: keys that order as the rows do, values that lose nothing. See FORMAT.md."""

from relational.encoding.memcomparable import KeyEncoder, is_lossy
from relational.encoding.value import ValueEncoder

__all__ = ["KeyEncoder", "ValueEncoder", "is_lossy"]
