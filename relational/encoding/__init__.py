"""Rows as bytes: keys that order as the rows do, and lossless values that stay readable when schemas change.
See FORMAT.md.
"""

from relational.encoding.cells import CellEncoder, CellJoin
from relational.encoding.key.encoder import KeyEncoder, is_lossy
from relational.encoding.value.encoder import ValueEncoder

__all__ = ["CellEncoder", "CellJoin", "KeyEncoder", "ValueEncoder", "is_lossy"]
