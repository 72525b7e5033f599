/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/stack/stack.h"

#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/options/serve_options.h"
#include "base/text.h"
#include "base/wait.h"
#include "client/gateway/finder.h"
#include "tests/stack/clock.h"

#define NS_PER_MS 1000000LL
enum { STEP_MS = 500, TURNS_OF_A_STEP = 4 };

/* ---- options ---- */

/* Parses argc words that are in o->argv, and then these. */
static tri_status parse(stack_options *o, int argc, const char *words, void *dest, tri_error *err) {
  char *rest = NULL;
  o->words = strdup(words);
  for (char *w = strtok_r(o->words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
    ck_assert_int_lt(argc, STACK_WORDS);
    o->argv[argc++] = w;
  }
  return tri_options_parse(&o->spec, dest, argc, o->argv, &o->parsed, err);
}

/* Before what it was parsed into. */
static void free_options(stack_options *o) {
  tri_options_free(o->parsed);
  free(o->words);
  *o = (stack_options){.words = NULL};
}

/* ---- the coordinator ---- */

void stack_open_server(stack *s, const char *options) {
  tri_error err = {0};
  s->server = (struct server){.signal_fd = -1};
  s->server_options = (stack_options){
      .spec = {.program = "coordinator", .options = tri_serve_option_table, .count = tri_serve_option_count},
      .argv = {"coordinator", "--launch", "self", "--model", s->model, "--endpoint", s->endpoint}};
  ck_assert_msg(parse(&s->server_options, 7, options, &s->server.opts, &err) == TRI_OK, "%s", err.message);
  s->server.supervisor = (tri_supervisor){.event_fd = -1, .notice_fd = -1};
  ck_assert_msg(tri_serve_model_find(&s->server.opts, &err) == TRI_OK, "%s", err.message);
  ck_assert_msg(server_open(&s->server, true, &err) == TRI_OK, "%s", err.message);
  server_begin(&s->server);
  s->serves = true;
}

void stack_close_server(stack *s) {
  if (!s->serves) return;
  server_close(&s->server);
  tri_boot_free(&s->server.boot);
  free_options(&s->server_options);
  s->serves = false;
}

void stack_open_replica(stack *s) {
  tri_core_load load;
  int64_t len = s->server.opts.max_model_len;
  s->r = replica_open(&s->server.boot, &s->server.model.config, s->server.model.tokenizer, ++s->epoch,
                      (uint64_t)(len ? len : tri_model_config_length(&s->server.model.config)),
                      s->server.opts.max_num_seqs);
  stack_until(s, (tri_core_load_of(s->server.core, &load), s->server.said_where));
}

/* ---- the gateway ---- */

static tri_status open_gateway(stack *s, const char *options, tri_error *err) {
  stack_options *o = &s->gateway_options;
  gateway *g = s->g = tri_calloc(1, sizeof *g);
  ck_assert_ptr_nonnull(g);
  *o = (stack_options){.argv = {"gateway", "--http", "127.0.0.1:0"}};
  size_t count = tri_gateway_options_copy(o->table, offsetof(gw_options, http));
  o->table[count++] = (tri_option){TRI_OPT(gw_options, model), .name = "model"};
  o->spec = (tri_options_spec){.program = "gateway", .options = o->table, .count = count};
  TRI_CHECK(parse(o, 3, options, &g->o, err));
  g->o.endpoint = s->endpoint;
  g->o.connect_timeout_ms = 60000;
  g->o.pulse_fd = -1;
  g->started = time(NULL);
  return gw_open(g, err);
}

/* Its first tick looks for the coordinator. */
void stack_open_gateway(stack *s, const char *options) {
  tri_error err = {0};
  ck_assert_msg(open_gateway(s, options, &err) == TRI_OK, "%s", err.message);
  for (int turns = 0; !s->g->client && turns < STACK_MOST_TURNS; turns++) {
    if (!s->g->finder) clock_advance(STEP_MS * NS_PER_MS);
    stack_turn(s);
  }
  ck_assert_ptr_nonnull(s->g->client);
}

void stack_close_gateway(stack *s) {
  if (!s->g) return;
  gw_close(s->g);
  free_options(&s->gateway_options);
  tri_free(s->g);
  s->g = NULL;
}

tri_status stack_refused(stack *s, const char *options, tri_error *err) {
  tri_status st = open_gateway(s, options, err);
  stack_close_gateway(s);
  return st;
}

/* ---- all of it ---- */

stack *stack_open(const char *model, const char *coordinator, const char *gateway) {
  stack *s = calloc(1, sizeof *s);
  signal(SIGPIPE, SIG_IGN);
  tri_log_setup(TRI_LOG_DEBUG, "-");
  log_clear();
  clock_take();
  snprintf(s->endpoint, sizeof s->endpoint, "ipc:///tmp/trireme-stack.%d", (int)getpid());
  snprintf(s->model, sizeof s->model, "%s", model ? model : TRI_SOURCE "/tests/models/abacus");
  stack_open_server(s, coordinator);
  stack_open_replica(s);
  if (gateway) stack_open_gateway(s, gateway);
  return s;
}

void stack_close(stack *s) {
  while (s->calls) leave(s, s->calls);
  stack_close_gateway(s);
  replica_close(s->r);
  stack_close_server(s);
  clock_give();
  free(s);
  log_clear();
}

void stack_turn(stack *s) {
  if (s->r) replica_turn(s->r);
  if (s->serves) server_turn(&s->server, 1);
  if (s->g) http_server_turn(s->g->server);
  for (call *c = s->calls; c; c = c->next) call_turn(c);
}

void stack_pass(stack *s, int64_t ms) {
  for (int64_t left = ms; left > 0; left -= STEP_MS) {
    clock_advance((left < STEP_MS ? left : STEP_MS) * NS_PER_MS);
    for (int i = 0; i < TURNS_OF_A_STEP; i++) stack_turn(s);
  }
}

/* ---- requests ---- */

call *ask_raw(stack *s, const char *bytes, size_t len) {
  call *c = call_open(http_server_port(s->g->server), bytes, len);
  c->next = s->calls;
  s->calls = c;
  return c;
}

call *ask(stack *s, const char *method, const char *path, const char *fields, const char *body) {
  tri_buf b = {0};
  bool has_type = body && (!fields || !strstr(fields, "Content-Type"));
  tri_text_printf(&b, "%s %s HTTP/1.1\r\n%s%s%s", method, path,
                  fields && strstr(fields, "Host:") ? "" : "Host: localhost\r\n", fields ? fields : "",
                  has_type ? "Content-Type: application/json\r\n" : "");
  if (body) tri_text_printf(&b, "Content-Length: %zu\r\n", strlen(body));
  tri_text_printf(&b, "\r\n");
  size_t head = b.len;
  if (body) tri_text_add(&b, body, strlen(body));
  ck_assert(!b.failed);
  for (size_t i = head; i < b.len; i++)
    if (b.data[i] == '\'') b.data[i] = '"';
  call *c = ask_raw(s, b.data, b.len);
  tri_buf_free(&b);
  return c;
}

void leave(stack *s, call *c) {
  call **at = &s->calls;
  while (*at != c) at = &(*at)->next;
  *at = c->next;
  call_close(c);
}

static bool has(const char *text, const char *expression) {
  regex_t r;
  ck_assert_msg(!regcomp(&r, expression, REG_EXTENDED | REG_NOSUB), "%s", expression);
  bool ok = !regexec(&r, text, 0, NULL, 0);
  regfree(&r);
  return ok;
}

static bool has_field(const call *c, const char *wanted) {
  char name[64], value[512], expression[512];
  const char *colon = strstr(wanted, ": ");
  snprintf(name, sizeof name, "%.*s", (int)(colon - wanted), wanted);
  call_field(c, name, value, sizeof value);
  snprintf(expression, sizeof expression, "^(%s)$", colon + 2);
  return has(value, expression);
}

json_t *answer_json(const call *c) {
  json_error_t error;
  json_t *j = json_loadb(c->body.data, c->body.len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(j != NULL, "%s: %s", error.text, c->body.data);
  return j;
}

void expect_json(const call *c, const char *want) {
  char why[1024];
  json_t *j = answer_json(c);
  ck_assert_msg(!json_differs(j, want, why, sizeof why), "%s\nin %.2000s", why, c->body.data);
  json_decref(j);
}

void expect_one(stack *s, const char *file, int line, const exchange *x) {
  char why[1024];
  const char *usual = x->body ? "POST" : "GET";
  call *c = ask(s, x->method ? x->method : usual, x->path, x->fields, x->body);
  bool is_head = x->method && !strcmp(x->method, "HEAD");
  stack_until(s, c->whole || c->over || (is_head && c->status));
  ck_assert_msg(c->status == x->status, "%s:%d: %d, not %d: %.2000s", file, line, c->status, x->status, c->body.data);
  ck_assert_msg(!x->field || has_field(c, x->field), "%s:%d: no field %s: %.*s", file, line, x->field, (int)c->head_len,
                c->in.data);
  ck_assert_msg(!x->text || has(c->body.data, x->text), "%s:%d: no %s: %.2000s", file, line, x->text, c->body.data);
  if (x->json) {
    json_t *j = answer_json(c);
    ck_assert_msg(!json_differs(j, x->json, why, sizeof why), "%s:%d: %s\nin %.2000s", file, line, why, c->body.data);
    json_decref(j);
  }
  leave(s, c);
}

void expect_all(stack *s, const char *file, int line, const exchange *list, size_t num) {
  (void)line;
  for (size_t i = 0; i < num; i++) expect_one(s, file, (int)i, &list[i]);
}

/* ---- streams ---- */

json_t *stream_events(const call *c) {
  json_t *events = json_array();
  const char *at = c->body.data;
  bool done = false;
  ck_assert_int_eq(c->status, 200);
  ck_assert(has_field(c, "Content-Type: text/event-stream.*"));
  while (*at) {
    const char *end = strstr(at, "\n\n");
    ck_assert_msg(end && !done, "the end of a stream: %s", at);
    if (*at == ':') { /* a comment */
      at = end + 2;
      continue;
    }
    ck_assert_msg(!strncmp(at, "data: ", 6) && !memchr(at, '\n', (size_t)(end - at)), "no event: %s", at);
    done = !strncmp(at + 6, "[DONE]", (size_t)(end - at - 6));
    if (!done) {
      json_t *j = json_loadb(at + 6, (size_t)(end - at - 6), 0, NULL);
      ck_assert_msg(j != NULL, "no JSON: %s", at);
      json_array_append_new(events, j);
    }
    at = end + 2;
  }
  ck_assert_msg(done, "a stream without an end: %s", c->body.data);
  return events;
}

char *stream_text(json_t *events, int choice, const char *path) {
  tri_buf b = {0};
  size_t i;
  json_t *e;
  json_array_foreach(events, i, e) {
    size_t k;
    json_t *one;
    json_array_foreach(json_object_get(e, "choices"), k, one) {
      char word[64];
      json_t *at = one;
      if (json_integer_value(json_object_get(one, "index")) != choice) continue;
      for (const char *p = path; at && *p;) {
        size_t n = strcspn(p, ".");
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        at = json_object_get(at, word);
        p += n + (p[n] == '.');
      }
      if (json_is_string(at)) tri_text_add(&b, json_string_value(at), json_string_length(at));
    }
  }
  tri_text_add(&b, "", 1);
  return b.data;
}
