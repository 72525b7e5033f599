/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus histograms with fixed bounds. */
#ifndef TRI_COORDINATOR_STATS_HISTOGRAM_H
#define TRI_COORDINATOR_STATS_HISTOGRAM_H

#include <stdint.h>

enum { TRI_HISTOGRAM_MAX = 20 };

typedef struct tri_histogram {
  const double *bounds; /* ascending; one more bucket beyond the last */
  int num_bounds;
  uint64_t counts[TRI_HISTOGRAM_MAX + 1], total;
  double sum;
} tri_histogram;

static inline void tri_histogram_add(tri_histogram *h, double v) {
  int i = 0;
  while (i < h->num_bounds && v > h->bounds[i]) i++;
  h->counts[i]++;
  h->total++;
  h->sum += v;
}

#endif
