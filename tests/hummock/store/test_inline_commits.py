"""Commits of a few rows are in the version: no object before them, none after; merged in one transaction; bounded."""

import random
import threading

import pytest

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import Corruption
from hummock.meta.records import TASK
from hummock.object_store.base import SSTABLE_PREFIX, sstable_data_path, sstable_meta_path
from hummock.options import INLINE_BYTES, CompactionOptions
from hummock.sstable.inline import INLINE_TOTAL_BYTES
from tests.support.drivers.seeds import run_seed


def stored(store):
    return [found.path for found in store.object_store.list(SSTABLE_PREFIX)]


def meta_store_of(store):
    return store.meta_client._meta_store


@pytest.fixture(params=["sqlite", "log", "memory"])
def url_and_meta(request, tmp_path):
    return ("memory://", None) if request.param == "memory" else (
        f"file://{tmp_path}/store", "log" if request.param == "log" else None)


def test_a_commit_of_a_few_rows_writes_no_object(url_and_meta):
    url, meta = url_and_meta
    with hummock.open(url, role="writer", meta=meta, compaction=False) as store:
        for number in range(5):
            store.write({b"k%d" % number: b"v"})
        assert stored(store) == [] and store.version.files == 5 and store.version.inline_bytes > 0
        assert dict(store.scan()) == {b"k%d" % number: b"v" for number in range(5)}
        if url != "memory://":
            with hummock.open(url, meta=meta) as reader:
                assert reader.get(b"k3") == b"v" and reader.version.inline_bytes == store.version.inline_bytes
    if url != "memory://":
        with hummock.open(url, meta=meta, role="writer") as store:
            assert dict(store.scan()) == {b"k%d" % number: b"v" for number in range(5)}


@pytest.mark.parametrize("options", [{"inline_bytes": 0}, {"inline_bytes": 500}])
def test_larger_commits_and_those_of_a_store_without_write_objects(options):
    with hummock.open("memory://", compaction=False, **options) as store:
        store.write({b"%04d" % number: b"v" * 100 for number in range(10)})
        assert len(stored(store)) == 2 and store.version.inline_bytes == 0


def test_files_whose_filters_exceed_the_limit_are_stored():
    """Their size is known only once they are built."""
    with hummock.open("memory://", compaction=False, inline_bytes=9_000) as store:
        store.write({b"%05d" % number: b"" for number in range(600)})
        assert len(stored(store)) == 2 and store.version.inline_bytes == 0
        assert len(list(store.scan())) == 600


def test_a_version_has_a_bound_whatever_is_staged():
    batch = {b"%06d" % number: b"v" * 1_000 for number in range(55)}
    with hummock.open("memory://", compaction=False) as store:
        for _ in range(100):
            store.write(batch)
            assert store.version.inline_bytes <= INLINE_TOTAL_BYTES
        assert store.version.inline_bytes > INLINE_TOTAL_BYTES - 5 * INLINE_BYTES and stored(store)
    with hummock.open("memory://", compaction=False) as store:
        epochs = [hummock.Epoch(number << 16) for number in range(1, 101)]
        for epoch in epochs:
            store.ingest_batch(WriteBatch(list(batch.items())), epoch)
            store.seal_epoch(epoch)
            store.sync(epoch)
        store.commit(epochs[-1])
        assert store.version.inline_bytes <= INLINE_TOTAL_BYTES and stored(store)


def test_a_few_inline_runs_are_merged_without_a_task_and_without_objects():
    with hummock.open("memory://", compaction=False) as store:
        for number in range(40):
            store.write({b"k": b"%d" % number, b"o%02d" % number: b"v"})
        manager, runs = store.meta_client, len(store.version.levels[0].runs)
        assert manager.is_compaction_due(store.version) and manager.get_compact_task("c") is None
        assert len(store.version.levels[0].runs) < runs and meta_store_of(store).list(TASK) == []
        assert not manager.is_compaction_due(store.version)
        assert stored(store) == [] and store.version.inline_bytes > 0
        assert store.get(b"k") == b"39" and len(list(store.scan())) == 41
        run, = store.version.levels[0].runs
        assert sum(info.rows for info in run.sstables) == 41, "history that nobody reads is gone"


def test_a_merge_keeps_what_a_pin_reads():
    with hummock.open("memory://", compaction=False) as store:
        store.write({b"k": b"old", b"gone": b"v"})
        with store.snapshot() as epoch:
            for number in range(20):
                store.write({b"k": b"%d" % number, b"gone": None})
            assert store.meta_client.get_compact_task("c") is None
            assert store.get(b"k", epoch) == b"old" and store.get(b"gone", epoch) == b"v"
            assert dict(store.scan()) == {b"k": b"19"}
            assert len(store.version.levels[0].runs) == 1


def test_what_outgrows_the_limit_becomes_objects_by_a_task():
    with hummock.open("memory://", compaction=False) as store:
        for number in range(8):
            store.write({b"%d%05d" % (number, row): b"v" * 100 for row in range(100)})
        task, _ = store.meta_client.get_compact_task("c")
        assert len(list(task.input_files)) == 8 and task.to_json()["format"] == 3
        assert type(task).from_json(task.to_json()) == task
    with hummock.open("memory://") as store:
        for number in range(8):
            store.write({b"%d%05d" % (number, row): b"v" * 100 for row in range(100)})
        assert store.wait_compacted(60) and store.version.inline_bytes <= 8 * INLINE_BYTES
        assert store.compact(timeout=60) and store.version.inline_bytes == 0
        (made,) = store.version.stored_files            # vacuum deletes objects of earlier tasks later
        assert {sstable_data_path(made.name), sstable_meta_path(made.name)} <= set(stored(store))
        assert len(list(store.scan())) == 800


def test_compaction_of_everything_leaves_no_inline_file():
    with hummock.open("memory://") as store:
        for number in range(30):
            store.write({b"%d" % number: b"v"})
        assert store.compact(timeout=60) and store.version.inline_bytes == 0
        assert dict(store.scan()) == {b"%d" % number: b"v" for number in range(30)}


def test_a_damaged_inline_file_stops_neither_reads_of_others_nor_the_picking_of_tasks():
    with hummock.open("memory://", compaction=False) as store:
        for number in range(8):
            store.write({b"k%d" % number: b"v"})
        manager = store.meta_client
        run = manager.version.levels[0].runs[3]
        info = run.sstables[0]
        data = bytearray(info.inline_data)
        data[3] ^= 0xFF
        object.__setattr__(info, "inline_data", bytes(data))    # as if memory had lost it
        task, token = manager.get_compact_task("c")
        assert task.kind == "intra_l0" and not manager.running_tasks()[0].error
        manager.fail_task(task.id, token, "damaged")
    with hummock.open("memory://", compaction=False) as store:
        store.write({b"k": b"v"})
        info, = store.version.sstables
        object.__setattr__(info, "inline_data", bytes(len(info.inline_data)))
        store._sstable_store._readers.clear()
        with pytest.raises(Corruption, match=info.name):
            store._sstable_store.meta(info)


def test_many_writers_and_compaction_against_a_model(tmp_path):
    """Commits of all sizes around the limits, deletes, reopened now and then; no object is left in the end but those of
    the version."""
    seed = run_seed()
    rng, model, lock = random.Random(seed), {}, threading.Lock()
    options = CompactionOptions(l0_runs=3, l0_base_bytes=40_000, sstable_bytes=20_000, block_bytes=1_000)
    for _ in range(4):
        with hummock.open(f"file://{tmp_path}/store", role="writer", inline_bytes=rng.choice((300, 3_000, 65_536)),
                          block_bytes=1_000, compaction=options) as store:

            def work(number, store=store):
                own = random.Random(f"{seed} {number}")
                for _ in range(60):
                    rows = {b"%d-%03d" % (number, own.randrange(300)):
                            None if own.random() < 0.3 else own.randbytes(own.choice((1, 30, 900)))
                            for _ in range(own.choice((1, 1, 2, 40)))}
                    store.write(rows)
                    with lock:
                        model.update(rows)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            live = {key: value for key, value in sorted(model.items()) if value is not None}
            assert dict(store.scan()) == live
            assert store.version.inline_bytes <= INLINE_TOTAL_BYTES
            sample = rng.sample(sorted(model), 50)
            assert [store.get(key) for key in sample] == [model[key] for key in sample]
    with hummock.open(f"file://{tmp_path}/store", role="writer") as store:
        assert dict(store.scan()) == live
        assert store.compact(timeout=60) and dict(store.scan()) == live
