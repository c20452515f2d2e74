"""Faults in a running session: it recovers by itself, and every view stays consistent with its table."""

import contextlib
import threading
import time

import pytest

from hummock.errors import Fenced, HummockError
from hummock.meta.store.memory import MemoryMetaStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from stream.errors import StreamError
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.protocol import Step
from stream.session.connect import connect
from stream.session.session import Session
from tests.simulation import session_workload
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore

NEVER_MS = 3_600_000
pytestmark = pytest.mark.timeout(120)
ROUNDS = 8
SOON = 20.0


class Trap:
    """An observer that raises once, the next time that `step` is reached."""

    def __init__(self):
        self.step = None
        self.raised = 0

    def __call__(self, step, epoch):
        if step is self.step:
            self.step = None
            self.raised += 1
            raise RuntimeError(f"injected at {step}")


class Stage:
    """A session over stores in memory that fail on demand."""

    def __init__(self, **options):
        options.setdefault("barrier_interval_ms", NEVER_MS)
        options.setdefault("recovery_backoff_ms", 1)
        self.objects, self.meta, self.trap = FaultPlan(), FaultPlan(), Trap()
        self.playground = Playground(
            FaultyObjectStore(MemoryObjectStore(), self.objects),
            FaultyMetaStore(MemoryMetaStore(), self.meta),
            PlaygroundOptions(stream=StreamOptions(**options), storage=StorageOptions(inline_bytes=0)),
            observer=self.trap,
        )
        self.session = Session(self.playground)

    def run_round(self, round_):
        """Executes the statements of a round, then flushes."""
        for statement in round_.statements:
            self.session.sql(statement)
        self.session.flush()


@pytest.fixture
def stage():
    made = []

    def make(**options):
        made.append(Stage(**options))
        return made[-1]

    yield make
    for each in made:
        each.session.abandon()


@pytest.mark.parametrize("step", list(Step))
def test_a_failure_at_each_step_undoes_no_statement(stage, step):
    stage = stage()
    made = session_workload.rounds(7, ROUNDS)
    session_workload.create(stage.session)
    for number in range(1, len(made)):
        if number % 2 == 0:
            stage.trap.step = step
        stage.run_round(made[number])
        assert session_workload.committed_round(stage.session, made, number) == number
    assert stage.trap.raised >= 3


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER, FaultKind.TORN])
def test_a_failed_upload_is_repeated_by_the_recovery(stage, kind):
    stage = stage()
    made = session_workload.rounds(11, 4)
    session_workload.create(stage.session)
    stage.objects.add(Fault(kind, "put", "sst/", skip=2))
    for number in range(1, len(made)):
        stage.run_round(made[number])
        assert session_workload.committed_round(stage.session, made, number) == number
    assert stage.objects.hits == 1


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER])
def test_a_commit_of_unknown_outcome_is_looked_up(stage, kind):
    stage = stage()
    made = session_workload.rounds(13, 4)
    session_workload.create(stage.session)
    for number in range(1, len(made)):
        stage.meta.add(Fault(kind, "transaction", skip=0))
        stage.run_round(made[number])
        assert session_workload.committed_round(stage.session, made, number) == number


@pytest.mark.parametrize("step", list(Step))
def test_a_view_whose_creation_fails_exists_wholly_or_not_at_all(stage, step):
    stage = stage()
    made = session_workload.rounds(17, 3)
    stage.session.sql(session_workload.TABLE)
    for each in made[1:]:
        stage.run_round(each)
    stage.trap.step = step
    try:
        stage.session.sql(f"CREATE MATERIALIZED VIEW totals AS {session_workload.VIEWS['totals']}")
        is_created = True
    except (StreamError, HummockError, RuntimeError):
        is_created = False
    assert stage.trap.raised == 1
    assert is_created == ("totals" in stage.session.names())
    if is_created:
        assert session_workload.shown(stage.session, "totals") == session_workload.answers(made[-1].after)["totals"]
    else:
        stage.session.sql(f"CREATE MATERIALIZED VIEW totals AS {session_workload.VIEWS['totals']}")
    stage.session.flush()
    assert session_workload.shown(stage.session, "totals") == session_workload.answers(made[-1].after)["totals"]


def test_reads_go_on_during_a_recovery_and_never_back(stage):
    stage = stage(recovery_backoff_ms=200, recovery_attempts=3)
    made = session_workload.rounds(19, 3)
    session_workload.create(stage.session)
    stage.run_round(made[1])
    stage.objects.add(Fault(FaultKind.BEFORE, "put", "sst/", times=2))
    for statement in made[2].statements:
        stage.session.sql(statement)

    def flush():
        with contextlib.suppress(StreamError):
            stage.session.flush()

    failing = threading.Thread(target=flush, daemon=True)
    failing.start()
    seen = []
    while failing.is_alive():
        with stage.session.at() as moment:
            assert session_workload.committed_round(moment, made, 1) in (1, 2)
            seen.append(moment.epoch)
    assert seen == sorted(seen)
    assert session_workload.committed_round(stage.session, made, 2) == 2


def test_a_slow_object_store_does_not_stop_the_epochs_behind_it(stage):
    stage = stage(barrier_interval_ms=20, in_flight_barriers=4)
    session_workload.create(stage.session)
    stage.session.flush()
    stage.objects.add(Fault(FaultKind.DELAY, "put", "sst/", times=10_000, delay_ms=150))
    most, began = 0, time.monotonic()
    for number in range(60):
        stage.session.sql(f"INSERT INTO accounts VALUES ({number}, 'ASIA', {number})")
        most = max(most, stage.session.figures.in_flight)
        threading.Event().wait(0.01)
    inserting = time.monotonic() - began
    assert 2 <= most <= 4 + 1
    assert inserting < SOON
    stage.objects.clear()
    stage.session.flush()
    assert len(session_workload.shown(stage.session, "accounts")) == 60


def test_a_second_session_fences_the_first(tmp_path):
    url = f"file://{tmp_path}/store"
    first = connect(url, create=True, barrier_interval_ms=NEVER_MS)
    first.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    first.sql("INSERT INTO t VALUES (1)")
    first.flush()
    with connect(url, create=True, take_over=True, barrier_interval_ms=NEVER_MS) as second:
        second.sql("INSERT INTO t VALUES (2)")
        second.flush()
        first.sql("INSERT INTO t VALUES (3)")
        with pytest.raises(Fenced):
            first.flush()
        with pytest.raises(Fenced):
            first.sql("INSERT INTO t VALUES (4)")
        first.abandon()
        second.flush()
        assert second.sql("SELECT id FROM t ORDER BY id").to_arrow()["id"].to_pylist() == [1, 2]
