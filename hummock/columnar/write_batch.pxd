"""WriteBatch and KvBatch: keys and values side by side, in Arrow's layout."""

from hummock.columnar.binary_column cimport BinaryColumn

cdef enum:
    MAX_KEY_BYTES = 1 << 20         # the longest user key that enters the store
    MAX_VALUE_BYTES = 1 << 28       # the longest value


cdef class KvBatch:
    """Rows of (key, value) as a scan hands them out; `values` has no nulls there."""
    cdef readonly BinaryColumn keys
    cdef readonly BinaryColumn values   # same rows; in a WriteBatch a null value is a delete


cdef class WriteBatch(KvBatch):
    """Sorted, unique keys, each with one operation. Checked once at construction, then trusted."""
    cdef readonly Py_ssize_t size_bytes # keys and values
