"""WordExtremeKernel: MIN and MAX of values of one word, of rows that are never retracted.

The extreme is kept as its rank (`relational.agg.rank`), inverted for MIN, so that the greatest one is the extreme and
zero, the state of no rows, is beaten by every value.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t

from relational.agg.kernels cimport AggKernel, check_picks, int64_at, new_column, put_int64, put_null
from relational.agg.rank cimport put_value, rank_of
from relational.chunk.column cimport Column, is_null
from relational.chunk.column_builder cimport ColumnBuilder

from relational.errors import ConsistencyError

cdef struct WordExtreme:
    int64_t count       # non-NULL arguments
    uint64_t best       # the greatest rank, inverted for MIN; while there are arguments


@cython.final
cdef class WordExtremeKernel(AggKernel):
    """State: WordExtreme. The stored one is (extreme, count), as that of MinMaxKernel."""

    cdef uint64_t flip          # of the bits of a rank: all for MIN

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(WordExtreme)
        self.flip = ~<uint64_t>0 if spec.kind == "min" else 0

    def outputs(self, const int32_t[::1] picks):
        """The extremes; NULL for no rows."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef const WordExtreme* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <const WordExtreme*>self.picked(picks[row])
                if state.count:
                    put_value(out, row, state.best ^ self.flip)
                else:
                    put_null(out, row)
        return out.finish_column()

    def state_columns(self, const int32_t[::1] picks):
        """The minimum or maximum, and the count."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder counts = new_column(self.state_types[1], rows)
        extremes = self.outputs(picks)
        with nogil:
            for row in range(rows):
                put_int64(counts, row, (<const WordExtreme*>self.picked(picks[row])).count)
        return [extremes, counts.finish_column()]

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef uint8_t* states = <uint8_t*>self.state(0)
        cdef Py_ssize_t row, width = self.states.width
        cdef WordExtreme* state
        cdef uint64_t rank
        cdef bint is_retracted = False
        for row in range(rows):
            state = <WordExtreme*>(states + ids[row] * width)
            rank = (rank_of(self.view, first + row) ^ self.flip) & -<uint64_t>(weights[row] > 0)
            state.best = max(state.best, rank)
            state.count += weights[row]
            is_retracted |= weights[row] < 0
        if is_retracted:
            with gil:
                raise ConsistencyError(f"a retraction from an append-only {self.spec.kind}")
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column extremes = columns[0], counts = columns[1]
        cdef WordExtreme* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&extremes.view, row):
                    state = <WordExtreme*>self.state(ids[row])
                    state.count = int64_at(counts, row)
                    state.best = rank_of(&extremes.view, row) ^ self.flip
        return 0

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        cdef Column extremes = columns[0], counts = columns[1]
        cdef WordExtreme* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if not is_null(&extremes.view, row):
                    state = <WordExtreme*>self.state(ids[row])
                    state.count += int64_at(counts, row)
                    state.best = max(state.best, rank_of(&extremes.view, row) ^ self.flip)
        return 0

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const WordExtreme* x = <const WordExtreme*>a
        cdef const WordExtreme* y = <const WordExtreme*>b
        return x.best == y.best and (x.count == 0) == (y.count == 0)
