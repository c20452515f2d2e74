"""GroupStates: the records of an aggregation's groups, which of them an epoch has touched, and how they were.

The first touch of a group in an epoch makes it dirty; that is the moment to save its record. At the flush a group
that is new becomes an insert, one that is gone a delete, one that changed an update. Records lie anywhere in
memory, so whoever wants results first has them gathered, once; rows of the results are then chosen by picks: i for
the i-th gathered record, ~i for the i-th saved one.

A chunk is taken in blocks small enough that a record fetched for the first call is still near for the last. A row
of no group, one that a FILTER holds back and one without an argument change a record by nothing: no branch asks.
"""

import numpy as np

cimport cython
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from hummock.byte_buffer cimport ByteBuffer
from relational.chunk.column cimport LONG_WORK, Column, ColumnView, as_column, bit_at, check_mask
from relational.chunk.data_chunk cimport mask_pointer
from relational.state.record_buffer cimport RecordBuffer

from relational.errors import EvaluationError

cdef extern from * nogil:
    void __builtin_prefetch(const void*, ...) noexcept

cdef enum:
    AHEAD = 16
    BLOCK = 1024                # rows whose records are fetched together
    LINE = 64                   # bytes; a record does not lie across two lines unless it is longer


cdef Py_ssize_t padded(Py_ssize_t width) noexcept:
    """A power of two, or whole lines."""
    cdef Py_ssize_t out = 8
    while out < width and out < LINE:
        out *= 2
    return out if width <= out else (width + LINE - 1) // LINE * LINE


@cython.final
cdef class GroupStates:
    """A group is dirty while its mark is set; `dirty` lists those. Records of groups never touched are all zero."""

    def __init__(self, kernels):
        """Records for `kernels`, whose places in them are set here."""
        cdef AggKernel kernel
        self.kernels = tuple(kernels)
        for kernel in self.kernels:
            kernel.states, kernel.offset = self, self.width
            self.width += kernel.width
        self.width = padded(self.width)
        self.records, self.saved, self.gathered = RecordBuffer(), ByteBuffer(), ByteBuffer()
        self.marks, self.dirty, self.touched = RecordBuffer(), ByteBuffer(), ByteBuffer()
        self.weights = ByteBuffer(2 * BLOCK)
        self.epoch = 1
        self.records.extend(self.width)

    @property
    def count(self):
        """Dirty groups."""
        return self.dirty.size // sizeof(int32_t)

    @property
    def size_bytes(self):
        """Memory held."""
        return (self.records.capacity + self.saved.capacity + self.gathered.capacity + self.marks.capacity
                + self.dirty.capacity + self.touched.capacity + self.weights.capacity)

    def grow(self, Py_ssize_t groups):
        """Empty records up to `groups`, clean, as if touched in the epoch before."""
        cdef Py_ssize_t group, more = groups - self.groups
        if more <= 0:
            return
        self.records.extend(more * self.width)
        self.marks.extend((groups + 63) // 64 * 8 - self.marks.size)
        self.touched.reserve(more * sizeof(uint32_t))
        for group in range(self.groups, groups):
            (<uint32_t*>self.touched.data)[group] = self.epoch - 1
        self.touched.size = groups * sizeof(uint32_t)
        self.groups = groups

    def touch(self, const int32_t[::1] ids not None):
        """Makes `ids` (negative: skipped) dirty."""
        if ids.shape[0]:
            self.mark(&ids[0], ids.shape[0])

    def apply(self, const int32_t[::1] ids not None, arguments, const uint8_t[::1] ops=None):
        """Takes in a chunk: row r changes group ids[r] (negative: none) by its op (None: all inserts).

        `arguments`, per kernel: its column or None, and uint8[rows], 1 where its FILTER is true, or None. A row
        whose argument is NULL does not count. ids: int32[rows]; IndexError for one that is not below `groups`.
        """
        cdef Py_ssize_t rows = ids.shape[0], row
        cdef int count = len(self.kernels), i
        cdef bint is_beyond = False
        cdef void** kernels = <void**>malloc((count + 1) * sizeof(void*))
        cdef AggKernel kernel
        try:
            if kernels == NULL:
                raise MemoryError("no memory for the calls of an aggregation")
            if ops is not None and ops.shape[0] != rows:
                raise ValueError(f"{ops.shape[0]} ops for {rows} rows")
            for row in range(rows):
                is_beyond |= ids[row] >= self.groups
            if is_beyond:
                raise IndexError(f"a row belongs to group {np.max(ids)} of {self.groups}")
            for i in range(count):
                kernel = self.kernels[i]
                kernels[i] = <void*>kernel
                kernel.begin(rows, arguments[i][0], arguments[i][1])
            if rows == 0:
                return
            if rows * count < LONG_WORK:
                self.apply_rows(&ids[0], NULL if ops is None else &ops[0], rows, kernels, count)
            else:
                with nogil:
                    self.apply_rows(&ids[0], NULL if ops is None else &ops[0], rows, kernels, count)
        finally:
            free(kernels)
            for kernel in self.kernels:
                kernel.end()

    def gather(self, const int32_t[::1] ids not None, Py_ssize_t first_saved=0):
        """Makes the present records of `ids` the gathered ones; what they were before this epoch was saved from
        place `first_saved` on.
        """
        self.gathered.size = 0
        self.first_saved = first_saved
        self.gathered.reserve(ids.shape[0] * self.width)
        self.gathered.size = ids.shape[0] * self.width
        if ids.shape[0]:
            self.copy_records(&ids[0], ids.shape[0], self.gathered.data)

    def load(self, kernel, const int32_t[::1] ids not None, columns, const uint8_t[::1] found=None):
        """Fills the part of `kernel` in the records of `ids` from the state columns of a stored row each, where
        `found`.
        """
        cdef AggKernel into = kernel
        cdef Py_ssize_t rows = ids.shape[0], row
        cdef list states = [as_column(source) for source in columns]
        cdef Column column
        types = tuple([column.data_type for column in states])
        if types != into.spec.state_types:
            raise ValueError(f"state of {into.spec.kind} is {into.spec.state_types}, not {types}")
        for column in states:
            if column.view.rows != rows:
                raise ValueError(f"{column.view.rows} states for {rows} groups")
        if found is not None and found.shape[0] != rows:
            raise ValueError(f"{found.shape[0]} flags for {rows} groups")
        for row in range(rows):
            if ids[row] < 0 or ids[row] >= self.groups:
                raise IndexError(f"group {ids[row]} of {self.groups}")
        if rows:
            into.read_states(&ids[0], NULL if found is None else &found[0], rows, states)

    def compare(self, kernel, uint8_t[::1] state_changed not None, uint8_t[::1] output_changed not None):
        """Sets both flags (uint8[gathered], not cleared here) where gathered and saved state of `kernel` differ."""
        cdef AggKernel of = kernel
        cdef Py_ssize_t row, rows = state_changed.shape[0]
        if (rows * self.width > min(self.saved.size - self.first_saved * self.width, self.gathered.size)
                or output_changed.shape[0] != rows):
            raise ValueError(f"{rows} flags, {self.saved.size // self.width} saved records")
        with nogil:
            for row in range(rows):
                if not of.same_state(of.picked(~row), of.picked(row)):
                    state_changed[row] = 1
                    output_changed[row] |= not of.same_output(of.picked(~row), of.picked(row))

    def dirty_groups(self):
        """The dirty groups in the order of their first touch, as a copy: int32[n]."""
        return np.frombuffer(self.dirty.to_bytes(), np.int32)

    def finish(self):
        """The epoch ended: no group is dirty, nothing is saved or gathered."""
        cdef const int32_t* dirty = <const int32_t*>self.dirty.data
        cdef Py_ssize_t row, rows = self.dirty.size // sizeof(int32_t)
        cdef AggKernel kernel
        for row in range(rows):
            if row + AHEAD < rows:
                __builtin_prefetch(self.touched.data + 4 * <int64_t>dirty[row + AHEAD], 1)
            (<uint64_t*>self.marks.data)[dirty[row] >> 6] = 0
            (<uint32_t*>self.touched.data)[dirty[row]] = self.epoch
        self.dirty.size = self.saved.size = self.gathered.size = 0
        self.epoch += 1
        for kernel in self.kernels:
            kernel.end_epoch()

    def resave(self):
        """What the dirty groups are now counts as what they were before this epoch."""
        self.saved.size = self.gathered.size = 0
        if self.dirty.size:
            self.save(<const int32_t*>self.dirty.data, self.count)

    def reset(self, const int32_t[::1] ids not None):
        """Gives `ids` empty records."""
        cdef Py_ssize_t row
        for row in range(ids.shape[0]):
            memset(self.record(ids[row]), 0, self.width)

    def latest(self, Py_ssize_t wanted, exists):
        """At most `wanted` of the groups that exist (uint8[groups]), those touched last, ascending: int32[n]."""
        living = np.flatnonzero(exists)
        if len(living) > wanted:
            first = len(living) - wanted
            touched = np.frombuffer(self.touched, np.uint32)[living]
            oldest_first = np.argpartition(touched, first) if wanted else np.empty(0, np.int64)
            living = np.sort(living[oldest_first[first:]])
        return living.astype(np.int32)

    def keep(self, const int32_t[::1] ids not None):
        """What is known of `ids` becomes groups 0, 1, 2 …, the rest is forgotten. REQUIRES that none is dirty."""
        cdef RecordBuffer kept = RecordBuffer(), marks = RecordBuffer()
        cdef ByteBuffer touched = ByteBuffer(ids.shape[0] * sizeof(uint32_t))
        cdef Py_ssize_t row
        cdef AggKernel kernel
        for row in range(ids.shape[0]):
            (<uint32_t*>touched.data)[row] = (<uint32_t*>self.touched.data)[ids[row]]
        kept.extend((ids.shape[0] + 1) * self.width)
        if ids.shape[0]:
            self.copy_records(&ids[0], ids.shape[0], kept.data + self.width)
        touched.size = ids.shape[0] * sizeof(uint32_t)
        marks.extend((ids.shape[0] + 63) // 64 * 8)
        self.records, self.touched, self.marks, self.groups = kept, touched, marks, ids.shape[0]
        self.saved, self.gathered, self.dirty = ByteBuffer(), ByteBuffer(), ByteBuffer()
        for kernel in self.kernels:
            kernel.pack()

    cdef int mark(self, const int32_t* ids, Py_ssize_t rows) except -1 nogil:
        cdef uint64_t* marks = <uint64_t*>self.marks.data
        cdef int32_t* dirty
        cdef Py_ssize_t row, before = self.dirty.size // sizeof(int32_t), count = before
        cdef int64_t group
        cdef uint64_t word
        self.dirty.reserve(rows * sizeof(int32_t))
        dirty = <int32_t*>self.dirty.data
        for row in range(rows):
            group = ids[row]
            __builtin_prefetch(self.record(group), 1)
            if group < 0:
                continue
            word = marks[group >> 6]
            marks[group >> 6] = word | (<uint64_t>1 << (group & 63))
            dirty[count] = <int32_t>group
            count += 1 & ~(word >> (group & 63))
        self.dirty.size = count * sizeof(int32_t)
        return self.save(dirty + before, count - before)

    cdef int save(self, const int32_t* ids, Py_ssize_t rows) except -1 nogil:
        self.saved.reserve(rows * self.width)
        self.copy_records(ids, rows, self.saved.data + self.saved.size)
        self.saved.size += rows * self.width
        return 0

    cdef int apply_rows(self, const int32_t* ids, const uint8_t* ops, Py_ssize_t rows, void** kernels,
                        int count) except -1 nogil:
        cdef int8_t* common = <int8_t*>self.weights.data
        cdef const int8_t* own
        cdef Py_ssize_t first = 0, block
        cdef int i
        while first < rows:
            block = min(rows - first, <Py_ssize_t>BLOCK)
            self.mark(ids + first, block)
            weigh(ids + first, NULL if ops == NULL else ops + first, block, common)
            for i in range(count):
                own = own_weights(<AggKernel>kernels[i], first, block, common, common + BLOCK)
                (<AggKernel>kernels[i]).add(ids + first, own, first, block)
            first += block
        return 0

    cdef int copy_records(self, const int32_t* ids, Py_ssize_t rows, uint8_t* target) except -1 nogil:
        """The present records of `ids`."""
        cdef Py_ssize_t row
        for row in range(rows):
            if row + AHEAD < rows:
                __builtin_prefetch(self.record(ids[row + AHEAD]))
            if self.width == 32:            # count and one sum, a copy without a call
                memcpy(target, self.record(ids[row]), 32)
            elif self.width == 64:
                memcpy(target, self.record(ids[row]), 64)
            else:
                memcpy(target, self.record(ids[row]), <size_t>self.width)
            target += self.width
        return 0


cdef void weigh(const int32_t* ids, const uint8_t* ops, Py_ssize_t rows, int8_t* weights) noexcept nogil:
    """1 for a row that comes, -1 for one that goes, 0 for one of no group."""
    cdef Py_ssize_t row
    if ops == NULL:
        for row in range(rows):
            weights[row] = ids[row] >= 0
        return
    for row in range(rows):
        weights[row] = <int8_t>((ids[row] >= 0) * (1 - 2 * (ops[row] & 1)))


cdef const int8_t* own_weights(AggKernel kernel, Py_ssize_t first, Py_ssize_t rows, const int8_t* common,
                               int8_t* out) noexcept nogil:
    """The weights of one call: 0 also where its mask is not set or its argument is NULL. `common` or `out`."""
    cdef const ColumnView* view = kernel.view
    cdef const uint8_t* mask = kernel.mask
    cdef bint has_nulls = view != NULL and view.validity != NULL
    cdef Py_ssize_t row
    if mask == NULL and not has_nulls:
        return common
    for row in range(rows):
        out[row] = common[row]
    if mask != NULL:
        for row in range(rows):
            out[row] = out[row] if mask[first + row] else 0
    if has_nulls:
        for row in range(rows):
            out[row] = out[row] if bit_at(view.validity, view.offset + first + row) else 0
    return out


cdef class AggKernel:
    """Base of all kinds."""

    def __init__(self, spec, bint strict=False):
        self.spec, self.strict = spec, strict

    @property
    def size_bytes(self):
        """Memory held beside the records."""
        return 0

    def outputs(self, const int32_t[::1] picks):
        """The results of the picked states, a pa.Array of `spec.output_type`."""
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    def state_columns(self, const int32_t[::1] picks):
        """The picked states as a list of pa.Arrays of `spec.state_types`."""
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef int begin(self, Py_ssize_t rows, Column argument, mask) except -1:
        if mask is not None:
            check_mask(mask, rows)
        if (argument is None) != (self.spec.input_type is None):
            raise ValueError(f"{self.spec.kind} of {self.spec.input_type} given {argument}")
        if argument is not None and (argument.view.rows != rows or argument.data_type != self.spec.input_type):
            raise ValueError(
                f"{self.spec.kind} of {self.spec.input_type}: {argument.view.rows} {argument.data_type} for {rows} rows")
        self.held = (argument, mask)
        self.view = NULL if argument is None else &argument.view
        self.mask = mask_pointer(mask)
        return 0

    cdef void end(self) noexcept:
        self.held, self.view, self.mask = None, NULL, NULL

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef bint same_state(self, const void* a, const void* b) noexcept nogil:
        return memcmp(a, b, self.width) == 0

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        return memcmp(a, b, self.width) == 0

    cdef int end_epoch(self) except -1:
        return 0

    cdef int pack(self) except -1:
        return 0

    def count_overflow(self, Py_ssize_t rows):
        """`rows` results did not fit: EvaluationError when strict, else they are NULL and counted."""
        if rows and self.strict:
            raise EvaluationError(f"{self.spec.kind} does not fit {self.spec.output_type} in {rows} groups")
        self.overflows += rows
