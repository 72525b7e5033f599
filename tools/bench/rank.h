/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of every benchmark of an engine: one rank that is a replica of its own, or one of several, without a
 * coordinator. */
#ifndef TRI_TOOLS_BENCH_RANK_H
#define TRI_TOOLS_BENCH_RANK_H

#include "runtime/engine/engine.h"
#include "base/options/serve_layout.h"

typedef struct tri_bench_rank {
  tri_pool *pool;
  int threads;
  tri_backend *backend;
  tri_replica replica;
  tri_engine *engine;
} tri_bench_rank;

/* Refuses options without a model, and layouts of more ranks. */
tri_status tri_bench_rank_check(const tri_serve_options *o, tri_error *err);
/* sizes: what does not come from the options: of steps, sequences and the KV cache. Where neither says how large that
 * is, there are blocks for num_seqs sequences of seq_len tokens and one token more, and one block. Close it in either
 * case. */
tri_status tri_bench_rank_open(const tri_serve_options *o, const tri_engine_config *sizes, int num_seqs, int seq_len,
                               tri_bench_rank *out, tri_error *err);
/* The same of one of several ranks. The replica takes world, also where it cannot be made; local_size: of its ranks,
 * that are on this host. */
tri_status tri_bench_rank_open_in(tri_comm *world, tri_parallel layout, int local_rank, int local_size,
                                  const tri_serve_options *o, const tri_engine_config *sizes, int num_seqs, int seq_len,
                                  tri_bench_rank *out, tri_error *err);
void tri_bench_rank_close(tri_bench_rank *r);

#endif
