/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/comm/paper_all2all.h"

#include <stdlib.h>
#include <string.h>

#include "tests/comm/all2all_test.h"

/* The peers that have an expert: ranks first .. first + count - 1 of the stage, or the shard `first`. */
struct target {
  int first, count;
};

struct paper_all2all {
  tri_all2all_config cfg;
  bool flat;
  int stride;
  size_t gathered_rows; /* of each tensor rank, on the paper's way */
  int32_t *rows, *first_rank, *tables;
  struct target *targets;
  float *sent, *received, *complete; /* packed rows */
  size_t *to_bytes, *from_bytes;
  float **cursors;
};

/* Rows first .. end - 1 of a shard. */
struct part {
  int shard, first, end;
};

paper_all2all *paper_all2all_make(const tri_all2all_config *config) {
  size_t dp = (size_t)config->dp, tp = (size_t)config->tp, experts = (size_t)config->num_experts;
  size_t rows = (size_t)config->max_rows, elements = dp * tp * rows * (size_t)config->hidden;
  paper_all2all *e = test_alloc(1, sizeof *e);
  *e = (paper_all2all){
      .cfg = *config,
      .rows = test_alloc(dp, sizeof *e->rows),
      .first_rank = test_alloc(experts, sizeof *e->first_rank),
      .tables = test_alloc(2 * dp * rows * (size_t)config->top_k, sizeof *e->tables),
      .targets = test_alloc(experts, sizeof *e->targets),
      .sent = test_alloc(elements, sizeof *e->sent),
      .received = test_alloc(elements, sizeof *e->received),
      .complete = test_alloc(elements, sizeof *e->complete),
      .to_bytes = test_alloc(dp * tp, sizeof *e->to_bytes),
      .from_bytes = test_alloc(dp * tp, sizeof *e->from_bytes),
      .cursors = test_alloc(dp * tp, sizeof *e->cursors),
  };
  memcpy(e->first_rank, config->first_rank, experts * sizeof *e->first_rank);
  return e;
}

void paper_all2all_free(paper_all2all *e) {
  void *blocks[] = {e->rows,     e->first_rank, e->tables,     e->targets, e->sent,
                    e->received, e->complete,   e->from_bytes, e->cursors, e->to_bytes};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
  free(e);
}

static tri_comm *peers_of(const paper_all2all *e) { return e->flat ? e->cfg.stage : e->cfg.column; }
static int count_peers(const paper_all2all *e) { return e->flat ? e->cfg.dp * e->cfg.tp : e->cfg.dp; }
static int own_peer(const paper_all2all *e) { return e->flat ? e->cfg.d * e->cfg.tp + e->cfg.t : e->cfg.d; }

static void find_targets(paper_all2all *e) {
  for (int x = 0; x < e->cfg.num_experts; x++) {
    struct target stage = {e->first_rank[x], e->cfg.etp}, column = {e->first_rank[x] / e->cfg.tp, 1};
    e->targets[x] = e->flat ? stage : column;
  }
}

static float *row_of(const paper_all2all *e, float *rows, int shard) {
  return rows + (size_t)shard * (size_t)e->stride * (size_t)e->cfg.hidden;
}

static struct part part_of_rank(const paper_all2all *e, int shard, int t) {
  int rows = e->rows[shard], tp = e->cfg.tp;
  return (struct part){shard, rows * t / tp, rows * (t + 1) / tp};
}

static struct part part_of_peer(const paper_all2all *e, int peer) {
  return e->flat ? part_of_rank(e, peer / e->cfg.tp, peer % e->cfg.tp) : part_of_rank(e, peer, e->cfg.t);
}

static bool wants(const paper_all2all *e, int peer, int shard, int row) {
  size_t top_k = (size_t)e->cfg.top_k, table = (size_t)e->stride * top_k;
  const int32_t *experts = e->tables + 2 * table * (size_t)shard + (size_t)row * top_k;
  for (size_t k = 0; k < top_k; k++) {
    if (experts[k] < 0 || experts[k] >= e->cfg.num_experts) continue;
    struct target target = e->targets[experts[k]];
    if (peer >= target.first && peer < target.first + target.count) return true;
  }
  return false;
}

static size_t count_wanted(const paper_all2all *e, int peer, struct part s) {
  size_t n = 0;
  for (int row = s.first; row < s.end; row++) n += wants(e, peer, s.shard, row);
  return n;
}

/* Copies the rows of a part that a peer wants one after the other, or back. */
static float *pack(const paper_all2all *e, int peer, struct part s, const float *rows, float *packed) {
  size_t hidden = (size_t)e->cfg.hidden;
  for (int row = s.first; row < s.end; row++) {
    if (!wants(e, peer, s.shard, row)) continue;
    memcpy(packed, rows + (size_t)row * hidden, hidden * sizeof *packed);
    packed += hidden;
  }
  return packed;
}

static const float *unpack(const paper_all2all *e, int peer, struct part s, const float *packed, float *rows) {
  size_t hidden = (size_t)e->cfg.hidden;
  for (int row = s.first; row < s.end; row++) {
    if (!wants(e, peer, s.shard, row)) continue;
    memcpy(rows + (size_t)row * hidden, packed, hidden * sizeof *packed);
    packed += hidden;
  }
  return packed;
}

static tri_status all_to_all(const paper_all2all *e, const float *send, const size_t *send_bytes, float *recv,
                             const size_t *recv_bytes) {
  if (peers_of(e)) return tri_comm_all_to_all(peers_of(e), send, send_bytes, recv, recv_bytes);
  memcpy(recv, send, send_bytes[0]);
  return TRI_OK;
}

static tri_status gather(tri_comm *c, const void *own, void *all, size_t bytes) {
  if (c) return tri_comm_all_gather(c, own, all, bytes);
  if (own != all) memcpy(all, own, bytes);
  return TRI_OK;
}

static tri_status gather_tables(paper_all2all *e, const int32_t *experts, const float *weights,
                                const tri_all2all_rows *all) {
  size_t top_k = (size_t)e->cfg.top_k, table = (size_t)e->stride * top_k, n = (size_t)e->rows[e->cfg.d] * top_k;
  int32_t *own = e->tables + 2 * table * (size_t)e->cfg.d;
  memset(own, 0, 2 * table * sizeof *own);
  memcpy(own, experts, n * sizeof *own);
  memcpy(own + table, weights, n * sizeof *own);
  for (size_t i = n; i < table; i++) own[i] = -1;
  TRI_CHECK(gather(e->cfg.column, own, e->tables, 2 * table * sizeof *own));
  for (size_t d = 0; d < (size_t)e->cfg.dp; d++) {
    memcpy(all->experts + d * table, e->tables + 2 * d * table, table * sizeof *own);
    memcpy(all->weights + d * table, e->tables + (2 * d + 1) * table, table * sizeof *own);
  }
  return TRI_OK;
}

/* A tensor group's ranks have received different rows: all of them get all of these. */
static tri_status complete_rows(paper_all2all *e, float *all) {
  size_t hidden = (size_t)e->cfg.hidden;
  e->gathered_rows = 0;
  for (int t = 0; t < e->cfg.tp; t++) {
    size_t n = 0;
    for (int shard = 0; shard < e->cfg.dp; shard++) n += count_wanted(e, e->cfg.d, part_of_rank(e, shard, t));
    if (n > e->gathered_rows) e->gathered_rows = n;
  }
  TRI_CHECK(gather(e->cfg.tensor, e->received, e->complete, e->gathered_rows * hidden * sizeof *all));
  for (int t = 0; t < e->cfg.tp; t++) {
    const float *from = e->complete + (size_t)t * e->gathered_rows * hidden;
    for (int shard = 0; shard < e->cfg.dp; shard++)
      from = unpack(e, e->cfg.d, part_of_rank(e, shard, t), from, row_of(e, all, shard));
  }
  return TRI_OK;
}

/* The way back: each rank gets the sums of the rows that it has received. */
static tri_status reduce_rows(paper_all2all *e, const float *y) {
  size_t hidden = (size_t)e->cfg.hidden, n = e->gathered_rows * hidden;
  for (int t = 0; t < e->cfg.tp; t++) {
    float *to = e->complete + (size_t)t * n;
    for (int shard = 0; shard < e->cfg.dp; shard++)
      to = pack(e, e->cfg.d, part_of_rank(e, shard, t), y + (size_t)shard * (size_t)e->stride * hidden, to);
  }
  if (e->cfg.tensor) return tri_comm_reduce_scatter(e->cfg.tensor, e->complete, e->received, n);
  memcpy(e->received, e->complete, n * sizeof *y);
  return TRI_OK;
}

tri_status paper_all2all_dispatch(paper_all2all *e, bool flat, const int32_t *rows, const float *x,
                                  const int32_t *experts, const float *weights, const tri_all2all_rows *all) {
  size_t row_bytes = (size_t)e->cfg.hidden * sizeof *x;
  e->flat = flat;
  e->stride = 0;
  for (int d = 0; d < e->cfg.dp; d++) {
    e->rows[d] = rows[d];
    if (rows[d] > e->stride) e->stride = rows[d];
  }
  if (!e->stride) return TRI_OK;
  find_targets(e);
  TRI_CHECK(gather_tables(e, experts, weights, all));
  int peers = count_peers(e), me = own_peer(e);
  float *to = e->sent;
  for (int peer = 0; peer < peers; peer++) {
    float *end = pack(e, peer, part_of_peer(e, me), x, to);
    e->to_bytes[peer] = (size_t)(end - to) * sizeof *end;
    e->from_bytes[peer] = count_wanted(e, me, part_of_peer(e, peer)) * row_bytes;
    to = end;
  }
  TRI_CHECK(all_to_all(e, e->sent, e->to_bytes, e->received, e->from_bytes));
  if (!flat) return complete_rows(e, all->x);
  const float *from = e->received;
  for (int peer = 0; peer < peers; peer++) {
    struct part s = part_of_peer(e, peer);
    from = unpack(e, me, s, from, row_of(e, all->x, s.shard));
  }
  return TRI_OK;
}

/* Adds n elements to out, or leaves them there. */
static void put(float *out, const float *sum, size_t n, bool accumulate) {
  for (size_t i = 0; i < n; i++) out[i] = accumulate ? out[i] + sum[i] : sum[i];
}

/* Adds what has come back of a row in the order of the peers, in the first one's place. NULL: nothing has. */
static const float *sum_of_row(paper_all2all *e, int row) {
  float *sum = NULL;
  for (int peer = 0; peer < count_peers(e); peer++) {
    if (!wants(e, peer, e->cfg.d, row)) continue;
    float *partial = e->cursors[peer];
    e->cursors[peer] += e->cfg.hidden;
    if (sum)
      put(sum, partial, (size_t)e->cfg.hidden, true);
    else
      sum = partial;
  }
  return sum;
}

static void add_partials(paper_all2all *e, float *out, bool accumulate) {
  struct part own = part_of_peer(e, own_peer(e));
  size_t hidden = (size_t)e->cfg.hidden;
  float *from = e->sent;
  for (int peer = 0; peer < count_peers(e); peer++) {
    e->cursors[peer] = from;
    from += e->to_bytes[peer] / sizeof *from;
  }
  for (int row = 0; row < e->rows[e->cfg.d]; row++) {
    float *to = out + (size_t)row * hidden;
    const float *sum = row >= own.first && row < own.end ? sum_of_row(e, row) : NULL;
    if (sum)
      put(to, sum, hidden, accumulate);
    else if (!accumulate)
      memset(to, 0, hidden * sizeof *to);
  }
}

tri_status paper_all2all_combine(paper_all2all *e, const float *y, float *out, bool accumulate) {
  float *to = e->received;
  if (!e->stride) return TRI_OK;
  if (!e->flat) TRI_CHECK(reduce_rows(e, y));
  for (int peer = 0; e->flat && peer < count_peers(e); peer++) {
    struct part s = part_of_peer(e, peer);
    to = pack(e, own_peer(e), s, y + (size_t)s.shard * (size_t)e->stride * (size_t)e->cfg.hidden, to);
  }
  TRI_CHECK(all_to_all(e, e->received, e->from_bytes, e->sent, e->to_bytes));
  add_partials(e, out, accumulate);
  return TRI_OK;
}
