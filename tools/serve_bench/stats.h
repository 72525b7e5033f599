/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a benchmark's latencies and rates. */
#ifndef TRI_TOOLS_SERVE_BENCH_STATS_H
#define TRI_TOOLS_SERVE_BENCH_STATS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bench_summary {
  double mean, median, p90, p99;
} bench_summary;

/* Returns the p-quantile (0 to 1) of n sorted values, with linear interpolation between the two nearest; 0 of none. */
double bench_quantile(const double *sorted, size_t n, double p);
/* Sorts the n values; zeros of none. */
bench_summary bench_summarize(double *values, size_t n);

/* Returns whether a server whose answers came at a rate of `answered` fell after arrivals at a rate of `offered`. 0:
 * not known, or not offered at a rate. */
bool bench_is_saturated(double answered, double offered);

#endif
