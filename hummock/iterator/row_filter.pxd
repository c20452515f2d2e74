"""RowRules: which stored rows are no longer visible to readers at an epoch."""

cimport cython
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from hummock.base.key cimport Slice, compare_bytes, head_of

cdef enum:
    TABLE_VNODE_BYTES = 6               # of a user key: table id and vnode


cdef struct VnodeRule:                  # the rules for one vnode's rows and readers at one epoch
    uint64_t oldest                     # rows of earlier pure epochs are expired; 0: none are
    Slice mark                          # table key of the watermark; data NULL: none. Owner: RowRules
    bint is_descending                  # rows above the watermark are hidden, else those below
    bint is_any                         # the table has rules, so those of another vnode may differ


cdef struct RuleHold:                   # the current rule of an iteration
    uint64_t table_vnode                # table id and vnode that `rule` is for; all ones before the first
    VnodeRule rule
    uint8_t limit[TABLE_VNODE_BYTES]    # the first table and vnode for which `rule` need not hold; zeros: there is none


cdef struct VnodeMark:
    uint16_t first, last                # vnodes
    Slice key


cdef struct TableMarks:                 # one KeyWatermark
    uint64_t epoch
    bint is_descending
    VnodeMark* marks                    # ascending, disjoint
    Py_ssize_t count


cdef inline bint is_passed(const VnodeRule* rule, Slice user_key) noexcept nogil:
    """Whether the vnode's watermark has passed this key."""
    cdef Slice key
    cdef int order
    if rule.mark.data == NULL or user_key.size < TABLE_VNODE_BYTES:
        return False
    key.data, key.size = user_key.data + TABLE_VNODE_BYTES, user_key.size - TABLE_VNODE_BYTES
    order = compare_bytes(key, rule.mark)
    if not rule.is_descending:
        return order < 0
    # a key that begins with the mark is at the mark, not past it
    return order > 0 and (
        key.size < rule.mark.size or memcmp(key.data, rule.mark.data, <size_t>rule.mark.size) != 0)


cdef inline bint hides(const VnodeRule* rule, Slice user_key, uint64_t epoch) noexcept nogil:
    """Whether readers no longer see a row that was written at `epoch`."""
    return epoch < rule.oldest or is_passed(rule, user_key)


cdef class TableRowRules:
    """The rules of one table. Immutable."""
    cdef readonly object rules          # TableRules
    cdef uint64_t ttl_ms
    cdef bint is_dropped                # no row of the table is visible
    cdef list held                      # owner of the bytes that `marks` point to
    cdef VnodeMark* marks               # of all watermarks; owned
    cdef TableMarks* watermarks         # newest first; owned
    cdef Py_ssize_t watermark_count


cdef struct RuledTable:
    uint32_t table_id
    void* rules                         # TableRowRules, borrowed from RowRules.by_table


@cython.final
cdef class RowRules:
    cdef dict by_table                  # table id -> TableRowRules
    cdef RuledTable* tables             # ascending; owned
    cdef readonly Py_ssize_t count      # 0: no row is ever hidden

    cdef VnodeRule rule_of(self, uint64_t table_vnode, uint64_t epoch) noexcept nogil
    # for readers at that epoch, of keys whose first six bytes are the integer `table_vnode`

    cdef void move_hold(self, RuleHold* hold, uint64_t table_vnode, uint64_t epoch) noexcept nogil

    cdef inline bint hides_at(self, RuleHold* hold, Slice user_key, uint64_t written, uint64_t epoch) noexcept nogil:
        """Whether a row is hidden from readers at `epoch`; moves `hold` to its vnode. REQUIRES one epoch per `hold`."""
        cdef uint64_t table_vnode = head_of(user_key.data, user_key.size) >> 16
        if table_vnode != hold.table_vnode:
            self.move_hold(hold, table_vnode, epoch)
        return hides(&hold.rule, user_key, written)
