"""ChangeReader: how the user keys of a range changed between two epochs, in one view.

Only what is newer than the earlier epoch is read: batches, files and, within them, blocks. For each key the newest
entry between the epochs decides; spans of entries are skipped or copied as a whole. The previous values are looked up
in batches, for the changed keys alone: by point reads, or by one scan where the keys are dense. Where a watermark moved
between the epochs, the keys that it passed are read in full; rows that expired in between are found in the files of
that age.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp

from hummock.base.key cimport MAX_EPOCH, NOWHERE, SPILL_MASK, Slice, compare_bytes, head_of, slice_of
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.iterator.base cimport FORWARD, HummockIterator, Span, clip_span
from hummock.iterator.batch_collector cimport append_keys, append_values, rows_that_fit
from hummock.iterator.merge cimport MergeIterator
from hummock.iterator.owned_bytes cimport OwnedBytes, same, save
from hummock.iterator.row_filter cimport TABLE_VNODE_BYTES, RowRules, RuleHold, VnodeRule
from hummock.iterator.user cimport UserIterator
from hummock.read.sorted_run cimport SortedRun
from hummock.read.view cimport ReadView
from hummock.shared_buffer.batch cimport SharedBufferBatch
from hummock.sstable.concat_iterator cimport ConcatIterator
from hummock.sstable.reader cimport OpenedSstable, SstableReader

from hummock.errors import InvalidEpoch
from hummock.read.change_ranges import parts_between, ruled_tables
from hummock.read.multi_get import read_many
from hummock.state_store import ChangeBatch

cdef Py_ssize_t DENSE_SHARE = 16        # one scan beats point reads if more than one in so many rows is requested


cdef class ChangeIterator:
    """Finds each key of [start, end) once, ascending, if `source` holds an entry of it in (since, until], or one that
    the tables' rules hide from only one of the two readers.
    """
    cdef HummockIterator source         # forward, over every entry of (since, until] at least
    cdef uint64_t since                 # the earlier reader sees entries up to this epoch
    cdef uint64_t until                 # the later reader up to this one
    cdef Slice start
    cdef Slice end                      # data NULL: no end. Owner of both: `bounds`
    cdef object bounds
    cdef RowRules rules
    cdef bint has_rules
    cdef RuleHold before                # for readers at `since`
    cdef RuleHold after                 # for readers at `until`
    cdef BinaryColumnBuilder keys
    cdef BinaryColumnBuilder values     # what the later reader sees
    cdef OwnedBytes key
    cdef bint is_started

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
        self.before.table_vnode = self.after.table_vnode = NOWHERE
        self.keys, self.values = BinaryColumnBuilder(), BinaryColumnBuilder()

    def __dealloc__(self):
        free(self.key.data)

    def next_keys(self, Py_ssize_t max_rows, Py_ssize_t max_bytes) -> tuple:
        """The next (keys, values that the later reader sees, null for none) as BinaryColumns; empty at the end.

        A batch ends once its bytes pass `max_bytes`. REQUIRES both limits to be at least 1.
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
                self.append_key()
        return 0

    cdef bint is_at_end(self) noexcept nogil:
        return not self.source.valid or (
            self.end.data != NULL and compare_bytes(self.source.user_key, self.end) >= 0)

    cdef Py_ssize_t pass_span(self, Py_ssize_t max_rows, Py_ssize_t max_bytes) except -1 nogil:
        """Passes up to all rows of a span but the last, whose older versions may follow the span; how many."""
        cdef Span span
        cdef Py_ssize_t rows
        cdef bint is_taken
        if not self.source.span(&span, True) or span.end - span.row < 2:
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
        """Whether the rules treat all rows alike at both epochs; clips the span to rows for which that is certain."""
        cdef Slice limit
        self.rules.hides_at(&self.before, self.source.user_key, self.source.epoch, self.since)
        self.rules.hides_at(&self.after, self.source.user_key, self.source.epoch, self.until)
        if not is_same_mark(&self.before.rule, &self.after.rule) or (
                span.min_epoch < self.after.rule.oldest and span.max_epoch >= self.before.rule.oldest):
            return False
        limit.data, limit.size = self.after.limit, TABLE_VNODE_BYTES
        if head_of(self.after.limit, TABLE_VNODE_BYTES) != 0:
            clip_span(span, limit)
        return True

    cdef bint is_shown(self, Span* span) noexcept nogil:
        """Whether the later reader sees all rows; clips the span to the rows for which that is certain."""
        cdef Slice limit
        if self.rules.hides_at(&self.after, self.source.user_key, self.source.epoch, self.until) or (
                span.min_epoch < self.after.rule.oldest or self.after.rule.mark.data != NULL):
            return False
        limit.data, limit.size = self.after.limit, TABLE_VNODE_BYTES
        if head_of(self.after.limit, TABLE_VNODE_BYTES) != 0:
            clip_span(span, limit)
        return True

    cdef int append_key(self) except -1 nogil:
        """Consumes one user key with all its entries. REQUIRES an entry that the later reader may see."""
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


cdef class ChangeReader:
    """The changes of [start, end) from `since` to `until`, in key order.
     
    Raises EpochTooOld, and InvalidEpoch where `until` is before `since`. Files are opened when first needed.
    """
    cdef ReadView view                  # None after `close`
    cdef object options                 # ReadOptions
    cdef uint64_t since
    cdef uint64_t until
    cdef uint64_t first_expiring        # rows written in [first_expiring, end_expiring) may expire between the epochs
    cdef uint64_t end_expiring
    cdef list parts                     # remaining (start, end, whether every file is read), the next one last
    cdef ChangeIterator current         # over the current part; None: not started
    cdef list found                     # finished batches, the next one last

    def __init__(self, ReadView view not None, bytes start not None, bytes end, since, until, options):
        self.since, self.until = view.checked(since) | SPILL_MASK, view.checked(until) | SPILL_MASK
        if self.until < self.since:
            raise InvalidEpoch(until, f"the changes since {since} end there or later")
        self.view, self.options, self.found, self.parts = view, options, [], []
        if self.since < self.until and (end is None or start < end):
            tables = ruled_tables(view.version, start, end)
            self.note_expiring(tables)
            self.parts = parts_between(start, end, tables, self.since, self.until)[::-1]

    def next_batch(self, Py_ssize_t max_rows, Py_ssize_t max_bytes) -> ChangeBatch | None:
        """The next changes, or None at the end. A batch may be as small as one row, where rows or their old values are
        larger than `max_bytes`.

        REQUIRES both limits to be at least 1 and `close` not called.
        """
        while not self.found:
            if self.current is None:
                if not self.parts:
                    return None
                start, end, reads_all = self.parts.pop()
                self.current = self.iterator_of(start, end, reads_all)
            keys, new = self.current.next_keys(max_rows, max_bytes)
            if len(keys) == 0:
                self.current = None
            else:
                self.find_changes(keys, new)
        return self.found.pop()

    def close(self):
        """Releases the view and everything held of it."""
        self.view = self.current = None
        self.parts, self.found = [], []

    def note_expiring(self, tables):
        """Computes which rows may expire between the epochs, by the time of their write."""
        cdef uint64_t table_vnode
        cdef VnodeRule before, after
        for table_id, rules in tables:
            if rules.ttl_ms:
                table_vnode = <uint64_t>table_id << 16
                before = self.view.rules.rule_of(table_vnode, self.since)
                after = self.view.rules.rule_of(table_vnode, self.until)
                if self.end_expiring == 0 or before.oldest < self.first_expiring:
                    self.first_expiring = before.oldest
                self.end_expiring = max(self.end_expiring, after.oldest)

    cdef ChangeIterator iterator_of(self, bytes start, bytes end, bint reads_all):
        cdef list children = []
        cdef HummockIterator child
        for source in self.view.owners:
            child = self.child_of(source, start, end, reads_all)
            if child is not None:
                children.append(child)
        child = children[0] if len(children) == 1 else MergeIterator(children, FORWARD)
        return ChangeIterator(child, start, end, self.since, self.until, self.view.rules)

    cdef HummockIterator child_of(self, source, bytes start, bytes end, bint reads_all):
        cdef SortedRun run
        cdef ConcatIterator child
        if isinstance(source, SharedBufferBatch):
            if (<SharedBufferBatch>source).epoch <= self.since and not (
                    reads_all or self.first_expiring <= (<SharedBufferBatch>source).epoch < self.end_expiring):
                return None
            return self.view.child(source, start, end, self.until, FORWARD, self.options)
        run = source
        infos = run.overlapping(start, end, self.until)
        if not reads_all:
            infos = tuple([info for info in infos if self.is_read(info)])
        if not infos:
            return None
        child = ConcatIterator(run.store, infos, FORWARD, self.options)
        if not reads_all and self.end_expiring == 0:
            child.floor = self.since
        return child

    cdef bint is_read(self, info):
        cdef uint64_t newest = info.newest_epoch
        return newest > self.since or (self.first_expiring <= newest and info.oldest_epoch < self.end_expiring)

    cdef int find_changes(self, BinaryColumn keys, BinaryColumn new) except -1:
        """Adds the changes of these keys to `found`; splits the keys in halves where the old values are too large."""
        cdef Py_ssize_t half = keys.rows >> 1
        try:
            if self.end_expiring > 0:       # a newer version of an expired key may be in a file that is not read
                new = values_of(self.view, keys, self.until, self.options)
            old = values_of(self.view, keys, self.since, self.options)
        except OverflowError:
            if half == 0:
                raise
            self.find_changes(keys.slice(half, keys.rows - half), new.slice(half, keys.rows - half))
            return self.find_changes(keys.slice(0, half), new.slice(0, half))
        changed = changed_rows(keys, old, new)
        if len(changed) > 0:
            self.found.append(changed)
        return 0


cdef BinaryColumn values_of(ReadView view, BinaryColumn keys, epoch, options):
    """The values that readers at `epoch` see for ascending `keys`."""
    if is_dense(view, keys, epoch | SPILL_MASK):
        return merged_values(view.read(keys[0], (<bytes>keys[keys.rows - 1]) + b"\0", epoch, False, options), keys)
    return read_many(view, keys, epoch)


cdef bint is_dense(ReadView view, BinaryColumn keys, uint64_t newest) except -1:
    """Whether the keys are more than a small share of the rows between the first and the last of them."""
    cdef SortedRun run
    cdef SstableReader reader
    cdef OpenedSstable opened
    cdef Slice first = keys.at(0), last = keys.at(keys.rows - 1)
    cdef Py_ssize_t file, block, end, left = DENSE_SHARE * keys.rows
    for source in view.owners:
        if isinstance(source, SharedBufferBatch):
            left -= (<SharedBufferBatch>source).lower_bound(last) - (<SharedBufferBatch>source).lower_bound(first)
            continue
        run = source
        file = run.file_from(first)
        while left >= 0 and file < run.count and compare_bytes(run.files[file].smallest, last) <= 0:
            reader = <SstableReader>run.files[file].reader
            file += 1
            if reader.min_epoch <= newest:
                opened = reader.opened()
                block, end = opened.index.find_block(first, newest), opened.index.find_block(last, newest)
                while left >= 0 and block <= end:
                    left -= opened.index.rows[block]
                    block += 1
    return left >= 0


def changed_rows(BinaryColumn keys not None, BinaryColumn old not None, BinaryColumn new not None) -> ChangeBatch:
    """The rows whose old and new values differ; a null differs from any value."""
    cdef BinaryColumnBuilder out_keys, out_old, out_new
    cdef Py_ssize_t row, same_rows = 0
    with nogil:
        for row in range(keys.rows):
            same_rows += is_same(old, new, row)
    if same_rows == 0:
        return ChangeBatch(keys, old, new)
    out_keys, out_old, out_new = BinaryColumnBuilder(), BinaryColumnBuilder(), BinaryColumnBuilder()
    with nogil:
        for row in range(keys.rows):
            if not is_same(old, new, row):
                out_keys.append(keys.at(row))
                append_from(out_old, old, row)
                append_from(out_new, new, row)
    return ChangeBatch(out_keys.finish(), out_old.finish(), out_new.finish())


cdef inline bint is_same(BinaryColumn old, BinaryColumn new, Py_ssize_t row) noexcept nogil:
    cdef Slice a, b
    if old.is_null(row) or new.is_null(row):
        return old.is_null(row) and new.is_null(row)
    a, b = old.at(row), new.at(row)
    return a.size == b.size and (a.size == 0 or memcmp(a.data, b.data, <size_t>a.size) == 0)


cdef inline int append_from(BinaryColumnBuilder out, BinaryColumn column, Py_ssize_t row) except -1 nogil:
    if column.is_null(row):
        return out.append_null()
    return out.append(column.at(row))


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
    """Advances to the first row at or after `key`."""
    cdef Span span
    cdef Py_ssize_t first
    while rows.valid and compare_bytes(rows.user_key, key) < 0:
        if rows.span(&span, True):
            first = span.row
            clip_span(&span, key)
            rows.skip(span.end - first)
        else:
            rows.next()
    return 0
