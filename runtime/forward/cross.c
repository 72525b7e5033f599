/* Cross-attention of an encoder-decoder (Vaswani et al., 2017, section 3.2.3): the encoder's final states become every
 * decoder layer's keys and values once, in the pages of the source, and each new token of the answer attends to all of
 * them. */
#include "runtime/forward/forward_state.h"

/* ---- once for each source ---- */

static tri_mat keys_and_values(const tri_forward *f, int tokens) {
  int cols = 2 * f->cfg.shard.kv_heads.count * (int)f->cfg.model->head_dim;
  return (tri_mat){f->buf.qkv.data, tokens, cols, cols, TRI_F32};
}

static tri_linear_args kv_of(const tri_forward *f, tri_mat states, int layer) {
  const tri_weight *w = f->cfg.weights->layers[layer].w;
  return tri_linear_of(f, states, &w[TRI_W_CROSS_KV], &w[TRI_W_CROSS_KV_BIAS], TRI_ACT_NONE, false,
                       keys_and_values(f, states.rows));
}

static tri_qkv_rope_append_args append_of(const tri_forward *f, const tri_batch *source, int layer) {
  return (tri_qkv_rope_append_args){
      .qkv = keys_and_values(f, source->num_tokens),
      .num_kv_heads = f->cfg.shard.kv_heads.count,
      .head_dim = (int)f->cfg.model->head_dim,
      .kv_slot = source->kv_slot,
      .kv = f->cfg.kv->layers[layer],
  };
}

tri_status tri_forward_fill_cross(tri_forward *f, const tri_forward *encoder, tri_mat states) {
  const tri_batch *source = &encoder->bound;
  tri_backend *be = f->cfg.backend;
  tri_linear_args kv = kv_of(f, states, 0);
  tri_qkv_rope_append_args append = append_of(f, source, 0);
  tri_status st;
  TRI_TRY(be->ops.linear_plan(be, &kv, &f->plan.cross_kv));
  TRI_TRY(be->ops.qkv_rope_append_plan(be, &append, &f->plan.cross_append));
  TRI_TRY(tri_forward_reserve(f));
  for (int l = 0; l < f->cfg.shard.layers.count; l++) {
    kv = kv_of(f, states, l), append = append_of(f, source, l);
    be->ops.linear_launch(be, &f->plan.cross_kv, &kv);
    be->ops.qkv_rope_append_launch(be, &f->plan.cross_append, &append);
  }
cleanup:
  return st;
}

/* ---- in every block ---- */

static tri_linear_args query_of(const tri_forward *f, tri_mat in, const tri_weight *w) {
  return tri_linear_of(f, in, &w[TRI_W_CROSS_Q], &w[TRI_W_CROSS_Q_BIAS], TRI_ACT_NONE, false,
                       tri_queries_of(f, in.rows));
}

static tri_attention_args attention_of(const tri_forward *f, int layer) {
  tri_attention_args a = tri_attention_of(f, f->cross, layer);
  a.causal = false;
  a.position_bias = NULL;
  return a;
}

static tri_linear_args output_of(const tri_forward *f, int tokens, const tri_weight *w) {
  return tri_linear_of(f, tri_rows(f->buf.attn, tokens), &w[TRI_W_CROSS_O], &w[TRI_W_CROSS_O_BIAS], TRI_ACT_NONE, false,
                       tri_rows(f->buf.delta, tokens));
}

tri_status tri_cross_plan(tri_forward *f, int tokens) {
  tri_backend *be = f->cfg.backend;
  const tri_weight *w = f->cfg.weights->layers->w;
  tri_linear_args q = query_of(f, tri_rows(f->buf.h, tokens), w), o = output_of(f, tokens, w);
  tri_status st;
  TRI_TRY(be->ops.linear_plan(be, &q, &f->plan.cross_q));
  TRI_TRY(be->ops.linear_plan(be, &o, &f->plan.cross_o));
cleanup:
  return st;
}

tri_status tri_cross_plan_attention(tri_forward *f) {
  tri_backend *be = f->cfg.backend;
  tri_attention_args attention = attention_of(f, 0);
  return be->ops.attention_plan(be, &attention, &f->plan.cross_attention);
}

void tri_cross_run(tri_forward *f, int layer, const tri_weight *w, tri_mat in) {
  tri_backend *be = f->cfg.backend;
  tri_linear_args q = query_of(f, in, w), o = output_of(f, in.rows, w);
  tri_attention_args attention = attention_of(f, layer);
  be->ops.linear_launch(be, &f->plan.cross_q, &q);
  be->ops.attention_launch(be, &f->plan.cross_attention, &attention);
  be->ops.linear_launch(be, &f->plan.cross_o, &o);
}
