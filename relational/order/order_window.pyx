"""The effect of a batch of changes on the rows [offset, offset + limit) of an order, or of each group of it.

Top-n maintains such a window: after a batch it emits the rows that left the window and the rows that entered it. Groups
are keys with a common prefix. The window is read before and after, so a batch costs the size of its groups' windows,
not the size of the order.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from hummock.base.key cimport Slice, begins_with, compare_bytes
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.hash.bytes_interner cimport BytesInterner
from relational.order.ordered_index cimport OrderedIndex
from relational.order.sorted_leaves cimport KeyPosition, KeySlot


def update_window(OrderedIndex index not None, BinaryColumn keys not None, BinaryColumn values,
                  const uint8_t[::1] ops, int64_t offset, int64_t limit, const int32_t[::1] prefix_bytes=None):
    """Applies a batch as `index.update` does; returns (keys, values) that left and (keys, values) that entered.

    `prefix_bytes` (int32[rows]): the length of each key's prefix that identifies its group; None: one group. Within a
    group both results ascend. REQUIRES that the windows are before the index's bound. ValueError for an invalid window
    or prefix, ConsistencyError as `update`.
    """
    cdef BytesInterner groups = BytesInterner()
    cdef BinaryColumnBuilder prefixes = BinaryColumnBuilder()
    cdef BinaryColumnBuilder left_keys = BinaryColumnBuilder(), left_values = BinaryColumnBuilder()
    cdef BinaryColumnBuilder new_keys = BinaryColumnBuilder(), new_values = BinaryColumnBuilder()
    cdef ByteBuffer before = ByteBuffer(), after = ByteBuffer(), ends = ByteBuffer()
    cdef Py_ssize_t group, row, start = 0
    cdef Slice prefix
    if offset < 0 or limit < 0 or (prefix_bytes is not None and prefix_bytes.shape[0] != keys.rows):
        raise ValueError(f"a window of {limit} rows behind {offset}")
    for row in range(keys.rows if prefix_bytes is not None else min(keys.rows, <Py_ssize_t>1)):
        prefix = keys.at(row)
        if prefix_bytes is not None and not 0 <= prefix_bytes[row] <= prefix.size:
            raise ValueError(f"a prefix of {prefix_bytes[row]} of {prefix.size} bytes in row {row}")
        prefix.size = 0 if prefix_bytes is None else prefix_bytes[row]
        prefixes.append(prefix)
    groups.find(prefixes.finish())
    ends.reserve(groups.count * sizeof(int64_t))
    with nogil:
        for group in range(groups.count):
            collect(index, groups.key(group), offset, limit, before)
            (<int64_t*>ends.data)[group] = before.size
    index.apply(keys, values, ops)
    with nogil:
        for group in range(groups.count):
            after.size = 0
            collect(index, groups.key(group), offset, limit, after)
            compare(index, before.data + start, (<int64_t*>ends.data)[group] - start, after,
                    left_keys, left_values, new_keys, new_values)
            start = (<int64_t*>ends.data)[group]
    index.settle()
    return (left_keys.finish(), left_values.finish()), (new_keys.finish(), new_values.finish())


cdef int collect(OrderedIndex index, Slice prefix, int64_t offset, int64_t limit, ByteBuffer slots) except -1 nogil:
    """Appends a KeySlot for each copy in the window of the keys that begin with `prefix`."""
    cdef KeyPosition position
    cdef const KeySlot* slot
    cdef int64_t rank = index.rank_of(prefix) + offset, taken = 0
    cdef bint is_there = index.seek(rank, &position)
    while is_there and taken < limit:
        slot = &index.leaf_at(position.leaf).leaf.slots[position.slot]
        if not begins_with(index.key_at(slot), prefix):
            break
        slots.append(<const uint8_t*>slot, sizeof(KeySlot))
        taken += 1
        is_there = index.step(&position, False)
    return 0


cdef int compare(OrderedIndex index, const uint8_t* before, Py_ssize_t before_bytes, ByteBuffer after,
                 BinaryColumnBuilder left_keys, BinaryColumnBuilder left_values, BinaryColumnBuilder new_keys,
                 BinaryColumnBuilder new_values) except -1 nogil:
    """Appends the entries that are in one of two ascending windows only. Removed keys are still in the arena."""
    cdef const KeySlot* old = <const KeySlot*>before
    cdef const KeySlot* new = <const KeySlot*>after.data
    cdef Py_ssize_t olds = before_bytes // sizeof(KeySlot), news = after.size // sizeof(KeySlot), i = 0, j = 0
    cdef int order
    while i < olds or j < news:
        order = -1 if j == news else 1 if i == olds else compare_bytes(index.key_at(&old[i]), index.key_at(&new[j]))
        if order == 0 and compare_bytes(index.value_at(&old[i]), index.value_at(&new[j])) == 0:
            i, j = i + 1, j + 1
            continue
        if order <= 0:
            left_keys.append(index.key_at(&old[i]))
            left_values.append(index.value_at(&old[i]))
            i += 1
        if order >= 0:
            new_keys.append(index.key_at(&new[j]))
            new_values.append(index.value_at(&new[j]))
            j += 1
    return 0
