/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention in its absorbed form (DeepSeek-V2, section 2.1.2): the cache keeps one latent and one rotated key
 * per token for all heads; a head's query is brought to the latent's space before attention, and its result from there
 * to the head's value space after it.
 *
 * With c the latent (rank), a head has k = K_UP^T c and v = V_UP c, and q.k = (K_UP q).c: queries are multiplied with
 * K_UP once, instead of every cached latent with its transpose. Likewise the sum over values is taken over latents,
 * and V_UP is applied to the one result. Buffers: qkv_a has the latents of queries and of keys and values, [T, q_rank +
 * rank + rope]; qkv, the heads' queries, [T, heads * (nope + rope)]; absorbed, [T, heads * (rank + rope)]; latent,
 * [T, heads * rank]; attn, [T, heads * v_dim].
 *
 * Projections to both latents read the same rows and lie whole on every tensor rank, so that they are one GEMM. Where
 * queries have no latent there are two: the heads' queries may be 16 bits, a latent is float32 up to its norm. */
#include "runtime/forward/forward_state.h"

/* A row of qkv_a: the queries' latent, if they have one, then that of keys and values, then the key that rotates. */
static tri_mat latents_of(const tri_walk *w, int64_t from, int64_t n) {
  return tri_columns(tri_rows(w->f->buf.qkv_a, w->b->num_tokens), (int)from, (int)n);
}

static tri_mla_append_args append_of(const tri_walk *w, const tri_layer *y) {
  const tri_forward *f = w->f;
  const tri_mla *m = &f->cfg.model->mla;
  int t = w->b->num_tokens;
  return (tri_mla_append_args){
      .q = tri_rows(f->buf.qkv, t),
      .kv_a = latents_of(w, m->q_rank, m->rank + m->rope_dim),
      .num_heads = tri_q_heads_of(w, y).count,
      .nope_dim = (int)m->nope_dim,
      .rope_dim = (int)m->rope_dim,
      .rank = (int)m->rank,
      .norm = tri_vector(&y->w[TRI_W_KV_A_NORM]),
      .norm_eps = (float)m->norm_eps,
      .interleaved = f->cfg.model->attention.rope.interleaved,
      .cos = tri_angles_of(w, f->buf.cos),
      .sin = tri_angles_of(w, f->buf.sin),
      .q_scale = tri_q_scale_of(w, y),
      .kv_slot = w->b->kv_slot,
      .kv = y->kv,
      .q_out = tri_rows(f->buf.absorbed, t),
  };
}

static tri_attention_args attention_of(const tri_walk *w, const tri_layer *y) {
  tri_attention_args a = tri_attention_of(w, y, w->b);
  a.q = tri_rows(w->f->buf.absorbed, w->b->num_tokens);
  a.out = tri_rows(w->f->buf.latent, w->b->num_tokens);
  return a;
}

/* From x, in which a head's part has x_stride columns, to out, in which it has out_stride. */
static void per_head(tri_walk *w, tri_mat x, int64_t x_stride, const tri_weight *weight, tri_mat out,
                     int64_t out_stride) {
  tri_emit_head_linear(w, (tri_head_linear_args){.x = x,
                                                 .w = *weight,
                                                 .num_heads = w->f->cfg.shard.q_heads.count,
                                                 .x_stride = (int)x_stride,
                                                 .out_stride = (int)out_stride,
                                                 .out = out});
}

/* Returns what the heads' queries are made from; latents have been made of `in`. */
static tri_mat query_input(tri_walk *w, const tri_layer *y, tri_mat in) {
  const tri_mla *m = &w->f->cfg.model->mla;
  tri_mat q_a = tri_rows(w->f->buf.q_a, w->b->num_tokens);
  if (!m->low_rank_q) return in;
  tri_norm_args norm =
      tri_norm_of(w, latents_of(w, 0, m->q_rank), tri_no_mat, &y->w[TRI_W_Q_A_NORM], &tri_no_weight, q_a);
  norm.eps = (float)m->norm_eps;
  tri_emit_norm(w, norm);
  return q_a;
}

void tri_walk_latent(tri_walk *w, const tri_layer *y, tri_mat in) {
  const tri_forward *f = w->f;
  const tri_mla *m = &f->cfg.model->mla;
  int t = w->b->num_tokens;
  tri_mat q = tri_rows(f->buf.qkv, t), absorbed = tri_rows(f->buf.absorbed, t);
  tri_emit_linear(w, tri_linear_of(w, in, &y->w[TRI_W_QKV_A], &tri_no_weight, tri_rows(f->buf.qkv_a, t)));
  tri_emit_linear(w, tri_linear_of(w, query_input(w, y, in), &y->w[TRI_W_Q_B], &tri_no_weight, q));
  per_head(w, q, m->nope_dim + m->rope_dim, &y->w[TRI_W_K_UP], absorbed, m->rank + m->rope_dim);
  tri_emit_mla_append(w, append_of(w, y));
  tri_emit_attention(w, attention_of(w, y));
  per_head(w, tri_rows(f->buf.latent, t), m->rank, &y->w[TRI_W_V_UP], tri_rows(f->buf.attn, t), m->v_dim);
}
