/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the body of a /v1/chat/completions: refused with a reason, or a request within the limits of the
 * library's struct, whose messages become a prompt with spans that lie in it. The body is then taken for an answer: its
 * parts do not depend on the pieces in which it comes. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/gateway.h"
#include "client/openai/chat_request.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/fuzz/mutate.h"

static void need(bool ok) {
  if (!ok) abort();
}

/* ---- requests ---- */

static void check(const oai_chat_request *q, const chat_template *t) {
  tri_jinja_output out = {0};
  tri_error err = {0};
  oai_prompt_options o = oai_chat_prompt(&q->chat, 100);
  size_t from = 0;
  need(q->c.r.n >= 1 && q->c.r.n <= OAI_MAX_CHOICES && q->c.r.num_stop <= OAI_MAX_STOP);
  need(q->c.r.logprobs >= -1 && q->c.r.logprobs <= 20 && q->c.r.max_tokens != TRIREME_UNSET);
  tri_status st = chat_template_render(t, &o.chat, &out, &err);
  need(st == TRI_OK || (err.message[0] && err.field[0]));
  for (size_t i = 0; st == TRI_OK && i < out.num_spans; i++) {
    need(out.spans[i].from >= from && out.spans[i].to > out.spans[i].from && out.spans[i].to <= out.text.len);
    from = out.spans[i].to;
  }
  tri_jinja_output_free(&out);
}

static void parse(const uint8_t *data, size_t size, const chat_template *t) {
  tri_buf body = {.data = (char *)data, .len = size};
  oai_ignored ignored = {.allowed = true};
  oai_chat_request q;
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  if (gw_parse_body(&body, &doc, &err) == TRI_OK) {
    if (oai_chat_parse(tri_json_root(doc), &(oai_model){.calls = (chat_calls)(size % 2)}, NULL, &q, &ignored, &err) ==
        TRI_OK)
      check(&q, t);
    else
      need(err.status != TRI_OK && err.message[0]);
    oai_chat_request_free(&q);
  }
  tri_json_free(doc);
}

/* ---- answers ---- */

static bool is_tool(void *ctx, const char *name, size_t len) {
  (void)ctx;
  return len == 1 && *name == 'f';
}

/* Parts of the same kind are one, but for calls. */
typedef struct given {
  tri_buf text, arguments; /* those of the last call */
  chat_part last;
} given;

/* Arguments are an object, in which jansson knows no keys with a NUL. */
static void check_arguments(given *g) {
  const char *s = g->arguments.data;
  tri_json_doc *doc = NULL;
  if (!g->arguments.len) return;
  bool taken = tri_json_parse_python(s, g->arguments.len, &doc, NULL) == TRI_OK;
  need(taken || memmem(s, g->arguments.len, "\\u0000", 6));
  need(!taken || tri_json_kind_of(tri_json_root(doc)) == TRI_JSON_OBJECT);
  tri_json_free(doc);
  g->arguments.len = 0;
}

static void give(void *ctx, chat_part part, const char *s, size_t len) {
  given *g = ctx;
  if (part == CHAT_PART_ARGUMENTS)
    need(tri_buf_append(&g->arguments, s, len) == TRI_OK);
  else
    check_arguments(g);
  char kind = (char)('0' + part);
  if (part != g->last || part == CHAT_PART_CALL) need(tri_buf_append(&g->text, &kind, 1) == TRI_OK);
  g->last = part;
  need(tri_buf_append(&g->text, s, len) == TRI_OK);
}

static void take_apart(const uint8_t *data, size_t size, size_t piece, given *g) {
  chat_answer_config config = {.calls = (chat_calls)(size % CHAT_NUM_CALLS),
                               .reasoning = size % 3 > 0,
                               .in_reasoning = size % 3 > 1,
                               .channels = size % CHAT_NUM_CALLS == CHAT_CALLS_CHANNELS,
                               .in_text = size % 3 > 1,
                               .is_tool = is_tool,
                               .give = give,
                               .ctx = g};
  chat_answer *a = NULL;
  g->text.len = g->arguments.len = 0;
  g->last = CHAT_PART_ARGUMENTS;
  need(chat_answer_create(&config, &a) == TRI_OK);
  for (size_t i = 0, n; i < size; i += n) {
    n = size - i < piece ? size - i : piece;
    need(chat_answer_push(a, (const char *)data + i, n) == TRI_OK);
  }
  need(chat_answer_finish(a, size % 2) == TRI_OK);
  check_arguments(g);
  chat_answer_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char source[] =
      "{% for m in messages %}<s>{{ m.role }}{{ m.content }}{{ m.tool_calls | tojson }}{% endfor "
      "%}{{ tools | tojson }}{{ documents }}{{ reasoning_effort }}{{ x }}";
  static chat_template *t;
  static given whole, pieces;
  tri_log_setup(TRI_LOG_ERROR, "-");
  if (!t) need(chat_template_make(source, sizeof source - 1, &t, NULL) == TRI_OK);
  parse(data, size, t);
  take_apart(data, size, size + 1, &whole);
  for (size_t piece = 1; piece < 4; piece += 2) {
    take_apart(data, size, piece, &pieces);
    need(whole.text.len == pieces.text.len);
    need(!whole.text.len || !memcmp(whole.text.data, pieces.text.data, whole.text.len));
  }
  return 0;
}
