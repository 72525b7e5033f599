/* SPDX-License-Identifier: Apache-2.0 */
/* Every layout that N devices allow a model. */
#ifndef TRI_TOOLS_PLAN_CANDIDATES_H
#define TRI_TOOLS_PLAN_CANDIDATES_H

#include "base/options/serve_layout.h"
#include "runtime/model/config.h"
#include "runtime/model/layout.h"

/* Stages beyond which no layout is looked at: a token's way through them all only gets longer. */
enum { TRI_MOST_STAGES = 32 };

/* The layouts whose replicas together take all devices, whose flags can be given, and which tri_shard_make accepts. */
tri_status tri_candidates_make(const tri_model_config *c, int devices, tri_serve_layout **out, int *count,
                               tri_error *err);

/* The flags that make a layout: "-tp 4 -dp 2 --enable-expert-parallel"; returns out. */
enum { TRI_LAYOUT_FLAGS = 96 };
const char *tri_layout_flags(const tri_serve_layout *y, char out[TRI_LAYOUT_FLAGS]);

/* The ranks of a stage whose shares differ in size, with `layers` for the stage: calls fn for each of them. Where
 * experts do not divide evenly, all count as having the larger share. */
tri_status tri_candidate_shards(const tri_model_config *c, const tri_parallel *p, int stage, tri_range layers,
                                tri_status (*fn)(void *ctx, const tri_shard *s), void *ctx, tri_error *err);

#endif
