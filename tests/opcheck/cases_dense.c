/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

/* Every result here is a float32 rounded from sums of the same inputs. */
static const double LIMIT = 1e-12;

static int some_rows(oc *c, int i) {
  static const int rows[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 47, 48, 64, 100};
  return i % 3 == 0 ? oc_range(c, 0, 70) : rows[i % 14];
}

static int some_width(oc *c, int i) {
  static const int widths[] = {1, 7, 8, 16, 31, 64, 65, 129, 256, 1024, 1025, 1500, 2048};
  return i % 3 == 0 ? oc_range(c, 1, 300) : widths[i % 13];
}

/* The same product with other biases, which may lie where no vector of them begins: what a backend remembers of a
 * product is its shape. */
static void other_biases(oc *c, tri_linear_args *a, tri_linear_args *b) {
  size_t n = (size_t)a->w.n, at = oc_chance(c, 40);
  const float *biases = oc_normals(c, n + 1, 1);
  a->bias = biases + at;
  b->bias = (const float *)oc_device(c, biases, (n + 1) * sizeof *biases) + at;
  oc_status(c, tri_run_linear(c->ref, a), tri_run_linear(c->be, b));
}

static double energy_of(const tri_mat *m) {
  double sum = 0;
  for (int r = 0; r < m->rows; r++)
    for (int j = 0; j < m->cols; j++) {
      double x = m->data[(size_t)r * (size_t)m->ld + (size_t)j];
      sum += x * x;
    }
  return sum;
}

double oc_lost_by_activation(oc *c, const tri_linear_args *a) {
  tri_linear_args plain = *a;
  plain.act = TRI_ACT_NONE, plain.accumulate = false;
  plain.out = oc_matrix(c, a->out.rows, a->out.cols, true);
  if (a->act == TRI_ACT_NONE || tri_run_linear(c->ref, &plain) != TRI_OK) return 1;
  double sums = energy_of(&plain.out), results = energy_of(&a->out);
  return results > 0 && sums > results ? sums / results : 1;
}

/* Returns the error of rows that meet weights of 8 bits on a device: two terms of int8 have 15 bits of a group's
 * largest element, and sums of e4m3 14 bits; b: on the device. */
static double lost_by_8bit_rows(const tri_linear_args *b) {
  if (b->w.dtype == TRI_F8_E4M3) return 1e-6;
  return b->rounds_rows ? LIMIT : 1e-8;
}

/* Rounded inputs: two ulps of the type, squared, would be 6e-5 and 1e-6. b: on the device. Weights of 8 bits take one
 * row of 16 bits as it is, int8 others rounded to bf16; results of 16 bits are rounded in any case. */
static double rounded_limit(const tri_linear_args *b) {
  tri_dtype t = b->w.dtype, out = b->out.dtype;
  bool is_8bit = t == TRI_F8_E4M3 || t == TRI_I8;
  if (t == TRI_F8_E4M3 && b->x.rows < 2 && !b->rounds_rows) return oc_narrow_limit(out, LIMIT);
  if (is_8bit) t = out;
  if (is_8bit && !b->rounds_rows && (b->x.dtype == TRI_F32 || b->x.rows >= 512))
    t = b->x.dtype == TRI_F16 ? TRI_F16 : TRI_BF16; /* rows or weights are rounded to it */
  if (t == TRI_BF16) return 1e-5;
  if (is_8bit && b->x.rows >= 2) return lost_by_8bit_rows(b) + (t == TRI_F16 ? 1e-7 : 0);
  return t == TRI_F16 ? 1e-7 : LIMIT;
}

/* The type of a GEMM's rows on the device: with weights of 16 bits theirs. */
static tri_dtype rows_type(oc *c, tri_dtype weights) {
  tri_dtype t = oc_narrow_type(c);
  return weights == TRI_F16 || weights == TRI_BF16 ? (t == TRI_F32 ? t : weights) : t;
}

/* Cases of one or two rows and weights of 8 or 16 bits in whole pieces, as models have them: every other one of FP8. */
static bool is_of_few_rows(int i) { return i % 16 == 12 || i % 16 == 1; }

static tri_dtype type_of_few_rows(const oc *c, int i) {
  static const tri_dtype types[] = {TRI_BF16, TRI_I8, TRI_F16};
  return i % 16 == 12 && oc_takes_fp8(c) ? TRI_F8_E4M3 : types[i / 16 % 3];
}

/* Their sizes: long rows of few columns; more columns than blocks that a device has room for; and enough of them for
 * warps that have several. */
static void sizes_of_few_rows(oc *c, int i, int *m, int *n, int *k) {
  static const int columns[] = {40, 3000, 8192, 16384}, pieces[] = {900, 20, 70, 4};
  int kind = c->be->narrow_activations ? (i / 16 + i % 16) % 4 : 1; /* hosts have one kernel for all of them */
  *m = oc_range(c, 1, 2);
  *n = columns[kind] + (kind ? 2 * oc_range(c, 0, 80) : oc_range(c, 0, 90));
  *k = 16 * oc_range(c, 1, kind == 2 && oc_chance(c, 60) ? 4 : pieces[kind]);
}

/* Rows that can be read in pieces of 16 bytes. */
static tri_mat matrix_in_pieces(oc *c, int rows, int cols) {
  tri_mat m = oc_matrix(c, rows, cols, false);
  while (m.ld % 8) m = oc_matrix(c, rows, cols, false);
  return m;
}

/* Cases of any number of rows, now and then in the library's form and sizes. */
static bool is_fp8(const oc *c, int i) { return i % 8 == 7 && oc_takes_fp8(c); }
static tri_weight fp8_weight(oc *c, int i, int n, int k) {
  tri_groups library = {.rows = 128, .cols = 128};
  return i % 3 ? oc_weight(c, TRI_F8_E4M3, n, k) : oc_weight_in(c, TRI_F8_E4M3, n, k, library);
}
static void sizes_of_fp8(oc *c, int i, int *m, int *n, int *k) {
  int most = c->be->narrow_activations ? 100 : 30; /* hosts have no tiles to fill */
  *m = oc_range(c, 1, i % 16 == 7 ? 64 : 3 * most);
  *k = i % 3 ? 16 * oc_range(c, 1, most) : 512;
  *n = i % 3 ? 8 * oc_range(c, 1, most) : 128 * oc_range(c, 1, 3);
  if (i % 3 == 0 && c->be->narrow_activations) *k *= oc_range(c, 1, 2);
}

static bool rounds_for(const oc *c, const tri_weight *w) {
  return c->be->rounds_fp8_from && w->dtype == TRI_F8_E4M3 && !w->groups.skip_col;
}

void oc_case_linear(oc *c, int i) {
  tri_dtype t = oc_weight_type(c, i);
  int m = some_rows(c, i / 4), k = i == 9 ? 0 : some_width(c, i / 3 + 5), n = some_width(c, i / 2);
  if (i % 11 == 0) m = oc_range(c, 257, 300);
  bool many = i == 10 || i == 15; /* more rows than a grid's y has */
  if (many) m = 66000, k = 7, n = 5, t = TRI_I8;
  bool skinny = i % 8 == 5 && c->be->narrow_activations; /* whose k is cut into up to eight parts */
  if (skinny) {
    t = i % 16 == 5 ? TRI_BF16 : TRI_F16;
    m = oc_range(c, 3, 32);
    k = 8 * oc_range(c, 1, 600);
    n = 4 * oc_range(c, 1, 400);
  }
  if (i % 8 == 3) { /* as models have them: whole pieces, and parts of k */
    t = TRI_I8;
    m = i % 32 == 11 ? oc_range(c, 512, 600) : oc_range(c, 1, i % 16 == 3 ? 40 : 300);
    k = 16 * oc_range(c, 1, m < 512 ? 160 : 20);
    n = 8 * oc_range(c, 1, 100);
  }
  bool few = is_of_few_rows(i), fp8 = is_fp8(c, i) && !few;
  if (few) t = type_of_few_rows(c, i);
  if (fp8) t = TRI_F8_E4M3;
  if (few) sizes_of_few_rows(c, i, &m, &n, &k);
  if (fp8) sizes_of_fp8(c, i, &m, &n, &k);
  tri_linear_args a = {.w = fp8 ? fp8_weight(c, i, n, k) : oc_weight(c, t, n, k), .act = (tri_act)(i / 4 % 7)};
  a.x = few || fp8 ? matrix_in_pieces(c, m, k) : oc_matrix(c, m, k, false);
  a.bias = oc_chance(c, 50) ? oc_normals(c, (size_t)n, 1) : NULL;
  a.accumulate = oc_chance(c, 40);
  a.rounds_rows = (oc_is_int8_rows(&a.w) && (many || oc_chance(c, 50))) || (rounds_for(c, &a.w) && oc_chance(c, 50));
  /* tanh makes ones of long sums, beside which the rounding of those near zero would show. */
  for (int j = 0; a.act == TRI_ACT_TANH && j < m; j++)
    for (int p = 0; p < k; p++) a.x.data[(size_t)j * (size_t)a.x.ld + (size_t)p] /= sqrtf((float)k);
  if (a.rounds_rows && m > 2 && k) /* a row of nothing, and one with a large element */
    memset(a.x.data, 0, (size_t)k * sizeof(float)), a.x.data[a.x.ld] = -300;
  a.out = oc_matrix(c, m, n, !a.accumulate);
  snprintf(c->what, sizeof c->what, "linear %s m %d n %d k %d act %d%s%s%s", tri_dtype_name(t), m, n, k, a.act,
           a.bias ? " bias" : "", a.accumulate ? " accumulate" : "", a.rounds_rows ? " rounded rows" : "");
  tri_linear_args b = a;
  tri_dtype rows = skinny ? t : rows_type(c, t);
  b.x = oc_device_narrow(c, &a.x, rows), b.w = oc_device_weight(c, &a.w);
  bool narrow = rows != TRI_F32 && t != TRI_F32 && !a.accumulate && oc_chance(c, 60);
  b.out = oc_device_narrow(c, &a.out, narrow ? rows : TRI_F32);
  b.bias = oc_device(c, a.bias, (size_t)n * sizeof *a.bias);
  oc_status(c, tri_run_linear(c->ref, &a), tri_run_linear(c->be, &b));
  double rounded = rounded_limit(&b);
  bool rounds = c->be->narrows_inputs;
  oc_compare(c, &a.out, &b.out, rounds ? rounded * oc_lost_by_activation(c, &a) : LIMIT);
  if (!a.bias) return;
  other_biases(c, &a, &b);
  oc_compare(c, &a.out, &b.out, rounds ? rounded * oc_lost_by_activation(c, &a) : LIMIT);
}

void oc_case_embed(oc *c, int i) {
  tri_dtype t = oc_weight_type(c, i), pt = oc_weight_type(c, i / 2);
  int rows = some_rows(c, i), hidden = some_width(c, i), vocab = oc_range(c, 1, 50);
  tri_embed_args a = {.table = oc_weight(c, t, vocab, hidden), .out = oc_matrix(c, rows, hidden, true)};
  a.first_id = oc_chance(c, 50) ? (uint32_t)oc_range(c, 1, 1000) : 0;
  a.scale = oc_chance(c, 50) ? 1 : 5.5f;
  a.position_offset = oc_range(c, 0, 2);
  uint32_t *ids = oc_host(c, (size_t)rows * sizeof *ids);
  int32_t *positions = oc_host(c, (size_t)rows * sizeof *positions), *types = oc_host(c, (size_t)rows * sizeof *types);
  for (int r = 0; r < rows; r++) {
    ids[r] = a.first_id + (uint32_t)oc_range(c, 0, vocab - 1);
    if (oc_chance(c, 20)) ids[r] = oc_chance(c, 50) ? a.first_id + (uint32_t)vocab : a.first_id - 1;
    positions[r] = oc_range(c, 0, 20);
    types[r] = oc_range(c, 0, 1);
  }
  a.ids = ids, a.positions = positions;
  uint32_t *sampled = oc_host(c, (size_t)(rows + 1) * sizeof *sampled);
  if (oc_chance(c, 50)) {
    a.sampled = sampled;
    for (int r = 0; r < rows; r++) {
      if (ids[r] & TRI_SAMPLED_ID) ids[r] = a.first_id + (uint32_t)vocab; /* wrapped; out of the table as well */
      sampled[r] = ids[r];
      if (oc_chance(c, 50)) ids[r] = TRI_SAMPLED_ID | (uint32_t)oc_range(c, 0, r); /* of those filled in */
    }
  }
  if (oc_chance(c, 50)) a.types = types;
  if (oc_chance(c, 50)) a.position_table = oc_weight(c, pt, 24, hidden);
  if (oc_chance(c, 40)) a.type_table = oc_weight(c, oc_weight_type(c, i / 3), 2, hidden);
  snprintf(c->what, sizeof c->what, "embed %s rows %d hidden %d", tri_dtype_name(t), rows, hidden);
  if (oc_chance(c, 10)) a.table = (tri_weight){0};
  tri_embed_args b = a;
  b.ids = oc_device(c, ids, (size_t)rows * sizeof *ids);
  b.positions = oc_device(c, positions, (size_t)rows * sizeof *positions);
  if (a.sampled) b.sampled = oc_device(c, sampled, (size_t)(rows + 1) * sizeof *sampled);
  if (a.types) b.types = oc_device(c, types, (size_t)rows * sizeof *types);
  b.table = oc_device_weight(c, &a.table);
  if (a.position_table.data) b.position_table = oc_device_weight(c, &a.position_table);
  if (a.type_table.data) b.type_table = oc_device_weight(c, &a.type_table);
  b.out = oc_device_matrix(c, &a.out);
  oc_status(c, tri_run_embed(c->ref, &a), tri_run_embed(c->be, &b));
  oc_compare(c, &a.out, &b.out, LIMIT);
}

void oc_case_norm(oc *c, int i) {
  int rows = some_rows(c, i), n = some_width(c, i + 1);
  tri_norm_args a = {.x = oc_matrix(c, rows, n, false), .eps = 1e-5f, .kind = (tri_norm_kind)(i % 2)};
  if (oc_chance(c, 60)) a.delta = oc_matrix(c, rows, n, false);
  a.delta_scale = oc_chance(c, 70) ? 1 : 0.22f;
  if (a.kind == TRI_NORM_RMS && oc_chance(c, 30)) {
    float *sums = oc_normals(c, (size_t)rows, 1);
    for (int r = 0; r < rows; r++) sums[r] = (float)n * (1 + fabsf(sums[r]));
    a.square_sums = sums, a.whole_cols = n + oc_range(c, 0, n);
  }
  if (oc_chance(c, 80)) a.weight = oc_normals(c, (size_t)n, 1);
  if (oc_chance(c, 50)) a.bias = oc_normals(c, (size_t)n, 1);
  if (oc_chance(c, 30)) a.weight_offset = 1;
  bool in_place = oc_chance(c, 25), only_add = !in_place && oc_chance(c, 25);
  if (in_place)
    a.out = a.x;
  else if (!only_add)
    a.out = oc_matrix(c, rows, n, true);
  snprintf(c->what, sizeof c->what, "norm kind %d rows %d n %d%s", a.kind, rows, n, in_place ? " in place" : "");
  tri_norm_args b = a;
  b.x = oc_device_matrix(c, &a.x);
  if (a.delta.data) b.delta = oc_device_narrow(c, &a.delta, oc_narrow_type(c));
  b.out = in_place ? b.x : a.out;
  /* The rounding of a single number, of which a row of one element has the same in every row, is no average. */
  if (!in_place && !only_add) b.out = oc_device_narrow(c, &a.out, n > 1 ? oc_narrow_type(c) : TRI_F32);
  tri_mat copy = a.out; /* beside it: of the same shape, and unwritten */
  size_t elements = (size_t)rows * (size_t)copy.ld;
  copy.data = oc_host(c, (elements + 1) * sizeof *copy.data);
  for (size_t k = 0; k < elements; k++) copy.data[k] = NAN;
  if (b.out.data && n > 1 && c->be->narrow_activations && oc_chance(c, 40))
    b.copy = oc_device_narrow(c, &copy, oc_narrow_type(c));
  b.weight = oc_device(c, a.weight, (size_t)n * sizeof(float));
  b.bias = oc_device(c, a.bias, (size_t)n * sizeof(float));
  b.square_sums = oc_device(c, a.square_sums, (size_t)rows * sizeof(float));
  oc_status(c, tri_run_norm(c->ref, &a), tri_run_norm(c->be, &b));
  oc_compare(c, &a.x, &b.x, LIMIT);
  if (a.out.data) oc_compare(c, &a.out, &b.out, oc_narrow_limit(b.out.dtype, LIMIT));
  if (b.copy.data) oc_compare(c, &a.out, &b.copy, oc_narrow_limit(b.copy.dtype, LIMIT));
}

static tri_branch_norm_args some_branch_norm(oc *c, int rows, int n) {
  tri_branch_norm_args a = {.x = oc_matrix(c, rows, n, false), .eps = 1e-5f, .x_scale = oc_chance(c, 50) ? 1 : 0.6f};
  a.delta_scale = oc_chance(c, 70) ? 1 : 0.22f;
  if (oc_chance(c, 85)) a.delta = oc_matrix(c, rows, n, false);
  if (a.delta.data && oc_chance(c, 50)) a.second = oc_matrix(c, rows, n, false);
  if (oc_chance(c, 50)) a.delta_weight = oc_normals(c, (size_t)n, 1);
  if (oc_chance(c, 50)) a.second_weight = oc_normals(c, (size_t)n, 1);
  if (oc_chance(c, 70)) a.sum_weight = oc_normals(c, (size_t)n, 1);
  if (oc_chance(c, 30)) a.weight_offset = 1;
  return a;
}

void oc_case_branch_norm(oc *c, int i) {
  int rows = some_rows(c, i), n = some_width(c, i + 1);
  if (n < 3) n = 3; /* the norm of one element whose sum cancels is nothing but its rounding */
  tri_branch_norm_args a = some_branch_norm(c, rows, n);
  bool in_place = oc_chance(c, 25);
  int outputs = oc_range(c, in_place, TRI_BRANCH_NORM_OUTPUTS);
  tri_branch_norm_args b = a;
  b.x = oc_device_matrix(c, &a.x);
  tri_dtype of_delta = oc_narrow_type(c), of_outputs = in_place ? TRI_F32 : oc_narrow_type(c);
  if (a.delta.data) b.delta = oc_device_narrow(c, &a.delta, of_delta);
  if (a.second.data) b.second = oc_device_narrow(c, &a.second, oc_chance(c, 80) ? of_delta : oc_narrow_type(c));
  b.delta_weight = oc_device(c, a.delta_weight, (size_t)n * sizeof(float));
  b.second_weight = oc_device(c, a.second_weight, (size_t)n * sizeof(float));
  b.sum_weight = oc_device(c, a.sum_weight, (size_t)n * sizeof(float));
  for (int o = 0; o < outputs; o++) {
    bool is_x = in_place && !o;
    a.out[o] = is_x ? a.x : oc_matrix(c, rows, n, true);
    b.out[o] = is_x ? b.x : oc_device_narrow(c, &a.out[o], of_outputs);
    if (oc_chance(c, 90)) a.weight[o] = oc_normals(c, (size_t)n, 1);
    b.weight[o] = oc_device(c, a.weight[o], (size_t)n * sizeof(float));
    b.scale[o] = a.scale[o] = oc_chance(c, 70) ? 1 : 0.05f;
  }
  snprintf(c->what, sizeof c->what, "branch_norm rows %d n %d%s%s outputs %d%s", rows, n, a.delta.data ? " delta" : "",
           a.second.data ? " second" : "", outputs, in_place ? " in place" : "");
  oc_status(c, tri_run_branch_norm(c->ref, &a), tri_run_branch_norm(c->be, &b));
  oc_compare(c, &a.x, &b.x, LIMIT);
  for (int o = 0; o < outputs; o++) oc_compare(c, &a.out[o], &b.out[o], oc_narrow_limit(b.out[o].dtype, LIMIT));
}

void oc_case_square_sums(oc *c, int i) {
  int rows = some_rows(c, i), n = some_width(c, i + 1);
  tri_mat sums = {oc_normals(c, (size_t)rows, 1), rows, 1, 1, TRI_F32};
  tri_square_sums_args a = {.x = oc_matrix(c, rows, n, false), .sums = sums.data};
  snprintf(c->what, sizeof c->what, "square_sums rows %d n %d", rows, n);
  tri_mat got = oc_device_matrix(c, &sums);
  tri_square_sums_args b = {.x = oc_device_matrix(c, &a.x), .sums = got.data};
  oc_status(c, tri_run_square_sums(c->ref, &a), tri_run_square_sums(c->be, &b));
  oc_compare(c, &sums, &got, LIMIT);
}

void oc_case_gate_rows(oc *c, int i) {
  int rows = some_rows(c, i), n = some_width(c, i + 1);
  float *gate = oc_normals(c, (size_t)rows, 3);
  tri_gate_rows_args a = {.x = oc_matrix(c, rows, n, false), .gate = gate, .plain = oc_chance(c, 50)};
  snprintf(c->what, sizeof c->what, "gate_rows rows %d n %d%s", rows, n, a.plain ? " plain" : "");
  tri_gate_rows_args b = {.x = oc_device_narrow(c, &a.x, oc_narrow_type(c)),
                          .gate = oc_device(c, gate, (size_t)rows * sizeof *gate),
                          .plain = a.plain};
  oc_status(c, tri_run_gate_rows(c->ref, &a), tri_run_gate_rows(c->be, &b));
  oc_compare(c, &a.x, &b.x, oc_narrow_limit(b.x.dtype, LIMIT));
}

void oc_case_softcap(oc *c, int i) {
  int rows = some_rows(c, i), n = some_width(c, i + 1);
  tri_softcap_args a = {.x = oc_matrix(c, rows, n, false), .scale = oc_chance(c, 50) ? 1 : 0.0625f};
  a.cap = oc_chance(c, 70) ? 0.5f : 0;
  snprintf(c->what, sizeof c->what, "softcap rows %d n %d scale %g cap %g", rows, n, (double)a.scale, (double)a.cap);
  tri_softcap_args b = a;
  b.x = oc_device_matrix(c, &a.x);
  oc_status(c, tri_run_softcap(c->ref, &a), tri_run_softcap(c->be, &b));
  oc_compare(c, &a.x, &b.x, LIMIT);
}

void oc_case_glu(oc *c, int i) {
  int rows = some_rows(c, i), f = i % 7 == 0 ? 4099 : some_width(c, i + 2);
  tri_glu_args a = {.gate_up = oc_matrix(c, rows, 2 * f, false), .act = (tri_act)(i % 9)};
  a.limit = oc_glu_limit(a.act);
  a.out = oc_matrix(c, rows, f, true);
  float spread = oc_chance(c, 30) ? 30 : 2;
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < 2 * f; j++) a.gate_up.data[(size_t)r * (size_t)a.gate_up.ld + (size_t)j] *= spread;
  snprintf(c->what, sizeof c->what, "glu act %d rows %d f %d", a.act, rows, f);
  tri_glu_args b = a;
  tri_dtype narrow = oc_narrow_type(c);
  b.gate_up = oc_device_narrow(c, &a.gate_up, narrow), b.out = oc_device_narrow(c, &a.out, narrow);
  oc_status(c, tri_run_glu(c->ref, &a), tri_run_glu(c->be, &b));
  oc_compare(c, &a.out, &b.out, oc_narrow_limit(b.out.dtype, LIMIT));
}

void oc_case_gated_linear(oc *c, int i) {
  tri_dtype t = oc_weight_type(c, i);
  int m = some_rows(c, i / 4), k = some_width(c, i / 3 + 5), f = some_width(c, i / 2);
  bool prompt = i % 8 == 6 && c->be->narrow_activations; /* where the product does not go to memory */
  if (prompt) {
    t = i % 16 == 6 ? TRI_BF16 : TRI_F16;
    m = oc_range(c, 1000, 1500);
    k = 8 * oc_range(c, 1, 40);
    f = 8 * oc_range(c, 1, 40);
  }
  if (prompt && i % 32 == 30) { /* several tiles for each cluster, and more pairs of blocks' tokens than a band has */
    m = oc_range(c, 2100, 2500);
    k = 8 * oc_range(c, 1, 16);
    f = 8 * oc_range(c, 170, 230);
  }
  if (i % 8 == 3) {
    t = TRI_I8;
    m = i % 32 == 11 ? oc_range(c, 1024, 1100) : oc_range(c, 1, i % 16 == 3 ? 40 : 300);
    k = 16 * oc_range(c, 1, m < 512 ? 80 : 20);
    f = 8 * oc_range(c, 1, 60);
  }
  bool few = is_of_few_rows(i), fp8 = is_fp8(c, i) && !few;
  if (few) t = type_of_few_rows(c, i);
  if (fp8) t = TRI_F8_E4M3;
  if (few) sizes_of_few_rows(c, i, &m, &f, &k);
  if (fp8) sizes_of_fp8(c, i, &m, &f, &k);
  tri_gated_linear_args a = {.up = {.w = fp8 ? fp8_weight(c, i, 2 * f, k) : oc_weight(c, t, 2 * f, k)}};
  a.up.x = few || fp8 ? matrix_in_pieces(c, m, k) : oc_matrix(c, m, k, false);
  a.up.bias = oc_chance(c, prompt ? 10 : 50) ? oc_normals(c, (size_t)(2 * f), 1) : NULL;
  a.up.rounds_rows = (oc_is_int8_rows(&a.up.w) || rounds_for(c, &a.up.w)) && oc_chance(c, 50);
  a.up.out = a.glu.gate_up = oc_matrix(c, m, 2 * f, true);
  a.glu.act = (tri_act)(i / 4 % 9), a.glu.out = oc_matrix(c, m, f, true);
  if (prompt && oc_chance(c, 90)) a.glu.act = oc_chance(c, 50) ? TRI_ACT_SILU : TRI_ACT_GELU_TANH;
  a.glu.limit = oc_glu_limit(a.glu.act);
  snprintf(c->what, sizeof c->what, "gated_linear %s m %d f %d k %d act %d%s%s", tri_dtype_name(t), m, f, k, a.glu.act,
           a.up.bias ? " bias" : "", a.up.rounds_rows ? " rounded rows" : "");
  /* As with tanh in a plain product. */
  for (int j = 0; j < m; j++)
    for (int p = 0; p < k; p++) a.up.x.data[(size_t)j * (size_t)a.up.x.ld + (size_t)p] /= sqrtf((float)k);
  tri_gated_linear_args b = a;
  tri_dtype narrow = prompt ? t : rows_type(c, t);
  if (t == TRI_F32) narrow = TRI_F32;
  bool narrows = (few || fp8) && c->be->narrow_activations;
  if (narrows) narrow = t == TRI_F16 || (tri_dtype_size(t) == 1 && oc_chance(c, 50)) ? TRI_F16 : TRI_BF16;
  b.up.x = oc_device_narrow(c, &a.up.x, narrow), b.up.w = oc_device_weight(c, &a.up.w);
  b.up.out = b.glu.gate_up = oc_device_narrow(c, &a.up.out, narrow),
  b.glu.out = oc_device_narrow(c, &a.glu.out, narrow);
  b.up.bias = oc_device(c, a.up.bias, (size_t)(2 * f) * sizeof *a.up.bias);
  oc_status(c, tri_run_gated_linear(c->ref, &a), tri_run_gated_linear(c->be, &b));
  /* Two rounded sums meet in a product, and each may have been rounded once more. */
  double rounded = 4 * rounded_limit(&b.up);
  if (m * f < 100 && rounded > 4 * LIMIT) rounded *= 5; /* of few elements one may decide: off by three half units */
  oc_compare(c, &a.glu.out, &b.glu.out, c->be->narrows_inputs ? rounded : 4 * LIMIT);
}

void oc_case_gather_rows(oc *c, int i) {
  int rows = oc_range(c, 1, 40), n = some_width(c, i), wanted = oc_range(c, 0, 50);
  tri_gather_rows_args a = {.x = oc_matrix(c, rows, n, false), .out = oc_matrix(c, wanted, n, true)};
  int32_t *index = oc_host(c, (size_t)wanted * sizeof *index);
  for (int r = 0; r < wanted; r++) index[r] = oc_range(c, 0, rows - 1);
  a.rows = index;
  snprintf(c->what, sizeof c->what, "gather_rows %d of %d, n %d", wanted, rows, n);
  tri_gather_rows_args b = a;
  b.x = oc_device_matrix(c, &a.x), b.out = oc_device_matrix(c, &a.out);
  b.rows = oc_device(c, index, (size_t)wanted * sizeof *index);
  oc_status(c, tri_run_gather_rows(c->ref, &a), tri_run_gather_rows(c->be, &b));
  oc_compare(c, &a.out, &b.out, 0);
}

void oc_case_mean_rows(oc *c, int i) {
  int runs = oc_range(c, 0, 12), n = some_width(c, i), rows = 0;
  int32_t *start = oc_host(c, (size_t)(runs + 1) * sizeof *start);
  for (int s = 0; s < runs; s++) {
    start[s] = rows;
    rows += oc_range(c, 0, s % 3 ? 9 : 70);
  }
  start[runs] = rows;
  tri_mean_rows_args a = {.x = oc_matrix(c, rows, n, false), .start = start, .out = oc_matrix(c, runs, n, true)};
  snprintf(c->what, sizeof c->what, "mean_rows %d of %d, n %d", runs, rows, n);
  tri_mean_rows_args b = a;
  b.x = oc_device_matrix(c, &a.x), b.out = oc_device_matrix(c, &a.out);
  b.start = oc_device(c, start, (size_t)(runs + 1) * sizeof *start);
  oc_status(c, tri_run_mean_rows(c->ref, &a), tri_run_mean_rows(c->be, &b));
  oc_compare(c, &a.out, &b.out, LIMIT);
}

void oc_case_rope_angles(oc *c, int i) {
  int tokens = some_rows(c, i), dim = i % 5 == 0 ? oc_range(c, 2, 40) * 2 : (i % 4 + 1) * 32;
  size_t half = (size_t)dim / 2, count = (size_t)tokens * half;
  tri_rope_angles_args a = {.kind = (tri_rope_kind)(i % 3), .num_tokens = tokens, .rotary_dim = dim};
  a.original_max_len = 4096, a.base = 10000, a.factor = 2.5f, a.attention_scale = oc_chance(c, 50) ? 1 : 1.19f,
  a.attention_scale_long = 1.3f;
  float *inv = oc_host(c, half * sizeof *inv), *longer = oc_host(c, half * sizeof *longer);
  for (size_t j = 0; j < half; j++) {
    inv[j] = powf(10000, -2.0f * (float)j / (float)dim);
    longer[j] = inv[j] / (1 + (float)j / 8);
  }
  int32_t *positions = oc_host(c, (size_t)tokens * sizeof *positions), *len = oc_host(c, (size_t)tokens * sizeof *len);
  for (int t = 0; t < tokens; t++) {
    positions[t] = oc_range(c, 0, i % 2 ? 200000 : 5000);
    len[t] = t && oc_chance(c, 60) ? len[t - 1] : oc_range(c, 1, 20000);
  }
  a.inv_freq = inv, a.inv_freq_long = longer, a.positions = positions, a.rope_len = len;
  a.cos = oc_host(c, count * sizeof(float)), a.sin = oc_host(c, count * sizeof(float));
  for (size_t j = 0; j < count; j++) a.cos[j] = a.sin[j] = NAN;
  bool scales = oc_chance(c, 50);
  if (scales) {
    a.q_scale = oc_host(c, (size_t)tokens * sizeof(float));
    a.q_scale_beta = 0.3f, a.q_scale_offset = oc_range(c, 0, 1), a.q_scale_every = oc_range(c, 1, 3000);
    for (int t = 0; t < tokens; t++) /* at both sides of a step, too */
      if (oc_chance(c, 50))
        positions[t] = (positions[t] / a.q_scale_every + 1) * a.q_scale_every - a.q_scale_offset - oc_range(c, 0, 1);
    for (int t = 0; t < tokens; t++) a.q_scale[t] = NAN;
  }
  snprintf(c->what, sizeof c->what, "rope_angles kind %d tokens %d dim %d%s", a.kind, tokens, dim,
           scales ? " scale" : "");
  tri_rope_angles_args b = a;
  b.positions = oc_device(c, positions, (size_t)tokens * sizeof *positions);
  b.rope_len = oc_device(c, len, (size_t)tokens * sizeof *len);
  b.inv_freq = oc_device(c, inv, half * sizeof *inv), b.inv_freq_long = oc_device(c, longer, half * sizeof *inv);
  b.cos = oc_device(c, a.cos, count * sizeof(float)), b.sin = oc_device(c, a.sin, count * sizeof(float));
  b.q_scale = oc_device(c, a.q_scale, (size_t)tokens * sizeof(float));
  oc_status(c, tri_run_rope_angles(c->ref, &a), tri_run_rope_angles(c->be, &b));
  tri_mat wc = {a.cos, tokens, (int)half, (int)half, TRI_F32}, ws = {a.sin, tokens, (int)half, (int)half, TRI_F32},
          gc = wc, gs = ws;
  gc.data = b.cos, gs.data = b.sin;
  oc_compare(c, &wc, &gc, LIMIT);
  oc_compare(c, &ws, &gs, LIMIT);
  tri_mat wq = {a.q_scale, tokens, 1, 1, TRI_F32}, gq = wq;
  gq.data = b.q_scale;
  if (scales) oc_compare(c, &wq, &gq, LIMIT);
}
