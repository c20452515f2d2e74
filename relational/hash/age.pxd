"""How long ago something was touched, in epochs: what eviction goes by."""

from libc.stdint cimport uint32_t

cdef enum:
    AGES = 1 << 16          # that are told apart


cdef inline Py_ssize_t age_of(uint32_t epoch, uint32_t touched) noexcept nogil:
    """The age in the current epoch, below AGES. Both wrap around."""
    return min(<Py_ssize_t>(epoch - touched), <Py_ssize_t>AGES - 1)
