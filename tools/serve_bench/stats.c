/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve_bench/stats.h"

#include <stdlib.h>

/* Answers differ in how long they take, so that also those of a server that keeps up come at a rate a little different
 * from that of the arrivals. */
static const double KEEPS_UP = 0.95;

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_quantile(const double *sorted, size_t n, double p) {
  if (!n) return 0;
  double at = p * (double)(n - 1);
  size_t i = (size_t)at;
  return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

bench_summary bench_summarize(double *values, size_t n) {
  double sum = 0;
  if (!n) return (bench_summary){0};
  qsort(values, n, sizeof *values, compare);
  for (size_t i = 0; i < n; i++) sum += values[i];
  return (bench_summary){.mean = sum / (double)n,
                         .median = bench_quantile(values, n, 0.5),
                         .p90 = bench_quantile(values, n, 0.9),
                         .p99 = bench_quantile(values, n, 0.99)};
}

bool bench_is_saturated(double answered, double offered) { return answered > 0 && answered < KEEPS_UP * offered; }
