/* SPDX-License-Identifier: Apache-2.0 */
/* The core's surroundings, and the course of a day. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "tests/sim/sim.h"

enum { DRAIN_S = 30, REST_S = 200 };

int64_t world_clock(const sim *s) { return s->now + s->skew; }

/* ---- calls of the core ---- */

static void note(sim *s, const tri_buf *b) {
  s->trace = rng_mix(s->trace ^ tri_hash_bytes((uint64_t)s->now, b->data, b->len));
}

static void keep_status(sim *s, const tri_cluster_status *c) {
  s->done += c->requests_done;
  s->failed_jobs += c->requests_failed + c->requests_invalid + c->requests_refused;
  s->aborted += c->requests_aborted;
  s->replayed += c->requests_replayed;
  s->life_ends =
      c->requests_done + c->requests_failed + c->requests_invalid + c->requests_refused + c->requests_aborted;
}

static void send_to_client(sim *s, int connection, const tri_server_msg *m) {
  if (tri_server_msg_pack(m, &s->buf) != TRI_OK) {
    fail(s, "a reply does not pack");
    return;
  }
  note(s, &s->buf);
  network_send(s, &s->connections[connection].net.out, (event){.run = clients_receive, .who = (uint32_t)connection},
               &s->buf);
}

static tri_status to_client(void *ctx, const tri_peer *to, const tri_server_msg *m) {
  sim *s = ctx;
  int i = network_client_of(to);
  if (m->op == TRI_REPLY_STATUS) {
    keep_status(s, &m->status);
    return TRI_OK;
  }
  if (keeping_write(s) != TRI_OK) return TRI_AGAIN;
  if (keeping_is_dead(s)) return TRI_OK; /* nobody hears it */
  connection *c = &s->connections[i].net;
  if (c->closed) return TRI_CLOSED;
  if (s->now < c->out.full_ns) return TRI_AGAIN;
  send_to_client(s, i, m);
  return TRI_OK;
}

/* A reply that finds the way full is kept, and arrives all the same. */
static void answer(void *ctx, const tri_peer *to, const tri_server_msg *m) {
  sim *s = ctx;
  if (to_client(ctx, to, m) == TRI_AGAIN && !keeping_is_dead(s)) send_to_client(s, network_client_of(to), m);
}

static tri_status look(void *ctx, const tri_peer *to) {
  const sim *s = ctx;
  const connection *c = &s->connections[network_client_of(to)].net;
  if (c->closed) return TRI_CLOSED;
  return s->now < c->out.full_ns ? TRI_AGAIN : TRI_OK;
}

/* Nothing but a refusal may be said to a process that an earlier start has left behind. */
static void check_ghost(sim *s, uint32_t index, const tri_replica_msg *m) {
  if (m->op != TRI_REPLICA_WELCOME || m->welcome.ok) fail(s, "an earlier start of group %u is taken for it", index);
}

static tri_status to_worker(void *ctx, const tri_peer *to, tri_replica_msg *m) {
  sim *s = ctx;
  uint32_t index;
  uint64_t line;
  if (!network_replica_of(to, &index, &line)) return TRI_INVALID_ARGUMENT;
  if (keeping_is_dead(s)) return TRI_OK;
  fake_replica *g = &s->replicas[index];
  if (line == g->ghost_line) check_ghost(s, index, m);
  bool is_lost = line < g->lost_line || (line == g->lost_line && s->now >= g->lost_ns);
  if (is_lost && line != g->ghost_line) return TRI_CLOSED;
  if (g->line == line && s->now < g->net.out.full_ns) return TRI_AGAIN;
  tri_status st = tri_replica_msg_pack(m, &s->buf);
  if (st != TRI_OK) return st;
  if (m->op == TRI_REPLICA_ASSIGN) check_company(s, index, &m->assign);
  note(s, &s->buf);
  if (g->line == line)
    network_send(s, &g->net.out, (event){.run = replicas_receive, .who = index, .number = line}, &s->buf);
  return TRI_OK;
}

static tri_status tokenize(void *ctx, uint64_t job, const tri_core_text *text, const uint32_t **ids, size_t *count,
                           size_t *second) {
  (void)ctx, (void)job, (void)text, (void)ids, (void)count, (void)second;
  return TRI_UNSUPPORTED; /* there are token ids alone */
}

static void tokenize_stop(void *ctx, uint64_t job) { (void)ctx, (void)job; }

void world_abandon(sim *s, const event *e) {
  (void)e;
  if (s->abandoned) return;
  if (s->lives.many) {
    lives_end_with_a_word(s, "the power goes");
    return;
  }
  s->abandoned = s->draining = true;
  tri_core_abandon(s->core, world_clock(s), "the power goes");
}

static void replica_lost(void *ctx, const tri_core_loss *loss) {
  sim *s = ctx;
  if (s->verbose) printf("%8.3f group %u is lost: %s\n", (double)s->now / 1e9, loss->replica, loss->reason);
  replicas_lost(s, loss);
  if (s->day != DAY_ONE_LIFE) return;
  s->calm |= !s->lives.many; /* the program ends */
  events_add(s, (event){.at = s->now + 200 * MS, .run = world_abandon, .inside = true});
}

/* A start that may register says that the one before it is over; one that is refused tells the core nothing. */
static void rank_came(void *ctx, uint32_t replica, uint64_t epoch, uint32_t rank) {
  (void)rank;
  replicas_count_death(ctx, replica, epoch - 1);
}

static void replica_ready(void *ctx, uint32_t replica, uint64_t epoch) { (void)ctx, (void)replica, (void)epoch; }

static void hang(void *ctx, uint32_t replica, uint64_t epoch, const char *report, size_t len) {
  (void)ctx, (void)replica, (void)epoch, (void)report, (void)len;
}

static uint64_t record(void *ctx, const tri_record *r) {
  sim *s = ctx;
  return tri_recorder_record(s->keeping.recorder, r);
}

static tri_status draw(void *ctx, void *out, size_t len) {
  sim *s = ctx;
  for (size_t i = 0; i < len; i++) ((uint8_t *)out)[i] = (uint8_t)rng_next(s);
  return TRI_OK;
}

/* ---- the day ---- */

static void tick(sim *s, const event *e) {
  (void)e;
  if (s->core) lives_tick(s);
  keeping_tick(s);
  events_add(s, (event){.at = s->now + 100 * MS, .run = tick, .lasts = true, .inside = true});
}

/* Drains; what has not ended after some time is cut off, as the coordinator's program does. */
static void drain(sim *s, const event *e) {
  (void)e;
  s->draining = true;
  tri_core_drain(s->core);
  events_add(s, (event){.at = s->now + DRAIN_S * SECOND, .run = world_abandon, .inside = true});
}

static void rest(sim *s, const event *e) {
  (void)e;
  s->calm = true;
}

static bool open_core(sim *s) {
  s->model = (tri_model_config){.vocab_size = VOCAB, .max_position_embeddings = MODEL_LEN};
  s->model.generation.temperature = s->model.generation.top_p = s->model.generation.repetition_penalty = NAN;
  s->config = (tri_core_config){.model_name = "toy",
                                .model = &s->model,
                                .num_replicas = s->num_replicas,
                                .replica_ranks = 1,
                                .rank_keys = (const uint8_t(*)[TRI_OWNER_BYTES])s->rank_keys,
                                .starts_are_told = true,
                                .route_by_prefix = rng_chance(s, 50),
                                .lost_for_good = s->day == DAY_ONE_LIFE,
                                .max_queue = rng_chance(s, 20) ? 6 : 1000,
                                .max_prompt = MODEL_LEN,
                                .silence_ns = 4 * SECOND,
                                .watchdog_ns = 8 * SECOND,
                                .lease_ns = SECOND,
                                .io = {s, to_client, answer, look, to_worker, tokenize, tokenize_stop, rank_came,
                                       replica_lost, replica_ready, hang, draw, record}};
  for (uint32_t i = 0; i < s->num_replicas; i++) {
    tri_peer p = network_replica(i, 0);
    memcpy(s->rank_keys[i], p.owner.bytes, sizeof p.owner.bytes);
  }
  return tri_arena_create(4096, &s->arena) == TRI_OK && world_make_core(s);
}

bool world_make_core(sim *s) { return tri_core_create(&s->config, world_clock(s), &s->core) == TRI_OK; }

void world_ask_status(sim *s) {
  tri_client_msg ask = {.op = TRI_OP_STATUS, .id = 1};
  tri_peer nobody = network_client(0, MAX_CONNECTIONS);
  tri_core_client(s->core, world_clock(s), &nobody, &ask);
}

static day draw_day(sim *s) {
  int64_t x = rng_range(s, 1, 100);
  if (x <= 70) return DAY_USUAL;
  if (x <= 82) return DAY_DRAIN;
  return x <= 94 ? DAY_ABANDON : DAY_ONE_LIFE;
}

/* Ends are among what befalls coordinators that follow each other. */
static day draw_day_of_many(sim *s) { return rng_chance(s, 90) ? DAY_USUAL : DAY_ONE_LIFE; }

static void plan_day(sim *s, bool keeps) {
  int64_t length = rng_range(s, 3, 15) * SECOND;
  s->now = 1000 * SECOND;
  s->day = keeps ? draw_day_of_many(s) : draw_day(s);
  if (keeps) keeping_plan(s);
  lives_plan(s);
  replica_fakes_open(s);
  clients_open(s);
  events_add(s, (event){.at = s->now, .run = tick, .lasts = true, .inside = true});
  events_add(s, (event){.at = s->now + length, .run = rest, .lasts = true});
  int64_t at = s->now + rng_range(s, 1, length / SECOND) * SECOND + rng_range(s, 0, 999) * MS;
  if (s->day == DAY_DRAIN) events_add(s, (event){.at = at, .run = drain, .inside = true});
  if (s->day == DAY_ABANDON) events_add(s, (event){.at = at, .run = world_abandon, .inside = true});
}

/* Says whether nothing is to come any more that a client waits for. */
static bool is_over(const sim *s) {
  if (!s->calm || !s->core || !tri_core_is_idle(s->core) || s->keeping.step_is_due) return false;
  for (size_t i = 0; i < s->num_events; i++)
    if (s->heap[i].data) return false;
  for (int i = 0; i < s->num_streams; i++)
    if (check_is_open(s, &s->streams[i])) return false;
  return true;
}

bool world_run(sim *s, uint64_t seed, bool keeps, bool verbose) {
  memset(s, 0, sizeof *s);
  s->seed = seed;
  s->rng = rng_mix(seed);
  s->verbose = verbose;
  plan_day(s, keeps);
  if (!open_core(s)) fail(s, "no memory");
  lives_start(s);
  int64_t until = s->now + REST_S * SECOND;
  for (event e; !s->failed && s->now < until && !is_over(s) && events_next(s, &e);) {
    s->now = e.at;
    if (e.inside && lives_are_still(s)) {
      e.at = s->lives.still_until_ns;
      events_add(s, e);
      continue;
    }
    e.run(s, &e);
    tri_free(e.data);
    keeping_after_event(s);
  }
  if (s->core) world_ask_status(s);
  check_end(s);
  return !s->failed;
}

void world_free(sim *s) {
  tri_core_destroy(s->core);
  keeping_free(s);
  tri_arena_destroy(s->arena);
  tri_buf_free(&s->buf);
  events_free(s);
}
