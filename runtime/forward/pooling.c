/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an encoder: what is pooled of each sequence, and a classifier, or the Dense modules that make a vector of
 * it. All are small, so one rank has them whole. */
#include "runtime/forward/forward_state.h"

bool tri_is_pooling_rank(const tri_model_config *c, const tri_shard *s) {
  return c->encoder && s->last_stage && s->p.tp_rank == 0;
}

/* Returns the sequences of the step that get an answer. Those pooled by the last token may have it in a later one. */
static int num_pooled(const tri_walk *w) {
  bool last = w->f->cfg.model->head.pooling == TRI_POOL_LAST && w->mode != TRI_WALK_RECORD;
  return last ? w->b->num_logits : w->b->num_seqs;
}

/* Returns where Dense module i puts its result: by turns, so that none reads what it writes. */
static tri_mat dense_of(const tri_walk *w, int i) {
  const tri_forward *f = w->f;
  const tri_dense_config *d = &f->cfg.model->sentence.dense[i];
  tri_mat out = tri_rows(i ? f->buf.dense2 : f->buf.dense1, num_pooled(w));
  return tri_columns(out, 0, (int)d->out);
}

/* Returns what is pooled, before Dense modules. */
static tri_mat pooled_of(const tri_walk *w) {
  const tri_forward *f = w->f;
  return tri_rows(f->cfg.model->head.has_pooler ? f->buf.pooled : f->buf.chosen, num_pooled(w));
}

tri_encoder_output tri_encoder_output_of(const tri_walk *w) {
  const tri_forward *f = w->f;
  const tri_model_config *c = f->cfg.model;
  int seqs = num_pooled(w), dense = tri_num_dense(c);
  bool ends = tri_is_pooling_rank(c, &f->cfg.shard);
  tri_encoder_output out = {0};
  if (ends || c->feeds_decoder) out.hidden = w->x;
  if (!ends) return out;
  if (c->head.pooling != TRI_POOL_NONE) out.pooled = dense ? dense_of(w, dense - 1) : pooled_of(w);
  if (c->head.has_classifier) out.scores = tri_rows(f->buf.scores, c->head.token_head ? w->x.rows : seqs);
  return out;
}

/* Returns one row of the final states for each sequence. */
static tri_mat choose(tri_walk *w) {
  const tri_forward *f = w->f;
  const tri_batch *b = w->b;
  tri_mat chosen = tri_rows(f->buf.chosen, num_pooled(w));
  switch (f->cfg.model->head.pooling) {
  case TRI_POOL_FIRST:
    tri_emit_gather_rows(w, (tri_gather_rows_args){.x = w->x, .rows = b->seq_start, .out = chosen});
    break;
  case TRI_POOL_LAST:
    tri_emit_gather_rows(w, (tri_gather_rows_args){.x = w->x, .rows = b->logit_rows, .out = chosen});
    break;
  case TRI_POOL_MEAN:
    tri_emit_mean_rows(w, (tri_mean_rows_args){.x = w->x, .start = b->seq_start, .out = chosen});
    break;
  case TRI_POOL_NONE:
  case TRI_NUM_POOLINGS: break;
  }
  return chosen;
}

/* A layer with an activation and, where a classifier has one, a norm. */
static void pooler(tri_walk *w, tri_mat in, tri_mat out) {
  const tri_model_config *c = w->f->cfg.model;
  const tri_weight *g = tri_walk_global(w);
  tri_linear_args a = tri_linear_of(w, in, TRI_BIASED(g, POOLER), out);
  a.act = c->head.pool_act;
  tri_emit_linear(w, a);
  if (c->head.pooler_norm) tri_emit_norm(w, tri_norm_of(w, out, tri_no_mat, TRI_BIASED(g, POOLER_NORM), out));
}

void tri_walk_pool(tri_walk *w) {
  const tri_model_config *c = w->f->cfg.model;
  const tri_weight *g = tri_walk_global(w);
  static const tri_weight_id dense[TRI_MAX_DENSE] = {TRI_W_DENSE1, TRI_W_DENSE2},
                             biases[TRI_MAX_DENSE] = {TRI_W_DENSE1_BIAS, TRI_W_DENSE2_BIAS};
  tri_encoder_output ends = tri_encoder_output_of(w);
  if (!num_pooled(w)) return;
  tri_mat chosen = choose(w), pooled = pooled_of(w);
  if (c->head.has_pooler) pooler(w, chosen, pooled);
  for (int i = 0; i < tri_num_dense(c); i++) {
    tri_linear_args a = tri_linear_of(w, pooled, &g[dense[i]], &g[biases[i]], dense_of(w, i));
    a.act = c->sentence.dense[i].act;
    tri_emit_linear(w, a);
    pooled = a.out;
  }
  tri_mat classified = c->head.token_head ? w->x : pooled;
  if (c->head.has_classifier) tri_emit_linear(w, tri_linear_of(w, classified, TRI_BIASED(g, CLASSIFIER), ends.scores));
}
