"""Conditions on leading key columns as ranges of user keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from hummock.base.key import KeyRange, successor_of_prefix
from relational.table.row_serde import Row, RowSerde
from relational.types.key_set import KeySet, RowRange


class KeyRanges(Sequence[KeyRange]):
    """Ranges, of which there may be one for each vnode, as their `starts` and `ends`; an end as in KeyRange."""

    def __init__(self, starts: Sequence[bytes], ends: Sequence[bytes | None]) -> None:
        self.starts, self.ends = starts, ends

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, at: int) -> KeyRange: ...

    @overload
    def __getitem__(self, at: slice) -> KeyRanges: ...

    def __getitem__(self, at: int | slice) -> KeyRange | KeyRanges:
        if isinstance(at, slice):
            return KeyRanges(self.starts[at], self.ends[at])
        return KeyRange(self.starts[at], self.ends[at])


def key_ranges(
    serde: RowSerde, prefix: Row, bounds: RowRange | None = None, vnodes: np.ndarray | None = None
) -> list[KeyRange]:
    """The user keys of the rows whose pk begins with `prefix` and has the next pk column within `bounds`, ascending:
    one range if the prefix determines the vnode, else one for each of `vnodes` (uint8[vnode_count], None: all of them).
    """
    return list(_within(serde, serde.prefixes(serde.prefix_columns(prefix), vnodes), prefix, bounds))


def ranges_of(serde: RowSerde, keys: KeySet) -> KeyRanges:
    """The user keys of a set of rows as ascending ranges that have no key in common: of each prefix those that
    `key_ranges` returns, the empty ones excepted."""
    found = [key for prefix in keys.prefixes for key in serde.prefixes(serde.prefix_columns(prefix), None)]
    if len(keys.prefixes) > 1:
        found = sorted(set(found))
    return _within(serde, found, keys.prefixes[0], keys.bounds) if found else KeyRanges((), ())


def _within(serde: RowSerde, starts: Sequence[bytes], prefix: Row, bounds: RowRange | None) -> KeyRanges:
    """Of the keys that begin with one of `starts`, prefixes of as many columns as `prefix`, those within `bounds`."""
    if bounds is None:
        return KeyRanges(starts, [successor_of_prefix(start) for start in starts])
    if len(prefix) == len(serde.pk):
        raise ValueError(f"bounds behind a prefix of all {len(prefix)} key columns")
    tails = _tails(serde, prefix, bounds)
    if tails.is_empty:
        return KeyRanges((), ())
    tail, end = tails.start, tails.end
    ends = [successor_of_prefix(start) for start in starts] if end is None else [start + end for start in starts]
    return KeyRanges([start + tail for start in starts], ends)


def _tails(serde: RowSerde, prefix: Row, bounds: RowRange) -> KeyRange:
    """The key range within `bounds`, relative to the prefix."""
    skip = len(serde.key_encoder.encode_row(prefix))
    low, high = bounds.lower, bounds.upper
    has_low, has_high = bounds.includes_lower, bounds.includes_upper
    if serde.catalog.pk[len(prefix)].order.descending:
        low, high, has_low, has_high = high, low, has_high, has_low
    value_tag = bytes([_tail(serde, prefix, None, skip)[0] ^ 1])
    start, end = value_tag, successor_of_prefix(value_tag)
    if low is not None:
        found = _tail(serde, prefix, low, skip)
        after = found if has_low else successor_of_prefix(found)
        if after is None:
            return KeyRange(b"", b"")
        start = after
    if high is not None:
        found = _tail(serde, prefix, high, skip)
        end = successor_of_prefix(found) if has_high else found
    return KeyRange(start, end)


def _tail(serde: RowSerde, prefix: Row, value: object, skip: int) -> bytes:
    return serde.key_encoder.encode_row((*prefix, value))[skip:]
