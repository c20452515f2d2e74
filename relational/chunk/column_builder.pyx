"""ColumnBuilder: grows one column in pooled memory and exports it to Arrow without a copy.

NULLs and booleans are bytes while the column grows, so that a decoder stores without a read; they are packed into
bitmaps at the end.
"""

import pyarrow as pa

from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from hummock.columnar.arrow_c cimport ArrowArray
from hummock.columnar.buffer_pool cimport pool_release, pool_grow, pool_acquire
from relational.chunk.column cimport BOOLEAN, Column, LIST, STRUCT, column_of, has_bytes, is_nested, width_of
from relational.chunk.scalar cimport store32


cdef void pack_bits(const uint8_t* flags, Py_ssize_t rows, uint8_t* bitmap) noexcept nogil:
    """bitmap bit i = flags[i], which is 0 or 1; `bitmap` has (rows + 7) / 8 bytes and may be `flags` itself."""
    cdef Py_ssize_t group, whole = rows >> 3, row
    cdef uint64_t eight
    cdef uint8_t rest = 0
    for group in range(whole):
        memcpy(&eight, flags + 8 * group, 8)
        bitmap[group] = <uint8_t>((eight * <uint64_t>0x0102040810204080) >> 56)
    if rows & 7:
        for row in range(8 * whole, rows):
            rest |= <uint8_t>(flags[row] << (row & 7))
        bitmap[whole] = rest


cdef struct Exported:                   # owned by Arrow for a finished column; freed with the last reference
    uint8_t* memory[3]                  # pooled: bitmap or NULL, values, data or NULL
    Py_ssize_t bytes[3]
    const void* buffers[3]
    ArrowArray* arrays                  # of the children
    ArrowArray** children
    int child_count


cdef void release_exported(ArrowArray* array) noexcept nogil:
    """Called by Arrow, from any thread, with or without the GIL."""
    cdef Exported* exported = <Exported*>array.private_data
    cdef int i
    for i in range(3):
        pool_release(exported.memory[i], exported.bytes[i])
    for i in range(exported.child_count):
        if exported.arrays[i].release != NULL:
            exported.arrays[i].release(&exported.arrays[i])
    free(exported.arrays)
    free(exported.children)
    free(exported)
    array.release = NULL


cdef int raise_no_memory(Py_ssize_t wanted) except -1 nogil:
    with gil:
        raise MemoryError(f"no memory for {wanted} bytes of a column")


cdef class ColumnBuilder:
    """One column being written. `finish()` returns the array and leaves the builder empty."""

    def __cinit__(self, data_type):
        self.data_type = data_type
        self.kind = data_type.kind
        self.width = 1 if self.kind == BOOLEAN else width_of(self.kind)
        if has_bytes(self.kind) or self.kind == LIST:
            self.width = 4
        self.parts = []
        if is_nested(self.kind):
            self.add_children(data_type.children)

    def add_children(self, types):
        cdef int i
        self.parts = [ColumnBuilder(child) for child in types]
        self.child_count = len(self.parts)
        self.children = <PyObject**>malloc(self.child_count * sizeof(PyObject*))
        if self.children == NULL:
            raise MemoryError("no memory for the children of a column")
        for i in range(self.child_count):
            self.children[i] = <PyObject*>self.parts[i]

    def __dealloc__(self):
        pool_release(self.present, self.capacity_rows)
        pool_release(self.values, (self.capacity_rows + 1) * self.width)
        pool_release(self.data, self.capacity_bytes)
        free(self.children)

    cdef int grow_rows(self, Py_ssize_t wanted) except -1 nogil:
        cdef uint8_t* present
        cdef uint8_t* values
        wanted = max(wanted, 2 * self.capacity_rows, <Py_ssize_t>8)
        present = pool_acquire(wanted)
        values = pool_acquire((wanted + 1) * self.width)
        if present == NULL or values == NULL:
            pool_release(present, wanted)
            pool_release(values, (wanted + 1) * self.width)
            raise_no_memory((wanted + 1) * (self.width + 1))
        if self.width >= 4:
            store32(values, 0)              # start of the first string or list
        if self.values != NULL:
            memcpy(present, self.present, <size_t>self.rows)
            memcpy(values, self.values, <size_t>((self.rows + 1) * self.width))
            pool_release(self.present, self.capacity_rows)
            pool_release(self.values, (self.capacity_rows + 1) * self.width)
        self.present, self.values, self.capacity_rows = present, values, wanted
        return 0

    cdef int grow_data(self, Py_ssize_t wanted) except -1 nogil:
        cdef uint8_t* grown
        if wanted > INT32_MAX:
            with gil:
                raise OverflowError(f"a column of strings ends at 2 GiB - 1, not {wanted} bytes")
        wanted = max(wanted, 2 * self.capacity_bytes, <Py_ssize_t>64)
        grown = pool_grow(self.data, self.capacity_bytes, self.data_size, wanted)
        if grown == NULL:
            raise_no_memory(wanted)
        self.data = grown
        self.capacity_bytes = wanted
        return 0

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t data_bytes) except -1 nogil:
        if self.values == NULL or self.rows + rows > self.capacity_rows:
            self.grow_rows(self.rows + rows)
        if has_bytes(self.kind) and (self.data == NULL or self.data_size + data_bytes > self.capacity_bytes):
            self.grow_data(self.data_size + data_bytes)
        return 0

    cdef int append_null(self) except -1 nogil:
        self.reserve(1, 0)
        self.present[self.rows] = 0
        if has_bytes(self.kind):
            store32(self.values + 4 * (self.rows + 1), <uint32_t>self.data_size)
        elif self.kind == LIST:
            store32(self.values + 4 * (self.rows + 1), <uint32_t>(<ColumnBuilder>self.children[0]).rows)
        else:
            memset(self.values + self.rows * self.width, 0, <size_t>self.width)
        if self.kind == STRUCT:
            append_nulls(self)
        self.rows += 1
        self.nulls += 1
        return 0

    cdef int clear(self) noexcept nogil:
        cdef int i
        self.rows = self.nulls = self.data_size = 0
        for i in range(self.child_count):
            (<ColumnBuilder>self.children[i]).clear()
        return 0

    cdef object finish(self):
        cdef ArrowArray array
        array.release = NULL
        try:
            export_to(self, &array)
        except BaseException:
            if array.release != NULL:
                release_exported(&array)
            raise
        return pa.Array._import_from_c(<uintptr_t>&array, self.data_type.arrow)

    cdef Column finish_column(self):
        return column_of(self.finish(), self.data_type)


cdef int append_nulls(ColumnBuilder builder) except -1 nogil:
    """Appends a NULL to each child."""
    cdef int i
    for i in range(builder.child_count):
        (<ColumnBuilder>builder.children[i]).append_null()
    return 0


cdef int export_to(ColumnBuilder builder, ArrowArray* array) except -1:
    """Moves the written rows into an Arrow array that the importer releases, with its children."""
    cdef Exported* exported
    cdef int i
    builder.reserve(0, 0)
    exported = new_export(array, builder.child_count)
    array.length, array.null_count = builder.rows, builder.nulls
    array.n_buffers = 3 if has_bytes(builder.kind) else 1 if builder.kind == STRUCT else 2
    for i in range(builder.child_count):
        export_to(<ColumnBuilder>builder.children[i], &exported.arrays[i])
    move_memory(builder, exported)
    return 0


cdef Exported* new_export(ArrowArray* array, int children) except NULL:
    """An Arrow array without buffers, whose children are to be filled."""
    cdef Exported* exported = <Exported*>calloc(1, sizeof(Exported))
    cdef int i
    memset(array, 0, sizeof(ArrowArray))
    if exported == NULL:
        raise MemoryError("no memory for a column")
    array.buffers = exported.buffers
    array.private_data, array.release = exported, release_exported
    if children > 0:
        exported.arrays = <ArrowArray*>calloc(children, sizeof(ArrowArray))
        exported.children = <ArrowArray**>calloc(children, sizeof(ArrowArray*))
        if exported.arrays == NULL or exported.children == NULL:
            release_exported(array)
            raise MemoryError("no memory for the children of a column")
        exported.child_count = children
        array.n_children, array.children = children, exported.children
        for i in range(children):
            exported.children[i] = &exported.arrays[i]
    return exported


cdef object finish_rows(tuple builders, object schema):
    cdef ArrowArray array
    cdef int i, count = len(builders)
    cdef Exported* exported = new_export(&array, count)
    array.n_buffers = 1
    array.length = (<ColumnBuilder?>builders[0]).rows
    try:
        for i in range(count):
            export_to(<ColumnBuilder?>builders[i], &exported.arrays[i])
    except BaseException:
        release_exported(&array)
        raise
    return pa.RecordBatch._import_from_c(<uintptr_t>&array, schema)


cdef void move_memory(ColumnBuilder builder, Exported* exported) noexcept nogil:
    """Moves the memory to `exported`; flags become bitmaps in the same memory: bit i precedes byte i."""
    if builder.kind == BOOLEAN:
        pack_bits(builder.values, builder.rows, builder.values)
    if builder.nulls > 0:
        pack_bits(builder.present, builder.rows, builder.present)
        exported.buffers[0] = builder.present
    exported.buffers[1], exported.buffers[2] = builder.values, builder.data
    exported.memory[0], exported.memory[1], exported.memory[2] = builder.present, builder.values, builder.data
    exported.bytes[0] = builder.capacity_rows
    exported.bytes[1] = (builder.capacity_rows + 1) * builder.width
    exported.bytes[2] = builder.capacity_bytes
    builder.present = builder.values = builder.data = NULL
    builder.capacity_rows = builder.capacity_bytes = 0
    builder.rows = builder.nulls = builder.data_size = 0
