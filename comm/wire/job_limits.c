/* SPDX-License-Identifier: Apache-2.0 */
/* A request against a model's limits. The coordinator refuses with these functions as early as it can, and a worker
 * checks again what it is assigned: a client gets the same words from either. */
#include "comm/wire/job_limits.h"

typedef unsigned long long llu;

/* Names for messages: the field that the tokens of a request came in, and a noun for them. */
static const struct {
  const char *field, *noun;
} names[] = {[TRI_PROMPT_CONTINUED] = {"prompt", "prompt"},
             [TRI_PROMPT_SOURCE] = {"prompt", "source"},
             [TRI_PROMPT_WHOLE] = {"text", "text"}};

static tri_status check_id(const tri_job_limits *l, const char *field, uint32_t id, tri_error *err) {
  if (id < l->vocab_size) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, field, "%s names token %u, the vocabulary has %llu tokens", field, id,
                  (llu)l->vocab_size);
}

/* Lists of such ids have a few entries: a loop is enough. */
static bool has_id(const uint32_t *ids, int n, uint32_t id) {
  for (int i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

/* Returns whether an answer may begin with an id. */
static bool may_begin(const tri_job_limits *l, const tri_sampling *s, uint32_t id) {
  if (has_id(l->bad, l->num_bad, id)) return false;
  if (!s->min_tokens) return true;
  return !has_id(s->stop_token_ids, s->num_stop_token_ids, id) && (s->ignore_eos || !has_id(l->eos, l->num_eos, id));
}

/* A sample that nothing is left for has no answer. */
static tri_status check_allowed(const tri_job_limits *l, const tri_sampling *s, tri_error *err) {
  size_t n = s->num_allowed_token_ids, banned = 0;
  for (size_t i = 0; i < n; i++) {
    TRI_CHECK(check_id(l, "allowed_token_ids", s->allowed_token_ids[i], err));
    banned += !may_begin(l, s, s->allowed_token_ids[i]);
  }
  if (!n || banned < n) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "allowed_token_ids",
                  "none of allowed_token_ids may come: the model forbids them, or they end an answer and min_tokens is "
                  "%lld",
                  (long long)s->min_tokens);
}

tri_status tri_job_check_tokens(const tri_job_limits *l, const tri_job_request *r, tri_error *err) {
  const tri_sampling *s = r->sampling;
  const char *field = names[l->use].field;
  if (!r->num_token_ids) return tri_fail(err, TRI_INVALID_ARGUMENT, field, "the %s has no tokens", field);
  for (size_t i = 0; i < r->num_token_ids; i++)
    if (r->token_ids[i] >= l->vocab_size)
      return tri_fail(err, TRI_OUT_OF_RANGE, "token_ids", "token_ids[%zu] is %u, the vocabulary has %llu tokens", i,
                      r->token_ids[i], (llu)l->vocab_size);
  for (int i = 0; i < s->num_logit_bias; i++) TRI_CHECK(check_id(l, "logit_bias", s->logit_bias[i].id, err));
  for (int i = 0; i < s->num_stop_token_ids; i++) TRI_CHECK(check_id(l, "stop_token_ids", s->stop_token_ids[i], err));
  return check_allowed(l, s, err);
}

/* A source is computed in one step, and its answer begins with tokens of its own. */
static tri_status check_source(const tri_job_limits *l, size_t tokens, tri_error *err) {
  uint64_t step = l->max_num_batched_tokens, room = step > l->num_start ? step - l->num_start : 0;
  if (step && tokens > room)
    return tri_fail(err, TRI_NO_CAPACITY, "prompt",
                    "the source has %zu tokens and is computed in one step, which has room for %llu "
                    "(max_num_batched_tokens %llu)",
                    tokens, (llu)room, (llu)step);
  if (l->num_start >= l->max_model_len)
    return tri_fail(err, TRI_NO_CAPACITY, "max_tokens", "max_model_len %llu leaves no room for an answer",
                    (llu)l->max_model_len);
  return TRI_OK;
}

static tri_status check_prompt(const tri_job_limits *l, const tri_job_request *r, tri_error *err) {
  const char *field = names[l->use].field, *noun = names[l->use].noun;
  size_t tokens = r->num_token_ids;
  size_t cached = l->use == TRI_PROMPT_WHOLE ? tokens : tokens + 1; /* with the first of an answer */
  if (l->use == TRI_PROMPT_CONTINUED && tokens >= l->max_model_len)
    return tri_fail(err, TRI_NO_CAPACITY, field,
                    "the prompt has %zu tokens, at most %llu leave room for an answer (max_model_len %llu)", tokens,
                    (llu)l->max_model_len - 1, (llu)l->max_model_len);
  if (tokens > l->max_model_len)
    return tri_fail(err, TRI_NO_CAPACITY, field, "the %s has %zu tokens, the limit is max_model_len %llu", noun, tokens,
                    (llu)l->max_model_len);
  if (l->use == TRI_PROMPT_SOURCE) TRI_CHECK(check_source(l, tokens, err));
  if (cached > l->kv_tokens)
    return tri_fail(err, TRI_NO_CAPACITY, field, "the %s has %zu tokens, the KV cache holds %llu", noun, tokens,
                    (llu)l->kv_tokens);
  if (l->use == TRI_PROMPT_WHOLE && r->sampling->n != 1)
    return tri_fail(err, TRI_UNSUPPORTED, "n", "an encoder has one result, not %lld", (long long)r->sampling->n);
  return TRI_OK;
}

tri_status tri_job_check_fit(const tri_job_limits *l, const tri_job_request *r, tri_error *err) {
  const tri_sampling *s = r->sampling;
  TRI_CHECK(check_prompt(l, r, err));
  if (r->second_start && (l->num_types < 2 || r->second_start > r->num_token_ids))
    return tri_fail(err, TRI_OUT_OF_RANGE, "text_pair",
                    "a second text from token %llu on, of %zu; %llu types of tokens", (llu)r->second_start,
                    r->num_token_ids, (llu)l->num_types);
  if (s->prompt_logprobs >= 0 && l->use != TRI_PROMPT_CONTINUED)
    return tri_fail(err, TRI_UNSUPPORTED, "prompt_logprobs", "the tokens of a %s have no log probabilities",
                    names[l->use].noun);
  if ((uint64_t)s->n > l->max_num_seqs)
    return tri_fail(err, TRI_OUT_OF_RANGE, "n", "n is %lld, the limit is max_num_seqs %llu", (long long)s->n,
                    (llu)l->max_num_seqs);
  if ((uint64_t)s->num_beams > l->max_num_seqs)
    return tri_fail(err, TRI_OUT_OF_RANGE, "num_beams", "num_beams is %lld, the limit is max_num_seqs %llu",
                    (long long)s->num_beams, (llu)l->max_num_seqs);
  return TRI_OK;
}
