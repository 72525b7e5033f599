/* SPDX-License-Identifier: Apache-2.0 */
/* Each op at the shapes of decode and prefill against its floor: the bytes it must read or write over the bandwidth of
 * a plain read of as many bytes, or its multiplications over the best rate of the BLAS, whichever takes longer. Floors
 * are measured between the repetitions of the op, and medians are compared, so that a busy machine slows both alike. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/roofline.h"
#include "base/wait.h"
#include "tests/opcheck/opcheck.h"

enum { MAX_ROUNDS = 15 };

typedef struct bench {
  oc *c;
  tri_backend *be;
  tri_roofline *floor;
  int slower;
} bench;

static void report(bench *b, const char *name, tri_status (*run)(tri_backend *, const void *), const void *args,
                   double bytes, double gemms) {
  double op[MAX_ROUNDS], floor[MAX_ROUNDS];
  tri_status st = run(b->be, args);
  if (st != TRI_OK) {
    printf("%-44s %s\n", name, tri_status_name(st));
    b->slower++;
    return;
  }
  int rounds = b->c->opt.quick ? 5 : MAX_ROUNDS;
  double memory[MAX_ROUNDS], arithmetic[MAX_ROUNDS];
  for (int i = 0; i < rounds; i++) {
    memory[i] = tri_roofline_read(b->floor, bytes);
    arithmetic[i] = gemms > 0 ? gemms * tri_roofline_gemm(b->floor) : 0;
    int64_t start = tri_now_ns();
    (void)run(b->be, args);
    op[i] = (double)(tri_now_ns() - start) * 1e-9;
  }
  double m = tri_median(memory, rounds), a = tri_median(arithmetic, rounds), t = tri_median(op, rounds);
  floor[0] = m > a ? m : a;
  printf("%-44s %10.1f us  floor %10.1f us (%s)  ratio %.2f", name, t * 1e6, floor[0] * 1e6, m > a ? "memory" : "blas",
         floor[0] / t);
  if (m > a)
    printf("  %.1f of %.1f GB/s\n", bytes / t * 1e-9, bytes / m * 1e-9);
  else
    printf("  %.1f of %.1f GFLOP/s\n", 2 * gemms / t * 1e-9, 2 * gemms / a * 1e-9);
  fflush(stdout);
}

#define RUN(op)                                                                                                        \
  static tri_status run_##op(tri_backend *be, const void *args) { return tri_run_##op(be, args); }
TRI_OP_LIST(RUN)

static bool wanted(const bench *b, const char *op) { return !b->c->opt.op || !strcmp(op, b->c->opt.op); }

/* Large arguments come from whole pages, as weights and caches do. */
static void *pages(size_t bytes) {
  void *p;
  if (tri_pages_alloc(bytes, &p) != TRI_OK) {
    fprintf(stderr, "opcheck: no memory for %zu bytes\n", bytes);
    exit(2);
  }
  return p;
}

static float *filled(bench *b, size_t n) {
  float *p = pages(n * sizeof *p);
  for (size_t i = 0; i < n; i++) p[i] = (float)((double)(oc_random(b->c) >> 40) * 0x1p-23 - 1);
  return p;
}

/* How the elements of a bench's weights are stored and multiplied. */
typedef struct form {
  tri_dtype type;
  bool rounds_rows;
  tri_groups groups;
} form;

static void bench_linear(bench *b, const form *f, int m, int n, int k) {
  tri_dtype t = f->type;
  size_t count = (size_t)n * (size_t)k, bytes = count * tri_dtype_size(t);
  char *w = pages(bytes), name[80];
  for (size_t i = 0; i < count; i++) {
    if (t == TRI_I8 || t == TRI_F8_E4M3)
      w[i] = (char)(i * 37 % 251 & (t == TRI_I8 ? 255 : 0xf7)); /* no code of NaN */
    else
      tri_store_f32(w, t, i, (float)(i * 37 % 251) * 0.01f - 1);
  }
  size_t scales = (size_t)tri_groups_down(f->groups, n) * (size_t)tri_groups_across(f->groups, k);
  float *scale = filled(b, scales), *x = filled(b, (size_t)m * (size_t)k), *y = filled(b, (size_t)m * (size_t)n);
  tri_linear_args a = {.x = {x, m, k, k}, .w = {w, scale, t, n, k, f->groups}, .out = {y, m, n, n}};
  if (t <= TRI_BF16) a.w.scale = NULL;
  a.rounds_rows = f->rounds_rows;
  snprintf(name, sizeof name, "linear %s%s%s m %d n %d k %d", tri_dtype_name(t), f->groups.cols ? " blocks" : "",
           f->rounds_rows ? " x int8" : "", m, n, k);
  report(b, name, run_linear, &a, (double)bytes + 4.0 * m * (n + k), (double)m * n * k);
  tri_pages_free(w, bytes);
  tri_pages_free(scale, scales * 4), tri_pages_free(x, (size_t)m * (size_t)k * 4);
  tri_pages_free(y, (size_t)m * (size_t)n * 4);
}

static void bench_linears(bench *b) {
  static const form forms[] = {{.type = TRI_BF16},    {.type = TRI_F16},
                               {.type = TRI_I8},      {.type = TRI_F32},
                               {.type = TRI_F8_E4M3}, {.type = TRI_F8_E4M3, .groups = {.rows = 128, .cols = 128}},
                               {TRI_I8, true, {0}}};
  static const int rows[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 512};
  for (size_t t = 0; t < sizeof forms / sizeof *forms; t++)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      if (b->c->opt.quick && rows[i] != 1 && rows[i] != 8 && rows[i] != 512) continue;
      bench_linear(b, &forms[t], rows[i], rows[i] < 64 ? 14336 : 4096, 4096);
    }
}

static void bench_gated(bench *b, int m) {
  enum { F = 4096, K = 4096 };
  size_t rows = (size_t)m;
  float *w = filled(b, (size_t)2 * F * K), *x = filled(b, rows * K), *up = filled(b, rows * 2 * F);
  tri_gated_linear_args a = {.up = {.x = {x, m, K, K, TRI_F32}, .w = {w, NULL, TRI_F32, 2 * F, K}}};
  char name[80];
  a.up.out = a.glu.gate_up = (tri_mat){up, m, 2 * F, 2 * F, TRI_F32};
  a.glu.out = (tri_mat){up, m, F, 2 * F, TRI_F32},
  a.glu.act = TRI_ACT_SILU; /* in place: a gate is read where it goes */
  snprintf(name, sizeof name, "gated_linear float32 m %d f %d k %d", m, F, K);
  report(b, name, run_gated_linear, &a, 4.0 * (2.0 * F * K + m * (K + 3.0 * F)), (double)m * 2 * F * K);
}

static void bench_mlp(bench *b, int m) {
  enum { F = 4096, K = 2048 };
  size_t rows = (size_t)m;
  float *up = filled(b, (size_t)2 * F * K), *down = filled(b, (size_t)F * K), *x = filled(b, rows * K);
  float *hidden = filled(b, rows * 2 * F), *y = filled(b, rows * K);
  tri_gated_mlp_args a = {.gated.up = {.x = {x, m, K, K, TRI_F32}, .w = {up, NULL, TRI_F32, 2 * F, K}}};
  char name[80];
  a.gated.up.out = a.gated.glu.gate_up = (tri_mat){hidden, m, 2 * F, 2 * F, TRI_F32};
  a.gated.glu.out = a.down.x = (tri_mat){hidden, m, F, 2 * F, TRI_F32}; /* in place */
  a.gated.glu.act = TRI_ACT_SILU;
  a.down.w = (tri_weight){.data = down, .dtype = TRI_F32, .n = K, .k = F};
  a.down.out = (tri_mat){y, m, K, K, TRI_F32};
  snprintf(name, sizeof name, "gated_mlp float32 m %d f %d k %d", m, F, K);
  report(b, name, run_gated_mlp, &a, 4.0 * (3.0 * F * K + m * (2.0 * K + 4.0 * F)), (double)m * 3 * F * K);
}

/* Heads and sizes of what attention is timed for: Llama 3 8B's, the bundled model's short ones, and DeepSeek-V2-Lite's
 * and V3's latent ones. */
typedef struct heads {
  const char *name;
  int hq, hkv, d, v_dim;
} heads;

static void bench_attention(bench *b, const heads *g, tri_dtype t, int seqs, int tokens, int context) {
  enum { BLOCK = 16 };
  int per_seq = (context + BLOCK - 1) / BLOCK, v_dim = g->v_dim ? g->v_dim : g->d, rows = seqs * tokens;
  size_t kv_bytes = (size_t)(seqs * per_seq * g->hkv) * BLOCK * (size_t)g->d * tri_dtype_size(t);
  size_t width = (size_t)rows * (size_t)(g->hq * g->d);
  uint16_t *k = pages(kv_bytes), *v = pages(kv_bytes);
  for (size_t i = 0; i < kv_bytes / 2; i++)
    k[i] = v[i] = (uint16_t)(0x3c00 + i * 37 % 251); /* about one in every type */
  float *q = filled(b, width), *out = filled(b, width);
  int32_t start[65] = {0}, block_start[65] = {0}, contexts[64], *table = pages((size_t)seqs * (size_t)per_seq * 4);
  for (int s = 0; s < seqs; s++) {
    start[s + 1] = start[s] + tokens, contexts[s] = context, block_start[s + 1] = (s + 1) * per_seq;
    for (int i = 0; i < per_seq; i++) table[s * per_seq + i] = i * seqs + s;
  }
  tri_batch batch = {.num_tokens = rows, .num_seqs = seqs, .max_context = context};
  batch.max_query = tokens, batch.num_single = tokens == 1, batch.seq_start = start, batch.context_len = contexts,
  batch.block_table = table, batch.block_start = block_start;
  tri_attention_args a = {.kv = {k, v, t, seqs * per_seq, g->hkv, BLOCK, g->d, g->v_dim}, .batch = &batch};
  a.q = (tri_mat){q, rows, g->hq * g->d, g->hq * g->d, TRI_F32},
  a.out = (tri_mat){out, rows, g->hq * v_dim, g->hq * v_dim, TRI_F32};
  a.num_heads = g->hq, a.heads_per_kv = g->hq / g->hkv, a.scale = 0.088f, a.causal = true;
  double seen = 0;
  for (int j = 0; j < tokens; j++) seen += context - tokens + j + 1;
  char name[80];
  snprintf(name, sizeof name, "attention%s %s %d x %d tokens, context %d", g->name, tri_dtype_name(t), seqs, tokens,
           context);
  report(b, name, run_attention, &a, (g->v_dim ? 1.0 : 2.0) * (double)kv_bytes, seqs * seen * g->hq * (g->d + v_dim));
  tri_pages_free(k, kv_bytes), tri_pages_free(v, kv_bytes), tri_pages_free(table, (size_t)seqs * (size_t)per_seq * 4);
  tri_pages_free(q, width * 4), tri_pages_free(out, width * 4);
}

static void bench_attentions(bench *b) {
  static const tri_dtype types[] = {TRI_BF16, TRI_F16, TRI_F32};
  static const heads plain = {"", 32, 8, 128, 0}, small = {" heads of 24,", 8, 2, 24, 0};
  static const heads latent[] = {{" latent, 16 heads,", 16, 1, 576, 512}, {" latent, 128 heads,", 128, 1, 576, 512}};
  for (int t = 0; t < 3; t++) {
    bench_attention(b, &plain, types[t], 1, 1, 1024);
    bench_attention(b, &plain, types[t], 1, 1, 16384);
    bench_attention(b, &plain, types[t], 8, 1, 4096);
    bench_attention(b, &plain, types[t], 1, 512, 512);
    bench_attention(b, &plain, types[t], 1, 512, 4096);
  }
  bench_attention(b, &small, TRI_F32, 60, 1, 110);
  bench_attention(b, &small, TRI_F32, 1, 48, 48);
  for (int g = 0; g < 2; g++) {
    bench_attention(b, &latent[g], TRI_BF16, 1, 1, 1024);
    bench_attention(b, &latent[g], TRI_BF16, 1, 1, 16384);
    bench_attention(b, &latent[g], TRI_BF16, 8, 1, 4096);
    bench_attention(b, &latent[g], TRI_BF16, 1, 512, 512);
  }
}

/* DeepSeek-V3's: queries to latents, and latents to values. */
static void bench_latent(bench *b, int m) {
  enum { HEADS = 128, RANK = 512, NOPE = 128, ROPE = 64, BLOCK = 16 };
  size_t rows = (size_t)m, w_bytes = (size_t)HEADS * RANK * NOPE * 2, row = RANK + ROPE;
  size_t kv_bytes = (rows + BLOCK) * row * 2;
  uint16_t *w = pages(w_bytes);
  for (size_t i = 0; i < w_bytes / 2; i++) w[i] = (uint16_t)(0x3c00 + i * 37 % 251);
  float *x = filled(b, rows * HEADS * row), *y = filled(b, rows * HEADS * row), *angles = filled(b, rows * ROPE);
  tri_mat narrow = {x, m, HEADS * (NOPE + ROPE), HEADS * (NOPE + ROPE), TRI_F32},
          wide = {y, m, HEADS * (int)row, HEADS * (int)row, TRI_F32};
  tri_head_linear_args h = {.x = narrow, .w = {w, NULL, TRI_BF16, HEADS * RANK, NOPE}, .num_heads = HEADS, .out = wide};
  h.x_stride = NOPE + ROPE, h.out_stride = RANK + ROPE;
  char name[80];
  snprintf(name, sizeof name, "head_linear bfloat16 %d x 128, n 512 k 128", m);
  double in_out = 4.0 * m * HEADS * (RANK + NOPE), gemms = (double)m * HEADS * RANK * NOPE;
  if (wanted(b, "head_linear")) report(b, name, run_head_linear, &h, (double)w_bytes + in_out, gemms);
  h.w.n = HEADS * NOPE, h.w.k = RANK, h.x = wide, h.out = narrow, h.x_stride = RANK, h.out_stride = NOPE;
  snprintf(name, sizeof name, "head_linear bfloat16 %d x 128, n 128 k 512", m);
  if (wanted(b, "head_linear")) report(b, name, run_head_linear, &h, (double)w_bytes + in_out, gemms);
  int64_t *slots = pages(rows * 8);
  for (int i = 0; i < m; i++) slots[i] = i;
  char *k = pages(kv_bytes);
  tri_mla_append_args a = {.q = narrow, .kv_a = {y, m, (int)row, (int)row}, .num_heads = HEADS, .nope_dim = NOPE};
  a.rope_dim = ROPE, a.rank = RANK, a.norm = x, a.interleaved = true, a.cos = angles, a.sin = angles, a.kv_slot = slots;
  a.kv = (tri_kv_layer){k, NULL, TRI_BF16, m / BLOCK + 1, 1, BLOCK, (int)row, RANK}, a.q_out = wide;
  snprintf(name, sizeof name, "mla_append bfloat16 %d x 128 heads", m);
  if (wanted(b, "mla_append")) report(b, name, run_mla_append, &a, 8.0 * m * HEADS * ROPE + 6.0 * m * (double)row, 0);
  tri_pages_free(w, w_bytes), tri_pages_free(k, kv_bytes), tri_pages_free(slots, rows * 8);
  tri_pages_free(x, rows * HEADS * row * 4), tri_pages_free(y, rows * HEADS * row * 4);
  tri_pages_free(angles, rows * ROPE * 4);
}

static void bench_rows(bench *b, int m) {
  enum { H = 4096, F = 14336, HQ = 32, HKV = 8, D = 128, BLOCK = 16 };
  size_t rows = (size_t)m;
  float *x = filled(b, rows * 2 * F), *y = filled(b, rows * F), *w = filled(b, H);
  char name[80];
  tri_norm_args n = {.x = {x, m, H, H}, .delta = {y, m, H, H}, .weight = w, .eps = 1e-5f, .delta_scale = 1};
  n.kind = TRI_NORM_RMS;
  n.out = (tri_mat){y + rows * H, m, H, H, TRI_F32};
  snprintf(name, sizeof name, "norm rms with addition %d x %d", m, H);
  if (wanted(b, "norm")) report(b, name, run_norm, &n, 4.0 * 4 * H * m, 0);
  tri_branch_norm_args bn = {.x = {x, m, H, H}, .delta = {y, m, H, H}, .sum_weight = w, .delta_scale = 1, .x_scale = 1};
  bn.eps = 1e-5f, bn.out[0] = n.out, bn.weight[0] = w, bn.scale[0] = 1;
  snprintf(name, sizeof name, "branch_norm %d x %d", m, H);
  if (wanted(b, "branch_norm")) report(b, name, run_branch_norm, &bn, 4.0 * 4 * H * m, 0);
  tri_square_sums_args ss = {.x = n.x, .sums = y};
  snprintf(name, sizeof name, "square_sums %d x %d", m, H);
  if (wanted(b, "square_sums")) report(b, name, run_square_sums, &ss, 4.0 * H * m, 0);
  tri_gate_rows_args gate = {.x = n.x, .gate = w};
  snprintf(name, sizeof name, "gate_rows %d x %d", m, H);
  if (wanted(b, "gate_rows")) report(b, name, run_gate_rows, &gate, 2.0 * 4 * H * m, 0);
  tri_softcap_args cap = {.x = n.x, .scale = 1, .cap = 30};
  snprintf(name, sizeof name, "softcap %d x %d", m, H);
  if (wanted(b, "softcap")) report(b, name, run_softcap, &cap, 2.0 * 4 * H * m, 0);
  tri_glu_args g = {.gate_up = {x, m, 2 * F, 2 * F}, .act = TRI_ACT_SILU, .out = {y, m, F, F}};
  snprintf(name, sizeof name, "glu silu %d x %d", m, F);
  if (wanted(b, "glu")) report(b, name, run_glu, &g, 3.0 * 4 * F * m, 0);
  g.act = TRI_ACT_SWIGLU_OAI, g.limit = 7;
  snprintf(name, sizeof name, "glu swiglu_oai %d x %d", m, F);
  if (wanted(b, "glu")) report(b, name, run_glu, &g, 3.0 * 4 * F * m, 0);
  g.act = TRI_ACT_GELU_TANH;
  snprintf(name, sizeof name, "glu gelu_tanh %d x %d", m, F);
  if (wanted(b, "glu")) report(b, name, run_glu, &g, 3.0 * 4 * F * m, 0);
  int32_t *index = pages(rows * 4), *positions = pages(rows * 4);
  int64_t *slots = pages(rows * 8);
  for (int i = 0; i < m; i++) index[i] = m - 1 - i, positions[i] = i, slots[i] = i;
  tri_gather_rows_args ga = {.x = {x, m, H, H}, .rows = index, .out = {y, m, H, H}};
  snprintf(name, sizeof name, "gather_rows %d x %d", m, H);
  if (wanted(b, "gather_rows")) report(b, name, run_gather_rows, &ga, 2.0 * 4 * H * m, 0);
  const int32_t whole[] = {0, m};
  tri_mean_rows_args me = {.x = {x, m, H, H}, .start = whole, .out = {y, 1, H, H}};
  snprintf(name, sizeof name, "mean_rows %d x %d", m, H);
  if (wanted(b, "mean_rows")) report(b, name, run_mean_rows, &me, 1.0 * 4 * H * m, 0);
  tri_embed_args e = {.ids = (uint32_t *)index, .table = {x, NULL, TRI_BF16, m, H}, .scale = 1, .out = {y, m, H, H}};
  snprintf(name, sizeof name, "embed bfloat16 %d x %d", m, H);
  if (wanted(b, "embed")) report(b, name, run_embed, &e, 6.0 * H * m, 0);
  tri_rope_angles_args r = {
      .positions = positions, .rope_len = positions, .inv_freq = w, .num_tokens = m, .rotary_dim = D};
  r.cos = y, r.sin = y + rows * D, r.attention_scale = 1;
  snprintf(name, sizeof name, "rope_angles %d x %d", m, D);
  if (wanted(b, "rope_angles")) report(b, name, run_rope_angles, &r, 4.0 * D * m, 0);
  int width = (HQ + 2 * HKV) * D;
  size_t kv_bytes = (rows + BLOCK) * HKV * D * 2;
  char *k = pages(kv_bytes), *v = pages(kv_bytes);
  tri_qkv_rope_append_args q = {.qkv = {x, m, width, width}, .num_heads = HQ, .num_kv_heads = HKV, .head_dim = D};
  q.rotary_dim = D, q.cos = y, q.sin = y, q.kv_slot = slots;
  q.kv = (tri_kv_layer){k, v, TRI_BF16, m / BLOCK + 1, HKV, BLOCK, D, 0};
  snprintf(name, sizeof name, "qkv_rope_append bfloat16 %d x %d", m, width);
  if (wanted(b, "qkv_rope_append"))
    report(b, name, run_qkv_rope_append, &q, 4.0 * m * D * (2 * HQ + 3 * HKV) + 4.0 * m * D * HKV, 0);
  tri_pages_free(k, kv_bytes), tri_pages_free(v, kv_bytes);
  tri_pages_free(index, rows * 4), tri_pages_free(positions, rows * 4), tri_pages_free(slots, rows * 8);
  tri_pages_free(x, rows * 2 * F * 4), tri_pages_free(y, rows * F * 4), tri_pages_free(w, H * 4);
}

/* Every token samples its experts anew; the memory floor counts those that at least one token wants, once. */
static void bench_experts(bench *b, tri_dtype t, bool int8, int m, int h, int f, int experts, int top_k) {
  size_t up_bytes = (size_t)experts * 2 * (size_t)f * (size_t)h * tri_dtype_size(t), down_bytes = up_bytes / 2;
  uint16_t *up = pages(up_bytes), *down = pages(down_bytes);
  for (size_t i = 0; i < up_bytes / 2; i++) up[i] = (uint16_t)(0x3c00 + i * 37 % 251);
  for (size_t i = 0; i < down_bytes / 2; i++) down[i] = (uint16_t)(0x3c00 + i * 37 % 251);
  size_t choices = (size_t)m * (size_t)top_k;
  size_t map_bytes = (2 * choices + (size_t)experts + 1) * 4;
  int32_t *ids = pages(choices * 4), *lists = pages(map_bytes);
  tri_expert_map map = {lists + 2 * choices, lists, lists + choices};
  float *weights = filled(b, choices), *scale = filled(b, (size_t)experts * 2 * (size_t)(f + h));
  float *x = filled(b, (size_t)m * (size_t)h), *y = filled(b, (size_t)m * (size_t)h);
  char seen[512] = {0}, name[96];
  int wanted_experts = 0;
  for (int i = 0; i < m; i++)
    for (int k = 0, at = oc_range(b->c, 0, experts - 1); k < top_k; k++, at += oc_range(b->c, 1, experts / top_k)) {
      ids[i * top_k + k] = at % experts;
      wanted_experts += !seen[at % experts], seen[at % experts] = 1;
    }
  oc_moe_map(ids, m * top_k, 0, experts, &map);
  tri_moe_experts_args a = {.x = {x, m, h, h}, .map = map, .weights = weights, .top_k = top_k};
  a.num_experts = experts, a.act = TRI_ACT_SILU, a.gated = true, a.out = (tri_mat){y, m, h, h, TRI_F32};
  a.rounds_rows = int8;
  a.up = (tri_weight){.data = up, .scale = t == TRI_I8 ? scale : NULL, .dtype = t, .n = experts * 2 * f, .k = h};
  a.down = (tri_weight){.data = down, .scale = t == TRI_I8 ? scale : NULL, .dtype = t, .n = experts * h, .k = f};
  snprintf(name, sizeof name, "moe_experts %s%s m %d h %d f %d, %d of %d", tri_dtype_name(t), int8 ? " x int8" : "", m,
           h, f, top_k, experts);
  double bytes = (double)(up_bytes + down_bytes) * wanted_experts / experts;
  report(b, name, run_moe_experts, &a, bytes + 8.0 * m * h, 3.0 * (double)choices * h * f);
  tri_pages_free(up, up_bytes), tri_pages_free(down, down_bytes), tri_pages_free(ids, choices * 4);
  tri_pages_free(lists, map_bytes);
  tri_pages_free(weights, choices * 4), tri_pages_free(scale, (size_t)experts * 8 * (size_t)(f + h));
  tri_pages_free(x, (size_t)m * (size_t)h * 4), tri_pages_free(y, (size_t)m * (size_t)h * 4);
}

static void bench_moe(bench *b) {
  static const int rows[] = {1, 2, 4, 8, 32, 128, 512};
  for (size_t i = 0; i < sizeof rows / sizeof *rows && wanted(b, "moe_experts"); i++) {
    if (b->c->opt.quick && rows[i] != 1 && rows[i] != 8 && rows[i] != 512) continue;
    bench_experts(b, TRI_BF16, false, rows[i], 2048, 1024, 64, 8); /* OLMoE's shape */
    bench_experts(b, TRI_BF16, false, rows[i], 2048, 768, 128, 8); /* Qwen3-30B-A3B's */
    bench_experts(b, TRI_BF16, false, rows[i], 4096, 3584, 8, 2);  /* a quarter of Mixtral's */
    bench_experts(b, TRI_I8, false, rows[i], 2048, 768, 128, 8);
    bench_experts(b, TRI_I8, true, rows[i], 2048, 768, 128, 8);
  }
  for (int m = 1; m <= 512 && (wanted(b, "moe_route") || wanted(b, "moe_map")); m *= 512) {
    enum { E = 256, K = 8 };
    float *logits = filled(b, (size_t)m * E), *weights = filled(b, (size_t)m * K);
    int32_t *ids = pages(((size_t)m * K * 3 + E + 1) * 4);
    tri_moe_route_args a = {.logits = {logits, m, E, E}, .bias = weights, .score = TRI_MOE_SIGMOID, .top_k = K};
    float *bias = filled(b, E);
    a.bias = bias, a.num_groups = 8, a.top_groups = 4, a.group_best = 2, a.renormalize = true, a.scale = 2.5f;
    a.experts = ids, a.weights = weights, a.num_experts = E;
    a.map = (tri_expert_map){ids + m * K * 3, ids + m * K, ids + m * K * 2};
    char name[80];
    snprintf(name, sizeof name, "moe_route sigmoid, groups, %d x %d", m, E);
    report(b, name, run_moe_route, &a, 4.0 * m * E, 0);
    tri_moe_map_args map = tri_moe_map_of(&a);
    snprintf(name, sizeof name, "moe_map %d x %d of %d", m, K, E);
    report(b, name, run_moe_map, &map, 4.0 * m * K, 0);
    a.bias = NULL, a.score = TRI_MOE_SOFTMAX, a.num_groups = 1;
    snprintf(name, sizeof name, "moe_route softmax %d x %d", m, E);
    report(b, name, run_moe_route, &a, 4.0 * m * E, 0);
    tri_pages_free(logits, (size_t)m * E * 4), tri_pages_free(weights, (size_t)m * K * 4);
    tri_pages_free(ids, ((size_t)m * K * 3 + E + 1) * 4), tri_pages_free(bias, E * 4);
  }
}

static void bench_copy_blocks(bench *b) {
  enum { KV_BLOCKS = 64, HKV = 8, BLOCK = 16, D = 128 };
  size_t bytes = (size_t)KV_BLOCKS * HKV * BLOCK * D * 2;
  char *k = pages(bytes), *v = pages(bytes);
  int32_t pairs[KV_BLOCKS];
  for (int i = 0; i < KV_BLOCKS; i++) pairs[i] = i % 2 ? i : KV_BLOCKS - 2 - i;
  tri_copy_blocks_args a = {
      .kv = {k, v, TRI_BF16, KV_BLOCKS, HKV, BLOCK, D, 0}, .pairs = pairs, .num_pairs = KV_BLOCKS / 2};
  report(b, "copy_blocks bfloat16 32 KV blocks", run_copy_blocks, &a, 2.0 * (double)bytes, 0);
  tri_pages_free(k, bytes), tri_pages_free(v, bytes);
}

static void bench_move_blocks(bench *b) {
  enum { KV_BLOCKS = 64, LAYERS = 4, HKV = 8, BLOCK = 16, D = 128 };
  size_t part = (size_t)KV_BLOCKS * HKV * BLOCK * D * 2, bytes = 2 * LAYERS * part;
  char *cache = pages(bytes), *pool = pages(bytes);
  int32_t pairs[2 * KV_BLOCKS];
  for (int i = 0; i < KV_BLOCKS; i++) pairs[2 * i] = i, pairs[2 * i + 1] = KV_BLOCKS - 1 - i;
  tri_move_blocks_args a = {.kv = {cache, cache + part, TRI_BF16, KV_BLOCKS, HKV, BLOCK, D, 0},
                            .num_layers = LAYERS,
                            .layer_stride = 2 * part,
                            .host = pool,
                            .num_host_blocks = KV_BLOCKS,
                            .pairs = pairs,
                            .num_pairs = KV_BLOCKS,
                            .out = true};
  report(b, "move_blocks bfloat16 64 KV blocks out", run_move_blocks, &a, 2.0 * (double)bytes, 0);
  tri_pages_free(cache, bytes), tri_pages_free(pool, bytes);
}

/* One of four parts of the same rows, then the samples from what all four would give. */
static void bench_parts(bench *b, tri_sample_args a, const char *what) {
  enum { PARTS = 4 };
  int rows = a.logits.rows, width = tri_sample_num_candidates(a.params[0]);
  size_t count = (size_t)(rows * width), bytes = count * sizeof(tri_sample_candidate);
  tri_sample_part_args part = {.rows = a, .width = width};
  tri_sample_merge_args merge = {.rows = a, .num_parts = PARTS, .width = width};
  tri_sample_candidate *all = pages(PARTS * bytes);
  char name[80];
  part.rows.logits.cols /= PARTS;
  part.candidates = all, merge.candidates = all;
  snprintf(name, sizeof name, "sample_part %s %d x %d", what, rows, part.rows.logits.cols);
  report(b, name, run_sample_part, &part, 4.0 * rows * part.rows.logits.cols, 0);
  for (size_t i = count; i < PARTS * count; i++)
    all[i] = (tri_sample_candidate){all[i % count].logit, all[i - count].id + (uint32_t)part.rows.logits.cols};
  snprintf(name, sizeof name, "sample_merge %s %d x %d of %d", what, rows, width, PARTS);
  report(b, name, run_sample_merge, &merge, (double)(PARTS * bytes), 0);
  tri_pages_free(all, PARTS * bytes);
}

static void bench_sample(bench *b, int rows, tri_sample_params p, const char *what) {
  enum { VOCAB = 151936, ROWS = 16 };
  float *x = filled(b, (size_t)rows * VOCAB);
  for (size_t i = 0; i < (size_t)rows * VOCAB; i++)
    x[i] = -1.5f * logf((float)((oc_random(b->c) >> 40) + 1) * 0x1p-24f); /* Zipf */
  uint32_t ids[64];
  for (int i = 0; i < 64; i++) ids[i] = (uint32_t)i * 100;
  const tri_sample_params *params[ROWS];
  const uint32_t *history[ROWS];
  int num_prompt[ROWS], num_history[ROWS];
  uint64_t counter[ROWS];
  tri_sample_result results[ROWS];
  for (int i = 0; i < rows; i++)
    params[i] = &p, history[i] = ids, num_prompt[i] = 10, num_history[i] = 64, counter[i] = (uint64_t)i;
  tri_sample_args a = {
      .logits = {x, rows, VOCAB, VOCAB}, .params = params, .history = history, .num_prompt = num_prompt};
  a.num_history = num_history, a.counter = counter, a.results = results;
  char name[80];
  snprintf(name, sizeof name, "sample %s %d x %d", what, rows, VOCAB);
  report(b, name, run_sample, &a, 4.0 * rows * VOCAB, 0);
  if (tri_sample_num_candidates(&p)) bench_parts(b, a, what);
  tri_pages_free(x, (size_t)rows * VOCAB * 4);
}

static void bench_samples(bench *b) {
  for (int rows = 1; rows <= 16; rows *= 16) {
    tri_sample_params p = {.temperature = 0, .top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
    bench_sample(b, rows, p, "greedy");
    p.temperature = 0.8f;
    bench_sample(b, rows, p, "plain");
    p.top_p = 0.9f;
    bench_sample(b, rows, p, "top_p");
    p.top_k = 50;
    bench_sample(b, rows, p, "top_k, top_p");
    p.repetition_penalty = 1.1f;
    bench_sample(b, rows, p, "top_k, top_p, penalty");
    p.num_logprobs = 5;
    bench_sample(b, rows, p, "the same, 5 logprobs");
  }
}

int oc_bench(oc *c) {
  bench b = {.c = c, .be = c->be};
  c->rng = c->opt.seed;
  if (c->be->ops.roofline_create(c->be, (size_t)256 << 20, TRI_BF16, &b.floor) != TRI_OK) {
    fprintf(stderr, "opcheck: no memory for the floors\n");
    exit(2);
  }
  if (wanted(&b, "linear")) bench_linears(&b);
  for (int m = 1; m <= 512 && wanted(&b, "gated_linear"); m *= 8) bench_gated(&b, m);
  for (int m = 1; m <= 512 && wanted(&b, "gated_mlp"); m *= 8) bench_mlp(&b, m);
  if (wanted(&b, "attention")) bench_attentions(&b);
  bench_latent(&b, 1);
  bench_latent(&b, 512);
  bench_moe(&b);
  bench_rows(&b, 1);
  bench_rows(&b, 512);
  if (wanted(&b, "count_not_finite")) oc_bench_finite(c, b.floor);
  if (wanted(&b, "copy_blocks")) bench_copy_blocks(&b);
  if (wanted(&b, "move_blocks")) bench_move_blocks(&b);
  if (wanted(&b, "sample")) bench_samples(&b); /* and its parts */
  tri_roofline_destroy(b.floor);
  return b.slower;
}
