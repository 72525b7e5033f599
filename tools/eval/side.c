/* SPDX-License-Identifier: Apache-2.0 */
/* One cluster: its connection, the model that it serves, and errors that say which cluster they are of. */
#include <stdarg.h>
#include <string.h>

#include "tools/eval/eval.h"
#include "base/mem.h"

/* ---- errors ---- */

/* The line of the progress, which has no end, is taken away for it. */
static trireme_error named(const eval_side *s, const trireme_error *error) {
  trireme_error e = *error;
  if (s->presence.in_line) fprintf(stderr, "\r\033[K");
  const char *message = error->message[0] ? error->message : "failed";
  if (s->named && !strstr(message, s->endpoint))
    snprintf(e.message, sizeof e.message, "%.120s: %.270s", s->endpoint, message);
  return e;
}

int eval_side_fail(const eval_side *s, const trireme_error *error) {
  trireme_error e = named(s, error);
  return cli_fail(&e);
}

int eval_side_refused(const eval_side *s, const trireme_error *error) {
  trireme_error e = named(s, error);
  return cli_refused(&e);
}

int eval_side_cannot(const eval_side *s, const char *fmt, ...) {
  trireme_error e = {.code = "unsupported"};
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(e.message, sizeof e.message, fmt, ap);
  va_end(ap);
  return eval_side_refused(s, &e);
}

/* ---- the model ---- */

static int ask(eval_side *s, trireme_result (*question)(trireme *, uint64_t *, trireme_error *), int timeout_ms,
               trireme_event_kind wanted, trireme_event *e) {
  trireme_error error = {0};
  uint64_t id = 0;
  trireme_result r = question(s->c, &id, &error);
  do {
    if (!r) r = trireme_next(s->c, timeout_ms, e, &error);
    if (r) return eval_side_fail(s, &error);
  } while (e->id != id);
  if (e->kind == TRIREME_EVENT_ERROR) return eval_side_refused(s, &e->error);
  return e->kind == wanted ? TRI_EXIT_OK : eval_side_cannot(s, "it does not say what its model is");
}

int eval_side_open(eval_side *s, const cli_connection *connection) {
  trireme_error error = {0};
  trireme_event e;
  int timeout_ms = (int)connection->connect_timeout_ms;
  s->endpoint = connection->endpoint ? connection->endpoint : "the default endpoint";
  if (cli_try_connect(connection, &s->c, &error)) return eval_side_fail(s, &error);
  s->endpoint = trireme_endpoint(s->c);
  int code = ask(s, trireme_ask_status, timeout_ms, TRIREME_EVENT_STATUS, &e);
  if (code) return code;
  snprintf(s->model, sizeof s->model, "%s", e.status.model);
  s->vocab_size = e.status.vocab_size;
  if (cli_is_encoder(&e.status))
    return eval_side_cannot(s, "the model served here, \"%.100s\", is an encoder: it predicts no tokens", s->model);
  code = ask(s, trireme_ask_models, timeout_ms, TRIREME_EVENT_MODELS, &e);
  if (code) return code;
  s->max_model_len = e.models.max_model_len;
  s->tokenizer = e.models.tokenizer;
  return TRI_EXIT_OK;
}

void eval_side_close(eval_side *s) {
  trireme_close(s->c);
  tri_free(s->scores.logprob);
  tri_free(s->scores.best);
  tri_free(s->continuations.ids);
  tri_free(s->continuations.num);
}
