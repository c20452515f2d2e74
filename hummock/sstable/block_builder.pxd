"""BlockBuilder: builds the payload of one block."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from hummock.base.key cimport Slice


@cython.final
cdef class BlockBuilder:
    """The entries of the open block. The last key stays readable after `clear`, until the next `add`."""
    cdef readonly Py_ssize_t rows
    cdef uint8_t* keys                      # pooled; whole user keys, concatenated
    cdef Py_ssize_t keys_bytes
    cdef Py_ssize_t keys_capacity
    cdef uint8_t* values                    # pooled; `headroom` free bytes, then the values
    cdef Py_ssize_t values_bytes
    cdef Py_ssize_t values_capacity         # headroom included
    cdef Py_ssize_t headroom                # bytes kept free for the columns before the values
    cdef uint64_t* epochs                   # of each row; in one pooled buffer with the next three
    cdef uint32_t* key_sizes
    cdef uint32_t* value_sizes
    cdef uint8_t* is_delete                 # 1 = the row is a tombstone
    cdef Py_ssize_t rows_capacity
    cdef Py_ssize_t deletes                 # rows that are tombstones
    cdef Py_ssize_t first_key_size
    cdef Py_ssize_t last_key_at             # position of the newest key in `keys`
    cdef Py_ssize_t last_key_size
    cdef uint64_t last_epoch
    cdef uint64_t max_epoch
    cdef uint32_t longest_key
    cdef uint32_t shortest_key
    cdef uint32_t longest_value
    cdef uint32_t shortest_value
    cdef bint one_epoch
    cdef bint unique_keys

    cdef int add(self, Slice user_key, uint64_t epoch, Slice value) except -1 nogil  # REQUIRES ascending full keys
    cdef int append(self, Slice user_key, uint64_t epoch, Slice value, bint same_key) except -1 nogil
    # `add` for a caller that knows whether the user key equals that of the previous row
    cdef Py_ssize_t raw_bytes(self) noexcept nogil          # size of the payload if finished now, before compression
    cdef int encode(self, Slice* payload) except -1 nogil   # `payload` is valid until the next call. REQUIRES rows > 0
    cdef void clear(self) noexcept nogil                    # keeps the memory
    cdef Py_ssize_t shared_prefix(self) noexcept nogil      # bytes common to the beginning of all keys
    cdef Py_ssize_t front_bytes(self, Py_ssize_t shared) noexcept nogil     # size of the payload before the values
    cdef void write_front(self, uint8_t* at, Py_ssize_t shared) noexcept nogil
    cdef int grow_rows(self) except -1 nogil
    cdef int grow_keys(self, Py_ssize_t wanted) except -1 nogil
    cdef int grow_values(self, Py_ssize_t wanted, Py_ssize_t headroom) except -1 nogil

    cdef inline Slice last_key(self) noexcept nogil:        # valid until the next `add`
        cdef Slice out
        out.data, out.size = self.keys + self.last_key_at, self.last_key_size
        return out
