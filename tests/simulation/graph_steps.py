"""The steps of a simulated graph, drawn from a seed before anything runs: the same seed has the same steps.

A step names what it needs. What a death, or a failure, has left undone may be missing when a later step needs it: then
that step does nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from tests.simulation.ddl_world import How
from tests.simulation.graph_source import COLUMNS, DELAY, TIMED_COLUMNS, Fault

TABLES = ("t0", "t1")
SOURCES = {"s0": "refuse", "s1": "skip", "w0": "refuse"}
"""Sources, and what they do with a malformed record."""
CHANGING = "c0"
"""A table with a connector that also updates and deletes."""
FED = (CHANGING, "w1", "e1")
"""Tables with connectors."""
TIMED = ("w0", "w1", "e1")
"""Sources and tables with a watermark."""
SCRIPTS = (*SOURCES, *FED)
"""External streams."""
EXPIRING = {"e0": 300, "e1": 400}
"""Tables whose rows expire, and their ttl in milliseconds: the first takes statements, the other has a connector."""
WRITTEN = (*TABLES, "e0")
"""Tables that take statements."""
EXPIRED_VIEWS = {f"{name}_groups": f"SELECT b AS g, COUNT(*) AS a, MAX(id) AS b FROM {name} GROUP BY b"
                 for name in EXPIRING}
"""Named queries over tables whose rows expire: nothing else may read them."""
WINDOW = 20
MAX_JOBS = 8
LIMITED_BYTES = 2_000


@dataclass(frozen=True)
class Definition:
    """A view or sink: `inputs` are the names in its query, `columns` those of its rows, all BIGINT."""

    name: str
    query: str
    inputs: tuple[str, ...]
    columns: tuple[str, ...]
    options: str = ""
    connector: str = ""
    """Of a sink; empty: a view."""
    is_limited: bool = False
    """Its log may be full, which fails the sink."""
    is_delayed: bool = False
    """Commits are collected before they are delivered."""

    @property
    def create(self) -> str:
        kind = "SINK" if self.connector else "MATERIALIZED VIEW"
        if not self.connector:
            return f"CREATE {kind} {self.name} {self.options} AS {self.query}"
        return f"CREATE {kind} {self.name} AS {self.query} {self.options}"

    @property
    def kind(self) -> str:
        return "SINK" if self.connector else "MATERIALIZED VIEW"

    @property
    def duck_query(self) -> str:
        """For DuckDB, in which the quotient of whole numbers is a fraction."""
        return self.query.replace(" / ", " // ")


@dataclass(frozen=True)
class Step:
    """One step; `kind` is the name of the method that takes it."""

    kind: str
    name: str = ""
    how: str = ""
    number: int = 0
    job: Definition | None = None

    def __str__(self) -> str:
        text = " ".join(filter(None, (self.kind, self.name, self.how, str(self.number) if self.number else "")))
        return text if self.job is None else f"{text}: {self.job.create}"


WEIGHTS = {
    "statement": 12,
    "produce": 16,
    "add_split": 1.5,
    "end_split": 0.7,
    "add_fault": 1,
    "create": 6,
    "create_aside": 2,
    "cancel": 1,
    "rescale": 2,
    "drop": 1,
    "flush": 5,
    "recover": 1,
    "die_soon": 2,
    "vacuum": 1,
    "compact": 2,
    "break_job": 1,
    "resume": 3,
    "hang": 1,
    "release": 1,
    "fail_delivery": 1,
    "pause": 0.5,
    "lose": 0.5,
    "pass_time": 5,
    "shorten": 0.3,
}
"""Kinds of steps, and how often each is drawn."""


@dataclass
class _Drawing:
    """What exists if every step so far was done."""

    rng: random.Random
    jobs: dict[str, Definition] = field(default_factory=dict)
    made: int = 0

    def step(self) -> Step:
        kind = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        draw = getattr(self, f"_{kind}", None)
        return Step(kind) if draw is None else draw(kind)

    def _statement(self, kind: str) -> Step:
        how = self.rng.choices(("insert", "update", "delete"), (5, 3, 2))[0]
        return Step(kind, self.rng.choice(WRITTEN), how, self.rng.randrange(1, 1 << 30))

    def _produce(self, kind: str) -> Step:
        name, most = self.rng.choice(SCRIPTS), self.rng.randrange(3)
        return Step(kind, name, str(self.rng.randrange(8)), ((5, 12, 30) if name in TIMED else (1, 3, 20))[most])

    def _add_split(self, kind: str) -> Step:
        return Step(kind, self.rng.choice(list(SCRIPTS)))

    def _end_split(self, kind: str) -> Step:
        return Step(kind, self.rng.choice(TIMED), "", self.rng.randrange(8))

    def _pass_time(self, kind: str) -> Step:
        return Step(kind, "", "", self.rng.choice([1, 30, 150, 401]))

    def _shorten(self, kind: str) -> Step:
        return Step(kind, self.rng.choice(list(EXPIRING)), "", self.rng.choice([1, 50, 150]))

    def _add_fault(self, kind: str) -> Step:
        return Step(kind, self.rng.choice(list(SCRIPTS)), self.rng.choice(list(Fault)), self.rng.randrange(8))

    def _lose(self, kind: str) -> Step:
        return Step(kind, self.rng.choice(list(SCRIPTS)), self.rng.choice(["recovery", "reopen"]))

    def _die_soon(self, kind: str) -> Step:
        return Step(kind, "", self.rng.choice(list(How)), self.rng.randrange(1, 12))

    def _resume(self, kind: str) -> Step:
        return Step(kind, "", self.rng.choice(["", "", "skip"]), self.rng.randrange(1, 4))

    def _rescale(self, kind: str) -> Step:
        return Step(kind, self._any_job(), "", self.rng.choice([1, 2, 3, 8]))

    def _drop(self, kind: str) -> Step:
        name = self._any_job()
        gone = {name}
        for each in list(self.jobs.values()):       # each after what it reads
            if gone.intersection(each.inputs):
                gone.add(each.name)
        self.jobs = {each: job for each, job in self.jobs.items() if each not in gone}
        return Step(kind, name)

    def _break_job(self, kind: str) -> Step:
        return Step(kind, self._any_job())

    def _hang(self, kind: str) -> Step:
        return Step(kind, self._any_sink())

    def _release(self, kind: str) -> Step:
        return Step(kind, self._any_sink())

    def _fail_delivery(self, kind: str) -> Step:
        return Step(kind, self._any_sink())

    def _create(self, kind: str) -> Step:
        if len(self.jobs) >= MAX_JOBS:
            return self._statement("statement")
        job = self._definition()
        self.jobs[job.name] = job
        return Step(kind, job=job)

    _create_aside = _create

    def _cancel(self, kind: str) -> Step:
        return Step(kind, job=self._definition())

    def _any_job(self) -> str:
        return self.rng.choice(sorted(self.jobs)) if self.jobs else ""

    def _any_sink(self) -> str:
        sinks = sorted(name for name, job in self.jobs.items() if job.connector == "arrow")
        return self.rng.choice(sinks) if sinks else ""

    def _definition(self) -> Definition:
        rng = self.rng
        inputs = dict.fromkeys((*TABLES, *FED, *SOURCES), COLUMNS)
        inputs |= dict.fromkeys(TIMED, TIMED_COLUMNS)
        inputs = {name: columns for name, columns in inputs.items() if name not in EXPIRING}
        inputs |= {name: job.columns for name, job in self.jobs.items() if not job.connector}
        names = sorted(inputs)
        first, second = rng.choice([*names, *(name for name in TIMED if name in inputs)]), rng.choice(names)
        job = _query(rng, first, inputs[first])
        kind = rng.random()
        if kind < 0.25:
            job = _union(rng, first, inputs[first], second, inputs[second])
        elif kind < 0.5:
            flat = sorted(set(names) - {job.name for job in self.jobs.values() if " JOIN " in job.query})
            first, second = rng.choice(flat), rng.choice(flat)
            job = _join(rng, first, inputs[first], second, inputs[second])
        self.made += 1
        if rng.random() < 0.3:
            return _as_sink(rng, replace(job, name=f"k{self.made}"))
        options = f"WITH (parallelism = {rng.randrange(1, 5)})"
        return replace(job, name=f"v{self.made}", options=options)


def steps_of(rng: random.Random, count: int) -> list[Step]:
    """`count` random steps."""
    drawing = _Drawing(rng)
    return [drawing.step() for _ in range(count)]


def _as_sink(rng: random.Random, job: Definition) -> Definition:
    if rng.random() < 0.35:
        return replace(job, connector="digest", options="WITH (connector = 'digest')")
    options = f"connector = 'arrow', name = '{job.name}'"
    is_limited, is_delayed = rng.random() < 0.2, rng.random() < 0.2
    if is_limited:
        options += f", log_bytes = {LIMITED_BYTES}"
    elif any(each in SOURCES for each in job.inputs) and rng.random() < 0.3:
        options += f", log_bytes = {LIMITED_BYTES}, when_full = 'wait'"
    if is_delayed:
        options += ", interval_ms = 15"
    return replace(
        job, connector="arrow", options=f"WITH ({options})", is_limited=is_limited, is_delayed=is_delayed
    )


def _query(rng: random.Random, source: str, columns: tuple[str, ...]) -> Definition:
    """A random query over one relation."""
    if columns == TIMED_COLUMNS and rng.random() < 0.7:
        return _windows(rng, source)
    first, second = rng.choice(columns), rng.choice(columns)
    where = rng.choice(["", f" WHERE {first} % 3 <> 1", f" WHERE {second} IS NOT NULL", f" WHERE {first} > {second}"])
    kind = rng.randrange(8)
    if kind == 5:
        return _first_rows(rng, source, columns)
    if kind == 6:
        calls = rng.choice((
            f"BIT_XOR({second}) AS a, PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY {first}) AS b",
            f"LENGTH(STRING_AGG({second}::VARCHAR, ',' ORDER BY {second})) AS a, BIT_OR({first}) AS b",
            f"(ARRAY_AGG({first} ORDER BY {second} DESC, {first}))[2] AS a, MAX_BY({second}, {second}) AS b",
        ))  # fmt: skip
        query = f"SELECT {first} % 3 AS g, {calls} FROM {source}{where} GROUP BY {first} % 3"
        return _defined(query, ("g", "a", "b"), source)
    if kind == 7:
        sets = rng.choice(("ROLLUP ({}, {})", "CUBE ({}, {})", "GROUPING SETS (({}), ({}))"))
        query = f"SELECT {first} % 3 AS g, {second} % 2 AS a, COUNT(*) AS b FROM {source}{where} GROUP BY "
        return _defined(query + sets.format(f"{first} % 3", f"{second} % 2"), ("g", "a", "b"), source)
    if kind == 0:
        return _defined(f"SELECT {first} AS a, {second} + 1 AS b FROM {source}{where}", ("a", "b"), source)
    if kind == 4:
        calls = f"COUNT(DISTINCT {second}) AS a, SUM(DISTINCT {second}) FILTER (WHERE {second} % 2 = 0)::BIGINT AS b"
        query = f"SELECT {first} % 3 AS g, {calls} FROM {source}{where} GROUP BY {first} % 3"
        return _defined(query, ("g", "a", "b"), source)
    if kind == 1:
        calls = f"COUNT(*) AS a, SUM({second})::BIGINT AS b"
        query = f"SELECT {first} AS g, {calls} FROM {source}{where} GROUP BY {first}"
        return _defined(query, ("g", "a", "b"), source)
    if kind == 2:
        calls = f"MIN({second}) AS a, MAX({first} + {second}) AS b"
        query = f"SELECT {first} % 5 AS g, {calls} FROM {source}{where} GROUP BY {first} % 5"
        return _defined(query, ("g", "a", "b"), source)
    return _defined(f"SELECT COUNT({first}) AS a, MAX({second}) AS b FROM {source}{where}", ("a", "b"), source)


def _first_rows(rng: random.Random, source: str, columns: tuple[str, ...]) -> Definition:
    """The first rows of each group, or of all; rows that are equal in the order are equal in all that is selected."""
    first, second = rng.choice(columns), rng.choice(columns)
    order = f"{first} DESC, {second}"
    if rng.random() < 0.3:
        limit = f"LIMIT {rng.randrange(1, 6)} OFFSET {rng.randrange(2)}"
        query = f"SELECT {first} AS a, {second} AS b FROM {source} ORDER BY {order} {limit}"
        return _defined(query, ("a", "b"), source)
    if rng.random() < 0.4:
        return _over_window(first, second, order, rng, source)
    kind = rng.choice(("row_number", "rank", "dense_rank"))
    inner = f"SELECT {first} AS a, {second} AS b, {kind}() OVER (PARTITION BY {first} % 3 ORDER BY {order}) AS n"
    query = f"SELECT a, b, n FROM ({inner} FROM {source}) AS x WHERE n <= {rng.randrange(1, 5)}"
    return _defined(query, ("a", "b", "n"), source)


CALLS = (
    "row_number() OVER (w)", "rank() OVER (w)", "lag({0}) OVER (w)", "lead({0}, 2) OVER (w)",
    "sum({0}) OVER (w)::BIGINT", "count({0}) OVER (w ROWS 2 PRECEDING)",
    "max({0}) OVER (w ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "min({0}) OVER (w RANGE CURRENT ROW)", "count(*) OVER (w ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)",
)  # fmt: skip


def _over_window(first: str, second: str, order: str, rng: random.Random, source: str) -> Definition:
    """Functions of the rows around each row of a group."""
    window = f"{rng.choice((f'PARTITION BY {first} % 3 ', ''))}ORDER BY {order}"
    calls = [call.format(second).replace("(w", f"({window}") for call in rng.sample(CALLS, 2)]
    query = f"SELECT {first} AS a, {second} AS b, {calls[0]} AS n, {calls[1]} AS m FROM {source}"
    return _defined(query, ("a", "b", "n", "m"), source)


def _windows(rng: random.Random, source: str) -> Definition:
    """A random query over a relation with a watermark, that has it too."""
    window, where = f"ts / {WINDOW}", rng.choice(["", " WHERE b % 3 <> 1", " WHERE b IS NOT NULL"])
    kind = rng.randrange(5)
    if kind == 0:
        return _defined(f"SELECT ts + 3 AS a, {window} AS b FROM {source}{where}", ("a", "b"), source)
    if kind == 1:
        query = f"SELECT {window} AS g, b AS a, COUNT(*) AS b FROM {source}{where} GROUP BY b, {window}"
        return _defined(query, ("g", "a", "b"), source)
    calls = ("COUNT(*) AS a, SUM(b)::BIGINT AS b", "MIN(ts) AS a, MAX(id) AS b",
             "COUNT(DISTINCT b) AS a, COUNT(DISTINCT ts) AS b")[kind - 2]
    query = f"SELECT {window} AS g, {calls} FROM {source}{where} GROUP BY {window}"
    return _defined(query, ("g", "a", "b"), source)


def watermark_of(name: str) -> str:
    """What is added to the columns of a timed source or table."""
    return f", WATERMARK FOR ts AS ts - {DELAY}" if name in TIMED else ""


def _union(
    rng: random.Random, source: str, columns: tuple[str, ...], other: str, others: tuple[str, ...]
) -> Definition:
    """A query over two relations, or over one group that two branches read: the branches meet again in one actor."""
    first, second = rng.choice(columns), rng.choice(others)
    if rng.random() < 0.5:
        left, right = f"SELECT {first} AS a, 1 AS b FROM {source}", f"SELECT {second}, 2 FROM {other}"
        return _defined(f"{left} UNION ALL {right}", ("a", "b"), source, other)
    shared = f"SELECT {first} AS g, COUNT(*) AS n FROM {source} GROUP BY {first}"
    both = "SELECT g AS a, n AS b FROM c WHERE g > 2 UNION ALL SELECT n, g FROM c"
    both += f" UNION ALL SELECT 0, {second} FROM {other}"
    return _defined(f"WITH c AS ({shared}) {both}", ("a", "b"), source, other)


def _join(
    rng: random.Random, source: str, columns: tuple[str, ...], other: str, others: tuple[str, ...]
) -> Definition:
    """A query over the pairs of rows of two relations, or of one with itself."""
    kind = rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    on = f"x.{columns[0]} = y.{rng.choice(others)}"
    if kind != "FULL JOIN" and rng.random() < 0.4:      # which DuckDB does not have
        on += f" AND x.{rng.choice(columns)} > y.{rng.choice(others)}"
    relations = f"{source} AS x {kind} {other} AS y ON {on}"
    one, two = f"x.{rng.choice(columns)}", f"y.{rng.choice(others)}"
    if rng.random() < 0.4:
        query = f"SELECT {one} AS g, COUNT({two}) AS a, MAX({two}) AS b FROM {relations} GROUP BY {one}"
        return _defined(query, ("g", "a", "b"), source, other)
    return _defined(f"SELECT {one} AS a, {two} AS b FROM {relations}", ("a", "b"), source, other)


def _defined(query: str, columns: tuple[str, ...], *inputs: str) -> Definition:
    return Definition("", query, tuple(dict.fromkeys(inputs)), columns)
