"""Random columns that are a function of seed, column and row number, so that any part can be generated again.

Row n of a column is word n of SplitMix64 (Steele, Lea and Flood, 2014) from a state that mixes seed and column. The
rows of one call are `first`, `first + step`, ...
"""

import numpy as np
import pyarrow as pa

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from relational.chunk.column cimport LONG_WORK
from relational.chunk.scalar cimport store64, uint128_t

cdef extern from *:
    """
    #define GOLDEN 0x9E3779B97F4A7C15ULL
    #define EVEN_BYTES 0x00FF00FF00FF00FFULL
    #define EACH_A 0x6161616161616161ULL
    """
    const uint64_t GOLDEN, EVEN_BYTES, EACH_A

cdef enum:
    LETTERS = 26
    LETTERS_OF_WORD = 8


cdef inline uint64_t mixed(uint64_t word) noexcept nogil:
    word = (word ^ (word >> 30)) * <uint64_t>0xBF58476D1CE4E5B9ULL
    word = (word ^ (word >> 27)) * <uint64_t>0x94D049BB133111EBULL
    return word ^ (word >> 31)


cdef inline uint64_t high_word(uint64_t a, uint64_t b) noexcept nogil:
    """The upper half of the product."""
    return <uint64_t>((<uint128_t>a * b) >> 64)


cdef inline uint64_t state_of(uint64_t seed, uint64_t column) noexcept nogil:
    return mixed(mixed(seed + GOLDEN) ^ (column * GOLDEN))


def random_words(uint64_t seed, uint64_t column, int64_t first, int64_t step, Py_ssize_t rows) -> np.ndarray:
    """uint64[rows], each value equally likely."""
    out = np.empty(rows, np.uint64)
    cdef uint64_t[::1] words = out
    cdef uint64_t state = state_of(seed, column) + <uint64_t>first * GOLDEN, by = <uint64_t>step * GOLDEN
    cdef Py_ssize_t row
    if rows < LONG_WORK:
        for row in range(rows):
            words[row] = mixed(state + <uint64_t>row * by)
    else:
        with nogil:
            for row in range(rows):
                words[row] = mixed(state + <uint64_t>row * by)
    return out


def random_integers(
    uint64_t seed, uint64_t column, int64_t first, int64_t step, Py_ssize_t rows, int64_t least, int64_t most
) -> np.ndarray:
    """int64[rows] between `least` and `most`, both included. REQUIRES least <= most."""
    cdef uint64_t span = <uint64_t>most - <uint64_t>least + 1
    cdef uint64_t[::1] words = random_words(seed, column, first, step, rows)
    cdef Py_ssize_t row
    with nogil:
        for row in range(rows):
            words[row] = (high_word(words[row], span) if span else words[row]) + <uint64_t>least
    return np.asarray(words).view(np.int64)


def random_fractions(uint64_t seed, uint64_t column, int64_t first, int64_t step, Py_ssize_t rows) -> np.ndarray:
    """float64[rows], 0 <= value < 1, multiples of 2**-53."""
    cdef uint64_t[::1] words = random_words(seed, column, first, step, rows)
    out = np.empty(rows, np.float64)
    cdef double[::1] fractions = out
    cdef Py_ssize_t row
    with nogil:
        for row in range(rows):
            fractions[row] = <double><int64_t>(words[row] >> 11) * (1.0 / 9007199254740992.0)
    return out


def random_texts(
    uint64_t seed, uint64_t column, int64_t first, int64_t step, Py_ssize_t rows, int64_t least, int64_t most
) -> pa.Array:
    """utf8[rows]: texts of `least` to `most` lower-case letters. REQUIRES 0 <= least <= most. OverflowError for 2 GiB.
    """
    lengths = random_integers(seed, 2 * column, first, step, rows, least, most)
    ends = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    if ends[rows] > INT32_MAX:
        raise OverflowError(f"{rows} texts of {ends[rows]:,} bytes in one column")
    offsets, data = ends.astype(np.int32), np.empty(int(ends[rows]) + LETTERS_OF_WORD, np.uint8)
    cdef int32_t[::1] starts = offsets
    cdef uint8_t[::1] letters = data
    cdef uint64_t state = state_of(seed, 2 * column + 1) + <uint64_t>first * GOLDEN, by = <uint64_t>step * GOLDEN
    cdef Py_ssize_t row
    with nogil:
        for row in range(rows):
            fill(mixed(state + <uint64_t>row * by), &letters[0] + starts[row], starts[row + 1] - starts[row])
    return pa.Array.from_buffers(pa.utf8(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


cdef inline void fill(uint64_t state, uint8_t* out, Py_ssize_t size) noexcept nogil:
    """Letters of the words that follow `state`, eight at a time: of each byte x the letter number x * 26 // 256. Writes
    up to 7 bytes beyond, which the next text overwrites.
    """
    cdef Py_ssize_t at = 0
    cdef uint64_t word
    while at < size:
        state += GOLDEN
        word = mixed(state)
        word = ((word & EVEN_BYTES) * LETTERS >> 8 & EVEN_BYTES) | ((word >> 8 & EVEN_BYTES) * LETTERS & ~EVEN_BYTES)
        store64(out + at, word + EACH_A)
        at += LETTERS_OF_WORD
