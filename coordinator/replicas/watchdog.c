/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: gives up groups with a rank that never came, that reports nothing, or that no longer makes progress. */
#include <math.h>
#include <stdarg.h>

#include "coordinator/state.h"

#define JOIN_NS (60 * 1000000000LL) /* ranks of a group start together */
/* Longer than from one report of a rank to the next. */
#define BLIND_NS (3 * 1000000000LL / 2)

/* A step thread that hangs while it is idle never says that it is busy: jobs tell. Where ranks measure their floors,
 * jobs wait for that. */
static int64_t work_since(const tri_core *c, int64_t now, group *g) {
  if (floors_are_measured(c, now)) {
    g->jobs_since = now;
    g->busy_since = g->busy_since ? now : 0;
  }
  bool has_jobs = g->jobs && g->state != GROUP_STARTING;
  if (!has_jobs || (g->busy_since && g->busy_since < g->jobs_since)) return g->busy_since;
  return g->jobs_since;
}

/* A busy group counts as stalled after the configured time without progress, or after ten times what its slowest layer
 * should take. */
static int64_t patience(const tri_core *c, const group *g) {
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
  hang_report(c, now, index, silent, why);
  member_lose(c, now, index, "%s", why);
}

/* Ranks of a group that serves, or has served an earlier coordinator, have nothing to wait for. */
static bool has_not_come(const tri_core *c, int64_t now, const group *g, double *limit_s) {
  int64_t limit = g->layer_seconds > 0 ? c->cfg.silence_ns : JOIN_NS;
  int64_t since = g->ready_ns ? g->ready_ns : g->began_ns;
  *limit_s = (double)limit / 1e9;
  return now - since > limit;
}

static void check(tri_core *c, int64_t now, uint32_t index) {
  group *g = &c->groups[index];
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
  /* A group that stands still in a collective shows the same position on every rank. */
  const rank_info *k = &g->ranks[0];
  const char *exchange = tri_exchange_part_names[k->exchange];
  lose(c, now, index, UINT32_MAX, "no progress for %.1f s (rank 0 at step %llu, layer %lld, collective %llu%s%s)",
       (double)(now - last_progress) / 1e9, (unsigned long long)k->step,
       k->layer == UINT32_MAX ? -1 : (long long)k->layer, (unsigned long long)k->collective, *exchange ? ", in " : "",
       exchange);
}

void tri_core_stood_still(tri_core *c, int64_t now) { c->blind_until_ns = now + BLIND_NS; }

void watchdog_tick(tri_core *c, int64_t now) {
  if (now < c->blind_until_ns) return;
  for (uint32_t i = 0; i < c->cfg.num_groups; i++)
    if (group_is_watched(c, &c->groups[i])) check(c, now, i);
}
