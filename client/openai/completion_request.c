/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of /v1/completions, and those that chat shares. Ranges are the coordinator's to check, which names the
 * field; checked here are n, limits of arrays, and what several fields say together.
 *
 * Tables: `shared` for both endpoints, `text_alone` for /v1/completions; a row is a name, how its value is taken, and
 * where it goes. Members that are positive here and negative in libtrireme (cache, no_cache) are turned in
 * oai_completion_check. */
#include "client/openai/completion_request.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/openai/answer_format.h"
#include "base/mem.h"

/* Texts stay in the document; the list itself is the request's, which therefore must not be moved. */
static tri_status take_stop(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  oai_completion_request *q = request;
  bool one = tri_json_kind_of(v) == TRI_JSON_STRING;
  size_t n = one ? 1 : tri_json_size(v);
  if (!one && tri_json_kind_of(v) != TRI_JSON_ARRAY) return oai_wrong(err, f, "a text or an array of texts");
  if (n > OAI_MAX_STOP)
    return tri_fail(err, TRI_OUT_OF_RANGE, f->name, "stop has %zu texts; allowed are %d", n, OAI_MAX_STOP);
  for (size_t i = 0; i < n; i++) {
    q->stops[i].s = tri_json_as_str(one ? v : tri_json_at(v, i), &q->stops[i].len);
    if (!q->stops[i].s) return oai_wrong(err, f, "a text or an array of texts");
  }
  q->r.stop = q->stops;
  q->r.num_stop = n;
  return TRI_OK;
}

static tri_status take_stop_ids(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  oai_completion_request *q = request;
  TRI_CHECK(oai_read_ids(f, v, &q->stop_ids, &q->r.num_stop_token_ids, err));
  q->r.stop_token_ids = q->stop_ids;
  if (q->r.num_stop_token_ids <= OAI_MAX_STOP_IDS) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, f->name, "%s has %zu ids; allowed are %d", f->name, q->r.num_stop_token_ids,
                  OAI_MAX_STOP_IDS);
}

static tri_status take_allowed_ids(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  oai_completion_request *q = request;
  TRI_CHECK(oai_read_ids(f, v, &q->allowed_ids, &q->r.num_allowed_token_ids, err));
  q->r.allowed_token_ids = q->allowed_ids;
  if (q->r.num_allowed_token_ids >= 1 && q->r.num_allowed_token_ids <= OAI_MAX_ALLOWED_IDS) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, f->name, "%s has %zu ids; allowed are 1 to %d", f->name,
                  q->r.num_allowed_token_ids, OAI_MAX_ALLOWED_IDS);
}

static tri_status add_bias(void *ctx, const char *key, const tri_json *v) {
  oai_completion_request *q = ctx;
  char *end;
  double bias;
  uintmax_t id = strtoumax(key, &end, 10);
  if (*key < '0' || *key > '9' || *end || id > UINT32_MAX || !tri_json_as_num(v, &bias)) return TRI_INVALID_ARGUMENT;
  q->bias[q->r.num_logit_bias++] = (trireme_logit_bias){(uint32_t)id, (float)bias};
  return TRI_OK;
}

static tri_status take_bias(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  oai_completion_request *q = request;
  size_t n = tri_json_size(v);
  if (tri_json_kind_of(v) != TRI_JSON_OBJECT) return oai_wrong(err, f, "an object of numbers by token ids");
  if (n > OAI_MAX_BIAS)
    return tri_fail(err, TRI_OUT_OF_RANGE, f->name, "%s has %zu ids; allowed are %d", f->name, n, OAI_MAX_BIAS);
  q->bias = tri_calloc(n ? n : 1, sizeof *q->bias);
  if (!q->bias) return tri_fail(err, TRI_NO_MEMORY, f->name, "no memory");
  q->r.logit_bias = q->bias;
  if (tri_json_each(v, add_bias, q) == TRI_OK) return TRI_OK;
  return oai_wrong(err, f, "an object of numbers by token ids");
}

static tri_status take_stream_options(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  oai_completion_request *q = request;
  if (tri_json_kind_of(v) != TRI_JSON_OBJECT) return oai_wrong(err, f, "an object");
  tri_json_as_bool(tri_json_get(v, "include_usage"), &q->include_usage);
  tri_json_as_bool(tri_json_get(v, "continuous_usage_stats"), &q->continuous_usage);
  return TRI_OK;
}

/* `false` asks for none; `true`, which is chat's, for the token's own. */
static tri_status take_logprobs(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  oai_completion_request *q = request;
  bool on;
  if (!tri_json_as_bool(v, &on)) return tri_json_read_int(v, f->name, &q->r.logprobs, err);
  q->r.logprobs = on ? 0 : -1;
  return TRI_OK;
}

static tri_status take_seed(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  oai_completion_request *q = request;
  int64_t seed;
  TRI_CHECK(tri_json_read_int(v, f->name, &seed, err));
  q->r.seed = (uint64_t)seed; /* a negative one by its bits */
  q->r.has_seed = true;
  return TRI_OK;
}

static tri_status take_early_stopping(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  oai_completion_request *q = request;
  const char *s = tri_json_as_str(v, NULL);
  bool on;
  if (tri_json_as_bool(v, &on))
    q->r.early_stopping = on ? TRIREME_EARLY_TRUE : TRIREME_EARLY_FALSE;
  else if (s && !strcmp(s, "never"))
    q->r.early_stopping = TRIREME_EARLY_NEVER;
  else
    return oai_wrong(err, f, "true, false or \"never\"");
  return TRI_OK;
}

#define Q(m) .offset = offsetof(oai_completion_request, m)
#define R(m) .offset = offsetof(oai_completion_request, r.m)
static const oai_field shared[] = {
    {"model", oai_take_name, R(model)},
    {"max_tokens", oai_take_int, R(max_tokens)},
    {"max_completion_tokens", oai_take_int, R(max_tokens)},
    {"min_tokens", oai_take_int, R(min_tokens)},
    {"n", oai_take_int, R(n)},
    {"stream", oai_take_bool, Q(stream)},
    {"stream_options", take_stream_options, 0},
    {"stop", take_stop, 0},
    {"stop_token_ids", take_stop_ids, 0},
    {"temperature", oai_take_num, R(temperature)},
    {"top_p", oai_take_num, R(top_p)},
    {"top_k", oai_take_int, R(top_k)},
    {"min_p", oai_take_num, R(min_p)},
    {"seed", take_seed, 0},
    {"repetition_penalty", oai_take_num, R(repetition_penalty)},
    {"presence_penalty", oai_take_num, R(presence_penalty)},
    {"frequency_penalty", oai_take_num, R(frequency_penalty)},
    {"logit_bias", take_bias, 0},
    {"allowed_token_ids", take_allowed_ids, 0},
    {"ignore_eos", oai_take_bool, R(ignore_eos)},
    {"priority", oai_take_int, R(priority)},
    {"deadline_ms", oai_take_int, R(deadline_ms)},
    {"use_beam_search", oai_take_bool, Q(beam_search)},
    {"num_beams", oai_take_int, R(num_beams)},
    {"length_penalty", oai_take_num, R(length_penalty)},
    {"early_stopping", take_early_stopping, 0},
    {"cache_salt", oai_take_name, R(cache_salt)},
    {"cache", oai_take_bool, Q(cache)},
    {"add_special_tokens", oai_take_bool, Q(add_special_tokens)},
    {"skip_special_tokens", oai_take_bool, Q(skip_special_tokens)},
    {"include_stop_str_in_output", oai_take_bool, Q(include_stop)},
    {"return_token_ids", oai_take_bool, Q(return_token_ids)},
    {"spaces_between_special_tokens", oai_take_nothing, 0},
    {"response_format", oai_take_response_format, 0},
    /* An answer that keeps no such wish would be taken for one that does. */
    {"bad_words", oai_take_unsupported, 0},
    {"logits_processors", oai_take_unsupported, 0},
    {"prompt_embeds", oai_take_unsupported, 0},
    {"return_tokens_as_token_ids", oai_take_unsupported, 0},
    {"chat_template", oai_take_unsupported, 0},
    {"grammar", oai_take_unsupported, 0},
    {"json_schema", oai_take_schema, 0},
    {"structured_outputs", oai_take_structured_outputs, 0},
    {"guided_json", oai_take_schema, 0},
    {"guided_decoding_backend", oai_take_nothing, 0},
    {"guided_regex", oai_take_unsupported, 0},
    {"guided_choice", oai_take_unsupported, 0},
    {"guided_grammar", oai_take_unsupported, 0},
};
const oai_field_table oai_completion_fields = OAI_TABLE(shared);

static const oai_field text_alone[] = {
    {"prompt", oai_take_inputs, Q(prompt)},
    {"best_of", oai_take_int, Q(best_of)},
    {"logprobs", take_logprobs, 0},
    {"echo", oai_take_bool, R(echo)},
    {"truncate", oai_take_int, R(truncate)},
    {"truncate_prompt_tokens", oai_take_int, R(truncate)},
    {"prompt_logprobs", oai_take_int, Q(prompt_logprobs)},
    {"suffix", oai_take_unsupported, 0},
    {"tools", oai_take_unsupported, 0},
    {"functions", oai_take_unsupported, 0},
};
#undef Q
#undef R

/* Whatever false or 0 would mean something else than "not said" is set here. */
void oai_completion_request_init(oai_completion_request *q) {
  *q = (oai_completion_request){.add_special_tokens = true,
                                .skip_special_tokens = true,
                                .cache = true,
                                .best_of = TRIREME_UNSET,
                                .prompt_logprobs = -1};
  trireme_request_init(&q->r);
}

tri_status oai_completion_check(oai_completion_request *q, tri_error *err) {
  trireme_request *r = &q->r;
  if (r->n < 1 || r->n > OAI_MAX_CHOICES)
    return tri_fail(err, TRI_OUT_OF_RANGE, "n", "n is %" PRId64 "; allowed are 1 to %d", r->n, OAI_MAX_CHOICES);
  if (r->max_tokens == 0 && r->prompt_logprobs < 0)
    return tri_fail(err, TRI_OUT_OF_RANGE, "max_tokens",
                    "max_tokens is 0; allowed are -1 to 1048576, but 0 only where the prompt's logprobs are wanted");
  if (q->beam_search && r->num_beams == TRIREME_UNSET) r->num_beams = r->n;
  r->no_special_tokens = !q->add_special_tokens;
  r->no_cache = !q->cache;
  r->keep_special_tokens = !q->skip_special_tokens;
  r->include_stop = q->include_stop;
  r->return_token_ids = q->return_token_ids;
  r->no_stream = !q->stream && r->logprobs < 0 && !q->return_token_ids; /* `done` has no ids */
  return TRI_OK;
}

/* An echo with logprobs asks for the prompt's, and so does prompt_logprobs, in a form of its own. */
static tri_status take_prompt_logprobs(oai_completion_request *q, tri_error *err) {
  trireme_request *r = &q->r;
  bool echoed = r->echo && r->logprobs >= 0;
  if (q->prompt_logprobs >= 0 && q->stream)
    return tri_fail(err, TRI_UNSUPPORTED, "prompt_logprobs", "prompt_logprobs is not supported with stream");
  if (q->prompt_logprobs >= 0 && echoed && q->prompt_logprobs != r->logprobs)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "prompt_logprobs",
                    "with echo, logprobs and prompt_logprobs are two different numbers");
  r->prompt_logprobs = echoed ? r->logprobs : q->prompt_logprobs;
  return TRI_OK;
}

tri_status oai_completion_parse(const tri_json *object, oai_completion_request *q, oai_ignored *ignored,
                                tri_error *err) {
  static const oai_field_table own = OAI_TABLE(text_alone);
  const oai_field_table tables[] = {oai_completion_fields, own, {0}};
  oai_completion_request_init(q);
  TRI_CHECK(oai_fields_read(tables, object, q, ignored, err));
  if (!q->prompt.num) return tri_fail(err, TRI_INVALID_ARGUMENT, "prompt", "prompt is missing");
  if (q->best_of != TRIREME_UNSET && q->best_of != q->r.n)
    return tri_fail(err, TRI_UNSUPPORTED, "best_of", "best_of must equal n (%" PRId64 ")", q->r.n);
  TRI_CHECK(take_prompt_logprobs(q, err));
  return oai_completion_check(q, err);
}

/* All texts go to one buffer of their exact size; the document can be freed then. */
tri_status oai_completion_keep(oai_completion_request *q, tri_error *err) {
  trireme_request *r = &q->r;
  size_t model = r->model ? strlen(r->model) : 0, salt = r->cache_salt ? strlen(r->cache_salt) : 0;
  size_t n = oai_kept_text(r->model, model) + oai_kept_text(r->cache_salt, salt) + oai_kept_inputs(&q->prompt);
  for (size_t i = 0; i < r->num_stop; i++) n += oai_kept_text(q->stops[i].s, q->stops[i].len);
  if (tri_buf_reserve(&q->texts, n) != TRI_OK) return tri_fail(err, TRI_NO_MEMORY, "", "out of memory");
  oai_keep_text(&q->texts, &r->model, model);
  oai_keep_text(&q->texts, &r->cache_salt, salt);
  oai_keep_inputs(&q->texts, &q->prompt);
  for (size_t i = 0; i < r->num_stop; i++) oai_keep_text(&q->texts, &q->stops[i].s, q->stops[i].len);
  return TRI_OK;
}

void oai_completion_request_free(oai_completion_request *q) {
  tri_buf_free(&q->texts);
  tri_buf_free(&q->schema);
  oai_inputs_free(&q->prompt);
  tri_free(q->stop_ids);
  tri_free(q->allowed_ids);
  tri_free(q->bias);
}
