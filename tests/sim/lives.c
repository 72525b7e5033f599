/* SPDX-License-Identifier: Apache-2.0 */
/* Coordinators that follow each other: one ends, alone or with the whole cluster, and the next one begins. */
#include <stdlib.h>

#include "base/mem.h"
#include "tests/sim/sim.h"

bool lives_are_still(const sim *s) { return s->now < s->lives.still_until_ns; }

void lives_plan(sim *s) {
  lives *l = &s->lives;
  l->many = s->keeping.on || (s->day == DAY_USUAL && rng_chance(s, 50));
  l->supervised = s->day != DAY_ONE_LIFE && rng_chance(s, 60);
  l->cluster = ++s->numbers;
  events_add(s, (event){.at = s->now + rng_range(s, 500, 4000) * MS, .run = lives_fault, .lasts = true});
}

/* ---- a begin ---- */

static void begin(sim *s, const event *e);

static void begin_later(sim *s) {
  events_add(s, (event){.at = s->now + rng_range(s, 100, 5000) * MS, .run = begin, .lasts = true});
}

static void drop(sim *s) {
  tri_core_destroy(s->core);
  s->core = NULL;
  keeping_close(s);
}

/* The supervisor starts another one. One that ends by itself has a reason, and the replicas end with it. */
static void follow(sim *s, bool alone) {
  lives *l = &s->lives;
  l->revived += alone;
  l->cluster_ends = !alone;
  if (alone)
    replicas_lose_coordinator(s);
  else
    replicas_end_all(s);
  begin_later(s);
}

void lives_start(sim *s) {
  lives *l = &s->lives;
  bool by_itself = false;
  l->count++;
  l->began_ns = l->last_tick_ns = world_clock(s);
  s->draining = s->abandoned = false;
  s->life_submits = s->life_ends = 0;
  if (keeping_open(s, &by_itself)) {
    replicas_tell_expected(s);
    if (s->verbose && !s->keeping.on) printf("%8.3f a coordinator begins\n", (double)s->now / 1e9);
    return;
  }
  drop(s);
  follow(s, !by_itself && !l->cluster_ends);
}

static void begin(sim *s, const event *e) {
  (void)e;
  if (s->core) return;
  if (!world_make_core(s)) abort();
  lives_start(s);
  if (!s->core) return;
  if (s->lives.cluster_ends) replicas_begin_all(s);
  s->lives.cluster_ends = false;
  clients_come_back(s);
}

void lives_tick(sim *s) {
  lives *l = &s->lives;
  int64_t now = world_clock(s);
  if (now - l->last_tick_ns > SECOND) tri_core_stood_still(s->core, now);
  l->last_tick_ns = now;
  tri_core_tick(s->core, now);
  if (l->many && s->draining && !s->abandoned && tri_core_is_idle(s->core)) lives_end_with_a_word(s, "all is done");
}

/* ---- an end ---- */

/* Each connection has the first few of what was on its way to it: the rest was still in the process. */
static void deliver_some(sim *s, bool all) {
  int64_t until[MAX_CONNECTIONS], of_replicas[MAX_REPLICAS];
  event *left = calloc(s->num_events + 1, sizeof *left);
  size_t num_left = 0;
  if (!left) abort();
  for (int i = 0; i < MAX_CONNECTIONS; i++) until[i] = s->now + (all ? 100 * SECOND : rng_range(s, 0, 400) * MS);
  for (int i = 0; i < MAX_REPLICAS; i++) of_replicas[i] = s->now + (all ? 100 * SECOND : rng_range(s, 0, 4) * MS);
  for (event e; events_next(s, &e);) {
    if (e.run == clients_receive && e.at <= until[e.who]) clients_receive(s, &e);
    if (e.run == replicas_receive && e.at <= of_replicas[e.who]) replicas_receive(s, &e);
    if (e.lasts)
      left[num_left++] = e;
    else
      tri_free(e.data);
  }
  for (size_t i = 0; i < num_left; i++) events_add(s, left[i]);
  free(left);
}

void lives_get_ahead(sim *s) {
  for (int i = 0; i < s->num_streams; i++) s->streams[i].ahead = true;
}

/* Without a journal nothing is known to the next coordinator. */
static void forget(sim *s) {
  for (int i = 0; i < s->num_requests; i++) {
    request *r = &s->requests[i];
    r->died |= r->deaths >= 3;
    r->kills = r->all_kills = 0;
    r->cut_off |= s->draining;
    if (s->keeping.on) continue;
    r->deaths = 0;
    r->died = r->told = r->ended = r->cancelled = r->dropped = r->cut_off = false;
  }
  if (!s->keeping.on) lives_get_ahead(s);
}

static void lose_power(sim *s) {
  disk_lose_power(&s->keeping.disk);
  s->lives.powers++;
  s->skew = rng_range(s, 3, 60) * SECOND - s->now; /* the clock that only goes on begins anew */
  for (int i = 0; i < s->num_requests; i++) s->requests[i].ended = false;
  lives_get_ahead(s);
}

/* A coordinator's doings that are left come to nothing where its process is dead. */
void lives_end(sim *s) {
  lives *l = &s->lives;
  bool alone = !l->power_goes && !s->draining && !s->abandoned && s->day != DAY_ONE_LIFE && rng_chance(s, 70);
  if (s->verbose)
    printf("%8.3f the coordinator ends%s\n", (double)s->now / 1e9,
           alone           ? " alone"
           : l->power_goes ? " with its machine"
                           : " with its cluster");
  l->still_until_ns = 0;
  deliver_some(s, s->abandoned && !keeping_is_dead(s));
  world_ask_status(s);
  drop(s);
  if (l->power_goes)
    lose_power(s);
  else if (s->keeping.on)
    disk_restart(&s->keeping.disk);
  l->power_goes = false;
  forget(s);
  clients_lose_all(s);
  if (s->calm) keeping_heal(s);
  follow(s, alone);
}

static void leave(sim *s, const event *e) {
  if (s->abandoned && (int)e->who == s->lives.count) lives_end(s);
}

void lives_end_with_a_word(sim *s, const char *why) {
  lives *l = &s->lives;
  s->abandoned = s->draining = true;
  l->words++;
  tri_core_abandon(s->core, world_clock(s), why);
  if (rng_chance(s, 50)) lives_tick(s); /* tells the replicas to leave */
  events_add(s, (event){.at = s->now + 300 * MS, .run = leave, .who = (uint32_t)l->count, .inside = true});
}
