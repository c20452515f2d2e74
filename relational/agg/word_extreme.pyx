"""WordExtremeKernel: MIN and MAX of values of one word, of rows that are never retracted.

The extreme is kept as its rank (`relational.agg.rank`), inverted for MIN, so that the greatest one is the extreme and
zero, the state of no rows, is beaten by every value.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t

from relational.agg.kernels cimport WordKernel, WordState, counts_of, int64_at
from relational.agg.rank cimport rank_of
from relational.chunk.column cimport Column, is_null

from relational.errors import ConsistencyError


@cython.final
cdef class WordExtremeKernel(WordKernel):
    """The word is the greatest rank, inverted for MIN. A stored state is (extreme, count), as that of MinMaxKernel."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.flip = ~<uint64_t>0 if spec.kind == "min" else 0

    def state_columns(self, const int32_t[::1] picks):
        """The minimum or maximum, and the count."""
        return [self.outputs(picks), counts_of(self, picks)]

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef uint8_t* states = <uint8_t*>self.state(0)
        cdef Py_ssize_t row, width = self.states.width
        cdef WordState* state
        cdef uint64_t rank
        cdef bint is_retracted = False
        for row in range(rows):
            state = <WordState*>(states + ids[row] * width)
            rank = (rank_of(self.view, first + row) ^ self.flip) & -<uint64_t>(weights[row] > 0)
            state.word = max(state.word, rank)
            state.count += weights[row]
            is_retracted |= weights[row] < 0
        if is_retracted:
            with gil:
                raise ConsistencyError(f"a retraction from an append-only {self.spec.kind}")
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column extremes = columns[0], counts = columns[1]
        cdef WordState* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&extremes.view, row):
                    state = <WordState*>self.state(ids[row])
                    state.count = int64_at(counts, row)
                    state.word = rank_of(&extremes.view, row) ^ self.flip
        return 0

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        cdef Column extremes = columns[0], counts = columns[1]
        cdef WordState* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if not is_null(&extremes.view, row):
                    state = <WordState*>self.state(ids[row])
                    state.count += int64_at(counts, row)
                    state.word = max(state.word, rank_of(&extremes.view, row) ^ self.flip)
        return 0
