"""RetentionIterator: drops the versions of a key that no reader can ask for any more.

Of each user key stay every version above the watermark and the newest one at or below it; if that one is a
tombstone, and nothing outside the merged runs can hold the key, it goes too. Of several operations on a key
within one pure epoch only the newest stays, since a read sees epochs whole. Keys of dropped tables go; a
table is dropped only if it is named so.
"""

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from hummock.iterator.base cimport FORWARD, HummockIterator
from hummock.key cimport Slice, head_of

cdef uint64_t SPILL_MASK = 0xFFFF


cdef class RetentionIterator(HummockIterator):
    """Invariant: while `valid`, the entry stays; entries come in the child's order."""

    def __cinit__(self, HummockIterator child not None, uint64_t watermark=0, bint drop_tombstones=False,
                  dropped_tables=()):
        if child.direction != FORWARD:
            raise ValueError("versions are retained newest first: the child must walk forward")
        self.child, self.direction = child, FORWARD
        self.watermark = watermark & ~SPILL_MASK
        self.drop_tombstones = drop_tombstones
        self.key_size = -1
        ids = sorted(set(dropped_tables))
        self.dropped = <uint32_t*>malloc(sizeof(uint32_t) * (len(ids) + 1))
        if self.dropped == NULL:
            raise MemoryError
        for table_id in ids:
            self.dropped[self.dropped_count] = table_id
            self.dropped_count += 1

    def __dealloc__(self):
        free(self.dropped)
        free(self.key)

    cdef int rewind(self) except -1 nogil:
        self.key_size = -1
        self.child.rewind()
        return self.settle()

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        """REQUIRES `epoch` to be newer than any of `user_key`: what stays depends on all versions of a key."""
        self.key_size = -1
        self.child.seek(user_key, epoch)
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.child.next()
        return self.settle()

    cdef int settle(self) except -1 nogil:
        while self.child.valid and not self.stays():
            self.dropped_rows += 1
            self.child.next()
        self.valid = self.child.valid
        if self.valid:
            self.user_key, self.epoch, self.value = self.child.user_key, self.child.epoch, self.child.value
        return 0

    cdef bint stays(self) except -1 nogil:
        cdef uint64_t pure = self.child.epoch & ~SPILL_MASK
        cdef Slice user_key = self.child.user_key
        if user_key.size != self.key_size or memcmp(user_key.data, self.key, <size_t>user_key.size) != 0:
            self.note_key()
        elif pure == self.last_pure:
            return False
        self.last_pure = pure
        if self.is_dropped:
            return False
        if pure > self.watermark:
            return True
        if self.is_below:
            return False
        self.is_below = True
        return self.child.value.data != NULL or not self.drop_tombstones

    cdef int note_key(self) except -1 nogil:
        cdef Slice user_key = self.child.user_key
        cdef uint8_t* grown
        cdef uint32_t table_id
        cdef Py_ssize_t low = 0, high = self.dropped_count, middle
        if user_key.size >= self.key_capacity:
            grown = <uint8_t*>realloc(self.key, <size_t>(2 * user_key.size + 16))
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.key, self.key_capacity = grown, 2 * user_key.size + 16
        memcpy(self.key, user_key.data, <size_t>user_key.size)
        self.key_size = user_key.size
        self.is_below = self.is_dropped = False
        if self.dropped_count > 0 and user_key.size >= 4:
            table_id = <uint32_t>(head_of(user_key.data, 4) >> 32)
            while low < high:
                middle = (low + high) >> 1
                if self.dropped[middle] < table_id:
                    low = middle + 1
                else:
                    high = middle
            self.is_dropped = low < self.dropped_count and self.dropped[low] == table_id
        return 0
