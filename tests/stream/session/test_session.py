import datetime
import threading
from decimal import Decimal

import pyarrow as pa
import pytest

import stream
from hummock.base.key import KeyRange
from hummock.compactor import Compactor
from hummock.errors import EpochTooOld, InvalidOption
from relational.errors import BindError, DependencyError, Duplicate, NotFound, ParseError
from relational.relation import Relation
from stream import col
from stream import functions as f
from stream.errors import DuplicateKey, InvalidStatement, SessionClosed

NEVER_MS = 3_600_000
HISTORY_MS = 600_000      # the tests read old epochs


@pytest.fixture
def db():
    session = stream.connect("memory://", barrier_interval_ms=NEVER_MS, history_ms=HISTORY_MS)
    yield session
    session.abandon()


def rows(relation):
    return [tuple(row.values()) for row in relation.to_arrow().to_pylist()]


def shop(db):
    """The example session of the architecture document."""
    orders = db.create_table("orders", {"id": "bigint", "region": "varchar", "amount": "numeric"}, primary_key="id")
    revenue = orders.filter(col("amount") > 0).group_by("region").agg(revenue=f.sum("amount"), orders=f.count())
    return orders, db.create_materialized_view("revenue", revenue)


def test_the_first_session_in_python(db):
    orders, revenue = shop(db)
    assert orders.insert([(1, "EUROPE", 30), (2, "ASIA", 5), (3, "EUROPE", 12)]) == 3
    assert orders.delete(id=2) == 1
    db.flush()
    assert revenue.get("EUROPE") == {"region": "EUROPE", "revenue": 42, "orders": 2}
    assert revenue.get("ASIA") is None
    assert rows(revenue.filter(col("orders") > 1)) == [("EUROPE", 42, 2)]
    assert "HashAgg" in db.explain(revenue.group_by("orders").agg(n=f.count()))


def test_the_first_session_in_sql(db):
    db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, region VARCHAR, amount NUMERIC)")
    db.sql("""CREATE MATERIALIZED VIEW revenue AS
              SELECT region, SUM(amount) AS revenue, COUNT(*) AS orders
              FROM orders WHERE amount > 0 GROUP BY region""")
    assert db.sql("INSERT INTO orders VALUES (1, 'EUROPE', 30), (2, 'ASIA', 5), (3, 'EUROPE', 12)") == 3
    db.sql("FLUSH")
    found = db.sql("SELECT * FROM revenue WHERE region = 'EUROPE'").to_arrow().to_pylist()
    assert found == [{"region": "EUROPE", "revenue": 42, "orders": 2}]


def test_the_example_of_the_design_document_on_both_faces(db):
    t = db.create_table("t", {"a": "bigint", "b": "varchar"})
    db.create_materialized_view("fluent", t.group_by("b").agg(a=f.sum("a")).select("a", "b"))
    db.sql("CREATE MATERIALIZED VIEW mv1 AS SELECT SUM(a) AS a, b FROM t GROUP BY b")
    t.insert([(2, "AMERICA"), (3, "ASIA"), (4, "AMERICA"), (5, "ASIA")])
    db.flush()
    for view in ("fluent", "mv1"):
        assert sorted(rows(db.table(view))) == [(6, "AMERICA"), (8, "ASIA")]
    t.insert([(6, "EUROPE"), (7, "EUROPE")])
    db.flush()
    for view in ("fluent", "mv1"):
        assert sorted(rows(db.table(view))) == [(6, "AMERICA"), (8, "ASIA"), (13, "EUROPE")]


def test_both_faces_make_the_same_plans(db):
    shop(db)
    fluent = db.table("orders").filter(col("amount") > 0).group_by("region").agg(total=f.sum("amount"))
    text = "SELECT region, SUM(amount) AS total FROM orders WHERE amount > 0 GROUP BY region"
    assert db.explain(fluent) == db.explain(text)


def test_changes_are_seen_after_a_flush_and_by_later_statements_before_it(db):
    orders, _ = shop(db)
    orders.insert([(1, "ASIA", 1)])
    assert rows(orders) == []
    assert orders.update({"amount": col("amount") + 1}, id=1) == 1
    assert orders.update({"amount": col("amount") * 10}, col("amount") > 1) == 1
    db.flush()
    assert rows(orders) == [(1, "ASIA", Decimal(20))]


def test_a_failed_statement_changes_nothing_and_harms_nobody(db):
    orders, revenue = shop(db)
    orders.insert([(1, "ASIA", 1)])
    with pytest.raises(DuplicateKey):
        orders.insert([(2, "ASIA", 2), (1, "EUROPE", 3)])
    with pytest.raises(InvalidStatement):
        orders.insert([(None, "ASIA", 2)])
    with pytest.raises(BindError):
        orders.update({"colour": 1})
    with pytest.raises(BindError):
        revenue.insert([("ASIA", 1, 1)])
    db.flush()
    assert rows(orders) == [(1, "ASIA", 1)]
    assert db.figures.committed_barriers > 0


@pytest.mark.parametrize(
    ("on_conflict", "expected"), [("overwrite", [(1, "new"), (2, "b")]), ("ignore", [(1, "old"), (2, "b")])]
)
def test_conflicts_follow_the_tables_rule(db, on_conflict, expected):
    t = db.create_table("t", {"id": "int", "v": "varchar"}, primary_key="id", on_conflict=on_conflict)
    t.insert([(1, "old")])
    t.insert([(1, "new"), (2, "b")])
    db.flush()
    assert sorted(rows(t)) == expected


def test_arrow_and_frames_are_taken_by_column_name(db):
    t = db.create_table("t", {"id": "bigint", "day": "date", "x": "double"}, primary_key="id")
    day = datetime.date(2013, 1, 1)
    t.insert(pa.table({"x": [1.5], "id": [1], "day": [day]}))
    t.insert(pa.record_batch({"id": pa.array([2], pa.int32())}))
    db.flush()
    assert sorted(rows(t)) == [(1, day, 1.5), (2, None, None)]


def test_errors_point_at_the_text_and_name_what_is_there(db):
    shop(db)
    with pytest.raises(ParseError):
        db.sql("SELEC 1")
    with pytest.raises(BindError, match=r"\^"):
        db.sql("SELECT nothere FROM orders")
    with pytest.raises(NotFound, match="orders"):
        db.table("order")
    with pytest.raises(Duplicate):
        db.sql("CREATE TABLE orders (id INT PRIMARY KEY)")
    with pytest.raises(DependencyError, match="revenue"):
        db.drop("orders")
    assert set(db.names()) == {"orders", "revenue"}


def test_dropping_with_cascade_takes_the_views_along(db):
    orders, _ = shop(db)
    db.sql("CREATE MATERIALIZED VIEW big AS SELECT region FROM revenue WHERE revenue > 10")
    orders.insert([(1, "ASIA", 11)])
    db.drop("orders", cascade=True)
    assert db.names() == ()
    with pytest.raises(InvalidStatement, match="dropped"):
        orders.insert([(2, "ASIA", 1)])
    shop(db)
    db.flush()
    assert rows(db.table("orders")) == []


def test_show_describe_and_explain_answer_in_arrow(db):
    shop(db)
    assert db.sql("SHOW TABLES")["name"].to_pylist() == ["orders"]
    assert db.sql("SHOW MATERIALIZED VIEWS")["name"].to_pylist() == ["revenue"]
    assert db.sql("SHOW INTERNAL TABLES").num_rows == 3
    assert db.sql("DESCRIBE orders")["name"].to_pylist() == ["id", "region", "amount"]
    plan = "\n".join(db.sql("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT region FROM orders")["plan"].to_pylist())
    assert "StreamScan orders" in plan and "Materialize v" in plan
    assert isinstance(db.sql("SELECT 1 AS one"), Relation)
    assert rows(db.sql("SELECT 1 AS one")) == [(1,)]


def test_explain_of_a_query_shows_its_logical_and_its_batch_plan(db):
    shop(db)
    plan = db.sql("EXPLAIN SELECT region FROM orders WHERE id = 1")["plan"].to_pylist()
    assert plan[:7] == [
        "logical",
        "  Project region",
        "    Filter (id = 1)",
        "      Scan orders (id, region)",
        "batch",
        "  Project region",
        "    PointGet orders [id = 1] (id, region)",
    ]
    assert plan[7] == "as a view" and "StreamScan orders" in "\n".join(plan)


def test_several_statements_in_one_text(db):
    answer = db.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); FLUSH; SELECT COUNT(*) FROM t")
    assert rows(answer) == [(2,)]


def test_insert_select_reads_what_is_committed(db):
    db.sql("CREATE TABLE a (x INT PRIMARY KEY); CREATE TABLE b (x INT PRIMARY KEY)")
    db.sql("INSERT INTO a VALUES (1), (2); FLUSH")
    assert db.sql("INSERT INTO b SELECT x + 10 FROM a") == 2
    db.flush()
    assert sorted(rows(db.table("b"))) == [(11,), (12,)]


def test_a_snapshot_stays_at_its_epoch(db):
    orders, revenue = shop(db)
    orders.insert([(1, "ASIA", 1)])
    first = db.flush()
    with db.at() as then:
        orders.insert([(2, "ASIA", 5)])
        second = db.flush()
        assert (then.epoch, then.sql("SELECT revenue FROM revenue").to_arrow()["revenue"].to_pylist()) == (first, [1])
        assert then.table("orders").get(2) is None
        assert then.offsets("orders") == {}
        with pytest.raises(InvalidStatement):
            then.table("orders").delete(id=1)
        with pytest.raises(InvalidStatement):
            then.sql("FLUSH")
    with db.at(first) as then, db.at(second) as now:
        assert rows(then.table("revenue")) == [("ASIA", 1, 1)]
        assert rows(now.table("revenue")) == rows(revenue) == [("ASIA", 6, 2)]


def commits(db, numbers):
    """Commits updates of every row of `t`; returns the epochs."""
    ids = pa.array(range(500))
    made = []
    for number in numbers:
        db.table("t").insert(pa.table({"id": ids, "v": pa.array([number] * 500)}))
        made.append(db.flush())
    return made


def stored_rows(db):
    """Number of row versions of the table in files after all compactions."""
    playground = db._playground
    with Compactor(playground.manager, objects_of(playground), playground.options.compaction) as compactor:
        assert compactor.wait_idle(60)
    whole = KeyRange.table(playground.catalog.resolve("t").id)
    return sum(part.rows for run in playground.manager.refresh().overlapping(whole) for part in run)


def objects_of(playground):
    return playground.storage._sstable_store.object_store


def versions_session(**options):
    db = stream.connect("memory://", barrier_interval_ms=NEVER_MS, l0_runs=2, **options)
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT) ON CONFLICT OVERWRITE")
    return db


def test_a_session_keeps_no_history_that_nothing_pins():
    with versions_session() as db:
        first, *_, newest = commits(db, range(40))
        assert stored_rows(db) <= 3 * 500
        with db.at() as now:
            assert now.epoch == newest
        with pytest.raises(EpochTooOld):
            db.at(first)


def test_a_snapshot_of_a_session_keeps_its_rows_and_the_option_keeps_all():
    with versions_session() as db:
        _, old = commits(db, range(2))
        with db.at(old) as then:
            commits(db, range(2, 30))
            assert stored_rows(db) > 20 * 500
            assert set(then.table("t").to_arrow()["v"].to_pylist()) == {1}
        commits(db, range(30, 34))
        assert stored_rows(db) <= 3 * 500
        with pytest.raises(EpochTooOld):
            db.at(old)
    with versions_session(history_ms=600_000) as db:
        epochs = commits(db, range(20))
        stored_rows(db)
        for number, epoch in enumerate(epochs):
            with db.at(epoch) as then:
                assert set(then.table("t").to_arrow()["v"].to_pylist()) == {number}


def test_a_store_on_disk_is_there_again(tmp_path):
    url = f"file://{tmp_path}/shop"
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as db:
        orders, _ = shop(db)
        orders.insert([(1, "ASIA", 1), (2, "EUROPE", 2)])
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as db:
        assert sorted(rows(db.table("revenue"))) == [("ASIA", 1, 1), ("EUROPE", 2, 1)]
        db.table("orders").delete(region="ASIA")
        db.table("orders").insert([(3, "EUROPE", 3)])
        db.flush()
        assert rows(db.table("revenue")) == [("EUROPE", 5, 2)]


def test_leaving_with_an_error_commits_nothing_more(tmp_path):
    url = f"file://{tmp_path}/shop"
    with pytest.raises(KeyError), stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as db:
        orders, _ = shop(db)
        orders.insert([(1, "ASIA", 1)])
        raise KeyError
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as db:
        assert rows(db.table("orders")) == []


def test_a_closed_session_says_so(db):
    shop(db)
    db.close()
    db.close()
    for call in (db.flush, lambda: db.sql("SELECT 1"), lambda: db.table("orders")):
        with pytest.raises(SessionClosed):
            call()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("actor-")]


def test_what_was_bound_to_a_table_says_that_it_was_dropped(url="memory://"):
    with stream.connect(url, barrier_interval_ms=NEVER_MS) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
        db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY)")
        kept = [db.sql("SELECT id FROM t"), db.table("t"), db.sql("SELECT COUNT(*) AS n FROM t CROSS JOIN u")]
        with db.at() as snapshot:
            past = db.sql(f"SELECT id FROM t FOR SYSTEM_TIME AS OF {snapshot.epoch}")
            of_snapshot = snapshot.sql("SELECT id FROM t")
            assert past.rows() == of_snapshot.rows() == [{"id": 1}]
            db.sql("DROP TABLE t; CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (2); FLUSH")
            for relation in (*kept, past, of_snapshot):
                with pytest.raises(NotFound, match="'t' was dropped"):
                    relation.rows()
        assert db.sql("SELECT id FROM t").rows() == [{"id": 2}]


def test_options_are_checked_by_name():
    with pytest.raises(InvalidOption, match="colour"):
        stream.connect("memory://", colour="red")
    with pytest.raises(InvalidOption):
        stream.connect("ftp://host/shop", create=True)


def test_a_recovery_undoes_no_acknowledged_statement(db):
    orders, revenue = shop(db)
    orders.insert([(1, "ASIA", 1)])
    db.flush()
    orders.insert([(2, "ASIA", 2)])
    db.sql("UPDATE orders SET amount = 5 WHERE id = 1")
    orders.delete(id=2)
    orders.insert([(3, "ASIA", 3)])
    db._playground.meta.fail(RuntimeError("injected"))
    orders.insert([(4, "EUROPE", 4)])
    db.flush()
    assert sorted(row["id"] for row in orders.rows()) == [1, 3, 4]
    assert revenue.get("ASIA")["revenue"] == 8


def test_statements_from_many_threads_all_count(db):
    orders, revenue = shop(db)

    def insert(first):
        for step in range(20):
            orders.insert([(first + step, "ASIA", 1)])

    threads = [threading.Thread(target=insert, args=(number * 100,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    db.flush()
    assert rows(revenue) == [("ASIA", 80, 80)]


def test_columns_of_a_table_are_decoded_once_until_it_changes(db):
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE TABLE u (id INT PRIMARY KEY)")
    db.table("t").insert([{"id": number, "v": number} for number in range(100)])
    db.flush()

    def hits():
        return db._queries._columns.counts.column_cache_hits

    for number in range(3):
        assert db.query("SELECT sum(v) AS v FROM t").to_pylist() == [{"v": 4_950}] and hits() == number
        db.sql(f"INSERT INTO u VALUES ({number})")
        db.flush()
    db.sql("UPDATE t SET v = 0 WHERE id = 99")
    db.flush()
    assert db.query("SELECT sum(v) AS v FROM t").to_pylist() == [{"v": 4_851}] and hits() == 2
