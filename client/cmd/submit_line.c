/* SPDX-License-Identifier: Apache-2.0 */
/* A line of `submit --file`: one with custom_id or body has OpenAI's batch form, any other our own. A line may be
 * parsed twice, for another try: what the slot keeps of it is replaced, and choices are made once. */
#include <string.h>

#include "base/json/json_writer.h"
#include "client/cmd/submit_file.h"
#include "base/mem.h"
#include "base/text.h"

enum { MOST_IDS = 1 << 18 };

/* ---- our own form ---- */

/* Members of an answer, which a line's own ones must not hide. */
static bool is_answer_member(const char *key) {
  return tri_has_word("line choices error prompt_tokens completion_tokens queue_ms first_token_ms total_ms timed_out "
                      "cached",
                      key);
}

/* Keeps a member that is no field for the answer, unless it looks like one. */
static tri_status keep(void *ctx, const char *key, const tri_json *v, tri_error *err) {
  submit_slot *s = ctx;
  if (is_answer_member(key) || cli_is_like_field(key)) return cli_unknown_field(key, err);
  tri_text_add(&s->kept, ",", 1);
  tri_json_add_string(&s->kept, key, strlen(key));
  tri_text_add(&s->kept, ":", 1);
  tri_json_add_value(&s->kept, v, false);
  return s->kept.failed ? TRI_NO_MEMORY : TRI_OK;
}

/* ---- OpenAI's ---- */

/* Fields that tell the service something which has no meaning here, or that ask for nothing. */
static tri_status take_openai(void *ctx, const char *key, const tri_json *v, tri_error *err) {
  static const char quiet[] =
      "user metadata store service_tier prompt_cache_key safety_identifier session_id stream_options";
  cli_request *q = ctx;
  int64_t n;
  if (tri_has_word(quiet, key)) return TRI_OK;
  if (!strcmp(key, "max_completion_tokens")) return tri_json_read_int(v, key, &q->r.max_tokens, err);
  if (!strcmp(key, "best_of")) /* with the value that it has without being said */
    return tri_json_as_int(v, &n) && n == 1 ? TRI_OK
                                            : tri_fail(err, TRI_UNSUPPORTED, key, "best_of is not supported: say n");
  if (!strcmp(key, "suffix")) return tri_fail(err, TRI_UNSUPPORTED, key, "suffix is not supported");
  return cli_unknown_field(key, err);
}

static tri_status parse_completion(const cli_request *defaults, const tri_json *body, submit_request *out,
                                   tri_error *err) {
  cli_unknown unknown = {take_openai, &out->q};
  const tri_json *most = tri_json_get(body, "max_completion_tokens");
  TRI_CHECK(cli_request_json(defaults, body, &unknown, &out->q, err));
  if (tri_json_kind_of(most) == TRI_JSON_NULL) return TRI_OK;
  return take_openai(&out->q, "max_completion_tokens", most, err); /* wins over max_tokens, which may come after it */
}

/* An array of one text, or of one array of ids, is the same as its element. */
static tri_status take_input(submit_request *out, const tri_json *v, tri_error *err) {
  trireme_embed_request *r = &out->embed;
  if (tri_json_kind_of(v) == TRI_JSON_ARRAY && tri_json_kind_of(tri_json_at(v, 0)) != TRI_JSON_INT) {
    if (tri_json_size(v) != 1)
      return tri_fail(err, TRI_UNSUPPORTED, "input", "input has %zu elements; a line has one input", tri_json_size(v));
    v = tri_json_at(v, 0);
  }
  if (tri_json_kind_of(v) == TRI_JSON_ARRAY) {
    TRI_CHECK(cli_read_ids(v, "input", MOST_IDS, &out->embed_ids, &r->num_token_ids, err));
    r->token_ids = out->embed_ids;
    return TRI_OK;
  }
  r->text = tri_json_as_str(v, &r->text_len);
  return r->text ? TRI_OK : cli_wrong(err, "input", "a text or an array of token ids");
}

typedef struct embed_reader {
  submit_request *out;
  tri_error *err;
} embed_reader;

static tri_status take_embedding(void *ctx, const char *key, const tri_json *v) {
  embed_reader *e = ctx;
  trireme_embed_request *r = &e->out->embed;
  const char *s = tri_json_as_str(v, NULL);
  if (tri_json_kind_of(v) == TRI_JSON_NULL || !strcmp(key, "user")) return TRI_OK;
  if (!strcmp(key, "input")) return take_input(e->out, v, e->err);
  if (!strcmp(key, "model")) {
    r->model = s;
    return s ? TRI_OK : cli_wrong(e->err, key, "a string");
  }
  if (!strcmp(key, "encoding_format")) {
    if (s && !strcmp(s, "float")) return TRI_OK;
    return tri_fail(e->err, TRI_UNSUPPORTED, key, "encoding_format: only \"float\" is supported");
  }
  if (!strcmp(key, "normalize")) {
    if (!tri_json_as_bool(v, &r->normalize)) return cli_wrong(e->err, key, "true or false");
    r->keep_length = !r->normalize;
    return TRI_OK;
  }
  if (!strcmp(key, "truncate"))
    return tri_json_as_bool(v, &r->truncate) ? TRI_OK : cli_wrong(e->err, key, "true or false");
  return tri_fail(e->err, TRI_UNKNOWN_FIELD, key, "there is no field \"%.60s\" of /v1/embeddings", key);
}

static tri_status parse_embedding(const tri_json *body, submit_request *out, tri_error *err) {
  trireme_embed_request_init(&out->embed);
  out->embed.normalize = true; /* as OpenAI's are */
  TRI_CHECK(tri_json_each(body, take_embedding, &(embed_reader){out, err}));
  if (!out->embed.text && !out->embed.token_ids)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "input", "input is missing");
  return TRI_OK;
}

/* custom_id is taken first: an error in anything after it can name its line. */
static tri_status parse_openai(const submit_context *x, const tri_json *root, submit_slot *s, submit_request *out,
                               tri_error *err) {
  const tri_json *id = tri_json_get(root, "custom_id"), *body = tri_json_get(root, "body");
  const char *method = tri_json_get_str(root, "method"), *url = tri_json_get_str(root, "url");
  if (tri_json_kind_of(id) != TRI_JSON_STRING) return cli_wrong(err, "custom_id", "a string");
  s->form = SUBMIT_COMPLETION; /* from now on errors have this form, too */
  s->custom_id.len = s->model.len = 0;
  tri_json_add_value(&s->custom_id, id, false);
  if (tri_json_get_str(body, "model")) tri_json_add_value(&s->model, tri_json_get(body, "model"), false);
  if (s->custom_id.failed || s->model.failed) return TRI_NO_MEMORY;
  if (method && strcmp(method, "POST") != 0) return cli_wrong(err, "method", "POST");
  if (tri_json_kind_of(body) != TRI_JSON_OBJECT) return cli_wrong(err, "body", "an object");
  if (url && !strcmp(url, "/v1/completions")) return parse_completion(x->defaults, body, out, err);
  if (url && !strcmp(url, "/v1/embeddings")) {
    s->form = SUBMIT_EMBEDDING;
    return parse_embedding(body, out, err);
  }
  if (!url || strcmp(url, "/v1/chat/completions") != 0)
    return tri_fail(err, TRI_UNSUPPORTED, "url", "url must be /v1/completions, /v1/chat/completions or /v1/embeddings");
  s->form = SUBMIT_CHAT;
  if (x->chat) return submit_chat_parse(x->chat, x->defaults, body, s, out, err);
  const char *why = x->no_chat.message;
  return tri_fail(
      err, TRI_UNSUPPORTED, "url",
      "/v1/chat/completions needs the model's chat template: give --model DIR, the served model's folder%s%s",
      why[0] ? "; " : "", why);
}

/* ---- either ---- */

/* Copies the stop texts, one after the other, after their list. */
static tri_status keep_stops(submit_slot *s, const trireme_request *r) {
  size_t bytes = r->num_stop * sizeof *s->stops;
  for (size_t i = 0; i < r->num_stop; i++) bytes += r->stop[i].len;
  if (!r->num_stop) return TRI_OK;
  s->stops = tri_malloc(bytes, 1);
  if (!s->stops) return TRI_NO_MEMORY;
  char *at = (char *)(s->stops + r->num_stop);
  for (size_t i = 0; i < r->num_stop; i++) {
    memcpy(at, r->stop[i].s, r->stop[i].len);
    s->stops[i] = (trireme_string){at, r->stop[i].len};
    at += r->stop[i].len;
  }
  s->num_stops = r->num_stop;
  return TRI_OK;
}

tri_status submit_line_parse(const submit_context *x, submit_slot *s, submit_request *out, tri_error *err) {
  *out = (submit_request){0};
  cli_request_init(&out->q);
  TRI_CHECK(cli_parse_line(s->input.data, s->input.len, &out->doc, err));
  const tri_json *root = tri_json_root(out->doc);
  s->kept.len = 0;
  if (tri_json_get(root, "custom_id") || tri_json_get(root, "body")) {
    TRI_CHECK(parse_openai(x, root, s, out, err));
  } else {
    cli_unknown unknown = {keep, s};
    TRI_CHECK(cli_request_json(x->defaults, root, &unknown, &out->q, err));
  }
  if (s->form == SUBMIT_EMBEDDING || s->choices) return TRI_OK;
  const trireme_request *r = s->form == SUBMIT_CHAT ? &out->chat.c.r : &out->q.r;
  s->logprobs = r->logprobs >= 0;
  s->num_choices = r->n > 0 && r->n <= OAI_MAX_CHOICES ? (uint32_t)r->n : 1;
  s->choices = tri_calloc(s->num_choices, sizeof *s->choices);
  return s->choices ? keep_stops(s, r) : TRI_NO_MEMORY;
}

void submit_request_free(submit_request *r) {
  cli_request_free(&r->q);
  tri_free(r->embed_ids);
  submit_chat_free(r);
  tri_json_free(r->doc);
}
