/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/process/canary.h"

#include <math.h>

#include "base/mem.h"
#include "runtime/load/finite_weights.h"

void tri_canary_plan(const tri_worker *w, tri_plan_writer *plan) {
  tri_sample_params greedy = tri_sample_greedy();
  uint32_t id = 0;
  int32_t block = 0, source_block = 1;
  bool whole = w->engine->limits.whole_sequences;
  uint8_t flags = whole ? TRI_SEQ_FLAG_FIRST : TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS | TRI_SEQ_FLAG_SAMPLE;
  tri_plan_seq s = {.kind = TRI_SEQ_CHUNK, .flags = flags, .num_tokens = 1, .num_blocks = 1};
  tri_plan_seq source = {.kind = TRI_SEQ_SOURCE, .num_tokens = 1, .num_blocks = 1};
  greedy.num_logprobs = TRI_CANARY_TOP;
  tri_plan_begin(plan, 0, 0);
  if (w->engine->limits.has_source) tri_plan_add(plan, &source, &id, &source_block, NULL, 0);
  tri_plan_add(plan, &s, &id, &block, &greedy, 1);
}

static void look(tri_canary *c, const float *x, size_t n) {
  for (size_t i = 0; i < n; i++) c->num_wrong += !isfinite(x[i]);
  c->num_seen += n;
}

static void see_logits(void *ctx, tri_mat logits) {
  tri_canary *c = ctx;
  tri_backend *be = c->w->backend;
  size_t width = (size_t)logits.cols;
  for (int i = 0; i < logits.rows; i++) {
    be->ops.download(be, c->logits, logits.data + (size_t)i * (size_t)logits.ld, width * sizeof *c->logits);
    if (be->ops.stream_sync(be) != TRI_OK) return; /* the step's end says so */
    look(c, c->logits, width);
  }
}

static void see_part(void *ctx, int layer, int half) {
  const tri_canary *c = ctx;
  tri_weights_count_part(c->w->engine->weights, layer, half);
}

tri_status tri_canary_begin(tri_canary *c, tri_worker *w, tri_error *err) {
  *c = (tri_canary){.w = w};
  bool embeds = w->engine->model.encoder;
  if (!embeds && tri_replica_is_sampler(&w->replica)) {
    c->logits = tri_malloc((size_t)w->engine->model.vocab_size, sizeof *c->logits);
    if (!c->logits) return tri_fail(err, TRI_NO_MEMORY, "canary", "no memory for the logits of the canary");
  }
  /* On all ranks of a tensor group: they bring the logits together alike. */
  tri_forward_observe(w->engine->forward,
                      &(tri_observer){.ctx = c, .logits = embeds ? NULL : see_logits, .part = see_part});
  return TRI_OK;
}

static tri_status check_streamed(tri_worker *w, tri_error *err) {
  const tri_engine *e = w->engine;
  if (!e->tiers) return TRI_OK;
  tri_status st = tri_weights_check_counts(e->weights, &e->model, &e->shard, err);
  w->refused = st == TRI_CORRUPT;
  return st;
}

static void look_at_answer(tri_canary *c) {
  const tri_engine *e = c->w->engine;
  tri_mat m = tri_embed_values(&e->encoder_output);
  if (!e->model.encoder || !tri_replica_is_sampler(&c->w->replica) || !m.data) return;
  for (int i = 0; i < m.rows; i++) look(c, m.data + (size_t)i * (size_t)m.ld, (size_t)m.cols);
}

tri_status tri_canary_end(tri_canary *c, tri_status step, tri_error *err) {
  tri_worker *w = c->w;
  bool embeds = w->engine->model.encoder;
  tri_forward_observe(w->engine->forward, NULL);
  tri_free(c->logits);
  c->logits = NULL;
  if (step != TRI_OK) return step;
  TRI_CHECK(check_streamed(w, err));
  look_at_answer(c);
  if (!c->num_wrong) return TRI_OK;
  w->refused = true;
  return tri_fail(err, TRI_CORRUPT, "model",
                  "%zu of %zu %s of the canary, the one token that is computed before serving, are not finite: the "
                  "weights of %.200s are damaged, or overflow in the dtype that they are computed in (--dtype)",
                  c->num_wrong, c->num_seen, embeds ? "numbers" : "logits", w->opts.model);
}

void tri_canary_keep(tri_worker *w, const tri_step_result *result) {
  if (!result->num_tokens) return;
  const tri_sample_result *r = &result->tokens[0].sample;
  const double most = 1e6; /* nats: a token that never comes */
  w->num_canary = 0;
  for (int i = 0; i < r->num_top && i < TRI_CANARY_TOP; i++) {
    double nats = -(double)r->top_logprobs[i];
    if (!(nats >= 0)) nats = 0;
    w->canary_ids[i] = r->top_ids[i];
    w->canary_millis[i] = (uint32_t)lround(1e3 * fmin(nats, most));
    w->num_canary++;
  }
}
