"""The block index of a file: position, checksum and first full key of each block."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from hummock.base.key cimport Slice, head_of
from hummock.columnar.buffer_pool cimport ByteBuffer


cdef struct EvenKeys:               # linear model from a key prefix to a block, exact if keys grow evenly
    uint64_t first_head             # head_of the first key behind the prefix
    double blocks_per_head
    uint32_t last_block
    uint32_t prefix_size            # bytes common to the beginning of all first keys


cdef inline double even_position(const EvenKeys* keys, Slice user_key) noexcept nogil:
    """Interpolated position of the key: the block, plus the fraction of it before the key."""
    cdef uint64_t head
    cdef double position
    if user_key.size < <Py_ssize_t>keys.prefix_size:
        return 0
    head = head_of(user_key.data + keys.prefix_size, user_key.size - keys.prefix_size)
    if head <= keys.first_head:
        return 0
    position = <double>(head - keys.first_head) * keys.blocks_per_head
    return position if position < keys.last_block else keys.last_block


@cython.final
cdef class SstableIndex:
    """Decoded and checked; immutable; safe from any thread. Every pointer points into `memory`."""
    cdef readonly Py_ssize_t blocks
    cdef readonly uint64_t global_epoch     # overrides the epoch of every entry; 0: entries have their own
    cdef readonly Py_ssize_t size_bytes     # memory held, for cache accounting
    cdef Slice prefix                       # common to all first keys
    cdef const uint64_t* heads              # key prefix of each first key less `prefix`
    cdef EvenKeys even
    cdef const uint8_t* keys                # the first user keys, whole
    cdef const uint32_t* key_offsets        # blocks + 1 positions in `keys`
    cdef const uint64_t* first_epochs       # with the first key: the first full key of each block
    cdef const uint64_t* max_epochs         # newest epoch in each block
    cdef const uint64_t* offsets            # blocks + 1 positions in `.data`
    cdef const uint32_t* raw_sizes          # bytes of each payload
    cdef const uint32_t* checksums          # crc32c of the stored bytes
    cdef const uint32_t* rows
    cdef const uint8_t* codecs
    cdef const uint64_t* hashes             # content hash of each block as readers see it; NULL: not loaded
    cdef ByteBuffer hashes_held
    cdef const uint32_t* piece_checksums    # crc32c of the pieces of blocks stored verbatim; NULL: not loaded
    cdef const uint32_t* piece_starts       # blocks + 1 positions in `piece_checksums`
    cdef ByteBuffer pieces_held
    cdef uint8_t* memory                    # from a slab
    cdef Py_ssize_t memory_bytes

    cdef Py_ssize_t find_block(self, Slice user_key, uint64_t epoch) noexcept nogil
    # the last block whose first full key is at or before (user_key, epoch), or 0 if all are after it. If that block
    # has no entry at or after the target, the first entry of the next block is the one sought

    cdef Py_ssize_t find_near(self, Slice user_key, uint64_t epoch, Py_ssize_t guess) noexcept nogil
    # `find_block`, galloping from `guess`

    cdef double share_before(self, Py_ssize_t block, Slice user_key) noexcept nogil
    # fraction of the block before the key if keys grow evenly from its first key to the next block's: in [0, 1]

    cdef Py_ssize_t count_upto(
        self, Slice user_key, uint64_t epoch, Py_ssize_t low, Py_ssize_t high) noexcept nogil
    cdef str fault_in(self, uint32_t keys_bytes, uint64_t data_bytes, uint64_t rows)
    cdef void point_into_memory(self) noexcept nogil
    cdef void derive(self) noexcept nogil

    cdef inline const uint32_t* pieces_in(self, Py_ssize_t block) noexcept nogil:
        """The checksums of the block's pieces; NULL: it has none."""
        if self.piece_checksums == NULL or self.piece_starts[block] == self.piece_starts[block + 1]:
            return NULL
        return self.piece_checksums + self.piece_starts[block]

    cdef inline Slice first_key(self, Py_ssize_t block) noexcept nogil:
        cdef Slice out
        out.data = self.keys + self.key_offsets[block]
        out.size = self.key_offsets[block + 1] - self.key_offsets[block]
        return out


@cython.final
cdef class IndexBuilder:
    """Collects one row per block and encodes the index section."""
    cdef readonly Py_ssize_t blocks
    cdef ByteBuffer first_epochs
    cdef ByteBuffer max_epochs
    cdef ByteBuffer sizes
    cdef ByteBuffer raw_sizes
    cdef ByteBuffer checksums
    cdef ByteBuffer rows
    cdef ByteBuffer key_sizes
    cdef ByteBuffer codecs
    cdef ByteBuffer keys

    cdef int add(
        self, Slice first_key, uint64_t first_epoch, uint64_t max_epoch, uint32_t size, uint32_t raw_size,
        uint32_t checksum, uint32_t rows, uint8_t codec,
    ) except -1 nogil
