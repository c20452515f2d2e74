"""Size classes of memory that is kept: 1 << `steps` of them to each power of two above 1 << `smallest`."""

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long) noexcept


cdef inline int size_class(Py_ssize_t size, int smallest, int steps) noexcept nogil:
    """The smallest class whose memory holds `size` bytes. REQUIRES size > 1 << `smallest`."""
    cdef int exponent = 63 - __builtin_clzll(<unsigned long long>(size - 1))
    return ((exponent - smallest) << steps) + <int>(((size - 1) >> (exponent - steps)) & ((1 << steps) - 1))


cdef inline Py_ssize_t size_of_class(int index, int smallest, int steps) noexcept nogil:
    """Bytes of the memory of a class."""
    return (<Py_ssize_t>((1 << steps) + 1 + (index & ((1 << steps) - 1)))) << (smallest - steps + (index >> steps))
