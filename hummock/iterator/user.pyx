"""UserIterator: the newest version at or below the read epoch of each user key in a range, unless it is a tombstone.

Rows that exceeded their table's time to live, or that its key watermark passed, are hidden too.

Forward, a key's versions come newest first: the first one not above the read epoch is visible, and the rest are
skipped. In reverse they come oldest first: the last one not above the read epoch is visible, so key and value are
copied until the child reaches another key.
"""

from libc.stdlib cimport free

from hummock.base.key cimport MAX_EPOCH, NOWHERE, SPILL_MASK, Slice, compare_bytes, head_of, slice_of
from hummock.iterator.base cimport FORWARD, Entry, HummockIterator, Span, clip_span, same_user_key
from hummock.iterator.merge cimport MergeIterator
from hummock.iterator.owned_bytes cimport same, save
from hummock.iterator.row_filter cimport TABLE_VNODE_BYTES, RowRules


cdef class UserIterator(HummockIterator):
    """Invariant: while `valid`, the entry is a put, in the range, and what a read of its key would return.

    [`start`, `end`) are user keys; `end` None: unbounded. Epochs are pure or not; the read sees every flush of its own
    epoch. `rules` hide rows.
    """

    def __init__(self, HummockIterator child not None, bytes start, bytes end, uint64_t read_epoch,
                 uint64_t min_epoch=0, RowRules rules=None):
        cdef Slice low, high
        self.child, self.is_merge = child, isinstance(child, MergeIterator)
        self.direction = child.direction
        self.newest = read_epoch | SPILL_MASK
        self.oldest = min_epoch
        self.rules, self.has_rules, self.held.table_vnode = rules, rules is not None and rules.count > 0, NOWHERE
        low = slice_of(start)
        high.data, high.size = NULL, 0
        if end is not None:
            high = slice_of(end)
        self.narrow(low, high, (start, end))

    def __dealloc__(self):
        free(self.key.data)
        free(self.payload.data)

    cdef void narrow(self, Slice start, Slice end, object bounds) noexcept:
        self.start, self.end, self.bounds = start, end, bounds
        self.valid = False

    cdef int rewind(self) except -1 nogil:
        self.valid = False
        if self.direction == FORWARD:
            return self.seek(self.start, MAX_EPOCH)
        if self.end.data == NULL:
            self.child.rewind()
        else:
            self.seek_child(self.end, MAX_EPOCH)        # the last entry at or before the newest of `end`
            while self.child.valid and compare_bytes(self.child.user_key, self.end) == 0:
                self.child.next()
        return self.collect()

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        """Moves to the first visible key at or beyond `user_key`; uses the reader's epoch, not `epoch`."""
        self.valid = False
        if self.direction == FORWARD:
            if compare_bytes(user_key, self.start) < 0:
                user_key = self.start
            self.seek_child(user_key, self.newest)
            return self.find()
        if self.end.data != NULL and compare_bytes(user_key, self.end) >= 0:
            return self.rewind()
        self.seek_child(user_key, 0)                    # the oldest possible entry of `user_key`, or one before it
        return self.collect()

    cdef int seek_child(self, Slice user_key, uint64_t epoch) except -1 nogil:
        if self.among == NULL:
            return self.child.seek(user_key, epoch)
        return (<MergeIterator>self.child).seek_among(user_key, epoch, self.among)

    cdef int next(self) except -1 nogil:
        self.valid = False
        if self.direction != FORWARD:
            return self.collect()
        save(&self.key, self.child.user_key)
        self.child.next()
        self.pass_key()
        return self.find()

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil:
        if self.oldest > 0 or not self.child.span(out, True) or out.max_epoch > self.newest:
            return False
        if self.has_rules and not self.clip_by_rule(out):
            return False
        if self.end.data != NULL:
            clip_span(out, self.end)
        return out.row < out.end

    cdef bint clip_by_rule(self, Span* out) noexcept nogil:
        """REQUIRES that `held` is for the vnode of the current row, which is not hidden."""
        cdef Slice limit
        if out.min_epoch < self.held.rule.oldest or (self.held.rule.mark.data != NULL and (
                self.held.rule.is_descending or self.user_key.size < TABLE_VNODE_BYTES)):
            return False
        limit.data, limit.size = self.held.limit, TABLE_VNODE_BYTES
        if head_of(self.held.limit, TABLE_VNODE_BYTES) != 0:
            clip_span(out, limit)           # ascending: keys behind a visible one are not passed either
        return True

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        self.valid = False
        if rows > 1:
            self.child.skip(rows - 1)       # to the last of them, whose older versions may follow the span
        return self.next()

    cdef bint begin_pull(self) except -1 nogil:
        if not self.is_merge or self.direction != FORWARD or not (<MergeIterator>self.child).begin_pull():
            return False
        self.key.size, self.is_ended = -1, False        # versions of the current key come with it
        return True

    cdef bint prefers_spans(self) noexcept nogil:
        return not self.is_ended and (<MergeIterator>self.child).rounds.prefers_spans()

    cdef int end_pull(self) except -1 nogil:
        self.valid = False
        (<MergeIterator>self.child).end_pull()
        self.pass_key()
        return self.find()

    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil:
        cdef Py_ssize_t count, kept = 0
        self.valid = False
        while kept == 0:
            count = 0 if self.is_ended else self.child.pull(out, most)
            if count == 0:
                return 0
            kept = self.keep_visible(out, count)
        self.valid = True
        return kept

    cdef Py_ssize_t keep_visible(self, Entry* entries, Py_ssize_t count) except -1 nogil:
        cdef Py_ssize_t kept = 0
        cdef Entry* entry = entries
        cdef Entry* stop = entries + count
        cdef Entry* last = NULL                         # the one that decided about its key
        cdef bint may_end = self.end.data != NULL and compare_bytes(entries[count - 1].user_key, self.end) >= 0
        while entry < stop:
            if may_end and compare_bytes(entry.user_key, self.end) >= 0:
                self.is_ended = True
                break
            if entry.epoch <= self.newest and not (
                    same_user_key(entry, last) if last != NULL else same(&self.key, entry.user_key)):
                last = entry
                if entry.value.data != NULL and entry.epoch >= self.oldest and not (
                        self.has_rules and self.rules.hides_at(
                            &self.held, entry.user_key, entry.epoch, self.newest)):
                    last = entries + kept
                    if last != entry:
                        last[0] = entry[0]
                    kept += 1
            entry += 1
        if last != NULL:
            save(&self.key, last.user_key)
        return kept

    cdef int pass_key(self) except -1 nogil:
        while self.child.valid and same(&self.key, self.child.user_key):
            self.child.next()
        return 0

    cdef int find(self) except -1 nogil:
        while self.child.valid:
            if self.end.data != NULL and compare_bytes(self.child.user_key, self.end) >= 0:
                break
            if self.child.epoch > self.newest:
                self.child.next()
                continue
            if self.child.value.data != NULL and self.child.epoch >= self.oldest and not (
                    self.has_rules and self.rules.hides_at(
                        &self.held, self.child.user_key, self.child.epoch, self.newest)):
                self.user_key, self.epoch, self.value = self.child.user_key, self.child.epoch, self.child.value
                self.valid = True
                return 0
            save(&self.key, self.child.user_key)
            self.child.next()
            self.pass_key()
        self.valid = False
        return 0

    cdef int collect(self) except -1 nogil:
        cdef bint is_seen
        while self.child.valid and compare_bytes(self.child.user_key, self.start) >= 0:
            save(&self.key, self.child.user_key)
            is_seen = False
            while self.child.valid and same(&self.key, self.child.user_key):
                if self.oldest <= self.child.epoch <= self.newest:
                    is_seen = self.child.value.data != NULL and not (
                        self.has_rules and self.rules.hides_at(
                        &self.held, self.child.user_key, self.child.epoch, self.newest))
                    if is_seen:
                        self.epoch = self.child.epoch
                        save(&self.payload, self.child.value)
                self.child.next()
            if is_seen:
                self.valid = True
                self.user_key.data, self.user_key.size = self.key.data, self.key.size
                self.value.data, self.value.size = self.payload.data, self.payload.size
                return 0
        self.valid = False
        return 0
