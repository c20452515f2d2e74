"""Constraints and limits of a table's rows, for all statements and for connectors."""

import datetime as dt
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import stream
from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.errors import InvalidValue
from relational.table.row_checks import check_rows, may_refuse
from relational.types import DataType, Schema, SortKey
from stream.connector import validated, without_malformed
from stream.errors import InvalidStatement, MalformedRows
from stream.session.statements import table_draft
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.seeds import run_seed

SCHEMA = Schema.of(id="bigint", name="varchar", at="timestamp", doc="jsonb")
LONG = "x" * (1 << 20)


def constrained(table):
    """`name` is NOT NULL and has 5 characters at most."""
    rules = {"name": {"not_null": True, "max_length": 5}}
    return replace(table, columns=tuple(replace(each, **rules.get(each.name, {})) for each in table.columns))


@pytest.fixture
def db(tmp_path):
    with stream.connect(f"file://{tmp_path}/store", create=True) as session:
        types = {"id": "bigint", "name": "varchar", "at": "timestamp"}
        draft = table_draft("t", types, "id", False, "error", None, {})
        schema = session._playground.catalog.resolve_schema("public", "dev")
        session._playground.meta.ddl.create_table(constrained(replace(draft, schema_id=schema.id)))
        yield session


def rows_of(db):
    db.flush()
    return sorted(tuple(row.values()) for row in db.sql("SELECT * FROM t").rows())


REFUSED = [
    ([(1, "a", None), (2, None, None)], r"column 'name', row 1: .*NOT NULL"),
    ([(1, "a", None), (2, "ñandú!", None)], r"column 'name', row 1: a text of 6 characters"),
    ([{"id": 1}], r"column 'name', row 0: .*NOT NULL"),
    (pa.table({"id": [1, 2, 3], "name": ["a", "ñandú", None]}), r"column 'name', row 2: .*NOT NULL"),
    (pa.table({"id": [1, None], "name": ["a", "b"]}), r"column 'id', row 1: .*primary key"),
]


@pytest.mark.parametrize(("rows", "reason"), REFUSED)
def test_an_insert_that_breaks_a_constraint_is_refused_by_column_and_row(db, rows, reason):
    with pytest.raises(InvalidStatement, match=reason):
        db.table("t").insert(rows)
    assert rows_of(db) == []
    assert db.table("t").insert([(7, "ñandú", None)]) == 1


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("INSERT INTO t VALUES (5, 'e', NULL), (6, NULL, NULL)", r"column 'name', row 1: .*NOT NULL"),
        ("INSERT INTO t SELECT id + 5, name || '23456', at FROM t", r"column 'name', row \d: a text of 6 char"),
        ("UPDATE t SET name = NULL WHERE id = 2", r"column 'name': .*NOT NULL.*key 2"),
        ("UPDATE t SET name = name || '23456' WHERE id = 2", r"column 'name': .*6 characters.*key 2"),
        ("UPDATE t SET at = at + INTERVAL '9000 years' WHERE id = 1", "out of range"),
    ],
)
def test_sql_is_held_to_the_same_constraints(db, statement, reason):
    before = [(1, "a", dt.datetime(2020, 1, 1)), (2, "b", None)]
    db.table("t").insert(before)
    db.flush()
    with pytest.raises(InvalidStatement, match=reason):
        db.sql(statement)
    assert rows_of(db) == before


def test_a_query_that_makes_a_key_too_long_changes_nothing(tmp_path):
    with stream.connect(f"file://{tmp_path}/store", create=True) as db:
        db.sql("CREATE TABLE t (a VARCHAR, b BIGINT, PRIMARY KEY (a, b))")
        db.table("t").insert([(LONG[:900_000], 1)])
        db.flush()
        with pytest.raises(InvalidStatement, match="column 'a', row 0: the key takes"):
            db.sql("INSERT INTO t SELECT a || a, b FROM t")
        assert [len(row["a"]) for row in db.sql("SELECT a FROM t").rows()] == [900_000]


def test_hidden_rows_are_not_looked_at_and_rows_keep_their_numbers():
    table = table_catalog("t", Schema.of(id="bigint", v="varchar"), (0,))
    chunk = DataChunk.from_rows(table.schema, [(None, LONG), (1, "a"), (None, "b")])
    shown = np.array([0, 1, 0], np.uint8)
    check_rows(table, chunk.with_visibility(shown))
    with pytest.raises(InvalidValue) as refusal:
        check_rows(table, chunk.with_visibility(np.array([0, 1, 1], np.uint8)))
    assert (refusal.value.column_name, refusal.value.row) == ("id", 2)


@pytest.mark.parametrize("kind", ["varchar[]", "struct<a varchar, b bytea>", "jsonb", "boolean[]"])
def test_a_key_of_any_type_is_measured_where_it_may_be_too_long(kind):
    table = table_catalog("t", Schema.of(k=kind, v="bigint"), (0,))
    values = {
        "varchar[]": ["a", LONG], "struct<a varchar, b bytea>": {"a": "x", "b": LONG.encode()},
        "jsonb": f'["{LONG}"]', "boolean[]": [True] * (1 << 20),
    }  # fmt: skip
    small = {"varchar[]": ["a"], "struct<a varchar, b bytea>": {"a": "x"}, "jsonb": "1", "boolean[]": [True] * 100_000}
    check_rows(table, DataChunk.from_rows(table.schema, [(small[kind], 1), (small[kind], 2)]))
    with pytest.raises(InvalidValue, match="column 'k', row 1: the key takes"):
        check_rows(table, DataChunk.from_rows(table.schema, [(small[kind], 1), (values[kind], 2)]))


def test_a_row_whose_derived_key_is_too_long_is_left_out_of_views_and_comes_back_when_it_is_shorter(tmp_path):
    """A row that is valid in its table does not fail views, indexes and minima that derive a longer key from it."""
    views = {
        "grouped": "CREATE MATERIALIZED VIEW grouped AS SELECT v, COUNT(*) AS n FROM t GROUP BY v",
        "least": "CREATE MATERIALIZED VIEW least AS SELECT g, MIN(v) AS v FROM t GROUP BY g",
        "ordered": "CREATE INDEX ordered ON t (v)",
    }
    with stream.connect(f"file://{tmp_path}/store", create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v VARCHAR)")
        for statement in views.values():
            db.sql(statement)
        db.table("t").insert([(1, 1, "a"), (2, 1, LONG), (3, 2, "b")])
        db.flush()
        assert len(db.sql("SELECT id FROM t WHERE id > 0").rows()) == 3
        for name in views:
            assert sorted(row["v"] for row in db.sql(f"SELECT v FROM {name}").rows()) == ["a", "b"]
        db.sql("UPDATE t SET v = 'c' WHERE id = 2")
        db.flush()
        assert sorted(row["v"] for row in db.sql("SELECT v FROM grouped").rows()) == ["a", "b", "c"]
        db.sql(f"UPDATE t SET v = v || '{LONG}' WHERE id < 3")
        db.sql("DELETE FROM t WHERE id = 2")
        db.flush()
        assert [row["v"] for row in db.sql("SELECT v FROM ordered").rows()] == ["b"]
    with stream.connect(f"file://{tmp_path}/store", create=True) as db:
        assert [row["v"] for row in db.sql("SELECT v FROM grouped").rows()] == ["b"]


# -- chunks of connectors -------------------------------------------------------------------------------------


def changes(*rows, ops=None):
    columns = list(zip(*rows, strict=True))
    arrays = [
        pa.array(columns[0], pa.int64()), _text(columns[1]), pa.array(columns[2], pa.int64()).view(pa.timestamp("us")),
        pa.ExtensionArray.from_storage(DataType.JSONB.arrow, _text(columns[3])),
    ]  # fmt: skip
    return StreamChunk([Column(array) for array in arrays], np.array(ops or [Op.INSERT] * len(rows), np.uint8))


def _text(values):
    """A text array that is not validated."""
    return pa.Array.from_buffers(pa.utf8(), len(values), pa.array(values, pa.binary()).buffers())


GOOD = (1, b"a", 0, b'{"b":1, "a":2}')
WRONG = {
    "name": (1, b"\xff", 0, b"1"),
    "at": (1, b"a", 2**62, b"1"),
    "doc": (1, b"a", 0, b"{"),
}


def test_sound_chunks_pass_and_json_becomes_canonical():
    chunk = validated(changes(GOOD, (2, None, None, None)), SCHEMA, "s")
    first, second = chunk.rows()
    assert first[3] == '{"a":2,"b":1}' and second == (2, None, None, None)


@pytest.mark.parametrize("column", WRONG)
def test_a_chunk_names_split_column_and_row(column):
    with pytest.raises(MalformedRows, match=f"'s3'.*column '{column}', row 1: ") as fault:
        validated(changes(GOOD, WRONG[column]), SCHEMA, "s3", connector="c")
    assert (fault.value.split, fault.value.column, fault.value.row) == ("s3", column, 1)
    assert len(str(fault.value)) < 2_000


def test_constraints_and_limits_count_for_connectors_too():
    table = constrained(table_catalog("t", SCHEMA, (0,)))
    for row, column in (((None, b"a", 0, b"1"), "id"), ((1, None, 0, b"1"), "name"), ((1, b"abcdef", 0, b"1"), "name")):
        with pytest.raises(MalformedRows) as fault:
            validated(changes(GOOD, row), SCHEMA, "s", table=table)
        assert (fault.value.column, fault.value.row) == (column, 1)
    keyed = table_catalog("t", SCHEMA, (1,))
    with pytest.raises(MalformedRows, match="column 'name', row 1: the key takes"):
        validated(changes(GOOD, (1, LONG.encode(), 0, b"1")), SCHEMA, "s", table=keyed)


def test_a_chunk_of_other_columns_or_ops_is_malformed_as_a_whole():
    with pytest.raises(MalformedRows, match="columns of the types BIGINT for"):
        validated(StreamChunk([pa.array([1])], np.zeros(1, np.uint8)), SCHEMA, "s")
    with pytest.raises(MalformedRows, match="row 1: 7 is no op"):
        validated(changes(GOOD, GOOD, ops=[0, 7]), SCHEMA, "s")


def test_malformed_rows_can_be_left_out_updates_as_a_whole():
    wrong = WRONG["doc"]
    two, three, four = (2, b"b", 0, b"2"), (3, b"c", 0, b"3"), (4, b"d", 0, b"4")
    chunk = changes(wrong, GOOD, wrong, two, three, wrong, four, ops=[0, 0, 3, 2, 3, 2, 0])
    kept, faults = without_malformed(chunk, SCHEMA, "s")
    assert [fault.row for fault in faults] == [0, 2, 5]
    assert [(op, row[0]) for op, row in kept.changes()] == [(Op.INSERT, 1), (Op.INSERT, 4)]
    kept, faults = without_malformed(changes(wrong, wrong), SCHEMA, "s")
    assert kept is None and len(faults) == 2
    kept, faults = without_malformed(changes(GOOD), SCHEMA, "s")
    assert kept.visible_rows == 1 and not faults


@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_many_malformed_rows_are_left_out_as_one_by_one(share):
    """Inserts and update pairs; a fraction `share` of them has a malformed row."""
    rng = random.Random(run_seed())
    rows, ops, kept_ids, wrong_rows = [], [], [], []
    for number in range(1_000):
        halves = [Op.UPDATE_DELETE, Op.UPDATE_INSERT] if rng.random() < 0.4 else [Op.INSERT]
        wrong = rng.randrange(len(halves)) if rng.random() < share else None
        if wrong is None:
            kept_ids += [number] * len(halves)
        else:
            wrong_rows.append(len(rows) + wrong)
        rows += [(number, *(WRONG["doc"] if at == wrong else GOOD)[1:]) for at in range(len(halves))]
        ops += halves
    kept, faults = without_malformed(changes(*rows, ops=ops), SCHEMA, "s")
    assert [fault.row for fault in faults] == wrong_rows
    assert ([] if kept is None else [row[0] for row in kept.rows()]) == kept_ids


def test_a_table_may_refuse_rows_for_nulls_lengths_and_sizes_only():
    plain = table_catalog("plain", Schema.of(id="bigint", at="timestamp", n="numeric(10,2)"), ())
    assert not may_refuse(plain)
    assert may_refuse(replace(plain, pk=(SortKey(1),)))
    assert not may_refuse(replace(plain, pk=(SortKey(0),), row_id_index=0)), "a generated key is not checked"
    for kind in ("varchar", "bytea", "jsonb", "int[]", "struct<a int>"):
        assert may_refuse(table_catalog("sized", Schema.of(id="bigint", v=kind), ()))
    for limit in ({"not_null": True}, {"max_length": 5}):
        columns = (*plain.columns[:2], replace(plain.columns[2], **limit))
        assert may_refuse(replace(plain, columns=columns))
