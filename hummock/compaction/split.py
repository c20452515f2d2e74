"""Cuts: where a compact task is parted into key ranges of about equal bytes.

A cut is a bound on user keys, so all versions of a key lie on one side of it. Bytes are known by split samples,
one small GET at the end of a `.meta`, and only of files that are large beside a range; of the others it is
enough to know where they begin. `pick_cuts` is a pure function of what is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hummock.object_store.base import ObjectStore, sstable_meta_path
from hummock.sstable.info import SstableInfo
from hummock.sstable.meta import SAMPLES_TAIL_BYTES, SplitSample, samples_in_tail

TABLE_BYTES, VNODE_BYTES = 4, 6         # of a user key: its table id; table id and vnode
SAMPLED_SHARE = 8                       # files larger than that part of a range are sampled
SLACK_SHARE = 4                         # a cut may stand so much of a range beside its place, for a border's sake


class Piece(NamedTuple):
    """About `data_bytes` of one file lie at `key` and behind it, up to the file's next piece."""

    key: bytes
    data_bytes: int


class Cut(NamedTuple):
    key: bytes
    bytes_before: int
    rank: int                           # 0: between two tables, 1: between two vnodes, 2: inside a vnode


def cuts_of(sstables: Iterable[SstableInfo], store: ObjectStore, range_bytes: int) -> tuple[bytes, ...]:
    """Ascending bounds that part the files' rows into ranges of about `range_bytes` each.

    Raises `Corruption` naming the object where its samples are damaged.
    """
    pieces: list[Piece] = []
    files = tuple(sstables)
    if range_count(sum(info.data_bytes for info in files), range_bytes) == 1:
        return ()
    for info in files:
        is_large = info.data_bytes * SAMPLED_SHARE > range_bytes
        pieces += pieces_of(info, read_samples(info, store) if is_large else ())
    return pick_cuts(pieces, range_bytes)


def read_samples(info: SstableInfo, store: ObjectStore) -> list[SplitSample]:
    """The split samples of a file, by one small GET."""
    path = sstable_meta_path(info.name)
    tail = store.get(path, range(max(0, info.meta_bytes - SAMPLES_TAIL_BYTES), info.meta_bytes))
    return samples_in_tail(tail, info.meta_bytes, path)


def pieces_of(info: SstableInfo, samples: Sequence[SplitSample]) -> list[Piece]:
    """The file as pieces between its samples."""
    keys = [info.smallest, *(sample.key for sample in samples)]
    offsets = [0, *(sample.data_offset for sample in samples), info.data_bytes]
    return [Piece(key, end - start) for key, start, end in zip(keys, offsets[:-1], offsets[1:], strict=True)]


def pick_cuts(pieces: Iterable[Piece], range_bytes: int) -> tuple[bytes, ...]:
    """Cuts into as many ranges as `range_bytes` goes into all bytes, rounded, but at least one range.

    Near its place a cut rather stands between two tables, else between two vnodes.
    """
    ordered = sorted(pieces)
    total = sum(piece.data_bytes for piece in ordered)
    ranges = range_count(total, range_bytes)
    possible = _possible_cuts(ordered)
    slack = total // ranges // SLACK_SHARE
    chosen: list[Cut] = []
    for number in range(1, ranges):
        wanted = total * number // ranges
        later = [cut for cut in possible if not chosen or cut.bytes_before > chosen[-1].bytes_before]
        near = [cut for cut in later if abs(cut.bytes_before - wanted) <= slack]
        if later:
            chosen.append(min(near or later, key=lambda cut: (
                cut.rank if near else 0, abs(cut.bytes_before - wanted), cut.bytes_before)))
    return tuple(cut.key for cut in chosen)


def range_count(total_bytes: int, range_bytes: int) -> int:
    return max(1, round(total_bytes / range_bytes))


def _possible_cuts(ordered: Sequence[Piece]) -> list[Cut]:
    """One before each piece whose key differs from the one before; with bytes on both sides."""
    cuts, before = [], 0
    last = ordered[0].key if ordered else b""
    for piece in ordered:
        if piece.key != last and before > 0:
            same_table = piece.key[:TABLE_BYTES] == last[:TABLE_BYTES]
            same_vnode = piece.key[:VNODE_BYTES] == last[:VNODE_BYTES]
            size = TABLE_BYTES if not same_table else VNODE_BYTES if not same_vnode else None
            cuts.append(Cut(piece.key[:size], before, same_table + same_vnode))
        before, last = before + piece.data_bytes, piece.key
    return cuts
