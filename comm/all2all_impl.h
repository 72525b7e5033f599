/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange's state, and how rows find their peers.
 *
 * Peers are the ranks of a column. The tables of all data-parallel ranks tell every rank which rows go where: no counts
 * travel. Rows packed one after the other are in the order of their senders, and of their numbers within one. */
#ifndef TRI_COMM_ALL2ALL_IMPL_H
#define TRI_COMM_ALL2ALL_IMPL_H

#include <string.h>

#include "comm/all2all.h"

struct tri_all2all {
  tri_all2all_config cfg;
  tri_all2all_form form;
  bool rounds;         /* rows may travel rounded */
  int stride;          /* of this exchange, as its rows */
  int32_t *rows;       /* [dp] */
  int32_t *first_rank; /* [num_experts] */
  int32_t *targets;    /* [num_experts] the peer that has an expert; -1: another column serves it */
  int32_t *tables;     /* of each data-parallel rank experts[stride, top_k], then the weights' bits */
  float *own, *others; /* packed rows: of this data-parallel rank, for all peers, and of all data-parallel ranks, for
                          this rank */
  size_t *to_bytes, *from_bytes; /* [dp] packed rows to each peer and from it, in a dispatch */
  float **cursors;               /* [dp] */
  const int32_t *all_experts;    /* COORDINATED on device memory: of the last dispatch */
  /* ALLGATHER, in the memory of rows */
  int32_t *no_expert; /* [max_rows, top_k] -1 */
  float *sums;        /* [max_rows, hidden] */
};

static inline float *tri_all2all_row(const tri_all2all *e, float *rows, int dp_rank, int row) {
  return rows + ((size_t)dp_rank * (size_t)e->stride + (size_t)row) * (size_t)e->cfg.hidden;
}

static inline const int32_t *tri_all2all_experts(const tri_all2all *e, int dp_rank, int row) {
  size_t table = (size_t)e->stride * (size_t)e->cfg.top_k;
  return e->tables + 2 * table * (size_t)dp_rank + (size_t)row * (size_t)e->cfg.top_k;
}

static inline tri_status tri_all2all_gather(tri_comm *c, const void *own, void *all, size_t bytes) {
  if (c) return tri_comm_all_gather(c, own, all, bytes);
  if (own != all) memcpy(all, own, bytes);
  return TRI_OK;
}

/* Leaves n results in out, added to what is there with `accumulate`. */
static inline void tri_all2all_put(float *restrict out, const float *restrict sum, size_t n, bool accumulate) {
  if (!accumulate) memcpy(out, sum, n * sizeof *out);
  for (size_t i = 0; accumulate && i < n; i++) out[i] += sum[i];
}

/* ALLGATHER (all2all_gather.c). */
bool tri_all2all_gather_bytes(const tri_all2all_config *c, size_t *bytes);
tri_status tri_all2all_gather_create(tri_all2all *e);
void tri_all2all_gather_destroy(tri_all2all *e);
tri_status tri_all2all_gather_all(tri_all2all *e, const void *x, const int32_t *experts, const float *weights,
                                  const tri_all2all_rows *all);
tri_status tri_all2all_scatter_sums(tri_all2all *e, const float *y, float *out, bool accumulate);

/* COORDINATED on device memory (all2all_peers.c). route NULL: experts and weights are there. */
tri_status tri_all2all_push_rows(tri_all2all *e, const void *x, const int32_t *experts, const float *weights,
                                 const tri_moe_route_args *route, const tri_all2all_rows *all);
tri_status tri_all2all_add_up(tri_all2all *e, const float *y, float *out, bool accumulate);

/* COORDINATED in the host's memory (all2all_rows.c), once the tables are there. */
void tri_all2all_find_targets(tri_all2all *e);
tri_status tri_all2all_send_rows(tri_all2all *e, const float *x, float *all);
tri_status tri_all2all_return_rows(tri_all2all *e, const float *y, float *out, bool accumulate);

#endif
