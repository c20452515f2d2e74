"""The last stages of a partition's merge: one epoch for all entries, and loaded rows compared with stored ones."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice, compare_bytes
from hummock.iterator.base cimport FORWARD, HummockIterator
from relational.spark.row_sorter cimport SHOWN_KEYS


cdef class UnderOneEpoch(HummockIterator):
    """The child's entries, forward, under `epoch`. REQUIRES distinct keys."""

    cdef HummockIterator child
    cdef uint64_t epoch_of_all

    def __cinit__(self, HummockIterator child not None, epoch):
        self.child, self.epoch_of_all, self.direction = child, epoch, FORWARD

    cdef int rewind(self) except -1 nogil:
        self.valid = False
        self.child.rewind()
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.valid = False
        self.child.next()
        return self.settle()

    cdef int settle(self) noexcept nogil:
        self.valid = self.child.valid
        self.user_key, self.value, self.epoch = self.child.user_key, self.child.value, self.epoch_of_all
        return 0


cdef class BesideStored(HummockIterator):
    """The child's entries, forward, compared with the rows already stored.

    Both iterate user keys ascending, each once. Keys in both are counted; `keeps_stored`: the child's entries for them
    are dropped.
    """

    cdef HummockIterator child, stored
    cdef bint keeps_stored
    cdef readonly Py_ssize_t met            # rows whose key is already stored
    cdef readonly Py_ssize_t rows           # rows returned
    cdef readonly list met_keys             # of the first of `met`

    def __cinit__(self, HummockIterator child not None, HummockIterator stored not None, bint keeps_stored):
        self.child, self.stored, self.keeps_stored, self.direction = child, stored, keeps_stored, FORWARD
        self.met_keys = []

    cdef int rewind(self) except -1 nogil:
        self.valid = False
        self.child.rewind()
        self.stored.rewind()
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.valid = False
        self.child.next()
        return self.settle()

    cdef int settle(self) except -1 nogil:
        cdef int order
        while self.child.valid:
            order = -1
            while self.stored.valid:
                order = compare_bytes(self.child.user_key, self.stored.user_key)
                if order <= 0:
                    break
                self.stored.next()
            if not self.stored.valid:
                order = -1
            if order == 0:
                self.met += 1
                if self.met <= SHOWN_KEYS:
                    with gil:
                        self.show(self.child.user_key)
                if self.keeps_stored:
                    self.child.next()
                    continue
            self.rows += 1
            break
        self.valid = self.child.valid
        self.user_key, self.value, self.epoch = self.child.user_key, self.child.value, self.child.epoch
        return 0

    cdef show(self, Slice key):
        self.met_keys.append(key.data[:key.size])
