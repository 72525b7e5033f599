/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway as a whole: what it opens, its coordinator, its clock, signals, and its end.
 *
 * The coordinator: found (client) <-> away (client, and trireme_is_away: libtrireme reconnects, requests wait) -> lost
 * (no client: all jobs end with an error, and once a second a finder looks for it) -> found.
 *
 * The end, by SIGTERM:
 *   leaving    /health and /ready say 503, and requests are still taken for --http-drain-delay
 *   refusing   new requests get 503, but for the open paths; answers that run may end, for --http-drain-timeout
 *   cut        (stop_ns) the others end with an error, which has CUT_MS to reach clients; then the loop stops
 * A second signal goes straight to the cut, a third ends at once. The loop ends earlier when no connection is left. */
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/gateway/finder.h"
#include "client/gateway/gateway.h"
#include "client/gateway/tasks.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"

enum {
  TICK_MS = 200,
  CUT_MS = 1000,       /* for errors to reach their clients, after a drain: trireme up waits as long when asked twice */
  AGAIN_MS = 1000,     /* between attempts to find the coordinator again */
  AGAIN_WAIT_MS = 500, /* for each step of one; so long an end of this program may wait */
  HEAD_MS = 10000,
  BODY_MS = 60000,
  IDLE_MS = 75000,
  WRITE_MS = 30000,
  PENDING_BYTES = 1 << 20,
  BODIES_BYTES = 256 << 20,
  EVENTS_AT_ONCE = 256,   /* before the loop looks at its sockets again */
  SAME_REQUEST_MS = 1000, /* a second signal so soon after the first one is the same request */
  OWN_DESCRIPTORS = 128,  /* in addition to connections: the loop's, libtrireme's */
};

/* ---- the coordinator ---- */

static void watch_coordinator(void *ctx);

static void take_model(gateway *g, const gw_found *f) {
  memcpy(g->name, f->name, sizeof g->name);
  g->max_model_len = f->max_model_len;
  g->model_fits = g->model.tokenizer && tri_tokenizer_hash(g->model.tokenizer) == f->tokenizer;
}

trireme_config gw_coordinator_config(const gateway *g, int timeout_ms) {
  trireme_config config;
  trireme_config_init(&config);
  config.endpoint = g->o.endpoint;
  config.key_file = g->o.key_file;
  config.server_key = g->o.server_key;
  config.connect_timeout_ms = timeout_ms;
  config.reconnect_timeout_ms = (int)g->o.reconnect_timeout_ms;
  config.send_timeout_ms = -1; /* the loop has others to serve */
  config.client_name = "trireme-gateway";
  return config;
}

/* Owns the client of f in any case: where its descriptor cannot be watched, it is closed. */
bool gw_adopt(gateway *g, const gw_found *f) {
  if (http_server_watch(g->server, HTTP_WATCH_COORDINATOR, trireme_fd(f->client), watch_coordinator) != TRI_OK) {
    http_server_watch(g->server, HTTP_WATCH_COORDINATOR, -1, NULL);
    trireme_close(f->client);
    return false;
  }
  g->client = f->client;
  take_model(g, f);
  return true;
}

static void lose_coordinator(gateway *g, const trireme_error *why) {
  trireme_error error = {.code = "closed", .message = "the connection to the coordinator was lost"};
  tri_log(TRI_LOG_ERROR, "gateway", "the coordinator is lost: %s", why->message);
  http_server_watch(g->server, HTTP_WATCH_COORDINATOR, -1, NULL);
  trireme_close(g->client);
  g->client = NULL;
  g->away = false;
  g->models_id = 0;
  gw_jobs_lose(g, &error);
}

static void say_again(const gateway *g) {
  tri_log(TRI_LOG_INFO, "gateway", "the coordinator is back");
  if (g->model.tokenizer && !g->model_fits)
    tri_log(TRI_LOG_ERROR, "gateway", "it has another tokenizer.json than %s: chat is not served", g->o.model);
}

/* A coordinator that was away may return with another model. */
static void note_away(gateway *g) {
  bool away = g->client && trireme_is_away(g->client);
  if (away && !g->away) tri_log(TRI_LOG_WARN, "gateway", "the coordinator is away: requests wait for it");
  if (!away && g->away && g->client) trireme_ask_models(g->client, &g->models_id, NULL);
  g->away = away;
}

/* The answer to the gateway's own question of the models comes among the events of jobs, and is known by its number. */
static void take_event(gateway *g, const trireme_event *e) {
  if (gw_hint_take(g, e)) return;
  if (!g->models_id || e->id != g->models_id) return gw_jobs_take(g, e);
  gw_found now;
  g->models_id = 0;
  if (gw_found_read(e, &now)) take_model(g, &now);
  say_again(g);
}

static void watch_coordinator(void *ctx) {
  gateway *g = ctx;
  trireme_event e;
  trireme_error error = {0};
  for (int i = 0; i < EVENTS_AT_ONCE; i++) {
    trireme_result r = trireme_next(g->client, 0, &e, &error);
    note_away(g);
    if (r == TRIREME_OK)
      take_event(g, &e);
    else if (r == TRIREME_CLOSED || r == TRIREME_REFUSED || r == TRIREME_NO_MEMORY || r == TRIREME_FAILED)
      return lose_coordinator(g, &error);
    else if (r != TRIREME_PROTOCOL)
      return;
  }
}

/* ---- time and signals ---- */

static void take_found(void *ctx) {
  gateway *g = ctx;
  gw_found found;
  http_server_watch(g->server, HTTP_WATCH_FINDER, -1, NULL);
  trireme_result r = gw_finder_take(g->finder, &found);
  g->finder = NULL;
  g->again_ns = tri_deadline_after_ms(AGAIN_MS);
  if (r == TRIREME_OK && gw_adopt(g, &found)) say_again(g);
}

/* Answers continue meanwhile: connecting waits. */
static void find_coordinator(gateway *g) {
  if (g->client || g->finder || g->leaving || tri_now_ns() < g->again_ns) return;
  g->again_ns = tri_deadline_after_ms(AGAIN_MS);
  trireme_config config = gw_coordinator_config(g, AGAIN_WAIT_MS);
  if (gw_finder_start(&config, &g->finder) != TRI_OK) return;
  if (http_server_watch(g->server, HTTP_WATCH_FINDER, gw_finder_fd(g->finder), take_found) == TRI_OK) return;
  http_server_watch(g->server, HTTP_WATCH_FINDER, -1, NULL);
  gw_finder_stop(g->finder);
  g->finder = NULL;
}

/* A full pipe is a supervisor that stands still itself. */
void gw_show_pulse(const gateway *g) {
  if (g->o.pulse_fd < 0) return;
  ssize_t ignored = write((int)g->o.pulse_fd, ".", 1);
  (void)ignored;
}

void gw_cut(gateway *g) {
  g->refusing = true;
  g->stop_ns = tri_deadline_after_ms(CUT_MS);
  http_server_cut(g->server);
}

/* The threads that read documents leave what these took with the allocator, each in an arena of its own. */
static void give_back_documents(gateway *g) {
  enum { WORTH_IT = 64 << 20 };
  size_t now = tri_json_memory();
  if (now > g->most_documents) g->most_documents = now;
  if (now || g->most_documents < WORTH_IT) return;
  g->most_documents = 0;
  malloc_trim(0);
}

static void on_tick(void *ctx) {
  gateway *g = ctx;
  gw_show_pulse(g);
  give_back_documents(g);
  find_coordinator(g);
  gw_jobs_expire(g, tri_now_ns());
  if (!g->leaving) return gw_hint_tick(g, tri_now_ns());
  int64_t now = tri_now_ns();
  if (g->stop_ns) {
    if (now >= g->stop_ns) http_server_stop(g->server);
    return;
  }
  if (g->client && trireme_is_away(g->client)) /* no coordinator will be there again */
    lose_coordinator(g, &(trireme_error){.message = "it has gone while the gateway shuts down"});
  if (!g->refusing && (now >= g->leave_ns || !g->client)) {
    g->refusing = true;
    http_server_drain(g->server);
  }
  if (now < g->end_ns) return;
  tri_log(TRI_LOG_WARN, "gateway", "running requests exceed the time limit: ending them with an error");
  gw_cut(g);
}

static void on_leave(void *ctx, int number) {
  gateway *g = ctx;
  (void)number;
  if (g->leaving && tri_now_ns() < g->same_ns) return; /* told by a service manager and by its supervisor */
  if (g->stop_ns) return http_server_stop(g->server);
  g->same_ns = tri_deadline_after_ms(SAME_REQUEST_MS);
  if (g->leaving) return gw_cut(g);
  tri_log(TRI_LOG_INFO, "gateway", "shutting down");
  g->leaving = true;
  g->leave_ns = tri_deadline_after_ms(g->o.http.drain_delay * 1000);
  g->end_ns = tri_deadline_after_ms((g->o.http.drain_delay + g->o.http.drain_timeout) * 1000);
  on_tick(g);
}

/* A file that cannot be read leaves the keys as they are: a mistake in it locks no client out. */
static void on_reload(void *ctx, int number) {
  gateway *g = ctx;
  gw_keys *keys = NULL;
  tri_error err = {0};
  (void)number;
  if (!g->o.http.api_key_file) return;
  if (gw_keys_load(g->o.http.api_key_file, &keys, &err) != TRI_OK) {
    tri_log(TRI_LOG_ERROR, "gateway", "the API keys are unchanged: %s", err.message);
    return;
  }
  gw_keys_free(g->keys);
  g->keys = keys;
  tri_log(TRI_LOG_INFO, "gateway", "the API keys were read again");
}

/* ---- the start ---- */

/* Lets the process have as many descriptors as connections, where it may; returns for how many connections they are
 * enough. One beyond those gets an error; otherwise it would wait for a descriptor. */
static unsigned raise_limit(unsigned connections) {
  struct rlimit l;
  rlim_t wanted = connections + OWN_DESCRIPTORS;
  if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= wanted) return connections;
  bool short_of = l.rlim_max != RLIM_INFINITY && l.rlim_max < wanted;
  l.rlim_cur = short_of ? l.rlim_max : wanted;
  if (setrlimit(RLIMIT_NOFILE, &l) || !short_of) return connections;
  unsigned enough =
      l.rlim_max > 2 * OWN_DESCRIPTORS ? (unsigned)l.rlim_max - OWN_DESCRIPTORS : (unsigned)l.rlim_max / 2;
  tri_log(TRI_LOG_WARN, "gateway", "%llu open files are too few for --http-max-connections %u: using %u",
          (unsigned long long)l.rlim_max, connections, enough);
  return enough;
}

static tri_status open_server(gateway *g, tri_error *err) {
  tri_gateway_place place;
  TRI_CHECK(tri_gateway_place_make(&g->o.http, &place, err));
  http_config config = {.address = place.address,
                        .port = place.port,
                        .max_body = g->o.http.max_body,
                        .max_pending = PENDING_BYTES,
                        .max_bodies = BODIES_BYTES,
                        .max_connections = (unsigned)g->o.http.max_connections,
                        .head_ms = HEAD_MS,
                        .body_ms = BODY_MS,
                        .idle_ms = IDLE_MS,
                        .write_ms = WRITE_MS,
                        .ping_ms = (int)g->o.http.sse_ping * 1000};
  http_handler handler = {g,           gw_on_head,    gw_on_request,     gw_on_gone,    gw_on_answer,
                          gw_on_error, gw_cors_lines, gw_on_error_lines, gw_on_drained, gw_on_cut};
  g->loopback = place.loopback;
  TRI_CHECK(gw_origins_make(&g->o.http, &g->origins, err));
  if (g->o.http.api_key_file) TRI_CHECK(gw_keys_load(g->o.http.api_key_file, &g->keys, err));
  config.max_connections = raise_limit(config.max_connections);
  TRI_CHECK(http_server_open(&config, &handler, &g->server, err));
  TRI_CHECK(http_server_every(g->server, TICK_MS, on_tick));
  TRI_CHECK(http_server_on_signal(g->server, SIGTERM, on_leave));
  TRI_CHECK(http_server_on_signal(g->server, SIGINT, on_leave));
  TRI_CHECK(http_server_on_signal(g->server, SIGHUP, on_reload));
  bool is_v6 = strchr(place.address, ':');
  tri_log(TRI_LOG_INFO, "gateway", "http://%s%s%s:%d", is_v6 ? "[" : "", place.address, is_v6 ? "]" : "",
          http_server_port(g->server));
  return TRI_OK;
}

static void take_tasks(void *ctx) {
  gateway *g = ctx;
  gw_tasks_take(g->tasks);
}

/* The options' choices are the names that there are; "auto" is none of them. */
static void choose_parsers(gateway *g) {
  chat_calls calls = g->model.calls;
  chat_calls_by_name(g->o.http.tool_parser, &calls);
  /* Calls of a model of channels are messages of channels: another parser would find none. */
  g->model.channels = g->model.channels || calls == CHAT_CALLS_CHANNELS;
  g->model.calls = g->model.channels && calls != CHAT_CALLS_NONE ? CHAT_CALLS_CHANNELS : calls;
  g->model.reasoning = !strcmp(g->o.http.reasoning_parser, "think");
  if (g->model.ignores_tools && calls != CHAT_CALLS_NONE)
    tri_log(
        TRI_LOG_WARN, "gateway",
        "the chat template ignores tools: answers are searched for calls, but no prompt shows the tools of a request "
        "(--chat-template FILE gives another template)");
}

static tri_status open_model(gateway *g, tri_error *err) {
  if (!g->o.model) return TRI_OK;
  TRI_CHECK(tri_model_folder_find(g->o.model, g->model_folder, err));
  g->o.model = g->model_folder;
  tri_status st = oai_model_open(g->o.model, g->o.http.chat_template, &g->model, err);
  if (st == TRI_NOT_FOUND) {
    tri_log(TRI_LOG_WARN, "gateway", "there is no tokenizer.json in %s%s%s: chat is not served", g->o.model,
            tri_tokenizer_file(g->o.model) ? ", and " : "", tri_tokenizer_file(g->o.model) ? err->message : "");
    *err = (tri_error){0};
    return TRI_OK;
  }
  if (st != TRI_OK) return st;
  g->model.parse_special = g->o.http.parse_special;
  choose_parsers(g);
  if (!g->model.template) tri_log(TRI_LOG_WARN, "gateway", "chat is not served: %s", g->model.no_template);
  return TRI_OK;
}

/* The threads also read long bodies, which needs no model. */
static tri_status open_tasks(gateway *g) {
  mallopt(M_ARENA_MAX, 2); /* of documents that have ended each arena keeps some */
  tri_json_limit_memory(gw_most_documents(g->o.http.max_body));
  TRI_CHECK(gw_tasks_open(g->model.tokenizer, (unsigned)g->o.http.workers, &g->tasks));
  return http_server_watch(g->server, HTTP_WATCH_WORKERS, gw_tasks_fd(g->tasks), take_tasks);
}

tri_status gw_open(gateway *g, tri_error *err) {
  TRI_CHECK(open_server(g, err));
  TRI_CHECK(open_model(g, err));
  return open_tasks(g);
}

/* Frees what answers have that a forced end has cut off. The end of the connection cancels their jobs. */
static void abandon(gateway *g) {
  trireme_error error = {.code = "closed", .message = "the gateway has ended"};
  gw_finder_stop(g->finder);
  trireme_close(g->client);
  g->client = NULL;
  if (g->server) http_server_abandon(g->server);
  gw_jobs_lose(g, &error);
}

void gw_close(gateway *g) {
  abandon(g);
  gw_tasks_close(g->tasks);
  http_server_close(g->server);
  oai_model_close(&g->model);
  gw_keys_free(g->keys);
  gw_origins_free(g->origins);
}
