"""What results look like, and what other libraries make of them."""

import datetime as dt

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from relational import col
from relational.errors import InvalidValue
from relational.result import COUNTED_ROWS, DISPLAY_ROWS, ResultSet
from relational.types.arrow_types import JSONB_ARROW
from tests.support.drivers.batch_session import BatchSession

ROWS = [(1, "one"), (2, None), (3, "NULL")]
SHOWN = """\
┌────────┬─────────┐
│      k │ s       │
│ BIGINT │ VARCHAR │
├────────┼─────────┤
│      1 │ one     │
│      2 │ NULL    │
│      3 │ 'NULL'  │
└────────┴─────────┘
3 rows"""


class CountingSession(BatchSession):
    """Knows the plans of its reads, and fails them on request."""

    def __init__(self):
        super().__init__()
        self.queries, self.previews, self.error = [], [], None

    def query(self, plan, values=()):
        self.queries.append(plan)
        return self._read(plan)

    def preview(self, plan):
        self.previews.append(plan)
        return self._read(plan)

    def _read(self, plan):
        if self.error is not None:
            raise self.error
        return BatchSession.query(self, plan)


@pytest.fixture
def session():
    found = CountingSession()
    found.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, s VARCHAR)")
    found.table("t").insert(ROWS)
    return found


@pytest.fixture
def t(session):
    return session.table("t").order_by("k")


@pytest.fixture(params=["relation", "result set"])
def result(request, t):
    return t if request.param == "relation" else ResultSet(t.to_arrow())


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv(DISPLAY_ROWS, raising=False)


def test_repr_and_str_are_the_rows(result):
    assert repr(result) == str(result) == SHOWN


def test_show_prints_as_many_rows_in_as_wide_lines_as_are_asked_for(result, capsys):
    result.show(1, width=15)
    assert capsys.readouterr().out == (
        "┌────────┬───┐\n│      k │ … │\n│ BIGINT │ … │\n├────────┼───┤\n│      1 │ … │\n└────────┴───┘\n"
        "3 rows, first 1 shown, 1 of 2 columns\n"
    )
    result.show()
    assert capsys.readouterr().out == SHOWN + "\n"


def test_how_many_rows_are_shown_is_the_users(result, monkeypatch):
    monkeypatch.setenv(DISPLAY_ROWS, "1")
    assert repr(result).endswith("\n3 rows, first 1 shown")
    assert "<small>3 rows, first 1 shown</small>" in result._repr_html_()
    monkeypatch.setenv(DISPLAY_ROWS, "many")
    assert repr(result) == SHOWN


def test_a_terminal_of_another_width(result, monkeypatch):
    monkeypatch.setenv("COLUMNS", "14")
    assert "1 of 2 columns" in repr(result)


def test_a_notebook_gets_html(result):
    assert result._repr_html_().startswith("<div><table>") and "<td" in result._repr_html_()


def test_a_look_reads_few_rows_and_the_columns_that_fit(session):
    names = [f"c{number}" for number in range(100)]
    session.sql(f"CREATE TABLE wide (k INT PRIMARY KEY, {', '.join(f'{name} INT' for name in names)})")
    wide = session.table("wide")
    wide.insert([tuple(range(101))])
    assert repr(wide).endswith("\n1 row, 12 of 101 columns")
    (plan,) = session.previews
    assert plan.explain().startswith("Project k, c0, ") and len(plan.schema) == 26
    assert f"Limit {COUNTED_ROWS + 1}" in plan.explain()
    assert not session.queries


def test_more_rows_than_are_counted(session):
    session.sql("CREATE TABLE many (k INT PRIMARY KEY)")
    session.table("many").insert([(number,) for number in range(COUNTED_ROWS + 1)])
    assert repr(session.table("many")).endswith("\n10,000+ rows, first 10 shown")
    assert "10,000+ rows" in session.table("many")._repr_html_()
    session.table("many").delete(k=0)
    assert repr(session.table("many")).endswith("\n10,000 rows, first 10 shown")


def test_an_error_stands_in_place_of_the_rows(session, t):
    session.error = ValueError("a <bad>\x1b[0m\nstore")
    assert repr(t) == "Relation(k BIGINT, s VARCHAR)\nValueError: a <bad>\\x1b[0m\nstore"
    assert repr(session.table("t")).startswith("TableRelation t(k BIGINT, s VARCHAR)\nValueError")
    assert t._repr_html_() == (
        "<pre>Relation(k BIGINT, s VARCHAR)\nValueError: a &lt;bad&gt;\\x1b[0m\nstore</pre>"
    )
    for read in (t.show, t.rows, t.fetchall, t.fetchone, lambda: list(t), lambda: len(t)):
        with pytest.raises(ValueError, match="a <bad>"):
            read()


def test_division_by_zero_is_shown_too(t):
    assert repr(t.select(x=col("k") / 0)) == "Relation(x BIGINT)\nEvaluationError: division by zero (row 0)"


def test_a_grouped_relation_does_not_read(session, t):
    assert repr(t.group_by("k", "s")) == "GroupedRelation(by k, s)"
    assert repr(t.group_by()) == "GroupedRelation(by nothing)"
    assert not session.queries and not session.previews


def test_rows_are_tuples_and_dicts(result):
    assert list(result) == result.fetchall() == ROWS
    assert result.rows() == [{"k": k, "s": s} for k, s in ROWS]
    assert len(result) == 3 and result
    assert [tuple(each) for each in result.head(2)] == ROWS[:2]


def test_an_empty_result_is_false(t):
    empty = t.filter(col("k") > 9)
    assert not empty and len(empty) == 0 and list(empty) == empty.fetchall() == [] and empty.fetchone() is None
    assert not ResultSet(empty.to_arrow()) and repr(empty).endswith("\n0 rows")


def test_columns_of_one_name_are_all_in_the_tuples(t):
    twice = t.select("k").to_arrow().append_column("k", pa.array([7, 8, 9]))
    assert list(ResultSet(twice)) == [(1, 7), (2, 8), (3, 9)]


def test_rows_without_columns():
    assert list(ResultSet(pa.table({"a": [1, 2]}).select([]))) == [(), ()]


def test_fetch_goes_on_where_the_last_one_ended(result, session):
    before = len(session.queries)
    assert (result.fetchone(), result.fetchmany(1), result.fetchmany(5), result.fetchone()) == (
        ROWS[0], ROWS[1:2], ROWS[2:], None
    )
    assert result.fetchone() == ROWS[0] and result.fetchall() == ROWS[1:] and result.fetchall() == ROWS
    assert result.fetchmany(0) == [] and result.fetchmany(2) == ROWS[:2]
    assert result.fetchmany(0) == [] and result.fetchmany(2) == ROWS[2:]
    if not isinstance(result, ResultSet):
        assert len(session.queries) - before == 4     # one for each time it begins


def test_many_rows_are_fetched_in_parts():
    numbers = ResultSet(pa.table({"a": pa.array(range(5_000))}))
    assert [row[0] for row in numbers] == list(range(5_000))


def test_frames(result):
    expected = pa.table({"k": [1, 2, 3], "s": ["one", None, "NULL"]})
    assert result.to_arrow().equals(expected) and pa.table(result).equals(expected)
    assert result.df().equals(expected.to_pandas()) and result.to_pandas().equals(expected.to_pandas())
    assert result.pl().equals(pl.from_arrow(expected)) and pl.DataFrame(result).equals(pl.from_arrow(expected))
    assert pa.RecordBatchReader.from_stream(result).read_all().equals(expected)
    assert isinstance(result.df(), pd.DataFrame)


def test_polars_gets_durations_and_texts():
    interval, days = pa.month_day_nano_interval(), [pa.MonthDayNano([0, -1, 3_000_000_000]), None]
    month = pa.MonthDayNano([1, 0, 0])
    document = pa.array(['{"a":1}', None]).cast(pa.utf8())
    jsonb = pa.ExtensionArray.from_storage(JSONB_ARROW, document)
    table = pa.table({
        "i": pa.array([month, *days], interval).slice(1), "j": jsonb, "s": pa.StructArray.from_arrays([jsonb], ["j"]),
        "l": pa.array([[month], days, None], pa.list_(interval)).slice(1), "n": pa.array([1, 2]),
    })
    found = ResultSet(table).pl()
    assert found.schema == {
        "i": pl.Duration("us"), "j": pl.String, "s": pl.Struct({"j": pl.String}), "l": pl.List(pl.Duration("us")),
        "n": pl.Int64}
    span = dt.timedelta(days=-1, seconds=3)
    assert found.rows() == [(span, '{"a":1}', {"j": '{"a":1}'}, [span, None], 1), (None, None, {"j": None}, None, 2)]
    assert found["j"].str.json_decode(pl.Struct({"a": pl.Int64})).to_list()[0] == {"a": 1}
    assert ResultSet(table.slice(0, 0)).pl().schema == found.schema
    for wrong in (month, pa.MonthDayNano([0, 2**31 - 1, 0])):
        with pytest.raises(InvalidValue, match=r"column 'i': a Duration of Polars .*CAST it AS VARCHAR"):
            ResultSet(pa.table({"i": pa.array([wrong])})).pl()


def test_a_requested_schema_is_that_of_the_stream(result):
    wanted = pa.schema([("k", pa.int64()), ("s", pa.large_string())])
    assert pa.RecordBatchReader.from_stream(result, wanted).schema == wanted


def test_duckdb_reads_it_by_its_name(result):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    found = result
    assert duckdb.sql("SELECT k, s FROM found ORDER BY k DESC").fetchall() == ROWS[::-1]
    assert duckdb.from_arrow(found.to_arrow()).fetchall() == ROWS


def test_a_result_set_is_an_arrow_table_that_shows_itself(t):
    table = t.to_arrow()
    found = ResultSet(table)
    assert found.num_rows == 3 and found.column_names == ["k", "s"] and found.schema == table.schema
    assert found["k"].to_pylist() == found.column("k").to_pylist() == found[0].to_pylist() == [1, 2, 3]
    assert found.to_pylist() == found.rows()
    assert found == ResultSet(table) and found == table and found != table.slice(1) and found != 1
    with pytest.raises(AttributeError, match="nothing"):
        found.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="_private"):
        found._private  # noqa: B018
    with pytest.raises(TypeError, match="unhashable"):
        hash(found)


def test_a_text_is_shown_as_lines():
    plan = ResultSet(pa.table({"plan": ["Filter a > 1", "  Scan t\x1b[0m"]}), "plan")
    assert repr(plan) == "Filter a > 1\n  Scan t\\x1b[0m"
    assert plan._repr_html_() == "<pre>Filter a &gt; 1\n  Scan t\\x1b[0m</pre>"
    assert repr(plan.head(1)) == "Filter a > 1" and plan.rows()[0] == {"plan": "Filter a > 1"}
    assert repr(ResultSet(pa.table({"plan": ["a\nb"]}), "plan")) == "a\nb"
