/* SPDX-License-Identifier: Apache-2.0 */
/* After the head: every tensor rank of the last stage has its part of the vocabulary. Either the sampling rank
 * collects the parts, or each rank reduces its own to a few candidates, which all exchange and then sample from alike.
 *
 *
 * Candidates suffice where a row samples from its best k alone, since the k best of the vocabulary are among the k
 * best of each part. Every rank merges the same candidates with the same seed and counter, and so has the same token
 * without being sent it. */
#include "runtime/forward/forward_state.h"

/* ---- the ops ---- */

/* To the sampling rank. The parts need not be of equal width. */
static void collect(tri_walk *w, tri_mat local, tri_mat all) {
  const tri_forward *f = w->f;
  size_t rows = (size_t)local.rows;
  int tp = f->cfg.shard.p.tp;
  if (f->cfg.shard.p.tp_rank) {
    tri_emit_send(w, local.data, rows * (size_t)local.cols * sizeof(float), 0, TRI_TAG_LOGITS);
    return;
  }
  for (int r = 0; r < tp; r++) {
    tri_range v = tri_range_part(f->cfg.model->vocab_size, tp, r);
    size_t width = (size_t)v.count * sizeof(float);
    const float *src = r ? f->buf.part.data : local.data;
    if (r) tri_emit_recv(w, f->buf.part.data, rows * width, r, TRI_TAG_LOGITS);
    tri_emit_copy_rows(w, all.data + v.first, (size_t)all.ld * sizeof(float), src, width, width, rows);
  }
}

static void sample(tri_walk *w, const tri_sample_args *a, int num_candidates) {
  const tri_forward *f = w->f;
  int vocab = (int)f->cfg.model->vocab_size;
  size_t count = (size_t)a->logits.rows * (size_t)num_candidates;
  tri_sample_candidate *candidates = (tri_sample_candidate *)f->buf.candidates.data;
  tri_sample_candidate *all = (tri_sample_candidate *)f->buf.all_candidates.data;
  tri_sample_part_args part = {
      .rows = *a, .first_id = (uint32_t)f->cfg.shard.vocab.first, .width = num_candidates, .candidates = candidates};
  tri_sample_merge_args merge = {
      .rows = *a, .num_parts = f->cfg.shard.p.tp, .width = num_candidates, .candidates = all};
  merge.rows.logits = (tri_mat){NULL, a->logits.rows, vocab, vocab, TRI_F32};
  tri_emit_sample_part(w, part);
  tri_emit_all_gather(w, candidates, all, count * sizeof *candidates);
  if (a->results || a->sampled) tri_emit_sample_merge(w, merge);
}

void tri_walk_record_samples(tri_walk *w, tri_mat logits) {
  const tri_buffers *b = &w->f->buf;
  tri_sample_result result;
  tri_sample_args a = {.logits = logits, .results = &result};
  tri_emit_result(w, logits); /* one rank alone samples from these */
  if (w->f->cfg.shard.p.tp == 1) return;
  sample(w, &a, TRI_SAMPLE_CANDIDATES);
  collect(w, logits, b->logits);
  /* The next step comes after the sampler, but a peer may still read what was gathered. */
  tri_emit_result(w, b->candidates);
  tri_emit_result(w, b->all_candidates);
  if (!w->f->cfg.shard.p.tp_rank) tri_emit_result(w, b->logits);
}

/* ---- what the engine calls ---- */

tri_status tri_forward_gather(tri_forward *f, tri_mat *logits) {
  const tri_observer *o = tri_observer_of(f);
  tri_walk w = {.mode = TRI_WALK_RUN, .f = f};
  tri_mat local = *logits;
  if (f->cfg.shard.p.tp_rank) {
    *logits = tri_no_mat;
    collect(&w, local, tri_no_mat);
    return w.st;
  }
  if (f->cfg.shard.p.tp > 1) {
    *logits = tri_rows(f->buf.logits, local.rows);
    collect(&w, local, *logits);
  }
  if (w.st == TRI_OK && o && o->logits) o->logits(o->ctx, *logits);
  return w.st;
}

int tri_forward_num_candidates(const tri_forward *f, const tri_sample_params *const *params, int rows) {
  const tri_observer *o = tri_observer_of(f);
  int tp = f->cfg.shard.p.tp, most = 0;
  if (tp == 1 || (o && o->logits)) return 0;
  for (int i = 0; i < rows; i++) {
    int n = tri_sample_num_candidates(params[i]);
    if (!n) return 0;
    most = n > most ? n : most;
  }
  return most <= TRI_SAMPLE_MERGED / tp ? most : 0;
}

tri_status tri_forward_sample(tri_forward *f, const tri_sample_args *a, int num_candidates) {
  tri_walk w = {.mode = TRI_WALK_RUN, .f = f};
  sample(&w, a, num_candidates);
  return w.st;
}
