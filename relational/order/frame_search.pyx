"""Positions of frames within ordered rows: where the values of a RANGE begin and end, and which row has an extreme."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t

from hummock.base.key cimport compare_bytes
from hummock.columnar.binary_column cimport BinaryColumn


def range_ends(
    BinaryColumn keys not None, BinaryColumn bounds not None, const int64_t[::1] begins not None,
    const int64_t[::1] ends not None, bint is_after
):
    """int64[rows]: for each row the first one of its partition, from `begins` to `ends` (excluded), whose encoded key
    is not less than the row's bound, or, `is_after`, greater; the end of the partition if there is none. The search
    begins where that of the row before ended, since bounds mostly grow as keys do."""
    cdef Py_ssize_t row, rows = keys.rows
    cdef int64_t at = 0, low, high, middle, step
    out = np.empty(rows, np.int64)
    cdef int64_t[::1] found = out
    if bounds.rows != rows or begins.shape[0] != rows or ends.shape[0] != rows:
        raise ValueError(f"{bounds.rows} bounds for {rows} rows")
    with nogil:
        for row in range(rows):
            low, high = begins[row], ends[row]
            at = min(max(at, low), high)
            step = 1
            if at < high and is_before(keys, at, bounds, row, is_after):
                low = at + 1
                while low < high and is_before(keys, min(low + step, high) - 1, bounds, row, is_after):
                    low, step = min(low + step, high), 2 * step
                high = min(low + step, high)
            else:
                high = at
                while high > low and not is_before(keys, max(high - step, low), bounds, row, is_after):
                    high, step = max(high - step, low), 2 * step
                low = max(high - step, low)
            while low < high:
                middle = (low + high) // 2
                if is_before(keys, middle, bounds, row, is_after):
                    low = middle + 1
                else:
                    high = middle
            found[row] = at = low
    return out


cdef inline bint is_before(
    BinaryColumn keys, int64_t at, BinaryColumn bounds, int64_t row, bint is_after
) noexcept nogil:
    return compare_bytes(keys.at(at), bounds.at(row)) < is_after


def extreme_rows(const int64_t[::1] ranks not None, const int64_t[::1] starts not None,
                 const int64_t[::1] ends not None):
    """int64[frames]: the row of the least rank from `starts` to `ends` (excluded), of equal ones the first; -1 if none
    has a rank, which is at least 0. By ranges of 2**j rows, each from two of half the length."""
    cdef Py_ssize_t rows = ranks.shape[0], row, frames = starts.shape[0]
    cdef int64_t length = 1, longest = 0, size, one, other
    out = np.full(frames, -1, np.int64)
    cdef int64_t[::1] found = out
    least = np.arange(rows, dtype=np.int64)
    cdef int64_t[::1] of_range = least
    if ends.shape[0] != frames:
        raise ValueError(f"{frames} starts, {ends.shape[0]} ends")
    with nogil:
        for row in range(frames):
            longest = max(longest, ends[row] - starts[row])
        while length <= longest:
            for row in range(frames):
                size = ends[row] - starts[row]
                if length <= size < 2 * length:
                    one = lesser(ranks, of_range[starts[row]], of_range[ends[row] - length])
                    found[row] = one if ranks[one] >= 0 else -1
            for row in range(rows - length):
                of_range[row] = lesser(ranks, of_range[row], of_range[row + length])
            length *= 2
    return out


cdef inline int64_t lesser(const int64_t[::1] ranks, int64_t one, int64_t other) noexcept nogil:
    """Of two rows that of the lesser rank, the first one if they are equal; a negative rank is greater than all."""
    if ranks[other] < 0:
        return one
    return other if ranks[one] < 0 or ranks[other] < ranks[one] else one
