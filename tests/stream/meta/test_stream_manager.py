from types import SimpleNamespace

from stream.message import Add, Stop
from stream.meta.stream_manager import Job, StreamManager


class FakeWorker:
    def __init__(self):
        self.built = []

    def build(self, specs):
        self.built += specs


def job(job_id, *reads, splits=()):
    scans = tuple(SimpleNamespace(table=SimpleNamespace(id=each, name=f"table {each}")) for each in reads)
    return Job(job_id, SimpleNamespace(root=f"plan of {job_id}", scans=scans), splits)


def test_a_view_reads_the_actors_of_its_tables():
    worker = FakeWorker()
    manager = StreamManager(worker)
    assert manager.prepare_create(job(10, splits=("a", "b"))) == Add(frozenset({1}))
    assert manager.prepare_create(job(20, 10, 10)) == Add(frozenset({2}))
    table, view = worker.built
    assert (table.job_id, table.upstreams, table.splits, table.is_new) == (10, (), ("a", "b"), True)
    assert (view.job_id, view.upstreams, view.root) == (20, (1, 1), "plan of 20")
    assert manager.running_jobs == (10, 20)


def test_a_dropped_job_stops_its_actor():
    manager = StreamManager(FakeWorker())
    manager.prepare_create(job(10))
    assert manager.prepare_drop([10]) == Stop(frozenset({1}))
    assert manager.running_jobs == ()


def test_rebuilding_uses_new_actors_that_are_not_new_jobs():
    worker = FakeWorker()
    manager = StreamManager(worker)
    manager.prepare_create(job(10))
    manager.prepare_create(job(20, 10))
    worker.built.clear()
    assert manager.rebuild([job(10), job(30, 10)], {}) == Add(frozenset({3, 4}))
    assert [(spec.job_id, spec.upstreams, spec.is_new) for spec in worker.built] == [
        (10, (), False),
        (30, (3,), False),
    ]
    assert manager.running_jobs == (10, 30)
