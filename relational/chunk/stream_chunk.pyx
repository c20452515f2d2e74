"""StreamChunk: rows with ops, that is, changes.

Every row has an op. An update is two consecutive rows, U- with the old values and U+ with the new ones; a pair is never
split across chunks. If its halves are separated (one is hidden, routed to another target, or of another key) they
become a plain delete and a plain insert, in that order [R7].
"""

from enum import IntEnum

import numpy as np
import pyarrow as pa

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from relational.chunk.canonical cimport equal_values
from relational.chunk.column cimport LONG_WORK, Column, ColumnView, check_mask, is_nested, width_of
from relational.chunk.data_chunk cimport DataChunk, as_mask, mask_pointer, shown_rows
from relational.chunk.gather cimport gather
from relational.chunk.scalar cimport load32, load64

from relational.chunk.arrow_export import changes_from, rows_to_arrow
from relational.chunk.data_chunk import columns_of_rows, concat_columns, concat_masks
from relational.chunk.text import format_changes
from relational.types.vnode_rule import VnodeRule


class Op(IntEnum):
    """The op of a row of a stream. Bit 0: it is deleted; bit 1: it is half of an update."""

    INSERT = 0
    DELETE = 1
    UPDATE_INSERT = 2
    UPDATE_DELETE = 3

    def __str__(self) -> str:
        return ("+", "-", "U+", "U-")[self]


cdef class StreamChunk(DataChunk):
    """Changes. `ops` is uint8[capacity] of Op, in addition to the columns and the visibility of a DataChunk."""

    def __init__(self, columns, ops, visibility=None):
        """Columns (or Arrow arrays) and ops of equal length."""
        self.setup(columns, visibility, len(ops))
        check_mask(ops, self.capacity)
        self.ops = ops

    cdef DataChunk rebuilt(self, tuple columns, object visibility):
        cdef StreamChunk out = StreamChunk.__new__(StreamChunk)
        out.setup(columns, visibility, self.capacity)
        out.ops, out.absent = self.ops, self.absent
        return out

    cdef DataChunk picked(self, object indices):
        cdef StreamChunk out = StreamChunk.__new__(StreamChunk)
        out.setup(gather([(self.columns, indices)]), None, len(indices))
        out.ops, out.absent = taken_ops(self.ops, indices), self.absent
        return out

    cdef uint8_t bits_of_ops(self) except? 0xFF:
        cdef const uint8_t* ops = self.op_pointer()
        cdef Py_ssize_t row, rows = self.capacity
        cdef uint8_t seen = 0
        if self.absent == 0:
            with nogil:
                for row in range(rows):
                    seen |= ops[row]
            self.absent = ~seen
        return ~self.absent

    @property
    def op_bits(self) -> int:
        """The bits that some op has, those of hidden rows included, or one of a chunk from which this was made."""
        return self.bits_of_ops()

    @staticmethod
    def from_rows(schema, changes) -> StreamChunk:
        """A chunk of (op, row) pairs. EncodingError if a value is not of its column's type."""
        changes = list(changes)
        ops = np.array([int(op) for op, _ in changes], dtype=np.uint8)
        return StreamChunk(columns_of_rows(schema, [tuple(row) for _, row in changes]), ops)

    @staticmethod
    def from_arrow(source) -> StreamChunk:
        """The changes of any object that implements Arrow's PyCapsule protocol: its column `_op` (0 to 3, see Op)
        contains the ops; without one all rows are inserts. Raises the errors of `DataChunk.from_arrow`, and ValueError
        for other ops.
        """
        columns, ops = changes_from(source)
        return StreamChunk(columns, ops)

    def as_struct(self) -> pa.StructArray:
        """All rows in the exported form, hidden ones too, followed by their ops."""
        return rows_to_arrow(self.arrays, self.capacity, self.ops)

    @staticmethod
    def inserts(DataChunk chunk) -> StreamChunk:
        """All rows of a DataChunk as inserts."""
        cdef StreamChunk out = StreamChunk(chunk.columns, np.zeros(chunk.capacity, np.uint8), chunk.visibility)
        out.absent = 0xFF
        return out

    @staticmethod
    def updates(DataChunk old, DataChunk new) -> StreamChunk:
        """U- of each row of `old`, then U+ of the same row of `new`. A column that both have is not compared. REQUIRES
        dense rows, as many of both, of the same types."""
        cdef Py_ssize_t rows = old.capacity, at
        cdef StreamChunk out = StreamChunk.__new__(StreamChunk)
        order = np.arange(2 * rows, dtype=np.int32)
        first = order >> 1
        alike = [at for at in range(len(old.columns)) if old.columns[at] is new.columns[at]]
        kept = gather([(tuple([old.columns[at] for at in alike]), first)])
        changed = [at for at in range(len(new.columns)) if old.columns[at] is not new.columns[at]]
        both = tuple([      # all old values, then all new ones
            Column(pa.concat_arrays([(<Column>old.columns[at]).array, (<Column>new.columns[at]).array]))
            for at in changed
        ])
        if rows > 1:
            both = gather([(both, first + rows * (order & 1))])
        placed = dict(zip([*alike, *changed], [*kept, *both], strict=True))
        out.setup([placed[at] for at in range(len(new.columns))], None, 2 * rows)
        out.ops = UPDATE_DELETE - (order & 1).astype(np.uint8)
        return out

    def to_pretty(self) -> str:
        """The visible changes, one per line: `U- 1 a`; the syntax is in `relational.chunk.text`."""
        return format_changes(self.changes())

    def changes(self):
        """Iterates the visible changes as (Op, row)."""
        dense = self.compact()
        return zip([Op(op) for op in dense.ops.tolist()], dense.rows(), strict=True)

    def with_ops(self, ops) -> StreamChunk:
        """The same rows with other ops."""
        return StreamChunk(self.columns, ops, self.visibility)

    def filter(self, keep) -> StreamChunk:
        """Hides the rows where `keep` (a mask, or a BOOLEAN column whose NULL is false) is not 1.

        An update with one visible half left becomes a plain insert or delete.
        """
        keep = as_mask(keep, self.capacity)
        visibility = keep if self.visibility is None else keep & self.visibility
        cdef StreamChunk out = StreamChunk(self.columns, ops_where_pairs_differ(self, visibility), visibility)
        out.absent = self.absent
        return out

    def slice(self, Py_ssize_t start, Py_ssize_t rows) -> StreamChunk:
        """Rows [start, start + rows), sharing the memory. REQUIRES that no update pair is split."""
        visibility = None if self.visibility is None else self.visibility[start:start + rows]
        columns = [column.slice(start, rows) for column in self.columns]
        return StreamChunk(columns, self.ops[start:start + rows], visibility)

    def split_by_vnode(self, key_columns, vnode_map, rule=VnodeRule.HASH) -> dict:
        """target -> the changes whose key columns have a vnode of that target, by `rule`, for targets with any.

        The chunks share this one's columns and differ in visibility; an update whose halves have different targets
        becomes a delete at the one and an insert at the other. Edges that part the rows in the same way share the work.
        """
        how = (tuple(key_columns), rule, vnode_map.partition)
        if self.known_parts is None or self.known_parts[0] != how:
            self.known_parts = (how, *parts_of(self, how[0], vnode_map, rule))
        _, ops, masks, shown = self.known_parts
        cdef dict parts = {}
        cdef StreamChunk part
        for owner, mask, rows in zip(vnode_map.owners.tolist(), masks, shown, strict=True):
            if rows:
                part = parts[owner] = StreamChunk(self.columns, ops, mask)
                part.counted, part.absent = rows, self.absent
        return parts

    def without_unchanged_updates(self) -> StreamChunk:
        """Hides update pairs with equal halves, which a projection may produce."""
        if not self.bits_of_ops() & UPDATE_INSERT:
            return self
        mask = np.ones(self.capacity, np.uint8) if self.visibility is None else self.visibility.copy()
        return self.with_visibility(mask) if hide_unchanged(self, mask) else self

    @staticmethod
    def concat(chunks) -> StreamChunk:
        """Concatenates the changes of `chunks`; the same types, at least one chunk."""
        ops = np.concatenate([chunk.ops for chunk in chunks])
        return StreamChunk(concat_columns(chunks), ops, concat_masks(chunks))

    @staticmethod
    def compacted(chunks) -> StreamChunk:
        """The visible changes of `chunks` densely, one chunk after the other; the same types, at least one chunk."""
        if len(chunks) == 1:
            return chunks[0].compact()
        shown = [shown_rows(chunk) for chunk in chunks]
        cdef StreamChunk out = StreamChunk.__new__(StreamChunk)
        columns = gather([(chunk.columns, rows) for chunk, rows in zip(chunks, shown, strict=True)])
        out.setup(columns, None, sum([len(rows) for rows in shown]))
        out.absent = 0xFF
        for chunk in chunks:
            out.absent &= (<StreamChunk>chunk).absent
        if out.absent == 0xFF:
            out.ops = np.zeros(out.capacity, np.uint8)
        else:
            out.ops = np.concatenate([taken_ops(chunk.ops, rows) for chunk, rows in zip(chunks, shown, strict=True)])
        return out

    def __str__(self) -> str:
        return self.to_pretty()

    def __reduce__(self):
        return StreamChunk, (self.columns, self.ops, self.visibility)


cdef object taken_ops(const uint8_t[::1] ops, const int32_t[::1] rows):
    """The ops of `rows`; the first op where a row is negative."""
    taken = np.zeros(rows.shape[0], np.uint8)
    cdef uint8_t[::1] out = taken
    cdef Py_ssize_t count = rows.shape[0]
    if count == 0 or ops.shape[0] == 0:
        return taken
    if count < LONG_WORK // 4:
        take_bytes(&ops[0], &rows[0], count, &out[0])
    else:
        with nogil:
            take_bytes(&ops[0], &rows[0], count, &out[0])
    return taken


cdef void take_bytes(const uint8_t* source, const int32_t* rows, Py_ssize_t count, uint8_t* out) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(count):
        out[row] = source[max(rows[row], 0)]


cdef object ops_where_pairs_differ(StreamChunk chunk, object visibility):
    """The ops after applying `visibility`: U-/U+ of which not both are visible become -/+."""
    cdef const uint8_t* shown = mask_pointer(visibility)
    cdef const uint8_t* ops = chunk.op_pointer()
    cdef Py_ssize_t rows = chunk.capacity
    cdef uint8_t[::1] out
    if not chunk.bits_of_ops() & UPDATE_INSERT:
        return chunk.ops
    changed = chunk.ops.copy()
    out = changed
    if rows < LONG_WORK // 2:
        separate_pairs(ops, shown, rows, &out[0])
    else:
        with nogil:
            separate_pairs(ops, shown, rows, &out[0])
    return changed


cdef void separate_pairs(const uint8_t* ops, const uint8_t* shown, Py_ssize_t rows, uint8_t* out) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(rows):
        if ops[row] == UPDATE_DELETE:
            if row + 1 >= rows or ops[row + 1] != UPDATE_INSERT or shown[row] != shown[row + 1]:
                out[row] = DELETE
        elif ops[row] == UPDATE_INSERT:
            if row == 0 or ops[row - 1] != UPDATE_DELETE or shown[row] != shown[row - 1]:
                out[row] = INSERT


cdef tuple parts_of(StreamChunk chunk, tuple key_columns, vnode_map, rule):
    """(ops, mask per owner of vnodes, visible rows of each): the mask of an owner shows the visible rows of its vnodes.
    Separated updates become -/+."""
    cdef const uint16_t[::1] vnodes = chunk.vnodes(key_columns, vnode_map.vnode_count, rule)
    cdef const int32_t[::1] owner_indices = vnode_map.owner_indices
    cdef const uint8_t* visible = mask_pointer(chunk.visibility)
    cdef const uint8_t* given = chunk.op_pointer()
    cdef Py_ssize_t rows = chunk.capacity
    cdef Py_ssize_t owners = len(vnode_map.owners)
    cdef uint8_t[:, ::1] marked = np.empty((owners, rows), np.uint8)
    cdef int64_t[::1] shown = np.zeros(owners, np.int64)
    ops = chunk.ops.copy() if chunk.bits_of_ops() & UPDATE_INSERT else chunk.ops
    cdef const uint8_t[::1] view = ops
    cdef uint8_t* out = <uint8_t*>&view[0] if rows else NULL    # only updates are written, so only to a copy
    if rows == 0:
        pass
    elif rows < LONG_WORK // 4:
        mark_parts(visible, given, rows, &vnodes[0], &owner_indices[0], owners, &marked[0, 0], &shown[0], out)
    else:
        with nogil:
            mark_parts(visible, given, rows, &vnodes[0], &owner_indices[0], owners, &marked[0, 0], &shown[0], out)
    return ops, list(np.asarray(marked)), np.asarray(shown).tolist()


cdef void mark_parts(const uint8_t* visible, const uint8_t* given, Py_ssize_t rows, const uint16_t* vnodes,
                     const int32_t* owner_indices, Py_ssize_t owners, uint8_t* masks, int64_t* shown,
                     uint8_t* ops) noexcept nogil:
    cdef Py_ssize_t row
    cdef int32_t owner, before = -1
    cdef uint8_t is_shown
    memset(masks, 0, <size_t>(owners * rows))
    for row in range(rows):
        owner = owner_indices[vnodes[row]]
        is_shown = visible[row] if visible != NULL else 1
        masks[owner * rows + row] = is_shown
        shown[owner] += is_shown
        if given[row] == UPDATE_INSERT and before != owner and row > 0 and given[row - 1] == UPDATE_DELETE:
            ops[row - 1], ops[row] = DELETE, INSERT
        before = owner


cdef Py_ssize_t hide_unchanged(StreamChunk chunk, object mask) except -1:
    """Clears in `mask` the visible pairs without a change; returns their number. A column is only compared in the pairs
    that were equal in all columns before it."""
    cdef uint8_t[::1] out = mask
    cdef int32_t[::1] equal = np.empty(chunk.capacity, np.int32)
    cdef const uint8_t* ops = chunk.op_pointer()
    cdef Py_ssize_t i, count = len(chunk.columns), pairs = 0, rows = chunk.capacity
    cdef const ColumnView** views
    if rows == 0:
        return 0
    views = <const ColumnView**>malloc((count + 1) * sizeof(ColumnView*))
    if views == NULL:
        raise MemoryError(f"no memory to compare {count} columns")
    for i in range(count):
        views[i] = &(<Column>chunk.columns[i]).view
    if rows * count < LONG_WORK:
        pairs = hide_equal_pairs(ops, views, count, rows, &equal[0], &out[0])
    else:
        with nogil:
            pairs = hide_equal_pairs(ops, views, count, rows, &equal[0], &out[0])
    free(views)
    return pairs


cdef Py_ssize_t hide_equal_pairs(const uint8_t* ops, const ColumnView** views, Py_ssize_t count, Py_ssize_t rows,
                                 int32_t* equal, uint8_t* shown) noexcept nogil:
    cdef Py_ssize_t i, pairs = find_pairs(ops, shown, rows, equal)
    for i in range(count):
        pairs = equal_pairs(views[i], equal, pairs)
    for i in range(pairs):
        shown[equal[i]] = shown[equal[i] + 1] = 0
    return pairs


cdef Py_ssize_t find_pairs(const uint8_t* ops, const uint8_t* shown, Py_ssize_t rows, int32_t* found) noexcept nogil:
    """The first rows of the visible update pairs; returns their number."""
    cdef Py_ssize_t row, pairs = 0
    for row in range(rows - 1):
        found[pairs] = <int32_t>row
        pairs += (ops[row] == UPDATE_DELETE) & (ops[row + 1] == UPDATE_INSERT) & (shown[row] & shown[row + 1])
    return pairs


cdef Py_ssize_t equal_pairs(const ColumnView* view, int32_t* rows, Py_ssize_t count) noexcept nogil:
    """Keeps those of `rows` whose value is exactly that of the next row; returns their number."""
    cdef Py_ssize_t i, row, kept = 0
    cdef int width = 0 if view.validity != NULL or is_nested(view.kind) else width_of(view.kind)
    if width == 8:
        for i in range(count):
            row = rows[i]
            rows[kept] = <int32_t>row
            kept += load64(view.values + 8 * row) == load64(view.values + 8 * row + 8)
    elif width == 4:
        for i in range(count):
            row = rows[i]
            rows[kept] = <int32_t>row
            kept += load32(view.values + 4 * row) == load32(view.values + 4 * row + 4)
    else:
        for i in range(count):
            row = rows[i]
            rows[kept] = <int32_t>row
            kept += equal_values(view, row, view, row + 1, True)
    return kept
