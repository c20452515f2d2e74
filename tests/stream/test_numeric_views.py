"""NUMERIC overflow: NULL in a view until the value fits again, an error in a query.

A view and a query agree if all rows have values. An overflow never fails a job.

HUMMOCK_TEST_SEED repeats a run.
"""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction

import pytest

import stream
from relational.errors import EvaluationError
from relational.types import DataType
from tests.relational.decimals import exact, rounded
from tests.support.drivers.seeds import run_seed

NEVER_MS = 3_600_000
MOST = 10**38 - 1
TYPES = {
    "n": DataType.NUMERIC,
    "w": DataType.numeric(38, 0),
    "z": DataType.numeric(38, 30),
    "p": DataType.numeric(10, 2),
}
OPERATIONS = {
    "n + z": lambda n, w, z, p: n + z,
    "w - z": lambda n, w, z, p: w - z,
    "n * w": lambda n, w, z, p: n * w,
    "z * z": lambda n, w, z, p: z * z,
    "w / p": lambda n, w, z, p: w / p if p else None,
    "z % p": lambda n, w, z, p: abs(z) % abs(p) * (-1 if z < 0 else 1) if p else None,
    "p * p": lambda n, w, z, p: p * p,
    "w + 1": lambda n, w, z, p: w + 1,
}
SUMS = [f"{kind}({column})" for kind in ("SUM", "AVG") for column in TYPES]


@pytest.fixture
def db():
    session = stream.connect("memory://", barrier_interval_ms=NEVER_MS)
    yield session
    session.abandon()


@pytest.fixture
def rng():
    return random.Random(run_seed())


def rows(table):
    return [tuple(row.values()) for row in table.to_arrow().to_pylist()]


def fitted(amount, arrow):
    """The amount as a value of an Arrow decimal type; None if it does not fit."""
    if amount is None:
        return None
    value = rounded(Fraction(amount) * 10**arrow.scale)
    return exact(value, arrow.scale) if abs(value) < 10**arrow.precision else None


def random_value(rng, data_type):
    digits = rng.choice((1, 5, data_type.precision - 1, data_type.precision))
    most = 10**digits - 1
    return rng.choice([None, *(exact(each, data_type.scale) for each in (most, -most, 0, 1, rng.randint(-most, most)))])


def test_a_sum_of_mixed_scales(db):
    """Regression: NUMERIC(38, 10) + NUMERIC(38, 30) failed the actor."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x NUMERIC(38, 10), z NUMERIC(38, 30))")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, x + z AS s FROM t")
    db.sql(f"INSERT INTO t VALUES (1, 1.5, 2.25), (2, {exact(MOST, 10)}, 0.5)")
    db.flush()
    assert sorted(rows(db.sql("SELECT * FROM v"))) == [(1, Decimal("3.75")), (2, None)]
    assert rows(db.sql("SELECT x + z FROM t WHERE id = 1")) == [(Decimal("3.75"),)]
    with pytest.raises(EvaluationError, match="value out of range"):
        db.sql("SELECT x + z FROM t").to_arrow()


@pytest.mark.parametrize("kind", ["SUM", "AVG"])
def test_aggregates_beyond_38_digits_come_back(db, kind):
    """Regression: a sum beyond 128 bits failed the actor."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k INT, w NUMERIC(38, 0))")
    db.sql(f"CREATE MATERIALIZED VIEW v AS SELECT k, {kind}(w) AS s, COUNT(w) AS n FROM t GROUP BY k")
    db.sql(f"INSERT INTO t VALUES (1, 1, {MOST}), (2, 1, {MOST}), (3, 1, {MOST}), (4, 2, 10), (5, 2, 20)")
    db.flush()
    ten = {"SUM": Decimal(30), "AVG": Decimal(15)}[kind]
    assert sorted(rows(db.sql("SELECT * FROM v"))) == [(1, None, 3), (2, ten, 2)]
    with pytest.raises(EvaluationError, match=f"value out of range for {kind}"):
        db.sql(f"SELECT k, {kind}(w) FROM t GROUP BY k").to_arrow()
    db.sql("UPDATE t SET w = -w WHERE id = 2")
    db.sql("DELETE FROM t WHERE id = 3")
    db.flush()
    assert sorted(rows(db.sql("SELECT * FROM v"))) == [(1, Decimal(0), 2), (2, ten, 2)]
    db.sql("DELETE FROM t")
    db.flush()
    assert rows(db.sql("SELECT * FROM v")) == []


def test_states_beyond_38_digits_are_read_back(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, w NUMERIC(38, 0))")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT SUM(w) AS s, AVG(w) AS a FROM t")
        db.sql("INSERT INTO t VALUES " + ", ".join(f"({each}, {-MOST})" for each in range(5)))
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as db:
        assert rows(db.sql("SELECT * FROM v")) == [(None, None)]
        db.sql("DELETE FROM t WHERE id < 4")
        db.flush()
        assert rows(db.sql("SELECT s FROM v")) == [(Decimal(-MOST),)]
        db.sql("UPDATE t SET w = 7")
        db.flush()
        assert rows(db.sql("SELECT * FROM v")) == [(Decimal(7), Decimal(7))]


def test_views_and_queries_over_extremes(db, rng):
    """Each view against exact arithmetic over the current rows, after random inserts and deletes."""
    columns = ", ".join(f"{name} {data_type}" for name, data_type in TYPES.items())
    db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, k INT, {columns})")
    computed = ", ".join(f"{text} AS c{number}" for number, text in enumerate(OPERATIONS))
    db.sql(f"CREATE MATERIALIZED VIEW computed AS SELECT id, {computed} FROM t")
    sums = ", ".join(f"{text} AS c{number}" for number, text in enumerate(SUMS))
    db.sql(f"CREATE MATERIALIZED VIEW summed AS SELECT k, {sums} FROM t GROUP BY k")
    present: dict[int, tuple] = {}
    for step in range(12):
        for _ in range(rng.randrange(1, 8)):
            change(db, rng, present)
        if step == 11:
            db.sql("DELETE FROM t")
            present.clear()
        db.flush()
        check_computed(db, present)
        check_summed(db, present)


def change(db, rng, present):
    if present and rng.random() < 0.4:
        deleted = rng.choice(list(present))
        db.sql(f"DELETE FROM t WHERE id = {deleted}")
        del present[deleted]
        return
    values = [random_value(rng, data_type) for data_type in TYPES.values()]
    row = (max(present, default=0) + 1, rng.randrange(2), *values)
    db.table("t").insert([row])
    present[row[0]] = row


def check_computed(db, present):
    found = db.sql("SELECT * FROM computed").to_arrow()
    types = found.schema.types[1:]
    expected = []
    for row in present.values():
        cells = []
        for operation, arrow in zip(OPERATIONS.values(), types, strict=True):
            values = [None if each is None else Fraction(each) for each in row[2:]]
            try:
                cells.append(fitted(operation(*values), arrow))
            except TypeError:
                cells.append(None)
        expected.append((row[0], *cells))
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(expected)
    for number, (text, arrow) in enumerate(zip(OPERATIONS, types, strict=True)):
        query = f"SELECT id, {text} AS c FROM t"
        lost = [row for row in expected if row[1 + number] is None and needs_value(text, present[row[0]])]
        if lost:
            with pytest.raises(EvaluationError):
                db.sql(query).to_arrow()
        else:
            answer = db.sql(query).to_arrow()
            assert answer.schema.types[1] == arrow
            assert sorted(map(tuple, (row.values() for row in answer.to_pylist()))) == sorted(
                (row[0], row[1 + number]) for row in expected
            )


def needs_value(text, row):
    """Whether no operand of the text is NULL."""
    return all(value is not None for name, value in zip(TYPES, row[2:], strict=True) if name in text)


def check_summed(db, present):
    found = db.sql("SELECT * FROM summed").to_arrow()
    expected, is_lost = [], False
    for key in {row[1] for row in present.values()}:
        cells = []
        for text, arrow in zip(SUMS, found.schema.types[1:], strict=True):
            index = 2 + list(TYPES).index(text[4])
            values = [Fraction(row[index]) for row in present.values() if row[1] == key and row[index] is not None]
            amount = sum(values) / (len(values) if text.startswith("AVG") else 1) if values else None
            cells.append(fitted(amount, arrow))
            is_lost |= cells[-1] is None and amount is not None
        expected.append((key, *cells))
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(expected)
    named = ", ".join(f"{text} AS c{number}" for number, text in enumerate(SUMS))
    query = f"SELECT k, {named} FROM t GROUP BY k"
    if is_lost:
        with pytest.raises(EvaluationError, match="value out of range for"):
            db.sql(query).to_arrow()
    else:
        assert sorted(rows(db.sql(query))) == sorted(expected)
