/* SPDX-License-Identifier: Apache-2.0 */
/* The prediction of steps whose weights are streamed, against what a pencil gives. */
#include <check.h>
#include <math.h>

#include "runtime/cost/streaming.h"

Suite *suite_streaming(void);

static const tri_machine machine = {.row_shares = {1}, /* measured by rows: what takes longer hides the other */
                                    .read_bytes_per_s = 1e9,
                                    .flops_per_s = 1e9,
                                    .attention_flops_per_s = 1e9,
                                    .near_transfer = {0, 0, 1e30}};
static const tri_cost_share stages[2] = {{.dense_bytes = 1e6, .dense_flops = 1e6, .layers = 4},
                                         {.dense_bytes = 1e6, .dense_flops = 2e6, .layers = 4}};
static const tri_streaming_share shares[2] = {{5e6, 8e6, 8e6}, {1e6, 1e6, 1e6}};

static tri_cost_model model(int pp) {
  return (tri_cost_model){.machine = machine, .p = {.tp = 1, .pp = pp}, .hidden_size = 8, .stages = stages};
}

static void near(double got, double want, const char *what) {
  ck_assert_msg(fabs(got - want) <= 1e-9 * fabs(want), "%s: %.9g, not %.9g", what, got, want);
}

/* 5 MB at 1 GB/s; products of 1 MFLOP a token take as long from the fifth on. */
START_TEST(disk_or_compute) {
  tri_cost_model m = model(1);
  tri_streaming s = {.model = &m, .shares = shares, .disk_bytes_per_s = 1e9};
  near(tri_streaming_pass(&s, 0), 5e-3, "pass");
  near(tri_streaming_decode(&s, 1, 10), 5e-3, "a step of one");
  near(tri_streaming_decode(&s, 5, 10), 5e-3, "of five");
  near(tri_streaming_decode(&s, 20, 10), 20e-3, "of twenty");
  ck_assert_int_eq(tri_streaming_hiding_tokens(&s, 1 << 20), 5);
  ck_assert_int_eq(tri_streaming_hiding_tokens(&s, 5), 5);
  ck_assert_int_eq(tri_streaming_hiding_tokens(&s, 4), 0);
}
END_TEST

/* 8 MB over a link of 500 MB/s. */
START_TEST(links) {
  tri_cost_model m = model(1);
  tri_streaming s = {.model = &m, .shares = shares, .disk_bytes_per_s = 1e9, .link_bytes_per_s = 5e8};
  near(tri_streaming_pass(&s, 0), 16e-3, "pass");
  s.link_bytes_per_s = 1e10;
  near(tri_streaming_pass(&s, 0), 5e-3, "pass with a fast link");
}
END_TEST

/* One micro-batch goes through 5 ms and 2 ms; two take turns on the slower stage. */
START_TEST(micro_batches_walk_for_themselves) {
  tri_cost_model m = model(2);
  tri_streaming s = {.model = &m, .shares = shares, .disk_bytes_per_s = 1e9};
  near(tri_streaming_decode(&s, 1, 10), 5e-3 + 2e-3, "one lane");
  near(tri_streaming_decode(&s, 2, 10), 2 * 5e-3, "two lanes");
  ck_assert_int_eq(tri_streaming_hiding_tokens(&s, 1 << 20), 5);
}
END_TEST

START_TEST(nothing_from_files) {
  static const tri_streaming_share none = {0, 7e6, 4e6}; /* the rest comes from other devices */
  tri_cost_model m = model(1);
  tri_streaming s = {.model = &m, .shares = &none, .link_bytes_per_s = 1e9}; /* nobody knows the disk */
  near(tri_streaming_pass(&s, 0), 4e-3, "pass");
}
END_TEST

Suite *suite_streaming(void) {
  Suite *s = suite_create("streaming");
  TCase *t = tcase_create("streaming");
  tcase_add_test(t, disk_or_compute);
  tcase_add_test(t, links);
  tcase_add_test(t, micro_batches_walk_for_themselves);
  tcase_add_test(t, nothing_from_files);
  suite_add_tcase(s, t);
  return s;
}
