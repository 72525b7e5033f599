/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "kernels/sampling.h"
#include "tests/opcheck/opcheck.h"

const uint32_t *oc_mask(oc *c, int vocab) {
  size_t words = tri_mask_words((size_t)vocab);
  uint32_t *mask = oc_host(c, words * sizeof *mask);
  int kind = oc_range(c, 0, 3);
  for (size_t i = 0; i < words; i++) {
    mask[i] = (uint32_t)oc_random(c);
    if (kind == 0) mask[i] = 0;
    if (kind == 1) mask[i] &= (uint32_t)oc_random(c) & (uint32_t)oc_random(c) & (uint32_t)oc_random(c);
    if (kind == 2 && oc_chance(c, 50)) mask[i] = UINT32_MAX;
  }
  int some = oc_range(c, 0, vocab - 1); /* one at least */
  mask[some / 32] |= 1u << some % 32;
  return mask;
}

static void some_params(oc *c, tri_sample_params *p, int vocab) {
  *p = (tri_sample_params){.temperature = 1, .top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
  p->seed = oc_random(c);
  if (oc_chance(c, 20))
    p->temperature = 0;
  else if (oc_chance(c, 50))
    p->temperature = 0.3f + 0.1f * (float)oc_range(c, 0, 12);
  if (oc_chance(c, 50)) p->top_p = 0.05f * (float)oc_range(c, 1, 19);
  if (oc_chance(c, 40)) p->top_k = oc_range(c, 1, oc_chance(c, 50) ? 50 : vocab + 3);
  if (oc_chance(c, 30)) p->min_p = 0.01f * (float)oc_range(c, 1, 60);
  if (oc_chance(c, 40)) p->repetition_penalty = 1.3f;
  if (oc_chance(c, 30)) p->presence_penalty = 0.7f;
  if (oc_chance(c, 30)) p->frequency_penalty = 0.2f;
  if (oc_chance(c, 50)) p->num_logprobs = oc_range(c, 0, TRI_MAX_LOGPROBS);
  if (oc_chance(c, 30)) {
    tri_logit_bias *bias = oc_host(c, 3 * sizeof *bias);
    for (int j = 0; j < 3; j++) bias[j] = (tri_logit_bias){(uint32_t)oc_range(c, 0, vocab), 2 * oc_normal(c)};
    p->logit_bias = bias, p->num_logit_bias = 3;
  }
  if (oc_chance(c, 40)) p->mask = oc_mask(c, vocab);
  if (oc_chance(c, 30)) {
    uint32_t *banned = oc_host(c, 3 * sizeof *banned);
    for (int j = 0; j < 3; j++) banned[j] = (uint32_t)oc_range(c, 0, vocab);
    p->banned = banned, p->num_banned = 3;
  }
}

/* Equal tokens; or, at a boundary that rounding may move, tokens whose intervals of the distribution function touch. */
static void compare_sample(oc *c, const tri_sample_params *p, const float *adjusted, int vocab, uint64_t counter,
                           uint32_t want, uint32_t got) {
  if (want == got) return;
  oc_expect(c, p->temperature > 0 && got < (uint32_t)vocab, "token %u, not %u", got, want);
  if (p->temperature <= 0 || got >= (uint32_t)vocab) return;
  uint32_t *order = oc_host(c, (size_t)vocab * sizeof *order);
  double *weight = oc_host(c, (size_t)vocab * sizeof *weight), below = 0;
  double mass = tri_ref_sample_weights(p, adjusted, vocab, order, weight);
  for (uint32_t id = 0; id < got; id++) below += weight[id];
  double u = tri_sample_uniform(p->seed, counter), slack = 1e-6;
  bool close = u >= below / mass - slack && u <= (below + weight[got]) / mass + slack;
  oc_expect(c, close && weight[got] > 0, "token %u, not %u: %g outside of %g..%g", got, want, u, below / mass,
            (below + weight[got]) / mass);
}

/* 0 where both say the same of a logprob that is not finite. */
static double difference(float a, float b) {
  if (a == b || (isnan(a) && isnan(b))) return 0;
  return isfinite(a) && isfinite(b) ? fabs((double)a - b) : INFINITY;
}

static void compare_logprobs(oc *c, const tri_sample_result *a, const tri_sample_result *b) {
  oc_expect(c, a->num_top == b->num_top, "%d logprobs, not %d", b->num_top, a->num_top);
  if (a->num_top != b->num_top) return;
  double error = a->token == b->token ? difference(a->logprob, b->logprob) : 0;
  for (int j = 0; j < a->num_top; j++) {
    oc_expect(c, a->top_ids[j] == b->top_ids[j], "top id %d is %u, not %u", j, b->top_ids[j], a->top_ids[j]);
    error = fmax(error, difference(a->top_logprobs[j], b->top_logprobs[j]));
  }
  oc_expect(c, error <= 1e-5, "logprob off by %g", error);
  if (error * error > c->worst) c->worst = error * error;
}

typedef enum kind {
  MIXED,
  TIES,   /* few different logits, and cuts in the middle of equal ones */
  FLAT,   /* cuts that leave thousands */
  STEEP,  /* as a sure model's: a handful far above the rest */
  BROKEN, /* infinite logits, and in half of the rows, one or many that are not numbers */
  GREEDY, /* only the most probable token is wanted, of all rows */
  PEAKS,  /* the same of equal largest logits, many of them where pieces of a row meet */
  TOUCHED /* a long history that repeats itself, biases and bans on ids of it */
} kind;

/* A row below zero but for a few zeros of either sign; now and then of nothing, or with what is not a number. */
static void some_peaks(oc *c, float *x, int vocab) {
  enum { ROUND = 2048 };
  int peaks = oc_range(c, 1, 5), none = oc_chance(c, 5);
  for (int j = 0; j < vocab; j++) x[j] = none ? -INFINITY : -1 - fabsf(x[j]);
  for (int i = 0; i < peaks && !none; i++) {
    int at = oc_chance(c, 50) ? oc_range(c, 0, vocab - 1) : ROUND * oc_range(c, 0, vocab / ROUND) - oc_range(c, 0, 1);
    if (at < 0 || at >= vocab) at = oc_chance(c, 50) ? 0 : vocab - 1;
    x[at] = oc_chance(c, 50) ? 0.0f : -0.0f;
    if (oc_chance(c, 3)) x[at] = oc_chance(c, 50) ? NAN : INFINITY;
  }
}

static void some_logits(oc *c, kind k, float *x, int vocab, float sigma) {
  bool all = oc_chance(c, 20), numbers = oc_chance(c, 50);
  int odd = oc_chance(c, 50) ? oc_range(c, 0, vocab - 1) : -1; /* the only one, where there is one */
  for (int j = 0; j < vocab; j++) {
    x[j] = oc_chance(c, 1) ? -INFINITY : sigma * x[j];
    if (k == TIES || ((k == MIXED || k == GREEDY) && vocab % 5 == 2)) x[j] = floorf(x[j]);
    if (k == STEEP) x[j] = oc_chance(c, 1) ? 18 + x[j] : x[j] - 5;
    if (k == BROKEN && (all || oc_chance(c, 30)))
      x[j] = !numbers && odd < 0 && oc_chance(c, 50) ? NAN : oc_chance(c, all ? 0 : 5) ? INFINITY : -INFINITY;
  }
  if (k == BROKEN && !numbers && odd >= 0) x[odd] = NAN;
  if (k == PEAKS) some_peaks(c, x, vocab);
}

/* History among few ids, some of them beyond the vocabulary. Now and then more than a device takes at once. */
static int some_history(oc *c, kind k, int vocab, const uint32_t **out) {
  int most = oc_chance(c, 5) ? 600000 : 5000, n = oc_range(c, 0, k == TOUCHED ? most : 60),
      ids = vocab < 40         ? vocab
            : oc_chance(c, 30) ? vocab
                               : 40;
  uint32_t *history = oc_host(c, (size_t)n * sizeof *history);
  for (int j = 0; j < n; j++) history[j] = (uint32_t)oc_range(c, 0, ids);
  *out = history;
  return n;
}

static void special_params(oc *c, kind k, tri_sample_params *p, int vocab) {
  some_params(c, p, vocab);
  if (k == GREEDY || k == PEAKS) *p = (tri_sample_params){.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
  if (k == GREEDY && oc_chance(c, 10)) p->mask = oc_mask(c, vocab);
  if (k == FLAT) p->top_p = 0.99f, p->top_k = oc_chance(c, 30) ? vocab - vocab / 3 : 0, p->min_p = 0;
  if (k == TIES && oc_chance(c, 30)) p->top_p = 1e-6f;
  if (k == TIES && oc_chance(c, 50)) p->temperature = 1, p->top_k = oc_range(c, 1, vocab);
  if (k != TOUCHED) return;
  enum { BIASES = 9 };
  tri_logit_bias *bias = oc_host(c, BIASES * sizeof *bias);
  uint32_t *banned = oc_host(c, BIASES * sizeof *banned);
  for (int j = 0; j < BIASES; j++) {
    bias[j] = (tri_logit_bias){(uint32_t)oc_range(c, 0, 3), 2 * oc_normal(c)};
    banned[j] = oc_chance(c, 20) ? bias[j].id : (uint32_t)oc_range(c, 0, vocab);
  }
  p->logit_bias = bias, p->banned = banned, p->num_logit_bias = BIASES, p->num_banned = oc_range(c, 0, BIASES);
  p->repetition_penalty = 1.2f, p->frequency_penalty = 0.01f, p->presence_penalty = -0.3f;
}

/* Gives some rows a token. */
static uint32_t some_target(oc *c, kind k, tri_sample_params *p, int vocab) {
  if (k == GREEDY || k == PEAKS || !oc_chance(c, 30)) return TRI_SAMPLE_NO_TARGET;
  p->repetition_penalty = 1;
  p->presence_penalty = p->frequency_penalty = 0;
  p->num_logprobs = oc_range(c, 0, TRI_MAX_LOGPROBS);
  return (uint32_t)oc_range(c, 0, vocab - 1);
}

enum { MOST_ROWS = 1024 };

/* Counts on a device, full of what other sequences have left. */
static void add_counts(oc *c, tri_sample_args *b) {
  int *sequence = oc_host(c, MOST_ROWS * sizeof *sequence);
  bool *fresh = oc_host(c, MOST_ROWS * sizeof *fresh);
  size_t n = (size_t)b->logits.rows * (size_t)b->logits.cols;
  uint32_t *counts = oc_host(c, n * sizeof *counts);
  if (c->be->host_memory) return;
  for (size_t i = 0; i < n; i++) counts[i] = (uint32_t)i * 2654435761u;
  for (int r = 0; r < b->logits.rows; r++) sequence[r] = b->logits.rows - 1 - r, fresh[r] = true;
  b->counts = oc_device(c, counts, n * sizeof *counts);
  b->sequence = sequence, b->fresh = fresh;
}

static void fill(oc *c, kind k, float sigma, tri_sample_args *a, tri_sample_params *params) {
  const tri_sample_params **pointers = oc_host(c, MOST_ROWS * sizeof *pointers);
  const uint32_t **history = oc_host(c, MOST_ROWS * sizeof *history);
  int *num_prompt = oc_host(c, MOST_ROWS * sizeof *num_prompt);
  int *num_history = oc_host(c, MOST_ROWS * sizeof *num_history);
  uint64_t *counter = oc_host(c, MOST_ROWS * sizeof *counter);
  uint32_t *target = oc_host(c, MOST_ROWS * sizeof *target);
  bool many = a->logits.rows > 40; /* then what rows point to is that of the first ones */
  for (int r = 0; r < a->logits.rows; r++) {
    int like = many ? r % 40 : r;
    some_logits(c, k, a->logits.data + (size_t)r * (size_t)a->logits.ld, a->logits.cols, sigma);
    if (r == like) {
      special_params(c, k, &params[r], a->logits.cols);
      target[r] = some_target(c, k, &params[r], a->logits.cols);
    } else {
      params[r] = params[like];
      target[r] = target[like];
    }
    pointers[r] = &params[r];
    if (r == like)
      num_history[r] = some_history(c, k, a->logits.cols, &history[r]);
    else
      num_history[r] = num_history[like], history[r] = history[like];
    num_prompt[r] = oc_range(c, 0, num_history[r]);
    counter[r] = oc_random(c) % 1000;
  }
  a->params = pointers, a->history = history, a->num_prompt = num_prompt, a->num_history = num_history;
  a->counter = counter;
  a->target = target;
}

/* A few samples of the same sequences, whose tokens a device counts by itself. */
static void sample_on(oc *c, tri_sample_args *a, tri_sample_args *b, tri_sample_params *params, float sigma) {
  int rows = a->logits.rows, vocab = a->logits.cols;
  for (int r = 0; r < rows; r++) {
    uint32_t *longer = oc_host(c, ((size_t)a->num_history[r] + 1) * sizeof *longer);
    memcpy(longer, a->history[r], (size_t)a->num_history[r] * sizeof *longer);
    longer[a->num_history[r]] = b->results[r].token;
    ((const uint32_t **)a->history)[r] = longer;
    ((int *)a->num_history)[r]++;
    ((uint64_t *)a->counter)[r]++;
    if (b->fresh) ((bool *)b->fresh)[r] = false;
  }
  a->logits = oc_matrix(c, rows, vocab, false);
  for (int r = 0; r < rows; r++) some_logits(c, MIXED, a->logits.data + (size_t)r * (size_t)a->logits.ld, vocab, sigma);
  b->logits = oc_device_matrix(c, &a->logits);
  oc_status(c, tri_run_sample(c->ref, a), tri_run_sample(c->be, b));
  oc_expect(c, c->be->ops.stream_sync(c->be) == TRI_OK, "the device: %s", c->be->failure);
  for (int r = 0; r < rows; r++) {
    snprintf(c->what, sizeof c->what, "sample on, vocab %d history %d temperature %g", vocab, a->num_history[r],
             params[r].temperature);
    compare_sample(c, &params[r], a->logits.data + (size_t)r * (size_t)a->logits.ld, vocab, a->counter[r],
                   a->results[r].token, b->results[r].token);
    compare_logprobs(c, &a->results[r], &b->results[r]);
  }
}

/* Says whether the row is sampled, and from logits that are not all minus infinity or no numbers. */
static bool adjusted_has_any(const tri_sample_args *a, int row) {
  const float *x = a->logits.data + (size_t)row * (size_t)a->logits.ld;
  bool any = false;
  for (int id = 0; id < a->logits.cols; id++) any |= x[id] > -INFINITY;
  return any && tri_sample_target(a, row) == TRI_SAMPLE_NO_TARGET;
}

void oc_case_sample(oc *c, int i) {
  static const int vocabs[] = {1, 5, 17, 1000, 32000, 4099, 777};
  static const kind kinds[] = {MIXED, TIES, GREEDY, FLAT, STEEP, MIXED, BROKEN, TOUCHED};
  kind k = kinds[i % 8];
  int vocab = i % 40 == 39 ? 262208 : i % 40 == 20 ? 128256 : vocabs[i % 7];
  int rows = i % 40 == 37 ? oc_range(c, 200, MOST_ROWS) : oc_range(c, 0, 6);
  if (rows > 6) vocab = 700;
  if (i % 16 == 2) k = PEAKS, vocab = i % 32 == 2 ? 128256 : 50257;
  if (i % 16 == 10) k = PEAKS, rows = oc_range(c, 34, 140), vocab = 20011; /* which have fewer blocks each */
  float sigma = (float)oc_range(c, 0, 4);
  if (k == FLAT) vocab = 20000, sigma *= 0.3f;
  tri_sample_params *params = oc_host(c, MOST_ROWS * sizeof *params);
  tri_sample_result *want = oc_host(c, MOST_ROWS * sizeof *want), *got = oc_host(c, MOST_ROWS * sizeof *got);
  tri_sample_args a = {.logits = oc_matrix(c, rows, vocab, false)};
  fill(c, k, sigma, &a, params);
  snprintf(c->what, sizeof c->what, "sample rows %d vocab %d sigma %g", rows, vocab, sigma);
  tri_sample_args b = a;
  b.logits = oc_device_matrix(c, &a.logits);
  a.results = want, b.results = got;
  add_counts(c, &b);
  uint32_t *again = oc_host(c, MOST_ROWS * sizeof *again);
  if (oc_chance(c, 50)) b.sampled = oc_device(c, again, MOST_ROWS * sizeof *again);
  oc_status(c, tri_run_sample(c->ref, &a), tri_run_sample(c->be, &b));
  if (b.sampled) oc_download(c, again, b.sampled, MOST_ROWS * sizeof *again);
  oc_expect(c, c->be->ops.stream_sync(c->be) == TRI_OK, "the device: %s", c->be->failure);
  for (int r = 0; r < rows && b.sampled; r++)
    oc_expect(c, again[r] == got[r].token, "row %d draws %u, and %u for the next step", r, got[r].token, again[r]);
  for (int r = 0; r < rows; r++) {
    const tri_sample_params *p = &params[r];
    snprintf(c->what, sizeof c->what, "sample kind %d vocab %d sigma %g temperature %g top_p %g top_k %d min_p %g",
             (int)k, vocab, sigma, p->temperature, p->top_p, p->top_k, p->min_p);
    oc_expect(c, want[r].broken == got[r].broken, "broken is %d, not %d", got[r].broken, want[r].broken);
    oc_expect(c, got[r].token < (uint32_t)vocab, "token %u", got[r].token); /* a place in memory of the next step's */
    if (want[r].broken) continue;
    compare_sample(c, p, a.logits.data + (size_t)r * (size_t)a.logits.ld, vocab, a.counter[r], want[r].token,
                   got[r].token);
    compare_logprobs(c, &want[r], &got[r]);
    if (p->mask && adjusted_has_any(&a, r))
      oc_expect(c, tri_mask_has(p->mask, got[r].token), "token %u, which the mask has not", got[r].token);
    if (tri_sample_target(&a, r) != TRI_SAMPLE_NO_TARGET)
      oc_expect(c, want[r].token == a.target[r], "token %u, given is %u", want[r].token, a.target[r]);
  }
  for (int n = 0; rows <= 6 && n < (vocab > 40000 ? 1 : 3); n++) sample_on(c, &a, &b, params, sigma);
}
