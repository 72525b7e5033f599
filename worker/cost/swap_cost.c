/* SPDX-License-Identifier: Apache-2.0 */
/* All are seconds of this rank's stage. A block's way out and in was measured when the engine was created; the rest is
 * the cost model's, which `trireme plan` uses as well, so that a prediction on paper and one in the log agree. */
#include "worker/cost/swap_cost.h"

#include <math.h>

#include "base/log.h"
#include "worker/cost/rank_cost.h"
#include "worker/cost/stream_hiding.h"

/* Returns what a token of a whole step of prompt tokens takes, as one sequence: its token i attends to i others, half
 * of all in the mean. */
static double token_seconds(const tri_rank_cost *c, int tokens) {
  tri_cost_load l = {.tokens = tokens,
                     .all_tokens = (double)tokens * tri_parallel_dp(c->model.p),
                     .sampled = 1,
                     .sequences = 1,
                     .context = tokens,
                     .queries = (double)tokens / 2};
  tri_cost seconds = tri_cost_stage(&c->model, 0, &l);
  return tri_cost_seconds(&seconds) / tokens;
}

/* Returns what each of the most sequences has of a stage's step in which its micro-batch's decode, when they have all
 * blocks. Weights that are streamed keep the link busy: nothing else is to go over it in every step. */
static double decode_seconds(const tri_rank_cost *c, const tri_engine *e) {
  const tri_limits *l = &e->limits;
  double sequences = (double)l->max_num_seqs / e->num_micro_batches;
  if (e->num_micro_batches == 1 || e->ledger.streams) return 0;
  tri_cost_load load = {.tokens = sequences,
                        .all_tokens = sequences * tri_parallel_dp(c->model.p),
                        .sampled = sequences,
                        .sequences = sequences,
                        .context = (double)l->num_blocks * l->block_size / l->max_num_seqs,
                        .queries = 1};
  tri_cost seconds = tri_cost_stage(&c->model, 0, &load);
  return tri_cost_seconds(&seconds) / l->max_num_seqs;
}

/* Tokens that a step of streamed weights computes while it waits for them. */
static int64_t free_tokens(const tri_serve_options *o, const tri_engine *e, int local_ranks) {
  tri_stream_hiding h = {.opts = o, .local_ranks = local_ranks};
  return e->ledger.streams ? tri_stream_hiding_tokens(&h, e, e->limits.max_num_batched_tokens) : 0;
}

tri_swap_cost tri_swap_cost_find(const tri_serve_options *o, const tri_engine *e, int local_ranks) {
  enum { US = 1000000 };
  const tri_limits *l = &e->limits;
  tri_rank_cost cost;
  tri_error err = {0};
  if (!l->num_host_blocks) return (tri_swap_cost){0};
  tri_status st = tri_rank_cost_find(o, e, &cost, &err);
  if (st != TRI_OK) {
    tri_log(TRI_LOG_WARN, "engine", "preempted sequences are swapped whenever there is room: %s",
            err.message[0] ? err.message : tri_status_text(st));
    return (tri_swap_cost){0};
  }
  tri_swap_cost c = {.block_s = e->swap_block_seconds,
                     .token_s = token_seconds(&cost, l->max_num_batched_tokens),
                     .free_tokens = (int)free_tokens(o, e, local_ranks),
                     .decode_s = decode_seconds(&cost, e)};
  tri_log(TRI_LOG_INFO, "engine",
          "preempted sequences are swapped if that is predicted to be faster: a block of %d tokens is swapped out and "
          "in in %.1f us, a token is computed again in %.1f us, the first %d for free",
          l->block_size, c.block_s * US, c.token_s * US, c.free_tokens);
  if (e->num_micro_batches > 1)
    tri_log(TRI_LOG_INFO, "engine",
            "sequences of idle micro-batches are swapped out for others if that is predicted to pay: with up to %.0f "
            "blocks, as a stage's step takes %.1f us for each sequence in flight",
            c.block_s > 0 ? floor(c.decode_s / c.block_s) : 0, c.decode_s * US);
  return c;
}
