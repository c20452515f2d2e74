"""SstableBuilder: builds one file from entries in full key order."""

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
    """Receives `.data` of a file part by part while it is built."""

    cdef int leave(self, uint8_t* data, Py_ssize_t size, Py_ssize_t capacity) except -1 nogil
    # takes ownership of pooled memory; may block on backpressure
    cdef void begin(self) noexcept nogil        # the file will be written: before its first part
    cdef void end(self) noexcept nogil          # after its last part, long before `finish` returns its info


@cython.final
cdef class SstableBuilder:
    cdef readonly str name              # of the file: 32 hex digits
    cdef object policy                  # FilterPolicy
    cdef dict prefix_rules              # table id -> PrefixRule, or None
    cdef ByteBuffer tables              # uint32 ids so far, ascending
    cdef bint is_finished
    cdef int codec
    cdef uint64_t verbatim_blocks       # newest blocks in a row that compression could not shrink enough
    cdef Py_ssize_t block_bytes         # target of a block's payload
    cdef Py_ssize_t check_at            # bytes of keys and values above which the open block's exact size is computed
    cdef BlockBuilder block
    cdef IndexBuilder index
    cdef ByteBuffer data                # encoded blocks not yet passed to the sink
    cdef PartSink sink                  # receives parts as they fill; None: all data is kept until `finish`
    cdef Py_ssize_t part_bytes          # size at which a part is sent; 0: all data is kept until `finish`
    cdef Py_ssize_t data_bytes          # memory of each part
    cdef Py_ssize_t left_bytes          # of `.data` passed to the sink
    cdef ByteBuffer hashes              # uint64 of each distinct user key and filtered prefix
    cdef ByteBuffer smallest            # the first user key
    cdef readonly Py_ssize_t rows
    cdef uint64_t content_hash          # of the encoded blocks
    cdef uint64_t open_hash             # of the open block
    cdef ByteBuffer block_hashes        # uint64 of each encoded block
    cdef ByteBuffer piece_checksums     # uint32 of the pieces of blocks stored verbatim
    cdef Py_ssize_t stale_rows
    cdef Py_ssize_t tombstones
    cdef uint64_t uncompressed_bytes
    cdef uint64_t min_epoch
    cdef uint64_t max_epoch
    cdef uint32_t table_id              # of the newest entry
    cdef list prefixes                  # (table id, PrefixExtractor) of each rule; owner of the pointers in `rules`
    cdef TableRule* rules               # owned
    cdef Py_ssize_t rule_count
    cdef void* prefix                   # PrefixExtractor of that table, for the filter; NULL: none
    cdef uint64_t last_prefix_hash

    cdef uint64_t key_hash              # hash64 of the newest user key
    cdef uint64_t last_high             # head_of the newest user key
    cdef uint64_t last_low              # and of what follows its first 8 bytes

    cdef int begin(self) except -1 nogil
    # allocates memory for the file. REQUIRES: once, before the first entry
    cdef int add(self, const Entry* entry) except -1 nogil
    # ValueError unless the full key is after all previous ones. A NULL value is a tombstone
    cdef Py_ssize_t bytes_so_far(self) noexcept nogil
    # `.data` so far, and the keys and values of the open block before encoding
    cdef int order_of(self, const Entry* entry) noexcept nogil
    # compares the newest user key added with the entry's: negative: before, 0: equal, positive: after
    cdef int add_piece_checksums(self, const uint8_t* stored, Py_ssize_t size) except -1 nogil
    cdef int end_rows(self) except -1 nogil
    # encodes the open block and sends all data to the sink, if any: leaves no per-row work to `finish`
    cdef int enter_table(self, uint32_t table_id) except -1 nogil
    cdef int note_rules(self) except -1
    cdef void* prefix_of(self, uint32_t table_id) noexcept nogil
    cdef int start_key(self, Slice user_key) except -1 nogil
    cdef int maybe_cut(self, Py_ssize_t used, Py_ssize_t entry_bytes) except -1 nogil
    cdef int cut_block(self) except -1 nogil
    cdef bint is_worth_compressing(self, Slice payload, uint8_t* scratch) noexcept nogil
    cdef int send_part(self) except -1 nogil
    cdef int refuse(self, Slice user_key, uint64_t epoch) except -1 with gil


cdef int fill_entry(Entry* entry, bytes user_key, uint64_t epoch, bytes value, bint deletes) except -1
