/* SPDX-License-Identifier: Apache-2.0 */
/* The table holds two numbers for each cell: what was measured, which observations move, and the seconds that callers
 * get, which are made from the first anew after every change. Seconds never fall with the length or the number of
 * sequences, whatever was measured: the planner's claim that no other division is cheaper rests on that, and a step
 * that happened to be slow must not make a larger one look cheap. */
#include "worker/schedule/batch_cost.h"

#include <math.h>
#include <string.h>

static const double TOKEN_S = 1e-6;     /* where nothing is measured only ratios count */
static const double STEP = 0.125;       /* of an observation's difference */
static const double MOST_OFF = 16;      /* an observation beyond is no step's time: the process stood still */
static const double GOOD_ENOUGH = 1.03; /* of the best seconds for a token */

/* Powers of two from `first` on, and the largest. */
static int fill_axis(int *axis, int cap, int first, int most) {
  int n = 0;
  for (int at = first; at < most && n < cap - 1; at *= 2) axis[n++] = at;
  axis[n++] = most;
  return n;
}

void tri_batch_cost_init(tri_batch_cost *c, int max_len, int max_seqs, int max_tokens) {
  enum { SHORTEST = 8 };
  *c = (tri_batch_cost){.max_tokens = max_tokens};
  int longest = max_len < max_tokens ? max_len : max_tokens;
  c->num_lengths = fill_axis(c->lengths, TRI_BATCH_LENGTHS, SHORTEST, longest > 1 ? longest : 1);
  c->num_sizes = fill_axis(c->sizes, TRI_BATCH_SIZES, 1, max_seqs > 1 ? max_seqs : 1);
  tri_batch_cost_complete(c);
}

/* Returns what a cell costs that was not measured: by its tokens what its neighbour costs. */
static double derive(const tri_batch_cost *c, int length, int size) {
  double tokens = (double)c->lengths[length] * c->sizes[size];
  if (size) return c->seconds[length][size - 1] * tokens / ((double)c->lengths[length] * c->sizes[size - 1]);
  if (length) return c->seconds[length - 1][size] * tokens / ((double)c->lengths[length - 1] * c->sizes[size]);
  return TOKEN_S * tokens;
}

void tri_batch_cost_complete(tri_batch_cost *c) {
  for (int l = 0; l < c->num_lengths && l < TRI_BATCH_LENGTHS; l++)
    for (int s = 0; s < c->num_sizes && s < TRI_BATCH_SIZES; s++) {
      double own = c->measured[l][s] > 0 ? c->measured[l][s] : derive(c, l, s);
      if (l) own = fmax(own, c->seconds[l - 1][s]);
      if (s) own = fmax(own, c->seconds[l][s - 1]);
      c->seconds[l][s] = own;
    }
}

/* A place between two points of an axis; beyond its ends the last point, with what it is to be multiplied with. */
struct place {
  int below;
  double share; /* of the point above */
  double scale;
};

static struct place find_place(const int *axis, int n, double at) {
  struct place p = {.scale = 1};
  if (at <= axis[0]) return p;
  if (at >= axis[n - 1]) return (struct place){n - 1, 0, at / axis[n - 1]};
  while (at >= axis[p.below + 1]) p.below++;
  p.share = (at - axis[p.below]) / (axis[p.below + 1] - axis[p.below]);
  return p;
}

/* A row of the table at a place of the other axis. */
static double between(const double *row, struct place p) {
  return p.share > 0 ? row[p.below] + p.share * (row[p.below + 1] - row[p.below]) : row[p.below];
}

double tri_batch_cost_padded(const tri_batch_cost *c, double length, double size) {
  struct place l = find_place(c->lengths, c->num_lengths, length), s = find_place(c->sizes, c->num_sizes, size);
  double low = between(c->seconds[l.below], s), seconds = low;
  if (l.share > 0) seconds += l.share * (between(c->seconds[l.below + 1], s) - low);
  return seconds * l.scale * s.scale;
}

/* Moves one cell, by its weight in the interpolation that predicted the observation. A cell without a measurement gets
 * one: the seconds that were derived for it are where it starts. */
static void move_cell(tri_batch_cost *c, int length, int size, double weight, double ratio) {
  double *cell = &c->measured[length][size];
  if (weight <= 0) return;
  if (*cell <= 0) *cell = c->seconds[length][size];
  *cell *= 1 + STEP * weight * (ratio - 1);
}

bool tri_batch_cost_observe(tri_batch_cost *c, double length, double size, double seconds) {
  double ratio = seconds / tri_batch_cost_padded(c, length, size);
  if (!(ratio < MOST_OFF) || !(ratio > 1 / MOST_OFF)) return false;
  struct place l = find_place(c->lengths, c->num_lengths, length), s = find_place(c->sizes, c->num_sizes, size);
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      double own_length = i ? l.share : 1 - l.share, own_size = j ? s.share : 1 - s.share;
      move_cell(c, l.below + (i && l.share > 0), s.below + (j && s.share > 0), own_length * own_size, ratio);
    }
  tri_batch_cost_complete(c); /* the next one is compared with what is known now */
  return true;
}

/* The same as tri_batch_cost_enough_tokens, for sequences of one length; 0: steps of none can come. */
static int enough_of_length(const tri_batch_cost *c, int l) {
  double best = INFINITY;
  int tokens = 0;
  for (int s = 0; s < c->num_sizes && tri_batch_cost_has(c, l, s); s++)
    best = fmin(best, c->seconds[l][s] / c->sizes[s]);
  for (int s = 0; s < c->num_sizes && tri_batch_cost_has(c, l, s) && !tokens; s++)
    if (c->seconds[l][s] / c->sizes[s] <= best * GOOD_ENOUGH) tokens = c->sizes[s] * c->lengths[l];
  return tokens;
}

int tri_batch_cost_enough_tokens(const tri_batch_cost *c) {
  int enough = c->lengths[c->num_lengths - 1];
  for (int l = 0; l < c->num_lengths; l++) {
    int own = enough_of_length(c, l);
    if (own > enough) enough = own;
  }
  return enough < c->max_tokens ? enough : c->max_tokens;
}
