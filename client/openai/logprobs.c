/* SPDX-License-Identifier: Apache-2.0 */
/* Logprobs of /v1/completions, four arrays: tokens, token_logprobs, top_logprobs, text_offset; of its prompts, one of
 * objects by token id; and of chat, one of objects: token, logprob, bytes, top_logprobs. */
#include "client/openai/logprobs.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_writer.h"

/* A token that is no text by itself is named by its bytes, as OpenAI's API does: different ones stay different. */
static void add_token(tri_buf *b, const char *s, size_t len, uint32_t id) {
  tri_buf text = {0};
  if (!s) {
    tri_text_printf(&text, "token_id:%u", id);
  } else if (tri_utf8_prefix(s, len) == len) {
    tri_json_add_string(b, s, len);
    return;
  } else {
    tri_text_printf(&text, "bytes:");
    for (size_t i = 0; i < len; i++) tri_text_printf(&text, "\\x%02x", (unsigned char)s[i]);
  }
  b->failed = b->failed || text.failed;
  if (text.data) tri_json_add_string(b, text.data, text.len);
  tri_buf_free(&text);
}

/* JSON has no infinity; what cannot be drawn has this in OpenAI's API. */
static void add_value(tri_buf *b, float x) { tri_json_add_float(b, x, "-9999.0"); }

static void separate(tri_buf *b) {
  if (b->len) tri_text_add(b, ",", 1);
}

/* The chosen token is among them in any case. */
static void add_top(tri_buf *b, const trireme_logprobs *p, uint32_t chosen) {
  bool seen = false;
  tri_text_add(b, "{", 1);
  for (size_t i = 0; i < p->num_top; i++) {
    seen = seen || p->top_ids[i] == chosen;
    if (i) tri_text_add(b, ",", 1);
    add_token(b, p->top_texts ? p->top_texts[i].s : NULL, p->top_texts ? p->top_texts[i].len : 0, p->top_ids[i]);
    tri_text_add(b, ":", 1);
    add_value(b, p->top_logprobs[i]);
  }
  if (!seen) {
    if (p->num_top) tri_text_add(b, ",", 1);
    add_token(b, p->text, p->text_len, chosen);
    tri_text_add(b, ":", 1);
    add_value(b, p->logprob);
  }
  tri_text_add(b, "}", 1);
}

/* Nothing is before a prompt's first token that could tell how probable it is. */
static bool has_none(const trireme_choice *c, size_t i) { return c->of_prompt && c->offset + i == 0; }

/* Offsets count characters, not bytes: those bytes that begin one in UTF-8. */
void oai_logprobs_add(oai_logprobs *l, const trireme_choice *c) {
  for (size_t i = 0; c->logprobs && i < c->num_ids; i++) {
    const trireme_logprobs *p = c->logprobs[i];
    separate(&l->tokens);
    separate(&l->values);
    separate(&l->tops);
    separate(&l->offsets);
    add_token(&l->tokens, p->text, p->text_len, c->ids[i]);
    if (has_none(c, i)) {
      tri_text_add(&l->values, "null", 4);
      tri_text_add(&l->tops, "null", 4);
    } else {
      add_value(&l->values, p->logprob);
      add_top(&l->tops, p, c->ids[i]);
    }
    tri_text_printf(&l->offsets, "%llu", (unsigned long long)l->characters);
    for (size_t k = 0; k < p->text_len; k++) l->characters += (p->text[k] & 0xc0) != 0x80;
  }
}

/* Empties the elements: what an event of a stream has brought is not written again by the next one. */
static void write_array(tri_buf *out, const char *key, tri_buf *elements) {
  tri_json_open(out, key, '[');
  tri_text_add(out, elements->data ? elements->data : "", elements->len);
  tri_text_add(out, "]", 1);
  out->failed = out->failed || elements->failed;
  elements->len = 0;
}

void oai_logprobs_write(oai_logprobs *l, tri_buf *out) {
  tri_text_add(out, "{", 1);
  write_array(out, "tokens", &l->tokens);
  write_array(out, "token_logprobs", &l->values);
  write_array(out, "top_logprobs", &l->tops);
  write_array(out, "text_offset", &l->offsets);
  tri_text_add(out, "}", 1);
}

/* ---- prompts, as vLLM has them ---- */

/* A member by the token's id. rank: among the most probable ones; 0: not known. */
static void add_prompt_token(tri_buf *b, uint32_t id, float logprob, size_t rank, const trireme_string *text) {
  char key[16];
  snprintf(key, sizeof key, "%u", id);
  tri_json_open(b, key, '{');
  tri_json_add_key(b, "logprob");
  add_value(b, logprob);
  if (rank) tri_json_put_uint(b, "rank", rank);
  tri_json_add_key(b, "decoded_token");
  if (text)
    add_token(b, text->s, text->len, id);
  else
    tri_text_add(b, "null", 4);
  tri_text_add(b, "}", 1);
}

/* The token itself comes first. */
static void add_prompt_position(tri_buf *b, const trireme_logprobs *p, uint32_t id) {
  trireme_string own = {p->text, p->text_len};
  size_t rank = 0;
  for (size_t k = 0; k < p->num_top && !rank; k++)
    if (p->top_ids[k] == id) rank = k + 1;
  tri_json_open(b, NULL, '{');
  add_prompt_token(b, id, p->logprob, rank, p->text ? &own : NULL);
  for (size_t k = 0; k < p->num_top; k++)
    if (p->top_ids[k] != id)
      add_prompt_token(b, p->top_ids[k], p->top_logprobs[k], k + 1, p->top_texts ? &p->top_texts[k] : NULL);
  tri_text_add(b, "}", 1);
}

void oai_prompt_logprobs_add(tri_buf *b, const trireme_choice *c) {
  for (size_t i = 0; c->logprobs && i < c->num_ids; i++) {
    if (has_none(c, i))
      tri_text_add(b, "null", 4);
    else
      add_prompt_position(b, c->logprobs[i], c->ids[i]);
  }
}

void oai_add_ids(tri_buf *b, const uint32_t *ids, size_t num) {
  for (size_t i = 0; i < num; i++) tri_text_printf(b, b->len ? ",%u" : "%u", ids[i]);
}

static void write_stop_reason(tri_buf *b, const oai_tail *t) {
  tri_json_add_key(b, "stop_reason");
  if (t->stop_string)
    tri_json_add_string(b, t->stop_string->s, t->stop_string->len);
  else if (t->stop_token_id >= 0)
    tri_text_printf(b, "%lld", (long long)t->stop_token_id);
  else
    tri_text_add(b, "null", 4);
}

void oai_write_tail(tri_buf *b, const oai_tail *t) {
  tri_json_add_key(b, "finish_reason");
  if (t->finish_reason[0]) {
    tri_json_add_string(b, t->finish_reason, strlen(t->finish_reason));
    write_stop_reason(b, t);
  } else {
    tri_text_add(b, "null", 4);
  }
  if (t->token_ids) write_array(b, "token_ids", t->token_ids);
}

/* ---- chat ---- */

/* Members of a token's object, without its end. */
static void open_chat_token(tri_buf *b, const char *text, size_t len, uint32_t id, float logprob) {
  tri_json_open(b, NULL, '{');
  tri_json_add_key(b, "token");
  add_token(b, text, len, id);
  tri_json_add_key(b, "logprob");
  add_value(b, logprob);
  tri_json_add_key(b, "bytes");
  if (!text) {
    tri_text_add(b, "null", 4);
    return;
  }
  tri_text_add(b, "[", 1);
  for (size_t i = 0; i < len; i++) tri_text_printf(b, "%s%u", i ? "," : "", (unsigned)(unsigned char)text[i]);
  tri_text_add(b, "]", 1);
}

/* Chat's objects are one array, for which the buffer of the tokens is used; tri_json_open separates them. */
void oai_chat_logprobs_add(oai_logprobs *l, const trireme_choice *c) {
  tri_buf *b = &l->tokens;
  for (size_t i = 0; c->logprobs && i < c->num_ids; i++) {
    const trireme_logprobs *p = c->logprobs[i];
    open_chat_token(b, p->text, p->text_len, c->ids[i], p->logprob);
    tri_json_open(b, "top_logprobs", '[');
    for (size_t k = 0; k < p->num_top; k++) {
      const trireme_string *top = p->top_texts ? &p->top_texts[k] : NULL;
      open_chat_token(b, top ? top->s : NULL, top ? top->len : 0, p->top_ids[k], p->top_logprobs[k]);
      tri_text_add(b, "}", 1);
    }
    tri_text_add(b, "]}", 2);
  }
}

void oai_chat_logprobs_write(oai_logprobs *l, tri_buf *out) {
  tri_text_add(out, "{", 1);
  write_array(out, "content", &l->tokens);
  tri_text_add(out, "}", 1);
}

void oai_logprobs_free(oai_logprobs *l) {
  tri_buf_free(&l->tokens);
  tri_buf_free(&l->values);
  tri_buf_free(&l->tops);
  tri_buf_free(&l->offsets);
}
