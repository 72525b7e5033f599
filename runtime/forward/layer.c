/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a model: attention and MLP, with their norms wherever the family has them.
 *
 * A branch (attention, cross-attention, MLP) is opened with the norm of its input and closed with the all-reduce of
 * its result. The addition to the residual stream is put off (walk.h's `pending`): the norm that opens the next branch
 * reads stream and result at once, writes the sum and the normed sum, and so saves one pass over [T, hidden]. Families
 * differ in where norms stand (tri_norm_place), which open_branch and close_branch alone know. */
#include "runtime/forward/forward_state.h"

/* ---- attention ---- */

/* Queries and keys normed over all heads. A tensor rank has some of them: the sums of squares are summed first. */
static void norm_whole(tri_walk *w, const tri_layer *y) {
  const tri_forward *f = w->f;
  const tri_model_config *c = f->cfg.model;
  int t = w->b->num_tokens;
  tri_head_sizes heads = tri_layer_heads(c, y->number);
  float *q_sums = f->buf.square_sums.data, *k_sums = q_sums + t;
  tri_mat q = tri_queries_of(w, y), k = tri_keys_of(w, y);
  if (f->cfg.shard.p.tp > 1) {
    tri_emit_square_sums(w, (tri_square_sums_args){.x = q, .sums = q_sums});
    tri_emit_square_sums(w, (tri_square_sums_args){.x = tri_counted_keys_of(w, y), .sums = k_sums});
    tri_emit_sum(w, (tri_mat){q_sums, 1, 2 * t, 2 * t, TRI_F32});
  }
  tri_emit_norm(w, tri_whole_norm_of(w, q, &y->w[TRI_W_Q_NORM], q_sums, heads.num * heads.dim));
  tri_emit_norm(w, tri_whole_norm_of(w, k, &y->w[TRI_W_K_NORM], k_sums, heads.num_kv * heads.dim));
}

/* Takes the zeros at the end of each head away, where there are any. */
static void drop_zeros(tri_walk *w, const tri_layer *y) {
  const tri_attention_config *a = &w->f->cfg.model->attention;
  tri_mat wide = tri_wide_attended_of(w, y), to = tri_attended_of(w, y);
  size_t element = tri_dtype_size(to.dtype), width = (size_t)a->value_dim * element;
  size_t heads = (size_t)to.rows * (size_t)tri_q_heads_of(w, y).count;
  if (a->value_dim) tri_emit_copy_rows(w, to.data, width, wide.data, (size_t)a->head_dim * element, width, heads);
}

/* From a branch's input to buf.attn. */
static void attend(tri_walk *w, const tri_layer *y, tri_mat in) {
  tri_emit_linear(w, tri_linear_of(w, in, TRI_BIASED(y->w, QKV), tri_qkv_of(w, y)));
  if (w->f->cfg.model->attention.qk_norm == TRI_QK_NORM_WHOLE) norm_whole(w, y);
  tri_emit_qkv_rope_append(w, tri_append_of(w, y));
  tri_emit_attention(w, tri_attention_of(w, y, w->b));
  drop_zeros(w, y);
}

/* Returns the rows of what attention has made that are read from here on. */
static tri_mat narrow(tri_walk *w, const tri_layer *y) {
  tri_mat x = w->x, attended = tri_walk_narrow(w, y, tri_attended_of(w, y));
  if (w->is_narrow && w->f->cfg.model->embed.layer_width) tri_walk_narrow_input(w, y, x);
  return attended;
}

/* Returns what it adds. Gates are made first: what they read may be overwritten by what attention gives. */
static tri_mat attention(tri_walk *w, const tri_layer *y, tri_mat in) {
  bool gated = w->f->cfg.model->attention.head_gate;
  if (gated)
    tri_emit_linear(w, tri_linear_of(w, in, &y->w[TRI_W_ATTENTION_GATE], &tri_no_weight, tri_head_gate_of(w, y)));
  if (w->f->cfg.model->mla.on)
    tri_walk_latent(w, y, in);
  else
    attend(w, y, in);
  if (gated) tri_emit_gate_rows(w, tri_gated_heads_of(w, y));
  tri_mat attended = narrow(w, y), delta = tri_attention_delta_of(w);
  tri_linear_args out = tri_linear_of(w, attended, TRI_BIASED(y->w, O), delta);
  out.accumulate = tri_adds_in_place(w);
  if (attended.rows) tri_emit_linear(w, out);
  return delta;
}

/* ---- norms and the residual stream ---- */

/* Returns whether the plain norm adds it. */
static bool is_plain(const tri_pending *p) { return !p->second.data && !p->sum_gain && p->scale == 0; }

void tri_walk_add_pending(tri_walk *w, tri_mat x, const tri_weight *gain, const tri_weight *bias, tri_mat out) {
  tri_pending p = w->pending;
  w->pending = (tri_pending){0};
  if (is_plain(&p)) {
    tri_emit_norm(w, tri_norm_of(w, x, p.delta, gain, bias, out));
    return;
  }
  tri_branch_norm_args a = tri_branch_norm_of(w, x, &p);
  a.out[0] = out;
  a.weight[0] = tri_vector(gain);
  tri_emit_branch_norm(w, a);
}

void tri_walk_settle(tri_walk *w) {
  if (w->pending.delta.data || w->pending.scale != 0) tri_walk_add_pending(w, w->x, TRI_NO_WEIGHTS, tri_no_mat);
}

void tri_walk_norm_stream(tri_walk *w, tri_norm_args a) {
  const tri_forward *f = w->f;
  w->copied = f->buf.h.dtype != TRI_F32 && f->cfg.model->norm.place == TRI_NORM_SUM;
  if (w->copied) a.copy = tri_rows(f->buf.h, a.x.rows);
  tri_emit_norm(w, a);
}

/* Adds what is pending and returns what a branch reads. Every addition is fused with the norm that follows it. */
static tri_mat open_branch(tri_walk *w, const tri_weight *gain, const tri_weight *bias) {
  tri_norm_place place = w->f->cfg.model->norm.place;
  tri_mat h = tri_rows(w->f->buf.h, w->x.rows);
  if (place == TRI_NORM_INPUT || place == TRI_NORM_BOTH) {
    tri_walk_add_pending(w, w->x, gain, bias, h);
    return h;
  }
  tri_walk_settle(w);
  return w->copied ? h : w->x;
}

/* Sums a branch's parts over the ranks and leaves the result pending, or puts it into the stream where the norm follows
 * the addition. after: the norm of that sum; result: the norm of the branch's result alone. Of experts with norms of
 * their own two results are pending. */
static void close_branch(tri_walk *w, tri_mat delta, const tri_weight *after, const tri_weight *after_bias,
                         const tri_weight *result) {
  tri_norm_place place = w->f->cfg.model->norm.place;
  if (delta.data == w->x.data) return; /* it is there */
  if (w->pending.second.data) tri_emit_sum(w, w->pending.second);
  tri_emit_sum(w, delta);
  if (place == TRI_NORM_SUM) {
    tri_walk_norm_stream(w, tri_norm_of(w, w->x, delta, after, after_bias, w->x));
    return;
  }
  if (place == TRI_NORM_BOTH || place == TRI_NORM_RESULT) w->pending.sum_gain = result;
  w->pending.delta = delta;
}

/* ---- a layer ---- */

/* Returns what attention reads: of a BARE layer the stream as it is. */
static tri_mat open_attention(tri_walk *w, const tri_layer *y) {
  if (!(y->flags & TRI_LAYER_BARE)) return open_branch(w, TRI_BIASED(y->w, NORM1));
  tri_walk_settle(w);
  return w->x;
}

/* Returns what the MLP reads where one norm is for both. */
static tri_mat attention_half(tri_walk *w, const tri_layer *y) {
  tri_mat in = open_attention(w, y);
  if (!tri_is_chunked(w->f)) tri_walk_show_hidden(w, y->number, w->x);
  tri_mat delta = attention(w, y, in);
  if (!w->f->cfg.model->norm.parallel_residual && delta.rows)
    close_branch(w, delta, TRI_BIASED(y->w, NORM1), &y->w[TRI_W_BRANCH_NORM1]);
  return in;
}

static void cross_attention(tri_walk *w, const tri_layer *y) {
  tri_mat in = open_branch(w, TRI_BIASED(y->w, CROSS_NORM));
  tri_walk_cross(w, y, in);
  close_branch(w, tri_rows(w->f->buf.delta, w->b->num_tokens), TRI_BIASED(y->w, CROSS_NORM), &tri_no_weight);
}

/* Multiplies the stream, with what is pending, by the layer's number. */
static void scale_stream(tri_walk *w, const tri_layer *y) {
  const float *scales = w->f->layer_scales; /* NULL: nothing runs */
  w->pending.scale = scales ? scales[y->local] : 1;
}

/* Returns what the expert for every token reads. The router and the other experts read the same rows by norms of their
 * own: see tri_routed_rows_of. */
static tri_mat open_experts(tri_walk *w, const tri_layer *y) {
  tri_branch_norm_args a = tri_branch_norm_of(w, w->x, &w->pending);
  w->pending = (tri_pending){0};
  tri_mat h = tri_rows(w->f->buf.h, w->x.rows);
  a.out[0] = h;
  a.out[1] = tri_router_rows_of(w, h);
  a.out[2] = tri_routed_rows_of(w, h);
  a.weight[0] = tri_vector(&y->w[TRI_W_NORM2]);
  a.weight[1] = tri_vector(&y->w[TRI_W_ROUTER_NORM]);
  a.weight[2] = tri_vector(&y->w[TRI_W_EXPERT_NORM]);
  a.scale[1] = (float)w->f->cfg.model->moe.router_scale;
  tri_emit_branch_norm(w, a);
  return h;
}

static tri_mat open_mlp(tri_walk *w, const tri_layer *y) {
  bool own_norms = w->f->cfg.model->moe.own_norms && y->flags & TRI_LAYER_SPARSE;
  return own_norms ? open_experts(w, y) : open_branch(w, TRI_BIASED(y->w, NORM2));
}

/* A parallel residual sums both branches before the one all-reduce. */
static void mlp_half(tri_walk *w, const tri_layer *y, tri_mat in) {
  if (!w->f->cfg.model->norm.one_norm) in = open_mlp(w, y);
  if (y->flags & TRI_LAYER_SPARSE)
    tri_walk_experts(w, y, in);
  else
    tri_walk_mlp(w, y, in);
  close_branch(w, tri_mlp_delta_of(w), TRI_BIASED(y->w, NORM2), &y->w[TRI_W_BRANCH_NORM2]);
  if (w->f->cfg.model->embed.layer_width) {
    tri_walk_settle(w);
    tri_walk_add_input(w, y);
  }
  if (w->f->cfg.model->norm.layer_scale) scale_stream(w, y);
}

static void layer(tri_walk *w, const tri_layer *y) {
  tri_walk_acquire(w, y, TRI_PART_ATTENTION);
  tri_mat in = attention_half(w, y);
  tri_walk_release(w, y, TRI_PART_ATTENTION);
  if (w->f->cfg.model->seq2seq.on) cross_attention(w, y);
  tri_walk_acquire(w, y, TRI_PART_MLP);
  if (w->b->num_tokens) mlp_half(w, y, in);
  tri_walk_release(w, y, TRI_PART_MLP);
}

/* Runs half a layer for the chunk. A norm that is for both branches is made twice: the stream is the same both times.
 */
static void half_of_chunk(tri_walk *w, const tri_layer *y, int half) {
  if (half == TRI_PART_ATTENTION)
    attention_half(w, y);
  else
    mlp_half(w, y, w->f->cfg.model->norm.one_norm ? open_branch(w, TRI_BIASED(y->w, NORM1)) : tri_no_mat);
  tri_walk_settle(w);
}

/* One coming of the weights is for all chunks (ZeRO-Inference's batches; IV.C of DeepSpeed-Inference has the same for
 * stages). What a chunk adds is in the stream when the next one begins. */
static void layer_in_chunks(tri_walk *w, const tri_layer *y) {
  tri_walk_show_hidden(w, y->number, w->x);
  for (int half = 0; half < TRI_LAYER_PARTS; half++) {
    tri_walk_acquire(w, y, half);
    for (int c = 0; c < w->f->num_chunks; c++) {
      tri_walk_enter_chunk(w, c);
      half_of_chunk(w, y, half);
    }
    tri_walk_leave_chunks(w);
    tri_walk_release(w, y, half);
  }
}

void tri_walk_layers(tri_walk *w) {
  const tri_forward_config *cfg = &w->f->cfg;
  for (int l = 0; l < cfg->shard.layers.count && w->st == TRI_OK; l++) {
    tri_layer y = tri_walk_layer(w, l);
    if (w->mode == TRI_WALK_LAUNCH)
      atomic_store_explicit(&cfg->progress->layer, (uint32_t)y.number, memory_order_relaxed);
    if (tri_walk_enter_layer(w, &y)) (tri_is_chunked(w->f) ? layer_in_chunks : layer)(w, &y);
  }
  tri_walk_leave_layers(w);
}
