"""KeyInterner: assigns dense ids to the key columns of rows.

Two rows have one id exactly if their keys are equal in SQL's sense, NULL equal to NULL: -0.0 is 0.0, NaN is NaN. Keys
get the ids 0, 1, 2 … in the order of their first appearance, so all other data about a key is an array indexed by its
id. A returned key is SQL-equal to the input. One thread at a time.
"""

import numpy as np

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from hummock.base.prefetch cimport prefetch
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.canonical cimport is_plain_word, word_of
from relational.chunk.column cimport (
    BIGINT, BOOLEAN, Column, ColumnView, DATE, DOUBLE, INT, REAL, SMALLINT, TIME, TIMESTAMP, TIMESTAMPTZ, as_column,
    is_null,
)
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.data_chunk cimport mask_pointer
from relational.encoding.key.encoder cimport KeyEncoder
from relational.hash.bytes_interner cimport BytesInterner
from relational.hash.u64_interner cimport NO_WORD, PRESENT, SKIPPED, U64Interner

cdef enum:
    SLICE = 4096            # rows for which capacity is reserved at a time
    AHEAD = 16

cdef object WORD_KINDS = frozenset(
    (BOOLEAN, SMALLINT, INT, BIGINT, REAL, DOUBLE, DATE, TIME, TIMESTAMP, TIMESTAMPTZ))


@cython.final
cdef class KeyInterner:
    """Ids for keys of `types`. Only `keep` changes ids."""

    def __init__(self, types):
        self.types = tuple(types)
        self.encoder = KeyEncoder(self.types)
        self.scratch = ByteBuffer()
        if len(self.types) == 1 and self.types[0].kind in WORD_KINDS:
            self.words = U64Interner()
        else:
            self.encoded = BytesInterner()

    @property
    def count(self):
        """Ids assigned so far."""
        return self.words.count if self.words is not None else self.encoded.count

    @property
    def size_bytes(self):
        """Memory used."""
        cdef BytesInterner index = self.encoded
        if index is None:
            return self.words.size_bytes + self.scratch.capacity
        return index.table.size_bytes + index.ends.capacity + index.arena.capacity

    @property
    def column_bytes(self):
        """The bytes of the keys themselves: 8 for one of a word."""
        return 8 * self.words.count if self.words is not None else self.encoded.arena.size

    def find(self, columns, visibility=None, bint is_adding=True, Py_ssize_t rows=-1):
        """The id of each row's key as int32[rows]; -1 for a hidden row.

        A new key gets the next id, so the new ids are `range(count before, count after)`; with `is_adding=False` it
        gets -1. `visibility` is None or uint8[rows]. ValueError for columns of other types. `rows` is needed only
        without columns.
        """
        cdef list taken = [as_column(source) for source in columns]
        cdef Column column
        cdef int32_t[::1] out
        if tuple([column.data_type for column in taken]) != self.types:
            raise ValueError(f"keys are {self.types}, not {[str(column.data_type) for column in taken]}")
        if taken:
            rows = (<Column>taken[0]).view.rows
        if visibility is not None and len(visibility) != rows:
            raise ValueError(f"visibility of {len(visibility)} rows for {rows} keys")
        if self.words is None:
            return self.encoded.find(self.encoder.encode(taken, rows=rows), visibility, is_adding)
        ids = np.empty(rows, np.int32)
        if rows:
            out = ids
            self.find_words(taken[0], mask_pointer(visibility), &out[0], is_adding)
        return ids

    def keys(self, const int32_t[::1] ids not None):
        """The key columns of `ids`, one Column per type. IndexError for an unassigned id."""
        cdef Py_ssize_t wrong
        if self.words is None:
            return [as_column(array) for array in self.encoder.decode(self.encoded.keys(ids))]
        wrong = first_beyond(&ids[0] if ids.shape[0] else NULL, ids.shape[0], self.count)
        if wrong >= 0:
            raise IndexError(f"key number {ids[wrong]} of {self.count}")
        return [self.column_of_words(&ids[0] if ids.shape[0] else NULL, ids.shape[0])]

    def encoded_keys(self, const int32_t[::1] ids not None) -> BinaryColumn:
        """The keys of `ids` as KeyEncoder encodes them in ascending order. IndexError for an unassigned id."""
        if self.words is None:
            return self.encoded.keys(ids)
        return self.encoder.encode(self.keys(ids), rows=ids.shape[0])

    def keep(self, const int32_t[::1] ids not None):
        """Renumbers the keys of `ids` to 0, 1, 2 …, in order, and removes the others. REQUIRES them distinct."""
        cdef KeyInterner kept = KeyInterner(self.types)
        kept.add_from(self, ids)
        self.words, self.encoded = kept.words, kept.encoded

    def add_from(self, KeyInterner source not None, const int32_t[::1] ids not None):
        """Gives the next ids to the keys of `ids` in `source`, of the same types. REQUIRES that they are distinct and
        not known here."""
        cdef Py_ssize_t wrong = first_beyond(&ids[0] if ids.shape[0] else NULL, ids.shape[0], source.count)
        if wrong >= 0:
            raise IndexError(f"key number {ids[wrong]} of {source.count}")
        if self.words is not None:
            self.words.add_from(source.words, ids)
        else:
            self.encoded.add_from(source.encoded, ids)

    def reserve(self, Py_ssize_t keys):
        """Capacity for so many further keys."""
        if self.words is not None:
            self.words.make_room(keys)
        else:
            self.encoded.make_room(keys)

    cdef int find_words(self, Column column, const uint8_t* visible, int32_t* out, bint is_adding) except -1:
        cdef const ColumnView* view = &column.view
        cdef bint is_plain = is_plain_word(view.kind), has_all = True
        cdef Py_ssize_t first, rows
        cdef uint8_t* words
        cdef uint8_t* presence = NULL
        self.scratch.reserve(9 * SLICE)
        words = self.scratch.data
        if visible != NULL or view.validity != NULL:
            presence = words + 8 * SLICE
            has_all = False
        first = 0
        while first < view.rows:
            rows = min(view.rows - first, <Py_ssize_t>SLICE)
            if is_adding:
                self.words.make_room(rows)
            with nogil:
                if not has_all:
                    mark_presence(view, visible, first, rows, presence)
                if is_plain:
                    self.words.find_words(view.values + 8 * first, presence, rows, out + first, is_adding)
                else:
                    make_words(view, first, rows, words)
                    self.words.find_words(words, presence, rows, out + first, is_adding)
            first += rows
        return 0

    cdef object column_of_words(self, const int32_t* ids, Py_ssize_t rows):
        cdef ColumnBuilder out = ColumnBuilder(self.types[0])
        cdef const uint64_t* words = <const uint64_t*>self.words.words.data
        cdef Py_ssize_t row
        out.reserve(rows, 0)
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows:
                    prefetch(words + ids[row + AHEAD])
                out.present[row] = ids[row] != self.words.null_number
                out.nulls += not out.present[row]
                put_word(out, row, words[ids[row]])
        out.rows = rows
        return out.finish_column()


cdef Py_ssize_t first_beyond(const int32_t* ids, Py_ssize_t rows, Py_ssize_t count) noexcept nogil:
    """The index of an id that is negative or not below `count`, else -1."""
    cdef uint32_t greatest = 0
    cdef Py_ssize_t row
    for row in range(rows):
        greatest = max(greatest, <uint32_t>ids[row])
    if rows == 0 or greatest < count:
        return -1
    for row in range(rows):
        if <uint32_t>ids[row] == greatest:
            return row
    return -1


cdef void mark_presence(const ColumnView* view, const uint8_t* visible, Py_ssize_t first, Py_ssize_t rows,
                        uint8_t* presence) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(rows):
        presence[row] = NO_WORD if is_null(view, first + row) else PRESENT
    if visible != NULL:
        for row in range(rows):
            presence[row] = presence[row] if visible[first + row] else SKIPPED


cdef void make_words(const ColumnView* view, Py_ssize_t first, Py_ssize_t rows, uint8_t* words) noexcept nogil:
    """The words of rows [first, first + rows); unspecified for a NULL row."""
    cdef Py_ssize_t row
    for row in range(rows):
        (<uint64_t*>words)[row] = word_of(view, first + row)


cdef inline void put_word(ColumnBuilder out, Py_ssize_t row, uint64_t word) noexcept nogil:
    """The value of a word: the inverse of `word_of`."""
    cdef double wide
    cdef float small
    if out.width == 8:
        (<uint64_t*>out.values)[row] = word
    elif out.kind == REAL:
        memcpy(&wide, &word, 8)
        small = <float>wide
        memcpy(out.values + 4 * row, &small, 4)
    else:
        memcpy(out.values + out.width * row, &word, out.width)
