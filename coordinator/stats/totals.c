/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/stats/totals.h"

static const double seconds_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
static const double tokens_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

void tri_totals_init(tri_totals *t) {
  tri_histogram *by_seconds[] = {&t->ttft, &t->itl, &t->e2e, &t->queue_time};
  for (size_t i = 0; i < sizeof by_seconds / sizeof *by_seconds; i++) {
    by_seconds[i]->bounds = seconds_bounds;
    by_seconds[i]->num_bounds = sizeof seconds_bounds / sizeof *seconds_bounds;
  }
  t->step_tokens.bounds = tokens_bounds;
  t->step_tokens.num_bounds = sizeof tokens_bounds / sizeof *tokens_bounds;
}
