"""The creation of views that stops nothing, within the graph and apart from it: what others see meanwhile, changes,
recoveries, another parallelism, cancellation, and the process that ends."""

import os
import random
import signal
import threading

import numpy as np
import pytest

import hummock
from hummock.epoch import SPILL_BITS, Epoch
from hummock.meta.leases import read_leases
from hummock.options import CompactionOptions
from relational.agg import AggGroups
from relational.catalog.names import ObjectName
from relational.errors import NotFound
from relational.table.scan_positions import stored_since
from relational.types import DataType
from stream import connect, playground
from stream.errors import JobCreating, JobFailed
from stream.executor.backfill_pace import BackfillPace
from stream.executor.snapshot_backfill import SnapshotBackfillExecutor
from stream.meta.ddl import Ddl
from stream.meta.job_planner import JobPlanner
from stream.worker.state_handover import StateHandover
from tests.stream.test_parallel_jobs import SOON, VIEWS, change, check_views, connected, insert, rows
from tests.support.drivers.seeds import amount, run_seed
from tests.support.drivers.waiting import eventually


@pytest.fixture(params=["in the graph", "apart"])
def options(request):
    return {"detached_creation_bytes": 0} if request.param == "apart" else {}


@pytest.fixture
def db(options):
    with connected(parallelism=2, **options) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        yield session


@pytest.fixture
def gate(monkeypatch):
    """Backfills read nothing before it is set."""
    gate = threading.Event()
    allowed = BackfillPace.may_read
    monkeypatch.setattr(BackfillPace, "may_read", lambda self: gate.is_set() and allowed(self))
    yield gate
    gate.set()


def creating(db, name, query):
    """Sends CREATE in a thread; returns it, with its outcome, once the job is being created."""
    outcome = []

    def create():
        try:
            outcome.append(db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}"))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=create, daemon=True)
    thread.start()
    eventually(lambda: outcome or state_of(db, name) == "CREATING")
    return thread, outcome


def state_of(db, name):
    return {each["name"]: each["state"] for each in db.sql("SHOW JOBS").to_pylist()}.get(name)


def test_a_creation_that_is_interrupted_leaves_nothing(db, gate, heeds_interrupts):
    insert(db, range(10))

    def interrupt():
        eventually(lambda: state_of(db, "counted") == "CREATING")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        db.sql("CREATE MATERIALIZED VIEW counted AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
    thread.join()
    assert state_of(db, "counted") is None
    gate.set()
    db.sql("CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) AS n FROM t")
    assert rows(db.table("counted").to_arrow()) == [(10,)]


@pytest.mark.parametrize("vnode_count", [16, 1_024])
def test_progress_is_a_share_of_the_vnodes_of_the_table(db, vnode_count):
    db.sql(f"CREATE TABLE many (id BIGINT PRIMARY KEY) WITH (vnode_count = {vnode_count})")
    db.sql("INSERT INTO many VALUES (1), (2), (3)")
    db.sql("CREATE MATERIALIZED VIEW counted AS SELECT id, COUNT(*) AS n FROM many GROUP BY id")
    with db.at() as snapshot:
        known = {table.name: table for table in db._playground.catalog.snapshot.jobs()}
        assert snapshot.progress_of(known["counted"]) == 1.0


def test_while_a_view_is_created_everything_else_goes_on(db, gate):
    insert(db, range(5_000))
    db.sql("CREATE TABLE other (id BIGINT PRIMARY KEY)")
    thread, outcome = creating(db, "grouped", VIEWS["grouped"])
    rng = random.Random(run_seed())
    for number in range(10):
        change(db, rng)
        db.sql(f"INSERT INTO other VALUES ({number})")
        db.flush()
    assert not outcome and db.sql("SELECT COUNT(*) AS n FROM other").rows() == [{"n": 10}]
    with pytest.raises(JobCreating, match="grouped"):
        db.sql("SELECT * FROM grouped").rows()
    with pytest.raises(JobCreating, match="grouped"):
        db.sql("CREATE MATERIALIZED VIEW twice AS SELECT n, COUNT(*) AS c FROM grouped GROUP BY n")
    progress = {each["name"]: each["progress"] for each in db.sql("SHOW JOBS").to_pylist()}
    assert progress == {"grouped": 0.0, "t": None, "other": None}
    gate.set()
    thread.join(SOON)
    assert state_of(db, "grouped") == "RUNNING"
    check_views(db, ["grouped"])


def test_a_creation_is_seen_while_it_goes_on(db, gate):
    insert(db, range(1_000))
    db.flush()
    thread, _ = creating(db, "grouped", VIEWS["grouped"])
    eventually(lambda: any(each.job == "grouped" for each in db._playground.fragments()))
    plan = db.sql("EXPLAIN ANALYZE (duration_secs = 0.05) grouped")["plan"].to_pylist()
    assert any("HashAgg" in line for line in plan) and any("Scan" in line for line in plan)
    gate.set()
    thread.join(SOON)
    assert {each.job for each in db._playground.fragments()} == {"t", "grouped"}
    check_views(db, ["grouped"])


def test_a_drop_cancels_a_creation(db, gate):
    insert(db, range(5_000))
    thread, outcome = creating(db, "grouped", VIEWS["grouped"])
    db.sql("DROP MATERIALIZED VIEW grouped")
    thread.join(SOON)
    assert isinstance(outcome[0], NotFound) and state_of(db, "grouped") is None
    insert(db, range(5_000, 5_010))
    gate.set()
    db.sql(f"CREATE MATERIALIZED VIEW grouped AS {VIEWS['grouped']}")
    check_views(db, ["grouped"])


def test_a_creation_continues_when_the_store_is_opened_again(tmp_path, gate, options):
    url = f"file://{tmp_path}"
    db = connected(url, parallelism=2, **options)
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
    insert(db, range(5_000))
    thread, outcome = creating(db, "grouped", VIEWS["grouped"])
    db.flush()
    db.abandon()
    thread.join(SOON)
    assert isinstance(outcome[0], Exception)
    with connected(url, parallelism=3, **options) as db:
        assert state_of(db, "grouped") == "CREATING"
        insert(db, range(5_000, 6_000))
        gate.set()
        eventually(lambda: state_of(db, "grouped") == "RUNNING")
        check_views(db, ["grouped"])


def test_a_creation_is_rescaled_and_recovers_with_its_positions(tmp_path, monkeypatch, options):
    """The backfill reads a few rows an epoch; it is rescaled, and killed by an actor's failure, several times."""
    allowed = BackfillPace.may_read
    monkeypatch.setattr(BackfillPace, "may_read", lambda self: self._rows < 400 and allowed(self))
    rng = random.Random(run_seed())
    with connected(f"file://{tmp_path}", parallelism=2, snapshot_slice_rows=50, chunk_rows=64, **options) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        insert(db, range(20_000))
        thread, outcome = creating(db, "grouped", VIEWS["grouped"])
        for parallelism in (1, 4, 2):
            change(db, rng)
            db.sql(f"ALTER MATERIALIZED VIEW grouped SET PARALLELISM = {parallelism}")
            db._playground.meta.fail(RuntimeError("a failure of no job"))
            change(db, rng)
        monkeypatch.setattr(BackfillPace, "may_read", allowed)
        thread.join(SOON)
        assert not isinstance(outcome[0], BaseException)
        check_views(db, ["grouped"])


def test_several_views_are_created_at_once(db, gate):
    insert(db, range(20_000))
    names = ["grouped", "filtered", "keyed", "whole"]
    threads = [creating(db, name, VIEWS[name])[0] for name in names]
    assert {state_of(db, name) for name in names} == {"CREATING"}
    gate.set()
    for thread in threads:
        thread.join(SOON)
    check_views(db, names)


def test_a_view_over_a_table_that_is_written_meanwhile(db):
    insert(db, range(amount(4_000, 100_000)))
    stop, sent = threading.Event(), []

    def write():
        rng = random.Random(run_seed())
        while not stop.wait(0.01):
            change(db, rng)
            sent.append(1)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    for name, query in VIEWS.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    stop.set()
    writer.join(SOON)
    assert sent
    check_views(db)


def test_a_committed_epoch_never_shows_a_part_of_a_view(db, gate):
    insert(db, range(1_000))
    thread, _ = creating(db, "whole", VIEWS["whole"])
    gate.set()
    eventually(lambda: state_of(db, "whole") == "RUNNING")
    assert rows(db.sql("SELECT * FROM whole").to_arrow()) == rows(db.sql(VIEWS["whole"]).to_arrow())
    thread.join(SOON)


def test_a_creation_ends_without_waiting_for_the_next_checkpoint(options):
    with connected(barrier_interval_ms=3_600_000, checkpoint_frequency=1_000, **options) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        db.sql(f"CREATE MATERIALIZED VIEW grouped AS {VIEWS['grouped']}")
        check_views(db, ["grouped"])


# -- apart from the graph ------------------------------------------------------------------------------


@pytest.fixture
def apart(tmp_path):
    """Opens a session whose creations are apart, on one store."""
    url = f"file://{tmp_path / 'store'}"
    return lambda **options: connected(url, parallelism=2, detached_creation_bytes=0, **options)


def filled(db, count=5_000):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
    insert(db, range(count))
    db.flush()


def some_pieces(monkeypatch, rows=500):
    """Backfills stop after so many rows of each piece; returns what lets them go on."""
    allowed = BackfillPace.may_read
    monkeypatch.setattr(BackfillPace, "may_read", lambda self: self._rows < rows and allowed(self))
    return lambda: monkeypatch.setattr(BackfillPace, "may_read", allowed)


def progress_of(db, name):
    return {each["name"]: each["progress"] for each in db.sql("SHOW JOBS").to_pylist()}[name]


@pytest.mark.parametrize("fails", [False, True])
def test_the_groups_of_a_creation_are_left_to_the_actors_in_the_graph(apart, monkeypatch, fails):
    """Unless something of the creation failed after they were left: they are read again then."""
    taken, left = [], []
    take, leave = StateHandover.take, StateHandover.leave

    def failing_leave(self, *args):
        leave(self, *args)
        left.append(args)
        if fails and len(left) == 1:
            raise ValueError("the actor fails after it has left its groups")

    monkeypatch.setattr(StateHandover, "leave", failing_leave)
    monkeypatch.setattr(StateHandover, "take", lambda self, *args: taken.append(take(self, *args)) or taken[-1])
    with apart() as db:
        filled(db)
        rng = random.Random(run_seed())
        for name in ("grouped", "whole"):
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
            assert taken and all(groups is not None for groups in taken)
            taken.clear()
            for _ in range(5):
                change(db, rng)
            check_views(db, [name])
        assert len(left) == 3 or (fails and len(left) in (4, 5)), "the other actor may not have come to leave its own"
        assert not db._playground._handover._left


def test_nobody_takes_the_groups_of_other_vnodes_nor_what_was_forgotten():
    handover, groups = StateHandover(), AggGroups([0], [DataType.BIGINT], [])
    even, odd = np.array([1, 0], np.uint8), np.array([0, 1], np.uint8)
    handover.leave(1, 10, even, groups)
    assert handover.take(1, 10, odd) is None and handover.take(1, 10, None) is None
    assert handover.take(1, 11, even) is None and handover.take(2, 10, even) is None
    assert handover.take(1, 10, even) is groups and handover.take(1, 10, even) is None
    handover.leave(1, 10, None, groups)
    handover.forget(1)
    assert handover.take(1, 10, None) is None


@pytest.mark.parametrize("failures", [1, 2, 1_000])
def test_actors_that_fail_continue_then_go_on_in_the_graph_then_end_the_creation(apart, monkeypatch, failures):
    left = [failures]
    read = SnapshotBackfillExecutor._next_slice

    def failing(self, snapshot):
        if left[0]:
            left[0] -= 1
            raise ValueError("the scan fails")
        return read(self, snapshot)

    monkeypatch.setattr(SnapshotBackfillExecutor, "_next_slice", failing)
    with apart() as db:
        filled(db)
        db.sql(f"CREATE MATERIALIZED VIEW grouped AS {VIEWS['grouped']}")  # the scan in the graph does not fail
        assert failures - left[0] <= 4  # each of two actors in two attempts
        check_views(db, ["grouped"])


def test_a_view_over_a_job_that_is_set_aside_before_its_first_barrier_is_refused(monkeypatch):
    """After the statement was checked: else it could never begin in the graph."""
    with connected(detached_creation_bytes=0) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, k FROM t")
        meta, new_view = db._playground.meta, JobPlanner.new_view

        def new_view_then_failure(self, view, parallelism=None):
            failed = meta.catalog.resolve(ObjectName("v")).id
            meta.failures.refuse({failed: ValueError("a bug")}, meta.catalog.snapshot, 1)
            return new_view(self, view, parallelism)

        monkeypatch.setattr(JobPlanner, "new_view", new_view_then_failure)
        with pytest.raises(JobFailed, match="'v' was set aside"):
            db.sql("CREATE MATERIALIZED VIEW w AS SELECT k, count(*) AS n FROM v GROUP BY k")
        assert state_of(db, "w") is None


def test_a_table_is_altered_while_a_view_over_it_is_created(apart, monkeypatch):
    go_on = some_pieces(monkeypatch)
    with apart(snapshot_slice_rows=100) as db:
        filled(db)
        thread, outcome = creating(db, "grouped", VIEWS["grouped"])
        db.sql("ALTER TABLE t ADD COLUMN more BIGINT DEFAULT 7")
        db.sql("INSERT INTO t VALUES (-1, 1, 1, 1)")
        db.sql("ALTER TABLE t DROP COLUMN more")
        insert(db, range(5_000, 5_100))
        go_on()
        thread.join(SOON)
        assert not isinstance(outcome[0], BaseException)
        check_views(db, ["grouped"])


def test_what_was_read_is_kept_by_a_process_that_opens_the_store_later(apart, monkeypatch):
    go_on = some_pieces(monkeypatch)
    db = apart(snapshot_slice_rows=100)
    filled(db, 50_000)
    thread, _ = creating(db, "grouped", VIEWS["grouped"])
    eventually(lambda: progress_of(db, "grouped") > 0.02)
    kept = progress_of(db, "grouped")
    db.abandon()
    thread.join(SOON)
    with apart() as db:
        assert progress_of(db, "grouped") >= kept
        insert(db, range(50_000, 50_500))
        go_on()
        db.wait_created("grouped")
        check_views(db, ["grouped"])


def test_a_creation_begins_anew_if_the_changes_since_are_gone(apart, monkeypatch, tmp_path, caplog):
    go_on = some_pieces(monkeypatch)
    db = apart(snapshot_slice_rows=100)
    filled(db, 20_000)
    thread, _ = creating(db, "grouped", VIEWS["grouped"])
    eventually(lambda: progress_of(db, "grouped") > 0.02)
    db.abandon()
    thread.join(SOON)
    url, options = f"file://{tmp_path / 'store'}", CompactionOptions(history_ms=0)
    with hummock.open(url, role="writer", compaction=options) as store:
        for _ in range(3):
            store.commit(Epoch(store.committed_epoch + (1 << SPILL_BITS)))
            store.compact()
    with apart() as db:
        go_on()
        db.wait_created("grouped")
        check_views(db, ["grouped"])
    assert any("begins anew" in record.getMessage() for record in caplog.records)


def test_the_positions_of_a_creation_are_read_at_an_epoch_that_stays_readable(apart, monkeypatch):
    """Else commits and compactions between the choice of the epoch and the read could make it too old."""
    with apart() as db:
        filled(db)
        pins = db._playground.manager._pins

        def stored(table, epoch):
            pins.lift_epochs(Epoch(epoch + (1 << SPILL_BITS)))  # as a compaction after the next commit does
            read.append(min(lease.min_epoch for lease in read_leases(pins._meta_store)) <= epoch)
            return stored_since(table, epoch)

        read = []
        monkeypatch.setattr(playground, "stored_since", stored)
        db.sql(f"CREATE MATERIALIZED VIEW grouped AS {VIEWS['grouped']}")
        check_views(db, ["grouped"])
    assert read and all(read)


def test_a_view_is_dropped_between_its_pieces(apart, monkeypatch):
    some_pieces(monkeypatch)
    with apart(snapshot_slice_rows=100) as db:
        filled(db, 20_000)
        thread, outcome = creating(db, "grouped", VIEWS["grouped"])
        eventually(lambda: progress_of(db, "grouped") > 0.02)
        db.sql("DROP MATERIALIZED VIEW grouped")
        thread.join(SOON)
        assert isinstance(outcome[0], NotFound) and state_of(db, "grouped") is None
        db.sql("DROP TABLE t")


@pytest.mark.parametrize(("query", "is_apart"), [
    ("SELECT l.k, count(*) AS n FROM t AS l JOIN t AS r ON l.k = r.k GROUP BY l.k", True),
    ("SELECT l.id, r.id AS other FROM t AS l JOIN t AS r ON l.v + r.v > 95 AND l.id < r.id", True),
    ("SELECT l.id, r.k FROM t AS l JOIN t AS r ON l.k = r.id", False),
    ("SELECT id FROM t WHERE k IN (SELECT id FROM t WHERE v > 3)", False),
    ("SELECT k, count(*) AS n FROM t GROUP BY k", False),
])
def test_a_join_of_many_with_many_is_created_apart_from_few_rows_on(monkeypatch, query, is_apart):
    created = []
    monkeypatch.setattr(Ddl, "_create_detached", lambda self, table, *rest, to=Ddl._create_detached: (
        created.append(table.name), to(self, table, *rest))[1])
    with connect("memory://", barrier_interval_ms=20) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        db.table("t").insert([(number, number % 50, number % 97) for number in range(2_000)], flush=True)
        db.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
        assert sorted(db.query("SELECT * FROM m").fetchall()) == sorted(db.query(query).fetchall())
    assert created == (["m"] if is_apart else [])
