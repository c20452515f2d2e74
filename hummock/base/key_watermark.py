"""KeyWatermark: the keys of each vnode of a table that are no longer read, from an epoch on.

Vnodes with the same key are one range of vnodes: a watermark common to a whole table is one entry, however many vnodes
the table has [R30].
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hummock.base.json_fields import check_flag, check_natural
from hummock.base.key import KeyRange, successor_of_prefix, user_key
from hummock.epoch import Epoch
from hummock.errors import Corruption, InvalidOption

Mark = tuple[int, int, bytes]       # first vnode, last vnode, table key
Marks = tuple[Mark, ...]
VNODES = 1 << 16
MOST_WATERMARKS = 100               # of one table in a version
MARKS_RULE = "a tuple of (first vnode, last vnode, table key), two integers and bytes"


@dataclass(frozen=True, slots=True)
class KeyWatermark:
    """From `epoch` on, no row of the table below the table key of its vnode (above, if descending) is visible.

    `marks` are ascending and disjoint. `InvalidOption` otherwise, and for what the metadata could not hold.
    """

    epoch: Epoch
    marks: Marks
    is_descending: bool = False

    def __post_init__(self) -> None:
        check_natural("epoch", self.epoch)
        check_flag("is_descending", self.is_descending)
        if not isinstance(self.marks, tuple):
            raise InvalidOption("marks", self.marks, MARKS_RULE)
        before = -1
        for mark in self.marks:
            if not _is_mark(mark):
                raise InvalidOption("marks", mark, MARKS_RULE)
            if not before < mark[0] <= mark[1] < VNODES:
                raise InvalidOption("marks", mark, f"ascending, of vnodes {before + 1} .. {VNODES - 1} here")
            before = mark[1]

    @classmethod
    def of(cls, epoch: Epoch, keys: Mapping[int, bytes], is_descending: bool = False) -> KeyWatermark:
        """The watermark with a table key for each of some vnodes."""
        return cls(epoch, compact((vnode, vnode, key) for vnode, key in sorted(keys.items())), is_descending)

    def key_of(self, vnode: int) -> bytes | None:
        """The table key of a vnode; None if it has none."""
        at = bisect_left(self.marks, vnode, key=lambda mark: mark[1])
        return self.marks[at][2] if at < len(self.marks) and self.marks[at][0] <= vnode else None

    def followed_by(self, later: KeyWatermark) -> KeyWatermark:
        """`later` for all vnodes of both; no key moves back. A watermark of the other direction replaces this one."""
        if self.is_descending != later.is_descending:
            return later
        marks = compact((first, last, _further(known, key, later.is_descending))
                        for first, last, known, key in sections(self.marks, later.marks))
        return replace(later, marks=marks)

    def covers(self, other: KeyWatermark) -> bool:
        """Whether `other`, at a later epoch, would hide nothing that this one does not."""
        return replace(self.followed_by(other), epoch=self.epoch) == self

    def to_json(self) -> dict[str, Any]:
        """As the metadata have it; `from_json` reads it."""
        keys = [[first, key.hex()] if first == last else [first, last, key.hex()] for first, last, key in self.marks]
        return {"epoch": self.epoch, "is_descending": self.is_descending, "keys": keys}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> KeyWatermark:
        """The inverse of `to_json`. KeyError, TypeError or ValueError when bad."""
        marks = tuple(map(_mark_of, record["keys"]))
        return cls(record["epoch"], marks, bool(record["is_descending"]))


def _mark_of(entry: Sequence[Any]) -> Mark:
    first, last, key = entry if len(entry) == 3 else (*entry[:1], *entry)
    return first, last, bytes.fromhex(key)


def _is_mark(mark: object) -> bool:
    return (isinstance(mark, tuple) and len(mark) == 3 and type(mark[0]) is int and type(mark[1]) is int
            and isinstance(mark[2], bytes))


def compact(marks: Iterable[Mark]) -> Marks:
    """The same marks as few ranges. REQUIRES that they are ascending and disjoint."""
    found: list[Mark] = []
    for first, last, key in marks:
        if found and found[-1][1] + 1 == first and found[-1][2] == key:
            found[-1] = found[-1][0], last, key
        else:
            found.append((first, last, key))
    return tuple(found)


def sections(one: Sequence[Mark], other: Sequence[Mark]) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """(first vnode, last vnode, key in `one`, key in `other`) of the ranges with a key in either, ascending."""
    cuts = sorted({bound for first, last, _ in (*one, *other) for bound in (first, last + 1)})
    key_at, other_at = _keys_from(one), _keys_from(other)
    for first, after in pairwise(cuts):
        key, another = key_at(first), other_at(first)
        if key is not None or another is not None:
            yield first, after - 1, key, another


def _keys_from(marks: Sequence[Mark]) -> Callable[[int], bytes | None]:
    """The key of a vnode, for ascending vnodes."""
    at = 0

    def key_of(vnode: int) -> bytes | None:
        nonlocal at
        while at < len(marks) and marks[at][1] < vnode:
            at += 1
        return marks[at][2] if at < len(marks) and marks[at][0] <= vnode else None

    return key_of


def joined_watermarks(known: Sequence[KeyWatermark], added: Iterable[KeyWatermark]) -> tuple[KeyWatermark, ...]:
    """Both, newest first; each covers all vnodes of older ones. Corruption for one that is older than the newest."""
    joined: list[KeyWatermark] = list(known)
    for mark in sorted(set(added) - set(known), key=lambda mark: mark.epoch):
        if joined and mark.epoch < joined[0].epoch:
            raise Corruption("table rules", "watermarks", f"an epoch from {joined[0].epoch} on", mark.epoch)
        both = joined[0].followed_by(mark) if joined else mark
        if joined and joined[0].epoch == mark.epoch:
            joined.pop(0)
        joined.insert(0, both)
    return tuple(joined)


def _further(known: bytes | None, key: bytes | None, is_descending: bool) -> bytes:
    """The key that hides more. REQUIRES that there is one. Descending, a prefix of the known key would make rows
    visible again.
    """
    if known is None or key is None:
        found = known if key is None else key
        assert found is not None
        return found
    if is_descending:
        return known if known.startswith(key) else min(known, key)
    return max(known, key)


def needed_watermarks(watermarks: Sequence[KeyWatermark], safe_epoch: Epoch) -> tuple[KeyWatermark, ...]:
    """Those above `safe_epoch` and the newest at or below it: all that any possible reader needs. Of more than
    MOST_WATERMARKS the oldest and the newest stay: readers of epochs in between find rows of before, which nobody
    reads.
    """
    newer = sum(mark.epoch > safe_epoch for mark in watermarks)
    needed = tuple(watermarks[:newer + 1])
    return needed if len(needed) <= MOST_WATERMARKS else (*needed[:MOST_WATERMARKS - 1], needed[-1])


def passed_ranges(table_id: int, before: KeyWatermark | None, after: KeyWatermark) -> list[KeyRange]:
    """Ranges outside which both watermarks hide the same user keys of the table; ascending. REQUIRES that `after`
    followed `before`.
    """
    is_turned = before is not None and before.is_descending != after.is_descending
    ranges: list[KeyRange] = []
    for first, last, known, key in sections(() if before is None else before.marks, after.marks):
        vnodes = range(first, last + 1)
        if is_turned:
            ranges += (KeyRange.vnode(table_id, vnode) for vnode in vnodes)
        elif key is not None and key != known:
            ranges += (_passed(table_id, vnode, known, key, after.is_descending) for vnode in vnodes)
    return ranges


def _passed(table_id: int, vnode: int, known: bytes | None, key: bytes, is_descending: bool) -> KeyRange:
    """User keys of a vnode between two of its marks; `known` None: no earlier mark."""
    whole = KeyRange.vnode(table_id, vnode)
    at = user_key(table_id, vnode, key)
    if not is_descending:
        return KeyRange(whole.start if known is None else user_key(table_id, vnode, known), at)
    start = successor_of_prefix(at)
    end = whole.end if known is None else successor_of_prefix(user_key(table_id, vnode, known))
    return KeyRange(b"", b"") if start is None else KeyRange(start, end)
