"""Sets of rows by conditions on the leading columns of their key."""

from __future__ import annotations

from dataclasses import dataclass

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RowRange:
    """Bounds on the pk column after a prefix; None is open. NULL is within no bounds."""

    lower: object = None
    upper: object = None
    includes_lower: bool = True
    includes_upper: bool = False


@dataclass(frozen=True, slots=True)
class KeySet:
    """The rows whose leading key columns have the values of one of `prefixes`, all of which are equally long, and whose
    next key column is within `bounds` (None: whatever it is). Values are those of the columns' types; None is NULL.
    Prefixes may repeat. Without any prefix the set is empty; with the prefix () it is not limited by one.
    """

    prefixes: tuple[Row, ...]
    bounds: RowRange | None = None
