"""Constraints on rows written to a table from any source: no NULL in a primary key or NOT NULL column, no text longer
than its column's limit, dates and times within the years 1 to 9999, a key and a value within the store's limits.

Whole chunks are checked before anything is written. Rows are encoded for the check only if one may be near a limit.
Which columns there is something to check of is known from the catalog: `RowChecks` looks once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.columnar.binary_column import BinaryColumn
from relational.catalog.objects import ColumnCatalog, TableCatalog
from relational.chunk.arrow_import import check_ranges, has_range
from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.encoding.key.encoder import MOST_KEY_BYTES
from relational.encoding.value.encoder import MOST_VALUE_BYTES
from relational.errors import InvalidValue
from relational.table.row_serde import RowSerde
from relational.types.data_type import DataType, TypeKind

LONG_KEY = "a derived key takes more than the 1 MiB that the store holds"
TEXTS = (TypeKind.VARCHAR, TypeKind.BYTEA, TypeKind.JSONB)
FIXED_BYTES = 32  # no encoded fixed-width value is longer
TEXT_GROWTH = 4  # an encoded text has at most this many times its bytes
NESTED_GROWTH = 64  # an encoded list or struct has at most this many times its bytes in memory


class RowChecks:
    """The checks of `table`. `are_in_range`: the years of dates and times were checked before."""

    def __init__(self, table: TableCatalog, *, are_in_range: bool = False) -> None:
        self._table, self._types = table, table.schema.types
        self._columns = []
        for index, column in enumerate(table.columns):
            is_in_key, may_be_out = index in table.pk_indices, not are_in_range and has_range(column.data_type)
            if index == table.row_id_index:
                continue
            if is_in_key or column.not_null or column.max_length is not None or may_be_out:
                self._columns.append((index, column, is_in_key, may_be_out))
        parts = ((table.pk_indices, MOST_KEY_BYTES), (table.value_indices, MOST_VALUE_BYTES))
        self._limited = [
            (indices, most) for indices, most in parts if any(_has_any_size(self._types[index]) for index in indices)
        ]
        self._has_nested = any(self._types[index].is_nested for indices, _ in self._limited for index in indices)

    def check(self, rows: DataChunk) -> None:
        """InvalidValue names a column and the first of the visible rows that the table cannot store: its position in
        `rows`, which has the table's columns; a generated key is not checked."""
        try:
            self._check_dense(rows.compact())
        except InvalidValue as error:
            if rows.visibility is None or error.row is None:
                raise
            row = int(np.flatnonzero(rows.visibility)[error.row])
            raise InvalidValue(error.reason, column_name=error.column_name, row=row) from None

    def _check_dense(self, rows: DataChunk) -> None:
        for index, column, is_in_key, may_be_out in self._columns:
            array = rows.columns[index].array
            _check_column(column, array, is_in_key)
            if may_be_out:
                _check_ranges(column, array)
        for indices, most in self._limited:
            if self._has_nested or FIXED_BYTES * len(indices) + TEXT_GROWTH * rows.nbytes > most:
                self._check_sizes(rows, indices, most)

    def _check_sizes(self, rows: DataChunk, indices: Sequence[int], most: int) -> None:
        """Of the key or, where `most` is its limit, of the value, which these columns make."""
        arrays = rows.arrays

        def encoded() -> BinaryColumn:
            serde = RowSerde(self._table)
            return serde.keys_of(rows)[0] if most == MOST_KEY_BYTES else serde.values_of(rows)

        limited, types = [arrays[index] for index in indices], [self._types[index] for index in indices]
        beyond = rows_beyond(limited, types, most, encoded)
        if beyond is not None:
            row = int(np.argmax(beyond))
            largest = max(indices, key=lambda index: arrays[index].slice(row, 1).nbytes)
            what = "key" if most == MOST_KEY_BYTES else "row"
            reason = f"the {what} takes more than the {most:,} bytes that the store holds"
            raise InvalidValue(reason, column_name=self._table.columns[largest].name, row=row)


def check_rows(table: TableCatalog, rows: DataChunk, *, are_in_range: bool = False) -> None:
    """As `RowChecks.check`, for one chunk of a table."""
    RowChecks(table, are_in_range=are_in_range).check(rows)


def may_refuse(table: TableCatalog) -> bool:
    """Whether `check_rows` can refuse any row whose dates and times are in range."""
    return any(
        column.not_null or column.max_length is not None or index in table.pk_indices or _has_any_size(column.data_type)
        for index, column in enumerate(table.columns)
        if index != table.row_id_index
    )


def first_repeated_key(table: TableCatalog, rows: DataChunk) -> int | None:
    """The first of the rows whose primary key an earlier one has; None if all keys differ. REQUIRES rows that
    `check_rows` accepts, none of them hidden.
    """
    numbers = RowSerde(table).keys_of(rows)[0].to_arrow().dictionary_encode().indices.to_numpy()  # by first appearance
    repeated = numbers[1:] <= np.maximum.accumulate(numbers)[:-1]
    return int(np.argmax(repeated)) + 1 if repeated.any() else None


def may_be_long(types: Sequence[DataType], columns: Sequence[int | None]) -> bool:
    """Whether a key of these of the columns of `types` can exceed the store's limit; None: a BIGINT besides these."""
    return any(column is not None and _has_any_size(types[column]) for column in columns)


def without_long_keys(
    chunk: StreamChunk, columns: Sequence[int | None], table: TableCatalog
) -> tuple[StreamChunk, int]:
    """(`chunk` without the rows whose `columns`, as the key of `table`, exceed the store's limit; the net change of
    their number): a retraction of such a row is omitted as its insertion was, and decrements the count. None: a BIGINT
    that is not in the chunk.
    """
    key = [_any_number(chunk.capacity) if index is None else chunk.columns[index] for index in columns]
    beyond = rows_beyond(
        [column.array for column in key],
        [column.data_type for column in key],
        MOST_KEY_BYTES,
        lambda: RowSerde(table).keys_of_pks(key, chunk.capacity)[0],
    )
    if beyond is None:
        return chunk, 0
    lost = chunk.filter(beyond).compact()
    gone = np.isin(lost.ops, (Op.DELETE, Op.UPDATE_DELETE)).sum()
    return chunk.filter(~beyond), int(lost.visible_rows - 2 * gone)


def _any_number(rows: int) -> Column:
    return Column(pa.array(np.zeros(rows, np.int64)))


def rows_beyond(
    arrays: Sequence[pa.Array], types: Sequence[DataType], most: int, encode: Callable[[], BinaryColumn]
) -> np.ndarray | None:
    """bool[rows]: the rows whose encoded columns exceed `most` bytes; None if none does.

    `encode` encodes all rows and is called only if one may be too long. InvalidValue if that needs 2 GiB.
    """
    if not any(map(_has_any_size, types)):
        return None
    for longest in (_total, _longest):
        if sum(_bound(array, each, longest) for array, each in zip(arrays, types, strict=True)) <= most:
            return None
    try:
        beyond = _sizes(encode().to_arrow()) > most
    except OverflowError as error:
        raise InvalidValue(f"send fewer rows at once: {error}") from None
    return beyond if beyond.any() else None


def _check_column(column: ColumnCatalog, array: pa.Array, is_in_key: bool) -> None:
    if array.null_count and (is_in_key or column.not_null):
        row = pc.index(array.is_null(), True).as_py()
        kind = "part of the primary key" if is_in_key else "NOT NULL"
        raise InvalidValue(f"the column is {kind}, and this is NULL", column_name=column.name, row=row)
    if column.max_length is not None and _longest(array) > column.max_length:
        lengths = pc.utf8_length(array)
        row = pc.index(pc.greater(lengths, column.max_length), True).as_py()
        if row >= 0:
            reason = f"a text of {lengths[row]} characters, the column holds at most {column.max_length}"
            raise InvalidValue(reason, column_name=column.name, row=row)


def _check_ranges(column: ColumnCatalog, array: pa.Array) -> None:
    try:
        check_ranges(array, column.data_type)
    except InvalidValue as error:
        raise error.named(column.name) from None


def _has_any_size(data_type: DataType) -> bool:
    return data_type.is_nested or data_type.kind in TEXTS


def _bound(array: pa.Array, data_type: DataType, longest: Callable[[pa.Array], int]) -> int:
    """An upper bound on the encoded size of a value of the column; `longest`: no text of it is longer."""
    if data_type.is_nested:
        return FIXED_BYTES + NESTED_GROWTH * array.nbytes
    return FIXED_BYTES + (TEXT_GROWTH * longest(array) if data_type.kind in TEXTS else 0)


def _longest(array: pa.Array) -> int:
    """The size in bytes of the longest text of a column."""
    return int(_sizes(array).max(initial=0))


def _total(array: pa.Array) -> int:
    """The size in bytes of all texts of a column: a bound that no row is read for."""
    offsets = _offsets(array)
    return int(offsets[-1] - offsets[0])


def _sizes(array: pa.Array) -> np.ndarray:
    """int32[rows]: the size in bytes of each text of a column in its own layout."""
    return np.diff(_offsets(array))


def _offsets(array: pa.Array) -> np.ndarray:
    """int32[rows + 1]: where each text of the column begins, and where the last one ends."""
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    rows = len(storage)
    if not rows:
        return np.zeros(1, np.int32)
    return np.frombuffer(storage.buffers()[1], np.int32, rows + 1, 4 * storage.offset)
