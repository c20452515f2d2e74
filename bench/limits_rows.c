/* Upper bounds in C of encoding and decoding rows (relational/encoding/FORMAT.md), without nulls; of aggregation. */

#include "limits.h"

enum { KEY_HEAD = 11, GROUP = 9, VALUE_HEAD = 24, GROUPS_AHEAD = 96 };

static const u64 SIGN = 1ull << 63;
static const u8 VALUE_SHAPE[] = {0x82, 0x14, 0x00, 0x00};   /* two columns of 8 bytes, one with an end; no nulls */

typedef struct { i64 *bigints; double *doubles; u8 *texts; i32 *text_at; u64 rows; } table_rows;

static inline void store(u8 *p, u64 word) { memcpy(p, &word, 8); }

/* Keys (bigint, varchar): 00, the number big endian with its sign flipped, 00, then 00 for an empty text, or 01 and
 * groups of 8 bytes, each followed by 09, or at the end by how many of them count. */
void encode_keys(const table_rows *in, u8 *out, i32 *out_at)
{
    u8 *to = out;
    out_at[0] = 0;
    for (u64 row = 0; row < in->rows; row++) {
        const u8 *from = in->texts + in->text_at[row];
        i64 left = in->text_at[row + 1] - in->text_at[row];
        to[0] = 0;
        store(to + 1, __builtin_bswap64((u64)in->bigints[row] ^ SIGN));
        to[9] = 0;
        to[10] = left > 0;
        for (to += KEY_HEAD; left > 8; left -= 8, from += 8, to += GROUP) {
            memcpy(to, from, 8);
            to[8] = 9;
        }
        store(to, low_bytes(load(from), left));
        to[8] = (u8)left;
        to += left ? GROUP : 0;
        out_at[row + 1] = (i32)(to - out);
    }
}

/* The size of a text follows from that of its key and from the key's last byte: no row waits for the one before.
 * Two groups at a time: most texts need no branch then, and what is written too far is overwritten by the next one. */
void decode_keys(const u8 *in, const i32 *in_at, table_rows *out)
{
    u8 *to = out->texts;
    out->text_at[0] = 0;
    for (u64 row = 0; row < out->rows; row++) {
        const u8 *from = in + in_at[row] + KEY_HEAD, *end = in + in_at[row + 1];
        u8 *next = to + (end > from ? (end - from) / GROUP * 8 - 8 + end[-1] : 0);
        out->bigints[row] = (i64)(big_endian(from - 10) ^ SIGN);
        do {
            memcpy(to, from, 8);
            memcpy(to + 8, from + GROUP, 8);
            from += 2 * GROUP, to += 16;
        } while (from < end);
        to = next;
        out->text_at[row + 1] = (i32)(to - out->texts);
    }
}

/* Values (bigint, double, varchar): shape, bitmap of nulls, two words, the end of the text, the text. */
void encode_values(const table_rows *in, u8 *out, i32 *out_at)
{
    u8 *to = out;
    out_at[0] = 0;
    for (u64 row = 0; row < in->rows; row++) {
        i32 bytes = in->text_at[row + 1] - in->text_at[row];
        memcpy(to, VALUE_SHAPE, 4);
        memcpy(to + 4, in->bigints + row, 8);
        memcpy(to + 12, in->doubles + row, 8);
        memcpy(to + 20, &bytes, 4);
        copy(to + VALUE_HEAD, in->texts + in->text_at[row], bytes);
        to += VALUE_HEAD + bytes;
        out_at[row + 1] = (i32)(to - out);
    }
}

void decode_values(const u8 *in, const i32 *in_at, table_rows *out)
{
    u8 *to = out->texts;
    out->text_at[0] = 0;
    for (u64 row = 0; row < out->rows; row++) {
        const u8 *from = in + in_at[row];
        i32 bytes;
        memcpy(out->bigints + row, from + 4, 8);
        memcpy(out->doubles + row, from + 12, 8);
        memcpy(&bytes, from + 20, 4);
        copy(to, from + VALUE_HEAD, bytes);
        to += bytes;
        out->text_at[row + 1] = (i32)(to - out->texts);
    }
}

typedef struct { i64 key, count, sum, is_used; } group;
typedef struct { group *slots; u64 mask, groups; } group_table;

static inline u64 slot_of(i64 key, u64 mask) { return ((u64)key * 0x9E3779B97F4A7C15ull >> 24) & mask; }

/* Hash aggregation bound: count(*) and sum(v) by k in an open table with a group in half a cache line, the slot
 * prefetched GROUPS_AHEAD rows before; rows of `ops` 1 are taken back. */
void aggregate(group_table *table, const i64 *k, const i64 *v, const u8 *ops, u64 count)
{
    u64 mask = table->mask;
    for (u64 i = 0; i < count; i++) {
        if (i + GROUPS_AHEAD < count) __builtin_prefetch(table->slots + slot_of(k[i + GROUPS_AHEAD], mask), 1);
        u64 at = slot_of(k[i], mask);
        while (table->slots[at].is_used && table->slots[at].key != k[i]) at = (at + 1) & mask;
        group *g = table->slots + at;
        i64 sign = 1 - 2 * ops[i];
        table->groups += !g->is_used;
        g->is_used = 1;
        g->key = k[i];
        g->count += sign;
        g->sum += sign * v[i];
    }
}
