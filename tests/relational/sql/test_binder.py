"""SQL text to bound statements, and errors that point at the text."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from relational.catalog.alter import with_column
from relational.catalog.names import ObjectName
from relational.catalog.objects import ConflictBehaviour, TableKind
from relational.errors import BindError, ParseError, RelationalError
from relational.expr.expression import Literal
from relational.plan.logical import Scan
from relational.plan.serialize import plan_from_text
from relational.sql import bind_sql, describe, show
from relational.sql.ddl.show_create import definition_of
from relational.sql.statement import (
    AddColumn,
    CreateMaterializedView,
    CreateTable,
    Delete,
    Describe,
    Drop,
    Explain,
    Flush,
    Insert,
    Resume,
    Select,
    Show,
    ShowEpochs,
    ShowErrors,
    ShowJobs,
    ShowKind,
    ShowMemory,
    Update,
)
from relational.types import DataType
from tests.support.suites.sql_cases import case_catalog, catalog_of, read_cases


@pytest.fixture(scope="module")
def catalog():
    return case_catalog()


def one(text, catalog, **options):
    (statement,) = bind_sql(text, catalog, **options)
    return statement


@pytest.mark.parametrize(("statement", "expected"), read_cases("binder_errors.txt"))
def test_an_error_is_typed_and_points_at_the_text(statement, expected, catalog):
    with pytest.raises(RelationalError) as caught:
        list(bind_sql(statement, catalog))
    assert f"{type(caught.value).__name__}: {caught.value}" == expected


def test_a_table_without_a_key_gets_a_hidden_one():
    table = one("CREATE TABLE t (a INT, b TEXT)", case_catalog()).table
    assert [column.name for column in table.columns] == ["a", "b", "_row_id"]
    assert (table.row_id_index, table.pk_indices, table.stream_key) == (2, (2,), (2,))
    assert table.visible_indices == (0, 1)
    assert table.value_indices == (0, 1)


@pytest.mark.parametrize(
    ("text", "key", "not_null"),
    [
        ("CREATE TABLE t (id INT, x INT, CONSTRAINT pk PRIMARY KEY (id))", (0,), ()),
        ("CREATE TABLE t (id INT CONSTRAINT pk PRIMARY KEY, x INT CONSTRAINT there NOT NULL DEFAULT 5)", (0,), ("x",)),
        ('CREATE TABLE t (unique INT, "check" INT, CONSTRAINT "a b" PRIMARY KEY ("check"))', (1,), ()),
    ],
)
def test_a_constraint_may_have_a_name(text, key, not_null):
    table = one(text, case_catalog()).table
    assert table.pk_indices == key
    assert tuple(column.name for column in table.columns if column.not_null) == not_null


@pytest.mark.parametrize(
    "text",
    [
        "CREATE MATERIALIZED VIEW IF NOT EXISTS orders AS SELECT gone FROM pairs",
        "CREATE VIEW IF NOT EXISTS orders AS SELECT 1 + 'x'",
        "CREATE TABLE IF NOT EXISTS orders (id SERIAL)",
        "CREATE INDEX IF NOT EXISTS orders ON gone (x)",
    ],
)
def test_what_there_is_stays_whatever_is_written(text):
    statement = one(text, case_catalog())
    assert (statement.view.name, statement.if_not_exists) == ("orders", True)
    with pytest.raises(BindError):
        one(text.replace(" orders ", " others "), case_catalog())
    with pytest.raises(BindError):
        one(text.replace("IF NOT EXISTS ", ""), case_catalog())


def test_default_values_are_those_of_all_columns():
    statement = one("INSERT INTO shop.sold DEFAULT VALUES RETURNING price", case_catalog())
    ((key, price),) = statement.query.rows
    assert (key.value, price.value) == (None, Decimal("1.00"))


def test_a_text_goes_on_in_another_line():
    (found,) = one("SELECT 'it''s'\n  'b' -- c\n\t'd' AS x", case_catalog()).plan.expressions
    assert found == Literal("it'sbd", DataType.VARCHAR)


def test_a_table_as_it_is_declared():
    text = """CREATE TABLE IF NOT EXISTS "T" ("Id" BIGINT, f DOUBLE PRECISION, n NUMERIC(12, 3),
        PRIMARY KEY (f, "Id")) APPEND ONLY ON CONFLICT IGNORE WITH (connector = 'files', a.b = 3)"""
    statement = one(text, case_catalog())
    table = statement.table
    assert isinstance(statement, CreateTable) and statement.if_not_exists
    assert table.name == "T"
    assert table.schema.types == (DataType.BIGINT, DataType.DOUBLE, DataType.numeric(12, 3))
    assert table.pk_indices == (1, 0)
    assert table.value_indices == (1, 2), "a floating key is stored in the value too"
    assert table.is_append_only and table.conflict is ConflictBehaviour.IGNORE
    assert table.connector == {"connector": "files", "a.b": "3"}


def test_a_view_is_a_table_with_the_key_of_its_query(catalog):
    statement = one("CREATE MATERIALIZED VIEW v AS SELECT region, amount FROM orders", catalog)
    assert isinstance(statement, CreateMaterializedView)
    view = statement.view
    assert view.kind is TableKind.MATERIALIZED_VIEW
    assert [(column.name, column.is_hidden) for column in view.columns] == [
        ("region", False),
        ("amount", False),
        ("_id", True),
    ]
    assert view.pk_indices == view.stream_key == view.distribution_key == (2,)
    assert view.dependencies == (catalog.resolve("orders").id,)
    assert view.definition == "CREATE MATERIALIZED VIEW v AS SELECT region, amount FROM orders"
    assert plan_from_text(view.plan, catalog.get) == statement.plan


def test_a_view_of_a_view(catalog):
    statement = one("CREATE MATERIALIZED VIEW v AS SELECT max(revenue) AS best FROM revenue", catalog)
    assert statement.view.pk == () and statement.view.value_indices == (0,)
    assert statement.view.dependencies == (catalog.resolve("revenue").id,)


def test_every_literal_survives_a_plan_as_text():
    catalog = catalog_of(
        "CREATE TABLE t (i INT PRIMARY KEY, d DOUBLE PRECISION, n NUMERIC(38, 9), s TEXT, at TIMESTAMP, "
        "tz TIMESTAMPTZ, day DATE, clock TIME, span INTERVAL, b BOOLEAN)"
    )
    text = """CREATE MATERIALIZED VIEW v AS SELECT i, CASE WHEN b IS TRUE THEN s || 'x''y' ELSE NULL END AS s2
        FROM t WHERE d > '-Infinity' AND n < 12345678901234567890.123456789 AND at > '2020-01-01 00:00:00.5'
        AND tz > '2020-01-01 00:00:00+02' AND day > '2020-01-01' AND clock > '01:02:03'
        AND span < '1 mon 2 days' AND i IN (1, NULL) AND CAST(i AS BIGINT) > 5 AND i::NUMERIC(4, 1) < 2.5"""
    statement = one(text, catalog)
    assert plan_from_text(statement.view.plan, catalog.get) == statement.plan


def test_insert_gives_every_stored_column(catalog):
    statement = one("INSERT INTO plain (w) VALUES ('a'), (NULL)", catalog)
    assert isinstance(statement, Insert)
    assert statement.query.schema == catalog.resolve("plain").schema
    assert [column.to_pylist() for column in statement.query.columns] == [[None, None], ["a", None], [None, None]]


def test_insert_of_expressions_gives_every_stored_column(catalog):
    statement = one("INSERT INTO plain (w) VALUES (lower('A')), (NULL)", catalog)
    assert statement.query.rows == (
        (Literal(None, DataType.INT), Literal("a", DataType.VARCHAR), Literal(None, DataType.BIGINT)),
        (Literal(None, DataType.INT), Literal(None, DataType.VARCHAR), Literal(None, DataType.BIGINT)),
    )


def test_insert_converts_cells_to_their_columns(catalog):
    statement = one("INSERT INTO pairs VALUES (1.0, 2, '3.456')", catalog)
    assert [column.to_pylist() for column in statement.query.columns] == [[1], [2.0], [Decimal("3.46")]]
    statement = one("INSERT INTO pairs VALUES (0 + 1, 2, '3.456')", catalog)
    assert [cell.value for cell in statement.query.rows[0]] == [1, 2.0, Decimal("3.46")]


def test_insert_of_a_query(catalog):
    statement = one("INSERT INTO orders (amount, id) SELECT c, a FROM pairs WHERE a > 1", catalog)
    assert statement.query.schema == catalog.resolve("orders").schema


def test_update_and_delete(catalog):
    statement = one("UPDATE orders AS o SET amount = o.amount + 1, region = NULL WHERE id = 3", catalog)
    assert isinstance(statement, Update)
    names = statement.table.schema.names
    assert [(column, value.describe(names)) for column, value in statement.assignments] == [
        (2, "(amount + 1)"),
        (1, "NULL"),
    ]
    assert statement.predicate.describe(names) == "(id = 3)"
    assert one("DELETE FROM orders", catalog) == Delete(catalog.resolve("orders"), None)


def test_statements_see_what_those_before_them_made():
    catalog = case_catalog()
    names = []
    for statement in bind_sql(
        "CREATE TABLE t (a INT); -- ; 'x'\n; INSERT INTO t VALUES (1); FLUSH;", catalog
    ):
        names.append(type(statement))
        if isinstance(statement, CreateTable):
            catalog.create(statement.table)
    assert names == [CreateTable, Insert, Flush]


def test_an_error_in_a_later_statement_points_into_the_whole_text(catalog):
    with pytest.raises(BindError) as caught:
        list(bind_sql("SELECT 1;\nSELECT /* ; */ ';',\n  amout FROM orders", catalog))
    assert str(caught.value).split("\n")[1:] == ["3 |   amout FROM orders", "      ^^^^^"]


def test_names_are_folded_unless_quoted(catalog):
    plan = one('SELECT "Id" AS "Id", MSG FROM LOG', catalog).plan
    assert plan.schema.names == ("Id", "msg")


def test_now_is_the_time_of_the_statement(catalog):
    now = datetime(2020, 2, 29, 12, 30, tzinfo=UTC)
    plan = one("SELECT now() - INTERVAL '1 year' AS t, current_date AS d", catalog, now=now).plan
    assert [each.value for each in plan.expressions] == [
        datetime(2019, 2, 28, 12, 30, tzinfo=UTC),
        now.date(),
    ]
    with pytest.raises(BindError, match="not allowed here"):
        one("CREATE VIEW v AS SELECT id FROM orders WHERE at < now()", catalog, now=now)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("SHOW TABLES", ShowKind.TABLES), ("show materialized  views", ShowKind.MATERIALIZED_VIEWS)],
)
def test_show(text, kind, catalog):
    statement = one(text, catalog)
    assert statement == Show(kind)
    names = show(statement, catalog)["name"].to_pylist()
    tables = ["fed", "gauges", "log", "orders", "pairs", "plain", "visits"]
    assert names == (tables if kind is ShowKind.TABLES else ["revenue"])


def test_show_jobs_and_errors(catalog):
    assert one("SHOW JOBS", catalog) == ShowJobs()
    assert one("show errors;", catalog) == ShowErrors()
    assert one("show epochs", catalog) == ShowEpochs()


def test_show_memory(catalog):
    assert one("SHOW MEMORY", catalog) == ShowMemory()
    assert one("show memory from revenue;", catalog) == ShowMemory(catalog.resolve("revenue"))
    with pytest.raises(BindError, match="did you mean 'revenue'"):
        one("SHOW MEMORY FROM revenu", catalog)
    with pytest.raises(ParseError, match="nothing is expected here"):
        one("SHOW MEMORY OF revenue", catalog)


@pytest.mark.parametrize(
    ("text", "name", "skip"),
    [
        ("ALTER TABLE fed RESUME SKIP 3 ROWS", "fed", 3),
        ("ALTER TABLE orders RESUME", "orders", 0),
        ("alter materialized view revenue resume", "revenue", 0),
    ],
)
def test_resume(text, name, skip, catalog):
    assert one(text, catalog) == Resume(catalog.resolve(name), skip)


def test_show_sources_lists_sources_and_tables_with_a_connector(catalog):
    assert show(one("SHOW SOURCES", catalog), catalog)["name"].to_pylist() == ["clicks", "fed", "gauges"]


def test_describe(catalog):
    statement = one("DESC plain", catalog)
    assert isinstance(statement, Describe)
    assert describe(statement.table).to_pylist()[2] == {
        "name": "_row_id",
        "type": "BIGINT",
        "primary_key": 1,
        "is_hidden": True,
        "default": None,
        "not_null": False,
        "comment": None,
    }


def test_constraints_of_columns_are_kept_and_shown():
    text = """CREATE TABLE t (id BIGINT PRIMARY KEY NOT NULL, a VARCHAR(5) NOT NULL DEFAULT 'x', b CHAR(3), c CHAR NULL,
        d CHARACTER VARYING (7), e DATETIME, f VARCHAR)"""
    table = one(text, case_catalog()).table
    assert [column.not_null for column in table.columns] == [True, True, False, False, False, False, False]
    assert [column.max_length for column in table.columns] == [None, 5, 3, 1, 7, None, None]
    assert table.columns[5].data_type == DataType.TIMESTAMP
    assert describe(table)["type"].to_pylist()[1:4] == ["VARCHAR(5)", "VARCHAR(3)", "VARCHAR(1)"]
    altered = with_column(table, "g", DataType.VARCHAR, "ab", not_null=True, max_length=2)
    again = one(definition_of(altered, ObjectName.parse("t")), case_catalog()).table
    assert [replace(column, column_id=0) for column in again.columns] == [
        replace(column, column_id=0) for column in altered.columns
    ]


def test_a_new_column_has_its_constraints(catalog):
    statement = one("ALTER TABLE orders ADD COLUMN note VARCHAR(9) DEFAULT 'none' NOT NULL", catalog)
    assert statement == AddColumn(catalog.resolve("orders"), "note", DataType.VARCHAR, "none", True, 9)


def test_values_that_are_left_out_are_defaults(catalog):
    statement = one("INSERT INTO orders VALUES (1), (2)", catalog)
    assert [column.to_pylist() for column in statement.query.columns] == [[1, 2], *[[None, None]] * 3]
    statement = one("INSERT INTO orders SELECT a, 'x' FROM pairs", catalog)
    assert [each.describe() for each in statement.query.expressions][2:] == ["NULL", "NULL"]


def test_having_and_group_by_take_the_names_of_items(catalog):
    named = one(
        "SELECT lower(region) AS r, sum(amount) AS total FROM orders GROUP BY r HAVING total > 5 OR r = 'x'", catalog
    )
    spelled = one(
        "SELECT lower(region) AS r, sum(amount) AS total FROM orders GROUP BY lower(region)"
        " HAVING sum(amount) > 5 OR lower(region) = 'x'",
        catalog,
    )
    assert named.plan == spelled.plan


def test_explain_holds_the_statement(catalog):
    statement = one("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT id FROM orders", catalog)
    assert isinstance(statement, Explain)
    assert statement.statement.plan == Scan(catalog.resolve("orders"), (0,))


def test_drop(catalog):
    statement = one("DROP TABLE IF EXISTS nothing CASCADE", catalog)
    assert statement == Drop(TableKind.TABLE, ObjectName("nothing"), None, True)
    statement = one("DROP MATERIALIZED VIEW revenue", catalog)
    assert statement.table == catalog.resolve("revenue") and not statement.cascade


def test_a_select_without_from_is_one_row(catalog):
    assert isinstance(one("SELECT 1 AS one", catalog), Select)
