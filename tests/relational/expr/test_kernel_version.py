"""A view records its kernel version; kernels_changed lists those whose results differ today."""

import json

import pytest

from relational.catalog.objects import TableCatalog
from relational.expr.kernel_version import KERNEL_VERSION
from relational.plan.kernels import kernels_changed
from relational.sql import bind_sql
from tests.support.suites.sql_cases import catalog_of

TABLE = """CREATE TABLE c (id BIGINT PRIMARY KEY, t VARCHAR, n NUMERIC, m NUMERIC(38, 20), p NUMERIC(10, 2), d DOUBLE,
    iv INTERVAL, b BIGINT, l VARCHAR[], ts TIMESTAMP, tz TIMESTAMPTZ)"""


def view(query):
    (statement,) = bind_sql(f"CREATE MATERIALIZED VIEW v AS {query}", catalog_of(TABLE))
    return statement


@pytest.mark.parametrize(
    ("query", "changed"),
    [
        ("SELECT t::int AS a, t::int + 1 AS b, id FROM c", ("CAST(VARCHAR AS INT)",)),
        ("SELECT COUNT(*) AS n FROM c WHERE t::numeric(4, 1) > 2", ("CAST(VARCHAR AS NUMERIC(4, 1))",)),
        ("SELECT COUNT(*) FILTER (WHERE t::double > 2) AS n FROM c", ("CAST(VARCHAR AS DOUBLE)",)),
        ("SELECT id, l::int[] AS i, t::timestamp AS at FROM c",
         ("CAST(VARCHAR[] AS INT[])", "CAST(VARCHAR AS TIMESTAMP)")),
        ("SELECT id, d::numeric AS n FROM c", ("CAST(DOUBLE AS NUMERIC(38, 10))",)),
        ("SELECT id, n + m AS s, n % m AS r FROM c",
         ("add(NUMERIC(38, 10), NUMERIC(38, 20))", "modulo(NUMERIC(38, 10), NUMERIC(38, 20))")),
        ("SELECT id, iv * 2 AS i FROM c", ("multiply(INTERVAL, DOUBLE)",)),
        ("SELECT id, t::date AS a, t::boolean AS b, b::numeric AS n, n::int AS i, p::varchar AS t FROM c", ()),
        ("SELECT id, n + p AS s, n + b AS q, n * m AS r, n / m AS o, -n AS k, ROUND(n, 2) AS h FROM c", ()),
        ("SELECT p, SUM(n) AS n, AVG(m) AS m, SUM(b) AS b, MIN(t) AS t FROM c GROUP BY p", ()),
    ],
)
def test_what_the_first_kernels_computed_otherwise(query, changed):
    statement = view(query)
    assert kernels_changed(statement.plan, 0) == changed
    assert kernels_changed(statement.plan, KERNEL_VERSION) == ()


@pytest.mark.parametrize(
    ("query", "changed"),
    [
        ("SELECT id, iv::varchar AS t, iv / 3 AS i FROM c", ("CAST(INTERVAL AS VARCHAR)", "divide(INTERVAL, DOUBLE)")),
        ("SELECT id, to_char(iv, 'dd') AS t FROM c", ("to_char(INTERVAL, VARCHAR)",)),
        ("SELECT COUNT(*) AS n FROM c WHERE t SIMILAR TO 'a%'", ("similar_to(VARCHAR, VARCHAR)",)),
        ("SELECT id, t::int AS a, d::numeric AS n, n + m AS s, iv + iv AS i, extract(day FROM iv) AS e FROM c", ()),
    ],
)
def test_what_the_second_kernels_compute_otherwise(query, changed):
    statement = view(query)
    assert kernels_changed(statement.plan, 1) == changed
    assert kernels_changed(statement.plan, KERNEL_VERSION) == ()


@pytest.mark.parametrize(
    ("query", "changed"),
    [
        ("SELECT id, t::timestamp AS a, t::time AS b, t::bytea AS c, t::interval AS d FROM c",
         tuple(f"CAST(VARCHAR AS {each})" for each in ("TIMESTAMP", "TIME", "BYTEA", "INTERVAL"))),
        ("SELECT id, ts AT TIME ZONE t AS a FROM c", ("timezone(VARCHAR, TIMESTAMP)",)),
        ("SELECT id, ts AT TIME ZONE 'us/pacific' AS a FROM c", ("timezone(VARCHAR, TIMESTAMP)",)),
        ("SELECT id, ts AT TIME ZONE 'US/Pacific' AS a, ts AT TIME ZONE '+02' AS b FROM c", ()),
        ("SELECT id, date_trunc('hour', tz, t) AS a FROM c", ("date_trunc_hour(TIMESTAMPTZ, VARCHAR)",)),
        ("SELECT id, date_trunc('day', tz, 'Europe/Berlin') AS a, date_trunc('day', ts) AS b FROM c", ()),
        ("SELECT id, iv::varchar AS t, iv / 3 AS i, to_char(iv, 'dd') AS h, t::date AS d, t::int AS n FROM c", ()),
    ],
)
def test_what_the_third_kernels_compute_otherwise(query, changed):
    statement = view(query)
    assert kernels_changed(statement.plan, 2) == changed
    assert kernels_changed(statement.plan, KERNEL_VERSION) == ()


@pytest.mark.parametrize(
    ("query", "changed"),
    [
        ("SELECT id, n::double AS a, p::real AS b FROM c",
         ("CAST(NUMERIC(38, 10) AS DOUBLE)", "CAST(NUMERIC(10, 2) AS REAL)")),
        ("SELECT id, d + p AS a FROM c", ("CAST(NUMERIC(10, 2) AS DOUBLE)",)),
        ("SELECT p, STDDEV(n) AS s FROM c GROUP BY p", ("CAST(NUMERIC(38, 10) AS DOUBLE)",)),
        ("SELECT id, n::numeric(15, 0)::double AS a, b::double AS b, t::double AS c FROM c", ()),
        ("SELECT id, ts AT TIME ZONE t AS e, t::timestamp AS f FROM c", ()),
        ("SELECT id, d * 0.15 AS a FROM c WHERE d > 1.5", ()),
    ],
)
def test_what_the_fourth_kernels_compute_otherwise(query, changed):
    statement = view(query)
    assert kernels_changed(statement.plan, 3) == changed
    assert kernels_changed(statement.plan, KERNEL_VERSION) == ()


@pytest.mark.parametrize(
    ("query", "changed"),
    [
        ("SELECT id, tand(d) AS a, cotd(d) AS b, tan(d) AS c FROM c", ("tand(DOUBLE)", "cotd(DOUBLE)")),
        ("SELECT id, date_trunc('hour', tz, 'Europe/Berlin') AS a FROM c", ("date_trunc_hour(TIMESTAMPTZ, VARCHAR)",)),
        ("SELECT id, date_trunc('microsecond', tz, 'Europe/Berlin') AS a FROM c",
         ("date_trunc_microsecond(TIMESTAMPTZ, VARCHAR)",)),
        ("SELECT id, date_trunc(t, tz, 'Europe/Berlin') AS a FROM c", ("date_trunc(VARCHAR, TIMESTAMPTZ, VARCHAR)",)),
        ("SELECT id, date_trunc('day', tz, 'Europe/Berlin') AS a, date_trunc('hour', tz) AS b FROM c", ()),
        ("SELECT id, date_trunc(t, tz) AS a, date_trunc('hour', ts) AS b, n::double AS d FROM c", ()),
    ],
)
def test_what_the_fifth_kernels_compute_otherwise(query, changed):
    statement = view(query)
    assert kernels_changed(statement.plan, 4) == changed
    assert kernels_changed(statement.plan, KERNEL_VERSION) == ()


@pytest.mark.parametrize(
    ("query", "changed"),
    [
        ("SELECT id, extract(epoch FROM iv) AS a, date_part('epoch', iv) AS b FROM c",
         ("extract_epoch(INTERVAL)",)),
        ("SELECT id, d::varchar AS a, tz::varchar AS b, ARRAY[d]::varchar AS c FROM c",
         ("CAST(DOUBLE AS VARCHAR)", "CAST(TIMESTAMPTZ AS VARCHAR)", "CAST(DOUBLE[] AS VARCHAR)")),
        ("SELECT id, 'at ' || tz AS a FROM c", ("CAST(TIMESTAMPTZ AS VARCHAR)",)),
        ("SELECT id, to_jsonb(ts) AS a, jsonb_build_array(ARRAY[ts]) AS b FROM c",
         ("to_jsonb(TIMESTAMP)", "jsonb_build_array(TIMESTAMP[])")),
        ("SELECT id, to_char(ts, 'TMMonth') AS a, to_char(tz, t) AS b FROM c",
         ("to_char(TIMESTAMP, VARCHAR)", "to_char(TIMESTAMPTZ, VARCHAR)")),
        ("SELECT id, to_char(ts, 'Month') AS a, to_date(t, 'YYYY') AS b, ts::varchar AS c FROM c", ()),
        ("SELECT id, extract(epoch FROM ts) AS a, to_jsonb(d) AS b, to_jsonb(n) AS c, n::varchar AS d FROM c", ()),
        ("SELECT id, tand(d) AS a, n::double AS b, t::timestamptz AS c FROM c", ()),
    ],
)
def test_what_the_sixth_kernels_compute_otherwise(query, changed):
    statement = view(query)
    assert kernels_changed(statement.plan, 5) == changed
    assert kernels_changed(statement.plan, KERNEL_VERSION) == ()


def test_a_new_view_is_stamped_and_a_record_without_a_stamp_is_of_the_first():
    draft = view("SELECT t, COUNT(*) AS n FROM c GROUP BY t").view
    assert draft.kernel_version == KERNEL_VERSION > 0
    record = json.loads(json.dumps(draft.to_json()))
    assert TableCatalog.from_json(record) == draft
    del record["kernel_version"]
    assert TableCatalog.from_json(record).kernel_version == 0
