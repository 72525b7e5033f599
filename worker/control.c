/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread of a worker: its line to the coordinator. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/log.h"
#include "base/version.h"
#include "worker/expert_counts.h"
#include "worker/health.h"
#include "worker/outbox_send.h"
#include "worker/measure.h"
#include "runtime/cost/machine_file.h"
#include "worker/refusals.h"
#include "worker/worker.h"

/* HEALTH_MS: between two reports, or a share of the watchdog's timeout where that is less: a rank counts as silent
 * after three quarters of it. COUNT_MS: between two reports of what experts have had to do, for which a device's steps
 * are waited for. IDLED_MS: between two reports because the leader has run out of work, which short jobs make it do
 * often; and how long a follower, which hears nothing of that, has had no new step when it takes itself for idle.
 * AGAIN_MS: between two looks for a coordinator that is away. REGISTER_MS: for an answer to a registration, which
 * does not come while the coordinator takes the rank's lost connection for one that is there. WORDS_MS: for a first
 * connection, of a worker that ends with a reason. */
enum {
  COUNT_MS = 10000,
  HEALTH_MS = 1000,
  HEALTH_SHARE = 4,
  IDLED_MS = 100,
  POLL_MS = 250,
  AGAIN_MS = 100,
  REGISTER_MS = 1000,
  WORDS_MS = 500,
  STOP_MS = 2000
};

struct control {
  tri_worker *w;
  tri_zcontext *z;
  tri_zlink *link; /* one connection to one coordinator; NULL: none could be opened */
  bool connected;  /* this rank has asked over it to be registered */
  bool welcomed;   /* and is */
  uint64_t line;   /* number of the connection, from 0 on */
  bool cleared;    /* what the leader has for the coordinator comes of jobs that came over this connection */
  tri_arena *arena;
  tri_buf buf;
  tri_outbox *unsent; /* popped, but the socket was full */
  tri_refusals refusals;
  uint64_t seq;
  int health_ms, poll_ms;
  int64_t last_health, last_idled, last_lease, last_count, last_register;
  uint64_t seen_step, sent_step; /* when last looked at; in the last report */
  uint32_t sent_layer;           /* in that report */
  int64_t seen_since;            /* since when it is seen_step */
  bool registered_hash, registered_facts, told_ready;
  tri_health health;
  struct utsname host;
};

static tri_wire_str str(const char *s) { return (tri_wire_str){s, strlen(s)}; }

static tri_status send_msg(struct control *c, tri_group_msg *m) {
  if (!c->connected) return TRI_CLOSED;
  m->seq = ++c->seq;
  tri_status st = tri_group_msg_pack(m, &c->buf);
  return st == TRI_OK ? tri_zlink_send(c->link, c->buf.data, c->buf.len) : st;
}

/* Strings are borrowed from c. */
static tri_group_register registration(struct control *c) {
  tri_worker *w = c->w;
  tri_group_register r = {.version = str(TRIREME_VERSION),
                          .host = str(c->host.nodename),
                          .group = (uint32_t)w->opts.group,
                          .rank = (uint32_t)w->rank,
                          .world = (uint32_t)w->world,
                          .tp = (uint32_t)w->layout.tp,
                          .pp = (uint32_t)w->layout.pp,
                          .dp = (uint32_t)w->layout.dp,
                          .ep = (uint32_t)w->layout.ep,
                          .epoch = w->opts.epoch,
                          .pid = getpid()};
  if (atomic_load(&w->hashed)) {
    r.weights_hash = w->weights_hash;
    c->registered_hash = true;
  }
  if (atomic_load(&w->loaded)) {
    const tri_limits *l = &w->engine->limits;
    r.model_hash = tri_model_config_hash(&w->engine->model);
    r.max_model_len = (uint64_t)l->max_model_len;
    r.vocab_size = (uint64_t)l->vocab_size;
    uint64_t shards = (uint64_t)w->layout.dp; /* limits are those of each */
    r.kv_blocks = shards * (uint64_t)l->num_blocks;
    r.block_size = (uint64_t)l->block_size;
    r.max_num_seqs = shards * (uint64_t)l->max_num_seqs;
    r.max_num_batched_tokens = shards * (uint64_t)l->max_num_batched_tokens;
    c->registered_facts = true;
  }
  if (atomic_load(&w->ready)) r.layer_seconds = w->layer_seconds;
  return r;
}

static void send_register(struct control *c) {
  tri_group_msg m = {.op = TRI_GROUP_REGISTER, .reg = registration(c)};
  c->last_register = tri_now_ns();
  if (send_msg(c, &m) != TRI_OK) c->registered_hash = c->registered_facts = false; /* the next report has them */
}

/* ---- the connection ---- */

/* One that is lost is not made again under the same socket: what is sent reaches this coordinator or nobody. */
static tri_status open_link(struct control *c, tri_error *err) {
  const tri_worker *w = c->w;
  tri_zlink_config lc = {.endpoint = w->boot.endpoint,
                         .own = &w->boot.own,
                         .server_key = w->boot.server_key,
                         .max_message = TRI_WIRE_MAX_MESSAGE,
                         .backlog = 4096,
                         .refuse_unconnected = true};
  return tri_zlink_open(c->z, &lc, &c->link, err);
}

static void close_link(struct control *c) {
  tri_zlink_close(c->link);
  c->link = NULL;
  c->connected = c->welcomed = false;
}

/* Waits so long for a coordinator, and registers. */
static void connect_link(struct control *c, int wait_ms) {
  if (!c->link && open_link(c, NULL) != TRI_OK) return;
  tri_group_msg m = {.op = TRI_GROUP_REGISTER, .seq = 1, .reg = registration(c)};
  tri_status st = tri_group_msg_pack(&m, &c->buf);
  if (st == TRI_OK) st = tri_zlink_send_wait(c->link, c->buf.data, c->buf.len, wait_ms);
  c->connected = st == TRI_OK;
  c->last_register = tri_now_ns();
  c->seq = 1;
  if (st != TRI_OK && st != TRI_TIMEOUT && st != TRI_ABORTED) close_link(c); /* the next one is a new attempt */
  if (c->connected && c->line && !c->w->rank) tri_log(TRI_LOG_INFO, "control", "the coordinator is there again");
}

/* The jobs go with their coordinator. Its successor gives other ones the same numbers, or gives these again. */
static void lose_link(struct control *c) {
  tri_worker *w = c->w;
  close_link(c);
  tri_commands_forget(&w->commands);
  tri_refusals_forget(&c->refusals);
  c->cleared = c->told_ready = c->registered_hash = c->registered_facts = false;
  atomic_store(&w->line, ++c->line);
  tri_waker_wake(&w->waker);
  if (!w->rank && !atomic_load(&w->drain) && !atomic_load(&w->stop))
    tri_log(TRI_LOG_WARN, "control", "the coordinator is lost: waiting for another, at most %g s", w->opts.lease);
}

/* ---- reports ---- */

static void send_health(struct control *c) {
  tri_group_msg m = {.op = TRI_GROUP_HEALTH, .health = tri_health_take(c->w, &c->health)};
  c->sent_layer = (uint32_t)m.health.layer;
  if (atomic_load(&c->w->loaded)) c->sent_step = m.health.step;
  send_msg(c, &m);
  if (atomic_load(&c->w->loaded)) tri_health_keep(c->w, &c->health, &m.health.stream);
}

/* `trireme plan` predicts with what a worker has measured of its device. */
static void keep_figures(const tri_worker *w) {
  char path[PATH_MAX], device[TRI_MACHINE_NAME];
  tri_machine_figures f = {w->floors.read_bytes_per_s, w->floors.flops_per_s};
  tri_error err = {0};
  tri_machine_file_path(path);
  tri_machine_name(w->engine->backend->tactics_key, device);
  if (w->rank || !path[0] || !device[0]) return;
  if (tri_machine_file_add(path, device, tri_measure_type(w->engine), &f, &err) != TRI_OK)
    tri_log(TRI_LOG_WARN, "plan", "what was measured is not kept: %s", err.message);
}

static void send_floors(struct control *c) {
  const tri_worker *w = c->w;
  tri_group_msg m = {
      .op = TRI_GROUP_FLOORS,
      .floors = {
          .group = (uint32_t)w->opts.group, .rank = (uint32_t)w->rank, .epoch = w->opts.epoch, .floors = w->floors}};
  send_msg(c, &m);
}

static void send_experts(struct control *c) {
  tri_group_msg m = {.op = TRI_GROUP_EXPERTS};
  tri_arena_reset(c->arena);
  if (tri_expert_counts_message(c->w, c->arena, &m.experts) == TRI_OK) send_msg(c, &m);
  atomic_store(&c->w->experts_counted, false);
}

/* A job that cannot be, for a limit that the coordinator does not know. */
static tri_status send_refusal(void *ctx, const tri_refusal *r) {
  struct control *c = ctx;
  tri_group_msg m = {.op = TRI_GROUP_REFUSED,
                     .refused = {.job = r->job,
                                 .epoch = c->w->opts.epoch,
                                 .code = str(tri_status_code(r->err.status)),
                                 .message = str(r->err.message),
                                 .field = str(r->err.field)}};
  return send_msg(c, &m);
}

static void take_job(struct control *c, const tri_group_assign *a) {
  tri_worker *w = c->w;
  tri_error err = {0};
  tri_job *job = NULL;
  if (a->epoch != w->opts.epoch || !c->told_ready) return; /* meant for an earlier life of this group */
  tri_job_model m = tri_job_model_of(&w->engine->model);
  tri_status st = tri_job_create(a, &w->engine->limits, &m, tri_now_ns(), &job, &err);
  if (st == TRI_OK && tri_commands_add(&w->commands, job) != TRI_OK)
    st = tri_fail(&err, TRI_NO_MEMORY, "", "no memory for the job");
  if (st == TRI_OK) return;
  tri_job_destroy(job);
  if (tri_refusals_add(&c->refusals, a->job, &err) != TRI_OK)
    send_refusal(c, &(tri_refusal){.job = a->job, .err = err});
  tri_refusals_flush(&c->refusals, send_refusal, c);
}

static void handle(struct control *c, const tri_group_msg *m) {
  tri_worker *w = c->w;
  switch (m->op) {
  case TRI_GROUP_WELCOME:
    c->welcomed |= m->welcome.ok;
    if (m->welcome.ok) break;
    tri_log(TRI_LOG_ERROR, "control", "the coordinator refuses this worker (--model %s): %.*s", w->opts.model,
            (int)m->welcome.message.len, m->welcome.message.s);
    atomic_store(&w->stop, true);
    break;
  case TRI_GROUP_ASSIGN: take_job(c, &m->assign); break;
  case TRI_GROUP_ABORT: tri_commands_abort(&w->commands, m->abort.job); break;
  case TRI_GROUP_DRAIN:
    atomic_store(&w->drain, true);
    if (!atomic_load(&w->loaded)) atomic_store(&w->stop, true); /* nobody waits for this start any more */
    break;
  case TRI_GROUP_MEASURE: atomic_store(&w->measure, true); break;
  case TRI_GROUP_COUNT_EXPERTS: tri_expert_counts_ask(w); break;
  default: break;
  }
}

/* The messages of one frame. */
static void read_frame(struct control *c, const char *data, size_t len) {
  do {
    tri_group_msg m;
    tri_error err = {0};
    size_t used = len; /* where a message has no end, nothing behind it can be found */
    tri_arena_reset(c->arena);
    tri_status st = tri_wire_first(data, len, &used, &err);
    if (st == TRI_OK) st = tri_group_msg_unpack(data, used, c->arena, &m, &err);
    if (st == TRI_OK)
      handle(c, &m);
    else
      tri_log(TRI_LOG_WARN, "control", "unreadable message from the coordinator: %s", err.message);
    data += used;
    len -= used;
  } while (len);
}

static void receive(struct control *c) {
  const void *data;
  size_t len;
  while (c->connected && tri_zlink_recv(c->link, &data, &len) == TRI_OK) {
    c->last_lease = tri_now_ns(); /* any word from the coordinator shows that it lives */
    read_frame(c, data, len);
    tri_waker_wake(&c->w->waker);
  }
}

static tri_status send_of_outbox(void *ctx, tri_group_msg *m) { return send_msg(ctx, m); }

/* Drops what an earlier coordinator's jobs have drawn. The leader's word that it has none of them is read in front of
 * what it has handed over by then. */
static void send_outboxes(struct control *c) {
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

static bool is_untold(const struct control *c) {
  return c->seen_step != c->sent_step || c->sent_layer != TRI_LAYER_IDLE;
}

/* Tells whether there are no steps any more and the last report does not say so: until the next one, status would show
 * a rank that lags, or one in a layer. */
static bool has_come_to_rest(struct control *c, int64_t now) {
  tri_worker *w = c->w;
  if (!atomic_load(&w->loaded) || atomic_load(&w->engine->progress.layer) != TRI_LAYER_IDLE) return false;
  uint64_t step = atomic_load(&w->engine->progress.step);
  if (step != c->seen_step) {
    c->seen_step = step;
    c->seen_since = now;
  }
  return is_untold(c) && !atomic_load(&w->busy) && now - c->seen_since >= IDLED_MS * 1000000LL;
}

static void report(struct control *c) {
  tri_worker *w = c->w;
  int64_t now = tri_now_ns();
  /* Weights that are not to be served are refused before minutes of loading. */
  bool hash_is_new = atomic_load(&w->hashed) && !c->registered_hash;
  bool facts_are_new = atomic_load(&w->loaded) && !c->registered_facts;
  bool unheard = !c->welcomed && now - c->last_register >= REGISTER_MS * 1000000LL;
  if (hash_is_new || facts_are_new || unheard) send_register(c);
  if (atomic_load(&w->ready) && c->welcomed && c->cleared && !c->told_ready && w->rank == 0) {
    tri_group_msg m = {.op = TRI_GROUP_READY,
                       .ready = {.group = (uint32_t)w->opts.group,
                                 .epoch = w->opts.epoch,
                                 .load_seconds = w->load_seconds,
                                 .layer_seconds = w->layer_seconds,
                                 .canary_ids = w->canary_ids,
                                 .num_canary_ids = (size_t)w->num_canary,
                                 .canary_millis = w->canary_millis,
                                 .num_canary_millis = (size_t)w->num_canary}};
    c->told_ready = send_msg(c, &m) == TRI_OK;
  }
  if (c->welcomed && atomic_exchange(&w->measured, false)) {
    send_floors(c);
    keep_figures(w);
  }
  if (atomic_load(&w->loaded) && now - c->last_count >= COUNT_MS * 1000000LL) {
    tri_expert_counts_ask(w);
    c->last_count = now;
  }
  if (c->welcomed && atomic_load(&w->experts_counted)) send_experts(c);
  bool idled = now - c->last_idled >= IDLED_MS * 1000000LL && atomic_exchange(&w->idled, false);
  if (idled) c->last_idled = now;
  if (has_come_to_rest(c, now) || idled || now - c->last_health >= c->health_ms * 1000000LL) {
    send_health(c);
    c->last_health = now;
  }
}

static void watch_lease(struct control *c) {
  tri_worker *w = c->w;
  int64_t now = tri_now_ns();
  int64_t lease_ns = (int64_t)(w->opts.lease * 1e9);
  if (now - c->last_lease > lease_ns && !atomic_load(&w->stop)) {
    tri_log(TRI_LOG_ERROR, "control", "no word from the coordinator for %g s: leaving", w->opts.lease);
    atomic_store(&w->stop, true);
    tri_waker_wake(&w->waker);
  }
  /* A step thread that does not come out of a collective or a kernel must not outlive its cluster. */
  if (now - c->last_lease > lease_ns + 1000000000LL) _exit(TRI_EXIT_FAILED);
}

static void send_failure(struct control *c) {
  tri_worker *w = c->w;
  if (w->failure.status == TRI_OK) return;
  if (!c->connected) connect_link(c, WORDS_MS);
  tri_group_msg m = {.op = TRI_GROUP_FAILED,
                     .failed = {.group = (uint32_t)w->opts.group,
                                .rank = (uint32_t)w->rank,
                                .epoch = w->opts.epoch,
                                .code = str(tri_status_code(w->failure.status)),
                                .message = str(w->failure.message),
                                .field = str(w->failure.field)}};
  send_msg(c, &m);
}

/* Sees to the connection. A coordinator's last words, as that a rank is to leave, count behind its end. */
static void look_at_link(struct control *c) {
  if (c->connected && tri_zlink_look(c->link, NULL) != TRI_ZLINK_UP) {
    receive(c);
    lose_link(c);
  }
  if (!c->connected) connect_link(c, POLL_MS);
}

static void run(struct control *c) {
  tri_worker *w = c->w;
  while (!atomic_load(&w->leaving)) {
    look_at_link(c);
    tri_zpoll items[] = {{.link = c->link, .fd = -1}, {.fd = w->notify_fd}};
    int ready = 0;
    uint64_t count;
    bool soon = atomic_load(&w->idled) || is_untold(c);
    int wait_ms = soon && c->poll_ms > IDLED_MS ? IDLED_MS : c->poll_ms;
    tri_zpoll_wait(items, 2, c->connected ? wait_ms : AGAIN_MS, &ready);
    if (items[1].ready && read(w->notify_fd, &count, sizeof count) < 0 && errno != EAGAIN) break;
    receive(c);
    if (tri_commands_move(&w->commands)) tri_waker_wake(&w->waker);
    tri_refusals_flush(&c->refusals, send_refusal, c);
    send_outboxes(c);
    for (tri_job *j; (j = tri_ring_pop(&w->retired));) tri_job_destroy(j);
    if (c->connected) report(c);
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
  struct control c = {.w = arg, .last_lease = tri_now_ns()};
  STAILQ_INIT(&c.refusals);
  tri_error err = {0};
  tri_status st;
  uname(&c.host);
  tri_worker *w = c.w;
  c.health_ms = (int)fmin(w->opts.watchdog_timeout * 1e3 / HEALTH_SHARE, HEALTH_MS);
  c.poll_ms = c.health_ms < 2 * POLL_MS ? c.health_ms / 2 : POLL_MS;
  TRI_TRY(tri_arena_create(64 << 10, &c.arena));
  TRI_TRY(tri_zcontext_create(&c.z, &err));
  TRI_TRY(open_link(&c, &err));
  run(&c);
cleanup:
  if (st != TRI_OK) {
    tri_log(TRI_LOG_ERROR, "control", "no line to the coordinator: %s", err.message);
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
  if (tri_measure_floors(w->engine, &w->floors) != TRI_OK) return; /* no memory: who asked hears of no floors */
  atomic_store(&w->measured, true);
  tri_control_notify(w);
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
