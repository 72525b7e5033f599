/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a group that hangs: where each of its ranks stands, and which of them are behind the others. */
#include <stdarg.h>
#include <stdio.h>

#include "coordinator/state.h"

enum { MOST_LINE = 256 };

/* Between two steps a rank is through with the last one, behind all layers. One that never came is before all. */
static bool is_before(const rank_info *a, const rank_info *b) {
  if (!a->known || !b->known) return !a->known && b->known;
  return a->step != b->step ? a->step < b->step : a->layer < b->layer;
}

static bool is_last(const group *g, uint32_t rank) {
  for (uint32_t r = 0; r < g->world; r++)
    if (is_before(&g->ranks[r], &g->ranks[rank])) return false;
  return true;
}

static bool are_of_one_stage(const group *g, uint32_t a, uint32_t b) {
  uint32_t ranks = g->pp ? g->world / g->pp : g->world;
  return !ranks || a / ranks == b / ranks;
}

/* Tells whether another of these ranks, of the same stage, has begun more collectives. */
static bool is_behind(const group *g, const bool last[MAX_RANKS], uint32_t rank) {
  for (uint32_t o = 0; o < g->world; o++)
    if (last[o] && are_of_one_stage(g, rank, o) && g->ranks[rank].collective < g->ranks[o].collective) return true;
  return false;
}

/* Marks the ranks that the others wait for: those that are furthest back, and of these, where some of a stage have
 * begun fewer collectives than others, those. *same: several stand at one place, so that none is later than another. */
static void find_late(const group *g, uint32_t silent, bool late[MAX_RANKS], bool *same) {
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

static void say_rank(tri_buf *out, const group *g, uint32_t r, int64_t now, bool late) {
  const rank_info *k = &g->ranks[r];
  const char *part = k->exchange ? tri_exchange_part_names[k->exchange] : "-";
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

void hang_report(tri_core *c, int64_t now, uint32_t index, uint32_t silent, const char *why) {
  const group *g = &c->groups[index];
  tri_buf out = {0};
  bool late[MAX_RANKS], same;
  uint32_t count = 0;
  find_late(g, silent, late, &same);
  say(&out, "group %u (epoch %llu, -tp %u -pp %u -dp %u) hangs: %.150s\n", index, (unsigned long long)g->epoch, g->tp,
      g->pp, g->dp, why);
  say(&out, "late:");
  for (uint32_t r = 0; r < g->world; r++)
    if (late[r]) say(&out, "%s rank %u", count++ ? "," : "", r);
  say(&out, "%s\n",
      same ? "; these stand at the same place: in the same collective, or each in its device's work" : "");
  say(&out, " RANK HOST                      PID       STEP  LAYER  COLLECTIVE  EXCHANGE    PROGRESS    REPORT\n");
  for (uint32_t r = 0; r < g->world; r++) say_rank(&out, g, r, now, late[r]);
  c->cfg.io.hang(c->cfg.io.ctx, index, g->epoch, out.data ? (const char *)out.data : "", out.len);
  tri_buf_free(&out);
}
