/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread of a worker: what comes from the coordinator and what goes to it, and the lease.
 *
 * It waits in one poll for the socket and for the step thread's eventfd, at most poll_ms, and then sees to everything
 * in turn; nothing else waits but an attempt to connect. Memory of jobs is taken and freed here and not in steps. The
 * lease: any message renews it, and when none has come for --lease seconds the rank leaves, since its cluster may have
 * started another in its place. A step thread that does not notice is ended with the process a second later. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "worker/cost/machine_rates.h"
#include "worker/process/control_impl.h"
#include "worker/process/outbox_send.h"

/* HEALTH_MS: between two reports, or a share of the watchdog's timeout where that is less: a rank counts as silent
 * after three quarters of it. AGAIN_MS: between two looks for a coordinator that is away. WORDS_MS: for a first
 * connection, of a worker that ends with a reason. */
enum { HEALTH_MS = 1000, HEALTH_SHARE = 4, POLL_MS = 250, AGAIN_MS = 100, WORDS_MS = 500, STOP_MS = 2000 };

/* A job that cannot be, for a limit that the coordinator does not know. */
static tri_status send_refusal(void *ctx, const tri_refusal *r) {
  tri_control *c = ctx;
  tri_replica_msg m = {.op = TRI_REPLICA_REFUSED,
                       .refused = {.job = r->job,
                                   .epoch = c->w->opts.epoch,
                                   .code = tri_wire_str_of(tri_status_code(r->err.status)),
                                   .message = tri_wire_str_of(r->err.message),
                                   .field = tri_wire_str_of(r->err.field)}};
  return tri_control_send(c, &m);
}

static void take_job(tri_control *c, const tri_replica_assign *a) {
  tri_worker *w = c->w;
  tri_error err = {0};
  tri_job *job = NULL;
  if (a->epoch != w->opts.epoch || !c->told_ready) return; /* meant for an earlier life of this replica */
  tri_job_model m = tri_job_model_of(&w->engine->model);
  bool constrained = a->sampling.constraint.kind != TRI_CONSTRAINT_NONE;
  if (constrained && tri_answer_grammars_start(&w->grammars, w->opts.model, &w->engine->model, &w->waker) == TRI_OK) {
    m.grammars = &w->grammars.source;
    m.maker = w->grammars.maker;
  }
  tri_status st = tri_job_create(a, &w->engine->limits, &m, tri_now_ns(), &job, &err);
  if (st == TRI_OK && tri_commands_add(&w->commands, job) != TRI_OK)
    st = tri_fail(&err, TRI_NO_MEMORY, "", "no memory for the job");
  if (st == TRI_OK) return;
  tri_job_destroy(job);
  if (tri_refusals_add(&c->refusals, a->job, &err) != TRI_OK)
    send_refusal(c, &(tri_refusal){.job = a->job, .err = err}); /* no memory to keep it: at once or never */
  tri_refusals_flush(&c->refusals, send_refusal, c);
}

static void handle(tri_control *c, const tri_replica_msg *m) {
  tri_worker *w = c->w;
  switch (m->op) {
  case TRI_REPLICA_WELCOME:
    c->welcomed |= m->welcome.ok;
    if (m->welcome.ok) break;
    tri_log(TRI_LOG_ERROR, "control", "the coordinator refuses this worker (--model %s): %.*s", w->opts.model,
            (int)m->welcome.message.len, m->welcome.message.s);
    atomic_store(&w->stop, true);
    break;
  case TRI_REPLICA_ASSIGN: take_job(c, &m->assign); break;
  case TRI_REPLICA_ABORT: tri_commands_abort(&w->commands, m->abort.job); break;
  case TRI_REPLICA_DRAIN:
    atomic_store(&w->drain, true);
    if (!atomic_load(&w->loaded)) atomic_store(&w->stop, true); /* no start waits for it any more */
    break;
  case TRI_REPLICA_MEASURE: atomic_store(&w->measure, true); break;
  case TRI_REPLICA_COUNT_EXPERTS:
    if (atomic_load(&w->loaded)) tri_expert_rows_ask(&w->experts, w->engine);
    break;
  default: break;
  }
}

/* The messages of one frame. */
static void read_frame(tri_control *c, const char *data, size_t len) {
  do {
    tri_replica_msg m;
    tri_error err = {0};
    size_t used = len; /* where a message has no end, nothing after it can be found */
    tri_arena_reset(c->arena);
    tri_status st = tri_wire_first(data, len, &used, &err);
    if (st == TRI_OK) st = tri_replica_msg_unpack(data, used, c->arena, &m, &err);
    if (st == TRI_OK)
      handle(c, &m);
    else
      tri_log(TRI_LOG_WARN, "control", "unreadable message from the coordinator: %s", err.message);
    data += used;
    len -= used;
  } while (len);
}

static void receive(tri_control *c) {
  const void *data;
  size_t len;
  while (c->connected && tri_zlink_recv(c->link, &data, &len) == TRI_OK) {
    c->last_lease = tri_now_ns(); /* any word from the coordinator shows that it lives */
    read_frame(c, data, len);
    tri_waker_wake(&c->w->waker);
  }
}

static tri_status send_of_outbox(void *ctx, tri_replica_msg *m) { return tri_control_send(ctx, m); }

/* Sends what the leader has handed over, in its order; what an earlier coordinator's jobs have sampled is dropped. The
 * leader's word that it has none of them (w->cleared) is read before the ring: what it handed over before that word may
 * be of such jobs, and is taken out while c->cleared is still false. */
static void send_outboxes(tri_control *c) {
  tri_worker *w = c->w;
  bool cleared = atomic_load(&w->cleared) == c->line;
  for (;;) {
    tri_outbox *o = c->unsent ? c->unsent : tri_ring_pop(&w->outbox_full);
    if (!o) break;
    bool again = c->cleared && !tri_outbox_send(o, c->w->opts.epoch, send_of_outbox, c);
    c->unsent = again ? o : NULL;
    if (again) break;
    o->num = o->num_results = o->num_sent = 0;
    o->num_values = 0;
    tri_ring_push(&w->outbox_free, o);
  }
  c->cleared = cleared;
}

static void watch_lease(tri_control *c) {
  tri_worker *w = c->w;
  int64_t now = tri_now_ns();
  int64_t lease_ns = (int64_t)(w->opts.lease * 1e9);
  if (now - c->last_lease > lease_ns && !atomic_load(&w->stop)) {
    tri_log(TRI_LOG_ERROR, "control", "no message from the coordinator for %g s: exiting", w->opts.lease);
    atomic_store(&w->stop, true);
    tri_waker_wake(&w->waker);
  }
  /* A step thread that does not come out of a collective or a kernel must not outlive its cluster. */
  if (now - c->last_lease > lease_ns + 1000000000LL) _exit(TRI_EXIT_FAILED);
}

static void send_failure(tri_control *c) {
  tri_worker *w = c->w;
  if (w->failure.status == TRI_OK) return;
  if (!c->connected) tri_control_connect(c, WORDS_MS);
  tri_replica_msg m = {.op = TRI_REPLICA_FAILED,
                       .failed = {.replica = (uint32_t)w->opts.group,
                                  .rank = (uint32_t)w->rank,
                                  .epoch = w->opts.epoch,
                                  .code = tri_wire_str_of(tri_status_code(w->failure.status)),
                                  .message = tri_wire_str_of(w->failure.message),
                                  .field = tri_wire_str_of(w->failure.field)}};
  tri_control_send(c, &m);
}

/* Sees to the connection. A coordinator's last words, as that a rank is to leave, count after its end. */
static void look_at_link(tri_control *c) {
  if (c->connected && tri_zlink_look(c->link, NULL) != TRI_ZLINK_UP) {
    receive(c);
    tri_control_lose_link(c);
  }
  if (!c->connected) tri_control_connect(c, POLL_MS);
}

static void run(tri_control *c) {
  tri_worker *w = c->w;
  while (!atomic_load(&w->leaving)) {
    look_at_link(c);
    tri_zpoll items[] = {{.link = c->link, .fd = -1}, {.fd = w->notify_fd}};
    int ready = 0;
    uint64_t count;
    bool soon = atomic_load(&w->idled) || tri_control_is_untold(c);
    int wait_ms = soon && c->poll_ms > TRI_CONTROL_IDLED_MS ? TRI_CONTROL_IDLED_MS : c->poll_ms;
    tri_zpoll_wait(items, 2, c->connected ? wait_ms : AGAIN_MS, &ready);
    if (items[1].ready && read(w->notify_fd, &count, sizeof count) < 0 && errno != EAGAIN) break;
    receive(c);
    if (tri_commands_move(&w->commands)) tri_waker_wake(&w->waker);
    tri_refusals_flush(&c->refusals, send_refusal, c);
    send_outboxes(c);
    for (tri_job *j; (j = tri_ring_pop(&w->retired));) tri_job_destroy(j);
    if (c->connected) tri_control_report(c);
    watch_lease(c);
  }
  send_outboxes(c);
  tri_refusals_flush(&c->refusals, send_refusal, c);
  send_failure(c);
  tri_refusals_forget(&c->refusals);
}

/* A step thread that does not come out of what it is in must not stay without a line to the coordinator. */
static void await_stop(const tri_worker *w) {
  struct pollfd told = {.fd = w->notify_fd, .events = POLLIN};
  poll(&told, 1, STOP_MS);
  if (!atomic_load(&w->leaving)) _exit(TRI_EXIT_FAILED);
}

static void *control_main(void *arg) {
  tri_control c = {.w = arg, .last_lease = tri_now_ns()};
  STAILQ_INIT(&c.refusals);
  tri_error err = {0};
  tri_status st;
  uname(&c.host);
  tri_worker *w = c.w;
  c.health_ms = (int)fmin(w->opts.watchdog_timeout * 1e3 / HEALTH_SHARE, HEALTH_MS);
  c.poll_ms = c.health_ms < 2 * POLL_MS ? c.health_ms / 2 : POLL_MS;
  TRI_TRY(tri_arena_create(64 << 10, &c.arena));
  TRI_TRY(tri_zcontext_create(&c.z, &err));
  TRI_TRY(tri_control_open_link(&c, &err));
  run(&c);
cleanup:
  if (st != TRI_OK) {
    tri_log(TRI_LOG_ERROR, "control", "no connection to the coordinator: %s", err.message);
    atomic_store(&w->stop, true);
    tri_waker_wake(&w->waker);
    await_stop(w);
  }
  tri_zlink_close(c.link);
  tri_zcontext_destroy(c.z);
  tri_arena_destroy(c.arena);
  tri_buf_free(&c.buf);
  return NULL;
}

void tri_worker_measure(tri_worker *w) {
  if (!atomic_exchange(&w->measure, false) || atomic_load(&w->measured)) return;
  if (tri_measure_rooflines(w->engine, &w->rooflines) != TRI_OK)
    return; /* no memory: who asked hears of no rooflines */
  atomic_store(&w->measured, true);
  tri_control_notify(w);
}

void tri_worker_count_experts(tri_worker *w) {
  if (tri_expert_rows_take(&w->experts, w->engine)) tri_control_notify(w);
}

void tri_control_notify(tri_worker *w) {
  uint64_t one = 1;
  ssize_t ignored = write(w->notify_fd, &one, sizeof one); /* a full counter wakes the other side just as well */
  (void)ignored;
}

tri_status tri_control_start(tri_worker *w, tri_error *err) {
  w->notify_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (w->notify_fd < 0 || pthread_create(&w->control, NULL, control_main, w))
    return tri_fail(err, TRI_NO_MEMORY, "control", "cannot start the control thread: %s", strerror(errno));
  w->control_started = true;
  return TRI_OK;
}

void tri_control_stop(tri_worker *w) {
  if (!w->control_started) return;
  atomic_store(&w->leaving, true);
  tri_control_notify(w);
  pthread_join(w->control, NULL);
  w->control_started = false;
  close(w->notify_fd);
}
