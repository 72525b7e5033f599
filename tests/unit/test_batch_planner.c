/* SPDX-License-Identifier: Apache-2.0 */
/* What an encoder's batches cost, and the cheapest division of a queue into them. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/hash.h"
#include "worker/schedule/batch_cost_file.h"
#include "worker/schedule/batch_planner.h"

Suite *suite_batch_planner(void);

enum { MAX_LEN = 500, MAX_SEQS = 20, MAX_TOKENS = 4096, FEW = 12, FEWER = 7 };

static int range(uint64_t *random, int lo, int hi) {
  return lo + (int)(tri_splitmix64(random) % (uint64_t)(hi - lo + 1));
}

static double uniform(uint64_t *random) { return (double)(tri_splitmix64(random) >> 11) * 0x1p-53; }

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b)); }

/* A table as a device might have it: a start, weights that many tokens share, products, attention, and noise. */
static void draw_table(tri_batch_cost *c, uint64_t *random) {
  double start = uniform(random) * 1e-3, token = 1e-6 * (1 + uniform(random)), pair = 1e-9 * uniform(random);
  tri_batch_cost_init(c, MAX_LEN, MAX_SEQS, MAX_TOKENS);
  for (int l = 0; l < c->num_lengths; l++)
    for (int s = 0; s < c->num_sizes; s++) {
      double n = (double)c->lengths[l] * c->sizes[s];
      if (!tri_batch_cost_has(c, l, s) || range(random, 0, 9) == 0) continue;
      c->measured[l][s] = (start + n * token + n * c->lengths[l] * pair) * (0.8 + 0.4 * uniform(random));
    }
  tri_batch_cost_complete(c);
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void draw_lengths(int *lengths, int n, uint64_t *random) {
  for (int i = 0; i < n; i++) lengths[i] = range(random, 1, MAX_LEN);
  qsort(lengths, (size_t)n, sizeof *lengths, ascending);
}

/* ---- the table ---- */

START_TEST(cells_are_what_was_measured) {
  tri_batch_cost c;
  tri_batch_cost_init(&c, MAX_LEN, MAX_SEQS, MAX_TOKENS);
  ck_assert_int_eq(c.lengths[0], 8);
  ck_assert_int_eq(c.lengths[c.num_lengths - 1], MAX_LEN);
  ck_assert_int_eq(c.sizes[c.num_sizes - 1], MAX_SEQS);
  c.measured[2][1] = 0.5; /* 32 tokens, 2 sequences */
  c.measured[2][2] = 0.6;
  c.measured[3][1] = 0.9;
  tri_batch_cost_complete(&c);
  ck_assert(is_near(tri_batch_cost_padded(&c, 32, 2), 0.5));
  ck_assert(is_near(tri_batch_cost_padded(&c, 32, 3), 0.55));
  ck_assert(is_near(tri_batch_cost_padded(&c, 48, 2), 0.7));
  ck_assert(is_near(tri_batch_cost_padded(&c, 32, 16), 0.6 * 4)); /* by its tokens */
  ck_assert(tri_batch_cost_padded(&c, 32, 1) <= 0.5);
}
END_TEST

/* Whatever was measured, more tokens or more sequences never cost less. */
START_TEST(more_never_costs_less) {
  uint64_t random = 1;
  tri_batch_cost c;
  for (int round = 0; round < 300; round++) {
    draw_table(&c, &random);
    double length = range(&random, 1, 2 * MAX_LEN), size = range(&random, 1, 2 * MAX_SEQS);
    double seconds = tri_batch_cost_padded(&c, length, size);
    ck_assert(seconds > 0);
    ck_assert(tri_batch_cost_padded(&c, length + range(&random, 1, 50), size) >= seconds);
    ck_assert(tri_batch_cost_padded(&c, length, size + range(&random, 1, 5)) >= seconds);
  }
}
END_TEST

/* The seconds of a packed batch: each sequence costs its part of a batch of its length that has as many tokens. */
static double packed_cost(const tri_batch_cost *c, const int *lengths, int n) {
  double tokens = 0, seconds = 0;
  for (int i = 0; i < n; i++) tokens += lengths[i];
  for (int i = 0; i < n; i++)
    seconds += tri_batch_cost_padded(c, lengths[i], tokens / lengths[i]) * lengths[i] / tokens;
  return seconds;
}

/* Equal lengths cost the same packed as padded; a shorter one saves. */
START_TEST(packed) {
  uint64_t random = 2;
  tri_batch_cost c;
  for (int round = 0; round < 100; round++) {
    int lengths[MAX_SEQS], n = range(&random, 2, MAX_SEQS), length = range(&random, 10, MAX_LEN);
    draw_table(&c, &random);
    for (int i = 0; i < n; i++) lengths[i] = length;
    double all = packed_cost(&c, lengths, n);
    ck_assert(is_near(all, tri_batch_cost_padded(&c, length, n)));
  }
}
END_TEST

/* Observations of one batch move its own cost there, and those far from it not at all. */
START_TEST(observed) {
  uint64_t random = 3;
  tri_batch_cost c;
  draw_table(&c, &random);
  double before = tri_batch_cost_padded(&c, 100, 6), other = tri_batch_cost_padded(&c, 16, 1);
  for (int i = 0; i < 200; i++) tri_batch_cost_observe(&c, 100, 6, 0.7 * before);
  ck_assert_double_eq_tol(tri_batch_cost_padded(&c, 100, 6), 0.7 * before, 0.02 * before);
  ck_assert(is_near(tri_batch_cost_padded(&c, 16, 1), other));
  double now = tri_batch_cost_padded(&c, 100, 6);
  tri_batch_cost_observe(&c, 100, 6, 100 * now); /* the process stood still */
  tri_batch_cost_observe(&c, 100, 6, NAN);
  tri_batch_cost_observe(&c, 100, 6, 0);
  tri_batch_cost_observe(&c, 100, 6, -1);
  ck_assert(is_near(tri_batch_cost_padded(&c, 100, 6), now));
}
END_TEST

START_TEST(enough_tokens) {
  tri_batch_cost c;
  tri_batch_cost_init(&c, 64, 64, MAX_TOKENS);
  for (int l = 0; l < c.num_lengths; l++)
    for (int s = 0; s < c.num_sizes; s++) {
      int n = c.lengths[l] * c.sizes[s];
      c.measured[l][s] = n < 512 ? 512e-6 : n * 1e-6; /* nothing is gained beyond 512 */
    }
  tri_batch_cost_complete(&c);
  ck_assert_int_eq(tri_batch_cost_enough_tokens(&c), 512);
  tri_batch_cost_init(&c, 64, 64, MAX_TOKENS); /* nothing known: a token costs the same everywhere */
  ck_assert_int_eq(tri_batch_cost_enough_tokens(&c), 64);
  tri_batch_cost_init(&c, 64, 64, 48);
  ck_assert_int_eq(tri_batch_cost_enough_tokens(&c), 48);
}
END_TEST

/* ---- divisions ---- */

/* The least cost of every division of sorted lengths into neighbours. */
static double cheapest_neighbours(const tri_batch_cost *c, const int *lengths, int n) {
  double best = INFINITY;
  for (unsigned cuts = 0; cuts < 1U << (n - 1); cuts++) {
    double sum = 0;
    bool fits = true;
    for (int i = 0, size = 0; i < n; i++) {
      size++;
      if (i + 1 < n && !(cuts >> i & 1)) continue;
      fits = fits && size <= MAX_SEQS && (size == 1 || size * lengths[i] <= MAX_TOKENS);
      sum += tri_batch_cost_padded(c, lengths[i], size);
      size = 0;
    }
    if (fits && sum < best) best = sum;
  }
  return best;
}

/* The least cost of any division at all: sequence i goes to one of the batches so far, or begins one. */
static double cheapest_of_all(const tri_batch_cost *c, const int *lengths, int n, int i, int *size, int *longest,
                              int num) {
  double best = INFINITY;
  if (i == n) {
    best = 0;
    for (int k = 0; k < num; k++) best += tri_batch_cost_padded(c, longest[k], size[k]);
    return best;
  }
  for (int k = 0; k <= num; k++) {
    int was = k < num ? longest[k] : 0, had = k < num ? size[k] : 0;
    size[k] = had + 1;
    longest[k] = was > lengths[i] ? was : lengths[i];
    if (size[k] == 1 || size[k] * longest[k] <= MAX_TOKENS)
      best = fmin(best, cheapest_of_all(c, lengths, n, i + 1, size, longest, k < num ? num : num + 1));
    size[k] = had;
    longest[k] = was;
  }
  return best;
}

static void check_division(const tri_batch_cost *c, const int *lengths, int n, const int *ends, int num,
                           double seconds) {
  double sum = 0;
  int from = 0;
  for (int k = 0; k < num; from = ends[k++]) {
    int size = ends[k] - from;
    ck_assert(size > 0 && size <= MAX_SEQS && (size == 1 || size * lengths[ends[k] - 1] <= MAX_TOKENS));
    sum += tri_batch_cost_padded(c, lengths[ends[k] - 1], size);
  }
  ck_assert_int_eq(from, n);
  ck_assert(is_near(sum, seconds));
}

/* 10,000 queues, each beside an exhaustive search over neighbours in the sorted order; short ones over all divisions.
 */
START_TEST(no_division_is_cheaper) {
  enum { QUEUES = 10000, TABLES_EVERY = 50 };
  uint64_t random = 4;
  tri_batch_cost c;
  tri_batch_planner *p = NULL;
  ck_assert_int_eq(tri_batch_planner_create(MAX_SEQS, MAX_TOKENS, &p), TRI_OK);
  int batches = 0;
  for (int q = 0; q < QUEUES; q++) {
    int lengths[FEW], ends[FEW], size[FEW] = {0}, longest[FEW] = {0}, n = range(&random, 1, FEW);
    double seconds = 0;
    if (q % TABLES_EVERY == 0) {
      draw_table(&c, &random);
      tri_batch_planner_set_cost(p, &c);
    }
    draw_lengths(lengths, n, &random);
    int num = tri_batch_planner_cut(p, lengths, n, ends, &seconds);
    check_division(&c, lengths, n, ends, num, seconds);
    if (!is_near(seconds, cheapest_neighbours(&c, lengths, n)))
      ck_abort_msg("queue %d is not cut as cheaply as can be", q);
    if (n <= FEWER && q % 4 == 0 && !is_near(seconds, cheapest_of_all(&c, lengths, n, 0, size, longest, 0)))
      ck_abort_msg("queue %d has a cheaper division that is not of neighbours", q);
    batches += num;
  }
  ck_assert_int_gt(batches, QUEUES); /* some are cut */
  tri_batch_planner_destroy(p);
}
END_TEST

START_TEST(limits_of_a_batch) {
  tri_batch_cost c;
  tri_batch_planner *p = NULL;
  int lengths[3] = {30, 30, 30}, ends[3];
  double seconds;
  tri_batch_cost_init(&c, 64, 2, 64);
  c.measured[0][0] = 1; /* a step costs, a token does not: one batch would be best */
  for (int l = 0; l < c.num_lengths; l++)
    for (int s = 0; s < c.num_sizes; s++) c.measured[l][s] = 1;
  tri_batch_cost_complete(&c);
  ck_assert_int_eq(tri_batch_planner_create(2, 64, &p), TRI_OK);
  tri_batch_planner_set_cost(p, &c);
  ck_assert_int_eq(tri_batch_planner_cut(p, lengths, 3, ends, &seconds), 2); /* two sequences at most */
  tri_batch_planner_destroy(p);
  ck_assert_int_eq(tri_batch_planner_create(3, 29, &p), TRI_OK);
  tri_batch_planner_set_cost(p, &c);
  ck_assert_int_eq(tri_batch_planner_cut(p, lengths, 3, ends, &seconds), 3); /* each longer than a step */
  ck_assert_int_eq(tri_batch_planner_cut(p, lengths, 0, ends, &seconds), 0);
  ck_assert(seconds >= 0 && seconds <= 0);
  tri_batch_planner_destroy(p);
}
END_TEST

/* Says how long planning a full queue takes: docs/performance.md has the figure. */
START_TEST(a_long_queue) {
  enum { WAITING = 1000, ROUNDS = 50 };
  static int lengths[WAITING], ends[WAITING];
  tri_batch_cost c;
  tri_batch_planner *p = NULL;
  double seconds, sum = 0;
  tri_batch_cost_init(&c, MAX_LEN, 256, 8192);
  ck_assert_int_eq(tri_batch_planner_create(128, 8192, &p), TRI_OK);
  tri_batch_planner_set_cost(p, &c);
  for (int i = 0; i < WAITING; i++) lengths[i] = 1 + i * 64 / WAITING; /* batches may be of any size */
  clock_t start = clock();
  for (int i = 0; i < ROUNDS; i++) {
    ck_assert_int_gt(tri_batch_planner_cut(p, lengths, WAITING, ends, &seconds), 1);
    sum += seconds;
  }
  printf("%d waiting sequences are cut into batches of up to 128 in %.0f us\n", WAITING,
         (double)(clock() - start) / CLOCKS_PER_SEC / ROUNDS * 1e6);
  ck_assert(sum > 0);
  tri_batch_planner_destroy(p);
}
END_TEST

/* ---- the file ---- */

static const char path[] = TRI_TEST_SCRATCH "/batch_planner/sub/costs.json";

START_TEST(written_and_read) {
  uint64_t random = 6;
  tri_batch_cost c, read;
  draw_table(&c, &random);
  tri_batch_cost_init(&read, MAX_LEN, MAX_SEQS, MAX_TOKENS);
  remove(path);
  ck_assert_int_eq(tri_batch_cost_file_read(path, "a model", &read, NULL), TRI_NOT_FOUND);
  ck_assert_int_eq(tri_batch_cost_file_write(path, "a model", &c, NULL), TRI_OK);
  ck_assert_int_eq(tri_batch_cost_file_read(path, "another", &read, NULL), TRI_NOT_FOUND);
  ck_assert_int_eq(tri_batch_cost_file_read(path, "a model", &read, NULL), TRI_OK);
  for (int l = 0; l < c.num_lengths; l++)
    for (int s = 0; s < c.num_sizes; s++)
      ck_assert_double_le(fabs(read.measured[l][s] - c.measured[l][s]), 1e-5 * c.measured[l][s]);
  /* Other limits take the cells that they have. */
  tri_batch_cost_init(&read, 64, 4, 256);
  ck_assert_int_eq(tri_batch_cost_file_read(path, "a model", &read, NULL), TRI_OK);
  ck_assert_double_eq_tol(read.measured[0][0], c.measured[0][0], 1e-5 * c.measured[0][0]);
  ck_assert_int_eq(tri_batch_cost_file_write(path, "a \"model", &c, NULL), TRI_INVALID_ARGUMENT);
}
END_TEST

static const char *const bad[] = {"",
                                  "[",
                                  "[]",
                                  "{\"key\":\"k\"}",
                                  "{\"key\":\"k\",\"cells\":{}}",
                                  "{\"key\":\"k\",\"cells\":[[8,1]]}",
                                  "{\"key\":\"k\",\"cells\":[[8,1,0]]}",
                                  "{\"key\":\"k\",\"cells\":[[8,1,-1]]}",
                                  "{\"key\":\"k\",\"cells\":[[8,1,1e9]]}",
                                  "{\"key\":\"k\",\"cells\":[[8,1,0.5],[8,\"1\",1]]}",
                                  "{\"key\":\"k\",\"cells\":[[8,1,0.5],8]}"};

START_TEST(malformed) {
  tri_batch_cost c, before;
  tri_error err = {0};
  tri_batch_cost_init(&c, MAX_LEN, MAX_SEQS, MAX_TOKENS);
  before = c;
  ck_assert_int_eq(tri_file_replace(path, bad[_i], strlen(bad[_i]), &err), TRI_OK);
  ck_assert_int_ne(tri_batch_cost_file_read(path, "k", &c, &err), TRI_OK);
  ck_assert(!memcmp(&c, &before, sizeof c));
}
END_TEST

Suite *suite_batch_planner(void) {
  Suite *suite = suite_create("batch_planner");
  TCase *t = tcase_create("batch_planner");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, cells_are_what_was_measured);
  tcase_add_test(t, more_never_costs_less);
  tcase_add_test(t, packed);
  tcase_add_test(t, observed);
  tcase_add_test(t, enough_tokens);
  tcase_add_test(t, no_division_is_cheaper);
  tcase_add_test(t, limits_of_a_batch);
  tcase_add_test(t, a_long_queue);
  tcase_add_test(t, written_and_read);
  tcase_add_loop_test(t, malformed, 0, sizeof bad / sizeof *bad);
  suite_add_tcase(suite, t);
  return suite;
}
