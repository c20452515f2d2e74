"""Rows as bytes: memcomparable keys, and lossless values that remain readable after schema changes. See FORMAT.md."""

from relational.encoding.cells import CellEncoder, CellJoin
from relational.encoding.key.encoder import KeyEncoder
from relational.encoding.value.encoder import ValueEncoder

__all__ = ["CellEncoder", "CellJoin", "KeyEncoder", "ValueEncoder"]
