"""Reads of the data source keep their files while Spark runs their queries, and give them up afterwards."""

from __future__ import annotations

import functools
import random
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

import hummock
from hummock.epoch import EpochGenerator, wall_clock_ms
from hummock.meta import open_meta_store
from hummock.meta.leases import read_leases
from hummock.options import CompactionOptions, VacuumOptions
from relational.spark.held_reads import ENDED_MS, STARTS_MS
from relational.spark.read_service import service_of
from tests.support.drivers.seeds import amount, run_seed
from tests.support.drivers.waiting import eventually
from tests.support.worlds.shop_store import Shop

pytestmark = pytest.mark.spark
LATER_MS = STARTS_MS + ENDED_MS + 1
SECONDS = 60
SHAPE = CompactionOptions(history_ms=0, task_retry_ms=1)


@pytest.fixture
def service(spark, monkeypatch):
    """The service of the application, at a time that a test moves by `ahead_ms`; it holds nothing of other tests."""
    from relational.spark.source import register

    register(spark)
    service = service_of(spark)
    service._held.close()
    service.ahead_ms = 0
    monkeypatch.setattr(service._held, "_now_ms", lambda: wall_clock_ms() + service.ahead_ms)
    monkeypatch.setattr("relational.spark.scan.LEAST_PART_BYTES", 3_000)
    yield service
    service._held.close()


def load(spark, shop, **options):
    return spark.read.format("hummock").options(url=shop.url, table="items", **options).load()


def collected(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


def rows_of(shop):
    return sorted(shop.rows.values(), key=repr)


def held_until(gate, batches):
    """In a task: passes the batches on once there is a file at `gate`."""
    until = time.monotonic() + SECONDS
    while not Path(gate).exists() and time.monotonic() < until:
        time.sleep(0.02)
    yield from batches


class Slow:
    """A query of `frame` on a thread; none of its tasks passes a row before `let_go`."""

    def __init__(self, frame, gate):
        self._gate, self.rows, self.error = gate, None, None
        self._frame = frame.mapInArrow(functools.partial(held_until, str(gate)), frame.schema)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self.rows = collected(self._frame)
        except Exception as error:
            self.error = error

    def let_go(self):
        self._gate.touch()
        self._thread.join()
        assert self.error is None, self.error
        return self.rows


def replace_files(shop):
    """Compacts the store and removes the files that nothing holds; returns the names of those of the newest version."""
    with hummock.open(shop.url, role="writer", compaction=SHAPE, vacuum=VacuumOptions(grace_ms=0)) as store:
        store.commit(EpochGenerator(last=store.committed_epoch).next())
        assert store.compact(timeout=30)
        store.vacuum()
        return {info.name for info in store.version.sstables}


def is_vacuumed(shop, directory):
    """Whether vacuum leaves no file but those of the newest version."""
    with hummock.open(shop.url, role="writer", compaction=SHAPE, vacuum=VacuumOptions(grace_ms=0)) as store:
        store.vacuum()
        return {info.name for info in store.version.sstables} == files_of(directory)


def files_of(directory):
    return {path.stem for path in (directory / "store" / "sst").rglob("*.data")}


def oldest_leased(shop):
    with closing(open_meta_store(shop.url)) as meta_store:
        return min((lease.min_version for lease in read_leases(meta_store) if lease.node.startswith("spark-")),
                   default=None)


def active(spark):
    return bool(spark.sparkContext.statusTracker().getActiveJobsIds())


def later(service):
    """Lets more time pass than a frame without a query is held for."""
    service.review()
    service.ahead_ms += LATER_MS
    service.review()


def test_a_dashboard_holds_no_version_of_its_past(spark, service, tmp_path):
    rng = random.Random(run_seed())
    shop = Shop.open(tmp_path)
    with shop.session:
        for number in range(amount(5, 12)):
            keep = rng.randrange(1, 600)
            assert load(spark, shop).where(f"k < {keep}").count() == sum(key < keep for _, key in shop.rows)
            assert service.held == number + 1
            with closing(open_meta_store(shop.url)) as meta_store:
                assert sum(lease.node.startswith("spark-") for lease in read_leases(meta_store)) == 1
            shop.insert(5)
        first = oldest_leased(shop)
        later(service)
        assert service.held == 0
        eventually(lambda: oldest_leased(shop) > first)
    replace_files(shop)
    eventually(lambda: is_vacuumed(shop, tmp_path))       # once the newest version is what the service has


def test_a_query_that_runs_for_hours_keeps_its_files_and_reads_its_own_epoch(spark, service, tmp_path):
    shop = Shop.open(tmp_path)
    with shop.session:
        shop.change()
    expected = rows_of(shop)
    slow = Slow(load(spark, shop), tmp_path / "gate")
    try:
        eventually(lambda: active(spark) and service.held)
        for _ in range(5):
            later(service)
        assert service.held == 1
        assert replace_files(shop) < files_of(tmp_path)
    finally:
        rows = slow.let_go()
    assert rows == expected
    later(service)
    assert service.held == 0


def test_the_next_queries_of_a_frame_and_of_its_view_keep_its_files_too(spark, service, tmp_path):
    shop = Shop.open(tmp_path)
    with shop.session:
        shop.change()
    expected = rows_of(shop)
    frame = load(spark, shop)
    assert frame.count() == len(expected)
    frame.createOrReplaceTempView("items_again")
    for number, again in enumerate((frame, spark.sql("SELECT * FROM items_again"), frame.cache())):
        slow = Slow(again, tmp_path / f"gate {number}")
        try:
            eventually(lambda: active(spark))
            later(service)
            later(service)
            assert service.held == 1
            beside = load(spark, shop)      # planned, without a query: there is no free slot for one
            beside._jdf.queryExecution().executedPlan().execute()
            assert service.held == 2
            later(service)
            assert service.held == 1
            replace_files(shop)
        finally:
            rows = slow.let_go()
        assert rows == expected
        service.ahead_ms = 0
    frame.unpersist()


def test_an_rdd_of_a_frame_keeps_its_files(spark, service, tmp_path):
    shop = Shop.open(tmp_path)
    with shop.session:
        shop.change()
    gate, found = tmp_path / "gate", []
    rdd = load(spark, shop).rdd.map(tuple).mapPartitions(functools.partial(held_until, str(gate)))
    thread = threading.Thread(target=lambda: found.append(sorted(rdd.collect(), key=repr)))
    thread.start()
    try:
        eventually(lambda: active(spark) and service.held)
        later(service)
        later(service)
        assert service.held == 1
        replace_files(shop)
    finally:
        gate.touch()
        thread.join()
    assert found == [rows_of(shop)]
    later(service)
    assert service.held == 0


def test_a_frame_that_is_queried_too_late_says_so_and_one_with_held_ms_is_not_too_late(spark, service, tmp_path):
    from pyspark.errors import PySparkException

    shop = Shop.open(tmp_path)
    with shop.session:
        shop.change()
    expected, kept = rows_of(shop), load(spark, shop, held_ms=str(100 * LATER_MS))
    assert kept.count() == len(expected)
    later(service)
    replace_files(shop)
    assert collected(kept) == expected
    service.ahead_ms += 200 * LATER_MS
    later(service)
    assert service.held == 0
    eventually(lambda: is_vacuumed(shop, tmp_path))
    with pytest.raises(PySparkException, match="lease of who took it may have run out"):
        kept.collect()


def test_the_schema_of_the_reader_chooses_columns(spark, service, tmp_path):
    shop = Shop.open(tmp_path)
    with shop.session:
        reader = spark.read.format("hummock").options(url=shop.url, table="items")
        for schema, pick in (("v double, k bigint", lambda row: (row[3], row[1])),
                             ("name string", lambda row: row[2:3])):
            frame = reader.schema(schema).load()
            assert collected(frame) == sorted((pick(row) for row in shop.rows.values()), key=repr)
        from pyspark.errors import PySparkException

        for schema, complaint in (("k int", "int64"), ("weight double", "weight")):
            with pytest.raises(PySparkException, match=complaint):
                spark.read.format("hummock").options(url=shop.url, table="items").schema(schema).load().collect()
        assert load(spark, shop, where="k = 1 AND k = 2").collect() == []


def test_an_application_plans_by_itself_what_no_service_answers(spark, service, tmp_path, monkeypatch):
    shop = Shop.open(tmp_path)
    with shop.session:
        shop.change()
        from relational.spark.source import HummockSource, register

        spark.dataSource.register(HummockSource)
        try:
            assert collected(load(spark, shop)) == rows_of(shop)
            assert service.held == 0
            with closing(open_meta_store(shop.url)) as meta_store:
                (lease,) = [one for one in read_leases(meta_store) if one.node.startswith("spark-")]
                assert lease.expires_ms > meta_store.now_ms() + 3_000_000
        finally:
            register(spark)
