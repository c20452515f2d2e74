"""ChangeReader: what became of the user keys of a range between two epochs, as one view shows it.

Only what is newer than the earlier epoch is walked: batches, files and, within them, blocks. The values before are
asked for by the batch, of those keys alone: as point reads, or where the keys stand close by a walk beside them. Where
a watermark moved between the epochs the keys that it passed are walked whole, and what expired in between is looked
for in the files that are as old as that.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from hummock.base.key cimport SPILL_MASK, Slice, compare_bytes
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.iterator.base cimport FORWARD, HummockIterator
from hummock.iterator.merge cimport MergeIterator
from hummock.iterator.row_filter cimport VnodeRule
from hummock.read.change_iterator cimport ChangeWalk, merged_values
from hummock.read.view cimport ReadView, SortedRun
from hummock.shared_buffer.batch cimport SharedBufferBatch
from hummock.sstable.concat_iterator cimport ConcatIterator
from hummock.sstable.reader cimport OpenedSstable, SstableReader

from hummock.errors import InvalidEpoch
from hummock.read.change_parts import parts_between, ruled_tables
from hummock.read.many_gets import read_many
from hummock.state_store import ChangeBatch

cdef Py_ssize_t DENSE_SHARE = 16        # a walk beside the keys pays where one of so many rows is asked for


cdef class ChangeReader:
    """The changes of [start, end) from `since` to `until`, in order of their keys.

    Raises EpochTooOld, and InvalidEpoch where `until` is before `since`. A file is opened when first needed.
    """

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
        """The next changes, or None at the end. A row larger than `max_bytes` comes alone, or so few of them that
        their old values fit.

        REQUIRES both limits to be at least 1 and `close` not called.
        """
        while not self.found:
            if self.walk is None:
                if not self.parts:
                    return None
                start, end, reads_all = self.parts.pop()
                self.walk = self.walk_of(start, end, reads_all)
            keys, new = self.walk.next_keys(max_rows, max_bytes)
            if len(keys) == 0:
                self.walk = None
            else:
                self.find_changes(keys, new)
        return self.found.pop()

    def close(self):
        """Lets go of the view and all that is held of it."""
        self.view = self.walk = None
        self.parts, self.found = [], []

    def note_expiring(self, tables):
        """Which rows may expire between the epochs, by when they were written."""
        cdef uint64_t place
        cdef VnodeRule before, after
        for table_id, rules in tables:
            if rules.ttl_ms:
                place = <uint64_t>table_id << 16
                before = self.view.rules.rule_of(place, self.since)
                after = self.view.rules.rule_of(place, self.until)
                if self.end_expiring == 0 or before.oldest < self.first_expiring:
                    self.first_expiring = before.oldest
                self.end_expiring = max(self.end_expiring, after.oldest)

    cdef ChangeWalk walk_of(self, bytes start, bytes end, bint reads_all):
        cdef list children = []
        cdef HummockIterator child
        for source in self.view.owners:
            child = self.child_of(source, start, end, reads_all)
            if child is not None:
                children.append(child)
        child = children[0] if len(children) == 1 else MergeIterator(children, FORWARD)
        return ChangeWalk(child, start, end, self.since, self.until, self.view.rules)

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
        """Puts what changed of these keys to what is ready; in halves where the values before are too large."""
        cdef Py_ssize_t half = keys.rows >> 1
        try:
            if self.end_expiring > 0:       # of a key that expired a newer version may stand in a file that is not read
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
    """What readers at `epoch` see under each of ascending `keys`."""
    if is_dense(view, keys, epoch | SPILL_MASK):
        return merged_values(view.read(keys[0], (<bytes>keys[keys.rows - 1]) + b"\0", epoch, False, options), keys)
    return read_many(view, keys, epoch)


cdef bint is_dense(ReadView view, BinaryColumn keys, uint64_t newest) except -1:
    """Whether the keys are more than a few of the rows between the first and the last of them."""
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
