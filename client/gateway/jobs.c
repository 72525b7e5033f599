/* SPDX-License-Identifier: Apache-2.0 */
/* Which HTTP request an event is for. The numbers of libtrireme count up, so that they spread over buckets evenly.
 *
 * A job: sent -> open -> its last event. It may be sent again in two cases. The connection to the coordinator has no
 * room (`full`, for all exchanges until the next tick): a send is not tried, and where that lasts longer than the
 * connect timeout the coordinator hangs. The coordinator's queue has no room for this client: the exchange lowers how
 * many it has open at once, and raises it with each job that ends well.
 *
 * An exchange that is waiting for a tick is in one of two lists: `waiting`, or `resumed` while a tick works through it.
 * Events may close exchanges in the middle of such a loop, so each loop takes one off its list before it calls. */
#include <stdio.h>
#include <string.h>

#include "client/gateway/gateway.h"
#include "base/mem.h"
#include "base/wait.h"

static gw_job **bucket(gateway *g, uint64_t id) { return &g->jobs[id % GW_JOB_BUCKETS]; }

gw_exchange *gw_exchange_make(gateway *g, http_conn *c, const gw_kind *kind, void *state) {
  gw_exchange *x = tri_calloc(1, sizeof *x);
  gw_exchange made = {.g = g, .conn = c, .kind = kind, .state = state};
  if (!x) {
    if (kind->free) kind->free(&made);
    gw_respond_error(c, &(oai_error){503, "no_memory", "", "out of memory"});
    return NULL;
  }
  *x = made;
  x->jobs = &x->one;
  x->room = 1;
  gw_keys_allow(g->keys, http_parser_field(http_conn_request(c), "authorization"), x->caller);
  if (!g->keys) http_conn_client(c, x->caller); /* who have no names take turns by where they are */
  http_str given = gw_id_given(c);
  if (given.len) memcpy(x->external_id, given.s, given.len);
  http_conn_set_data(c, x);
  return x;
}

/* Called before the first job is sent, since jobs in buckets must not move. */
bool gw_exchange_make_room(gw_exchange *x, size_t num_jobs) {
  if (num_jobs <= x->room) return true;
  gw_job *jobs = tri_calloc(num_jobs, sizeof *jobs);
  if (!jobs) return false;
  if (x->jobs != &x->one) tri_free(x->jobs);
  x->jobs = jobs;
  x->room = num_jobs;
  return true;
}

/* Adds a job that has been sent to its bucket. */
static void open_job(gw_exchange *x, gw_job *j, uint64_t id) {
  gw_job **at = bucket(x->g, id);
  *j = (gw_job){.next = *at, .x = x, .id = id, .index = (uint32_t)(j - x->jobs), .open = true};
  *at = j;
  x->num_open++;
}

static void take_off(gw_exchange **list, const gw_exchange *x) {
  while (*list && *list != x) list = &(*list)->next_waiting;
  if (*list) *list = x->next_waiting;
}

static gw_exchange *take_first(gw_exchange **list) {
  gw_exchange *x = *list;
  if (x) *list = x->next_waiting;
  return x;
}

static void wait_for_tick(gw_exchange *x) {
  take_off(&x->g->waiting, x);
  x->next_waiting = x->g->waiting;
  x->g->waiting = x;
}

/* Sends to a connection that has no room wait for the next tick, all of them. Returns whether there is none. */
static bool is_full(gateway *g, trireme_result sent) {
  if (sent == TRIREME_TIMEOUT && !g->full) {
    g->full = true;
    if (!g->full_ns) g->full_ns = tri_now_ns();
  }
  if (sent == TRIREME_OK) g->full_ns = 0;
  return g->full;
}

/* Returns whether the connection has had no room for so long that the other end must be gone. */
static bool is_stuck(const gateway *g) {
  return g->full_ns && tri_now_ns() - g->full_ns > g->o.connect_timeout_ms * 1000000;
}

/* Returns the next job to send: one that has been refused for want of room, or a new one. */
static gw_job *next_job(gw_exchange *x) {
  gw_job *j = x->jobs;
  if (!x->num_again) return &x->jobs[x->num_jobs++];
  while (!j->again) j++;
  x->num_again--;
  return j;
}

bool gw_exchange_has_more(const gw_exchange *x) { return x->num_open || x->num_again || x->num_jobs < x->num_wanted; }

bool gw_exchange_go_on(gw_exchange *x) {
  while (x->num_open < x->at_once && (x->num_again || x->num_jobs < x->num_wanted)) {
    gw_job *j = next_job(x);
    trireme_error error = {0};
    uint64_t id;
    trireme_result r = x->g->full ? TRIREME_TIMEOUT : x->kind->send(x, (unsigned)(j - x->jobs), &id, &error);
    bool full = is_full(x->g, r);
    if (r == TRIREME_OK) {
      open_job(x, j, id);
      continue;
    }
    if (full && !is_stuck(x->g)) {
      j->again = true;
      x->num_again++;
      wait_for_tick(x);
      return true;
    }
    if (j == &x->jobs[x->num_jobs - 1]) x->num_jobs--; /* it was none */
    trireme_event e = {.kind = TRIREME_EVENT_ERROR, .error = error};
    if (full) e.error = (trireme_error){.code = "closed", .message = "the coordinator does not take requests"};
    x->kind->event(x, j, &e);
    return false;
  }
  return true;
}

void gw_exchange_begin(gw_exchange *x, size_t num_jobs) {
  x->num_wanted = (unsigned)num_jobs;
  x->at_once = GW_JOBS_AT_ONCE;
  gw_exchange_go_on(x);
}

static void forget(gateway *g, gw_job *j) {
  gw_job **at = bucket(g, j->id);
  while (*at != j) at = &(*at)->next;
  *at = j->next;
  j->open = false;
  j->x->num_open--;
}

static void cancel(gateway *g, gw_job *j) {
  if (j->cancelled || !g->client || g->full) return;
  trireme_result r = trireme_cancel(g->client, j->id, NULL, NULL, NULL);
  j->cancelled = r == TRIREME_OK;
  is_full(g, r);
}

/* Those that find no room are tried again at the next tick, and at the job's next event. */
static void cancel_jobs(gw_exchange *x) {
  bool all = true;
  for (unsigned i = 0; i < x->num_jobs; i++) {
    if (!x->jobs[i].open) continue;
    cancel(x->g, &x->jobs[i]);
    all = all && x->jobs[i].cancelled;
  }
  if (!all) wait_for_tick(x);
}

/* An exchange with a connection has an answer to give; one with open jobs has events to come. */
static void free_if_over(gw_exchange *x) {
  if (x->conn || x->num_open) return;
  take_off(&x->g->waiting, x);
  take_off(&x->g->resumed, x);
  if (x->jobs != &x->one) tri_free(x->jobs);
  tri_free(x);
}

void gw_exchange_close(gw_exchange *x) {
  if (x->conn) http_conn_set_data(x->conn, NULL);
  x->conn = NULL;
  if (x->kind->free) x->kind->free(x);
  cancel_jobs(x);
  free_if_over(x);
}

void gw_exchange_fail(gw_exchange *x, const oai_error *e) {
  gw_respond_error(x->conn, e);
  gw_exchange_close(x);
}

bool gw_exchange_has_coordinator(gw_exchange *x) {
  if (x->g->client) return true;
  gw_respond_no_coordinator(x->conn);
  gw_exchange_close(x);
  return false;
}

void gw_exchange_cut(gw_exchange *x) {
  trireme_event e = {
      .kind = TRIREME_EVENT_ERROR,
      .error = {.code = "draining", .message = "the gateway shuts down, and the answer did not end in time"}};
  oai_error error = oai_error_of(&e.error);
  if (x->kind->event)
    x->kind->event(x, NULL, &e);
  else
    gw_exchange_fail(x, &error);
}

/* Several prompts may be more than the queue takes of one client: those that it refuses wait until one of the others
 * has ended, or for the next tick where none is open, and from then on no more are open than it has taken. Returns
 * false where the queue has taken none of them yet: the client hears that it is full. */
static bool wait_for_room(gw_exchange *x, gw_job *j, const trireme_event *e) {
  bool full = e->kind == TRIREME_EVENT_ERROR && !strcmp(e->error.code, "no_capacity") && !e->error.field[0];
  if (!full || !x->conn || !x->kind->send || !(x->num_open || x->accepted)) return false;
  j->again = true;
  x->num_again++;
  x->at_once = x->num_open;
  if (x->num_open) return true;
  x->at_once = 1;
  wait_for_tick(x);
  return true;
}

static bool is_last(const trireme_event *e) {
  return e->kind != TRIREME_EVENT_ACCEPTED && e->kind != TRIREME_EVENT_TOKENS;
}

/* Each job that ends well lets one more be open: others who filled the queue may have gone. */
static void note_success(gw_exchange *x, const trireme_event *e) {
  if (e->kind == TRIREME_EVENT_ERROR) return;
  x->accepted = true;
  if (is_last(e) && x->at_once < GW_JOBS_AT_ONCE) x->at_once++;
}

/* The job leaves its bucket before the exchange hears of its end: the endpoint may close the exchange then, and with no
 * job open that frees it. */
void gw_jobs_take(gateway *g, const trireme_event *e) {
  gw_job *j = *bucket(g, e->id);
  while (j && j->id != e->id) j = j->next;
  if (!j) return; /* the answer to a cancel */
  gw_exchange *x = j->x;
  if (is_last(e)) forget(g, j);
  note_success(x, e);
  if (wait_for_room(x, j, e)) return;
  if (x->conn)
    x->kind->event(x, j, e);
  else if (j->open)
    cancel(g, j);
  else
    free_if_over(x);
}

void gw_jobs_lose(gateway *g, const trireme_error *error) {
  trireme_event e = {.kind = TRIREME_EVENT_ERROR, .error = *error};
  for (size_t i = 0; i < GW_JOB_BUCKETS; i++)
    while (g->jobs[i]) {
      e.id = g->jobs[i]->id;
      gw_jobs_take(g, &e);
    }
  for (gw_exchange *x; (x = take_first(&g->waiting));) x->kind->event(x, next_job(x), &e);
}

/* Those that find no room again wait for the next tick, in the other list. */
static void resume(gateway *g) {
  g->full = false;
  g->resumed = g->waiting;
  g->waiting = NULL;
  for (gw_exchange *x; (x = take_first(&g->resumed));) {
    if (x->conn)
      gw_exchange_go_on(x);
    else
      cancel_jobs(x);
  }
}

void gw_jobs_expire(gateway *g, int64_t now_ns) {
  resume(g);
  for (size_t i = 0; i < GW_JOB_BUCKETS; i++)
    for (gw_job *j = g->jobs[i], *next; j; j = next) {
      gw_exchange *x = j->x;
      next = j->next; /* a job stays until its last event */
      if (!x->conn || !x->deadline_ns || now_ns < x->deadline_ns) continue;
      gw_exchange_fail(x, &(oai_error){504, "timeout", "", "the coordinator did not answer in time"});
    }
}
