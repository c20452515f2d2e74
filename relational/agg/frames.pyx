"""FrameStates: an aggregate of frames, each a range of ordered rows.

    states = FrameStates(kernel, rows, argument, mask)      # mask: uint8[rows], the FILTER, or None
    states.accumulate(begins, known, columns)       # record i: of the rows from a partition's first one to row i
    states.running(ends)                            # results of the rows from there to `ends`
    states.between(begins, starts, ends)            # results of any ranges within partitions
    states.state_columns()                          # the records, as columns of `kernel.state_types`

A result depends on the rows of its frame and their order alone, not on the rows around them, so that whoever computes
it again from fewer or more rows gets the same bits. Exact states are differences of two records. Of sums that are
rounded nothing can be subtracted: they are combined from the states of ranges of 2**j rows, the shortest first, which
takes as many passes as the longest frame has binary digits.
"""

import numpy as np

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.agg.kernels cimport AggKernel
from relational.agg.records cimport GroupRecords, padded
from relational.chunk.column cimport Column, as_column, bit_at


@cython.final
cdef class FrameStates(GroupRecords):
    """The states of one call, a record for each row. REQUIRES a kernel of its own, which is no extreme."""

    cdef AggKernel kernel
    cdef Py_ssize_t rows
    cdef const int8_t* weights
    cdef object weights_of_rows         # owner of `weights`: int8[rows], 1 for a row that counts
    cdef object argument
    cdef object mask

    def __init__(self, AggKernel kernel not None, Py_ssize_t rows, argument, mask):
        """`argument`: Column[rows], None for count(*)."""
        kernel.begin(rows, argument, mask)
        kernel.width = max(kernel.wanted, kernel.width)
        kernel.states, kernel.offset = self, 0
        super().__init__(kernel.width)
        self.kernel, self.rows, self.argument, self.mask = kernel, rows, argument, mask
        counts = np.ones(rows, np.int8) if mask is None else (mask != 0).astype(np.int8)
        self.weights_of_rows = counts
        cdef int8_t[::1] out = counts
        cdef Py_ssize_t row
        if rows:
            self.weights = &out[0]
        if kernel.view != NULL and kernel.view.validity != NULL:
            for row in range(rows):
                out[row] &= bit_at(kernel.view.validity, kernel.view.offset + row)
        self.grow_to(1)

    def accumulate(self, const uint8_t[::1] begins not None, known=None, columns=()):
        """`begins`: uint8[rows], 1 for the first row of a partition. `known`: int32[n], ascending, some of these rows;
        row i of the state `columns` is the record of row known[i], which is not computed."""
        cdef const int32_t[::1] given = np.empty(0, np.int32) if known is None else known
        cdef Py_ssize_t row, at = 0, width = self.width, count = given.shape[0]
        cdef AggKernel kernel = self.kernel
        cdef uint8_t* scratch
        cdef uint8_t* target
        cdef int32_t group = 0
        self.read_known(count, columns)
        self.gathered = ByteBuffer()
        self.gathered.reserve((self.rows + 1) * width)
        self.gathered.size = (self.rows + 1) * width
        scratch, target = self.record(0), self.gathered.data
        with nogil:
            for row in range(self.rows):
                if at < count and given[at] == row:
                    memcpy(scratch, self.record(at + 1), <size_t>width)
                    at += 1
                else:
                    if begins[row]:
                        memset(scratch, 0, <size_t>width)
                    kernel.add(&group, self.weights + row, row, 1)
                memcpy(target + row * width, scratch, <size_t>width)
            memset(target + self.rows * width, 0, <size_t>width)

    cdef int read_known(self, Py_ssize_t count, columns) except -1:
        """Reads states into the records of the groups 1, 2 …"""
        cdef list states = [as_column(source) for source in columns]
        cdef AggKernel kernel = self.kernel
        cdef const int32_t[::1] ids
        cdef Py_ssize_t before = kernel.width
        if count == 0:
            return 0
        if tuple([(<Column>column).data_type for column in states]) != kernel.state_types:
            raise ValueError(f"state of {kernel.spec.kind} is {kernel.state_types}")
        kernel.expect(count, states)
        kernel.width = max(kernel.wanted, kernel.width)
        if kernel.width != before:
            GroupRecords.__init__(self, kernel.width)
            self.groups = 0
        self.grow_to(count + 1)
        ids = np.arange(1, count + 1, dtype=np.int32)
        kernel.read_states(&ids[0], NULL, count, states)
        return 0

    def running(self, ends):
        """The results of the rows from the beginning of a partition to `ends` (int64[n], excluded); -1: of no rows."""
        return self.kernel.outputs(np.where(ends < 0, self.rows, ends - 1).astype(np.int32))

    def state_columns(self):
        """The records as columns of the kernel's state types."""
        return self.kernel.state_columns(np.arange(self.rows, dtype=np.int32))

    def between(self, const uint8_t[::1] begins not None, const int64_t[::1] starts not None,
                const int64_t[::1] ends not None):
        """The results of the rows from `starts` to `ends`, excluded, which are of one partition each."""
        cdef Py_ssize_t count = starts.shape[0]
        cdef ByteBuffer found = ByteBuffer()
        if ends.shape[0] != count or begins.shape[0] != self.rows:
            raise ValueError(f"{count} starts, {ends.shape[0]} ends, {begins.shape[0]} of {self.rows} rows")
        found.reserve((count + 1) * self.width)
        found.size = count * self.width
        memset(found.data, 0, <size_t>((count + 1) * self.width))
        if count:
            if self.kernel.is_rounded:
                self.double_ranges(starts, ends, found.data)
            else:
                self.accumulate(begins)
                with nogil:
                    self.subtract(begins, starts, ends, found.data)
        self.gathered = found
        return self.kernel.outputs(np.arange(count, dtype=np.int32))

    cdef int subtract(self, const uint8_t[::1] begins, const int64_t[::1] starts, const int64_t[::1] ends,
                      uint8_t* found) except -1 nogil:
        cdef Py_ssize_t row, width = self.width
        cdef uint8_t* records = self.gathered.data
        for row in range(starts.shape[0]):
            if starts[row] >= ends[row]:
                continue
            memcpy(found + row * width, records + (ends[row] - 1) * width, <size_t>width)
            if not begins[starts[row]]:
                self.kernel.combine(found + row * width, records + (starts[row] - 1) * width, -1)
        return 0

    cdef int double_ranges(self, const int64_t[::1] starts, const int64_t[::1] ends, uint8_t* found) except -1:
        cdef Py_ssize_t row, width = self.width, length = 1, count = starts.shape[0], rows = self.rows
        cdef AggKernel kernel = self.kernel
        cdef int64_t longest = 0
        cdef uint8_t* ranges
        next_rows = np.array(starts)
        cdef int64_t[::1] position = next_rows
        self.accumulate(np.ones(rows, np.uint8))                # each row alone
        ranges = self.gathered.data
        with nogil:
            for row in range(count):
                longest = max(longest, ends[row] - starts[row])
            while length <= longest:
                for row in range(count):
                    if ends[row] > starts[row] and (ends[row] - starts[row]) & length:
                        kernel.combine(found + row * width, ranges + position[row] * width, 1)
                        position[row] += length
                for row in range(rows - length):
                    kernel.combine(ranges + row * width, ranges + (row + length) * width, 1)
                length *= 2
        return 0

    @property
    def overflows(self):
        """How many results so far are NULL because they do not fit their type."""
        return self.kernel.overflows

    @property
    def overflow_reason(self):
        """The reason for such a NULL."""
        return self.kernel.overflow_reason

    def release(self):
        """Ends the use of these records, which the kernel references."""
        self.kernel.end()
        self.kernel.states = None
