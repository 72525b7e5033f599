/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options/serve_layout.h"

#include <stdio.h>
#include <string.h>

static tri_status refuse(const tri_serve_options *o, const char *field, int ep, int slices, tri_error *err) {
  return tri_fail(err, TRI_OUT_OF_RANGE, field,
                  "expert-parallel %d x moe-tensor-parallel %d is not data-parallel %d x tensor-parallel %d", ep,
                  slices, o->dp, o->tp);
}

/* Names the numbers that could be. */
static tri_status refuse_shares(const tri_serve_options *o, int ep, tri_error *err) {
  char could[120] = "";
  for (int n = 1, ranks = o->dp * o->tp; n <= ranks; n++) {
    size_t used = strlen(could);
    if (ranks % n == 0 && used + 12 < sizeof could)
      snprintf(could + used, sizeof could - used, "%s%d", used ? ", " : "", n);
  }
  return tri_fail(err, TRI_OUT_OF_RANGE, "expert_parallel_size",
                  "-ep %d does not divide data-parallel %d x tensor-parallel %d: it could be %s", ep, o->dp, o->tp,
                  could);
}

/* Shares of the experts: each of the three options implies the others. */
static tri_status find_ep(const tri_serve_options *o, int *out, tri_error *err) {
  int ranks = o->dp * o->tp, ep = o->ep;
  if (o->enable_expert_parallel && ep && ep != ranks)
    return tri_fail(err, TRI_OUT_OF_RANGE, "expert_parallel_size",
                    "--enable-expert-parallel shares the experts among all data-parallel %d x tensor-parallel %d "
                    "ranks, but -ep is %d",
                    o->dp, o->tp, ep);
  if (o->enable_expert_parallel) ep = ranks;
  if (!ep && o->moe_tp) ep = ranks / o->moe_tp;
  if (o->moe_tp && ranks % o->moe_tp && !o->ep)
    return tri_fail(err, TRI_OUT_OF_RANGE, "moe_tensor_parallel_size",
                    "--moe-tensor-parallel-size %d does not divide data-parallel %d x tensor-parallel %d", o->moe_tp,
                    o->dp, o->tp);
  if (o->moe_tp && (int64_t)ep * o->moe_tp != ranks)
    return refuse(o, o->ep ? "expert_parallel_size" : "moe_tensor_parallel_size", ep, o->moe_tp, err);
  *out = ep ? ep : 1;
  return TRI_OK;
}

/* -dp has two meanings: data-parallel ranks of a replica that share experts, or replicas. `shares` is the former. */
tri_status tri_serve_layout_make(const tri_serve_options *o, tri_serve_layout *out, tri_error *err) {
  tri_serve_layout l = {.tp = o->tp, .pp = o->pp, .dp = 1};
  TRI_CHECK(find_ep(o, &l.ep, err));
  if (o->enable_eplb && o->deterministic)
    return tri_fail(
        err, TRI_UNSUPPORTED, "enable_eplb",
        "--enable-eplb cannot be combined with --deterministic: experts that move change the order of sums");
  bool counted =
      o->dp > 1 && o->replicas && o->replicas != o->dp; /* the replicas, apart from their data-parallel ranks */
  bool shares = l.ep > 1 || o->moe_tp || counted;       /* asked for, if only by the number of slices */
  if (shares) l.dp = o->dp;
  if (shares && (l.dp * l.tp) % l.ep) return refuse_shares(o, l.ep, err);
  l.replicas = !shares && o->dp > 1 ? o->dp : o->replicas;
  if (!l.replicas) l.replicas = 1;
  if (l.replicas > TRI_SERVE_MAX_GROUPS)
    return tri_fail(err, TRI_OUT_OF_RANGE, "data_parallel_size", "%d replicas: the most is %d", l.replicas,
                    TRI_SERVE_MAX_GROUPS);
  int64_t ranks = (int64_t)l.tp * l.pp * l.dp * l.replicas;
  if (ranks > TRI_SERVE_MAX_RANKS)
    return tri_fail(err, TRI_OUT_OF_RANGE, "tensor_parallel_size", "%lld ranks in all replicas: the most is %d",
                    (long long)ranks, TRI_SERVE_MAX_RANKS);
  *out = l;
  return TRI_OK;
}

int tri_serve_num_replicas(const tri_serve_options *o) {
  tri_serve_layout l;
  return tri_serve_layout_make(o, &l, NULL) == TRI_OK ? l.replicas : 1;
}

bool tri_serve_is_one_rank(const tri_serve_options *o) {
  tri_serve_layout l;
  return tri_serve_layout_make(o, &l, NULL) == TRI_OK && tri_serve_layout_world(&l) * l.replicas == 1;
}
