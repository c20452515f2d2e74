"""Interpolation search among ascending key prefixes (first 8 bytes of keys as integers), then galloping.

Sequential and hashed keys are evenly distributed: a guess and a few strides from it touch one or two cache lines where
binary search touches seven. Unevenly distributed key prefixes cost twice as many steps as binary search.
"""

from libc.stdint cimport uint64_t


cdef inline Py_ssize_t even_guess(uint64_t first, uint64_t last, uint64_t head, Py_ssize_t rows) noexcept nogil:
    """Interpolated row of `head` if key prefixes grow evenly from `first` to `last`: in [0, rows)."""
    if head <= first:
        return 0
    if head >= last:
        return rows - 1
    return <Py_ssize_t>(<double>(head - first) / <double>(last - first) * <double>(rows - 1))


cdef inline Py_ssize_t row_at(double share, Py_ssize_t rows) noexcept nogil:
    """The row at fraction `share`: in [0, rows), 0 if there are none."""
    cdef Py_ssize_t row = <Py_ssize_t>(share * <double>rows + 0.5)
    return row if row < rows else max(rows - 1, 0)


cdef inline Py_ssize_t row_near(
    const uint64_t* heads, Py_ssize_t rows, uint64_t head, Py_ssize_t guess
) noexcept nogil:
    """The first row whose key prefix is not below `head`, or `rows`; gallops from `guess`."""
    cdef Py_ssize_t low, high, stride = 1, probe
    if heads[guess] < head:
        low, high = guess + 1, rows
        while low + stride <= rows:
            probe = low + stride - 1
            if heads[probe] >= head:
                high = probe
                break
            low = probe + 1
            stride *= 2
    else:
        low, high = 0, guess
        while high - stride >= 0:
            probe = high - stride
            if heads[probe] < head:
                low = probe + 1
                break
            high = probe
            stride *= 2
    while low < high:
        probe = (low + high) >> 1
        if heads[probe] < head:
            low = probe + 1
        else:
            high = probe
    return low
