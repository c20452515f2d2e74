"""The files of a read are kept while a query of its frame can run, and not much longer."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest

from relational.spark.held_reads import ENDED_MS, STARTS_MS, HeldReads, Query
from relational.spark.query_activity import scans_in
from tests.support.drivers.seeds import run_seed, seeds

POLL_MS = 5_000
HOUR_MS = 3_600_000


class Clock:
    def __init__(self):
        self.now_ms = 1_700_000_000_000

    def __call__(self):
        return self.now_ms


class Table:
    """Stands for a pinned table."""

    def __init__(self):
        self.is_open = True

    def close(self):
        self.is_open = False


@dataclass
class Frame:
    scan: int
    table: Table | None = None          # once it is planned
    last_end: int = 0
    queries_left: int = 0


@dataclass
class Running:
    name: str
    began_ms: int
    ends_ms: int
    frames: list[Frame] = field(default_factory=list)

    def seen(self, now_ms):
        scans = frozenset(frame.scan for frame in self.frames)
        return Query(self.name, self.began_ms, self.ends_ms if self.ends_ms <= now_ms else None, scans)


class Application:
    """Frames that are planned at their first query and queried again soon after its end; queries of one or two."""

    def __init__(self, rng, clock):
        self.rng, self.clock, self.reads = rng, clock, HeldReads(clock)
        self.frames, self.running, self.due, self.count = [], [], [], 0

    def duration(self):
        return int(self.rng.choice((50, 900, 20_000, 300_000, HOUR_MS)) * self.rng.uniform(0.5, 1.5))

    def new_frame(self):
        frame = Frame(scan=100 + 10 * len(self.frames), queries_left=self.rng.randrange(1, 5))
        self.frames.append(frame)
        frame.table = Table()
        self.reads.add(frame.table)
        heapq.heappush(self.due, (self.clock.now_ms + self.rng.randrange(STARTS_MS), len(self.frames) - 1))

    def begin(self, frame, at_ms):
        self.count += 1
        query = Running(f"query {self.count}", at_ms, at_ms + self.duration(), [frame])
        others = [each for each in self.frames if each is not frame and each.table.is_open
                  and (each.last_end > at_ms or any(each in one.frames for one in self.running))]
        if others and self.rng.random() < 0.2:
            query.frames.append(self.rng.choice(others))
        self.running.append(query)
        for each in query.frames:
            each.last_end = max(each.last_end, query.ends_ms)
        frame.queries_left -= 1
        if frame.queries_left:
            heapq.heappush(self.due, (query.ends_ms + self.rng.randrange(ENDED_MS - POLL_MS), self.frames.index(frame)))

    def step(self, makes_frames):
        if makes_frames and self.rng.random() < 0.05:
            self.new_frame()
        self.clock.now_ms += POLL_MS
        while self.due and self.due[0][0] <= self.clock.now_ms:
            at_ms, index = heapq.heappop(self.due)
            assert self.frames[index].table.is_open, "closed before a query that it was to wait for"
            self.begin(self.frames[index], at_ms)
        self.reads.review([query.seen(self.clock.now_ms) for query in self.running])
        self.running = [query for query in self.running if query.ends_ms > self.clock.now_ms]
        for query in self.running:
            assert all(frame.table.is_open for frame in query.frames), query


@pytest.mark.parametrize("number", seeds(4, 12))
def test_no_running_query_loses_its_files_and_all_are_given_up_in_the_end(number):
    application = Application(random.Random(f"{run_seed()} {number}"), Clock())
    for _ in range(600):
        application.step(makes_frames=True)
    while application.due or application.running:
        application.step(makes_frames=False)
    for _ in range((STARTS_MS + ENDED_MS) // POLL_MS + 2):
        application.step(makes_frames=False)
    assert len(application.reads) == 0
    assert not any(frame.table.is_open for frame in application.frames)


@pytest.mark.parametrize("beside", ["nothing", "a long read", "a long query of other data",
                                    "a view queried each second"])
def test_a_dashboard_holds_the_reads_of_the_last_minutes_alone(beside):
    clock = Clock()
    reads, tables, scans = HeldReads(clock), [], iter(range(10, 1 << 30, 10))
    others, first = {"nothing": [], "a view queried each second": []}, Table()
    view = next(scans)
    if beside != "nothing":
        reads.add(first)
        reads.review([Query("first", clock.now_ms, clock.now_ms + 10, frozenset({view}))])
    long = Query("long", clock.now_ms, None, frozenset({view} if beside == "a long read" else ()))
    most = 0
    for second in range(2_000):
        clock.now_ms += 1_000
        tables.append(Table())
        reads.add(tables[-1])
        ended = [Query(f"query {second}", clock.now_ms, clock.now_ms + 300, frozenset({next(scans)}))]
        ended += others.get(beside, [long])
        if beside == "a view queried each second":
            ended.append(Query(f"view {second}", clock.now_ms, clock.now_ms + 100, frozenset({view})))
        clock.now_ms += 301
        reads.review(ended)
        clock.now_ms -= 301
        most = max(most, len(reads))
    assert most <= (2 * STARTS_MS + ENDED_MS) // 1_000
    if beside in ("a long read", "a view queried each second"):
        assert first.is_open
    clock.now_ms += 2 * STARTS_MS + ENDED_MS
    reads.review([])
    assert len(reads) == 0


def test_a_job_of_an_rdd_may_be_of_any_read_that_was_planned_before_it():
    clock = Clock()
    reads, early, late = HeldReads(clock), Table(), Table()
    reads.add(early)
    job = Query("job 7", clock.now_ms + 10, None, None)
    clock.now_ms += 20
    reads.add(late)
    clock.now_ms += 2 * HOUR_MS
    reads.review([job])
    assert early.is_open and not late.is_open
    clock.now_ms += 2 * HOUR_MS
    reads.review([Query("job 7", job.began_ms, clock.now_ms, None)])
    clock.now_ms += ENDED_MS + 1
    reads.review([])
    assert not early.is_open


def test_what_was_asked_for_is_held_without_a_query_and_forever_is_not_even_without_knowledge():
    clock = Clock()
    reads, tables = HeldReads(clock), [Table(), Table()]
    reads.add(tables[0], held_ms=HOUR_MS)
    reads.add(tables[1])
    clock.now_ms += HOUR_MS - 1
    reads.expire(HOUR_MS)
    assert all(table.is_open for table in tables)
    reads.review([])
    assert tables[0].is_open and not tables[1].is_open
    clock.now_ms += 2
    reads.expire(HOUR_MS)
    assert not tables[0].is_open and len(reads) == 0


def test_the_scans_of_a_plan_are_found_in_each_form_of_its_text():
    formatted = """== Physical Plan ==
* HashAggregate (7)
+- InMemoryTableScan (1) (columnarIn=false, columnarOut=true)
      +- InMemoryRelation (2)
            +- * Project (4)
               +- BatchScan hummock (3)

(3) BatchScan hummock
Output [2]: [a of [b]#x#1010L, c#11]
ReadSchema: struct<a:int>

(5) BatchScan hummock
Output [30]: [day#20, ... 29 more fields]

(6) BatchScan hummock2
Output [1]: [c#30L]
"""
    assert scans_in(formatted, "hummock") == {1010, 20}
    simple = "+- BatchScan hummock[id#5L, year#6] class (Python)\n+- BatchScan hummock[x#7] (Python)\n+- Scan [y#8]"
    assert scans_in(simple, "hummock") == {5, 7}
    assert scans_in("== Physical Plan ==\n*(1) Range (0, 10, step=1, splits=2)", "hummock") == frozenset()
