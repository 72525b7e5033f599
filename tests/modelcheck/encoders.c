/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders: final states, what is pooled and a classifier's logits, of every prompt alone and of all in one step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/modelcheck/modelcheck.h"

enum { WIDEST = 256 }; /* vector, where it is wider than a state */

tri_status mc_encoder_prepare(struct mc_check *c, const tri_model_config *model) {
  if (!model->encoder && !model->seq2seq.on) return TRI_OK;
  size_t h = (size_t)model->hidden_size, labels = (size_t)model->head.num_labels + 1;
  c->trace.encoder_hidden = tri_calloc(MAX_ROWS * h, sizeof(float));
  c->trace.pooled = tri_calloc(MAX_ROWS * (h + WIDEST), sizeof(float));
  c->trace.scores = tri_calloc(MAX_ROWS * labels, sizeof(float));
  return c->trace.encoder_hidden && c->trace.pooled && c->trace.scores ? TRI_OK : TRI_NO_MEMORY;
}

static void keep(const struct mc_trace *t, float *to, const tri_mat *m) {
  for (int i = 0; m->data && i < m->rows && i < MAX_ROWS; i++)
    mc_fetch(t, to + (size_t)i * (size_t)m->cols, m->data + (size_t)i * (size_t)m->ld, (size_t)m->cols);
}

void mc_see_encoder_output(void *ctx, const tri_encoder_output *e) {
  struct mc_trace *t = ctx;
  keep(t, t->encoder_hidden + (size_t)t->row * (size_t)e->hidden.cols, &e->hidden);
  keep(t, t->pooled, &e->pooled);
  keep(t, t->scores, &e->scores);
}

/* Adds tokens of a prompt from `at` on. Where a sequence need not be whole, its last token's entry asks for the answer.
 */
static void add_tokens(struct mc_check *c, int i, int at, int n) {
  uint32_t ids[MAX_ROWS];
  int all = c->exp.len[i], first = TRI_SEQ_FLAG_FIRST, last = 0;
  if (!c->engine->limits.whole_sequences) first |= TRI_SEQ_FLAG_PARAMS, last = TRI_SEQ_FLAG_SAMPLE;
  for (int k = 0; k < n; k++) ids[k] = (uint32_t)c->exp.prompt[i][at + k];
  mc_add(c, i, TRI_SEQ_CHUNK, (at ? 0 : first) | (at + n == all ? last : 0), at, n, ids, all);
}

/* The steps before the last one of a prompt that is fed in chunks; *at: where that one begins. */
static tri_status feed_chunks(struct mc_check *c, int i, int *at) {
  tri_step_token sampled[MAX_PROMPTS];
  tri_step_result r = {.tokens = sampled};
  int chunk = c->a.chunk;
  for (*at = 0; chunk && !c->engine->limits.whole_sequences && *at + chunk < c->exp.len[i]; *at += chunk) {
    c->trace.row = *at;
    mc_begin_step(c);
    add_tokens(c, i, *at, chunk);
    tri_status st = mc_run_step(c, &r);
    if (st != TRI_OK) return st;
  }
  c->trace.row = *at;
  return TRI_OK;
}

/* Prompts first .. last - 1: several in one step, one alone in chunks. */
static tri_status run(struct mc_check *c, int first, int last) {
  tri_step_token sampled[MAX_PROMPTS];
  tri_step_result r = {.tokens = sampled};
  const tri_model_config *m = &c->engine->model;
  int from = tri_replica_sampler(&c->replica, 0);
  size_t rows = 0, seqs = (size_t)(last - first);
  tri_status st = TRI_OK;
  int at = 0;
  if (seqs == 1) TRI_TRY(feed_chunks(c, first, &at));
  mc_begin_step(c);
  for (int i = first; i < last; i++) {
    add_tokens(c, i, at, c->exp.len[i] - at);
    rows += (size_t)c->exp.len[i];
  }
  TRI_TRY(mc_run_step(c, &r));
  c->trace.row = 0;
  TRI_TRY(mc_collect(c, from, c->trace.encoder_hidden, rows * (size_t)m->hidden_size));
  size_t width = m->head.has_classifier ? (size_t)m->hidden_size : (size_t)tri_model_config_width(m);
  TRI_TRY(mc_collect(c, from, c->trace.pooled, seqs * width));
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

/* The final states, at `positions` of a long prompt, in order. */
static double compare_states(struct mc_check *c, int prompt, float *got, size_t n, size_t h) {
  char name[64];
  const tri_st_tensor *t;
  snprintf(name, sizeof name, "positions.%d", prompt);
  int64_t *at = mc_read_tensor(&c->exp, name, &t);
  size_t rows = at ? (size_t)t->shape[0] : n;
  float *chosen = tri_malloc(rows * h, sizeof *chosen);
  for (size_t i = 0; chosen && i < rows; i++)
    memcpy(chosen + i * h, got + (at ? (size_t)at[i] : i) * h, h * sizeof *got);
  double e = chosen ? compare(c, "encoder", prompt, chosen, rows * h) : NAN;
  tri_free(chosen);
  tri_free(at);
  return e;
}

/* The pooled state, at length 1, against sentence-transformers' vector. */
static double compare_vector(struct mc_check *c, int prompt, const float *got, size_t n) {
  float *unit = tri_malloc(n, sizeof *unit);
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)got[i] * (double)got[i];
  for (size_t i = 0; unit && i < n; i++) unit[i] = (float)(got[i] / sqrt(sum));
  double e = unit ? compare(c, "embedding", prompt, unit, n) : NAN;
  tri_free(unit);
  return e;
}

/* The softmax of two tokens' logits at the second, against a reranker's score. */
static double compare_score(struct mc_check *c, int prompt, const float *got) {
  float score = (float)(1 / (1 + exp((double)got[0] - (double)got[1])));
  return compare(c, "score", prompt, &score, 1);
}

/* A mean of the stored states, or the first or last of them, against what was pooled. */
static double compare_pooling(struct mc_check *c, int prompt, const float *got, size_t h) {
  char name[64];
  const tri_st_tensor *t;
  tri_pooling how = c->engine->model.head.pooling;
  snprintf(name, sizeof name, "encoder.%d", prompt);
  float *states = mc_read_tensor(&c->exp, name, &t);
  if (!states) return NAN;
  size_t all = (size_t)t->shape[0], rows = how == TRI_POOL_MEAN ? all : 1, from = how == TRI_POOL_LAST ? all - 1 : 0;
  for (size_t j = 0; j < h; j++) {
    double sum = 0;
    for (size_t i = 0; i < rows; i++) sum += states[(from + i) * h + j];
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
  bool vectors = tri_checkpoint_find(c->exp.file, "embedding.0") && !c->a.pooling;
  bool scores = tri_checkpoint_find(c->exp.file, "score.0") != NULL;
  size_t width = m->head.has_classifier ? h : (size_t)tri_model_config_width(m);
  if (!states && !m->head.has_classifier) return NAN;
  for (int i = first; i < last; i++) {
    size_t n = (size_t)c->exp.len[i], seq = (size_t)(i - first);
    if (states) worse(&worst, compare_states(c, i, c->trace.encoder_hidden + row * h, n, h));
    if (vectors) worse(&worst, compare_vector(c, i, c->trace.pooled + seq * width, width));
    if (scores) worse(&worst, compare_score(c, i, c->trace.scores + seq * labels));
    if (m->head.has_classifier && !scores)
      worse(&worst, compare(c, "logits", i, c->trace.scores + (m->head.token_head ? row : seq) * labels,
                            (m->head.token_head ? n : 1) * labels));
    if (m->head.has_pooler && !m->head.has_classifier)
      worse(&worst, compare(c, "pooled", i, c->trace.pooled + seq * h, h));
    if (!m->head.has_pooler && m->head.pooling != TRI_POOL_NONE && states && !vectors)
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
