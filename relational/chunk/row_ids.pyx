"""Row ids: the generated keys of tables and sources that declare none.

    id, BIGINT   0 | milliseconds 41 | vnode 10 | sequence 12        VnodeRule.ROW_ID, and tables that hash their ids
                 0 | milliseconds 41 | vnode 15 | sequence 7         VnodeRule.WIDE_ROW_ID

The milliseconds (since April 2021) are those of the epoch in which the row is inserted, so they are above every epoch
that was committed before, whatever the machine's clock says, and no id is reused after a recovery. They run ahead of
the epoch by one for each 4,096 rows (128 in the second layout) times the vnodes of the generator, which is orders of
magnitude more than it generates in a millisecond, unless it has a few vnodes only. The vnode is one of its own, so the
ids of parallel actors never collide [R5].

One counter gives out the ids in blocks of BLOCK_ROWS rows of one vnode each, within which ids ascend [R20]. The vnodes
take turns in steps of about 0.618 of their number, so that consecutive blocks are far apart and all actors that share
the vnodes of a later table get rows of each chunk; the turn goes on across epochs, and begins where the first epoch
says, so that small epochs fill all vnodes evenly.
"""

from libc.stdint cimport int64_t

import numpy as np

from relational.types.vnode_rule import ROW_ID_TIME_SHIFT, VnodeRule

cdef enum:
    BLOCK_ROWS = 128            # divides the sequence numbers of every layout
cdef double GOLDEN = 0.6180339887498949


cdef class RowIdGenerator:
    """Generates ids that are all different, and ascend within each vnode. REQUIRES `open_epoch` before the first."""
    cdef int64_t[::1] vnodes            # shifted to their bits, in the order of their turns
    cdef int sequence_bits
    cdef int64_t millisecond            # of the epoch
    cdef int64_t given                  # ids since `millisecond` began
    cdef Py_ssize_t first_turn          # index in `vnodes` of the block with which it began
    cdef readonly int64_t last_millisecond      # that of the last id; 0 before the first

    def __init__(self, vnodes, rule=VnodeRule.ROW_ID):
        """`vnodes`: those of this generator, in a layout of `rule`. ValueError for none, or for more than it has."""
        own = np.unique(np.asarray(vnodes, dtype=np.int64))
        if not len(own) or own[0] < 0 or own[len(own) - 1] >= 1 << rule.vnode_bits:
            raise ValueError(f"vnodes of row ids are 0 to {(1 << rule.vnode_bits) - 1}, at least one")
        self.sequence_bits = rule.sequence_bits
        self.vnodes = own[scattered_order(len(own))] << self.sequence_bits

    def open_epoch(self, int64_t millisecond) -> None:
        """Later ids are at or above the milliseconds of an epoch."""
        if self.millisecond == 0:
            self.first_turn = millisecond % self.vnodes.shape[0]
        if millisecond > self.millisecond:
            self.begin(millisecond)

    def skip_past(self, int64_t row_id) -> None:
        """Later ids are above `row_id`, which was generated before a recovery."""
        cdef int64_t millisecond = row_id >> ROW_ID_TIME_SHIFT
        if millisecond >= self.millisecond + self.given // self.per_millisecond():
            self.begin(millisecond + 1)

    def next_ids(self, Py_ssize_t count) -> np.ndarray:
        """The next `count` ids, int64."""
        ids = np.empty(count, np.int64)
        cdef int64_t[::1] out = ids
        if count > 0:
            self.fill(&out[0], count)
            self.last_millisecond = self.millisecond + (self.given - 1) // self.per_millisecond()
        return ids

    cdef void begin(self, int64_t millisecond) noexcept nogil:
        cdef int64_t blocks = (self.given + BLOCK_ROWS - 1) // BLOCK_ROWS
        self.first_turn = (self.first_turn + blocks) % self.vnodes.shape[0]
        self.millisecond, self.given = millisecond, 0

    cdef int64_t per_millisecond(self) noexcept nogil:
        return <int64_t>self.vnodes.shape[0] << self.sequence_bits

    cdef void fill(self, int64_t* out, Py_ssize_t count) noexcept nogil:
        cdef int64_t within, cycle, turn, row, base, rows
        cdef int64_t turns = self.vnodes.shape[0], most = self.per_millisecond()
        while count > 0:
            within = self.given % most
            cycle, turn = within // (BLOCK_ROWS * turns), within // BLOCK_ROWS % turns
            base = (self.millisecond + self.given // most) << 22
            base |= self.vnodes[(self.first_turn + turn) % turns] | (cycle * BLOCK_ROWS + within % BLOCK_ROWS)
            rows = min(<int64_t>count, BLOCK_ROWS - within % BLOCK_ROWS)
            for row in range(rows):
                out[row] = base + row
            out += rows
            count -= rows
            self.given += rows


def scattered_order(Py_ssize_t count) -> np.ndarray:
    """int64[count]: each number below `count` once, consecutive ones far apart."""
    cdef int64_t step = max(<int64_t>(count * GOLDEN), <int64_t>1)
    while common_divisor(step, count) > 1:
        step += 1
    return np.arange(count, dtype=np.int64) * step % count


cdef int64_t common_divisor(int64_t a, int64_t b) noexcept nogil:
    while b > 0:
        a, b = b, a % b
    return a
