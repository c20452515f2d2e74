"""Blocks: about 64 KB of entries in full key order, columnar inside.

Payload of a block before compression (little endian; specified with an example in FORMAT.md):

    u32 rows | u8 flags | u8 suffix width | u8 value width | u8 0 | u32 prefix size | u32 suffix length
    u32 value length | u32 suffixes size | u32 values size | u32 0                    32 bytes
    epochs              u64 x rows, or one u64 (flag ONE_EPOCH)
    tombstones          bitmap of rows, bit set = delete (flag HAS_TOMBSTONES)
    suffix lengths      u8, u16 or u32 x rows by the width; none for width 0: each is `suffix length`
    value lengths       the same with `value length`; a tombstone's is 0
    prefix              bytes that every user key of the block begins with
    suffixes, values    the rest of each user key, concatenated, then the values, concatenated

`.data` holds the payload of a block compressed by a codec, or verbatim; the index in `.meta` holds codec, sizes and
the crc32c of the stored bytes, and those of pieces of a verbatim block, so that a lookup reads only some. Columns
instead of interleaved entries: a scan copies whole columns.
"""

from libc.stdint cimport uint32_t

cdef enum:
    HEADER_BYTES = 32
    ONE_EPOCH = 1
    HAS_TOMBSTONES = 2
    UNIQUE_KEYS = 4
    KNOWN_FLAGS = 7
    MAX_RAW_BYTES = 1 << 29         # of a payload: the largest block target and one entry more
    PIECE_BYTES = 8 << 10           # of a verbatim block that have a checksum of their own; the last has the rest


cdef inline int width_of(uint32_t shortest, uint32_t longest) noexcept nogil:
    """Bytes per stored length of a column whose lengths are in [shortest, longest]; 0 when all are equal."""
    if shortest == longest:
        return 0
    return 1 if longest < 1 << 8 else (2 if longest < 1 << 16 else 4)


cdef inline Py_ssize_t pieces_of(bint is_verbatim, Py_ssize_t size) noexcept nogil:
    """How many pieces of a stored block have checksums; 0 if it is checked as a whole only."""
    return (size + PIECE_BYTES - 1) // PIECE_BYTES if is_verbatim and size > PIECE_BYTES else 0
