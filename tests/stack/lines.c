/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/stack/lines.h"

#include <pthread.h>
#include <stdatomic.h>

#include "client/cmd/cmd.h"

/* ---- the connection ---- */

/* Connecting waits for an answer, which the coordinator gives in a turn: so it has a thread of its own. */
typedef struct connecting {
  trireme_config config;
  trireme *c;
  trireme_error error;
  atomic_bool over;
} connecting;

static void *connect_main(void *arg) {
  connecting *o = arg;
  trireme_connect(&o->config, &o->c, &o->error);
  atomic_store(&o->over, true);
  return NULL;
}

trireme *lines_open(stack *s) {
  connecting o = {.c = NULL};
  pthread_t thread;
  trireme_config_init(&o.config);
  o.config.endpoint = s->endpoint;
  o.config.connect_timeout_ms = 60000;
  o.config.reconnect_timeout_ms = 0;
  ck_assert(!pthread_create(&thread, NULL, connect_main, &o));
  stack_until(s, atomic_load(&o.over));
  pthread_join(thread, NULL);
  ck_assert_msg(o.c != NULL, "%s", o.error.message);
  return o.c;
}

/* ---- requests ---- */

static uint64_t send_submit(trireme *c, const char *line) {
  cli_request defaults, q = {.ids = NULL};
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  trireme_error error = {0};
  uint64_t id = 0;
  cli_request_init(&defaults);
  tri_status st = cli_parse_line(line, strlen(line), &doc, &err);
  if (st == TRI_OK) st = cli_request_json(&defaults, tri_json_root(doc), NULL, &q, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s", line, err.message);
  ck_assert_msg(!trireme_submit(c, &q.r, &id, &error), "%s: %s", line, error.message);
  cli_request_free(&q);
  tri_json_free(doc);
  return id;
}

static uint64_t send_embed(trireme *c, bool classify, const char *line) {
  trireme_embed_request defaults;
  cli_embed_line l;
  tri_error err = {0};
  trireme_error error = {0};
  uint64_t id = 0;
  trireme_embed_request_init(&defaults);
  tri_status st = cli_embed_line_parse(&defaults, classify, line, strlen(line), NULL, &l, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s", line, err.message);
  trireme_result r =
      classify ? trireme_classify(c, &l.request, &id, &error) : trireme_embed(c, &l.request, &id, &error);
  ck_assert_msg(!r, "%s: %s", line, error.message);
  cli_embed_line_free(&l);
  return id;
}

uint64_t line_send(trireme *c, line_kind kind, const char *line) {
  char *text = strdup(line);
  for (char *p = text; *p; p++)
    if (*p == '\'') *p = '"';
  uint64_t id = kind == LINE_SUBMIT ? send_submit(c, text) : send_embed(c, kind == LINE_CLASSIFY, text);
  free(text);
  return id;
}

/* ---- answers ---- */

void line_next(stack *s, trireme *c, trireme_event *e) {
  trireme_error error = {0};
  trireme_result r = TRIREME_TIMEOUT;
  for (int turns = 0; turns < STACK_MOST_TURNS && r == TRIREME_TIMEOUT; turns++) {
    stack_turn(s);
    r = trireme_next(c, 0, e, &error);
  }
  ck_assert_msg(!r, "%s", error.message);
}

json_t *line_events(stack *s, trireme *c, uint64_t id) {
  json_t *events = json_array();
  for (bool over = false; !over;) {
    trireme_event e;
    tri_buf b = {0};
    line_next(s, c, &e);
    if (e.id != id) continue;
    over = e.kind != TRIREME_EVENT_ACCEPTED && e.kind != TRIREME_EVENT_TOKENS;
    cmd_json_event(&b, &e);
    json_t *one = json_loadb(b.data, b.len, 0, NULL);
    ck_assert_msg(one != NULL, "no JSON: %.*s", (int)b.len, b.data);
    json_array_append_new(events, one);
    tri_buf_free(&b);
  }
  return events;
}

void line_expect(stack *s, trireme *c, line_kind kind, const line_case *list, size_t num) {
  char why[1024];
  for (size_t i = 0; i < num; i++) {
    json_t *events = line_events(s, c, line_send(c, kind, list[i].line));
    ck_assert_msg(!json_differs(events, list[i].json, why, sizeof why), "%s: %s", list[i].line, why);
    json_decref(events);
  }
}
