"""Random graphs of views over tables in one process after the other: statements, creations, rescales, drops, recoveries
and deaths at numbered calls of the stores, drawn from a seed.

What must hold whenever a process looks: each created view equals its query over its inputs at the same epoch; the
tables hold what they held after some statement that is not older than the last acknowledged flush; names, plans and
state tables in the catalog belong together.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session
from tests.simulation.ddl_world import (
    NEVER_MS,
    SHAPE,
    CrashingObjectStore,
    CrashPoint,
    How,
    World,
)

TABLES = ("t0", "t1")
COLUMNS = ("id", "a", "b")
MAX_VIEWS = 7


class Died(Exception):
    """The simulated process died; the next one opens the store."""


@dataclass
class Graph:
    """The state of one simulation. `log` tells what was done, for the message of a failure."""

    rng: random.Random
    world: World = field(default_factory=World)
    views: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # name -> query, columns
    states: list[list] = field(default_factory=lambda: [[{} for _ in TABLES]])  # of the tables, since the last flush
    log: list[str] = field(default_factory=list)
    created: int = 0
    deaths: int = 0
    crash: CrashPoint = field(default_factory=CrashPoint)
    session: Session | None = None

    # -- processes -------------------------------------------------------------------------------------

    def open(self) -> Session:
        """A new process on the stores."""
        rng, self.crash = self.rng, CrashPoint()
        options = PlaygroundOptions(
            stream=StreamOptions(
                barrier_interval_ms=rng.choice([1, 5, NEVER_MS]),
                checkpoint_frequency=rng.choice([1, 3]),
                recovery_attempts=3,
                recovery_backoff_ms=1,
                parallelism=rng.choice([1, 2, 3]),
                snapshot_slice_rows=rng.choice([1, 3, 20]),
                chunk_rows=rng.choice([2, 5, 4_096]),
            ),
            compaction=SHAPE,
            is_maintained=False,
        )
        objects = CrashingObjectStore(self.world.objects, self.crash)
        self.session = Session(Playground(objects, self.world.meta_of(objects, self.crash), options))
        return self.session

    def kill(self) -> None:
        """The process ends without a flush."""
        self.deaths += 1
        self.crash.is_dead = True
        assert self.session is not None
        with suppress(Exception):
            self.session.abandon()
        self.session = None

    def run(self, steps: int) -> None:
        """`steps` random steps, then everything is created and checked once more."""
        session = self.open()
        for name in TABLES:
            session.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT)")
        for _ in range(steps):
            self.step()
        if self.session is not None:
            self.kill()
        self.reopen()
        assert self.session is not None
        self.session.wait_created()
        self.flush()
        self.world.check_catalog_rows()
        self.session.abandon()

    def step(self) -> None:
        if self.session is None:
            self.reopen()
        steps = (self.statement, self.create, self.rescale, self.drop, self.flush, self.recover, self.die_soon)
        chosen = self.rng.choices(steps, (10, 4, 2, 1, 3, 1, 2))[0]
        try:
            chosen()
        except AssertionError:
            raise
        except Exception as error:
            if not self.crash.is_dead:
                raise
            self.log.append(f"died: {type(error).__name__}")
            self.kill()

    def reopen(self) -> None:
        self.log.append("reopen")
        session = self.open()
        found = self.tables(session)
        assert found in self.states, f"the tables hold the state after no statement since the last flush: {found}"
        self.states = [found]
        present = set(session.names()) - set(TABLES)
        assert present <= self.views.keys(), present
        self.views = {name: view for name, view in self.views.items() if name in present}
        self.check(session)

    def tables(self, session: Session) -> list:
        """{id: row} of each table, at one epoch."""
        with session.at() as snapshot:
            found = [snapshot.sql(f"SELECT * FROM {name}").to_pylist() for name in TABLES]
        return [{row["id"]: (row["a"], row["b"]) for row in rows} for rows in found]

    # -- steps -----------------------------------------------------------------------------------------

    def statement(self) -> None:
        """A random data change; a death in it leaves all or nothing of it."""
        rng, number = self.rng, self.rng.randrange(len(TABLES))
        name, after = TABLES[number], [dict(rows) for rows in self.states[-1]]
        rows = after[number]
        kind = rng.random()
        if kind < 0.5 or not rows:
            new = {key: (_value(rng), _value(rng)) for key in rng.sample(range(200), rng.choice([1, 5, 40]))}
            new = {key: row for key, row in new.items() if key not in rows}
            text = ", ".join(f"({key}, {_text(a)}, {_text(b)})" for key, (a, b) in new.items())
            text = f"INSERT INTO {name} VALUES {text}" if new else ""
            rows.update(new)
        elif kind < 0.75:
            residue, step = rng.randrange(3), rng.randrange(1, 4)
            text = f"UPDATE {name} SET a = a + {step} WHERE id % 3 = {residue}"
            chosen = {key: row for key, row in rows.items() if key % 3 == residue}
            rows.update({key: (None if a is None else a + step, b) for key, (a, b) in chosen.items()})
        else:
            residue = rng.randrange(4)
            text = f"DELETE FROM {name} WHERE id % 4 = {residue}"
            after[number] = {key: row for key, row in rows.items() if key % 4 != residue}
        if text:
            self.log.append(text)
            self.states.append(after)
            self.sql(text)

    def create(self) -> None:
        """A view over a table or a created view; in a thread of its own it may still be created when others read it."""
        if len(self.views) >= MAX_VIEWS:
            return
        rng = self.rng
        creating = self.creating()
        inputs = dict.fromkeys(TABLES, COLUMNS)
        inputs |= {name: columns for name, (_, columns) in self.views.items() if name not in creating}
        source = rng.choice(sorted(inputs))
        query, columns = _query(rng, source, inputs[source])
        if rng.random() < 0.3:
            other = rng.choice(sorted(inputs))
            query, columns = _union(rng, source, inputs[source], other, inputs[other])
        name = f"v{self.created}"
        self.created += 1
        self.log.append(f"CREATE {name} AS {query}")
        self.views[name] = (query, columns)
        self.sql(f"CREATE MATERIALIZED VIEW {name} WITH (parallelism = {rng.randrange(1, 5)}) AS {query}")

    def rescale(self) -> None:
        if self.views:
            name, parallelism = self.rng.choice(sorted(self.views)), self.rng.choice([1, 2, 3, 8])
            self.log.append(f"rescale {name} to {parallelism}")
            self.sql(f"ALTER MATERIALIZED VIEW {name} SET PARALLELISM = {parallelism}")

    def drop(self) -> None:
        """A view with its readers: what a death leaves of it is read from the catalog."""
        if self.views:
            name = self.rng.choice(sorted(self.views))
            self.log.append(f"drop {name}")
            self.sql(f"DROP MATERIALIZED VIEW {name} CASCADE")
            present = set(self.live.names())
            self.views = {name: view for name, view in self.views.items() if name in present}

    def flush(self) -> None:
        self.log.append("flush")
        self.live.flush()
        self.states = self.states[-1:]
        self.check(self.live)

    def recover(self) -> None:
        self.log.append("recovery")
        self.live._playground.meta.fail(RuntimeError("a failure of no job"))

    def die_soon(self) -> None:
        """The process dies at one of its next calls, in the middle of whatever it does then."""
        self.crash.at = self.crash.calls + self.rng.randrange(1, 12)
        self.crash.how = self.rng.choice(list(How))
        self.crash.is_armed = True
        self.log.append(f"will die {self.crash.how} call {self.crash.at}")

    # -- checks ----------------------------------------------------------------------------------------

    def check(self, session: Session) -> None:
        """Each created view equals its query, all at one epoch."""
        creating = self.creating()
        with session.at() as snapshot:
            for name, (query, _) in self.views.items():
                if name in creating or session._playground.catalog.resolve(name).id in self.creating_ids():
                    continue
                assert _rows(snapshot.sql(f"SELECT * FROM {name}")) == _rows(snapshot.sql(query)), (name, query)

    def creating(self) -> set[str]:
        known = self.live._playground.catalog.snapshot
        return {known.tables[job_id].name for job_id in known.creating}

    def creating_ids(self) -> frozenset[int]:
        return self.live._playground.catalog.snapshot.creating

    @property
    def live(self) -> Session:
        assert self.session is not None
        return self.session

    def sql(self, text: str) -> None:
        self.live.sql(text)


def _query(rng: random.Random, source: str, columns: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """A random view over a relation of BIGINT columns, and its columns, BIGINT too."""
    first, second = rng.choice(columns), rng.choice(columns)
    where = rng.choice(["", f" WHERE {first} % 3 <> 1", f" WHERE {second} IS NOT NULL", f" WHERE {first} > {second}"])
    kind = rng.randrange(4)
    if kind == 0:
        return f"SELECT {first} AS a, {second} + 1 AS b FROM {source}{where}", ("a", "b")
    if kind == 1:
        calls = f"COUNT(*) AS a, SUM({second})::BIGINT AS b"
        return f"SELECT {first} AS g, {calls} FROM {source}{where} GROUP BY {first}", ("g", "a", "b")
    if kind == 2:
        calls = f"MIN({second}) AS a, MAX({first} + {second}) AS b"
        return f"SELECT {first} % 5 AS g, {calls} FROM {source}{where} GROUP BY {first} % 5", ("g", "a", "b")
    return f"SELECT COUNT({first}) AS a, MAX({second}) AS b FROM {source}{where}", ("a", "b")


def _union(
    rng: random.Random, source: str, columns: tuple[str, ...], other: str, others: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """A view over two relations, or over one group that two branches read: the branches meet again in one actor."""
    first, second = rng.choice(columns), rng.choice(others)
    if rng.random() < 0.5:
        left, right = f"SELECT {first} AS a, 1 AS b FROM {source}", f"SELECT {second}, 2 FROM {other}"
        return f"{left} UNION ALL {right}", ("a", "b")
    shared = f"SELECT {first} AS g, COUNT(*) AS n FROM {source} GROUP BY {first}"
    both = "SELECT g AS a, n AS b FROM c WHERE g > 2 UNION ALL SELECT n, g FROM c"
    both += f" UNION ALL SELECT 0, {second} FROM {other}"
    return f"WITH c AS ({shared}) {both}", ("a", "b")


def _rows(table) -> list:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def _value(rng: random.Random) -> int | None:
    return None if rng.random() < 0.15 else rng.randrange(8)


def _text(value: int | None) -> str:
    return "NULL" if value is None else str(value)
