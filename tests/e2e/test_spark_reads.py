"""Scans, change feeds and the data source return the rows of the table to Spark."""

from __future__ import annotations

import threading
import time

import pytest

from hummock.errors import StoreClosed
from relational.errors import BindError
from relational.spark.pinned_table import PinnedTable
from relational.spark.scan import changes, scan
from tests.support.worlds.shop_store import COLUMNS, Shop

pytestmark = pytest.mark.spark
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
STREAM_SECONDS = 120  # timeout of a stream that returns nothing
SLOW_START = "Python worker failed to connect back"  # Spark waits 10 s, too short on a busy machine, not configurable


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop.open(tmp_path_factory.mktemp("shop"))
    shop.change()
    shop.insert(40)
    with shop.session:
        yield shop


@pytest.fixture(scope="module")
def source(spark):
    from relational.spark.source import register

    register(spark)
    return spark


def collected(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


def rows_of(shop, epoch=None, keep=lambda row: True):
    rows = shop.rows if epoch is None else shop.history[epoch]
    return sorted((row for row in rows.values() if keep(row)), key=repr)


def test_a_scan_is_the_table_at_an_epoch(spark, shop, monkeypatch):
    monkeypatch.setattr("relational.spark.scan.LEAST_PART_BYTES", 10_000)
    for epoch in (min(shop.history), max(shop.history)):
        with PinnedTable(shop.url, "items", epoch=epoch) as table:
            frame = scan(spark, table)
            assert frame.columns == list(COLUMNS)
            assert collected(frame) == rows_of(shop, epoch)


def test_many_specs_reach_each_its_task_alone_in_any_number(spark, shop, monkeypatch):
    monkeypatch.setattr("relational.spark.scan.LEAST_PART_BYTES", 1_500)
    monkeypatch.setattr("relational.spark.scan.CLOSURE_BYTES", 0)
    with PinnedTable(shop.url, "items") as table:
        frame = scan(spark, table)
        assert frame.rdd.getNumPartitions() > 4
        assert collected(frame) == rows_of(shop)
        counts = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
        assert len(counts) == frame.rdd.getNumPartitions() and 0 not in counts     # a spec of rows in each
        assert collected(scan(spark, table, where="k < 30")) == rows_of(shop, keep=lambda row: row[1] < 30)
        first = min(shop.history)
        expected = sorted(map(tuple, changes(spark, table, since=first).collect()))
        monkeypatch.undo()
        assert sorted(map(tuple, changes(spark, table, since=first).collect())) == expected


def test_a_scan_has_the_chosen_columns_of_the_rows_that_meet_its_conditions(spark, shop):
    with PinnedTable(shop.url, "items") as table:
        where = [("g", "=", 3), ("k", ">=", 100), ("v", "<", 90.0)]
        expected = rows_of(shop, keep=lambda row: row[0] == 3 and row[1] >= 100 and row[3] < 90)
        assert collected(scan(spark, table, where=where)) == expected
        names = scan(spark, table, columns=["name"], where=where)
        assert names.columns == ["name"]
        assert sorted(row[0] or "" for row in names.collect()) == sorted(row[2] or "" for row in expected)
        assert collected(scan(spark, table, where=[("k", "=", -1)])) == []


def test_changes_turn_one_snapshot_into_the_next(spark, shop):
    since, until = sorted(shop.history)[0], sorted(shop.history)[-1]
    with PinnedTable(shop.url, "items") as table:
        found = changes(spark, table, since=since, until=until).collect()
    deleted = {tuple(row[1:]) for row in found if row._op in ("-", "U-")}
    inserted = {tuple(row[1:]) for row in found if row._op in ("+", "U+")}
    assert deleted <= {*shop.history[since].values()}
    assert ({*shop.history[since].values()} - deleted) | inserted == {*shop.history[until].values()}
    assert len(found) == len(deleted) + len(inserted)


def test_a_table_that_was_closed_is_scanned_no_more(spark, shop):
    table = PinnedTable(shop.url, "items")
    table.close()
    with pytest.raises(StoreClosed):
        scan(spark, table)


def test_types_that_spark_has_arrive_as_they_are_others_as_texts_or_are_named(spark, shop):
    shop.session.sql("CREATE TABLE kinds (k INT PRIMARY KEY, n NUMERIC(20, 4), at TIMESTAMP, day DATE, yes BOOLEAN, "
                     "small SMALLINT, f REAL, raw BYTEA, doc JSONB, pause INTERVAL, pauses INTERVAL[])")
    shop.session.sql("INSERT INTO kinds VALUES (1, 1234.5678, TIMESTAMP '2024-02-03 04:05:06', DATE '2024-02-03', "
                     "true, 7, 0.5, NULL, '{\"a\": 1}', INTERVAL '1 month 1 day', NULL)")
    shop.session.flush()
    with PinnedTable(shop.url, "kinds") as table:
        known = [name for name in table.catalog.schema.names if name != "pauses"]
        expected = shop.session.sql(f"SELECT {', '.join(known)} FROM kinds").to_arrow().to_pylist()
        expected[0]["pause"] = "1 mon 1 day"
        assert [row.asDict() for row in scan(spark, table, columns=known).collect()] == expected
        (found,) = scan(spark, table, columns=["pause"], where="pause > INTERVAL '30 days'").collect()
        assert found.pause == "1 mon 1 day"
        with pytest.raises(BindError, match="'pauses'"):
            scan(spark, table)


def load(source, shop, **options):
    return source.read.format("hummock").options(url=shop.url, table="items", **options).load()


def test_the_source_reads_what_a_scan_reads(source, shop):
    assert collected(load(source, shop)) == rows_of(shop)
    first = min(shop.history)
    assert collected(load(source, shop, epoch=str(first))) == rows_of(shop, first)
    frame = load(source, shop, columns="g,k,v").where("g = 3 and k >= 100 and v < 90")
    expected = rows_of(shop, keep=lambda row: row[0] == 3 and row[1] >= 100 and row[3] < 90)
    assert collected(frame) == sorted(((g, k, v) for g, k, _, v in expected), key=repr)
    with PinnedTable(shop.url, "items") as table:
        assert collected(load(source, shop, since=str(first))) == collected(changes(source, table, since=first))


@pytest.mark.parametrize("pushdown", [False, True], ids=["as it is", "with pushdown switched on"])
def test_each_query_of_a_frame_and_of_a_view_has_its_own_filter_alone(source, shop, pushdown):
    filters = {"k < 10": lambda row: row[1] < 10, "true": lambda row: True, "k = -1": lambda row: False,
               "g = 3 and k >= 100 and v < 90": lambda row: row[0] == 3 and row[1] >= 100 and row[3] < 90}
    if pushdown:
        source.conf.set(PUSHDOWN, "true")
    try:
        for number, order in enumerate((list(filters), list(filters)[::-1])):
            frame, view = load(source, shop), f"items_{pushdown}_{number}"
            load(source, shop).createOrReplaceTempView(view)
            for text in (*order, order[0]):
                expected = rows_of(shop, keep=filters[text])
                assert collected(frame.where(text)) == expected, text
                assert frame.where(text).count() == len(expected), text
                assert collected(source.sql(f"SELECT * FROM {view} WHERE {text}")) == expected, text
    finally:
        source.conf.unset(PUSHDOWN)


def test_registering_the_format_leaves_the_settings_of_the_session_alone(source):
    from relational.spark.source import register

    before = source.conf.get(PUSHDOWN)
    for value in ("true", "false"):
        source.conf.set(PUSHDOWN, value)
        register(source)
        assert source.conf.get(PUSHDOWN) == value
    source.conf.unset(PUSHDOWN)
    register(source)
    assert source.conf.get(PUSHDOWN) == before


def test_a_condition_by_option_is_of_the_frame_and_reads_what_a_scan_reads(source, shop):
    for text, keep in (("g = 3 AND k >= 100 AND v < 90", lambda row: row[0] == 3 and row[1] >= 100 and row[3] < 90),
                       ("name LIKE 'item 1%' OR name IS NULL", lambda row: row[2] is None or row[2][:6] == "item 1"),
                       ("k BETWEEN 7 AND 9", lambda row: 7 <= row[1] <= 9), ("g = 7", lambda row: False)):
        expected = rows_of(shop, keep=keep)
        frame = load(source, shop, where=text)
        assert collected(frame) == expected, text
        assert frame.where("k < 10").count() == len([row for row in expected if row[1] < 10])
        assert frame.count() == len(expected)
        values = sorted(((row[3],) for row in expected), key=repr)
        assert collected(load(source, shop, where=text, columns="v")) == values
        with PinnedTable(shop.url, "items") as table:
            assert collected(scan(source, table, where=text)) == expected


def test_a_condition_that_means_nothing_is_refused_before_any_query(source, shop):
    from pyspark.errors import PySparkException

    first = str(min(shop.history))
    for options, complaint in (({"where": "weight > 3"}, "there is no column 'weight'"),
                               ({"where": "k < 3", "since": first}, "since")):
        with pytest.raises(PySparkException, match=complaint):
            load(source, shop, **options)


def test_a_stream_gives_the_table_and_then_its_changes_also_after_a_restart(source, tmp_path):
    shop = Shop.open(tmp_path)
    seen, rows, arrived = [], {}, threading.Condition()

    def apply_batch(frame, number):
        batch = [tuple(row) for row in frame.collect()]
        with arrived:
            if number in seen:  # a batch in flight when a query stopped is delivered again
                return
            seen.append(number)
            for op, *row in sorted(batch, key=lambda change: change[0] not in ("-", "U-")):
                if op in ("-", "U-"):
                    assert rows.pop(tuple(row[:2])) == tuple(row)
                else:
                    assert rows.setdefault(tuple(row[:2]), tuple(row)) == tuple(row)
            arrived.notify_all()

    def start():
        frame = source.readStream.format("hummock").options(url=shop.url, table="items", start="snapshot").load()
        return frame.writeStream.foreachBatch(apply_batch).option("checkpointLocation", f"{tmp_path}/query").start()

    def caught_up(query):
        """The query, once it has delivered every row; a new one where Spark gave up on a worker that started slowly."""
        until = time.monotonic() + STREAM_SECONDS
        while True:
            with arrived:
                while rows != shop.rows and query.exception() is None and time.monotonic() < until:
                    arrived.wait(1)
            if query.exception() is None:
                assert rows == shop.rows
                return query
            assert SLOW_START in str(query.exception()) and time.monotonic() < until, query.exception()
            query = start()

    with shop.session:
        query = caught_up(start())
        shop.change()
        shop.insert(20)
        caught_up(query).stop()
        shop.change()
        caught_up(start()).stop()
    assert seen == sorted({*seen})
