/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule/batch_measure.h"

#include <math.h>

#include "base/mem.h"
#include "base/wait.h"

enum { RUNS = 3 }; /* of a cell: the first may load kernels, and another program may be in the way of any */

struct measuring {
  const tri_batch_measure *m;
  tri_batch_cost *cost;
  uint32_t *ids; /* [max_model_len] zeros */
  int32_t *blocks;
  int num_cells; /* that are measured */
};

static int blocks_of(const tri_limits *l, int length) { return (length + l->block_size - 1) / l->block_size; }

/* Writes a step of `size` prompts of `length` zeros, each in slot and blocks of its own. False: they find no blocks
 * together. */
static bool make_plan(const struct measuring *w, int length, int size) {
  const tri_limits *l = &w->m->limits;
  int own = blocks_of(l, length);
  if (own > l->num_blocks / size) return false;
  tri_plan_begin(w->m->plan, 0, 0);
  for (int i = 0; i < size; i++) {
    tri_plan_seq s = {.slot = (uint32_t)i,
                      .kind = TRI_SEQ_CHUNK,
                      .flags = TRI_SEQ_FLAG_FIRST,
                      .num_tokens = (uint32_t)length,
                      .num_blocks = (uint32_t)own};
    for (int k = 0; k < own; k++) w->blocks[k] = i * own + k;
    tri_plan_add(w->m->plan, &s, w->ids, w->blocks, NULL, 0);
  }
  return true;
}

/* Before each run the table itself says what it will take, from the smaller cells that are known by then; a run that
 * would end after the deadline is left out, so that a start takes no longer than it was given. */
static tri_status measure_cell(struct measuring *w, int l, int s) {
  tri_batch_cost *c = w->cost;
  double best = INFINITY;
  for (int i = 0; i < RUNS; i++) {
    double expected = isfinite(best) ? best : c->seconds[l][s];
    int64_t start = tri_now_ns();
    if ((double)start + expected * 1e9 > (double)w->m->until_ns) break;
    if (!make_plan(w, c->lengths[l], c->sizes[s])) break;
    TRI_CHECK(w->m->run(w->m->ctx));
    best = fmin(best, (double)(tri_now_ns() - start) * 1e-9);
  }
  if (!isfinite(best)) return TRI_OK;
  c->measured[l][s] = best;
  w->num_cells++;
  tri_batch_cost_complete(c);
  return TRI_OK;
}

/* Goes by diagonals: cells on one have about equally many tokens, so that what the time is too short for are the
 * largest batches of all lengths, and not all batches of the longest sequences. */
static tri_status measure_all(struct measuring *w) {
  tri_batch_cost *c = w->cost;
  for (int d = 0; d < c->num_lengths + c->num_sizes - 1; d++)
    for (int l = 0; l < c->num_lengths; l++) {
      int s = d - l;
      if (s < 0 || s >= c->num_sizes || !tri_batch_cost_has(c, l, s)) continue;
      TRI_CHECK(measure_cell(w, l, s));
    }
  return TRI_OK;
}

tri_status tri_batch_measure_run(const tri_batch_measure *m, tri_batch_cost *c, int *num_cells) {
  struct measuring w = {.m = m, .cost = c};
  tri_status st;
  w.ids = tri_calloc((size_t)m->limits.max_model_len, sizeof *w.ids);
  w.blocks = tri_calloc((size_t)m->limits.num_blocks, sizeof *w.blocks);
  TRI_TRY(w.ids && w.blocks ? TRI_OK : TRI_NO_MEMORY);
  TRI_TRY(measure_all(&w));
  *num_cells = w.num_cells;
cleanup:
  tri_free(w.ids);
  tri_free(w.blocks);
  return st;
}
