/* SPDX-License-Identifier: Apache-2.0 */
/* The MLP of a layer, and its experts: this rank's own for this shard's rows, on the device or on the host, or, of
 * several data-parallel ranks, for those that an exchange brings together.
 *
 * Experts of one data-parallel rank: route (scores, choices, weights, and a map of rows by expert), then two grouped
 * products over the rows of each expert. Of several, rows travel: dispatch to the ranks that have the experts, a map
 * and the products there, combine back, for at most tri_exchanged_rows of each rank at a time. */
#include "runtime/forward/forward_state.h"

/* The first product, gated or not. Leaves what the second one reads. */
static void up(tri_walk *w, const tri_layer *y, tri_mat in, const tri_weight *weight, const tri_weight *bias,
               int units) {
  tri_linear_args a = tri_up_of(w, in, weight, bias, units);
  if (w->f->cfg.model->mlp.gated)
    tri_emit_gated_linear(w, (tri_gated_linear_args){.up = a, .glu = tri_glu_of(w, y, units)});
  else
    tri_emit_linear(w, a);
}

void tri_walk_mlp(tri_walk *w, const tri_layer *y, tri_mat in) {
  int units = tri_shard_units(w->f->cfg.model, &w->f->cfg.shard, y->number).count;
  tri_gated_mlp_args a = {.down = tri_down_of(w, TRI_BIASED(y->w, DOWN), units)};
  if (!w->f->cfg.model->mlp.gated) {
    up(w, y, in, TRI_BIASED(y->w, UP), units);
    tri_emit_linear(w, a.down);
    return;
  }
  a.gated =
      (tri_gated_linear_args){.up = tri_up_of(w, in, TRI_BIASED(y->w, UP), units), .glu = tri_glu_of(w, y, units)};
  tri_emit_mlp(w, a);
}

/* Results that are normed before they are added lie apart: this one in attention's rows, whose result is in the stream.
 */
static tri_mat shared_delta_of(const tri_walk *w) { return tri_rows(w->f->buf.delta, w->b->num_tokens); }

/* The expert that every token takes: the routed ones add to what it gives, or, after an exchange, it adds to theirs.
 * Its products are two ops: blocks of gated_mlp's one kernel wait for each other, and other kernels may run
 * at the same time. */
static void shared_expert(tri_walk *w, const tri_layer *y, tri_mat in, bool accumulate) {
  int units = w->f->cfg.shard.shared_ff.count;
  up(w, y, in, &y->w[TRI_W_SHARED_UP], &tri_no_weight, units);
  tri_linear_args down = tri_down_of(w, &y->w[TRI_W_SHARED_DOWN], &tri_no_weight, units);
  if (w->f->cfg.model->moe.own_norms)
    down.out = shared_delta_of(w);
  else
    down.accumulate |= accumulate;
  if (w->f->cfg.model->moe.shared_gate) {
    tri_mat gate = tri_rows(w->f->buf.shared_gate, in.rows);
    tri_emit_linear(w, tri_linear_of(w, in, &y->w[TRI_W_SHARED_GATE], &tri_no_weight, gate));
    tri_emit_gate_rows(w, (tri_gate_rows_args){.x = down.x, .gate = gate.data});
  }
  tri_emit_linear(w, down);
}

/* Sets what the exchange that begins with row `from` of every data-parallel rank takes, and returns the most rows of
 * one. */
static int take_rows(tri_forward *f, int from) {
  int limit = tri_exchanged_rows(&f->cfg.limits), most = 0;
  for (int d = 0; d < tri_parallel_dp(f->cfg.shard.p); d++) {
    int left = f->shard_rows[d] - from, n = left < limit ? left : limit;
    f->exchanged[d] = n > 0 ? n : 0;
    if (n > most) most = n;
  }
  return most;
}

static tri_all2all_form form_for(const tri_forward *f, int most) {
  return f->cfg.all2all_choice.by_size[tri_all2all_size(most)];
}

/* A token's one weight may multiply what its expert reads: that is done to the rows, and the experts' weights are
 * ones. Nothing else reads the rows afterwards. */
static void weigh_rows(tri_walk *w, tri_mat rows, tri_mat weights) {
  tri_gate_rows_args a = {.x = rows, .gate = weights.data, .plain = true};
  if (w->f->cfg.model->moe.scale_input) tri_emit_gate_rows(w, a);
}

/* Every rank makes as many exchanges as the shard with the most rows wants. route: not NULL where the first of them
 * routes this shard's rows, which then are in no other. */
static void all2all(tri_walk *w, const tri_layer *y, tri_mat in, const tri_moe_route_args *route) {
  tri_forward *f = w->f;
  int dp = tri_parallel_dp(f->cfg.shard.p);
  bool accumulate = f->cfg.model->norm.parallel_residual;
  for (int from = 0, most; w->st == TRI_OK && (most = take_rows(f, from)) > 0; from += most) {
    tri_moe_experts_args experts = tri_exchanged_experts_of(w, y, dp * most);
    tri_emit_dispatch(w, form_for(f, most), tri_dispatch_rounds(w, &experts), in, from, from ? NULL : route);
    tri_emit_moe_map(w, tri_exchanged_map_of(w, y, dp * most));
    weigh_rows(w, experts.x, f->buf.all2all_weights);
    tri_emit_moe_experts(w, experts);
    tri_emit_combine(w, tri_mlp_delta_of(w), from, accumulate);
  }
}

/* Rows of one exchange may be routed by the kernel that sends them. */
static bool routes_on_the_way(tri_walk *w, int rows) {
  tri_forward *f = w->f;
  if (!f->cfg.all2all || rows > tri_exchanged_rows(&f->cfg.limits)) return false;
  return tri_all2all_routes(f->cfg.all2all, form_for(f, take_rows(f, 0)));
}

/* Returns whether the routed experts add to what the expert for every token gives. */
static bool adds_to_shared(const tri_walk *w) {
  const tri_moe *m = &w->f->cfg.model->moe;
  return m->has_shared && !m->own_norms;
}

static void emit_logits(tri_walk *w, const tri_layer *y, tri_mat in) {
  tri_mat logits = tri_rows(w->f->buf.router, in.rows);
  tri_emit_linear(w, tri_linear_of(w, tri_router_rows_of(w, in), TRI_BIASED(y->w, ROUTER), logits));
}

/* All data-parallel ranks' rows, with a map that is made of them. */
static void experts_of_shards(tri_walk *w, const tri_layer *y, tri_mat in) {
  tri_moe_route_args route = tri_route_of(w, y);
  bool on_the_way = routes_on_the_way(w, in.rows);
  route.map = (tri_expert_map){0};
  emit_logits(w, y, in);
  if (!on_the_way) tri_emit_moe_route(w, route);
  all2all(w, y, tri_routed_rows_of(w, in), on_the_way ? &route : NULL);
  if (w->f->cfg.model->moe.has_shared) shared_expert(w, y, in, true);
}

/* Without an exchange they add to the shared expert's result. */
static tri_moe_experts_args routed_of(const tri_walk *w, const tri_layer *y, tri_mat in) {
  tri_moe_experts_args a = tri_experts_of(w, y, in);
  a.accumulate |= adds_to_shared(w);
  return a;
}

/* Returns what the host adds where the device has some of the same experts: to what the device gives. Only the device
 * is faster with rows that are rounded to FP8. */
static tri_moe_experts_args host_part_of(const tri_walk *w, const tri_layer *y, tri_mat in) {
  tri_moe_experts_args a = routed_of(w, y, in);
  a.rounds_rows &= a.up.dtype == TRI_I8;
  if (!tri_has_hot_experts(w->f, y)) return a;
  a.out = tri_rows(w->f->buf.host_delta, in.rows);
  a.accumulate = false;
  return a;
}

/* The host computes its experts, by way of the side stream, while the device computes those that it has, too. */
static void experts_of_both(tri_walk *w, const tri_layer *y, tri_mat in) {
  tri_moe_experts_args host = host_part_of(w, y, in), hot = tri_hot_experts_of(w, y, in);
  hot.accumulate |= adds_to_shared(w);
  tri_norm_args sum = tri_norm_of(w, hot.out, host.out, TRI_NO_WEIGHTS, tri_no_mat);
  sum.delta_scale = 1;
  tri_emit_moe_map(w, tri_hot_map_of(w, y));
  tri_emit_side_begin(w);
  tri_emit_host_experts(w, y, host);
  tri_emit_side_end(w);
  tri_emit_moe_experts(w, hot);
  tri_emit_side_join(w);
  tri_emit_norm(w, sum);
}

static void routed_experts(tri_walk *w, const tri_layer *y, tri_mat in) {
  weigh_rows(w, in, w->f->buf.expert_weights);
  if (tri_has_hot_experts(w->f, y))
    experts_of_both(w, y, in);
  else if (tri_has_experts_on_host(w->f, y))
    tri_emit_host_experts(w, y, host_part_of(w, y, in));
  else
    tri_emit_moe_experts(w, routed_of(w, y, in));
}

/* Routing is a chain of short kernels, and the shared expert reads weights as fast as memory gives them: they
 * run concurrently. The routed experts fill the device by themselves. */
static void experts_of_shard(tri_walk *w, const tri_layer *y, tri_mat in) {
  bool has_shared = w->f->cfg.model->moe.has_shared;
  if (has_shared) {
    tri_emit_side_begin(w);
    shared_expert(w, y, in, false);
    tri_emit_side_end(w);
  }
  emit_logits(w, y, in);
  tri_emit_moe_route(w, tri_route_of(w, y));
  if (has_shared) tri_emit_side_join(w);
  routed_experts(w, y, tri_routed_rows_of(w, in));
}

void tri_walk_experts(tri_walk *w, const tri_layer *y, tri_mat in) {
  (tri_parallel_dp(w->f->cfg.shard.p) > 1 ? experts_of_shards : experts_of_shard)(w, y, in);
  if (!w->f->cfg.model->moe.own_norms) return;
  w->pending.second = shared_delta_of(w);
  w->pending.second_gain = &y->w[TRI_W_SHARED_BRANCH_NORM];
  w->pending.delta_gain = &y->w[TRI_W_EXPERT_BRANCH_NORM];
}

/* ---- experts on the host ---- */

tri_status tri_forward_make_host_experts(tri_forward *f, tri_error *err) {
  const tri_shard *s = &f->cfg.shard;
  tri_batch b = {.num_tokens = tri_limits_chunk(&f->cfg.limits)};
  tri_walk w = {.f = f, .b = &b};
  tri_host_experts_config hc = {.backend = f->cfg.backend,
                                .host = f->cfg.host,
                                .num_layers = s->layers.count,
                                .first_layer = s->layers.first,
                                .under_way = &f->cfg.progress->layer,
                                .idle = TRI_LAYER_IDLE};
  tri_moe_experts_args *layers = tri_calloc((size_t)s->layers.count, sizeof *layers);
  if (!layers) return tri_fail(err, TRI_NO_MEMORY, "cpu_moe", "no memory for experts on the host");
  for (int l = 0; l < s->layers.count; l++) {
    tri_layer y = tri_walk_layer(&w, l);
    if (tri_has_experts_on_host(f, &y))
      layers[l] = host_part_of(&w, &y, tri_routed_rows_of(&w, tri_rows(f->buf.h, b.num_tokens)));
  }
  hc.layers = layers;
  tri_status st = tri_host_experts_create(&hc, &f->host_experts, err);
  tri_free(layers);
  return st;
}
