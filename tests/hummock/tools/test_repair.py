"""Repair prints its plan, applies it on --yes, drops what it named and nothing else, and quarantines the objects."""

import json
import os
import random
from contextlib import closing

import pytest
from click.testing import CliRunner

import hummock
from hummock.base.key import KeyRange
from hummock.cli import main
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import MetaStoreCorrupt
from hummock.meta import open_meta_store
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.local import LocalObjectStore
from hummock.tools.repair import QUARANTINE

COMMITS, ROWS = 6, 50
SEED = int(os.environ.get("HUMMOCK_TEST_SEED", "11"))


def run(*arguments, status):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return result.output


def fill(url, meta=None):
    """Each commit writes keys of its own and overwrites some of the first one's; returns (epoch, rows) per commit."""
    with hummock.open(url, role="writer", meta=meta, compaction=False, inline_bytes=0) as store:
        epochs, written = hummock.EpochGenerator(last=store.committed_epoch), []
        for number in range(COMMITS):
            keys = [hummock.user_key(1 + number % 2, 0, b"%02d-%04d" % (number, row)) for row in range(ROWS)]
            keys += [hummock.user_key(1, 0, b"00-%04d" % row) for row in range(number)] if number else []
            epoch = epochs.next()
            batch = [(key, b"%d" % number) for key in sorted(keys)]
            store.ingest_batch(WriteBatch(batch), epoch)
            store.commit(epoch)
            written.append((epoch, dict(batch)))
    return written


def rows_of(url, meta=None):
    with hummock.open(url, meta=meta) as store:
        return dict(store.scan(KeyRange(), store.committed_epoch))


def flip(objects, path):
    rng = random.Random(f"{SEED} {path}")
    data = bytearray(objects.get(path))
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    objects.put(path, bytes(data))


DAMAGES = {
    "data flipped": lambda objects, info: flip(objects, sstable_data_path(info.name)),
    "meta flipped": lambda objects, info: flip(objects, sstable_meta_path(info.name)),
    "data cut": lambda objects, info: objects.put(sstable_data_path(info.name), b"x"),
    "data gone": lambda objects, info: objects.delete([sstable_data_path(info.name)]),
    "meta gone": lambda objects, info: objects.delete([sstable_meta_path(info.name)]),
    "both gone": lambda objects, info: objects.delete([sstable_data_path(info.name), sstable_meta_path(info.name)]),
}


@pytest.mark.parametrize("meta", [None, "log"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_named_then_set_apart_and_the_rest_is_read(tmp_path, kind, meta):
    url, objects = f"file://{tmp_path}/store", LocalObjectStore(tmp_path / "store")
    options = () if meta is None else ("--meta", meta)
    written = fill(url, meta)
    whole = rows_of(url, meta)
    with hummock.open(url, meta=meta) as store:
        runs = list(store.version.runs)                         # newest first
    lost = random.Random(f"{SEED} {kind}").randrange(COMMITS)
    info, = runs[COMMITS - 1 - lost].sstables
    DAMAGES[kind](objects, info)
    before = {found.path: objects.get(found.path) for found in objects.list("sst/")}
    run("verify", url, *options, status=1)
    plan = run("verify", url, "--repair", *options, status=1)
    assert "would drop" in plan and info.name in plan and "nothing was changed" in plan
    assert f"{info.rows:,} rows of table {', '.join(map(str, info.table_ids))}" in plan and info.smallest.hex() in plan
    assert ("may show again" in plan) == (lost > 0)
    assert {found.path: objects.get(found.path) for found in objects.list("sst/")} == before
    done = json.loads(run("verify", url, "--repair", "--yes", "--json", *options, status=0))
    assert len(done["drops"]) == 1 and info.name in done["drops"][0]
    record = json.loads(objects.get(done["record"]))
    assert [one["info"]["name"] for one in record["files"]] == [info.name] and record["files"][0]["damages"]
    run("verify", url, *options, status=0)
    expected = {}
    for number, (_, rows) in enumerate(written):
        expected |= rows if number != lost else {}
    assert rows_of(url, meta) == expected and len(expected) < len(whole) + 1
    for path in (sstable_data_path(info.name), sstable_meta_path(info.name)):
        if path in before:
            assert objects.get(QUARANTINE + path) == before[path]
    run("vacuum", url, "--grace", "0", *options, status=0)
    kept = {found.path for found in objects.list(QUARANTINE)}
    assert len(kept) == 1 + sum(info.name in path for path in before)
    assert not any(info.name in found.path for found in objects.list("sst/"))


def test_yes_alone_and_a_whole_store_change_nothing(tmp_path):
    url = f"file://{tmp_path}/store"
    fill(url)
    assert "give --repair too" in run("verify", url, "--yes", status=2)
    before = rows_of(url)
    assert "would drop" not in run("verify", url, "--repair", status=0)
    run("verify", url, "--repair", "--yes", status=0)
    assert rows_of(url) == before and not (tmp_path / "store" / "quarantine").exists()


def records_of(objects):
    return [found.path for found in objects.list("meta/") if "checkpoint" not in found.path]


@pytest.mark.parametrize(("how", "back"), [("flipped", 1), ("flipped", 2), ("flipped", 5), ("cut", 1), ("cut", 5),
                                           ("gone", 2), ("gone", 5)])      # a missing last record is a rollback
def test_a_damaged_record_sends_a_log_back_to_the_last_good_epoch(tmp_path, how, back):
    url, objects = f"file://{tmp_path}/store", LocalObjectStore(tmp_path / "store")
    written = fill(url, "log")
    records = records_of(objects)
    damaged = records[-back]
    before = {path: objects.get(path) for path in records}
    if how == "flipped":
        flip(objects, damaged)
    elif how == "cut":
        objects.put(damaged, before[damaged][:10])
    else:
        objects.delete([damaged])
    with pytest.raises(MetaStoreCorrupt):
        open_meta_store(url, "log")
    plan = run("verify", url, "--meta", "log", "--repair", status=1)
    assert f"would go back from transaction {len(records)} to {len(records) - back}" in plan and damaged in plan
    assert records_of(objects) == [path for path in records if how != "gone" or path != damaged]
    done = run("verify", url, "--meta", "log", "--repair", "--yes", status=0)
    assert "goes back from transaction" in done
    found = rows_of(url, "log")
    with hummock.open(url, meta="log") as store:
        committed = store.committed_epoch
    expected = {}
    for epoch, rows in written:
        expected |= rows if epoch <= committed else {}
    assert found == expected
    quarantined = [path for path in records[-back:] if how != "gone" or path != damaged]
    assert [QUARANTINE + path for path in quarantined] == [one.path for one in objects.list(QUARANTINE + "meta/")]
    fill(url, "log")                                    # commits work again
    run("verify", url, "--meta", "log", status=0)


def test_a_damaged_checkpoint_costs_nothing_where_the_one_before_is_whole(tmp_path):
    url, objects = f"file://{tmp_path}/store", LocalObjectStore(tmp_path / "store")
    fill(url, "log")
    before = rows_of(url, "log")
    with closing(open_meta_store(url, "log")) as store:
        serial = store._state.serial
        store._objects.write_checkpoint(serial, store._state.checkpoint())
    flip(objects, f"meta/checkpoint/{serial:020d}")
    with pytest.raises(MetaStoreCorrupt):
        open_meta_store(url, "log")
    run("verify", url, "--meta", "log", "--repair", "--yes", status=0)
    assert rows_of(url, "log") == before
