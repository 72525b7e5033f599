#include "kernels/cuda/attention_cut.h"

/* Blocks for each multiprocessor: more of them where each still has enough tiles of keys, since their latencies hide
 * one another; one keeps its place beside a product's. The first row that fits counts. */
static const struct { int per_sm, tiles; } wanted[] = {{4, 16}, {2, 8}, {1, 0}};
enum { MOST_PER_SM = 4, LEAST_TILES = 2 };
/* Up to so many rows, the number of places is the next power of two; beyond it is one of two. Each number of places is
 * a recorded step of its own. */
enum { FEW_ROWS = 16 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- contexts ---- */

typedef struct context {
  int row, seq, first, end, position;
} context;

static bool is_prompt(const tri_attention_shape *s, const tri_batch *b, int seq) {
  return s->rows && b->seq_start[seq + 1] - b->seq_start[seq] > 1;
}

static int first_key(const tri_attention_shape *s, int last) {
  return s->window > 0 && last - s->window + 1 > 0 ? last - s->window + 1 : 0;
}

static context context_of(const tri_attention_shape *s, const tri_batch *b, int seq, int row) {
  int position = b->context_len[seq] - (b->seq_start[seq + 1] - row);
  int last = s->causal ? position : b->context_len[seq] - 1;
  return (context){row, seq, first_key(s, last), last + 1, position};
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

/* ---- parts ---- */

/* Contexts are ordered by their number of tiles, to the power of two: cut ones first, the longest in front. */
enum { SIZES = 32, CLASSES = 2 * SIZES };

typedef struct cutter {
  const tri_attention_shape *s;
  int64_t tiles;       /* of all contexts */
  int64_t chunk;       /* tiles of a part, about */
  int rows, num_parts; /* contexts and parts of them */
  int next[CLASSES];   /* first the parts of a class, then where its next one goes */
  tri_attention_part *parts;
} cutter;

static void count_tiles(void *ctx, const context *c) {
  cutter *k = ctx;
  k->rows++;
  k->tiles += tiles_of(k->s, c);
}

static int splits_of(const cutter *k, const context *c) {
  int64_t tiles = tiles_of(k->s, c), splits = (2 * tiles + k->chunk) / (2 * k->chunk); /* to the nearest */
  splits = smaller(splits, smaller(tiles / LEAST_TILES, TRI_MOST_SPLITS));
  return (int)larger(splits, 1);
}

static int class_of(const cutter *k, const context *c, int splits) {
  int size = 0;
  for (int64_t t = tiles_of(k->s, c); t > 1; t /= 2) size++;
  return (splits > 1 ? 0 : SIZES) + SIZES - 1 - size;
}

static void count_parts(void *ctx, const context *c) {
  cutter *k = ctx;
  int splits = splits_of(k, c);
  k->num_parts += splits;
  k->next[class_of(k, c, splits)] += splits;
}

static void put_parts(void *ctx, const context *c) {
  cutter *k = ctx;
  int splits = splits_of(k, c), *next = &k->next[class_of(k, c, splits)];
  int64_t tiles = tiles_of(k->s, c), keys = k->s->keys;
  for (int i = 0; i < splits; i++) {
    int64_t first = c->first + tiles * i / splits * keys, end = c->first + tiles * (i + 1) / splits * keys;
    k->parts[(*next)++] = (tri_attention_part){.row = c->row,
                                               .seq = c->seq,
                                               .first = (int32_t)first,
                                               .end = (int32_t)smaller(end, c->end),
                                               .position = c->position,
                                               .split = i,
                                               .splits = splits};
  }
}

static int64_t chunk_of(const cutter *k, int num_sms) {
  int64_t chunk = 0, least = 0;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    int64_t blocks = (int64_t)wanted[i].per_sm * num_sms;
    chunk = (k->tiles * k->s->units + blocks - 1) / blocks;
    least = wanted[i].tiles;
    if (chunk >= least) break;
  }
  return larger(chunk, LEAST_TILES);
}

static int most_extra(const tri_attention_shape *s, int num_sms) { return MOST_PER_SM * num_sms / s->units + 1; }

static int places_of(const tri_attention_shape *s, int rows, int parts, int num_sms) {
  int extra = 1, most = most_extra(s, num_sms);
  if (parts == rows) return rows;
  while (extra < parts - rows) extra *= 2;
  return rows + (rows > FEW_ROWS || extra > most ? most : extra);
}

static void cut_contexts(const tri_attention_shape *s, const tri_batch *b, int num_sms, tri_attention_cut *out,
                         tri_attention_part *parts) {
  cutter k = {.s = s, .parts = parts};
  each_context(s, b, count_tiles, &k);
  k.chunk = chunk_of(&k, num_sms);
  each_context(s, b, count_parts, &k);
  for (int i = 0, at = 0; i < CLASSES; i++) {
    int count = k.next[i];
    k.next[i] = at;
    at += count;
  }
  each_context(s, b, put_parts, &k);
  out->num_parts = places_of(s, k.rows, k.num_parts, num_sms);
  out->num_split_parts = (int)smaller(2 * (out->num_parts - k.rows), out->num_parts);
  for (int i = k.num_parts; i < out->num_parts; i++) parts[i] = (tri_attention_part){.row = -1};
}

/* ---- tiles ---- */

static int tile_class(const tri_attention_tile *t) {
  int size = 0;
  for (int keys = t->end - t->first; keys > 1; keys /= 2) size++;
  return SIZES - 1 - size;
}

/* Calls `visit` for every tile of every prompt, a prompt's last one first. */
static void each_tile(const tri_attention_shape *s, const tri_batch *b,
                      void (*visit)(void *, const tri_attention_tile *), void *ctx) {
  for (int seq = 0; seq < b->num_seqs; seq++) {
    int begin = b->seq_start[seq], n = b->seq_start[seq + 1] - begin, context = b->context_len[seq];
    if (!is_prompt(s, b, seq)) continue;
    for (int i = (n - 1) / s->rows; i >= 0; i--) {
      tri_attention_tile t = {.row = begin + i * s->rows, .seq = seq, .context = context};
      t.rows = (int32_t)smaller(s->rows, n - i * s->rows);
      t.position = context - n + i * s->rows;
      t.first = first_key(s, s->causal ? t.position : context - 1);
      t.end = s->causal ? t.position + t.rows : context;
      visit(ctx, &t);
    }
  }
}

typedef struct tiler {
  int next[SIZES];
  tri_attention_tile *tiles;
} tiler;

static void count_tile(void *ctx, const tri_attention_tile *t) { ((tiler *)ctx)->next[tile_class(t)]++; }
static void put_tile(void *ctx, const tri_attention_tile *t) {
  tiler *k = ctx;
  k->tiles[k->next[tile_class(t)]++] = *t;
}

static int cut_prompts(const tri_attention_shape *s, const tri_batch *b, tri_attention_tile *tiles) {
  tiler k = {.tiles = tiles};
  int at = 0;
  each_tile(s, b, count_tile, &k);
  for (int i = 0; i < SIZES; i++) {
    int count = k.next[i];
    k.next[i] = at;
    at += count;
  }
  each_tile(s, b, put_tile, &k);
  return at;
}

/* ---- both ---- */

int tri_attention_most_parts(const tri_attention_shape *s, const tri_batch *b, int num_sms) {
  return (s->rows ? b->num_seqs : b->num_tokens) + most_extra(s, num_sms);
}

int tri_attention_most_tiles(const tri_attention_shape *s, const tri_batch *b) {
  return s->rows ? b->num_tokens / s->rows + b->num_seqs : 0;
}

void tri_attention_cut_batch(const tri_attention_shape *s, const tri_batch *b, int num_sms, tri_attention_part *parts,
                             tri_attention_tile *tiles, tri_attention_cut *out) {
  *out = (tri_attention_cut){.shape = *s, .parts = parts, .tiles = tiles};
  cut_contexts(s, b, num_sms, out, parts);
  out->num_tiles = s->rows ? cut_prompts(s, b, tiles) : 0;
}
