/* SPDX-License-Identifier: Apache-2.0 */
/* Logprobs of /v1/completions, four arrays: tokens, token_logprobs, top_logprobs, text_offset; of its prompts, one of
 * objects by token id; and of chat, one of objects: token, logprob, bytes, top_logprobs. */
#include <stdio.h>
#include <string.h>

#include "client/gateway/completion.h"

/* A token that is no text by itself is told by its bytes, as OpenAI's API does: different ones stay different. */
static void add_token(cmd_buf *b, const char *s, size_t len, uint32_t id) {
  cmd_buf text = {0};
  if (!s) {
    cmd_buf_printf(&text, "token_id:%u", id);
  } else if (cmd_utf8_prefix(s, len) == len) {
    cmd_buf_json(b, s, len);
    return;
  } else {
    cmd_buf_printf(&text, "bytes:");
    for (size_t i = 0; i < len; i++) cmd_buf_printf(&text, "\\x%02x", (unsigned char)s[i]);
  }
  b->failed = b->failed || text.failed;
  if (text.data) cmd_buf_json(b, text.data, text.len);
  cmd_buf_free(&text);
}

/* JSON has no infinity; what cannot be drawn has this in OpenAI's API. */
static void add_value(cmd_buf *b, float x) { cmd_buf_float(b, x, "-9999.0"); }

static void separate(cmd_buf *b) {
  if (b->len) cmd_buf_add(b, ",", 1);
}

/* The chosen token is among them in any case. */
static void add_top(cmd_buf *b, const trireme_logprobs *p, uint32_t chosen) {
  bool seen = false;
  cmd_buf_add(b, "{", 1);
  for (size_t i = 0; i < p->num_top; i++) {
    seen = seen || p->top_ids[i] == chosen;
    if (i) cmd_buf_add(b, ",", 1);
    add_token(b, p->top_texts ? p->top_texts[i].s : NULL, p->top_texts ? p->top_texts[i].len : 0, p->top_ids[i]);
    cmd_buf_add(b, ":", 1);
    add_value(b, p->top_logprobs[i]);
  }
  if (!seen) {
    if (p->num_top) cmd_buf_add(b, ",", 1);
    add_token(b, p->text, p->text_len, chosen);
    cmd_buf_add(b, ":", 1);
    add_value(b, p->logprob);
  }
  cmd_buf_add(b, "}", 1);
}

/* Nothing is before a prompt's first token that could tell how probable it is. */
static bool has_none(const trireme_choice *c, size_t i) { return c->of_prompt && c->offset + i == 0; }

void gw_logprobs_add(gw_logprobs *l, const trireme_choice *c) {
  for (size_t i = 0; c->logprobs && i < c->num_ids; i++) {
    const trireme_logprobs *p = c->logprobs[i];
    separate(&l->tokens);
    separate(&l->values);
    separate(&l->tops);
    separate(&l->offsets);
    add_token(&l->tokens, p->text, p->text_len, c->ids[i]);
    if (has_none(c, i)) {
      cmd_buf_add(&l->values, "null", 4);
      cmd_buf_add(&l->tops, "null", 4);
    } else {
      add_value(&l->values, p->logprob);
      add_top(&l->tops, p, c->ids[i]);
    }
    cmd_buf_printf(&l->offsets, "%llu", (unsigned long long)l->characters);
    for (size_t k = 0; k < p->text_len; k++) l->characters += (p->text[k] & 0xc0) != 0x80;
  }
}

static void write_array(cmd_buf *out, const char *key, cmd_buf *elements) {
  cmd_json_open(out, key, '[');
  cmd_buf_add(out, elements->data ? elements->data : "", elements->len);
  cmd_buf_add(out, "]", 1);
  out->failed = out->failed || elements->failed;
  elements->len = 0;
}

void gw_logprobs_write(gw_logprobs *l, cmd_buf *out) {
  cmd_buf_add(out, "{", 1);
  write_array(out, "tokens", &l->tokens);
  write_array(out, "token_logprobs", &l->values);
  write_array(out, "top_logprobs", &l->tops);
  write_array(out, "text_offset", &l->offsets);
  cmd_buf_add(out, "}", 1);
}

/* ---- prompts, as vLLM has them ---- */

/* A member by the token's id. rank: among the most probable ones; 0: not known. */
static void add_prompt_token(cmd_buf *b, uint32_t id, float logprob, size_t rank, const trireme_string *text) {
  char key[16];
  snprintf(key, sizeof key, "%u", id);
  cmd_json_open(b, key, '{');
  cmd_buf_key(b, "logprob");
  add_value(b, logprob);
  if (rank) cmd_json_uint(b, "rank", rank);
  cmd_buf_key(b, "decoded_token");
  if (text)
    add_token(b, text->s, text->len, id);
  else
    cmd_buf_add(b, "null", 4);
  cmd_buf_add(b, "}", 1);
}

/* The token itself comes first. */
static void add_prompt_position(cmd_buf *b, const trireme_logprobs *p, uint32_t id) {
  trireme_string own = {p->text, p->text_len};
  size_t rank = 0;
  for (size_t k = 0; k < p->num_top && !rank; k++)
    if (p->top_ids[k] == id) rank = k + 1;
  cmd_json_open(b, NULL, '{');
  add_prompt_token(b, id, p->logprob, rank, p->text ? &own : NULL);
  for (size_t k = 0; k < p->num_top; k++)
    if (p->top_ids[k] != id)
      add_prompt_token(b, p->top_ids[k], p->top_logprobs[k], k + 1, p->top_texts ? &p->top_texts[k] : NULL);
  cmd_buf_add(b, "}", 1);
}

void gw_prompt_logprobs_add(cmd_buf *b, const trireme_choice *c) {
  for (size_t i = 0; c->logprobs && i < c->num_ids; i++) {
    if (has_none(c, i))
      cmd_buf_add(b, "null", 4);
    else
      add_prompt_position(b, c->logprobs[i], c->ids[i]);
  }
}

void gw_add_ids(cmd_buf *b, const uint32_t *ids, size_t num) {
  for (size_t i = 0; i < num; i++) cmd_buf_printf(b, b->len ? ",%u" : "%u", ids[i]);
}

static void write_stop_reason(cmd_buf *b, const gw_tail *t) {
  cmd_buf_key(b, "stop_reason");
  if (t->stop_string)
    cmd_buf_json(b, t->stop_string->s, t->stop_string->len);
  else if (t->stop_token_id >= 0)
    cmd_buf_printf(b, "%lld", (long long)t->stop_token_id);
  else
    cmd_buf_add(b, "null", 4);
}

void gw_write_tail(cmd_buf *b, const gw_tail *t) {
  cmd_buf_key(b, "finish_reason");
  if (t->finish_reason[0]) {
    cmd_buf_json(b, t->finish_reason, strlen(t->finish_reason));
    write_stop_reason(b, t);
  } else {
    cmd_buf_add(b, "null", 4);
  }
  if (t->token_ids) write_array(b, "token_ids", t->token_ids);
}

/* ---- chat ---- */

/* Members of a token's object, without its end. */
static void open_chat_token(cmd_buf *b, const char *text, size_t len, uint32_t id, float logprob) {
  cmd_json_open(b, NULL, '{');
  cmd_buf_key(b, "token");
  add_token(b, text, len, id);
  cmd_buf_key(b, "logprob");
  add_value(b, logprob);
  cmd_buf_key(b, "bytes");
  if (!text) {
    cmd_buf_add(b, "null", 4);
    return;
  }
  cmd_buf_add(b, "[", 1);
  for (size_t i = 0; i < len; i++) cmd_buf_printf(b, "%s%u", i ? "," : "", (unsigned)(unsigned char)text[i]);
  cmd_buf_add(b, "]", 1);
}

void gw_chat_logprobs_add(gw_logprobs *l, const trireme_choice *c) {
  cmd_buf *b = &l->tokens;
  for (size_t i = 0; c->logprobs && i < c->num_ids; i++) {
    const trireme_logprobs *p = c->logprobs[i];
    open_chat_token(b, p->text, p->text_len, c->ids[i], p->logprob);
    cmd_json_open(b, "top_logprobs", '[');
    for (size_t k = 0; k < p->num_top; k++) {
      const trireme_string *top = p->top_texts ? &p->top_texts[k] : NULL;
      open_chat_token(b, top ? top->s : NULL, top ? top->len : 0, p->top_ids[k], p->top_logprobs[k]);
      cmd_buf_add(b, "}", 1);
    }
    cmd_buf_add(b, "]}", 2);
  }
}

void gw_chat_logprobs_write(gw_logprobs *l, cmd_buf *out) {
  cmd_buf_add(out, "{", 1);
  write_array(out, "content", &l->tokens);
  cmd_buf_add(out, "}", 1);
}

void gw_logprobs_free(gw_logprobs *l) {
  cmd_buf_free(&l->tokens);
  cmd_buf_free(&l->values);
  cmd_buf_free(&l->tops);
  cmd_buf_free(&l->offsets);
}
