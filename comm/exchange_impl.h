/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange's state, and how rows find their peers.
 *
 * Peers are the ranks of a column. The tables of all shards tell every rank which rows go where: no counts travel. Rows
 * packed one after the other are in the order of their senders, and of their numbers within one. */
#ifndef TRI_COMM_EXCHANGE_IMPL_H
#define TRI_COMM_EXCHANGE_IMPL_H

#include <string.h>

#include "comm/exchange.h"

struct tri_exchange {
  tri_exchange_config cfg;
  tri_exchange_form form;
  int stride;                    /* of this exchange, as its rows */
  int32_t *rows;                 /* [dp] */
  int32_t *first_rank;           /* [num_experts] */
  int32_t *targets;              /* [num_experts] the peer that has an expert; -1: another column serves it */
  int32_t *tables;               /* of each shard experts[stride, top_k], then the weights' bits */
  float *own, *others;           /* packed rows: of this shard, for all peers, and of all shards, for this rank */
  size_t *to_bytes, *from_bytes; /* [dp] packed rows to each peer and from it, in a dispatch */
  float **cursors;               /* [dp] */
  const int32_t *all_experts;    /* COORDINATED on device memory: of the last dispatch */
  /* ALLGATHER, in the memory of rows */
  int32_t *no_expert; /* [max_rows, top_k] -1 */
  float *sums;        /* [max_rows, hidden] */
};

static inline float *tri_exchange_row(const tri_exchange *e, float *rows, int shard, int row) {
  return rows + ((size_t)shard * (size_t)e->stride + (size_t)row) * (size_t)e->cfg.hidden;
}

static inline const int32_t *tri_exchange_experts(const tri_exchange *e, int shard, int row) {
  size_t table = (size_t)e->stride * (size_t)e->cfg.top_k;
  return e->tables + 2 * table * (size_t)shard + (size_t)row * (size_t)e->cfg.top_k;
}

static inline tri_status tri_exchange_gather(tri_comm *c, const void *own, void *all, size_t bytes) {
  if (c) return tri_comm_all_gather(c, own, all, bytes);
  if (own != all) memcpy(all, own, bytes);
  return TRI_OK;
}

/* Leaves n results in out, added to what is there with `accumulate`. */
static inline void tri_exchange_put(float *restrict out, const float *restrict sum, size_t n, bool accumulate) {
  if (!accumulate) memcpy(out, sum, n * sizeof *out);
  for (size_t i = 0; accumulate && i < n; i++) out[i] += sum[i];
}

/* ALLGATHER (exchange_gather.c). */
bool tri_exchange_gather_bytes(const tri_exchange_config *c, size_t *bytes);
tri_status tri_exchange_gather_create(tri_exchange *e);
void tri_exchange_gather_destroy(tri_exchange *e);
tri_status tri_exchange_gather_all(tri_exchange *e, const void *x, const int32_t *experts, const float *weights,
                                   const tri_exchange_rows *all);
tri_status tri_exchange_scatter_sums(tri_exchange *e, const float *y, float *out, bool accumulate);

/* COORDINATED on device memory (exchange_peers.c). route NULL: experts and weights are there. */
tri_status tri_exchange_push_rows(tri_exchange *e, const void *x, const int32_t *experts, const float *weights,
                                  const tri_moe_route_args *route, const tri_exchange_rows *all);
tri_status tri_exchange_add_up(tri_exchange *e, const float *y, float *out, bool accumulate);

/* COORDINATED in the host's memory (exchange_rows.c), once the tables are there. */
void tri_exchange_find_targets(tri_exchange *e);
tri_status tri_exchange_send_rows(tri_exchange *e, const float *x, float *all);
tri_status tri_exchange_return_rows(tri_exchange *e, const float *y, float *out, bool accumulate);

#endif
