/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/expert_moves.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/model/expert_balance.h"
#include "runtime/model/layout.h"

/* A greedy search by single moves. Each round looks at every pair of a slot of the busiest share and a slot of another
 * one, as a swap and as a copy, and takes the move that leaves the fewest rows in the busiest share that it touches. A
 * better one must beat `bound`, so that most pairs are dropped after one comparison. Lists of each expert's slots
 * (first, next) keep the rest short. Searching allocates nothing. */
static const double LEAST_RISE = 0.02; /* of the balancedness, that moving is worth */
static const double LEAST_GAIN = 0.01; /* of one move, in the mean rows of a share */

struct tri_expert_search {
  tri_expert_search_config cfg;
  int32_t *share_of;  /* [num_slots] */
  int32_t *expert_of; /* [num_slots] as the moves found so far leave it */
  int32_t *copies;    /* [num_experts] slots of each, */
  int32_t *first;     /* [num_experts] of them the first one, */
  int32_t *next;      /* [num_slots] and the next one; -1: none */
  double *shares;     /* [ep] rows */
  /* of the layer at hand */
  const float *rows;      /* [num_experts] */
  const int32_t *host_of; /* [ep]; NULL: hosts do not matter */
};

/* ---- placements ---- */

/* Returns whether a share has the expert in a slot other than this one. */
static bool has_expert(const int32_t *expert_of, tri_range share, int32_t expert, int but) {
  for (int s = share.first; s < share.first + share.count; s++)
    if (s != but && expert_of[s] == expert) return true;
  return false;
}

static int count_slots(const int32_t *expert_of, int num_slots, int32_t expert) {
  int n = 0;
  for (int s = 0; s < num_slots; s++) n += expert_of[s] == expert;
  return n;
}

bool tri_expert_move_is_sound(const tri_expert_placement *p, int ep, const tri_expert_move *m) {
  int slots = p->num_slots;
  if (m->layer < 0 || m->layer >= p->num_layers || p->row_of[m->layer] < 0) return false;
  if (m->to < 0 || m->to >= slots || m->from < 0 || m->from >= slots) return false;
  const int32_t *of = p->expert_of + (size_t)p->row_of[m->layer] * (size_t)slots;
  int to = tri_range_part_with(slots, ep, m->to), from = tri_range_part_with(slots, ep, m->from);
  if (to == from || of[m->to] == of[m->from]) return false;
  if (has_expert(of, tri_range_part(slots, ep, to), of[m->from], m->to)) return false;
  if (!m->swaps) return count_slots(of, slots, of[m->to]) > 1;
  return !has_expert(of, tri_range_part(slots, ep, from), of[m->to], m->from);
}

void tri_expert_placement_move(tri_expert_placement *p, const tri_expert_move *m) {
  int32_t *of = p->expert_of + (size_t)p->row_of[m->layer] * (size_t)p->num_slots, replaced = of[m->to];
  of[m->to] = of[m->from];
  if (m->swaps) of[m->from] = replaced;
}

/* ---- the search ---- */

tri_status tri_expert_search_create(const tri_expert_search_config *config, tri_expert_search **out) {
  size_t ep = (size_t)config->ep, slots = (size_t)config->num_slots;
  tri_expert_search *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  s->cfg = *config;
  s->share_of = tri_calloc(slots, sizeof *s->share_of);
  s->expert_of = tri_calloc(slots, sizeof *s->expert_of);
  s->copies = tri_calloc((size_t)config->num_experts, sizeof *s->copies);
  s->first = tri_calloc((size_t)config->num_experts, sizeof *s->first);
  s->next = tri_calloc(slots, sizeof *s->next);
  s->shares = tri_calloc(ep, sizeof *s->shares);
  if (!s->share_of || !s->expert_of || !s->copies || !s->first || !s->next || !s->shares) {
    tri_expert_search_destroy(s);
    return TRI_NO_MEMORY;
  }
  for (int i = 0; i < config->num_slots; i++) s->share_of[i] = tri_range_part_with(config->num_slots, config->ep, i);
  *out = s;
  return TRI_OK;
}

void tri_expert_search_destroy(tri_expert_search *s) {
  if (!s) return;
  tri_free(s->share_of);
  tri_free(s->expert_of);
  tri_free(s->copies);
  tri_free(s->first);
  tri_free(s->next);
  tri_free(s->shares);
  tri_free(s);
}

/* The rows that each slot of an expert gets: copies share them evenly. */
static double rows_of(const tri_expert_search *s, int32_t expert) { return s->rows[expert] / s->copies[expert]; }

/* Counts slots and rows anew. Slots are linked from the last one, so that an expert's list is in their order. */
static void add_up(tri_expert_search *s) {
  memset(s->copies, 0, (size_t)s->cfg.num_experts * sizeof *s->copies);
  memset(s->shares, 0, (size_t)s->cfg.ep * sizeof *s->shares);
  for (int e = 0; e < s->cfg.num_experts; e++) s->first[e] = -1;
  for (int i = s->cfg.num_slots; i-- > 0;) {
    int32_t e = s->expert_of[i];
    s->copies[e]++;
    s->next[i] = s->first[e];
    s->first[e] = i;
  }
  for (int i = 0; i < s->cfg.num_slots; i++) s->shares[s->share_of[i]] += rows_of(s, s->expert_of[i]);
}

static int busiest(const tri_expert_search *s) {
  int best = 0;
  for (int i = 1; i < s->cfg.ep; i++)
    if (s->shares[i] > s->shares[best]) best = i;
  return best;
}

static bool share_has(const tri_expert_search *s, int share, int32_t expert) {
  for (int i = s->first[expert]; i >= 0; i = s->next[i])
    if (s->share_of[i] == share) return true;
  return false;
}

/* The rows of the busier of both shares afterwards; infinite where a share would have an expert twice, or where they
 * are no fewer than the limit. */
static double rows_of_swap(const tri_expert_search *s, int a, int b, double limit) {
  int x = s->share_of[a], y = s->share_of[b];
  int32_t ours = s->expert_of[a], theirs = s->expert_of[b];
  double moved = rows_of(s, ours) - rows_of(s, theirs);
  double most = fmax(s->shares[x] - moved, s->shares[y] + moved);
  if (moved <= 0 || most >= limit || share_has(s, y, ours) || share_has(s, x, theirs)) return INFINITY;
  return most;
}

/* The same where slot `to` gets a copy of the expert of slot `from`: other copies of the latter have fewer rows then,
 * and those of the expert that goes have more. */
static double rows_of_copy(const tri_expert_search *s, int to, int from, double limit) {
  int share = s->share_of[to], source = s->share_of[from];
  int32_t hot = s->expert_of[from], gone = s->expert_of[to];
  if (s->copies[gone] < 2 || gone == hot) return INFINITY;
  double less = rows_of(s, hot) - s->rows[hot] / (s->copies[hot] + 1),
         more = s->rows[gone] / (s->copies[gone] - 1) - rows_of(s, gone),
         most = fmax(s->shares[source] - less, s->shares[share] - rows_of(s, gone) + rows_of(s, hot) - less);
  if (most >= limit || share_has(s, share, hot)) return INFINITY;
  for (int i = s->first[gone]; i >= 0; i = s->next[i]) {
    int other = s->share_of[i];
    if (i != to) most = fmax(most, s->shares[other] + more - (share_has(s, other, hot) ? less : 0));
  }
  return most;
}

/* The best move so far. */
struct found {
  double limit; /* it must leave fewer rows than these */
  double rows;  /* what it leaves, as if more where it leads to another host */
  double bound; /* a better one leaves fewer */
  tri_expert_move move;
};

static void offer(const tri_expert_search *s, struct found *f, double rows, int to, int from, bool swaps) {
  const int32_t *host_of = s->host_of;
  if (rows >= f->limit) return;
  if (host_of && host_of[s->share_of[to]] != host_of[s->share_of[from]]) rows *= 100.0 / (100 - TRI_EXPERT_HOST_COST);
  if (rows >= f->rows) return;
  f->rows = rows;
  f->bound = fmin(rows, f->limit);
  f->move = (tri_expert_move){.to = to, .from = from, .swaps = swaps};
}

/* The best move of an expert out of the busiest share. */
static bool find_move(const tri_expert_search *s, tri_expert_move *out) {
  int share = busiest(s);
  tri_range own = tri_range_part(s->cfg.num_slots, s->cfg.ep, share);
  double mean = 0;
  for (int i = 0; i < s->cfg.ep; i++) mean += s->shares[i] / s->cfg.ep;
  struct found f = {.limit = s->shares[share] - LEAST_GAIN * mean, .rows = INFINITY};
  f.bound = f.limit;
  for (int to = 0; to < s->cfg.num_slots; to++)
    for (int from = own.first; s->share_of[to] != share && from < own.first + own.count; from++) {
      offer(s, &f, rows_of_copy(s, to, from, f.bound), to, from, false);
      offer(s, &f, rows_of_swap(s, from, to, f.bound), to, from, true);
    }
  *out = f.move;
  return isfinite(f.rows);
}

static double balancedness(const tri_expert_search *s, double *mean) {
  double sum = 0;
  for (int i = 0; i < s->cfg.ep; i++) sum += s->shares[i];
  *mean = sum / s->cfg.ep;
  double most = s->shares[busiest(s)];
  return most > 0 ? *mean / most : 1;
}

int tri_expert_search_moves(tri_expert_search *s, const float *rows, const int32_t *expert_of, const int32_t *host_of,
                            int layer, tri_expert_move *out, int most, double *before, double *after) {
  double mean;
  int n = 0;
  s->rows = rows;
  s->host_of = host_of;
  memcpy(s->expert_of, expert_of, (size_t)s->cfg.num_slots * sizeof *s->expert_of);
  add_up(s);
  *before = balancedness(s, &mean);
  for (; n < most && find_move(s, &out[n]); n++) {
    tri_expert_move *m = &out[n];
    int32_t replaced = s->expert_of[m->to];
    m->layer = layer;
    s->expert_of[m->to] = s->expert_of[m->from];
    if (m->swaps) s->expert_of[m->from] = replaced;
    add_up(s);
  }
  *after = balancedness(s, &mean);
  /* A share's rows are a sum of choices: so far they come from their mean by chance. */
  if (*after - *before > LEAST_RISE + (mean > 0 ? 2 / sqrt(mean) : 0)) return n;
  *after = *before;
  return 0;
}
