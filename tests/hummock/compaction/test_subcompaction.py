"""Subcompactions: retention, exact row accounting, errors that name the file, cancellation and progress midway."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from itertools import pairwise

import pytest

from hummock.base.json_fields import U64
from hummock.base.key import user_key
from hummock.compaction.read_ahead import ReadAhead
from hummock.compaction.subcompaction import run_subcompaction
from hummock.compaction.task import OutputOptions, RangeSpec
from hummock.errors import Corruption, HummockError, ObjectNotFound, ObjectStoreError, TaskCancelled
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.local import LocalObjectStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.sstable.multi_builder import MultiSstableBuilder
from tests.hummock.oracle_block import full_key_order
from tests.hummock.oracle_hash import content_hash
from tests.hummock.pipeline.test_retention import kept_by_the_rule
from tests.support.drivers.compaction_files import OUTPUT, entries_in, names, put_run, run_ranges, task_of
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.suites.interpreter_work import gil_takings

MEMORY = 1 << 20


def random_runs(rng, tables=(1, 2, 7)):
    """Runs newest first, each with epochs below those of the one before."""
    keys = [user_key(rng.choice(tables), rng.randrange(4), rng.randbytes(rng.randint(0, 6))) for _ in range(400)]
    runs = []
    for number in range(rng.randint(1, 6)):
        entries = {}
        for key in rng.sample(keys, rng.randint(1, 300)):
            for _ in range(rng.choice((1, 1, 1, 3, 30 if rng.random() < 0.02 else 1))):
                epoch = (40 - 5 * number - rng.randrange(5)) << 16 | rng.randrange(3)
                entries[key, epoch] = None if rng.random() < 0.3 else rng.randbytes(rng.randrange(120))
        runs.append(sorted(((*at, value) for at, value in entries.items()), key=full_key_order))
    return runs


def results_of(store, task):
    return run_ranges(task, store, names("f"), threads=2, memory_bytes=2 * MEMORY)


@pytest.mark.parametrize("seed", range(40))
def test_random_runs_become_what_the_rule_keeps(seed):
    rng = random.Random(seed)
    store, mint = MemoryObjectStore(), names()
    runs = random_runs(rng)
    infos = [put_run(store, run, mint, sstable_bytes=rng.choice((2_000, 10_000, 1 << 20)),
                     block_bytes=rng.choice((1, 200, 2_000))) for run in runs]
    merged = sorted((entry for run in runs for entry in run), key=full_key_order)
    cuts = sorted({rng.choice(merged)[0][:rng.randint(1, 9)] for _ in range(rng.randrange(4))})
    watermark, drop_tombstones = rng.randrange(45) << 16, rng.random() < 0.5
    task = task_of(infos, watermark=watermark, drop_tombstones=drop_tombstones, cuts=cuts,
                   output=OutputOptions(rng.choice((1_000, 20_000)), rng.choice((1, 500)), "lz4", "none", 10))
    results = results_of(store, task)
    found = [entry for result in results for info in result.sstables for entry in entries_in(store, info)]
    assert found == kept_by_the_rule(merged, watermark >> 16, drop_tombstones)
    assert sum(result.rows_read for result in results) == task.input_rows == len(merged)
    assert sum(result.hash_read for result in results) % U64 == task.input_hash == content_hash(merged)
    for result in results:
        assert not result.mismatch()
    dropped = [entry for entry in merged if entry not in found]
    assert sum(result.hash_dropped for result in results) % U64 == content_hash(dropped)
    files = [info for result in results for info in result.sstables]
    assert all(left.largest < right.smallest for left, right in pairwise(files))


def test_a_range_holds_the_keys_from_its_start_to_before_its_end():
    store, mint = MemoryObjectStore(), names()
    run = [(b"%05d" % n, epoch << 16, b"v") for n in range(500) for epoch in (2, 1)]
    infos = put_run(store, run, mint, sstable_bytes=4_000, block_bytes=200)
    task = task_of([infos])
    for start, end in ((b"", None), (b"00100", b"00200"), (b"00100", b"001000"), (b"", b"00000"), (b"00499", None),
                       (b"001", b"0010"), (b"9", None)):
        result = run_subcompaction(RangeSpec(task, 0, start, end), store, names("c"), memory_bytes=MEMORY)
        found = [entry for info in result.sstables for entry in entries_in(store, info)]
        assert found == [entry for entry in run if start <= entry[0] and (end is None or entry[0] < end)]
        assert (result.rows_read, result.hash_read) == (len(found), content_hash(found))
        for info in result.sstables:
            store.delete([sstable_data_path(info.name), sstable_meta_path(info.name)])


def test_files_outside_the_range_are_not_read():
    store, mint = MemoryObjectStore(), names()
    infos = put_run(store, [(b"%05d" % n, 1 << 16, b"v" * 50) for n in range(2_000)], mint, sstable_bytes=4_000)
    for info in infos:
        if not info.smallest <= b"01000" <= info.largest:
            store.delete([sstable_data_path(info.name), sstable_meta_path(info.name)])
    spec = RangeSpec(task_of([infos]), 0, b"01000", b"01001")
    result = run_subcompaction(spec, store, names("c"), memory_bytes=MEMORY)
    assert (result.rows_read, len(result.sstables)) == (1, 1)


def test_all_versions_of_a_key_are_seen_where_they_span_blocks_and_files_of_several_runs():
    store, mint = MemoryObjectStore(), names()
    newer = [(b"k", epoch << 16, b"%d" % epoch * 30) for epoch in range(90, 50, -1)]
    older = [(b"j", 1 << 16, b"j"), *((b"k", epoch << 16, b"%d" % epoch * 30) for epoch in range(50, 0, -1))]
    infos = [put_run(store, run, mint, block_bytes=100) for run in (newer, older)]
    output = OutputOptions(1, 100, "none", "none", 10)
    (result,) = results_of(store, task_of(infos, watermark=45 << 16, output=output))
    assert [info.rows for info in result.sstables] == [1, 46]
    (found,) = [entries_in(store, info) for info in result.sstables[1:]]
    assert [epoch >> 16 for _, epoch, _ in found] == list(range(90, 44, -1))
    assert result.rows_dropped == 44


def flip_bit(store, path, at):
    data = bytearray(store.get(path))
    data[at] ^= 1
    store.put(path, bytes(data))


@pytest.mark.parametrize("suffix", ["data", "meta"])
def test_damage_of_any_input_is_named_and_no_result_comes(suffix):
    rng = random.Random(4)
    for _ in range(12):
        store, mint = MemoryObjectStore(), names()
        infos = [put_run(store, [(b"%05d" % n, epoch << 16, rng.randbytes(50)) for n in range(800)], mint,
                         sstable_bytes=10_000) for epoch in (2, 1)]
        victim = rng.choice(infos[rng.randrange(2)])
        path = f"sst/{victim.name}.{suffix}"
        flip_bit(store, path, rng.randrange(len(store.get(path))))
        with pytest.raises(Corruption) as caught:
            results_of(store, task_of(infos))
        assert victim.name in caught.value.object_name


def test_a_shorter_or_missing_object_is_named():
    store, mint = MemoryObjectStore(), names()
    infos = put_run(store, [(b"%05d" % n, 1 << 16, b"%d" % n) for n in range(800)], mint)
    path = sstable_data_path(infos[0].name)
    whole = store.get(path)
    store.put(path, whole[:-1])
    with pytest.raises(Corruption, match=infos[0].name):
        results_of(store, task_of([infos]))
    store.delete([path])
    with pytest.raises(ObjectNotFound, match=infos[0].name):
        results_of(store, task_of([infos]))


def test_a_put_that_fails_ends_the_attempt():
    store, mint = MemoryObjectStore(), names()
    infos = put_run(store, [(b"%05d" % n, 1 << 16, b"%d" % n) for n in range(800)], mint)
    for skip in range(4):
        faulty = FaultyObjectStore(store, FaultPlan([Fault(FaultKind.BEFORE, "put", "sst/f", skip)]))
        with pytest.raises(ObjectStoreError, match="injected"):
            run_ranges(task_of([infos], output=OutputOptions(1_000, 100, "none", "none", 10)), faulty,
                       names(f"f{skip}"), threads=1, memory_bytes=MEMORY)


def big_run(store, rows=20_000):
    return put_run(store, [(b"%08d" % n, 1 << 16, b"v" * 100) for n in range(rows)], names(), codec="none",
                   sstable_bytes=300_000)


def test_progress_counts_the_rows_up_to_the_last():
    store, seen = MemoryObjectStore(), []
    infos = big_run(store)
    task = task_of([infos], cuts=[b"00007"])
    run_ranges(task, store, names("f"), threads=2, memory_bytes=MEMORY, progress=seen.append)
    assert len(seen) > 10 and max(seen) == 20_000


def test_a_range_can_be_cancelled_before_and_in_its_middle():
    store = MemoryObjectStore()
    (spec,) = task_of([big_run(store)]).ranges()
    for calls in (0, 1, 3, 9):
        left = iter([False] * calls)
        with pytest.raises(TaskCancelled):
            run_subcompaction(spec, store, names(f"{calls}"), memory_bytes=MEMORY,
                          is_cancelled=lambda left=left: next(left, True))


def test_what_progress_raises_ends_the_attempt():
    store = MemoryObjectStore()
    (spec,) = task_of([big_run(store)]).ranges()

    def refuse(rows: int) -> None:
        raise HummockError(f"no more than {rows}")

    with pytest.raises(HummockError, match="no more than"):
        run_subcompaction(spec, store, names("f"), memory_bytes=MEMORY, progress=refuse)


def test_one_range_that_fails_ends_the_others_and_its_error_is_raised():
    store, mint = MemoryObjectStore(), names()
    infos = put_run(store, [(b"%05d" % n, 1 << 16, b"v" * 100) for n in range(4_000)], mint, sstable_bytes=50_000)
    flip_bit(store, sstable_data_path(infos[-1].name), 5)
    task = task_of([infos], cuts=[b"%05d" % n for n in range(500, 4_000, 500)])
    with pytest.raises(Corruption, match=infos[-1].name):
        results_of(store, task)


def test_a_failed_attempt_is_gone_while_its_error_is_kept():
    """Without the cycle collector, which does not count the megabytes that a cycle of windows holds."""
    store = MemoryObjectStore()
    task = task_of([big_run(store)], output=OutputOptions(100_000, 1_000, "none", "none", 10))
    faulty = FaultyObjectStore(store, FaultPlan([Fault(FaultKind.BEFORE, "put", "sst/f", 1)]))
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ObjectStoreError, match="injected") as caught:
            run_ranges(task, faulty, names("f"), threads=2, memory_bytes=2 * MEMORY)
        assert caught.value.__traceback__ is not None
        assert not [found for found in gc.get_objects() if isinstance(found, ReadAhead | MultiSstableBuilder)]
    finally:
        gc.enable()


def test_a_task_without_rows_in_a_range_gives_no_files():
    store = MemoryObjectStore()
    spec = RangeSpec(task_of([big_run(store, 10)]), 3, b"x", b"y")
    result = run_subcompaction(spec, store, names("f"), memory_bytes=MEMORY)
    assert (result.index, result.sstables, result.rows_read, result.bytes_read) == (3, (), 0, 0)


def gil_acquisitions(rows):
    """(GIL acquisitions by compiled modules, windows of 4 MiB read, blocks of 1 KiB written)."""
    store, block_bytes = MemoryObjectStore(), 1 << 10
    infos = put_run(store, [(b"%08d" % n, 1 << 16, b"v" * 100) for n in range(rows)], names(), codec="none",
                    sstable_bytes=64 << 20)
    (spec,) = task_of([infos], output=OutputOptions(64 << 20, block_bytes, "none", "none", 10)).ranges()
    with gil_takings() as acquired:
        result = run_subcompaction(spec, store, names("f"), memory_bytes=64 << 20)
    assert len(result.sstables) == 1
    return acquired[0], -(-result.bytes_read // (4 << 20)), result.bytes_read // block_bytes


def test_the_gil_is_taken_a_few_times_a_window():
    """Threads that other tests left may take it meanwhile, but not in each of many tries."""
    few, windows, _ = min(gil_acquisitions(30_000) for _ in range(10))
    many, more_windows, blocks = min(gil_acquisitions(180_000) for _ in range(4))
    assert few <= 20 and many - few <= 4 * (more_windows - windows) < blocks / 500, (few, many)


class SecondReadFirst(MemoryObjectStore):
    """Completes the first `get_into` only after the second one."""

    def __init__(self):
        super().__init__()
        self.calls, self.second = itertools.count(), threading.Event()

    def get_into(self, path, start, target):
        number = next(self.calls)
        assert number != 0 or self.second.wait(60), "the second read waits for the first"
        done = super().get_into(path, start, target)
        if number == 1:
            self.second.set()
        return done


def test_windows_of_a_run_are_read_at_once_and_merged_in_order():
    store = SecondReadFirst()
    (spec,) = task_of([big_run(store)]).ranges()
    result = run_subcompaction(spec, store, names("f"), memory_bytes=MEMORY)
    keys = [key for info in result.sstables for key, _, _ in entries_in(store, info)]
    assert keys == [b"%08d" % n for n in range(20_000)]


def test_outputs_carry_what_the_task_says():
    store = MemoryObjectStore()
    (spec,) = task_of([big_run(store, 100)], output=OUTPUT).ranges()
    (info,) = run_subcompaction(spec, store, names("f"), memory_bytes=MEMORY).sstables
    assert (info.codec, info.filter_policy, info.name) == ("lz4", "blocked_bloom", "f" + "0" * 31)


class NoStoreReads(LocalObjectStore):
    """Fails reads through the store; files have to be opened directly."""

    def get(self, path, byte_range=None):
        raise AssertionError(f"{path} was read through the store")

    def get_into(self, path, start, target):
        raise AssertionError(f"{path} was read through the store")


def ranges_of(run):
    """A task in three ranges, of which the second begins and ends inside a file."""
    return task_of([run], cuts=[b"%05d" % 1_500, b"%05d" % 1_700],
                   output=OutputOptions(30_000, 500, "lz4", "none", 10))


def test_files_of_this_machine_are_read_without_asking_the_store_for_windows(tmp_path):
    store = LocalObjectStore(tmp_path)
    rows = [(b"%05d" % n, epoch << 16, b"%d" % n * 20) for n in range(3_000) for epoch in (2, 1)]
    run = put_run(store, rows, names(), sstable_bytes=20_000, block_bytes=300)
    results = run_ranges(ranges_of(run), NoStoreReads(tmp_path), names("f"), threads=2, memory_bytes=MEMORY)
    assert [entry for result in results for info in result.sstables for entry in entries_in(store, info)] == rows
    assert sum(result.bytes_read for result in results) >= sum(info.data_bytes + info.meta_bytes for info in run)


def test_damage_of_a_file_of_this_machine_is_named(tmp_path):
    rng, victims = random.Random(6), itertools.cycle(("flip", "cut", "gone", "meta", "longer meta"))
    for number in range(15):
        store, kind = LocalObjectStore(tmp_path / f"{number}"), next(victims)
        run = put_run(store, [(b"%05d" % n, 1 << 16, rng.randbytes(40)) for n in range(3_000)], names(),
                      sstable_bytes=20_000, block_bytes=300)
        victim = rng.choice(run)
        path = (sstable_meta_path if "meta" in kind else sstable_data_path)(victim.name)
        data = store.get(path)
        if kind in ("flip", "meta"):
            flip_bit(store, path, rng.randrange(len(data)))
        elif kind == "gone":
            store.delete([path])
        else:
            store.put(path, data + b"x" if "longer" in kind else data[:rng.randrange(len(data))])
        with pytest.raises(ObjectNotFound if kind == "gone" else Corruption, match=victim.name):
            run_ranges(ranges_of(run), store, names("f"), threads=2, memory_bytes=MEMORY)


def test_a_range_of_files_of_this_machine_can_be_cancelled_in_its_middle(tmp_path):
    store = LocalObjectStore(tmp_path)
    run = put_run(store, [(b"%08d" % n, 1 << 16, b"v" * 10_000) for n in range(10_000)], names(), codec="none",
                  sstable_bytes=256 << 20, block_bytes=64 << 10)
    (spec,) = task_of([run], output=OutputOptions(256 << 20, 64 << 10, "none", "none", 10)).ranges()
    seen = []
    with pytest.raises(TaskCancelled):
        run_subcompaction(spec, store, names("f"), memory_bytes=16 << 20, progress=seen.append,
                      is_cancelled=lambda: len(seen) > 0)
    assert 0 < seen[0] < 10_000
