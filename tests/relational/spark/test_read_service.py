"""The service that plans reads in the driver: stores stay open, reads share a lease, and files are kept by need."""

from __future__ import annotations

import random
import shutil
import threading
from contextlib import closing

import pytest

import hummock
from hummock.epoch import EpochGenerator, wall_clock_ms
from hummock.meta import open_meta_store
from hummock.meta.leases import read_leases
from hummock.options import CompactionOptions, VacuumOptions
from relational.errors import ReadRefused
from relational.spark.held_reads import ENDED_MS, STARTS_MS, Query
from relational.spark.read_options import ReadOptions
from relational.spark.read_service import UNKNOWN_HELD_MS, ReadService, ServiceAddress
from relational.spark.read_spec import ReadSpec, read_batches
from tests.support.drivers.seeds import run_seed
from tests.support.worlds.shop_store import COLUMNS, Shop

LATER_MS = STARTS_MS + ENDED_MS + 1


class Activity:
    """The queries that a test says are there."""

    has_ended = False

    def __init__(self):
        self.queries: list[Query] | None = []

    def poll(self):
        if self.queries is None:
            raise RuntimeError("the JVM does not answer")
        return list(self.queries)


class Service(ReadService):
    """A service at a time that tests move."""

    def __init__(self):
        self.activity, self.ahead_ms = Activity(), 0
        super().__init__(self.activity, 2, now_ms=lambda: wall_clock_ms() + self.ahead_ms)


@pytest.fixture
def shop(tmp_path):
    shop = Shop.open(tmp_path)
    with shop.session:
        yield shop


@pytest.fixture
def service():
    with closing(Service()) as service:
        yield service


def options_of(shop, **options):
    return ReadOptions({"url": shop.url, "table": "items", **options})


def rows_of(specs):
    return sorted(tuple(row.values()) for spec in specs for batch in read_batches(ReadSpec.from_bytes(spec))
                  for row in batch.to_pylist())


def node_leases(shop):
    with closing(open_meta_store(shop.url)) as meta_store:
        return [lease for lease in read_leases(meta_store) if lease.node.startswith("spark-")]


def test_each_read_has_the_newest_rows_and_all_share_one_lease(shop, service):
    rng = random.Random(run_seed())
    for number in range(8):
        specs = service.address.specs(options_of(shop), list(COLUMNS))
        assert rows_of(specs) == sorted(shop.rows.values())
        old = rng.choice(sorted(shop.history))
        found = service.address.specs(options_of(shop, epoch=str(old)), ["k"])
        assert rows_of(found) == sorted((row[1],) for row in shop.history[old].values())
        assert service.held == 2 * number + 2 and len(node_leases(shop)) == 1
        shop.change()
    service.ahead_ms = LATER_MS
    service.review()
    assert service.held == 0
    service.close()
    assert node_leases(shop) == []


def test_a_table_and_a_column_that_were_made_after_the_first_read_are_found(shop, service):
    assert "name" in service.address.schema(options_of(shop))
    shop.session.sql("CREATE TABLE others (a INT PRIMARY KEY, b DOUBLE)")
    shop.session.flush()
    assert '"b"' in service.address.schema(ReadOptions({"url": shop.url, "table": "others"}))


def test_what_cannot_be_planned_is_refused_with_its_reason_and_holds_nothing(shop, service):
    for options, columns, reason in (({"table": "nothing"}, ["k"], "NotFound"), ({}, ["weight"], "weight"),
                                     ({"where": "weight > 3"}, ["k"], "weight")):
        with pytest.raises(ReadRefused, match=reason):
            service.address.specs(options_of(shop, **options), columns)
    assert service.held == 0
    with pytest.raises(ReadRefused, match=r"no store|not|does"):
        service.address.schema(ReadOptions({"url": "file:///nowhere/at/all", "table": "items"}))


def test_reads_at_once_are_all_answered(shop, service):
    answers = []

    def ask():
        answers.append(rows_of(service.address.specs(options_of(shop), list(COLUMNS))))

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [sorted(shop.rows.values())] * 12
    assert len(node_leases(shop)) == 1


def test_a_store_that_was_replaced_is_opened_again(tmp_path, service):
    for round_number in range(3):
        shop = Shop.open(tmp_path, seed=round_number, rows=50 + round_number)
        with shop.session:
            assert rows_of(service.address.specs(options_of(shop), list(COLUMNS))) == sorted(shop.rows.values())
        shutil.rmtree(tmp_path / "store")


def test_a_service_that_has_ended_and_a_stranger_are_told_apart_from_a_refusal(shop, service):
    from multiprocessing import AuthenticationError

    with pytest.raises(AuthenticationError):
        ServiceAddress(service.address.path, b"guessed").schema(options_of(shop))
    assert "name" in service.address.schema(options_of(shop))
    service.close()
    with pytest.raises(OSError):
        service.address.schema(options_of(shop))


@pytest.mark.parametrize("case", ["a query runs", "nothing runs", "it is not known", "it was asked for"])
def test_compaction_and_vacuum_remove_the_files_of_a_read_when_it_has_ended(tmp_path, service, case):
    shop = Shop.open(tmp_path)
    with shop.session:
        shop.change()
    expected = sorted(shop.rows.values())
    held_ms = {"held_ms": str(10 * LATER_MS)} if case == "it was asked for" else {}
    specs = service.address.specs(options_of(shop, **held_ms), list(COLUMNS))
    names = {info.name for spec in specs for info in ReadSpec.from_bytes(spec).version.stored_files}
    query = Query("query 1", wall_clock_ms() + 5, None, frozenset({7}))
    service.activity.queries = {"a query runs": [query], "it is not known": None}.get(case, [])
    service.review()
    service.ahead_ms = LATER_MS
    service.review()
    assert service.held == (case != "nothing runs")
    shape = CompactionOptions(history_ms=0, task_retry_ms=1)
    with hummock.open(shop.url, role="writer", compaction=shape, vacuum=VacuumOptions(grace_ms=0)) as store:
        store.commit(EpochGenerator(last=store.committed_epoch).next())
        assert store.compact(timeout=30)
        if case != "nothing runs":
            store.vacuum()
            assert rows_of(specs) == expected and names <= left_in(tmp_path)
        if case == "a query runs":
            service.activity.queries = [Query("query 1", query.began_ms, wall_clock_ms() + LATER_MS, query.scans)]
        service.ahead_ms = UNKNOWN_HELD_MS + 11 * LATER_MS
        service.review()
        assert service.held == 0
        service.close()                 # releases the lease at once, where else the next renewal does
        store.vacuum()
        assert not names & left_in(tmp_path)


def left_in(directory):
    return {path.stem for path in (directory / "store" / "sst").rglob("*.data")}
