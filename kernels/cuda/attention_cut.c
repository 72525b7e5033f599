#include "kernels/cuda/attention_cut.h"

/* Tiles of a run: there are two runs for a multiprocessor where each still has more than SOME, since the latencies of
 * their blocks hide one another, and all it has room for where each has more than MANY. One keeps its place beside a
 * product's. Where there are contexts enough for all multiprocessors, those of up to MANY stay whole. */
enum { LEAST = 2, SOME = 8, MANY = 16 };

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

enum { SIZES = 64 }; /* parts are ordered by length, in steps of the longest's 64th */

typedef struct cutter {
  const tri_attention_shape *s;
  int rows, runs;
  int64_t tiles, quota; /* of all contexts; of a run */
  int64_t whole;        /* contexts of so many tiles are not cut */
  int64_t room;         /* tiles that the run under way still takes */
  int num_parts, num_places;
  int next[SIZES]; /* first the parts of a size, then where its next one goes */
  tri_attention_part *parts;
} cutter;

static void count_tiles(void *ctx, const context *c) {
  cutter *k = ctx;
  k->rows++;
  k->tiles += tiles_of(k->s, c);
}

/* Runs, of which each unit has as many: a context lies in all of them at most. */
static int runs_for(const tri_attention_shape *s, int per_sm, int num_sms) {
  return (int)larger(smaller(per_sm * num_sms / s->units, s->most_splits - 1), 1);
}

/* Of short contexts a power of two: recorded steps serve a range of lengths. */
static void choose_runs(cutter *k, int num_sms) {
  int one = runs_for(k->s, 1, num_sms), two = runs_for(k->s, (int)smaller(2, k->s->blocks), num_sms), runs = 1;
  while (runs < one && LEAST * runs < k->tiles) runs *= 2;
  k->runs = (int)smaller(runs, one);
  if (k->tiles > (int64_t)SOME * one) k->runs = two;
  if (k->tiles > (int64_t)MANY * two) k->runs = runs_for(k->s, k->s->blocks, num_sms);
  k->quota = larger((k->tiles + k->runs - 1) / k->runs, LEAST);
  k->whole = larger(k->quota + k->quota / 8, k->rows < one ? LEAST : MANY);
}

/* Returns how many tiles of a context that still has `left` of them the next part takes: what the run has room for, but
 * no crumbs. */
static int64_t take(cutter *k, int64_t left) {
  int64_t least = larger(k->quota / 8, LEAST);
  while (k->room < least) k->room += k->quota;
  int64_t n = left < k->room + least ? left : k->room;
  k->room -= n;
  return n;
}

static int size_class(const cutter *k, int64_t tiles) {
  return (int)(SIZES - 1 - smaller(tiles * SIZES / (2 * larger(k->whole, k->quota) + 1), SIZES - 1));
}

static void put_part(cutter *k, const context *c, int64_t from, int64_t tiles, tri_attention_part p) {
  int *next = &k->next[size_class(k, tiles)];
  int64_t keys = k->s->keys;
  k->num_parts++;
  if (!k->parts) {
    ++*next;
    return;
  }
  p.row = c->row;
  p.seq = c->seq;
  p.position = c->position;
  p.first = (int32_t)(c->first + from * keys);
  p.end = (int32_t)smaller(c->first + (from + tiles) * keys, c->end);
  k->parts[(*next)++] = p;
}

static void cut_context(void *ctx, const context *c) {
  cutter *k = ctx;
  int64_t tiles = tiles_of(k->s, c);
  if (tiles <= k->whole) {
    put_part(k, c, 0, tiles, (tri_attention_part){.splits = 1, .place = -1});
    return;
  }
  int splits = 0;
  cutter ahead = *k;
  for (int64_t done = 0; done < tiles; splits++) done += take(&ahead, tiles - done);
  for (int64_t done = 0, i = 0; i < splits; i++) {
    int64_t n = take(k, tiles - done);
    int place = splits > 1 ? k->num_places++ : -1;
    put_part(k, c, done, n, (tri_attention_part){.split = (int32_t)i, .splits = splits, .place = place});
    done += n;
  }
}

/* Counts the parts where k->parts is NULL, else puts them. */
static void cut_all(cutter *k, const tri_batch *b) {
  k->room = k->quota;
  k->num_parts = k->num_places = 0;
  each_context(k->s, b, cut_context, k);
}

static void cut_contexts(const tri_attention_shape *s, const tri_batch *b, int num_sms, tri_attention_cut *out,
                         tri_attention_part *parts) {
  cutter k = {.s = s};
  each_context(s, b, count_tiles, &k);
  choose_runs(&k, num_sms);
  cut_all(&k, b);
  for (int i = 0, at = 0; i < SIZES; i++) {
    int count = k.next[i];
    k.next[i] = at;
    at += count;
  }
  k.parts = parts;
  cut_all(&k, b);
  /* A context is cut where a run ends. */
  out->num_parts = k.rows + (k.num_places ? k.runs - 1 : 0);
  out->num_places = k.num_places ? 2 * k.runs : 0;
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
  return (s->rows ? b->num_seqs : b->num_tokens) + runs_for(s, s->blocks, num_sms);
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
