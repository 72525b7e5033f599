/* SPDX-License-Identifier: Apache-2.0 */
/* Sums are in double and in the order of the text: the order of answers changes nothing. */
#include "tools/eval/figures.h"

#include <math.h>

double eval_mean_logprob(const eval_scores *s, size_t tokens) {
  double sum = 0;
  for (size_t i = 1; i < tokens; i++) sum += (double)s->logprob[i];
  return sum / (double)(tokens - 1);
}

eval_forced eval_compare_scores(const eval_scores *a, const eval_scores *b, size_t tokens) {
  eval_forced f = {.positions = tokens - 1};
  for (size_t i = 1; i < tokens; i++) {
    double difference = fabs((double)a->logprob[i] - (double)b->logprob[i]);
    f.same_best += a->best[i] == b->best[i];
    f.mean_difference += difference / (double)f.positions;
    f.largest_difference = fmax(f.largest_difference, difference);
  }
  return f;
}

/* A continuation that is shorter than the other ends with a difference. */
static size_t equal_tokens(const eval_continuations *a, const eval_continuations *b, size_t i, size_t most) {
  size_t shorter = a->num[i] < b->num[i] ? a->num[i] : b->num[i], n = 0;
  while (n < shorter && a->ids[i * most + n] == b->ids[i * most + n]) n++;
  return n;
}

eval_greedy eval_compare_continuations(const eval_continuations *a, const eval_continuations *b, size_t prompts,
                                       size_t most) {
  eval_greedy g = {.prompts = prompts, .tokens = prompts * most};
  for (size_t i = 0; i < prompts; i++) {
    size_t n = equal_tokens(a, b, i, most);
    g.equal += n;
    g.whole += n == most;
  }
  return g;
}
