/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search with the meaning that Hugging Face's generate() gives it, beams, length_penalty and early_stopping
 * included (transformers, generation/utils.py, _beam_search).
 *
 * Each step, the continuations of all beams compete: of the best (1 + end tokens) * num_beams, those that end become
 * answers if they are among the first num_beams, and the best num_beams of the others are the next beams. An answer's
 * score is the sum of its tokens' log-probabilities over its length to the power of length_penalty; the num_beams best
 * are kept. The search ends when early_stopping says so:
 *   FALSE: when no beam, were it to end now, would be better than the worst answer,
 *   TRUE:  when there are num_beams answers,
 *   NEVER: when no beam could become better than the worst answer at any length up to max_tokens,
 * and at max_tokens in any case. */
#ifndef TRI_WORKER_SCHEDULE_BEAM_H
#define TRI_WORKER_SCHEDULE_BEAM_H

#include "kernels/backend.h"

enum { TRI_MAX_BEAMS = 10 };

typedef struct tri_beam_params {
  int num_beams; /* 1 .. TRI_MAX_BEAMS */
  double length_penalty;
  tri_early_stopping early_stopping;
  int max_tokens, min_tokens; /* of an answer, its end included */
  int given;                  /* tokens that every answer begins with, which count for its length */
  const uint32_t *eos, *bad;  /* ids that end an answer; that may not come. Borrowed */
  int num_eos, num_bad;
} tri_beam_params;

/* One answer, or a beam. */
typedef struct tri_hypothesis {
  float score;
  int length;
  bool finished;
  uint32_t *tokens; /* [max_tokens] */
} tri_hypothesis;

typedef struct tri_beams {
  tri_beam_params p;
  tri_hypothesis *beams;   /* [num_beams] the best first; score: sum of log-probabilities */
  tri_hypothesis *answers; /* [num_beams] the best first */
  int num_live;            /* beams that run: one before the first step, num_beams after it */
  bool done, improvable;
  /* The step before: which beam each one continues, and with what. */
  int parent[TRI_MAX_BEAMS];
  uint32_t token[TRI_MAX_BEAMS];
  tri_hypothesis *spare; /* what the next beams and answers are made in */
  uint32_t *tokens;
} tri_beams;

/* Alternatives that the sampler has to name for each beam (tri_sample_params.num_logprobs); more than TRI_MAX_LOGPROBS:
 * such a search is not possible. */
int tri_beam_alternatives(const tri_beam_params *p);
/* Copies *p, but borrows its lists of ids. TRI_OUT_OF_RANGE: beams or alternatives beyond their limits. */
tri_status tri_beams_create(const tri_beam_params *p, tri_beams **out);
void tri_beams_destroy(tri_beams *b); /* NULL is fine */
void tri_beams_reset(tri_beams *b);   /* as it was created */

/* sampled[i]: what the sampler says of beam i < num_live, with its alternatives. Afterwards either done, and the
 * answers stand, or every beam i is the old beam parent[i] and after it token[i]. Allocates nothing. */
void tri_beams_advance(tri_beams *b, const tri_sample_result *const *sampled);

#endif
