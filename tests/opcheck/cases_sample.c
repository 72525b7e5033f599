#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "kernels/sampling.h"
#include "tests/opcheck/opcheck.h"

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
  if (oc_chance(c, 30)) {
    uint32_t *banned = oc_host(c, 3 * sizeof *banned);
    for (int j = 0; j < 3; j++) banned[j] = (uint32_t)oc_range(c, 0, vocab);
    p->banned = banned, p->num_banned = 3;
  }
}

/* Equal tokens; or, at a boundary that rounding may move, tokens whose intervals of the distribution function touch. */
static void compare_draw(oc *c, const tri_sample_params *p, const float *adjusted, int vocab, uint64_t counter,
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

static void compare_logprobs(oc *c, const tri_sample_result *a, const tri_sample_result *b) {
  oc_expect(c, a->num_top == b->num_top, "%d logprobs, not %d", b->num_top, a->num_top);
  if (a->num_top != b->num_top) return;
  double error = a->token == b->token ? fabs((double)a->logprob - b->logprob) : 0;
  for (int j = 0; j < a->num_top; j++) {
    oc_expect(c, a->top_ids[j] == b->top_ids[j], "top id %d is %u, not %u", j, b->top_ids[j], a->top_ids[j]);
    error = fmax(error, fabs((double)a->top_logprobs[j] - b->top_logprobs[j]));
  }
  oc_expect(c, !(error > 1e-5), "logprob off by %g", error);
  if (error * error > c->worst) c->worst = error * error;
}

void oc_case_sample(oc *c, int i) {
  static const int vocabs[] = {1, 5, 17, 1000, 32000, 4099, 777};
  enum { ROWS = 6 };
  int vocab = i % 40 == 39 ? 256000 : vocabs[i % 7], rows = oc_range(c, 0, ROWS);
  tri_sample_params params[ROWS];
  const tri_sample_params *pointers[ROWS];
  const uint32_t *history[ROWS];
  int num_prompt[ROWS], num_history[ROWS];
  uint64_t counter[ROWS];
  tri_sample_result want[ROWS], got[ROWS];
  tri_sample_args a = {.params = pointers, .history = history, .num_prompt = num_prompt, .num_history = num_history};
  a.counter = counter, a.results = want;
  a.logits = oc_matrix(c, rows, vocab, false);
  float sigma = (float)oc_range(c, 0, 4);
  for (int r = 0; r < rows; r++) {
    float *x = a.logits.data + (size_t)r * (size_t)a.logits.ld;
    for (int j = 0; j < vocab; j++) x[j] = oc_chance(c, 1) ? -INFINITY : sigma * x[j];
    if (oc_chance(c, 20)) /* coarse values: many ties */
      for (int j = 0; j < vocab; j++) x[j] = floorf(x[j]);
    some_params(c, &params[r], vocab);
    pointers[r] = &params[r];
    num_history[r] = oc_range(c, 0, 60), num_prompt[r] = oc_range(c, 0, num_history[r]);
    uint32_t *ids = oc_host(c, (size_t)num_history[r] * sizeof *ids);
    for (int j = 0; j < num_history[r]; j++) ids[j] = (uint32_t)oc_range(c, 0, vocab < 40 ? vocab : 40);
    history[r] = ids;
    counter[r] = oc_random(c) % 1000;
  }
  snprintf(c->what, sizeof c->what, "sample rows %d vocab %d sigma %g", rows, vocab, sigma);
  tri_sample_args b = a;
  b.logits = oc_device_matrix(c, &a.logits);
  b.results = got;
  oc_status(c, tri_run_sample(c->ref, &a, NULL), tri_run_sample(c->be, &b, NULL));
  for (int r = 0; r < rows; r++) {
    snprintf(c->what, sizeof c->what, "sample vocab %d sigma %g temperature %g top_p %g top_k %d min_p %g", vocab,
             sigma, params[r].temperature, params[r].top_p, params[r].top_k, params[r].min_p);
    compare_draw(c, &params[r], a.logits.data + (size_t)r * (size_t)a.logits.ld, vocab, counter[r], want[r].token,
                 got[r].token);
    compare_logprobs(c, &want[r], &got[r]);
  }
}
