"""BlockMerge: merges of batch columns and of blocks equal a sorted list, however deep their keys differ."""

from __future__ import annotations

import random
from itertools import product

import pytest

from hummock.compaction.task import OutputOptions
from hummock.iterator.entry_collector import EntryCollector
from hummock.iterator.merge import MergeIterator
from hummock.object_store.memory import MemoryObjectStore
from tests.hummock.oracle_block import full_key_order
from tests.support.drivers.compaction_files import entries_in, names, put_run, run_ranges, task_of
from tests.support.suites.entry_cases import iterator_of

PREFIX_SIZES = (0, 1, 6, 7, 8, 9, 14, 15, 16, 17, 40)
SUFFIXES = (b"", b"\x00", b"\x00\x00", b"a", b"ab", b"\xff" * 7, b"\xff" * 8, b"q" * 17)


def short_keys(rng):
    """Keys with shared prefixes of some lengths."""
    prefix = b"\x00" * 3 + b"\x01" + rng.randbytes(40)
    chosen = rng.choices(PREFIX_SIZES, k=rng.choice((1, 1, 2)))
    return {
        prefix[:4 + size] + b"".join(rng.choices(SUFFIXES, k=rng.randint(1, 3))) + rng.randbytes(rng.choice((0, 1, 12)))
        for size in chosen for _ in range(rng.randint(1, 800))
    }


def grouped_keys(rng):
    """Keys of two to six columns, the first ones of few values each: groups within groups, some of them large."""
    domains = [[rng.choice(SUFFIXES) * rng.randint(1, 3) + rng.choice((b"", bytes(rng.randint(1, 12)), b"\x01"))
                for _ in range(rng.choice((1, 1, 2, 3)))] for _ in range(rng.randint(1, 5))]
    return {b"\x00" * 3 + b"\x01\x00\x07" + b"".join(rng.choice(domain) for domain in domains)
            + rng.randbytes(rng.choice((0, 1, 2, 8, 30))) for _ in range(1_500)}


def long_keys(rng):
    """Keys that are longer than what is assembled at once."""
    prefix = b"\x00" * 3 + b"\x01" + rng.randbytes(66_000)
    return {prefix + rng.randbytes(rng.choice((0, 1, 12))) for _ in range(12)}


def random_runs(rng, make_keys):
    """Runs of which any may hold the newest version of a key."""
    keys, runs = sorted(make_keys(rng)), []
    for number in range(rng.choice((1, 2, 3, 8, 33))):
        share = rng.choice((0.02, 0.5, 1.0))
        epochs = {key: rng.sample(range(1, 100), rng.choice((1, 1, 1, 4))) for key in keys if rng.random() < share}
        runs.append(sorted(
            ((key, (100 * epoch + number) << 16, None if rng.random() < 0.1 else rng.randbytes(rng.randrange(30)))
             for key in epochs for epoch in epochs[key]), key=full_key_order))
    return [run for run in runs if run]


@pytest.mark.parametrize(
    "seed, make_keys", [*product(range(40), (short_keys, grouped_keys)), *product(range(4), [long_keys])])
def test_rounds_over_blocks_keep_every_version_in_order(seed, make_keys):
    rng = random.Random(seed)
    store, mint, runs = MemoryObjectStore(), names(), random_runs(rng, make_keys)
    infos = [put_run(store, run, mint, sstable_bytes=1 << 20, block_bytes=rng.choice((100, 1_000, 30_000)))
             for run in runs]
    output = OutputOptions(1 << 20, 4_000, "none", "none", 10)
    results = run_ranges(task_of(infos, output=output), store, names("f"), threads=1, memory_bytes=1 << 20)
    found = [entry for result in results for info in result.sstables for entry in entries_in(store, info)]
    assert found == sorted((entry for run in runs for entry in run), key=full_key_order)


@pytest.mark.parametrize("seed", range(40))
def test_rounds_over_batches_return_the_newer_child_first_where_full_keys_are_equal(seed):
    rng = random.Random(seed)
    keys = sorted({rng.choice(SUFFIXES) + rng.randbytes(rng.randint(0, 2)) for _ in range(300)})
    runs = [[(key, rng.choice((1, 2)) << 16, b"%d" % number) for key in keys if rng.random() < 0.6]
            for number in range(rng.randint(1, 12))]
    runs = [[entry for entry in run if entry[1] >> 16 == epoch] for run in runs for epoch in (1, 2)]
    runs = [run for run in runs if run]
    # the sort is stable: entries of one full key stay in order of their runs
    model = sorted((entry for run in runs for entry in run), key=full_key_order)
    columns = EntryCollector(MergeIterator([iterator_of(run) for run in runs])).next_batch()
    assert [(key, epoch, value) for key, value, epoch in zip(*columns, strict=True)] == model


@pytest.mark.parametrize("seed", range(40))
def test_rounds_over_batches_of_grouped_keys(seed):
    rng = random.Random(seed)
    runs = random_runs(rng, grouped_keys)
    runs = [[entry for entry in run if entry[1] == epoch] for run in runs for epoch in {entry[1] for entry in run}]
    columns = EntryCollector(MergeIterator([iterator_of(run) for run in runs])).next_batch()
    found = [(key, epoch, value) for key, value, epoch in zip(*columns, strict=True)]
    assert found == sorted((entry for run in runs for entry in run), key=full_key_order)


def keys_that_differ_in_one_byte():
    """Keys of each size up to 80 bytes, which differ from those of 0x7f in one byte at most."""
    return sorted({(b"\x7f" * at + byte + b"\x7f" * size)[:size] for size in range(81) for at in range(size + 1)
                   for byte in (b"", b"\x01", b"\x80")})


def test_keys_that_differ_in_one_byte_anywhere():
    keys = keys_that_differ_in_one_byte()
    runs = [[(key, 1 << 16, b"%d" % start) for key in keys[start::3]] for start in range(3)]
    columns = EntryCollector(MergeIterator([iterator_of(run) for run in runs])).next_batch()
    assert list(columns[0]) == keys


def test_files_of_keys_that_differ_in_one_byte_anywhere():
    prefix, store, mint = b"\x00\x00\x00\x01\x00\x07", MemoryObjectStore(), names()
    keys = [prefix + key for key in keys_that_differ_in_one_byte()]
    runs = [[(key, (2 + start) << 16, b"%d" % start) for key in keys if rng.random() < 0.7]
            for start, rng in ((start, random.Random(start)) for start in range(4))]
    infos = [put_run(store, run, mint, sstable_bytes=1 << 20, block_bytes=2_000) for run in runs]
    output = OutputOptions(1 << 20, 4_000, "none", "none", 10)
    results = run_ranges(task_of(infos, output=output), store, names("f"), threads=1, memory_bytes=1 << 20)
    found = [entry for result in results for info in result.sstables for entry in entries_in(store, info)]
    assert found == sorted((entry for run in runs for entry in run), key=full_key_order)


def test_runs_of_which_one_has_nearly_all_rows():
    keys = [b"q" * 20 + b"%06d" % number for number in range(20_000)]
    sparse = [[(key, 1 << 16, b"s") for key in keys[start::1_000]] for start in range(1, 9)]
    taken = {key for run in sparse for key, _, _ in run}
    dense = [(key, 1 << 16, b"d") for key in keys if key not in taken]
    merge = EntryCollector(MergeIterator([iterator_of(run) for run in (*sparse, dense)]))
    found = [key for batch in iter(merge.next_batch, None) for key in batch[0]]
    assert found == keys


def test_runs_that_take_turns_in_having_most_rows():
    keys = [b"q" * 20 + b"%06d" % number for number in range(20_000)]
    rng = random.Random(11)
    runs = [[] for _ in range(7)]
    for number, key in enumerate(keys):
        leader = number // 1_500 % 7
        runs[leader if rng.random() < 0.97 else rng.randrange(7)].append((key, 1 << 16, b"%d" % number))
    merge = EntryCollector(MergeIterator([iterator_of(run) for run in runs]))
    found = [entry for batch in iter(merge.next_batch, None) for entry in zip(batch[0], batch[1], strict=True)]
    assert found == [(key, b"%d" % number) for number, key in enumerate(keys)]


def test_keys_that_differ_at_more_depths_than_are_followed():
    keys = [b"q" * (8 * depth) + bytes([at]) for depth in range(70, 0, -1) for at in (1, 2, 3)]
    runs = [sorted((key, 1 << 16, b"") for key in keys[start::2]) for start in (0, 1)]
    columns = EntryCollector(MergeIterator([iterator_of(run) for run in runs])).next_batch()
    assert list(columns[0]) == sorted(keys)
