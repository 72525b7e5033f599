/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's knowledge of what an encoder's batches cost: the table, where it came from, and what the steps took that
 * have been served since. */
#ifndef TRI_WORKER_COST_ENCODER_COST_H
#define TRI_WORKER_COST_ENCODER_COST_H

#include <limits.h>

#include "base/options/serve_options.h"
#include "runtime/engine/engine.h"
#include "worker/schedule/batch_cost.h"
#include "worker/schedule/batch_measure.h"

enum { TRI_ENCODER_COST_KEY = 512 };

typedef struct tri_encoder_cost {
  tri_batch_cost table;
  char key[TRI_ENCODER_COST_KEY], path[PATH_MAX];
  double length, size; /* of the step under way: tokens of a sequence in the mean, and sequences */
  int64_t began_ns;    /* 0: none that is observed */
  int observed;        /* steps since the scheduler last had the table */
  bool known;          /* measured, now or before: else it is what tri_batch_cost_init makes, and stays so */
  bool refined;        /* the file has another table */
} tri_encoder_cost;

/* Reads the table of this model and machine, of which the pool has so many threads, or measures it in the time that *m
 * has, and keeps it. Returns what a step returned that failed. */
tri_status tri_encoder_cost_start(const tri_engine *e, int threads, const tri_batch_measure *m, tri_encoder_cost *out);

/* A step begins, with nothing else under way: what it takes will be observed. */
void tri_encoder_cost_begin(tri_encoder_cost *c, const tri_plan_header *plan, int64_t now_ns);
/* The step's results are there. True: the table has changed enough that a scheduler should have it anew. */
bool tri_encoder_cost_end(tri_encoder_cost *c, int64_t now_ns);

/* Keeps what was refined. */
void tri_encoder_cost_keep(tri_encoder_cost *c);

#endif
