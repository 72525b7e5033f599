/* SPDX-License-Identifier: Apache-2.0 */
/* The ledgers of a layout's ranks, the longest max_model_len that fits, and what follows from weights that do not stay.
 */
#include <limits.h>

#include "runtime/engine/ledger_refusal.h"
#include "runtime/step/limits.h"
#include "tools/plan/plan.h"

tri_parallel plan_parallel(const struct plan *p) {
  const tri_serve_layout *y = &p->layout;
  bool quantized = p->ledger.quantization != TRI_QUANTIZE_NONE;
  return (tri_parallel){.tp = y->tp,
                        .pp = y->pp,
                        .dp = y->dp,
                        .ep = y->ep,
                        .quantized = quantized,
                        .placement = p->placement,
                        .host_experts = tri_offload_host_experts(&p->offload, p->ledger.device)};
}

/* Makes the ledgers of all ranks for a max_model_len. The worst of the ranks' statuses: TRI_NO_CAPACITY does not keep
 * the others from being made, unless the first that does not fit is all that is asked for. */
static tri_status make_ranks(struct plan *p, const tri_limits *limits, bool first_only, tri_error *err) {
  tri_status worst = TRI_OK;
  p->tokens = INT64_MAX;
  p->num_made = 0;
  for (int rank = 0; rank < p->num_ranks; rank++) {
    struct plan_rank *r = &p->ranks[rank];
    tri_parallel at = plan_parallel(p);
    at.tp_rank = rank % at.tp;
    at.dp_rank = rank / at.tp % at.dp;
    at.pp_rank = rank / at.tp / at.dp;
    tri_error why = {0};
    tri_status st = tri_shard_make(p->c, at, &r->shard, &why);
    if (st == TRI_OK) st = tri_ledger_make(p->c, &r->shard, p->ckpt, limits, at.pp, &p->ledger, &r->ledger, &why);
    if (st != TRI_OK && worst == TRI_OK && !first_only)
      tri_ledger_explain(p->c, &r->shard, p->ckpt, limits, at.pp, &p->ledger, &why);
    if (st != TRI_OK && worst == TRI_OK) *err = why;
    if (st != TRI_OK) worst = st;
    if (st == TRI_OK) r->shard.p.hot_experts = r->ledger.hot_experts;
    if (st != TRI_OK && (st != TRI_NO_CAPACITY || first_only)) return st;
    p->num_made++;
    if (r->ledger.kv_tokens < p->tokens) p->tokens = r->ledger.kv_tokens;
  }
  return worst;
}

tri_status plan_limits(const struct plan *p, int64_t len, tri_limits *out, tri_error *err) {
  const tri_serve_options *v = &p->o->serve;
  tri_limits_config config = {.max_num_seqs = v->max_num_seqs,
                              .max_num_batched_tokens = v->max_num_batched_tokens,
                              .block_size = v->block_size,
                              .max_model_len = len,
                              .device = p->ledger.device,
                              .host_experts = tri_offload_host_experts(&p->offload, p->ledger.device) > 0};
  return tri_limits_make(p->c, &config, out, err);
}

/* The largest max_model_len that every rank has room for, at most what the model was made for or, where that is more,
 * what was asked for.
 *
 * A binary search: what a longer length takes never gets less. */
static int64_t find_longest(struct plan *p) {
  int64_t fits = 0, most = p->c->max_position_embeddings;
  if (most < p->limits.max_model_len) most = p->limits.max_model_len;
  if (tri_model_config_takes_whole(p->c) && most > p->limits.max_num_batched_tokens)
    most = p->limits.max_num_batched_tokens;
  for (int64_t beyond = most + 1, at = most; fits + 1 < beyond; at = fits + (beyond - fits) / 2) {
    tri_limits limits;
    tri_error ignored = {0};
    bool ok = plan_limits(p, at, &limits, &ignored) == TRI_OK && make_ranks(p, &limits, true, &ignored) == TRI_OK;
    if (ok)
      fits = at;
    else
      beyond = at;
  }
  return fits;
}

/* Returns the tokens of a step that some rank's streamed weights want, as the ranks find at a start. */
static int wanted_tokens(const struct plan *p) {
  const struct plan_streaming *s = &p->streaming;
  int usual = p->limits.max_num_batched_tokens, most = usual;
  int64_t hiding = s->hiding ? s->hiding : s->most;
  if (tri_offload_host_experts(&p->offload, p->ledger.device)) return usual;
  for (int i = 0; i < p->num_made; i++) {
    const tri_ledger *l = &p->ranks[i].ledger;
    int own = l->streams ? tri_offload_step_tokens(hiding, usual, l->chunk_tokens, l->kv_tokens) : usual;
    if (own > most) most = own;
  }
  return most;
}

/* Lets streamed weights choose the tokens of a step where none are asked for. */
static tri_status enlarge_step(struct plan *p, tri_error *err) {
  const tri_serve_options *v = &p->o->serve;
  int usual = p->limits.max_num_batched_tokens, tokens = wanted_tokens(p);
  if (v->max_num_batched_tokens || !p->streaming.num_loads) return TRI_OK;
  if (v->prompt_micro_batch_tokens) return TRI_OK;
  for (int i = 0; i < p->num_made; i++) {
    const struct plan_rank *r = &p->ranks[i];
    tokens = tri_ledger_step_tokens(p->c, &r->shard, p->ckpt, &p->limits, p->layout.pp, &p->ledger, &r->ledger, tokens);
  }
  if (tokens <= usual) return TRI_OK;
  p->limits.max_num_batched_tokens = tokens;
  p->streaming.usual_tokens = usual;
  TRI_CHECK(make_ranks(p, &p->limits, false, err));
  return plan_streaming(p, err);
}

static bool any_streams(const struct plan *p) {
  for (int i = 0; i < p->num_made; i++)
    if (p->ranks[i].ledger.streams) return true;
  return false;
}

/* In this order, since each needs the one before: the longest length with all weights in memory, the longest with
 * weights streamed, the ledgers of the length that was asked for, where streamed weights come from, the larger step
 * that they want, and experts in host memory. A failure keeps what was found, for the table. */
tri_status plan_ranks(struct plan *p, tri_error *err) {
  tri_shard first;
  tri_error ignored = {0};
  /* A layout that this model cannot have has no table. */
  tri_status st = tri_shard_make(p->c, plan_parallel(p), &first, err);
  if (st == TRI_OK) {
    bool resident = make_ranks(p, &p->limits, true, &ignored) == TRI_OK && !any_streams(p);
    tri_offload_config stays = p->offload;
    stays.tier = TRI_OFFLOAD_NONE;
    p->ledger.offload = &stays;
    p->longest_resident = find_longest(p);
    p->ledger.offload = &p->offload;
    p->longest = resident ? p->longest_resident : find_longest(p); /* a longer one is not to make weights leave */
    st = make_ranks(p, &p->limits, false, err);
    if (st == TRI_OK && plan_is_for_this_host(p) && p->ranks[0].ledger.host_kv)
      st = tri_offload_check_host_kv(&p->offload, p->num_ranks * p->layout.replicas, err);
    if (st == TRI_OK && plan_is_for_this_host(p) && p->ranks[0].ledger.host_experts)
      st = tri_offload_check_host_experts(p->ranks[0].ledger.host_experts, p->num_ranks * p->layout.replicas, err);
    if (st == TRI_OK && (st = plan_streaming(p, err)) != TRI_OK) /* none is served streamed */
      p->streaming_refused = true;
    if (p->streaming_refused)
      p->longest = tri_offload_is_asked(&p->offload, p->ledger.device) ? 0 : p->longest_resident;
    if (st == TRI_OK) st = enlarge_step(p, err);
    if (st == TRI_OK) st = plan_host_experts(p, err);
  }
  return st;
}
