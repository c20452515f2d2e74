"""AggKernel: the states of one aggregate call, one fixed-size record per group; and CountKernel.

A kernel keeps no notion of epochs or dirt; `AggGroups` tells it which groups are touched for the first time
(`save`) and when the epoch ends (`forget_saved`). Rows of the results are chosen by picks: a group number for
its present state, ~i for the state that the i-th dirty group had before the epoch. Only `record`-sized memory
moves here, so saving, comparing, keeping and resetting are the same for every kind; a kind says how a row is
added, and how records become columns and come back from them.
"""

cimport cython
from libc.string cimport memcmp, memcpy, memset

from hummock.byte_buffer cimport ByteBuffer
from relational.chunk.column cimport as_column, is_null

from relational.errors import EvaluationError

cdef extern from * nogil:
    void __builtin_prefetch(const void*, ...) noexcept

cdef enum:
    AHEAD = 16      # rows between asking for a record and using it


cdef class AggKernel:
    """Base of all kinds. Records of groups that were never touched are all zero."""

    def __init__(self, spec, bint strict=False):
        self.spec, self.strict = spec, strict
        self.states, self.saved, self.weights = ByteBuffer(), ByteBuffer(), ByteBuffer()

    @property
    def size_bytes(self):
        """Memory taken by the records."""
        return self.states.size + self.saved.size

    def grow(self, Py_ssize_t groups):
        """Makes empty records for the groups up to `groups`."""
        cdef Py_ssize_t more = (groups - self.groups) * self.width
        if more > 0:
            self.states.reserve(more)
            memset(self.states.data + self.states.size, 0, more)
            self.states.size += more
            self.groups = groups

    def update(self, const int32_t[::1] ids, Column argument=None, const uint8_t[::1] ops=None,
               const uint8_t[::1] mask=None):
        """Takes in a chunk: row r changes group ids[r] (negative: none), by its op (None: all inserts), if
        `mask` (uint8[rows]) lets it pass and its argument is not NULL. ids: int32[rows], below `groups`.
        """
        cdef Py_ssize_t rows = ids.shape[0]
        if ((ops is not None and ops.shape[0] != rows) or (mask is not None and mask.shape[0] != rows)
                or (argument is not None and argument.view.rows != rows)):
            raise ValueError(f"argument, ops and mask do not all have {rows} rows")
        if rows == 0:
            return
        self.weights.size = 0
        self.weights.reserve(rows)
        weigh(ids, argument, ops, mask, <int8_t*>self.weights.data)
        self.add(&ids[0], <const int8_t*>self.weights.data, rows, argument)

    def save(self, const int32_t[::1] ids):
        """Appends the present records of `ids` to the saved ones."""
        cdef Py_ssize_t row, rows = ids.shape[0]
        cdef uint8_t* out
        self.saved.reserve(rows * self.width)
        out = self.saved.data + self.saved.size
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows:
                    __builtin_prefetch(self.record(ids[row + AHEAD]))
                memcpy(out + row * self.width, self.record(ids[row]), self.width)
        self.saved.size += rows * self.width

    def compare(self, const int32_t[::1] ids, uint8_t[::1] state_changed, uint8_t[::1] output_changed):
        """Sets both flags (uint8[dirty], not cleared here) where the i-th dirty group, ids[i], differs from
        what was saved of it.
        """
        cdef Py_ssize_t row, rows = ids.shape[0]
        if rows * self.width > self.saved.size:
            raise ValueError(f"{rows} groups, {self.saved.size // self.width} saved records")
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows:
                    __builtin_prefetch(self.record(ids[row + AHEAD]))
                if not self.same_state(self.record(~row), self.record(ids[row])):
                    state_changed[row] = 1
                    output_changed[row] |= not self.same_output(self.record(~row), self.record(ids[row]))

    def forget_saved(self):
        """The epoch ended: nothing is saved any more."""
        self.saved.size = 0

    def reset(self, const int32_t[::1] ids):
        """Gives `ids` empty records."""
        cdef Py_ssize_t row
        for row in range(ids.shape[0]):
            memset(self.record(ids[row]), 0, self.width)

    def keep(self, const int32_t[::1] ids):
        """The records of `ids` become groups 0, 1, 2 …, others are forgotten. REQUIRES nothing saved."""
        cdef Py_ssize_t row
        cdef ByteBuffer kept = ByteBuffer(ids.shape[0] * self.width)
        with nogil:
            for row in range(ids.shape[0]):
                memcpy(kept.data + row * self.width, self.record(ids[row]), self.width)
        kept.size = ids.shape[0] * self.width
        self.states = kept
        self.groups = ids.shape[0]

    def load(self, const int32_t[::1] ids, columns, const uint8_t[::1] found=None):
        """Fills the records of `ids` from the state columns of a stored row each, where `found`."""
        cdef Py_ssize_t rows = ids.shape[0]
        cdef list states = [as_column(column) for column in columns]
        cdef Column column
        types = tuple([column.data_type for column in states])
        if types != self.spec.state_types:
            raise ValueError(f"state of {self.spec.kind} is {self.spec.state_types}, not {types}")
        for column in states:
            if column.view.rows != rows:
                raise ValueError(f"{column.view.rows} states for {rows} groups")
        if rows:
            self.read_states(&ids[0], NULL if found is None else &found[0], rows, states)

    def outputs(self, const int64_t[::1] picks):
        """The results of the picked states, a pa.Array of `spec.output_type`."""
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    def state_columns(self, const int64_t[::1] picks):
        """The picked states as a list of pa.Arrays of `spec.state_types`."""
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t rows, Column argument) except -1:
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef bint same_state(self, const void* a, const void* b) noexcept nogil:
        return memcmp(a, b, self.width) == 0

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        return memcmp(a, b, self.width) == 0

    def count_overflow(self, Py_ssize_t rows):
        """`rows` results did not fit: EvaluationError when strict, else they are NULL and counted."""
        if rows and self.strict:
            raise EvaluationError(f"{self.spec.kind} does not fit {self.spec.output_type} in {rows} groups")
        self.overflows += rows


cdef void weigh(const int32_t[::1] ids, Column argument, const uint8_t[::1] ops, const uint8_t[::1] mask,
                int8_t* weights) noexcept:
    """1 for a row that adds its argument, -1 for one that retracts it, 0 for one that does not count."""
    cdef Py_ssize_t row, rows = ids.shape[0]
    with nogil:
        for row in range(rows):
            weights[row] = ids[row] >= 0
        if mask is not None:
            for row in range(rows):
                weights[row] &= mask[row] != 0
        if ops is not None:
            for row in range(rows):
                weights[row] *= 1 - 2 * (ops[row] & 1)
        if argument is not None and argument.view.validity != NULL:
            for row in range(rows):
                if is_null(&argument.view, row):
                    weights[row] = 0


cdef ColumnBuilder new_column(data_type, Py_ssize_t rows):
    cdef ColumnBuilder column = ColumnBuilder(data_type)
    column.reserve(rows, 0)
    column.rows = rows
    return column


cdef int check_picks(AggKernel kernel, const int64_t[::1] picks) except -1:
    """IndexError for a pick beyond the groups or the saved records."""
    cdef Py_ssize_t row, saved = kernel.saved.size // kernel.width
    for row in range(picks.shape[0]):
        if picks[row] >= kernel.groups or ~picks[row] >= saved:
            raise IndexError(f"state {picks[row]} of {kernel.groups} groups, {saved} saved")
    return 0


cdef int64_t int64_at(Column column, Py_ssize_t row) noexcept nogil:
    return 0 if is_null(&column.view, row) else (<const int64_t*>column.view.values)[row]


@cython.final
cdef class CountKernel(AggKernel):
    """Rows, or non-NULL arguments. Record: int64."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(int64_t)

    def outputs(self, const int64_t[::1] picks):
        """The counts, BIGINT."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows:
                    __builtin_prefetch(self.record(picks[row + AHEAD]))
                put_int64(out, row, (<int64_t*>self.record(picks[row]))[0])
        return out.finish()

    def state_columns(self, const int64_t[::1] picks):
        """The counts, as the one state column."""
        return [self.outputs(picks)]

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t rows, Column argument) except -1:
        cdef int64_t* counts = <int64_t*>self.states.data
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows and ids[row + AHEAD] >= 0:
                    __builtin_prefetch(counts + ids[row + AHEAD], 1)
                if ids[row] >= 0:
                    counts[ids[row]] += weights[row]
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column count = columns[0]
        cdef Py_ssize_t row
        for row in range(rows):
            if found == NULL or found[row]:
                (<int64_t*>self.states.data)[ids[row]] = int64_at(count, row)
        return 0
