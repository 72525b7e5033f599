/* Latent attention in its absorbed form (DeepSeek-V2, section 2.1.2): the cache keeps one latent and one rotated key
 * per token for all heads; a head's query is brought to the latent's space before attention, and its result from there
 * to the head's value space behind it. */
#include "runtime/forward/forward_state.h"

struct latent_args {
  tri_linear_args q_a, q_b, kv_a;
  tri_norm_args q_a_norm;
  tri_head_linear_args absorb, expand;
  tri_mla_append_args append;
};

static struct latent_args args_of(const tri_forward *f, const tri_batch *b, int layer, const tri_weight *w,
                                  tri_mat in) {
  const tri_mla *m = &f->cfg.model->mla;
  const tri_weight *none = &tri_no_weight;
  int t = b->num_tokens, heads = f->cfg.shard.q_heads.count, rank = (int)m->rank, rope = (int)m->rope_dim;
  tri_mat q_a = tri_rows(f->buf.q_a, t), q = tri_rows(f->buf.qkv, t), kv_a = tri_rows(f->buf.kv_a, t);
  tri_mat absorbed = tri_rows(f->buf.absorbed, t);
  struct latent_args a = {
      .q_a = tri_linear_of(f, in, &w[TRI_W_Q_A], none, TRI_ACT_NONE, false, q_a),
      .q_b = tri_linear_of(f, m->low_rank_q ? q_a : in, &w[TRI_W_Q_B], none, TRI_ACT_NONE, false, q),
      .kv_a = tri_linear_of(f, in, &w[TRI_W_KV_A], none, TRI_ACT_NONE, false, kv_a),
      .q_a_norm = tri_norm_of(f, q_a, tri_no_mat, &w[TRI_W_Q_A_NORM], none, q_a),
      .absorb = {.x = q, .w = w[TRI_W_K_UP], .num_heads = heads, .out = absorbed},
      .expand = {.x = tri_rows(f->buf.latent, t), .w = w[TRI_W_V_UP], .num_heads = heads},
  };
  a.q_a_norm.eps = (float)m->norm_eps;
  a.absorb.x_stride = (int)(m->nope_dim + m->rope_dim), a.absorb.out_stride = rank + rope;
  a.expand.x_stride = rank, a.expand.out_stride = (int)m->v_dim, a.expand.out = tri_rows(f->buf.attn, t);
  a.append = (tri_mla_append_args){
      .q = q,
      .kv_a = kv_a,
      .num_heads = heads,
      .nope_dim = (int)m->nope_dim,
      .rope_dim = rope,
      .rank = rank,
      .norm = tri_vector(&w[TRI_W_KV_A_NORM]),
      .norm_eps = (float)m->norm_eps,
      .interleaved = f->cfg.model->rope.interleaved,
      .cos = f->buf.cos,
      .sin = f->buf.sin,
      .kv_slot = b->kv_slot,
      .kv = f->cfg.kv->layers[layer],
      .q_out = absorbed,
  };
  return a;
}

static tri_attention_args attention_of(const tri_forward *f, const tri_batch *b, int layer) {
  tri_attention_args a = tri_attention_of(f, b, layer);
  a.q = tri_rows(f->buf.absorbed, b->num_tokens);
  a.out = tri_rows(f->buf.latent, b->num_tokens);
  return a;
}

tri_status tri_latent_plan(tri_forward *f, const tri_batch *b) {
  tri_backend *be = f->cfg.backend;
  struct latent_args a = args_of(f, b, 0, f->cfg.weights->layers->w, tri_rows(f->buf.h, b->num_tokens));
  tri_status st = TRI_OK;
  if (f->cfg.model->mla.low_rank_q) {
    TRI_TRY(be->ops.linear_plan(be, &a.q_a, &f->plan.q_a));
    TRI_TRY(be->ops.norm_plan(be, &a.q_a_norm, &f->plan.q_a_norm));
  }
  TRI_TRY(be->ops.linear_plan(be, &a.q_b, &f->plan.q_b));
  TRI_TRY(be->ops.linear_plan(be, &a.kv_a, &f->plan.kv_a));
  TRI_TRY(be->ops.head_linear_plan(be, &a.absorb, &f->plan.absorb));
  TRI_TRY(be->ops.mla_append_plan(be, &a.append, &f->plan.mla_append));
  TRI_TRY(be->ops.head_linear_plan(be, &a.expand, &f->plan.expand));
cleanup:
  return st;
}

tri_status tri_latent_plan_attention(tri_forward *f, const tri_batch *b) {
  tri_backend *be = f->cfg.backend;
  tri_attention_args a = attention_of(f, b, 0);
  return be->ops.attention_plan(be, &a, &f->plan.attention);
}

void tri_latent_run(tri_forward *f, const tri_batch *b, int layer, const tri_weight *w, tri_mat in) {
  tri_backend *be = f->cfg.backend;
  struct latent_args a = args_of(f, b, layer, w, in);
  tri_attention_args attention = attention_of(f, b, layer);
  if (f->cfg.model->mla.low_rank_q) {
    be->ops.linear_launch(be, &f->plan.q_a, &a.q_a);
    be->ops.norm_launch(be, &f->plan.q_a_norm, &a.q_a_norm);
  }
  be->ops.linear_launch(be, &f->plan.q_b, &a.q_b);
  be->ops.linear_launch(be, &f->plan.kv_a, &a.kv_a);
  be->ops.head_linear_launch(be, &f->plan.absorb, &a.absorb);
  be->ops.mla_append_launch(be, &f->plan.mla_append, &a.append);
  be->ops.attention_launch(be, &f->plan.attention, &attention);
  be->ops.head_linear_launch(be, &f->plan.expand, &a.expand);
}
