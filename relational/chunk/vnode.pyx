"""Virtual nodes: the partition of a row, the same in every process and at any time.

The vnode of a row is the CRC-32 (IEEE 802.3, as zlib computes it) of the bytes of its distribution key,
modulo the table's count of vnodes. The bytes are those of the values, not of an Arrow layout, and SQL-equal values have
equal bytes:

    BOOLEAN, integers    int64 LE (so an INT and a BIGINT of one value agree)
    DATE                 int64 LE, days since 1970-01-01
    TIME, TIMESTAMP(TZ)  int64 LE, microseconds
    REAL, DOUBLE         the double, LE; -0.0 as 0.0, every NaN as 7ff8000000000000
    NUMERIC              int128 LE mantissa, then u8 scale, without trailing zeros after the point
    INTERVAL             int128 LE microseconds of its length
    VARCHAR, BYTEA       the bytes, then ff
    JSONB                its canonical text, then ff
    STRUCT               its fields one after the other
    LIST                 its elements one after the other, then their count as int64 LE
    NULL                 fe

A row without a key has vnode 0. Tables with other rules than the hash: see `VnodeRule`. `encoding/FORMAT.md` specifies
all of them, with examples.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from relational.chunk.canonical cimport is_plain_word, pair_of, word_of
from relational.chunk.column cimport (
    Column, ColumnView, INT, INTERVAL, LIST, LONG_WORK, NUMERIC, STRUCT, as_column, has_bytes, is_null,
)
from relational.chunk.scalar cimport int128_t, load32, load64, uint128_t

from relational.types.vnode_rule import VnodeRule
from relational.types.vnodes import DEFAULT_VNODE_COUNT, MAX_VNODE_COUNT

cdef enum:
    BLOCK_ROWS = 1024                   # rows whose checksums are in the first-level cache
    NULL_BYTE = 0xFE
    TEXT_END = 0xFF                     # not a byte of UTF-8, so ('a', 'bc') and ('ab', 'c') differ

cdef uint32_t TABLES[8][256]            # TABLES[k][b]: CRC of byte b followed by k zero bytes


cdef void make_tables() noexcept nogil:
    cdef uint32_t byte, crc
    cdef int step
    for byte in range(256):
        crc = byte
        for step in range(8):
            crc = (crc >> 1) ^ (<uint32_t>0xEDB88320 if crc & 1 else 0)
        TABLES[0][byte] = crc
    for byte in range(256):
        for step in range(1, 8):
            TABLES[step][byte] = TABLES[0][TABLES[step - 1][byte] & 0xFF] ^ (TABLES[step - 1][byte] >> 8)


make_tables()


cdef inline uint32_t crc_byte(uint32_t crc, uint8_t byte) noexcept nogil:
    return TABLES[0][(crc ^ byte) & 0xFF] ^ (crc >> 8)


cdef inline uint32_t crc_word(uint32_t crc, uint64_t word) noexcept nogil:
    """Eight bytes, the lowest first."""
    word ^= crc
    return (TABLES[7][word & 0xFF] ^ TABLES[6][(word >> 8) & 0xFF] ^ TABLES[5][(word >> 16) & 0xFF]
            ^ TABLES[4][(word >> 24) & 0xFF] ^ TABLES[3][(word >> 32) & 0xFF] ^ TABLES[2][(word >> 40) & 0xFF]
            ^ TABLES[1][(word >> 48) & 0xFF] ^ TABLES[0][word >> 56])


cdef inline uint32_t crc_pair(uint32_t crc, uint128_t pair) noexcept nogil:
    return crc_word(crc_word(crc, <uint64_t>pair), <uint64_t>(pair >> 64))


cdef inline uint32_t crc_first(uint32_t crc, uint64_t word, int count) noexcept nogil:
    """The lowest `count` bytes, 1 to 8 of them, of a word whose others are zero.

    Zero bytes do not change a CRC of zero, so what is left of the CRC and the bytes count as the last ones of a word.
    """
    return crc_word(0, (word ^ crc) << 8 * (8 - count)) ^ <uint32_t>((<uint64_t>crc >> 8 * (count - 1)) >> 8)


cdef inline uint64_t last_bytes(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Those behind the last whole eight, as the lowest of a word of zeros."""
    cdef int count = <int>(size & 7)
    if count == 0:
        return 0
    if size >= 8:
        return load64(data + size - 8) >> 8 * (8 - count)
    if size >= 4:
        return load32(data) | <uint64_t>load32(data + size - 4) << 8 * (size - 4)
    return data[0] | <uint64_t>data[size >> 1] << 8 * (size >> 1) | <uint64_t>data[size - 1] << 8 * (size - 1)


cdef inline uint32_t crc_text(uint32_t crc, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef int count = <int>(size & 7)
    cdef Py_ssize_t at
    for at in range(0, size - 7, 8):
        crc = crc_word(crc, load64(data + at))
    return crc_first(crc, last_bytes(data, size) | <uint64_t>TEXT_END << 8 * count, count + 1)


cdef inline uint32_t crc_padded_text(uint32_t crc, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """As crc_text, without a branch by the size up to 15. REQUIRES 16 readable bytes behind it."""
    cdef uint32_t is_long
    cdef uint64_t bit
    while size > 15:
        crc = crc_word(crc, load64(data))
        data += 8
        size -= 8
    is_long = 0 - <uint32_t>(size >> 3)
    crc ^= (crc_word(crc, load64(data)) ^ crc) & is_long
    data += is_long & 8
    bit = <uint64_t>1 << 8 * (size & 7)
    return crc_first(crc, (load64(data) & (bit - 1)) | bit * TEXT_END, <int>(size & 7) + 1)


cdef inline uint32_t crc_decimal(uint32_t crc, const uint8_t* value, int scale) noexcept nogil:
    cdef int128_t number
    cdef uint128_t magnitude
    memcpy(&number, value, 16)
    magnitude = 0 - <uint128_t>number if number < 0 else <uint128_t>number
    while scale > 0 and magnitude % 10 == 0:
        magnitude //= 10
        scale -= 1
    if number < 0:
        magnitude = 0 - magnitude
    crc = crc_pair(crc, magnitude)
    return crc_byte(crc, <uint8_t>scale)


cdef uint32_t crc_value(const ColumnView* view, Py_ssize_t row, uint32_t crc) noexcept nogil:
    """Continues a CRC with the bytes of a value of any kind."""
    cdef int kind = view.kind
    cdef Py_ssize_t i
    if is_null(view, row):
        return crc_byte(crc, NULL_BYTE)
    if has_bytes(kind):
        return crc_text(crc, view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row])
    if kind == NUMERIC:
        return crc_decimal(crc, view.values + row * 16, view.scale)
    if kind == INTERVAL:
        return crc_pair(crc, pair_of(view, row))
    if kind == STRUCT:
        for i in range(view.child_count):
            crc = crc_value(view.children[i], row, crc)
        return crc
    if kind == LIST:
        for i in range(view.offsets[row], view.offsets[row + 1]):
            crc = crc_value(view.children[0], i, crc)
        return crc_word(crc, <uint64_t>(view.offsets[row + 1] - view.offsets[row]))
    return crc_word(crc, word_of(view, row))


cdef void add_column(const ColumnView* view, Py_ssize_t first, Py_ssize_t rows, uint32_t* crcs) noexcept nogil:
    """Continues crcs[i] with the bytes of the value of row first + i."""
    cdef Py_ssize_t row
    cdef int kind = view.kind
    cdef const uint8_t* words
    cdef const int32_t* text
    cdef int32_t padded                 # texts that end here have 16 bytes of others behind them
    if view.validity == NULL and is_plain_word(kind):
        words = view.values + first * 8
        for row in range(rows):
            crcs[row] = crc_word(crcs[row], load64(words + row * 8))
        return
    if view.validity == NULL and kind == INT:
        for row in range(rows):
            crcs[row] = crc_word(crcs[row], <uint64_t><int64_t><int32_t>load32(view.values + 4 * (first + row)))
        return
    if view.validity == NULL and has_bytes(kind):
        padded = view.offsets[first + rows] - 16
        for row in range(rows):
            text = view.offsets + first + row
            if text[1] <= padded:
                crcs[row] = crc_padded_text(crcs[row], view.data + text[0], text[1] - text[0])
            else:
                crcs[row] = crc_text(crcs[row], view.data + text[0], text[1] - text[0])
        return
    for row in range(rows):
        crcs[row] = crc_value(view, first + row, crcs[row])


cdef void fold(const uint32_t* crcs, Py_ssize_t rows, uint32_t count, uint16_t* vnodes) noexcept nogil:
    """vnodes[i] = final CRC modulo `count`."""
    cdef Py_ssize_t row
    if count & (count - 1) == 0:
        for row in range(rows):
            vnodes[row] = <uint16_t>(~crcs[row] & (count - 1))
    else:
        for row in range(rows):
            vnodes[row] = <uint16_t>(<uint32_t>(~crcs[row]) % count)


cdef void fill_vnodes(
    const ColumnView** views, Py_ssize_t count, Py_ssize_t rows, uint32_t vnode_count, uint16_t* vnodes
) noexcept nogil:
    """The vnode of each row of `count` columns, a block of rows at a time."""
    cdef uint32_t[BLOCK_ROWS] crcs
    cdef Py_ssize_t first = 0, row, column, block
    while first < rows:
        block = min(rows - first, <Py_ssize_t>BLOCK_ROWS)
        for row in range(block):
            crcs[row] = <uint32_t>0xFFFFFFFF
        for column in range(count):
            add_column(views[column], first, block, crcs)
        fold(crcs, block, vnode_count, vnodes + first)
        first += block


def vnodes_of(columns, int vnode_count=DEFAULT_VNODE_COUNT, *, rows=None, rule=VnodeRule.HASH):
    """uint16[rows]: the vnode of each row of the distribution columns.

    `rows` is needed only where there is no column; then every vnode is 0. ValueError for columns without vnodes by
    this rule, and for a stored vnode that is none of the table's.
    """
    cdef tuple taken = tuple([as_column(source) for source in columns])
    cdef uint16_t[::1] out
    cdef Py_ssize_t count, i
    cdef const ColumnView** views
    if not 1 <= vnode_count <= MAX_VNODE_COUNT:
        raise ValueError(f"a table has 1 to {MAX_VNODE_COUNT} vnodes, not {vnode_count}")
    count = rows if rows is not None else len(taken[0]) if taken else 0
    for source in taken:
        if len(source) != count:
            raise ValueError(f"a column of {len(source)} rows among {count}")
    vnodes = np.empty(count, dtype=np.uint16)
    if not count:
        return vnodes
    out = vnodes
    if rule is not VnodeRule.HASH and taken:
        rule.check_key([source.data_type for source in taken])
    views = <const ColumnView**>malloc((len(taken) + 1) * sizeof(ColumnView*))
    if views == NULL:
        raise MemoryError("no memory for the vnodes of a chunk of rows")
    try:
        for i in range(len(taken)):
            views[i] = &(<Column>taken[i]).view
        vnodes_into(views, len(taken), count, rule, vnode_count, &out[0])
    finally:
        free(views)
    return vnodes


cdef int vnodes_into(
    const ColumnView** views, Py_ssize_t count, Py_ssize_t rows, rule, int vnode_count, uint16_t* vnodes
) except -1:
    if rule is not VnodeRule.HASH and count > 0:
        return read_vnodes(views[0], rule, vnode_count, vnodes)
    if rows * count < LONG_WORK // 4:
        fill_vnodes(views, count, rows, vnode_count, vnodes)
    else:
        with nogil:
            fill_vnodes(views, count, rows, vnode_count, vnodes)
    return 0


cdef int read_vnodes(const ColumnView* key, rule, int vnode_count, uint16_t* vnodes) except -1:
    """The vnodes that are in the key itself."""
    cdef Py_ssize_t wrong
    if rule is not VnodeRule.STORED:
        cut_vnodes(key, rule.sequence_bits, rule.vnode_bits, vnode_count, vnodes)
        return 0
    wrong = take_vnodes(key, vnode_count, vnodes)
    if wrong >= 0:
        number = None if is_null(key, wrong) else <int64_t>word_of(key, wrong)
        raise ValueError(f"a stored vnode {number} of {vnode_count}")
    return 0


cdef void cut_vnodes(const ColumnView* ids, int shift, int bits, uint32_t count, uint16_t* vnodes) noexcept nogil:
    """The bits of row ids above the lowest `shift`, modulo `count`; 0 for NULL."""
    cdef uint64_t mask = (<uint64_t>1 << bits) - 1
    cdef Py_ssize_t row
    if mask < count:
        for row in range(ids.rows):
            vnodes[row] = <uint16_t>((load64(ids.values + row * 8) >> shift) & mask)
    else:
        for row in range(ids.rows):
            vnodes[row] = <uint16_t>(<uint32_t>((load64(ids.values + row * 8) >> shift) & mask) % count)
    if ids.validity != NULL:
        for row in range(ids.rows):
            if is_null(ids, row):
                vnodes[row] = 0


cdef Py_ssize_t take_vnodes(const ColumnView* numbers, int count, uint16_t* vnodes) noexcept nogil:
    """Numbers as vnodes; returns the first row whose number is none, or -1."""
    cdef Py_ssize_t row
    cdef uint64_t number
    for row in range(numbers.rows):
        if is_null(numbers, row):
            return row
        number = word_of(numbers, row)
        if number >= <uint64_t>count:
            return row
        vnodes[row] = <uint16_t>number
    return -1


def first_unowned(const uint16_t[::1] vnodes not None, const uint8_t[::1] owned not None) -> int:
    """The first row whose vnode is not set in `owned` (uint8[vnode_count]), -1 if there is none."""
    cdef Py_ssize_t row, count = owned.shape[0], found = -1
    with nogil:
        for row in range(vnodes.shape[0]):
            if vnodes[row] >= count or not owned[vnodes[row]]:
                found = row
                break
    return found
