"""Tables of frames and schemas, and rows of dicts and dataclasses."""

import datetime as dt
import uuid
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import stream
from relational.errors import BindError, Duplicate
from stream.errors import DuplicateKey, InvalidStatement
from tests.support.worlds.timed_session import NEVER_MS

ROWS = [(1, "a", date(2024, 1, 1)), (2, None, None)]
ARROW = pa.table({"id": [1, 2], "v": ["a", None], "d": pa.array([date(2024, 1, 1), None])})
SHAPE = "(id BIGINT, v VARCHAR, d DATE)"


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS) as session:
        yield session


def of_pandas(index=None):
    frame = ARROW.to_pandas(date_as_object=True)
    return frame if index is None else frame.set_index(index)


FRAMES = {
    "arrow": ARROW, "batch": ARROW.to_batches()[0], "polars": pl.from_arrow(ARROW), "lazy": pl.from_arrow(ARROW).lazy(),
    "pandas": of_pandas(), "pandas by id": of_pandas("id"), "pandas, texts as index": of_pandas().set_axis(["x", "y"]),
    "pandas, times as index": of_pandas().set_index(pd.date_range("2024", periods=2)),
    "pandas, two levels": of_pandas(["id", "v"]),
}  # fmt: skip


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_table_has_the_columns_and_rows_of_a_frame(db, frame):
    table = db.create_table("t", frame, primary_key="id")
    assert str(table.schema) == SHAPE
    assert sorted(table) == ROWS, "committed when it returns"
    assert table.get(1)["v"] == "a"


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_with_any_index_is_inserted(db, frame):
    table = db.create_table("t", ARROW.schema, primary_key="id")
    assert table.insert(frame) == 2
    db.flush()
    assert sorted(table) == ROWS


def test_a_named_range_is_a_column_and_an_unnamed_one_is_not(db):
    frame = pd.DataFrame({"v": [1.5, 2.5]}, index=pd.RangeIndex(5, 9, 2, name="id"))
    assert sorted(db.create_table("t", frame, primary_key="id")) == [(5, 1.5), (7, 2.5)]
    assert db.create_table("u", frame.reset_index(drop=True)).columns == ("v",)


@pytest.mark.parametrize("schema", [
    ARROW.schema, ARROW.slice(0, 0), stream.Schema.from_arrow(ARROW.schema),
    {"id": "bigint", "v": stream.DataType.VARCHAR, "d": "date"},
], ids=["arrow", "no rows", "schema", "names"])  # fmt: skip
def test_a_schema_makes_an_empty_table(db, schema):
    table = db.create_table("t", schema, primary_key="id", defaults={"v": "none"})
    assert str(table.schema) == SHAPE and len(table) == 0
    table.insert({"id": 7})
    db.flush()
    assert list(table) == [(7, "none", None)]


def test_a_result_makes_a_table(db):
    db.create_table("t", ARROW)
    assert sorted(db.create_table("u", db.sql("SELECT id, v FROM t WHERE id < 2"))) == [(1, "a")]
    assert sorted(db.create_table("w", db.query("SELECT id, v FROM t"))) == [(1, "a"), (2, None)]


def test_a_table_without_a_key_has_all_rows(db):
    twice = pa.concat_tables([ARROW, ARROW])
    table = db.create_table("t", twice)
    assert len(table) == 4
    table.insert(twice)
    db.flush()
    assert len(table) == 8


def test_a_view_over_a_table_of_a_frame_follows_it(db):
    table = db.create_table("t", ARROW, primary_key="id")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
    table.insert((3, "c", None) for _ in range(1))
    db.flush()
    assert db.query("SELECT n FROM m").fetchall() == [(3,)]


@pytest.mark.parametrize(("columns", "options", "error", "message"), [
    (pa.table({"id": [1, 1]}), {"primary_key": "id"}, DuplicateKey, "1"),
    (pa.table({"id": [None, 1]}), {"primary_key": "x"}, BindError, "'x' is no column"),
    (pa.table({"id": [1], "n": pa.nulls(1, pa.decimal256(50, 0))}), {}, BindError, "column 'n': .* leave the column"),
    (pa.schema({"t": pa.bool8()}), {}, BindError, "column 't': no SQL type"),
    (pl.DataFrame({"id": [1], "o": [object()]}), {}, BindError, "column 'o' has Python objects"),
    (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), {}, BindError, "two columns are called 'a'"),
    (pd.DataFrame({"a": [1, "x"]}), {}, BindError, "Conversion failed for column a"),
    (7, {}, BindError, "a mapping of names to types, a schema, or a frame with its rows, not int"),
    (["id"], {}, BindError, "not list"),
    (ARROW, {"connector": {"connector": "datagen"}}, BindError, "written by its connector only"),
])  # fmt: skip
def test_what_makes_no_table_leaves_nothing(db, columns, options, error, message):
    with pytest.raises(error, match=message):
        db.create_table("t", columns, **options)
    assert db.names() == ()


NONE, SPAN, KEY = [None, None], dt.timedelta(days=1, seconds=1), uuid.UUID(int=7)
UNTYPED = {"none": NONE, "span": [SPAN, None], "empty": [[], None]}


@pytest.mark.parametrize("frame", [
    pd.DataFrame({"k": [1, 2], "key": [KEY, None], **UNTYPED}),
    pl.DataFrame({"k": [1, 2], "key": [str(KEY), None], **UNTYPED}),
    pa.table({"k": [1, 2], "key": pa.array([KEY, None], pa.uuid()), **UNTYPED}),
], ids=["pandas", "polars", "arrow"])  # fmt: skip
def test_columns_without_values_durations_and_uuids_are_columns(db, frame):
    assert db.query("SELECT k FROM frame").fetchall() == [(1,), (2,)]
    table = db.create_table("t", frame, primary_key="k")
    assert str(table.schema) == "(k BIGINT, key VARCHAR, none VARCHAR, span INTERVAL, empty VARCHAR[])"
    assert table.insert(frame.iloc[:0] if isinstance(frame, pd.DataFrame) else frame[:0]) == 0
    rows = db.query("SELECT * FROM t ORDER BY k").to_arrow()
    assert rows == db.query("SELECT * FROM frame").to_arrow()
    assert rows.to_pylist()[0] == {"k": 1, "key": str(KEY), "none": None, "empty": [],
                                   "span": pa.MonthDayNano([0, 1, 1_000_000_000])}


def test_an_empty_column_of_objects_is_one_of_texts(db):
    empty = pd.DataFrame({"a": pd.Series([], dtype=object), "b": pd.Series([], dtype="int64")})
    assert str(db.create_table("t", empty).schema) == "(a VARCHAR, b BIGINT)"
    assert db.query("SELECT b FROM empty").fetchall() == []


def test_a_name_that_is_taken(db):
    db.create_table("t", ARROW)
    with pytest.raises(Duplicate):
        db.create_table("t", ARROW)
    assert len(db.table("t")) == 2


# -- rows ----------------------------------------------------------------------------------------------


@dataclass
class Part:
    a: int
    b: str = "b"


@dataclass
class Row:
    id: int
    part: Part | None = None
    tags: list[str] = field(default_factory=list)


@pytest.mark.parametrize("rows", [
    {"id": 1, "part": {"a": 2, "b": "b"}, "tags": []},
    [{"id": 1, "part": {"a": 2, "b": "b"}, "tags": []}],
    Row(1, Part(2)), [Row(1, Part(2))], iter([Row(1, Part(2))]), [(1, Part(2).__dict__, [])],
], ids=["dict", "dicts", "dataclass", "dataclasses", "iterator", "tuples"])  # fmt: skip
def test_a_row_is_a_dict_a_dataclass_or_a_tuple(db, rows):
    table = db.create_table("t", {"id": "int", "part": "struct<a int, b text>", "tags": "text[]"}, primary_key="id")
    assert table.insert(rows) == 1
    db.flush()
    assert list(table) == [(1, {"a": 2, "b": "b"}, [])]


Named = namedtuple("Named", "part id")


def test_a_tuple_with_names_is_matched_by_name(db):
    table = db.create_table("people", {"first": "text", "last": "text"}, defaults={"first": "?"})
    swapped = db.sql("SELECT 'Lovelace' AS last, 'Ada' AS first")
    for row in swapped:
        assert table.insert([row]) == table.insert(row) == 1
    assert table.insert(swapped.fetchall()) == 1
    assert table.insert(db.query("SELECT 'Hopper' AS last").fetchall()) == 1
    assert table.insert([("Grace", "Hopper")]) == 1
    db.flush()
    assert sorted(table) == [("?", "Hopper"), *[("Ada", "Lovelace")] * 3, ("Grace", "Hopper")]
    by_id = db.create_table("t", {"id": "int", "part": "text"}, primary_key="id")
    assert by_id.insert([Named("a", 1), (4, "d")]) == 2
    db.flush()
    assert sorted(by_id) == [(1, "a"), (4, "d")]
    for rows, message in (
        (db.query("SELECT 'x' AS first, 'y' AS lost").fetchall(), "no column 'lost'; there are first, last"),
        (db.query("SELECT 'x' AS first, 'y' AS first").fetchall(), "two columns are called 'first'"),
    ):
        with pytest.raises(InvalidStatement, match=message):
            table.insert(rows)


def test_rows_that_do_not_fit_are_named(db):
    table = db.create_table("t", {"id": "int"})
    for rows, message in (({"x": 1}, "no column 'x'"), (Row(1), "no column 'part'"), ([Row], "1 values for 1|INT"),
                          ({"id": [1, 2]}, "id")):
        with pytest.raises(InvalidStatement, match=message):
            table.insert(rows)
    assert table.insert({}) == 1, "all columns have their defaults"


# -- memory of others ----------------------------------------------------------------------------------


def insert_by_method(db, frame):
    return db.table("v").insert(frame)


def insert_by_select(db, frame):
    return db.execute("INSERT INTO v SELECT id, f FROM frame")


def insert_with_parameter(db, frame):
    return db.execute("INSERT INTO v SELECT id, f FROM frame WHERE id >= ?", [0])


WAYS = [insert_by_method, insert_by_select, insert_with_parameter]
KINDS = {"arrow": lambda ids, f: pa.table({"id": ids, "f": f}),
         "batch": lambda ids, f: pa.record_batch([ids, f], ["id", "f"]),
         "pandas": lambda ids, f: pd.DataFrame({"id": ids, "f": f}, copy=False),
         "polars": lambda ids, f: pl.DataFrame({"id": ids, "f": f})}  # fmt: skip


@pytest.mark.parametrize("insert", WAYS)
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_transaction_has_the_rows_that_a_frame_had_when_it_was_inserted(db, make, insert):
    db.sql("CREATE TABLE v (id BIGINT PRIMARY KEY, f DOUBLE)")
    ids, values = np.arange(3), np.ones(3)
    with db.transaction():
        for _ in range(2):  # as a loop that fills one buffer again and again
            insert(db, make(ids, values))
            ids += 3
            values *= 100
        values[:] = -1
    assert sorted(db.table("v")) == [(0, 1), (1, 1), (2, 1), (3, 100), (4, 100), (5, 100)]


@pytest.mark.parametrize("insert", WAYS)
def test_a_view_has_the_rows_that_a_frame_had_when_it_was_inserted(db, insert):
    """The actors of views go on with an INSERT that was answered."""
    db.sql("""CREATE TABLE v (id BIGINT PRIMARY KEY, f DOUBLE);
        CREATE MATERIALIZED VIEW total AS SELECT sum(f) AS total FROM v""")
    rows = 50_000 if insert is insert_by_select else 200_000
    ids, values = np.arange(rows), np.ones(rows)
    insert(db, pa.table({"id": ids, "f": values}))
    values[:] = 100
    db.flush()
    assert db.query("SELECT total FROM total").fetchall() == [(rows,)]


def test_a_table_of_a_frame_and_a_batch_have_the_rows_it_had(db):
    values = np.arange(4)
    frame = pa.table({"k": values})
    table = db.create_table("t", frame, primary_key="k")
    values += 4
    db.ingest(frame, "t", writer="w", batch_id=0, checkpoint="c")
    values += 4
    assert sorted(row[0] for row in table) == list(range(8))


def test_python_objects_of_polars_are_no_bytes_to_insert():
    with stream.connect("memory://") as db:
        table = db.create_table("t", {"a": "bytea"})
        with pytest.raises(InvalidStatement, match="column 'a' has Python objects"):
            table.insert(pl.DataFrame({"a": [object()]}))
        assert table.rows() == []
