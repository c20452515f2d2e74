"""The fluent API: pairs with SQL that have the same plan, and changes of tables."""

import functools
import operator
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from relational import Interval, col, lit
from relational import functions as f
from relational.errors import BindError
from relational.plan.optimizer import optimize
from relational.plan.view import view_of
from relational.relation import Relation, TableRelation
from relational.sql import bind_sql
from tests.support.drivers.batch_session import BatchSession
from tests.support.suites.sql_cases import case_catalog

CATALOG = case_catalog()
ORDERS, PAIRS, PLAIN = (
    TableRelation.of(CATALOG.resolve(name), BatchSession()) for name in ("orders", "pairs", "plain")
)

SQL_AND_FLUENT = [
    ("SELECT * FROM orders", ORDERS),
    ("SELECT v, w FROM plain", PLAIN.select("v", "w")),
    ("SELECT id, region AS r FROM orders", ORDERS.select("id", r=col("region"))),
    (
        "SELECT id FROM orders WHERE amount > 0 AND region = 'a'",
        ORDERS.filter(col("amount") > 0, col("region") == "a").select("id"),
    ),
    (
        "SELECT id FROM orders WHERE amount > 0 AND region = 'a'",
        ORDERS.filter(col("amount") > 0).filter(col("region") == "a").select(col("id")),
    ),
    (
        "SELECT region, SUM(amount) AS revenue, COUNT(*) AS orders FROM orders WHERE amount "
        "> 0 GROUP BY region",
        ORDERS.filter(col("amount") > 0).group_by("region").agg(revenue=f.sum("amount"), orders=f.count()),
    ),
    (
        "SELECT upper(region) AS u, max(amount * 2) + 1 AS m FROM orders GROUP BY upper(region)",
        ORDERS.group_by(f.upper(col("region")).alias("u")).agg(m=f.max(col("amount") * 2) + 1),
    ),
    (
        "SELECT count(*) AS n, avg(id) FILTER (WHERE region IS NULL) AS a, min(at) AS first FROM orders",
        ORDERS.agg(n=f.count(), a=f.avg("id").filter(col("region").is_null()), first=f.min("at")),
    ),
    (
        "SELECT * FROM (SELECT region, count(*) AS n FROM orders GROUP BY region) WHERE n > 1",
        ORDERS.group_by("region").agg(n=f.count()).filter(col("n") > 1),
    ),
    (
        "SELECT region, count(*) AS n FROM orders GROUP BY region ORDER BY n DESC, region LIMIT 3",
        ORDERS.group_by("region").agg(n=f.count()).order_by(col("n").desc(), "region").limit(3),
    ),
    (
        "SELECT * FROM orders ORDER BY at NULLS FIRST LIMIT 2 OFFSET 1",
        ORDERS.order_by(col("at").asc(nulls_first=True)).limit(2, offset=1),
    ),
    ("SELECT DISTINCT region FROM orders", ORDERS.select("region").distinct()),
    (
        "SELECT variance(id) AS v, var_pop(id) AS p, stddev(DISTINCT id) AS s, stddev_pop(amount) AS d FROM orders",
        ORDERS.group_by().agg(
            v=f.variance("id"), p=f.var_pop("id"), s=f.stddev("id", distinct=True), d=f.stddev_pop("amount")
        ),
    ),
    (
        "SELECT region, array_agg(id ORDER BY at DESC, id) AS a, string_agg(DISTINCT region, ',') FILTER (WHERE id > 1)"
        " AS s, jsonb_agg(id ORDER BY id) AS j, jsonb_object_agg(region, id) AS o, first_value(id ORDER BY at) AS f, "
        "last_value(id ORDER BY at NULLS FIRST) AS l, min_by(id, at) AS lo, arg_max(id, at) AS hi FROM orders "
        "GROUP BY region",
        ORDERS.group_by("region").agg(
            a=f.array_agg("id", order_by=(col("at").desc(), "id")),
            s=f.string_agg("region", ",", distinct=True).filter(col("id") > 1),
            j=f.jsonb_agg("id", order_by="id"), o=f.jsonb_object_agg("region", "id"),
            f=f.first_value("id", order_by=["at"]), l=f.last_value("id", order_by=[col("at").asc(nulls_first=True)]),
            lo=f.arg_min("id", "at"), hi=f.arg_max("id", "at"),
        ),
    ),
    (
        "SELECT mode() WITHIN GROUP (ORDER BY region) AS m, percentile_cont(0.5) WITHIN GROUP (ORDER BY id) AS c, "
        "percentile_disc(0.9) WITHIN GROUP (ORDER BY at DESC) AS d, bit_and(id) AS ba, bit_or(id) AS bo, "
        "bit_xor(DISTINCT id) AS bx, any_value(at) AS v, approx_count_distinct(region) AS n, corr(id, amount) AS r "
        "FROM orders",
        ORDERS.agg(
            m=f.mode("region"), c=f.percentile_cont(0.5, "id"), d=f.percentile_disc(0.9, col("at").desc()),
            ba=f.bit_and("id"), bo=f.bit_or("id"), bx=f.bit_xor("id", distinct=True), v=f.any_value("at"),
            n=f.approx_count_distinct("region"), r=f.of_pairs("corr", "id", "amount"),
        ),
    ),
    (
        "SELECT region, at, count(*) AS n, grouping(region, at) AS g FROM orders GROUP BY ROLLUP (region, at)",
        ORDERS.group_by("region", "at", sets=[("region", "at"), ("region",), ()]).agg(
            n=f.count(), g=f.grouping("region", "at")
        ),
    ),
    (
        "SELECT count(DISTINCT region) AS n, avg(DISTINCT id) AS m, sum(DISTINCT id) AS s FROM orders",
        ORDERS.group_by().agg(
            n=f.count("region", distinct=True), m=f.avg("id", distinct=True), s=f.sum("id", distinct=True)
        ),
    ),
    ("SELECT *, amount * 2 AS twice FROM orders", ORDERS.with_columns(twice=col("amount") * 2)),
    ("SELECT * FROM orders WHERE at > '2020-01-01'", ORDERS.filter(col("at") > "2020-01-01")),
    (
        "SELECT * FROM orders WHERE at > TIMESTAMP '2020-01-01'",
        ORDERS.filter(col("at") > datetime(2020, 1, 1)),
    ),
    ("SELECT at + INTERVAL '1 day' AS t FROM orders", ORDERS.select(t=col("at") + timedelta(days=1))),
    ("SELECT at - INTERVAL '1 month' AS t FROM orders", ORDERS.select(t=col("at") - lit(Interval(1)))),
    ("SELECT id IN (1, 2, NULL) AS x FROM orders", ORDERS.select(x=col("id").is_in([1, 2, None]))),
    ("SELECT id BETWEEN 1 AND 9 AS x FROM orders", ORDERS.select(x=col("id").between(1, 9))),
    (
        "SELECT region LIKE 'a%' OR NOT region ILIKE 'B_' AS x FROM orders",
        ORDERS.select(x=col("region").like("a%") | ~col("region").ilike("B_")),
    ),
    (
        "SELECT CASE WHEN id > 1 THEN 'a' WHEN id > 0 THEN region ELSE 'c' END AS x FROM orders",
        ORDERS.select(x=f.when(col("id") > 1, "a").when(col("id") > 0, col("region")).default("c")),
    ),
    (
        "SELECT CAST(amount AS INT) / 2 AS x, -id % 3 AS y FROM orders",
        ORDERS.select(x=col("amount").cast("int") / 2, y=-col("id") % 3),
    ),
    (
        "SELECT coalesce(region, 'x') || '!' AS x, nullif(id, 1) AS y, substring(region, 2, "
        "3) AS z FROM orders",
        ORDERS.select(
            x=f.concat(f.coalesce(col("region"), "x"), "!"),
            y=f.nullif(col("id"), 1),
            z=f.substring(col("region"), 2, 3),
        ),
    ),
    (
        "SELECT date_trunc('hour', at) AS h, extract(year FROM at) AS y, round(amount, 2) AS r FROM orders",
        ORDERS.select(
            h=f.date_trunc("hour", col("at")), y=f.extract("year", col("at")), r=f.round(col("amount"), 2)
        ),
    ),
    (
        "SELECT a IS DISTINCT FROM b AS x, greatest(a, b) AS y, 1 - a AS z FROM pairs",
        PAIRS.select(x=col("a").is_distinct_from(col("b")), y=f.greatest(col("a"), col("b")), z=1 - col("a")),
    ),
    ("SELECT id FROM orders INTERSECT SELECT v FROM plain", ORDERS.select("id").intersect(PLAIN.select("v"))),
    ("SELECT id FROM orders EXCEPT ALL SELECT v FROM plain",
     ORDERS.select("id").difference(PLAIN.select("v"), distinct=False)),
    ("SELECT id FROM orders UNION ALL SELECT v FROM plain", ORDERS.select("id").union_all(PLAIN.select("v"))),
    (
        "SELECT w FROM plain UNION SELECT region FROM orders UNION SELECT 'x' FROM plain",
        PLAIN.select("w").union(ORDERS.select("region"), PLAIN.select(x=lit("x"))),
    ),
    ("SELECT c FROM pairs WHERE a = 1 AND b = 2", PAIRS.filter(col("a") == 1, col("b") == 2).select("c")),
]


@pytest.mark.parametrize(("text", "relation"), SQL_AND_FLUENT, ids=[text for text, _ in SQL_AND_FLUENT])
def test_both_faces_make_the_same_plan(text, relation):
    (statement,) = bind_sql(text, CATALOG)
    assert optimize(statement.plan) == optimize(relation.plan)


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("SELECT * FROM plain", PLAIN),
        ("SELECT w FROM plain WHERE v > 1", PLAIN.filter(col("v") > 1).select("w")),
        (
            "SELECT region, max(id) AS m FROM orders GROUP BY region",
            ORDERS.group_by("region").agg(m=f.max("id")),
        ),
    ],
)
def test_both_faces_make_the_same_view(text, relation):
    (statement,) = bind_sql(f"CREATE MATERIALIZED VIEW v AS {text}", CATALOG)
    assert view_of("v", relation.plan, statement.view.definition) == (statement.view, statement.plan)


@pytest.fixture
def session():
    session = BatchSession()
    session.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, s VARCHAR, n NUMERIC(10, 2), at TIMESTAMP, day DATE)")
    return session


def test_rows_come_as_tuples_dicts_and_arrow(session):
    t = session.table("t")
    assert t.insert([(1, "a", 2, datetime(2020, 1, 1), "2020-01-01")]) == 1
    assert t.insert([{"k": 2, "n": Decimal("3.456")}, {"k": 3, "day": date(2020, 2, 2)}]) == 2
    assert t.insert(pa.table({"k": [4], "s": ["d"]})) == 1
    assert t.insert([]) == 0
    assert t.order_by("k").to_arrow().to_pydict() == {
        "k": [1, 2, 3, 4],
        "s": ["a", None, None, "d"],
        "n": [Decimal("2.00"), Decimal("3.46"), None, None],
        "at": [datetime(2020, 1, 1), None, None, None],
        "day": [date(2020, 1, 1), None, date(2020, 2, 2), None],
    }


def test_get_is_by_primary_key(session):
    t = session.table("t")
    t.insert([(1, "a", 2, None, None)])
    assert t.get(1)["s"] == "a" and t.get(2) is None
    assert t.get(k=1) == t.get(1) and t.get(k=2) is None
    with pytest.raises(BindError, match=r"has the key \(k\), 2 values"):
        t.get(1, 2)
    for key, named, reason in (
        ((1,), {"k": 1}, r"has the key \(k\), 2 values"), ((), {}, r"has the key \(k\), 0 values"),
        ((), {"s": "a"}, r"'s' is no column of the key \(k\) of 't': filter\(col\('s'\) == …\)"),
        ((), {"k": 1, "s": "a"}, "'s' is no column of the key"), ((), {"kk": 1}, "no column 'kk'; did you mean 'k'"),
    ):
        with pytest.raises(BindError, match=reason):
            t.get(*key, **named)


def test_a_grouping_set_has_names_of_the_groups():
    with pytest.raises(BindError, match="a grouping set has 'at', which is none of region, id"):
        ORDERS.group_by("region", "id", sets=[("region", "at")])
    with pytest.raises(BindError, match="has 1 to 256 grouping sets, not 0"):
        ORDERS.group_by("region", sets=[])


def test_get_finds_rows_under_any_key():
    session = BatchSession()
    session.sql("CREATE TABLE p (a INT, b NUMERIC(6, 2), c VARCHAR, PRIMARY KEY (a, b))")
    session.sql("CREATE TABLE q (v VARCHAR)")
    p, q = session.table("p"), session.table("q")
    p.insert([(1, "2.50", "x"), (1, 3, "y")])
    q.insert([("z",)])
    assert p.get(1, 2.5) == {"a": 1, "b": Decimal("2.50"), "c": "x"} and p.get(1, 3)["c"] == "y"
    assert p.get(b=2.5, a=1) == p.get(1, 2.5) and p.get(a=1, b=None) is None
    with pytest.raises(BindError, match=r"'p' has the key \(a, b\), 'b' is missing"):
        p.get(a=1)
    assert p.get(1, None) is None and p.get(None, 3) is None and p.get(2, 3) is None
    assert q.get(1) == {"v": "z"} and q.get(2) is None
    with pytest.raises(BindError, match="'x' is no INT"):
        p.get("x", 1)


def test_a_union_of_relations_with_shared_queries_keeps_them_apart():
    session = BatchSession()
    session.sql("CREATE TABLE t (k INT PRIMARY KEY, s VARCHAR); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'b')")
    (counted, most) = (
        Relation(next(bind_sql(text, session.catalog)).plan, session)
        for text in (
            "WITH n AS (SELECT s, count(*) AS n FROM t GROUP BY s) SELECT n FROM n UNION ALL SELECT -n FROM n",
            "WITH m AS (SELECT max(k) AS m FROM t) SELECT m FROM m UNION ALL SELECT -m FROM m",
        )
    )
    both = counted.union_all(most, counted)
    assert sorted(both.to_arrow()["n"].to_pylist()) == [-3, -2, -2, -1, -1, 1, 1, 2, 2, 3]
    assert len(both.plan.properties.shares) == 3
    with pytest.raises(BindError, match="2 columns, the first has 1"):
        counted.union(session.table("t"))


def test_update_and_delete_choose_by_condition_and_by_value(session):
    t = session.table("t")
    t.insert([(k, "x", k, None, None) for k in range(6)])
    assert t.update({"n": col("n") * 2, "s": "y"}, where=col("k") > 3) == 2
    assert t.update({"s": None}, k=0) == 1
    assert t.delete(where=col("n") > 8) == 1
    assert t.delete(k=1, s="x") == 1
    assert t.delete(k=1) == 0
    assert t.order_by("k").select("k", "s", "n").to_arrow().to_pydict() == {
        "k": [0, 2, 3, 4],
        "s": [None, "x", "x", "y"],
        "n": [Decimal(0), Decimal(2), Decimal(3), Decimal(8)],
    }
    assert t.delete() == 4


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda t: t.insert([(1,)]), "1 values for the 5 columns"),
        (lambda t: t.insert([{"kk": 1}]), "did you mean 'k'"),
        (lambda t: t.insert([{"k": "x"}]), "'x' is no BIGINT"),
        (lambda t: t.insert([{"at": 5}]), "write a CAST"),
        (lambda t: t.insert([{"s": object()}]), "no SQL value"),
        (lambda t: t.update({"k": 1}), "primary key column"),
        (lambda t: t.filter(col("n")), "needs a BOOLEAN"),
        (lambda t: t.filter(col("nn") > 1), "did you mean 'n'"),
        (lambda t: t.select(col("n") + 1), "needs a name"),
        (lambda t: t.group_by("s").agg(x=col("n")), "must stand in GROUP BY"),
        (lambda t: t.limit(-1), "negative"),
        (
            lambda t: TableRelation.of(CATALOG.resolve("revenue"), t.runner).insert([]),
            "changes with its query",
        ),
        (lambda t: TableRelation.of(CATALOG.resolve("log"), t.runner).delete(), "append-only"),
    ],
)
def test_a_misuse_is_a_bind_error(action, message, session):
    with pytest.raises(BindError, match=message):
        action(session.table("t"))


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda t: t.order_by(5), "5 is no order: write a name"),
        (lambda t: t.select(5), "5 is no column: write its name"),
        (lambda t: t.select({"k": 1}), "is no column"),
        (lambda t: t.join(5, "k"), "5 is no relation"),
        (lambda t: t.union(t, "t"), "'t' is no relation"),
        (lambda t: t.intersect(None), "None is no relation"),
        (lambda t: t.difference([1]), "is no relation"),
        (lambda t: t.join(t, col("k") == col("k")), r'col\("k"\) == col\("k"\) is no column to join by: on=\'id\''),
        (lambda t: t.join(t, 5), "5 is no column to join by"),
        (lambda t: t.join(t, {"k": 5}), "5 is no column to join by"),
        (lambda t: t.limit("x"), "'x' is no number of rows"),
        (lambda t: t.limit(1.5), "1.5 is no number of rows"),
        (lambda t: t.limit(1, offset=None), "None is no number of rows"),
        (lambda t: t.head("5"), "'5' is no number of rows"),
        (lambda t: col("s").is_in("EU"), r"a list of values, \['EU'\], not 'EU'"),
        (lambda t: col("s").is_in(5), r"a list of values, \[5\], not 5"),
        *(
            (lambda t, function=function: function("s"), r"col\('s'\) is the column of this name, lit\('s'\) the text")
            for function in (
                f.lower, f.upper, f.length, f.trim, f.abs, f.round, f.floor, f.ceil, f.sqrt,
                lambda text: f.substring(text, 1), lambda text: f.replace(text, "a", "b"),
                lambda text: f.extract("year", text), lambda text: f.date_trunc("day", text),
            )
        ),
    ],
)  # fmt: skip
def test_an_argument_of_another_kind_is_a_bind_error(action, message, session):
    with pytest.raises(BindError, match=message):
        action(session.table("t"))


def test_columns_can_be_a_list(session):
    t = session.table("t")
    assert t.select(["k", "s"]).plan == t.select("k", "s").plan
    assert t.select("k", ["s", col("n")], x=1).plan == t.select("k", "s", "n", x=1).plan
    assert t.group_by(["k", "s"]).agg(n=f.count()).plan == t.group_by("k", "s").agg(n=f.count()).plan
    assert t.order_by(["s", col("k").desc()]).plan == t.order_by("s", col("k").desc()).plan


def test_nothing_is_among_no_values(session):
    t = session.table("t")
    t.insert([(1, "a", None, None, None), (2, None, None, None, None)])
    assert t.filter(col("s").is_in([])).rows() == []
    assert len(t.filter(~col("s").is_in([]))) == 2
    with pytest.raises(BindError, match="did you mean"):
        t.filter(col("ss").is_in([]))


def test_names_of_values_are_those_of_columns_also_in_tuples(session):
    t = session.table("t")
    t.insert([(1, "a", None, None, None)])
    t.insert(t.select(s=lit("b"), k=col("k") + 1).fetchall())
    assert t.order_by("k").select("k", "s").fetchall() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (col("a") + 1, 'col("a") + 1'),
        (1 - (col("a") + 1) * 2, '1 - ((col("a") + 1) * 2)'),
        (-col("a") % lit(2), '(-col("a")) % 2'),
        (lit(1) + 2, "lit(1) + 2"),
        ((col("a") == "x") & (col('b "c"') > 2.5) | ~col("c"),
         '((col("a") == \'x\') & (col("b \\"c\\"") > 2.5)) | (~col("c"))'),
        (col("a").is_null() & col("b").is_not_null(), 'col("a").is_null() & col("b").is_not_null()'),
        (col("a").is_in([1, None]), 'col("a").is_in([1, None])'),
        ((col("a") + 1).between(1, 2), '(col("a") + 1).between(1, 2)'),
        (col("a").like("x%"), 'col("a").like(\'x%\')'),
        (col("a").is_distinct_from(1), 'col("a").is_distinct_from(1)'),
        (lit("2026-01-31", "date").cast("varchar"), 'lit(\'2026-01-31\', "DATE").cast("VARCHAR")'),
        (f.when(col("a") > 1, "x").when(col("b"), None).default("y"),
         'when(col("a") > 1, \'x\').when(col("b"), None).default(\'y\')'),
        (f.upper(f.coalesce(col("a"), "x")), 'upper(coalesce(col("a"), \'x\'))'),
        (f.sum("a", distinct=True).filter(col("b") > 1) / f.count(),
         'sum(col("a"), distinct=True).filter(col("b") > 1) / count()'),
        (f.array_agg("a", order_by=[col("b").desc(), col("c").asc(nulls_first=True)]),
         'array_agg(col("a"), order_by=[col("b").desc(), col("c").asc(nulls_first=True)])'),
        (f.grouping("a"), 'grouping(col("a"))'),
        ((col("a") + 1).alias("b"), '(col("a") + 1).alias("b")'),
        (lit(None), "lit(None)"),
    ],
)  # fmt: skip
def test_an_expression_is_shown_as_it_is_written(term, text):
    assert repr(term) == text


def test_a_relation_explains_its_plan(session):
    assert (
        session.table("t").filter(col("k") == 1).select("s").explain()
        == "Project s\n  PointGet t [k = 1] (k, s)"
    )


def test_frames(session):
    pytest.importorskip("pandas")
    t = session.table("t")
    t.insert([(1, "a", None, None, None)])
    assert t.select("k", "s").to_pandas().to_dict("list") == {"k": [1], "s": ["a"]}
    assert t.select("k").rows() == [{"k": 1}]


def test_a_long_chain_is_a_list_and_a_deep_expression_is_refused():
    chain = functools.reduce(operator.or_, [col("id") == number for number in range(2_000)])
    text = " OR ".join(f"id = {number}" for number in range(2_000))
    (statement,) = bind_sql(f"SELECT * FROM orders WHERE {text}", CATALOG)
    assert optimize(ORDERS.filter(chain).plan) == optimize(statement.plan)
    with pytest.raises(BindError, match="nested deeper"):
        ORDERS.select(x=functools.reduce(operator.add, [col("id")] * 1_000))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [(1, "a", 10, "x")]),
        ("left", [(1, "a", 10, "x"), (2, "b", None, None), (3, None, None, None)]),
        ("right", [(1, "a", 10, "x"), (None, "c", 11, "y")]),
        ("full", [(1, "a", 10, "x"), (2, "b", None, None), (3, None, None, None), (None, "c", 11, "y")]),
        ("semi", [(1, "a")]),
        ("anti", [(2, "b"), (3, None)]),
    ],
)
def test_relations_are_joined_by_columns_of_one_name(session, how, expected):
    session.sql("CREATE TABLE one (k INT PRIMARY KEY, s VARCHAR)")
    session.sql("CREATE TABLE other (k INT PRIMARY KEY, s VARCHAR, v VARCHAR)")
    session.table("one").insert([(1, "a"), (2, "b"), (3, None)])
    session.table("other").insert([(10, "a", "x"), (11, "c", "y")])
    joined = session.table("one").join(session.table("other"), "s", how)
    assert joined.columns == (("k", "s", "k_right", "v") if joined.schema.names[2:] else ("k", "s"))
    found = [tuple(row.values()) for row in joined.to_arrow().to_pylist()]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_relations_are_joined_by_columns_of_two_names_or_of_none(session):
    session.sql("CREATE TABLE one (k INT PRIMARY KEY, s INT)")
    session.table("one").insert([(1, 2), (2, 1), (3, 9)])
    one = session.table("one")
    by_key = one.join(one, {"s": "k"})
    assert by_key.columns == ("k", "s", "k_right", "s_right")
    assert sorted(tuple(row.values()) for row in by_key.rows()) == [(1, 2, 2, 1), (2, 1, 1, 2)]
    assert len(one.join(one).rows()) == 9
    counted = one.group_by("s").agg(n=f.count())
    assert len(counted.join(counted, "s").join(counted, "s", suffix="_third").rows()) == 3


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda one: one.join(one, "nothing"), "no column 'nothing'"),
        (lambda one: one.join(one, "k", "outer"), "'outer' is no join: inner, left"),
        (lambda one: one.join(one, "k", suffix=""), "both relations have a column 's'"),
    ],
)
def test_a_join_that_cannot_be_is_refused(session, join, message):
    session.sql("CREATE TABLE one (k INT PRIMARY KEY, s INT)")
    with pytest.raises(BindError, match=message):
        join(session.table("one"))
