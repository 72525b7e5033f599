/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over paged keys, one kernel for decodes and prompt chunks.
 *
 * The query rows that share a KV head (tokens times heads of the group) are cut into tiles of up to TILE rows, which go
 * through the keys in blocks of BLOCK with a running maximum and sum, as FlashAttention-2 does (Dao, 2023): no more
 * than one block of scores exists at a time. Blocks and chunks lie at absolute key positions, and all that a row adds
 * up is added in key order, so a row's bits do not depend on other rows. A sequence with one new token has few
 * rows and perhaps many keys: its keys may be cut into chunks for several threads, whose partial results are merged in
 * order (Flash-Decoding). In deterministic mode chunks have one fixed length and every row goes through the same merges
 * whichever thread computes them. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/kv_heads.h"
#include "kernels/visible_keys.h"

enum { TILE = 64, BLOCK = 64, FIXED_CHUNK = 512, DIRECT_ROWS = 4, PANEL_ROWS = 12, AHEAD = 32 };
enum { DIRECT_BLOCK = 256 }; /* keys of a block for few rows: fewer rounds of the running softmax */
enum { PAD = 32 };           /* a multiple of every panel's width */

/* A thread's part of the workspace. */
typedef struct tile_state {
  float *q, *acc, *part; /* [TILE][pad]: scaled queries, sums, sums of the chunk */
  float *keys, *values;  /* [BLOCK][pad] widened */
  float *scores;         /* [TILE][BLOCK], or [DIRECT_ROWS][DIRECT_BLOCK] */
  float max[TILE], sum[TILE], part_max[TILE], part_sum[TILE];
  int token[TILE], head[TILE];                                /* of each row: token of the sequence, query head */
  int block;                                                  /* keys of a block, and places of a row of scores */
  const char *at[2 * DIRECT_BLOCK + AHEAD + TRI_SCORE_GROUP]; /* see list_rows */
} tile_state;

typedef struct attention_run {
  tri_backend *be;
  const tri_cpu_isa *isa;
  const tri_attention_args *a;
  int chunk, max_chunks; /* keys of a chunk; chunks a decoding sequence is cut into at most, 1: not cut */
  int pad;               /* head_dim rounded up, in floats */
  int value_dim;
  const void *values;
  float *partial; /* [S][hq][max_chunks][2 + value_dim]: max, sum, weighted values */
  char *threads;
  size_t thread_bytes;
  tri_ticket ticket, merge_ticket;
} attention_run;

typedef struct tile {
  int seq, kv_head, row, rows; /* row: of the (token, head) rows of this KV head */
  int chunk;                   /* -1: all keys */
  int start, tokens, context;  /* of the sequence */
  tri_heads heads;             /* of this KV head */
} tile;

static size_t state_floats(size_t pad) { return 3 * TILE * pad + 2 * BLOCK * pad + TILE * BLOCK; }

static size_t partial_bytes(const tri_attention_args *a, int chunks) {
  size_t rows = (size_t)a->batch->num_seqs * (size_t)a->num_heads * (size_t)chunks;
  return chunks > 1 ? tri_round_up(rows * ((size_t)tri_kv_value_dim(&a->kv) + 2) * sizeof(float), 64) : 0;
}

/* plan->variant is the keys of a chunk, plan->split the chunks of the longest context (1: none is cut). The workspace
 * has the partial results of all chunks, then each thread's tile_state arrays. */
tri_status tri_cpu_attention_plan(tri_backend *be, const tri_attention_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_attention_plan(be, a, plan));
  int threads = tri_pool_size(be->pool), context = tri_max(1, a->batch->max_context);
  int units = tri_max(1, a->batch->num_seqs * a->kv.num_kv_heads);
  int chunk = FIXED_CHUNK, chunks = (context + chunk - 1) / chunk;
  if (!be->deterministic) {
    /* Cut only as far as it takes to give every thread a few items, and never below a few blocks. */
    chunks = tri_min(tri_max(1, 4 * threads / units), tri_max(1, context / (4 * BLOCK)));
    if (threads == 1) chunks = 1;
    chunk = (int)tri_round_up((size_t)((context + chunks - 1) / chunks), BLOCK);
    chunks = (context + chunk - 1) / chunk;
  } else if (threads == 1 || units >= 4 * threads) {
    chunks = 1; /* merged on the spot, with the same result */
  }
  plan->variant = chunk;
  plan->split = chunks;
  size_t state = tri_round_up(state_floats(tri_round_up((size_t)a->kv.head_dim, PAD)) * sizeof(float), 64);
  plan->workspace = partial_bytes(a, chunks) + (size_t)threads * state;
  return TRI_OK;
}

/* The keys that a token of the sequence sees: begin .. end - 1. */
static void visible(const tri_attention_args *a, const tile *t, int token, int *begin, int *end) {
  int position = t->context - t->tokens + token;
  *begin = tri_first_key(a->window, a->chunked, position);
  *end = tri_last_key(a->causal, a->window, position, t->context) + 1;
}

static void load_queries(const attention_run *r, const tile *t, tile_state *s) {
  const tri_attention_args *a = r->a;
  int d = a->kv.head_dim, token = t->row / t->heads.count, member = t->row % t->heads.count;
  for (int i = 0; i < t->rows; i++, member++) {
    if (member == t->heads.count) {
      member = 0;
      token++;
    }
    int head = t->heads.first + member;
    const float *q = a->q.data + (size_t)(t->start + token) * (size_t)a->q.ld + (size_t)head * (size_t)d;
    r->isa->expand(s->q + (size_t)i * (size_t)r->pad, q, TRI_F32, d, a->scale);
    s->token[i] = token;
    s->head[i] = head;
  }
}

static const char *kv_at(const attention_run *r, const tile *t, const void *base, int key) {
  const tri_batch *b = r->a->batch;
  const int32_t *kv_blocks = tri_batch_blocks(b, t->seq);
  return (const char *)base + tri_ref_kv_offset(&r->a->kv, kv_blocks, key, t->kv_head) * tri_dtype_size(r->a->kv.dtype);
}

/* Keys or values of a block, widened: row j at out + j * ld, elements from .. from + n - 1 of it. */
static void widen_block(const attention_run *r, const tile *t, const void *kv_blocks, int block, int keys, int from,
                        int n, float *out, size_t ld) {
  const tri_kv_layer *kv = &r->a->kv;
  size_t element = tri_dtype_size(kv->dtype), row = (size_t)kv->head_dim * element;
  for (int j = 0, run; j < keys; j += run) {
    run = tri_min(keys - j, kv->block_size - (block + j) % kv->block_size);
    const char *at = kv_at(r, t, kv_blocks, block + j) + (size_t)from * element;
    for (int i = 0; i < run; i++) r->isa->expand(out + (size_t)(j + i) * ld, at + (size_t)i * row, kv->dtype, n, 1);
  }
}

/* Algorithms for a block, by the number of query rows. Few: keys and values as they lie in their blocks. More: they
 * are widened once for all rows. Many: as panels for outer products, whose sums have another order, which deterministic
 * mode must not switch to. */
typedef enum algorithm { DIRECT, WIDENED, PANELS } algorithm;
static algorithm algorithm_of(const attention_run *r, const tile *t) {
  if (t->rows <= DIRECT_ROWS) return DIRECT;
  return t->rows >= PANEL_ROWS && !r->be->deterministic ? PANELS : WIDENED;
}

/* The rows that a block's work reads, in the order of work: its keys, its values, the next block's first keys. KV
 * blocks lie anywhere, and the processor's own prefetch starts anew at each, so what comes AHEAD rows later is fetched.
 */
static void list_rows(const attention_run *r, const tile *t, tile_state *s, int block, int keys) {
  const tri_kv_layer *kv = &r->a->kv;
  size_t row = (size_t)kv->head_dim * tri_dtype_size(kv->dtype);
  int known = tri_min(keys + AHEAD, t->context - block);
  for (int j = 0, run; j < known; j += run) {
    run = tri_min((j < keys ? keys : known) - j, kv->block_size - (block + j) % kv->block_size);
    const char *k = kv_at(r, t, kv->k, block + j), *v = kv_at(r, t, r->values, block + j);
    const char **at = s->at + (j < keys ? j : keys + j);
    for (int i = 0; i < run; i++) at[i] = k + (size_t)i * row;
    if (j < keys)
      for (int i = 0; i < run; i++) at[keys + i] = v + (size_t)i * row;
  }
  for (int j = known; j < keys + AHEAD + TRI_SCORE_GROUP; j++) s->at[keys + j] = s->at[0];
}

/* The same, but widened. */
static void list_widened(const attention_run *r, tile_state *s, int keys) {
  const float *values = r->a->kv.v_dim ? s->keys : s->values; /* a latent cache's values have been widened as keys */
  for (int j = 0; j < keys; j++) {
    s->at[j] = (const char *)(s->keys + (size_t)j * (size_t)r->pad);
    s->at[keys + j] = (const char *)(values + (size_t)j * (size_t)r->pad);
  }
  for (int j = 0; j < TRI_SCORE_GROUP; j++) s->at[2 * keys + j] = s->at[0];
}

/* scores[i][j] = q_i . k_(block + j) */
static void score_block(const attention_run *r, const tile *t, tile_state *s, int block, int keys) {
  const tri_kv_layer *kv = &r->a->kv;
  int d = kv->head_dim, cols = r->isa->panel_cols;
  size_t pad = (size_t)r->pad;
  algorithm how = algorithm_of(r, t);
  if (how != DIRECT) widen_block(r, t, kv->k, block, keys, 0, d, s->keys, pad);
  if (how != PANELS) {
    if (how == DIRECT)
      list_rows(r, t, s, block, keys);
    else
      list_widened(r, s, keys);
    tri_scores scores = {.q = s->q, .ldq = pad, .at = s->at, .dtype = TRI_F32, .s = s->scores, .ld = (size_t)s->block};
    scores.rows = t->rows;
    scores.keys = keys;
    scores.d = d;
    if (how == DIRECT) {
      scores.dtype = kv->dtype;
      scores.ahead = AHEAD;
    }
    r->isa->scores(&scores);
    return;
  }
  tri_panel p = {.x = s->q, .ldx = pad, .w = s->values, .ldy = BLOCK, .m = t->rows, .k = d};
  tri_panel_pack pack = {.out = s->values, .ldw = pad, .dtype = TRI_F32, .k = d};
  for (int j = 0; j < keys; j += cols) {
    pack.w = s->keys + (size_t)j * pad;
    pack.n = p.n = tri_min(cols, keys - j);
    p.y = s->scores + j;
    r->isa->pack(&pack);
    r->isa->panel(&p);
  }
}

/* part = factor * part + scores . values: the running maximum has changed, so what was summed with the old one is
 * scaled. DIRECT and WIDENED read the rows that score_block has listed; PANELS needs no turning here, as a row of
 * values already lies as a row of the panel. */
static void weigh_block(const attention_run *r, const tile *t, tile_state *s, const float *factor, int block,
                        int keys) {
  const tri_kv_layer *kv = &r->a->kv;
  int d = r->value_dim, cols = r->isa->panel_cols;
  size_t pad = (size_t)r->pad;
  algorithm how = algorithm_of(r, t);
  if (how == WIDENED && !kv->v_dim) widen_block(r, t, r->values, block, keys, 0, d, s->values, pad);
  if (how != PANELS) {
    tri_weigh weigh = {.acc = s->part, .ld = pad, .factor = factor, .p = s->scores, .ldp = (size_t)s->block};
    weigh.at = s->at + keys;
    weigh.dtype = TRI_F32;
    weigh.rows = t->rows;
    weigh.keys = keys;
    weigh.d = d;
    if (how == DIRECT) {
      weigh.dtype = kv->dtype;
      weigh.ahead = AHEAD;
    }
    r->isa->weigh(&weigh);
    return;
  }
  for (int i = 0; i < t->rows; i++) {
    float *sums = s->part + (size_t)i * pad;
    if (factor[i] != 1) r->isa->expand(sums, sums, TRI_F32, d, factor[i]);
  }
  tri_panel p = {.x = s->scores, .ldx = BLOCK, .w = s->values, .ldy = pad, .m = t->rows, .k = keys, .add = true};
  for (int e = 0; e < d; e += cols) { /* a row of values is a row of the panel; what lies after its end is not stored */
    p.n = tri_min(cols, d - e);
    p.y = s->part + e;
    widen_block(r, t, r->values, block, keys, e, p.n, s->values, (size_t)cols);
    r->isa->panel(&p);
  }
}

/* Adds the position bias to keys from .. to - 1 of a block's scores. */
static void add_bias(const tri_attention_args *a, int head, int position, int block, int from, int to, float *scores) {
  const float *bias = a->position_bias + (size_t)head * (size_t)a->bias_len;
  int shift = block + a->bias_offset - (a->bias_relative ? position : 0);
  for (int j = from; j < to; j++) scores[j] += bias[tri_max(0, tri_min(a->bias_len - 1, j + shift))];
}

static void attend_block(const attention_run *r, const tile *t, tile_state *s, int block, int keys) {
  const tri_attention_args *a = r->a;
  float factor[TILE];
  score_block(r, t, s, block, keys);
  for (int i = 0; i < t->rows; i++) {
    float *row = s->scores + i * s->block;
    int begin, end, token = s->token[i], position = t->context - t->tokens + token;
    visible(a, t, token, &begin, &end);
    tri_softmax_row soft = {.s = row, .n = keys, .softcap = a->softcap, .max = s->part_max[i], .sum = s->part_sum[i]};
    soft.begin = tri_max(0, begin - block);
    soft.end = tri_min(keys, end - block);
    if (a->alibi_slopes) soft.slope = a->alibi_slopes[s->head[i]];
    soft.distance = (float)(block - position);
    if (soft.begin >= soft.end) { /* sees nothing here: its sums must come out as they were */
      memset(row, 0, (size_t)keys * sizeof *row);
      factor[i] = 1;
      continue;
    }
    if (a->position_bias) add_bias(a, s->head[i], position, block, soft.begin, soft.end, row);
    factor[i] = r->isa->softmax_row(&soft);
    s->part_max[i] = soft.max;
    s->part_sum[i] = soft.sum;
  }
  weigh_block(r, t, s, factor, block, keys);
}

static void clear(float *max, float *sum, float *acc, int rows, size_t pad) {
  for (int i = 0; i < rows; i++) {
    max[i] = -INFINITY;
    sum[i] = 0;
  }
  memset(acc, 0, (size_t)rows * pad * sizeof *acc);
}

/* Adds one chunk's max, sum and weighted values to a row's. */
static void merge(const tri_cpu_isa *isa, float *max, float *sum, float *acc, float chunk_max, float chunk_sum,
                  const float *chunk_acc, int d) {
  if (chunk_max == -INFINITY) return;
  if (*max == -INFINITY) {
    *max = chunk_max;
    *sum = chunk_sum;
    memcpy(acc, chunk_acc, (size_t)d * sizeof *acc);
    return;
  }
  float top = fmaxf(*max, chunk_max), old = expf(*max - top), fresh = expf(chunk_max - top);
  float a = *sum * old, b = chunk_sum * fresh;
  *sum = a + b;
  *max = top;
  isa->blend(acc, old, chunk_acc, fresh, d);
}

static void finish_row(const attention_run *r, int token, int head, float max, float sum, const float *acc) {
  const tri_attention_args *a = r->a;
  int d = r->value_dim;
  float scale = 1;
  if (a->sinks) {
    float top = fmaxf(max, a->sinks[head]);
    scale = expf(max - top);
    float scaled = sum * scale;
    sum = scaled + expf(a->sinks[head] - top);
  }
  float *out = a->out.data + (size_t)token * (size_t)a->out.ld + (size_t)head * (size_t)d;
  r->isa->expand(out, acc, TRI_F32, d, scale / sum);
}

static float *partial_of(const attention_run *r, int seq, int head, int chunk) {
  size_t row = ((size_t)seq * (size_t)r->a->num_heads + (size_t)head) * (size_t)r->max_chunks + (size_t)chunk;
  return r->partial + row * ((size_t)r->value_dim + 2);
}

/* In deterministic mode a row's chunks are merged whichever thread computes them; otherwise a thread that has all keys
 * needs none. */
static void attend_tile(const attention_run *r, const tile *t, tile_state *s) {
  const tri_attention_args *a = r->a;
  int d = r->value_dim, begin, end, other;
  size_t pad = (size_t)r->pad;
  load_queries(r, t, s);
  visible(a, t, s->token[0], &begin, &other);
  visible(a, t, s->token[t->rows - 1], &other, &end);
  if (t->chunk >= 0) {
    begin = tri_max(begin, t->chunk * r->chunk);
    end = (int)tri_min(end, t->chunk * r->chunk + r->chunk);
  }
  /* In deterministic mode a row's blocks may not depend on other rows. */
  s->block = algorithm_of(r, t) == DIRECT && !r->be->deterministic ? DIRECT_BLOCK : BLOCK;
  bool merging = r->be->deterministic && t->chunk < 0 && end > r->chunk;
  if (merging) clear(s->max, s->sum, s->acc, t->rows, pad);
  clear(s->part_max, s->part_sum, s->part, t->rows, pad);
  for (int block = begin / BLOCK * BLOCK; block < end; block += s->block) {
    attend_block(r, t, s, block, tri_min(s->block, end - block));
    if (!merging || ((block + BLOCK) % r->chunk && block + BLOCK < end)) continue;
    for (int i = 0; i < t->rows; i++)
      merge(r->isa, &s->max[i], &s->sum[i], s->acc + (size_t)i * pad, s->part_max[i], s->part_sum[i],
            s->part + (size_t)i * pad, d);
    clear(s->part_max, s->part_sum, s->part, t->rows, pad);
  }
  for (int i = 0; i < t->rows; i++) {
    const float *part = s->part + (size_t)i * pad;
    if (merging) {
      finish_row(r, t->start + s->token[i], s->head[i], s->max[i], s->sum[i], s->acc + (size_t)i * pad);
    } else if (t->chunk < 0) {
      finish_row(r, t->start + s->token[i], s->head[i], s->part_max[i], s->part_sum[i], part);
    } else {
      float *p = partial_of(r, t->seq, s->head[i], t->chunk);
      p[0] = s->part_max[i];
      p[1] = s->part_sum[i];
      memcpy(p + 2, part, (size_t)d * sizeof *p);
    }
  }
}

/* Decodes alone are cut: the rows of a prompt's chunk are enough items to keep all threads busy. */
static bool is_cut(const attention_run *r, const tile *t) {
  return r->max_chunks > 1 && t->tokens == 1 && t->context > r->chunk;
}

/* Every thread walks the same list of items, and does those whose number it takes from the shared counter. */
static void attend_items(attention_run *r, tile_state *s) {
  const tri_attention_args *a = r->a;
  const tri_batch *b = a->batch;
  int64_t number = 0, mine = tri_take(&r->ticket);
  for (int seq = 0; seq < b->num_seqs; seq++) {
    tile t = {.seq = seq, .start = b->seq_start[seq], .context = b->context_len[seq]};
    t.tokens = b->seq_start[seq + 1] - t.start;
    int chunks = is_cut(r, &t) ? (t.context + r->chunk - 1) / r->chunk : 1;
    for (int g = 0; g < a->kv.num_kv_heads; g++) {
      t.kv_head = g;
      t.heads = tri_heads_of(a, g);
      int rows = t.tokens * t.heads.count, tiles = (rows + TILE - 1) / TILE;
      int64_t items = (int64_t)tiles * chunks;
      for (; mine < number + items; mine = tri_take(&r->ticket)) {
        int item = (int)(mine - number);
        t.row = item / chunks * TILE;
        t.rows = tri_min(TILE, rows - t.row);
        t.chunk = chunks > 1 ? item % chunks : -1;
        attend_tile(r, &t, s);
      }
      number += items;
    }
  }
}

/* After the barrier: each row of a cut sequence is one thread's, which adds up the chunks in their order, whatever the
 * order was in which they were computed. */
static void merge_items(attention_run *r, tile_state *s) {
  const tri_attention_args *a = r->a;
  const tri_batch *b = a->batch;
  for (int row; (row = tri_take(&r->merge_ticket)) < b->num_seqs * a->num_heads;) {
    int head = row % a->num_heads;
    tile t = {.seq = row / a->num_heads};
    t.start = b->seq_start[t.seq];
    t.tokens = b->seq_start[t.seq + 1] - t.start;
    t.context = b->context_len[t.seq];
    if (!is_cut(r, &t)) continue;
    clear(s->max, s->sum, s->acc, 1, (size_t)r->pad);
    for (int c = 0; c < (t.context + r->chunk - 1) / r->chunk; c++) {
      const float *p = partial_of(r, t.seq, head, c);
      merge(r->isa, s->max, s->sum, s->acc, p[0], p[1], p + 2, r->value_dim);
    }
    finish_row(r, t.start, head, s->max[0], s->sum[0], s->acc);
  }
}

static void attention_thread(void *ctx, int index, int count) {
  attention_run *r = ctx;
  size_t pad = (size_t)r->pad;
  float *base = (float *)(r->threads + (size_t)index * r->thread_bytes);
  tile_state s = {.q = base, .acc = base + TILE * pad, .part = base + 2 * TILE * pad, .keys = base + 3 * TILE * pad};
  s.values = s.keys + BLOCK * pad;
  s.scores = s.values + BLOCK * pad;
  attend_items(r, &s);
  if (r->max_chunks == 1) return;
  if (count > 1) tri_pool_barrier(r->be->pool);
  merge_items(r, &s);
}

void tri_cpu_attention_launch(tri_backend *be, const tri_op_plan *plan, const tri_attention_args *a) {
  const tri_batch *b = a->batch;
  attention_run r = {.be = be, .isa = tri_cpu_isa_of(be), .a = a, .chunk = plan->variant, .max_chunks = plan->split};
  r.pad = (int)tri_round_up((size_t)a->kv.head_dim, PAD);
  r.value_dim = tri_kv_value_dim(&a->kv);
  r.values = tri_kv_values(&a->kv);
  r.partial = be->workspace;
  r.threads = (char *)r.partial + partial_bytes(a, r.max_chunks);
  r.thread_bytes = tri_round_up(state_floats((size_t)r.pad) * sizeof(float), 64);
  double pairs = 0;
  for (int s = 0; s < b->num_seqs; s++) pairs += (double)(b->seq_start[s + 1] - b->seq_start[s]) * b->context_len[s];
  /* Scores and values: two multiply-adds for an element of a key. */
  double macs = 2 * pairs * a->num_heads * a->kv.head_dim;
  if (pairs > 0) tri_cpu_run(be, macs / TRI_CPU_MACS_PER_NS, attention_thread, &r);
}
