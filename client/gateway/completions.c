/* POST /v1/completions: one job for each prompt, whose choices are numbered on. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/gateway/completion.h"
#include "runtime/base/mem.h"

typedef struct choice {
  cmd_buf text; /* of an answer that is not streamed, with logprobs; otherwise `done` has it */
  gw_logprobs logprobs;
  char finish_reason[16];
} choice;

typedef struct completion {
  gw_completion_request q;
  tri_json_doc *doc;
  gw_ignored ignored;
  size_t n, num_choices; /* of each prompt, and of all */
  choice *choices;
  uint64_t *counts; /* of each prompt: completion tokens so far */
  unsigned num_accepted;
  uint64_t prompt_tokens, completion_tokens, cached_tokens;
  cmd_buf out, prefix; /* events that are not sent yet; what each begins with */
  bool begun;          /* the stream's head is sent */
  char id[48];
  int64_t created;
} completion;

static void free_completion(gw_exchange *x) {
  completion *s = x->state;
  for (size_t i = 0; s->choices && i < s->num_choices; i++) {
    cmd_buf_free(&s->choices[i].text);
    gw_logprobs_free(&s->choices[i].logprobs);
  }
  tri_free(s->choices);
  tri_free(s->counts);
  cmd_buf_free(&s->out);
  cmd_buf_free(&s->prefix);
  gw_completion_request_free(&s->q);
  tri_json_free(s->doc);
  tri_free(s);
}

/* ---- words that both forms of the answer have ---- */

static void write_head(const gw_exchange *x, cmd_buf *b) {
  const completion *s = x->state;
  const char *model = s->q.r.model ? s->q.r.model : x->g->model;
  cmd_json_open(b, NULL, '{');
  cmd_json_word(b, "id", s->id);
  cmd_json_word(b, "object", "text_completion");
  cmd_json_uint(b, "created", (uint64_t)s->created);
  cmd_json_word(b, "model", model);
  cmd_json_open(b, "choices", '[');
}

/* cached: of the prompt's tokens those that were there, as is known at the end. */
static void write_usage(cmd_buf *b, uint64_t prompt, uint64_t completion_tokens, uint64_t cached) {
  cmd_json_open(b, "usage", '{');
  cmd_json_uint(b, "prompt_tokens", prompt);
  cmd_json_uint(b, "completion_tokens", completion_tokens);
  cmd_json_uint(b, "total_tokens", prompt + completion_tokens);
  cmd_json_open(b, "prompt_tokens_details", '{');
  cmd_json_uint(b, "cached_tokens", cached);
  cmd_buf_add(b, "}}", 2);
}

/* finish NULL: not known yet. */
static void write_choice(completion *s, cmd_buf *b, size_t index, const char *text, size_t len, const char *finish) {
  cmd_json_open(b, NULL, '{');
  cmd_json_uint(b, "index", index);
  cmd_json_text(b, "text", text ? text : "", len);
  cmd_buf_key(b, "logprobs");
  if (s->q.r.logprobs >= 0 && (s->choices[index].logprobs.tokens.len || !s->q.stream))
    gw_logprobs_write(&s->choices[index].logprobs, b);
  else
    cmd_buf_add(b, "null", 4);
  cmd_buf_key(b, "finish_reason");
  if (finish)
    cmd_buf_json(b, finish, strlen(finish));
  else
    cmd_buf_add(b, "null", 4);
  cmd_buf_add(b, "}", 1);
}

/* ---- a stream ---- */

static void add_event(completion *s, size_t index, const char *text, size_t len, const char *finish) {
  cmd_buf *b = &s->out;
  cmd_buf_add(b, "data: ", 6);
  cmd_buf_add(b, s->prefix.data, s->prefix.len);
  write_choice(s, b, index, text, len, finish);
  cmd_buf_add(b, "]", 1);
  if (s->q.continuous_usage) write_usage(b, s->prompt_tokens, s->completion_tokens, s->cached_tokens);
  cmd_buf_add(b, "}\n\n", 3);
}

/* Returns false where the client was too slow: the exchange is over then. */
static bool send_events(gw_exchange *x) {
  completion *s = x->state;
  if (s->begun && s->out.failed) http_stream_reset(x->conn);
  bool sent = !s->begun || !s->out.len || http_stream_send(x->conn, s->out.data, s->out.len);
  if (s->begun) s->out.len = 0;
  if (sent) return true;
  x->conn = NULL;
  gw_exchange_close(x);
  return false;
}

static void begin_stream(gw_exchange *x) {
  completion *s = x->state;
  char fields[320], ignored[256];
  gw_ignored_fields(&s->ignored, ignored);
  snprintf(fields, sizeof fields, "X-Request-Id: %s\r\n%s", s->id, ignored);
  http_stream_begin(x->conn, fields);
  s->begun = true;
  send_events(x);
}

static void end_stream(gw_exchange *x) {
  completion *s = x->state;
  cmd_buf *b = &s->out;
  if (s->q.include_usage) {
    cmd_buf_add(b, "data: ", 6);
    cmd_buf_add(b, s->prefix.data, s->prefix.len);
    cmd_buf_add(b, "]", 1);
    write_usage(b, s->prompt_tokens, s->completion_tokens, s->cached_tokens);
    cmd_buf_add(b, "}\n\n", 3);
  }
  cmd_buf_printf(b, "data: [DONE]\n\n");
  if (!send_events(x)) return;
  http_stream_end(x->conn);
  gw_exchange_close(x);
}

/* Ends it with an error, before or behind the head. */
static void fail(gw_exchange *x, const gw_error *e) {
  completion *s = x->state;
  if (!s->begun) return gw_exchange_fail(x, e);
  cmd_buf_add(&s->out, "data: ", 6);
  gw_error_json(&s->out, e);
  cmd_buf_printf(&s->out, "\n\ndata: [DONE]\n\n");
  if (!send_events(x)) return;
  http_stream_end(x->conn);
  gw_exchange_close(x);
}

/* ---- an answer at once ---- */

static void respond(gw_exchange *x) {
  completion *s = x->state;
  char fields[320], ignored[256];
  cmd_buf b = {0};
  write_head(x, &b);
  for (size_t i = 0; i < s->num_choices; i++) {
    choice *c = &s->choices[i];
    write_choice(s, &b, i, c->text.data, c->text.len, c->finish_reason);
    b.failed = b.failed || c->text.failed;
  }
  cmd_buf_add(&b, "]", 1);
  write_usage(&b, s->prompt_tokens, s->completion_tokens, s->cached_tokens);
  cmd_buf_add(&b, "}", 1);
  gw_ignored_fields(&s->ignored, ignored);
  snprintf(fields, sizeof fields, "X-Request-Id: %s\r\n%s", s->id, ignored);
  gw_respond_json(x->conn, &b, fields);
  gw_exchange_close(x);
}

/* ---- events ---- */

static void on_accepted(gw_exchange *x, const trireme_event *e) {
  completion *s = x->state;
  s->prompt_tokens += e->accepted.prompt_tokens;
  if (!s->id[0]) {
    snprintf(s->id, sizeof s->id, "cmpl-%s", e->accepted.request_id);
    write_head(x, &s->prefix);
  }
  /* The head goes out when nothing can be refused any more, so that refusals have a status of their own. */
  if (++s->num_accepted == x->num_jobs && s->q.stream) begin_stream(x);
}

static void on_tokens(gw_exchange *x, const gw_job *j, const trireme_event *e) {
  completion *s = x->state;
  for (size_t i = 0; i < e->tokens.num; i++) {
    const trireme_choice *c = e->tokens.choices[i];
    size_t index = j->index * s->n + c->index;
    if (c->index >= s->n) continue;
    s->completion_tokens += c->num_ids;
    gw_logprobs_add(&s->choices[index].logprobs, c);
    if (!s->q.stream)
      cmd_buf_add(&s->choices[index].text, c->text ? c->text : "", c->text_len);
    else if (c->text_len || s->choices[index].logprobs.tokens.len)
      add_event(s, index, c->text, c->text_len, NULL);
  }
  send_events(x);
}

static void on_done(gw_exchange *x, const gw_job *j, const trireme_event *e) {
  completion *s = x->state;
  uint64_t tokens = 0;
  for (size_t i = 0; i < e->done.num && i < s->n; i++) {
    const trireme_finished *f = e->done.choices[i];
    choice *c = &s->choices[j->index * s->n + i];
    if (!strcmp(f->finish_reason, "abort") || !strcmp(f->finish_reason, "error")) {
      bool late = e->done.timed_out;
      return fail(x, &(gw_error){late ? 504 : 503, late ? "timeout" : "aborted", "",
                                 late ? "deadline_ms has passed" : "the request was aborted"});
    }
    snprintf(c->finish_reason, sizeof c->finish_reason, "%s", f->finish_reason);
    tokens += f->completion_tokens;
    if (s->q.stream)
      add_event(s, j->index * s->n + i, NULL, 0, f->finish_reason);
    else if (s->q.r.no_stream)
      cmd_buf_add(&c->text, f->text, f->text_len);
  }
  s->counts[j->index] = tokens;
  s->cached_tokens += e->done.cached_tokens;
  if (x->num_open) {
    send_events(x);
    return;
  }
  s->completion_tokens = 0;
  for (unsigned i = 0; i < x->num_jobs; i++) s->completion_tokens += s->counts[i];
  if (s->q.stream)
    end_stream(x);
  else
    respond(x);
}

static void on_event(gw_exchange *x, gw_job *j, const trireme_event *e) {
  gw_error error;
  switch (e->kind) {
  case TRIREME_EVENT_ACCEPTED: on_accepted(x, e); break;
  case TRIREME_EVENT_TOKENS: on_tokens(x, j, e); break;
  case TRIREME_EVENT_DONE: on_done(x, j, e); break;
  case TRIREME_EVENT_ERROR:
    error = gw_error_of(&e->error);
    fail(x, &error);
    break;
  default: fail(x, &(gw_error){500, "internal", "", "the coordinator answered something else"});
  }
}

/* ---- the beginning ---- */

static void submit(gw_exchange *x) {
  completion *s = x->state;
  for (size_t i = 0; i < s->q.prompt.num; i++) {
    const gw_input *in = &s->q.prompt.items[i];
    trireme_error error = {0};
    uint64_t id;
    s->q.r.prompt = in->text;
    s->q.r.prompt_len = in->len;
    s->q.r.token_ids = in->ids;
    s->q.r.num_token_ids = in->num_ids;
    trireme_result r = trireme_submit(x->g->client, &s->q.r, &id, &error);
    if (r != TRIREME_OK) {
      gw_error e = gw_error_of(&error);
      if (r == TRIREME_TIMEOUT) e.status = 503;
      return gw_exchange_fail(x, &e);
    }
    gw_exchange_sent(x, id);
  }
}

static tri_status prepare(http_conn *c, completion *s, tri_error *err) {
  TRI_CHECK(gw_parse_body(http_conn_request(c), &s->doc, err));
  TRI_CHECK(gw_completion_parse(tri_json_root(s->doc), &s->q, &s->ignored, err));
  s->n = (size_t)s->q.r.n;
  s->num_choices = s->n * s->q.prompt.num;
  s->choices = tri_calloc(s->num_choices, sizeof *s->choices);
  s->counts = tri_calloc(s->q.prompt.num, sizeof *s->counts);
  if (!s->choices || !s->counts) return tri_fail(err, TRI_NO_MEMORY, "", "out of memory");
  return TRI_OK;
}

void gw_completions(gateway *g, http_conn *c) {
  static const gw_kind kind = {on_event, free_completion};
  tri_error err = {0};
  completion *s = tri_calloc(1, sizeof *s);
  if (!s) return gw_respond_error(c, &(gw_error){503, "no_memory", "", "out of memory"});
  s->ignored.g = g;
  s->created = time(NULL);
  if (prepare(c, s, &err) != TRI_OK) {
    gw_error e = gw_error_of_status(&err);
    gw_exchange unmade = {.state = s};
    gw_respond_error(c, &e);
    return free_completion(&unmade);
  }
  gw_exchange *x = gw_exchange_make(g, c, &kind, s, s->q.prompt.num);
  if (x) submit(x);
}
