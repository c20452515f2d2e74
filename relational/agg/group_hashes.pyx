"""GroupHashes: two words for each group of an aggregation, which stand for its columns in keys of state tables.

The entries of a group then have short keys of one length, whatever its columns are. Two BIGINTs, which are not negative
in the first column:

    first     0 | hash, 41 bits | vnode, 10 | hash, 12         VnodeRule.ROW_ID, a table of at most 1,024 vnodes
              0 | hash, 41 bits | vnode, 15 | hash, 7          VnodeRule.WIDE_ROW_ID
    second    hash, 64 bits

The vnode is that of the group. The hash is SipHash-2-4 with 128 bits of output (Aumasson, Bernstein 2012) of the
columns in key encoding, in which SQL-equal values have equal bytes, under a random key that the plan of the table's job
has. Who does not know that key cannot choose two groups with one hash; by chance, of a billion groups two have one with
a probability of 1e-16 at most, and entries of one would then be taken for those of the other.

With the key bytes 00 01 … 0f and 256 vnodes, the group ('a', 1) of VARCHAR and BIGINT has the vnode 237 and the columns
0x25ae01a6b50edfcf and 0x93b668b6989a1a0c.
"""

from secrets import token_bytes

import numpy as np
import pyarrow as pa

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy

from hummock.base.key cimport Slice
from hummock.base.prefetch cimport prefetch
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.column cimport as_column
from relational.chunk.scalar cimport load64
from relational.encoding.key.encoder cimport KeyEncoder
from relational.hash.key_ids cimport KeyInterner

from relational.chunk.vnode import vnodes_of
from relational.types.vnode_rule import VnodeRule

cdef enum:
    AHEAD = 16
    HASH_BYTES = 16
    COLUMNS_BYTES = 18                  # of a hash in a key


cdef struct SipState:
    uint64_t v0, v1, v2, v3


@cython.final
cdef class GroupHashes:
    """Hashes of groups, by number. `distribution`: the positions of the group columns by which groups have their
    vnodes, out of `vnode_count`. `key`: 16 bytes."""

    cdef readonly Py_ssize_t count      # groups
    cdef tuple distribution
    cdef int vnode_count
    cdef int vnode_bits
    cdef int sequence_bits
    cdef SipState start                 # before the first byte of a key
    cdef ByteBuffer words               # uint64[count, 2]: the two columns of each group

    def __init__(self, distribution, int vnode_count, bytes key not None):
        if len(key) != HASH_BYTES:
            raise ValueError(f"the key of a hash has {HASH_BYTES} bytes, not {len(key)}")
        self.distribution, self.vnode_count = tuple(distribution), vnode_count
        rule = VnodeRule.of_row_ids(vnode_count)
        self.vnode_bits, self.sequence_bits = rule.vnode_bits, rule.sequence_bits
        self.start = sip_begin(load64(<const uint8_t*>key), load64(<const uint8_t*>key + 8))
        self.words = ByteBuffer()

    @property
    def size_bytes(self):
        """Memory used."""
        return self.words.capacity

    def add(self, KeyInterner groups not None):
        """Hashes the groups that came since the last call."""
        ids = np.arange(self.count, groups.count, dtype=np.int32)
        cdef BinaryColumn keys
        cdef const uint16_t[::1] vnodes
        if not len(ids):
            return
        keys = groups.encoded_keys(ids)
        columns = groups.keys(ids) if self.distribution else []
        vnodes = vnodes_of([columns[each] for each in self.distribution], self.vnode_count, rows=len(ids))
        self.words.reserve(HASH_BYTES * keys.rows)
        with nogil:
            self.fill(keys, vnodes, <uint64_t*>(self.words.data + self.words.size))
        self.words.size += HASH_BYTES * keys.rows
        self.count += keys.rows

    cdef void fill(self, BinaryColumn keys, const uint16_t[::1] vnodes, uint64_t* out) noexcept nogil:
        cdef uint64_t mask = ((<uint64_t>1 << self.vnode_bits) - 1) << self.sequence_bits | <uint64_t>1 << 63
        cdef Slice key
        cdef Py_ssize_t row
        for row in range(keys.rows):
            key = keys.at(row)
            sip_hash(self.start, key.data, key.size, out + 2 * row)
            out[2 * row] = out[2 * row] & ~mask | <uint64_t>vnodes[row] << self.sequence_bits

    def keys(self, const int32_t[::1] ids not None):
        """The two columns of the groups `ids`. IndexError for one that has no hash."""
        cdef Py_ssize_t row, rows = ids.shape[0], wrong = -1
        cdef const uint64_t* words = <const uint64_t*>self.words.data
        found = np.empty((2, rows), np.int64)
        cdef int64_t[:, ::1] out = found
        with nogil:
            for row in range(rows):
                if ids[row] < 0 or ids[row] >= self.count:
                    wrong = row
                    break
                if row + AHEAD < rows and 0 <= ids[row + AHEAD]:
                    prefetch(words + 2 * ids[row + AHEAD])
                out[0, row], out[1, row] = words[2 * ids[row]], words[2 * ids[row] + 1]
        if wrong >= 0:
            raise IndexError(f"group number {ids[wrong]} of {self.count}")
        return [as_column(pa.array(each)) for each in found]

    def keep(self, const int32_t[::1] ids not None):
        """Renumbers the groups `ids`, which ascend, to 0, 1, 2 …, and forgets the others."""
        cdef uint64_t* words = <uint64_t*>self.words.data
        cdef Py_ssize_t row, rows = ids.shape[0]
        cdef int32_t before = -1
        for row in range(rows):
            if not before < ids[row] < self.count:
                raise ValueError(f"group number {ids[row]} behind {before}, of {self.count}")
            before = ids[row]
        with nogil:
            for row in range(rows):
                memcpy(words + 2 * row, words + 2 * ids[row], HASH_BYTES)
        self.words.truncate(HASH_BYTES * rows)
        self.count = rows


def hash_key_for(types) -> bytes | None:
    """A random key for the hashes of groups with columns of these types; None if these are no longer in a key."""
    cdef KeyEncoder encoder = KeyEncoder(types)
    return token_bytes(HASH_BYTES) if not 0 <= encoder.fixed_bytes <= COLUMNS_BYTES else None


cdef inline uint64_t rotated(uint64_t word, int bits) noexcept nogil:
    return word << bits | word >> (64 - bits)


cdef inline void sip_rounds(SipState* state, int count) noexcept nogil:
    for _ in range(count):
        state.v0 += state.v1
        state.v2 += state.v3
        state.v1 = rotated(state.v1, 13) ^ state.v0
        state.v3 = rotated(state.v3, 16) ^ state.v2
        state.v0 = rotated(state.v0, 32) + state.v3
        state.v2 += state.v1
        state.v3 = rotated(state.v3, 21) ^ state.v0
        state.v1 = rotated(state.v1, 17) ^ state.v2
        state.v2 = rotated(state.v2, 32)


cdef SipState sip_begin(uint64_t low, uint64_t high) noexcept nogil:
    cdef SipState state
    state.v0, state.v1 = low ^ <uint64_t>0x736F6D6570736575, high ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    state.v2, state.v3 = low ^ <uint64_t>0x6C7967656E657261, high ^ <uint64_t>0x7465646279746573
    return state


cdef inline void sip_word(SipState* state, uint64_t word) noexcept nogil:
    state.v3 ^= word
    sip_rounds(state, 2)
    state.v0 ^= word


cdef void sip_hash(SipState state, const uint8_t* data, Py_ssize_t size, uint64_t* out) noexcept nogil:
    """The 16 bytes of output for a state that begins, as two little-endian words."""
    cdef uint64_t last = 0
    cdef Py_ssize_t at
    for at in range(0, size - 7, 8):
        sip_word(&state, load64(data + at))
    memcpy(&last, data + (size & ~7), size & 7)
    sip_word(&state, last | <uint64_t>size << 56)
    state.v2 ^= 0xEE
    sip_rounds(&state, 4)
    out[0] = state.v0 ^ state.v1 ^ state.v2 ^ state.v3
    state.v1 ^= 0xDD
    sip_rounds(&state, 4)
    out[1] = state.v0 ^ state.v1 ^ state.v2 ^ state.v3
