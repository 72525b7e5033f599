/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search against a plain reading of the rules in worker/schedule/beam.h, over the whole vocabulary of a made-up
 * model. */
#include "worker/schedule/beam.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Suite *suite_beam(void);

enum { VOCAB = 37, MAX_LEN = 14, MAX_ALL = TRI_MAX_BEAMS * VOCAB };

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static int range(uint64_t *rng, int lo, int hi) {
  *rng = mix(*rng);
  return lo + (int)(*rng % (uint64_t)(hi - lo + 1));
}

/* The model: log-probabilities of what follows a text. Peaked, and with more for those ids that may be end tokens, so
 * that searches end at various lengths. */
static void logprobs_after(uint64_t model, const uint32_t *tokens, int n, float out[VOCAB]) {
  double sum = 0;
  uint64_t h = mix(model);
  for (int i = 0; i < n; i++) h = mix(h * 31 + tokens[i]);
  for (int i = 0; i < VOCAB; i++) {
    out[i] = (float)(mix(h + (uint64_t)i) % 100000) / 12500.0f + (i % 6 < 3 ? 2.0f : 0);
    sum += exp((double)out[i]);
  }
  for (int i = 0; i < VOCAB; i++) out[i] -= (float)log(sum);
}

/* ---- the rules, spelled out ---- */

struct text {
  float score; /* sum of log-probabilities; of an answer penalised */
  int length, order;
  bool ends;
  uint32_t tokens[MAX_LEN];
};

struct plain {
  const tri_beam_params *p;
  struct text beams[TRI_MAX_BEAMS], answers[TRI_MAX_BEAMS + 1];
  int num_beams, num_answers, steps;
};

static int by_score(const void *a, const void *b) {
  const struct text *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  return x->order - y->order;
}

static bool contains(const uint32_t *ids, int n, uint32_t id) {
  for (int i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

static float penalised(const struct plain *s, float score, int length) {
  return score / (float)pow(s->p->given + length, s->p->length_penalty);
}

static int continue_all(const struct plain *s, uint64_t model, struct text *all) {
  const tri_beam_params *p = s->p;
  int n = 0, length = p->given + s->beams[0].length + 1;
  for (int i = 0; i < s->num_beams; i++) {
    float logprobs[VOCAB];
    logprobs_after(model, s->beams[i].tokens, s->beams[i].length, logprobs);
    for (uint32_t id = 0; id < VOCAB; id++) {
      bool eos = contains(p->eos, p->num_eos, id);
      if (contains(p->bad, p->num_bad, id) || (eos && length <= p->min_tokens)) continue;
      all[n] = s->beams[i];
      all[n].tokens[all[n].length++] = id;
      all[n].score += logprobs[id];
      all[n].ends = eos || length == p->max_tokens;
      all[n].order = n;
      n++;
    }
  }
  qsort(all, (size_t)n, sizeof *all, by_score);
  int compete = (p->num_eos > 1 ? 1 + p->num_eos : 2) * p->num_beams;
  return n < compete ? n : compete;
}

static void add_answer(struct plain *s, const struct text *t) {
  struct text *a = &s->answers[s->num_answers];
  *a = *t;
  a->score = penalised(s, t->score, t->length);
  s->num_answers++;
  for (int i = 0; i < s->num_answers; i++) s->answers[i].order = i; /* the older first */
  qsort(s->answers, (size_t)s->num_answers, sizeof *a, by_score);
  if (s->num_answers > s->p->num_beams) s->num_answers = s->p->num_beams;
}

/* False: the search has ended. */
static bool plain_step(struct plain *s, uint64_t model) {
  const tri_beam_params *p = s->p;
  static struct text all[MAX_ALL];
  int n = continue_all(s, model, all), length = s->beams[0].length + 1, limit = length;
  s->num_beams = 0;
  s->steps++;
  for (int i = 0; i < n; i++) {
    if (all[i].ends && i < p->num_beams) add_answer(s, &all[i]);
    if (!all[i].ends && s->num_beams < p->num_beams) s->beams[s->num_beams++] = all[i];
  }
  if (!s->num_beams) return false;
  if (s->num_answers < p->num_beams) return true;
  if (p->early_stopping == TRI_EARLY_TRUE) return false;
  if (p->early_stopping == TRI_EARLY_NEVER && p->length_penalty > 0) limit = p->max_tokens - p->given;
  return penalised(s, s->beams[0].score, limit) > s->answers[p->num_beams - 1].score;
}

/* ---- what the sampler would say ---- */

static void draw(uint64_t model, const tri_hypothesis *beam, int alternatives, tri_sample_result *out) {
  float logprobs[VOCAB];
  bool taken[VOCAB] = {0};
  logprobs_after(model, beam->tokens, beam->length, logprobs);
  out->num_top = alternatives;
  for (int k = 0; k < alternatives; k++) {
    int best = -1;
    for (int i = 0; i < VOCAB; i++)
      if (!taken[i] && (best < 0 || logprobs[i] > logprobs[best])) best = i;
    taken[best] = true;
    out->top_ids[k] = (uint32_t)best;
    out->top_logprobs[k] = logprobs[best];
  }
}

static void advance(tri_beams *b, uint64_t model) {
  tri_sample_result drawn[TRI_MAX_BEAMS];
  const tri_sample_result *of_beam[TRI_MAX_BEAMS];
  uint32_t before[TRI_MAX_BEAMS][MAX_LEN];
  int length = b->beams[0].length, live = b->num_live;
  for (int i = 0; i < live; i++) {
    draw(model, &b->beams[i], tri_beam_alternatives(&b->p), &drawn[i]);
    of_beam[i] = &drawn[i];
    memcpy(before[i], b->beams[i].tokens, (size_t)length * sizeof **before);
  }
  tri_beams_advance(b, of_beam);
  for (int i = 0; i < b->num_live && !b->done; i++) {
    ck_assert(b->parent[i] >= 0 && b->parent[i] < live);
    ck_assert_int_eq(b->beams[i].length, length + 1);
    ck_assert(!memcmp(b->beams[i].tokens, before[b->parent[i]], (size_t)length * sizeof **before));
    ck_assert_uint_eq(b->beams[i].tokens[length], b->token[i]);
  }
}

static tri_beam_params random_params(uint64_t *rng, uint32_t ids[6]) {
  tri_beam_params p = {.eos = ids, .bad = ids + 3};
  do {
    p.num_beams = range(rng, 1, TRI_MAX_BEAMS);
    p.num_eos = range(rng, 0, 3);
    p.num_bad = range(rng, 0, 3);
    p.min_tokens = range(rng, 0, 2) ? 0 : range(rng, 1, 6);
  } while (tri_beam_alternatives(&p) > TRI_MAX_LOGPROBS);
  for (int i = 0; i < 6; i++) ids[i] = (uint32_t)((range(rng, 0, 5) * 6 + i) % VOCAB);
  p.given = range(rng, 0, 3) ? 0 : 1;
  p.max_tokens = range(rng, 1 + p.given, MAX_LEN);
  p.length_penalty = range(rng, -20, 30) / 10.0;
  p.early_stopping = (tri_early_stopping)range(rng, TRI_EARLY_FALSE, TRI_EARLY_NEVER);
  return p;
}

static void compare(const tri_beams *b, const struct plain *s, uint64_t seed) {
  for (int i = 0; i < s->num_answers; i++) {
    const tri_hypothesis *h = &b->answers[i];
    ck_assert_msg(h->finished && h->length == s->answers[i].length && h->score == s->answers[i].score &&
                      !memcmp(h->tokens, s->answers[i].tokens, (size_t)h->length * sizeof *h->tokens),
                  "search %d: answer %d is another one", (int)seed, i);
  }
  for (int i = s->num_answers; i < b->p.num_beams; i++) ck_assert(!b->answers[i].finished);
}

START_TEST(test_against_the_rules) {
  int early = 0, late = 0;
  for (uint64_t seed = 0; seed < 3000; seed++) {
    uint64_t rng = mix(seed + 7);
    uint32_t ids[6];
    tri_beam_params p = random_params(&rng, ids);
    struct plain s = {.p = &p, .num_beams = 1};
    tri_beams *b;
    int steps = 0;
    while (plain_step(&s, seed)) {
    }
    ck_assert_int_eq(tri_beams_create(&p, &b), TRI_OK);
    for (int round = 0; round < 2; round++, tri_beams_reset(b)) { /* begun anew it finds the same */
      for (steps = 0; !b->done; steps++) advance(b, seed);
      ck_assert_msg(steps == s.steps, "search %d: %d steps, not %d", (int)seed, steps, s.steps);
      compare(b, &s, seed);
    }
    *(steps + p.given < p.max_tokens ? &early : &late) += 1;
    tri_beams_destroy(b);
  }
  ck_assert_int_gt(early, 300);
  ck_assert_int_gt(late, 300);
}
END_TEST

/* With as many beams as there are texts nothing is ever cut off: the answers are the best of all texts. */
START_TEST(test_exhaustive) {
  enum { TOKENS = 3 };
  static const uint32_t eos[] = {2};
  static const float step[TOKENS] = {-0.9f, -1.3f, -1.1f};
  tri_beam_params p = {.num_beams = 7, .length_penalty = 1, .max_tokens = 3, .eos = eos, .num_eos = 1};
  tri_beams *b;
  ck_assert_int_eq(tri_beams_create(&p, &b), TRI_OK);
  while (!b->done) {
    tri_sample_result drawn = {.num_top = TOKENS, .top_ids = {0, 2, 1}, .top_logprobs = {step[0], step[2], step[1]}};
    const tri_sample_result *of_beam[TRI_MAX_BEAMS];
    for (int i = 0; i < TRI_MAX_BEAMS; i++) of_beam[i] = &drawn;
    tri_beams_advance(b, of_beam);
  }
  /* 000, 002, 02, 2 by the mean of their steps: -0.9, -0.967, -1, -1.1 */
  static const struct {
    int length;
    uint32_t tokens[3];
  } want[] = {{3, {0, 0, 0}}, {3, {0, 0, 2}}, {2, {0, 2}}};
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(b->answers[i].length, want[i].length);
    ck_assert(!memcmp(b->answers[i].tokens, want[i].tokens, (size_t)want[i].length * sizeof(uint32_t)));
  }
  tri_beams_destroy(b);
}
END_TEST

START_TEST(test_refused) {
  static const uint32_t ids[TRI_MAX_LOGPROBS];
  tri_beams *b;
  tri_beam_params good = {.num_beams = 10, .length_penalty = 1, .max_tokens = 3, .eos = ids, .num_eos = 1, .bad = ids};
  tri_beam_params p = good;
  ck_assert_int_eq(tri_beam_alternatives(&p), 20);
  p.num_beams = 11;
  ck_assert_int_eq(tri_beams_create(&p, &b), TRI_OUT_OF_RANGE);
  p = good, p.num_beams = 0;
  ck_assert_int_eq(tri_beams_create(&p, &b), TRI_OUT_OF_RANGE);
  p = good, p.max_tokens = 0;
  ck_assert_int_eq(tri_beams_create(&p, &b), TRI_OUT_OF_RANGE);
  p = good, p.num_bad = 1;
  ck_assert_int_eq(tri_beams_create(&p, &b), TRI_OUT_OF_RANGE);
  p = good, p.num_eos = 2;
  ck_assert_int_eq(tri_beam_alternatives(&p), 30);
  ck_assert_int_eq(tri_beams_create(&p, &b), TRI_OUT_OF_RANGE);
  tri_beams_destroy(NULL);
}
END_TEST

Suite *suite_beam(void) {
  Suite *suite = suite_create("beam");
  TCase *c = tcase_create("beam");
  tcase_add_test(c, test_against_the_rules);
  tcase_add_test(c, test_exhaustive);
  tcase_add_test(c, test_refused);
  suite_add_tcase(suite, c);
  return suite;
}
