/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths that a benchmark draws, and its figures of latencies. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/serve_bench/serve_bench.h"

Suite *suite_bench_serve(void);

/* The command's, of which this is no part. */
int cli_failed(const char *program, const char *fmt, ...) {
  (void)fmt;
  ck_abort_msg("%s failed", program);
  return 1;
}

enum { DRAWS = 20000 };
static uint32_t drawn[DRAWS];

/* Draws all, and returns their mean; *deviation is the standard one. */
static double sample_all(const bench_lengths *l, uint64_t seed, double *deviation) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < DRAWS; i++) {
    drawn[i] = bench_lengths_draw(l, i, &seed);
    sum += drawn[i];
    squares += (double)drawn[i] * drawn[i];
  }
  double mean = sum / DRAWS;
  *deviation = sqrt(squares / DRAWS - mean * mean);
  return mean;
}

static size_t count_of(uint32_t length) {
  size_t n = 0;
  for (size_t i = 0; i < DRAWS; i++) n += drawn[i] == length;
  return n;
}

static void check_range(uint32_t min, uint32_t max) {
  uint32_t least = UINT32_MAX, most = 0;
  for (size_t i = 0; i < DRAWS; i++) {
    if (drawn[i] < least) least = drawn[i];
    if (drawn[i] > most) most = drawn[i];
  }
  ck_assert_uint_eq(least, min);
  ck_assert_uint_eq(most, max);
}

START_TEST(fixed) {
  const bench_lengths l = {.distribution = BENCH_FIXED, .fixed = 7, .min = 5, .max = 500};
  double deviation;
  ck_assert_double_eq(sample_all(&l, 3, &deviation), 7);
  ck_assert_uint_eq(bench_lengths_longest(&l), 7);
}
END_TEST

/* Means and deviations of that many draws are 5 of their own deviations around the formulas' at most. */
START_TEST(uniform) {
  const bench_lengths l = {.distribution = BENCH_UNIFORM, .min = 5, .max = 500};
  double deviation, expected = sqrt((496.0 * 496 - 1) / 12);
  ck_assert_double_eq_tol(sample_all(&l, 3, &deviation), 252.5, 5 * expected / sqrt(DRAWS));
  ck_assert_double_eq_tol(deviation, expected, 3);
  check_range(5, 500);
  ck_assert_uint_eq(bench_lengths_longest(&l), 500);
  const bench_lengths few = {.distribution = BENCH_UNIFORM, .min = 2, .max = 3};
  sample_all(&few, 4, &deviation);
  check_range(2, 3);
  ck_assert_double_eq_tol((double)count_of(2), DRAWS / 2, 5 * sqrt(DRAWS) / 2); /* the ends are as likely */
  const bench_lengths one = {.distribution = BENCH_UNIFORM, .min = 9, .max = 9};
  sample_all(&one, 4, &deviation);
  check_range(9, 9);
}
END_TEST

START_TEST(normal) {
  const bench_lengths l = {.distribution = BENCH_NORMAL, .min = 5, .max = 500};
  double deviation, mean = sample_all(&l, 3, &deviation);
  ck_assert_double_eq_tol(mean, 252.5, 5 * 82.5 / sqrt(DRAWS));
  ck_assert_double_eq_tol(deviation, 82.5, 3);
  check_range(5, 500); /* clipped: 0.135 % at each end, 27 of these */
  ck_assert_uint_ge(count_of(5), 5);
  ck_assert_uint_le(count_of(5), 60);
  size_t within = 0;
  for (size_t i = 0; i < DRAWS; i++) within += fabs(drawn[i] - 252.5) < 82.5;
  ck_assert_double_eq_tol((double)within / DRAWS, 0.683, 0.02); /* of a uniform one 0.333 */
}
END_TEST

START_TEST(seeds) {
  const bench_lengths l = {.distribution = BENCH_NORMAL, .min = 5, .max = 500};
  static uint32_t first[DRAWS];
  double deviation;
  sample_all(&l, 3, &deviation);
  memcpy(first, drawn, sizeof first);
  sample_all(&l, 3, &deviation);
  ck_assert_mem_eq(first, drawn, sizeof first);
  sample_all(&l, 4, &deviation);
  ck_assert_int_ne(memcmp(first, drawn, sizeof first), 0);
}
END_TEST

static tri_status read_text(const char *text, bench_lengths *l, tri_error *err) {
  const char *path = TRI_TEST_SCRATCH "/bench_lengths";
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
  *l = (bench_lengths){0};
  tri_status st = bench_lengths_read(l, path, err);
  remove(path);
  return st;
}

START_TEST(files) {
  static const struct {
    const char *text, *message;
  } wrong[] = {{"5\n\n6 7\n", ":3: \"6 7\" is no length"},
               {"0\n", ":1: \"0\""},
               {"-1", ":1: \"-1\""},
               {"200001\n", ":1: \"200001\""},
               {"5\nx\n", ":2: \"x\""},
               {"1e3", ":1: \"1e3\""},
               {"99999999999999999999\n", ":1: \""},
               {" \n\n", "holds no lengths"},
               {"", "holds no lengths"}};
  bench_lengths l;
  tri_error err = {0};
  uint64_t random = 0;
  ck_assert_int_eq(read_text("5\n\n 200000 \r\n7", &l, &err), TRI_OK);
  ck_assert_uint_eq(l.num_listed, 3);
  ck_assert_uint_eq(bench_lengths_longest(&l), 200000);
  static const uint32_t in_turn[] = {5, 200000, 7, 5};
  for (size_t i = 0; i < 4; i++) ck_assert_uint_eq(bench_lengths_draw(&l, i, &random), in_turn[i]);
  bench_lengths_free(&l);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    err = (tri_error){0};
    ck_assert_int_eq(read_text(wrong[i].text, &l, &err), TRI_OUT_OF_RANGE);
    ck_assert_msg(strstr(err.message, wrong[i].message) != NULL, "\"%s\" has no \"%s\"", err.message, wrong[i].message);
    bench_lengths_free(&l);
  }
  ck_assert_int_eq(bench_lengths_read(&l, TRI_TEST_SCRATCH "/no/such/file", &err), TRI_IO);
}
END_TEST

/* Consecutive prompts, or lengths of a file, are the turns of one chat. */
START_TEST(turns) {
  uint32_t listed[] = {400, 5, 300, 6};
  const bench_options o = {.num_turns = 2, .random_output_len = 10};
  bench_run b = {.o = &o, .lengths = {.distribution = BENCH_LISTED, .listed = listed, .num_listed = 4}};
  static const size_t places[] = {0, 2, 1, 3}; /* the first turns of two chats, and then the second ones */
  for (size_t i = 0; i < 4; i++) ck_assert_uint_eq(bench_place(&b, 4, i), places[i]);
  ck_assert_uint_eq(bench_longest_chat(&b, 4), 400 + 5 + 2 * 10);
  ck_assert_uint_eq(bench_longest_chat(&b, 2), 400 + 5 + 2 * 10);
  const bench_options alone = {.num_turns = 1};
  b.o = &alone;
  for (size_t i = 0; i < 4; i++) ck_assert_uint_eq(bench_place(&b, 4, i), i);
}
END_TEST

START_TEST(quantiles) {
  const double v[] = {1, 2, 4, 8};
  ck_assert_double_eq(bench_quantile(v, 4, 0), 1);
  ck_assert_double_eq(bench_quantile(v, 4, 0.5), 3);
  ck_assert_double_eq_tol(bench_quantile(v, 4, 0.9), 4 + 0.7 * 4, 1e-12);
  ck_assert_double_eq(bench_quantile(v, 4, 1), 8);
  ck_assert_double_eq(bench_quantile(v, 1, 0.99), 1);
  ck_assert_double_eq(bench_quantile(v, 0, 0.5), 0);
}
END_TEST

START_TEST(summaries) {
  double v[101];
  for (int i = 0; i <= 100; i++) v[i] = (i * 37) % 101; /* 0 to 100, in no order */
  const bench_summary s = bench_summarize(v, 101);
  ck_assert_double_eq(s.mean, 50);
  ck_assert_double_eq(s.median, 50);
  ck_assert_double_eq_tol(s.p90, 90, 1e-9);
  ck_assert_double_eq_tol(s.p99, 99, 1e-9);
  const bench_summary none = bench_summarize(NULL, 0);
  ck_assert_double_eq(none.mean + none.median + none.p90 + none.p99, 0);
}
END_TEST

START_TEST(saturation) {
  ck_assert(bench_is_saturated(94, 100));
  ck_assert(!bench_is_saturated(96, 100));
  ck_assert(!bench_is_saturated(120, 100));
  ck_assert(!bench_is_saturated(94, 0)); /* all at once */
  ck_assert(!bench_is_saturated(0, 100));
}
END_TEST

enum { MS = 1000000 };

/* Three arrivals at 20 a second; the second waits in the client for the first, and the third fails. */
START_TEST(figures) {
  bench_request r[] = {
      {.arrival_ns = 0, .sent_ns = 0, .end_ns = 90 * MS, .prompt_tokens = 10, .ok = true},
      {.arrival_ns = 50 * MS, .sent_ns = 90 * MS, .end_ns = 180 * MS, .prompt_tokens = 30, .ok = true},
      {.arrival_ns = 100 * MS, .sent_ns = 180 * MS, .end_ns = 200 * MS, .prompt_tokens = 99},
  };
  bench_load l = {.rate = 20, .requests = r, .num = 3, .sent = 3, .finished = 3, .failed = 1, .end_ns = 200 * MS};
  bench_figures f;
  ck_assert_int_eq(bench_figure_out(&l, &f), TRI_OK);
  ck_assert_uint_eq(f.ok, 2);
  ck_assert_uint_eq(f.input, 40);
  ck_assert_double_eq_tol(f.achieved, 10, 1e-6);
  ck_assert_double_eq_tol(f.offered, 20, 1e-6);
  ck_assert(f.saturated); /* answers 90 ms apart, arrivals 50 */
  ck_assert_double_eq_tol(f.latency_ms[BENCH_E2E].mean, (90 + 130) / 2.0, 1e-6);
  ck_assert_double_eq_tol(f.late_ms.mean, 40, 1e-6);
  l.rate = INFINITY;
  for (int i = 0; i < 3; i++) r[i].arrival_ns = 0;
  ck_assert_int_eq(bench_figure_out(&l, &f), TRI_OK);
  ck_assert_double_eq_tol(f.latency_ms[BENCH_E2E].mean, 90, 1e-6);
  ck_assert_double_eq(f.offered, 0);
  ck_assert(!f.saturated);
}
END_TEST

/* A server that takes long for each, and keeps up; one answer that is late, and one that fails. */
START_TEST(keeps_up) {
  bench_request r[40];
  bench_load l = {.rate = 20, .requests = r, .num = 40, .sent = 40, .finished = 40, .end_ns = 3950 * (int64_t)MS};
  bench_figures f;
  for (int i = 0; i < 40; i++)
    r[i] = (bench_request){.arrival_ns = i * 50 * MS, .end_ns = i * 50 * MS + 2000 * (int64_t)MS, .ok = true};
  ck_assert_int_eq(bench_figure_out(&l, &f), TRI_OK);
  ck_assert_double_eq_tol(f.offered, 20, 1e-6);
  ck_assert_double_lt(f.achieved, 0.6 * f.offered);
  ck_assert(!f.saturated);
  r[39].end_ns += 90 * MS;
  r[3].ok = false;
  ck_assert_int_eq(bench_figure_out(&l, &f), TRI_OK);
  ck_assert(f.saturated);
}
END_TEST

/* A text of five tokens in three events, and one of one token, which has no time for each of the others. */
START_TEST(token_latencies) {
  double gaps[] = {20, 60};
  bench_request r[] = {
      {.sent_ns = 0, .first_ns = 10 * MS, .last_ns = 90 * MS, .end_ns = 91 * MS, .output_tokens = 5, .ok = true},
      {.sent_ns = 5 * MS, .first_ns = 35 * MS, .last_ns = 35 * MS, .end_ns = 36 * MS, .output_tokens = 1, .ok = true},
  };
  const bench_load l = {.rate = INFINITY, .requests = r, .num = 2, .sent = 2, .itl_ms = gaps, .num_itl = 2};
  bench_figures f;
  ck_assert_int_eq(bench_figure_out(&l, &f), TRI_OK);
  ck_assert_double_eq_tol(f.latency_ms[BENCH_TTFT].mean, 20, 1e-6);
  ck_assert_double_eq_tol(f.latency_ms[BENCH_TPOT].mean, 20, 1e-6);
  ck_assert_double_eq_tol(f.latency_ms[BENCH_ITL].mean, 40, 1e-6);
  ck_assert_double_eq_tol(f.latency_ms[BENCH_E2E].mean, 61, 1e-6);
  ck_assert_uint_eq(f.output, 6);
}
END_TEST

Suite *suite_bench_serve(void) {
  Suite *s = suite_create("bench_serve");
  TCase *c = tcase_create("bench_serve");
  const TTest *const tests[] = {fixed,     uniform,   normal,     seeds,   files,    turns,
                                quantiles, summaries, saturation, figures, keeps_up, token_latencies};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
  suite_add_tcase(s, c);
  return s;
}
