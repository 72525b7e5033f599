/* SPDX-License-Identifier: Apache-2.0 */
/* A window goes through three states, kept in two counters:
 *
 *   waiting  layer == num_layers and no moves: after `interval` steps all ranks are to count, which sets layer to 0
 *   looking  layer < num_layers: each call looks at the next layer, and may find moves
 *   moving   next_move < num_moves: hands them out one at a time, each between two steps; then looks on
 *
 * Every call does a bounded part, one layer's search at most, since it stands in the leader's step loop. */
#include "worker/placement/eplb.h"

#include <string.h>

#include "base/mem.h"

enum { MOST_MOVES = 64 /* of a layer in one window */ };

struct tri_eplb {
  tri_eplb_config cfg;
  tri_expert_search *search;
  int32_t *host_of, *stage_of; /* the configuration's, or NULL */
  float *load;                 /* [layers with experts, experts] */
  uint64_t since;              /* steps at the last count */
  uint64_t moved_at;           /* at the last move */
  int layer;                   /* to be looked at next; num_layers: none until the next count */
  tri_plan_kind asked;         /* that all ranks are doing */
  tri_expert_move moves[MOST_MOVES];
  int num_moves, next_move;
  double mean, most_before, most_after; /* rows of a share, over the layers that have been looked at */
  bool ended;
  tri_eplb_report report;
  tri_eplb_stats stats;
};

static tri_status copy_hosts(tri_eplb *b) {
  size_t shares = (size_t)b->cfg.pp * (size_t)b->cfg.ep, layers = (size_t)b->cfg.placement->num_layers;
  if (!b->cfg.host_of) return TRI_OK;
  b->host_of = tri_calloc(shares, sizeof *b->host_of);
  b->stage_of = tri_calloc(layers, sizeof *b->stage_of);
  if (!b->host_of || !b->stage_of) return TRI_NO_MEMORY;
  memcpy(b->host_of, b->cfg.host_of, shares * sizeof *b->host_of);
  memcpy(b->stage_of, b->cfg.stage_of, layers * sizeof *b->stage_of);
  return TRI_OK;
}

tri_status tri_eplb_create(const tri_eplb_config *config, tri_eplb **out) {
  const tri_expert_placement *p = config->placement;
  tri_expert_search_config sc = {.num_experts = p->num_experts, .num_slots = p->num_slots, .ep = config->ep};
  tri_eplb *b = tri_calloc(1, sizeof *b);
  tri_status st = b ? TRI_OK : TRI_NO_MEMORY;
  TRI_TRY(st);
  b->cfg = *config;
  b->layer = p->num_layers;
  b->load = tri_calloc((size_t)p->num_rows, (size_t)p->num_experts * sizeof *b->load);
  TRI_TRY(b->load ? TRI_OK : TRI_NO_MEMORY);
  TRI_TRY(copy_hosts(b));
  TRI_TRY(tri_expert_search_create(&sc, &b->search));
  *out = b;
  b = NULL;
cleanup:
  tri_eplb_destroy(b);
  return st;
}

void tri_eplb_destroy(tri_eplb *b) {
  if (!b) return;
  tri_expert_search_destroy(b->search);
  tri_free(b->host_of);
  tri_free(b->stage_of);
  tri_free(b->load);
  tri_free(b);
}

/* Looks at the next layer. */
static void look(tri_eplb *b) {
  const tri_expert_placement *p = b->cfg.placement;
  int layer = b->layer++, row = p->row_of[layer];
  const int32_t *host_of = b->host_of ? b->host_of + b->stage_of[layer] * b->cfg.ep : NULL;
  double before, after, rows = 0;
  if (row < 0) return;
  const float *load = b->load + (size_t)row * (size_t)p->num_experts;
  for (int e = 0; e < p->num_experts; e++) rows += load[e];
  b->num_moves = tri_expert_search_moves(b->search, load, p->expert_of + (size_t)row * (size_t)p->num_slots, host_of,
                                         layer, b->moves, MOST_MOVES, &before, &after);
  b->next_move = 0;
  b->report.layers += b->num_moves > 0;
  b->mean += rows / b->cfg.ep;
  b->most_before += rows / b->cfg.ep / before;
  b->most_after += rows / b->cfg.ep / after;
}

/* The last layer has been seen to. */
static void end(tri_eplb *b) {
  b->ended = b->report.moved > 0;
  b->stats.rearrangements += b->ended;
  b->report.before = b->most_before > 0 ? b->mean / b->most_before : 1;
  b->report.after = b->most_after > 0 ? b->mean / b->most_after : 1;
}

tri_plan_kind tri_eplb_next(tri_eplb *b, uint64_t steps, bool idle, tri_expert_move *m) {
  int layers = b->cfg.placement->num_layers;
  bool looks = b->layer < layers;
  b->asked = TRI_PLAN_STEP;
  if (b->next_move == b->num_moves && looks) {
    look(b);
    if (b->next_move == b->num_moves && b->layer == layers) end(b);
  }
  if (b->next_move < b->num_moves) {
    *m = b->moves[b->next_move];
    if (idle || steps != b->moved_at) b->asked = TRI_PLAN_MOVE_EXPERT;
  } else if (b->layer == layers && steps - b->since >= b->cfg.interval) {
    b->asked = TRI_PLAN_COUNT_ROWS;
  }
  return b->asked;
}

static void take_rows(tri_eplb *b, const float *rows) {
  const tri_expert_placement *p = b->cfg.placement;
  for (size_t i = 0; i < (size_t)p->num_rows * (size_t)p->num_experts; i++) b->load[i] = b->load[i] / 2 + rows[i];
  b->layer = 0;
  b->mean = b->most_before = b->most_after = 0;
  b->report = (tri_eplb_report){0};
}

static void note_move(tri_eplb *b) {
  uint64_t slots = b->moves[b->next_move++].swaps ? 2 : 1;
  b->report.moved += slots;
  b->stats.moved += slots;
  if (b->next_move == b->num_moves && b->layer == b->cfg.placement->num_layers) end(b);
}

void tri_eplb_done(tri_eplb *b, uint64_t steps, const float *rows, uint64_t ns) {
  if (b->asked == TRI_PLAN_COUNT_ROWS) {
    b->since = steps;
    take_rows(b, rows);
  } else {
    b->moved_at = steps;
  }
  b->stats.ns += ns;
  b->report.ns += ns;
  if (ns > b->report.most_ns) b->report.most_ns = ns;
  if (b->asked == TRI_PLAN_MOVE_EXPERT) note_move(b);
}

bool tri_eplb_is_busy(const tri_eplb *b) {
  return b->layer < b->cfg.placement->num_layers || b->next_move < b->num_moves;
}

bool tri_eplb_ended(tri_eplb *b, tri_eplb_report *out) {
  bool ended = b->ended;
  *out = b->report;
  b->ended = false;
  return ended;
}

tri_eplb_stats tri_eplb_get_stats(const tri_eplb *b) { return b->stats; }
