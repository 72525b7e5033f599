/* SPDX-License-Identifier: Apache-2.0 */
/* The last line of a start: a command that asks the model, to be copied into a shell. It comes when the cluster serves,
 * for which the gateway asks once a second until then. The command must work as it is printed: it names an address that
 * can be connected to, a path that this gateway and this model have, and KEY where a key is needed. Where it cannot, it
 * is left out. */
#include <string.h>

#include "client/gateway/gateway.h"
#include "base/log.h"

enum { ASK_MS = 1000 };

/* A sum is something to complete and something to ask, and the bundled model knows no greeting. */
static const char question[] = "37+48=";

/* An address that stands for all of this host's is none to connect to. */
static const char *reachable(const char *address) {
  if (!strcmp(address, "0.0.0.0")) return "127.0.0.1";
  return strcmp(address, "::") != 0 ? address : "::1";
}

static void add_message(tri_buf *b) {
  tri_json_open(b, "messages", '[');
  tri_json_open(b, NULL, '{');
  tri_json_put_word(b, "role", "user");
  tri_json_put_word(b, "content", question);
  tri_text_add(b, "}]", 2);
}

/* A model without a tokenizer is asked with ids. */
static void add_input(const gateway *g, const char *field, const char *text, tri_buf *b) {
  static const char ids[] = "[1,2,3]";
  if (g->model.tokenizer || !g->o.model) return tri_json_put_word(b, field, text);
  tri_json_add_key(b, field);
  tri_text_add(b, ids, sizeof ids - 1);
}

/* Writes the body of a request and returns its path; NULL: no path of this gateway asks such a model. */
static const char *example(const gateway *g, const char *task, tri_buf *b) {
  bool chat = g->model.template && g->model_fits;
  tri_json_open(b, NULL, '{');
  tri_json_put_word(b, "model", g->name);
  if (!strcmp(task, "embed"))
    add_input(g, "input", "Hello", b);
  else if (chat)
    add_message(b);
  else
    add_input(g, "prompt", question, b);
  tri_text_add(b, "}", 1);
  if (!strcmp(task, "embed")) return "/v1/embeddings";
  if (strcmp(task, "generate") != 0 || !(g->model.tokenizer || g->o.model)) return NULL;
  return chat ? "/v1/chat/completions" : "/v1/completions";
}

void gw_hint_text(const gateway *g, const char *task, const tri_gateway_place *place, int port, tri_buf *out) {
  tri_buf body = {0};
  const char *host = reachable(place->address), *path = example(g, task, &body);
  bool is_v6 = strchr(host, ':');
  if (g->o.http.metrics_only) path = "/metrics";
  if (!path || body.failed || memchr(body.data, '\'', body.len))
    goto cleanup; /* the shell's quote, in a model's name */
  tri_text_printf(out, "try: curl http://%s%s%s:%d%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port, path);
  if (g->o.http.api_key_file) tri_text_printf(out, " -H 'Authorization: Bearer KEY'");
  if (g->o.http.metrics_only) goto cleanup;
  tri_text_printf(out, " -H 'Content-Type: application/json' -d '");
  tri_text_add(out, body.data, body.len);
  tri_text_add(out, "'", 1);
cleanup:
  tri_buf_free(&body);
}

static void say(const gateway *g, const char *task) {
  tri_gateway_place place;
  tri_buf b = {0};
  if (tri_gateway_place_make(&g->o.http, &place, NULL) != TRI_OK) return;
  gw_hint_text(g, task, &place, http_server_port(g->server), &b);
  if (b.len && !b.failed) tri_log(TRI_LOG_INFO, "gateway", "%.*s", (int)b.len, b.data);
  tri_buf_free(&b);
}

void gw_hint_tick(gateway *g, int64_t now) {
  if (g->hint.said || !g->client || now < g->hint.again_ns) return;
  g->hint.again_ns = now + ASK_MS * 1000000LL;
  if (trireme_ask_status(g->client, &g->hint.id, NULL) != TRIREME_OK) g->hint.id = 0;
}

bool gw_hint_take(gateway *g, const trireme_event *e) {
  if (!g->hint.id || e->id != g->hint.id) return false;
  g->hint.id = 0;
  if (g->hint.said || e->kind != TRIREME_EVENT_STATUS || strcmp(e->status.state, "serving") != 0) return true;
  g->hint.said = true;
  say(g, e->status.task);
  return true;
}
