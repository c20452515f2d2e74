"""Search among ascending heads (first 8 bytes of keys as numbers) from where evenly growing ones would stand.

Keys that count up, and keys that are hashes, do grow evenly: a guess and a few strides from it touch one or two
cache lines where halving touches seven. Heads that do not cost twice as many steps as halving.
"""

from libc.stdint cimport uint64_t


cdef inline Py_ssize_t even_guess(uint64_t first, uint64_t last, uint64_t head, Py_ssize_t rows) noexcept nogil:
    """Where `head` would stand among rows whose heads grow evenly from `first` to `last`: in [0, rows)."""
    if head <= first:
        return 0
    if head >= last:
        return rows - 1
    return <Py_ssize_t>(<double>(head - first) / <double>(last - first) * <double>(rows - 1))


cdef inline Py_ssize_t row_at(double share, Py_ssize_t rows) noexcept nogil:
    """The row before which `share` of the rows stand: in [0, rows), 0 where there are none."""
    cdef Py_ssize_t row = <Py_ssize_t>(share * <double>rows + 0.5)
    return row if row < rows else max(rows - 1, 0)


cdef inline Py_ssize_t row_near(
    const uint64_t* heads, Py_ssize_t rows, uint64_t head, Py_ssize_t guess
) noexcept nogil:
    """The first row whose head is not below `head`, or `rows`: by strides that double away from `guess`."""
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
