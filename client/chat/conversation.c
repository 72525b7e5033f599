/* SPDX-License-Identifier: Apache-2.0 */
/* Messages are kept as one text of JSON without its end: to add one appends, to forget cuts, and a prompt closes the
 * array for as long as it is parsed. */
#include "client/chat/conversation.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json/json_writer.h"

tri_status conversation_open(const char *model_dir, const char *template_file, conversation *c, tri_error *err) {
  *c = (conversation){0};
  TRI_CHECK(chat_template_load(model_dir, template_file, &c->template, err));
  TRI_CHECK(tri_tokenizer_load_folder(model_dir, &c->tokenizer, err));
  TRI_CHECK(tri_tokenizer_scratch_create(c->tokenizer, &c->scratch));
  conversation_begin(c, NULL);
  return TRI_OK;
}

void conversation_close(conversation *c) {
  chat_template_free(c->template);
  tri_tokenizer_scratch_destroy(c->scratch);
  tri_tokenizer_destroy(c->tokenizer);
  tri_buf_free(&c->messages);
  tri_jinja_output_free(&c->prompt);
  *c = (conversation){0};
}

void conversation_begin(conversation *c, const char *system) {
  c->messages.len = 0;
  tri_text_add(&c->messages, "[", 1);
  if (system) conversation_add(c, "system", system, strlen(system));
  c->system_len = c->messages.len;
}

void conversation_add(conversation *c, const char *role, const char *text, size_t len) {
  tri_json_open(&c->messages, NULL, '{');
  tri_json_put_word(&c->messages, "role", role);
  tri_json_put_text(&c->messages, "content", text, len);
  tri_text_add(&c->messages, "}", 1);
}

void conversation_forget(conversation *c) { c->messages.len = c->system_len; }

size_t conversation_mark(const conversation *c) { return c->messages.len; }

void conversation_back_to(conversation *c, size_t mark) { c->messages.len = mark; }

static tri_status render(conversation *c, const tri_json *messages, tri_error *err) {
  time_t now = time(NULL);
  struct tm local;
  chat_request r = {.messages = messages,
                    .add_generation_prompt = true,
                    .now_s = localtime_r(&now, &local) ? now + local.tm_gmtoff : now};
  return chat_template_render(c->template, &r, &c->prompt, err);
}

tri_status conversation_prompt(conversation *c, const uint32_t **ids, size_t *count, tri_error *err) {
  tri_json_doc *doc = NULL;
  tri_status st;
  size_t mark = conversation_mark(c);
  tri_text_add(&c->messages, "]", 1);
  if (c->messages.failed) return TRI_NO_MEMORY;
  TRI_TRY(tri_json_parse(c->messages.data, c->messages.len, &doc, err));
  TRI_TRY(render(c, tri_json_root(doc), err));
  TRI_TRY(chat_prompt_encode(c->tokenizer, c->scratch, &c->prompt, ids, count));
cleanup:
  conversation_back_to(c, mark);
  tri_json_free(doc);
  return st;
}
