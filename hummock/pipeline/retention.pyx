"""RetentionIterator: drops the versions of a key that no reader can see any more.

Of each user key it keeps every version above the watermark and the newest one at or below it; if that one is a
tombstone, and nothing outside the merged runs can hold the key, it is dropped too. Of several operations on a key
within one pure epoch only the newest is kept, since a read sees whole epochs. Versions that were expired at the
watermark are dropped (older ones of the key are expired as well, wherever they are), and so are all versions of a key
that a table's key watermark had passed by then. All keys of dropped tables are dropped; only tables in
`dropped_tables` count as dropped. The rules of a table are looked up once per vnode.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from hummock.base.key cimport NOWHERE, SPILL_MASK, Slice, head_of
from hummock.base.row_digest cimport row_hash
from hummock.iterator.base cimport FORWARD, Entry, HummockIterator, low_of, same_user_key
from hummock.iterator.row_filter cimport RowRules, VnodeRule, is_passed


cdef inline uint64_t hash_of(const Entry* entry) noexcept nogil:
    return row_hash(entry.user_key.data, entry.user_key.size, entry.value.data, entry.value.size, entry.epoch)


@cython.final
cdef class RetentionIterator(HummockIterator):
    """Invariant: while `valid`, the current entry is retained; entries keep the child's order.

    `tables`: TableRules by table id.
    """
    cdef HummockIterator child          # forward, with all versions of each key
    cdef uint64_t watermark             # pure epoch; every reader is at or above it
    cdef bint drop_tombstones           # no run outside the child can hold any of its keys
    cdef RowRules rules                 # evaluated for readers at the watermark
    cdef uint32_t* dropped              # table ids, ascending; owned
    cdef Py_ssize_t dropped_count
    cdef readonly uint64_t dropped_rows # entries dropped so far
    cdef readonly uint64_t dropped_hash # their content hash
    cdef Entry last                     # the last entry examined; its key is in `key` between two moves
    cdef bint has_last
    cdef bint is_pulled                 # `pull` was called
    cdef uint8_t* key                   # owned
    cdef Py_ssize_t key_capacity
    cdef uint64_t table_vnode           # table id and vnode of that key, 48 bits; all ones before the first
    cdef VnodeRule rule                 # of that key's vnode
    cdef bint is_table_dropped
    cdef bint is_below                  # a version of that key at or below the watermark was examined
    cdef bint is_dropped                # all versions of that key: its table is dropped or a watermark has passed it

    def __cinit__(self, HummockIterator child not None, uint64_t watermark=0, bint drop_tombstones=False,
                  dropped_tables=(), tables=None):
        if child.direction != FORWARD:
            raise ValueError("versions are retained newest first: the child must walk forward")
        self.child, self.direction = child, FORWARD
        self.watermark = watermark & ~SPILL_MASK
        self.drop_tombstones = drop_tombstones
        self.rules = RowRules(tables or {})
        ids = sorted(set(dropped_tables))
        self.dropped = <uint32_t*>calloc(<size_t>len(ids) + 1, sizeof(uint32_t))
        if self.dropped == NULL:
            raise MemoryError
        for table_id in ids:
            self.dropped[self.dropped_count] = table_id
            self.dropped_count += 1

    def __dealloc__(self):
        free(self.dropped)
        free(self.key)

    cdef int rewind(self) except -1 nogil:
        self.valid = self.has_last = self.is_pulled = False
        self.table_vnode = NOWHERE
        self.child.rewind()
        self.child.pulled = 0
        return self.settle()

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        """REQUIRES `epoch` newer than any of `user_key`: retention depends on all versions of a key."""
        self.valid = self.has_last = self.is_pulled = False
        self.table_vnode = NOWHERE
        self.child.seek(user_key, epoch)
        self.child.pulled = 0
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.valid = False
        self.child.next()
        return self.settle()

    cdef int settle(self) except -1 nogil:
        cdef Entry entry
        while self.child.valid:
            entry.user_key, entry.epoch, entry.value = self.child.user_key, self.child.epoch, self.child.value
            entry.high = head_of(entry.user_key.data, entry.user_key.size)
            entry.low = low_of(entry.user_key.data, entry.user_key.size)
            if self.stays(&entry):
                self.save_key()
                self.user_key, self.epoch, self.value = self.child.user_key, self.child.epoch, self.child.value
                self.valid = True
                return 0
            self.save_key()
            self.dropped_rows += 1
            self.dropped_hash += hash_of(&entry)
            self.child.next()
        return 0

    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil:
        cdef Py_ssize_t count, kept, at
        cdef uint64_t dropped
        if not self.is_pulled:              # the first one was examined already
            self.is_pulled = True
            return HummockIterator.pull(self, out, most)
        self.valid = False
        if self.pulled > 0:
            self.pulled = 0
            self.child.next()
        while True:
            count = self.child.pull(out, most)
            if count == 0:
                return 0
            kept, dropped = 0, 0
            for at in range(count):
                if self.stays(&out[at]):
                    out[kept] = out[at]
                    kept += 1
                else:
                    dropped += hash_of(&out[at])
            self.save_key()
            self.dropped_rows += count - kept
            self.dropped_hash += dropped
            if kept > 0:
                return kept

    cdef bint stays(self, const Entry* entry) noexcept nogil:
        cdef uint64_t pure = entry.epoch & ~SPILL_MASK
        cdef bint is_repeated = False
        if self.has_last and same_user_key(&self.last, entry):
            is_repeated = pure == self.last.epoch
        else:
            if entry.high >> 16 != self.table_vnode:
                self.enter_vnode(entry.high >> 16)
            self.is_below = False
            self.is_dropped = self.is_table_dropped or is_passed(&self.rule, entry.user_key)
        self.last.high, self.last.low, self.last.user_key, self.last.epoch = (
            entry.high, entry.low, entry.user_key, pure)
        self.has_last = True
        if is_repeated or self.is_dropped or pure < self.rule.oldest:
            return False
        if pure > self.watermark:
            return True
        if self.is_below:
            return False
        self.is_below = True
        return entry.value.data != NULL or not self.drop_tombstones

    cdef int save_key(self) except -1 nogil:
        cdef Py_ssize_t size = self.last.user_key.size
        cdef uint8_t* grown
        if size >= self.key_capacity:
            grown = <uint8_t*>realloc(self.key, <size_t>(2 * size + 16))
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.key, self.key_capacity = grown, 2 * size + 16
        memcpy(self.key, self.last.user_key.data, <size_t>size)
        self.last.user_key.data = self.key
        return 0

    cdef void enter_vnode(self, uint64_t table_vnode) noexcept nogil:
        """Looks up the rules of the table and vnode of the next keys."""
        cdef Py_ssize_t low = 0, high = self.dropped_count, middle
        cdef uint32_t table_id = <uint32_t>(table_vnode >> 16)
        self.table_vnode, self.rule = table_vnode, self.rules.rule_of(table_vnode, self.watermark)
        while low < high:
            middle = (low + high) >> 1
            if self.dropped[middle] < table_id:
                low = middle + 1
            else:
                high = middle
        self.is_table_dropped = low < self.dropped_count and self.dropped[low] == table_id
