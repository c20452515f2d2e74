"""AggKernel: the states of one aggregate call, one fixed-size record per group; and CountKernel.

A kernel keeps no notion of epochs or dirt; `AggGroups` tells it which groups are touched for the first time
(`save`) and when the epoch ends (`forget`). Records of groups lie anywhere in memory, so whoever wants results
first has them gathered, once; rows of the results are then chosen by picks: i for the i-th gathered record, ~i
for the i-th saved one. Only records move here, so saving, comparing, keeping and resetting are the same for
every kind; a kind says how a row is added, and how records become columns and come back from them.
"""

cimport cython
from libc.string cimport memcmp, memset

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
        self.states, self.saved, self.gathered = ByteBuffer(), ByteBuffer(), ByteBuffer()
        self.weights = ByteBuffer()

    @property
    def size_bytes(self):
        """Memory taken by the records."""
        return self.states.size + self.saved.size + self.gathered.size

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
        self.copy_records(ids, self.saved)

    def gather(self, const int32_t[::1] ids, Py_ssize_t first_saved=0):
        """Makes the present records of `ids` the gathered ones; what they were before this epoch was saved from
        place `first_saved` on.
        """
        self.gathered.size = 0
        self.first_saved = first_saved
        self.copy_records(ids, self.gathered)

    def compare(self, uint8_t[::1] state_changed, uint8_t[::1] output_changed):
        """Sets both flags (uint8[gathered], not cleared here) where gathered and saved record differ."""
        cdef Py_ssize_t row, rows = state_changed.shape[0]
        if rows * self.width > min(self.saved.size - self.first_saved * self.width, self.gathered.size):
            raise ValueError(f"{rows} flags, {self.saved.size // self.width} saved records")
        with nogil:
            for row in range(rows):
                if not self.same_state(self.picked(~row), self.picked(row)):
                    state_changed[row] = 1
                    output_changed[row] |= not self.same_output(self.picked(~row), self.picked(row))

    def forget(self):
        """The epoch ended: nothing is saved or gathered any more."""
        self.saved.size = self.gathered.size = 0

    def reset(self, const int32_t[::1] ids):
        """Gives `ids` empty records."""
        cdef Py_ssize_t row
        for row in range(ids.shape[0]):
            memset(self.state(ids[row]), 0, self.width)

    def keep(self, const int32_t[::1] ids):
        """The records of `ids` become groups 0, 1, 2 …, others are forgotten. REQUIRES nothing saved."""
        cdef ByteBuffer kept = ByteBuffer()
        self.copy_records(ids, kept)
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

    def outputs(self, const int32_t[::1] picks):
        """The results of the picked states, a pa.Array of `spec.output_type`."""
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    def state_columns(self, const int32_t[::1] picks):
        """The picked states as a list of pa.Arrays of `spec.state_types`."""
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef int copy_records(self, const int32_t[::1] ids, ByteBuffer target) except -1:
        """Appends the present records of `ids`."""
        cdef Py_ssize_t row, rows = ids.shape[0], words = self.width // sizeof(int64_t), word
        cdef int64_t* out
        cdef const int64_t* record
        target.reserve(rows * self.width)
        out = <int64_t*>(target.data + target.size)
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows:
                    __builtin_prefetch(self.state(ids[row + AHEAD]))
                record = <const int64_t*>self.state(ids[row])
                for word in range(words):
                    out[word] = record[word]
                out += words
        target.size += rows * self.width
        return 0

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


cdef int check_picks(AggKernel kernel, const int32_t[::1] picks) except -1:
    """IndexError for a pick beyond the records."""
    cdef Py_ssize_t saved = kernel.saved.size // kernel.width - kernel.first_saved, row
    cdef Py_ssize_t gathered = kernel.gathered.size // kernel.width
    for row in range(picks.shape[0]):
        if picks[row] >= gathered or ~picks[row] >= saved:
            raise IndexError(f"pick {picks[row]} of {gathered} gathered and {saved} saved records")
    return 0


cdef int64_t int64_at(Column column, Py_ssize_t row) noexcept nogil:
    return 0 if is_null(&column.view, row) else (<const int64_t*>column.view.values)[row]


@cython.final
cdef class CountKernel(AggKernel):
    """Rows, or non-NULL arguments. Record: int64."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(int64_t)

    def outputs(self, const int32_t[::1] picks):
        """The counts, BIGINT."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                put_int64(out, row, (<int64_t*>self.picked(picks[row]))[0])
        return out.finish()

    def state_columns(self, const int32_t[::1] picks):
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
