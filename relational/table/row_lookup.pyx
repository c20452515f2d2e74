"""RowLookup: one row of a table by its whole key, from Python values to an Arrow batch.

It does for one key what RowSerde does for a chunk of keys, by the same kernels, but without an Arrow array for each
value of the key and for each column of the row: those take longer than the lookup.
"""

from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from libc.stdint cimport INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint16_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from relational.chunk.column cimport BIGINT, Column, ColumnView, INT, SMALLINT, VARCHAR
from relational.chunk.column_builder cimport ColumnBuilder, finish_rows
from relational.chunk.vnode cimport vnodes_into
from relational.encoding.key.batch cimport read_key_rows, write_key_rows
from relational.encoding.key.encoder cimport KeyEncoder
from relational.encoding.value.batch cimport read_value_rows
from relational.encoding.value.encoder cimport ValueEncoder

from hummock.base.key import USER_KEY_PREFIX_BYTES
from relational.errors import EncodingError

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cdef struct Cell:                       # a value of a key, as a column of one row
    ColumnView view
    int64_t number
    int32_t ends[2]


cdef class RowLookup:
    """Rows of the layout of `serde`, a RowSerde whose columns are distinct, of a table that stores whole rows. Any
    thread."""
    cdef object serde
    cdef object rule
    cdef int vnode_count
    cdef int64_t table_id
    cdef KeyEncoder keys
    cdef ValueEncoder values
    cdef tuple distribution             # positions in the key
    cdef tuple locations                # (is in the key, position there or in the value) of each column
    cdef bint reads_key
    cdef bint reads_value
    cdef uint8_t* wanted                # of each column of the value, whether it is one of the columns

    def __init__(self, serde):
        if len(set(serde.columns)) < len(serde.columns) or not serde.columns:
            raise ValueError(f"a lookup has distinct columns, not {serde.columns}")
        self.serde, self.locations = serde, serde.locations
        self.rule, self.vnode_count, self.table_id = (
            serde.catalog.vnode_rule, serde.catalog.vnode_count, serde.catalog.id)
        self.keys, self.values, self.distribution = serde.key_encoder, serde.value_encoder, serde.distribution_in_pk
        self.wanted = <uint8_t*>calloc(self.values.count + 1, 1)
        if self.wanted == NULL:
            raise MemoryError("no memory for the columns of a lookup")
        for in_key, position in self.locations:
            if in_key:
                self.reads_key = True
            else:
                self.reads_value = True
                self.wanted[<int>position] = 1

    def __dealloc__(self):
        free(self.wanted)

    def get(self, store, pk, epoch, schema):
        """The columns of the row under `pk`, values of the types of the key, as a pa.RecordBatch of `schema`; None if
        there is no such row at `epoch`. InvalidValue for a value that is not of its type, DamagedRow."""
        cdef BinaryColumn key = self.key_of(pk)
        cdef bytes value = store.get(key[0], epoch)
        return None if value is None else self.row(key, value, schema)

    cdef BinaryColumn key_of(self, pk):
        """The user key of one row of values."""
        cdef int i, count = self.keys.count, distributed = len(self.distribution)
        cdef BinaryColumnBuilder out = BinaryColumnBuilder()
        cdef list owners = []
        cdef uint16_t vnode
        cdef Cell* cells
        cdef const ColumnView** views
        if len(pk) != count:
            raise ValueError(f"{len(pk)} values for a key of {count} columns")
        cells = <Cell*>malloc((count + 1) * sizeof(Cell))
        views = <const ColumnView**>malloc((count + distributed + 1) * sizeof(ColumnView*))
        try:
            if cells == NULL or views == NULL:
                raise MemoryError("no memory for a key")
            for i in range(count):
                owners.append(hold(&cells[i], self.keys.fields[i].kind, pk[i], self.keys.types[i]))
                views[i] = &cells[i].view
            for i in range(distributed):
                views[count + i] = views[<int>self.distribution[i]]
            vnodes_into(views + count, distributed, 1, self.rule, self.vnode_count, &vnode)
            write_key_rows(self.keys.fields, views, count, 1, self.table_id, &vnode, out)
        finally:
            free(cells)
            free(views)
        return out.finish()

    cdef object row(self, BinaryColumn key, bytes value, schema):
        """The row of a key and a value."""
        cdef list of_key = [], of_value = []
        cdef BinaryColumn stored
        cdef int i
        if self.reads_key:
            of_key = [ColumnBuilder(data_type) for data_type in self.keys.types]
            read_key_rows(self.keys.fields, self.keys.count, Sinks(of_key).pointers, key, USER_KEY_PREFIX_BYTES)
        if self.reads_value:
            for i in range(self.values.count):
                of_value.append(ColumnBuilder(self.values.types[i]) if self.wanted[i] else None)
            try:
                stored = BinaryColumn.from_pylist([value])
                read_value_rows(&self.values.layout, Sinks(of_value).pointers, stored, self.wanted, False)
            except EncodingError as error:
                raise self.serde.damaged(error, key) from error
        columns = [of_key[position] if in_key else of_value[position] for in_key, position in self.locations]
        return finish_rows(tuple(columns), schema)


cdef class Sinks:
    """ColumnBuilders as a kernel takes them."""
    cdef list builders
    cdef PyObject** pointers            # owned array of borrowed references to `builders`

    def __cinit__(self, list builders):
        cdef int i, count = len(builders)
        self.builders = builders
        self.pointers = <PyObject**>malloc((count + 1) * sizeof(PyObject*))
        if self.pointers == NULL:
            raise MemoryError("no memory to decode a row")
        for i in range(count):
            self.pointers[i] = <PyObject*>builders[i]

    def __dealloc__(self):
        free(self.pointers)


cdef object hold(Cell* cell, int kind, value, data_type):
    """Makes a value a column of one row. Returns the owner of its memory, which must outlive the cell."""
    cdef Column column
    cdef Py_ssize_t size
    cdef int overflow = 0
    memset(cell, 0, sizeof(Cell))
    cell.view.kind, cell.view.rows = kind, 1
    if type(value) is int:
        cell.number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow and fits(kind, cell.number):
            cell.view.values = <const uint8_t*>&cell.number
            return None
    elif kind == VARCHAR and type(value) is str:
        try:
            cell.view.data = <const uint8_t*>PyUnicode_AsUTF8AndSize(value, &size)
            if size <= INT32_MAX:
                cell.ends[1] = <int32_t>size
                cell.view.offsets, cell.view.data_bytes = cell.ends, size
                return value
        except UnicodeEncodeError:      # a lone surrogate, which is reported below
            pass
    column = Column.from_pylist([value], data_type)
    cell.view = column.view
    return column


cdef bint fits(int kind, int64_t number) noexcept nogil:
    """Whether a number is one of an integer type."""
    if kind == INT:
        return INT32_MIN <= number <= INT32_MAX
    if kind == SMALLINT:
        return INT16_MIN <= number <= INT16_MAX
    return kind == BIGINT
