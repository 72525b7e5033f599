/* SPDX-License-Identifier: Apache-2.0 */
/* Hypotheses own no memory: one block has the tokens of 3 * num_beams of them, for the beams, the answers and a spare
 * set. Moving one moves its pointer along, and one that is pushed out leaves its room to the one that comes in, so that
 * every slice of the block has exactly one hypothesis at any time. All beams are equally long. */
#include "worker/schedule/beam.h"

#include <math.h>
#include <string.h>

/* The score that the reference gives those who are out of the question; sums with it lose the rest of the score. */
#define OUT (-1.0e9f)
enum { MAX_CANDIDATES = TRI_MAX_BEAMS * TRI_MAX_LOGPROBS };

struct candidate {
  float score;
  int beam, order; /* order: of equal scores the first wins */
  uint32_t token;
  bool ends;
};

static int num_candidates(const tri_beam_params *p) { return (p->num_eos > 1 ? 1 + p->num_eos : 2) * p->num_beams; }

int tri_beam_alternatives(const tri_beam_params *p) {
  return num_candidates(p) + p->num_bad + (p->min_tokens > 0 ? p->num_eos : 0);
}

tri_status tri_beams_create(const tri_beam_params *p, tri_beams **out) {
  if (p->num_beams < 1 || p->num_beams > TRI_MAX_BEAMS || p->max_tokens < 1 ||
      tri_beam_alternatives(p) > TRI_MAX_LOGPROBS)
    return TRI_OUT_OF_RANGE;
  tri_beams *b = tri_calloc(1, sizeof *b);
  size_t n = (size_t)p->num_beams, each = (size_t)p->max_tokens;
  if (!b) return TRI_NO_MEMORY;
  b->p = *p;
  b->beams = tri_calloc(3 * n, sizeof *b->beams);
  b->tokens = tri_calloc(3 * n * each, sizeof *b->tokens);
  if (!b->beams || !b->tokens) {
    tri_beams_destroy(b);
    return TRI_NO_MEMORY;
  }
  b->answers = b->beams + n;
  b->spare = b->answers + n;
  for (size_t i = 0; i < 3 * n; i++) b->beams[i].tokens = b->tokens + i * each;
  tri_beams_reset(b);
  *out = b;
  return TRI_OK;
}

void tri_beams_reset(tri_beams *b) {
  int n = b->p.num_beams;
  b->num_live = 1;
  b->improvable = true;
  b->done = false;
  for (int i = 0; i < 3 * n; i++) {
    b->beams[i].score = 0;
    b->beams[i].length = 0;
    b->beams[i].finished = false;
  }
  for (int i = 0; i < n; i++) b->answers[i].score = OUT;
}

void tri_beams_destroy(tri_beams *b) {
  if (!b) return;
  tri_free(b->beams);
  tri_free(b->tokens);
  tri_free(b);
}

static bool contains(const uint32_t *ids, int n, uint32_t id) {
  for (int i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

static bool better(const struct candidate *a, const struct candidate *b) {
  return a->score != b->score ? a->score > b->score : a->order < b->order;
}

/* The best k candidates, in order; returns how many there are. By insertion: they are few, and come in sorted runs. */
static int keep_best(struct candidate *c, int n, int k) {
  for (int i = 1; i < n; i++) {
    struct candidate x = c[i];
    int j = i;
    for (; j > 0 && better(&x, &c[j - 1]); j--) c[j] = c[j - 1];
    c[j] = x;
  }
  return n < k ? n : k;
}

/* The continuations that compete, the best first. */
static int continuations(const tri_beams *b, const tri_sample_result *const *sampled, struct candidate *c) {
  const tri_beam_params *p = &b->p;
  int n = 0, length = p->given + b->beams[0].length + 1;
  for (int i = 0; i < b->num_live; i++)
    for (int j = 0; j < sampled[i]->num_top; j++) {
      uint32_t id = sampled[i]->top_ids[j];
      bool eos = contains(p->eos, p->num_eos, id);
      if (contains(p->bad, p->num_bad, id) || (eos && length <= p->min_tokens)) continue;
      c[n] =
          (struct candidate){b->beams[i].score + sampled[i]->top_logprobs[j], i, n, id, eos || length >= p->max_tokens};
      n++;
    }
  return keep_best(c, n, num_candidates(p));
}

static void extend(tri_hypothesis *to, const tri_hypothesis *from, uint32_t token) {
  memcpy(to->tokens, from->tokens, (size_t)from->length * sizeof *to->tokens);
  to->tokens[from->length] = token;
  to->length = from->length + 1;
}

static bool all_finished(const tri_beams *b) {
  for (int i = 0; i < b->p.num_beams; i++)
    if (!b->answers[i].finished) return false;
  return true;
}

static float penalised(const tri_beams *b, float score, int length) {
  return score / (float)pow(length, b->p.length_penalty);
}

/* The old answers and those among the first num_beams continuations that end: the best of both. */
static void collect_answers(tri_beams *b, const struct candidate *c, int n) {
  int beams = b->p.num_beams, length = b->p.given + b->beams[0].length + 1;
  bool closed = !b->improvable || (b->p.early_stopping == TRI_EARLY_TRUE && all_finished(b));
  for (int i = 0; i < n && i < beams; i++) {
    if (!c[i].ends || closed) continue;
    float score = penalised(b, c[i].score, length);
    int at = beams;
    while (at > 0 && score > b->answers[at - 1].score) at--;
    if (at == beams) continue;
    tri_hypothesis last = b->answers[beams - 1]; /* whose room the new one takes */
    memmove(&b->answers[at + 1], &b->answers[at], (size_t)(beams - 1 - at) * sizeof last);
    extend(&last, &b->beams[c[i].beam], c[i].token);
    last.score = score;
    last.finished = true;
    b->answers[at] = last;
  }
}

/* The best continuations that do not end. Where too few are left, ended ones stand in, far below all others. */
static void next_beams(tri_beams *b, struct candidate *c, int n) {
  int beams = b->p.num_beams;
  for (int i = 0; i < n; i++) {
    c[i].order = i;
    c[i].score += c[i].ends ? OUT : 0;
  }
  n = keep_best(c, n, beams);
  /* Into the spare set first: several children may continue the same beam, which must stand until the last is made. */
  for (int i = 0; i < n; i++) {
    extend(&b->spare[i], &b->beams[c[i].beam], c[i].token);
    b->spare[i].score = c[i].score;
    b->parent[i] = c[i].beam;
    b->token[i] = c[i].token;
  }
  for (int i = 0; i < n; i++) {
    tri_hypothesis t = b->beams[i];
    b->beams[i] = b->spare[i];
    b->spare[i] = t;
  }
  b->num_live = n;
}

/* Returns whether a running beam could still become better than the worst answer. */
static bool is_improvable(const tri_beams *b) {
  int length = b->p.given + b->beams[0].length;
  if (b->p.early_stopping == TRI_EARLY_NEVER && b->p.length_penalty > 0) length = b->p.max_tokens;
  return !all_finished(b) || penalised(b, b->beams[0].score, length) > b->answers[b->p.num_beams - 1].score;
}

void tri_beams_advance(tri_beams *b, const tri_sample_result *const *sampled) {
  struct candidate c[MAX_CANDIDATES];
  int n = continuations(b, sampled, c);
  bool all_end = true;
  for (int i = 0; i < n; i++) all_end &= c[i].ends;
  collect_answers(b, c, n);
  next_beams(b, c, n);
  b->improvable = b->improvable && is_improvable(b);
  b->done = all_end || !b->improvable || (b->p.early_stopping == TRI_EARLY_TRUE && all_finished(b));
}
