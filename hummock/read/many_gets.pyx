"""Reads of many keys in one call, Arrow to Arrow.

Keys go in small groups as far as memory goes, and their values are copied while they are near. All keys of a thousand
that need a file or a block wait for one round of reads.
"""

from libc.stdint cimport INT32_MAX
from libc.stdlib cimport free, malloc

from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.read.point_read cimport DONE, PointReader, Probe
from hummock.read.view cimport ReadView

cdef Py_ssize_t SLICE_KEYS = 1024   # keys that wait for one round of reads; a search takes 0.2 ms
cdef Py_ssize_t GROUP_KEYS = 128    # keys that walk together: the processor remembers the pages of so many rows


def read_many(ReadView view not None, BinaryColumn keys not None, epoch):
    """The value of each key at `epoch`, null where there is none, as a BinaryColumn of as many rows.

    A null key has no value. Raises what `read_one` raises, and OverflowError when the values pass 2 GiB.
    """
    cdef BinaryColumnBuilder values = BinaryColumnBuilder()
    cdef Py_ssize_t first = 0, count, done
    cdef Probe* probes = <Probe*>malloc(sizeof(Probe) * <size_t>min(keys.rows + 1, SLICE_KEYS))
    cdef PointReader reader
    if probes == NULL:
        raise MemoryError
    try:
        view.checked(epoch)
        while first < keys.rows:
            count = min(SLICE_KEYS, keys.rows - first)
            reader = PointReader(view, epoch)
            reader.begin(probes)
            done = read_near(reader, keys, first, count, values)
            if done < count:
                reader.run(probes + done, count - done)
                append_values(values, probes + done, count - done)
            first += count
    finally:
        free(probes)
    return values.finish()


cdef Py_ssize_t read_near(
    PointReader reader, BinaryColumn keys, Py_ssize_t first, Py_ssize_t count, BinaryColumnBuilder values
) except -1:
    """Reads `count` keys as far as memory goes, and copies the values of the first of them that are DONE; how many."""
    cdef Py_ssize_t row, begin, done = 0
    while reader.count < count:
        begin = reader.count
        for row in range(begin, min(begin + GROUP_KEYS, count)):
            reader.start(keys.at(first + row))
            if keys.is_null(first + row):
                reader.probes[row].state = DONE
        if reader.run_in_memory(reader.probes + begin, reader.count - begin) and done == begin:
            append_values(values, reader.probes + begin, reader.count - begin)
            done = reader.count
    return done


cdef int append_values(BinaryColumnBuilder values, Probe* probes, Py_ssize_t count) except -1 nogil:
    cdef Py_ssize_t row, added = 0
    for row in range(count):
        added += probes[row].value.size
    if values.data_bytes + added > INT32_MAX:
        with gil:
            raise OverflowError(f"the values of one call pass 2 GiB: {values.data_bytes + added} bytes")
    values.reserve(count, added)
    for row in range(count):
        if probes[row].value.data == NULL:
            values.append_null()
        else:
            values.append(probes[row].value)
    return 0
