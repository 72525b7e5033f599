/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/plan/candidates.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

/* All products of tp, pp and, with experts, dp that divide the number of devices, with replicas for the rest. For
 * experts there is a layout for each number of slices too: ep = dp * tp / slices. tri_shard_make has the last word, so
 * that what is listed here can be started. */
struct list {
  const tri_model_config *c;
  int devices;
  tri_serve_layout *at;
  size_t count, cap;
  tri_error *err;
};

/* The largest value that an option takes. */
static int most_of(const char *option) {
  for (size_t i = 0; i < tri_serve_option_count; i++)
    if (!strcmp(tri_serve_option_table[i].name, option)) return (int)tri_serve_option_table[i].max;
  return 0;
}

static tri_status add(struct list *l, tri_serve_layout y) {
  tri_shard ignored;
  tri_parallel p = {.tp = y.tp, .pp = y.pp, .dp = y.dp, .ep = y.ep};
  y.replicas = l->devices / tri_serve_layout_world(&y);
  if (y.replicas > most_of("replicas") || tri_shard_make(l->c, p, &ignored, NULL) != TRI_OK) return TRI_OK;
  if (tri_array_reserve(&l->at, l->count, &l->cap, 1, sizeof *l->at) != TRI_OK)
    return tri_fail(l->err, TRI_NO_MEMORY, "devices", "no memory for the layouts of %d GPUs", l->devices);
  l->at[l->count++] = y;
  return TRI_OK;
}

/* The shares that the ranks of a stage can hold experts in: slices divide a tensor group. */
static tri_status add_shares(struct list *l, tri_serve_layout y) {
  for (int slices = 1; slices <= y.tp; slices++) {
    if (y.tp % slices) continue;
    y.ep = y.dp * y.tp / slices;
    bool takes = l->c->moe.num_experts ? y.ep > 1 || y.dp == 1 : y.ep == 1;
    if (takes) TRI_CHECK(add(l, y));
  }
  return TRI_OK;
}

tri_status tri_candidates_make(const tri_model_config *c, int devices, tri_serve_layout **out, int *count,
                               tri_error *err) {
  struct list l = {.c = c, .devices = devices, .err = err};
  int most_tp = most_of("tensor-parallel-size"), most_dp = c->moe.num_experts ? most_of("data-parallel-size") : 1;
  tri_status st = TRI_OK;
  for (int tp = 1; tp <= devices && tp <= most_tp; tp++) {
    if (devices % tp) continue;
    for (int pp = 1; tp * pp <= devices && pp <= TRI_MOST_STAGES; pp++) {
      if (devices % (tp * pp)) continue;
      for (int dp = 1; tp * pp * dp <= devices && dp <= most_dp; dp++)
        if (devices % (tp * pp * dp) == 0)
          TRI_TRY(add_shares(&l, (tri_serve_layout){.tp = tp, .pp = pp, .dp = dp, .ep = 1}));
    }
  }
cleanup:
  if (st != TRI_OK) tri_free(l.at);
  if (st != TRI_OK) return st;
  *out = l.at;
  *count = (int)l.count;
  return TRI_OK;
}

const char *tri_layout_flags(const tri_serve_layout *y, char out[TRI_LAYOUT_FLAGS]) {
  int n = snprintf(out, TRI_LAYOUT_FLAGS, "-tp %d", y->tp);
  if (y->pp > 1) n += snprintf(out + n, TRI_LAYOUT_FLAGS - (size_t)n, " -pp %d", y->pp);
  if (y->dp > 1) n += snprintf(out + n, TRI_LAYOUT_FLAGS - (size_t)n, " -dp %d", y->dp);
  if (y->ep > 1 && y->ep == y->dp * y->tp)
    n += snprintf(out + n, TRI_LAYOUT_FLAGS - (size_t)n, " --enable-expert-parallel");
  else if (y->ep > 1)
    n += snprintf(out + n, TRI_LAYOUT_FLAGS - (size_t)n, " -ep %d", y->ep);
  if (y->replicas > 1) snprintf(out + n, TRI_LAYOUT_FLAGS - (size_t)n, " --replicas %d", y->replicas);
  return out;
}

/* Returns whether two shares have the same sizes. */
static bool is_alike(const tri_shard *a, const tri_shard *b) {
  return a->q_heads.count == b->q_heads.count && a->kv_heads.count == b->kv_heads.count &&
         a->global_q_heads.count == b->global_q_heads.count && a->global_kv_heads.count == b->global_kv_heads.count &&
         a->ff.count == b->ff.count && a->shared_kv_ff.count == b->shared_kv_ff.count &&
         a->expert_ff.count == b->expert_ff.count && a->shared_ff.count == b->shared_ff.count &&
         a->vocab.count == b->vocab.count;
}

tri_status tri_candidate_shards(const tri_model_config *c, const tri_parallel *p, int stage, tri_range layers,
                                tri_status (*fn)(void *ctx, const tri_shard *s), void *ctx, tri_error *err) {
  tri_shard before = {0}; /* sizes alternate between two values at most, so that neighbours are what is worth a look */
  int ep = tri_parallel_ep(*p), most = (int)((c->moe.num_experts + ep - 1) / ep);
  for (int t = 0; t < p->tp; t++) {
    tri_parallel at = *p;
    tri_shard s;
    at.tp_rank = t;
    at.pp = 1; /* the layers are known: finding them for each rank is what would take time */
    TRI_CHECK(tri_shard_make(c, at, &s, err));
    s.p.pp = p->pp;
    s.p.pp_rank = stage;
    s.first_stage = stage == 0;
    s.last_stage = stage == p->pp - 1;
    s.layers = layers;
    s.slots.count = most;
    if (t > 1 && is_alike(&s, &before)) continue;
    before = s;
    TRI_CHECK(fn(ctx, &s));
  }
  return TRI_OK;
}
