"""The first rows under many key prefixes, mem table over store."""

from hummock.base.key cimport Slice
from hummock.columnar.write_batch cimport KvBatch
from relational.table.mem_table cimport MemTable
from relational.table.overlay cimport BatchWriter

cdef Py_ssize_t merge_prefix(MemTable mem, Slice prefix, KvBatch stored, Py_ssize_t row, Py_ssize_t end,
                             Py_ssize_t limit, Py_ssize_t fetched, BatchWriter out) except -2 nogil
# rows appended to `out`; -1 and none where [row, end) of `stored` does not reach far enough
