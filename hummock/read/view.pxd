"""ReadView: an immutable snapshot of the store's sources, as C arrays."""

from libc.stdint cimport uint64_t

from hummock.iterator.base cimport HummockIterator
from hummock.iterator.row_filter cimport RowRules


cdef struct Source:                     # where versions of a key may be; exactly one pointer is set
    void* batch                         # SharedBufferBatch, borrowed from the view's `owners`
    void* run                           # SortedRun, borrowed likewise


cdef class ReadView:
    cdef readonly object version        # HummockVersion
    cdef readonly uint64_t safe_epoch
    cdef readonly uint64_t committed_epoch
    cdef readonly uint64_t newest_epoch # upper bound of the epochs that may be read
    cdef RowRules rules                 # rules of the version's tables
    cdef readonly tuple runs            # SortedRuns of `version`, newest first
    cdef readonly object hold           # keeps the version's files while the view is alive
    cdef tuple owners                   # the sources as objects, newest first
    cdef Source* sources                # owned array
    cdef readonly Py_ssize_t count

    cdef HummockIterator child(self, source, bytes start, bytes end, uint64_t newest, int direction, options)
    # an iterator over what `source` may hold of the range; None: nothing
    cdef uint64_t checked(self, epoch) except? 0                    # raises EpochTooOld or InvalidEpoch
    cdef inline uint64_t read_epoch(self, epoch) except? 0:         # `checked`; None: the committed epoch
        return self.committed_epoch if epoch is None else self.checked(epoch)
