"""Divides a compact task at key boundaries (cuts) into ranges of about equal bytes.

A cut is a bound on user keys, so all versions of a key are on one side of it. Sizes are estimated from split samples,
read by one small GET at the end of a `.meta`, and only for files that are large compared to a range; for the others
their first and last key are enough. The plan is a pure function of these inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.object_store.base import ObjectStore, sstable_meta_path
from hummock.options import MIB
from hummock.sstable.info import SstableInfo
from hummock.sstable.inline import with_inline
from hummock.sstable.meta import SAMPLES_TAIL_BYTES, SplitSample, samples_in_tail

TABLE_BYTES, VNODE_BYTES = 4, 6         # prefixes of a user key: table id; table id and vnode
SAMPLED_SHARE = 8                       # files above that part of a range are sampled
SLACK_SHARE = 8                         # a cut may deviate by that part of a range to hit a border
RANGES_OF_A_SLOT = 3                    # so that all slots finish at about the same time
LEAST_RANGE_BYTES, MOST_RANGE_BYTES = 256 * MIB, 1024 * MIB     # of a range for a remote worker
SAMPLING_THREADS = 32
FILES_AT_ONCE = 2_048                   # per batch, bounds the samples in memory

Samples = Iterable[Sequence[SplitSample]]
ReadSamples = Callable[[Sequence[SstableInfo]], Samples]


@dataclass(frozen=True, slots=True, eq=False)
class KeySamples:
    """About `sizes[i]` bytes of some file are at and after `keys[i]`, up to the file's next key."""

    keys: pa.LargeBinaryArray
    sizes: np.ndarray                   # int64

    @classmethod
    def of(cls, keys: Sequence[bytes], sizes: Sequence[int]) -> KeySamples:
        return cls(pa.array(keys, pa.large_binary()), np.array(sizes, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[KeySamples]) -> KeySamples:
        return cls(pa.concat_arrays([part.keys for part in parts] or [pa.array([], pa.large_binary())]),
                   np.concatenate([part.sizes for part in parts] or [np.empty(0, np.int64)]))


@dataclass(frozen=True, slots=True)
class Split:
    """`cuts`, ascending, and the estimated bytes of each range between them."""

    cuts: tuple[bytes, ...]
    sizes: tuple[int, ...]

    def largest_first(self) -> list[int]:
        """The indexes of the ranges, largest first, so that the longest start first."""
        return sorted(range(len(self.sizes)), key=lambda position: -self.sizes[position])


def range_bytes_for(total_bytes: int, slots: int) -> int:
    """The best size of ranges for `slots` remote workers."""
    return min(max(total_bytes // (RANGES_OF_A_SLOT * slots), LEAST_RANGE_BYTES), MOST_RANGE_BYTES)


def split_of(sstables: Iterable[SstableInfo], range_bytes: int, read: ReadSamples) -> Split:
    """Divides the files' rows into ranges of about `range_bytes` each. Calls `read` for large files only.

    Raises what `read` raises.
    """
    files = tuple(sstables)
    total = sum(info.data_bytes for info in files)
    if range_count(total, range_bytes) == 1:
        return Split((), (total,))
    large = [info for info in files if info.data_bytes * SAMPLED_SHARE > range_bytes]
    small = [info for info in files if info.data_bytes * SAMPLED_SHARE <= range_bytes]
    parts, samples = [_key_samples(small, [()] * len(small))], iter(read(large))
    for at in range(0, len(large), FILES_AT_ONCE):
        some = large[at:at + FILES_AT_ONCE]
        parts.append(_key_samples(some, islice(samples, len(some))))
    return split(KeySamples.joined(parts), range_bytes)


def boundaries_of(sstables: Iterable[SstableInfo], store: ObjectStore, range_bytes: int) -> tuple[bytes, ...]:
    """The cuts of `split_of` for files in `store`. Raises `Corruption` naming an object with damaged samples."""
    return split_of(sstables, range_bytes, partial(read_samples, store)).cuts


def read_samples(store: ObjectStore, files: Sequence[SstableInfo]) -> Samples:
    """The split samples of each file, by one small GET each, in parallel. Raises `Corruption` naming the object."""
    if len(files) < SAMPLING_THREADS:
        yield from (_samples_of(store, info) for info in files)
        return
    with ThreadPoolExecutor(SAMPLING_THREADS, thread_name_prefix="hummock-samples") as pool:
        for at in range(0, len(files), FILES_AT_ONCE):
            yield from pool.map(partial(_samples_of, store), files[at:at + FILES_AT_ONCE])


def _samples_of(store: ObjectStore, info: SstableInfo) -> list[SplitSample]:
    path = sstable_meta_path(info.name)
    tail = with_inline(store, (info,)).get(path, range(max(0, info.meta_bytes - SAMPLES_TAIL_BYTES), info.meta_bytes))
    return samples_in_tail(tail, info.meta_bytes, path)


def _key_samples(files: Sequence[SstableInfo], samples: Samples) -> KeySamples:
    """The keys and sizes of the files' samples; a file without samples as two halves, at its first and last key."""
    keys: list[bytes] = []
    sizes: list[int] = []
    for info, some in zip(files, samples, strict=True):
        if some:
            keys.append(info.smallest)
            keys += [sample.key for sample in some]
            offsets = [0, *(sample.data_offset for sample in some), info.data_bytes]
            sizes += [end - start for start, end in pairwise(offsets)]
        else:
            keys += (info.smallest, info.largest)
            sizes += (info.data_bytes - info.data_bytes // 2, info.data_bytes // 2)
    return KeySamples.of(keys, sizes)


def split(samples: KeySamples, range_bytes: int) -> Split:
    """Divides all bytes into ranges of `range_bytes`, rounded, at least one.

    Near its ideal position a cut is preferably between two tables, else between two vnodes.
    """
    total = int(samples.sizes.sum())
    ranges = range_count(total, range_bytes)
    keys, before, rank = _possible_boundaries(samples)
    slack = total // ranges // SLACK_SHARE
    chosen: list[int] = []
    first = 0                           # of the remaining possible cuts
    for number in range(1, ranges):
        if first == len(before):
            break
        wanted = total * number // ranges
        low, high = np.searchsorted(before, (wanted - slack, wanted + slack + 1))
        low = max(low, first)
        if low < high:
            best = low + np.flatnonzero(rank[low:high] == rank[low:high].min())
        else:
            best = np.arange(max(first, low - 1), max(first, min(low, len(before) - 1)) + 1)
        first = int(best[np.argmin(np.abs(before[best] - wanted))])
        chosen.append(first)
        first += 1
    bounds = [0, *(int(before[position]) for position in chosen), total]
    return Split(tuple(_border(keys[position].as_py(), int(rank[position])) for position in chosen),
                 tuple(end - start for start, end in pairwise(bounds)))


def range_count(total_bytes: int, range_bytes: int) -> int:
    return max(1, round(total_bytes / range_bytes))


def _possible_boundaries(samples: KeySamples) -> tuple[pa.LargeBinaryArray, np.ndarray, np.ndarray]:
    """Possible cuts, before each sample whose key differs from the previous one, with bytes on both sides: key, bytes
    before, rank.

    A cut between two tables has rank 0, one between two vnodes 1, one inside a vnode 2.
    """
    order = pc.sort_indices(samples.keys)
    keys, sizes = samples.keys.take(order), samples.sizes[order.to_numpy()]
    before = np.cumsum(sizes) - sizes

    def differs(part: pa.LargeBinaryArray) -> np.ndarray:
        return pc.not_equal(part[1:], part[:-1]).to_numpy(zero_copy_only=False)

    positions = 1 + np.flatnonzero(differs(keys) & (before[1:] > 0))
    rank = 2 - differs(pc.binary_slice(keys, 0, VNODE_BYTES)).astype(np.int8) - differs(
        pc.binary_slice(keys, 0, TABLE_BYTES)).astype(np.int8)
    return keys.take(pa.array(positions)), before[positions], rank[positions - 1]


def _border(key: bytes, rank: int) -> bytes:
    """The key of a cut before `key`: the start of the table or vnode that begins there."""
    return key[:(TABLE_BYTES, VNODE_BYTES, None)[rank]]
