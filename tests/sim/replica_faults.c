/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of replicas: they die, stand still, are heard late, lose their connection, and earlier starts of them speak
 * again. */
#include "tests/sim/sim.h"

enum { GHOST_JOBS = 40 };

/* ---- ghosts ---- */

static void ghost_says(sim *s, uint32_t index, const tri_replica_msg *m) {
  fake_replica *g = &s->replicas[index];
  network_says_as(s, index, g->ghost_line, &g->ghost, m);
}

/* A process that was left behind by an earlier start comes, and says over its own connection what only the replica's
 * leader may say. */
static void haunt(sim *s, uint32_t index) {
  fake_replica *g = &s->replicas[index];
  tri_replica_token ends[GHOST_JOBS] = {0};
  if (g->epoch < 2 || s->day == DAY_ONE_LIFE) return;
  for (uint32_t i = 0; i < GHOST_JOBS; i++)
    ends[i] = (tri_replica_token){.job = i + 1, .flags = TRI_TOKEN_LAST | TRI_TOKEN_NONE, .reason = TRI_FINISH_ABORT};
  tri_replica_msg reg = replicas_registration(s, index, g->epoch - 1);
  tri_replica_msg ready = {.op = TRI_REPLICA_READY, .ready = {.replica = index, .epoch = g->epoch}};
  tri_replica_msg tokens = {.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = g->epoch, .num = GHOST_JOBS, .tokens = ends}};
  tri_replica_msg failed = {.op = TRI_REPLICA_FAILED,
                            .failed = {.replica = index, .epoch = g->epoch, .code = {"internal", 8}}};
  g->ghost_line = ++s->numbers;
  g->ghost = (way){0};
  ghost_says(s, index, &reg);
  ghost_says(s, index, &ready);
  ghost_says(s, index, &tokens);
  ghost_says(s, index, &failed);
}

/* ---- faults ---- */

static void hold(sim *s, fake_replica *g) {
  g->net.in.held_ns = s->now + rng_range(s, 100, 8000) * MS;
  if (g->excused_ns < g->net.in.held_ns + 2 * SECOND) g->excused_ns = g->net.in.held_ns + 2 * SECOND;
}

/* Nobody reports in the time that is left out. A standstill of the coordinator that is too short to be noticed may then
 * take most of the time in which nobody is judged. */
static void jump(sim *s) {
  for (uint32_t i = 0; i < s->num_replicas; i++)
    if (s->replicas[i].excused_ns < s->now + 5 * SECOND / 2) s->replicas[i].excused_ns = s->now + 5 * SECOND / 2;
  s->skew += rng_range(s, 100, 6000) * MS; /* less than a client is waited for (deliver.c) */
  if (s->verbose) printf("%8.3f the clock jumps, to %.3f\n", (double)s->now / 1e9, (double)world_clock(s) / 1e9);
  s->jumps++;
}

static void lose_line(sim *s, uint32_t index) {
  if (!s->replicas[index].line) return;
  if (s->verbose) printf("%8.3f group %u loses its connection\n", (double)s->now / 1e9, index);
  replicas_lose_line(s, index);
  s->lost_lines++;
}

void replicas_fault(sim *s, const event *e) {
  uint32_t index = (uint32_t)rng_range(s, 0, s->num_replicas - 1);
  fake_replica *g = &s->replicas[index];
  (void)e;
  if (s->calm) return;
  int64_t what = rng_range(s, 1, 100);
  if (what <= 45)
    replicas_end(s, index, rng_chance(s, 30));
  else if (what <= 55)
    g->stalled = true;
  else if (what <= 75)
    hold(s, g);
  else if (what <= 85)
    g->net.out.full_ns = s->now + rng_range(s, 10, 2000) * MS;
  else if (what <= 90)
    jump(s);
  else if (what <= 96)
    lose_line(s, index);
  else if (s->core)
    haunt(s, index);
  events_add(s, (event){.at = s->now + rng_range(s, 200, 6000) * MS, .run = replicas_fault, .lasts = true});
}
