"""GroupStates: applies a chunk to the records of its groups, call by call.

A chunk is processed in blocks small enough that a record fetched for the first call is still cached for the last. A row
without a group, one that a FILTER rejects and one without an argument have weight 0, so the loops are free of branches.
"""

import numpy as np

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from hummock.base.prefetch cimport prefetch_for_write
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.agg.kernels cimport AggKernel, CountKernel
from relational.agg.records cimport GroupRecords, padded
from relational.chunk.column cimport LONG_WORK, Column, ColumnView, as_column, bit_at
from relational.hash.record_arena cimport RecordArena

cdef enum:
    BLOCK = 1024                        # rows whose records are fetched together
    AHEAD = 16


@cython.final
cdef class GroupStates(GroupRecords):
    """The group records, each with the states of `kernels` side by side."""

    cdef readonly tuple kernels         # AggKernel, each with its offset in the record
    cdef Py_ssize_t state_bytes         # of a record without padding
    cdef int8_t weights[2 * BLOCK]      # of the current block, and of one call in it

    def __init__(self, kernels):
        """Records for `kernels`; sets their offsets in the record."""
        cdef AggKernel kernel
        cdef Py_ssize_t width = 0
        self.kernels = tuple(kernels)
        for kernel in self.kernels:
            kernel.states, kernel.offset = self, width
            width += kernel.width
        self.state_bytes = width
        super().__init__(width)

    @property
    def column_bytes(self):
        """The bytes of the states of all groups."""
        return self.groups * self.state_bytes + sum([kernel.value_bytes for kernel in self.kernels])

    def apply(self, const int32_t[::1] ids not None, arguments, const uint8_t[::1] ops=None):
        """Applies a chunk: row r changes group ids[r] (negative: none) by its op (None: all inserts).

        `arguments`, per kernel: its column or None, and uint8[rows], 1 where its FILTER is true, or None. A row whose
        argument is NULL does not count. ids: int32[rows]; IndexError for one that is not below `groups`.
        """
        cdef Py_ssize_t rows = ids.shape[0]
        cdef int count = len(self.kernels), i
        cdef void** kernels = <void**>malloc((count + 1) * sizeof(void*))
        cdef AggKernel kernel
        try:
            if kernels == NULL:
                raise MemoryError("no memory for the calls of an aggregation")
            if ops is not None and ops.shape[0] != rows:
                raise ValueError(f"{ops.shape[0]} ops for {rows} rows")
            if rows and has_beyond(&ids[0], rows, self.groups):
                raise IndexError(f"a row belongs to group {np.max(ids)} of {self.groups}")
            for i in range(count):
                kernel = self.kernels[i]
                kernels[i] = <void*>kernel
                kernel.begin(rows, arguments[i][0], arguments[i][1])
            if rows == 0:
                return
            self.fit()
            if rows * count < LONG_WORK // 4:
                self.apply_rows(&ids[0], NULL if ops is None else &ops[0], rows, kernels, count)
            else:
                with nogil:
                    self.apply_rows(&ids[0], NULL if ops is None else &ops[0], rows, kernels, count)
        finally:
            free(kernels)
            for kernel in self.kernels:
                kernel.end()

    def first_rows(self, const int32_t[::1] ids not None, CountKernel counts not None):
        """The groups of the first rows of those that have none by `counts`, -1 for all other rows: int32[rows]. The
        others count as touched in this epoch. IndexError as `apply`."""
        cdef Py_ssize_t row, rows = ids.shape[0]
        found = np.full(rows, -1, np.int32)
        cdef int32_t[::1] out = found
        cdef uint32_t* touched = <uint32_t*>self.touched.data
        cdef const uint64_t* marks = <const uint64_t*>self.marks.data
        cdef int64_t* count
        if rows and has_beyond(&ids[0], rows, self.groups):
            raise IndexError(f"a row belongs to group {np.max(ids)} of {self.groups}")
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows and ids[row + AHEAD] >= 0:
                    prefetch_for_write(counts.state(ids[row + AHEAD]))
                    prefetch_for_write(touched + ids[row + AHEAD])
                if ids[row] < 0:
                    continue
                count = <int64_t*>counts.state(ids[row])
                if count[0] == 0:
                    count[0] = -1               # until all rows were seen
                    out[row] = ids[row]
                elif not marks[ids[row] >> 6] >> (ids[row] & 63) & 1:
                    touched[ids[row]] = self.epoch
            for row in range(rows):
                if out[row] >= 0:
                    (<int64_t*>counts.state(out[row]))[0] = 0
        return found

    def load(self, kernel, const int32_t[::1] ids not None, columns, const uint8_t[::1] found=None):
        """Fills the part of `kernel` in the records of `ids` from the state columns of one stored row each, where
        `found`.
        """
        cdef AggKernel into = kernel
        cdef Py_ssize_t rows = ids.shape[0]
        cdef list states = self.checked_states(into, ids, columns)
        if found is not None and found.shape[0] != rows:
            raise ValueError(f"{found.shape[0]} flags for {rows} groups")
        into.expect(rows, states)
        self.fit()
        if rows:
            into.read_states(&ids[0], NULL if found is None else &found[0], rows, states)

    def merge(self, const int32_t[::1] ids not None, columns):
        """Adds to the groups of `ids`, in which one may come several times, states of the same calls: for each kernel
        its state columns, a row for each id."""
        cdef AggKernel kernel
        cdef Py_ssize_t rows = ids.shape[0]
        cdef list of_kernel
        cdef list states = [self.checked_states(kernel, ids, each)
                            for kernel, each in zip(self.kernels, columns, strict=True)]
        for kernel, of_kernel in zip(self.kernels, states):
            kernel.expect(rows, of_kernel)
        if rows == 0:
            return
        self.fit()
        self.mark(&ids[0], rows)
        for kernel, of_kernel in zip(self.kernels, states):
            kernel.merge_states(&ids[0], rows, of_kernel)

    def release(self):
        """Ends the use of these records, whose kernels reference them."""
        cdef AggKernel kernel
        for kernel in self.kernels:
            kernel.states = None
        self.kernels = ()

    cdef list checked_states(self, AggKernel kernel, const int32_t[::1] ids, columns):
        """The state columns of a kernel, for groups that exist."""
        cdef Py_ssize_t rows = ids.shape[0], row
        cdef list states = [as_column(source) for source in columns]
        cdef Column column
        types = tuple([column.data_type for column in states])
        if types != kernel.state_types:
            raise ValueError(f"state of {kernel.spec.kind} is {kernel.state_types}, not {types}")
        for column in states:
            if column.view.rows != rows:
                raise ValueError(f"{column.view.rows} states for {rows} groups")
        for row in range(rows):
            if ids[row] < 0 or ids[row] >= self.groups:
                raise IndexError(f"group {ids[row]} of {self.groups}")
        return states

    def compare(self, const int32_t[::1] ids not None, Py_ssize_t first_saved, CountKernel counts not None, calls):
        """Gathers the groups `ids`, see `gather`, and compares them with their former states. Returns uint8[4, ids]:
        whether each had a row by `counts`, has one, changed its state, and changed what one of `calls` emits; the index
        in `ids` of a group whose count is negative, else -1; and whether all have a row."""
        cdef Py_ssize_t rows = ids.shape[0], row, wrong = -1
        cdef bint have_rows = True
        cdef AggKernel kernel
        cdef bint is_emitted
        out = np.zeros((4, rows), np.uint8)
        cdef uint8_t[:, ::1] flags = out
        self.gather(ids, first_saved)
        if rows == 0:
            return out, wrong, have_rows
        if (first_saved + rows) * self.width > self.saved.size:
            raise ValueError(f"{rows} groups from {first_saved} on, {self.saved.size // self.width} saved records")
        with nogil:
            for row in range(rows):
                flags[0, row] = (<int64_t*>counts.picked(~row))[0] > 0
                flags[1, row] = (<int64_t*>counts.picked(row))[0] > 0
                have_rows &= flags[1, row]
                if (<int64_t*>counts.picked(row))[0] < 0:
                    wrong = row
        for kernel in self.kernels:
            is_emitted = kernel in calls
            with nogil:
                compare_states(kernel, rows, is_emitted, &flags[2, 0], &flags[3, 0])
        return out, wrong, have_rows

    def finish(self, Py_ssize_t first=-1):
        """Ends the epoch, of all groups or of the `first` dirty ones."""
        cdef AggKernel kernel
        GroupRecords.finish(self, first)
        if self.saved.size:
            return
        for kernel in self.kernels:
            kernel.end_epoch()

    def keep(self, const int32_t[::1] ids not None):
        """Renumbers the groups `ids` to 0, 1, 2 …, and discards the others. REQUIRES that none is dirty."""
        cdef AggKernel kernel
        GroupRecords.keep(self, ids)
        for kernel in self.kernels:
            kernel.pack()

    cdef int fit(self) except -1:
        """Rewrites all records with a wider layout if a kernel needs more bytes for its state."""
        cdef AggKernel kernel
        cdef Py_ssize_t width = 0, old_width = self.width, rows = self.groups + 1
        cdef RecordArena records, saved
        if all([(<AggKernel>each).wanted <= (<AggKernel>each).width for each in self.kernels]):
            return 0
        for kernel in self.kernels:
            width += max(kernel.wanted, kernel.width)
        width = padded(width)
        records, saved = RecordArena(), RecordArena()
        records.extend(rows * width)
        self.lay_out(self.records.data, rows, records.data, width)
        rows = self.saved.size // old_width
        saved.reserve(rows * width)
        memset(saved.data, 0, <size_t>(rows * width))
        self.lay_out(self.saved.data, rows, saved.data, width)
        saved.size = rows * width
        width, self.width = 0, width
        for kernel in self.kernels:
            kernel.offset, kernel.width = width, max(kernel.wanted, kernel.width)
            width += kernel.width
        self.records, self.saved, self.gathered = records, saved, ByteBuffer()
        return 0

    cdef int lay_out(self, const uint8_t* source, Py_ssize_t rows, uint8_t* target, Py_ssize_t width) except -1:
        """Copies records into the layout with the requested state widths. `target`: zeros."""
        cdef AggKernel kernel
        cdef Py_ssize_t offset = 0
        for kernel in self.kernels:
            copy_states(kernel, source + kernel.offset, self.width, rows, target + offset, width)
            offset += max(kernel.wanted, kernel.width)
        return 0

    cdef int apply_rows(self, const int32_t* ids, const uint8_t* ops, Py_ssize_t rows, void** kernels,
                        int count) except -1 nogil:
        cdef int8_t* common = self.weights
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


cdef void compare_states(AggKernel kernel, Py_ssize_t rows, bint is_emitted, uint8_t* state_changed,
                         uint8_t* output_changed) noexcept nogil:
    """Sets the flags of the gathered groups whose state of one call differs from the saved one."""
    cdef Py_ssize_t row
    for row in range(rows):
        if not kernel.same_state(kernel.picked(~row), kernel.picked(row)):
            state_changed[row] = 1
            if is_emitted and not output_changed[row]:
                output_changed[row] = not kernel.same_output(kernel.picked(~row), kernel.picked(row))


cdef void copy_states(AggKernel kernel, const uint8_t* source, Py_ssize_t old_width, Py_ssize_t rows, uint8_t* target,
                      Py_ssize_t width) noexcept nogil:
    """Widens the states of one call to the requested width."""
    cdef Py_ssize_t row
    for row in range(rows):
        memcpy(target + row * width, source + row * old_width, <size_t>kernel.width)
        if kernel.wanted > kernel.width:
            kernel.widen(target + row * width)


cdef bint has_beyond(const int32_t* ids, Py_ssize_t rows, Py_ssize_t groups) noexcept nogil:
    """Whether an id is not below `groups`."""
    cdef int32_t last = <int32_t>min(groups, <Py_ssize_t>0x7FFFFFFF) - 1, beyond = 0
    cdef Py_ssize_t row
    for row in range(rows):
        beyond |= ids[row] > last
    return beyond != 0


cdef void weigh(const int32_t* ids, const uint8_t* ops, Py_ssize_t rows, int8_t* weights) noexcept nogil:
    """1 for an inserted row, -1 for a deleted one, 0 for one without a group."""
    cdef Py_ssize_t row
    if ops == NULL:
        for row in range(rows):
            weights[row] = ids[row] >= 0
        return
    for row in range(rows):
        weights[row] = <int8_t>((ids[row] >= 0) * (1 - 2 * (ops[row] & 1)))


cdef const int8_t* own_weights(AggKernel kernel, Py_ssize_t first, Py_ssize_t rows, const int8_t* common,
                               int8_t* out) noexcept nogil:
    """The weights of one call: 0 also if its mask is not set or its argument is NULL. Returns `common` or `out`."""
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
