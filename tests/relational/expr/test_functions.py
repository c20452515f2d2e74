"""Functions and operators against the answers of PostgreSQL in tests/cases/functions.txt, over constants and columns.

Run with HUMMOCK_REWRITE=1 to record the answers of the installed PostgreSQL, then review the diff.
"""

import json
import math
import os
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from relational import col
from relational import functions as f
from relational.chunk import Column, DataChunk
from relational.errors import EvaluationError, RelationalError
from relational.expr import bind
from relational.expr.eval import evaluate, evaluate_array, evaluate_constant
from relational.expr.eval_context import ErrorCounts, EvalContext
from relational.expr.expression import INFIX, Call, Cast, InputRef, Literal, transform, walk
from relational.expr.functions import ALIASES, FUNCTIONS, SET_FUNCTIONS
from relational.plan.serialize import plan_from_text
from relational.sql import bind_sql
from relational.types import DataType, Schema
from tests.support.servers.postgres_server import running_server
from tests.support.suites.sql_cases import CASES, catalog_of

PATH = CASES / "functions.txt"
OPERATORS = {
    *INFIX, "current_catalog", "current_role", "current_user", "session_user", "array", "between", "bit_not",
    "concat_known", "in", "in_list", "is_not_null", "is_null", "like_escape",
    "negate", "not", "round_to", "single_value", "slice", "slice_from", "slice_to", "subscript",
}
"""Functions that SQL writes otherwise than by their names."""
NOW = datetime(2026, 1, 31, tzinfo=UTC)
ARROW, DIFFERS, ERROR, NULL = " --> ", " ~ ", "ERROR", "NULL"


def cases(path=PATH):
    """(expression, PostgreSQL's answer, ours where it differs on purpose) of each line."""
    for line in path.read_text().split("\n"):
        if line and not line.startswith("#"):
            expression, _, answers = line.partition(ARROW)
            theirs, _, ours = answers.partition(DIFFERS)
            yield expression, theirs, ours.partition("; ")[0] if ours else None


CASES_OF_FUNCTIONS = list(cases())


@pytest.fixture(scope="module")
def catalog():
    return catalog_of("CREATE TABLE t (i INT)")


def bound(text, catalog):
    (statement,) = bind_sql(f"SELECT {text} AS value FROM t", catalog, NOW)
    return statement.plan.expressions[0]


def record(path, answer_of):
    """Writes the answer to each expression of a file of cases."""
    lines = []
    for line in path.read_text().split("\n"):
        if not line or line.startswith("#"):
            lines.append(line)
            continue
        expression, _, answers = line.partition(ARROW)
        _, _, ours = answers.partition(DIFFERS)
        lines.append(f"{expression}{ARROW}{answer_of(expression)}{DIFFERS * bool(ours)}{ours}")
    path.write_text("\n".join(lines))


def text_of(expression):
    """The answer as one line of text, as the cases have it."""
    try:
        value = evaluate_constant(Cast(expression, DataType.VARCHAR))
    except EvaluationError:
        return ERROR
    return shown(value)


def shown(value):
    return NULL if value is None else value.replace("\\", "\\\\").replace("\n", "\\n")


def same(ours, theirs):
    """Whether two answers are equal as texts, numbers or JSON."""
    if ours == theirs:
        return True
    try:
        if theirs[:1] in "[{" and ours[:1] == theirs[:1]:
            return json.loads(ours) == json.loads(theirs)
        return math.isclose(float(ours), float(theirs), rel_tol=1e-12, abs_tol=1e-15)
    except ValueError:
        return False


@pytest.mark.parametrize(("expression", "theirs", "ours"), CASES_OF_FUNCTIONS)
def test_an_answer_is_that_of_postgresql(expression, theirs, ours, catalog):
    try:
        found = text_of(bound(expression, catalog))
    except RelationalError:
        found = ERROR
    assert found == ours if ours is not None else same(found, theirs), f"{found!r}, not {theirs!r}"


def test_a_difference_is_one():
    """A line with a `~` says something else than PostgreSQL."""
    assert not [case for case in CASES_OF_FUNCTIONS if case[2] is not None and same(case[2], case[1])]


@pytest.mark.parametrize("expression", [each for each, *_ in CASES_OF_FUNCTIONS])
def test_a_column_gives_the_answers_of_its_rows(expression, catalog, monkeypatch):
    """With the constants, and the first one alone, as columns."""
    monkeypatch.setattr(bind, "_folded", lambda call: call)
    try:
        constant = bound(expression, catalog)
    except RelationalError:
        return
    nodes = list(walk(constant))
    fixed = {id(node.args[at]) for node in nodes if isinstance(node, Call) for at in constants_of(node)}
    literals = {id(node): node for node in nodes if isinstance(node, Literal)}
    free = [node for node in literals.values() if id(node) not in fixed]
    first = [node for node in free if node is next(iter(literals.values()))]
    for chosen in [free, first] if len(free) > 1 else [free]:
        if chosen:
            check_columns(constant, chosen)


def check_columns(constant, literals):
    """The literals as columns of five rows: the values, NULLs, the values again, NULLs hidden, the values hidden."""
    columns = [evaluate_array(node, EvalContext((), 1, strict=True)).take(pa.array([0, None, 0, None, 0], pa.int32()))
               for node in literals]
    positions = {id(node): position for position, node in enumerate(literals)}
    over_columns = transform(
        constant, lambda node: InputRef(positions[id(node)], node.data_type) if id(node) in positions else node
    )
    visibility = np.array([1, 1, 1, 0, 0], np.uint8)
    chunk = DataChunk([Column(array) for array in columns], visibility=visibility)
    errors = ErrorCounts()
    whole = text_values(evaluate(Cast(over_columns, DataType.VARCHAR), chunk, errors=errors).array)
    singles = [one_row(over_columns, columns, at) for at in range(3)]
    assert whole[:3] == [value for value, _ in singles], over_columns
    counted = Counter()
    for _, each in singles:
        counted.update(each)
    assert dict(counted) == errors.take(), over_columns
    assert whole[0] == whole[2] == (NULL if (answer := text_of(constant)) == ERROR else answer)


def constants_of(call):
    found = bind.resolve(call.function, tuple(arg.data_type for arg in call.args))
    return () if found is None else found[0].constants


def text_values(array):
    return [shown(value) for value in array.to_pylist()]


def one_row(expression, columns, at):
    errors = ErrorCounts()
    chunk = DataChunk([Column(array.take(pa.array([at]))) for array in columns])
    return text_values(evaluate(Cast(expression, DataType.VARCHAR), chunk, errors=errors).array)[0], errors.take()


def test_a_function_by_its_name_in_the_fluent_api():
    chunk = DataChunk.from_rows(Schema.of(t="varchar"), [("a,b",), (None,), ("c",)])
    term = bind.ExprBinder(bind.Scope(Schema.of(t="varchar"))).bind(f.call("split_part", col("t"), ",", 2))
    assert evaluate(term, chunk).to_pylist() == ["b", None, ""]


def test_a_stored_plan_has_the_calls_of_its_query():
    catalog = catalog_of("CREATE TABLE w (id INT PRIMARY KEY, t VARCHAR, at TIMESTAMPTZ, j JSONB, l INT[], b BYTEA)")
    terms = [
        "split_part(t, ',', id)", "t ~ ANY('{a,b}')", "at AT TIME ZONE 'Europe/Berlin'", "l[id]", "l[1:id]",
        "extract(century FROM at)", "date_trunc('decade', at)", "j -> 'a' ->> t", "j - '{a}'::text[]", "id # 5",
        "to_char(at, t)", "(ROW(id, t)).f2", "l || id", "round(1.5, id)", "b || '\\x01'", "jsonb_build_object(t, l)",
    ]
    query = f"SELECT id, {', '.join(f'{term} AS c{at}' for at, term in enumerate(terms))} FROM w"
    (statement,) = bind_sql(f"CREATE MATERIALIZED VIEW v AS {query}", catalog)
    assert plan_from_text(statement.view.plan, catalog.get) == statement.plan


def test_every_function_that_sql_names_is_in_a_case():
    """Operators have functions of their own; `field_1` to `field_n` are (row).field. Set-returning functions are in
    postgres_queries.txt."""
    text = PATH.read_text().lower()
    aliases = Counter(ALIASES.values())
    parts = ("field_", "extract_", "date_trunc_")
    names = [name for name in FUNCTIONS if name not in SET_FUNCTIONS and not name.startswith(parts)]
    missing = [name for name in names if f"{name}(" not in text and name not in OPERATORS and not aliases[name]]
    assert not missing


@pytest.mark.skipif("HUMMOCK_REWRITE" not in os.environ, reason="only to record the answers of PostgreSQL")
def test_rewrite_the_answers():
    psycopg = pytest.importorskip("psycopg")

    def answer_of(expression):
        try:
            (value,) = connection.execute(f"SELECT ({expression})::text").fetchone()
        except psycopg.Error:
            return ERROR
        return shown(value)

    with running_server() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        record(PATH, answer_of)

