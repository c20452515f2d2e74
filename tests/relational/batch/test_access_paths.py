"""Random conditions on keys: what is read by them, against a filter of all rows; orders along the key, against a sort.

The filter and the comparison of rows are Python's, by `random_rows`, and share nothing with the paths.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Context, Decimal

import pytest

from hummock.epoch import EpochPair
from hummock.store.memory_store import MemoryStateStore
from relational.batch.access_path import access
from relational.batch.plan import BatchNode, BatchScan, ScanOrder
from relational.batch.planner import plan_query
from relational.catalog.objects import ColumnCatalog, RowFormat, TableCatalog, TableKind, value_columns
from relational.chunk import Op, StreamChunk
from relational.expr.bind import call, convert
from relational.expr.expression import Expression, InputRef, Literal, conjunction
from relational.plan.logical import Filter, Limit, LogicalPlan, Scan, Sort
from relational.table.state_table import StateTable
from relational.types import DataType, OrderType, SortKey, TypeKind
from tests.relational.random_rows import ORDERS, TYPES, random_value, sort_key, sql_value
from tests.support.drivers.query_chunks import query_chunks
from tests.support.drivers.seeds import run_seed, seeds

EPOCH = 2 << 16
EXACT = Context(prec=100)
SIGNS = {"equal": "=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
WIDER = {
    TypeKind.SMALLINT: (DataType.INT, DataType.BIGINT, DataType.numeric(12, 2), DataType.DOUBLE),
    TypeKind.INT: (DataType.BIGINT, DataType.numeric(14, 3), DataType.DOUBLE),
    TypeKind.BIGINT: (DataType.numeric(25, 4), DataType.DOUBLE),
    TypeKind.NUMERIC: (DataType.BIGINT, DataType.numeric(12, 1), DataType.numeric(30, 20)),
    TypeKind.REAL: (DataType.DOUBLE,),
    TypeKind.DATE: (DataType.TIMESTAMP,),
}
"""Types of constants that a column is compared with, besides its own."""


class RandomTable:
    """A table with a random key, and its rows as Python tuples."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        width = rng.randrange(1, 4)
        self.types = [rng.choice(TYPES) for _ in range(width + 1)]
        pk = rng.sample(range(width + 1), width)
        keys = tuple(SortKey(column, rng.choice(ORDERS)) for column in pk)
        distribution = tuple(rng.sample(pk, rng.randrange(0, width + 1)))
        columns = tuple(ColumnCatalog(f"c{at}", at, data_type) for at, data_type in enumerate(self.types))
        self.catalog = TableCatalog(
            1, "t", TableKind.TABLE, columns, keys, tuple(pk), distribution, value_columns(columns, keys),
            vnode_count=rng.choice((1, 4, 16)), row_format=rng.choice((RowFormat.ROW, RowFormat.ROW, RowFormat.CELL)),
        )  # fmt: skip
        self.pools = [[random_value(rng, data_type) for _ in range(rng.choice((2, 8)))] for data_type in self.types]
        wanted = [tuple(None if rng.random() < 0.1 else rng.choice(pool) for pool in self.pools)
                  for _ in range(rng.choice((5, 60, 400)))]
        by_key = {repr([_normal(row[column]) for column in pk]): row for row in wanted}
        written = list(by_key.values())
        self.store = MemoryStateStore()
        table = StateTable(self.catalog, self.store)
        table.init_epoch(EpochPair(EPOCH, 1 << 16))
        table.write_chunk(StreamChunk.from_rows(self.catalog.schema, [(Op.INSERT, row) for row in written]))
        table.commit(EpochPair(3 << 16, EPOCH))
        self.store.commit(EPOCH)
        self.scan = Scan(self.catalog)
        self.rows = self.read(self.scan)
        assert len(self.rows) == len(written)

    def read(self, plan: LogicalPlan) -> list[tuple]:
        return [row for chunk in query_chunks(plan, self.store, EPOCH) for row in chunk.rows()]

    def constant(self, column: int) -> tuple[object, DataType]:
        """A value to compare a column with, of its type or a wider one, and the type."""
        data_type = self.types[column]
        value = self.rng.choice(self.pools[column]) if self.rng.random() < 0.7 else random_value(self.rng, data_type)
        others = WIDER.get(data_type.kind, ())
        if not others or self.rng.random() < 0.5:
            return (None if self.rng.random() < 0.05 else value), data_type
        other = self.rng.choice(others)
        return _converted(self.rng, value, other), other

    def term(self) -> tuple[Expression, object]:
        """A condition, and the same as a Python function of a row."""
        column = self.rng.randrange(len(self.types))
        ref = InputRef(column, self.types[column])
        kind = self.rng.random()
        if kind < 0.08:
            return call("is_null", [ref]), lambda row: row[column] is None
        if kind < 0.35:
            found = [self.constant(column) for _ in range(self.rng.choice((1, 2, 5, 30)))]
            found = [each for each in found if each[1] == found[0][1]]
            values = [Literal(value, data_type) for value, data_type in found]
            if self.rng.random() < 0.4:
                terms = [call("equal", [ref, value] if self.rng.random() < 0.5 else [value, ref]) for value in values]
                bound = terms[0] if len(terms) == 1 else call("or", terms)
            else:
                bound = call("in", [ref, *values])
            return bound, lambda row: any(_compare(row[column], value) == 0 for value, _ in found)
        function = self.rng.choice((*SIGNS, "is_not_distinct"))
        value, data_type = self.constant(column)
        constant = Literal(value, data_type)
        if function == "is_not_distinct":
            alike = lambda row: (row[column] is None) if value is None else _compare(row[column], value) == 0  # noqa: E731
            return call(function, [ref, constant]), alike
        if self.rng.random() < 0.5:
            return call(function, [ref, constant]), lambda row: _holds(SIGNS[function], row[column], value)
        return call(function, [constant, ref]), lambda row: _holds(SIGNS[function], value, row[column])


def _converted(rng: random.Random, value: object, other: DataType) -> object:
    """A value of another type at or near this one, or far from all of the first type."""
    if other.kind is TypeKind.TIMESTAMP:
        return dt.datetime.combine(value, dt.time(rng.choice((0, 0, 12))))
    if other.kind is TypeKind.DOUBLE:
        return rng.choice((float(value), float(value) + 0.5, 1e300, -1e300, math.nan, math.inf))
    if other.is_integer:
        bits = {TypeKind.INT: 31, TypeKind.BIGINT: 63}[other.kind]
        whole = int(value) if not isinstance(value, float) else 0
        return min(max(whole + rng.choice((0, 0, 1, 1 << 40)), -(1 << bits)), (1 << bits) - 1)
    most = 10**other.precision - 1
    digits = int(EXACT.multiply(Decimal(value), Decimal(10) ** other.scale)) + rng.choice((0, 0, 1, -1))
    return Decimal(min(max(digits, -most), most)).scaleb(-other.scale, context=EXACT)


def _normal(value: object) -> object:
    """Equal in SQL, equal here."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value.total_microseconds if hasattr(value, "total_microseconds") else value


def _compare(one: object, other: object) -> int | None:
    """-1, 0 or 1; None if one is NULL."""
    if one is None or other is None:
        return None
    if isinstance(one, float) or isinstance(other, float):
        one, other = float(one), float(other)
    elif isinstance(one, dt.datetime) != isinstance(other, dt.datetime):
        one, other = (value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time(0))
                      for value in (one, other))
    one, other = sql_value(one), sql_value(other)
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    return (one > other) - (one < other)


def _holds(sign: str, one: object, other: object) -> bool:
    found = _compare(one, other)
    if found is None:
        return False
    return {"=": found == 0, "<": found < 0, "<=": found <= 0, ">": found > 0, ">=": found >= 0}[sign]


def _scans(plan: BatchNode) -> list[BatchScan]:
    return [plan] if isinstance(plan, BatchScan) else [scan for each in plan.inputs for scan in _scans(each)]


@pytest.mark.parametrize("number", seeds(25, 60))
def test_conditions_read_what_a_filter_keeps(number):
    rng = random.Random(f"{run_seed()} {number}")
    table = RandomTable(rng)
    for _ in range(25):
        terms, tests = zip(*(table.term() for _ in range(rng.choice((1, 1, 2, 3, 4)))), strict=True)
        predicate = conjunction(terms)
        expected = [row for row in table.rows if all(test(row) for test in tests)]
        plan = Filter(table.scan, predicate)
        found = table.read(plan)
        shown = (run_seed(), number, predicate.describe(table.catalog.schema.names))
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), shown
        limit = rng.choice((0, 1, 3, 40))
        some = table.read(Limit(plan, limit))
        assert len(some) == min(limit, len(expected)), shown
        assert {repr(row) for row in some} <= {repr(row) for row in expected}, shown


@pytest.mark.parametrize("number", range(30))
def test_orders_along_the_key(number):
    rng = random.Random(f"{run_seed()} order {number}")
    table = RandomTable(rng)
    is_reverse = rng.random() < 0.5
    keys = [SortKey(key.column, OrderType(key.order.descending != is_reverse, key.order.nulls_first != is_reverse))
            for key in table.catalog.pk]
    by_key = sort_key([key.order for key in keys], [table.types[key.column] for key in keys])
    for _ in range(12):
        terms, tests = zip(*(table.term() for _ in range(rng.choice((1, 1, 2)))), strict=True)
        is_filtered = rng.random() < 0.7
        plan = Filter(table.scan, conjunction(terms)) if is_filtered else table.scan
        expected = [row for row in table.rows if not is_filtered or all(test(row) for test in tests)]
        expected.sort(key=lambda row: by_key(tuple(row[key.column] for key in keys)))
        limit, offset = rng.choice((1, 5, 50, 700)), rng.choice((0, 0, 3))
        query = Limit(Sort(plan, tuple(keys)), limit, offset)
        found = table.read(query)
        assert list(map(repr, found)) == list(map(repr, expected[offset : offset + limit])), (run_seed(), number)


def test_the_order_is_along_the_key():
    """What the random test compares is not a sort, where it need not be one."""
    table = RandomTable(random.Random(1))
    order = tuple(table.catalog.pk)
    (scan,) = _scans(plan_query(Limit(Sort(table.scan, order), 3)))
    assert scan.order is ScanOrder.FORWARD and scan.limit == 3
    assert access(table.scan, None, order=order, limit=3)[1]


@pytest.mark.parametrize(
    ("data_type", "function", "value", "kept"),
    [
        (DataType.SMALLINT, "less", Literal(40_000, DataType.INT), "all"),
        (DataType.SMALLINT, "equal", Literal(40_000, DataType.INT), "none"),
        (DataType.SMALLINT, "greater", Literal(40_000, DataType.INT), "none"),
        (DataType.SMALLINT, "greater", Literal(-40_000, DataType.INT), "all"),
        (DataType.INT, "equal", Literal(Decimal("1.5"), DataType.numeric(2, 1)), "none"),
        (DataType.INT, "greater_equal", Literal(math.nan, DataType.DOUBLE), "none"),
        (DataType.numeric(3, 1), "less_equal", Literal(Decimal(1000), DataType.numeric(4)), "all"),
        (DataType.numeric(3, 1), "equal", Literal(Decimal("1.05"), DataType.numeric(3, 2)), "none"),
        (DataType.DATE, "equal", Literal(dt.datetime(2020, 1, 1, 12), DataType.TIMESTAMP), "none"),
    ],
)
def test_a_constant_that_the_column_cannot_represent(data_type, function, value, kept):
    """It is a range of the key, an empty or a full one [R60]."""
    columns = (ColumnCatalog("k", 0, data_type),)
    catalog = TableCatalog(1, "t", TableKind.TABLE, columns, (SortKey(0),), (0,), (0,), ())
    store, table = MemoryStateStore(), None
    table = StateTable(catalog, store)
    table.init_epoch(EpochPair(EPOCH, 1 << 16))
    one = convert(Literal("2020-01-01" if data_type is DataType.DATE else "1", DataType.VARCHAR), data_type).value
    table.write_chunk(StreamChunk.from_rows(catalog.schema, [(Op.INSERT, (one,))]))
    table.commit(EpochPair(3 << 16, EPOCH))
    store.commit(EPOCH)
    plan = Filter(Scan(catalog), call(function, [InputRef(0, data_type), value]))
    assert isinstance(plan_query(plan), BatchScan), plan_query(plan).explain()
    rows = [row for chunk in query_chunks(plan, store, EPOCH) for row in chunk.rows()]
    assert rows == ([(one,)] if kept == "all" else [])
