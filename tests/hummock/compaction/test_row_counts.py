"""Rows lost, duplicated or changed between the inputs and outputs of a task fail the task."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hummock.compaction import subcompaction
from hummock.compaction.input_iterator import run_iterators
from hummock.compaction.subcompaction import run_subcompaction
from hummock.errors import Corruption, RowCountMismatch
from hummock.iterator.entry_collector import EntryCollector
from hummock.iterator.merge import MergeIterator
from hummock.object_store.base import sstable_meta_path
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.pipeline.merge_loop import run_pipeline
from hummock.sstable.builder import SstableOutput
from hummock.sstable.concat_iterator import ConcatIterator
from hummock.sstable.meta import digest_of, encode_meta, read_sections
from hummock.sstable.store import SstableStore
from hummock.tools.verify import verify_sstable
from tests.hummock.oracle_block import full_key_order
from tests.hummock.oracle_hash import U64, content_hash
from tests.hummock.sstable.test_builder import build
from tests.support.drivers.compaction_files import names, put_file, put_run, task_of

MEMORY = 1 << 20


class FaultyMerge:
    """Replaces the merge of a task: its inputs are read, but the runs in `rows` are merged instead."""

    def __init__(self, monkeypatch, rows):
        store, mint = MemoryObjectStore(), names("e")
        options = StorageOptions()
        self._others = [ConcatIterator(SstableStore(store, options), put_run(store, run, mint)) for run in rows]
        self._runs = []
        monkeypatch.setattr(subcompaction, "run_iterators", self.run_iterators)
        monkeypatch.setattr(subcompaction, "MergeIterator", lambda runs: MergeIterator(self._others))
        monkeypatch.setattr(subcompaction, "run_pipeline", self.run_pipeline)

    def run_iterators(self, ahead):
        self._runs = run_iterators(ahead)
        return self._runs

    def run_pipeline(self, kept, builder, take, *more):
        for run in self._runs:
            EntryCollector(run).next_batch()
        return run_pipeline(kept, builder, take, *more)


def two_runs(rng):
    """Two runs, newest first, with disjoint ranges of epochs; a third of the keys is in both."""
    keys = sorted({b"\0\0\0\1\0\0" + rng.randbytes(rng.randint(0, 12)) for _ in range(60)})
    return [sorted(((key, rng.randint(first, first + 3) << 16, None if rng.random() < 0.2 else rng.randbytes(
        rng.choice((0, 3, 8, 30)))) for key in rng.sample(keys, 40)), key=full_key_order) for first in (10, 1)]


def corrupted(rng, runs):
    """The kind of a random corruption, and `runs` with it, still sorted."""
    runs = [list(run) for run in runs]
    run = rng.choice(runs)
    one, two = rng.sample(range(len(run)), 2)
    (key, epoch, value), (key2, epoch2, value2) = run[one], run[two]
    kind = rng.choice(("lost", "doubled", "lost and doubled", "swapped values", "epoch", "delete", "value", "key"))
    if "doubled" in kind:
        runs.append([run[one]])
    if "lost" in kind:
        del run[two]
    if kind == "swapped values":
        run[one], run[two] = (key, epoch, value2), (key2, epoch2, value)
    elif kind == "epoch":
        run[one] = key, epoch ^ rng.choice((1, 1 << 16)), value
    elif kind == "delete":
        run[one] = key, epoch, b"" if value is None else None
    elif kind == "value":
        run[one] = key, epoch, (value or b"") + b"x"
    elif kind == "key":
        run[one] = key + b"\0", epoch, value
    return kind, [sorted(run, key=full_key_order) for run in runs]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_to_rows_on_their_way_is_caught(monkeypatch, seed):
    rng = random.Random(f"fault {seed}")
    runs = two_runs(rng)
    kind, others = corrupted(rng, runs)
    store, mint = MemoryObjectStore(), names()
    task = task_of([put_run(store, run, mint) for run in runs], watermark=rng.choice((0, 5, 99)) << 16,
                   drop_tombstones=rng.random() < 0.5)
    is_same = content_hash(row for run in runs for row in run) == content_hash(row for run in others for row in run)
    FaultyMerge(monkeypatch, others)
    if is_same:                 # two equal values were swapped
        assert kind == "swapped values"
        assert run_subcompaction(task.ranges()[0], store, names("f"), memory_bytes=MEMORY).hash_read == task.input_hash
        return
    with pytest.raises(RowCountMismatch, match=r"kept .* and dropped") as caught:
        run_subcompaction(task.ranges()[0], store, names("f"), memory_bytes=MEMORY)
    assert (caught.value.task_id, caught.value.index) == (task.id, 0), kind
    assert ("content hash" in str(caught.value)) == (kind not in ("lost", "doubled"))


def test_the_same_rows_by_another_way_are_no_fault(monkeypatch):
    runs, store, mint = two_runs(random.Random(1)), MemoryObjectStore(), names()
    task = task_of([put_run(store, run, mint) for run in runs])
    FaultyMerge(monkeypatch, runs)
    result = run_subcompaction(task.ranges()[0], store, names("f"), memory_bytes=MEMORY)
    assert result.hash_read == task.input_hash == content_hash(row for run in runs for row in run)


ROWS = [(b"%05d" % n, 1 << 16, b"%d" % n) for n in range(2_000)]


def rewritten(output, change_hashes, content=None):
    """The file with changed content hashes, of its blocks and of itself, under valid checksums."""
    sections = {tag: bytes(payload) for tag, payload in read_sections(output.meta, "m").items()}
    info = replace(output.info, meta_bytes=0, meta_digest="",
                   **({} if content is None else {"content_hash": content(output.info.content_hash)}))
    meta = encode_meta(info, sections[2], sections[3], change_hashes(sections[7]), [])
    info = replace(info, meta_bytes=len(meta), meta_digest=digest_of(meta))
    return SstableOutput(output.name, output.data, meta, info)


def more(hashes):
    """Adds one to the hash of the first block, and so to the sum."""
    return ((int.from_bytes(hashes[:8], "little") + 1) % U64).to_bytes(8, "little") + hashes[8:]


def test_a_file_that_holds_other_rows_than_its_builder_wrote_is_found_by_a_task_and_by_verify():
    store, output = MemoryObjectStore(), rewritten(build(ROWS), more, lambda hash: (hash + 1) % U64)
    put_file(store, output)
    with pytest.raises(RowCountMismatch, match="content hash"):
        run_subcompaction(task_of([(output.info,)]).ranges()[0], store, names("f"), memory_bytes=MEMORY)
    meta, data = verify_sstable(output.info, store)
    assert not meta.damages and len(data.damages) == 1 and "content hash" in data.damages[0]


@pytest.mark.parametrize(("change", "where"), [(more, "sum of the content hashes"),
                                               (lambda hashes: hashes[:-8], "content hashes")])
def test_hashes_of_blocks_that_are_not_those_of_the_file_are_damage(change, where):
    store, output = MemoryObjectStore(), rewritten(build(ROWS), change)
    put_file(store, output)
    with pytest.raises(Corruption, match=where) as caught:
        run_subcompaction(task_of([(output.info,)]).ranges()[0], store, names("f"), memory_bytes=MEMORY)
    assert caught.value.object_name == sstable_meta_path(output.name)


def test_files_from_before_there_was_a_hash_are_hashed_when_they_are_read():
    store = MemoryObjectStore()
    older = rewritten(build(ROWS), lambda hashes: b"", lambda hash: None)
    assert "content_hash" not in older.info.to_json()
    put_file(store, older)
    newer = put_run(store, [(b"%05d" % n, 2 << 16, b"new") for n in range(0, 2_000, 3)], names())
    task = task_of([newer, (older.info,)], watermark=9 << 16, cuts=[b"00777"])
    assert task.input_hash is None
    results = [run_subcompaction(spec, store, names(f"{spec.index}"), memory_bytes=MEMORY) for spec in task.ranges()]
    assert sum(result.hash_read for result in results) % U64 == (content_hash(ROWS) + newer[0].content_hash) % U64
    assert not verify_sstable(older.info, store)[1].damages
    assert all(info.content_hash is not None for result in results for info in result.sstables)
