/* SPDX-License-Identifier: Apache-2.0 */
/* COORDINATED, SHARE and FLAT: a row goes once to each peer that has one of its experts. */
#include "comm/exchange_impl.h"

void tri_exchange_find_targets(tri_exchange *e) {
  const tri_exchange_config *c = &e->cfg;
  for (int x = 0; x < c->num_experts; x++) {
    int shard = e->first_rank[x] / c->tp, slice = c->t - e->first_rank[x] % c->tp;
    struct exchange_target column = {shard, slice >= 0 && slice < c->etp};
    struct exchange_target any_column = {shard, 1}, stage = {e->first_rank[x], c->etp};
    e->targets[x] = column;
    if (e->form == TRI_EXCHANGE_SHARE) e->targets[x] = any_column;
    if (e->form == TRI_EXCHANGE_FLAT) e->targets[x] = stage;
  }
}

static tri_comm *peers_of(const tri_exchange *e) { return e->form == TRI_EXCHANGE_FLAT ? e->cfg.stage : e->cfg.column; }
static int count_peers(const tri_exchange *e) {
  return e->form == TRI_EXCHANGE_FLAT ? e->cfg.dp * e->cfg.tp : e->cfg.dp;
}
static int own_peer(const tri_exchange *e) {
  return e->form == TRI_EXCHANGE_FLAT ? e->cfg.d * e->cfg.tp + e->cfg.t : e->cfg.d;
}

/* Rows first .. end - 1 of a shard. */
struct share {
  int shard, first, end;
};

static struct share share_of_rank(const tri_exchange *e, int shard, int t) {
  int rows = e->rows[shard], tp = e->cfg.tp;
  return (struct share){shard, tri_exchange_share_start(rows, tp, t), tri_exchange_share_start(rows, tp, t + 1)};
}

static struct share share_of_peer(const tri_exchange *e, int peer) {
  if (e->form == TRI_EXCHANGE_COORDINATED) return (struct share){peer, 0, e->rows[peer]};
  if (e->form == TRI_EXCHANGE_SHARE) return share_of_rank(e, peer, e->cfg.t);
  return share_of_rank(e, peer / e->cfg.tp, peer % e->cfg.tp);
}

static bool wants(const tri_exchange *e, int peer, int shard, int row) {
  const int32_t *experts = tri_exchange_experts(e, shard, row);
  for (int k = 0; k < e->cfg.top_k; k++) {
    if (experts[k] < 0 || experts[k] >= e->cfg.num_experts) continue;
    struct exchange_target target = e->targets[experts[k]];
    if (peer >= target.first && peer < target.first + target.count) return true;
  }
  return false;
}

static size_t count_wanted(const tri_exchange *e, int peer, struct share s) {
  size_t n = 0;
  for (int row = s.first; row < s.end; row++) n += wants(e, peer, s.shard, row);
  return n;
}

/* Copies those rows of a share that a peer wants one after the other, or back; `rows` begins with the shard's first.
 * Returns where the next one is packed. */
static float *pack(const tri_exchange *e, int peer, struct share s, const float *rows, float *packed) {
  size_t hidden = (size_t)e->cfg.hidden;
  for (int row = s.first; row < s.end; row++) {
    if (!wants(e, peer, s.shard, row)) continue;
    memcpy(packed, rows + (size_t)row * hidden, hidden * sizeof *packed);
    packed += hidden;
  }
  return packed;
}

static const float *unpack(const tri_exchange *e, int peer, struct share s, const float *packed, float *rows) {
  size_t hidden = (size_t)e->cfg.hidden;
  for (int row = s.first; row < s.end; row++) {
    if (!wants(e, peer, s.shard, row)) continue;
    memcpy(rows + (size_t)row * hidden, packed, hidden * sizeof *packed);
    packed += hidden;
  }
  return packed;
}

static tri_status swap(const tri_exchange *e, const float *send, const size_t *send_bytes, float *recv,
                       const size_t *recv_bytes) {
  if (peers_of(e)) return tri_comm_all_to_all(peers_of(e), send, send_bytes, recv, recv_bytes);
  memcpy(recv, send, send_bytes[0]);
  return TRI_OK;
}

/* With SHARE a tensor group's ranks have received different rows: all of them get all of these. */
static tri_status complete_shares(tri_exchange *e, float *all) {
  size_t hidden = (size_t)e->cfg.hidden;
  e->gathered_rows = 0;
  for (int t = 0; t < e->cfg.tp; t++) {
    size_t n = 0;
    for (int shard = 0; shard < e->cfg.dp; shard++) n += count_wanted(e, e->cfg.d, share_of_rank(e, shard, t));
    if (n > e->gathered_rows) e->gathered_rows = n;
  }
  TRI_CHECK(tri_exchange_gather(e->cfg.tensor, e->narrow, e->wide, e->gathered_rows * hidden * sizeof *all));
  for (int t = 0; t < e->cfg.tp; t++) {
    const float *from = e->wide + (size_t)t * e->gathered_rows * hidden;
    for (int shard = 0; shard < e->cfg.dp; shard++)
      from = unpack(e, e->cfg.d, share_of_rank(e, shard, t), from, tri_exchange_row(e, all, shard, 0));
  }
  return TRI_OK;
}

/* The way back: each rank gets the sums of the rows that it has received. */
static tri_status reduce_shares(tri_exchange *e, const float *y) {
  size_t hidden = (size_t)e->cfg.hidden, n = e->gathered_rows * hidden;
  for (int t = 0; t < e->cfg.tp; t++) {
    float *to = e->wide + (size_t)t * n;
    for (int shard = 0; shard < e->cfg.dp; shard++)
      to = pack(e, e->cfg.d, share_of_rank(e, shard, t), y + (size_t)shard * (size_t)e->stride * hidden, to);
  }
  if (e->cfg.tensor) return tri_comm_reduce_scatter(e->cfg.tensor, e->wide, e->narrow, n);
  memcpy(e->narrow, e->wide, n * sizeof *y);
  return TRI_OK;
}

/* The buffer of the rows that a dispatch sends, and of those that it receives. SHARE needs the wide one again, to
 * complete the latter. */
static float *sent(const tri_exchange *e) { return e->form == TRI_EXCHANGE_SHARE ? e->wide : e->narrow; }
static float *received(const tri_exchange *e) { return e->form == TRI_EXCHANGE_SHARE ? e->narrow : e->wide; }

tri_status tri_exchange_send_rows(tri_exchange *e, const float *x, float *all) {
  int peers = count_peers(e), me = own_peer(e);
  size_t row_bytes = (size_t)e->cfg.hidden * sizeof *x;
  float *to = sent(e);
  for (int peer = 0; peer < peers; peer++) {
    float *end = pack(e, peer, share_of_peer(e, me), x, to);
    e->to_bytes[peer] = (size_t)(end - to) * sizeof *end;
    e->from_bytes[peer] = count_wanted(e, me, share_of_peer(e, peer)) * row_bytes;
    to = end;
  }
  TRI_CHECK(swap(e, sent(e), e->to_bytes, received(e), e->from_bytes));
  if (e->form == TRI_EXCHANGE_SHARE) return complete_shares(e, all);
  const float *from = received(e);
  for (int peer = 0; peer < peers; peer++) {
    struct share s = share_of_peer(e, peer);
    from = unpack(e, me, s, from, tri_exchange_row(e, all, s.shard, 0));
  }
  return TRI_OK;
}

/* Adds what has come back of a row in the order of the peers, in the first one's place. NULL: nothing has. */
static const float *sum_of_row(tri_exchange *e, int peers, int row) {
  float *sum = NULL;
  for (int peer = 0; peer < peers; peer++) {
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
  struct share own = share_of_peer(e, own_peer(e));
  int peers = count_peers(e);
  float *from = sent(e);
  for (int peer = 0; peer < peers; peer++) {
    e->cursors[peer] = from;
    from += e->to_bytes[peer] / sizeof *from;
  }
  for (int row = 0; row < e->rows[e->cfg.d]; row++) {
    float *to = out + (size_t)row * (size_t)e->cfg.hidden;
    const float *sum = row >= own.first && row < own.end ? sum_of_row(e, peers, row) : NULL;
    if (sum)
      tri_exchange_put(to, sum, (size_t)e->cfg.hidden, accumulate);
    else if (!accumulate)
      memset(to, 0, (size_t)e->cfg.hidden * sizeof *to);
  }
}

tri_status tri_exchange_return_rows(tri_exchange *e, const float *y, float *out, bool accumulate) {
  int peers = count_peers(e), me = own_peer(e);
  float *to = received(e);
  if (e->form == TRI_EXCHANGE_SHARE) TRI_CHECK(reduce_shares(e, y));
  for (int peer = 0; e->form != TRI_EXCHANGE_SHARE && peer < peers; peer++) {
    struct share s = share_of_peer(e, peer);
    to = pack(e, me, s, y + (size_t)s.shard * (size_t)e->stride * (size_t)e->cfg.hidden, to);
  }
  TRI_CHECK(swap(e, received(e), e->from_bytes, sent(e), e->to_bytes));
  add_partials(e, out, accumulate);
  return TRI_OK;
}
