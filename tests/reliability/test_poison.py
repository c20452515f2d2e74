"""Poison records: a malformed record, of one of ten kinds, in one of three jobs; the other two never stop.

HUMMOCK_POISON_ROWS sets the number of records; good rows for all three jobs are sent before, between and after them.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter

import pytest

import stream
from tests.support.drivers import feed
from tests.support.drivers.seeds import amount, run_seed

POISON_ROWS = int(os.environ.get("HUMMOCK_POISON_ROWS", amount(20, 40)))
SOON_SECONDS = 30.0
REFUSING, SKIPPING = ("a", "b"), "c"
JOBS = (*REFUSING, SKIPPING)
pytestmark = pytest.mark.timeout(60 + 5 * POISON_ROWS)


class World:
    """Three tables with a view each, the rows sent to them, and the expected error counts."""

    def __init__(self, db, rng: random.Random) -> None:
        self.db, self.rng = db, rng
        self.feeds = feed.feeds(JOBS)
        self.sent: Counter[str] = Counter()         # good rows by table
        self.left_out: Counter[str] = Counter()     # malformed records by table
        self.next = 0
        self.slowest = 0.0
        for name in JOBS:
            feed.create(db, name, malformed="skip" if name == SKIPPING else "refuse")
            db.sql(f"CREATE MATERIALIZED VIEW {view_of(name)} AS SELECT name, COUNT(*) AS n, SUM(price) AS total, "
                   f"SUM(1 / (price - 500)) AS odd FROM {name} GROUP BY name")

    def send(self, name: str, *poison: str) -> None:
        """Sends good rows with the poison shuffled in."""
        rows = list(range(self.next, self.next + self.rng.randint(1, 5)))
        self.next += len(rows)
        self.sent[name] += len(rows)
        records = [*rows, *poison]
        self.rng.shuffle(records)
        self.feeds[name].add(*records)

    def wait_for(self, name: str) -> None:
        """Waits until the table and its view have all good rows."""
        began = time.monotonic()
        while not self.has_all(name):
            assert time.monotonic() - began < SOON_SECONDS, (name, self.states())
            time.sleep(0.002)
        self.slowest = max(self.slowest, time.monotonic() - began)

    def has_all(self, name: str) -> bool:
        rows = self.db.sql(f"SELECT SUM(n) AS n FROM {view_of(name)}").rows()
        return int(rows[0]["n"] or 0) == self.sent[name]

    def states(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in self.db.jobs().to_pylist()}

    def wait_until_failed(self, name: str) -> None:
        began = time.monotonic()
        while self.states()[name] != "FAILED":
            assert time.monotonic() - began < SOON_SECONDS, (name, self.states())
            time.sleep(0.002)

    def counted(self) -> Counter[str]:
        """Skipped records by table, from SHOW ERRORS."""
        found: Counter[str] = Counter()
        for row in self.db.sql("SHOW ERRORS").to_pylist():
            if row["job"] in JOBS:
                found[row["job"]] += row["rows"]
        return found


def view_of(name: str) -> str:
    return f"{name}_sums"


def round_of(world: World, name: str, kind: str) -> None:
    """Sends one poison record to table `name`; the other two receive and show rows meanwhile."""
    others = [each for each in JOBS if each != name]
    world.send(name, kind)
    fails = name in REFUSING or kind == feed.BROKEN
    if fails:
        world.wait_until_failed(name)
    for other in others:
        world.send(other)
        world.wait_for(other)
    states = world.states()
    assert all(states[each] == states[view_of(each)] == "RUNNING" for each in others), states
    if kind == feed.BROKEN:
        world.feeds[name].mend()
    else:
        world.left_out[name] += 1
    if fails:
        assert states[name] == states[view_of(name)] == "FAILED"
        world.db.sql(f"ALTER TABLE {name} RESUME{'' if kind == feed.BROKEN else ' SKIP 1 ROWS'}")
    world.wait_for(name)


def test_poison_in_one_job_stops_no_other(tmp_path):
    rng = random.Random(run_seed())
    with stream.connect(f"file://{tmp_path / 'store'}", create=True,
            barrier_interval_ms=10, recovery_backoff_ms=1) as db:
        world = World(db, rng)
        kinds = [feed.KINDS[number % len(feed.KINDS)] for number in range(POISON_ROWS)]
        rng.shuffle(kinds)
        for kind in kinds:
            round_of(world, rng.choice(JOBS), kind)
        print(f"{POISON_ROWS} records of {len(set(kinds))} kinds; rows took {world.slowest:.2f} s at most")
        db.flush()
        assert world.counted() == world.left_out
        for name in JOBS:
            assert len(db.sql(f"SELECT id FROM {name}").rows()) == world.sent[name]     # id is the key
