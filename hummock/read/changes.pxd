"""ChangeReader: what became of the user keys of a range between two epochs, as one view shows it."""

from libc.stdint cimport uint64_t

from hummock.columnar.binary_column cimport BinaryColumn
from hummock.iterator.base cimport HummockIterator
from hummock.read.change_iterator cimport ChangeWalk
from hummock.read.view cimport ReadView, SortedRun


cdef class ChangeReader:
    cdef ReadView view                  # None after `close`
    cdef object options                 # ReadOptions
    cdef uint64_t since
    cdef uint64_t until
    cdef uint64_t first_expiring        # rows written in [first_expiring, end_expiring) may expire between the epochs
    cdef uint64_t end_expiring
    cdef list parts                     # (start, end, whether every file is read) still to come, the next one last
    cdef ChangeWalk walk                # over the part under way; None: it has not begun
    cdef list found                     # batches that are ready, the next one last

    cdef ChangeWalk walk_of(self, bytes start, bytes end, bint reads_all)
    cdef HummockIterator child_of(self, source, bytes start, bytes end, bint reads_all)
    cdef bint is_read(self, info)       # whether the file may hold what became of a key
    cdef int find_changes(self, BinaryColumn keys, BinaryColumn new) except -1


cdef BinaryColumn values_of(ReadView view, BinaryColumn keys, epoch, options)
cdef bint is_dense(ReadView view, BinaryColumn keys, uint64_t newest) except -1
