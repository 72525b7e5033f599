/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of coordinators that follow each other over one disk, and what befalls that. */
#include "base/mem.h"
#include "tests/sim/sim.h"

bool keeping_is_dead(const sim *s) { return s->keeping.on && s->keeping.disk.dead; }

void keeping_heal(sim *s) {
  s->keeping.disk.is_full = false;
  s->keeping.disk.broken = 0;
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
}

/* ---- a coordinator's begin and end ---- */

/* Some die while they begin. */
static tri_status open_recorder(sim *s, tri_error *err) {
  keeping *k = &s->keeping;
  if (!s->calm && s->lives.count > 1 && rng_chance(s, 15)) k->disk.dies_in = (int)rng_range(s, 1, 30);
  set_wall(s);
  return tri_recorder_open(DISK_FOLDER, 0, s->core, world_clock(s), &k->recorder, err);
}

bool keeping_open(sim *s, bool *by_itself) {
  keeping *k = &s->keeping;
  tri_error err = {0};
  k->failed = false;
  if (!k->on) return true;
  tri_status st = open_recorder(s, &err);
  bool may_fail = k->disk.dead || k->disk.is_full || k->disk.broken;
  if (s->verbose)
    printf("%8.3f a coordinator begins: %s%s\n", (double)s->now / 1e9, st == TRI_OK ? "well" : err.message,
           k->disk.dead ? ", and dies" : "");
  if (st != TRI_OK && (!may_fail || st == TRI_CORRUPT)) fail(s, "the journal is not opened: %s", err.message);
  if (st == TRI_OK && !k->disk.dead) {
    check_restored(s);
    return true;
  }
  *by_itself = !k->disk.dead;
  disk_restart(&k->disk);
  if (s->calm || rng_chance(s, 50)) keeping_heal(s);
  return false;
}

void keeping_close(sim *s) {
  tri_recorder_close(s->keeping.recorder);
  s->keeping.recorder = NULL;
  s->keeping.step_is_due = false;
}

/* ---- what befalls the disk ---- */

static void heal(sim *s, const event *e) {
  (void)e;
  keeping_heal(s);
}

static void jump(sim *s) {
  int64_t most = rng_chance(s, 20) ? 7200000 : 2000;
  s->keeping.wall_skew_ms += rng_range(s, -most, most);
  s->jumps++;
}

void keeping_befall(sim *s) {
  keeping *k = &s->keeping;
  int64_t what = rng_range(s, 1, 25);
  if (what <= 10) {
    k->disk.is_full = true;
    events_add(s, (event){.at = s->now + rng_range(s, 500, 5000) * MS, .run = heal, .lasts = true});
  } else if (what <= 17) {
    k->disk.broken = (int)rng_range(s, 1, 60);
    events_add(s, (event){.at = s->now + rng_range(s, 50, 2000) * MS, .run = heal, .lasts = true});
  } else {
    jump(s);
  }
}

/* ---- the journal ---- */

tri_status keeping_write(sim *s) {
  keeping *k = &s->keeping;
  return k->failed ? TRI_OK : tri_recorder_write(k->recorder, NULL);
}

static void lose_journal(sim *s, const tri_error *err) {
  s->keeping.failed = true;
  lives_get_ahead(s); /* what is under way is sent, though nothing keeps it */
  if (s->verbose) printf("%8.3f the journal is lost: %s\n", (double)s->now / 1e9, err->message);
  if (!s->abandoned) lives_end_with_a_word(s, err->message);
}

void keeping_tick(sim *s) {
  keeping *k = &s->keeping;
  if (!k->on || !s->core) return;
  k->lived_long |= world_clock(s) - s->lives.began_ns > 58 * SECOND;
  if (!k->failed && s->now / (100 * MS) % 7 == 3) /* far more often than by itself */
    tri_core_compact(s->core, world_clock(s), UINT64_MAX, 0);
  if (!k->failed && s->now / (100 * MS) % 10 == 0) tri_recorder_tidy(k->recorder, s->core, world_clock(s), NULL);
}

/* The journal's thread goes on up to where it waits: for work, or for the disk. */
static void thread_step(sim *s, const event *e) {
  keeping *k = &s->keeping;
  tri_error err = {0};
  (void)e;
  k->step_is_due = false;
  sync_thread_run();
  if (!k->failed && tri_recorder_take_sync(k->recorder, s->core, world_clock(s), &err) != TRI_OK) lose_journal(s, &err);
}

static void plan_thread(sim *s) {
  keeping *k = &s->keeping;
  thread_state st = sync_thread_state();
  if (k->step_is_due || (st != THREAD_READY && st != THREAD_SYNCS)) return;
  int64_t takes = st == THREAD_READY ? rng_range(s, 0, 100000) : rng_range(s, 100, 20000) * 1000;
  if (st == THREAD_SYNCS && rng_chance(s, 3)) takes = SECOND;
  k->step_is_due = true;
  events_add(s, (event){.at = s->now + takes, .run = thread_step, .inside = true});
}

void keeping_after_event(sim *s) {
  keeping *k = &s->keeping;
  tri_error err = {0};
  if (!k->on || s->failed || !s->core) return;
  set_wall(s);
  if (!lives_are_still(s) && !k->failed && tri_recorder_write(k->recorder, &err) != TRI_OK && !k->disk.dead)
    lose_journal(s, &err);
  if (k->disk.dead)
    lives_end(s);
  else if (!lives_are_still(s))
    plan_thread(s);
}

void keeping_free(sim *s) {
  keeping *k = &s->keeping;
  if (!k->on) return;
  k->disk.dead = true;
  tri_recorder_close(k->recorder);
  disk_free(&k->disk);
  disk_mount(NULL);
  k->on = false;
}
