/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and histograms of the core since its start: jobs and the queue count, status and metrics tell. */
#ifndef TRI_COORDINATOR_STATS_TOTALS_H
#define TRI_COORDINATOR_STATS_TOTALS_H

#include "coordinator/stats/histogram.h"
#include "base/status.h"

/* Why a job was refused that asked for nothing wrong, or ended in the queue. */
typedef enum queue_refusal {
  REFUSED_QUEUE,
  REFUSED_QUEUE_BYTES,
  REFUSED_CLIENT,
  REFUSED_CLIENT_BYTES,
  REFUSED_QUEUE_TIME,
  REFUSED_JOURNAL,
  REFUSED_TOKENIZER,
  NUM_REFUSALS
} queue_refusal;

typedef struct tri_totals {
  uint64_t invalid[TRI_STATUS_COUNT]; /* requests that were refused for what is wrong with themselves */
  uint64_t refused[NUM_REFUSALS];
  uint64_t turned_away; /* requests that were refused for want of room, with nothing wrong here or with themselves */
  uint64_t done_stop, done_length, done_abort, failed, not_finite, lost, replayed, prompt_tokens, generation_tokens;
  tri_histogram ttft, itl, e2e, queue_time, step_tokens;
} tri_totals;

void tri_totals_init(tri_totals *t);

#endif
