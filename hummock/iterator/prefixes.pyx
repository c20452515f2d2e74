"""The rows under each of many prefixes, in one crossing.

Joins and groups ask for a few rows under each of a thousand keys: one iterator is sought again for each
prefix, and all rows go into one pair of columns.
"""

import numpy as np

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from hummock.binary_column cimport BinaryColumn
from hummock.iterator.collect cimport BatchCollector
from hummock.iterator.user cimport UserIterator
from hummock.key cimport Slice, compare_bytes


def collect_prefixes(UserIterator source not None, BinaryColumn prefixes not None, limit=None):
    """(int32[n]: the row of `prefixes` of each result row, KvBatch of those n rows), in the order of `prefixes`.

    At most `limit` rows for each prefix. Raises OverflowError when keys or values pass 2 GiB.
    """
    cdef BatchCollector collector = BatchCollector(source)
    cdef Py_ssize_t row, most = INT32_MAX if limit is None else min(max(limit, 0), INT32_MAX), done = 0
    cdef Py_ssize_t longest = 0
    cdef int32_t[::1] counts = np.zeros(prefixes.rows, np.int32)
    cdef uint8_t* upper
    for row in range(prefixes.rows):
        longest = prefixes.at(row).size if prefixes.at(row).size > longest else longest
    upper = <uint8_t*>malloc(<size_t>longest + 1)
    if upper == NULL:
        raise MemoryError
    try:
        with nogil:
            for row in range(prefixes.rows):
                source.start = prefixes.at(row)
                source.end = successor(source.start, upper)
                collector.started = False
                collector.fill(done + most if most < INT32_MAX - done else INT32_MAX, INT32_MAX)
                if source.valid and collector.keys.rows - done < most:
                    with gil:
                        raise OverflowError(f"the rows under {prefixes.rows} prefixes pass 2 GiB")
                counts[row] = <int32_t>(collector.keys.rows - done)
                done = collector.keys.rows
    finally:
        free(upper)
    return np.repeat(np.arange(prefixes.rows, dtype=np.int32), counts), collector.finish()


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
