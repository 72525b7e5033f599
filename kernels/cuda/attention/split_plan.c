/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the length of the parts into which contexts are cut, and lists parts and tiles.
 *
 * Everything is counted in tiles of keys. First the length of a part is chosen for the whole batch (choose), then
 * whether clusters take whole contexts instead (choose_joined), then every context is cut into equal parts of about
 * that length. Parts are put in order by counting sort, twice over the same visits: once to count each size, once to
 * place. All of it is a few passes over the batch's sequences, since it runs before every step.
 *
 * A recorded step is found again only with the same numbers of parts and tiles and the same `joined` (cuts_key in
 * batch.c). So numbers of parts are rounded, and planned as if every context were the longest where the batch is even.
 */
#include "kernels/cuda/attention/split_plan.h"

#include <math.h>
#include <string.h>

#include "kernels/visible_keys.h"

/* Tiles of a block where the device is full. While there are fewer than SOME, one block for a multiprocessor keeps its
 * place next to an MMA's; up to MANY there are enough to hide their latencies, and above that as many as there is
 * room for. No part has less than LEAST, and contexts below MANY are whole where there are enough of them. */
enum { LEAST = 2, SOME = 8, MANY = 16 };
enum { STEP = 8 };          /* of the number of places: each number is a recorded step of its own */
enum { WAVES = 4 };         /* blocks that follow each other on a place, at most */
enum { MOST_SLOTS = 1024 }; /* parts of cut contexts; see TRI_CUDA_SPLIT_ROWS */
/* The cost of a context's parts that meet in memory, and of splits that a cluster joins, in halves of a tile; the tiles
 * of the longest context that is joined; those that a block fetches at once. */
enum { MEETING = 9, JOINING = 3, JOINED_TILES = 24, STAGES = 2 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t round_up(int64_t a, int64_t step) { return (a + step - 1) / step * step; }

/* ---- contexts ---- */

typedef struct context {
  int row, blocks, first, end, position;
} context;

static bool is_prompt(const tri_attention_shape *s, const tri_batch *b, int seq) {
  return s->rows && b->seq_start[seq + 1] - b->seq_start[seq] > 1;
}

/* Without lengths every context is as long as the longest, and sees as many keys as any: of a chunk all. */
static context context_of(const tri_attention_shape *s, const tri_batch *b, int seq, int row) {
  int length = b->context_len ? b->context_len[seq] : b->max_context;
  int position = length - (b->seq_start[seq + 1] - row);
  int last = tri_last_key(s->causal, s->window, position, length);
  int first = tri_first_key(s->window, b->context_len && s->chunked, position);
  return (context){row, b->block_start[seq], first, last + 1, position};
}

static int64_t tiles_of(const tri_attention_shape *s, const context *c) {
  return (c->end - c->first + s->keys - 1) / s->keys;
}

/* Calls `visit` for every context that is cut. */
static void each_context(const tri_attention_shape *s, const tri_batch *b, void (*visit)(void *, const context *),
                         void *ctx) {
  for (int seq = 0; seq < b->num_seqs; seq++) {
    if (is_prompt(s, b, seq)) continue;
    for (int row = b->seq_start[seq]; row < b->seq_start[seq + 1]; row++) {
      context c = context_of(s, b, seq, row);
      visit(ctx, &c);
    }
  }
}

/* ---- the length of a part ---- */

typedef struct lengths {
  const tri_attention_shape *s;
  int rows;
  int64_t tiles, longest, small; /* of all contexts, of the longest one, of all below MANY */
} lengths;

static void count_tiles(void *ctx, const context *c) {
  lengths *k = ctx;
  int64_t tiles = tiles_of(k->s, c);
  k->rows++;
  k->tiles += tiles;
  k->longest = larger(k->longest, tiles);
  if (tiles < MANY) k->small += tiles;
}

/* A length that is tried: the places that the parts take, in 64ths. What is short shares a place with others. */
typedef struct trial {
  const tri_attention_shape *s;
  int64_t part, places;
} trial;

static void add_places(void *ctx, const context *c) {
  trial *t = ctx;
  int64_t tiles = tiles_of(t->s, c);
  if (tiles < MANY) return;
  t->places += 2 * tiles < t->part ? 64 * tiles / t->part : (tiles + t->part - 1) / t->part * 64;
}

static int64_t places_of(const lengths *k, const tri_batch *b, int64_t part) {
  trial t = {.s = k->s, .part = part, .places = 64 * k->small / part};
  each_context(k->s, b, add_places, &t);
  return t.places;
}

/* Returns the least length with which the parts take no more than `slots` places, to about a 16th. */
static int64_t part_for(const lengths *k, const tri_batch *b, int64_t slots) {
  int64_t low = larger((k->tiles + slots - 1) / slots, (k->longest + k->s->most_splits - 1) / k->s->most_splits);
  int64_t high = larger(low, 2 * k->longest);
  low = larger(low, LEAST);
  if (places_of(k, b, low) <= 64 * slots) return low;
  while (high - low > larger(low / 16, 1)) {
    int64_t middle = (low + high) / 2;
    if (places_of(k, b, middle) <= 64 * slots)
      high = middle;
    else
      low = middle;
  }
  return high;
}

static int slots_for(const tri_attention_shape *s, int per_sm, int num_sms) {
  return (int)larger(smaller(per_sm * num_sms / s->units, MOST_SLOTS / WAVES), 1);
}

/* A part's length, and the places that the device has for parts. */
typedef struct choice {
  int64_t part, slots;
} choice;

/* Slots for short contexts are a power of two: recorded steps serve a range of lengths. */
static choice choose_short(const lengths *k, int one) {
  int64_t slots = 1;
  while (slots < one && LEAST * slots < k->tiles) slots *= 2;
  slots = smaller(slots, one);
  return (choice){larger((k->tiles + slots - 1) / slots, LEAST), slots};
}

/* Blocks read at the device's rate while there are enough of them on each multiprocessor, and until the last ones end.
 * So one wave is best that has enough of them, else the one of several whose parts leave the least of the last one
 * empty, where each wave costs a few hundredths. */
static choice choose(const lengths *k, const tri_batch *b, int num_sms) {
  int one = slots_for(k->s, 1, num_sms), enough = slots_for(k->s, k->s->enough, num_sms);
  int all = slots_for(k->s, k->s->blocks, num_sms);
  choice best = {0};
  double most = -1; /* any is better than none */
  if (k->tiles <= (int64_t)SOME * one) return choose_short(k, one);
  if (k->tiles <= (int64_t)MANY * enough) return (choice){part_for(k, b, enough), enough};
  if (2 * k->longest * all <= k->tiles) return (choice){k->longest, all}; /* whole contexts pack well */
  for (int waves = 1; waves <= WAVES && most < 0.9; waves++) {
    choice c = {.slots = (int64_t)waves * all};
    c.part = part_for(k, b, c.slots);
    double each = (double)smaller(c.part, k->longest), full = (double)k->tiles / (each * (double)c.slots);
    if (c.part > k->longest)
      full /= ceil(full); /* whole contexts follow each other */
    else if (waves == 1)
      full = (double)places_of(k, b, c.part) / (64.0 * enough);
    if (full - 0.03 * waves <= most) continue;
    most = full - 0.03 * waves;
    best = c;
  }
  return best;
}

/* ---- parts ---- */

enum { SIZES = 64 }; /* parts are ordered by length, in steps of the longest's 64th */

/* Turns the counts of each size into where its first one goes, and returns their sum. */
static int begin_sizes(int next[SIZES]) {
  int at = 0;
  for (int i = 0; i < SIZES; i++) {
    int count = next[i];
    next[i] = at;
    at += count;
  }
  return at;
}

typedef struct cutter {
  const tri_attention_shape *s;
  bool is_full; /* whole contexts occupy the device */
  int64_t part, longest;
  int num_parts, num_places;
  int next[SIZES]; /* first the parts of a size, then where its next one goes */
  tri_attention_part *parts;
} cutter;

static int splits_of(const cutter *k, int64_t tiles) {
  if (k->is_full && tiles < MANY) return 1;
  int64_t splits = (tiles + k->part - 1) / k->part;
  return (int)larger(smaller(smaller(splits, tiles / LEAST), k->s->most_splits), 1);
}

static int size_class(const cutter *k, int64_t tiles) {
  return (int)(SIZES - 1 - smaller(tiles * SIZES / (k->longest + 1), SIZES - 1));
}

/* Adds a context's parts to the counts, or, where there is a list, puts them into it: a context's parts have places one
 * after the other, so that split_at finds them by the first. */
static void split_context(void *ctx, const context *c) {
  cutter *k = ctx;
  int64_t tiles = tiles_of(k->s, c), keys = k->s->keys;
  int splits = splits_of(k, tiles), *next = &k->next[size_class(k, tiles / splits)];
  for (int i = 0; k->parts && i < splits; i++)
    k->parts[*next + i] =
        (tri_attention_part){.row = c->row,
                             .blocks = c->blocks,
                             .first = (int32_t)(c->first + tiles * i / splits * keys),
                             .end = (int32_t)smaller(c->first + tiles * (i + 1) / splits * keys, c->end),
                             .position = c->position,
                             .split = i,
                             .splits = splits,
                             .place = splits > 1 ? k->num_places + i : -1};
  *next += splits;
  k->num_parts += splits;
  if (splits > 1) k->num_places += splits;
}

/* Puts the parts of all contexts in their order. */
static void place_parts(cutter k, const tri_batch *b, const tri_attention_split *split, tri_attention_part *parts) {
  memset(k.next, 0, sizeof k.next);
  each_context(k.s, b, split_context, &k); /* counts them */
  begin_sizes(k.next);
  k.parts = parts;
  k.num_parts = k.num_places = 0;
  each_context(k.s, b, split_context, &k);
  for (int i = k.num_parts; i < split->num_parts; i++) parts[i] = (tri_attention_part){.row = -1};
}

/* Returns what a block takes for so many tiles, in halves of one: the first two are fetched before its wait, and the
 * others only when one of these has been read. */
static int64_t chain_of(int64_t tiles) { return 2 * tiles + larger(tiles - STAGES, 0); }

/* Returns what the longest context takes. Blocks that share a multiprocessor share its rate. */
static int64_t cost_of(const lengths *l, int splits, int num_sms) {
  return chain_of((l->longest + splits - 1) / splits) + 2 * (((int64_t)l->rows * l->s->units * splits - 1) / num_sms);
}

/* Returns into how many splits each context is cut that the blocks of a cluster join, and is one part then; 1: it is
 * cut as k says. All blocks find room at the same time. By the longest context and the parts that it would have
 * instead, so that a recorded step serves a range of lengths; how long the others are counts where these parts depend
 * on it. */
static int choose_joined(const lengths *l, const cutter *k, int num_sms) {
  int parts = splits_of(k, l->longest), best = 1;
  int64_t least = cost_of(l, parts, num_sms) + (parts > 1 ? MEETING : 0);
  for (int n = 2; n <= l->s->most_joined && l->longest <= JOINED_TILES; n *= 2) {
    int64_t cost = cost_of(l, n, num_sms) + JOINING + n / 4;
    if ((int64_t)l->rows * l->s->units * n > (int64_t)num_sms * l->s->enough) break;
    if (cost >= least) continue;
    least = cost;
    best = n;
  }
  return best;
}

/* A shorter context has no more parts than a longer one, so an even batch fits into what is planned for its longest. */
static void split_contexts(const tri_attention_shape *s, const tri_batch *b, int num_sms, tri_attention_split *out,
                           tri_attention_part *parts) {
  lengths l = {.s = s};
  tri_batch planned = *b;
  if (b->is_even) planned.context_len = NULL;
  each_context(s, &planned, count_tiles, &l);
  if (!l.rows) return;
  choice c = choose(&l, &planned, num_sms);
  cutter k = {.s = s, .part = c.part, .longest = smaller(c.part, l.longest)};
  k.is_full = l.rows >= slots_for(s, 1, num_sms);
  out->joined = choose_joined(&l, &k, num_sms);
  if (out->joined > 1) k.part = k.longest = l.longest;
  each_context(s, &planned, split_context, &k); /* counts them */
  /* Parts beyond the first of each context are fewer than the slots, and what is cut is longer than a part. */
  out->num_parts = k.num_places ? (int)smaller(l.rows + c.slots - 1, round_up(k.num_parts, STEP)) : l.rows;
  out->num_places = k.num_places ? 2 * (int)c.slots : 0;
  k.num_parts = k.num_places = 0;
  place_parts(k, b, out, parts);
}

/* ---- tiles ---- */

/* Calls `visit` for every tile of every prompt, a prompt's last one first. */
static void each_tile(const tri_attention_shape *s, const tri_batch *b,
                      void (*visit)(void *, const tri_attention_tile *), void *ctx) {
  for (int seq = 0; seq < b->num_seqs; seq++) {
    int begin = b->seq_start[seq], n = b->seq_start[seq + 1] - begin, context = b->context_len[seq];
    if (!is_prompt(s, b, seq)) continue;
    for (int i = (n - 1) / s->rows; i >= 0; i--) {
      tri_attention_tile t = {.row = begin + i * s->rows, .blocks = b->block_start[seq], .context = context};
      t.rows = (int32_t)smaller(s->rows, n - i * s->rows);
      t.position = context - n + i * s->rows;
      t.first = tri_first_key(s->window, s->chunked, t.position);
      t.end = tri_last_key(s->causal, s->window, t.position + t.rows - 1, context) + 1;
      t.splits = 1;
      t.place = -1;
      visit(ctx, &t);
    }
  }
}

/* Returns where the blocks of a tile begin to read: at the box of its first key. */
static int begin_of(const tri_attention_shape *s, const tri_attention_tile *t) { return t->first & -s->tile_box; }
/* Returns how many tiles of keys they read. */
static int64_t keys_of(const tri_attention_shape *s, const tri_attention_tile *t) {
  return (t->end - begin_of(s, t) + s->tile_keys - 1) / s->tile_keys;
}

/* Lengths are in tiles of keys. part: that of a part at most, which is tried; items: the blocks' work then. */
typedef struct tile_trial {
  const tri_attention_shape *s;
  int64_t part, longest, total, items, places;
} tile_trial;

static void try_tile(void *ctx, const tri_attention_tile *t) {
  tile_trial *k = ctx;
  int64_t keys = keys_of(k->s, t), splits = (keys + k->part - 1) / k->part;
  k->longest = larger(k->longest, (keys + splits - 1) / splits);
  k->total += keys * k->s->tile_units;
  k->items += splits * k->s->tile_units;
  if (splits > 1) k->places += splits;
}

static tile_trial try_part(const tri_attention_shape *s, const tri_batch *b, int64_t part) {
  tile_trial k = {.s = s, .part = part};
  each_tile(s, b, try_tile, &k);
  return k;
}

/* Returns what the blocks take, which have as many items each, to one. */
static double cost_of_tiles(const tile_trial *k, int num_sms) {
  int64_t rounds = (k->items + num_sms - 1) / num_sms;
  double mean = (double)k->total / (double)k->items * (double)rounds;
  return mean > (double)k->longest ? mean : (double)k->longest;
}

/* Returns the most tiles of keys of a part. The block of a cut tile that ends last reads what all of them have left. */
static int64_t choose_tile_part(const tri_attention_shape *s, const tri_batch *b, int num_sms) {
  const int64_t whole = INT32_MAX;
  if (!s->tile_keys) return whole;
  tile_trial all = try_part(s, b, whole);
  double least = cost_of_tiles(&all, num_sms), share = (double)all.total / num_sms;
  int64_t best = whole, most = smaller(all.longest / LEAST, s->tile_places);
  if (least <= 1.25 * share + LEAST) return whole;
  for (int64_t splits = 2; splits <= most; splits++) {
    tile_trial k = try_part(s, b, (all.longest + splits - 1) / splits);
    double cost = cost_of_tiles(&k, num_sms) + (double)((2 + splits) * s->tile_cost) / 2;
    if (k.places > s->tile_places) break;
    if (cost >= least) continue;
    least = cost;
    best = k.part;
  }
  return best;
}

typedef struct tiler {
  const tri_attention_shape *s;
  int64_t part;    /* the most tiles of keys of a part */
  int64_t longest; /* part's keys */
  int num_places;
  int next[SIZES];
  tri_attention_tile *tiles;
} tiler;

static int tile_class(const tiler *k, const tri_attention_tile *t) {
  return (int)(SIZES - 1 - (t->end - t->first) * SIZES / (k->longest + 1));
}

/* Calls `visit` for every part of a tile, for the tile itself where it is whole. */
static void each_part(tiler *k, const tri_attention_tile *t, void (*visit)(tiler *, const tri_attention_tile *)) {
  int64_t keys = k->s->tile_keys ? keys_of(k->s, t) : 1, splits = (keys + k->part - 1) / k->part;
  if (splits == 1) {
    visit(k, t);
    return;
  }
  for (int i = 0; i < splits; i++) {
    tri_attention_tile p = *t;
    p.split = i;
    p.splits = (int32_t)splits;
    p.place = k->num_places++;
    if (i) p.first = (int32_t)(begin_of(k->s, t) + keys * i / splits * k->s->tile_keys);
    if (i < splits - 1) p.end = (int32_t)(begin_of(k->s, t) + keys * (i + 1) / splits * k->s->tile_keys);
    visit(k, &p);
  }
}

static void measure_part(tiler *k, const tri_attention_tile *t) { k->longest = larger(k->longest, t->end - t->first); }
static void count_part(tiler *k, const tri_attention_tile *t) { k->next[tile_class(k, t)]++; }
static void put_part(tiler *k, const tri_attention_tile *t) { k->tiles[k->next[tile_class(k, t)]++] = *t; }

static void measure_tile(void *ctx, const tri_attention_tile *t) { each_part(ctx, t, measure_part); }
static void count_tile(void *ctx, const tri_attention_tile *t) { each_part(ctx, t, count_part); }
static void put_tile(void *ctx, const tri_attention_tile *t) { each_part(ctx, t, put_part); }

/* Three visits: the longest part, which sets the step of the sizes; how many there are of each size; and their places.
 */
static void split_prompts(const tri_attention_shape *s, const tri_batch *b, int num_sms, tri_attention_tile *tiles,
                          tri_attention_split *out) {
  tiler k = {.s = s, .tiles = tiles, .part = choose_tile_part(s, b, num_sms)};
  each_tile(s, b, measure_tile, &k);
  each_tile(s, b, count_tile, &k);
  out->num_tiles = begin_sizes(k.next);
  k.num_places = 0;
  each_tile(s, b, put_tile, &k);
  out->num_tile_places = k.num_places;
}

/* ---- both ---- */

int tri_attention_most_parts(const tri_attention_shape *s, const tri_batch *b, int num_sms) {
  return (s->rows ? b->num_seqs : b->num_tokens) + WAVES * slots_for(s, s->blocks, num_sms);
}

int tri_attention_most_tiles(const tri_attention_shape *s, const tri_batch *b) {
  return s->rows ? b->num_tokens / s->rows + b->num_seqs + s->tile_places : 0;
}

void tri_attention_split_batch(const tri_attention_shape *s, const tri_batch *b, int num_sms, tri_attention_part *parts,
                               tri_attention_tile *tiles, tri_attention_split *out) {
  *out = (tri_attention_split){.shape = *s, .joined = 1, .parts = parts, .tiles = tiles};
  split_contexts(s, b, num_sms, out, parts);
  if (s->rows) split_prompts(s, b, num_sms, tiles, out);
}
