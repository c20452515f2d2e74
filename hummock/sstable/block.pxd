"""Reading blocks: a `Block` is decoded, checked and immutable; its columns are pointers into one buffer.

The format is specified in FORMAT.md and at the top of block_format.pxd; block_builder writes it.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from hummock.base.key cimport Slice
from hummock.iterator.base cimport Span
from hummock.sstable.cache.block_cache cimport NEAR_BYTES, CacheSlot


@cython.final
cdef class Block:
    # What a point search reads comes first, in as few cache lines as possible. Where all suffixes or values have one
    # length it reads no offsets; a short prefix and an epoch common to all rows it reads from this object.
    cdef readonly Py_ssize_t rows
    cdef uint64_t* heads                    # `heads_room` once it holds the key prefix of each suffix; NULL before
    cdef uint32_t each_suffix               # bytes of every suffix; 0: they differ
    cdef uint32_t each_value
    cdef Slice prefix                       # common to all user keys of this block
    cdef uint8_t near_prefix[NEAR_BYTES]    # holds `prefix` unless it is longer
    cdef const uint8_t* values
    cdef const uint8_t* tombstones          # bitmap of rows, bit set = delete; NULL: none in this block
    cdef uint64_t max_epoch
    cdef bint one_epoch
    cdef uint64_t* buckets                  # hash index of a block to be cached; NULL: it has none
    cdef readonly Py_ssize_t bucket_count   # 0: it has no hash index
    cdef uint32_t longest_suffix            # bytes
    cdef const uint8_t* suffixes            # user keys less `prefix`; 8 readable bytes follow the last
    cdef const uint32_t* suffix_offsets     # rows + 1 positions in `suffixes`
    cdef const uint32_t* value_offsets      # rows + 1 positions in `values`
    cdef const uint64_t* epochs             # rows of them, or one when `one_epoch`
    cdef float suffix_bytes                 # per row, on average
    cdef float value_bytes
    cdef bint unique_keys                   # no user key occurs twice
    cdef uint64_t min_epoch
    cdef uint64_t epoch_under               # target of `epochs` when a global epoch overrides those of the entries
    cdef readonly Py_ssize_t size_bytes     # memory held, for cache accounting
    cdef bint is_fixed_width                # one length of keys and of values, one epoch, no deletes, a short prefix
    cdef bint is_for_cache                  # set before `load`: unless it is fixed width, it gets a hash index
    cdef bint will_be_indexed               # a guess set before `load`, so that `parse` need not reallocate
    cdef uint64_t* heads_room               # filled on the first search by key prefixes
    cdef uint8_t* memory                    # from a slab; everything above points into it
    cdef Py_ssize_t memory_bytes            # allocated size of `memory`
    cdef readonly str object_name           # of the file, for errors

    cdef Py_ssize_t lower_bound(self, Slice user_key, uint64_t epoch) noexcept nogil
    # row of the first entry at or after (user_key, epoch) in full key order; `rows` when there is none

    cdef const uint64_t* ready_heads(self) noexcept nogil   # `heads`, computed on first use; safe from several threads

    cdef int load(
        self, const uint8_t* data, Py_ssize_t size, int codec, Py_ssize_t raw_size, uint32_t checksum,
        Py_ssize_t index,
    ) except -1 nogil
    # decodes the stored bytes of block `index` into this object; `rows` is a hint of their number. For scans that
    # decode many blocks into one object. REQUIRES the only reference to this block. Corruption if any check fails;
    # the block then has no rows

    cdef int override_epochs(self, uint64_t epoch, Py_ssize_t index) except -1 nogil
    # overrides the epoch of every entry of this block, `index` of its file. Corruption if a key occurs twice.
    # REQUIRES the only reference to this block

    cdef int check_stored(
        self, const uint8_t* data, Py_ssize_t size, int codec, Py_ssize_t raw_size, uint32_t checksum,
        Py_ssize_t index,
    ) except -1 nogil
    cdef int parse(self, Py_ssize_t raw_size, Py_ssize_t index, bint for_spans) except -1 nogil
    # sets the columns from the payload in `memory`; unless `for_spans`, columns of equal lengths get no offsets
    cdef int make_room(self, Py_ssize_t wanted, Py_ssize_t used) except -1 nogil
    cdef int corrupt(
        self, Py_ssize_t index, const char* where, Py_ssize_t expected, Py_ssize_t got) except -1 with gil
    cdef int check_tombstones(self, Py_ssize_t index) except -1 nogil
    cdef Py_ssize_t search_rows(
        self, Slice suffix, uint64_t epoch, Py_ssize_t low, Py_ssize_t high) noexcept nogil
    cdef Py_ssize_t search_equal_heads(
        self, Slice suffix, uint64_t head, uint64_t epoch, Py_ssize_t low) noexcept nogil
    # `lower_bound` from `low`, the first row whose key prefix is not below `head`, that of the suffix. REQUIRES that
    # `ready_heads` has been called
    cdef void drop(self) noexcept nogil
    cdef void adopt_memory(self, Block other) noexcept nogil
    # moves the memory and `rows` of `other` here, for the next `load`. REQUIRES that this block is empty and that
    # neither has other references

    cdef void index_rows(self) noexcept nogil               # fills `buckets`

    cdef void show_in(self, CacheSlot* slot) noexcept nogil

    cdef bint span_from(self, Py_ssize_t row, Span* out, bint as_rows) noexcept nogil   # as HummockIterator.span

    cdef inline Slice suffix_at(self, Py_ssize_t row) noexcept nogil:
        cdef Slice out
        if self.each_suffix > 0:
            out.data, out.size = self.suffixes + row * self.each_suffix, self.each_suffix
            return out
        out.data = self.suffixes + self.suffix_offsets[row]
        out.size = self.suffix_offsets[row + 1] - self.suffix_offsets[row]
        return out

    cdef inline Slice key_at(self, Py_ssize_t row, uint8_t* key) noexcept nogil:
        """The user key of a row: the suffix if the prefix is empty, else assembled in `key`. REQUIRES `begin_key`."""
        cdef Slice out = self.suffix_at(row)
        if self.prefix.size > 0:
            memcpy(key + self.prefix.size, out.data, <size_t>out.size)
            out.data, out.size = key, self.prefix.size + out.size
        return out

    cdef int begin_key(self, uint8_t** key, Py_ssize_t* capacity) except -1 nogil
    # copies `prefix` to `key`, with capacity for any suffix behind it; `key` is from malloc and is reallocated to grow

    cdef void prefetch_row(self, Py_ssize_t row) noexcept nogil
    # prefetches what a search for the row reads, and its value; `row` may be a guess up to `rows`
    cdef bint is_version_of(self, Py_ssize_t row, Slice user_key, uint64_t epoch, Py_ssize_t known) noexcept nogil
    # whether the row is a version of the key visible at `epoch`. REQUIRES that the key begins with `prefix`, and that
    # the first `known` bytes behind it, padded with zeros, equal those of the suffix

    cdef inline uint64_t epoch_at(self, Py_ssize_t row) noexcept nogil:
        return self.max_epoch if self.one_epoch else self.epochs[row]

    cdef inline Slice value_at(self, Py_ssize_t row) noexcept nogil:    # data is NULL for a tombstone
        cdef Slice out
        if self.tombstones != NULL and (self.tombstones[row >> 3] >> (row & 7)) & 1:
            out.data = NULL
            out.size = 0
            return out
        if self.each_value > 0:
            out.data, out.size = self.values + row * self.each_value, self.each_value
            return out
        out.data = self.values + self.value_offsets[row]
        out.size = self.value_offsets[row + 1] - self.value_offsets[row]
        return out


cdef Py_ssize_t room_of(Py_ssize_t raw_size, Py_ssize_t rows) noexcept nogil
# bytes for a payload, the offsets of its rows and their key prefixes; with this capacity `parse` does not reallocate


cdef uint64_t block_hash(Block block, Py_ssize_t first, Py_ssize_t end, uint8_t* key) noexcept nogil
# the content hash of rows [first, end), under the epochs that readers see. REQUIRES the block's prefix at `key`, with
# capacity for its longest suffix behind it
