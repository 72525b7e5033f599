/* SPDX-License-Identifier: Apache-2.0 */
/* The same row must come out with the same bits whatever else is in the batch, however the prompt was cut into chunks,
 * and whatever the number of threads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

static size_t differing(const tri_mat *a, const tri_mat *b, int row_b, int row_a, int rows) {
  size_t n = 0;
  for (int i = 0; i < rows; i++)
    n += memcmp(a->data + (size_t)(row_a + i) * (size_t)a->ld, b->data + (size_t)(row_b + i) * (size_t)b->ld,
                (size_t)a->cols * sizeof(float)) != 0;
  return n;
}

static tri_mat rows_of(const tri_mat *m, int first, int rows) {
  tri_mat r = *m;
  r.data += (size_t)first * (size_t)m->ld;
  r.rows = rows;
  return r;
}

void oc_deterministic_linear(oc *c, tri_backend **others, int num_others, int i) {
  tri_dtype t = oc_weight_type(c, i);
  int m = i % 3 == 0 ? 300 : oc_range(c, 2, 70), n = oc_range(c, 1, 200), k = i % 2 ? oc_range(c, 1, 3000) : 1024;
  tri_linear_args a = {.x = oc_matrix(c, m, k, false), .w = oc_weight(c, t, n, k), .act = (tri_act)(i % 7)};
  a.bias = oc_normals(c, (size_t)n, 1);
  a.rounds_rows = oc_is_int8_rows(&a.w) && i % 8 > 3;
  a.out = oc_matrix(c, m, n, true);
  snprintf(c->what, sizeof c->what, "linear %s m %d n %d k %d", tri_dtype_name(t), m, n, k);
  oc_expect(c, tri_run_linear(c->be, &a) == TRI_OK, "does not run");
  tri_linear_args b = a;
  b.out = oc_matrix(c, m, n, true);
  for (int o = 0; o < num_others; o++)
    for (int row = 0; row < m;) {
      int rows = oc_range(c, 1, o == 0 && m < 100 ? 1 : m - row);
      b.x = rows_of(&a.x, row, rows);
      tri_mat whole = b.out;
      b.out = rows_of(&whole, row, rows);
      oc_expect(c, tri_run_linear(others[o], &b) == TRI_OK, "does not run");
      b.out = whole;
      size_t bad = differing(&a.out, &b.out, row, row, rows);
      oc_expect(c, bad == 0, "%zu of %d rows differ when run as %d rows", bad, rows, rows);
      row += rows;
    }
}

void oc_deterministic_heads(oc *c, tri_backend **others, int num_others, int i) {
  int m = i % 4 == 0 ? 650 : oc_range(c, 2, 70), heads = oc_range(c, 1, 5), n = oc_range(c, 1, 60);
  tri_head_linear_args a = {.num_heads = heads, .x_stride = oc_range(c, 1, 300), .out_stride = n};
  a.w = oc_weight(c, oc_weight_type(c, i), heads * n, a.x_stride);
  a.x = oc_matrix(c, m, heads * a.x_stride, false), a.out = oc_matrix(c, m, heads * n, true);
  snprintf(c->what, sizeof c->what, "head_linear m %d heads %d n %d k %d", m, heads, n, a.w.k);
  oc_expect(c, tri_run_head_linear(c->be, &a) == TRI_OK, "does not run");
  tri_mat out = oc_matrix(c, m, heads * n, true);
  for (int o = 0; o < num_others; o++)
    for (int row = 0, rows; row < m; row += rows) {
      rows = oc_range(c, 1, o == 0 && m < 100 ? 1 : m - row);
      tri_head_linear_args b = a;
      b.x = rows_of(&a.x, row, rows), b.out = rows_of(&out, row, rows);
      oc_expect(c, tri_run_head_linear(others[o], &b) == TRI_OK, "does not run");
      size_t bad = differing(&a.out, &out, row, row, rows);
      oc_expect(c, bad == 0, "%zu of %d rows differ when run as %d rows", bad, rows, rows);
    }
}

/* The map of some of a map's tokens. */
static void cut_map(const tri_expert_map *m, int num_experts, int begin, int end, tri_expert_map *out) {
  int row = 0;
  for (int i = begin; i < end; i++) out->row[i - begin] = -1;
  for (int e = 0; e < num_experts; e++) {
    out->first[e] = row;
    for (int i = m->first[e]; i < m->first[e + 1]; i++) {
      if (m->choice[i] < begin || m->choice[i] >= end) continue;
      out->row[m->choice[i] - begin] = row;
      out->choice[row++] = m->choice[i] - begin;
    }
  }
  out->first[num_experts] = row;
}

/* A token's bits must not depend on who else goes to its experts. */
void oc_deterministic_experts(oc *c, tri_backend **others, int num_others, int i) {
  oc_moe_shape s = {.type = oc_weight_type(c, i), .h = oc_range(c, 1, 1200), .f = oc_range(c, 1, 120), .gated = i % 3};
  s.tokens = oc_range(c, 2, 80), s.experts = oc_range(c, 1, 6), s.top_k = oc_range(c, 1, s.experts);
  s.act = TRI_ACT_SILU, s.bias = i % 2, s.first = i % 4 ? 0 : 3;
  if (i % 5 == 4) s.tokens = 300, s.experts = 2, s.top_k = 1;
  tri_moe_experts_args a;
  oc_moe_build(c, &a, &s);
  a.rounds_rows = oc_is_int8_rows(&a.up) && oc_is_int8_rows(&a.down) && i % 8 > 3;
  snprintf(c->what, sizeof c->what, "moe_experts %s tokens %d h %d f %d experts %d top_k %d", tri_dtype_name(s.type),
           s.tokens, s.h, s.f, s.experts, s.top_k);
  oc_expect(c, tri_run_moe_experts(c->be, &a) == TRI_OK, "does not run");
  tri_mat out = oc_matrix(c, s.tokens, s.h, true);
  tri_expert_map part = oc_moe_room(c, s.tokens * s.top_k, s.experts);
  for (int o = 0; o < num_others; o++)
    for (int row = 0, rows; row < s.tokens; row += rows) {
      rows = oc_range(c, 1, o == 0 ? 1 : s.tokens - row);
      tri_moe_experts_args b = a;
      b.map = part;
      cut_map(&a.map, s.experts, row * s.top_k, (row + rows) * s.top_k, &b.map);
      b.x = rows_of(&a.x, row, rows), b.out = rows_of(&out, row, rows);
      b.weights += row * s.top_k;
      oc_expect(c, tri_run_moe_experts(others[o], &b) == TRI_OK, "does not run");
      size_t bad = differing(&a.out, &out, row, row, rows);
      oc_expect(c, bad == 0, "%zu of %d rows differ when run as %d rows", bad, rows, rows);
    }
}

/* Norm and gated activation take rows one by one: their bits against those of rows on their own. */
void oc_deterministic_rows(oc *c, tri_backend **others, int num_others, int i) {
  int m = oc_range(c, 2, 60), n = oc_range(c, 1, 3000);
  tri_norm_args a = {.x = oc_matrix(c, m, n, false), .eps = 1e-5f, .delta_scale = 1};
  a.kind = (tri_norm_kind)(i % 2);
  a.weight = oc_normals(c, (size_t)n, 1);
  a.out = oc_matrix(c, m, n, true);
  tri_glu_args g = {
      .gate_up = oc_matrix(c, m, 2 * n, false), .act = (tri_act)(i % 9), .limit = 7, .out = oc_matrix(c, m, n, true)};
  snprintf(c->what, sizeof c->what, "norm and glu m %d n %d", m, n);
  oc_expect(c, tri_run_norm(c->be, &a) == TRI_OK && tri_run_glu(c->be, &g) == TRI_OK, "does not run");
  tri_norm_args b = a;
  tri_glu_args h = g;
  tri_mat norm_out = oc_matrix(c, m, n, true), glu_out = oc_matrix(c, m, n, true);
  for (int row = 0; row < m; row++) {
    tri_backend *other = others[row % num_others];
    b.x = rows_of(&a.x, row, 1), b.out = rows_of(&norm_out, row, 1);
    h.gate_up = rows_of(&g.gate_up, row, 1), h.out = rows_of(&glu_out, row, 1);
    oc_expect(c, tri_run_norm(other, &b) == TRI_OK && tri_run_glu(other, &h) == TRI_OK, "does not run");
  }
  oc_expect(c, differing(&a.out, &norm_out, 0, 0, m) == 0, "norm differs");
  oc_expect(c, differing(&g.out, &glu_out, 0, 0, m) == 0, "glu differs");
}

/* A batch, then each of its sequences alone, its new tokens in pieces: the keys are in the cache already, so a piece is
 * a sequence with a shorter context. */
void oc_deterministic_attention(oc *c, tri_backend **others, int num_others, int i) {
  oc_sequences s = {.count = oc_range(c, 1, 4)};
  for (int k = 0; k < s.count; k++) {
    s.context[k] = oc_range(c, 1, i % 3 == 0 ? 1700 : 400);
    s.tokens[k] = oc_chance(c, 40) ? 1 : oc_range(c, 1, s.context[k] > 60 ? 60 : s.context[k]);
  }
  int hkv = oc_range(c, 1, 3), hq = hkv * oc_range(c, 1, 8), d = oc_chance(c, 50) ? 64 : oc_range(c, 1, 140);
  oc_attention x;
  oc_attention_build(c, &x, &s, hq, hkv, d, i % 2 ? 16 : oc_range(c, 1, 100), oc_kv_type(i));
  if (i % 4 == 3) oc_attention_latent(c, &x, oc_range(c, 1, d));
  if (oc_chance(c, 30)) x.args.window = oc_range(c, 1, 600);
  x.args.chunked = oc_chance(c, 40);
  if (oc_chance(c, 20)) x.args.softcap = 5;
  if (oc_chance(c, 20)) x.args.sinks = oc_normals(c, (size_t)hq, 2);
  if (oc_chance(c, 20)) x.args.alibi_slopes = oc_normals(c, (size_t)hq, 0.1f);
  snprintf(c->what, sizeof c->what, "attention seqs %d hq %d hkv %d d %d window %d", s.count, hq, hkv, d,
           x.args.window);
  oc_expect(c, tri_run_attention(c->be, &x.args) == TRI_OK, "does not run");
  tri_mat out = oc_matrix(c, x.batch.num_tokens, x.args.out.cols, true);
  for (int k = 0; k < s.count; k++)
    for (int o = 0; o < num_others; o++)
      for (int done = 0; done < s.tokens[k];) {
        int piece = oc_range(c, 1, o == 0 ? 1 : s.tokens[k] - done), first = x.batch.seq_start[k] + done;
        int32_t start[2] = {0, piece}, context = s.context[k] - s.tokens[k] + done + piece;
        tri_batch b = {
            .num_tokens = piece, .num_seqs = 1, .max_context = context, .max_query = piece, .num_single = piece == 1};
        b.seq_start = start, b.context_len = &context;
        b.block_table = x.batch.block_table, b.block_start = x.batch.block_start + k;
        tri_attention_args a = x.args;
        a.batch = &b, a.q = rows_of(&x.args.q, first, piece), a.out = rows_of(&out, first, piece);
        oc_expect(c, tri_run_attention(others[o], &a) == TRI_OK, "does not run");
        size_t bad = differing(&x.args.out, &out, first, first, piece);
        oc_expect(c, bad == 0, "%zu of %d rows differ (context %d)", bad, piece, context);
        done += piece;
      }
}
