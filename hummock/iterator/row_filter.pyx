"""RowRules: which stored rows are no longer visible to readers at an epoch.

Rows older than their table's time to live, rows that a vnode's key watermark has passed, and all rows of dropped
tables are hidden from readers at once, whether or not a compaction has dropped them: both use these rules.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from hummock.base.key cimport SPILL_MASK, Slice, head_of, slice_of

from hummock.base.table_rules import TableRules

cdef uint64_t NEVER_AGAIN = ~<uint64_t>0    # above every epoch
cdef uint64_t LAST_VNODE = 0xFFFFFFFFFFFF
cdef uint8_t NOTHING = 0                # target of the pointer of an empty mark


cdef class TableRowRules:

    def __cinit__(self, rules not None, bint is_dropped=False):
        cdef TableMarks* watermark
        cdef Py_ssize_t at = 0
        self.rules, self.ttl_ms, self.is_dropped, self.held = rules, rules.ttl_ms, is_dropped, []
        self.marks = <VnodeMark*>calloc(sum([len(mark.marks) for mark in rules.watermarks]) + 1, sizeof(VnodeMark))
        self.watermarks = <TableMarks*>calloc(len(rules.watermarks) + 1, sizeof(TableMarks))
        if self.marks == NULL or self.watermarks == NULL:
            raise MemoryError
        for mark in rules.watermarks:
            watermark = &self.watermarks[self.watermark_count]
            self.watermark_count += 1
            watermark.epoch, watermark.is_descending = mark.epoch & ~SPILL_MASK, mark.is_descending
            watermark.marks, watermark.count = &self.marks[at], len(mark.marks)
            for first, last, key in mark.marks:
                self.held.append(key)
                self.marks[at].first, self.marks[at].last, self.marks[at].key.size = first, last, len(key)
                self.marks[at].key.data = <const uint8_t*><const char*>(<bytes>key) if key else &NOTHING
                at += 1

    def __dealloc__(self):
        free(self.marks)
        free(self.watermarks)


cdef TableRowRules DROPPED = TableRowRules(TableRules(), True)


cdef class RowRules:
    """`tables`: TableRules by table id; `dropped`: ids of dropped tables. Immutable.

    `previous`: rules whose unchanged tables are reused.
    """

    def __init__(self, tables, RowRules previous=None, dropped=()):
        cdef RuledTable* table
        cdef dict known = previous.by_table if previous is not None else {}
        cdef dict found = dict.fromkeys(dropped, DROPPED)
        for table_id, rules in tables.items():
            if table_id not in found and (rules.ttl_ms or rules.watermarks):
                held = known.get(table_id)
                is_known = held is not None and held.rules is rules
                found[table_id] = held if is_known else TableRowRules(rules)
        self.by_table = dict(sorted(found.items()))
        self.tables = <RuledTable*>calloc(<size_t>len(self.by_table) + 1, sizeof(RuledTable))
        if self.tables == NULL:
            raise MemoryError
        for table_id, held in self.by_table.items():
            table = &self.tables[self.count]
            self.count += 1
            table.table_id, table.rules = table_id, <void*>held

    def __dealloc__(self):
        free(self.tables)

    cdef VnodeRule rule_of(self, uint64_t table_vnode, uint64_t epoch) noexcept nogil:
        cdef VnodeRule out
        cdef Py_ssize_t low = 0, high = self.count, middle, number
        cdef uint64_t now_ms = epoch >> 16
        cdef const TableMarks* watermark
        cdef uint64_t ttl_ms
        out.oldest, out.mark.data, out.mark.size, out.is_descending, out.is_any = 0, NULL, 0, False, False
        while low < high:
            middle = (low + high) >> 1
            if self.tables[middle].table_id < table_vnode >> 16:
                low = middle + 1
            else:
                high = middle
        if low == self.count or self.tables[low].table_id != table_vnode >> 16:
            return out
        out.is_any, ttl_ms = True, (<TableRowRules>self.tables[low].rules).ttl_ms
        if (<TableRowRules>self.tables[low].rules).is_dropped:
            out.oldest = NEVER_AGAIN
            return out
        out.oldest = (now_ms - ttl_ms) << 16 if 0 < ttl_ms < now_ms else 0
        for number in range((<TableRowRules>self.tables[low].rules).watermark_count):
            watermark = &(<TableRowRules>self.tables[low].rules).watermarks[number]
            if watermark.epoch <= epoch:
                out.is_descending = watermark.is_descending
                out.mark = mark_of(watermark, <uint16_t>table_vnode)
                break
        return out

    cdef void move_hold(self, RuleHold* hold, uint64_t table_vnode, uint64_t epoch) noexcept nogil:
        cdef uint64_t after
        cdef int at
        hold.table_vnode, hold.rule = table_vnode, self.rule_of(table_vnode, epoch)
        after = table_vnode + 1 if hold.rule.is_any else ((table_vnode >> 16) + 1) << 16
        for at in range(TABLE_VNODE_BYTES):
            hold.limit[at] = <uint8_t>((after if after <= LAST_VNODE else 0) >> (8 * (TABLE_VNODE_BYTES - 1 - at)))

    def hides_row(self, bytes user_key not None, uint64_t written, uint64_t epoch) -> bool:
        """Whether a row of `user_key` written at `written` is hidden from readers at `epoch`."""
        cdef Slice key
        cdef VnodeRule rule
        key = slice_of(user_key)
        rule = self.rule_of(head_of(key.data, key.size) >> 16, epoch)
        return hides(&rule, key, written)


cdef Slice mark_of(const TableMarks* watermark, uint16_t vnode) noexcept nogil:
    """The watermark's table key for a vnode; data is NULL if it has none."""
    cdef Py_ssize_t low = 0, high = watermark.count, middle
    cdef Slice out
    while low < high:
        middle = (low + high) >> 1
        if watermark.marks[middle].last < vnode:
            low = middle + 1
        else:
            high = middle
    out.data, out.size = NULL, 0
    return watermark.marks[low].key if low < watermark.count and watermark.marks[low].first <= vnode else out
