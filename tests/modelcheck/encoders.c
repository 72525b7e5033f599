/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders: final states, what is pooled and a classifier's logits, of every prompt alone and of all in one step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/modelcheck/modelcheck.h"

tri_status mc_encoder_prepare(struct mc_check *c, const tri_model_config *model) {
  if (!model->encoder && !model->seq2seq.on) return TRI_OK;
  size_t h = (size_t)model->hidden_size, labels = (size_t)model->head.num_labels + 1;
  c->trace.encoder_hidden = tri_calloc(MAX_ROWS * h, sizeof(float));
  c->trace.pooled = tri_calloc(MAX_ROWS * h, sizeof(float));
  c->trace.scores = tri_calloc(MAX_ROWS * labels, sizeof(float));
  return c->trace.encoder_hidden && c->trace.pooled && c->trace.scores ? TRI_OK : TRI_NO_MEMORY;
}

static void keep(const struct mc_trace *t, float *to, const tri_mat *m) {
  for (int i = 0; m->data && i < m->rows && i < MAX_ROWS; i++)
    mc_fetch(t, to + (size_t)i * (size_t)m->cols, m->data + (size_t)i * (size_t)m->ld, (size_t)m->cols);
}

void mc_see_encoder_output(void *ctx, const tri_encoder_output *e) {
  struct mc_trace *t = ctx;
  keep(t, t->encoder_hidden, &e->hidden);
  keep(t, t->pooled, &e->pooled);
  keep(t, t->scores, &e->scores);
}

/* One step with prompts first .. last - 1. */
static tri_status run(struct mc_check *c, int first, int last) {
  tri_step_token sampled[MAX_PROMPTS];
  tri_step_result r = {.tokens = sampled};
  const tri_model_config *m = &c->engine->model;
  int from = tri_replica_sampler(&c->replica, 0);
  size_t rows = 0, seqs = (size_t)(last - first);
  tri_status st;
  mc_begin_step(c);
  for (int i = first; i < last; i++) {
    uint32_t ids[MAX_ROWS];
    int n = c->exp.len[i];
    for (int k = 0; k < n; k++) ids[k] = (uint32_t)c->exp.prompt[i][k];
    mc_add(c, i, TRI_SEQ_CHUNK, TRI_SEQ_FLAG_FIRST, 0, n, ids, n);
    rows += (size_t)n;
  }
  TRI_TRY(mc_run_step(c, &r));
  TRI_TRY(mc_collect(c, from, c->trace.encoder_hidden, rows * (size_t)m->hidden_size));
  TRI_TRY(mc_collect(c, from, c->trace.pooled, seqs * (size_t)m->hidden_size));
  TRI_TRY(mc_collect(c, from, c->trace.scores, (m->head.token_head ? rows : seqs) * (size_t)m->head.num_labels));
cleanup:
  return st;
}

/* NAN without such a tensor of so many elements. */
static double compare(struct mc_check *c, const char *what, int prompt, const float *got, size_t n) {
  char name[64];
  const tri_st_tensor *t;
  snprintf(name, sizeof name, "%s.%d", what, prompt);
  float *want = mc_read_tensor(&c->exp, name, &t);
  double e = want && t->bytes == n * sizeof *want ? mc_nmse(got, want, n) : NAN;
  tri_free(want);
  return e;
}

/* A mean of the stored states, or the first of them, against what was pooled. */
static double compare_pooling(struct mc_check *c, int prompt, const float *got, size_t h) {
  char name[64];
  const tri_st_tensor *t;
  snprintf(name, sizeof name, "encoder.%d", prompt);
  float *states = mc_read_tensor(&c->exp, name, &t);
  if (!states) return NAN;
  size_t rows = c->engine->model.head.pooling == TRI_POOL_MEAN ? (size_t)t->shape[0] : 1;
  for (size_t j = 0; j < h; j++) {
    double sum = 0;
    for (size_t i = 0; i < rows; i++) sum += states[i * h + j];
    states[j] = (float)(sum / (double)rows);
  }
  double e = mc_nmse(got, states, h);
  tri_free(states);
  return e;
}

static void worse(double *worst, double e) { *worst = !(e <= *worst) ? e : *worst; }

/* Prompts first .. last - 1 of the step before, against everything that the reference says about them. */
static double compare_all(struct mc_check *c, int first, int last) {
  const tri_model_config *m = &c->engine->model;
  size_t h = (size_t)m->hidden_size, labels = (size_t)m->head.num_labels, row = 0;
  double worst = 0;
  bool states = tri_checkpoint_find(c->exp.file, "encoder.0") != NULL;
  if (!states && !m->head.has_classifier) return NAN;
  for (int i = first; i < last; i++) {
    size_t n = (size_t)c->exp.len[i], seq = (size_t)(i - first);
    if (states) worse(&worst, compare(c, "encoder", i, c->trace.encoder_hidden + row * h, n * h));
    if (m->head.has_classifier)
      worse(&worst, compare(c, "logits", i, c->trace.scores + (m->head.token_head ? row : seq) * labels,
                            (m->head.token_head ? n : 1) * labels));
    if (m->head.has_pooler && !m->head.has_classifier)
      worse(&worst, compare(c, "pooled", i, c->trace.pooled + seq * h, h));
    if (!m->head.has_pooler && m->head.pooling != TRI_POOL_NONE && states)
      worse(&worst, compare_pooling(c, i, c->trace.pooled + seq * h, h));
    row += n;
  }
  return worst;
}

tri_status mc_check_encoder(struct mc_check *c, bool *right) {
  double limit = mc_limit(c), worst = 0, worst_hidden = 0;
  bool leader = tri_replica_is_leader(&c->replica);
  tri_status st = TRI_OK;
  for (int i = 0; i < c->exp.num_prompts; i++) {
    c->trace.on = i == 0;
    TRI_TRY(run(c, i, i + 1));
    c->trace.on = false;
    if (i == 0) TRI_TRY(mc_compare_hidden(c, &worst_hidden));
    double e = leader ? compare_all(c, i, i + 1) : 0;
    if (leader) printf("prompt %d (%d tokens): nmse %.2e%s\n", i, c->exp.len[i], e, e <= limit ? "" : "   <-- wrong");
    worse(&worst, e);
  }
  TRI_TRY(run(c, 0, c->exp.num_prompts));
  double together = leader ? compare_all(c, 0, c->exp.num_prompts) : 0;
  worse(&worst, together);
  *right = mc_hidden_right(c, worst_hidden) && worst <= limit;
  if (leader) {
    printf("all in one step: nmse %.2e%s\n", together, together <= limit ? "" : "   <-- wrong");
    printf("%s %s tp %d pp %d %s: worst nmse %.2e (limit %.0e)\n", *right ? "RIGHT" : "WRONG", c->dir, c->a.tp, c->a.pp,
           c->a.backend, worst, limit);
  }
cleanup:
  return st;
}
