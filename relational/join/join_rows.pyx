"""JoinRows: changes of one input of a join, a block of rows at a time.

A block first prefetches the memory of all its rows; then rows are linked to their keys, then values are written, column
by column.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from hummock.base.prefetch cimport prefetch_for_write
from relational.chunk.canonical cimport add_hashes
from relational.join.row_lists cimport KeyEntry, RowLists, has_block, is_empty
from relational.join.row_records cimport RowRecords

cdef enum:
    BLOCK = 128                 # rows linked, then written, together
    INSERT = 0
    GOES = 1                    # bit of an op
    UNWRITTEN = -2              # a candidate row whose values are not written yet


cdef class JoinRows:
    """A row is identified by its key id and its stream key."""

    def __init__(self, types, name, bint has_degrees):
        """Rows of `types`; `name`: the columns of the stream key."""
        cdef int i
        self.free_row, self.degree_at = -1, 0 if has_degrees else -1
        self.name_count = len(name)
        self.name = <int*>malloc((self.name_count + 1) * sizeof(int))
        if self.name == NULL:
            raise MemoryError("no memory for the columns of a stream key")
        for i in range(self.name_count):
            self.name[i] = name[i]
        self.lists = RowLists(self.name_count > 0)
        self.records = RowRecords(types, sizeof(int32_t) if has_degrees else 0)

    def __dealloc__(self):
        free(self.name)

    cdef Py_ssize_t change_rows(self, const Changes* job, Py_ssize_t rows) except -2 nogil:
        cdef uint64_t hashes[BLOCK]
        cdef uint32_t tags[BLOCK]
        cdef int32_t written[BLOCK]
        cdef Py_ssize_t first = 0, block, linked, row
        cdef int i
        self.is_contradicted = False
        while first < rows:
            block = min(rows - first, <Py_ssize_t>BLOCK)
            self.records.make_room(block)
            memset(hashes, 0, <size_t>block * sizeof(uint64_t))
            for i in range(self.name_count):
                add_hashes(job.named[i], first, block, hashes)
            for row in range(block):
                tags[row] = <uint32_t>(hashes[row] >> 32)
            self.prefetch_rows(job, first, block, tags)
            self.records.clear_next(block)
            row = 0
            while row < block:
                linked = self.link_rows(job, first + row, block - row, tags + row, written)
                self.records.write(job.views, first + row, linked, written)
                if self.name_count:
                    self.mark_written(linked, written)
                row += linked
                if self.is_contradicted:
                    return first + row
            first += block
        return -1

    cdef void mark_written(self, Py_ssize_t rows, const int32_t* written) noexcept nogil:
        cdef Py_ssize_t row
        for row in range(rows):
            if written[row] >= 0:
                self.records.mark_written(written[row])

    cdef void prefetch_rows(self, const Changes* job, Py_ssize_t first, Py_ssize_t rows,
                       const uint32_t* tags) noexcept nogil:
        """Prefetches the memory of a block: entries, then the lists they point to, heads first, then rows that may be
        deleted."""
        cdef const int32_t* ids = job.ids + first
        cdef const KeyEntry* entry
        cdef int32_t position
        cdef Py_ssize_t row
        cdef uint32_t after
        for row in range(rows):
            prefetch_for_write(self.lists.entry(ids[row]))
            if self.lists.has_tags:
                prefetch_for_write(self.lists.only_tag(ids[row]))
        for row in range(rows):
            if ids[row] >= 0 and has_block(self.lists.entry(ids[row])):
                prefetch_for_write(self.lists.head(self.lists.entry(ids[row])))
        for row in range(rows):
            if ids[row] >= 0 and has_block(self.lists.entry(ids[row])):
                self.lists.prefetch_block(self.lists.entry(ids[row]), tags[row])
        if job.ops == NULL or not self.lists.has_tags:
            return
        for row in range(rows):
            if job.ops[first + row] & GOES and ids[row] >= 0:
                after, entry = 0, self.lists.entry(ids[row])
                position = self.lists.candidate(ids[row], tags[row], &after)
                if position >= 0:
                    prefetch_for_write(self.records.record(self.lists.row_at(entry, position)))

    cdef int32_t find_row(self, const Changes* job, Py_ssize_t row, uint32_t tag) noexcept nogil:
        cdef const KeyEntry* entry = self.lists.entry(job.ids[row])
        cdef int32_t position, meant
        cdef uint32_t after = 0
        while True:
            position = self.lists.candidate(job.ids[row], tag, &after)
            if position < 0:
                return position
            meant = self.lists.row_at(entry, position)
            if not self.records.is_written(meant):
                return UNWRITTEN
            if self.is_named(job, row, meant):
                return position

    cdef bint is_named(self, const Changes* job, Py_ssize_t row, int32_t meant) noexcept nogil:
        """Whether the record has the stream key of a row of the chunk."""
        cdef int i
        for i in range(self.name_count):
            if not self.records.equals(meant, self.name[i], job.views[self.name[i]], row):
                return False
        return True

    cdef Py_ssize_t link_rows(self, const Changes* job, Py_ssize_t first, Py_ssize_t rows, const uint32_t* tags,
                              int32_t* written) except -1 nogil:
        cdef int32_t number, position
        cdef uint8_t op
        cdef Py_ssize_t row, at
        for row in range(rows):
            at = first + row
            written[row] = -1
            if job.ids[at] < 0 or (job.visible != NULL and not job.visible[at]):
                continue
            op = job.ops[at] if job.ops != NULL else <uint8_t>INSERT
            position = -1
            if self.lists.has_tags and not is_empty(self.lists.entry(job.ids[at])):
                position = self.find_row(job, at, tags[row])
            if position == UNWRITTEN:
                return row
            if (position < 0) == (op & GOES):
                self.is_contradicted = True
                return row
            if op & GOES:
                number = self.lists.row_at(self.lists.entry(job.ids[at]), position)
                self.lists.remove(job.ids[at], position)
                self.records.release(number, self.free_row)
                self.free_row = number
                continue
            number = self.free_row if self.has_gaps() else -1
            if number >= 0:
                self.free_row = self.records.next_free(number)
            number = self.records.next_row(number)
            self.lists.add(job.ids[at], number, tags[row])
            if self.degree_at >= 0 and job.degrees != NULL:
                self.degree(number)[0] = job.degrees[at]
            written[row] = number
        return rows
