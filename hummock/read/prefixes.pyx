"""The rows of each of many ranges, in one crossing.

Joins and groups ask for a few rows under each of a thousand keys: one iterator is sought again for each
range, only where a file may hold it, and all rows go into one pair of columns.
"""

import numpy as np

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcpy

from hummock.base.key cimport Slice, compare_bytes
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.iterator.batch_collector cimport BatchCollector
from hummock.iterator.user cimport UserIterator


cdef class RangeCollector:
    """At most `limit` rows for each range, in the order of the ranges. Its `source` reads a range around them all."""

    def __cinit__(self, UserIterator source not None, BinaryColumn starts not None, BinaryColumn ends=None,
                  bint by_prefix=False, limit=None):
        cdef Py_ssize_t row, longest = 0
        self.source, self.collector = source, BatchCollector(source)
        self.starts, self.ends, self.by_prefix = starts, ends, by_prefix
        self.most = INT32_MAX if limit is None else min(max(limit, 0), INT32_MAX)
        self.counts = np.zeros(starts.rows, np.int32)
        for row in range(starts.rows):
            longest = starts.at(row).size if starts.at(row).size > longest else longest
        self.upper = <uint8_t*>malloc(<size_t>longest + 1)
        if self.upper == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.upper)

    cdef void take_bounds(self) noexcept nogil:
        self.source.start = self.starts.at(self.row)
        self.source.end.data, self.source.end.size = NULL, 0
        if self.by_prefix:
            self.source.end = successor(self.source.start, self.upper)
        elif self.ends is not None and not self.ends.is_null(self.row):
            self.source.end = self.ends.at(self.row)

    cdef int add(self, Py_ssize_t first, Py_ssize_t rows, const uint8_t* among, Py_ssize_t children) except -1:
        cdef Py_ssize_t row
        with nogil:
            for row in range(first, first + rows):
                if among == NULL or memchr(among, 1, <size_t>children) != NULL:
                    self.row = row
                    self.take_bounds()
                    self.source.among = among if children > 1 else NULL
                    self.collector.started = False
                    self.collector.fill(
                        self.collector.keys, self.collector.values,
                        self.done + self.most if self.most < INT32_MAX - self.done else INT32_MAX, INT32_MAX)
                    if self.source.valid and self.collector.keys.rows - self.done < self.most:
                        with gil:
                            raise OverflowError(f"the rows of {self.starts.rows} ranges pass 2 GiB")
                    self.counts[row] = <int32_t>(self.collector.keys.rows - self.done)
                    self.done = self.collector.keys.rows
                if among != NULL:
                    among += children
        return 0

    cdef tuple finish(self):
        owners = np.repeat(np.arange(self.starts.rows, dtype=np.int32), self.counts)
        return owners, self.collector.finish()


def bounds_of(BinaryColumn prefixes not None) -> tuple:
    """(start, end) of the narrowest range of user keys that holds every key under every prefix; end None: none.

    REQUIRES at least one prefix.
    """
    cdef Slice least = prefixes.at(0), end, found
    cdef Py_ssize_t row, longest = 0
    cdef uint8_t* memory
    cdef uint8_t* other
    cdef bint is_open = False
    for row in range(prefixes.rows):
        longest = prefixes.at(row).size if prefixes.at(row).size > longest else longest
        least = prefixes.at(row) if compare_bytes(prefixes.at(row), least) < 0 else least
    memory, other = <uint8_t*>malloc(<size_t>longest + 1), <uint8_t*>malloc(<size_t>longest + 1)
    try:
        if memory == NULL or other == NULL:
            raise MemoryError
        end = successor(least, memory)
        for row in range(prefixes.rows):
            found = successor(prefixes.at(row), other)
            is_open = is_open or found.data == NULL
            if not is_open and compare_bytes(found, end) > 0:
                memory, other = other, memory
                end = found
        start = PyBytes_FromStringAndSize(<const char*>least.data, least.size)
        return start, None if is_open else PyBytes_FromStringAndSize(<const char*>end.data, end.size)
    finally:
        free(memory)
        free(other)


cdef Slice successor(Slice prefix, uint8_t* memory) noexcept nogil:
    """The first byte string after all that begin with `prefix`, in `memory`; data NULL when none can follow."""
    cdef Slice out
    out.data, out.size = NULL, prefix.size
    while out.size > 0 and prefix.data[out.size - 1] == 0xFF:
        out.size -= 1
    if out.size > 0:
        memcpy(memory, prefix.data, <size_t>out.size)
        memory[out.size - 1] += 1
        out.data = memory
    return out
