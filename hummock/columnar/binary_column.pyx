"""A column of byte strings in Arrow's binary layout, and its builder.

A column is immutable and safe to read from any thread. Its memory is reference counted in C, so an array exported from
it may be released on any thread without the GIL, even after the column itself.
"""

import pyarrow as pa

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strcmp

from hummock.base.key cimport Slice
from hummock.columnar.arrow_c cimport (
    ARROW_FLAG_NULLABLE, ArrowArray, ArrowSchema, array_in, new_array_capsule, new_schema_capsule, schema_in,
    take_array,
)
from hummock.columnar.buffer_pool cimport pool_capacity, pool_release, pool_grow, pool_acquire

cdef extern from * nogil:
    int64_t __atomic_add_fetch(int64_t*, int64_t, int) noexcept
    int __ATOMIC_ACQ_REL

cdef uint8_t NOTHING = 0                # target of the data pointer of an all-empty column
cdef int32_t NO_OFFSETS[1]              # the offsets of a column without rows
NO_OFFSETS[0] = 0


cdef void release_memory(Memory* memory) noexcept nogil:
    """Drops one reference; the last one returns the buffers to their origin."""
    if __atomic_add_fetch(&memory.references, -1, __ATOMIC_ACQ_REL) > 0:
        return
    if memory.imported.release != NULL:
        memory.imported.release(&memory.imported)
    pool_release(memory.offsets, memory.offsets_bytes)
    pool_release(memory.data, memory.data_bytes)
    pool_release(memory.validity, memory.validity_bytes)
    free(memory)


cdef class ColumnMemory:
    def __dealloc__(self):
        if self.memory != NULL:
            release_memory(self.memory)


cdef ColumnMemory new_memory():
    cdef ColumnMemory owner = ColumnMemory.__new__(ColumnMemory)
    owner.memory = <Memory*>calloc(1, sizeof(Memory))
    if owner.memory == NULL:
        raise MemoryError("no memory for a column")
    owner.memory.references = 1
    return owner


cdef struct Exported:                   # private data of an exported ArrowArray
    Memory* memory
    const void* buffers[3]              # validity, offsets, data


cdef void release_exported_array(ArrowArray* array) noexcept nogil:
    cdef Exported* exported = <Exported*>array.private_data
    release_memory(exported.memory)
    free(exported)
    array.release = NULL


cdef void release_exported_schema(ArrowSchema* schema) noexcept nogil:
    schema.release = NULL               # format and name are literals


cdef bint offsets_ascend(const int32_t* offsets, Py_ssize_t rows) noexcept nogil:
    cdef bint falls = offsets[0] < 0
    cdef Py_ssize_t row
    for row in range(rows):
        falls |= offsets[row] > offsets[row + 1]
    return not falls


cdef class BinaryColumn:
    """`rows` byte strings, possibly null. Immutable; `column[i]` is bytes or None."""

    @staticmethod
    def from_arrow(source) -> BinaryColumn:
        """The rows of any Arrow array of bytes or text.

        binary and string arrays with 32-bit offsets are imported without a copy, all others (large, view, fixed size,
        dictionary, chunked) are cast first. TypeError for other types, pa.ArrowInvalid if the bytes exceed 2 GiB,
        ValueError for descending offsets.
        """
        if isinstance(source, BinaryColumn):
            return source
        if not hasattr(source, "__arrow_c_array__"):
            source = cast_to_binary(source)
        schema_capsule, array_capsule = source.__arrow_c_array__()
        if not is_binary_format(schema_in(schema_capsule).format):
            schema_capsule, array_capsule = cast_to_binary(source).__arrow_c_array__()
        total = getattr(source, "get_total_buffer_size", None)
        return column_of_array(array_capsule, total() if total is not None else 0)

    @staticmethod
    def from_pylist(list values) -> BinaryColumn:
        """One row per item of `values`: bytes, or None for a null row."""
        cdef BinaryColumnBuilder builder = BinaryColumnBuilder()
        cdef bytes value
        cdef Slice row
        builder.reserve(len(values), 0)
        for item in values:
            if item is None:
                builder.append_null()
            else:
                value = item
                row.data = <const uint8_t*><const char*>value
                row.size = len(value)
                builder.append(row)
        return builder.finish()

    @property
    def nbytes(self) -> int:
        """Bytes of these rows: data, offsets and null bitmap; without the rest of an array they are a slice of."""
        cdef Py_ssize_t bitmap = (self.rows + 7) // 8 if self.validity != NULL else 0
        return self.offsets[self.rows] - self.offsets[0] + 4 * (self.rows + 1) + bitmap

    @property
    def held_bytes(self) -> int:
        """Bytes that this column keeps alive, at least `nbytes`: of the whole array it is a slice of."""
        cdef Py_ssize_t held = self.owner.memory.bytes if self.owner is not None else 0
        return max(held, self.nbytes)

    @property
    def null_count(self) -> int:
        cdef Py_ssize_t row, nulls = 0
        if self.validity != NULL:
            for row in range(self.rows):
                nulls += self.is_null(row)
        return nulls

    cpdef BinaryColumn slice(self, Py_ssize_t start, Py_ssize_t rows):
        """Rows [start, start + rows), sharing this column's memory. IndexError outside the column."""
        cdef BinaryColumn out = BinaryColumn.__new__(BinaryColumn)
        if start < 0 or rows < 0 or start + rows > self.rows:
            raise IndexError(f"rows [{start}, {start + rows}) of a column of {self.rows} rows")
        out.rows = rows
        out.offsets = self.offsets + start
        out.data = self.data
        out.validity = self.validity
        out.validity_offset = self.validity_offset + start
        out.owner = self.owner
        return out

    cdef BinaryColumn copy(self):
        cdef BinaryColumnBuilder builder = BinaryColumnBuilder()
        cdef Py_ssize_t row
        with nogil:
            builder.reserve(self.rows, self.offsets[self.rows] - self.offsets[0])
            for row in range(self.rows):
                if self.is_null(row):
                    builder.append_null()
                else:
                    builder.append(self.at(row))
        return builder.finish()

    def to_arrow(self) -> pa.BinaryArray:
        """The same rows as a pyarrow array, without a copy."""
        return pa.Array._import_from_c_capsule(*self.__arrow_c_array__())

    def __arrow_c_array__(self, requested_schema=None):
        """The Arrow PyCapsule protocol: (schema, array) capsules that share this column's memory."""
        cdef object schema_capsule = new_schema_capsule(), array_capsule = new_array_capsule()
        cdef ArrowSchema* schema = schema_in(schema_capsule)
        cdef ArrowArray* array = array_in(array_capsule)
        cdef Exported* exported = <Exported*>malloc(sizeof(Exported))
        if exported == NULL:
            raise MemoryError("no memory for an exported array")
        schema.format, schema.name, schema.flags = "z", "", ARROW_FLAG_NULLABLE
        schema.release = release_exported_schema
        exported.memory = self.owner.memory
        exported.buffers[0] = self.validity
        exported.buffers[1] = self.offsets - self.validity_offset
        exported.buffers[2] = self.data
        __atomic_add_fetch(&exported.memory.references, 1, __ATOMIC_ACQ_REL)
        array.length, array.offset = self.rows, self.validity_offset
        array.null_count = -1 if self.validity != NULL else 0
        array.n_buffers, array.buffers = 3, exported.buffers
        array.private_data, array.release = exported, release_exported_array
        return schema_capsule, array_capsule

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, Py_ssize_t row) -> bytes | None:
        cdef Py_ssize_t at = row + self.rows if row < 0 else row
        if at < 0 or at >= self.rows:
            raise IndexError(f"row {row} of a column of {self.rows} rows")
        return self.bytes_at(at)

    def __iter__(self):
        cdef Py_ssize_t row
        for row in range(self.rows):
            yield self[row]

    def __repr__(self) -> str:
        return f"BinaryColumn({self.rows} rows, {self.nbytes} bytes)"


cdef bint is_binary_format(const char* format) noexcept:
    return strcmp(format, "z") == 0 or strcmp(format, "u") == 0


cdef object cast_to_binary(object source):
    array = source if isinstance(source, (pa.Array, pa.ChunkedArray)) else pa.array(source)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_null(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        return array.cast(pa.binary())
    raise TypeError(f"a column of bytes cannot be made of Arrow type {kind}")


cdef BinaryColumn column_of_array(object array_capsule, Py_ssize_t parent_bytes):
    """Imports the array in a capsule. REQUIRES format z or u."""
    cdef BinaryColumn out = BinaryColumn.__new__(BinaryColumn)
    cdef ArrowArray* array
    out.owner = new_memory()
    array = &out.owner.memory.imported
    array[0] = take_array(array_capsule)
    if array.length < 0 or array.offset < 0 or array.n_buffers != 3:
        raise ValueError(
            f"not an array of bytes: {array.length} rows at {array.offset}, {array.n_buffers} buffers"
        )
    out.rows = array.length
    out.validity_offset = array.offset
    out.offsets = NO_OFFSETS
    out.data = <const uint8_t*>array.buffers[2] if array.buffers[2] != NULL else &NOTHING
    if array.null_count != 0 and out.rows > 0:
        out.validity = <const uint8_t*>array.buffers[0]
    if array.buffers[1] != NULL and out.rows > 0:
        out.offsets = <const int32_t*>array.buffers[1] + array.offset
    elif out.rows > 0:
        raise ValueError(f"an array of {array.length} rows without offsets")
    else:
        out.validity_offset = 0
    if not offsets_ascend(out.offsets, out.rows):
        raise ValueError(f"the offsets of this array of {array.length} rows do not ascend")
    out.owner.memory.bytes = parent_bytes if parent_bytes > 0 else out.nbytes
    return out


cdef class BinaryColumnBuilder:
    """Builds a BinaryColumn row by row, without the GIL. One writer."""

    def __dealloc__(self):
        self.release_buffers()

    cdef int grow_rows(self, Py_ssize_t wanted) except -1 nogil:
        cdef Py_ssize_t bytes_now = 4 * (self.capacity_rows + 1) if self.offsets != NULL else 0
        cdef Py_ssize_t bytes_wanted, bitmap_now = (self.capacity_rows + 7) >> 3
        cdef uint8_t* grown
        if wanted < self.capacity_rows * 2:
            wanted = self.capacity_rows * 2
        bytes_wanted = pool_capacity(4 * (wanted + 1)) & ~<Py_ssize_t>3
        wanted = bytes_wanted // 4 - 1
        if self.validity != NULL:
            grown = pool_grow(self.validity, bitmap_now, bitmap_now, (wanted + 7) >> 3)
            if grown == NULL:
                raise_no_memory((wanted + 7) >> 3)
            self.validity = grown
        grown = pool_grow(<uint8_t*>self.offsets, bytes_now, bytes_now, bytes_wanted)
        if grown == NULL:
            raise_no_memory(bytes_wanted)
        self.offsets = <int32_t*>grown
        if self.rows == 0:
            self.offsets[0] = 0
        self.capacity_rows = wanted
        return 0

    cdef int grow_data(self, Py_ssize_t wanted) except -1 nogil:
        cdef uint8_t* grown
        if wanted > INT32_MAX:
            with gil:
                raise OverflowError(f"a column of bytes ends at 2 GiB - 1, {wanted} bytes were asked for")
        if wanted < self.capacity_bytes * 2:
            wanted = self.capacity_bytes * 2
        wanted = pool_capacity(wanted if wanted > 0 else 1)
        grown = pool_grow(self.data, self.capacity_bytes, self.data_bytes, wanted)
        if grown == NULL:
            raise_no_memory(wanted)
        self.data = grown
        self.capacity_bytes = wanted
        return 0

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t data_bytes) except -1 nogil:
        if self.offsets == NULL or self.rows + rows > self.capacity_rows:
            self.grow_rows(self.rows + rows)
        if self.data == NULL or self.data_bytes + data_bytes > min(self.capacity_bytes, INT32_MAX):
            self.grow_data(self.data_bytes + data_bytes)
        return 0

    cdef int append(self, Slice value) except -1 nogil:
        if (self.offsets == NULL or self.rows >= self.capacity_rows or self.data == NULL
                or self.data_bytes + value.size > min(self.capacity_bytes, INT32_MAX)):
            self.reserve(1, value.size)
        if self.validity != NULL:
            self.validity[self.rows >> 3] |= <uint8_t>(1 << (self.rows & 7))
        if value.size > 0:
            memcpy(self.data + self.data_bytes, value.data, <size_t>value.size)
            self.data_bytes += value.size
        self.rows += 1
        self.offsets[self.rows] = <int32_t>self.data_bytes
        return 0

    cdef int append_rows(self, const int32_t* offsets, const uint8_t* data, Py_ssize_t rows) except -1 nogil:
        cdef Py_ssize_t size = offsets[rows] - offsets[0], row
        cdef int32_t shift
        cdef int32_t* ends
        self.reserve(rows, size)
        memcpy(self.data + self.data_bytes, data + offsets[0], <size_t>size)
        shift, ends = <int32_t>(self.data_bytes - offsets[0]), self.offsets + self.rows
        for row in range(1, rows + 1):
            ends[row] = offsets[row] + shift
        self.rows += rows
        self.data_bytes += size
        return 0

    cdef int append_null(self) except -1 nogil:
        cdef Py_ssize_t bitmap
        self.reserve(1, 0)
        if self.validity == NULL:
            bitmap = (self.capacity_rows + 7) >> 3
            self.validity = pool_acquire(bitmap)
            if self.validity == NULL:
                raise_no_memory(bitmap)
            memset(self.validity, 0xFF, <size_t>bitmap)
        self.validity[self.rows >> 3] &= <uint8_t>(~(1 << (self.rows & 7)) & 0xFF)
        self.rows += 1
        self.offsets[self.rows] = <int32_t>self.data_bytes
        return 0

    cdef BinaryColumn finish(self):
        cdef BinaryColumn out = BinaryColumn.__new__(BinaryColumn)
        cdef Memory* memory
        self.reserve(0, 0)
        out.owner = new_memory()
        memory = out.owner.memory
        memory.offsets, memory.offsets_bytes = <uint8_t*>self.offsets, 4 * (self.capacity_rows + 1)
        memory.data, memory.data_bytes = self.data, self.capacity_bytes
        memory.validity, memory.validity_bytes = self.validity, (self.capacity_rows + 7) >> 3
        memory.bytes = memory.offsets_bytes + memory.data_bytes
        out.rows, out.offsets, out.data, out.validity = self.rows, self.offsets, self.data, self.validity
        self.offsets = NULL
        self.data = self.validity = NULL
        self.rows = self.data_bytes = self.capacity_rows = self.capacity_bytes = 0
        return out

    cdef void release_buffers(self) noexcept nogil:
        pool_release(<uint8_t*>self.offsets, 4 * (self.capacity_rows + 1))
        pool_release(self.data, self.capacity_bytes)
        pool_release(self.validity, (self.capacity_rows + 7) >> 3)


cdef int raise_no_memory(Py_ssize_t wanted) except -1 nogil:
    with gil:
        raise MemoryError(f"no memory for {wanted} bytes of a column")
