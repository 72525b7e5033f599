/* Steps of a benchmark: sequences of one length that are fed and then decode together, through one rank's engine. */
#ifndef TRI_WORKER_BENCH_STEPS_H
#define TRI_WORKER_BENCH_STEPS_H

#include "worker/bench/rank.h"

typedef struct tri_bench_steps {
  tri_engine *engine;
  tri_plan_writer *writer;
  uint32_t *ids;
  int32_t *blocks;
  int num_seqs, input_len, decoded;
  uint64_t steps;
} tri_bench_steps;

/* The engine has room for num_seqs sequences of input_len tokens and most_decodes more. Destroy it in either case. */
tri_status tri_bench_steps_create(tri_engine *engine, int num_seqs, int input_len, int most_decodes,
                                  tri_bench_steps *out);
void tri_bench_steps_destroy(tri_bench_steps *s);

/* Feeds all sequences, as many in a step as its tokens allow. */
tri_status tri_bench_steps_feed(tri_bench_steps *s);
/* One token of every sequence. */
tri_status tri_bench_steps_decode(tri_bench_steps *s);

#endif
