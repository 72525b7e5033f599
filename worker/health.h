/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a rank, as its control thread reports it. */
#ifndef TRI_WORKER_HEALTH_H
#define TRI_WORKER_HEALTH_H

#include "worker/stream_report.h"
#include "worker/worker.h"

/* The memory of one thread between two reports. */
typedef struct tri_health {
  tri_stream_rate stream_rate;
  double kept_rate; /* in the file of figures */
  uint32_t shards[2 * TRI_MAX_SHARDS];
} tri_health;

/* Returns what there is to report. Its arrays are h's. */
tri_group_health tri_health_take(tri_worker *w, tri_health *h);

#endif
