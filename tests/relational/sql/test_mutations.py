"""Mutated SQL: every text gets a result or a typed error with its position.

HUMMOCK_SQL_MUTATIONS is the number of texts; a failure shows the text.
"""

import os
import time

import pytest

from relational.batch import RecursionLimits, run_query
from relational.errors import RelationalError, SourceTextError
from relational.plan.optimizer import VIEW_RULES, optimize
from relational.sql import bind_sql, describe, show
from relational.sql.statement import CreateMaterializedView, Delete, Describe, Insert, Select, Show, Update
from tests.support.drivers.batch_session import NOW, BatchSession
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.sql_mutations import Mutator
from tests.support.suites.sql_cases import CASES, create_all

TEXTS = int(os.environ.get("HUMMOCK_SQL_MUTATIONS", "1500"))
SEED = run_seed()
MESSAGE_BYTES = 2_048
FEW = RecursionLimits(rounds=100, rows=10_000)


@pytest.fixture(scope="module")
def session():
    return world()


def world() -> BatchSession:
    """A session with the tables of the binder's cases and a few rows."""
    session = BatchSession()
    create_all((CASES / "binder_schema.sql").read_text(), session.catalog)
    session.sql("INSERT INTO orders VALUES (1, 'a', 1.5, '2020-01-01'), (2, NULL, NULL, NULL), (3, '', -7, NULL)")
    session.sql("INSERT INTO pairs VALUES (1, 0.0, 1), (-2, 1e300, 99999999.99)")
    session.sql("INSERT INTO plain VALUES (7, 'x'), (NULL, NULL)")
    return session


def answer(text: str, session: BatchSession) -> None:
    """Binds and plans the text, runs its queries, and changes nothing."""
    for statement in bind_sql(text, session.catalog, NOW):
        if isinstance(statement, Select):
            optimize(statement.plan).explain()
            run_query(statement.plan, session.store, session.epoch, limits=FEW)
        elif isinstance(statement, Insert):
            run_query(statement.query, session.store, session.epoch, limits=FEW)
        elif isinstance(statement, CreateMaterializedView):
            optimize(statement.plan, VIEW_RULES).explain()
        elif isinstance(statement, Update):
            [value.describe(statement.table.schema.names) for _, value in statement.assignments]
        elif isinstance(statement, Delete) and statement.predicate is not None:
            statement.predicate.describe(statement.table.schema.names)
        elif isinstance(statement, Show):
            show(statement, session.catalog)
        elif isinstance(statement, Describe):
            describe(statement.table)


def check(text: str, session: BatchSession) -> type | None:
    """The type of the text's error, or None for a result. Asserts that an error is bounded and has a position."""
    try:
        answer(text, session)
    except SourceTextError as error:
        assert error.start is not None and 0 <= error.start <= error.end <= len(text) + 1, f"no position: {error!r}"
        assert len(str(error).encode("utf-8", "replace")) < MESSAGE_BYTES
        return type(error)
    except RelationalError as error:
        assert len(str(error).encode("utf-8", "replace")) < MESSAGE_BYTES
        return type(error)
    return None


@pytest.mark.timeout(300 + TEXTS // 20)
def test_a_mutated_text_ends_in_an_answer_or_a_typed_error(session):
    mutator, ends, slowest = Mutator(SEED), {}, (0.0, "")
    for number in range(TEXTS):
        text = mutator.text()
        begun = time.thread_time()
        try:
            end = check(text, session)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, text {number}: {text[:2_000]!r}") from error
        slowest = max(slowest, (time.thread_time() - begun, text))
        ends[end] = ends.get(end, 0) + 1
    counts = {"answer" if end is None else end.__name__: count for end, count in ends.items()}
    print(f"seed {SEED}, {TEXTS} texts: {counts}; the slowest took {slowest[0]:.3f} s: {slowest[1][:200]!r}")
    assert counts["answer"] > TEXTS / 50 and counts["ParseError"] > TEXTS / 10


