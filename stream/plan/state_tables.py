"""Catalogs of the internal tables in which executors keep their state.

    source offsets        split                                      | offset
    watermark of a source split                                      | greatest value
    aggregation, values   group columns                              | count(*), the states of each call
    aggregation, inputs   group columns, argument, stream key        | -
    aggregation, overflow group columns, argument                    | number of rows
    aggregation, distinct group columns or hash, argument            | per call the number of rows, or a bit
    aggregation, rows     group columns, order, stream key           | arguments
    join, one input       join key, stream key                       | all other columns
    interval join, times  time, join key, stream key                 | -
    top-n                 group columns, order, stream key           | all other columns
    dynamic filter        value, stream key                          | all other columns
    emit on window close  column with a watermark, stream key        | all other columns
    over-window           group columns, order, stream key           | all other columns, the states of each call
    errors of a job       fragment, vnode, reason                    | rows
    progress of a scan    vnode                                      | position, is_done, rows
    log of a sink         sequence number                            | changes
    batches of the log    epoch                                      | first sequence number, chunks, rows, bytes

Group columns, and those of a join key, are in their order, except that one with a watermark is the first. An internal
table has the distribution of its executor's rows, by the group columns, or by those of them by which the rows of the
input are distributed (fragments.py), and as many vnodes as the table of its job.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence

from relational.catalog.objects import TABLE_CONNECTOR, ColumnCatalog, TableCatalog, TableKind, value_columns
from relational.expr.aggregates import AggCall, AggKind, KeptOrder
from relational.expr.window_functions import RANK_TYPE, WindowCall, WindowKind
from relational.expr.window_reach import Reach
from relational.types import DESCENDING, DataType, Field, OrderType, Schema, SortKey, TypeKind, VnodeRule
from relational.types.vnodes import DEFAULT_VNODE_COUNT


def internal_table(
    table_id: int,
    name: str,
    job_id: int,
    fields: Iterable[Field],
    pk: Sequence[SortKey],
    distribution_key: tuple[int, ...],
    prefix_columns: int = 0,
    vnode_count: int = DEFAULT_VNODE_COUNT,
) -> TableCatalog:
    """A table of job `job_id`; its value holds every column that cannot be decoded from the key."""
    columns = tuple(ColumnCatalog(field.name, number, field.data_type) for number, field in enumerate(fields))
    return TableCatalog(
        id=table_id,
        name=name,
        kind=TableKind.INTERNAL,
        columns=columns,
        pk=tuple(pk),
        stream_key=tuple(key.column for key in pk),
        distribution_key=distribution_key,
        value_indices=value_columns(columns, pk),
        vnode_count=vnode_count,
        prefix_columns=prefix_columns,
        dependencies=(job_id,),
    )


def offset_table(table_id: int, name: str, job_id: int) -> TableCatalog:
    """The offset of each split of a source; in one vnode, as a source is one actor."""
    fields = Schema.of(split="varchar", offset="varchar")
    return internal_table(table_id, name, job_id, fields, [SortKey(0)], ())


def watermark_table_name(job: TableCatalog, split_prefix: str = "") -> str:
    """The name of the table of what a job knows of the watermark of a source; `split_prefix`: of one of several."""
    return f"{job.name}.watermark{'.' if split_prefix else ''}{split_prefix.rstrip('/')}"


def watermark_table(table_id: int, name: str, job: TableCatalog) -> TableCatalog:
    """The greatest value of each split, see stream/executor/watermark_filter.py; in one vnode, like the offsets."""
    fields = Schema.of(split="varchar", value="bigint")
    return internal_table(table_id, name, job.id, fields, [SortKey(0)], ())


def error_table_name(job: TableCatalog) -> str:
    """The name of the table of a job's rows without a value."""
    return f"{job.name}.errors"


def error_table(table_id: int, job: TableCatalog) -> TableCatalog:
    """The current number of a job's rows without a value, by reason, counted by the actor of a fragment that owns a
    vnode; in one vnode of the table itself."""
    fields = Schema.of(fragment="int", vnode="int", reason="varchar", rows="bigint")
    pk = [SortKey(0), SortKey(1), SortKey(2)]
    return internal_table(table_id, error_table_name(job), job.id, fields, pk, ())


def error_table_of_one_actor(table_id: int, job: TableCatalog) -> TableCatalog:
    """The error table of jobs that were created when each had one actor."""
    fields = Schema.of(reason="varchar", rows="bigint")
    return internal_table(table_id, error_table_name(job), job.id, fields, [SortKey(0)], ())


def progress_table(table_id: int, name: str, job_id: int) -> TableCatalog:
    """How far a scan has read the existing rows of each vnode: the key of the last row, without its table and vnode;
    whether it was the last; and the number of rows read. In one vnode of the table itself."""
    fields = Schema.of(vnode="int", position="bytea", is_done="boolean", rows="bigint")
    return internal_table(table_id, name, job_id, fields, [SortKey(0)], ())


SINKS_WITHOUT_LOG = frozenset(("digest", "blackhole", TABLE_CONNECTOR))
"""Connectors of sinks that keep what they deliver within the store."""


def sink_log_tables(ids: Callable[[str], int], job: TableCatalog) -> tuple[TableCatalog, TableCatalog]:
    """The log of a sink and its batches, see stream/connector/sink_log.py; in one vnode."""
    log, batches = f"{job.name}.log", f"{job.name}.batches"
    counts = Schema.of(epoch="bigint", first="bigint", chunks="bigint", rows="bigint", bytes="bigint")
    return (
        internal_table(ids(log), log, job.id, Schema.of(seq="bigint", changes="bytea"), [SortKey(0)], ()),
        internal_table(ids(batches), batches, job.id, counts, [SortKey(0)], ()),
    )


def group_table(
    table_id: int,
    name: str,
    job_id: int,
    schema: Schema,
    group_by: tuple[int, ...],
    calls: Sequence[AggCall],
    vnode_count: int = DEFAULT_VNODE_COUNT,
    closing: int | None = None,
    with_values: Collection[int] = (),
) -> TableCatalog:
    """One row per group of an aggregation over `schema`, as `AggGroups` flushes it. The group column number `closing`
    is the first of the key. `with_values`: numbers of the calls whose states keep values, or count bits."""
    groups = tuple(range(len(group_by)))
    fields = [schema[index] for index in group_by]
    fields.append(Field("row_count", DataType.BIGINT))
    arguments = [None if call.argument is None else schema[call.argument].data_type for call in calls]
    for number, (call, argument) in enumerate(zip(calls, arguments, strict=True)):
        states = (DataType.BYTEA, DataType.BIGINT) if number in with_values else state_types(call, argument)
        fields += (Field(f"state_{number}_{part}", state) for part, state in enumerate(states))
    for number, (call, argument) in enumerate(zip(calls, arguments, strict=True)):
        fields += (Field(f"state_{number}_above", state) for state in wide_state_types(call, argument))
    pk = [SortKey(index) for index in _key_order(len(group_by), closing)]
    return internal_table(table_id, name, job_id, fields, pk, groups, vnode_count=vnode_count)


def _key_order(groups: int, closing: int | None) -> list[int]:
    """The group columns in the order of a key that begins with `closing`."""
    first = [] if closing is None else [closing]
    return first + [index for index in range(groups) if index not in first]


def state_types(call: AggCall, argument: DataType | None) -> tuple[DataType, ...]:
    """The columns that hold the state of one call, as specified in relational/README.md."""
    if call.kind is AggKind.COUNT:
        return (DataType.BIGINT,)
    assert argument is not None
    if call.kind in (AggKind.BOOL_AND, AggKind.BOOL_OR) or call.kind.is_bitwise or call.kind.collects:
        return (DataType.BIGINT, DataType.BIGINT)
    if call.kind is AggKind.APPROX_COUNT_DISTINCT:
        return (DataType.BYTEA,)
    if call.kind is AggKind.USER_STATE:
        return (DataType.BYTEA, DataType.BIGINT)
    if call.kind.is_of_pairs:
        return (DataType.DOUBLE,) * 10 + (DataType.BIGINT,) * 2
    if call.kind in (AggKind.MIN, AggKind.MAX):
        return (argument, DataType.BIGINT)
    is_float = argument.kind in (TypeKind.REAL, TypeKind.DOUBLE)
    if call.kind.is_variance:
        whole = DataType.numeric(38, 0)
        return (DataType.DOUBLE,) * 4 + (DataType.BIGINT,) * 2 if is_float else (
            DataType.BIGINT, whole, whole, DataType.BIGINT)
    if is_float:
        return (DataType.DOUBLE,) * 2 + (DataType.BIGINT,) * 4
    return (DataType.numeric(38, argument.scale or 0), DataType.BIGINT)


def wide_state_types(call: AggCall, argument: DataType | None) -> tuple[DataType, ...]:
    """The columns, after all states, with the digits of a sum above its 38 digits. Rows that were stored before these
    columns existed have NULL in them."""
    if argument is None or call.kind not in (AggKind.SUM, AggKind.AVG) or (argument.precision or 0) <= 19:
        return ()
    return (DataType.BIGINT,)


def overflow_table(
    table_id: int,
    name: str,
    job_id: int,
    columns: Schema,
    kind: AggKind,
    vnode_count: int = DEFAULT_VNODE_COUNT,
    closing: int | None = None,
) -> TableCatalog:
    """The number of rows with each value for which the state of its group has no room, the extreme first in each group.
    `columns`: the group columns, then the value. The group column number `closing` is the first of the key."""
    order = DESCENDING if kind is AggKind.MAX else OrderType()
    groups = tuple(range(len(columns) - 1))
    pk = [*(SortKey(index) for index in _key_order(len(groups), closing)), SortKey(len(groups), order)]
    fields = [*columns, Field("row_count", DataType.BIGINT)]
    return internal_table(table_id, name, job_id, fields, pk, groups, len(groups), vnode_count)


DISTINCT_BITS = 64  # in one column


def distinct_table(
    table_id: int,
    name: str,
    job_id: int,
    columns: Schema,
    calls: Sequence[int],
    has_counts: bool,
    vnode_count: int = DEFAULT_VNODE_COUNT,
    closing: int | None = None,
) -> TableCatalog:
    """The values of each group for the DISTINCT calls numbered `calls`: for each the number of its rows with a value,
    or, without `has_counts`, a bit: whether there is one [R57]. `columns`: the group columns, then the value. The group
    column number `closing` is the first of the key."""
    groups = tuple(range(len(columns) - 1))
    names = [f"rows_{call}" for call in calls] if has_counts else [
        f"seen_{word}" for word in range(-(-len(calls) // DISTINCT_BITS))]
    fields = [*columns, *(Field(each, DataType.BIGINT) for each in names)]
    pk = [*(SortKey(index) for index in _key_order(len(groups), closing)), SortKey(len(groups))]
    return internal_table(table_id, name, job_id, fields, pk, groups, vnode_count=vnode_count)


HASH_COLUMNS = (Field("group_hash", DataType.BIGINT), Field("group_hash_low", DataType.BIGINT))
"""Of a group, in place of its columns: see `relational/agg/group_hashes.pyx`."""


def hashed_distinct_table(
    table_id: int,
    name: str,
    job_id: int,
    value: Field,
    calls: Sequence[int],
    has_counts: bool,
    vnode_count: int = DEFAULT_VNODE_COUNT,
) -> TableCatalog:
    """As `distinct_table` for an argument `value`, with the hash of a group for its columns."""
    table = distinct_table(
        table_id, name, job_id, Schema([*HASH_COLUMNS, value]), calls, has_counts, vnode_count)
    return dataclasses.replace(table, distribution_key=(0,), vnode_rule=VnodeRule.of_row_ids(vnode_count))


def ordered_columns(
    group_by: tuple[int, ...], calls: Sequence[AggCall], order: KeptOrder, stream_key: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[SortKey, ...]]:
    """The input columns that calls of one order keep, the group columns first, and the order of a group's rows by their
    positions, to the stream key."""
    arguments = (column for call in calls for column in call.arguments)
    columns = tuple(dict.fromkeys((*group_by, *(key.column for key in order.keys), *stream_key, *arguments)))
    ties = DESCENDING if order.ties_descend else OrderType()
    keys: dict[int, SortKey] = {}
    for key in (*order.keys, *(SortKey(column, ties) for column in stream_key)):
        if key.column not in group_by:
            keys.setdefault(key.column, SortKey(columns.index(key.column), key.order))
    return columns, tuple(keys.values())


def collected_table(
    table_id: int,
    name: str,
    job_id: int,
    columns: Schema,
    group_columns: int,
    keys: Sequence[SortKey],
    vnode_count: int = DEFAULT_VNODE_COUNT,
    closing: int | None = None,
) -> TableCatalog:
    """The rows of calls that collect, those of a group in the order `keys`. `columns`: the group columns first; number
    `closing` of them is the first of the key."""
    pk = [*(SortKey(index) for index in _key_order(group_columns, closing)), *keys]
    groups = tuple(range(group_columns))
    return internal_table(table_id, name, job_id, columns, pk, groups, group_columns, vnode_count)


def join_table(
    table_id: int,
    name: str,
    job_id: int,
    schema: Schema,
    key: tuple[int, ...],
    stream_key: tuple[int, ...],
    vnode_count: int | None,
    closing: int | None = None,
) -> TableCatalog:
    """The rows of one input of a join, whose columns are those of `schema`, by the columns `key` by which they are
    looked up; number `closing` of these is the first. `vnode_count` None: the join has one actor."""
    ordered = (key[number] for number in _key_order(len(key), closing))
    pk = [SortKey(column) for column in dict.fromkeys((*ordered, *stream_key))]
    return _table_of_keys(table_id, name, job_id, schema, pk, key, vnode_count)


def join_times_table(
    table_id: int, name: str, job_id: int, schema: Schema, columns: tuple[int, ...], key: tuple[int, ...],
    vnode_count: int | None,
) -> TableCatalog:
    """The `columns` of the rows of one input of an interval join: the one with a watermark, by which they are found
    again, then those that are the key of its other table. `vnode_count` None: the join has one actor."""
    pk = [SortKey(position) for position in range(len(columns))]
    distribution = () if vnode_count is None else tuple(map(columns.index, key))
    return internal_table(table_id, name, job_id, schema.project(columns), pk, distribution,
                          vnode_count=vnode_count or DEFAULT_VNODE_COUNT)


def ordered_table(
    table_id: int,
    name: str,
    job_id: int,
    schema: Schema,
    groups: tuple[int, ...],
    keys: Sequence[SortKey],
    stream_key: tuple[int, ...],
    vnode_count: int | None,
) -> TableCatalog:
    """The rows of a top-n or over-window, whose columns are those of `schema`, by `groups`, then in the order `keys`.
    `stream_key`: the columns that tell rows of a group apart, none if a group has one row. `vnode_count` None: it has
    one actor."""
    first: dict[int, SortKey] = {}
    for sort_key in (*map(SortKey, groups), *keys, *map(SortKey, stream_key)):
        first.setdefault(sort_key.column, sort_key)
    return _table_of_keys(table_id, name, job_id, schema, list(first.values()), groups, vnode_count)


def waiting_rows_table(
    table_id: int,
    name: str,
    job_id: int,
    schema: Schema,
    column: int,
    stream_key: tuple[int, ...],
    vnode_count: int,
) -> TableCatalog:
    """The rows that a bound or a watermark has not reached, whose columns are those of `schema`, in the order of
    `column`."""
    pk = [SortKey(each) for each in dict.fromkeys((column, *stream_key))]
    return internal_table(table_id, name, job_id, schema, pk, stream_key, vnode_count=vnode_count)


def with_states(schema: Schema, states: Sequence[Sequence[DataType]]) -> Schema:
    """The rows of an over-window, and the states of each call."""
    fields = [Field(f"state_{number}_{part}", data_type) for number, types in enumerate(states)
              for part, data_type in enumerate(types)]
    return Schema((*schema, *fields))


def window_states(
    calls: Sequence[WindowCall], reach: Reach | None, types: Sequence[DataType]
) -> list[tuple[DataType, ...]]:
    """The columns that hold the state of each of the window functions over columns of `types`; none where partitions
    are always read whole."""
    return [() if reach is None else _window_state(call, types) for call in calls]


def _window_state(call: WindowCall, types: Sequence[DataType]) -> tuple[DataType, ...]:
    """As specified in relational/order/over_window.py; none for a call whose value follows from no earlier row."""
    if not call.is_running:
        return ()
    argument = None if call.argument is None else types[call.argument]
    if isinstance(call.kind, AggKind):
        if call.kind in (AggKind.MIN, AggKind.MAX):
            return (call.data_type,)
        aggregate = AggCall(call.kind, call.argument, None, False, call.data_type)
        return (*state_types(aggregate, argument), *wide_state_types(aggregate, argument))
    if argument is None:
        return (RANK_TYPE,) * (2 if call.kind is WindowKind.RANK else 1)
    return RANK_TYPE, argument


def _table_of_keys(
    table_id: int,
    name: str,
    job_id: int,
    schema: Schema,
    pk: Sequence[SortKey],
    key: tuple[int, ...],
    vnode_count: int | None,
) -> TableCatalog:
    """A table whose rows are read by `key`, the first columns of `pk`, by which they are distributed; in one vnode if
    `vnode_count` is None."""
    if vnode_count is None:
        return internal_table(table_id, name, job_id, schema, pk, (), len(key))
    return internal_table(table_id, name, job_id, schema, pk, key, len(key), vnode_count)


def input_columns(
    group_by: tuple[int, ...], call: AggCall, stream_key: tuple[int, ...]
) -> tuple[tuple[int, ...], int]:
    """The distinct input columns that a retractable extreme keeps, and the position of its argument among them."""
    assert call.argument is not None
    columns = tuple(dict.fromkeys((*group_by, call.argument, *stream_key)))
    return columns, columns.index(call.argument)


def input_table(
    table_id: int,
    name: str,
    job_id: int,
    schema: Schema,
    columns: tuple[int, ...],
    group_columns: int,
    argument: int,
    kind: AggKind,
    vnode_count: int = DEFAULT_VNODE_COUNT,
    closing: int | None = None,
) -> TableCatalog:
    """The table of `columns`, with the extreme first in each group: MIN ascending, MAX descending. The group column
    number `closing` is the first of the key."""
    order = DESCENDING if kind is AggKind.MAX else OrderType()
    ordered = [*_key_order(group_columns, closing), *range(group_columns, len(columns))]
    pk = [SortKey(index) for index in ordered]
    if argument >= group_columns:
        pk[argument] = SortKey(argument, order)
    groups = tuple(range(group_columns))
    fields = schema.project(columns)
    return internal_table(table_id, name, job_id, fields, pk, groups, group_columns, vnode_count)
