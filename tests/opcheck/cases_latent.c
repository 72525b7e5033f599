#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

/* The elements of two matrices with gaps, the device's against the reference's: what neither wrote is NaN in both. */
static void compare_all(oc *c, const tri_mat *want, const tri_mat *got, double limit) {
  oc_compare_elements(c, TRI_F32, want->data, got->data, (size_t)want->rows * (size_t)want->ld, limit);
}

void oc_case_head_linear(oc *c, int i) {
  static const int rows[] = {1, 2, 3, 5, 24, 40, 70, 0};
  int heads = oc_range(c, 1, 9), n = oc_range(c, 1, 150), k = oc_range(c, 1, i % 3 ? 150 : 600);
  int m = i % 16 == 15 ? 650 : rows[i % 8], gap_x = oc_chance(c, 50) ? oc_range(c, 0, 20) : 0;
  if (m > 100) heads = 2, n %= 40, n++;
  tri_weight w = oc_weight(c, oc_weight_type(c, i), heads * n, k);
  tri_head_linear_args a = {.w = w, .num_heads = heads};
  a.x_stride = oc_chance(c, 10) ? 0 : k + gap_x, a.out_stride = n + (oc_chance(c, 50) ? oc_range(c, 0, 20) : 0);
  a.x = oc_matrix(c, m, (heads - 1) * a.x_stride + k, false);
  a.out = oc_matrix(c, m, heads * a.out_stride, true);
  snprintf(c->what, sizeof c->what, "head_linear %s m %d heads %d n %d k %d strides %d %d", tri_dtype_name(w.dtype), m,
           heads, n, k, a.x_stride, a.out_stride);
  tri_head_linear_args b = a;
  b.x = oc_device_matrix(c, &a.x), b.out = oc_device_matrix(c, &a.out), b.w = oc_device_weight(c, &a.w);
  oc_status(c, tri_run_head_linear(c->ref, &a, NULL), tri_run_head_linear(c->be, &b, NULL));
  compare_all(c, &a.out, &b.out, 1e-12);
}

void oc_case_mla_append(oc *c, int i) {
  static const int ranks[] = {16, 7, 64, 512};
  tri_dtype t = oc_kv_type(i);
  int tokens = i % 4 == 0 ? 1 : oc_range(c, 0, 30), block = oc_range(c, 1, 20), pages = tokens / block + 3;
  tri_mla_append_args a = {.num_heads = oc_range(c, 1, 6), .nope_dim = oc_range(c, 0, 40), .rank = ranks[i % 4]};
  a.rope_dim = oc_range(c, i % 5 ? 1 : 0, 32) * 2, a.norm_eps = 1e-6f, a.interleaved = oc_chance(c, 50);
  int row = a.rank + a.rope_dim;
  a.q = oc_matrix(c, tokens, a.num_heads * (a.nope_dim + a.rope_dim), false);
  a.kv_a = oc_matrix(c, tokens, row, false), a.q_out = oc_matrix(c, tokens, a.num_heads * row, true);
  a.norm = oc_normals(c, (size_t)a.rank, 1);
  size_t angles = (size_t)tokens * (size_t)a.rope_dim / 2, n = (size_t)pages * (size_t)block * (size_t)row;
  float *co = oc_host(c, angles * 4), *si = oc_host(c, angles * 4);
  for (size_t j = 0; j < angles; j++) {
    float angle = 3 * oc_normal(c);
    co[j] = cosf(angle), si[j] = sinf(angle);
  }
  int64_t *slots = oc_host(c, (size_t)tokens * sizeof *slots);
  int first = oc_range(c, 0, block);
  for (int r = 0; r < tokens; r++) slots[r] = oc_chance(c, 5) ? -1 : first + r;
  a.cos = co, a.sin = si, a.kv_slot = slots;
  a.kv = (tri_kv_layer){.dtype = t, .num_pages = pages, .num_kv_heads = 1, .block_size = block};
  a.kv.head_dim = row, a.kv.v_dim = a.rank;
  a.kv.k = oc_host(c, n * tri_dtype_size(t));
  for (size_t j = 0; j < n; j++) tri_store_f32(a.kv.k, t, j, NAN);
  snprintf(c->what, sizeof c->what, "mla_append %s tokens %d heads %d nope %d rope %d rank %d%s", tri_dtype_name(t),
           tokens, a.num_heads, a.nope_dim, a.rope_dim, a.rank, a.interleaved ? " interleaved" : "");
  tri_mla_append_args b = a;
  b.q = oc_device_matrix(c, &a.q), b.kv_a = oc_device_matrix(c, &a.kv_a), b.q_out = oc_device_matrix(c, &a.q_out);
  b.norm = oc_device(c, a.norm, (size_t)a.rank * 4);
  b.cos = oc_device(c, co, angles * 4), b.sin = oc_device(c, si, angles * 4);
  b.kv_slot = oc_device(c, slots, (size_t)tokens * sizeof *slots);
  b.kv.k = oc_device(c, a.kv.k, n * tri_dtype_size(t));
  oc_status(c, tri_run_mla_append(c->ref, &a, NULL), tri_run_mla_append(c->be, &b, NULL));
  compare_all(c, &a.q_out, &b.q_out, 1e-12);
  /* As in qkv_rope_append: one unit in the last place of a narrow type, rarely. */
  oc_compare_elements(c, t, a.kv.k, b.kv.k, n, t == TRI_F32 ? 1e-12 : t == TRI_F16 ? 1e-8 : 5e-7);
}
