"""JoinRows: changes of one input of a join, a block of rows at a time.

A block first prefetches the memory of all its rows; then rows are linked to their keys, then values are written, column
by column.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from hummock.base.prefetch cimport prefetch_for_write
from relational.chunk.canonical cimport add_hashes
from relational.join.row_lists cimport KeyEntry, RowLists, has_block
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
        cdef Py_ssize_t header_bytes = sizeof(RowHeader) if name else 0
        cdef int i
        self.free_row, self.degree_at = -1, -1
        if has_degrees:
            self.degree_at = header_bytes
            header_bytes += sizeof(int32_t)
        self.name_count = len(name)
        self.name = <int*>malloc((self.name_count + 1) * sizeof(int))
        if self.name == NULL:
            raise MemoryError("no memory for the columns of a stream key")
        for i in range(self.name_count):
            self.name[i] = name[i]
        self.lists, self.records = RowLists(self.name_count > 0), RowRecords(types, header_bytes)

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
            if self.name_count:
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
                self.header(written[row]).key = -self.header(written[row]).key

    cdef void prefetch_rows(self, const Changes* job, Py_ssize_t first, Py_ssize_t rows,
                       const uint32_t* tags) noexcept nogil:
        """Prefetches the memory of a block: entries, then the lists they point to, then rows that may be deleted."""
        cdef const int32_t* ids = job.ids + first
        cdef const KeyEntry* entry
        cdef Py_ssize_t row
        cdef uint32_t after
        for row in range(rows):
            prefetch_for_write(self.lists.entry(ids[row]))
        for row in range(rows):
            if ids[row] >= 0:
                entry = self.lists.entry(ids[row])
                if has_block(entry):
                    self.lists.prefetch_block(entry, tags[row])
        if job.ops == NULL:
            return
        for row in range(rows):
            if job.ops[first + row] & GOES and ids[row] >= 0:
                after = 0
                prefetch_for_write(self.header(self.lists.candidate(self.lists.entry(ids[row]), tags[row], &after)))

    cdef int32_t find_row(self, const Changes* job, Py_ssize_t row, uint32_t tag) noexcept nogil:
        cdef int32_t key = job.ids[row], meant
        cdef const KeyEntry* entry = self.lists.entry(key)
        cdef uint32_t after = 0
        while True:
            meant = self.lists.candidate(entry, tag, &after)
            if meant < 0 or (self.header(meant).key == key + 1 and self.is_named(job, row, meant)):
                return meant
            if self.header(meant).key == -key - 1:
                return UNWRITTEN

    cdef bint is_named(self, const Changes* job, Py_ssize_t row, int32_t meant) noexcept nogil:
        """Whether the record has the stream key of a row of the chunk."""
        cdef int i
        for i in range(self.name_count):
            if not self.records.equals(meant, self.name[i], job.views[self.name[i]], row):
                return False
        return True

    cdef Py_ssize_t link_rows(self, const Changes* job, Py_ssize_t first, Py_ssize_t rows, const uint32_t* tags,
                              int32_t* written) except -1 nogil:
        cdef RowHeader* header
        cdef int32_t number, moved, position
        cdef uint8_t op
        cdef Py_ssize_t row, at
        for row in range(rows):
            at = first + row
            written[row] = -1
            if job.ids[at] < 0 or (job.visible != NULL and not job.visible[at]):
                continue
            op = job.ops[at] if job.ops != NULL else <uint8_t>INSERT
            number = -1
            if self.lists.has_tags and self.lists.entry(job.ids[at]).rows:
                number = self.find_row(job, at, tags[row])
            if number == UNWRITTEN:
                return row
            if (number < 0) == (op & GOES):
                self.is_contradicted = True
                return row
            if op & GOES:
                header = self.header(number)
                moved = self.lists.remove(job.ids[at], header.position)
                if moved >= 0:
                    self.header(moved).position = header.position
                header.key, header.position = 0, self.free_row
                self.records.release(number)
                self.free_row = number
                continue
            number = self.free_row
            if number >= 0:
                self.free_row = self.header(number).position
            number = self.records.next_row(number)
            position = self.lists.add(job.ids[at], number, tags[row])
            if self.name_count:
                header = self.header(number)
                header.key, header.position = -job.ids[at] - 1, position
            if self.degree_at >= 0 and job.degrees != NULL:
                self.degree(number)[0] = job.degrees[at]
            written[row] = number
        return rows
