/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints that tell of the server: each asks the coordinator one thing, or nothing.
 *
 * A question is an exchange whose kind is the first member of a `question`, so that its event finds both what was asked
 * and how to write the answer without a state of its own. It has no `free` and ends with its first event. ANSWER_MS
 * limits it: a coordinator that hangs gets a health check an error instead of an open connection. */
#include <string.h>

#include "client/gateway/gateway.h"
#include "base/version.h"
#include "base/wait.h"

enum { ANSWER_MS = 3000 };

static void write_model(tri_buf *b, const gateway *g, const char *name, uint64_t max_model_len) {
  tri_json_open(b, NULL, '{');
  tri_json_put_word(b, "id", name);
  tri_json_put_word(b, "object", "model");
  tri_json_put_uint(b, "created", (uint64_t)g->started);
  tri_json_put_word(b, "owned_by", "trireme");
  tri_json_put_uint(b, "max_model_len", max_model_len);
  tri_text_add(b, "}", 1);
}

static void answer_models(gw_exchange *x, const trireme_event *e) {
  tri_buf b = {0};
  tri_json_open(&b, NULL, '{');
  tri_json_put_word(&b, "object", "list");
  tri_json_open(&b, "data", '[');
  for (size_t i = 0; i < e->models.num; i++) write_model(&b, x->g, e->models.names[i], e->models.max_model_len);
  tri_text_add(&b, "]}", 2);
  gw_respond_json(x->conn, &b, NULL);
}

/* Compares a name with the rest of a path, where %XX stands for a byte. */
static bool is_name(http_str path, const char *name) {
  static const char hex[] = "0123456789abcdef";
  size_t at = 0;
  for (; *name && at < path.len; name++, at++) {
    char c = path.s[at];
    if (c == '%' && path.len - at > 2) {
      const char *high = strchr(hex, path.s[at + 1] | 0x20), *low = strchr(hex, path.s[at + 2] | 0x20);
      if (!high || !low) return false;
      c = (char)((high - hex) * 16 + (low - hex));
      at += 2;
    }
    if (c != *name) return false;
  }
  return !*name && at == path.len;
}

static void respond_no_model(gw_exchange *x, const trireme_event *e) {
  tri_buf why = {0};
  tri_text_printf(&why, "this model is not served here, only");
  for (size_t i = 0; i < e->models.num; i++) tri_text_printf(&why, "%s \"%s\"", i ? "," : "", e->models.names[i]);
  gw_respond_error(x->conn, &(oai_error){404, "not_found", "model", why.failed ? "out of memory" : why.data});
  tri_buf_free(&why);
}

static void answer_model(gw_exchange *x, const trireme_event *e) {
  static const size_t prefix = sizeof "/v1/models/" - 1;
  http_str path = http_parser_path(http_conn_request(x->conn));
  http_str id = {path.s + prefix, path.len - prefix};
  for (size_t i = 0; i < e->models.num; i++) {
    tri_buf b = {0};
    if (!is_name(id, e->models.names[i])) continue;
    write_model(&b, x->g, e->models.names[i], e->models.max_model_len);
    return gw_respond_json(x->conn, &b, NULL);
  }
  respond_no_model(x, e);
}

/* 200 stands for one replica that serves. The gateway's own end comes first: a load balancer shall leave before the
 * gateway refuses. */
static void answer_health(gw_exchange *x, const trireme_event *e) {
  tri_buf b = {0};
  if (x->g->leaving)
    return gw_respond_error(x->conn, &(oai_error){503, "draining", "", "the gateway is shutting down"});
  if (!strcmp(e->status.state, "draining"))
    return gw_respond_error(x->conn, &(oai_error){503, "draining", "", "the cluster is shutting down"});
  if (strcmp(e->status.state, "serving") != 0)
    return gw_respond_error(x->conn, &(oai_error){503, "no_group", "", "no replica serves: the model is being loaded"});
  tri_json_open(&b, NULL, '{');
  tri_json_put_word(&b, "status", "ok");
  tri_text_add(&b, "}", 1);
  gw_respond_json(x->conn, &b, NULL);
}

static void answer_metrics(gw_exchange *x, const trireme_event *e) {
  tri_buf b = {0};
  gw_metrics_write(x->g, e->stats.text, e->stats.text_len, &b);
  if (b.failed)
    gw_respond_error(x->conn, &(oai_error){503, "no_memory", "", "out of memory"});
  else
    http_respond(x->conn, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, b.data, b.len);
  tri_buf_free(&b);
}

/* One for each question: what answers it, and how that becomes a response. */
typedef struct question {
  gw_kind kind;
  trireme_result (*ask)(trireme *c, uint64_t *id, trireme_error *error);
  trireme_event_kind answer;
  void (*respond)(gw_exchange *x, const trireme_event *e);
} question;

static void on_event(gw_exchange *x, gw_job *j, const trireme_event *e) {
  const question *q = (const question *)x->kind;
  oai_error error = {500, "internal", "", "the coordinator answered something else"};
  (void)j;
  if (e->kind == TRIREME_EVENT_ERROR) error = oai_error_of(&e->error);
  if (e->kind == q->answer)
    q->respond(x, e);
  else
    gw_respond_error(x->conn, &error);
  gw_exchange_close(x);
}

static trireme_result send_question(gw_exchange *x, unsigned index, uint64_t *id, trireme_error *error) {
  (void)index;
  return ((const question *)x->kind)->ask(x->g->client, id, error);
}

static void ask(gateway *g, http_conn *c, const question *q) {
  gw_exchange *x = gw_exchange_make(g, c, &q->kind, NULL);
  if (!x) return;
  x->deadline_ns = tri_deadline_after_ms(ANSWER_MS);
  gw_exchange_begin(x, 1);
}

void gw_models(gateway *g, http_conn *c) {
  static const question q = {
      {.event = on_event, .send = send_question}, trireme_ask_models, TRIREME_EVENT_MODELS, answer_models};
  ask(g, c, &q);
}

void gw_one_model(gateway *g, http_conn *c) {
  static const question q = {
      {.event = on_event, .send = send_question}, trireme_ask_models, TRIREME_EVENT_MODELS, answer_model};
  ask(g, c, &q);
}

void gw_health(gateway *g, http_conn *c) {
  static const question q = {
      {.event = on_event, .send = send_question}, trireme_ask_status, TRIREME_EVENT_STATUS, answer_health};
  ask(g, c, &q);
}

void gw_metrics(gateway *g, http_conn *c) {
  static const question q = {
      {.event = on_event, .send = send_question}, trireme_ask_stats, TRIREME_EVENT_STATS, answer_metrics};
  ask(g, c, &q);
}

void gw_live(gateway *g, http_conn *c) {
  static const char body[] = "{\"status\":\"ok\"}";
  (void)g;
  http_respond(c, 200, "application/json", NULL, body, sizeof body - 1);
}

void gw_root(gateway *g, http_conn *c) {
  tri_buf b = {0}, paths = {0};
  gw_paths_text(g, &paths);
  tri_json_open(&b, NULL, '{');
  tri_json_put_word(&b, "server", "trireme " TRIREME_VERSION);
  if (!g->keys) tri_json_put_word(&b, "model", g->name);
  tri_json_put_text(&b, "paths", paths.data ? paths.data : "", paths.len);
  tri_text_add(&b, "}", 1);
  b.failed = b.failed || paths.failed;
  tri_buf_free(&paths);
  gw_respond_json(c, &b, NULL);
}

void gw_version(gateway *g, http_conn *c) {
  static const char body[] = "{\"version\":\"" TRIREME_VERSION "\"}";
  (void)g;
  http_respond(c, 200, "application/json", NULL, body, sizeof body - 1);
}
