/* Logprobs of /v1/completions, four arrays: tokens, token_logprobs, top_logprobs, text_offset; and of chat, one of
 * objects: token, logprob, bytes, top_logprobs. */
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

void gw_logprobs_add(gw_logprobs *l, const trireme_choice *c) {
  for (size_t i = 0; c->logprobs && i < c->num_ids; i++) {
    const trireme_logprobs *p = c->logprobs[i];
    separate(&l->tokens);
    separate(&l->values);
    separate(&l->tops);
    separate(&l->offsets);
    add_token(&l->tokens, p->text, p->text_len, c->ids[i]);
    add_value(&l->values, p->logprob);
    add_top(&l->tops, p, c->ids[i]);
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
