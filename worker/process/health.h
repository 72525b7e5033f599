/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a rank, as its control thread reports it. */
#ifndef TRI_WORKER_PROCESS_HEALTH_H
#define TRI_WORKER_PROCESS_HEALTH_H

#include "worker/process/stream_report.h"
#include "worker/process/worker.h"

/* The memory of one thread between two reports. */
typedef struct tri_health {
  tri_stream_rate stream_rate;
  double kept_rate; /* in the file of figures */
  uint32_t dp_ranks[2 * TRI_MAX_DP_RANKS];
} tri_health;

/* Returns the report. Its arrays are h's. */
tri_replica_health tri_health_take(tri_worker *w, tri_health *h);
/* Writes what was measured of the disks to the file of figures, once that has been reported. */
void tri_health_keep(const tri_worker *w, tri_health *h, const tri_replica_stream *s);

#endif
