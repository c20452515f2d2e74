/* Upper bounds in C of merges, compaction and scans: a loser tree over runs of rows. */

#include "limits.h"

enum { BLOCK_BYTES = 64 << 10, MOST_RUNS = 64, PREFIX_BYTES = 64, ACCELERATION = 4 };
enum merge_mode { INTO_COLUMNS, INTO_BLOCKS, NEWEST_INTO_BLOCKS };

typedef struct {
    u128 head, next_head;                               /* of the current key and the one after; all ones at the end */
    u64 row;
    rows page;                                          /* the columns, or the block that is read */
    const u8 *next, *end;                               /* blocks to come */
    u8 *body;
} run;
typedef struct { rows page; u8 *at, *body; stored *out; const codec *codec; } sink;

static u64 shared_bytes(const u8 *a, i64 a_bytes, const u8 *b, i64 b_bytes)
{
    u64 shared = 0;
    while ((i64)shared < a_bytes && (i64)shared < b_bytes && a[shared] == b[shared]) shared++;
    return shared;
}

static void begin_block(sink *s)
{
    s->page.rows = 0;
    s->page.values = s->codec ? s->body : s->at + sizeof(header);
    memset(s->page.valid, 0xFF, BLOCK_BYTES / 64 + 1);
}

/* Completes the body after its values, compresses it or leaves it where it is, and begins the next one. */
static void finish_block(sink *s)
{
    u64 count = s->page.rows, offsets = 4 * (count + 1);
    u32 value_bytes = s->page.value_at[count], key_bytes = s->page.key_at[count];
    u8 *body = s->page.values, *at = body + value_bytes, *data = s->at + sizeof(header);
    memset(at, 0, 4);
    at = body + (value_bytes + 3) / 4 * 4;
    memcpy(at, s->page.key_at, offsets);
    memcpy(at += offsets, s->page.value_at, offsets);
    memcpy(at += offsets, s->page.keys, key_bytes);
    memcpy(at += key_bytes, s->page.valid, (count + 7) / 8);
    header h = {0, at + (count + 7) / 8 - body, count, value_bytes, 0};
    h.stored_bytes = !s->codec ? h.body_bytes : (u32)s->codec->compress(
        (const char *)body, (char *)data, h.body_bytes, h.body_bytes + h.body_bytes / 255 + 16, ACCELERATION);
    h.checksum = checksum(data, h.stored_bytes);
    memcpy(s->at, &h, sizeof h);
    s->at = data + (h.stored_bytes + 7) / 8 * 8;
    s->out->block_count++;
    s->out->rows += count;
    if (count > s->out->most_rows_in_block) s->out->most_rows_in_block = count;
    begin_block(s);
}

/* One row after those of the page, which must have room for it. */
static inline void append(rows *page, const u8 *key, i64 key_bytes, const u8 *value, i64 value_bytes, int is_delete)
{
    u64 at = page->rows;
    i32 key_at = page->key_at[at], value_at = page->value_at[at];
    copy(page->keys + key_at, key, key_bytes);
    copy(page->values + value_at, value, value_bytes);
    if (is_delete) page->valid[at >> 3] &= ~(1 << (at & 7));
    page->key_at[at + 1] = key_at + (i32)key_bytes;
    page->value_at[at + 1] = value_at + (i32)value_bytes;
    page->rows = at + 1;
}

static inline u128 head_at(const run *r, u64 row, u64 skip)
{
    const i32 *at = r->page.key_at + row;
    return row < r->page.rows ? head_of(r->page.keys + at[0], at[1] - at[0], skip) : ~(u128)0;
}

/* Order of two runs whose current heads are equal: by key, then the earlier run, which is the newer one. */
static int tie_is_less(const run *runs, u32 a, u32 b, u64 skip)
{
    const run *x = runs + a, *y = runs + b;
    if (x->row >= x->page.rows || y->row >= y->page.rows) return x->row < x->page.rows;
    const i32 *i = x->page.key_at + x->row, *j = y->page.key_at + y->row;
    int order = compare_tails(x->page.keys + i[0], i[1] - i[0], y->page.keys + j[0], j[1] - j[0], (i64)skip + 16);
    return order ? order < 0 : a < b;
}

static inline int is_less(const run *runs, u32 a, u32 b, u64 skip)
{
    return __builtin_expect(runs[a].head == runs[b].head, 0) ? tie_is_less(runs, a, b, skip)
                                                             : runs[a].head < runs[b].head;
}

/* Builds a loser tree over `leaves` runs, a power of two: losers[1..leaves - 1]; the winner. */
static u32 build_tree(const run *runs, u32 *losers, u32 leaves, u64 skip)
{
    u32 winners[2 * MOST_RUNS];
    for (u32 i = 0; i < leaves; i++) winners[leaves + i] = i;
    for (u32 i = leaves - 1; i >= 1; i--) {
        u32 a = winners[2 * i], b = winners[2 * i + 1], a_wins = is_less(runs, a, b, skip);
        winners[i] = a_wins ? a : b;
        losers[i] = a_wins ? b : a;
    }
    return winners[1];
}

/* The winner after `winner` has gone on: one comparison a level, exchanged without a branch, and with no load that
 * waits for the comparison before. */
static inline u32 replay(const run *runs, u32 *losers, u32 leaves, u32 winner, u64 skip)
{
    u128 head = runs[winner].head;
    for (u32 node = (leaves + winner) >> 1; node >= 1; node >>= 1) {
        u32 other = losers[node];
        u128 other_head = runs[other].head;
        u64 is_less = other_head < head;
        if (__builtin_expect(other_head == head, 0)) is_less = tie_is_less(runs, other, winner, skip);
        u32 swap = (other ^ winner) & -(u32)is_less;
        head ^= (other_head ^ head) & -(u128)is_less;
        losers[node] = other ^ swap;
        winner ^= swap;
    }
    return winner;
}

/* Each run is four streams, of which a processor follows by itself fewer than many runs have. */
static inline void prefetch_ahead(const run *r, u64 row, const u8 *key, const u8 *value)
{
    __builtin_prefetch(r->page.key_at + row + 64);
    __builtin_prefetch(r->page.value_at + row + 64);
    __builtin_prefetch(key + 512);
    __builtin_prefetch(value + 2048);
    __builtin_prefetch(value + 2112);
}

/* k-way merge bound: each row is read once and copied once; older versions of a key are dropped, or kept after it. */
static inline __attribute__((always_inline))
void merge(run *runs, u32 count, u64 skip, sink *s, const enum merge_mode mode, int drop_deletes)
{
    u32 leaves = 1, losers[MOST_RUNS];
    while (leaves < count) leaves *= 2;
    for (run *r = runs; r < runs + leaves; r++) r->head = head_at(r, 0, skip), r->next_head = head_at(r, 1, skip);
    u8 kept[1 << 16];
    const u8 *last = kept;                              /* the key before */
    i64 last_bytes = -1;
    u128 last_head = 0;
    for (u32 winner = build_tree(runs, losers, leaves, skip);; winner = replay(runs, losers, leaves, winner, skip)) {
        run *r = runs + winner;
        u64 row = r->row++;
        if (row >= r->page.rows) break;
        const u8 *key = r->page.keys + r->page.key_at[row], *value = r->page.values + r->page.value_at[row];
        i64 key_bytes = r->page.key_at[row + 1] - r->page.key_at[row];
        prefetch_ahead(r, row, key, value);
        int is_delete = r->page.valid && !(r->page.valid[row >> 3] >> (row & 7) & 1);
        if (mode != NEWEST_INTO_BLOCKS || r->head != last_head || key_bytes != last_bytes
            || memcmp(key, last, key_bytes)) {
            last = key, last_bytes = key_bytes, last_head = r->head;
            if (!is_delete || !drop_deletes) {
                append(&s->page, key, key_bytes, value, r->page.value_at[row + 1] - r->page.value_at[row], is_delete);
                if (mode == NEWEST_INTO_BLOCKS) {
                    u64 hash = hash_of(key, key_bytes);
                    filter_add(line_of(s->out->filter, s->out->filter_lines, hash), hash);
                }
                u64 bytes = s->page.key_at[s->page.rows] + s->page.value_at[s->page.rows] + 8 * s->page.rows;
                if (mode != INTO_COLUMNS && bytes >= BLOCK_BYTES) finish_block(s);
            }
        }
        r->head = r->next_head;
        if (r->row == r->page.rows && r->next < r->end) {
            if (last_bytes > 0) memcpy(kept, last, last_bytes);
            last = kept;
            r->next = open_block(r->next, s->codec, r->body, &r->page);
            r->row = 0;
            r->head = head_at(r, 0, skip);
        }
        r->next_head = head_at(r, r->row + 1, skip);
    }
}

static void begin_run(sink *s, stored *out, const codec *codec)
{
    *s = (sink){.at = out->blocks, .body = malloc(3 * BLOCK_BYTES), .out = out, .codec = codec};
    s->page.keys = malloc(3 * BLOCK_BYTES);
    s->page.key_at = calloc(BLOCK_BYTES / 8 + 2, 4);
    s->page.value_at = calloc(BLOCK_BYTES / 8 + 2, 4);
    s->page.valid = malloc(BLOCK_BYTES / 64 + 1);
    out->block_count = out->rows = out->most_rows_in_block = 0;
    begin_block(s);
}

static void finish_run(sink *s)
{
    if (s->page.rows) finish_block(s);
    s->out->bytes = s->at - s->out->blocks;
    free(s->body), free(s->page.keys), free(s->page.key_at), free(s->page.value_at), free(s->page.valid);
}

/* Leading bytes that all keys of sorted columns share. */
static u64 skip_of(const rows *in, u64 count)
{
    u64 skip = PREFIX_BYTES;
    const rows *first = in;
    for (u64 i = 0; i < count; i++) {
        const rows *r = in + i;
        for (u64 row = 0; row < r->rows; row += r->rows > 1 ? r->rows - 1 : 1) {
            u64 shared = shared_bytes(first->keys, first->key_at[1], r->keys + r->key_at[row],
                                      r->key_at[row + 1] - r->key_at[row]);
            skip = shared < skip ? shared : skip;
        }
    }
    return skip;
}

/* Merge in memory: sorted columns, the newest first, into one pair of columns with all versions; rows written. */
u64 merge_rows(const rows *in, u32 count, rows *out)
{
    run runs[MOST_RUNS] = {0};
    sink s = {.page = *out};
    for (u32 i = 0; i < count; i++) runs[i].page = in[i];
    merge(runs, count, skip_of(in, count), &s, INTO_COLUMNS, 0);
    return s.page.rows;
}

/* Columns into a stored run, with their deletes. */
void store_rows(const rows *in, const codec *codec, stored *out)
{
    run runs[MOST_RUNS] = {{.page = *in}};
    sink s;
    begin_run(&s, out, codec);
    out->skip = skip_of(in, 1);
    merge(runs, 1, out->skip, &s, INTO_BLOCKS, 0);
    finish_run(&s);
}

/* Compaction bound: blocks of stored runs, the newest first, are checked, decoded and merged; the newest version of
 * each key, unless it is a delete, goes into blocks with checksums and a filter. */
void compact(const stored *in, u32 count, const codec *codec, stored *out)
{
    run runs[MOST_RUNS] = {0};
    sink s;
    out->skip = PREFIX_BYTES;
    for (u32 i = 0; i < count; i++) {
        runs[i].body = malloc(3 * BLOCK_BYTES);
        runs[i].end = in[i].blocks + in[i].bytes;
        runs[i].next = open_block(in[i].blocks, codec, runs[i].body, &runs[i].page);
        u64 shared = shared_bytes(runs[0].page.keys, runs[0].page.key_at[1], runs[i].page.keys, in[i].skip);
        out->skip = shared < out->skip ? shared : out->skip;
    }
    begin_run(&s, out, codec);
    memset(out->filter, 0, out->filter_lines * 64);
    merge(runs, count, out->skip, &s, NEWEST_INTO_BLOCKS, 1);
    finish_run(&s);
    for (u32 i = 0; i < count; i++) free(runs[i].body);
}

/* Offsets of a block's column, as those of rows that follow others; bodies in a column may lie at any address. */
static void append_offsets(i32 *to, const i32 *from, u64 count)
{
    const struct { i32 at; } __attribute__((packed)) *offsets = (const void *)from;
    i32 before = to[0];
    for (u64 i = 1; i <= count; i++) to[i] = before + offsets[i].at;
}

/* Scan bound: a stored run without deletes into columns; values are decoded where they remain. */
u64 scan(const stored *in, const codec *codec, rows *out)
{
    rows page;
    out->rows = 0;
    for (const u8 *next = in->blocks, *end = in->blocks + in->bytes; next < end; out->rows += page.rows) {
        i32 *key_at = out->key_at + out->rows, *value_at = out->value_at + out->rows;
        u8 *values = out->values + *value_at;
        next = open_block(next, codec, values, &page);
        if (!codec) memcpy(values, page.values, page.value_at[page.rows]);
        memcpy(out->keys + *key_at, page.keys, page.key_at[page.rows]);
        append_offsets(key_at, page.key_at, page.rows);
        append_offsets(value_at, page.value_at, page.rows);
    }
    return out->rows;
}
