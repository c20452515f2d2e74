"""Casts of LIST and STRUCT, their text form, and ARRAY[…] and ROW(…). Expected values are PostgreSQL's."""

import random

import numpy as np
import pytest

from relational.chunk import Column, DataChunk
from relational.errors import BindError, EvaluationError
from relational.expr.eval import evaluate
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Cast, InputRef
from relational.expr.kernels.casting import can_cast
from relational.expr.kernels.nested import split_fields, split_items
from relational.types import DataType
from tests.relational.random_rows import random_rows
from tests.support.drivers.batch_session import BatchSession

TEXT_AND_LIST = [
    ("{1,2,3}", "int[]", [1, 2, 3], "{1,2,3}"),
    (" { 1 , NULL , 3 } ", "bigint[]", [1, None, 3], "{1,NULL,3}"),
    ("{}", "int[]", [], "{}"),
    ('{a,"b c","",null,"null"," x"}', "text[]", ["a", "b c", "", None, "null", " x"], '{a,"b c","",NULL,"null"," x"}'),
    (r'{"a\"b","c\\d",e\,f,"{}"}', "text[]", ['a"b', "c\\d", "e,f", "{}"], r'{"a\"b","c\\d","e,f","{}"}'),
    ("{{1,2},{},{NULL}}", "int[][]", [[1, 2], [], [None]], "{{1,2},{},{NULL}}"),
    ("{t,f,true}", "boolean[]", [True, False, True], "{t,f,t}"),
    ('{"{x}",y}', "text[]", ["{x}", "y"], '{"{x}",y}'),
]
TEXT_AND_STRUCT = [
    ("(1,abc)", "struct<a int, b text>", {"a": 1, "b": "abc"}, "(1,abc)"),
    ("(,)", "struct<a int, b text>", {"a": None, "b": None}, "(,)"),
    ('(7,"")', "struct<a int, b text>", {"a": 7, "b": ""}, '(7,"")'),
    (r'(1,"x, ""y"" \\z")', "struct<a int, b text>", {"a": 1, "b": 'x, "y" \\z'}, r'(1,"x, ""y"" \\z")'),
    ('("{1,2}",t)', "struct<a int[], b boolean>", {"a": [1, 2], "b": True}, '("{1,2}",t)'),
    ('("(1,a)")', "struct<a struct<x int, y text>>", {"a": {"x": 1, "y": "a"}}, '("(1,a)")'),
    ("( a b )", "struct<a text>", {"a": " a b "}, '(" a b ")'),
]


def cast(values, source, target, **options):
    source, target = DataType.parse(source), DataType.parse(target)
    column = Column.from_pylist(values, source)
    return evaluate(Cast(InputRef(0, source), target), DataChunk([column]), **options).to_pylist()


@pytest.mark.parametrize(("text", "target", "value", "written"), TEXT_AND_LIST + TEXT_AND_STRUCT)
def test_text_becomes_a_nested_value_and_text_again(text, target, value, written):
    assert cast([text, None, text], "text", target) == [value, None, value]
    assert cast([value, None, value], target, "text") == [written, None, written]


WITH_TEXT = ["text[]", "struct<a text, b text[]>", "struct<a text, b int>[]", "jsonb[]", "date[][]"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", WITH_TEXT)
def test_any_value_comes_back_from_its_text(name, seed):
    rng, nested = random.Random(f"{seed} {name}"), DataType.parse(name)
    values = [row[0] for row in random_rows(rng, [nested], 200)]
    texts = cast(values, name, "text")
    assert repr(cast(texts, "text", name)) == repr(Column.from_pylist(values, nested).to_pylist())


@pytest.mark.parametrize(
    ("text", "target"),
    [("{1", "int[]"), ("1,2", "int[]"), ("{1,x}", "int[]"), ("{1,}", "int[]"), ("{1}2}", "int[]"), ('{"a}', "text[]"),
     ("{{1}", "int[][]"), ("(1)", "struct<a int, b int>"), ("(1,2", "struct<a int, b int>"),
     ("(1,x)", "struct<a int, b int>"), ('("a)', "struct<a text>"), ("{a{b}", "text[]")],
)  # fmt: skip
def test_a_text_that_is_none_fails_its_row_only(text, target):
    errors = ErrorCounts()
    nothing = "{}" if target.endswith("[]") else "(," + ")" if "," in target else "()"
    got = cast([nothing, text, None], "text", target, errors=errors)
    assert got[1:] == [None, None] and got[0] is not None and list(errors.take().values()) == [1]
    with pytest.raises(EvaluationError) as caught:
        cast([nothing, text], "text", target, strict=True)
    assert caught.value.row == 1


def test_lists_convert_element_by_element():
    assert cast([[1, None], None, [], [3]], "int[]", "text[]") == [["1", None], None, [], ["3"]]
    assert cast([["1", "x"], ["2"], ["y", "z"]], "text[]", "int[]") == [None, [2], None]
    assert cast([[[1], None], [[2, 3]]], "int[][]", "bigint[][]") == [[[1], None], [[2, 3]]]
    errors = ErrorCounts()
    assert cast([[1, 70_000, 80_000], [5]], "int[]", "smallint[]", errors=errors) == [None, [5]]
    assert list(errors.take().values()) == [1]


def test_slices_and_hidden_rows_of_lists_convert():
    source, target = DataType.parse("text[]"), DataType.parse("int[]")
    column = Column.from_pylist([["1"], ["x"], ["2", "3"], None, ["y"]], source).slice(1, 4)
    chunk = DataChunk([column], np.array([0, 1, 1, 0], np.uint8))
    got = evaluate(Cast(InputRef(0, source), target), chunk, strict=True).to_pylist()
    assert got[1:3] == [[2, 3], None]


def test_what_has_no_meaning_is_refused():
    assert not can_cast(DataType.parse("int[]"), DataType.parse("int"))
    assert not can_cast(DataType.parse("int[]"), DataType.parse("date[]"))
    assert not can_cast(DataType.parse("struct<a int>"), DataType.parse("struct<a int, b int>"))
    assert not can_cast(DataType.parse("struct<a int>"), DataType.parse("int[]"))


@pytest.mark.parametrize("text", ['{"a\\"b",NULL}', "{{a},{b}}", "{", "}", "{\\}", '{"', "{,}", "{a}b}", '{"a"b}'])
def test_splitting_a_text_never_runs_over_its_end(text):
    for end in range(len(text) + 1):
        for split in (split_items, split_fields):
            assert split(text[:end]) is None or isinstance(split(text[:end]), list)
            split("(" + text[:end] + ")")
            split("{" + text[:end] + "}")


@pytest.fixture(scope="module")
def session():
    session = BatchSession()
    session.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR)")
    session.table("t").insert([(1, 10, "x"), (2, None, "y z")])
    return session


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("ARRAY[a, id, NULL]", [[10, 1, None], [None, 2, None]]),
        ("ARRAY[1, 2.5]::text", ["{1.0,2.5}", "{1.0,2.5}"]),
        ("ARRAY[ARRAY[id], ARRAY[a, 5]]", [[[1], [10, 5]], [[2], [None, 5]]]),
        ("ARRAY['p', s]", [["p", "x"], ["p", "y z"]]),
        ("ROW(id, s)", [{"f1": 1, "f2": "x"}, {"f1": 2, "f2": "y z"}]),
        ("ROW(id, s)::text", ["(1,x)", '(2,"y z")']),
        ("CAST(ROW(id, '7') AS STRUCT<k BIGINT, v INT>)", [{"k": 1, "v": 7}, {"k": 2, "v": 7}]),
        ("'{1,2}'::int[]", [[1, 2], [1, 2]]),
        ("ARRAY[id]::bigint[] = '{1}'::bigint[]", [True, False]),
        ("ARRAY[ROW(1, s)]", [[{"f1": 1, "f2": "x"}], [{"f1": 1, "f2": "y z"}]]),
    ],
)
def test_constructors_in_sql(session, query, rows):
    found = session.sql(f"SELECT id, {query} AS found FROM t ORDER BY id")
    assert Column(found.column("found")).to_pylist() == rows


def test_constructors_fill_columns_of_wider_types():
    session = BatchSession()
    session.sql("CREATE TABLE n (id INT PRIMARY KEY, l BIGINT[], r STRUCT<a BIGINT, b VARCHAR>)")
    session.sql("INSERT INTO n VALUES (1, ARRAY[1, 2], ROW(3, 'x')), (2, '{4}', '(5,\"y z\")'), (3, NULL, NULL)")
    found = DataChunk.from_arrow(session.sql("SELECT * FROM n ORDER BY id"))
    assert list(found.rows()) == [
        (1, [1, 2], {"a": 3, "b": "x"}),
        (2, [4], {"a": 5, "b": "y z"}),
        (3, None, None),
    ]


@pytest.mark.parametrize(("query", "words"), [("ARRAY[1, true]", "array is not defined"), ("ARRAY[]", "not defined")])
def test_what_has_nothing_in_common_is_refused(session, query, words):
    with pytest.raises(BindError, match=words):
        session.sql(f"SELECT {query} FROM t")
