"""Views over every function and cast: extreme values are inserted, changed and deleted, and leave no state behind.

For random signatures (HUMMOCK_VIEW_SIGNATURES=all for every one of them), a table has columns of those types. One view
computes every function and cast of that signature, another one groups by the results.
"""

import os
import random
from collections import Counter, defaultdict

import pytest

import stream
from relational.chunk import DataChunk
from relational.errors import EvaluationError
from relational.expr import AggCall, AggKind, ErrorCounts, InputRef, evaluate
from relational.expr.expression import transform
from relational.plan.logical import Aggregate, Project
from relational.relation import Relation
from relational.types import DataType
from stream.error_counts import committed_errors
from tests.support.drivers.extremes import branches, calls, casts, rows_of
from tests.support.drivers.seeds import amount, run_seed

SIGNATURES = os.environ.get("HUMMOCK_VIEW_SIGNATURES", "2")
MOST_ROWS, MOST_EXPRESSIONS = amount(30, 60), 40
ALWAYS = [(DataType.VARCHAR,), (DataType.DOUBLE,), (DataType.TIMESTAMPTZ, DataType.INTERVAL)]
COUNT = AggCall(AggKind.COUNT, None, None, False, DataType.BIGINT)


@pytest.fixture
def rng():
    return random.Random(run_seed())


@pytest.fixture
def session():
    with stream.connect("memory://", barrier_interval_ms=amount(100, 20)) as session:
        yield session


def behind_key(expression):
    """The expression with input columns shifted by one, for rows that start with their key."""
    return transform(expression, lambda each: InputRef(each.index + 1, each.data_type) if isinstance(each, InputRef)
                     else each)


def by_signature(rng):
    """Column types -> all expressions over them."""
    found = defaultdict(list)
    for sample in (*casts(), *branches(), *calls(rng)):
        found[sample.types].append(behind_key(sample.expression))
    return found


def shown(rows):
    """The multiset of rows as text; NaN equals NaN and 0.0 equals -0.0."""
    return Counter(repr(row).replace("-0.0,", "0.0,").replace("-0.0)", "0.0)") for row in rows)


def stored(session, name):
    return rows_in(session.table(name).to_arrow())


def rows_in(table):
    return [row for batch in table.to_batches() for row in DataChunk.from_arrow(batch).rows()]


def expected(expressions, rows, schema):
    """(values, errors) of each row, evaluated alone."""
    found = []
    for row in rows:
        errors = ErrorCounts()
        chunk = DataChunk.from_rows(schema, [row])
        values = tuple(evaluate(each, chunk, errors=errors).to_pylist()[0] for each in expressions)
        found.append((values, errors.take()))
    return found


def errors_of(session, view):
    playground = session._playground
    session.flush()
    with session.at() as snapshot:
        table = committed_errors(playground.catalog, playground.storage, snapshot.epoch).to_pylist()
    return {row["reason"]: row["rows"] for row in table if row["job"] == view}


class Views:
    """A table of one signature, a view of all expressions over it and a view of their groups."""

    def __init__(self, session, types, expressions):
        self.session, self.expressions = session, expressions
        columns = ", ".join(f"c{at} {each}" for at, each in enumerate(types))
        session.sql(f"CREATE TABLE t (k BIGINT PRIMARY KEY, {columns})")
        self.table = session.table("t")
        self.schema = self.table.schema
        names = tuple(f"e{at}" for at in range(len(expressions)))
        scan = self.table.plan
        self.projection = Project(scan, tuple(expressions), names)
        grouped = Aggregate(self.projection, tuple(range(len(names))), (COUNT,), ("c",))
        self.session.create_materialized_view("every", self.relation(self.projection))
        self.session.create_materialized_view("groups", self.relation(grouped))

    def relation(self, plan):
        return Relation(plan, self.table.runner)

    def check(self, rows):
        """Checks views and query against rows that are evaluated one by one."""
        found = expected(self.expressions, rows, self.schema)
        errors = Counter()
        for _, each in found:
            errors.update(each)
        assert errors_of(self.session, "every") == errors and errors_of(self.session, "groups") == errors
        assert shown(stored(self.session, "every")) == shown(values for values, _ in found)
        assert sum(row[-1] for row in stored(self.session, "groups")) == len(rows)
        if errors:
            with pytest.raises(EvaluationError):
                self.relation(self.projection).to_arrow()
        else:
            answer = rows_in(self.relation(self.projection).to_arrow())
            assert shown(answer) == shown(values for values, _ in found)

    def drop(self):
        self.session.sql("DROP MATERIALIZED VIEW groups; DROP MATERIALIZED VIEW every; DROP TABLE t")


def insert_change_and_delete(session, rng, types, expressions):
    views = Views(session, types, expressions)
    rows = [(number, *row) for number, row in enumerate(rows_of(rng, types, MOST_ROWS))]
    half = len(rows) // 2
    views.table.insert(rows[:half])
    views.table.insert(rows[half:])
    views.check(rows)
    moved = rows[1:] + rows[:1]
    changed = [(old[0], *new[1:]) for old, new in zip(rows, moved, strict=True)]
    remainder = rng.randrange(3)
    session.sql(f"DELETE FROM t WHERE k % 3 = {remainder}")
    views.check([row for row in rows if row[0] % 3 != remainder])
    session.sql("DELETE FROM t")
    views.table.insert(changed)
    views.check(changed)
    failing = {at for at, (_, errors) in enumerate(expected(expressions, changed, views.schema)) if errors}
    if failing:
        session.sql(f"DELETE FROM t WHERE k IN ({', '.join(map(str, sorted(failing)))})")
        views.check([row for row in changed if row[0] not in failing])
    session.sql("DELETE FROM t")
    session.flush()
    assert not stored(session, "every") and not stored(session, "groups")
    assert not errors_of(session, "every") and not errors_of(session, "groups")
    views.drop()
    return len(rows) * len(expressions)


def test_views_over_extremes_follow_and_end_empty(session, rng):
    found = by_signature(rng)
    signatures = sorted(found, key=str)
    if SIGNATURES != "all":
        signatures = [*ALWAYS, *rng.sample(signatures, int(SIGNATURES))]
    checked = 0
    for types in signatures:
        expressions = found[types]
        expressions = rng.sample(expressions, min(len(expressions), MOST_EXPRESSIONS))
        try:
            checked += insert_change_and_delete(session, rng, types, expressions)
        except BaseException as error:
            error.add_note(f"over columns of {', '.join(map(str, types))}")
            raise
    print(f"{len(signatures)} signatures, {checked} values")
