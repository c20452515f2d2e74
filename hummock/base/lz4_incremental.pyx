"""Incremental decoding of an lz4 block, from its beginning up to a requested position.

A get needs the keys of a block, which come first, and then one value; the library would start over each time. The
format is lz4's block format: sequences of a token (two lengths of four bits, 15 continued in further bytes), literals,
and a match by its distance (two bytes) and length less four. The source is untrusted: every length is checked against
both ends before use. Copies are in units of sixteen bytes and so extend beyond their ends, into the slack.

A match inside a known run of one byte is written from a register: reading it back would wait for the stores just
issued, one after the other down a column of padded values.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef extern from * nogil:
    """
    #include <string.h>

    typedef uint8_t lz4_sixteen __attribute__((vector_size(16)));

    static inline void lz4_copy16(uint8_t *to, const uint8_t *from) {
        lz4_sixteen bytes;
        memcpy(&bytes, from, 16);
        memcpy(to, &bytes, 16);
    }

    /* adds what follows a length of 15; 0: the source ends in it */
    static inline int lz4_length(const uint8_t **at, const uint8_t *end, size_t *length) {
        unsigned more;
        do {
            if (*at >= end) return 0;
            more = *(*at)++;
            *length += more;
        } while (more == 255);
        return 1;
    }

    static inline void lz4_repeat(uint8_t *to, size_t distance, size_t length) {
        const uint8_t *from = to - distance;
        size_t i;
        if (distance >= 8) {
            for (i = 0; i < length; i += 8) {
                uint64_t word;
                memcpy(&word, from + i, 8);
                memcpy(to + i, &word, 8);
            }
        } else {
            for (i = 0; i < length; i++) to[i] = from[i];
        }
    }

    static int lz4_run(Lz4Cursor *cursor, uint8_t *wanted) {
        const uint8_t *from = cursor->from, *const from_end = cursor->from_end;
        uint8_t *at = cursor->at, *const begin = cursor->begin, *const end = cursor->end;
        uint8_t *same = begin, *same_end = begin;       /* between them one byte is repeated: `byte` */
        lz4_sixteen byte = {0};
        while (at < wanted) {
            size_t literals, length, distance, i;
            const uint8_t *match;
            unsigned token;
            if (from >= from_end) return 0;
            token = *from++;
            literals = token >> 4;
            length = token & 15;
            if (literals == 15 && !lz4_length(&from, from_end, &literals)) return 0;
            if (literals > 0) {
                if (literals > (size_t)(from_end - from) || literals > (size_t)(end - at)) return 0;
                lz4_copy16(at, from);
                if (literals > 16) {
                    lz4_copy16(at + 16, from + 16);
                    lz4_copy16(at + 32, from + 32);
                    lz4_copy16(at + 48, from + 48);
                    for (i = 64; i < literals; i += 16) lz4_copy16(at + i, from + i);
                }
                at += literals;
                from += literals;
            }
            if (from == from_end) {                     /* the last sequence has no match */
                if (at != end) return 0;
                break;
            }
            if (from_end - from < 2) return 0;
            distance = from[0] | (size_t)from[1] << 8;
            from += 2;
            if (length == 15 && !lz4_length(&from, from_end, &length)) return 0;
            length += 4;
            if (distance == 0 || distance > (size_t)(at - begin) || length > (size_t)(end - at)) return 0;
            match = at - distance;
            if (match >= same && match + (distance < length ? distance : length) <= same_end) {
                memcpy(at, &byte, 16);
                memcpy(at + 16, &byte, 16);
                for (i = 32; i < length; i += 16) memcpy(at + i, &byte, 16);
                if (at != same_end) same = at;
                same_end = at + length;
            } else if (distance >= 16) {
                lz4_copy16(at, match);
                lz4_copy16(at + 16, match + 16);
                for (i = 32; i < length; i += 16) lz4_copy16(at + i, match + i);
            } else if (distance == 1 || (distance == 2 && match[0] == match[1])) {
                for (i = 0; i < 16; i++) byte[i] = match[0];
                for (i = 0; i < length; i += 16) memcpy(at + i, &byte, 16);
                same = at - distance;
                same_end = at + length;
            } else {
                lz4_repeat(at, distance, length);
            }
            at += length;
        }
        cursor->from = from;
        cursor->at = at;
        return 1;
    }

    static void lz4_start(Lz4Cursor *cursor, const uint8_t *source, int64_t size, uint8_t *target, int64_t raw_size) {
        cursor->from = source;
        cursor->from_end = source + size;
        cursor->begin = cursor->at = target;
        cursor->end = target + raw_size;
    }

    static int lz4_run_to(Lz4Cursor *cursor, int64_t wanted) {
        return wanted <= cursor->end - cursor->begin && lz4_run(cursor, cursor->begin + wanted);
    }
    """
    void lz4_start(Lz4Cursor*, const uint8_t*, Py_ssize_t, uint8_t*, Py_ssize_t) noexcept
    bint lz4_run_to(Lz4Cursor*, Py_ssize_t) noexcept


cdef void lz4_begin(
    Lz4Cursor* cursor, const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t raw_size
) noexcept nogil:
    lz4_start(cursor, source, size, target, raw_size)


cdef bint lz4_until(Lz4Cursor* cursor, Py_ssize_t wanted) noexcept nogil:
    return lz4_run_to(cursor, wanted)


def decoded_steps(const uint8_t[::1] data, Py_ssize_t raw_size, list steps not None) -> list:
    """The decoded bytes after each of `steps` (requested positions), None from the first failure on."""
    cdef Py_ssize_t size = data.shape[0]
    cdef uint8_t* source = <uint8_t*>malloc(<size_t>size + LZ4_SLACK)
    cdef uint8_t* target = <uint8_t*>malloc(<size_t>raw_size + LZ4_SLACK)
    cdef Lz4Cursor cursor
    try:
        if source == NULL or target == NULL:
            raise MemoryError
        if size > 0:
            memcpy(source, &data[0], <size_t>size)
        lz4_begin(&cursor, source, size, target, raw_size)
        return [(<const char*>target)[:cursor.at - target] if lz4_until(&cursor, wanted) else None for wanted in steps]
    finally:
        free(source)
        free(target)
