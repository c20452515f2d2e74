"""WITH (…): options of tables and views reach the catalog, survive SHOW CREATE, and hostile values do nothing."""

from __future__ import annotations

import json
import random
from datetime import timedelta

import pytest

from hummock.errors import FormatTooNew
from relational.catalog.names import ObjectName
from relational.catalog.objects import FORMAT_VERSION, RowFormat, TableCatalog
from relational.errors import BindError, ParseError, RelationalError
from relational.sql import bind_sql
from relational.sql.ddl.options import Options, ttl_of, ttl_text, vnode_count_of
from relational.sql.ddl.show_create import definition_of
from tests.support.drivers.seeds import run_seed
from tests.support.suites.sql_cases import case_catalog


@pytest.fixture(scope="module")
def catalog():
    return case_catalog()


def table(options, catalog, clauses="APPEND ONLY"):
    (statement,) = bind_sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, w TEXT) {clauses} WITH ({options})", catalog)
    return statement.table


def test_options_of_a_table_are_in_its_catalog(catalog):
    found = table("ttl = '90 minutes', row_format = 'cell', vnode_count = 1024", catalog)
    assert (found.ttl_ms, found.row_format, found.vnode_count, found.connector) == (
        5_400_000, RowFormat.CELL, 1_024, None)
    assert TableCatalog.from_json(json.loads(json.dumps(found.to_json()))) == found
    fed = table("connector = 'files', path.glob = '*', vnode_count = '7'", catalog)
    assert (fed.connector, fed.vnode_count) == ({"connector": "files", "path.glob": "*"}, 7)


def test_only_what_older_releases_do_not_know_is_written_as_of_today(catalog):
    """They would return expired rows."""
    plain = table("row_format = 'cell', vnode_count = 1024", catalog)
    assert plain.to_json()["version"] == 3 and "ttl_ms" not in plain.to_json()
    brief = table("ttl = '1 second'", catalog)
    assert brief.to_json()["version"] == 5 and TableCatalog.from_json(brief.to_json()) == brief
    with pytest.raises(FormatTooNew):
        TableCatalog.from_json({**brief.to_json(), "version": FORMAT_VERSION + 1})
    for bad in (-1, "1", True, 1 << 64):
        with pytest.raises(ValueError, match="integer"):
            TableCatalog.from_json({**brief.to_json(), "ttl_ms": bad})


def test_show_create_has_the_options(catalog):
    for options in ("ttl = '36500 days'", "ttl = '1 day 00:00:00.001'", "row_format = 'cell'", "vnode_count = '1'",
                    "connector = 'files', path = 'a''b', ttl = '01:00:00', row_format = 'cell', vnode_count = '32768'"):
        found = table(options, catalog)
        found = TableCatalog.from_json({**found.to_json(), "definition": ""})
        text = definition_of(found, ObjectName("t"))
        assert text == f"CREATE TABLE t (id BIGINT, w VARCHAR, PRIMARY KEY (id)) APPEND ONLY WITH ({options})"
    assert "WITH" not in definition_of(
        TableCatalog.from_json({**table("row_format = 'row'", catalog).to_json(), "definition": ""}), ObjectName("t"))


def watermarked(what, element, catalog):
    (statement,) = bind_sql(
        f"CREATE {what} t (id BIGINT, at TIMESTAMP, day DATE, {element}) "
        f"{'APPEND ONLY ' if what == 'TABLE' else ''}WITH (connector = 'csv', path = '/t')", catalog)
    return statement.table if what == "TABLE" else statement.source


@pytest.mark.parametrize("what", ["TABLE", "SOURCE"])
@pytest.mark.parametrize(("element", "column", "delay"), [
    ("WATERMARK FOR at AS at - INTERVAL '1 day 00:00:01.5'", 1, 86_401_500_000),
    ("WATERMARK FOR at AS at", 1, 0),
    ("WATERMARK FOR day AS day - 2", 2, 2),
    ("WATERMARK FOR id AS id - 1000", 0, 1_000),
])
def test_a_watermark_is_in_the_catalog_and_in_show_create(what, element, column, delay, catalog):
    found = watermarked(what, element, catalog)
    assert found.declared_watermark == (column, delay) and found.watermark_columns == {column}
    record = json.loads(json.dumps(found.to_json()))
    assert record["version"] == 6 == FORMAT_VERSION and TableCatalog.from_json(record) == found
    assert "watermarks" not in table("row_format = 'cell'", catalog).to_json()
    for bad in ([[column, -1]], [["x", 1]], [[column]], [[column, True]]):
        with pytest.raises((ValueError, TypeError)):
            TableCatalog.from_json({**record, "watermarks": bad})
    if what == "TABLE":
        text = definition_of(TableCatalog.from_json({**record, "definition": ""}), ObjectName("t"))
        (again,) = bind_sql(text, catalog)
        assert element in text and again.table.watermarks == found.watermarks


def test_a_view_has_the_watermarks_of_its_columns(catalog):
    view = "SELECT date_trunc('hour', at) AS h, page, count(*) AS n FROM clicks GROUP BY page, date_trunc('hour', at)"
    (statement,) = bind_sql(f"CREATE MATERIALIZED VIEW v AS {view}", catalog)
    found = statement.view
    assert found.watermark_columns == {0} and found.declared_watermark is None and found.version == 6
    assert TableCatalog.from_json(json.loads(json.dumps(found.to_json()))) == found
    (statement,) = bind_sql("CREATE MATERIALIZED VIEW v AS SELECT region FROM orders", catalog)
    assert statement.view.version == 5 and not statement.view.watermarks


def test_a_column_may_be_called_watermark(catalog):
    (statement,) = bind_sql("CREATE TABLE t (watermark INT PRIMARY KEY)", catalog)
    assert statement.table.columns[0].name == "watermark"


def test_a_view_has_the_vnodes_that_it_names_and_an_index_those_of_its_table():
    catalog = case_catalog()
    (statement,) = bind_sql("CREATE MATERIALIZED VIEW v WITH (vnode_count = 7) AS SELECT region FROM orders", catalog)
    assert statement.view.vnode_count == 7
    catalog.create(table("vnode_count = 9", catalog))
    (statement,) = bind_sql("CREATE INDEX i ON t (w)", catalog)
    assert statement.index.vnode_count == 9


@pytest.mark.parametrize(("text", "ttl"), [
    ("1 hour", 3_600_000), ("00:00:00.000001", 1), ("0.0014 seconds", 2), ("1 mon", 30 * 86_400_000),
    ("1 day -1 hours", 23 * 3_600_000), ("36500 days", 36_500 * 86_400_000), (" 2 WEEKS ", 14 * 86_400_000),
])
def test_a_ttl_is_an_interval_in_milliseconds_rounded_up(text, ttl):
    assert ttl_of(text) == ttl and ttl_of(ttl_text(ttl)) == ttl


@pytest.mark.parametrize("text", [
    "", " ", "0", "never", "1", "-1 hour", "1 hour -1 hour", "36501 days", "1e400 days", "nan days", "inf hours",
    "9" * 5_000 + ":00", "1 hour; DROP TABLE t", "\0", "1 hour\0", "1 hour" * 10_000, "\uff11 hour",
])
def test_a_hostile_ttl_is_refused(text, catalog):
    with pytest.raises(ValueError, match=r".*"):
        ttl_of(text)
    quoted = text.replace("'", "''")
    with pytest.raises((BindError, ParseError)) as caught:
        table(f"ttl = '{quoted}'", catalog)
    assert len(str(caught.value)) < 2_500


@pytest.mark.parametrize(
    "text", ["", "0", "32769", "-1", "+1", "1.0", "1e3", "0x10", " 1", "1 ", "²", "\u0663", "9" * 4_000]
)
def test_a_hostile_vnode_count_is_refused(text, catalog):
    with pytest.raises(ValueError, match="whole number"):
        vnode_count_of(text)
    with pytest.raises(BindError, match="whole number of 1 to 32768"):
        table(f"vnode_count = '{text}'", catalog)


def test_durations_of_the_fluent_api():
    assert ttl_text(timedelta(days=1, microseconds=1)) == "1 day 00:00:00.000001"
    assert ttl_of(ttl_text(timedelta(hours=1))) == 3_600_000


def test_options_that_nobody_takes_are_refused():
    options = Options({"a": "1", "b": "x"}, {"b": (3, 9)})
    assert options.take("a", int, 0) == 1 and options.take("c", int, 5) == 5 and len(options) == 1
    with pytest.raises(BindError, match=r"there is no option 'b' \(a thing has x, y and z\)") as caught:
        options.finish("a thing", ("x", "y", "z"))
    assert (caught.value.start, caught.value.end) == (3, 9)
    assert options.take_rest() == {"b": "x"} and not options
    options.finish("a thing", ("x", "y"))


def test_random_options_are_bound_or_refused(catalog):
    """No other error, and a table only of valid values."""
    rng = random.Random(run_seed())
    names = ("ttl", "row_format", "vnode_count", "connector", "backfill", "TTL", '"ttl"', "a.b", "'ttl'", "", "1")
    values = ("'1 hour'", "1", "0", "'cell'", "'row'", "'CELL'", "true", "NULL", "''", "1e9", "-3", "x", "'\\'", "''''",
              "INTERVAL '1 hour'", "32768", "'files'")
    bound = 0
    for _ in range(3_000):
        chosen = [f"{rng.choice(names)} = {rng.choice(values)}" for _ in range(rng.randint(0, 3))]
        text = ", ".join(chosen) if rng.random() < 0.9 else " ".join(chosen)
        clauses = rng.choice(("", "APPEND ONLY", "APPEND ONLY ON CONFLICT OVERWRITE", "ON CONFLICT IGNORE"))
        try:
            found = table(text, catalog, clauses)
        except RelationalError:
            continue
        bound += 1
        assert 1 <= found.vnode_count <= 32_768 and 0 <= found.ttl_ms <= 36_500 * 86_400_000
        assert not found.ttl_ms or (found.is_append_only and found.conflict != "overwrite")
        assert found.connector is None or "connector" in found.connector
        again = definition_of(TableCatalog.from_json({**found.to_json(), "definition": ""}), ObjectName("t"))
        (same,) = bind_sql(again, catalog)
        assert TableCatalog.from_json({**same.table.to_json(), "definition": found.definition}) == found
    assert bound > 30
