/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-attention of an encoder-decoder (Vaswani et al., 2017, section 3.2.3): the encoder's final states become every
 * decoder layer's keys and values once, in the blocks of the source, and each new token of the answer attends to all of
 * them. */
#include "runtime/forward/forward_state.h"

/* ---- once for each source ---- */

/* K and V of one layer from the encoder's states, [source tokens, hidden]: keys left, values right, as CROSS_KV has
 * them below each other. They go to the source's blocks by the encoder's own kv_slot, and have no positions. */
static void fill_layer(tri_walk *w, const tri_layer *y, tri_mat states) {
  const tri_forward *f = w->f;
  int kv_heads = f->cfg.shard.kv_heads.count, d = (int)f->cfg.model->attention.head_dim, cols = 2 * kv_heads * d;
  tri_mat kv = {f->buf.qkv.data, states.rows, cols, cols, TRI_F32};
  tri_emit_linear(w, tri_linear_of(w, states, TRI_BIASED(y->w, CROSS_KV), kv));
  tri_emit_qkv_rope_append(
      w, (tri_qkv_rope_append_args){
             .qkv = kv, .num_kv_heads = kv_heads, .head_dim = d, .kv_slot = w->b->kv_slot, .kv = y->kv});
}

tri_status tri_forward_fill_cross(tri_forward *f, const tri_forward *encoder, tri_mat states) {
  tri_walk w = {.mode = TRI_WALK_RUN, .f = f, .b = &encoder->bound};
  for (int l = 0; l < f->cfg.shard.layers.count; l++) {
    tri_layer y = tri_walk_layer(&w, l);
    fill_layer(&w, &y, states);
  }
  return w.st;
}

/* ---- in every layer ---- */

void tri_walk_cross(tri_walk *w, const tri_layer *y, tri_mat in) {
  const tri_forward *f = w->f;
  tri_attention_args attention = tri_attention_of(w, y, f->cross);
  attention.causal = false;
  attention.position_bias = NULL;
  tri_emit_linear(w, tri_linear_of(w, in, TRI_BIASED(y->w, CROSS_Q), tri_queries_of(w, y)));
  tri_emit_attention(w, attention);
  tri_emit_linear(w, tri_linear_of(w, attention.out, TRI_BIASED(y->w, CROSS_O), tri_rows(f->buf.delta, in.rows)));
}
