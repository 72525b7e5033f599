/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a benchmark: sequences of one length that are fed and then decode together, through one rank's engine.
 * Data-parallel ranks of a replica all take the same steps. */
#ifndef TRI_TOOLS_BENCH_STEPS_H
#define TRI_TOOLS_BENCH_STEPS_H

#include "tools/bench/rank.h"

typedef struct tri_bench_steps {
  tri_engine *engine;
  tri_plan_writer *writer;
  uint32_t *ids; /* sequence i begins at i: all are different, so that they choose experts of their own */
  int32_t *blocks;
  int num_seqs, input_len, decoded;
  uint64_t steps;
} tri_bench_steps;

/* The engine has max_model_len for input_len tokens and most_decodes more, and blocks for num_seqs sequences of that.
 * Of an encoder there are no decodes. Destroy it in either case. */
tri_status tri_bench_steps_create(tri_engine *engine, int num_seqs, int input_len, int most_decodes,
                                  tri_bench_steps *out);
void tri_bench_steps_destroy(tri_bench_steps *s);

/* Feeds all sequences, as many in a step as its tokens allow; or some of them, in one step. */
tri_status tri_bench_steps_feed(tri_bench_steps *s);
tri_status tri_bench_steps_feed_some(tri_bench_steps *s, int first, int count);
/* One token of every sequence; or the beginning of such a step, which the caller polls the engine for. */
tri_status tri_bench_steps_decode(tri_bench_steps *s);
tri_status tri_bench_steps_begin_decode(tri_bench_steps *s);

#endif
