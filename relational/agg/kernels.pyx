"""AggKernel, the base of the kernels of all aggregate calls; CountKernel, ArenaKernel and WordKernel."""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.agg.rank cimport put_value
from relational.agg.records cimport GroupRecords
from relational.chunk.column cimport Column, check_mask, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.data_chunk cimport mask_pointer

from relational.errors import EvaluationError
from relational.types import DataType

cdef enum:
    WASTE_BYTES = 1 << 20       # garbage in an arena that makes packing worthwhile


cdef class AggKernel:
    """Base of all kernels."""

    def __init__(self, spec, bint strict=False):
        self.spec, self.strict = spec, strict
        self.state_types = (*spec.state_types, *spec.wide_types)

    @property
    def size_bytes(self):
        """Memory used outside the records."""
        return 0

    @property
    def value_bytes(self):
        """The bytes of values outside the records."""
        return 0

    def outputs(self, const int32_t[::1] picks):
        """The results of the picked states, a Column of `spec.output_type`."""
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    def state_columns(self, const int32_t[::1] picks):
        """The picked states as a list of Columns of `state_types`."""
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef int begin(self, Py_ssize_t rows, Column argument, mask) except -1:
        if mask is not None:
            check_mask(mask, rows)
        if (argument is None) != (self.spec.input_type is None):
            raise ValueError(f"{self.spec.kind} of {self.spec.input_type} given {argument}")
        if argument is not None and (argument.view.rows != rows or argument.data_type != self.spec.input_type):
            given = f"{argument.view.rows} {argument.data_type} for {rows} rows"
            raise ValueError(f"{self.spec.kind} of {self.spec.input_type}: {given}")
        self.held = (argument, mask)
        self.view = NULL if argument is None else &argument.view
        self.mask = mask_pointer(mask)
        return 0

    cdef void end(self) noexcept:
        self.held, self.view, self.mask = None, NULL, NULL

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef int expect(self, Py_ssize_t rows, list columns) except -1:
        return 0

    cdef void widen(self, uint8_t* state) noexcept nogil:
        pass

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        raise TypeError(f"{type(self).__name__} is not a kind of aggregate")

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        raise TypeError(f"states of {self.spec.kind} cannot be merged")

    cdef void combine(self, void* into, const void* other, int sign) noexcept nogil:
        pass

    cdef bint same_state(self, const void* a, const void* b) noexcept nogil:
        return memcmp(a, b, self.width) == 0

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        return memcmp(a, b, self.width) == 0

    cdef int end_epoch(self) except -1:
        return 0

    cdef int pack(self) except -1:
        return 0

    def count_overflow(self, Py_ssize_t groups):
        """Counts `groups` additional results that do not fit: EvaluationError when strict, else they are NULL."""
        if groups and self.strict:
            raise EvaluationError(
                f"{self.overflow_reason}: {groups} of the results do not fit {self.spec.output_type}")
        self.overflows += groups

    @property
    def overflow_reason(self):
        """The reason for such a NULL result."""
        return f"value out of range for {self.spec.kind.upper()}"


cdef ColumnBuilder new_column(data_type, Py_ssize_t rows):
    cdef ColumnBuilder column = ColumnBuilder(data_type)
    column.reserve(rows, 0)
    column.rows = rows
    return column


cdef int check_picks(AggKernel kernel, const int32_t[::1] picks) except -1:
    """IndexError for a pick beyond the records."""
    cdef GroupRecords states = kernel.states
    cdef Py_ssize_t saved = states.saved.size // states.width - states.first_saved, row, wrong = -1
    cdef Py_ssize_t gathered = states.gathered.size // states.width
    with nogil:
        for row in range(picks.shape[0]):
            if picks[row] >= gathered or ~picks[row] >= saved:
                wrong = row
    if wrong >= 0:
        raise IndexError(f"pick {picks[wrong]} of {gathered} gathered and {saved} saved records")
    return 0


cdef Column counts_of(AggKernel kernel, const int32_t[::1] picks):
    cdef Py_ssize_t row, rows = picks.shape[0]
    cdef ColumnBuilder out = new_column(DataType.BIGINT, rows)
    check_picks(kernel, picks)
    with nogil:
        for row in range(rows):
            put_int64(out, row, (<const int64_t*>kernel.picked(picks[row]))[0])
    return out.finish_column()


cdef int64_t int64_at(Column column, Py_ssize_t row) noexcept nogil:
    return 0 if is_null(&column.view, row) else (<const int64_t*>column.view.values)[row]


@cython.final
cdef class CountKernel(AggKernel):
    """Rows, or non-NULL arguments. State: int64."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(int64_t)

    def outputs(self, const int32_t[::1] picks):
        """The counts, BIGINT."""
        return counts_of(self, picks)

    def state_columns(self, const int32_t[::1] picks):
        """The counts, as the one state column."""
        return [self.outputs(picks)]

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef uint8_t* states = <uint8_t*>self.state(0)
        cdef Py_ssize_t row, width = self.states.width
        for row in range(rows):
            (<int64_t*>(states + ids[row] * width))[0] += weights[row]
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column count = columns[0]
        cdef Py_ssize_t row
        for row in range(rows):
            if found == NULL or found[row]:
                (<int64_t*>self.state(ids[row]))[0] = int64_at(count, row)
        return 0

    cdef void combine(self, void* into, const void* other, int sign) noexcept nogil:
        (<int64_t*>into)[0] += sign * (<const int64_t*>other)[0]

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        cdef Column count = columns[0]
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                (<int64_t*>self.state(ids[row]))[0] += int64_at(count, row)
        return 0


cdef class ArenaKernel(AggKernel):
    """Base: a state refers to bytes in an arena."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.arena = ByteBuffer()

    @property
    def size_bytes(self):
        """Memory used by the bytes of states."""
        return self.arena.capacity

    @property
    def value_bytes(self):
        """The bytes of values in the arena."""
        return self.arena.size

    cdef int64_t* referenced(self, void* state, Py_ssize_t* size) noexcept nogil:
        size[0] = 0
        return NULL

    cdef int end_epoch(self) except -1:
        if self.arena.size > 2 * self.live_bytes + WASTE_BYTES:
            self.pack()
        return 0

    cdef int pack(self) except -1:
        cdef ByteBuffer packed = ByteBuffer()
        cdef int64_t group, moved
        cdef int64_t* start
        cdef Py_ssize_t size
        with nogil:
            for group in range(self.states.groups):
                start = self.referenced(self.state(group), &size)
                moved = packed.size
                packed.append(self.arena.data + start[0], size)
                start[0] = moved
        self.arena = packed
        self.live_bytes = packed.size
        return 0


cdef class WordKernel(AggKernel):
    """Base: one word is combined from the ranks of the arguments."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(WordState)

    def outputs(self, const int32_t[::1] picks):
        """The values of the words; NULL for no arguments."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef const WordState* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <const WordState*>self.picked(picks[row])
                if state.count:
                    put_value(out, row, state.word ^ self.flip)
                else:
                    put_null(out, row)
        return out.finish_column()

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const WordState* x = <const WordState*>a
        cdef const WordState* y = <const WordState*>b
        return x.word == y.word and (x.count == 0) == (y.count == 0)
