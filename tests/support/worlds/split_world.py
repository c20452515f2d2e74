"""Descriptions of the files of a large tree, without the files, with known keys, to assess a split."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from hummock.sstable.info import SstableInfo
from hummock.sstable.meta import SplitSample

FILE_BYTES, RANGE_BYTES = 256 << 20, 1 << 30
SAMPLES = 32
LEVELS = (0.01, 0.09, 0.9)      # of the files, in runs from the newest to the oldest
KEY_BYTES = 30


class SplitWorld:
    """`files` files of 256 MB in three overlapping runs, over tables of very different sizes.

    A file is 32 segments of equal bytes between neighbouring sample keys; the position of a row inside a segment is
    unknown.
    """

    def __init__(self, rng: random.Random, files: int):
        self.files: list[SstableInfo] = []
        self._keys: dict[str, list[bytes]] = {}
        for share in LEVELS:
            count = max(2, round(files * share))
            points = sorted(_key(rng) for _ in range(count * SAMPLES + 1))
            for at in range(0, count * SAMPLES, SAMPLES):
                self._add(points[at:at + SAMPLES + 1])

    def read(self, files: Sequence[SstableInfo]) -> Iterator[list[SplitSample]]:
        for info in files:
            keys = self._keys[info.name]
            yield [SplitSample(key, FILE_BYTES * index // SAMPLES) for index, key in enumerate(keys[1:-1], start=1)]

    def sizes(self, cuts: Sequence[bytes]) -> list[int]:
        """The bytes of each range; if a cut is inside a segment, half of the segment counts as before it."""
        below, whole = [0] * len(cuts), [0] * (len(cuts) + 1)
        for keys in self._keys.values():
            first, behind = bisect_left(cuts, keys[0]), bisect_right(cuts, keys[-1])
            whole[behind] += FILE_BYTES
            for number in range(first, behind):
                index = bisect_left(keys, cuts[number])
                exact = keys[index] == cuts[number]
                below[number] += FILE_BYTES * max(0, 2 * index - (not exact)) // (2 * SAMPLES)
        below = [part + before for part, before in zip(below, accumulate(whole), strict=False)]
        bounds = [0, *below, FILE_BYTES * len(self.files)]
        return [end - start for start, end in pairwise(bounds)]

    def _add(self, keys: list[bytes]) -> None:
        name = f"{len(self.files):032x}"
        tables = tuple(sorted({int.from_bytes(key[:4], "big") for key in keys}))
        self._keys[name] = keys
        self.files.append(SstableInfo(name, keys[0], keys[-1], 2_000_000, FILE_BYTES, FILE_BYTES, tables, 1 << 16,
                                      9 << 16, meta_bytes=300_000))


def _key(rng: random.Random) -> bytes:
    """A key of one large table, of one with a hot vnode, or of many small ones."""
    kind = rng.random()
    if kind < 0.6:
        table, vnode = 1, rng.randrange(256)
    elif kind < 0.9:
        table, vnode = 2, 7 if rng.random() < 0.5 else rng.randrange(256)
    else:
        table, vnode = rng.randrange(3, 40), rng.randrange(16)
    return table.to_bytes(4, "big") + vnode.to_bytes(2, "big") + rng.randbytes(KEY_BYTES - 6)
