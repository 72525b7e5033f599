/* SPDX-License-Identifier: Apache-2.0 */
/* A division costs n * max_batch additions, for which the costs lie ready: `rows` at the lengths of the table, made
 * when the table changes, and `row` at the length at hand, made once for all sequences of that length, as they are
 * sorted. tri_batch_cost_padded for each would look both axes up every time. */
#include "worker/schedule/batch_planner.h"

#include <math.h>

#include "base/mem.h"

struct tri_batch_planner {
  int max_batch, max_tokens, num_lengths;
  int lengths[TRI_BATCH_LENGTHS];
  double *rows[TRI_BATCH_LENGTHS]; /* [max_batch + 1] seconds by the number of sequences, at each of the lengths */
  double *row;                     /* [max_batch + 1] at the length at hand */
  double best[TRI_BATCH_QUEUE + 1];
  int size[TRI_BATCH_QUEUE + 1]; /* of the last batch of the best division of so many */
};

tri_status tri_batch_planner_create(int max_batch, int max_tokens, tri_batch_planner **out) {
  tri_batch_planner *p = tri_calloc(1, sizeof *p);
  if (!p) return TRI_NO_MEMORY;
  p->max_batch = max_batch > 1 ? max_batch : 1;
  p->max_tokens = max_tokens;
  size_t n = (size_t)p->max_batch + 1;
  bool fits = (p->row = tri_calloc(n, sizeof *p->row)) != NULL;
  for (int l = 0; fits && l < TRI_BATCH_LENGTHS; l++) fits = (p->rows[l] = tri_calloc(n, sizeof **p->rows)) != NULL;
  if (fits) {
    *out = p;
    return TRI_OK;
  }
  tri_batch_planner_destroy(p);
  return TRI_NO_MEMORY;
}

void tri_batch_planner_destroy(tri_batch_planner *p) {
  if (!p) return;
  for (int l = 0; l < TRI_BATCH_LENGTHS; l++) tri_free(p->rows[l]);
  tri_free(p->row);
  tri_free(p);
}

void tri_batch_planner_set_cost(tri_batch_planner *p, const tri_batch_cost *c) {
  p->num_lengths = c->num_lengths;
  for (int l = 0; l < c->num_lengths; l++) {
    p->lengths[l] = c->lengths[l];
    for (int b = 1; b <= p->max_batch; b++) p->rows[l][b] = tri_batch_cost_padded(c, c->lengths[l], b);
  }
}

/* Returns how many sequences of a length one step can have. */
static int most_of(const tri_batch_planner *p, int length) {
  int fit = p->max_tokens / length;
  if (fit < 1) fit = 1;
  return fit < p->max_batch ? fit : p->max_batch;
}

/* Makes p->row: what 1 to n sequences of a length cost. The same numbers as tri_batch_cost_padded gives. */
static void make_row(tri_batch_planner *p, int length, int n) {
  int last = p->num_lengths - 1, l = 0;
  while (l < last && length >= p->lengths[l + 1]) l++;
  const double *low = p->rows[l], *high = p->rows[l < last ? l + 1 : l];
  double share = 0, scale = 1;
  if (l == last && length > p->lengths[l]) scale = (double)length / p->lengths[l];
  if (l < last && length > p->lengths[l])
    share = (double)(length - p->lengths[l]) / (p->lengths[l + 1] - p->lengths[l]);
  for (int b = 1; b <= n; b++) p->row[b] = (low[b] + share * (high[b] - low[b])) * scale;
}

/* Finds the best last batch of the first i sequences. */
static void extend(tri_batch_planner *p, int i, int most) {
  double best = INFINITY;
  int size = 1;
  for (int b = 1; b <= most; b++) {
    double seconds = p->best[i - b] + p->row[b];
    if (seconds < best) {
      best = seconds;
      size = b;
    }
  }
  p->best[i] = best;
  p->size[i] = size;
}

int tri_batch_planner_cut(tri_batch_planner *p, const int *lengths, int n, int *ends, double *seconds) {
  int made = 0, num = 0;
  p->best[0] = 0;
  for (int i = 1; i <= n; i++) {
    int length = lengths[i - 1], most = most_of(p, length);
    if (length != made) make_row(p, length, most);
    made = length;
    extend(p, i, most < i ? most : i);
  }
  /* size[] leads from the end of the queue back to its beginning: once to count the batches, once to write them. */
  for (int i = n; i > 0; i -= p->size[i]) num++;
  for (int i = n, k = num; i > 0; i -= p->size[i]) ends[--k] = i;
  *seconds = p->best[n];
  return num;
}
