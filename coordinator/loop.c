/* SPDX-License-Identifier: Apache-2.0 */
/* The loop around the core: what comes over the sockets, from the supervisor, by signals and from the clock.
 *
 * One thread, one poll, no locks: each turn takes what has come from every source, up to a bound for each so that
 * clients cannot keep workers waiting, then ticks ten times a second, then flushes. What the core has recorded is
 * written to the journal before a message that depends on it leaves: in flush for all of a turn, or earlier where the
 * records of a turn become many. Only the write is waited for here; what waits for the disk is answered later, through
 * the recorder's descriptor. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/net/connection_guard.h"
#include "coordinator/server.h"
#include "base/log.h"
#include "base/wait.h"

enum {
  TICK_MS = 100,
  BATCH = 256,  /* messages of one socket before the other's turn */
  TURN_MS = 20, /* after which a turn of clients ends as well: a message of theirs may take milliseconds */
  GUARD_MS = 100,
  FLUSH_MS = 300, /* for last words to leave */
  OVER_MS = 1000, /* for what a worker has said before it ended to arrive */
};
#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL

static double cpu_seconds(void) { return (double)tri_process_cpu_ns() / 1e9; }

/* Returns the counts since the last whole second. Idle time counts in the rate; the CPU time of a second without tokens
 * does not, as it made none. */
static struct server_second since_last(const struct server *s, int64_t now) {
  uint64_t tokens = tri_core_generated_tokens(s->core) - s->tokens_before;
  return (struct server_second){tokens, tokens ? cpu_seconds() - s->cpu_before : 0,
                                (double)(now - s->last_second) / 1e9};
}

/* The figures include the second that has begun: a client that asks right after some work wants it in. */
static void set_facts(struct server *s) {
  struct server_second sum = since_last(s, tri_now_ns());
  for (unsigned i = 0; i < SERVER_WINDOW_S && i < s->num_seconds; i++) {
    const struct server_second *w = &s->window[i];
    sum.tokens += w->tokens;
    sum.cpu_s += w->cpu_s;
    sum.wall_s += w->wall_s;
  }
  if (sum.tokens) s->facts.cpu_us_per_token = sum.cpu_s * 1e6 / (double)sum.tokens;
  s->facts.cpu_s = cpu_seconds();
  s->facts.tokens_per_second = sum.wall_s > 0 ? (double)sum.tokens / sum.wall_s : 0;
  tri_guard_figures g = tri_connection_guard_figures();
  s->facts.refused_connections = g.refused + g.too_fast;
  s->facts.cut_connections = g.cut + g.unread;
  tri_core_set_facts(s->core, &s->facts);
}

/* The arena holds one message at a time: the core copies what it keeps. */
static void take_client(struct server *s, const tri_peer *from, const void *data, size_t len, int frames) {
  tri_client_msg m;
  tri_error err = {0};
  uint64_t id = 0;
  tri_status st = TRI_OK;
  tri_connection_guard_message(from->connection);
  tri_arena_reset(s->arena);
  if (frames > 1) st = tri_fail(&err, TRI_CORRUPT, "", "a request is one frame, this message has several");
  if (st == TRI_OK) st = tri_client_msg_unpack(data, len, s->arena, &m, &id, &err);
  if (st == TRI_OK && (m.op == TRI_OP_STATUS || m.op == TRI_OP_STATS)) set_facts(s);
  if (st == TRI_OK)
    tri_core_client(s->core, tri_now_ns(), from, &m);
  else
    tri_core_client_error(s->core, tri_now_ns(), from, id, &err);
}

static void lose_journal(struct server *s, const tri_error *err);

/* Writes what was recorded, and hears whether the disk has room for new jobs. */
static void keep(struct server *s) {
  tri_error err = {0};
  if (s->recorder_failed) return;
  if (tri_recorder_write(s->recorder, &err) == TRI_OK)
    tri_recorder_tell_room(s->recorder, s->core);
  else
    lose_journal(s, &err);
}

/* Returns whether there may be more. The library gives a message of each connection in turn. */
static bool read_clients(struct server *s) {
  tri_peer from;
  const void *data;
  size_t len;
  int frames;
  int64_t until = tri_deadline_after_ms(TURN_MS);
  for (int n = 0; n < BATCH && tri_now_ns() < until; n++) {
    if (tri_zserver_recv(s->clients, &from, &data, &len, &frames) != TRI_OK) {
      if (!tri_zserver_has_more(s->clients)) return false;
      continue;
    }
    take_client(s, &from, data, len, frames);
    if (tri_recorder_has_much(s->recorder)) keep(s);
  }
  return true;
}

/* Closes connections that send messages without end, or leave too many replies unread. Whether one does is known once
 * all that had come is read, perhaps over several ticks. */
static void guard_connections(struct server *s) {
  bool suspects = tri_connection_guard_suspects(), closing = s->late.has_closing, more = suspects || closing;
  int64_t until = tri_deadline_after_ms(GUARD_MS);
  if (!more) return;
  while (more && tri_now_ns() < until) more = read_clients(s);
  if (suspects && (!more || tri_connection_guard_is_sure())) tri_connection_guard_cut();
  if (closing && !more) tri_late_replies_close(&s->late, tri_now_ns(), s->clients);
}

static void see_ended(struct server *s) {
  tri_connections ended = {{0}};
  if (tri_zserver_take_ended(s->clients, &ended)) tri_core_connections_ended(s->core, tri_now_ns(), &ended);
}

static void read_tokenized(struct server *s) {
  for (tri_tokenized *r; s->tokenize_pool && (r = tri_tokenize_pool_pop(s->tokenize_pool)); tri_tokenized_free(r)) {
    if (r->why.status != TRI_OK)
      tri_core_schema_refused(s->core, tri_now_ns(), r->job, &r->why);
    else
      tri_core_tokenized(s->core, tri_now_ns(), r->job, r->status, r->ids, r->count, r->second);
    if (tri_recorder_has_much(s->recorder)) keep(s);
  }
}

static void begin_drain(struct server *s, int64_t now, int signal) {
  if (s->supervisor.why[0]) return; /* that ends earlier */
  tri_log(TRI_LOG_INFO, "coordinator", "SIG%s: draining, for at most %g s", sigabbrev_np(signal),
          s->opts.drain_timeout);
  s->draining = true;
  s->drain_deadline = now + (int64_t)(s->opts.drain_timeout * 1e9);
  tri_core_drain(s->core);
}

void server_take_event(void *ctx, const tri_supervisor_event *n) {
  struct server *s = ctx;
  int64_t now = tri_now_ns();
  tri_core_hold hold = n->kind == TRI_REPLICA_GIVEN_UP ? TRI_CORE_GIVEN_UP : TRI_CORE_QUARANTINED;
  if (n->kind == TRI_REPLICA_EXPECTED)
    tri_core_replica_expected(s->core, n->replica, n->epoch);
  else if (n->kind == TRI_REPLICA_DIED)
    tri_core_replica_died(s->core, now, n->replica, n->epoch, n->reason);
  else
    tri_core_replica_held(s->core, n->replica, hold, now + n->seconds * NS_PER_S, n->reason);
}

/* A worker that ended may have said why. That is on its way, and tells clients more than the supervisor can. A request
 * to drain that has come as a signal before, as to every process at once, is the same one. */
static void read_supervisor(struct server *s) {
  bool over = tri_supervisor_gives_up(&s->supervisor);
  if (!over && s->supervisor.drain && !s->draining) begin_drain(s, tri_now_ns(), s->supervisor.drain);
  if (!over) return;
  tri_log(TRI_LOG_INFO, "coordinator", "%s: ending running jobs", s->supervisor.why);
  s->cut_short = true;
  s->draining = true;
  s->drain_deadline = tri_deadline_after_ms(OVER_MS);
  tri_core_drain(s->core);
}

static void read_workers(struct server *s) {
  tri_peer from;
  const void *data;
  size_t len;
  int frames;
  for (int i = 0; i < BATCH && tri_zserver_recv(s->workers, &from, &data, &len, &frames) == TRI_OK; i++) {
    tri_replica_msg m;
    tri_error err = {0};
    tri_arena_reset(s->arena);
    if (tri_replica_msg_unpack(data, len, s->arena, &m, &err) != TRI_OK) {
      tri_log(TRI_LOG_WARN, "coordinator", "unreadable message from a worker: %s", err.message);
      continue;
    }
    /* The supervisor has said of a start before it began it, and its words are there. */
    if (m.op == TRI_REPLICA_REGISTER) read_supervisor(s);
    tri_recorder_came_as(s->recorder, data, len);
    tri_core_worker(s->core, tri_now_ns(), &from, &m);
    tri_recorder_came_as(s->recorder, NULL, 0);
  }
}

static void end_at_once(struct server *s, int64_t now, const char *why, bool failed) {
  tri_core_abandon(s->core, now, why);
  s->leaving = true;
  s->failed |= failed;
}

/* A fault ends the cluster, not its users. What a journal has continues in the next start, and a
 * client that hears of an end gives up: as after a kill, clients get no message and wait. In a drain no client is to
 * wait: the end was asked for.
 */
static void end_by_fault(struct server *s, int64_t now, const char *why) {
  tri_core_load load;
  if (!s->recorder || s->recorder_failed || s->draining) {
    end_at_once(s, now, why, true);
    return;
  }
  tri_core_load_of(s->core, &load);
  tri_log(TRI_LOG_ERROR, "coordinator", "%s: %llu jobs stay in the journal", why,
          (unsigned long long)(load.running + load.waiting));
  s->leaving = s->failed = true;
}

static void read_signals(struct server *s) {
  uint8_t number;
  while (read(s->signal_fd, &number, sizeof number) == sizeof number) {
    int64_t now = tri_now_ns();
    switch (tri_signals_request(&s->signals, number, now)) {
    case TRI_SIGNAL_NOTHING: break;
    case TRI_SIGNAL_DRAIN: begin_drain(s, now, number); break;
    case TRI_SIGNAL_AT_ONCE:
      tri_log(TRI_LOG_WARN, "coordinator", "SIG%s again: ending running jobs", sigabbrev_np(number));
      s->cut_short = true;
      end_at_once(s, now, "the cluster was told again to shut down, which means at once", false);
      break;
    case TRI_SIGNAL_SUPERVISOR_GONE: end_by_fault(s, now, "the cluster's supervisor is gone"); break;
    case TRI_SIGNAL_JOB_ABORTED:
      end_by_fault(s, now, "the MPI job is being ended: a rank has died, or mpirun was told to stop");
      break;
    }
  }
}

static void watch_memory(struct server *s, double mb) {
  tri_error err = {0};
  s->memory.kept_mb = (double)tri_core_cached_bytes(s->core) / 0x1p20;
  s->memory.jobs_mb = (double)tri_core_job_bytes(s->core) / 0x1p20;
  bool rebind = tri_memory_watch_tick(&s->memory, mb);
  tri_core_set_crowded(s->core, s->memory.is_crowded);
  if (!rebind || tri_zserver_rebind(s->clients, &err) == TRI_OK) return;
  tri_log(TRI_LOG_ERROR, "coordinator", "cannot bind again: %s", err.message);
  s->leaving = s->failed = true;
}

static void say_throughput(struct server *s, int64_t now) {
  char line[TRI_THROUGHPUT_LINE];
  tri_core_load load;
  if (tri_log_threshold() < TRI_LOG_INFO || !tri_throughput_is_due(&s->throughput, now)) return;
  tri_core_load_of(s->core, &load);
  if (tri_throughput_text(&s->throughput, &load, now, line)) tri_log(TRI_LOG_INFO, "throughput", "%s", line);
}

static void count_second(struct server *s, int64_t now, double mb) {
  s->window[s->num_seconds++ % SERVER_WINDOW_S] = since_last(s, now);
  s->tokens_before = tri_core_generated_tokens(s->core);
  s->cpu_before = cpu_seconds();
  s->last_second = now;
  s->facts.resident_mb = mb;
  set_facts(s);
  say_throughput(s, now);
  tri_error err = {0};
  if (!s->recorder_failed && tri_recorder_tidy(s->recorder, s->core, now, &err) != TRI_OK)
    tri_log(TRI_LOG_WARN, "coordinator", "%s", err.message);
  tri_connection_guard_second();
  if (s->late.dropped)
    tri_log(TRI_LOG_WARN, "coordinator", "replies dropped: %llu, because more than %d clients do not read",
            (unsigned long long)s->late.dropped, TRI_LATE_CONNECTIONS);
  s->late.dropped = 0;
  tri_supervisor_alive(&s->supervisor);
}

static void drain_is_over(struct server *s, int64_t now) {
  bool over = s->supervisor.why[0];
  if (!over)
    tri_log(TRI_LOG_WARN, "coordinator", "%g s are over: ending the jobs that still run", s->opts.drain_timeout);
  tri_core_abandon(s->core, now, over ? s->supervisor.why : "the cluster shuts down, and the job did not end in time");
  tri_core_tick(s->core, now); /* tells the replicas to leave */
  s->leaving = true;
}

/* A gap of more than a second between two ticks says that this process has stood still: what looks like silence of
 * others may be its own. */
static void tick(struct server *s) {
  int64_t now = tri_now_ns();
  if (now - s->last_tick < TICK_MS * NS_PER_MS) return;
  if (now - s->last_tick > NS_PER_S) tri_core_stood_still(s->core, now);
  s->last_tick = now;
  see_ended(s);
  guard_connections(s);
  tri_core_tick(s->core, now);
  double mb = tri_resident_mb();
  watch_memory(s, mb);
  if (now - s->last_second >= NS_PER_S) count_second(s, now, mb);
  if (s->draining && tri_core_is_idle(s->core)) s->leaving = true;
  if (s->draining && now > s->drain_deadline && !s->leaving) drain_is_over(s, now);
}

/* Jobs whose end could not be recorded end here: what is on the disk is what the next start continues with. */
static void lose_journal(struct server *s, const tri_error *err) {
  char why[TRI_ERROR_MESSAGE + 64];
  s->recorder_failed = true;
  snprintf(why, sizeof why, "the coordinator ends: %s", err->message);
  tri_log(TRI_LOG_ERROR, "coordinator", "%s", err->message);
  end_at_once(s, tri_now_ns(), why, true);
}

/* Messages of one round leave together: a frame to each worker and client instead of one for each message. */
static void flush(struct server *s) {
  keep(s);
  tri_late_replies_send(&s->late, tri_now_ns(), s->clients);
  tri_zserver_flush(s->workers);
  tri_zserver_flush(s->clients);
}

static void read_journal(struct server *s) {
  tri_error err = {0};
  if (!s->recorder_failed && tri_recorder_take_sync(s->recorder, s->core, tri_now_ns(), &err) != TRI_OK)
    lose_journal(s, &err);
}

void server_turn(struct server *s, int wait_ms) {
  int ready = 0;
  tri_zpoll items[] = {{.server = s->clients, .fd = -1},
                       {.server = s->workers, .fd = -1},
                       {.fd = s->signal_fd},
                       {.fd = s->tokenize_pool ? tri_tokenize_pool_fd(s->tokenize_pool) : -1},
                       {.fd = tri_supervisor_poll_fd(&s->supervisor)},
                       {.fd = tri_recorder_fd(s->recorder)}};
  tri_zpoll_wait(items, 6, wait_ms, &ready);
  if (items[0].ready) read_clients(s);
  if (items[1].ready) read_workers(s);
  if (items[2].ready) read_signals(s);
  if (items[3].ready) read_tokenized(s);
  if (items[4].ready) read_supervisor(s);
  if (items[5].ready) read_journal(s);
  tick(s);
  flush(s);
}

void server_serve(struct server *s) {
  while (!s->leaving) server_turn(s, TICK_MS);
  flush(s);
  /* Messages on their way get a moment to leave; then the workers' leases end with this process. */
  int64_t until = tri_deadline_after_ms(FLUSH_MS);
  while (tri_now_ns() < until) {
    tri_zpoll items[] = {{.server = s->workers, .fd = -1}, {.fd = tri_recorder_fd(s->recorder)}};
    tri_zpoll_wait(items, 2, 20, NULL);
    if (items[0].ready) read_workers(s);
    if (items[1].ready) read_journal(s);
    tri_core_tick(s->core, tri_now_ns());
    flush(s);
  }
}

void server_begin(struct server *s) {
  tri_memory_watch_begin(&s->memory, (double)(s->opts.memory_cap - s->opts.response_cache) / 0x1p20);
  s->last_second = tri_now_ns();
  s->tokens_before = tri_core_generated_tokens(s->core); /* what the journal has is no work of this process */
  s->cpu_before = cpu_seconds();                         /* the start made no token */
  tri_core_load_of(s->core, &s->throughput.before);
  s->throughput.since_ns = s->last_second;
  tri_signals_unblock();
  read_supervisor(s); /* of replicas that were started before, before what these say */
}
