/* SPDX-License-Identifier: Apache-2.0 */
/* COORDINATED in the host's memory: a row goes once to each rank of the column that has a slice of one of its experts.
 * The tables of choices have been gathered before the rows, so every rank knows which rows each other one sends, and in
 * which order: messages are rows alone, without heads or numbers. */
#include "comm/all2all_impl.h"

/* An expert's slices lie on etp neighbouring tensor ranks from first_rank % tp on: this column has one of them where
 * its t is among those, and else the expert's rows are another column's. */
void tri_all2all_find_targets(tri_all2all *e) {
  const tri_all2all_config *c = &e->cfg;
  for (int x = 0; x < c->num_experts; x++) {
    int slice = c->t - e->first_rank[x] % c->tp;
    e->targets[x] = slice >= 0 && slice < c->etp ? e->first_rank[x] / c->tp : -1;
  }
}

/* Returns whether a row of a data-parallel rank has an expert that this column's rank of `peer` has a slice of. */
static bool wants(const tri_all2all *e, int peer, int dp_rank, int row) {
  const int32_t *experts = tri_all2all_experts(e, dp_rank, row);
  for (int k = 0; k < e->cfg.top_k; k++)
    if (experts[k] >= 0 && experts[k] < e->cfg.num_experts && e->targets[experts[k]] == peer) return true;
  return false;
}

/* The receiver's count of a sender's rows: both read the same tables, so it needs no message. */
static size_t count_wanted(const tri_all2all *e, int peer, int dp_rank) {
  size_t n = 0;
  for (int row = 0; row < e->rows[dp_rank]; row++) n += wants(e, peer, dp_rank, row);
  return n;
}

/* Copies those rows of a data-parallel rank that a peer wants one after the other. Returns where the next one is
 * packed. */
static float *pack(const tri_all2all *e, int peer, int dp_rank, const float *rows, float *packed) {
  size_t hidden = (size_t)e->cfg.hidden;
  for (int row = 0; row < e->rows[dp_rank]; row++) {
    if (!wants(e, peer, dp_rank, row)) continue;
    memcpy(packed, rows + (size_t)row * hidden, hidden * sizeof *packed);
    packed += hidden;
  }
  return packed;
}

/* The counterpart of pack. Rows that the peer does not want are left as they are in `rows`. */
static const float *unpack(const tri_all2all *e, int peer, int dp_rank, const float *packed, float *rows) {
  size_t hidden = (size_t)e->cfg.hidden;
  for (int row = 0; row < e->rows[dp_rank]; row++) {
    if (!wants(e, peer, dp_rank, row)) continue;
    memcpy(rows + (size_t)row * hidden, packed, hidden * sizeof *packed);
    packed += hidden;
  }
  return packed;
}

static tri_status all_to_all(const tri_all2all *e, const float *send, const size_t *send_bytes, float *recv,
                             const size_t *recv_bytes) {
  if (e->cfg.column) return tri_comm_all_to_all(e->cfg.column, send, send_bytes, recv, recv_bytes);
  memcpy(recv, send, send_bytes[0]);
  return TRI_OK;
}

/* to_bytes and from_bytes stay for the return, which sends by the one and receives by the other, and whose rows have
 * the same order. */
tri_status tri_all2all_send_rows(tri_all2all *e, const float *x, float *all) {
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
  for (int dp_rank = 0; dp_rank < e->cfg.dp; dp_rank++)
    from = unpack(e, me, dp_rank, from, tri_all2all_row(e, all, dp_rank, 0));
  return TRI_OK;
}

/* Adds the results of a row in the order of the peers, in the first one's place. NULL: nothing has. */
static const float *sum_of_row(tri_all2all *e, int row) {
  float *sum = NULL;
  for (int peer = 0; peer < e->cfg.dp; peer++) {
    if (!wants(e, peer, e->cfg.d, row)) continue;
    float *partial = e->cursors[peer];
    e->cursors[peer] += e->cfg.hidden;
    if (sum)
      tri_all2all_put(sum, partial, (size_t)e->cfg.hidden, true);
    else
      sum = partial;
  }
  return sum;
}

/* cursors[peer] is at the peer's next result. Results lie in the order of rows, so a row moves only the cursors of the
 * peers that it went to. */
static void add_partials(tri_all2all *e, float *out, bool accumulate) {
  float *from = e->own;
  for (int peer = 0; peer < e->cfg.dp; peer++) {
    e->cursors[peer] = from;
    from += e->to_bytes[peer] / sizeof *from;
  }
  for (int row = 0; row < e->rows[e->cfg.d]; row++) {
    float *to = out + (size_t)row * (size_t)e->cfg.hidden;
    const float *sum = sum_of_row(e, row);
    if (sum)
      tri_all2all_put(to, sum, (size_t)e->cfg.hidden, accumulate);
    else if (!accumulate)
      memset(to, 0, (size_t)e->cfg.hidden * sizeof *to);
  }
}

tri_status tri_all2all_return_rows(tri_all2all *e, const float *y, float *out, bool accumulate) {
  float *to = e->others;
  for (int dp_rank = 0; dp_rank < e->cfg.dp; dp_rank++)
    to = pack(e, e->cfg.d, dp_rank, y + (size_t)dp_rank * (size_t)e->stride * (size_t)e->cfg.hidden, to);
  TRI_CHECK(all_to_all(e, e->others, e->from_bytes, e->own, e->to_bytes));
  add_partials(e, out, accumulate);
  return TRI_OK;
}
