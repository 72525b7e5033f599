/* SPDX-License-Identifier: Apache-2.0 */
/* Events and status as JSON. Members of a status come from the protocol's lists (comm/wire/status_fields.h): a new one
 * appears here without a change, under the key that the list gives it. Keys are what scripts read, so they stay. */
#include <math.h>
#include <string.h>

#include "client/cmd/cmd.h"
#include "comm/wire/status_fields.h"

/* Adds text and bytes as OpenAI's API has them: a text in which what is not UTF-8 became U+FFFD, and the bytes. */
static void token(tri_buf *b, const char *s, size_t len) {
  tri_json_put_text(b, "token", s, len);
  tri_json_open(b, "bytes", '[');
  for (size_t i = 0; i < len; i++) tri_text_printf(b, i ? ",%u" : "%u", (unsigned char)s[i]);
  tri_text_add(b, "]", 1);
}

static void signed_integer(tri_buf *b, const char *key, int64_t x) {
  tri_json_add_key(b, key);
  tri_text_printf(b, "%lld", (long long)x);
}

void cmd_json_logprobs(tri_buf *b, const trireme_choice *c) {
  for (size_t i = 0; c->logprobs && i < c->num_ids; i++) {
    const trireme_logprobs *l = c->logprobs[i];
    tri_json_open(b, NULL, '{');
    tri_json_put_uint(b, "id", c->ids[i]);
    tri_json_put_num(b, "logprob", (double)l->logprob);
    if (l->text) token(b, l->text, l->text_len);
    tri_json_open(b, "top", '[');
    for (size_t k = 0; k < l->num_top; k++) {
      tri_json_open(b, NULL, '{');
      tri_json_put_uint(b, "id", l->top_ids[k]);
      tri_json_put_num(b, "logprob", (double)l->top_logprobs[k]);
      if (l->top_texts) token(b, l->top_texts[k].s, l->top_texts[k].len);
      tri_text_add(b, "}", 1);
    }
    tri_text_add(b, "]}", 2);
  }
}

static void choices(tri_buf *b, const trireme_event *e) {
  tri_json_open(b, "choices", '[');
  for (size_t i = 0; i < e->tokens.num; i++) {
    const trireme_choice *c = e->tokens.choices[i];
    tri_json_open(b, NULL, '{');
    tri_json_put_uint(b, "index", c->index);
    tri_json_put_uint(b, "offset", c->offset);
    if (c->of_prompt) tri_text_printf(b, ",\"of_prompt\":true");
    tri_json_put_text(b, "text", c->text, c->text_len);
    tri_json_open(b, "token_ids", '[');
    for (size_t k = 0; k < c->num_ids; k++) tri_text_printf(b, k ? ",%u" : "%u", c->ids[k]);
    tri_text_add(b, "]", 1);
    if (c->logprobs) {
      tri_json_open(b, "logprobs", '[');
      cmd_json_logprobs(b, c);
      tri_text_add(b, "]", 1);
    }
    tri_text_add(b, "}", 1);
  }
  tri_text_add(b, "]", 1);
}

static void done(tri_buf *b, const trireme_event *e) {
  tri_json_open(b, "choices", '[');
  for (size_t i = 0; i < e->done.num; i++) {
    const trireme_finished *c = e->done.choices[i];
    tri_json_open(b, NULL, '{');
    tri_json_put_uint(b, "index", i);
    tri_json_put_word(b, "finish_reason", c->finish_reason);
    if (c->text_len) tri_json_put_text(b, "text", c->text, c->text_len);
    tri_json_put_uint(b, "completion_tokens", c->completion_tokens);
    tri_text_add(b, "}", 1);
  }
  tri_text_add(b, "]", 1);
  tri_json_put_uint(b, "prompt_tokens", e->done.prompt_tokens);
  tri_json_put_uint(b, "completion_tokens", e->done.completion_tokens);
  tri_json_put_num(b, "queue_ms", e->done.queue_ms);
  tri_json_put_num(b, "first_token_ms", e->done.first_token_ms);
  tri_json_put_num(b, "total_ms", e->done.total_ms);
  tri_json_put_uint(b, "preemptions", e->done.preemptions);
  tri_json_put_uint(b, "cached_tokens", e->done.cached_tokens);
  tri_json_put_uint(b, "seed", e->done.seed);
  if (e->done.timed_out) tri_text_printf(b, ",\"timed_out\":true");
}

/* The members of a status, by the protocol's lists. */
#define PRINT(from, type, name, key) PRINT_##type(key, (from)->name);
#define PRINT_U32(key, x) tri_json_put_uint(b, key, x)
#define PRINT_U64(key, x) tri_json_put_uint(b, key, x)
#define PRINT_I64(key, x) signed_integer(b, key, x)
#define PRINT_F64(key, x) tri_json_put_num(b, key, x)
#define PRINT_STR(key, x) tri_json_put_word(b, key, x)
#define PRINT_LAYER(key, x) tri_json_put_num(b, key, (x) >= UINT32_MAX ? NAN : (double)(x)) /* null between steps */

/* An array of objects; `members` writes those of number i. */
#define PRINT_LIST(key, num, members)                                                                                  \
  tri_json_open(b, key, '[');                                                                                          \
  for (size_t i = 0; i < (num); i++) {                                                                                 \
    tri_json_open(b, NULL, '{');                                                                                       \
    members tri_text_add(b, "}", 1);                                                                                   \
  }                                                                                                                    \
  tri_text_add(b, "]", 1);

void cmd_json_status(tri_buf *b, const trireme_status *s) {
  tri_text_add(b, "{", 1);
  TRI_STATUS_FIELDS(PRINT, s)
  PRINT_LIST("groups", s->num_groups, TRI_REPLICA_STATUS_FIELDS(PRINT, s->groups[i]))
  PRINT_LIST("ranks", s->num_ranks, TRI_RANK_STATUS_FIELDS(PRINT, s->ranks[i]))
  PRINT_LIST("callers", s->num_callers, TRI_CALLER_STATUS_FIELDS(PRINT, s->callers[i]))
  tri_text_add(b, "}", 1);
}

static void group_floors(tri_buf *b, const trireme_group_floors *g) {
  tri_json_put_uint(b, "group", g->group);
  tri_json_put_uint(b, "ranks", g->ranks);
  tri_json_put_uint(b, "measured", g->measured);
  TRI_ROOFLINES_FIELDS(PRINT, g)
}

static void floors(tri_buf *b, const trireme_event *e) {
  PRINT_LIST("groups", e->floors.num, group_floors(b, e->floors.groups[i]);)
}

void cmd_json_error(tri_buf *b, const char *code, const char *field, const char *message) {
  tri_json_put_word(b, "code", code);
  tri_json_put_word(b, "field", field);
  tri_json_put_word(b, "message", message);
}

void cmd_json_event(tri_buf *b, const trireme_event *e) {
  static const char *const names[] = {"accepted", "tokens", "done",      "error",  "status", "stats",
                                      "models",   "floors", "embedding", "scores", "experts"};
  tri_text_add(b, "{", 1);
  tri_json_put_word(b, "event", names[e->kind]);
  switch (e->kind) {
  case TRIREME_EVENT_ACCEPTED:
    tri_json_put_word(b, "request_id", e->accepted.request_id);
    tri_json_put_uint(b, "prompt_tokens", e->accepted.prompt_tokens);
    tri_json_add_key(b, "existing");
    tri_text_printf(b, e->accepted.existing ? "true" : "false");
    tri_json_add_key(b, "cached");
    tri_text_printf(b, e->accepted.cached ? "true" : "false");
    break;
  case TRIREME_EVENT_TOKENS: choices(b, e); break;
  case TRIREME_EVENT_DONE: done(b, e); break;
  case TRIREME_EVENT_ERROR: cmd_json_error(b, e->error.code, e->error.field, e->error.message); break;
  case TRIREME_EVENT_STATUS:
    tri_json_add_key(b, "status");
    cmd_json_status(b, &e->status);
    break;
  case TRIREME_EVENT_STATS: tri_json_put_text(b, "text", e->stats.text, e->stats.text_len); break;
  case TRIREME_EVENT_MODELS:
    tri_json_open(b, "models", '[');
    for (size_t i = 0; i < e->models.num; i++) {
      tri_text_add(b, ",", i ? 1 : 0);
      tri_json_add_string(b, e->models.names[i], strlen(e->models.names[i]));
    }
    tri_text_add(b, "]", 1);
    tri_json_put_uint(b, "max_model_len", e->models.max_model_len);
    break;
  case TRIREME_EVENT_FLOORS: floors(b, e); break;
  case TRIREME_EVENT_EXPERTS: tri_json_put_text(b, "json", e->experts.json, e->experts.json_len); break;
  case TRIREME_EVENT_EMBEDDING:
  case TRIREME_EVENT_SCORES: cmd_json_embed_reply(b, e, 0); break;
  }
  tri_text_add(b, "}\n", 2);
}
