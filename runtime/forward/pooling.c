/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an encoder: what is pooled of each sequence, and a classifier. Both are small, so one rank has them whole.
 */
#include "runtime/forward/forward_state.h"

bool tri_is_pooling_rank(const tri_model_config *c, const tri_shard *s) {
  return c->encoder && s->last_stage && s->p.tp_rank == 0;
}

tri_encoder_output tri_encoder_output_of(const tri_walk *w) {
  const tri_forward *f = w->f;
  const tri_model_config *c = f->cfg.model;
  int seqs = w->b->num_seqs;
  bool ends = tri_is_pooling_rank(c, &f->cfg.shard);
  tri_encoder_output out = {0};
  if (ends || c->feeds_decoder) out.hidden = w->x;
  if (!ends) return out;
  if (c->head.pooling != TRI_POOL_NONE) out.pooled = tri_rows(c->head.has_pooler ? f->buf.pooled : f->buf.chosen, seqs);
  if (c->head.has_classifier) out.scores = tri_rows(f->buf.scores, c->head.token_head ? w->x.rows : seqs);
  return out;
}

void tri_walk_pool(tri_walk *w) {
  const tri_forward *f = w->f;
  const tri_model_config *c = f->cfg.model;
  const tri_weight *g = tri_walk_global(w);
  const int32_t *start = w->b->seq_start;
  tri_encoder_output ends = tri_encoder_output_of(w);
  tri_mat chosen = tri_rows(f->buf.chosen, w->b->num_seqs);
  if (c->head.pooling == TRI_POOL_FIRST)
    tri_emit_gather_rows(w, (tri_gather_rows_args){.x = w->x, .rows = start, .out = chosen});
  if (c->head.pooling == TRI_POOL_MEAN)
    tri_emit_mean_rows(w, (tri_mean_rows_args){.x = w->x, .start = start, .out = chosen});
  if (c->head.has_pooler) {
    tri_linear_args pooler = tri_linear_of(w, chosen, TRI_BIASED(g, POOLER), ends.pooled);
    pooler.act = c->head.pool_act;
    tri_emit_linear(w, pooler);
  }
  tri_mat classified = c->head.token_head ? w->x : ends.pooled;
  if (c->head.has_classifier) tri_emit_linear(w, tri_linear_of(w, classified, TRI_BIASED(g, CLASSIFIER), ends.scores));
}
