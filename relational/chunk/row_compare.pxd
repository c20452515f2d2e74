"""SQL's order of two values of one type."""

from relational.chunk.column cimport ColumnView

cdef int order_of(const ColumnView* left, Py_ssize_t a, const ColumnView* right, Py_ssize_t b) noexcept nogil
# below 0, 0 or above 0 as row a of `left` stands to row b of `right`, of the same type; NULL is above all
