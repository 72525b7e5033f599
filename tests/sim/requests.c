/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of every kind, and their answers, which follow from the seed. */
#include <math.h>
#include <string.h>

#include "comm/wire/sampling.h"
#include "tests/sim/sim.h"

uint32_t request_token(const request *r, uint32_t choice, uint64_t number) {
  if (r->reasons[choice] == TRI_FINISH_STOP && number + 1 == (uint64_t)r->lengths[choice]) return END_OF_TEXT;
  return 10 + (uint32_t)(rng_mix(r->submit.sampling.seed ^ rng_mix(choice * 1000 + number)) % (VOCAB - 20));
}

float request_logprob(const request *r, uint32_t choice, uint64_t number) {
  return -(float)(rng_mix(r->submit.sampling.seed + choice + 77 * number) % 1024) / 64;
}

request *request_of_seed(sim *s, uint64_t seed) {
  uint64_t i = seed & 0xff; /* see request_draw */
  return i < (uint64_t)s->num_requests && s->requests[i].submit.sampling.seed == seed ? &s->requests[i] : NULL;
}

/* The answers end after some tokens by themselves, or at max_tokens. */
static void draw_answers(sim *s, request *r) {
  const tri_sampling *p = &r->submit.sampling;
  int most = MODEL_LEN - (int)r->submit.num_token_ids;
  if (p->max_tokens >= 0 && p->max_tokens < most) most = (int)p->max_tokens;
  if (most > MAX_ANSWER) most = MAX_ANSWER;
  for (int i = 0; i < p->n; i++) {
    r->lengths[i] = (int)rng_range(s, 1, most);
    r->reasons[i] = TRI_FINISH_STOP;
    if (p->ignore_eos || rng_chance(s, 30)) r->lengths[i] = most;
    if (r->lengths[i] == most) r->reasons[i] = TRI_FINISH_LENGTH;
  }
}

static void draw_lists(sim *s, request *r) {
  tri_sampling *p = &r->submit.sampling;
  r->bias = (struct tri_wire_bias){.id = (uint32_t)rng_range(s, 10, VOCAB - 1), .bias = 1};
  for (int i = 0; i < 3; i++) r->allowed[i] = (uint32_t)rng_range(s, 10, VOCAB - 1);
  if (p->num_beams > 1 || rng_chance(s, 60)) return;
  p->logit_bias = &r->bias;
  p->num_logit_bias = 1;
  p->allowed_token_ids = r->allowed;
  p->num_allowed_token_ids = 3;
}

void request_draw(sim *s, request *r) {
  tri_sampling *p = &r->submit.sampling;
  memset(r, 0, sizeof *r);
  tri_submit_init(&r->submit);
  r->submit.num_token_ids = (size_t)rng_range(s, 1, MAX_PROMPT);
  r->submit.token_ids = r->prompt;
  for (size_t i = 0; i < r->submit.num_token_ids; i++) r->prompt[i] = (uint32_t)rng_range(s, 10, VOCAB - 1);
  r->submit.has_request_id = true;
  for (size_t i = 0; i < sizeof r->submit.request_id.bytes; i++) r->submit.request_id.bytes[i] = (uint8_t)rng_next(s);
  r->submit.stream = rng_chance(s, 75);
  r->submit.on_disconnect = rng_chance(s, 60) ? TRI_DISCONNECT_CONTINUE : TRI_DISCONNECT_CANCEL;
  r->submit.cache = false;
  r->poison = rng_chance(s, 3);
  p->seed = (rng_next(s) >> 12 << 8) | (uint64_t)(r - s->requests);
  p->has_seed = true;
  p->n = rng_chance(s, 30) ? rng_range(s, 2, MAX_CHOICES) : 1;
  p->max_tokens = rng_chance(s, 20) ? -1 : rng_range(s, 1, MAX_ANSWER);
  p->has_max_tokens = true;
  if (p->max_tokens > MODEL_LEN - MAX_PROMPT) p->max_tokens = MODEL_LEN - MAX_PROMPT;
  if (p->max_tokens < 0) p->max_tokens = MAX_ANSWER;
  p->ignore_eos = rng_chance(s, 20);
  if (rng_chance(s, 15)) p->deadline_ms = rng_range(s, 200, 20000);
  if (rng_chance(s, 10)) {
    p->num_beams = MAX_CHOICES;
    p->has_num_beams = true;
  } else {
    p->logprobs = rng_chance(s, 25) ? rng_range(s, 0, 2) : -1;
    p->prompt_logprobs = rng_chance(s, 15) ? rng_range(s, 0, 2) : -1;
  }
  draw_lists(s, r);
  draw_answers(s, r);
}
