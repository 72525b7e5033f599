/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

/* The elements of two matrices with gaps, the device's against the reference's: what neither wrote is NaN in both. */
static void compare_all(oc *c, const tri_mat *want, const tri_mat *got, double limit) {
  size_t n = (size_t)want->rows * (size_t)want->ld;
  char *stored = oc_host(c, n * sizeof(float));
  for (size_t i = 0; i < n; i++) tri_store_f32(stored, got->dtype, i, want->data[i]);
  oc_compare_elements(c, got->dtype, stored, got->data, n, limit);
}

/* Returns the weights' type, as steps have it, another one, or float32. */
static tri_dtype input_type(oc *c, tri_dtype weights) {
  if (!c->be->narrow_activations || oc_chance(c, 30)) return TRI_F32;
  return weights > TRI_BF16 || oc_chance(c, 15) ? oc_narrow_type(c) : weights;
}

/* In quadruples, as steps have them, or of any pitch. */
static tri_mat pitched(oc *c, int rows, int cols, bool fours, bool poisoned) {
  tri_mat m = oc_matrix(c, rows, cols, poisoned);
  while (fours && m.ld % 4) m = oc_matrix(c, rows, cols, poisoned);
  return m;
}

/* The last rows of many, on their own, have the same bits: how sums are cut depends on the weights alone. */
static void compare_last(oc *c, const tri_head_linear_args *many) {
  enum { FEW = 7 };
  size_t size = tri_dtype_size(many->out.dtype), row = (size_t)many->out.ld * size, first = (size_t)many->x.rows - FEW;
  char *want = oc_host(c, FEW * row), *got = oc_host(c, FEW * row);
  memset(got, 0xff, FEW * row);
  tri_head_linear_args few = *many;
  few.x.rows = few.out.rows = FEW, few.out.data = oc_device(c, got, FEW * row);
  few.x.data = (float *)((char *)few.x.data + first * (size_t)few.x.ld * tri_dtype_size(few.x.dtype));
  oc_expect(c, tri_run_head_linear(c->be, &few) == TRI_OK, "does not run with %d rows", FEW);
  oc_download(c, want, (const char *)many->out.data + first * row, FEW * row);
  oc_download(c, got, few.out.data, FEW * row);
  int bad = 0;
  for (size_t i = 0; i < FEW; i++) bad += memcmp(want + i * row, got + i * row, (size_t)many->out.cols * size) != 0;
  oc_expect(c, !bad, "%d of %d rows differ when run without the others", bad, FEW);
}

void oc_case_head_linear(oc *c, int i) {
  static const int rows[] = {1, 2, 3, 5, 24, 40, 70, 0};
  int heads = oc_range(c, 1, 9), n = oc_range(c, 1, 150), k = oc_range(c, 1, i % 3 ? 150 : 600);
  if (i % 3 == 2) n = 16 * oc_range(c, 1, 8), k = 32 * oc_range(c, 1, 16); /* as models have them */
  int m = i % 16 == 15 ? 650 : rows[i % 8], gap_x = oc_chance(c, 50) ? oc_range(c, 0, 20) : 0;
  if (m > 100) heads = 2, n %= 40, n++;
  if (i == 14) m = 66000, heads = 2, n = 3, k = 5; /* more rows than a grid's y has */
  bool enough = i == 29;                           /* for a device, though few weights are */
  if (enough) m = 650, heads = 5, n = 192, k = 512;
  tri_weight w = oc_weight(c, oc_weight_type(c, i), heads * n, k);
  tri_head_linear_args a = {.w = w, .num_heads = heads};
  bool eights = enough || (i % 3 == 2 && oc_chance(c, 50)); /* as rows of 16 bits want them; those of float32, fours */
  if (i % 3 == 2) gap_x &= eights ? ~7 : ~3;
  a.x_stride = oc_chance(c, 10) ? 0 : k + gap_x, a.out_stride = n + (oc_chance(c, 50) ? oc_range(c, 0, 20) : 0);
  if (enough) a.out_stride = n;
  a.x = pitched(c, m, (heads - 1) * a.x_stride + k, enough, false);
  while (eights && a.x.ld % 8) a.x = oc_matrix(c, m, a.x.cols, false);
  a.out = oc_matrix(c, m, heads * a.out_stride, true);
  snprintf(c->what, sizeof c->what, "head_linear %s m %d heads %d n %d k %d strides %d %d", tri_dtype_name(w.dtype), m,
           heads, n, k, a.x_stride, a.out_stride);
  tri_head_linear_args b = a;
  b.x = oc_device_narrow(c, &a.x, input_type(c, w.dtype)), b.out = oc_device_narrow(c, &a.out, oc_narrow_type(c));
  b.w = oc_device_weight(c, &a.w);
  oc_status(c, tri_run_head_linear(c->ref, &a), tri_run_head_linear(c->be, &b));
  double limit = 1e-12;
  if (c->be->narrows_inputs && w.dtype == TRI_BF16) limit = 1e-5;
  if (c->be->narrows_inputs && w.dtype == TRI_F16) limit = 1e-7;
  compare_all(c, &a.out, &b.out, oc_narrow_limit(b.out.dtype, limit));
  if (enough && !c->be->host_memory) compare_last(c, &b);
}

void oc_case_mla_append(oc *c, int i) {
  static const int ranks[] = {16, 7, 64, 512};
  tri_dtype t = oc_kv_type(i);
  int tokens = i % 4 == 0 ? 1 : oc_range(c, 0, 30), block = oc_range(c, 1, 20), kv_blocks = tokens / block + 3;
  tri_mla_append_args a = {.num_heads = oc_range(c, 1, 6), .nope_dim = oc_range(c, 0, 40), .rank = ranks[i % 4]};
  a.rope_dim = oc_range(c, i % 5 ? 1 : 0, 32) * 2, a.norm_eps = 1e-6f, a.interleaved = oc_chance(c, 50);
  bool fours = i % 7 < 4 && a.rank % 4 == 0;
  if (fours) a.rope_dim = 8 * oc_range(c, 1, 8), a.nope_dim &= ~3;
  int row = a.rank + a.rope_dim;
  bool scales = oc_chance(c, 40);
  a.q = pitched(c, tokens, a.num_heads * (a.nope_dim + a.rope_dim), fours, false);
  a.kv_a = pitched(c, tokens, row, fours, false), a.q_out = pitched(c, tokens, a.num_heads * row, fours, !scales);
  if (scales) a.q_scale = oc_normals(c, (size_t)tokens, 1);
  a.norm = oc_normals(c, (size_t)a.rank, 1);
  size_t angles = (size_t)tokens * (size_t)a.rope_dim / 2, n = (size_t)kv_blocks * (size_t)block * (size_t)row;
  float *co = oc_host(c, angles * 4), *si = oc_host(c, angles * 4);
  for (size_t j = 0; j < angles; j++) {
    float angle = 3 * oc_normal(c);
    co[j] = cosf(angle), si[j] = sinf(angle);
  }
  int64_t *slots = oc_host(c, (size_t)tokens * sizeof *slots);
  int first = oc_range(c, 0, block);
  for (int r = 0; r < tokens; r++) slots[r] = oc_chance(c, 5) ? -1 : first + r;
  a.cos = co, a.sin = si, a.kv_slot = slots;
  a.kv = (tri_kv_layer){.dtype = t, .num_blocks = kv_blocks, .num_kv_heads = 1, .block_size = block};
  a.kv.head_dim = row, a.kv.v_dim = a.rank;
  a.kv.k = oc_host(c, n * tri_dtype_size(t));
  for (size_t j = 0; j < n; j++) tri_store_f32(a.kv.k, t, j, NAN);
  snprintf(c->what, sizeof c->what, "mla_append %s tokens %d heads %d nope %d rope %d rank %d%s%s", tri_dtype_name(t),
           tokens, a.num_heads, a.nope_dim, a.rope_dim, a.rank, a.interleaved ? " interleaved" : "",
           scales ? " scale" : "");
  tri_mla_append_args b = a;
  tri_dtype queries = oc_narrow_type(c), rotated = oc_chance(c, 80) ? queries : oc_narrow_type(c);
  b.q = oc_device_narrow(c, &a.q, queries), b.q_out = oc_device_narrow(c, &a.q_out, rotated);
  b.kv_a = oc_device_matrix(c, &a.kv_a);
  b.norm = oc_device(c, a.norm, (size_t)a.rank * 4);
  b.cos = oc_device(c, co, angles * 4), b.sin = oc_device(c, si, angles * 4);
  b.q_scale = oc_device(c, a.q_scale, (size_t)tokens * 4);
  b.kv_slot = oc_device(c, slots, (size_t)tokens * sizeof *slots);
  b.kv.k = oc_device(c, a.kv.k, n * tri_dtype_size(t));
  oc_status(c, tri_run_mla_append(c->ref, &a), tri_run_mla_append(c->be, &b));
  size_t turned = (size_t)tokens * (size_t)a.num_heads * (size_t)(scales ? row : a.rope_dim);
  compare_all(c, &a.q_out, &b.q_out, oc_either_way_limit(rotated, turned, 1e-12));
  /* As in qkv_rope_append: one unit in the last place of a narrow type, rarely. */
  oc_compare_elements(c, t, a.kv.k, b.kv.k, n, t == TRI_F32 ? 1e-12 : t == TRI_F16 ? 1e-8 : 5e-7);
}

/* A long decode, decodes, decodes among chunks of prompts, whole prompts. */
static void latent_sequences(oc *c, oc_sequences *s, int kind) {
  s->count = kind ? oc_range(c, 1, 6) : 1;
  for (int k = 0; k < s->count; k++) {
    s->context[k] = kind ? oc_range(c, 1, kind == 1 ? 300 : 150) : oc_range(c, 300, 4000), s->tokens[k] = 1;
    if (kind == 2 && (k || oc_chance(c, 50))) s->tokens[k] = oc_range(c, 0, s->context[k] > 12 ? 12 : s->context[k]);
    if (kind == 3) s->tokens[k] = s->context[k] = oc_range(c, 1, 40);
  }
  if (kind == 2 && oc_chance(c, 30)) s->context[0] = oc_range(c, 1000, 4000), s->tokens[0] = 1;
}

/* Shapes of latent models, and of none: kernels may be made for what these have in common. The numbers of shapes, block
 * sizes, types and batches have no common divisor, so that all of them meet. */
void oc_case_latent_attention(oc *c, int i) {
  static const struct { int rank, rope; } shapes[] = {{512, 64}, {16, 8}, {256, 32}, {40, 8}, {64, 16}};
  static const int blocks[] = {16, 1, 64, 32, 5, 2, 8}, many[] = {128, 64, 48, 33};
  int rank = shapes[i % 5].rank, d = rank + shapes[i % 5].rope, block = blocks[i % 7], kind = i % 4;
  int heads = oc_range(c, 1, kind == 1 ? 70 : 20);
  oc_sequences s;
  latent_sequences(c, &s, kind);
  if (i % 9 == 0) heads = many[i / 9 % 4], s = (oc_sequences){.count = 2, .tokens = {1, 3}, .context = {260, 70}};
  oc_attention x;
  oc_attention_build(c, &x, &s, heads, 1, d, block, oc_kv_type(i));
  oc_attention_latent(c, &x, rank);
  if (oc_chance(c, 10)) x.args.causal = false;
  if (oc_chance(c, 20)) x.args.scale *= 20; /* sharp: the running maximum matters */
  snprintf(c->what, sizeof c->what, "latent_attention %s seqs %d tokens %d context %d heads %d d %d/%d block %d%s",
           tri_dtype_name(oc_kv_type(i)), s.count, x.batch.num_tokens, x.batch.max_context, heads, d, rank, block,
           x.args.causal ? "" : " not causal");
  oc_attention_compare(c, &x, x.args.scale > 2 / sqrtf((float)d));
}

/* A prompt or a chunk of one, now and then enough for a device's tiles of tokens, and shorter ones and decodes behind
 * it. */
void oc_case_latent_prompt(oc *c, int i) {
  enum { ENOUGH = 4400 }; /* pairs of a token and a head: more than 132 multiprocessors ask for */
  static const int blocks[] = {64, 16, 32, 128, 256}, many[] = {16, 8, 128, 48, 33, 64, 20};
  int rank = i % 16 ? 64 : 512, d = rank + (i % 16 ? 32 : 64), block = blocks[i % 5], heads = many[i % 7];
  bool large = i % 4 == 0 && !c->be->host_memory;
  oc_sequences s = {.count = oc_range(c, 1, 5), .tokens = {large ? ENOUGH / heads + 1 : oc_range(c, 2, 8)}};
  for (int k = 0; k < s.count; k++) {
    if (k) s.tokens[k] = oc_chance(c, 50) ? 1 : oc_range(c, 0, 8);
    s.context[k] = s.tokens[k] + (oc_chance(c, 40) ? 0 : oc_range(c, 0, 150)) + !s.tokens[k];
  }
  oc_attention x;
  oc_attention_build(c, &x, &s, heads, 1, d, block, i % 3 == 2 ? TRI_F16 : TRI_BF16);
  oc_attention_latent(c, &x, rank);
  while (x.args.q.ld % 8) x.args.q = oc_matrix(c, x.batch.num_tokens, heads * d, false); /* as steps have them */
  while (x.args.out.ld % 2) x.args.out = oc_matrix(c, x.batch.num_tokens, heads * rank, true);
  if (oc_chance(c, 10)) x.args.causal = false;
  if (oc_chance(c, 20)) x.args.scale *= 20; /* sharp: the running maximum matters */
  snprintf(c->what, sizeof c->what,
           "latent_prompt %s seqs %d singles %d tokens %d context %d heads %d d %d/%d block %d%s",
           tri_dtype_name(x.args.kv.dtype), s.count, x.batch.num_single, x.batch.num_tokens, x.batch.max_context, heads,
           d, rank, block, x.args.causal ? "" : " not causal");
  oc_attention_compare(c, &x, x.args.scale > 2 / sqrtf((float)d));
}
