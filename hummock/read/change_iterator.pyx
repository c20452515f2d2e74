"""ChangeWalk: the user keys that readers at two epochs may see different things under, and what the later one sees.

Of the entries between the epochs the newest one of each key decides. Where many entries can be seen as a span they are
passed over, or taken, all at once. What the earlier reader saw is asked for elsewhere, of the keys that are found.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from hummock.base.key cimport MAX_EPOCH, NOWHERE, SPILL_MASK, Slice, compare_bytes, head_of, slice_of
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.iterator.base cimport FORWARD, HummockIterator, Span, clip_span, compare_span_row
from hummock.iterator.batch_collector cimport append_keys, append_values, rows_that_fit
from hummock.iterator.owned_bytes cimport same, save
from hummock.iterator.row_filter cimport PLACE_BYTES, RowRules, VnodeRule
from hummock.iterator.user cimport UserIterator


cdef class ChangeWalk:
    """Each key of [start, end) is found once, ascending: if `source` holds an entry of it above `since` and up to
    `until`, or one that the tables' rules hide from one reader only.
    """

    def __init__(self, HummockIterator source not None, bytes start not None, bytes end, uint64_t since,
                 uint64_t until, RowRules rules not None):
        assert source.direction == FORWARD
        self.source, self.since, self.until = source, since | SPILL_MASK, until | SPILL_MASK
        self.bounds = (start, end)
        self.start = slice_of(start)
        self.end.data, self.end.size = NULL, 0
        if end is not None:
            self.end = slice_of(end)
        self.rules, self.has_rules = rules, rules.count > 0
        self.before.place = self.after.place = NOWHERE
        self.keys, self.values = BinaryColumnBuilder(), BinaryColumnBuilder()

    def __dealloc__(self):
        free(self.key.data)

    def next_keys(self, Py_ssize_t max_rows, Py_ssize_t max_bytes) -> tuple:
        """The next (keys, what the later reader sees, null for nothing) as BinaryColumns; without rows at the end.

        The bytes end a batch once they pass `max_bytes`. REQUIRES both limits to be at least 1.
        """
        with nogil:
            self.fill(max_rows, max_bytes)
        return self.keys.finish(), self.values.finish()

    cdef int fill(self, Py_ssize_t max_rows, Py_ssize_t max_bytes) except -1 nogil:
        if not self.is_started:
            self.source.seek(self.start, MAX_EPOCH)
            self.is_started = True
        while (not self.is_at_end() and self.keys.rows < max_rows
               and self.keys.data_bytes + self.values.data_bytes < max_bytes):
            if self.source.epoch > self.until:
                self.source.next()
            elif self.pass_span(max_rows - self.keys.rows,
                                max_bytes - self.keys.data_bytes - self.values.data_bytes) == 0:
                self.take_key()
        return 0

    cdef bint is_at_end(self) noexcept nogil:
        return not self.source.valid or (
            self.end.data != NULL and compare_bytes(self.source.user_key, self.end) >= 0)

    cdef Py_ssize_t pass_span(self, Py_ssize_t max_rows, Py_ssize_t max_bytes) except -1 nogil:
        """Up to all of a span but its last row, whose older versions may stand beyond it."""
        cdef Span span
        cdef Py_ssize_t rows
        cdef bint is_taken
        if not self.source.span(&span) or span.end - span.row < 2:
            return 0
        if span.max_epoch <= self.since:
            is_taken = False
        elif span.min_epoch > self.since and span.max_epoch <= self.until:
            is_taken = True
        else:
            return 0
        if self.end.data != NULL:
            clip_span(&span, self.end)
        if self.has_rules and not (self.is_shown(&span) if is_taken else self.is_unchanged(&span)):
            return 0
        rows = span.end - span.row - 1
        if is_taken:
            rows = min(rows, rows_that_fit(&span, max_rows, max_bytes))
        if rows > 0 and is_taken:
            append_keys(self.keys, &span, rows)
            append_values(self.values, &span, rows)
        if rows > 0:
            self.source.skip(rows)
        return rows

    cdef bint is_unchanged(self, Span* span) noexcept nogil:
        """Whether the rules treat all rows alike at both epochs; the span ends where they may not any more."""
        cdef Slice limit
        self.rules.hides_at(&self.before, self.source.user_key, self.source.epoch, self.since)
        self.rules.hides_at(&self.after, self.source.user_key, self.source.epoch, self.until)
        if not is_same_mark(&self.before.rule, &self.after.rule) or (
                span.min_epoch < self.after.rule.oldest and span.max_epoch >= self.before.rule.oldest):
            return False
        limit.data, limit.size = self.after.limit, PLACE_BYTES
        if head_of(self.after.limit, PLACE_BYTES) != 0:
            clip_span(span, limit)
        return True

    cdef bint is_shown(self, Span* span) noexcept nogil:
        """Whether the later reader sees all rows; the span ends where it may not any more."""
        cdef Slice limit
        if self.rules.hides_at(&self.after, self.source.user_key, self.source.epoch, self.until) or (
                span.min_epoch < self.after.rule.oldest or self.after.rule.mark.data != NULL):
            return False
        limit.data, limit.size = self.after.limit, PLACE_BYTES
        if head_of(self.after.limit, PLACE_BYTES) != 0:
            clip_span(span, limit)
        return True

    cdef int take_key(self) except -1 nogil:
        """One user key with all its entries. REQUIRES an entry that the later reader may see."""
        cdef Slice key = self.source.user_key, value = self.source.value
        cdef uint64_t epoch = self.source.epoch
        cdef bint is_gone = value.data == NULL or (
            self.has_rules and self.rules.hides_at(&self.after, key, epoch, self.until))
        cdef bint was_gone = epoch <= self.since and (value.data == NULL or (
            self.has_rules and self.rules.hides_at(&self.before, key, epoch, self.since)))
        if epoch > self.since or is_gone != was_gone:
            self.keys.append(key)
            if is_gone:
                self.values.append_null()
            else:
                self.values.append(value)
        save(&self.key, key)
        self.source.next()
        while self.source.valid and same(&self.key, self.source.user_key):
            self.source.next()
        return 0


cdef inline bint is_same_mark(const VnodeRule* a, const VnodeRule* b) noexcept nogil:
    if a.mark.data == NULL or b.mark.data == NULL:
        return a.mark.data == b.mark.data
    return a.is_descending == b.is_descending and compare_bytes(a.mark, b.mark) == 0


cdef BinaryColumn merged_values(UserIterator rows, BinaryColumn keys):
    cdef BinaryColumnBuilder values = BinaryColumnBuilder()
    with nogil:
        merge_values(rows, keys, values)
    return values.finish()


cdef int merge_values(UserIterator rows, BinaryColumn keys, BinaryColumnBuilder values) except -1 nogil:
    cdef Py_ssize_t row
    cdef Slice key
    rows.rewind()
    for row in range(keys.rows):
        key = keys.at(row)
        go_to(rows, key)
        if rows.valid and compare_bytes(rows.user_key, key) == 0:
            values.append(rows.value)
        else:
            values.append_null()
    return 0


cdef int go_to(UserIterator rows, Slice key) except -1 nogil:
    """Moves on to the first row at or behind `key`."""
    cdef Span span
    cdef Py_ssize_t first
    while rows.valid and compare_bytes(rows.user_key, key) < 0:
        if rows.span(&span):
            first = span.row
            clip_span(&span, key)
            rows.skip(span.end - first)
        else:
            rows.next()
    return 0
