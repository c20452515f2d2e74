import random

import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.catalog.objects import ConflictBehaviour
from relational.chunk import DataChunk, Op, StreamChunk
from relational.errors import DamagedRow
from relational.expr.expression import Call, InputRef, Literal
from relational.table.state_table import StateTable
from relational.types import DataType, Schema
from stream.errors import AppendOnlyViolation, DuplicateKey, InvalidStatement
from stream.executor import statement
from stream.executor.base import ExecutorInfo
from stream.executor.conflict import ConflictResolver
from stream.executor.materialize import MaterializeExecutor
from stream.message import DeleteRows, EvaluatedChanges, InsertRows, Replayed, StatementResult, UpdateRows
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import Folded, ScriptedExecutor, barrier, run_epochs
from tests.support.suites.executor_suite import ExecutorSuite
from tests.support.suites.interpreter_work import assert_no_work_per_row, work_of

SCHEMA = Schema.of(id="bigint", v="bigint")
ID, V = InputRef(0, DataType.BIGINT), InputRef(1, DataType.BIGINT)
ERROR, OVERWRITE, IGNORE = ConflictBehaviour


def number(value):
    return Literal(value, DataType.BIGINT)


def compare(function, left, right):
    return Call(function, (left, right), DataType.BOOLEAN)


def plus(left, right):
    return Call("add", (left, right), DataType.BIGINT)


def materialize(input, store, conflict=None, rule=ERROR, chunk_rows=4096, **options):
    table = StateTable(table_catalog("t", SCHEMA, (0,), conflict=rule, **options), store)
    return MaterializeExecutor(ExecutorInfo(SCHEMA, (0,), "Materialize"), input, table, conflict, chunk_rows)


class Table:
    """A table driven by statements and chunks; its output is text."""

    def __init__(self, conflict=None, **options):
        self.store, self.folded, self._ids, self._inbox = MemoryStateStore(), Folded((0,)), 0, []
        source = ScriptedExecutor(SCHEMA, (0,), self._messages())
        self._messages_out = materialize(source, self.store, conflict, **options).execute()
        self._inbox.append(barrier(1))
        self._epoch = 1
        next(self._messages_out)

    def _messages(self):
        while self._inbox:
            yield self._inbox.pop(0)

    def send(self, message):
        """The changes that `message` causes, up to a following barrier."""
        self._epoch += 1
        self._inbox += [message, barrier(self._epoch)]
        texts = []
        while True:
            out = next(self._messages_out)
            if not isinstance(out, StreamChunk):
                self.store.commit(out.epoch.prev)
                return "\n".join(texts)
            self.folded.apply(out)
            texts.append(out.to_pretty())

    def statement(self, kind, *arguments):
        self._ids += 1
        statement = kind(self._ids, *arguments)
        return self.send(statement), statement.result

    def insert(self, *rows):
        return self.statement(InsertRows, StreamChunk.inserts(DataChunk.from_rows(SCHEMA, list(rows))))

    def update(self, predicate, *assignments):
        return self.statement(UpdateRows, predicate, tuple(assignments))

    def delete(self, predicate=None):
        return self.statement(DeleteRows, predicate)

    @property
    def rows(self):
        return sorted(self.folded.rows.values())


def test_insert_update_and_delete_see_all_earlier_ones():
    table = Table()
    changes, result = table.insert((1, 10), (2, 20))
    assert changes == "+ 1 10\n+ 2 20" and result.result(0) == 2
    changes, result = table.update(compare("greater", V, number(15)), (1, plus(V, number(1))))
    assert changes == "U- 2 20\nU+ 2 21" and result.result(0) == 1
    changes, result = table.delete(compare("equal", V, number(21)))
    assert changes == "- 2 21" and result.result(0) == 1
    assert table.rows == [(1, 10)]


@pytest.mark.parametrize("options, output, left", [
    ({}, "U- 7 6\nU+ 7 5", (7, 5)),
    ({"is_append_only": True, "rule": IGNORE, "ttl_ms": 1_000}, "+ 7 5", (7, 5)),
    ({"is_append_only": True, "rule": IGNORE}, "", (7, 6)),
], ids=["a table", "one whose rows expire", "an append-only one"])
def test_an_insert_that_is_written_again_over_a_row_retracts_nothing_where_nothing_is_retracted(options, output, left):
    """Where rows expire the row of before had expired when the statement was evaluated [R31]; from an append-only table
    nothing is retracted, so it is a row of a sink, which came first."""
    table = Table(**options)
    table.insert((7, 6))
    table.folded = Folded((0,)) if "ttl_ms" in options else table.folded
    result = StatementResult()
    evaluation = EvaluatedChanges(from_pretty("+ 7 5", SCHEMA), 1, (0, 1))
    assert table.send(Replayed(2, evaluation, result, lambda: None)) == output
    assert result.result(0) == 1
    stored = StateTable(table_catalog("t", SCHEMA, (0,)), table.store)
    stored.init_epoch(barrier(table._epoch).epoch)
    assert stored.get_row((7,)) == left


def test_statements_of_one_epoch_are_evaluated_in_order():
    insert = InsertRows(1, from_pretty("+ 1 1\n+ 2 2", SCHEMA))
    update = UpdateRows(2, None, ((1, plus(V, number(5))),))
    delete = DeleteRows(3, compare("equal", V, number(7)))
    store = MemoryStateStore()
    (made,) = run_epochs(
        lambda input: materialize(input, store), store, SCHEMA, (0,), [[insert, update, delete]]
    )
    assert Folded((0,)).apply_all(made).rows == {(1,): (1, 6)}
    assert [each.result.result(0) for each in (insert, update, delete)] == [2, 2, 1]


def test_a_duplicate_key_fails_the_whole_statement_and_changes_nothing():
    table = Table()
    table.insert((1, 10))
    changes, result = table.insert((2, 20), (1, 11))
    assert changes == "" and isinstance(result.exception(0), DuplicateKey) and result.exception(0).key == (1,)
    changes, result = table.insert((3, 1), (3, 2))
    assert changes == "" and result.exception(0).key == (3,)
    assert table.rows == [(1, 10)]
    assert table.insert((2, 20))[0] == "+ 2 20"


def test_overwrite_makes_updates_of_conflicts():
    table = Table(rule=OVERWRITE)
    table.insert((1, 10))
    changes, result = table.insert((1, 11), (2, 5), (2, 6))
    assert changes == "U- 1 10\nU+ 1 11\n+ 2 5\nU- 2 5\nU+ 2 6" and result.result(0) == 3
    changes, result = table.insert((1, 11))
    assert changes == "" and result.result(0) == 1


def test_ignore_keeps_what_is_there():
    table = Table(rule=IGNORE)
    table.insert((1, 10))
    changes, result = table.insert((1, 11), (2, 5), (2, 6))
    assert changes == "+ 2 5" and result.result(0) == 1


def outcome(result):
    error = result.exception(0)
    return result.result(0) if error is None else (type(error), getattr(error, "key", None))


@pytest.mark.parametrize("rule", [ERROR, OVERWRITE, IGNORE])
def test_an_insert_whose_keys_are_looked_up_in_parts_is_one_statement(rule, monkeypatch):
    """It has the effect of one whose keys are looked up at once; refused in a later part, it has none."""
    rng = random.Random(f"parts {rule}")
    parted, whole = Table(rule=rule), Table(rule=rule)
    outcomes = []
    for _ in range(60):
        rows = [(rng.randrange(300 if rule is ERROR else 40), rng.randrange(5)) for _ in range(rng.randrange(1, 14))]
        monkeypatch.setattr(statement, "PART_ROWS", 3)
        found = outcome(parted.insert(*rows)[1])
        monkeypatch.setattr(statement, "PART_ROWS", 1_000)
        assert found == outcome(whole.insert(*rows)[1])
        outcomes.append(found)
        assert parted.rows == whole.rows
        stored = StateTable(table_catalog("t", SCHEMA, (0,)), parted.store)
        stored.init_epoch(barrier(parted._epoch).epoch)
        assert sorted(row for chunk in stored.scan_chunks() for row in chunk.rows()) == parted.rows
    assert any(isinstance(each, tuple) for each in outcomes) == (rule is ERROR)
    assert any(isinstance(each, int) and each > 3 for each in outcomes)


@pytest.mark.parametrize("rule", [OVERWRITE, IGNORE])
def test_a_damaged_row_met_by_a_later_part_undoes_the_earlier_ones(rule, monkeypatch):
    monkeypatch.setattr(statement, "PART_ROWS", 2)
    table = Table(rule=rule)
    table.insert((1, 10), (2, 20), (3, 30))
    resolve, calls = ConflictResolver.resolve, []

    def damaged(self, chunk):
        calls.append(chunk)
        if len(calls) == 3:
            raise DamagedRow("t", (9,), "v", "injected")
        return resolve(self, chunk)

    monkeypatch.setattr(ConflictResolver, "resolve", damaged)
    changes, result = table.insert((1, 11), (4, 40), (1, 12), (2, 21), (9, 90))
    assert changes == "" and isinstance(result.exception(0), InvalidStatement) and len(calls) == 3
    stored = StateTable(table_catalog("t", SCHEMA, (0,)), table.store)
    stored.init_epoch(barrier(table._epoch).epoch)
    assert sorted(row for chunk in stored.scan_chunks() for row in chunk.rows()) == [(1, 10), (2, 20), (3, 30)]


def test_an_update_that_changes_nothing_is_counted_and_not_emitted():
    table = Table()
    table.insert((1, 10))
    changes, result = table.update(None, (1, number(10)))
    assert changes == "" and result.result(0) == 1


def test_all_right_sides_of_an_update_see_the_old_row():
    table = Table()
    table.insert((1, 10))
    table.update(None, (0, V), (1, ID))
    assert table.rows == [(10, 1)]


def test_keys_can_be_moved_onto_each_other():
    table = Table()
    table.insert((1, 10), (2, 20), (3, 30))
    _, result = table.update(
        compare("less", ID, number(3)), (0, Call("subtract", (number(3), ID), DataType.BIGINT))
    )
    assert result.result(0) == 2
    assert table.rows == [(1, 20), (2, 10), (3, 30)]


def test_a_moved_key_that_meets_a_row_fails_and_changes_nothing():
    table = Table()
    table.insert((1, 10), (2, 20), (3, 30))
    changes, result = table.update(compare("less", ID, number(3)), (0, plus(ID, number(1))))
    assert changes == "" and result.exception(0).key == (3,)
    assert table.rows == [(1, 10), (2, 20), (3, 30)]
    assert table.delete()[1].result(0) == 3


def test_a_statement_that_fails_while_it_is_computed_changes_nothing():
    table = Table()
    table.insert((1, 0), (2, 5))
    changes, result = table.update(None, (1, Call("divide", (number(6), V), DataType.BIGINT)))
    assert changes == "" and isinstance(result.exception(0), InvalidStatement)
    assert table.rows == [(1, 0), (2, 5)]


def test_null_in_the_key_is_refused():
    _, result = Table().insert((None, 1))
    assert isinstance(result.exception(0), InvalidStatement) and "'id'" in str(result.exception(0))


def test_an_append_only_table_takes_inserts_only():
    table = Table(is_append_only=True)
    table.insert((1, 1))
    assert isinstance(table.delete()[1].exception(0), AppendOnlyViolation)
    assert isinstance(table.update(None, (1, number(2)))[1].exception(0), AppendOnlyViolation)
    assert table.rows == [(1, 1)]


def test_a_table_that_trusts_its_connector_takes_no_statements():
    table = Table(connector={"connector": "flights"})
    changes, result = table.insert((1, 1))
    assert changes == "" and isinstance(result.exception(0), InvalidStatement)


def test_a_statement_that_nobody_waits_for_any_more_is_skipped():
    table = Table()
    statement = InsertRows(1, from_pretty("+ 1 1", SCHEMA))
    statement.result.cancel()
    assert table.send(statement) == ""


def test_large_statements_leave_in_pieces_that_part_no_pair():
    table = Table(chunk_rows=3)
    table.insert(*((i, i) for i in range(10)))
    changes, result = table.update(None, (1, plus(V, number(1))))
    assert result.result(0) == 10 and changes.count("U-") == 10


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (OVERWRITE, "U- 1 1\nU+ 1 2\nU- 1 2\nU+ 1 3\nU- 1 3\nU+ 1 4"),
        (IGNORE, "U- 1 1\nU+ 1 3"),
    ],
)
def test_an_illegal_chunk_of_a_connector_is_fixed_up(rule, expected):
    table = Table(conflict=rule, rule=rule)
    assert table.send(from_pretty("+ 1 1", SCHEMA)) == "+ 1 1"
    text = "+ 1 2\n- 1 99\n- 1 2\n- 7 7\n+ 1 3\n+ 1 4"
    assert table.send(from_pretty(text, SCHEMA)) == expected


def test_an_update_of_a_connector_stays_an_update_and_carries_the_row_that_was_there():
    table = Table(conflict=IGNORE, rule=IGNORE)
    table.send(from_pretty("+ 1 1", SCHEMA))
    assert table.send(from_pretty("U- 1 77\nU+ 1 5", SCHEMA)) == "U- 1 1\nU+ 1 5"


def naive(rule, held, changes):
    """Applies the conflict rule row by row."""
    for op, (key, value) in changes:
        if op & 1:
            held.pop(key, None)
        elif key not in held or rule is OVERWRITE:
            held[key] = (key, value)
    return held


@pytest.mark.parametrize("rule", [OVERWRITE, IGNORE])
@pytest.mark.parametrize("seed", range(10))
def test_random_illegal_chunks_amount_to_what_the_rule_says(rule, seed):
    rng = random.Random(seed)
    table, held = Table(conflict=rule, rule=rule), {}
    for _ in range(8):
        changes = [
            (rng.choice([Op.INSERT, Op.DELETE]), (rng.randrange(6), rng.randrange(9))) for _ in range(12)
        ]
        table.send(StreamChunk.from_rows(SCHEMA, changes))
        held = naive(rule, held, changes)
        assert table.rows == sorted(held.values()), f"seed {seed}"


class TestTrustedMaterialize(ExecutorSuite):
    schema, stream_key = SCHEMA, (0,)
    keys = tuple((key,) for key in range(12))
    conflict: ConflictBehaviour | None = None

    def build(self, input, store):
        return materialize(input, store, self.conflict, rule=OVERWRITE)

    def oracle(self, rows):
        return rows

    def new_row(self, rng, key):
        return (*key, rng.randrange(5))


class TestCheckedMaterialize(TestTrustedMaterialize):
    conflict = OVERWRITE


def work_of_a_chunk(rows, conflict):
    chunk = StreamChunk.from_rows(SCHEMA, [(0, (key, key)) for key in range(rows)])
    store = MemoryStateStore()
    messages = materialize(ScriptedExecutor(SCHEMA, (0,), [barrier(1), chunk]), store, conflict).execute()
    next(messages)
    return work_of(lambda: next(messages))


def test_work_of_the_interpreter_does_not_grow_with_the_rows_of_a_chunk():
    work_of_a_chunk(10, None)   # warm-up
    assert_no_work_per_row(work_of_a_chunk(1_024, None), work_of_a_chunk(10_240, None), 9_216)
