/* Upper bound in C of batched lookups in one run: a filter, an index of blocks, a hash table in each block. */

#include "limits.h"

enum { IN_FLIGHT = 16 };

/* What lookups have of a stored run without a codec: its blocks opened, the heads of their first keys, and for each
 * `buckets` (a power of two) of 16 bits of a hash and a row, free ones all ones. */
typedef struct { const stored *run; rows *pages; u128 *heads; u32 *table; u64 buckets; } lookup_index;

void build_index(lookup_index *index)
{
    const u8 *next = index->run->blocks;
    memset(index->table, 0xFF, index->run->block_count * index->buckets * 4);
    for (u64 block = 0; block < index->run->block_count; block++) {
        rows *page = index->pages + block;
        u32 *table = index->table + block * index->buckets;
        next = open_block(next, NULL, NULL, page);
        index->heads[block] = head_of(page->keys, page->key_at[1], index->run->skip);
        for (u64 row = 0; row < page->rows; row++) {
            u64 hash = hash_of(page->keys + page->key_at[row], page->key_at[row + 1] - page->key_at[row]);
            u64 at = hash & (index->buckets - 1);
            while (table[at] != ~0u) at = (at + 1) & (index->buckets - 1);
            table[at] = (u32)(hash >> 48) << 16 | (u32)row;
        }
    }
}

typedef struct { const u8 *key; i64 bytes; u128 head; u64 hash, *line, block, bucket; i64 row; } lookup;

/* For each lookup that is live, a bit, the last block whose first key is not above its key: binary searches in step,
 * so that none waits for another's loads. */
static void find_blocks(const lookup_index *index, u64 live, lookup *l)
{
    u64 half, count = index->run->block_count, skip = index->run->skip;
    for (; count > 1; count -= half) {
        half = count / 2;
        for (u64 left = live; left; left &= left - 1) {
            lookup *one = l + __builtin_ctzll(left);
            u64 block = one->block + half, is_above = index->heads[block] > one->head;
            const rows *page = index->pages + block;
            if (__builtin_expect(index->heads[block] == one->head, 0))
                is_above = compare_tails(page->keys, page->key_at[1], one->key, one->bytes, (i64)skip + 16) > 0;
            one->block += half & (is_above - 1);
        }
    }
}

/* The row of the first bucket from the current one on that has 16 bits of the hash, or -1; goes on behind it. */
static inline i64 row_of(const lookup_index *index, lookup *l)
{
    const u32 *table = index->table + l->block * index->buckets;
    for (;;) {
        u32 entry = table[l->bucket];
        l->bucket = (l->bucket + 1) & (index->buckets - 1);
        if (entry == ~0u) return -1;
        if (entry >> 16 == l->hash >> 48) return entry & 0xFFFF;
    }
}

/* Whether the row found has the key; where another has those 16 bits of its hash, the search goes on. */
static inline int is_found(const lookup_index *index, lookup *l)
{
    const rows *page = index->pages + l->block;
    for (; l->row >= 0; l->row = row_of(index, l)) {
        const i32 *at = page->key_at + l->row;
        if (at[1] - at[0] == l->bytes && !memcmp(page->keys + at[0], l->key, l->bytes)) return 1;
    }
    return 0;
}

/* Hashes `count` keys and asks the filter; a bit for each that may be there. */
static u64 begin_lookups(const lookup_index *index, const rows *asked, u64 from, u64 count, lookup *l)
{
    u64 live = 0;
    for (u64 i = 0; i < count; i++) {
        const i32 *at = asked->key_at + from + i;
        l[i] = (lookup){.key = asked->keys + at[0], .bytes = at[1] - at[0]};
        l[i].hash = hash_of(l[i].key, l[i].bytes);
        l[i].head = head_of(l[i].key, l[i].bytes, index->run->skip);
        __builtin_prefetch(l[i].line = line_of(index->run->filter, index->run->filter_lines, l[i].hash));
    }
    for (u64 i = 0; i < count; i++) live |= (filter_has(l[i].line, l[i].hash) & 1) << i;
    return live;
}

/* Brings the buckets, offsets, keys and values of those that are live into the cache, one after the other. */
static void fetch_rows(const lookup_index *index, u64 live, lookup *l)
{
    find_blocks(index, live, l);
    for (u64 left = live; left; left &= left - 1) {
        lookup *one = l + __builtin_ctzll(left);
        one->bucket = one->hash & (index->buckets - 1);
        __builtin_prefetch(index->table + one->block * index->buckets + one->bucket);
        __builtin_prefetch(index->pages + one->block);
    }
    for (u64 left = live; left; left &= left - 1) {
        lookup *one = l + __builtin_ctzll(left);
        one->row = row_of(index, one);
        __builtin_prefetch(index->pages[one->block].key_at + one->row);
        __builtin_prefetch(index->pages[one->block].value_at + one->row);
    }
    for (u64 left = live; left; left &= left - 1) {
        lookup *one = l + __builtin_ctzll(left);
        const rows *page = index->pages + one->block;
        if (one->row < 0) continue;
        __builtin_prefetch(page->keys + page->key_at[one->row]);
        const i32 *at = page->value_at + one->row;
        for (i32 part = at[0]; part < at[1] + 63; part += 64) __builtin_prefetch(page->values + part);
    }
}

/* Lookup bound: filter, block, bucket, offsets and row of IN_FLIGHT keys at a time, each prefetched a step before;
 * values into a column, null where absent; how many were found. */
u64 get_many(const lookup_index *index, const rows *asked, rows *out)
{
    lookup l[IN_FLIGHT];
    u64 found = 0;
    memset(out->valid, 0, (asked->rows + 7) / 8);
    for (u64 from = 0; from < asked->rows; from += IN_FLIGHT) {
        u64 count = asked->rows - from < IN_FLIGHT ? asked->rows - from : IN_FLIGHT;
        u64 live = begin_lookups(index, asked, from, count, l);
        fetch_rows(index, live, l);
        for (u64 i = 0; i < count; i++) {
            const rows *page = index->pages + l[i].block;
            i32 *end = out->value_at + from + i;
            end[1] = end[0];
            if (!(live >> i & 1) || !is_found(index, l + i)) continue;
            const i32 *at = page->value_at + l[i].row;
            copy(out->values + end[0], page->values + at[0], at[1] - at[0]);
            end[1] += at[1] - at[0];
            out->valid[(from + i) >> 3] |= 1 << ((from + i) & 7);
            found++;
        }
    }
    return found;
}
