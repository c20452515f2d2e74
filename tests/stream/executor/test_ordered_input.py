"""Aggregates that are computed from rows in an order: the contract of executors, evictions, limits and lost rows."""

from typing import ClassVar

import numpy as np
import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.agg import collected as collected_module
from relational.agg import groups as groups_module
from relational.chunk import Op, StreamChunk
from relational.errors import ConsistencyError
from relational.expr.aggregates import AggCall, AggKind, aggregate_type
from relational.expr.expression import Call, InputRef, Literal
from relational.table.state_table import StateTable
from relational.types import DESCENDING, DataType, OrderType, SortKey
from stream.executor import ordered_input as ordered_input_module
from tests.stream.executor.test_hash_agg import INPUT, appended, by_group, epochs_of, hash_agg
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import hashable, run_epochs
from tests.support.suites.executor_suite import ExecutorSuite

BY_VALUE = SortKey(2)
FALLING = SortKey(2, DESCENDING)
POSITIVE = Call("greater", (InputRef(2, DataType.INT), Literal(0, DataType.INT)), DataType.BOOLEAN)


def collect(kind, argument, *order, more=(), constants=(), filter=None, distinct=False):
    data_type = aggregate_type(kind, INPUT[argument].data_type)
    literals = (Literal(each, DataType.DOUBLE if isinstance(each, float) else DataType.VARCHAR) for each in constants)
    return AggCall(kind, argument, filter, distinct, data_type, more, order, tuple(literals))


CALLS = (
    collect(AggKind.ARRAY_AGG, 2, FALLING),
    collect(AggKind.ARRAY_AGG, 0),
    collect(AggKind.STRING_AGG, 1, SortKey(3), constants=("-",)),
    collect(AggKind.ARRAY_AGG, 2, BY_VALUE, distinct=True),
    collect(AggKind.FIRST_VALUE, 0, SortKey(2, OrderType(False, True))),
    collect(AggKind.LAST_VALUE, 0, BY_VALUE),
    collect(AggKind.ARG_MAX, 0, FALLING, more=(2,)),
    collect(AggKind.MODE, 2, BY_VALUE),
    collect(AggKind.PERCENTILE_DISC, 2, BY_VALUE, constants=(0.5,)),
    collect(AggKind.ARRAY_AGG, 0, BY_VALUE, filter=POSITIVE),
    collect(AggKind.FIRST_VALUE, 2, SortKey(3), filter=POSITIVE),
)


def expected(rows):
    """The results of CALLS for a group, its rows as (id, text, value, number)."""
    rows = sorted(rows)

    def by(key, order):
        return sorted(order, key=key)

    def nulls_last(row):
        return row[2] is None, row[2] or 0

    known = by(lambda row: row[2], [row for row in rows if row[2] is not None])
    falling = [row for row in rows if row[2] is None] + by(lambda row: -row[2], [r for r in rows if r[2] is not None])
    values = [row[2] for row in known]
    texts = [row[1] for row in by(lambda row: row[3], rows) if row[1] is not None]
    positive = [row for row in rows if row[2] is not None and row[2] > 0]
    distinct = sorted(set(values)) + ([None] if len(known) < len(rows) else [])
    return (
        [row[2] for row in falling] or None,
        [row[0] for row in rows] or None,
        "-".join(texts) if texts else None,
        distinct or None,
        next((row[0] for row in by(lambda row: (row[2] is not None, row[2] or 0), rows)), None),
        next((row[0] for row in reversed(by(nulls_last, rows))), None),
        next((row[0] for row in falling if row[2] is not None), None),
        max(values, key=lambda value: (values.count(value), -value), default=None),
        values[(len(values) + 1) // 2 - 1] if values else None,
        [row[0] for row in by(lambda row: row[2], positive)] or None,
        next((row[2] for row in by(lambda row: row[3], positive)), None),
    )


class OrderedSuite(ExecutorSuite):
    schema, stream_key = INPUT, (0,)
    keys = tuple((number,) for number in range(25))
    rows_per_chunk: ClassVar = 8
    group_by: ClassVar = (1,)
    chosen: ClassVar = range(len(CALLS))
    options: ClassVar[dict] = {}

    def build(self, input, store):
        return hash_agg(input, store, self.group_by, [CALLS[number] for number in self.chosen], **self.options)

    def oracle(self, rows):
        found = ((key, expected(own)) for key, own in by_group(rows, self.group_by))
        return [hashable((*key, *(values[number] for number in self.chosen))) for key, values in found]

    def new_row(self, rng, key):
        return (*key, rng.choice(["a", "b", "c", None]), rng.choice([None, *range(-3, 4)]), float(rng.randrange(9)))


class TestOrdered(OrderedSuite):
    pass


class TestOrderedThatEvictsEverything(OrderedSuite):
    options: ClassVar = {"cache_bytes": 1}


class TestOrderedThatEvictsSomeGroups(OrderedSuite):
    options: ClassVar = {"cache_bytes": 100_000, "flush_groups": 2}


class TestOrderedWithoutGroupsThatEvictsEverything(OrderedSuite):
    group_by: ClassVar = ()
    chosen: ClassVar = (1, 3, 5, 7, 9, 10)
    options: ClassVar = {"cache_bytes": 1, "flush_groups": 1}


class TestOrderedInSmallPieces(OrderedSuite):
    group_by: ClassVar = (1, 2)
    chosen: ClassVar = (0, 2, 4, 8)
    options: ClassVar = {"chunk_rows": 2}

    @pytest.fixture(autouse=True)
    def _small_pieces(self, monkeypatch):
        monkeypatch.setattr(groups_module, "COLLECTED_ROWS", 2)
        monkeypatch.setattr(groups_module, "FLUSH_GROUPS", 2)
        monkeypatch.setattr(ordered_input_module, "READ_GROUPS", 1)


class TestOrderedOfAppendedRows(OrderedSuite):
    """Of first values the table has the first rows alone."""

    options: ClassVar = {"append_only": True, "cache_bytes": 50_000}

    def random_epochs(self, seed):
        return appended(seed, self.new_row)


def listed(input, store=None, **options):
    calls = [collect(AggKind.ARRAY_AGG, 0, BY_VALUE), collect(AggKind.FIRST_VALUE, 0, BY_VALUE)]
    return hash_agg(input, store or MemoryStateStore(), (1,), calls, **options)


@pytest.mark.parametrize("cache_bytes", [1, 1 << 24])
def test_a_group_is_emitted_once_an_epoch_and_only_if_its_results_differ(cache_bytes):
    assert epochs_of(
        lambda input: listed(input, store, cache_bytes=cache_bytes),
        "+ 1 a 5 0\n+ 2 a 3 0",
        "+ 3 b 1 0\nU- 1 a 5 0\nU+ 1 a 5 7",
        "- 2 a 3 0\n+ 2 a 3 1",
        "- 1 a 5 7\n- 3 b 1 0",
        store=(store := MemoryStateStore()),
    ) == ["+ a [2,1] 2", "+ b [3] 3", "", "U- a [2,1] 2\nU+ a [2] 2\n- b [3] 3"]


@pytest.mark.parametrize("cache_bytes", [1, 1 << 24])
def test_a_row_moves_from_one_group_to_another(cache_bytes):
    assert epochs_of(
        lambda input: listed(input, store, cache_bytes=cache_bytes, flush_groups=1),
        "+ 1 a 5 0\n+ 2 a 3 0\n+ 3 b 1 0",
        "U- 2 a 3 0\nU+ 2 b 0 0",
        store=(store := MemoryStateStore()),
    )[1] == "U- a [2,1] 2\nU+ a [1] 1\nU- b [3] 3\nU+ b [2,3] 2"


@pytest.mark.parametrize("cache_bytes", [1, 1 << 24])
def test_a_group_that_is_too_large_has_no_value_and_is_not_read(monkeypatch, cache_bytes):
    """Until enough rows have gone."""
    monkeypatch.setattr(collected_module, "MOST_ROWS", 2)
    loaded, store = [], MemoryStateStore()
    read = StateTable.rows_under
    monkeypatch.setattr(StateTable, "rows_under", lambda self, keys: loaded.append(keys.capacity) or read(self, keys))
    executors = []

    def build(input):
        executors.append(hash_agg(
            input, store, (1,), [collect(AggKind.ARRAY_AGG, 0)], cache_bytes=cache_bytes, flush_groups=1))
        return executors[-1]

    rows = [f"+ {number} a 0 0" for number in range(1, 6)]
    assert epochs_of(build, "\n".join(rows[:2]), "\n".join(rows[2:]), store=store) == [
        "+ a [1,2]", "U- a [1,2]\nU+ a ."]
    assert executors[-1]._errors.take() == {"too many rows for ARRAY_AGG": 1}
    del loaded[:]
    again = run_epochs(build, store, INPUT, (0,), [[from_pretty(text, INPUT)] for text in (
        "+ 6 a 0 0", "- 1 a 0 0", "- 2 a 0 0\n- 3 a 0 0\n- 4 a 0 0")], first=3)
    assert ["\n".join(chunk.to_pretty() for chunk in made) for made in again] == ["", "", "U- a .\nU+ a [5,6]"]
    assert len(loaded) == 1
    assert executors[-1]._errors.take() == {"too many rows for ARRAY_AGG": -1}


def test_a_group_with_too_many_bytes_has_no_value(monkeypatch):
    monkeypatch.setattr(collected_module, "MOST_BYTES", 40)
    call = collect(AggKind.STRING_AGG, 1, constants=(",",))
    text = "+ 1 {0} 0 0\n+ 2 {0} 0 0"

    def build(input):
        return hash_agg(input, MemoryStateStore(), (2,), [call])

    assert epochs_of(build, text.format("x" * 12)) == [f"+ 0 {'x' * 12},{'x' * 12}"]
    assert epochs_of(build, text.format("x" * 13)) == ["+ 0 ."]


def test_a_table_that_has_lost_rows_is_noticed():
    store = MemoryStateStore()
    epochs_of(lambda input: listed(input, store), "+ 1 a 5 0\n+ 2 a 3 0", store=store)

    def build(input):
        executor = listed(input, store)
        table = executor._ordered[0].table
        write = table.init_epoch
        table.init_epoch = lambda epoch: (write(epoch), table.delete_row(("a", 3, 2)))
        return executor

    with pytest.raises(ConsistencyError, match="1 rows of a group that has 2"):
        run_epochs(build, store, INPUT, (0,), [[from_pretty("+ 3 a 9 0", INPUT)]], first=2)


def test_sizes_are_those_of_rows_that_are_kept():
    chunk = StreamChunk.from_rows(INPUT, [(Op.INSERT, (1, "ab", 5, 0.0)), (Op.INSERT, (2, None, None, 0.0))])
    mask = np.array([1, 0], np.uint8)
    assert collected_module.kept_sizes(chunk, (), None, (1, 2)).to_pylist() == [18, 16]
    assert collected_module.kept_sizes(chunk, (2,), None, (1,)).to_pylist() == [10, None]
    assert collected_module.kept_sizes(chunk, (), mask, (1,)).to_pylist() == [10, None]
