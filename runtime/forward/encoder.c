/* The ends of an encoder: what is pooled of each sequence, and a classifier. Both are small, so one rank has them
 * whole.
 */
#include "runtime/forward/forward_state.h"

struct ends {
  tri_gather_rows_args first; /* each sequence's first state, */
  tri_mean_rows_args mean;    /* or the mean of its states */
  tri_linear_args pooler, classifier;
};

bool tri_is_encoding_rank(const tri_model_config *c, const tri_shard *s) {
  return c->encoder && s->last_stage && s->p.tp_rank == 0;
}

static struct ends ends_of(const tri_forward *f, const tri_batch *b, tri_mat x) {
  const tri_model_config *c = f->cfg.model;
  const tri_weight *w = f->cfg.weights->global;
  tri_mat chosen = tri_rows(f->buf.chosen, b->num_seqs), pooled = tri_rows(f->buf.pooled, b->num_seqs);
  tri_mat classified = c->token_head ? x : c->has_pooler ? pooled : chosen;
  return (struct ends){
      .first = {.x = x, .rows = b->seq_start, .out = chosen},
      .mean = {.x = x, .start = b->seq_start, .out = chosen},
      .pooler = tri_linear_of(f, chosen, &w[TRI_W_POOLER], &w[TRI_W_POOLER_BIAS], c->pool_act, false, pooled),
      .classifier = tri_linear_of(f, classified, &w[TRI_W_CLASSIFIER], &w[TRI_W_CLASSIFIER_BIAS], TRI_ACT_NONE, false,
                                  tri_rows(f->buf.scores, classified.rows)),
  };
}

tri_status tri_encoder_plan(tri_forward *f, const tri_batch *b, tri_mat x) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  struct ends e = ends_of(f, b, x);
  tri_status st = TRI_OK;
  if (c->pooling == TRI_POOL_FIRST) TRI_TRY(be->ops.gather_rows_plan(be, &e.first, &f->plan.first_rows));
  if (c->pooling == TRI_POOL_MEAN) TRI_TRY(be->ops.mean_rows_plan(be, &e.mean, &f->plan.mean_rows));
  if (c->has_pooler) TRI_TRY(be->ops.linear_plan(be, &e.pooler, &f->plan.pooler));
  if (c->has_classifier) TRI_TRY(be->ops.linear_plan(be, &e.classifier, &f->plan.classifier));
cleanup:
  return st;
}

void tri_encoder_run(tri_forward *f, const tri_batch *b, tri_mat x) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  struct ends e = ends_of(f, b, x);
  if (c->pooling == TRI_POOL_FIRST) be->ops.gather_rows_launch(be, &f->plan.first_rows, &e.first);
  if (c->pooling == TRI_POOL_MEAN) be->ops.mean_rows_launch(be, &f->plan.mean_rows, &e.mean);
  if (c->has_pooler) be->ops.linear_launch(be, &f->plan.pooler, &e.pooler);
  if (c->has_classifier) be->ops.linear_launch(be, &f->plan.classifier, &e.classifier);
}

tri_encoded tri_encoder_ends(const tri_forward *f, const tri_batch *b, tri_mat x) {
  const tri_model_config *c = f->cfg.model;
  tri_encoded out = {0};
  if (!tri_is_encoding_rank(c, &f->cfg.shard)) {
    if (c->feeds_decoder) out.hidden = x;
    return out;
  }
  struct ends e = ends_of(f, b, x);
  out.hidden = x;
  if (c->pooling != TRI_POOL_NONE) out.pooled = c->has_pooler ? e.pooler.out : e.first.out;
  if (c->has_classifier) out.scores = e.classifier.out;
  return out;
}
