"""BytesInterner: assigns dense ids to encoded keys.

A hash table over an arena of key bytes. Keys get the ids 0, 1, 2 … in the order of their first appearance, so all other
data about a key is a column indexed by its id. Groups of an aggregation and entries of a mem table are identified this
way.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.hash.slot_table cimport SlotTable


@cython.final
cdef class BytesInterner:
    cdef readonly Py_ssize_t count      # ids assigned so far
    cdef SlotTable table
    cdef Py_ssize_t key_bytes           # size of every key; -1 before the first and once two sizes occurred
    cdef ByteBuffer ends                # int64[count]: end of each key in `arena`; empty while all have one size
    cdef ByteBuffer arena               # concatenated keys, in id order

    cdef inline Slice key(self, Py_ssize_t number) noexcept nogil:      # valid until the index next grows
        cdef const int64_t* ends = <const int64_t*>self.ends.data
        cdef int64_t start
        cdef Slice out
        if self.key_bytes >= 0:
            out.data = self.arena.data + number * self.key_bytes
            out.size = self.key_bytes
            return out
        start = ends[number - 1] if number > 0 else 0
        out.data = self.arena.data + start
        out.size = ends[number] - start
        return out

    cdef int make_room(self, Py_ssize_t more) except -1     # slots for `more` new keys
    cdef int find_block(self, BinaryColumn keys, const uint8_t* visible, Py_ssize_t first, Py_ssize_t rows,
                        int32_t* out, bint is_adding) except -1 nogil
    # out[rows]: ids of one block of at most BLOCK rows; REQUIRES capacity for `rows` when adding
    cdef int32_t add_key(self, Slice key) except -2 nogil               # to the arena alone
    cdef int32_t find_one(self, Slice key, uint64_t hash, bint is_adding) except -2 nogil
    # the key's id; if absent the next one when adding (REQUIRES capacity), else -1
    cdef int note_ends(self) except -1 nogil                # the keys have had one size until now
    cdef int clear(self) except -1                          # removes all keys, keeps moderate memory
    cdef int find_in(self, BinaryColumn keys, const uint8_t* visible, Py_ssize_t first, Py_ssize_t rows, int32_t* out,
                     bint is_adding, bint is_doubling) except -1 nogil
    cdef void put_keys(self) noexcept nogil
    cdef void move_keys(self) noexcept nogil
    cdef void prefetch_key(self, Py_ssize_t number) noexcept nogil
