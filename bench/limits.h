/* What the upper bounds in C share: rows, stored runs of blocks, hashes, filters. One core, in memory, no files; input
 * is trusted, except for checksums.
 *
 * Rows are of any length, as Arrow has them: int32 offsets and bytes of keys and of values, a validity bitmap of the
 * values (null: a delete). All buffers go on for SLACK_BYTES (limits.py) after their end, which any function may read
 * and write. A stored run is blocks of about 64 KB, each a header and a body, lz4 or not: values | offsets of keys |
 * offsets of values | keys | validity bitmap. So a scan copies whole columns, and lz4 decodes values into the column
 * where they remain. */

#ifndef LIMITS_H
#define LIMITS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE4_2__) && defined(__x86_64__)
#include <nmmintrin.h>
#endif

typedef uint8_t u8;
typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef unsigned __int128 u128;

enum { PROBES = 6 };

typedef struct { u8 *keys, *values, *valid; i32 *key_at, *value_at; u64 rows; } rows;     /* valid NULL: no deletes */
typedef struct { int (*compress)(const char *, char *, int, int, int), (*decompress)(const char *, char *, int, int);
} codec;                                                                                    /* a NULL codec: none */
typedef struct { u32 stored_bytes, body_bytes, rows, value_bytes; u64 checksum; } header;
typedef struct {
    u8 *blocks;
    u64 bytes, block_count, rows, most_rows_in_block;
    u64 *filter, filter_lines;                          /* lines of 64 bytes */
    u64 skip;                                           /* leading bytes that all keys share */
} stored;

static inline u64 load(const u8 *p) { u64 x; memcpy(&x, p, 8); return x; }
static inline u64 big_endian(const u8 *p) { return __builtin_bswap64(load(p)); }
static inline u64 low_bytes(u64 word, u64 count) { return count ? word & ~0ull >> (64 - 8 * count) : 0; }

/* Copies 32 bytes at a time, into and out of the slack. */
static inline void copy(u8 *to, const u8 *from, i64 bytes)
{
    do { memcpy(to, from, 32); to += 32; from += 32; } while ((bytes -= 32) > 0);
}

/* The 16 bytes of a key that follow the shared prefix, as a number that orders as they do; zeros after its end. */
static inline u128 head_of(const u8 *key, i64 bytes, u64 skip)
{
    i64 left = bytes - (i64)skip;
    u128 head = (u128)big_endian(key + skip) << 64 | big_endian(key + skip + 8);
    return left >= 16 ? head : left <= 0 ? 0 : head & ~(u128)0 << 8 * (16 - left);
}

/* Order of two keys whose heads are equal. */
static inline int compare_tails(const u8 *a, i64 a_bytes, const u8 *b, i64 b_bytes, i64 from)
{
    i64 least = a_bytes < b_bytes ? a_bytes : b_bytes;
    int order = least > from ? memcmp(a + from, b + from, least - from) : 0;
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* One word into a checksum: the CRC32C instruction, or a multiplication. */
static inline u64 mix(u64 sum, u64 word)
{
#if defined(__SSE4_2__) && defined(__x86_64__)
    return _mm_crc32_u64(sum, word);
#else
    return (sum ^ word) * 0x9E3779B97F4A7C15ull ^ sum >> 29;
#endif
}

/* Checksum bound: three independent streams of words hide the latency of the instruction. */
static u64 checksum(const u8 *data, u64 bytes)
{
    u64 third = bytes / 24 * 8, a = 1, b = 2, c = 3, at;
    for (at = 0; at < third; at += 8) {
        a = mix(a, load(data + at));
        b = mix(b, load(data + third + at));
        c = mix(c, load(data + 2 * third + at));
    }
    for (at = 3 * third; at + 8 <= bytes; at += 8) a = mix(a, load(data + at));
    return mix(mix(a, low_bytes(load(data + at), bytes - at)), b << 32 | (u32)c);
}

static inline u64 fold(u64 a, u64 b) { u128 product = (u128)a * b; return (u64)product ^ (u64)(product >> 64); }

/* 64-bit hash of a key: one wide multiplication for each 16 bytes. */
static inline u64 hash_of(const u8 *key, u64 bytes)
{
    u64 hash = bytes ^ 0x9FB21C651E98DF25ull, left = bytes;
    for (; left > 16; left -= 16, key += 16)
        hash = fold(load(key) ^ 0xA0761D6478BD642Full, load(key + 8) ^ hash);
    u64 first = low_bytes(load(key), left < 8 ? left : 8), second = left > 8 ? low_bytes(load(key + 8), left - 8) : 0;
    return fold(fold(first ^ 0xE7037ED1A0B428DBull, second ^ hash), 0x8EBC6AF09C88C6E3ull);
}

/* Blocked Bloom filter: the line of a hash, and its bits there, nine bits of `groups` a probe. */
static inline u64 *line_of(u64 *filter, u64 lines, u64 hash) { return filter + (u64)((u128)hash * lines >> 64) * 8; }

static inline void filter_add(u64 *line, u64 hash)
{
    u64 groups = hash * 0x9FB21C651E98DF25ull;
    for (int i = 0; i < PROBES; i++, groups >>= 9) line[groups >> 6 & 7] |= 1ull << (groups & 63);
}

static inline u64 filter_has(const u64 *line, u64 hash)
{
    u64 groups = hash * 0x9FB21C651E98DF25ull, all = 1;
    for (int i = 0; i < PROBES; i++, groups >>= 9) all &= line[groups >> 6 & 7] >> (groups & 63);
    return all;
}

/* Checks a block and opens it as columns, decoded into `body` where it is compressed; the address of the next one. */
static inline const u8 *open_block(const u8 *block, const codec *codec, u8 *body, rows *page)
{
    header h;
    memcpy(&h, block, sizeof h);
    const u8 *data = block + sizeof h;
    if (checksum(data, h.stored_bytes) != h.checksum) abort();
    if (!codec) body = (u8 *)data;
    else if (codec->decompress((const char *)data, (char *)body, h.stored_bytes, h.body_bytes) < 0) abort();
    page->rows = h.rows;
    page->values = body;
    page->key_at = (i32 *)(body + (h.value_bytes + 3) / 4 * 4);
    page->value_at = page->key_at + h.rows + 1;
    page->keys = (u8 *)(page->value_at + h.rows + 1);
    page->valid = page->keys + page->key_at[h.rows];
    return data + (h.stored_bytes + 7) / 8 * 8;
}

#endif
