/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of single tokens and of prompts, plain and latent, on a device: see bench_device.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/opcheck/bench_device.h"

typedef struct heads {
  int hq, hkv, d, v_dim; /* v_dim: of a latent cache, else 0 */
  int block;             /* tokens of a KV block */
} heads;

/* Sequences of so many new tokens and keys, the first of which may differ, in KV blocks of their own that are scattered
 * as a server's are. */
typedef struct crowd {
  int seqs, tokens, context;
  int first_tokens, longest;
} crowd;

enum { NAME_BYTES = 144 };

static void name_crowd(char name[NAME_BYTES], const heads *g, const crowd *c) {
  char other[32] = "", block[16] = "";
  if (c->longest != c->context) snprintf(other, sizeof other, " but one %d", c->longest);
  if (g->block != BLOCK) snprintf(block, sizeof block, ", block %d", g->block);
  if (g->v_dim)
    snprintf(name, NAME_BYTES, "attention bfloat16 %d x %d, context %d, latent, %d heads", c->seqs, c->tokens,
             c->context, g->hq);
  else if (c->first_tokens != c->tokens)
    snprintf(name, NAME_BYTES, "attention bfloat16 %d + %d x %d tokens, context %d, d %d", c->first_tokens, c->seqs - 1,
             c->tokens, c->context, g->d);
  else
    snprintf(name, NAME_BYTES, "attention bfloat16 %d x %d tokens, context %d%s, d %d%s", c->seqs, c->tokens,
             c->context, other, g->d, block);
}

static crowd alike(int seqs, int tokens, int context) { return (crowd){seqs, tokens, context, tokens, context}; }

static void bench_attention(bench *b, const heads *g, crowd c) {
  enum { MAX_SEQS = 64 };
  static tri_attention_args a[MAX_COPIES];
  int block = g->block, seqs = c.seqs, tokens = c.tokens, context = c.context, longest = c.longest;
  int per_seq = (longest + block - 1) / block, rows = c.first_tokens + (seqs - 1) * tokens;
  int kv_blocks = per_seq + (seqs - 1) * ((context + block - 1) / block);
  int hq = g->hq, d = g->d, wide = g->v_dim ? g->v_dim : d;
  size_t kv = (size_t)(kv_blocks * g->hkv * block) * (size_t)d, width = (size_t)rows * (size_t)(hq * d);
  double bytes = (g->v_dim ? 2.0 : 4.0) * (double)kv + rows * hq * 2.0 * (d + wide), seen = 0;
  int copies = c.first_tokens > 1 ? 4 : bench_copies_of(bytes);
  int32_t start[MAX_SEQS + 1] = {0}, contexts[MAX_SEQS], *table = calloc((size_t)(seqs * per_seq), sizeof *table);
  int32_t block_start[MAX_SEQS + 1];
  if (!table) bench_give_up("no memory");
  for (int s = 0; s < seqs; s++) {
    int n = s ? tokens : c.first_tokens;
    start[s + 1] = start[s] + n, contexts[s] = s ? context : longest;
    for (int j = 0; j < n; j++) seen += contexts[s] - n + j + 1;
  }
  for (int i = 0, next = 0; i < per_seq; i++)
    for (int s = 0; s < seqs; s++)
      if (i * block < contexts[s]) table[s * per_seq + i] = next++;
  tri_batch batch = {.num_tokens = rows, .num_seqs = seqs, .max_context = longest};
  batch.max_query = c.first_tokens, batch.num_single = tokens == 1 ? seqs - (c.first_tokens > 1) : 0;
  batch.seq_start = start, batch.context_len = contexts, batch.block_table = table;
  batch.block_start = block_start;
  for (int s = 0; s <= seqs; s++) block_start[s] = s * per_seq;
  uint16_t *k = bench_elements(b, TRI_BF16, kv * (size_t)copies), *v = k;
  if (!g->v_dim) v = bench_elements(b, TRI_BF16, kv * (size_t)copies);
  float *q = bench_elements(b, TRI_BF16, width), *out = bench_room(b, (size_t)rows * (size_t)(hq * wide) * 2);
  for (int i = 0; i < copies; i++) {
    a[i] = (tri_attention_args){
        .q = bench_matrix(q, rows, hq * d), .batch = &batch, .out = bench_matrix(out, rows, hq * wide)};
    a[i].q.dtype = a[i].out.dtype = TRI_BF16;
    a[i].kv = (tri_kv_layer){.k = k + (size_t)i * kv, .v = v + (size_t)i * kv, .dtype = TRI_BF16};
    a[i].kv.num_blocks = kv_blocks, a[i].kv.num_kv_heads = g->hkv, a[i].kv.block_size = block;
    a[i].kv.head_dim = d, a[i].kv.v_dim = g->v_dim;
    a[i].num_heads = hq, a[i].heads_per_kv = hq / g->hkv;
    a[i].scale = 1 / sqrtf((float)d), a[i].causal = true;
  }
  tri_batch host = batch;
  if (b->c->be->ops.bind_batch(b->c->be, 0, &host, a, 1, &batch)) bench_give_up("no memory");
  char name[NAME_BYTES];
  name_crowd(name, g, &c);
  double gemms = seen * hq * (d + wide);
  bench_report(b, name, WORK(attention, a, copies, .bytes = bytes, .gemms = gemms, .type = TRI_BF16));
  bench_release(b);
  free(table);
}

/* Prompts whole and behind a context, in KV blocks of the usual size and of a larger one. */
static void bench_prompts(bench *b, int hq, int hkv, int d) {
  bool quick = b->c->opt.quick;
  for (int block = BLOCK; block <= 4 * BLOCK; block *= 4) {
    const heads g = {hq, hkv, d, 0, block};
    for (int tokens = 512; tokens <= (quick ? 512 : 8192); tokens *= 4)
      bench_attention(b, &g, alike(1, tokens, tokens));
    if (!quick) bench_attention(b, &g, alike(1, 2048, 8192));
    if (!quick) bench_attention(b, &g, alike(1, 8192, 32768));
    if (!quick) bench_attention(b, &g, alike(8, 256, 256));
    for (int seqs = 1; seqs <= 16; seqs *= 16) bench_attention(b, &g, alike(seqs, 64, 4160)); /* second turns */
    for (int context = 16; context <= 1024; context *= 4)
      for (int seqs = 1; seqs <= 16; seqs *= 16) bench_attention(b, &g, alike(seqs, 16, context)); /* short ones */
  }
}

/* Single tokens of wide heads. */
static void bench_wide(bench *b, heads g) {
  for (int context = 130; context <= 2080; context *= 16)
    for (int seqs = 1; seqs <= 32; seqs *= 32) bench_attention(b, &g, alike(seqs, 1, context));
}

/* Llama 3 8B's heads and shorter ones; then latent ones, DeepSeek-V3's and those of V2-Lite or of a rank of eight. */
void bench_device_attention(bench *b) {
  enum { LONG = 120000 };
  bool quick = b->c->opt.quick;
  for (int d = 128; d >= 64; d -= 64) {
    const heads g = {32, 8, d, 0, BLOCK};
    for (int seqs = 1; seqs <= (quick ? 1 : 8); seqs *= 8) bench_attention(b, &g, alike(seqs, 1, 130));
    for (int context = 512; context <= 4096; context *= 8) {
      bench_attention(b, &g, alike(1, 1, context));
      if (!quick) bench_attention(b, &g, alike(8, 1, context));
      bench_attention(b, &g, alike(32, 1, context));
    }
    bench_attention(b, &g, alike(32, 1, 8192));
    bench_attention(b, &g, (crowd){32, 1, 512, 1, LONG});
    bench_attention(b, &g, alike(1, 1, LONG));
    bench_prompts(b, g.hq, g.hkv, d);
    bench_attention(b, &g, (crowd){33, 1, 512, 512, 512});
    if (!quick) bench_attention(b, &g, (crowd){33, 1, 2048, 2048, 2048});
    if (!quick) bench_attention(b, &g, alike(32, 1, 2048));
  }
  bench_prompts(b, 16, 8, 256); /* Gemma 2 9B's */
  bench_wide(b, (heads){16, 8, 256, 0, BLOCK});
  bench_wide(b, (heads){16, 2, 512, 0, BLOCK}); /* Gemma 4 26B's global layers */
  for (int tokens = 512; tokens <= (quick ? 512 : 8192); tokens *= 4)
    bench_attention(b, &(heads){16, 2, 512, 0, BLOCK}, alike(1, tokens, tokens));
  for (int hq = 128; hq >= 16; hq /= 8) {
    const heads g = {hq, 1, 576, 512, BLOCK};
    for (int context = 4096; context <= (quick ? 4096 : 32768); context *= 8) {
      bench_attention(b, &g, alike(1, 1, context));
      bench_attention(b, &g, alike(32, 1, context));
    }
    for (int tokens = 2048; tokens <= 8192 && !quick; tokens *= 4) bench_attention(b, &g, alike(1, tokens, tokens));
    if (!quick) bench_attention(b, &g, alike(1, 2048, 8192));
  }
}

/* A quarter of a GiB in KV blocks of so many KiB for a layer's keys, which lie apart, between the device and pinned
 * memory of the host. What it is held against is the device's memory; the link gives less. */
static void bench_moves(bench *b, int kib, bool out) {
  enum { LAYERS = 32, HEADS = 8, D = 64, ALL = 1 << 18, MOST = ALL / 2 / LAYERS };
  static tri_move_blocks_args a;
  int32_t pairs[2 * MOST];
  int blocks = ALL / 2 / LAYERS / kib;
  size_t bytes = (size_t)ALL << 10;
  void *pool = NULL;
  char name[NAME_BYTES];
  if (b->be->ops.host_alloc(b->be, bytes, &pool) != TRI_OK) bench_give_up("no pinned memory");
  for (int i = 0; i < blocks; i++) pairs[2 * i] = i, pairs[2 * i + 1] = blocks - 1 - i;
  char *cache = bench_room(b, bytes);
  a = (tri_move_blocks_args){.num_layers = LAYERS, .layer_stride = bytes / LAYERS, .host = pool, .pairs = pairs};
  a.kv = (tri_kv_layer){cache, cache + bytes / LAYERS / 2, TRI_BF16, blocks, HEADS, kib, D, 0};
  a.num_host_blocks = a.num_pairs = blocks, a.out = out;
  NAME("move_blocks %s, %d blocks of %d x 2 x %d KiB", out ? "out" : "in", blocks, LAYERS, kib);
  bench_report(b, name, WORK(move_blocks, &a, 1, .bytes = (double)bytes));
  bench_release(b);
  b->be->ops.host_free(b->be, pool, bytes);
}

void bench_device_moves(bench *b) {
  for (int kib = 8; kib <= 128; kib *= 2) {
    bench_moves(b, kib, true);
    bench_moves(b, kib, false);
  }
}
