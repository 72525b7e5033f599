/* SPDX-License-Identifier: Apache-2.0 */
/* Coordinators that keep a journal, end in every way, and are followed by the next one over the same disk. */
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "tests/sim/sim.h"

static void begin(sim *s, const event *e);
static void fault(sim *s, const event *e);

bool keeping_is_dead(const sim *s) { return s->keeping.on && s->keeping.disk.dead; }

static void mend_disk(disk *d) {
  d->is_full = false;
  d->broken = 0;
}

static void set_wall(sim *s) {
  keeping *k = &s->keeping;
  k->disk.wall_ms = INT64_C(1800000000000) + s->now / MS + k->wall_skew_ms;
}

void keeping_plan(sim *s) {
  keeping *k = &s->keeping;
  k->on = true;
  k->disk.rng = rng_next(s);
  k->disk.segment_bytes = (uint64_t)4096 << rng_range(s, 0, 4);
  disk_mount(&k->disk);
  events_add(s, (event){.at = s->now + rng_range(s, 500, 4000) * MS, .run = fault, .lasts = true});
}

/* ---- a begin ---- */

static void begin_later(sim *s) {
  events_add(s, (event){.at = s->now + rng_range(s, 100, 5000) * MS, .run = begin, .lasts = true});
}

/* Some die while they begin. */
static tri_status open_keeper(sim *s, tri_error *err) {
  keeping *k = &s->keeping;
  if (!s->calm && k->lives > 1 && rng_chance(s, 15)) k->disk.dies_in = (int)rng_range(s, 1, 30);
  set_wall(s);
  return tri_keeper_open(DISK_FOLDER, 0, s->core, world_clock(s), &k->keeper, err);
}

static void drop(sim *s) {
  tri_core_destroy(s->core);
  s->core = NULL;
  tri_keeper_close(s->keeping.keeper);
  s->keeping.keeper = NULL;
  s->keeping.step_is_due = false;
}

void keeping_start(sim *s) {
  keeping *k = &s->keeping;
  tri_error err = {0};
  if (!k->on) return;
  k->lives++;
  k->failed = false;
  k->began_ns = world_clock(s);
  s->draining = s->abandoned = false;
  tri_status st = open_keeper(s, &err);
  bool may_fail = k->disk.dead || k->disk.is_full || k->disk.broken;
  if (s->verbose)
    printf("%8.3f a coordinator begins: %s%s\n", (double)s->now / 1e9, st == TRI_OK ? "well" : err.message,
           k->disk.dead ? ", and dies" : "");
  if (st != TRI_OK && (!may_fail || st == TRI_CORRUPT)) fail(s, "the journal is not opened: %s", err.message);
  if (st == TRI_OK && !k->disk.dead) {
    check_restored(s);
    return;
  }
  drop(s);
  disk_restart(&k->disk);
  if (s->calm || rng_chance(s, 50)) mend_disk(&k->disk);
  begin_later(s);
}

static void begin(sim *s, const event *e) {
  (void)e;
  if (s->core) return;
  if (!world_make_core(s)) abort();
  keeping_start(s);
  if (!s->core) return;
  groups_begin_all(s);
  clients_come_back(s);
}

/* ---- an end ---- */

/* Each connection has the first few of what was on its way to it: the rest was still in the process. */
static void deliver_some(sim *s, bool all) {
  int64_t until[MAX_CONNECTIONS];
  event *left = calloc(s->num_events + 1, sizeof *left);
  size_t num_left = 0;
  if (!left) abort();
  for (int i = 0; i < MAX_CONNECTIONS; i++) until[i] = s->now + (all ? 100 * SECOND : rng_range(s, 0, 400) * MS);
  for (event e; events_next(s, &e);) {
    if (e.run == clients_receive && e.at <= until[e.who]) clients_receive(s, &e);
    if (e.lasts)
      left[num_left++] = e;
    else
      tri_free(e.data);
  }
  for (size_t i = 0; i < num_left; i++) events_add(s, left[i]);
  free(left);
}

/* Clients may have, or get, what the next coordinator does not know of. */
static void get_ahead(sim *s) {
  for (int i = 0; i < s->num_streams; i++) s->streams[i].ahead = true;
}

/* A coordinator's doings that are left come to nothing where its process is dead. */
static void end(sim *s) {
  keeping *k = &s->keeping;
  if (s->verbose)
    printf("%8.3f the coordinator ends%s\n", (double)s->now / 1e9, k->power_goes ? " with its machine" : "");
  deliver_some(s, !k->disk.dead);
  world_ask_status(s);
  drop(s);
  if (k->power_goes) {
    disk_lose_power(&k->disk);
    k->powers++;
    s->skew = rng_range(s, 3, 60) * SECOND - s->now; /* the clock that only goes on begins anew */
    for (int i = 0; i < s->num_requests; i++) s->requests[i].ended = false;
    get_ahead(s);
  } else {
    disk_restart(&k->disk);
  }
  k->power_goes = false;
  clients_lose_all(s);
  groups_end_all(s);
  if (s->calm) mend_disk(&k->disk);
  begin_later(s);
}

static void leave(sim *s, const event *e) {
  if (s->core && s->abandoned && (int)e->who == s->keeping.lives) end(s);
}

/* Tells every client, and ends a little later. */
static void end_with_a_word(sim *s, const char *why) {
  keeping *k = &s->keeping;
  s->abandoned = s->draining = true;
  k->words++;
  tri_core_abandon(s->core, world_clock(s), why);
  events_add(s, (event){.at = s->now + 300 * MS, .run = leave, .who = (uint32_t)k->lives});
}

static void die_at_last(sim *s, const event *e) {
  if (s->core && (int)e->who == s->keeping.lives) s->keeping.disk.dead = true;
}

/* ---- what befalls it ---- */

static void heal(sim *s, const event *e) {
  (void)e;
  mend_disk(&s->keeping.disk);
}

static void jump(sim *s) {
  int64_t most = rng_chance(s, 20) ? 7200000 : 2000;
  s->keeping.wall_skew_ms += rng_range(s, -most, most);
  s->jumps++;
}

static void die(sim *s, bool power) {
  keeping *k = &s->keeping;
  k->power_goes = power;
  if (rng_chance(s, 40)) {
    k->disk.dead = true;
    return;
  }
  k->disk.dies_in = (int)rng_range(s, 1, 25);
  events_add(s, (event){.at = s->now + 2 * SECOND, .run = die_at_last, .who = (uint32_t)k->lives});
}

static void befall(sim *s) {
  keeping *k = &s->keeping;
  int64_t what = rng_range(s, 1, 100);
  if (what <= 40) {
    die(s, false);
  } else if (what <= 65) {
    die(s, true);
  } else if (what <= 75) {
    if (!s->abandoned) end_with_a_word(s, "it was told to");
  } else if (what <= 85) {
    k->disk.is_full = true;
    events_add(s, (event){.at = s->now + rng_range(s, 500, 5000) * MS, .run = heal, .lasts = true});
  } else if (what <= 92) {
    k->disk.broken = (int)rng_range(s, 1, 60);
    events_add(s, (event){.at = s->now + rng_range(s, 50, 2000) * MS, .run = heal, .lasts = true});
  } else {
    jump(s);
  }
}

static void fault(sim *s, const event *e) {
  (void)e;
  if (s->calm) {
    heal(s, NULL);
    return;
  }
  if (s->core && !s->keeping.power_goes && !s->keeping.disk.dies_in) befall(s);
  events_add(s, (event){.at = s->now + rng_range(s, 300, 4000) * MS, .run = fault, .lasts = true});
}

/* ---- the journal ---- */

tri_status keeping_write(sim *s) {
  keeping *k = &s->keeping;
  return k->failed ? TRI_OK : tri_keeper_write(k->keeper, NULL);
}

static void lose_journal(sim *s, const tri_error *err) {
  s->keeping.failed = true;
  get_ahead(s); /* what is under way is sent, though nothing keeps it */
  if (s->verbose) printf("%8.3f the journal is lost: %s\n", (double)s->now / 1e9, err->message);
  if (!s->abandoned) end_with_a_word(s, err->message);
}

void keeping_tick(sim *s) {
  keeping *k = &s->keeping;
  if (!k->on || !s->core) return;
  k->lived_long |= world_clock(s) - k->began_ns > 58 * SECOND;
  if (!k->failed && s->now / (100 * MS) % 7 == 3) /* far more often than by itself */
    tri_core_compact(s->core, world_clock(s), UINT64_MAX);
  if (!k->failed && s->now / (100 * MS) % 10 == 0) tri_keeper_tidy(k->keeper, s->core, world_clock(s), NULL);
}

/* The journal's thread goes on up to where it waits: for work, or for the disk. */
static void thread_step(sim *s, const event *e) {
  keeping *k = &s->keeping;
  tri_error err = {0};
  (void)e;
  k->step_is_due = false;
  sync_thread_run();
  if (!k->failed && tri_keeper_take_sync(k->keeper, s->core, world_clock(s), &err) != TRI_OK) lose_journal(s, &err);
}

static void plan_thread(sim *s) {
  keeping *k = &s->keeping;
  thread_state st = sync_thread_state();
  if (k->step_is_due || (st != THREAD_READY && st != THREAD_SYNCS)) return;
  int64_t takes = st == THREAD_READY ? rng_range(s, 0, 100000) : rng_range(s, 100, 20000) * 1000;
  if (st == THREAD_SYNCS && rng_chance(s, 3)) takes = SECOND;
  k->step_is_due = true;
  events_add(s, (event){.at = s->now + takes, .run = thread_step});
}

void keeping_after_event(sim *s) {
  keeping *k = &s->keeping;
  tri_error err = {0};
  if (!k->on || s->failed) return;
  set_wall(s);
  if (s->core && !k->failed && tri_keeper_write(k->keeper, &err) != TRI_OK && !k->disk.dead) lose_journal(s, &err);
  if (s->core && k->disk.dead)
    end(s);
  else if (s->core)
    plan_thread(s);
}

void keeping_free(sim *s) {
  keeping *k = &s->keeping;
  if (!k->on) return;
  k->disk.dead = true;
  tri_keeper_close(k->keeper);
  disk_free(&k->disk);
  disk_mount(NULL);
  k->on = false;
}
