/* SPDX-License-Identifier: Apache-2.0 */
/* Microseconds of a dispatch and its combine, for each way of rows, number of rows and way of the bytes. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/comm/all2all_test.h"

enum { HIDDEN = 2048, TOP_K = 2, EXPERTS = 64, MOST_ROWS = 256 };

struct work {
  int32_t rows[2], experts[MOST_ROWS * TOP_K];
  float weights[MOST_ROWS * TOP_K];
  float *x, *y, *out;
  tri_all2all_rows all;
};

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the median of batches, each as its slowest rank saw it. */
static double measure(struct stage *s, way way, struct work *w, int rows) {
  enum { BATCHES = 15 };
  double us[BATCHES];
  int times = rows > 16 ? 10 : 50;
  w->rows[0] = w->rows[1] = rows;
  for (int batch = 0; batch < BATCHES; batch++) {
    MUST(tri_comm_barrier(s->world) == TRI_OK);
    int64_t since = tri_now_ns();
    for (int i = 0; i < times; i++) {
      MUST(stage_dispatch(s, way, w->rows, w->x, w->experts, w->weights, &w->all) == TRI_OK);
      MUST(stage_combine(s, w->y, w->out, false) == TRI_OK);
    }
    MUST(tri_comm_barrier(s->world) == TRI_OK);
    us[batch] = (double)(tri_now_ns() - since) / 1e3 / times;
  }
  qsort(us, BATCHES, sizeof *us, by_value);
  return us[BATCHES / 2];
}

static void bench_way(const tri_comm_config *config) {
  static const int rows[] = {1, 4, 16, 64, 256};
  struct layout layout = {2, 2, 1, EXPERTS, TOP_K, MOST_ROWS, HIDDEN, LINEAR};
  struct stage s;
  stage_make(&s, &layout, config);
  struct random random = {(uint64_t)s.cfg.d + 9};
  struct work *w = test_alloc(1, sizeof *w);
  w->x = test_alloc(MOST_ROWS * HIDDEN, sizeof(float));
  w->y = test_alloc(2 * MOST_ROWS * HIDDEN, sizeof(float));
  w->out = test_alloc(MOST_ROWS * HIDDEN, sizeof(float));
  w->all = (tri_all2all_rows){test_alloc(2 * MOST_ROWS * HIDDEN, sizeof(float)),
                              test_alloc(2 * MOST_ROWS * TOP_K, sizeof(int32_t)),
                              test_alloc(2 * MOST_ROWS * TOP_K, sizeof(float))};
  for (int i = 0; i < MOST_ROWS * TOP_K; i++) w->experts[i] = (int32_t)random_below(&random, EXPERTS);
  for (way way = 0; way < WAYS; way++) {
    if (!s.world->rank) printf("%s %-11s", config->messages_only ? "messages" : "shared  ", way_name(way));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      double us = measure(&s, way, w, rows[i]);
      if (!s.world->rank) printf(" %8.1f", us);
    }
    if (!s.world->rank) puts("");
  }
  float *blocks[] = {w->x, w->y, w->out, w->all.x, w->all.weights};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
  free(w->all.experts);
  free(w);
  stage_free(&s);
}

void run_bench(const tri_comm_config *config) {
  tri_comm_config way = *config;
  for (int messages = 0; messages < 2; messages++) {
    way.messages_only = messages;
    bench_way(&way);
  }
}
