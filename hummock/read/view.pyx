"""ReadView: one immutable picture of the store: local batches, staged runs and the runs of one version.

Sources stand in the order of time, newest first: where two hold the same user key, the earlier one holds the
newer epochs, so a point read ends at the first that answers. A reader takes the current view by one
reference and keeps it to its end; a write, a flush or a commit makes another view.
"""

from cpython.exc cimport PyErr_Clear, PyErr_Occurred
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from hummock.epoch import check_epoch, pure_epoch
from hummock.errors import EpochTooOld, InvalidEpoch

from hummock.base.checksum cimport hash64
from hummock.base.key cimport (
    MAX_EPOCH, SPILL_MASK, TABLE_ID_BYTES, Slice, begins_with, compare_bytes, head_of, slice_of,
)
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.iterator.base cimport FORWARD, REVERSE, HummockIterator
from hummock.iterator.merge cimport MergeIterator
from hummock.iterator.row_filter cimport RowRules
from hummock.iterator.user cimport UserIterator
from hummock.shared_buffer.batch cimport SharedBufferBatch, SharedBufferBatchIterator
from hummock.sstable.concat_iterator cimport ConcatIterator
from hummock.sstable.filter.prefix_extractor cimport KeyPrefix
from hummock.sstable.reader cimport OpenedSstable, SstableReader
from hummock.sstable.sstable_iterator cimport SstableIterator

cdef extern from "Python.h":
    uint64_t number_of "PyLong_AsUnsignedLongLong"(object) noexcept


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
        cdef KeyPrefix rule = None
        cdef OpenedSstable opened = None
        cdef uint64_t table_id = 0, table
        for row in range(first, first + rows):
            prefix, among[0] = prefixes.at(row), 0
            position = self.file_from(prefix)
            if position < self.count:
                if position + 1 < self.count and begins_with(self.files[position + 1].smallest, prefix):
                    among[0] = 1                # it holds the file's first key at least
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


cdef class ReadView:
    """`local` are SharedBufferBatches and SortedRuns, newest first; `runs` the SortedRuns of `version`.

    `previous` is a view from which this one may take over what it shares with it. Reads of a view that is
    `committed_only` are at or below the version's committed epoch.
    """

    def __cinit__(self, version, tuple local not None, tuple runs not None, hold=None, ReadView previous=None,
                  bint committed_only=False):
        cdef Py_ssize_t position
        self.version, self.safe_epoch, self.runs, self.hold = version, version.safe_epoch, runs, hold
        self.newest_epoch = version.max_committed_epoch | SPILL_MASK if committed_only else MAX_EPOCH
        if previous is not None and previous.version is version:
            self.rules = previous.rules
        else:
            self.rules = RowRules(version.tables, None if previous is None else previous.rules, version.dropped_tables)
        self.owners = local + runs
        self.count = len(self.owners)
        self.sources = <Source*>calloc(<size_t>self.count + 1, sizeof(Source))
        if self.sources == NULL:
            raise MemoryError
        for position, source in enumerate(self.owners):
            if isinstance(source, SharedBufferBatch):
                self.sources[position].batch = <void*>source
            else:
                self.sources[position].run = <void*>(<SortedRun?>source)

    def __dealloc__(self):
        free(self.sources)

    def with_local(self, tuple local not None) -> ReadView:
        """The same version under other local sources."""
        return ReadView(self.version, local, self.runs, self.hold, self, self.newest_epoch != MAX_EPOCH)

    cdef uint64_t checked(self, epoch) except? 0:
        """`epoch` as a number, if it may be read at."""
        cdef uint64_t number
        if not PyLong_CheckExact(epoch):
            check_epoch(epoch)
        number = number_of(epoch)
        if number == MAX_EPOCH and PyErr_Occurred() != NULL:
            PyErr_Clear()
            check_epoch(epoch)
        if number | SPILL_MASK < self.safe_epoch:
            raise EpochTooOld(pure_epoch(number), self.safe_epoch)
        if number > self.newest_epoch:
            raise InvalidEpoch(number, f"the store was opened as a reader and knows what is committed up to "
                                       f"{pure_epoch(self.newest_epoch)}: call wait_epoch before reading above that")
        return number

    def read(self, bytes start not None, bytes end, epoch, bint reverse, options) -> UserIterator:
        """The rows of [start, end) (`end` None: to the last key) at `epoch`; REQUIRES the view to outlive it.

        Raises EpochTooOld and InvalidEpoch. A file is opened when first needed, and not at all if it cannot hold such
        a row.
        """
        cdef list children = []
        cdef int direction = REVERSE if reverse else FORWARD
        cdef uint64_t bound = self.checked(epoch), newest = bound | SPILL_MASK
        cdef HummockIterator child
        if end is None or start < end:
            for source in self.owners:
                child = self.child(source, start, end, newest, direction, options)
                if child is not None:
                    children.append(child)
        child = children[0] if len(children) == 1 else MergeIterator(children, direction)
        return UserIterator(child, start, end, bound, rules=self.rules)

    cdef HummockIterator child(self, source, bytes start, bytes end, uint64_t newest, int direction, options):
        cdef SortedRun run
        if isinstance(source, SharedBufferBatch):
            if is_within(<SharedBufferBatch>source, start, end, newest):
                return SharedBufferBatchIterator(source, direction)
            return None
        run = source
        infos = run.overlapping(start, end, newest)
        if len(infos) == 1:
            return SstableIterator(run.store, infos[0], direction, options)
        return ConcatIterator(run.store, infos, direction, options) if infos else None


cdef inline Slice shared_bytes(Slice first, Slice last) noexcept nogil:
    """What both begin with, and every key between them; borrowed from `first`."""
    cdef Slice out
    out.data, out.size = first.data, 0
    while out.size < first.size and out.size < last.size and first.data[out.size] == last.data[out.size]:
        out.size += 1
    return out


cdef inline Py_ssize_t first_from(const uint64_t* heads, Py_ssize_t count, uint64_t head) noexcept nogil:
    """The first of ascending heads, at least one, that is not below `head`; `count` when all are."""
    cdef const uint64_t* base = heads
    cdef Py_ssize_t half
    while count > 1:                    # without a branch, as random keys go either way
        half = count >> 1
        base += half * (base[half - 1] < head)
        count -= half
    return (base - heads) + (base[0] < head)


cdef inline uint64_t head_behind(Slice key, Slice prefix) noexcept nogil:
    return head_of(key.data + prefix.size, key.size - prefix.size)


cdef bint is_within(SharedBufferBatch batch, bytes start, bytes end, uint64_t newest):
    """Whether the batch may hold a version up to `newest` of a key of [start, end)."""
    cdef Slice bound
    bound = slice_of(start)
    if batch.epoch > newest or compare_bytes(batch.largest, bound) < 0:
        return False
    if end is None:
        return True
    bound = slice_of(end)
    return compare_bytes(batch.smallest, bound) < 0
