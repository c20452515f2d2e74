"""Rows as bytes: keys that order as the rows do, values that lose nothing and outlive schemas. See FORMAT.md."""

from relational.encoding.cells import CellEncoder, CellJoin
from relational.encoding.memcomparable import KeyEncoder, is_lossy
from relational.encoding.value import ValueEncoder

__all__ = ["CellEncoder", "CellJoin", "KeyEncoder", "ValueEncoder", "is_lossy"]
