/* SPDX-License-Identifier: Apache-2.0 */
/* How many tokens a step needs to hide its streamed weights, as a rank predicts it before it has loaded any. */
#ifndef TRI_WORKER_COST_STREAM_HIDING_H
#define TRI_WORKER_COST_STREAM_HIDING_H

#include "base/options/serve_options.h"
#include "runtime/engine/engine.h"

typedef struct tri_stream_hiding {
  const tri_serve_options *opts;
  int local_ranks; /* that share this host's memory and disks */
} tri_stream_hiding;

/* For tri_engine_config.hiding_tokens, with a tri_stream_hiding. Goes by the figures that `trireme plan` has: what
 * workers have left of this disk and device, else what a moment of reading and of products gives. 0 where prompts have
 * a limit of their own, so that no more tokens would come. */
int64_t tri_stream_hiding_tokens(void *ctx, const tri_engine *e, int64_t most);

#endif
