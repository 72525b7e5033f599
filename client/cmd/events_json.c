/* SPDX-License-Identifier: Apache-2.0 */
/* Events and status as JSON. */
#include <math.h>
#include <string.h>

#include "client/cmd/cmd.h"
#include "comm/wire/status_fields.h"

/* Adds text and bytes as OpenAI's API has them: a text in which what is not UTF-8 became U+FFFD, and the bytes. */
static void token(cmd_buf *b, const char *s, size_t len) {
  cmd_json_text(b, "token", s, len);
  cmd_json_open(b, "bytes", '[');
  for (size_t i = 0; i < len; i++) cmd_buf_printf(b, i ? ",%u" : "%u", (unsigned char)s[i]);
  cmd_buf_add(b, "]", 1);
}

static void signed_integer(cmd_buf *b, const char *key, int64_t x) {
  cmd_buf_key(b, key);
  cmd_buf_printf(b, "%lld", (long long)x);
}

void cmd_json_logprobs(cmd_buf *b, const trireme_choice *c) {
  for (size_t i = 0; c->logprobs && i < c->num_ids; i++) {
    const trireme_logprobs *l = c->logprobs[i];
    cmd_json_open(b, NULL, '{');
    cmd_json_uint(b, "id", c->ids[i]);
    cmd_json_num(b, "logprob", (double)l->logprob);
    if (l->text) token(b, l->text, l->text_len);
    cmd_json_open(b, "top", '[');
    for (size_t k = 0; k < l->num_top; k++) {
      cmd_json_open(b, NULL, '{');
      cmd_json_uint(b, "id", l->top_ids[k]);
      cmd_json_num(b, "logprob", (double)l->top_logprobs[k]);
      if (l->top_texts) token(b, l->top_texts[k].s, l->top_texts[k].len);
      cmd_buf_add(b, "}", 1);
    }
    cmd_buf_add(b, "]}", 2);
  }
}

static void choices(cmd_buf *b, const trireme_event *e) {
  cmd_json_open(b, "choices", '[');
  for (size_t i = 0; i < e->tokens.num; i++) {
    const trireme_choice *c = e->tokens.choices[i];
    cmd_json_open(b, NULL, '{');
    cmd_json_uint(b, "index", c->index);
    cmd_json_uint(b, "offset", c->offset);
    if (c->of_prompt) cmd_buf_printf(b, ",\"of_prompt\":true");
    cmd_json_text(b, "text", c->text, c->text_len);
    cmd_json_open(b, "token_ids", '[');
    for (size_t k = 0; k < c->num_ids; k++) cmd_buf_printf(b, k ? ",%u" : "%u", c->ids[k]);
    cmd_buf_add(b, "]", 1);
    if (c->logprobs) {
      cmd_json_open(b, "logprobs", '[');
      cmd_json_logprobs(b, c);
      cmd_buf_add(b, "]", 1);
    }
    cmd_buf_add(b, "}", 1);
  }
  cmd_buf_add(b, "]", 1);
}

static void done(cmd_buf *b, const trireme_event *e) {
  cmd_json_open(b, "choices", '[');
  for (size_t i = 0; i < e->done.num; i++) {
    const trireme_finished *c = e->done.choices[i];
    cmd_json_open(b, NULL, '{');
    cmd_json_uint(b, "index", i);
    cmd_json_word(b, "finish_reason", c->finish_reason);
    if (c->text_len) cmd_json_text(b, "text", c->text, c->text_len);
    cmd_json_uint(b, "completion_tokens", c->completion_tokens);
    cmd_buf_add(b, "}", 1);
  }
  cmd_buf_add(b, "]", 1);
  cmd_json_uint(b, "prompt_tokens", e->done.prompt_tokens);
  cmd_json_uint(b, "completion_tokens", e->done.completion_tokens);
  cmd_json_num(b, "queue_ms", e->done.queue_ms);
  cmd_json_num(b, "first_token_ms", e->done.first_token_ms);
  cmd_json_num(b, "total_ms", e->done.total_ms);
  cmd_json_uint(b, "preemptions", e->done.preemptions);
  cmd_json_uint(b, "cached_tokens", e->done.cached_tokens);
  cmd_json_uint(b, "seed", e->done.seed);
  if (e->done.timed_out) cmd_buf_printf(b, ",\"timed_out\":true");
}

/* The members of a status, by the protocol's lists. */
#define PRINT(from, type, name, key) PRINT_##type(key, (from)->name);
#define PRINT_U32(key, x) cmd_json_uint(b, key, x)
#define PRINT_U64(key, x) cmd_json_uint(b, key, x)
#define PRINT_I64(key, x) signed_integer(b, key, x)
#define PRINT_F64(key, x) cmd_json_num(b, key, x)
#define PRINT_STR(key, x) cmd_json_word(b, key, x)
#define PRINT_LAYER(key, x) cmd_json_num(b, key, (x) >= UINT32_MAX ? NAN : (double)(x)) /* null between steps */

static void group(cmd_buf *b, const trireme_group_status *g) { TRI_GROUP_STATUS_FIELDS(PRINT, g) }

static void rank(cmd_buf *b, const trireme_rank_status *r) { TRI_RANK_STATUS_FIELDS(PRINT, r) }

static void caller(cmd_buf *b, const trireme_caller_status *c) { TRI_CALLER_STATUS_FIELDS(PRINT, c) }

void cmd_json_status(cmd_buf *b, const trireme_status *s) {
  cmd_buf_add(b, "{", 1);
  TRI_STATUS_FIELDS(PRINT, s)
  cmd_buf_key(b, "groups");
  for (size_t i = 0; i < s->num_groups; i++) {
    cmd_buf_add(b, i ? "},{" : "[{", i ? 3 : 2);
    group(b, s->groups[i]);
  }
  cmd_buf_add(b, s->num_groups ? "}]" : "[]", 2);
  cmd_buf_key(b, "ranks");
  for (size_t i = 0; i < s->num_ranks; i++) {
    cmd_buf_add(b, i ? "},{" : "[{", i ? 3 : 2);
    rank(b, s->ranks[i]);
  }
  cmd_buf_add(b, s->num_ranks ? "}]" : "[]", 2);
  cmd_buf_key(b, "callers");
  for (size_t i = 0; i < s->num_callers; i++) {
    cmd_buf_add(b, i ? "},{" : "[{", i ? 3 : 2);
    caller(b, s->callers[i]);
  }
  cmd_buf_add(b, s->num_callers ? "}]" : "[]", 2);
  cmd_buf_add(b, "}", 1);
}

static void floors(cmd_buf *b, const trireme_event *e) {
  cmd_buf_key(b, "groups");
  for (size_t i = 0; i < e->floors.num; i++) {
    const trireme_group_floors *g = e->floors.groups[i];
    cmd_buf_add(b, i ? "},{" : "[{", i ? 3 : 2);
    cmd_json_uint(b, "group", g->group);
    cmd_json_uint(b, "ranks", g->ranks);
    cmd_json_uint(b, "measured", g->measured);
    TRI_FLOORS_FIELDS(PRINT, g)
  }
  cmd_buf_add(b, e->floors.num ? "}]" : "[]", 2);
}

void cmd_json_event(cmd_buf *b, const trireme_event *e) {
  static const char *const names[] = {"accepted", "tokens", "done",      "error",  "status", "stats",
                                      "models",   "floors", "embedding", "scores", "experts"};
  cmd_buf_add(b, "{", 1);
  cmd_json_word(b, "event", names[e->kind]);
  switch (e->kind) {
  case TRIREME_EVENT_ACCEPTED:
    cmd_json_word(b, "request_id", e->accepted.request_id);
    cmd_json_uint(b, "prompt_tokens", e->accepted.prompt_tokens);
    cmd_buf_key(b, "existing");
    cmd_buf_printf(b, e->accepted.existing ? "true" : "false");
    cmd_buf_key(b, "cached");
    cmd_buf_printf(b, e->accepted.cached ? "true" : "false");
    break;
  case TRIREME_EVENT_TOKENS: choices(b, e); break;
  case TRIREME_EVENT_DONE: done(b, e); break;
  case TRIREME_EVENT_ERROR: cmd_json_error(b, e->error.code, e->error.field, e->error.message); break;
  case TRIREME_EVENT_STATUS:
    cmd_buf_key(b, "status");
    cmd_json_status(b, &e->status);
    break;
  case TRIREME_EVENT_STATS: cmd_json_text(b, "text", e->stats.text, e->stats.text_len); break;
  case TRIREME_EVENT_MODELS:
    cmd_json_open(b, "models", '[');
    for (size_t i = 0; i < e->models.num; i++) {
      cmd_buf_add(b, ",", i ? 1 : 0);
      cmd_buf_json(b, e->models.names[i], strlen(e->models.names[i]));
    }
    cmd_buf_add(b, "]", 1);
    cmd_json_uint(b, "max_model_len", e->models.max_model_len);
    break;
  case TRIREME_EVENT_FLOORS: floors(b, e); break;
  case TRIREME_EVENT_EXPERTS: cmd_json_text(b, "json", e->experts.json, e->experts.json_len); break;
  case TRIREME_EVENT_EMBEDDING:
  case TRIREME_EVENT_SCORES: cmd_json_embed_reply(b, e, 0); break;
  }
  cmd_buf_add(b, "}\n", 2);
}
