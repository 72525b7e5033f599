/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/completions. The prompt is sent as it is, as a text or as ids: the coordinator tokenizes it, so this
 * endpoint needs no model's folder. */
#include <string.h>

#include "client/gateway/completion.h"
#include "client/gateway/tasks.h"
#include "base/mem.h"

typedef struct text_completion {
  gw_completion base; /* the exchange's state */
  oai_completion_request q;
  gw_task task;
} text_completion;

static void write_prompt_logprobs(tri_buf *b, const gw_choice *c) {
  const tri_buf *p = &c->prompt_logprobs;
  tri_json_open(b, "prompt_logprobs", '[');
  tri_text_add(b, p->data ? p->data : "", p->len);
  tri_text_add(b, "]", 1);
}

/* Writes an element of `choices`, of an event as of an answer at once; a stream has the prompt's ids in the first event
 * of each choice. */
static void write_choice(gw_completion *s, tri_buf *b, size_t index, const char *text, size_t len) {
  gw_choice *c = &s->choices[index];
  tri_json_open(b, NULL, '{');
  tri_json_put_uint(b, "index", index);
  tri_json_put_text(b, "text", text ? text : "", len);
  tri_json_add_key(b, "logprobs");
  if (s->q->r.logprobs >= 0 && (c->logprobs.tokens.len || !s->q->stream))
    oai_logprobs_write(&c->logprobs, b);
  else
    tri_text_add(b, "null", 4);
  if (s->q->prompt_logprobs >= 0) write_prompt_logprobs(b, c);
  oai_tail tail = gw_tail_of(s, index);
  oai_write_tail(b, &tail);
  if (!s->q->stream || !c->begun) gw_write_prompt_ids(s, index / s->n, b);
  c->begun = true;
  tri_text_add(b, "}", 1);
}

static void add_text(gw_completion *s, size_t index, const char *text, size_t len) {
  gw_event_begin(s);
  write_choice(s, &s->out, index, text, len);
  gw_event_end(s);
}

static void finish(gw_completion *s, size_t index) { add_text(s, index, NULL, 0); }

static void whole(gw_completion *s, size_t index, tri_buf *out) {
  write_choice(s, out, index, s->choices[index].text.data, s->choices[index].text.len);
}

static text_completion *of_task(gw_task *t) {
  return (text_completion *)(void *)((char *)t - offsetof(text_completion, task));
}

static void free_completion(gw_task *task) {
  text_completion *t = of_task(task);
  gw_completion_close(&t->base);
  oai_completion_request_free(&t->q);
  tri_buf_free(&task->body);
  tri_free(t);
}

static void leave(gw_exchange *x) {
  text_completion *t = x->state;
  gw_task_leave(&t->task);
}

static const gw_completion_form form = {.id_prefix = "cmpl-",
                                        .object = "text_completion",
                                        .chunk_object = "text_completion",
                                        .prompt_field = "prompt",
                                        .add_logprobs = oai_logprobs_add,
                                        .text = add_text,
                                        .finish = finish,
                                        .whole = whole};

static tri_status run(gw_task *task, tri_tokenizer_scratch *scratch, tri_error *err) {
  text_completion *t = of_task(task);
  tri_json_doc *doc = NULL;
  tri_status st;
  (void)scratch;
  TRI_TRY(gw_parse_body(&task->body, &doc, err));
  TRI_TRY(oai_completion_parse(tri_json_root(doc), &t->q, &t->base.ignored, err));
  TRI_TRY(gw_completion_open(&t->base, task, sizeof *t, err));
cleanup:
  tri_json_free(doc);
  return st;
}

void gw_completions(gateway *g, http_conn *c) {
  static const gw_kind kind = {gw_completion_event, leave, gw_completion_drained, gw_completion_send};
  text_completion *t = tri_calloc(1, sizeof *t);
  if (!t) return gw_respond_error(c, &(oai_error){503, "no_memory", "", "out of memory"});
  t->base.form = &form;
  t->base.q = &t->q;
  t->base.ignored.allowed = !g->o.http.reject_unknown_fields;
  t->task = (gw_task){.plain = true, .run = run, .ready = gw_completion_ready, .free = free_completion};
  gw_task_start(g, c, &kind, t, &t->task);
}
