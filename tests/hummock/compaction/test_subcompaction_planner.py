"""Boundaries of subcompactions: text cases, random pieces, and samples of real files."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from hummock.base.key import user_key
from hummock.compaction.subcompaction_planner import (
    KeySamples,
    boundaries_of,
    range_bytes_for,
    read_samples,
    split,
    split_of,
)
from hummock.errors import Corruption
from hummock.object_store.base import sstable_meta_path
from hummock.object_store.memory import MemoryObjectStore
from tests.support.drivers.compaction_files import names, put_run, task_of
from tests.support.worlds.split_world import RANGE_BYTES, SplitWorld

CASES = Path(__file__).parents[2] / "cases" / "split.txt"


def key_of(word: str) -> bytes:
    table, *rest = word.split(".")
    parts = [int(table).to_bytes(4, "big"), *(int(vnode).to_bytes(2, "big") for vnode in rest[:1]),
             *(key.encode() for key in rest[1:])]
    return b"".join(parts)


def read_cases() -> list[tuple[str, list[tuple[bytes, int]], int, list[str]]]:
    """(title, pieces, range bytes, expected cuts) of each `cut` line."""
    cases: list[tuple[str, list[tuple[bytes, int]], int, list[str]]] = []
    title, pieces = "", []
    for line in CASES.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "==":
            title, pieces = rest, []
        elif word == "file":
            pieces += [(key_of(key), int(size)) for key, size in (piece.split(":") for piece in rest.split())]
        elif word == "cut":
            cases.append((title, list(pieces), int(rest), []))
        elif word == "->":
            cases[-1][3].extend(rest.split())
    return cases


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: f"{case[0]} ({case[2]})")
def test_split_case(case):
    _, pieces, range_bytes, expected = case
    found = split(samples_of(pieces), range_bytes)
    assert found.cuts == tuple(map(key_of, expected))
    assert sum(found.sizes) == sum(size for _, size in pieces)


def samples_of(pairs: list[tuple[bytes, int]]) -> KeySamples:
    return KeySamples.of([key for key, _ in pairs], [size for _, size in pairs])


@pytest.mark.parametrize("seed", range(50))
def test_random_pieces_give_ascending_cuts_with_bytes_between_them(seed):
    rng = random.Random(seed)
    pieces = [(user_key(rng.randrange(3), rng.randrange(3), rng.randbytes(3)), rng.randrange(1, 100))
              for _ in range(rng.randrange(60))]
    total = sum(size for _, size in pieces)
    range_bytes = rng.randrange(1, 2_000)
    found = split(samples_of(pieces), range_bytes)
    cuts = found.cuts
    assert len(cuts) <= max(0, round(total / range_bytes) - 1)
    for start, end in pairwise((b"", *cuts, b"\xff" * 9)):
        assert start < end
        assert not pieces or any(start <= key < end for key, _ in pieces)
    bounds = list(pairwise((b"", *cuts, b"\xff" * 9)))
    assert list(found.sizes) == [sum(size for key, size in pieces if start <= key < end) for start, end in bounds]
    assert [found.sizes[index] for index in found.largest_first()] == sorted(found.sizes, reverse=True)


def test_files_are_cut_by_their_samples_into_ranges_of_about_the_asked_bytes():
    rng, store, mint = random.Random(1), MemoryObjectStore(), names()
    keys = sorted({user_key(1, rng.randrange(200), rng.randbytes(8)) for _ in range(6_000)})
    runs = [[(key, epoch << 16, rng.randbytes(100)) for key in keys if rng.random() < share]
            for epoch, share in ((3, 0.1), (2, 0.5), (1, 1.0))]
    infos = [info for run in runs for info in put_run(store, run, mint, sstable_bytes=300_000)]
    total = sum(info.data_bytes for info in infos)
    cuts = boundaries_of(infos, store, total // 5)
    assert len(cuts) == 4
    rows = sorted(key for run in runs for key, _, _ in run)
    shares = [sum(start <= key < end for key in rows) / len(rows)
              for start, end in pairwise((b"", *cuts, b"\xff"))]
    assert all(0.1 < share < 0.3 for share in shares), shares
    assert len(task_of([tuple(infos)], cuts=cuts).ranges()) == 5


def test_a_file_that_is_small_beside_a_range_is_not_opened():
    store, mint = MemoryObjectStore(), names()
    infos = put_run(store, [(b"%05d" % n, 1 << 16, b"v" * 90) for n in range(3_000)], mint, sstable_bytes=5_000,
                    codec="none")
    for info in infos:
        store.delete([sstable_meta_path(info.name)])
    total = sum(info.data_bytes for info in infos)
    assert len(boundaries_of(infos, store, total // 3)) == 2


def test_samples_part_a_file_into_all_of_its_bytes():
    store, mint = MemoryObjectStore(), names()
    (info,) = put_run(store, [(b"%05d" % n, 1 << 16, b"v" * 90) for n in range(3_000)], mint)
    (samples,) = read_samples(store, [info])
    assert len(samples) > 10 and samples == sorted(samples)
    found = split_of([info], 1, lambda files: [samples])
    assert all(sample.key.startswith(cut) for sample, cut in zip(samples, found.cuts, strict=True))
    assert sum(found.sizes) == info.data_bytes
    (halves,) = split_of([info], info.data_bytes // 2, lambda files: [()]).cuts
    assert info.largest.startswith(halves)


def test_samples_of_many_files_are_read_at_once_and_come_in_order():
    store, mint = MemoryObjectStore(), names()
    infos = put_run(store, [(b"%05d" % n, 1 << 16, b"v" * 90) for n in range(9_000)], mint, sstable_bytes=9_000,
                    codec="none")
    assert len(infos) > 64
    samples = list(read_samples(store, infos))
    assert all(info.smallest <= some[0].key <= info.largest for info, some in zip(infos, samples, strict=True))
    assert samples == [one for info in infos for one in read_samples(store, [info])]


@pytest.mark.parametrize(("total", "slots", "expected"), [
    (1 << 30, 2, 256 << 20), (3 << 30, 2, 512 << 20), (8 << 30, 2, 1 << 30), (10 << 40, 800, 1 << 30)])
def test_ranges_that_travel_are_neither_small_nor_large(total, slots, expected):
    assert range_bytes_for(total, slots) == expected


@pytest.mark.parametrize("seed", range(5))
def test_no_range_is_much_larger_than_the_mean(seed):
    """Files with known rows: overlapping runs in several levels, several tables, some with hot vnodes."""
    world = SplitWorld(random.Random(seed), files=300)
    found = split_of(world.files, RANGE_BYTES, world.read)
    sizes = world.sizes(found.cuts)
    assert len(sizes) > 30
    assert max(sizes) <= 1.3 * sum(sizes) / len(sizes), (seed, max(sizes), sum(sizes) / len(sizes))


def test_damaged_samples_are_named():
    store, mint = MemoryObjectStore(), names()
    (info,) = put_run(store, [(b"%05d" % n, 1 << 16, b"v" * 90) for n in range(3_000)], mint)
    path = sstable_meta_path(info.name)
    data = bytearray(store.get(path))
    data[-50] ^= 1
    store.put(path, bytes(data))
    with pytest.raises(Corruption, match=info.name):
        boundaries_of([info], store, 1_000)
