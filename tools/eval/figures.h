/* SPDX-License-Identifier: Apache-2.0 */
/* From log probabilities and continuations to figures. */
#ifndef TRI_TOOLS_EVAL_FIGURES_H
#define TRI_TOOLS_EVAL_FIGURES_H

#include <stddef.h>
#include <stdint.h>

/* A model's log probabilities at each token of a text, given those before it; element 0 is not used. */
typedef struct eval_scores {
  float *logprob; /* [tokens] natural logarithm of the token's probability; NaN: not known yet */
  uint32_t *best; /* [tokens] the most likely token at its place */
} eval_scores;

/* Greedy continuations: that of prompt i has num[i] tokens, the first of which is ids[i * most]. */
typedef struct eval_continuations {
  uint32_t *ids; /* [prompts][most] */
  size_t *num;   /* [prompts] */
} eval_continuations;

/* The same places of one text, by two models: an early difference changes none of the later figures. */
typedef struct eval_forced {
  size_t positions, same_best; /* tokens; those at whose place both models find the same one most likely */
  double mean_difference, largest_difference; /* of the log probabilities of the text's own tokens, without sign */
} eval_forced;

typedef struct eval_greedy {
  size_t prompts, tokens; /* tokens: prompts times the most tokens of a continuation */
  size_t equal;           /* of tokens: those before the first that differs */
  size_t whole;           /* of prompts: those with equal continuations */
} eval_greedy;

/* Returns the mean of elements 1 .. tokens - 1; tokens is 2 at least. Perplexity is exp of its negative. */
double eval_mean_logprob(const eval_scores *s, size_t tokens);
eval_forced eval_compare_scores(const eval_scores *a, const eval_scores *b, size_t tokens);
eval_greedy eval_compare_continuations(const eval_continuations *a, const eval_continuations *b, size_t prompts,
                                       size_t most);

#endif
