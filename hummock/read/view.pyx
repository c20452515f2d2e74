"""ReadView: an immutable snapshot of the store's sources: local batches, staged runs and the runs of one version.

Sources are ordered by age, newest first: where two hold the same user key, the earlier one holds the newer epochs, so a
point read ends at the first source that answers. A reader acquires the current view as a single reference and keeps it
to its end; a write, a flush or a commit creates another view.
"""

from cpython.exc cimport PyErr_Clear, PyErr_Occurred
from cpython.long cimport PyLong_CheckExact
from libc.stdlib cimport calloc, free

from hummock.epoch import check_epoch, pure_epoch
from hummock.errors import EpochTooOld, InvalidEpoch

from hummock.base.key cimport MAX_EPOCH, SPILL_MASK, Slice, compare_bytes, slice_of
from hummock.iterator.base cimport FORWARD, REVERSE, HummockIterator
from hummock.iterator.merge cimport MergeIterator
from hummock.iterator.row_filter cimport RowRules
from hummock.iterator.user cimport UserIterator
from hummock.read.sorted_run cimport SortedRun
from hummock.shared_buffer.batch cimport SharedBufferBatch, SharedBufferBatchIterator
from hummock.sstable.concat_iterator cimport ConcatIterator
from hummock.sstable.sstable_iterator cimport SstableIterator

cdef extern from "Python.h":
    uint64_t number_of "PyLong_AsUnsignedLongLong"(object) noexcept


cdef class ReadView:
    """`local` are SharedBufferBatches and SortedRuns, newest first; `runs` the SortedRuns of `version`.

    State that equals that of `previous`, an older view, is shared with it. Reads of a `committed_only` view are at or
    below the version's committed epoch.
    """

    def __cinit__(self, version, tuple local not None, tuple runs not None, hold=None, ReadView previous=None,
                  bint committed_only=False):
        cdef Py_ssize_t position
        self.version, self.safe_epoch, self.runs, self.hold = version, version.safe_epoch, runs, hold
        self.committed_epoch = version.max_committed_epoch
        self.newest_epoch = self.committed_epoch | SPILL_MASK if committed_only else MAX_EPOCH
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
        """The same version with other local sources."""
        return ReadView(self.version, local, self.runs, self.hold, self, self.newest_epoch != MAX_EPOCH)

    cdef uint64_t checked(self, epoch) except? 0:
        """`epoch` as an integer, validated."""
        cdef uint64_t number
        if not PyLong_CheckExact(epoch):
            epoch = check_epoch(epoch)
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
        """The rows of [start, end) (`end` None: to the last key) at `epoch` (None: the committed one).

        REQUIRES the view to outlive the iterator. Raises EpochTooOld and InvalidEpoch. A file is opened when first
        needed, and only if it may hold such a row.
        """
        cdef list children = []
        cdef int direction = REVERSE if reverse else FORWARD
        cdef uint64_t bound = self.read_epoch(epoch), newest = bound | SPILL_MASK
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
