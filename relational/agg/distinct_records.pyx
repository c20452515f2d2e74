"""DistinctRecords: which values of which groups have come, for the DISTINCT calls over one argument.

An entry is a pair of a group and a value, both by number. Its record says, for each call, how many rows with this pair
pass the call's FILTER; or, where no row is ever retracted, only whether one has passed, a bit a call. The rows that
take a call from none to one, or back, are those that the call's kernel must see.
"""

import numpy as np

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from hummock.base.prefetch cimport prefetch
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.agg.kernels cimport int64_at
from relational.agg.records cimport GroupRecords
from relational.chunk.column cimport Column, check_mask
from relational.chunk.data_chunk cimport mask_pointer
from relational.hash.u64_interner cimport PRESENT, SKIPPED, U64Interner

cdef enum:
    AHEAD = 16
    BLOCK = 1024                        # rows whose records are fetched together
    SLICE = 4096                        # rows for which capacity is reserved at a time
    BITS = 64                           # calls in one word of a record without counts


@cython.final
cdef class DistinctRecords(GroupRecords):
    """Records of `words` BIGINTs: with `has_counts` one for each of `calls`, else one for each BITS of them."""

    cdef readonly int calls
    cdef readonly int words
    cdef readonly bint has_counts
    cdef U64Interner pairs              # group << 32 | value -> entry
    cdef U64Interner renumbered         # what replaces it; None unless entries are being renumbered
    cdef ByteBuffer scratch             # pairs and presence of a slice of rows

    def __init__(self, int calls, bint has_counts):
        self.calls, self.has_counts = calls, has_counts
        self.words = calls if has_counts else (calls + BITS - 1) // BITS
        super().__init__(self.words * sizeof(int64_t))
        self.pairs, self.scratch = U64Interner(), ByteBuffer()

    @property
    def size_bytes(self):
        """Memory used."""
        return GroupRecords.size_bytes.__get__(self) + self.pairs.size_bytes + self.scratch.capacity

    def find(self, const int32_t[::1] groups not None, const int32_t[::1] values not None):
        """The entry of each row, int32[rows]; -1 for a row whose value is negative. New entries get the next numbers,
        and records of zeros."""
        ids = self.find_pairs(self.pairs, groups, values)
        self.grow(self.pairs.count)
        return ids

    cdef object find_pairs(self, U64Interner known, const int32_t[::1] groups, const int32_t[::1] values):
        cdef Py_ssize_t first = 0, rows = groups.shape[0], part
        cdef uint64_t* pairs
        cdef uint8_t* presence
        cdef int32_t[::1] out
        if values.shape[0] != rows:
            raise ValueError(f"{values.shape[0]} values for {rows} groups")
        ids = np.empty(rows, np.int32)
        out = ids
        self.scratch.reserve(9 * SLICE)
        pairs, presence = <uint64_t*>self.scratch.data, self.scratch.data + 8 * SLICE
        while first < rows:
            part = min(rows - first, <Py_ssize_t>SLICE)
            known.make_room(part)
            with nogil:
                make_pairs(&groups[first], &values[first], part, pairs, presence)
                known.find_words(<const uint8_t*>pairs, presence, part, &out[first], True)
            first += part
        return ids

    def owners(self, const int32_t[::1] ids not None):
        """(int32[ids], int32[ids]): the groups and the values of entries. IndexError for an entry that does not exist.
        """
        cdef const uint64_t* pairs = <const uint64_t*>self.pairs.words.data
        cdef Py_ssize_t row, rows = ids.shape[0], wrong = -1
        found = np.empty((2, rows), np.int32)
        cdef int32_t[:, ::1] out = found
        with nogil:
            for row in range(rows):
                if ids[row] < 0 or ids[row] >= self.groups:
                    wrong = row
                    break
                if row + AHEAD < rows and 0 <= ids[row + AHEAD]:
                    prefetch(pairs + ids[row + AHEAD])
                out[0, row] = <int32_t>(pairs[ids[row]] >> 32)
                out[1, row] = <int32_t>pairs[ids[row]]
        if wrong >= 0:
            raise IndexError(f"entry {ids[wrong]} of {self.groups}")
        return found[0], found[1]

    def apply(self, const int32_t[::1] ids not None, masks, const uint8_t[::1] ops=None):
        """Applies rows to the entries `ids` (negative: none). `masks`, per call: uint8[rows], 1 where its FILTER is
        true, or None. Returns uint8[calls, rows]: 1 for a row with which the group gets a value of the call, or loses
        it."""
        cdef Py_ssize_t rows = ids.shape[0]
        cdef const uint8_t** filters
        cdef int call
        out = np.empty((self.calls, rows), np.uint8)
        cdef uint8_t[:, ::1] changes = out
        if len(masks) != self.calls or (ops is not None and ops.shape[0] != rows):
            raise ValueError(f"{len(masks)} masks for {self.calls} calls, or too few ops")
        if rows == 0:
            return out
        if np.max(ids) >= self.groups:
            raise IndexError(f"entry {np.max(ids)} of {self.groups}")
        filters = <const uint8_t**>malloc((self.calls + 1) * sizeof(uint8_t*))
        if filters == NULL:
            raise MemoryError("no memory for the calls of an aggregation")
        try:
            for call in range(self.calls):
                if masks[call] is not None:
                    check_mask(masks[call], rows)
                filters[call] = mask_pointer(masks[call])
            with nogil:
                self.apply_rows(&ids[0], NULL if ops is None else &ops[0], rows, filters, &changes[0, 0])
        finally:
            free(filters)
        return out

    def load(self, const int32_t[::1] ids not None, columns, const uint8_t[::1] found not None):
        """Sets new entries to stored records: `columns` are their words, a row for each of `ids`, where `found`."""
        cdef Py_ssize_t row, rows = ids.shape[0]
        cdef Column column
        cdef int word
        for word, column in enumerate(columns):
            if column.view.rows != rows or found.shape[0] != rows:
                raise ValueError(f"{column.view.rows} records and {found.shape[0]} flags for {rows} entries")
            with nogil:
                for row in range(rows):
                    if found[row]:
                        (<int64_t*>self.record(ids[row]))[word] = int64_at(column, row)

    def compare(self, const int32_t[::1] ids not None, Py_ssize_t first_saved):
        """Gathers the entries `ids`, see `gather`. Returns uint8[3, ids]: whether each was stored, is to be stored, and
        has changed; and the index of one with a negative count, else -1."""
        cdef Py_ssize_t row, rows = ids.shape[0], wrong = -1
        cdef const int64_t* before
        cdef const int64_t* after
        cdef int word
        out = np.zeros((3, rows), np.uint8)
        cdef uint8_t[:, ::1] flags = out
        self.gather(ids, first_saved)
        if (first_saved + rows) * self.width > self.saved.size:
            raise ValueError(f"{rows} entries from {first_saved} on, {self.saved.size // self.width} saved records")
        with nogil:
            for row in range(rows):
                before, after = <const int64_t*>self.picked(~row), <const int64_t*>self.picked(row)
                for word in range(self.words):
                    flags[0, row] |= before[word] != 0
                    flags[1, row] |= after[word] != 0
                    flags[2, row] |= before[word] != after[word]
                    if after[word] < 0 and self.has_counts:
                        wrong = row
        return out, wrong

    def living(self):
        """bool[entries]: whether each has rows."""
        cdef Py_ssize_t entry
        cdef int word
        out = np.zeros(self.groups, np.bool_)
        cdef uint8_t[::1] flags = out.view(np.uint8)
        with nogil:
            for entry in range(self.groups):
                for word in range(self.words):
                    flags[entry] |= (<const int64_t*>self.record(entry))[word] != 0
        return out

    def columns(self, const int32_t[::1] picks not None):
        """int64[words, picks]: the words of the picked records of the last comparison."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef int word
        out = np.empty((self.words, rows), np.int64)
        cdef int64_t[:, ::1] values = out
        with nogil:
            for row in range(rows):
                for word in range(self.words):
                    values[word, row] = (<const int64_t*>self.picked(picks[row]))[word]
        return out

    def replace_pairs(self, const int32_t[::1] groups not None, const int32_t[::1] values not None):
        """Gives all entries, in their order, other numbers of groups and values. ValueError unless they are distinct.
        """
        cdef U64Interner pairs = U64Interner()
        pairs.make_room(groups.shape[0])
        self.find_pairs(pairs, groups, values)
        if groups.shape[0] != self.groups or pairs.count != self.groups:
            raise ValueError(f"{pairs.count} pairs of {groups.shape[0]} for {self.groups} entries")
        self.pairs = pairs

    def begin_renumbering(self, Py_ssize_t count):
        """From here on entries get new numbers, of which there will be `count`, by calls of `renumber` for parts of
        them and then of `end_renumbering`; nothing else is called until then. REQUIRES that none is dirty."""
        self.renumbered = U64Interner()
        self.renumbered.make_room(count)

    def renumber(self, const int32_t[::1] kept not None, const int32_t[::1] groups not None,
                 const int32_t[::1] values not None):
        """The entries `kept`, in ascending order and above those of earlier parts, get the next numbers; `groups` and
        `values` are the numbers that theirs have from now on."""
        cdef Py_ssize_t first = self.renumbered.count
        self.move(kept, first)
        self.find_pairs(self.renumbered, groups, values)
        if self.renumbered.count != first + kept.shape[0]:
            raise ValueError(f"some of {kept.shape[0]} entries have the same group and value")

    def end_renumbering(self):
        """Discards the entries without a new number."""
        self.pairs, self.renumbered = self.renumbered, None
        self.shrink(self.pairs.count)

    cdef int apply_rows(self, const int32_t* ids, const uint8_t* ops, Py_ssize_t rows, const uint8_t** filters,
                        uint8_t* changes) except -1 nogil:
        cdef const uint8_t* mask
        cdef const uint8_t* block_ops
        cdef Py_ssize_t first = 0, block
        cdef int call
        while first < rows:
            block = min(rows - first, <Py_ssize_t>BLOCK)
            self.mark(ids + first, block)
            block_ops = NULL if ops == NULL else ops + first
            for call in range(self.calls):
                mask = NULL if filters[call] == NULL else filters[call] + first
                if self.has_counts:
                    self.count(call, ids + first, mask, block_ops, block, changes + call * rows + first)
                else:
                    self.set_bits(call, ids + first, mask, block, changes + call * rows + first)
            first += block
        return 0

    cdef void count(self, int call, const int32_t* ids, const uint8_t* mask, const uint8_t* ops, Py_ssize_t rows,
                    uint8_t* changes) noexcept nogil:
        """A number of rows below 1 counts as none: rows of one value may come in any order."""
        cdef int64_t* count
        cdef int64_t before, weight
        cdef Py_ssize_t row
        for row in range(rows):
            count = (<int64_t*>self.record(ids[row])) + call
            weight = (ids[row] >= 0) & (mask == NULL or mask[row] != 0)
            if ops != NULL and ops[row] & 1:
                weight = -weight
            before = count[0]
            count[0] = before + weight
            changes[row] = (before > 0) != (before + weight > 0)

    cdef void set_bits(self, int call, const int32_t* ids, const uint8_t* mask, Py_ssize_t rows,
                       uint8_t* changes) noexcept nogil:
        cdef uint64_t* word
        cdef uint64_t is_new
        cdef int shift = call % BITS
        cdef Py_ssize_t row
        for row in range(rows):
            word = (<uint64_t*>self.record(ids[row])) + call // BITS
            is_new = (ids[row] >= 0) & (mask == NULL or mask[row] != 0) & ~(word[0] >> shift) & 1
            word[0] |= is_new << shift
            changes[row] = <uint8_t>is_new


cdef void make_pairs(const int32_t* groups, const int32_t* values, Py_ssize_t rows, uint64_t* pairs,
                     uint8_t* presence) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(rows):
        pairs[row] = <uint64_t><uint32_t>groups[row] << 32 | <uint32_t>values[row]
        presence[row] = PRESENT if values[row] >= 0 else SKIPPED
