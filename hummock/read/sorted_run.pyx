"""SortedRun: files with disjoint keys, searched as one. Its counterpart in a version is `Run`."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from hummock.base.checksum cimport hash64
from hummock.base.key cimport TABLE_ID_BYTES, Slice, begins_with, compare_bytes, head_of, shared_size, slice_of
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.sstable.filter.prefix_extractor cimport PrefixExtractor
from hummock.sstable.reader cimport OpenedSstable, SstableReader


cdef class SortedRun:
    """`infos` are SstableInfos with disjoint user keys, ascending; at least one."""

    def __cinit__(self, store, infos):
        cdef SstableReader reader
        cdef Py_ssize_t position
        self.store, self.infos = store, tuple(infos)
        self.readers = tuple([store.reader(info) for info in self.infos])
        self.count = len(self.readers)
        self.files = <FileFence*>calloc(<size_t>self.count + 1, sizeof(FileFence))
        self.last_heads = <uint64_t*>calloc(2 * <size_t>self.count + 1, sizeof(uint64_t))
        if self.files == NULL or self.last_heads == NULL:
            raise MemoryError
        self.first_heads = self.last_heads + self.count
        self.min_epoch = 0xFFFFFFFFFFFFFFFF
        for position, reader in enumerate(self.readers):
            self.files[position].smallest, self.files[position].largest = reader.smallest, reader.largest
            self.files[position].reader = <void*>reader
            self.min_epoch = min(self.min_epoch, reader.min_epoch)
        if self.count > 0:
            self.prefix = shared_bytes(self.files[0].smallest, self.files[self.count - 1].largest)
        for position in range(self.count):
            self.last_heads[position] = head_behind(self.files[position].largest, self.prefix)
            self.first_heads[position] = head_behind(self.files[position].smallest, self.prefix)

    def __dealloc__(self):
        free(self.files)
        free(self.last_heads)

    cdef Py_ssize_t file_from(self, Slice user_key) noexcept nogil:
        cdef Py_ssize_t low, high
        cdef uint64_t head
        if self.count == 0 or not begins_with(user_key, self.prefix):
            return self.file_among(user_key, 0, self.count)
        head = head_behind(user_key, self.prefix)
        low = high = first_from(self.last_heads, self.count, head)
        while high < self.count and self.last_heads[high] == head:
            high += 1
        return self.file_among(user_key, low, high)

    cdef Py_ssize_t file_among(self, Slice user_key, Py_ssize_t low, Py_ssize_t high) noexcept nogil:
        """The first file of [low, high) that ends at or after the key; `high` when none does."""
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if compare_bytes(self.files[middle].largest, user_key) < 0:
                low = middle + 1
            else:
                high = middle
        return low

    cdef void* reader_of(self, Slice user_key) noexcept nogil:
        cdef Py_ssize_t position
        cdef uint64_t head
        if self.count > 0 and begins_with(user_key, self.prefix):
            head = head_behind(user_key, self.prefix)
            position = first_from(self.last_heads, self.count, head)
            if position < self.count and self.first_heads[position] < head < self.last_heads[position]:
                return self.files[position].reader
        position = self.file_from(user_key)
        if position == self.count or compare_bytes(self.files[position].smallest, user_key) > 0:
            return NULL
        return self.files[position].reader

    cdef tuple overlapping(self, bytes start, bytes end, uint64_t newest):
        cdef Py_ssize_t position
        cdef Slice bound
        cdef SstableReader reader
        cdef list found = []
        bound = slice_of(start)
        position = self.file_from(bound)
        if end is not None:
            bound = slice_of(end)
        while position < self.count and (
                end is None or compare_bytes(self.files[position].smallest, bound) < 0):
            reader = <SstableReader>self.files[position].reader
            if reader.min_epoch <= newest and not reader.rules_out(start, end):
                found.append(reader.info)
            position += 1
        return tuple(found)

    cdef int mark(
        self, BinaryColumn prefixes, Py_ssize_t first, Py_ssize_t rows, uint64_t newest, uint8_t* among,
        Py_ssize_t stride
    ) except -1:
        cdef Py_ssize_t row, position, size
        cdef Slice prefix
        cdef SstableReader reader = None
        cdef PrefixExtractor rule = None
        cdef OpenedSstable opened = None
        cdef uint64_t table_id = 0, table
        for row in range(first, first + rows):
            prefix, among[0] = prefixes.at(row), 0
            position = self.file_from(prefix)
            if position < self.count:
                if position + 1 < self.count and begins_with(self.files[position + 1].smallest, prefix):
                    among[0] = 1                # the range contains the file's first key
                elif compare_bytes(self.files[position].smallest, prefix) < 0:
                    table = head_of(prefix.data, prefix.size) >> 32
                    if self.files[position].reader != <void*>reader or table != table_id:
                        reader, table_id = <SstableReader>self.files[position].reader, table
                        rule = reader.prefix_for(prefix)
                        opened = None if rule is None else reader.opened()
                    size = 0 if rule is None else rule.length_of(prefix)
                    among[0] = reader.min_epoch <= newest and (
                        size < TABLE_ID_BYTES or opened.may_contain(hash64(prefix.data, size)))
                else:
                    among[0] = begins_with(self.files[position].smallest, prefix)
            among += stride
        return 0


cdef inline Slice shared_bytes(Slice first, Slice last) noexcept nogil:
    """The common prefix of both, and so of every key between them; borrowed from `first`."""
    cdef Slice out
    out.data, out.size = first.data, shared_size(first.data, last.data, min(first.size, last.size))
    return out


cdef inline Py_ssize_t first_from(const uint64_t* heads, Py_ssize_t count, uint64_t head) noexcept nogil:
    """Index of the first of ascending key prefixes (at least one) that is not below `head`; `count` when all are."""
    cdef const uint64_t* base = heads
    cdef Py_ssize_t half
    while count > 1:                    # branch-free, since random keys are unpredictable
        half = count >> 1
        base += half * (base[half - 1] < head)
        count -= half
    return (base - heads) + (base[0] < head)


cdef inline uint64_t head_behind(Slice key, Slice prefix) noexcept nogil:
    return head_of(key.data + prefix.size, key.size - prefix.size)
