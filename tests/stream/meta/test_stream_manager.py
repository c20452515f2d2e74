import pytest

from relational.plan.logical import Scan
from relational.types import Schema
from stream.errors import JobNotRunning
from stream.message import Add, Stop
from stream.meta.schedule import Beginning, Job
from stream.meta.stream_manager import StreamManager
from stream.plan.planner import plan_query, plan_table
from tests.support.drivers.catalogs import table_catalog

SCHEMA = Schema.of(id="bigint", v="bigint")


class FakeWorker:
    def __init__(self):
        self.built = []

    def build(self, specs):
        self.built += specs


def table(job_id):
    return table_catalog(f"t{job_id}", SCHEMA, (0,), table_id=job_id)


def job_of_table(job_id):
    return Job(job_id, plan_table(table(job_id), lambda name: 100))


def job_of_view(job_id, read, parallelism=1):
    ids = iter(range(200, 300))
    query = Scan(table(read))
    return Job(job_id, plan_query(table(job_id), query, lambda name: next(ids)), {}, parallelism)


def test_a_view_reads_the_actors_of_its_table():
    worker = FakeWorker()
    manager = StreamManager(worker)
    assert manager.prepare_create(job_of_table(10)) == Add(frozenset({1}))
    assert manager.prepare_create(job_of_view(20, 10, parallelism=2)) == Add(frozenset({2, 3}))
    source, *views = worker.built
    assert (source.job_id, source.inputs, source.vnodes) == (10, (), None)
    assert [(spec.job_id, spec.inputs[0].upstreams) for spec in views] == [(20, (1,)), (20, (1,))]
    assert list(manager._running) == [10, 20]


def test_a_dropped_job_stops_its_actors():
    manager = StreamManager(FakeWorker())
    manager.prepare_create(job_of_table(10))
    manager.prepare_create(job_of_view(20, 10, parallelism=3))
    assert manager.prepare_drop([20]) == Stop(frozenset({2, 3, 4}))
    assert manager.prepare_drop([20]) is None
    assert list(manager._running) == [10]


def test_jobs_that_are_replaced_must_run():
    manager = StreamManager(FakeWorker())
    manager.prepare_create(job_of_table(10))
    manager.prepare_create(job_of_view(20, 10))
    with pytest.raises(JobNotRunning):
        manager.prepare_replace([Beginning(job_of_view(20, 10)), Beginning(job_of_view(30, 20))])
    assert list(manager._running) == [10, 20]
    assert manager.prepare_replace([Beginning(job_of_view(20, 10))]) == Add(frozenset({3}), stopped=frozenset({2}))


def test_rebuilding_uses_new_actors():
    worker = FakeWorker()
    manager = StreamManager(worker)
    manager.prepare_create(job_of_table(10))
    manager.prepare_create(job_of_view(20, 10))
    worker.built.clear()
    again = [Beginning(job_of_table(10)), Beginning(job_of_view(30, 10))]
    assert manager.rebuild(again, {}) == Add(frozenset({3, 4}))
    inputs = [(spec.job_id, [each.upstreams for each in spec.inputs]) for spec in worker.built]
    assert inputs == [(10, []), (30, [(3,)])]
    assert list(manager._running) == [10, 30]
    assert (manager.job_of(1), manager.job_of(4)) == (None, 30)


def test_a_job_is_backfilled_once_all_actors_that_scan_have_said_so():
    manager = StreamManager(FakeWorker())
    manager.prepare_create(job_of_table(10))
    manager.prepare_create(job_of_view(20, 10, parallelism=2))
    assert manager.backfilled([2]) == set()
    assert manager.backfilled([3, 99]) == {20}
