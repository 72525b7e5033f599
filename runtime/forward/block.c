/* The blocks of a model: attention and MLP, with their norms wherever the family has them. */
#include "runtime/forward/forward_state.h"

/* Weights stay where they are; with streaming these wait for a block and let it go. */
static const tri_weight *weights_acquire(tri_forward *f, int l) { return f->cfg.weights->layers[l].w; }
static void weights_release(tri_forward *f, int l) { (void)f, (void)l; }

/* Queries and keys normed over all heads. A tensor rank has some of them: the sums of squares are summed first. */
static tri_status norm_whole(tri_forward *f, int t, const tri_weight *w) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  float *q_sums = f->buf.square_sums, *k_sums = q_sums + t;
  tri_mat q = tri_queries_of(f, t), k = tri_keys_of(f, t);
  if (f->cfg.group->p.tp > 1) {
    int d = (int)c->head_dim;
    tri_square_sums_args qs = {.x = q, .sums = q_sums};
    tri_square_sums_args ks = {.x = tri_columns(k, f->counted_kv.first * d, f->counted_kv.count * d), .sums = k_sums};
    be->ops.square_sums_launch(be, &f->plan.q_squares, &qs);
    be->ops.square_sums_launch(be, &f->plan.k_squares, &ks);
    tri_status st = tri_forward_sum(f, (tri_mat){q_sums, 1, 2 * t, 2 * t, TRI_F32});
    if (st != TRI_OK) return st;
  }
  tri_norm_args qn = tri_whole_norm_of(f, q, &w[TRI_W_Q_NORM], q_sums, c->num_heads * c->head_dim);
  tri_norm_args kn = tri_whole_norm_of(f, k, &w[TRI_W_K_NORM], k_sums, c->num_kv_heads * c->head_dim);
  be->ops.norm_launch(be, &f->plan.q_norm, &qn);
  be->ops.norm_launch(be, &f->plan.k_norm, &kn);
  return TRI_OK;
}

/* From a branch's input to f->buf.attn. */
static tri_status run_heads(tri_forward *f, const tri_batch *b, int l, const tri_weight *w, tri_mat in) {
  tri_backend *be = f->cfg.backend;
  int t = b->num_tokens;
  tri_linear_args qkv =
      tri_linear_of(f, in, &w[TRI_W_QKV], &w[TRI_W_QKV_BIAS], TRI_ACT_NONE, false, tri_rows(f->buf.qkv, t));
  tri_qkv_rope_append_args append = tri_append_of(f, b, l);
  tri_attention_args attention = tri_attention_of(f, b, l);
  be->ops.linear_launch(be, &f->plan.qkv, &qkv);
  if (f->cfg.model->qk_norm == TRI_QK_NORM_WHOLE) {
    tri_status st = norm_whole(f, t, w);
    if (st != TRI_OK) return st;
  }
  be->ops.qkv_rope_append_launch(be, &f->plan.append, &append);
  be->ops.attention_launch(be, &f->plan.attention, &attention);
  return TRI_OK;
}

static tri_status run_attention(tri_forward *f, const tri_batch *b, int l, const tri_weight *w, tri_mat in,
                                tri_mat delta) {
  tri_backend *be = f->cfg.backend;
  tri_mat heads = tri_rows(f->buf.attn, b->num_tokens);
  tri_linear_args o = tri_linear_of(f, heads, &w[TRI_W_O], &w[TRI_W_O_BIAS], TRI_ACT_NONE, false, delta);
  tri_status st = TRI_OK;
  if (f->cfg.model->mla.on)
    tri_latent_run(f, b, l, w, in);
  else
    st = run_heads(f, b, l, w, in);
  if (st == TRI_OK) be->ops.linear_launch(be, &f->plan.o, &o);
  return st;
}

/* The first product, gated or not. Leaves what the second one reads. */
static void run_up(tri_forward *f, const tri_op_plan *plan, tri_linear_args up, int units) {
  tri_backend *be = f->cfg.backend;
  if (!f->cfg.model->gated) {
    be->ops.linear_launch(be, plan, &up);
    return;
  }
  tri_gated_linear_args gated = {.up = up, .glu = tri_glu_of(f, up.x.rows, units)};
  be->ops.gated_linear_launch(be, plan, &gated);
}

static void run_mlp(tri_forward *f, const tri_weight *w, tri_mat in) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  int units = f->cfg.shard.ff.count;
  tri_linear_args up = tri_up_of(f, in, &w[TRI_W_UP], &w[TRI_W_UP_BIAS], units);
  tri_linear_args down = tri_down_of(f, in.rows, &w[TRI_W_DOWN], &w[TRI_W_DOWN_BIAS], units, c->parallel_residual);
  run_up(f, &f->plan.up, up, units);
  be->ops.linear_launch(be, &f->plan.down, &down);
}

/* The expert that every token takes, added to what the chosen ones gave. */
static void run_shared(tri_forward *f, const tri_weight *w, tri_mat in) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  int units = f->cfg.shard.shared_ff.count;
  tri_linear_args up = tri_up_of(f, in, &w[TRI_W_SHARED_UP], &tri_no_weight, units);
  tri_linear_args down = tri_down_of(f, in.rows, &w[TRI_W_SHARED_DOWN], &tri_no_weight, units, true);
  run_up(f, &f->plan.shared_up, up, units);
  if (c->moe.shared_gate) {
    tri_linear_args gate = tri_shared_gate_of(f, w, in);
    tri_gate_rows_args gated = {.x = down.x, .gate = f->buf.shared_gate};
    be->ops.linear_launch(be, &f->plan.shared_gate, &gate);
    be->ops.gate_rows_launch(be, &f->plan.shared_gated, &gated);
  }
  be->ops.linear_launch(be, &f->plan.shared_down, &down);
}

static void run_experts(tri_forward *f, const tri_weight *w, tri_mat in) {
  tri_backend *be = f->cfg.backend;
  tri_linear_args router = tri_router_of(f, w, in);
  tri_moe_route_args route = tri_route_of(f, w, in.rows);
  tri_moe_experts_args experts = tri_experts_of(f, w, in);
  be->ops.linear_launch(be, &f->plan.router, &router);
  be->ops.moe_route_launch(be, &f->plan.route, &route);
  be->ops.moe_experts_launch(be, &f->plan.experts, &experts);
  if (f->cfg.model->moe.has_shared) run_shared(f, w, in);
}

static void norm(tri_forward *f, tri_mat x, tri_mat delta, const tri_weight *gain, const tri_weight *bias,
                 tri_mat out) {
  tri_backend *be = f->cfg.backend;
  tri_norm_args a = tri_norm_of(f, x, delta, gain, bias, out);
  be->ops.norm_launch(be, out.data ? &f->plan.norm : &f->plan.settle, &a);
}

/* A norm whose result is the stream, which is F32, and what a product reads: that gets a copy in its own type. */
void tri_forward_norm_stream(tri_forward *f, const tri_op_plan *plan, tri_norm_args a) {
  f->copied = f->buf.h.dtype != TRI_F32 && f->cfg.model->norm_place == TRI_NORM_SUM;
  if (f->copied) a.copy = tri_rows(f->buf.h, a.x.rows);
  f->cfg.backend->ops.norm_launch(f->cfg.backend, plan, &a);
}

/* Adds what is pending and returns what a branch reads. Every addition is fused with the norm that follows it. */
static tri_mat open_branch(tri_forward *f, tri_mat x, tri_mat *pending, const tri_weight *gain,
                           const tri_weight *bias) {
  tri_norm_place place = f->cfg.model->norm_place;
  tri_mat h = tri_rows(f->buf.h, x.rows), add = *pending;
  *pending = tri_no_mat;
  if (place == TRI_NORM_INPUT || place == TRI_NORM_BOTH) {
    norm(f, x, add, gain, bias, h);
    return h;
  }
  if (add.data) norm(f, x, add, &tri_no_weight, &tri_no_weight, tri_no_mat);
  return f->copied ? h : x;
}

/* Sums a branch's parts over the ranks and leaves the result pending, or puts it into the stream where the norm follows
 * the addition. */
static tri_status close_branch(tri_forward *f, tri_mat x, tri_mat delta, const tri_weight *sum_gain,
                               const tri_weight *sum_bias, const tri_weight *gain, const tri_weight *bias,
                               tri_mat *pending) {
  tri_norm_place place = f->cfg.model->norm_place;
  tri_status st = tri_forward_sum(f, delta);
  if (st != TRI_OK) return st;
  *pending = delta;
  if (place == TRI_NORM_BOTH || place == TRI_NORM_RESULT) {
    norm(f, delta, tri_no_mat, gain, bias, delta);
  } else if (place == TRI_NORM_SUM) {
    tri_forward_norm_stream(f, &f->plan.norm, tri_norm_of(f, x, delta, sum_gain, sum_bias, x));
    *pending = tri_no_mat;
  }
  return TRI_OK;
}

static tri_status run_block(tri_forward *f, const tri_batch *b, int l, tri_mat x, tri_mat *pending) {
  const tri_model_config *c = f->cfg.model;
  const tri_weight *w = weights_acquire(f, l);
  tri_mat delta = tri_rows(f->buf.delta, b->num_tokens), mlp_delta = tri_rows(f->buf.mlp_delta, b->num_tokens);
  tri_status st = TRI_OK;
  tri_mat in = open_branch(f, x, pending, &w[TRI_W_NORM1], &w[TRI_W_NORM1_BIAS]);
  const tri_observer *o = tri_observer_of(f);
  if (o && o->hidden) o->hidden(o->ctx, f->cfg.shard.layers.first + l, x);
  TRI_TRY(run_attention(f, b, l, w, in, delta));
  if (!c->parallel_residual)
    TRI_TRY(close_branch(f, x, delta, &w[TRI_W_NORM1], &w[TRI_W_NORM1_BIAS], &w[TRI_W_BRANCH_NORM1],
                         &w[TRI_W_BRANCH_NORM1_BIAS], pending));
  if (c->seq2seq.on) {
    in = open_branch(f, x, pending, &w[TRI_W_CROSS_NORM], &w[TRI_W_CROSS_NORM_BIAS]);
    tri_cross_run(f, l, w, in);
    TRI_TRY(close_branch(f, x, delta, &w[TRI_W_CROSS_NORM], &w[TRI_W_CROSS_NORM_BIAS], &tri_no_weight, &tri_no_weight,
                         pending));
  }
  /* A parallel residual sums both branches before the one all-reduce. */
  if (!c->one_norm) in = open_branch(f, x, pending, &w[TRI_W_NORM2], &w[TRI_W_NORM2_BIAS]);
  if (c->layer_flags[f->cfg.shard.layers.first + l] & TRI_LAYER_SPARSE)
    run_experts(f, w, in);
  else
    run_mlp(f, w, in);
  TRI_TRY(close_branch(f, x, mlp_delta, &w[TRI_W_NORM2], &w[TRI_W_NORM2_BIAS], &w[TRI_W_BRANCH_NORM2],
                       &w[TRI_W_BRANCH_NORM2_BIAS], pending));
cleanup:
  weights_release(f, l);
  return st;
}

tri_status tri_forward_blocks(tri_forward *f, const tri_batch *b, int first, int last, tri_mat x, tri_mat *pending) {
  for (int l = first; l < last; l++) {
    atomic_store_explicit(&f->cfg.progress->block, (uint32_t)(f->cfg.shard.layers.first + l), memory_order_relaxed);
    tri_status st = run_block(f, b, l, x, pending);
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}
