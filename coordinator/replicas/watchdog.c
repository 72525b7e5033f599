/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: gives up replicas with a rank that never came, that reports nothing, or that no longer makes progress,
 * and reports where each rank of such a replica stands.
 *
 * Progress is a change of a rank's step, layer or number of collectives from one report to the next. A collective waits
 * for its slowest rank, so that one rank which stands still stops all others where they next need it: the ranks at the
 * earliest place are the ones to look at, and the report calls those late. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "coordinator/replicas/replicas_impl.h"

#define JOIN_NS (60 * 1000000000LL) /* ranks of a replica start together */
/* Longer than from one report of a rank to the next. */
#define SUSPENDED_NS (3 * 1000000000LL / 2)

enum { MOST_LINE = 256 };

/* ---- the report of a replica that hangs ---- */

/* Between two steps a rank is through with the last one, after all layers. One that never came is before all. */
static bool is_before(const rank_info *a, const rank_info *b) {
  if (!a->known || !b->known) return !a->known && b->known;
  return a->step != b->step ? a->step < b->step : a->layer < b->layer;
}

static bool is_last(const replica *g, uint32_t rank) {
  for (uint32_t r = 0; r < g->world; r++)
    if (is_before(&g->ranks[r], &g->ranks[rank])) return false;
  return true;
}

static bool are_of_one_stage(const replica *g, uint32_t a, uint32_t b) {
  uint32_t ranks = g->pp ? g->world / g->pp : g->world;
  return !ranks || a / ranks == b / ranks;
}

/* Returns whether another of these ranks, of the same stage, has begun more collectives. */
static bool is_behind(const replica *g, const bool last[MAX_RANKS], uint32_t rank) {
  for (uint32_t o = 0; o < g->world; o++)
    if (last[o] && are_of_one_stage(g, rank, o) && g->ranks[rank].collective < g->ranks[o].collective) return true;
  return false;
}

/* Marks the ranks that the others wait for: those that are furthest back, and of these, where some of a stage have
 * begun fewer collectives than others, those. *same: several stand at one place, so that none is later than another. */
static void find_late(const replica *g, uint32_t silent, bool late[MAX_RANKS], bool *same) {
  bool last[MAX_RANKS], any_behind = false;
  uint32_t count = 0;
  for (uint32_t r = 0; r < g->world; r++) {
    last[r] = silent < g->world ? r == silent : is_last(g, r);
    count += last[r] && g->ranks[r].known;
  }
  for (uint32_t r = 0; r < g->world; r++) any_behind |= last[r] && is_behind(g, last, r);
  for (uint32_t r = 0; r < g->world; r++) late[r] = last[r] && (!any_behind || is_behind(g, last, r));
  *same = count > 1 && !any_behind;
}

__attribute__((format(printf, 2, 3))) static void say(tri_buf *out, const char *fmt, ...) {
  char line[MOST_LINE];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  if (n >= (int)sizeof line) n = (int)sizeof line - 1;
  if (n > 0) tri_buf_append(out, line, (size_t)n); /* what finds no memory is left out */
}

static void say_rank(tri_buf *out, const replica *g, uint32_t r, int64_t now, bool late) {
  const rank_info *k = &g->ranks[r];
  const char *part = k->exchange ? tri_all2all_part_names[k->exchange] : "-";
  char layer[24] = "-";
  if (!k->known) {
    say(out, "%5u  has not registered  late\n", r);
    return;
  }
  if (k->layer != UINT32_MAX) snprintf(layer, sizeof layer, "%llu", (unsigned long long)k->layer);
  say(out, "%5u %-20.60s %8lld %10llu %6s %11llu %9s %9.1f s %7.1f s%s\n", r, k->host, (long long)k->pid,
      (unsigned long long)k->step, layer, (unsigned long long)k->collective, part, (double)(now - k->progress_ns) / 1e9,
      (double)(now - k->last_report) / 1e9, late ? "  late" : "");
}

/* Says where every rank of a replica stands, and which are late. silent: the rank that reports nothing; UINT32_MAX: all
 * do. */
static void report_hang(tri_core *c, int64_t now, uint32_t index, uint32_t silent, const char *why) {
  const replica *g = replica_at(c, index);
  tri_buf out = {0};
  bool late[MAX_RANKS], same;
  uint32_t count = 0;
  find_late(g, silent, late, &same);
  say(&out, "replica %u (epoch %llu, -tp %u -pp %u -dp %u) hangs: %.150s\n", index, (unsigned long long)g->facts.epoch,
      g->tp, g->pp, g->dp, why);
  say(&out, "late:");
  for (uint32_t r = 0; r < g->world; r++)
    if (late[r]) say(&out, "%s rank %u", count++ ? "," : "", r);
  say(&out, "%s\n", same ? "; these are at the same place: in the same collective, or each in work of its GPU" : "");
  say(&out, " RANK HOST                      PID       STEP  LAYER  COLLECTIVE  EXCHANGE    PROGRESS    REPORT\n");
  for (uint32_t r = 0; r < g->world; r++) say_rank(&out, g, r, now, late[r]);
  c->cfg.io.hang(c->cfg.io.ctx, index, g->facts.epoch, out.data ? (const char *)out.data : "", out.len);
  tri_buf_free(&out);
}

/* ---- the watch ---- */

/* A step thread that hangs while it is idle never says that it is busy: jobs tell. Where ranks measure their rooflines,
 * jobs wait for that. */
static int64_t work_since(const tri_core *c, int64_t now, replica *g) {
  if (roofline_is_measured(c, now)) {
    g->jobs_since = now;
    g->busy_since = g->busy_since ? now : 0;
  }
  bool has_jobs = g->facts.jobs && g->state != REPLICA_STARTING;
  if (!has_jobs || (g->busy_since && g->busy_since < g->jobs_since)) return g->busy_since;
  return g->jobs_since;
}

/* A busy replica counts as stalled after the configured time without progress, or after ten times what its slowest
 * layer should take. */
static int64_t patience(const tri_core *c, const replica *g) {
  const double longest = 3600;
  double predicted = g->layer_seconds > 0 ? fmin(10 * g->layer_seconds, longest) * 1e9 : 0;
  return predicted > (double)c->cfg.watchdog_ns ? (int64_t)predicted : c->cfg.watchdog_ns;
}

__attribute__((format(printf, 5, 6))) static void lose(tri_core *c, int64_t now, uint32_t index, uint32_t silent,
                                                       const char *fmt, ...) {
  char why[300];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  report_hang(c, now, index, silent, why);
  replica_lose(c, now, index, "%s", why);
}

/* Ranks of a replica that serves, or has served an earlier coordinator, have nothing to wait for. */
static bool has_not_come(const tri_core *c, int64_t now, const replica *g, double *limit_s) {
  int64_t limit = g->layer_seconds > 0 ? c->cfg.silence_ns : JOIN_NS;
  int64_t since = g->ready_ns ? g->ready_ns : g->began_ns;
  *limit_s = (double)limit / 1e9;
  return now - since > limit;
}

static void check(tri_core *c, int64_t now, uint32_t index) {
  replica *g = replica_at(c, index);
  double limit_s;
  int64_t since = work_since(c, now, g), last_progress = since;
  for (uint32_t r = 0; r < g->world; r++) {
    const rank_info *k = &g->ranks[r];
    if (!k->known && has_not_come(c, now, g, &limit_s)) {
      lose(c, now, index, UINT32_MAX, "rank %u did not register within %g s of the first one", r, limit_s);
      return;
    }
    if (!k->known) continue;
    if (now - k->last_report > c->cfg.silence_ns) {
      lose(c, now, index, r, "rank %u (%s, pid %lld) has been silent for %.1f s", r, k->host, (long long)k->pid,
           (double)(now - k->last_report) / 1e9);
      return;
    }
    if (k->progress_ns > last_progress) last_progress = k->progress_ns;
  }
  if (!since || now - last_progress < patience(c, g)) return;
  /* A replica that stands still in a collective shows the same position on every rank. */
  const rank_info *k = &g->ranks[0];
  const char *exchange = tri_all2all_part_names[k->exchange];
  lose(c, now, index, UINT32_MAX, "no progress for %.1f s (rank 0 at step %llu, layer %lld, collective %llu%s%s)",
       (double)(now - last_progress) / 1e9, (unsigned long long)k->step,
       k->layer == UINT32_MAX ? -1 : (long long)k->layer, (unsigned long long)k->collective, *exchange ? ", in " : "",
       exchange);
}

void watchdog_suspend(tri_core *c, int64_t now) { c->replicas->suspended_until_ns = now + SUSPENDED_NS; }

void watchdog_tick(tri_core *c, int64_t now) {
  if (now < c->replicas->suspended_until_ns) return;
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++)
    if (replica_is_watched(c, replica_at(c, i))) check(c, now, i);
}
