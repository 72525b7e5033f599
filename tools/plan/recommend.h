/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts for a number of devices, each with its memory and what it is predicted to take.
 *
 * Every layout of candidates.h gets the ledgers of its ranks, as far as their sizes differ, and a prediction by
 * runtime/cost. Those that fit are sorted by the time of one sequence's token; throughput is marked, not sorted by. */
#ifndef TRI_TOOLS_PLAN_RECOMMEND_H
#define TRI_TOOLS_PLAN_RECOMMEND_H

#include "runtime/engine/ledger.h"
#include "tools/plan/candidates.h"
#include "runtime/cost/machine.h"

enum { TRI_SOME_SEQUENCES = 32, TRI_MANY_SEQUENCES = 256 };

typedef struct tri_recommend_config {
  const tri_model_config *model;
  const tri_checkpoint *ckpt; /* NULL: sizes are counted from the config */
  tri_limits limits;
  tri_ledger_config ledger;          /* its kv_dtype is no longer open; all weights stay */
  const tri_offload_config *offload; /* by which weights may leave where no layout keeps them all; NULL: they may not */
  tri_machine machine;
  int devices;
  double context; /* keys of each sequence that decodes */
  double prompt;  /* tokens */
} tri_recommend_config;

/* Sequences at a time over all replicas: what each token of one of them takes, and how many there are per second. */
typedef struct tri_recommend_load {
  int sequences;
  double seconds, tokens_per_s;
  tri_cost cost; /* of a lane's way through the busiest replica */
} tri_recommend_load;

typedef struct tri_recommendation {
  tri_serve_layout layout;
  bool crosses; /* a tensor group lies on several hosts */
  bool fits;
  int64_t memory;                     /* of the largest rank, without its KV cache */
  int64_t missing;                    /* where it does not fit: bytes of the rank that lacks most, */
  bool fits_streamed;                 /* whether it does with weights that are streamed, */
  int64_t streamed;                   /* and bytes of the rank that streams most */
  int64_t kv_tokens;                  /* over all replicas and data-parallel ranks */
  tri_recommend_load one, some, many; /* one sequence, 32 and 256, or as many as KV allows */
  tri_cost prompt;
} tri_recommendation;

typedef struct tri_recommendations {
  tri_recommendation *list; /* those that fit first, by the latency of one sequence */
  int count, fitting;
  int streamed;        /* of the list, the layout that streams least of those that fit streamed; -1: none */
  int best_throughput; /* of the list */
} tri_recommendations;

/* TRI_NO_CAPACITY, with the memory that the nearest layout lacks, when none fits, not even streamed; *out is made then,
 * too. */
tri_status tri_recommend(const tri_recommend_config *config, tri_recommendations *out, tri_error *err);
void tri_recommendations_free(tri_recommendations *r);

#endif
