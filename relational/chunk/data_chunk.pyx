"""DataChunk: columns of equal length, and a mask of visible rows.

Hiding a row costs only a byte, so filters hide rows, and a chunk is compacted only where dense rows are needed. A chunk
is immutable: each method returns a new one that shares what did not change.
"""

import numpy as np
import pyarrow as pa

from libc.stdint cimport int32_t, uint8_t

from relational.chunk.column cimport BOOLEAN, LONG_WORK, Column, as_column, bytes_of, check_mask
from relational.chunk.gather cimport gather

from relational.chunk.arrow_export import imported_columns, rows_from, rows_to_arrow
from relational.chunk.column import mask_of
from relational.chunk.vnode import vnodes_of
from relational.errors import InvalidValue
from relational.types import Schema
from relational.types.vnode_rule import VnodeRule

cdef uint8_t NOTHING = 0


cdef const uint8_t* mask_pointer(object mask) except? NULL:
    cdef const uint8_t[::1] view
    if mask is None:
        return NULL
    view = mask
    return &view[0] if view.shape[0] > 0 else &NOTHING


cdef object as_mask(object keep, Py_ssize_t rows):
    if isinstance(keep, Column):
        keep = mask_of(keep)
    elif isinstance(keep, np.ndarray) and keep.dtype == np.bool_:
        keep = np.ascontiguousarray(keep).view(np.uint8)
    check_mask(keep, rows)
    return keep


cdef class DataChunk:
    """Columns and visibility. `capacity` counts all rows, `visible_rows` (and `len`) the visible ones."""

    def __init__(self, columns, visibility=None, *, capacity=None):
        """Columns (or Arrow arrays) of equal length. `capacity` is needed only without columns."""
        self.setup(columns, visibility, capacity)

    cdef int setup(self, columns, visibility, capacity) except -1:
        cdef Column column
        self.columns = tuple([as_column(source) for source in columns])
        if capacity is None:
            capacity = len(self.columns[0]) if self.columns else (0 if visibility is None else len(visibility))
        self.capacity = capacity
        for column in self.columns:
            if column.view.rows != self.capacity:
                raise ValueError(f"a column of {column.view.rows} rows in a chunk of {self.capacity}")
        if visibility is not None:
            visibility = as_mask(visibility, self.capacity)
        self.visibility = visibility
        self.counted = self.capacity if visibility is None else -1
        return 0

    cdef DataChunk rebuilt(self, tuple columns, object visibility):
        cdef DataChunk out = DataChunk.__new__(DataChunk)
        out.setup(columns, visibility, self.capacity)
        return out

    cdef DataChunk picked(self, object indices):
        cdef DataChunk out = DataChunk.__new__(DataChunk)
        out.setup(gather([(self.columns, indices)]), None, len(indices))
        return out

    @staticmethod
    def from_rows(schema, rows) -> DataChunk:
        """A chunk of Python rows (tuples in the schema's order). InvalidValue names the column and the first row whose
        value is not of its type.
        """
        return DataChunk(columns_of_rows(schema, list(rows)), capacity=len(rows) if not len(schema) else None)

    @staticmethod
    def from_arrow(source) -> DataChunk:
        """The rows of any object that implements Arrow's PyCapsule protocol, validated; zero-copy if Arrow's layout is
        ours.

        TypeError for other objects, ValueError for values that are not rows, BindError for an Arrow type without a
        counterpart, InvalidValue for a row that cannot be stored.
        """
        names, columns, rows = rows_from(source)
        return DataChunk(imported_columns(names, columns), capacity=rows)

    def to_arrow(self, schema) -> pa.RecordBatch:
        """The visible rows, named by `schema`."""
        dense = self.compact()
        return pa.RecordBatch.from_arrays(dense.arrays, schema=schema.arrow)

    def as_struct(self) -> pa.StructArray:
        """All rows in the exported form (see `arrow_export.py`), hidden ones too."""
        return rows_to_arrow(self.arrays, self.capacity, None)

    def __arrow_c_schema__(self):
        """The Arrow PyCapsule protocol: a struct with a field per column."""
        return self.as_struct().type.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        """(schema, array) capsules of the visible rows; they share this chunk's memory if no row is hidden."""
        return self.compact().as_struct().__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema=None):
        """The visible rows as a stream of one batch."""
        batch = pa.RecordBatch.from_struct_array(self.compact().as_struct())
        return pa.RecordBatchReader.from_batches(batch.schema, [batch]).__arrow_c_stream__(requested_schema)

    @property
    def arrays(self) -> list:
        """The Arrow array of each column, hidden rows included."""
        return [(<Column>column).array for column in self.columns]

    @property
    def types(self) -> tuple:
        """The DataType of each column."""
        return tuple([(<Column>column).data_type for column in self.columns])

    @property
    def visible_rows(self) -> int:
        if self.counted < 0:
            self.counted = int(np.count_nonzero(self.visibility))
        return self.counted

    @property
    def nbytes(self) -> int:
        """Bytes of all columns, hidden rows included."""
        cdef Column column
        cdef Py_ssize_t total = 0
        for column in self.columns:
            total += bytes_of(&column.view, 0, column.view.rows)
        return total

    def vnodes(self, key_columns, vnode_count, rule=VnodeRule.HASH) -> np.ndarray:
        """uint16[capacity]: the vnode of each row, hidden or not, by `rule` of its columns at `key_columns`. Computed
        once per chunk, however many tables and edges have that key, and read-only. Raises the errors of `vnodes_of`.
        """
        key = (tuple(key_columns), vnode_count, rule)
        if self.known_vnodes is None:
            self.known_vnodes = {}
        found = self.known_vnodes.get(key)
        if found is None:
            columns = [self.columns[at] for at in key[0]]
            found = vnodes_of(columns, vnode_count, rows=self.capacity, rule=rule)
            found.flags.writeable = False
            self.known_vnodes[key] = found
        return found

    def project(self, indices) -> DataChunk:
        """The columns at `indices`, in that order."""
        return self.rebuilt(tuple([self.columns[index] for index in indices]), self.visibility)

    def with_columns(self, columns) -> DataChunk:
        """The same rows with other columns."""
        return self.rebuilt(tuple(columns), self.visibility)

    def with_visibility(self, visibility) -> DataChunk:
        """The same rows with another visibility (uint8[capacity], or None for all)."""
        return self.rebuilt(self.columns, visibility)

    def filter(self, keep) -> DataChunk:
        """Hides the rows where `keep` (a mask, or a BOOLEAN column whose NULL is false) is not 1."""
        keep = as_mask(keep, self.capacity)
        return self.with_visibility(keep if self.visibility is None else keep & self.visibility)

    def compact(self) -> DataChunk:
        """The visible rows only, densely; the chunk itself if nothing is hidden."""
        if self.visible_rows == self.capacity:
            return self if self.visibility is None else self.with_visibility(None)
        return self.picked(shown_rows(self))

    def take(self, indices) -> DataChunk:
        """The rows at `indices` (int32[n]), visible or not, all visible in the result.

        A negative index selects a row of NULLs. IndexError beyond the last row.
        """
        return self.picked(checked_indices(self, indices))

    @staticmethod
    def taken(parts) -> DataChunk:
        """The rows that `take` finds, of each (chunk, indices) of `parts`, one part after the other; the chunks have
        the same types, there is at least one."""
        sources = [(chunk.columns, checked_indices(chunk, indices)) for chunk, indices in parts]
        cdef DataChunk out = DataChunk.__new__(DataChunk)
        out.setup(gather(sources), None, sum([len(indices) for _, indices in sources]))
        return out

    def slice(self, Py_ssize_t start, Py_ssize_t rows) -> DataChunk:
        """Rows [start, start + rows), hidden ones included, sharing the memory."""
        visibility = None if self.visibility is None else self.visibility[start:start + rows]
        return DataChunk([column.slice(start, rows) for column in self.columns], visibility, capacity=rows)

    def rows(self):
        """Iterates the visible rows as tuples of Python values."""
        dense = self.compact()
        if not dense.columns:
            return iter([()] * dense.capacity)
        return zip(*[column.to_pylist() for column in dense.columns], strict=True)

    @staticmethod
    def concat(chunks) -> DataChunk:
        """Concatenates the rows of `chunks`, which have the same types; there is at least one."""
        return DataChunk(concat_columns(chunks), concat_masks(chunks), capacity=sum([c.capacity for c in chunks]))

    def __len__(self) -> int:
        return self.visible_rows

    def __repr__(self) -> str:
        types = ", ".join([str(column.data_type) for column in self.columns])
        return f"{type(self).__name__}({types}; {self.visible_rows} of {self.capacity} rows visible)"

    def __reduce__(self):
        return DataChunk, (self.columns, self.visibility)


cdef object checked_indices(DataChunk chunk, indices):
    """int32[n]. IndexError beyond the last row."""
    indices = np.ascontiguousarray(indices, dtype=np.int32)
    if len(indices) and indices.max() >= chunk.capacity:
        raise IndexError(f"row {indices.max()} of a chunk of {chunk.capacity} rows")
    return indices


cdef object shown_rows(DataChunk chunk):
    found = np.empty(chunk.visible_rows + 1, np.int32)  # one extra: rows after the last visible one are written there
    cdef int32_t[::1] out = found
    cdef const uint8_t* shown = mask_pointer(chunk.visibility)
    if chunk.capacity < LONG_WORK // 4:
        list_shown(shown, chunk.capacity, &out[0])
    else:
        with nogil:
            list_shown(shown, chunk.capacity, &out[0])
    return found[:chunk.visible_rows]


cdef void list_shown(const uint8_t* shown, Py_ssize_t rows, int32_t* out) noexcept nogil:
    cdef Py_ssize_t row, at = 0
    for row in range(rows):
        out[at] = <int32_t>row
        at += shown == NULL or shown[row] != 0


def columns_of_rows(schema, list rows) -> list:
    """One Column per field from a list of row tuples."""
    for row in rows:
        if len(row) != len(schema):
            raise ValueError(f"a row of {len(row)} values for {len(schema)} columns: {row!r}")
    turned = zip(*rows, strict=True) if rows else [()] * len(schema)
    return [column_of_values(values, field) for values, field in zip(turned, schema)]


def column_of_values(values, field) -> Column:
    """One row per Python value. InvalidValue names the field."""
    try:
        return Column.from_pylist(list(values), field.data_type)
    except InvalidValue as error:
        raise error.named(field.name) from error


def concat_columns(chunks) -> list:
    """Column by column, the rows of all chunks."""
    if len(chunks) == 1:
        return list(chunks[0].columns)
    return [Column(pa.concat_arrays(arrays_at(chunks, at))) for at in range(len(chunks[0].columns))]


cdef list arrays_at(chunks, Py_ssize_t at):
    """The Arrow array of one column of each chunk."""
    cdef DataChunk chunk
    cdef list found = []
    for chunk in chunks:
        found.append((<Column>chunk.columns[at]).array)
    return found


def concat_masks(chunks):
    """The visibility of all chunks, None if every row of each is visible."""
    if all([chunk.visibility is None for chunk in chunks]):
        return None
    shown = [
        np.ones(chunk.capacity, dtype=np.uint8) if chunk.visibility is None else chunk.visibility
        for chunk in chunks
    ]
    return np.concatenate(shown)
