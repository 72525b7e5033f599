/* SPDX-License-Identifier: Apache-2.0 */
/* ALLGATHER: three all-gathers and a reduce-scatter along the column, in the order of the backend's compute stream. */
#include "comm/all2all_impl.h"
#include "base/mem.h"

static size_t row_bytes(const tri_all2all_config *c) { return (size_t)c->hidden * tri_dtype_size(c->type); }
static size_t choice_bytes(const tri_all2all_config *c) { return (size_t)c->top_k * sizeof(int32_t); }

bool tri_all2all_gather_bytes(const tri_all2all_config *c, size_t *bytes) {
  size_t rows = (size_t)c->max_rows, sums;
  return tri_size_mul(rows, choice_bytes(c), bytes) && tri_size_mul(rows, (size_t)c->hidden * sizeof(float), &sums) &&
         tri_size_add(*bytes, sums, bytes);
}

/* ---- memory ---- */

static tri_status take(tri_all2all *e, size_t bytes, void *out) {
  tri_backend *be = e->cfg.backend;
  if (be) return be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, bytes, out);
  *(void **)out = tri_malloc(bytes, 1);
  return *(void **)out ? TRI_OK : TRI_NO_MEMORY;
}

static void give_back(tri_all2all *e, void *p, size_t bytes) {
  tri_backend *be = e->cfg.backend;
  if (!be)
    tri_free(p);
  else if (p)
    be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, p, bytes);
}

tri_status tri_all2all_gather_create(tri_all2all *e) {
  const tri_all2all_config *c = &e->cfg;
  size_t rows = (size_t)c->max_rows, ids = rows * choice_bytes(c);
  tri_status st = TRI_OK;
  int32_t *none = tri_malloc(ids, 1);
  if (!none) return TRI_NO_MEMORY;
  /* All bits set is -1 in every id. */
  memset(none, 0xff, ids);
  TRI_TRY(take(e, ids, &e->no_expert));
  TRI_TRY(take(e, rows * (size_t)c->hidden * sizeof(float), &e->sums));
  if (c->backend)
    c->backend->ops.upload(c->backend, e->no_expert, none, ids);
  else
    memcpy(e->no_expert, none, ids);
  if (c->backend) st = c->backend->ops.stream_sync(c->backend);
cleanup:
  tri_free(none);
  return st;
}

void tri_all2all_gather_destroy(tri_all2all *e) {
  size_t rows = (size_t)e->cfg.max_rows;
  give_back(e, e->no_expert, rows * choice_bytes(&e->cfg));
  give_back(e, e->sums, rows * (size_t)e->cfg.hidden * sizeof(float));
}

/* ---- exchanges ---- */

static void copy(const tri_all2all *e, void *to, const void *from, size_t bytes) {
  tri_backend *be = e->cfg.backend;
  if (!bytes) return;
  if (be)
    be->ops.copy_rows(be, to, bytes, from, bytes, bytes, 1);
  else
    memcpy(to, from, bytes);
}

/* Puts this data-parallel rank's rows to their place among all, and gathers the column's. Rows that it does not have
 * keep what was there. */
static tri_status gather(const tri_all2all *e, void *all, const void *own, size_t bytes_of_row) {
  size_t part = (size_t)e->stride * bytes_of_row;
  char *place = (char *)all + (size_t)e->cfg.d * part;
  copy(e, place, own, (size_t)e->rows[e->cfg.d] * bytes_of_row);
  return tri_all2all_gather(e->cfg.column, place, all, part);
}

/* Rows that a data-parallel rank does not have want no expert: their elements are not read. */
tri_status tri_all2all_gather_all(tri_all2all *e, const void *x, const int32_t *experts, const float *weights,
                                  const tri_all2all_rows *all) {
  const tri_all2all_config *c = &e->cfg;
  size_t ids = choice_bytes(c), own = (size_t)e->rows[c->d], first = (size_t)c->d * (size_t)e->stride + own;
  copy(e, (char *)all->experts + first * ids, e->no_expert, ((size_t)e->stride - own) * ids);
  TRI_CHECK(gather(e, all->experts, experts, ids));
  TRI_CHECK(gather(e, all->weights, weights, ids));
  return gather(e, all->x, x, row_bytes(c));
}

tri_status tri_all2all_scatter_sums(tri_all2all *e, const float *y, float *out, bool accumulate) {
  size_t hidden = (size_t)e->cfg.hidden, own = (size_t)e->rows[e->cfg.d] * hidden;
  /* The reduce-scatter leaves stride rows: it can write to `out` only where that has as many. */
  bool whole = !accumulate && e->rows[e->cfg.d] == e->stride;
  float *sums = whole ? out : e->sums;
  if (accumulate && e->cfg.device) return TRI_UNSUPPORTED;
  if (e->cfg.column)
    TRI_CHECK(tri_comm_reduce_scatter(e->cfg.column, y, sums, (size_t)e->stride * hidden));
  else
    copy(e, sums, y, own * sizeof *y);
  if (accumulate)
    tri_all2all_put(out, sums, own, true);
  else if (!whole)
    copy(e, out, sums, own * sizeof *out);
  return TRI_OK;
}
