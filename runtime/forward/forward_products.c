/* The products that a step launches, as it would launch them: what is measured beforehand. */
#include "runtime/forward/forward_state.h"

struct list {
  tri_tune_product *out;
  int count, most;
};

static void add(struct list *l, tri_linear_args a, bool gated) {
  if (a.w.data && a.x.rows && l->count < l->most) l->out[l->count++] = (tri_tune_product){.args = a, .gated = gated};
}

/* What the blocks' products read, as block.c has it from the second block on: normed, or the stream, or, where the norm
 * follows the addition, the stream's copy in their own type. */
static tri_mat block_input(const tri_forward *f, int t) {
  tri_norm_place place = f->cfg.model->norm_place;
  bool normed = place == TRI_NORM_INPUT || place == TRI_NORM_BOTH;
  bool copied = place == TRI_NORM_SUM && f->buf.h.dtype != TRI_F32;
  return tri_rows(normed || copied ? f->buf.h : f->buf.x[0], t);
}

static void add_attention(struct list *l, const tri_forward *f, const tri_weight *w, int t) {
  const tri_weight *none = &tri_no_weight;
  tri_mat in = block_input(f, t), qkv = tri_rows(f->buf.qkv, t), delta = tri_rows(f->buf.delta, t);
  if (f->cfg.model->mla.on) {
    tri_mat q_a = tri_rows(f->buf.q_a, t), q_in = f->cfg.model->mla.low_rank_q ? q_a : in;
    if (f->cfg.model->mla.low_rank_q)
      add(l, tri_linear_of(f, in, &w[TRI_W_Q_A], none, TRI_ACT_NONE, false, q_a), false);
    add(l, tri_linear_of(f, q_in, &w[TRI_W_Q_B], none, TRI_ACT_NONE, false, qkv), false);
    add(l, tri_linear_of(f, in, &w[TRI_W_KV_A], none, TRI_ACT_NONE, false, tri_rows(f->buf.kv_a, t)), false);
  } else {
    add(l, tri_linear_of(f, in, &w[TRI_W_QKV], &w[TRI_W_QKV_BIAS], TRI_ACT_NONE, false, qkv), false);
  }
  tri_mat heads = tri_rows(f->buf.attn, t);
  add(l, tri_linear_of(f, heads, &w[TRI_W_O], &w[TRI_W_O_BIAS], TRI_ACT_NONE, false, delta), false);
  if (f->cfg.model->seq2seq.on) {
    tri_mat queries = tri_queries_of(f, t);
    add(l, tri_linear_of(f, in, &w[TRI_W_CROSS_Q], &w[TRI_W_CROSS_Q_BIAS], TRI_ACT_NONE, false, queries), false);
    add(l, tri_linear_of(f, heads, &w[TRI_W_CROSS_O], &w[TRI_W_CROSS_O_BIAS], TRI_ACT_NONE, false, delta), false);
  }
}

static void add_mlp(struct list *l, const tri_forward *f, const tri_weight *w, int t) {
  const tri_model_config *c = f->cfg.model;
  tri_mat in = block_input(f, t);
  int units = f->cfg.shard.ff.count;
  add(l, tri_up_of(f, in, &w[TRI_W_UP], &w[TRI_W_UP_BIAS], units), c->gated);
  add(l, tri_down_of(f, t, &w[TRI_W_DOWN], &w[TRI_W_DOWN_BIAS], units, c->parallel_residual), false);
}

static void add_experts(struct list *l, const tri_forward *f, const tri_weight *w, int t) {
  const tri_model_config *c = f->cfg.model;
  tri_mat in = block_input(f, t);
  int units = f->cfg.shard.shared_ff.count;
  add(l, tri_router_of(f, w, in), false);
  if (!c->moe.has_shared) return;
  add(l, tri_up_of(f, in, &w[TRI_W_SHARED_UP], &tri_no_weight, units), c->gated);
  add(l, tri_down_of(f, t, &w[TRI_W_SHARED_DOWN], &tri_no_weight, units, true), false);
  if (c->moe.shared_gate) add(l, tri_shared_gate_of(f, w, in), false);
}

static void add_entrance(struct list *l, const tri_forward *f, int t) {
  if (f->cfg.shard.first_stage && f->cfg.model->projected)
    add(l, tri_project_in_of(f, tri_rows(f->buf.embed, t), tri_rows(f->buf.x[0], t)), false);
}

/* Of steps in which every sequence has one token, and so a row of logits. */
static void add_head(struct list *l, const tri_forward *f, int t) {
  const tri_model_config *c = f->cfg.model;
  const tri_weight *w = f->cfg.weights->global, *none = &tri_no_weight;
  if (!f->cfg.shard.last_stage || c->encoder || t > tri_limits_logits(&f->cfg.limits)) return;
  tri_mat rows = tri_rows(f->buf.rows, t), narrow = tri_rows(f->buf.narrow_rows, t);
  if (c->projected) add(l, tri_linear_of(f, rows, &w[TRI_W_PROJECT_OUT], none, TRI_ACT_NONE, false, narrow), false);
  add(l,
      tri_linear_of(f, c->projected ? narrow : rows, &w[TRI_W_HEAD], &w[TRI_W_HEAD_BIAS], TRI_ACT_NONE, false,
                    tri_rows(f->buf.local_logits, t)),
      false);
}

int tri_forward_products_most(const tri_forward *f) {
  enum { OF_A_LAYER = 12, OF_THE_ENDS = 4 };
  return OF_A_LAYER * f->cfg.shard.layers.count + OF_THE_ENDS;
}

int tri_forward_products(const tri_forward *f, int tokens, tri_tune_product *out) {
  struct list l = {.out = out, .most = tri_forward_products_most(f)};
  int first = f->cfg.shard.layers.first;
  add_entrance(&l, f, tokens);
  for (int i = 0; i < f->cfg.shard.layers.count; i++) {
    const tri_weight *w = f->cfg.weights->layers[i].w;
    add_attention(&l, f, w, tokens);
    if (f->cfg.model->layer_flags[first + i] & TRI_LAYER_SPARSE)
      add_experts(&l, f, w, tokens);
    else
      add_mlp(&l, f, w, tokens);
  }
  add_head(&l, f, tokens);
  return l.count;
}
