/* SPDX-License-Identifier: Apache-2.0 */
/* The layout that a deployment's options ask for. */
#ifndef TRI_BASE_OPTIONS_SERVE_LAYOUT_H
#define TRI_BASE_OPTIONS_SERVE_LAYOUT_H

#include "base/options/serve_options.h"
#include "base/status.h"

enum {
  TRI_SERVE_MAX_GROUPS = 64,
  TRI_SERVE_MAX_RANKS = 65536, /* of all replicas: products of sizes stay far below what an int holds */
};

/* Sizes inside a replica, and how many replicas there are. */
typedef struct tri_serve_layout {
  int tp, pp, dp, ep;
  int replicas;
} tri_serve_layout;

static inline int tri_serve_layout_world(const tri_serve_layout *l) { return l->pp * l->dp * l->tp; }

/* Refuses sizes that contradict one another, with the equation. Where experts are shared (ep over 1) data parallelism
 * lies inside a replica, as in vLLM: its data-parallel ranks exchange tokens in every layer. So it does where
 * --replicas counts the replicas, and -dp something else: data-parallel ranks of a model without experts read for each
 * other what they stream. Else -dp counts replicas that know nothing of each other, as --replicas does. */
tri_status tri_serve_layout_make(const tri_serve_options *o, tri_serve_layout *out, tri_error *err);

/* Returns whether they ask for a replica of one rank. */
bool tri_serve_is_one_rank(const tri_serve_options *o);

/* Returns the number of replicas of options that make a layout, else 1. */
int tri_serve_num_replicas(const tri_serve_options *o);

#endif
