/* SPDX-License-Identifier: Apache-2.0 */
/* Figures that a rank tells of weights that do not stay in its memory. */
#ifndef TRI_WORKER_PROCESS_STREAM_REPORT_H
#define TRI_WORKER_PROCESS_STREAM_REPORT_H

#include "comm/wire/replica.h"
#include "runtime/engine/engine.h"

/* The rate at which weights have come: the best over a second and a whole pass at least, so that neither an idle hour
 * nor a ring that was full counts. */
typedef struct tri_stream_rate {
  int64_t since_ns; /* 0: nothing was seen yet */
  uint64_t bytes, passes;
  double best; /* bytes per second; 0: no pass has ended yet */
} tri_stream_rate;

/* Takes note of counters that only grow. A window ends with the first call after a second in which a pass has ended. */
void tri_stream_rate_note(tri_stream_rate *r, const tri_stream_figures *f, int64_t now_ns);

/* Returns whether the rate of such passes is the disk's: of bytes that come from files alone, for one rank of this
 * host, and so many that neither a read's latency nor the head of the model counts. */
bool tri_stream_rate_is_disk(const tri_replica_stream *s, int local_ranks);

/* Zeros where all weights of the engine stay. One thread's: it keeps the rate. */
tri_replica_stream tri_stream_report(const tri_engine *e, tri_stream_rate *r);

#endif
