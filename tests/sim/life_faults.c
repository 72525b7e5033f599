/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of coordinators: they are killed, stand still, are told to end in every way, and their machine fails. */
#include "tests/sim/sim.h"

static bool is_of_this_life(const sim *s, const event *e) { return s->core && (int)e->who == s->lives.count; }

/* ---- kills ---- */

static void kill_now(sim *s) {
  if (s->keeping.on)
    s->keeping.disk.dead = true; /* seen behind this event */
  else
    lives_end(s);
}

static void kill_it(sim *s, const event *e) {
  if (is_of_this_life(s, e)) kill_now(s);
}

static void kill_later(sim *s, int64_t at) {
  events_add(s, (event){.at = at, .run = kill_it, .who = (uint32_t)s->lives.count, .lasts = true});
}

/* With a journal mostly in one of the next calls on the disk. */
static void die(sim *s, bool power) {
  s->lives.power_goes = power;
  if (!s->keeping.on || rng_chance(s, 40)) {
    kill_now(s);
    return;
  }
  s->keeping.disk.dies_in = (int)rng_range(s, 1, 25);
  kill_later(s, s->now + 2 * SECOND);
}

/* Some are killed meanwhile, and those that are silent for long always are. */
static void stand_still(sim *s) {
  lives *l = &s->lives;
  int64_t lasts = rng_range(s, 100 * MS, 8 * SECOND), most = 5 * SECOND + rng_range(s, 0, SECOND);
  l->still_until_ns = s->now + lasts;
  l->stills++;
  if (s->verbose) printf("%8.3f the coordinator stands still for %.3f s\n", (double)s->now / 1e9, (double)lasts / 1e9);
  if (!l->many) return;
  if (lasts > most)
    kill_later(s, s->now + most);
  else if (rng_chance(s, 30))
    kill_later(s, l->still_until_ns - 1);
}

/* ---- ends that are asked for ---- */

/* Requests that have not ended in time are cut off. */
static void drain_is_over(sim *s, const event *e) {
  if (is_of_this_life(s, e) && !s->abandoned) lives_end_with_a_word(s, "it did not end in time");
}

static void drain(sim *s, int64_t most) {
  if (s->verbose) printf("%8.3f the coordinator drains\n", (double)s->now / 1e9);
  s->draining = true;
  s->lives.drains++;
  tri_core_drain(s->core);
  events_add(s, (event){.at = s->now + most, .run = drain_is_over, .who = (uint32_t)s->lives.count, .inside = true});
}

/* The supervisor kills the replicas, and the coordinator waits for what they have said. */
static void give_up(sim *s) {
  for (uint32_t i = 0; i < s->num_replicas; i++)
    if (rng_chance(s, 80)) replicas_end(s, i, false);
  drain(s, SECOND);
}

/* ---- what befalls it ---- */

static void befall_with_journal(sim *s) {
  int64_t what = rng_range(s, 1, 100);
  if (what <= 35)
    die(s, false);
  else if (what <= 52)
    die(s, true);
  else if (what <= 60)
    lives_end_with_a_word(s, "it was told to");
  else if (what <= 66)
    drain(s, rng_range(s, 200, 5000) * MS);
  else if (what <= 70)
    give_up(s);
  else if (what <= 80)
    stand_still(s);
  else
    keeping_befall(s);
}

static void befall(sim *s) {
  int64_t what = rng_range(s, 1, 100);
  if (s->keeping.on)
    befall_with_journal(s);
  else if (what <= 60 && s->lives.many)
    die(s, false);
  else if (what <= 90)
    stand_still(s);
}

void lives_fault(sim *s, const event *e) {
  (void)e;
  if (s->calm) {
    keeping_heal(s);
    return;
  }
  bool is_well = s->core && !lives_are_still(s) && !s->abandoned && !s->draining && !s->lives.power_goes;
  if (is_well && !s->keeping.disk.dies_in) befall(s);
  events_add(s, (event){.at = s->now + rng_range(s, 300, 4000) * MS, .run = lives_fault, .lasts = true});
}
