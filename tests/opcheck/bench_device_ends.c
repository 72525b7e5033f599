/* SPDX-License-Identifier: Apache-2.0 */
/* The small ops at both ends of a step, of few rows: what they take is latency, not reading. */
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/bench_device.h"

static bool wanted(const bench *b, const char *op) { return !b->c->opt.op || !strcmp(op, b->c->opt.op); }

/* The pick of greedy rows, as a part of a vocabulary has it: without the way of the result to the host. */
static void bench_pick(bench *b, int rows) {
  enum { VOCAB = 128256, ROWS = 256 };
  static tri_sample_part_args a[MAX_COPIES];
  static const tri_sample_params greedy = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
  const tri_sample_params *params[ROWS];
  char name[80];
  size_t n = (size_t)rows * VOCAB;
  int copies = bench_copies_of(4.0 * (double)n);
  for (int i = 0; i < rows; i++) params[i] = &greedy;
  float *x = bench_elements(b, TRI_F32, n * (size_t)copies);
  tri_sample_candidate *out = bench_room(b, (size_t)(rows * copies) * sizeof *out);
  for (int i = 0; i < copies; i++) {
    a[i] = (tri_sample_part_args){.width = 1, .candidates = out + i * rows};
    a[i].rows.logits = bench_matrix(x + (size_t)i * n, rows, VOCAB);
    a[i].rows.params = params;
  }
  NAME("sample_part greedy %d x %d", rows, VOCAB);
  bench_report(b, name, WORK(sample_part, a, copies, .bytes = 4.0 * (double)n));
  bench_release(b);
}

/* An addition to the stream without a norm. */
static void bench_settle(bench *b, int m, int cols) {
  static tri_norm_args a[MAX_COPIES];
  char name[80];
  size_t n = (size_t)m * (size_t)cols;
  int copies = bench_copies_of(12.0 * (double)n);
  float *x = bench_elements(b, TRI_F32, n * (size_t)copies), *delta = bench_elements(b, TRI_F32, n * (size_t)copies);
  for (int i = 0; i < copies; i++) {
    size_t at = (size_t)i * n;
    a[i] = (tri_norm_args){
        .x = bench_matrix(x + at, m, cols), .delta = bench_matrix(delta + at, m, cols), .delta_scale = 1};
  }
  NAME("norm addition alone %d x %d", m, cols);
  bench_report(b, name, WORK(norm, a, copies, .bytes = 12.0 * (double)n));
  bench_release(b);
}

/* Gemma 4's layers: both branches' results, the sum, and three readers of the stream. */
static void bench_branch_norm(bench *b, int m, int cols) {
  static tri_branch_norm_args a[MAX_COPIES];
  char name[80];
  size_t n = (size_t)m * (size_t)cols;
  int copies = bench_copies_of(20.0 * (double)n);
  float *x = bench_elements(b, TRI_F32, n * (size_t)copies), *delta = bench_elements(b, TRI_F32, n * (size_t)copies);
  float *second = bench_elements(b, TRI_F32, n * (size_t)copies), *out = bench_room(b, 3 * n * (size_t)copies * 4);
  const float *w = bench_elements(b, TRI_F32, (size_t)cols);
  for (int i = 0; i < copies; i++) {
    size_t at = (size_t)i * n;
    a[i] = (tri_branch_norm_args){.x = bench_matrix(x + at, m, cols), .delta = bench_matrix(delta + at, m, cols)};
    a[i].second = bench_matrix(second + at, m, cols);
    a[i].delta_weight = w, a[i].second_weight = w, a[i].sum_weight = w;
    a[i].delta_scale = 1, a[i].x_scale = 0.9f, a[i].eps = 1e-6f;
    for (int o = 0; o < TRI_BRANCH_NORM_OUTPUTS; o++)
      a[i].out[o] = bench_matrix(out + 3 * at + (size_t)o * n, m, cols), a[i].weight[o] = w, a[i].scale[o] = 1;
  }
  NAME("branch_norm of two, three outputs %d x %d", m, cols);
  bench_report(b, name, WORK(branch_norm, a, copies, .bytes = 28.0 * (double)n));
  bench_release(b);
}

static void bench_angles(bench *b, int m, int dim) {
  enum { ROWS = 2048 };
  static tri_rope_angles_args a[MAX_COPIES];
  static int32_t numbers[ROWS];
  char name[80];
  size_t n = (size_t)m * (size_t)(dim / 2);
  int copies = bench_copies_of(8.0 * (double)n);
  for (int i = 0; i < m; i++) numbers[i] = 1000 + 7 * i;
  const int32_t *positions = bench_on_device(b, numbers, (size_t)m * sizeof *numbers);
  const float *frequencies = bench_elements(b, TRI_F32, (size_t)(dim / 2));
  float *out = bench_room(b, 2 * n * (size_t)copies * sizeof *out);
  for (int i = 0; i < copies; i++) {
    a[i] = (tri_rope_angles_args){.positions = positions, .rope_len = positions, .inv_freq = frequencies};
    a[i].num_tokens = m, a[i].rotary_dim = dim, a[i].attention_scale = 1;
    a[i].cos = out + 2 * (size_t)i * n, a[i].sin = a[i].cos + n;
  }
  NAME("rope_angles %d x %d", m, dim);
  bench_report(b, name, WORK(rope_angles, a, copies, .bytes = 8.0 * (double)n));
  bench_release(b);
}

static void bench_gather(bench *b, int m, int cols) {
  enum { ROWS = 256 };
  static tri_gather_rows_args a[MAX_COPIES];
  int32_t numbers[ROWS];
  char name[80];
  size_t n = (size_t)m * (size_t)cols;
  int copies = bench_copies_of(8.0 * (double)n);
  for (int i = 0; i < m; i++) numbers[i] = m - 1 - i;
  const int32_t *rows = bench_on_device(b, numbers, (size_t)m * sizeof *numbers);
  float *x = bench_elements(b, TRI_F32, n * (size_t)copies), *out = bench_room(b, n * (size_t)copies * sizeof *out);
  for (int i = 0; i < copies; i++) {
    size_t at = (size_t)i * n;
    a[i] = (tri_gather_rows_args){bench_matrix(x + at, m, cols), rows, bench_matrix(out + at, m, cols)};
  }
  NAME("gather_rows %d x %d", m, cols);
  bench_report(b, name, WORK(gather_rows, a, copies, .bytes = 8.0 * (double)n));
  bench_release(b);
}

void bench_device_ends(bench *b) {
  static const int rows[] = {1, 8, 32, 128, 256};
  int few = b->c->opt.quick ? 1 : 5;
  for (int i = 0; i < few; i++) {
    if (wanted(b, "norm")) bench_settle(b, rows[i], 4096);
    if (wanted(b, "branch_norm")) bench_branch_norm(b, rows[i], 2816);
    if (wanted(b, "rope_angles")) bench_angles(b, rows[i], 128);
    if (wanted(b, "gather_rows")) bench_gather(b, rows[i], 4096);
    if (wanted(b, "sample_part")) bench_pick(b, rows[i]);
  }
  if (wanted(b, "rope_angles")) bench_angles(b, 2048, 128);
}
