"""[P13]: a store of every released format opens and returns the same rows as when it was written.

`tests/golden_stores/<format>` has the directory of the store and `answers.json`. The store of a new format is written
by

    HUMMOCK_WRITE_GOLDEN_STORE=<format> pytest tests/reliability/test_golden_stores.py -k written

and existing ones are never rewritten: if one no longer opens, the reader is broken, not the store.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import hummock
from hummock.base.key import KeyRange, user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import KeyColumn, PrefixRule, TableRules
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import EpochTooOld
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store import open_object_store
from hummock.object_store.base import mint_sstable_name
from hummock.options import CompactionOptions
from hummock.tools.verify import verify_version
from tests.reliability.store_harness import at
from tests.support.drivers.compaction_files import run_ranges

GOLDEN = Path(__file__).resolve().parents[1] / "golden_stores"
FORMATS = sorted(path.name for path in GOLDEN.iterdir() if path.name.isdigit()) if GOLDEN.exists() else []
WANTED = os.environ.get("HUMMOCK_WRITE_GOLDEN_STORE")
EVERYTHING = KeyRange(b"", None)
EPOCHS, COMPACTED, DROPPED = 10, 6, 5
RULES = {1: TableRules(PrefixRule(8)), 2: TableRules(PrefixRule(columns=(KeyColumn(1, 2),))), 3: TableRules(),
         5: TableRules(ttl_ms=3)}
HOW = ({"flush_codec": "none"}, {"flush_codec": "lz4"}, {"flush_codec": "zstd", "filter_policy": "pybloom"},
       {"flush_codec": "lz4", "filter_policy": "none"})
SHAPE = CompactionOptions(history_ms=2, sstable_bytes=1_500, block_bytes=300, base_level_bytes=2_000,
                          level_multiplier=2, codecs=("none", "lz4", "zstd"))


def write(directory: Path) -> None:
    """A store with every kind of file: codecs, filters, levels, tombstones, spilled flushes, rules of every kind, a
    dropped table.
    """
    rng = random.Random("golden")
    for number in range(1, EPOCHS + 1):
        options = {"block_bytes": 300, "sstable_bytes": 2_000, "shared_buffer_bytes": 700,
                   "watermark_interval_ms": 0, **HOW[number % len(HOW)]}
        with hummock.open(f"file://{directory}", role="writer", compaction=False, **options) as store:
            for _ in range(3):
                rows = {user_key(table, vnode, b"\0" * (table == 2) + b"%02d" % rng.randrange(30)):
                        rng.choice((None, b"", rng.randbytes(9), b"text " * 9))
                        for table in (1, 2, 3, *([4] if number < DROPPED else []), 5, 6) for vnode in (0, 255)
                        for _ in range(3)}
                store.ingest_batch(WriteBatch(sorted(rows.items())), at(number))
            mark = KeyWatermark(at(number), ((0, 255, b"%02d" % (2 * number)),), is_descending=False)
            if number > COMPACTED:
                store.advance_watermark(6, mark)
            store.commit(at(number), **({"tables": RULES} if number == 1 else {}),
                         dropped_tables=[4] if number == DROPPED else [])
        if number == COMPACTED:
            compact(directory)


def compact(directory: Path) -> None:
    objects = open_object_store(f"file://{directory}")
    meta = open_meta_store(f"file://{directory}", object_store=objects)
    manager = HummockManager(meta, objects, compaction=SHAPE)
    manager.compact_range(EVERYTHING)
    while (given := manager.get_compact_task("golden")) is not None:
        results = run_ranges(given[0], objects, lambda token=given[1]: mint_sstable_name(os.urandom, token[:16]),
                             threads=1, memory_bytes=1 << 20)
        manager.report_compact_task(given[0].id, given[1], results)
    meta.close()
    objects.close()


def answers(directory: Path, role: str = "reader") -> dict[str, list[list[str]]]:
    """Epoch number -> rows, for every readable epoch; checks that all kinds of reads return the same."""
    found = {}
    with hummock.open(f"file://{directory}", role=role, compaction=False) as store:
        version = store.version
        objects = open_object_store(f"file://{directory}")
        assert not [path for path in verify_version(version, objects) if path.damages]
        for number in range(version.safe_epoch >> 16, (version.max_committed_epoch >> 16) + 1):
            with store.scan(EVERYTHING, at(number)) as scan:
                rows = list(scan)
            with store.scan(EVERYTHING, at(number), reverse=True) as scan:
                assert list(scan) == rows[::-1]
            keys = pa.array([key for key, _ in rows], pa.binary())
            assert store.get_many(keys, at(number)).to_arrow().to_pylist() == [value for _, value in rows]
            prefixes = sorted({key[:8] for key, _ in rows})
            assert list(store.scan_prefixes(pa.array(prefixes, pa.binary()), at(number))[1]) == rows
            found[str(number)] = [[key.hex(), value.hex()] for key, value in rows]
        with pytest.raises(EpochTooOld):
            store.get(b"", at((version.safe_epoch >> 16) - 1))
    return found


def check(directory: Path, expected: dict[str, list[list[str]]]) -> None:
    """A reader, a writer, and a reader after a compaction by today's code return the same rows."""
    assert answers(directory) == expected
    assert answers(directory, "writer") == expected
    compact(directory)
    after = answers(directory)
    assert after and after.items() <= expected.items()
    assert max(map(int, after)) == max(map(int, expected))


def test_a_store_that_is_written_today_has_every_kind_of_file_and_answers(tmp_path):
    write(tmp_path / "store")
    with hummock.open(f"file://{tmp_path}/store", compaction=False) as store:
        infos = list(store.version.sstables)
        assert {info.codec for info in infos} == {"none", "lz4", "zstd"}
        assert {info.filter_policy for info in infos} == {"blocked_bloom", "pybloom", "none"}
        assert any(info.tombstones for info in infos) and any(info.max_epoch & 0xFFFF for info in infos)
        assert sum(bool(level.runs) for level in store.version.levels) >= 2
        assert store.version.safe_epoch > 0 and store.version.dropped_tables == {4}
        assert len(store.version.tables[6].watermarks) > 1 and store.version.tables[5].ttl_ms == 3
    check(tmp_path / "store", answers(tmp_path / "store"))


@pytest.mark.parametrize("name", FORMATS)
def test_a_store_of_an_older_format_answers_as_it_did(name, tmp_path):
    expected = json.loads((GOLDEN / name / "answers.json").read_text())
    assert sum(map(len, expected.values())) > 100
    shutil.copytree(GOLDEN / name / "store", tmp_path / "store")
    check(tmp_path / "store", expected)


@pytest.mark.skipif(not (WANTED or "").isdigit(), reason="names a new format whose store is to be written")
def test_a_golden_store_is_written(tmp_path):
    target = GOLDEN / str(WANTED)
    assert not target.exists(), "a golden store is never rewritten"
    write(tmp_path / "store")
    expected = answers(tmp_path / "store")
    target.mkdir(parents=True)
    shutil.copytree(tmp_path / "store", target / "store", ignore=shutil.ignore_patterns(".temporary"))
    (target / "answers.json").write_text(json.dumps(expected, indent=1))
