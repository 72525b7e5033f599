/* SPDX-License-Identifier: Apache-2.0 */
/* A request of several jobs at a queue that has no room for all of them, and tasks that end together. */
#include <check.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/gateway/http_conn_impl.h"
#include "client/gateway/gateway.h"
#include "client/gateway/tasks.h"
#include "base/mem.h"

Suite *suite_gateway_jobs(void);

enum { NUM_JOBS = 3 };
static uint64_t num_sent;
static unsigned num_done, num_failed, num_refused;
static bool connection_is_full;
static bool was_sent[NUM_JOBS];

static trireme_result send_job(gw_exchange *x, unsigned index, uint64_t *id, trireme_error *error) {
  (void)x;
  (void)error;
  ck_assert_uint_lt(index, NUM_JOBS);
  if (connection_is_full) {
    num_refused++;
    return TRIREME_TIMEOUT;
  }
  was_sent[index] = true;
  *id = ++num_sent;
  return TRIREME_OK;
}

static void on_job(gw_exchange *x, gw_job *j, const trireme_event *e) {
  (void)j;
  if (e->kind == TRIREME_EVENT_ERROR) {
    num_failed++;
    return gw_exchange_close(x);
  }
  if (e->kind != TRIREME_EVENT_DONE) return;
  num_done++;
  if (gw_exchange_go_on(x) && !gw_exchange_has_more(x)) gw_exchange_close(x);
}

static const gw_kind job_kind = {.event = on_job, .send = send_job};

static gw_exchange *begin_jobs(gateway *g, http_conn *c) {
  connection_is_full = false;
  gw_exchange *x = tri_calloc(1, sizeof *x);
  ck_assert_ptr_nonnull(x);
  *x = (gw_exchange){.g = g, .conn = c, .kind = &job_kind, .room = 1, .jobs = &x->one};
  num_sent = num_done = num_failed = 0;
  ck_assert(gw_exchange_make_room(x, NUM_JOBS));
  gw_exchange_begin(x, NUM_JOBS);
  ck_assert_uint_eq(num_sent, NUM_JOBS);
  return x;
}

static void tell(gateway *g, uint64_t id, trireme_event_kind kind) {
  trireme_event e = {.kind = kind, .id = id};
  if (kind == TRIREME_EVENT_ERROR) e.error = (trireme_error){.code = "no_capacity", .message = "the queue is full"};
  gw_jobs_take(g, &e);
}

/* Once the queue has taken one job of a request, the others wait for room, also where none is open; then more are open
 * again. */
START_TEST(jobs_wait_for_room) {
  static gateway g;
  http_conn c = {0};
  begin_jobs(&g, &c);
  tell(&g, 1, TRIREME_EVENT_ACCEPTED);
  tell(&g, 2, TRIREME_EVENT_ERROR);
  tell(&g, 3, TRIREME_EVENT_ERROR);
  gw_jobs_expire(&g, 0);
  ck_assert_uint_eq(num_sent, 3); /* one is open, whose end is waited for */
  tell(&g, 1, TRIREME_EVENT_DONE);
  ck_assert_uint_eq(num_sent, 5);
  tell(&g, 4, TRIREME_EVENT_ERROR);
  tell(&g, 5, TRIREME_EVENT_ERROR);
  ck_assert_uint_eq(num_sent, 5);
  for (uint64_t id = 6; id < 9; id++) {
    gw_jobs_expire(&g, 0);
    ck_assert_uint_eq(num_sent, id); /* one at each tick */
    if (id < 8) tell(&g, id, TRIREME_EVENT_ERROR);
  }
  tell(&g, 8, TRIREME_EVENT_DONE);
  ck_assert_uint_eq(num_sent, 9);
  tell(&g, 9, TRIREME_EVENT_DONE);
  ck_assert_uint_eq(num_done, NUM_JOBS);
  ck_assert_uint_eq(num_failed, 0);
}
END_TEST

/* One that waits without an open job ends with the coordinator or its client; one of which nothing was taken at once.
 */
START_TEST(jobs_that_wait_end) {
  static gateway g;
  http_conn c = {0};
  for (int lost = 0; lost < 2; lost++) {
    gw_exchange *x = begin_jobs(&g, &c);
    tell(&g, 1, TRIREME_EVENT_ACCEPTED);
    tell(&g, 2, TRIREME_EVENT_ERROR);
    tell(&g, 3, TRIREME_EVENT_ERROR);
    tell(&g, 1, TRIREME_EVENT_DONE);
    tell(&g, 4, TRIREME_EVENT_ERROR);
    tell(&g, 5, TRIREME_EVENT_ERROR);
    ck_assert_ptr_eq(g.waiting, x);
    if (lost)
      gw_jobs_lose(&g, &(trireme_error){.code = "closed"});
    else
      gw_exchange_close(x);
    ck_assert_uint_eq(num_failed, lost);
    ck_assert_ptr_null(g.waiting);
    gw_jobs_expire(&g, 0);
    ck_assert_uint_eq(num_sent, 5);
  }
  begin_jobs(&g, &c);
  for (uint64_t id = 1; id <= NUM_JOBS; id++) tell(&g, id, TRIREME_EVENT_ERROR);
  ck_assert_uint_eq(num_failed, 1);
}
END_TEST

static gw_exchange *begin_full(gateway *g, http_conn *c) {
  gw_exchange *x = tri_calloc(1, sizeof *x);
  ck_assert_ptr_nonnull(x);
  *x = (gw_exchange){.g = g, .conn = c, .kind = &job_kind, .room = 1, .jobs = &x->one};
  g->o.connect_timeout_ms = 60000;
  num_sent = num_done = num_failed = num_refused = 0;
  connection_is_full = true;
  ck_assert(gw_exchange_make_room(x, NUM_JOBS));
  gw_exchange_begin(x, NUM_JOBS);
  return x;
}

/* A connection without room is tried once a tick, and nobody's jobs are lost or doubled. */
START_TEST(jobs_wait_for_a_full_connection) {
  static gateway g;
  http_conn c[2] = {0};
  gw_exchange *first = begin_full(&g, &c[0]);
  begin_full(&g, &c[1]);
  ck_assert_uint_eq(num_refused, 0); /* since the last tick it is known to be full */
  ck_assert(gw_exchange_has_more(first));
  for (unsigned tick = 1; tick < 4; tick++) {
    gw_jobs_expire(&g, 0);
    ck_assert_uint_eq(num_refused, tick);
  }
  connection_is_full = false;
  memset(was_sent, 0, sizeof was_sent);
  gw_jobs_expire(&g, 0);
  ck_assert_uint_eq(num_sent, 2 * NUM_JOBS);
  for (int i = 0; i < NUM_JOBS; i++) ck_assert(was_sent[i]);
  ck_assert_int_eq(g.full_ns, 0);
  gw_jobs_expire(&g, 0);
  ck_assert_uint_eq(num_sent, 2 * NUM_JOBS);
  for (uint64_t id = 1; id <= 2 * NUM_JOBS; id++) tell(&g, id, TRIREME_EVENT_DONE);
  ck_assert_uint_eq(num_done, 2 * NUM_JOBS);
  ck_assert_uint_eq(num_failed, 0);
  ck_assert_ptr_null(g.waiting);
}
END_TEST

/* One whose first job is open sends the others when there is room, whether a tick or its end comes first. */
START_TEST(a_connection_that_becomes_full) {
  static gateway g;
  http_conn c = {0};
  gw_exchange *x = begin_full(&g, &c);
  connection_is_full = false;
  x->at_once = 1;
  gw_jobs_expire(&g, 0);
  ck_assert_uint_eq(num_sent, 1);
  connection_is_full = true;
  tell(&g, 1, TRIREME_EVENT_DONE);
  tell(&g, 1, TRIREME_EVENT_DONE); /* of none */
  ck_assert_uint_eq(num_done, 1);
  ck_assert_ptr_eq(g.waiting, x);
  ck_assert_ptr_null(x->next_waiting);
  connection_is_full = false;
  gw_jobs_expire(&g, 0);
  tell(&g, 2, TRIREME_EVENT_DONE);
  tell(&g, 3, TRIREME_EVENT_DONE);
  ck_assert_uint_eq(num_done, NUM_JOBS);
  ck_assert_uint_eq(num_failed, 0);
}
END_TEST

/* It ends with an error where nobody takes anything, and with its client. */
START_TEST(a_connection_that_stays_full) {
  static gateway g;
  http_conn c[3] = {0};
  gw_exchange *gone = begin_full(&g, &c[0]);
  begin_full(&g, &c[1]);
  begin_full(&g, &c[2]);
  gw_exchange_close(gone);
  ck_assert_int_gt(g.full_ns, 0);
  g.full_ns -= 61 * 1000000000LL;
  gw_jobs_expire(&g, 0);
  ck_assert_uint_eq(num_failed, 2);
  ck_assert_uint_eq(num_sent, 0);
  ck_assert_ptr_null(g.waiting);
}
END_TEST

/* ---- tasks that have ended ---- */

enum { NUM_TASKS = 40, LONG_BODY = 5000, AT_ONCE = 16 };
static atomic_uint num_run;
static unsigned num_ready;

static tri_status run_task(gw_task *t, tri_tokenizer_scratch *scratch, tri_error *err) {
  (void)t;
  (void)scratch;
  (void)err;
  atomic_fetch_add(&num_run, 1);
  return TRI_OK;
}

static void on_ready(gw_task *t) {
  num_ready++;
  gw_exchange_close(t->x);
}

static void free_task(gw_task *t) { tri_free(t); }
static void leave_task(gw_exchange *x) { gw_task_leave(x->state); }

/* However many tasks have ended: the loop has few of them at once, and looks at its sockets in between. */
START_TEST(ended_tasks_in_turns) {
  static const char path[] = TRI_TEST_SCRATCH "/gateway_jobs_keys", key[] = "a sk-0123456789abcdef0123456789abcdef\n";
  static const gw_kind kind = {.free = leave_task};
  static gateway g;
  static http_server server;
  static http_conn all[NUM_TASKS];
  FILE *f = fopen(path, "w");
  ck_assert(f && fputs(key, f) >= 0 && !fclose(f) && !chmod(path, 0600));
  ck_assert_int_eq(gw_keys_load(path, &g.keys, NULL), TRI_OK); /* without keys a connection's address is looked at */
  ck_assert_int_eq(gw_tasks_open(NULL, 1, &g.tasks), TRI_OK);
  for (int i = 0; i < NUM_TASKS; i++) {
    gw_task *t = tri_calloc(1, sizeof *t);
    ck_assert_ptr_nonnull(t);
    *t = (gw_task){.plain = true, .run = run_task, .ready = on_ready, .free = free_task};
    all[i].server = &server;
    all[i].parser.body.data = tri_calloc(1, LONG_BODY);
    all[i].parser.body.len = LONG_BODY;
    gw_task_start(&g, &all[i], &kind, t, t);
  }
  while (atomic_load(&num_run) < NUM_TASKS) usleep(1000);
  struct pollfd p = {.fd = gw_tasks_fd(g.tasks), .events = POLLIN};
  while (num_ready < NUM_TASKS) {
    unsigned before = num_ready;
    ck_assert_int_eq(poll(&p, 1, 5000), 1);
    gw_tasks_take(g.tasks);
    ck_assert_uint_le(num_ready - before, AT_ONCE);
  }
  ck_assert_int_eq(poll(&p, 1, 0), 0);
  gw_tasks_close(g.tasks);
  gw_keys_free(g.keys);
}
END_TEST

Suite *suite_gateway_jobs(void) {
  Suite *s = suite_create("gateway_jobs");
  TCase *t = tcase_create("gateway_jobs");
  tcase_add_test(t, jobs_wait_for_a_full_connection);
  tcase_add_test(t, a_connection_that_becomes_full);
  tcase_add_test(t, a_connection_that_stays_full);
  tcase_add_test(t, jobs_wait_for_room);
  tcase_add_test(t, jobs_that_wait_end);
  tcase_add_test(t, ended_tasks_in_turns);
  suite_add_tcase(s, t);
  return s;
}
