"""RowSerde: rows of one table as user keys and values, and back.

Key: `table_id u32 BE | vnode u16 BE | memcomparable(pk columns)`. Value: the value encoding of the catalog's
`value_indices`; a RowStore decides the number of store entries per row. Every method accepts and returns whole chunks;
no work is per row in Python. Immutable, for any thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hummock.base.key import USER_KEY_PREFIX_BYTES, KeyRange
from hummock.columnar.binary_column import BinaryColumn
from hummock.state_store import StateStore
from relational.catalog.objects import RowFormat, TableCatalog
from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk
from relational.chunk.vnode import vnodes_of
from relational.encoding.cells import CellEncoder
from relational.encoding.key.encoder import KeyEncoder
from relational.encoding.value.encoder import ValueEncoder
from relational.errors import DamagedRow, EncodingError
from relational.table.cell_rows import CellRows
from relational.table.row_layout import RowStore, WholeRows

Row = tuple[object, ...]


class RowSerde:
    """The layout of a catalog's rows. `columns` (None: all) are the decoded columns, in their order."""

    def __init__(self, catalog: TableCatalog, columns: Sequence[int] | None = None):
        """ValueError for a distribution column outside the pk, a distribution key that has no vnode by the table's
        rule, or a column in neither key nor value.
        """
        self.catalog = catalog
        self.types = catalog.schema.types
        self.columns = tuple(range(len(self.types))) if columns is None else tuple(columns)
        self.pk = catalog.pk_indices
        missing = set(catalog.distribution_key) - set(self.pk)
        if missing:
            raise ValueError(f"distribution columns {sorted(missing)} of {catalog.name!r} are not in its key")
        catalog.vnode_rule.check_key([self.types[column] for column in catalog.distribution_key])
        self.distribution_in_pk = tuple(self.pk.index(column) for column in catalog.distribution_key)
        self.key_encoder = KeyEncoder(
            [self.types[index] for index in self.pk], [key.order for key in catalog.pk]
        )
        stored = [catalog.columns[index] for index in catalog.value_indices]
        self.value_encoder = ValueEncoder(
            [column.data_type for column in stored],
            [column.column_id for column in stored],
            [column.default for column in stored],
        )
        self.locations = tuple(self._location(column) for column in self.columns)
        """(whether it is decoded from the key, its position there or in the value) of each of the columns."""
        self._in_value = [position for is_in_key, position in self.locations if not is_in_key]
        self._pk_types = [self.types[index] for index in self.pk]

    def rows_in(self, store: StateStore) -> RowStore:
        """The rows of the table in `store`, in its row format."""
        if self.catalog.row_format is RowFormat.CELL:
            return CellRows(store, CellEncoder(self.value_encoder))
        return WholeRows(store)

    def covers_distribution(self, prefix_columns: int) -> bool:
        """Whether the first `prefix_columns` of the pk determine the vnode."""
        return all(position < prefix_columns for position in self.distribution_in_pk)

    def keys_of(self, rows: DataChunk) -> tuple[BinaryColumn, np.ndarray]:
        """(user key, vnode uint16) of each complete row."""
        vnodes = rows.vnodes(self.catalog.distribution_key, self.catalog.vnode_count, self.catalog.vnode_rule)
        return self.keys_under([rows.columns[index] for index in self.pk], vnodes), vnodes

    def values_of(self, rows: DataChunk) -> BinaryColumn:
        """The value of each complete row."""
        stored = [rows.columns[index] for index in self.catalog.value_indices]
        return self.value_encoder.encode(stored, rows=rows.capacity)

    def keys_of_pks(self, columns: Sequence, rows: int) -> tuple[BinaryColumn, np.ndarray]:
        """(user key, vnode uint16) of pk columns; for leading ones that determine the vnode, the prefix of user keys.
        """
        vnodes = self.vnodes_of([columns[position] for position in self.distribution_in_pk], rows)
        return self.keys_under(columns, vnodes), vnodes

    def vnodes_of(self, distribution: Sequence, rows: int) -> np.ndarray:
        """uint16[rows]: the vnode of each row of the distribution columns."""
        return vnodes_of(distribution, self.catalog.vnode_count, rows=rows, rule=self.catalog.vnode_rule)

    def keys_under(self, columns: Sequence, vnodes: np.ndarray) -> BinaryColumn:
        """User keys, or their prefixes, of leading pk columns under given vnodes, uint16[rows]."""
        return self.key_encoder.encode(columns, table_id=self.catalog.id, vnodes=vnodes, rows=len(vnodes))

    def prefix_columns(self, prefix: Row) -> list:
        """The leading pk columns of one row of values. ValueError for too many."""
        if len(prefix) > len(self.pk):
            raise ValueError(f"a prefix of {len(prefix)} values for a key of {len(self.pk)} columns")
        return list(self.pk_chunk([prefix], len(prefix)).columns)

    def pk_chunk(self, pks: Sequence[Row], width: int | None = None) -> DataChunk:
        """Rows of pk values (of the first `width` pk columns) as a chunk."""
        if len(pks) == 1 and len(pks[0]) == (len(self.pk) if width is None else width):
            types = self._pk_types[: len(pks[0])]
            row = [Column.from_pylist([value], data_type) for value, data_type in zip(pks[0], types, strict=True)]
            return DataChunk(row, capacity=1)
        schema = self.catalog.schema.project(self.pk[: len(self.pk) if width is None else width])
        return DataChunk.from_rows(schema, pks)

    def decode(self, keys: BinaryColumn, values: BinaryColumn) -> DataChunk:
        """The rows stored under `keys`. DamagedRow where bytes are no row of this table."""
        return self._rows(self._keys_in(keys) if self._reads_key else [], values, "error", keys)

    def decode_keys(self, keys: BinaryColumn) -> DataChunk:
        """The rows stored under `keys`, from the keys alone: columns outside the key are NULL. DamagedRow."""
        in_key = dict(zip(self.pk, self._keys_in(keys), strict=True))
        columns = [in_key.get(at) for at in self.columns]
        nulls = [pa.nulls(len(keys), self.types[at].arrow) for at in self.columns]
        return DataChunk([array if found is None else found for found, array in zip(columns, nulls, strict=True)],
                         capacity=len(keys))

    def decode_found(self, pk_columns: Sequence, values: BinaryColumn) -> DataChunk:
        """The rows of looked-up keys; for a null value the columns outside the key are NULL. DamagedRow."""
        return self._rows(pk_columns, values, "null")

    def show_key(self, key: bytes) -> Row:
        """The pk values of a user key, for errors."""
        return self.key_encoder.decode_row(key, USER_KEY_PREFIX_BYTES)

    def ranges(self, columns: Sequence, owned: np.ndarray | None) -> list[KeyRange]:
        """The user keys that begin with one of `prefixes`."""
        return [KeyRange.prefix(key) for key in self.prefixes(columns, owned)]

    def prefixes(self, columns: Sequence, owned: np.ndarray | None) -> list[bytes]:
        """What the user keys of one row of leading pk columns begin with: one prefix if the vnode is determined, else
        one per vnode of `owned` (uint8[vnode_count], None: all), ascending.
        """
        if self.covers_distribution(len(columns)):
            vnodes = self.vnodes_of([columns[position] for position in self.distribution_in_pk], 1)
        else:
            vnodes = np.arange(self.catalog.vnode_count) if owned is None else np.flatnonzero(owned)
        rows = np.zeros(len(vnodes), np.int32)
        repeated = DataChunk(columns, capacity=1).take(rows).columns
        return list(self.keys_under(repeated, vnodes.astype(np.uint16)))

    def vnode_of(self, distribution: Row) -> int:
        """The vnode of the rows with these values of the distribution columns."""
        values = DataChunk.from_rows(self.catalog.schema.project(self.catalog.distribution_key), [distribution])
        return int(self.vnodes_of(values.columns, 1)[0])

    @property
    def _reads_key(self) -> bool:
        return any(in_key for in_key, _ in self.locations)

    def _location(self, column: int) -> tuple[bool, int]:
        if column in self.catalog.value_indices:
            return False, self.catalog.value_indices.index(column)
        if column not in self.pk:
            raise ValueError(
                f"column {column} of {self.catalog.name!r} is neither in its key nor in its value"
            )
        return True, self.pk.index(column)

    def _keys_in(self, keys: BinaryColumn) -> list:
        try:
            return self.key_encoder.decode(keys, USER_KEY_PREFIX_BYTES)
        except EncodingError as error:
            name = None if error.column is None else self.catalog.columns[self.pk[error.column]].name
            raise DamagedRow(self.catalog.name, None, name, error.reason) from error

    def _rows(
        self, in_key: Sequence, values: BinaryColumn, absent: str, keys: BinaryColumn | None = None
    ) -> DataChunk:
        wanted = self._in_value
        try:
            in_value = self.value_encoder.decode(values, wanted, absent=absent) if wanted else []
        except EncodingError as error:
            raise self._damaged(error, in_key, keys) from error
        taken = iter(in_value)
        columns = [in_key[position] if is_in_key else next(taken) for is_in_key, position in self.locations]
        return DataChunk(columns, capacity=len(values))

    def damaged(self, error: EncodingError, keys: BinaryColumn) -> DamagedRow:
        """The error of a value under one of `keys`."""
        return self._damaged(error, [], keys)

    def _damaged(self, error: EncodingError, in_key: Sequence, keys: BinaryColumn | None) -> DamagedRow:
        """Converts an error of the value encoding for the rows of `keys`, or of the looked-up keys `in_key`."""
        key = name = None
        if error.row is not None:
            pks = in_key if keys is None else self._keys_in(keys)
            columns = [Column(pa.array(each), self.types[at]) for each, at in zip(pks, self.pk, strict=True)]
            key = tuple(column[error.row] for column in columns)
        if error.column is not None:
            name = self.catalog.columns[self.catalog.value_indices[error.column]].name
        return DamagedRow(self.catalog.name, key, name, error.reason)


def present_in(values: BinaryColumn) -> np.ndarray:
    """uint8[rows]: 1 if there is a value."""
    return values.to_arrow().is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
