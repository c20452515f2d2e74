"""BatchCollector: collects the rows of a UserIterator into columns."""

from hummock.columnar.binary_column cimport BinaryColumnBuilder
from hummock.columnar.write_batch cimport KvBatch
from hummock.iterator.base cimport Entry, Span
from hummock.iterator.user cimport UserIterator


cdef class BatchCollector:
    cdef UserIterator source            # None after `close`
    cdef BinaryColumnBuilder keys
    cdef BinaryColumnBuilder values     # as many rows as `keys`
    cdef Py_ssize_t last_rows           # of the previous batch: initial capacity of the next one
    cdef Py_ssize_t last_key_bytes
    cdef Py_ssize_t last_value_bytes
    cdef bint started                   # `source` is positioned, at a row or at its end
    cdef Entry* pulled                  # rows that the source merged at once; owned, NULL before the first
    cdef Py_ssize_t pulled_count
    cdef Py_ssize_t pulled_at           # the first one that was not collected
    cdef bint is_pulling                # the source's rows are pulled
    cdef Py_ssize_t steps               # of the current stretch of spans and single rows
    cdef Py_ssize_t stepped_rows

    cdef Py_ssize_t fill_all(
        self, void** keys, void** values, Py_ssize_t max_rows, Py_ssize_t batch_rows, Py_ssize_t max_bytes
    ) except -1 nogil
    # fills BinaryColumnBuilders in turn; returns how many were begun
    cdef int fill(
        self, BinaryColumnBuilder keys, BinaryColumnBuilder values, Py_ssize_t max_rows, Py_ssize_t max_bytes
    ) except -1 nogil
    # appends rows until the columns hold `max_rows` or would exceed `max_bytes`; always appends a first row
    cdef int begin(self) except -1 nogil
    cdef Py_ssize_t append_step(
        self, BinaryColumnBuilder keys, BinaryColumnBuilder values, Py_ssize_t max_rows, Py_ssize_t max_bytes
    ) except -1 nogil
    # a span or a row of the source; returns how many rows, 0 if not even one fits
    cdef Py_ssize_t append_pulled(
        self, BinaryColumnBuilder keys, BinaryColumnBuilder values, Py_ssize_t max_rows, Py_ssize_t max_bytes
    ) except -1 nogil
    # the same of pulled rows; 0 at the end, too
    cdef int choose_mode(self, Py_ssize_t rows, Py_ssize_t left) except -1 nogil
    # after a step of so many rows, with `left` more to collect: whether to pull from now on
    cdef KvBatch finish(self)           # returns and resets `keys` and `values`


cdef Py_ssize_t rows_that_fit(const Span* span, Py_ssize_t max_rows, Py_ssize_t max_bytes) noexcept nogil
cdef int append_keys(BinaryColumnBuilder keys, const Span* span, Py_ssize_t rows) except -1 nogil
cdef int append_values(BinaryColumnBuilder values, const Span* span, Py_ssize_t rows) except -1 nogil
# of the first `rows` rows of the span
