"""SstableBuilder: full keys in order in, one file out."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.iterator.base cimport Entry
from hummock.sstable.block_builder cimport BlockBuilder
from hummock.sstable.index cimport IndexBuilder


cdef struct TableRule:
    uint32_t table_id
    void* prefix                        # PrefixExtractor


cdef class PartSink:
    """Where a file goes piece by piece while it is built."""

    cdef int leave(self, uint8_t* data, Py_ssize_t size, Py_ssize_t capacity) except -1 nogil
    # takes pooled memory over; may wait for room
    cdef void begin(self) noexcept nogil        # the file is wanted: before its first piece
    cdef void end(self) noexcept nogil          # its last piece has left, long before `finish` says what it holds


@cython.final
cdef class SstableBuilder:
    cdef readonly str name              # of the file: 32 hex digits
    cdef object policy                  # FilterPolicy
    cdef dict prefix_rules              # table id -> PrefixRule, or None
    cdef ByteBuffer tables              # uint32 ids seen, ascending
    cdef bint is_finished
    cdef int codec
    cdef Py_ssize_t block_bytes         # target of a block's payload
    cdef Py_ssize_t check_at            # keys and values of the open block, above which its true size is asked
    cdef BlockBuilder block
    cdef IndexBuilder index
    cdef ByteBuffer data                # the blocks, packed, as far as they have not left
    cdef PartSink sink                 # gets what is packed meanwhile; None: nothing leaves before the end
    cdef Py_ssize_t piece_bytes         # so many leave at a time; 0: none before the end
    cdef Py_ssize_t data_bytes          # of each piece's memory
    cdef Py_ssize_t left_bytes          # of `.data` that have left
    cdef ByteBuffer hashes              # uint64 of each distinct user key and filtered prefix
    cdef ByteBuffer smallest            # the first user key
    cdef readonly Py_ssize_t rows
    cdef uint64_t content_hash          # of the blocks that are packed
    cdef uint64_t open_hash             # of the open one
    cdef ByteBuffer block_hashes        # uint64 of each packed block
    cdef Py_ssize_t stale_rows
    cdef Py_ssize_t tombstones
    cdef uint64_t uncompressed_bytes
    cdef uint64_t min_epoch
    cdef uint64_t max_epoch
    cdef uint32_t table_id              # of the newest entry
    cdef list prefixes                  # (table id, PrefixExtractor) of each rule; `rules` points to these
    cdef TableRule* rules               # owned
    cdef Py_ssize_t rule_count
    cdef void* prefix                   # PrefixExtractor of that table: what of its keys is filtered too; NULL: nothing
    cdef uint64_t last_prefix_hash

    cdef uint64_t key_hash              # hash64 of the newest user key
    cdef uint64_t last_high             # head_of the newest user key
    cdef uint64_t last_low              # and of what follows its first 8 bytes

    cdef int begin(self) except -1 nogil
    # takes room for the file. REQUIRES: once, before the first entry
    cdef int add(self, const Entry* entry) except -1 nogil
    # ValueError unless the full key is after all before it. A NULL value deletes
    cdef Py_ssize_t bytes_so_far(self) noexcept nogil
    # `.data` written, and what the open block holds before it is packed
    cdef int order_of(self, const Entry* entry) noexcept nogil
    # negative or 0 as the newest user key here is before the entry's or the same; positive: after
    cdef int end_rows(self) except -1 nogil
    # packs the open block, and all data leaves where there is a sink: what is left to `finish` is no work on rows
    cdef int enter_table(self, uint32_t table_id) except -1 nogil
    cdef int note_rules(self) except -1
    cdef void* prefix_of(self, uint32_t table_id) noexcept nogil
    cdef int start_key(self, Slice user_key) except -1 nogil
    cdef int maybe_cut(self, Py_ssize_t used, Py_ssize_t entry_bytes) except -1 nogil
    cdef int cut_block(self) except -1 nogil
    cdef int send_piece(self) except -1 nogil
    cdef int refuse(self, Slice user_key, uint64_t epoch) except -1 with gil


cdef int fill_entry(Entry* entry, bytes user_key, uint64_t epoch, bytes value, bint deletes) except -1
