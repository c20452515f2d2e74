"""WriteBatch and KvBatch: keys and values side by side, in Arrow's layout."""

from hummock.columnar.binary_column cimport BinaryColumn

cdef enum:
    MAX_KEY_BYTES = 1 << 20         # of a user key
    MAX_VALUE_BYTES = 1 << 28       # of a value


cdef class KvBatch:
    """Rows of (key, value) as returned by a scan, where `values` has no nulls."""
    cdef readonly BinaryColumn keys
    cdef readonly BinaryColumn values   # same rows; in a WriteBatch a null value is a tombstone


cdef class KvPairs:
    cdef BinaryColumn keys
    cdef BinaryColumn values
    cdef Py_ssize_t row                 # the next one


cdef class WriteBatch(KvBatch):
    """Sorted, unique keys, each with one operation. Checked once, at construction."""
    cdef readonly Py_ssize_t size_bytes # keys and values
