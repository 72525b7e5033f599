/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a request that generates text: one for each prompt, whose choices are numbered on.
 *
 * A stream: submitted -> (all jobs of the first turn accepted) head sent -> events -> [DONE]. Before the head a failure
 * is an answer with a status of its own; after it, an event with an error and [DONE]. Where a reader is slow, events
 * are not written but their parts collect in the choices (text, logprobs, ids), and one event has them all once the
 * connection has drained; GW_MAX_KEPT_STREAM bounds that.
 * An answer at once collects in the same buffers, and respond writes it after the last job.
 *
 * `kept` is the sum of bytes_of over all choices: whatever changes a choice takes its bytes off first and adds them
 * after. Several functions may end the exchange, which frees `s`: they return false then, and the caller must not touch
 * either of the two again. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/gateway/completion.h"
#include "client/gateway/tasks.h"
#include "client/openai/answer_format.h"
#include "base/mem.h"

enum { MOST_CHOICES = 1 << 14 };

/* The memory that a request and its choices take before anything is answered. */
static size_t bytes_to_keep(const gw_completion *s) {
  const oai_completion_request *q = s->q;
  const trireme_request *r = &q->r;
  size_t ids = r->num_stop_token_ids + r->num_allowed_token_ids;
  size_t of_prompt = sizeof(gw_job) + sizeof *s->counts + sizeof *s->prompt_ids;
  return q->texts.cap + q->schema.cap + oai_inputs_bytes(&q->prompt) + ids * sizeof *q->stop_ids +
         r->num_logit_bias * sizeof *q->bias + q->prompt.num * of_prompt + s->num_choices * sizeof *s->choices;
}

tri_status gw_completion_open(gw_completion *s, gw_task *t, size_t more, tri_error *err) {
  s->n = (size_t)s->q->r.n;
  s->num_choices = s->n * s->q->prompt.num;
  if (s->num_choices > MOST_CHOICES)
    return tri_fail(err, TRI_OUT_OF_RANGE, "n", "%zu prompts with n %zu are %zu choices; allowed are %d",
                    s->q->prompt.num, s->n, s->num_choices, MOST_CHOICES);
  s->created = time(NULL);
  TRI_CHECK(oai_completion_keep(s->q, err));
  TRI_CHECK(gw_task_keep(t, more + bytes_to_keep(s), err));
  s->choices = tri_calloc(s->num_choices, sizeof *s->choices);
  s->counts = tri_calloc(s->q->prompt.num, sizeof *s->counts);
  if (s->q->return_token_ids) s->prompt_ids = tri_calloc(s->q->prompt.num, sizeof *s->prompt_ids);
  bool ok = s->choices && s->counts && (s->prompt_ids || !s->q->return_token_ids);
  for (size_t i = 0; ok && i < s->num_choices; i++) s->choices[i].stop_string = s->choices[i].stop_token_id = -1;
  return ok ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "", "out of memory");
}

void gw_completion_close(gw_completion *s) {
  for (size_t i = 0; s->choices && i < s->num_choices; i++) {
    tri_buf_free(&s->choices[i].text);
    oai_logprobs_free(&s->choices[i].logprobs);
    tri_buf_free(&s->choices[i].prompt_logprobs);
    tri_buf_free(&s->choices[i].token_ids);
  }
  for (size_t i = 0; s->prompt_ids && i < s->q->prompt.num; i++) tri_buf_free(&s->prompt_ids[i]);
  tri_free(s->prompt_ids);
  tri_free(s->choices);
  tri_free(s->counts);
  tri_buf_free(&s->out);
  tri_buf_free(&s->prefix);
}

/* ---- words that both forms of the answer have ---- */

static void write_head(const gw_exchange *x, tri_buf *b) {
  const gw_completion *s = x->state;
  const char *model = s->q->r.model ? s->q->r.model : x->g->name;
  tri_json_open(b, NULL, '{');
  tri_json_put_word(b, "id", s->id);
  tri_json_put_word(b, "object", s->q->stream ? s->form->chunk_object : s->form->object);
  tri_json_put_uint(b, "created", (uint64_t)s->created);
  tri_json_put_word(b, "model", model);
  tri_json_open(b, "choices", '[');
}

static void write_usage(tri_buf *b, const gw_completion *s) {
  tri_json_open(b, "usage", '{');
  tri_json_put_uint(b, "prompt_tokens", s->prompt_tokens);
  tri_json_put_uint(b, "completion_tokens", s->completion_tokens);
  tri_json_put_uint(b, "total_tokens", s->prompt_tokens + s->completion_tokens);
  tri_json_open(b, "prompt_tokens_details", '{');
  tri_json_put_uint(b, "cached_tokens", s->cached_tokens);
  tri_text_add(b, "}}", 2);
}

oai_tail gw_tail_of(gw_completion *s, size_t choice) {
  gw_choice *c = &s->choices[choice];
  bool named = c->stop_string >= 0 && (size_t)c->stop_string < s->q->r.num_stop;
  return (oai_tail){.finish_reason = c->finish_reason,
                    .stop_string = named ? &s->q->r.stop[c->stop_string] : NULL,
                    .stop_token_id = c->stop_token_id,
                    .token_ids = s->q->return_token_ids ? &c->token_ids : NULL};
}

/* ---- a stream ---- */

void gw_event_begin(gw_completion *s) {
  tri_text_add(&s->out, "data: ", 6);
  tri_text_add(&s->out, s->prefix.data, s->prefix.len);
}

static void end_event(gw_completion *s, bool usage) {
  tri_text_add(&s->out, "]", 1);
  if (s->form->prompt_beside && !s->prompt_told) gw_write_prompt_ids(s, 0, &s->out);
  s->prompt_told = true;
  if (usage) write_usage(&s->out, s);
  tri_text_add(&s->out, "}\n\n", 3);
}

void gw_event_end(gw_completion *s) { end_event(s, s->q->continuous_usage); }

/* Returns false where the client was too slow, or an event had no memory: the exchange is over then. */
static bool send_events(gw_exchange *x) {
  gw_completion *s = x->state;
  bool sent = true;
  if (s->begun && s->out.failed) {
    http_stream_reset(x->conn);
    sent = false;
  } else if (s->begun && s->out.len) {
    sent = http_stream_send(x->conn, s->out.data, s->out.len);
  }
  if (s->begun) s->out.len = 0;
  if (sent) return true;
  x->g->counts.gone[HTTP_GONE_SLOW]++;
  x->conn = NULL;
  gw_exchange_close(x);
  return false;
}

static bool begin_stream(gw_exchange *x) {
  gw_completion *s = x->state;
  char fields[GW_ANSWER_LINES];
  gw_answer_lines(x->g, x->conn, &s->ignored, fields);
  if (!http_stream_begin(x->conn, fields)) {
    x->g->counts.gone[HTTP_GONE_CLOSED]++;
    x->conn = NULL;
    gw_exchange_close(x);
    return false;
  }
  s->begun = true;
  tri_buf early = s->out; /* of jobs that did not wait for the others */
  s->out = (tri_buf){0};
  if (s->form->begin) s->form->begin(s);
  tri_text_add(&s->out, early.data ? early.data : "", early.len);
  s->out.failed = s->out.failed || early.failed;
  tri_buf_free(&early);
  return send_events(x);
}

/* The usage of a whole stream is an event of its own, whose choices are empty, as OpenAI's clients expect. */
static void end_stream(gw_exchange *x) {
  gw_completion *s = x->state;
  if (s->q->include_usage) {
    gw_event_begin(s);
    end_event(s, true);
  }
  tri_text_printf(&s->out, "data: [DONE]\n\n");
  if (!send_events(x)) return;
  http_stream_end(x->conn);
  gw_exchange_close(x);
}

/* Ends it with an error, before or after the head. */
static void fail(gw_exchange *x, const oai_error *e) {
  gw_completion *s = x->state;
  if (!s->begun) return gw_exchange_fail(x, e);
  tri_text_add(&s->out, "data: ", 6);
  oai_error_json(&s->out, e);
  tri_text_printf(&s->out, "\n\ndata: [DONE]\n\n");
  if (!send_events(x)) return;
  http_stream_end(x->conn);
  gw_exchange_close(x);
}

void gw_write_prompt_ids(gw_completion *s, size_t prompt, tri_buf *b) {
  tri_buf *ids = s->prompt_ids ? &s->prompt_ids[prompt] : NULL;
  if (!ids) return;
  tri_json_open(b, "prompt_token_ids", '[');
  tri_text_add(b, ids->data ? ids->data : "", ids->len);
  tri_text_add(b, "]", 1);
  b->failed = b->failed || ids->failed;
}

/* ---- an answer at once ---- */

static void respond(gw_exchange *x) {
  gw_completion *s = x->state;
  char fields[GW_ANSWER_LINES];
  tri_buf b = {0};
  write_head(x, &b);
  for (size_t i = 0; i < s->num_choices; i++) {
    s->form->whole(s, i, &b);
    b.failed = b.failed || s->choices[i].text.failed || s->choices[i].prompt_logprobs.failed;
  }
  tri_text_add(&b, "]", 1);
  if (s->form->prompt_beside) gw_write_prompt_ids(s, 0, &b);
  write_usage(&b, s);
  tri_text_add(&b, "}", 1);
  gw_answer_lines(x->g, x->conn, &s->ignored, fields);
  gw_respond_json(x->conn, &b, fields);
  gw_exchange_close(x);
}

/* ---- events ---- */

/* All that a choice's buffers hold and that no event has taken yet. */
static size_t bytes_of(const gw_choice *c) {
  const oai_logprobs *l = &c->logprobs;
  return c->text.len + l->tokens.len + l->values.len + l->tops.len + l->offsets.len + c->prompt_logprobs.len +
         c->token_ids.len;
}

static bool is_behind(const gw_exchange *x) {
  const gw_completion *s = x->state;
  return s->begun && http_stream_behind(x->conn);
}

/* Writes the event of what waits of a choice. */
static void tell_choice(gw_completion *s, size_t index) {
  gw_choice *c = &s->choices[index];
  if (!c->text.len && !c->logprobs.tokens.len && !c->token_ids.len) return;
  tri_buf text = c->text;
  s->kept -= bytes_of(c);
  c->text = (tri_buf){0};
  s->form->text(s, index, text.data ? text.data : "", text.len);
  s->out.failed = s->out.failed || text.failed;
  s->kept += bytes_of(c); /* logprobs that wait for text that is certain */
  c->text = text;
  c->text.len = 0;
}

void gw_completion_drained(gw_exchange *x) {
  gw_completion *s = x->state;
  if (!s->q->stream || !s->begun || !s->kept) return;
  for (size_t i = 0; i < s->num_choices; i++) tell_choice(s, i);
  send_events(x);
}

/* Returns whether more waits of an answer than may; then the exchange is over. A stream whose head is sent ends with a
 * reset, as its reader does not read an error either. */
static bool is_too_much(gw_exchange *x) {
  gw_completion *s = x->state;
  if (s->q->stream && s->kept <= GW_MAX_KEPT_STREAM) return false;
  if (!s->q->stream && s->kept <= GW_MAX_KEPT) return false;
  if (s->begun) {
    x->g->counts.gone[HTTP_GONE_SLOW]++;
    http_stream_reset(x->conn);
    x->conn = NULL;
    gw_exchange_close(x);
    return true;
  }
  fail(x, &(oai_error){400, "too_large", "",
                       "the answer has more than 64 MiB: ask for a stream, or for fewer prompts, choices, tokens or "
                       "logprobs"});
  return true;
}

/* The head goes out when none of the jobs under way can be refused any more, so that refusals have a status of their
 * own. Those of later turns come after it. Returns false where the exchange is over. */
static bool begin_if_due(gw_exchange *x) {
  const gw_completion *s = x->state;
  if (!s->q->stream || s->begun || s->num_accepted < x->num_jobs - x->num_again) return true;
  return begin_stream(x);
}

static void on_accepted(gw_exchange *x, const gw_job *j, const trireme_event *e) {
  gw_completion *s = x->state;
  if (s->prompt_ids) oai_add_ids(&s->prompt_ids[j->index], e->accepted.token_ids, e->accepted.num_token_ids);
  s->prompt_tokens += e->accepted.prompt_tokens;
  if (!s->prefix.len) write_head(x, &s->prefix);
  s->num_accepted++;
  begin_if_due(x);
}

/* Every choice has those of the prompt. */
static void add_prompt(gw_completion *s, const gw_job *j, const trireme_choice *c, bool behind) {
  for (size_t i = 0; i < s->n; i++) {
    size_t index = j->index * s->n + i;
    gw_choice *of = &s->choices[index];
    s->kept -= bytes_of(of);
    if (s->q->prompt_logprobs >= 0) oai_prompt_logprobs_add(&of->prompt_logprobs, c);
    if (s->q->r.echo) s->form->add_logprobs(&of->logprobs, c);
    s->kept += bytes_of(of);
    if (s->q->stream && !behind) tell_choice(s, index);
  }
}

static void on_tokens(gw_exchange *x, const gw_job *j, const trireme_event *e) {
  gw_completion *s = x->state;
  bool behind = is_behind(x);
  for (size_t i = 0; i < e->tokens.num; i++) {
    const trireme_choice *c = e->tokens.choices[i];
    size_t index = j->index * s->n + c->index;
    if (c->of_prompt) add_prompt(s, j, c, behind);
    if (c->of_prompt || c->index >= s->n) continue;
    s->completion_tokens += c->num_ids;
    gw_choice *of = &s->choices[index];
    s->kept -= bytes_of(of);
    s->form->add_logprobs(&of->logprobs, c);
    if (s->q->return_token_ids) oai_add_ids(&of->token_ids, c->ids, c->num_ids);
    tri_text_add(&of->text, c->text ? c->text : "", c->text_len);
    s->kept += bytes_of(of);
    if (s->q->stream && !behind) tell_choice(s, index);
  }
  if (!is_too_much(x)) send_events(x);
}

/* The end of a job: it ends its choices, makes room for the next job in line, and after the last one the answer ends.
 * The counts of the jobs replace the sum over events then, which serves the usage of a running stream. */
static void on_done(gw_exchange *x, const gw_job *j, const trireme_event *e) {
  gw_completion *s = x->state;
  uint64_t tokens = 0;
  for (size_t i = 0; i < e->done.num && i < s->n; i++) {
    const trireme_finished *f = e->done.choices[i];
    size_t index = j->index * s->n + i;
    gw_choice *c = &s->choices[index];
    if (!strcmp(f->finish_reason, "abort") || !strcmp(f->finish_reason, "error")) {
      bool late = e->done.timed_out;
      return fail(x, &(oai_error){late ? 504 : 503, late ? "timeout" : "aborted", "",
                                  late ? "deadline_ms has passed" : "the request was aborted"});
    }
    if (s->q->stream) tell_choice(s, index);
    snprintf(c->finish_reason, sizeof c->finish_reason, "%s", f->finish_reason);
    c->stop_string = f->stop_string;
    c->stop_token_id = f->stop_token_id;
    tokens += f->completion_tokens;
    if (s->q->stream) {
      s->form->finish(s, index);
    } else if (s->q->r.no_stream) {
      tri_text_add(&c->text, f->text, f->text_len);
      s->kept += f->text_len;
    }
  }
  if (is_too_much(x)) return;
  s->counts[j->index] = tokens;
  s->cached_tokens += e->done.cached_tokens;
  if (!begin_if_due(x) || !gw_exchange_go_on(x)) return;
  if (gw_exchange_has_more(x)) {
    send_events(x);
    return;
  }
  s->completion_tokens = 0;
  for (unsigned i = 0; i < x->num_jobs; i++) s->completion_tokens += s->counts[i];
  if (s->q->stream)
    end_stream(x);
  else
    respond(x);
}

void gw_completion_event(gw_exchange *x, gw_job *j, const trireme_event *e) {
  const gw_completion *s = x->state;
  char param[OAI_PARAM_BYTES];
  oai_error error;
  switch (e->kind) {
  case TRIREME_EVENT_ACCEPTED: on_accepted(x, j, e); break;
  case TRIREME_EVENT_TOKENS: on_tokens(x, j, e); break;
  case TRIREME_EVENT_DONE: on_done(x, j, e); break;
  case TRIREME_EVENT_ERROR:
    error = gw_error_of(&e->error, s->form->prompt_field);
    error.param = oai_answer_format_param(s->q, error.param, param);
    fail(x, &error);
    break;
  default: fail(x, &(oai_error){500, "internal", "", "the coordinator answered something else"});
  }
}

/* One trireme_request serves all prompts in turn; trireme_submit copies it. Only the first job has the answer's id. */
trireme_result gw_completion_send(gw_exchange *x, unsigned index, uint64_t *id, trireme_error *error) {
  gw_completion *s = x->state;
  trireme_request *r = &s->q->r;
  const oai_input *in = &s->q->prompt.items[index];
  r->prompt = in->text;
  r->prompt_len = in->len;
  r->token_ids = in->ids;
  r->num_token_ids = in->num_ids;
  r->request_id = index ? NULL : s->id + strlen(s->form->id_prefix);
  return trireme_submit(x->g->client, r, id, error);
}

/* The answer's id is that of its first job, so that an error has it, too. */
void gw_completion_submit(gw_exchange *x) {
  gw_completion *s = x->state;
  trireme_request *r = &s->q->r;
  char first[GW_HEX_ID];
  if (!gw_id_draw(first)) return gw_exchange_fail(x, &(oai_error){503, "internal", "", "no random numbers"});
  if (!gw_exchange_make_room(x, s->q->prompt.num))
    return gw_exchange_fail(x, &(oai_error){503, "no_memory", "", "out of memory"});
  snprintf(s->id, sizeof s->id, "%s%s", s->form->id_prefix, first);
  memcpy(x->id, s->id, sizeof x->id);
  r->caller = x->caller;
  r->external_id = x->external_id[0] ? x->external_id : NULL;
  gw_exchange_begin(x, s->q->prompt.num);
}

void gw_completion_ready(gw_task *t) {
  if (gw_exchange_has_coordinator(t->x)) gw_completion_submit(t->x);
}
