/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the core on the world, and how it is made. All of them are made by the loop's thread, from within a call
 * on the core: of the core's inputs they may call none but the flag of the journal's room. A message is packed into one
 * buffer that all share, and queued or copied before the next one. */
#include "coordinator/server.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "comm/wire/endpoint.h"
#include "coordinator/net/connection_guard.h"
#include "base/last_hang.h"
#include "base/log.h"
#include "base/options/serve_layout.h"
#include "base/wait.h"

enum {
  TOKENIZE_NOW_BYTES = 1024,
  MAX_WAITING_TEXTS = 4096, /* for the tokenizer's threads; further ones are refused */
  RETAINED_SHARE = 4,       /* of the memory's limit: what jobs may have that have ended */
  QUEUE_SHARE = 2,          /* the same of requests that wait or run */
  ARENA_BYTES = 64 << 10,   /* first block of the memory of one unpacked message */
};
/* Share of the watchdog's timeout after which a rank that reports nothing is lost: shorter than the whole,
 * so that a silent rank is named before its replica counts as stalled. */
#define SILENCE_SHARE 0.75
/* Share of a worker's lease after which it is renewed, and at most so many seconds. */
#define LEASE_SHARE 0.25
#define LONGEST_LEASE_S 1.0

/* ---- calls of the core ---- */

static tri_status pack(struct server *s, const tri_server_msg *m) {
  tri_status st = tri_server_msg_pack(m, &s->buf);
  if (st != TRI_OK && st != TRI_NO_MEMORY)
    tri_log(TRI_LOG_ERROR, "coordinator", "a reply could not be packed: %s", tri_status_text(st));
  return st;
}

/* Sends what was packed. A restart must know what a client knows: what this tells is written first, once for all of a
 * step. */
static tri_status send_packed(struct server *s, const tri_peer *to) {
  if (!s->recorder_failed) {
    if (tri_recorder_write(s->recorder, NULL) != TRI_OK) return TRI_AGAIN;
    tri_recorder_tell_room(s->recorder, s->core);
  }
  return tri_zserver_queue(s->clients, to, s->buf.data, s->buf.len);
}

static tri_status to_client(void *ctx, const tri_peer *to, const tri_server_msg *m) {
  struct server *s = ctx;
  tri_status st = pack(s, m);
  if (st == TRI_NO_MEMORY) return TRI_AGAIN;
  return st == TRI_OK ? send_packed(s, to) : TRI_OK; /* trying again would fail again */
}

/* A reply that cannot be packed, as it is too large, would be none the next time either. */
static tri_status pack_or_say_why(struct server *s, const tri_server_msg *m) {
  static const char code[] = "internal", why[] = "the reply could not be packed";
  tri_status st = pack(s, m);
  if (st == TRI_OK || st == TRI_NO_MEMORY || m->op == TRI_REPLY_ERROR) return st;
  tri_server_msg e;
  e.op = TRI_REPLY_ERROR;
  e.id = m->id;
  e.error.code = (tri_wire_str){code, sizeof code - 1};
  e.error.message = (tri_wire_str){why, sizeof why - 1};
  e.error.field = (tri_wire_str){"", 0};
  return pack(s, &e);
}

/* Unlike a job's output, an answer is sent once: where the client's queue is full, or earlier answers of the same
 * connection still wait, it is kept (late_replies.h). */
static void answer(void *ctx, const tri_peer *to, const tri_server_msg *m) {
  struct server *s = ctx;
  if (pack_or_say_why(s, m) != TRI_OK) {
    tri_late_replies_add(&s->late, tri_now_ns(), to, NULL, 0);
    return;
  }
  tri_status st = tri_late_replies_wait(&s->late, to) ? TRI_AGAIN : send_packed(s, to);
  if (st == TRI_AGAIN) tri_late_replies_add(&s->late, tri_now_ns(), to, s->buf.data, s->buf.len);
}

static tri_status look(void *ctx, const tri_peer *to) {
  struct server *s = ctx;
  return tri_zserver_look(s->clients, to);
}

static tri_status to_worker(void *ctx, const tri_peer *to, tri_replica_msg *m) {
  struct server *s = ctx;
  tri_status st = tri_replica_msg_pack(m, &s->buf);
  return st == TRI_OK ? tri_zserver_queue(s->workers, to, s->buf.data, s->buf.len) : st;
}

/* Handing a short prompt to a thread and taking it back costs more than its tokens do. */
static tri_status tokenize(void *ctx, uint64_t job, const tri_core_text *text, const uint32_t **ids, size_t *count,
                           size_t *second) {
  struct server *s = ctx;
  if (!text->schema.s && text->text.len + text->pair.len <= TOKENIZE_NOW_BYTES)
    return tri_tokenize_pool_now(s->tokenize_pool, text, ids, count, second);
  return tri_tokenize_pool_push(s->tokenize_pool, job, text);
}

static void tokenize_stop(void *ctx, uint64_t job) {
  struct server *s = ctx;
  tri_tokenize_pool_stop(s->tokenize_pool, job);
}

static void replica_lost(void *ctx, const tri_core_loss *l) {
  struct server *s = ctx;
  tri_supervisor_tell(&s->supervisor, "lost %u %llu %lld %s %s", l->replica, (unsigned long long)l->epoch,
                      (long long)l->rank, tri_status_code(l->status), l->reason);
  /* An MPI job is one fault domain: its end is the only way to be rid of a rank that stands still. */
  if (s->opts.launch == TRI_LAUNCH_MPI) s->leaving = s->failed = true;
}

static void rank_came(void *ctx, uint32_t replica, uint64_t epoch, uint32_t rank) {
  struct server *s = ctx;
  tri_supervisor_tell(&s->supervisor, "came %u %llu %u", replica, (unsigned long long)epoch, rank);
}

/* The command that asks the model, to be copied into a shell of this host. The coordinator's own pair of keys is let
 * in. Z85 has characters that a shell reads, and no single quote. */
static void say_next(const struct server *s) {
  const tri_model_config *m = &s->model.config;
  char endpoint[TRI_ENDPOINT_BYTES], keys[TRI_ENDPOINT_BYTES] = "";
  const char *command = "submit", *prompt = "\"37+48=\""; /* a greeting says nothing to the bundled model */
  tri_zkeypair pair = {.public_key = ""};
  if (m->encoder) {
    command = m->head.has_classifier ? "classify" : "embed";
    prompt = "--text Hello";
  }
  if (!s->model.tokenizer) prompt = "--token-ids 1,2,3";
  if (s->opts.key_file && tri_zkeypair_load(s->opts.key_file, &pair, NULL) == TRI_OK)
    snprintf(keys, sizeof keys, " --key-file %.300s --server-key '%s'", s->opts.key_file, pair.public_key);
  explicit_bzero(&pair, sizeof pair);
  tri_endpoint_reachable(tri_zserver_endpoint(s->clients), endpoint);
  tri_log(TRI_LOG_INFO, "coordinator", "try: trireme %s --endpoint %s%s %s", command, endpoint, keys, prompt);
}

static void say_names(const struct server *s) {
  char names[512] = ""; /* a line has room for so much, and the endpoint */
  const tri_opt_list *others = &s->model.other_names;
  for (size_t i = 0, used = 0; i < others->count && used < sizeof names; i++)
    used += (size_t)snprintf(names + used, sizeof names - used, ", \"%s\"", others->items[i]);
  tri_log(TRI_LOG_INFO, "coordinator", "serving \"%s\"%s at %s", s->model.name, names,
          tri_zserver_endpoint(s->clients));
}

static void replica_ready(void *ctx, uint32_t replica, uint64_t epoch) {
  struct server *s = ctx;
  tri_supervisor_tell(&s->supervisor, "ready %u %llu", replica, (unsigned long long)epoch);
  if (s->said_where) return;
  s->said_where = true;
  say_names(s);
  say_next(s);
}

/* In the log once, and in a file for `trireme doctor --last-hang`. */
static void hang(void *ctx, uint32_t replica, uint64_t epoch, const char *report, size_t len) {
  const struct server *s = ctx;
  tri_error err = {0};
  (void)replica;
  (void)epoch;
  for (const char *line = report, *end; line < report + len; line = end + 1) {
    end = memchr(line, '\n', (size_t)(report + len - line));
    if (!end) break;
    tri_log(TRI_LOG_ERROR, "watchdog", "%.*s", (int)(end - line), line);
  }
  if (tri_last_hang_keep(s->model.name, report, len, &err) != TRI_OK)
    tri_log(TRI_LOG_WARN, "watchdog", "the report is not kept: %s", err.message);
}

static uint64_t record(void *ctx, const tri_record *r) {
  struct server *s = ctx;
  return tri_recorder_record(s->recorder, r);
}

static tri_status draw(void *ctx, void *out, size_t len) {
  (void)ctx;
  return getrandom(out, len, 0) == (ssize_t)len ? TRI_OK : TRI_INTERNAL;
}

/* ---- set-up ---- */

static tri_status open_model(struct server *s, tri_error *err) {
  TRI_CHECK(tri_served_model_open(&s->opts, &s->model, err));
  if (!s->model.tokenizer) return TRI_OK;
  tri_status st = tri_tokenize_pool_create(s->model.tokenizer, s->opts.tokenizer_threads, (size_t)s->model.max_prompt,
                                           MAX_WAITING_TEXTS, &s->tokenize_pool);
  return st == TRI_OK ? st : tri_fail(err, st, "tokenizer_threads", "cannot start the tokenizer's threads");
}

/* Lazy batches: a replica may stand still on purpose for half of its limit. */
static int64_t longest_hold_ns(const tri_serve_options *o) {
  return o->encoder_batching == TRI_BATCHING_DP_LAZY ? (int64_t)(o->encoder_latency_limit * 1e6) / 2 : 0;
}

/* Without a limit of its own the queue may have half of the memory that is left by the response cache. */
static uint64_t queue_bytes(const tri_serve_options *o) {
  return o->max_queue_bytes ? o->max_queue_bytes : (o->memory_cap - o->response_cache) / QUEUE_SHARE;
}

static tri_status count_ranks(struct server *s, tri_error *err) {
  tri_serve_layout l;
  if (s->keys.ranks) return TRI_OK;
  TRI_CHECK(tri_serve_layout_make(&s->opts, &l, err));
  s->keys.replicas = (uint32_t)l.replicas;
  s->keys.ranks = (uint32_t)tri_serve_layout_world(&l);
  return TRI_OK;
}

static tri_status open_core(struct server *s, tri_error *err) {
  /* Only the workers need these options: of a coordinator without them any layout is right. */
  tri_serve_layout l;
  TRI_CHECK(tri_serve_layout_make(&s->opts, &l, err));
  if (s->opts.launch == TRI_LAUNCH_MPI && l.replicas > 1)
    return tri_fail(err, TRI_USAGE, "replicas",
                    "one MPI job holds one replica, and the options ask for %d: trireme up and trireme.sbatch start "
                    "several; with -ep, -dp is the number of data-parallel ranks of one replica",
                    l.replicas);
  bool has_layout = s->opts.launch == TRI_LAUNCH_MPI && tri_serve_layout_world(&l) > 1;
  tri_core_config cc = {.model_name = s->model.name,
                        .other_names = s->model.other_names.items,
                        .num_other_names = (uint32_t)s->model.other_names.count,
                        .model = &s->model.config,
                        .tokenizer = s->model.tokenizer,
                        .other_tokenizer = s->model.other_tokenizer,
                        .labels = s->model.config.head.has_classifier ? &s->model.labels : NULL,
                        .prompts = &s->model.prompts,
                        .pools_as_model = s->opts.pooling == TRI_POOL_NONE,
                        .model_hash = tri_model_config_hash(&s->model.config),
                        .response_cache = s->opts.response_cache,
                        .route_by_prefix = s->opts.enable_prefix_caching,
                        .lost_for_good = s->opts.launch == TRI_LAUNCH_MPI,
                        .most_retained = (s->opts.memory_cap - s->opts.response_cache) / RETAINED_SHARE,
                        .tp = has_layout ? (uint32_t)l.tp : 0,
                        .pp = has_layout ? (uint32_t)l.pp : 0,
                        .dp = has_layout ? (uint32_t)l.dp : 0,
                        .ep = has_layout ? (uint32_t)l.ep : 0,
                        .num_replicas = s->keys.replicas,
                        .replica_ranks = s->keys.ranks,
                        .rank_keys = (const uint8_t(*)[TRI_OWNER_BYTES])s->keys.raw,
                        .starts_are_told = s->opts.notice_fd >= 0,
                        .seed = s->opts.seed,
                        .max_queue = s->opts.max_queue,
                        .max_queued_per_client = s->opts.max_queued_per_client,
                        .max_queue_bytes = queue_bytes(&s->opts),
                        .max_queue_ns = (int64_t)(s->opts.max_queue_time * 1e9),
                        .shares = s->shares.list,
                        .num_shares = s->shares.count,
                        .by_priority = s->opts.scheduling_policy == 1,
                        .log_requests = s->opts.log_requests,
                        .max_prompt = s->model.max_prompt,
                        .watchdog_ns = (int64_t)(s->opts.watchdog_timeout * 1e9) + longest_hold_ns(&s->opts),
                        .silence_ns = (int64_t)(s->opts.watchdog_timeout * SILENCE_SHARE * 1e9),
                        .lease_ns = (int64_t)(fmin(s->opts.lease * LEASE_SHARE, LONGEST_LEASE_S) * 1e9),
                        .io = {s, to_client, answer, look, to_worker, tokenize, tokenize_stop, rank_came, replica_lost,
                               replica_ready, hang, draw, record}};
  tri_status st = tri_core_create(&cc, tri_now_ns(), &s->core);
  return st == TRI_OK ? st : tri_fail(err, st, "coordinator", "no memory");
}

/* On a failure everything that was made stays for server_close. The journal comes last, for its jobs go into the core.
 */
tri_status server_open(struct server *s, bool one_host, tri_error *err) {
  tri_status st = open_model(s, err);
  if (st == TRI_OK) st = tri_arena_create(ARENA_BYTES, &s->arena);
  if (st == TRI_OK) st = tri_zcontext_create(&s->z, err);
  if (st == TRI_OK) st = count_ranks(s, err);
  if (st == TRI_OK) st = tri_worker_socket_open(&s->opts, s->z, one_host, &s->keys, &s->boot, &s->workers, err);
  s->wrote_boot = st == TRI_OK && s->opts.boot_file && s->boot.secrets;
  if (st == TRI_OK) st = tri_client_socket_open(&s->opts, s->z, &s->allowed, &s->clients, err);
  if (st == TRI_OK) st = tri_connection_guard_open(tri_zserver_endpoint(s->clients), err);
  if (st == TRI_OK) st = tri_shares_read(s->opts.client_share, &s->allowed, &s->shares, err);
  if (st == TRI_OK) st = open_core(s, err);
  if (st == TRI_OK && s->opts.journal)
    st = tri_recorder_open(s->opts.journal, 0, s->core, tri_now_ns(), &s->recorder, err);
  return st;
}

/* Returns whether the journal has nothing for the next start. */
static bool is_done(const struct server *s) {
  return s->draining && !s->failed && !s->recorder_failed && s->core && !tri_core_owes(s->core);
}

/* The core ends first, while what it calls is there; is_done asks it before that. */
void server_close(struct server *s) {
  bool done = is_done(s);
  tri_core_destroy(s->core);
  if (done)
    tri_recorder_remove(s->recorder);
  else
    tri_recorder_close(s->recorder);
  tri_tokenize_pool_destroy(s->tokenize_pool);
  tri_late_replies_free(&s->late);
  tri_zserver_close(s->clients);
  tri_zserver_close(s->workers);
  tri_zcontext_destroy(s->z);
  tri_connection_guard_close();
  tri_served_model_close(&s->model);
  tri_arena_destroy(s->arena);
  tri_buf_free(&s->buf);
  tri_rank_keys_free(&s->keys);
  tri_buf_free(&s->supervisor.waiting);
  if (s->wrote_boot) unlink(s->opts.boot_file); /* another coordinator's stays */
}
