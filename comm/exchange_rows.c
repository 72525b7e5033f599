/* SPDX-License-Identifier: Apache-2.0 */
/* COORDINATED in the host's memory: a row goes once to each rank of the column that has a slice of one of its experts.
 */
#include "comm/exchange_impl.h"

void tri_exchange_find_targets(tri_exchange *e) {
  const tri_exchange_config *c = &e->cfg;
  for (int x = 0; x < c->num_experts; x++) {
    int slice = c->t - e->first_rank[x] % c->tp;
    e->targets[x] = slice >= 0 && slice < c->etp ? e->first_rank[x] / c->tp : -1;
  }
}

/* Returns whether a row of a shard has an expert that this column's rank of `peer` has a slice of. */
static bool wants(const tri_exchange *e, int peer, int shard, int row) {
  const int32_t *experts = tri_exchange_experts(e, shard, row);
  for (int k = 0; k < e->cfg.top_k; k++)
    if (experts[k] >= 0 && experts[k] < e->cfg.num_experts && e->targets[experts[k]] == peer) return true;
  return false;
}

static size_t count_wanted(const tri_exchange *e, int peer, int shard) {
  size_t n = 0;
  for (int row = 0; row < e->rows[shard]; row++) n += wants(e, peer, shard, row);
  return n;
}

/* Copies those rows of a shard that a peer wants one after the other. Returns where the next one is packed. */
static float *pack(const tri_exchange *e, int peer, int shard, const float *rows, float *packed) {
  size_t hidden = (size_t)e->cfg.hidden;
  for (int row = 0; row < e->rows[shard]; row++) {
    if (!wants(e, peer, shard, row)) continue;
    memcpy(packed, rows + (size_t)row * hidden, hidden * sizeof *packed);
    packed += hidden;
  }
  return packed;
}

static const float *unpack(const tri_exchange *e, int peer, int shard, const float *packed, float *rows) {
  size_t hidden = (size_t)e->cfg.hidden;
  for (int row = 0; row < e->rows[shard]; row++) {
    if (!wants(e, peer, shard, row)) continue;
    memcpy(rows + (size_t)row * hidden, packed, hidden * sizeof *packed);
    packed += hidden;
  }
  return packed;
}

static tri_status all_to_all(const tri_exchange *e, const float *send, const size_t *send_bytes, float *recv,
                             const size_t *recv_bytes) {
  if (e->cfg.column) return tri_comm_all_to_all(e->cfg.column, send, send_bytes, recv, recv_bytes);
  memcpy(recv, send, send_bytes[0]);
  return TRI_OK;
}

tri_status tri_exchange_send_rows(tri_exchange *e, const float *x, float *all) {
  int me = e->cfg.d;
  size_t row_bytes = (size_t)e->cfg.hidden * sizeof *x;
  float *to = e->own;
  for (int peer = 0; peer < e->cfg.dp; peer++) {
    float *end = pack(e, peer, me, x, to);
    e->to_bytes[peer] = (size_t)(end - to) * sizeof *end;
    e->from_bytes[peer] = count_wanted(e, me, peer) * row_bytes;
    to = end;
  }
  TRI_CHECK(all_to_all(e, e->own, e->to_bytes, e->others, e->from_bytes));
  const float *from = e->others;
  for (int shard = 0; shard < e->cfg.dp; shard++) from = unpack(e, me, shard, from, tri_exchange_row(e, all, shard, 0));
  return TRI_OK;
}

/* Adds what has come back of a row in the order of the peers, in the first one's place. NULL: nothing has. */
static const float *sum_of_row(tri_exchange *e, int row) {
  float *sum = NULL;
  for (int peer = 0; peer < e->cfg.dp; peer++) {
    if (!wants(e, peer, e->cfg.d, row)) continue;
    float *partial = e->cursors[peer];
    e->cursors[peer] += e->cfg.hidden;
    if (sum)
      tri_exchange_put(sum, partial, (size_t)e->cfg.hidden, true);
    else
      sum = partial;
  }
  return sum;
}

static void add_partials(tri_exchange *e, float *out, bool accumulate) {
  float *from = e->own;
  for (int peer = 0; peer < e->cfg.dp; peer++) {
    e->cursors[peer] = from;
    from += e->to_bytes[peer] / sizeof *from;
  }
  for (int row = 0; row < e->rows[e->cfg.d]; row++) {
    float *to = out + (size_t)row * (size_t)e->cfg.hidden;
    const float *sum = sum_of_row(e, row);
    if (sum)
      tri_exchange_put(to, sum, (size_t)e->cfg.hidden, accumulate);
    else if (!accumulate)
      memset(to, 0, (size_t)e->cfg.hidden * sizeof *to);
  }
}

tri_status tri_exchange_return_rows(tri_exchange *e, const float *y, float *out, bool accumulate) {
  float *to = e->others;
  for (int shard = 0; shard < e->cfg.dp; shard++)
    to = pack(e, e->cfg.d, shard, y + (size_t)shard * (size_t)e->stride * (size_t)e->cfg.hidden, to);
  TRI_CHECK(all_to_all(e, e->others, e->from_bytes, e->own, e->to_bytes));
  add_partials(e, out, accumulate);
  return TRI_OK;
}
