"""RunCursor: many seeks in one sorted run, whose blocks are fetched before the first of them."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.iterator.base cimport HummockIterator
from hummock.read.sorted_run cimport SortedRun
from hummock.sstable.concat_iterator cimport ConcatIterator


cdef struct Aim:                        # where the iteration for one key begins
    void* reader                        # SstableReader, borrowed from the run; NULL: all keys are before the target
    Py_ssize_t file
    Py_ssize_t block_index
    Py_ssize_t blocks                   # of the file
    Py_ssize_t row                      # -1: not searched yet
    void* block                         # Block, borrowed from `pins`
    void* following                     # the Block after it, borrowed likewise; NULL: fetched when reached


cdef class RunCursor(HummockIterator):
    cdef SortedRun run
    cdef uint64_t newest                # seeks are for entries up to this epoch
    cdef const Py_ssize_t* turn         # the key that is sought; owner: the caller
    cdef Aim* aims                      # of the keys [first, first + aimed); owned
    cdef Py_ssize_t first
    cdef Py_ssize_t aimed
    cdef Py_ssize_t capacity
    cdef list pins                      # blocks that aims point to
    cdef ConcatIterator rest            # continues where the fetched blocks end; None before its first use
    cdef bint in_rest                   # the current entry is that of `rest`
    cdef Py_ssize_t file
    cdef Py_ssize_t blocks              # of that file
    cdef Py_ssize_t block_index
    cdef void* block                    # Block, borrowed: the current one
    cdef void* following
    cdef Py_ssize_t row
    cdef uint8_t* key                   # the current user key, assembled; owned
    cdef Py_ssize_t key_capacity

    cdef int aim(
        self, BinaryColumn keys, Py_ssize_t first, Py_ssize_t rows, Py_ssize_t wanted_rows, const uint8_t* among,
        Py_ssize_t stride) except -1
    # Fetches the blocks in which so many keys begin, and the next where fewer than `wanted_rows` rows are left;
    # among[row * stride] is 0 for a key that is not sought here. From then on `seek` is for keys[turn[0]] of them.
    cdef int pin_first(self, BinaryColumn keys, const uint8_t* among, Py_ssize_t stride) except -1
    cdef int pin_following(self, Py_ssize_t wanted_rows) except -1
    cdef int load_missing(self, dict missing, bint is_following) except -1
    cdef void search(self, BinaryColumn keys) noexcept nogil
    cdef int enter(self) except -1 nogil                # makes `block` the current one
    cdef int continue_run(self) except -1 nogil         # continues after the current block
    cdef int follow(self) except -1 nogil               # makes the entry of `rest` the current one
    cdef int settle(self) except -1 nogil
