"""Generated rows: the suite of connectors, values of each type within their bounds, splits and pace."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

import stream
from relational.types import Schema
from stream.connector.datagen import DatagenConnector
from stream.connector.generated import GeneratedReader, split_names
from stream.errors import ConnectorError
from tests.stream.connector.test_csv_files import values
from tests.support.drivers.waiting import eventually
from tests.support.suites.connector_suite import ConnectorSuite

SCHEMA = Schema.of(id="bigint", name="varchar", price="numeric(10,2)", at="timestamp", share="double", day="date")
OPTIONS = {"fields.id.kind": "sequence", "fields.name.nulls": "0.2", "seed": "7"}


class TestDatagen(ConnectorSuite):
    @pytest.fixture
    def schema(self):
        return SCHEMA

    @pytest.fixture
    def connector(self):
        return lambda: DatagenConnector({**OPTIONS, "rows": "2503", "splits": "3"}, SCHEMA)


def generated(schema, rows=1_000, split="0", **options):
    opened = DatagenConnector({"rows": str(rows), **options}, schema)
    return values(opened.open_split(split, range(len(schema))), 333)


def column(data_type, **options):
    named = {f"fields.x.{name}": value for name, value in options.items()}
    return [row[0] for row in generated(Schema.of(x=data_type), **named)]


def test_the_splits_together_are_the_rows_of_one_split():
    whole = generated(SCHEMA, 1_000, **OPTIONS)
    for splits in (2, 7, 12):
        parts = [generated(SCHEMA, 1_000, name, splits=str(splits), **OPTIONS) for name in split_names(splits)]
        assert [parts[number % splits][number // splits] for number in range(1_000)] == whole
    assert [row[0] for row in whole] == list(range(1_000))
    assert 100 < sum(row[1] is None for row in whole) < 300
    assert generated(SCHEMA, 10, **OPTIONS | {"seed": "8"})[0][1:] != whole[0][1:]


@pytest.mark.parametrize(("kind", "options", "least", "most"), [
    ("smallint", {"min": "-5", "max": "5"}, -5, 5), ("int", {}, 0, 1_000),
    ("bigint", {"min": str(-2**63), "max": str(2**63 - 1)}, -2**63, 2**63 - 1),
    ("numeric(10,2)", {"min": "-1.50", "max": "2"}, Decimal("-1.5"), Decimal(2)), ("numeric(38,10)", {}, 0, 1_000),
    ("numeric(2,2)", {}, 0, Decimal("0.99")), ("real", {"min": "-1", "max": "1"}, -1, 1), ("double", {}, 0, 1_000),
    ("date", {"min": "2024-02-01", "max": "2024-02-03"}, date(2024, 2, 1), date(2024, 2, 3)),
    ("time", {"min": "08:00:00", "max": "09:00:00"}, time(8), time(9)), ("time", {}, time(), time(23, 59, 59, 999_999)),
    ("timestamp", {"min": "2024-01-01 00:00:00", "max": "2024-01-02"}, datetime(2024, 1, 1), datetime(2024, 1, 2)),
    ("timestamptz", {"min": "2024-01-01T00:00:00+01:00", "max": "2024-01-01"}, datetime(2023, 12, 31, 23, tzinfo=UTC),
     datetime(2024, 1, 1, tzinfo=UTC)),
])
def test_random_values_lie_within_their_bounds_and_use_them(kind, options, least, most):
    found = column(kind, **options)
    assert least <= min(found) and max(found) <= most and len(set(found)) > 1
    if not isinstance(least, time):
        assert 5 * (max(found) - min(found)) >= 4 * (most - least)


def test_texts_and_booleans():
    assert {len(text) for text in column("varchar")} == {10} and set(column("varchar", length="0")) == {""}
    assert len(set(column("varchar", length="30"))) == 1_000
    assert set(column("boolean")) == {True, False} and set(column("boolean", min="true")) == {True}
    assert set(column("int", nulls="1")) == {None}
    assert column("int", seed="3") != column("int", seed="4")


def test_sequences_begin_again_at_their_end():
    assert column("int", kind="sequence", start="-1", end="1")[:5] == [-1, 0, 1, -1, 0]
    assert column("bigint", kind="sequence", step="10", end="25")[:4] == [0, 10, 20, 0]
    assert column("varchar", kind="sequence")[:3] == ["0", "1", "2"]
    assert column("double", kind="sequence", start="5")[:2] == [5.0, 6.0]
    assert column("numeric(5,1)", kind="sequence", start="1.5", step="5")[:2] == [Decimal("1.5"), Decimal("2.0")]
    days = [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1)]
    assert column("date", kind="sequence", start="2024-02-28")[:3] == days
    assert column("timestamp", kind="sequence", step="1500000")[:2] == [datetime(2024, 1, 1),
                                                                        datetime(2024, 1, 1, 0, 0, 1, 500_000)]


@pytest.mark.parametrize(("kind", "options", "fault"), [
    ("int", {"min": "x"}, "fields.x.min is a value of INT"), ("smallint", {"max": "40000"}, "a value of SMALLINT"),
    ("int", {"min": "5", "max": "4"}, "fields.x.max is not below min"), ("int", {"kind": "any"}, "random or sequence"),
    ("int", {"nulls": "2"}, "from 0 to 1"), ("double", {"min": "inf"}, "a finite number"),
    ("int", {"step": "0"}, "whole"),
    ("numeric(5,1)", {"min": "0.05"}, "a value of NUMERIC"), ("date", {"min": "today"}, "a value of DATE"),
    ("jsonb", {}, "no values of JSONB"), ("int[]", {}, "no values of"), ("int", {"bound": "1"}, "no option"),
])
def test_invalid_options_are_refused(kind, options, fault):
    if "step" in options:
        options = {**options, "kind": "sequence"}
    with pytest.raises(ConnectorError, match=fault):
        column(kind, **options)


def test_rows_come_at_their_pace():
    now = [0.0]
    reader = GeneratedReader("x", 0, 1, 1_000, lambda *rows: [], 100.0, clock=lambda: now[0])
    assert reader.next_chunk(10) is None
    now[0] = 0.5
    assert reader.next_chunk(1_000).capacity == 50 and reader.next_chunk(10) is None
    reader.seek("200")
    now[0] = 1.0
    assert reader.next_chunk(1_000).capacity == 50 and reader.offset == "250"


def test_it_feeds_views_through_sql():
    with stream.connect("memory://", barrier_interval_ms=5) as db:
        db.sql("CREATE SOURCE s (id BIGINT, v INT) WITH (connector = 'datagen', rows = 10000, splits = 4, "
               "fields.id.kind = 'sequence', fields.v.min = -3, fields.v.max = 3)")
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n, max(id) AS top FROM s GROUP BY v")
        eventually(lambda: sum(row["n"] for row in db.sql("SELECT n FROM m").rows()) == 10_000)
        rows = db.sql("SELECT v, top FROM m").rows()
        assert {row["v"] for row in rows} == set(range(-3, 4)) and max(row["top"] for row in rows) == 9_999
        assert db.source_offsets("m") == dict.fromkeys("0123", "2500")
