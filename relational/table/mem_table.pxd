"""MemTable: the operations of one epoch on one table, one entry per key."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.hash.bytes_interner cimport BytesInterner
from relational.table.key_sort cimport KeyItem
from relational.table.batch_writer cimport BatchWriter

cdef enum Operation:
    INSERT = 0              # the first four are relational.chunk's Op
    DELETE = 1
    UPDATE_INSERT = 2
    UPDATE_DELETE = 3
    UPDATE = 4              # both halves of an update of one key
    UPSERT = 5              # U+ alone: insert or update

cdef enum EntryState:       # net effect of the operations of this epoch
    UNTOUCHED = 0           # no operation: its only one followed a rejected one
    INSERTED = 1            # absent in the store before, present now
    UPDATED = 2             # present in the store before (or unknown, after a U+ alone), present now
    DELETED = 3             # present in the store before, absent now
    VANISHED = 4            # inserted and deleted within the epoch: nothing to write
    SKIPPED = 5             # vanished, and not in `order`


cdef inline int fold(int state, int operation) noexcept nogil:
    """The state after `operation`, or -1 if the two contradict each other."""
    if operation == UPSERT:
        return INSERTED if state == INSERTED or state == VANISHED else UPDATED
    if operation == INSERT:
        if state == UNTOUCHED or state == VANISHED:
            return INSERTED
        return UPDATED if state == DELETED else -1
    if state == DELETED or state == VANISHED:
        return -1
    if operation == DELETE:
        return VANISHED if state == INSERTED else DELETED
    return INSERTED if state == INSERTED else UPDATED


cdef struct Old:                    # the row replaced by the first update of a key
    int64_t start           # in `values`
    int64_t size            # -1: its first operation was not an update

cdef struct Entry:
    int64_t value_start     # in `values`; valid while INSERTED or UPDATED
    int32_t value_size
    int32_t state           # EntryState


@cython.final
cdef class MemTable:
    cdef readonly object name           # of the table, for errors
    cdef object show_key                # user key -> its representation in errors, or None
    cdef bint is_lenient                # contradictions are logged
    cdef readonly bint keeps_old        # `olds` is maintained
    cdef readonly Py_ssize_t operations # rows written since the last drain
    cdef BytesInterner index            # user key -> entry index
    cdef ByteBuffer entries             # Entry[index.count]
    cdef ByteBuffer values              # value bytes, concatenated; replaced ones remain until `clear`
    cdef ByteBuffer olds                # Old[index.count]
    cdef ByteBuffer order               # KeyItem[sorted_rows]: entry indices in key order
    cdef Py_ssize_t sorted_rows         # entries in `order`
    cdef Py_ssize_t seen                # entries that are in `order`, or SKIPPED, or in `revived`; later ones are new
    cdef ByteBuffer revived             # int32: entries that were SKIPPED until an operation came

    cdef int add_entries(self) except -1
    cdef object contradiction(self, BinaryColumn keys, Py_ssize_t row, int32_t entry, int operation)
    cdef int carry_out(self, int32_t number, int operation, BinaryColumn values, Py_ssize_t row) except -1
    cdef bint is_unknown(self, int32_t entry) noexcept nogil
    cdef Py_ssize_t fold_rows(self, const int32_t* ids, const uint8_t* ops, const uint8_t* present, Py_ssize_t row,
                              Py_ssize_t rows, BinaryColumn values, int* operation) except -2 nogil
    # folds in rows from `row` on; returns the first that contradicts its entry, with `operation` set, or -1
    cdef int store_value(self, Entry* entry, Slice value) except -1 nogil
    cdef int store_old(self, int32_t entry, Slice value) except -1 nogil
    cdef int put_olds(self, Py_ssize_t position, Py_ssize_t rows, BinaryColumnBuilder out) except -1 nogil
    # for the rows that copy_block copies
    cdef Slice value(self, const Entry* entry) noexcept nogil           # valid until the next write
    cdef int sort_all(self) except -1
    # adds the entries to `order`, but for those that vanished before: the store has no row of theirs either
    cdef int revive(self, int32_t number) except -1 nogil               # REQUIRES the entry SKIPPED
    cdef Py_ssize_t add_items(self) noexcept nogil                      # unsorted, after those of `order`; their number
    cdef void merge_fresh(self, KeyItem* scratch, Py_ssize_t fresh) noexcept nogil
    cdef Py_ssize_t lower_bound(self, Slice key) noexcept nogil     # first position >= key; REQUIRES all sorted
    cdef Slice key_at(self, Py_ssize_t position) noexcept nogil
    cdef Slice key_of(self, const KeyItem* item, uint8_t* room) noexcept nogil
    # a sorted key, in `room` (TABLE_ID_BYTES + ITEM_BYTES bytes) if its item contains all of it: no read of the arena
    cdef const Entry* entry_at(self, Py_ssize_t position) noexcept nogil
    cdef int copy_block(self, Py_ssize_t position, Py_ssize_t rows, BatchWriter out) except -1 nogil
    # at most BLOCK rows from `position` on, without the vanished ones
