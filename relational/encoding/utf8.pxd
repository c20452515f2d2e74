"""UTF-8 validation."""

from libc.stdint cimport int32_t, uint8_t

cdef Py_ssize_t first_bad_text(const uint8_t* data, const int32_t* starts, Py_ssize_t count) noexcept nogil
# the first i for which data[starts[i] : starts[i + 1]] is not UTF-8, or -1
