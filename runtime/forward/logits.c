/* Behind the head: every tensor rank of the last stage has its part of the vocabulary. Either the sampling rank
 * collects the parts, or each rank reduces its own to a few candidates, which all exchange and then draw from alike. */
#include "runtime/forward/forward_state.h"

/* The parts need not be of equal width. */
static tri_status collect(tri_forward *f, tri_mat local, tri_mat all) {
  tri_comm *c = f->cfg.tensor;
  tri_backend *be = f->cfg.backend;
  size_t rows = (size_t)local.rows;
  int tp = f->cfg.group->p.tp;
  for (int r = 0; r < tp; r++) {
    tri_range v = tri_range_part(f->cfg.model->vocab_size, tp, r);
    size_t width = (size_t)v.count * sizeof(float);
    const float *src = r ? f->buf.part : local.data;
    tri_status st = r ? c->ops->recv(c, f->buf.part, rows * width, r, TRI_TAG_LOGITS) : TRI_OK;
    if (st != TRI_OK) return st;
    be->ops.copy_rows(be, all.data + v.first, (size_t)all.ld * sizeof(float), src, width, width, rows);
  }
  return TRI_OK;
}

tri_status tri_forward_gather(tri_forward *f, tri_mat *logits) {
  const tri_group *g = f->cfg.group;
  const tri_observer *o = tri_observer_of(f);
  tri_comm *c = f->cfg.tensor;
  tri_mat local = *logits;
  tri_status st = TRI_OK;
  if (g->p.tp_rank) {
    tri_comm_req req = {0};
    *logits = tri_no_mat;
    st = c->ops->isend(c, local.data, (size_t)local.rows * (size_t)local.cols * sizeof(float), 0, TRI_TAG_LOGITS, &req);
    return st == TRI_OK ? c->ops->wait(c, &req) : st;
  }
  if (g->p.tp > 1) {
    *logits = tri_rows(f->buf.logits, local.rows);
    st = collect(f, local, *logits);
  }
  if (st == TRI_OK && o && o->logits) o->logits(o->ctx, *logits);
  return st;
}

int tri_forward_num_candidates(const tri_forward *f, const tri_sample_params *const *params, int rows) {
  const tri_observer *o = tri_observer_of(f);
  int tp = f->cfg.group->p.tp, most = 0;
  if (tp == 1 || (o && o->logits)) return 0;
  for (int i = 0; i < rows; i++) {
    int n = tri_sample_num_candidates(params[i]);
    if (!n) return 0;
    most = n > most ? n : most;
  }
  return most <= TRI_SAMPLE_MERGED / tp ? most : 0;
}

tri_status tri_forward_draw(tri_forward *f, const tri_sample_args *a, int num_candidates) {
  tri_backend *be = f->cfg.backend;
  tri_comm *c = f->cfg.tensor;
  int vocab = (int)f->cfg.model->vocab_size;
  size_t count = (size_t)a->logits.rows * (size_t)num_candidates;
  tri_status st;
  tri_sample_part_args part = {.rows = *a,
                               .first_id = (uint32_t)f->cfg.shard.vocab.first,
                               .width = num_candidates,
                               .candidates = f->buf.candidates};
  tri_sample_merge_args merge = {
      .rows = *a, .num_parts = f->cfg.group->p.tp, .width = num_candidates, .candidates = f->buf.all_candidates};
  merge.rows.logits = (tri_mat){NULL, a->logits.rows, vocab, vocab, TRI_F32};
  TRI_TRY(tri_run_sample_part(be, &part));
  TRI_TRY(c->ops->all_gather(c, part.candidates, f->buf.all_candidates, count * sizeof *part.candidates));
  if (a->results || a->drawn) st = tri_run_sample_merge(be, &merge);
cleanup:
  return st;
}
