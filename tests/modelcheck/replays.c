/* SPDX-License-Identifier: Apache-2.0 */
/* The same steps again and again, whose results must be the same to the bit: a race in a kernel, or between two that
 * overlap, shows in some of many replays of a recorded step, and hardly ever in one. What is compared are the sampled
 * tokens, and the log-probabilities of theirs and of the best. */
#include <stdio.h>

#include "base/hash.h"
#include "tests/modelcheck/modelcheck.h"

/* All prompts and their decodes once more, unobserved. */
static tri_status run_round(struct mc_check *c) {
  uint32_t tokens[MAX_PROMPTS][MAX_GREEDY];
  c->sampled = TRI_HASH_SEED;
  for (int i = 0; i < c->exp.num_prompts; i++) TRI_CHECK(mc_feed_prompt(c, i, &tokens[i][0]));
  return mc_decode(c, tokens);
}

tri_status mc_replay(struct mc_check *c, bool *right) {
  int of_round = c->exp.num_greedy - 1, rounds = of_round > 0 ? (c->a.replays + of_round - 1) / of_round : 0;
  int others = 0;
  uint64_t first = 0;
  if (tri_replica_num_dp_ranks(&c->replica) > 1) rounds = 0; /* prompts of all are not fed at the same time */
  for (int i = 0; i < rounds; i++) {
    TRI_CHECK(run_round(c));
    if (!i) first = c->sampled;
    others += c->sampled != first;
  }
  if (rounds && tri_replica_is_leader(&c->replica))
    printf("replays: %d decode steps, %d of %d rounds with other bits\n", rounds * of_round, others, rounds);
  *right &= !others;
  return TRI_OK;
}
