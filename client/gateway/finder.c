/* SPDX-License-Identifier: Apache-2.0 */
/* A search is a connection and the answer to one question. The thread of a later search writes its result and then the
 * descriptor; the loop joins it before it reads the result, and no lock is needed. The thread's search cannot be
 * interrupted: the timeouts of its configuration bound it, and with it the wait of gw_finder_take. */
#include "client/gateway/finder.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

struct gw_finder {
  trireme_config config;
  pthread_t thread;
  int fd;
  trireme_result result;
  gw_found found;
};

bool gw_found_read(const trireme_event *e, gw_found *out) {
  if (e->kind != TRIREME_EVENT_MODELS || !e->models.num) return false;
  snprintf(out->name, sizeof out->name, "%s", e->models.names[0]);
  for (size_t i = 0, used = 0; i < e->models.num && used < sizeof out->names; i++)
    used += (size_t)snprintf(out->names + used, sizeof out->names - used, i ? ", %s" : "%s", e->models.names[i]);
  out->max_model_len = e->models.max_model_len;
  out->tokenizer = e->models.tokenizer;
  return true;
}

/* Says what the other side, or this one, has done. */
static trireme_result fail(trireme_error *error, trireme_result r, const char *code, const char *message) {
  *error = (trireme_error){0};
  snprintf(error->code, sizeof error->code, "%s", code);
  snprintf(error->message, sizeof error->message, "%s", message);
  return r;
}

/* Reads the answer to trireme_ask_models. */
static trireme_result read_models(const trireme_event *e, gw_found *out, trireme_error *error) {
  if (gw_found_read(e, out)) return TRIREME_OK;
  if (e->kind != TRIREME_EVENT_ERROR)
    return fail(error, TRIREME_PROTOCOL, "corrupt", "the coordinator says of no model that it serves it");
  *error = e->error;
  return TRIREME_PROTOCOL;
}

trireme_result gw_find(const trireme_config *config, gw_found *out, trireme_error *error) {
  trireme *c = NULL;
  trireme_event e = {0};
  uint64_t id;
  *out = (gw_found){0};
  trireme_result r = trireme_connect(config, &c, error);
  if (!r) r = trireme_ask_models(c, &id, error);
  if (!r) r = trireme_next(c, config->connect_timeout_ms, &e, error); /* events of nothing else can come yet */
  if (!r) r = read_models(&e, out, error);
  if (!r && trireme_fd(c) < 0)
    r = fail(error, TRIREME_FAILED, "internal", "the connection to the coordinator has no descriptor to wait for");
  if (r)
    trireme_close(c);
  else
    out->client = c;
  return r;
}

trireme_result gw_find_first(gateway *g, const trireme_config *config, gw_found *out, trireme_error *error) {
  trireme_result r = TRIREME_INTERRUPTED;
  g->again_ns = INT64_MAX; /* its ticks do not look for it */
  for (http_server_turn(g->server); r == TRIREME_INTERRUPTED && !g->leaving;) {
    r = gw_find(config, out, error);
    if (r) http_server_turn(g->server);
  }
  g->again_ns = 0;
  return r;
}

static void *thread_main(void *arg) {
  gw_finder *f = arg;
  uint64_t one = 1;
  trireme_error error = {0};
  f->result = gw_find(&f->config, &f->found, &error);
  ssize_t ignored = write(f->fd, &one, sizeof one);
  (void)ignored;
  return NULL;
}

tri_status gw_finder_start(const trireme_config *config, gw_finder **out) {
  gw_finder *f = tri_calloc(1, sizeof *f);
  if (!f) return TRI_NO_MEMORY;
  f->config = *config;
  f->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (f->fd < 0 || pthread_create(&f->thread, NULL, thread_main, f)) {
    if (f->fd >= 0) close(f->fd);
    tri_free(f);
    return TRI_NO_MEMORY;
  }
  *out = f;
  return TRI_OK;
}

int gw_finder_fd(const gw_finder *f) { return f->fd; }

trireme_result gw_finder_take(gw_finder *f, gw_found *out) {
  pthread_join(f->thread, NULL);
  trireme_result r = f->result;
  *out = f->found;
  close(f->fd);
  tri_free(f);
  return r;
}

/* Waits for the search, and closes what it has found, which the gateway has no use for now. */
void gw_finder_stop(gw_finder *f) {
  gw_found found = {0};
  if (f && !gw_finder_take(f, &found)) trireme_close(found.client);
}
