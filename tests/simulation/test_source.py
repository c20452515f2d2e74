"""A source with its offset in state: at every committed epoch, and after every failure, each view is the
result over exactly the changes up to the offset that the epoch committed."""

import random
import threading
from collections import defaultdict

import pytest

from hummock.meta.store.memory import MemoryMetaStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, StorageOptions
from relational.chunk import Op, StreamChunk
from relational.types import Schema
from stream.connector.base import Connector, SplitEnumerator, register_connector
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.protocol import Step
from stream.session.session import Session
from tests.support.drivers.numbered_reader import NumberedReader
from tests.support.drivers.stream_driver import emitted_rows
from tests.support.drivers.waiting import SOON_SECONDS
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore

NEVER_MS = 3_600_000
SCHEMA = Schema.of(id="bigint", kind="varchar", value="bigint")
pytestmark = pytest.mark.timeout(120)


def history(seed, steps):
    """Consistent changes of a table keyed by id: lists of (op, row) that must stay together."""
    rng = random.Random(seed)
    alive, made = {}, []
    for step in range(steps):
        if alive and rng.random() < 0.6:
            key = rng.choice(list(alive))
            old = alive.pop(key)
            if rng.random() < 0.3:
                made.append([(Op.DELETE, old)])
                continue
            new = (key, rng.choice("abc"), rng.choice((None, rng.randint(-9, 9))))
            made.append([(Op.UPDATE_DELETE, old), (Op.UPDATE_INSERT, new)])
        else:
            key, new = step, (step, rng.choice("abc"), rng.randint(-9, 9))
            made.append([(Op.INSERT, new)])
        alive[key] = new
    return made


class HistoryReader(NumberedReader):
    def __init__(self, made):
        super().__init__()
        self.made = made

    def next_chunk(self, max_rows):
        changes = []
        while self.next < len(self.made) and len(changes) + len(self.made[self.next]) <= max_rows:
            changes += self.made[self.next]
            self.next += 1
        return StreamChunk.from_rows(SCHEMA, changes) if changes else None

    @property
    def is_finished(self):
        return self.next == len(self.made)


class HistoryConnector(Connector):
    is_consistent = True

    def __init__(self, options, schema):
        self.options = options

    def enumerator(self):
        class One(SplitEnumerator):
            def list_splits(self):
                return ["all"]

        return One()

    def open_split(self, split, columns):
        return HistoryReader(history(int(self.options["seed"]), int(self.options["steps"])))


def rows_at(made, offset):
    rows = {}
    for change in made[:offset]:
        for op, row in change:
            if op in (Op.DELETE, Op.UPDATE_DELETE):
                assert rows.pop(row[0]) == row
            else:
                rows[row[0]] = row
    return rows


def check(snapshot, made):
    """Checks table and views against the changes up to the offset; returns the offset."""
    offset = int(snapshot.offsets("events").get("all", 0))
    rows = rows_at(made, offset)
    groups = defaultdict(list)
    for _, kind, value in rows.values():
        groups[kind].append(value)
    expected = sorted(
        (
            kind,
            len(values),
            *(function([v for v in values if v is not None]) for function in (total, low, high)),
        )
        for kind, values in groups.items()
    )
    shown = snapshot.sql("SELECT id, kind, value FROM events ORDER BY id").to_arrow()
    assert list(zip(*(c.to_pylist() for c in shown.columns), strict=True)) == [rows[key] for key in sorted(rows)]
    shown = snapshot.sql("SELECT kind, n, total, low, high FROM kinds ORDER BY kind").to_arrow()
    found = [
        (kind, n, None if sum_ is None else int(sum_), least, most)
        for kind, n, sum_, least, most in zip(*(c.to_pylist() for c in shown.columns), strict=True)
    ]
    assert found == expected
    return offset


def total(values):
    return sum(values) if values else None


def low(values):
    return min(values, default=None)


def high(values):
    return max(values, default=None)


class Stage:
    def __init__(self, seed, steps, **options):
        register_connector("history", HistoryConnector)
        self.made, self.epochs, self.trap, self.raised = history(seed, steps), [], None, 0
        self.objects = FaultPlan()
        options.setdefault("barrier_interval_ms", NEVER_MS)
        self.playground = Playground(
            FaultyObjectStore(MemoryObjectStore(), self.objects),
            MemoryMetaStore(),
            PlaygroundOptions(
                stream=StreamOptions(recovery_backoff_ms=1, recovery_attempts=10, **options),
                storage=StorageOptions(inline_bytes=0),
                compaction=CompactionOptions(history_ms=600_000),      # what the tests read
            ),
            observer=self.observe,
        )
        self.session = Session(self.playground)
        self.session.sql(
            f"CREATE TABLE events (id BIGINT PRIMARY KEY, kind VARCHAR, value BIGINT) "
            f"WITH (connector = 'history', seed = '{seed}', steps = '{steps}')"
        )
        self.session.sql(
            "CREATE MATERIALIZED VIEW kinds AS SELECT kind, COUNT(*) AS n, SUM(value) AS total, "
            "MIN(value) AS low, MAX(value) AS high FROM events GROUP BY kind"
        )
        self.created = self.session.committed_epoch

    def observe(self, step, epoch):
        if step is Step.NOTIFY:
            self.epochs.append(epoch)
        if self.trap is not None and step is self.trap:
            self.trap = None
            self.raised += 1
            raise RuntimeError(f"injected at {step}")

    def offset(self):
        with self.session.at() as snapshot:
            return int(snapshot.offsets("events").get("all", 0))

    def finish(self):
        """Flushes until the end is committed and observed: the source reads on by itself."""
        self.wait_for(len(self.made) - 300)
        for _ in range(1_000):
            self.session.flush()
            if self.offset() == len(self.made):
                self.session.flush()  # a commit is read before it is notified
                return
        raise AssertionError(f"the end was not reached: offset {self.offset()}")

    def wait_for(self, offset):
        waited = threading.Event()
        for _ in range(int(SOON_SECONDS / 0.005)):
            if self.offset() >= offset:
                return
            self.session.check_alive()
            waited.wait(0.005)
        raise AssertionError(f"offset {self.offset()} after {SOON_SECONDS} s, not {offset}")


@pytest.fixture
def stage():
    made = []

    def make(*args, **options):
        made.append(Stage(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.session.abandon()


def test_every_committed_epoch_is_the_answer_up_to_its_offset(stage):
    stage = stage(3, 3_000, checkpoint_rows=100, chunk_rows=32)
    stage.finish()
    offsets = []
    for epoch in [each for each in stage.epochs if each >= stage.created]:
        with stage.session.at(epoch) as snapshot:
            offsets.append(check(snapshot, stage.made))
    assert offsets == sorted(offsets)
    assert offsets[-1] == 3_000
    assert len(set(offsets)) >= 20


@pytest.mark.parametrize("step", list(Step))
def test_a_source_continues_where_the_committed_epoch_ended(stage, step):
    stage = stage(5, 4_000, checkpoint_rows=200, chunk_rows=64)
    for offset in range(500, 4_000, 500):
        stage.wait_for(min(offset, 3_800))
        with stage.session.at() as snapshot:
            check(snapshot, stage.made)
        stage.trap = step
    stage.finish()
    with stage.session.at() as snapshot:
        assert check(snapshot, stage.made) == 4_000
    assert stage.raised >= 3


def test_failing_uploads_lose_nothing_and_double_nothing(stage):
    stage = stage(7, 3_000, checkpoint_rows=150, chunk_rows=50)
    for skip in range(5, 60, 9):
        stage.objects.add(Fault(FaultKind.BEFORE, "put", "sst/", skip=skip))
    stage.finish()
    with stage.session.at() as snapshot:
        assert check(snapshot, stage.made) == 3_000
    assert stage.objects.hits >= 3


def test_the_end_of_a_source_is_committed_without_anybody_asking(stage):
    stage = stage(1, 500)
    stage.wait_for(500)
    assert stage.session.source_offsets("events") == {"all": "500"}


def test_a_slow_store_holds_the_source_back(stage):
    stage = stage(9, 6_000, checkpoint_rows=100, chunk_rows=50, in_flight_barriers=3)
    stage.objects.add(Fault(FaultKind.DELAY, "put", "sst/", times=10_000, delay_ms=30))
    stage.wait_for(stage.offset() + 100)
    most = overlapping = 0
    committed = 0
    while committed < 3_000:
        emitted = emitted_rows(stage.session, "events")
        committed = sum(map(len, stage.made[: stage.offset()]))
        most = max(most, emitted - committed)
        overlapping += stage.session.figures.in_flight > 1
        threading.Event().wait(0.005)
    assert overlapping, "no epoch ran during the upload of another"
    assert most <= (3 + 2) * 102, f"{most} changes were in flight"
    stage.objects.clear()
    stage.finish()
    with stage.session.at() as snapshot:
        assert check(snapshot, stage.made) == 6_000
