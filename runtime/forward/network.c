/* SPDX-License-Identifier: Apache-2.0 */
/* The network: a step from its tokens to what a stage leaves, and the walks over it that run nothing.
 *
 * A tensor rank's table has a part of the vocabulary: ids of other parts give zeros, and the sum over the ranks is the
 * embedding. The last stage's head has the same parts as rows. */
#include "runtime/forward/forward_state.h"

static void embed(tri_walk *w) {
  const tri_model_config *c = w->f->cfg.model;
  const tri_weight *g = tri_walk_global(w);
  tri_embed_args embed = tri_embed_of(w);
  tri_mat normed = c->embed.projects_last ? embed.out : w->x;
  tri_norm_args norm = tri_norm_of(w, normed, tri_no_mat, TRI_BIASED(g, EMBED_NORM), normed);
  tri_emit_embed(w, embed);
  tri_emit_sum(w, embed.out);
  if (c->embed.norm && c->embed.projects_last) tri_emit_norm(w, norm);
  if (tri_adds_positions_late(c)) tri_emit_embed(w, tri_positions_of(w));
  if (c->embed.projected) {
    tri_linear_args in = tri_linear_of(w, embed.out, TRI_BIASED(g, PROJECT_IN), w->x);
    in.accumulate = tri_adds_positions_late(c);
    tri_emit_linear(w, in);
  }
  if (c->embed.norm && !c->embed.projects_last) tri_walk_norm_stream(w, norm);
  if (c->embed.layer_width) tri_walk_layer_inputs(w);
}

/* Returns whether the logits of all rows of the walk are wanted: those of a batch ascend, so that these are all rows in
 * their order. How many they are is part of a recorded step's key. */
static bool wants_all(const tri_walk *w) {
  bool all = w->mode == TRI_WALK_RECORD ? w->all_logits : w->b->num_logits == w->b->num_tokens;
  return all || w->is_narrow;
}

/* Returns the states whose logits are wanted, of a prompt the last token's, after the final norm. Where they are all
 * that there are, that adds what is pending, and nothing is copied. */
static tri_mat final_rows(tri_walk *w) {
  tri_mat x = w->x, rows = tri_packed(w->f->buf.rows, w->b->num_logits, x.cols);
  bool normed = !w->f->cfg.model->norm.no_final;
  if (!normed || !wants_all(w)) tri_walk_settle(w);
  if (!wants_all(w)) {
    tri_emit_gather_rows(w, (tri_gather_rows_args){.x = w->x, .rows = w->b->logit_rows, .out = rows});
    x = rows;
  }
  if (!normed) return x;
  tri_walk_add_pending(w, x, TRI_BIASED(tri_walk_global(w), FINAL_NORM), rows);
  return rows;
}

static void head(tri_walk *w) {
  const tri_model_config *c = w->f->cfg.model;
  const tri_weight *g = tri_walk_global(w);
  int n = w->b->num_logits;
  if (!n) {
    tri_walk_settle(w);
    return;
  }
  tri_mat in = final_rows(w);
  if (c->embed.projected) {
    tri_mat narrow = tri_rows(w->f->buf.narrow_rows, n);
    tri_emit_linear(w, tri_linear_of(w, in, &g[TRI_W_PROJECT_OUT], &tri_no_weight, narrow));
    in = narrow;
  }
  tri_walk_show_hidden(w, (int)c->num_layers, in);
  tri_mat logits = tri_logits_of(w->f, n);
  tri_emit_linear(w, tri_linear_of(w, in, TRI_BIASED(g, HEAD), logits));
  if (c->head.logit_scale != 1 || c->head.logit_softcap > 0)
    tri_emit_softcap(
        w, (tri_softcap_args){.x = logits, .scale = (float)c->head.logit_scale, .cap = (float)c->head.logit_softcap});
}

/* An encoder's last stage. Every rank has the final states, one the ends. */
static void finish_encoder(tri_walk *w) {
  const tri_model_config *c = w->f->cfg.model;
  const tri_weight *g = tri_walk_global(w);
  if (!c->norm.no_final) tri_walk_add_pending(w, w->x, TRI_BIASED(g, FINAL_NORM), w->x);
  if (c->norm.no_final) tri_walk_settle(w);
  tri_walk_show_hidden(w, (int)c->num_layers, w->x);
  if (tri_is_pooling_rank(c, &w->f->cfg.shard)) tri_walk_pool(w);
}

static void enter(tri_walk *w) {
  const tri_forward_config *cfg = &w->f->cfg;
  if (tri_has_rope(cfg->model)) tri_emit_rope_angles(w, tri_rope_of(w));
  if (cfg->model->attention.has_local_rope) tri_emit_rope_angles(w, tri_local_rope_of(w));
  if (cfg->shard.first_stage) embed(w);
}

void tri_walk_step(tri_walk *w) {
  const tri_forward_config *cfg = &w->f->cfg;
  for (int c = 0; c < w->f->num_chunks; c++) {
    tri_walk_enter_chunk(w, c);
    enter(w);
  }
  tri_walk_leave_chunks(w);
  tri_walk_layers(w);
  if (!cfg->shard.last_stage)
    tri_walk_settle(w);
  else if (cfg->model->encoder)
    finish_encoder(w);
  else
    head(w);
}

/* ---- walks that run nothing ---- */

/* Chunks of a step of which nothing but their sizes is looked at. */
static void cut_sizes(tri_forward *f, const tri_batch *b) {
  int rows = tri_limits_chunk(&f->cfg.limits);
  f->num_chunks = 0;
  for (int first = 0; first < b->num_tokens; first += rows) {
    int left = b->num_tokens - first;
    f->chunks[f->num_chunks++] = (tri_batch){.num_tokens = left < rows ? left : rows, .num_seqs = 1, .max_query = 1};
  }
}

tri_status tri_forward_record(const tri_step_arena_config *config, const tri_buffers *buffers, tri_step_record *r) {
  const tri_limits *l = config->limits;
  tri_forward f = {.cfg = {.model = config->model, .shard = *config->shard, .limits = *l}, .buf = *buffers};
  tri_batch b = {.num_tokens = l->max_num_batched_tokens, .num_seqs = l->max_num_seqs};
  bool decodes = config->shard->last_stage && !config->model->encoder;
  for (int d = 0; d < tri_parallel_dp(config->shard->p); d++) f.shard_rows[d] = b.num_tokens;
  if (decodes) b.num_logits = tri_limits_logits(l);
  cut_sizes(&f, &b);
  tri_walk w = {.mode = TRI_WALK_RECORD, .f = &f, .b = &b, .x = tri_stream_of(&f, 0, b.num_tokens), .record = r};
  w.all_logits = config->all_logits;
  f.cross = &b;
  tri_walk_step(&w);
  if (decodes) tri_walk_record_samples(&w, tri_logits_of(&f, b.num_logits));
  tri_encoder_output e = tri_encoder_output_of(&w);
  tri_emit_result(&w, w.x);
  tri_emit_result(&w, e.pooled);
  tri_emit_result(&w, e.scores);
  return w.st;
}

/* Also finds f->attentions. */
int tri_forward_gemms(tri_forward *f, int tokens, tri_tune_gemm *out) {
  tri_batch b = {.num_tokens = tokens, .max_query = 1};
  if (tokens <= tri_limits_logits(&f->cfg.limits)) b.num_logits = tokens;
  for (int d = 0; d < tri_parallel_dp(f->cfg.shard.p); d++) f->shard_rows[d] = tokens;
  cut_sizes(f, &b);
  tri_walk w = {.mode = TRI_WALK_LIST, .f = f, .b = &b, .x = tri_stream_of(f, 0, tokens), .gemms = out};
  f->cross = &b;
  tri_walk_step(&w);
  f->cross = NULL;
  return w.num_gemms;
}
