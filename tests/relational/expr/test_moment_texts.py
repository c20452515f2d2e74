"""to_char of columns of times, which are cut off at what the template shows, against each value by itself."""

import random
from datetime import UTC, datetime, timedelta

import pytest

import stream
from relational.chunk import Column, DataChunk
from relational.expr.eval import evaluate
from relational.expr.expression import Call, InputRef, Literal
from relational.expr.kernels.moment_format import moment_text
from relational.types import DataType
from tests.support.drivers.seeds import run_seed

TEMPLATES = (
    "YYYY-MM-DD", "HH24:MI", "hh12 am", "P.M.", "SSSS", "ss mi", "MS", "US", "FF3", "ff2", "Day DDD J Q IW",
    "HH:MI:SS.US", "TZ OF", '"HH24" CC', "mi", "",
)  # fmt: skip


@pytest.fixture(scope="module")
def db():
    rng = random.Random(run_seed())
    with stream.connect("memory://") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a TIMESTAMP, b TIMESTAMPTZ)")
        rows = [(-1, None, None)]
        for number in range(200):
            near = datetime(1969, 12, 31, 23, 59, 58) + timedelta(microseconds=rng.randrange(4_000_000))
            far = datetime(1, 1, 1) + timedelta(rng.randrange(3_600_000), microseconds=rng.randrange(86_400_000_000))
            moment = rng.choice((near, far))
            rows.append((number, moment, moment.replace(tzinfo=UTC)))
        db.table("t").insert(rows)
        db.flush()
        yield db


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_column_gives_what_its_values_give(db, template):
    rows = db.sql(f"SELECT a, b, to_char(a, '{template}') AS x, to_char(b, '{template}') AS y FROM t").rows()
    assert len(rows) == 201
    for row in rows:
        given = row["a"] and (moment_text(row["a"], template), moment_text(row["a"].replace(tzinfo=UTC), template))
        assert (row["x"], row["y"]) == (given or (None, None))


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("unit", ["second", "minute", "hour", "day"])
def test_a_column_within_one_unit_gives_what_its_values_give(template, unit):
    rng = random.Random(run_seed())
    spans = {"second": 10**6, "minute": 60 * 10**6, "hour": 3_600 * 10**6, "day": 86_400 * 10**6}
    start, span = datetime(2015, 7, 15), spans[unit]
    first = rng.randrange(86_400 * 10**6 // span) * span
    moments = [start + timedelta(microseconds=first + rng.randrange(span)) for _ in range(50)]
    for values in (moments, [*moments, None], [*moments, start + timedelta(microseconds=first + span)]):
        for zone, data_type in ((None, DataType.TIMESTAMP), (UTC, DataType.TIMESTAMPTZ)):
            given = [value and value.replace(tzinfo=zone) for value in values]
            call = Call("to_char", (InputRef(0, data_type), Literal(template, DataType.VARCHAR)), DataType.VARCHAR)
            found = evaluate(call, DataChunk([Column.from_pylist(given, data_type)], capacity=len(given)))
            assert found.array.to_pylist() == [value and moment_text(value, template) for value in given]
