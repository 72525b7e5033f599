/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the communicator over peers' memory, checks it, and chooses by measurement which sums it takes from NCCL. A
 * machine may report peer access that does not work: no step uses it before every rank has compared what came with what
 * was sent. */
#include "comm/device/p2p.h"

#include <stdio.h>

#include "comm/device/nccl.h"
#include "comm/device/p2p_impl.h"

/* ---- ops ---- */

static tri_status p2p_all_reduce(tri_comm *c, float *buf, size_t count) {
  return tri_p2p_sum(c, tri_p2p_algorithm_of(c, count), buf, count);
}

static tri_status p2p_all_gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  return tri_p2p_gather(c, tri_p2p_gather_algorithm_of(c, send, recv, bytes), send, recv, bytes);
}

/* The fallback's error is this communicator's, too, for some of its calls go there. */
static tri_status p2p_poll(tri_comm *c) {
  tri_status st = tri_comm_query(c);
  return st == TRI_OK ? tri_comm_note(c, tri_comm_poll(c->fallback)) : st;
}

static void p2p_abort(tri_comm *c) { tri_comm_abort(c->fallback); }

/* Every rank closes its peers' memory before any of them frees its own: hence the barrier in between. */
static void p2p_destroy(tri_comm *c) {
  tri_comm *library = c->fallback, *host = tri_p2p_impl_of(c)->host;
  bool sound = tri_comm_query(c) == TRI_OK && tri_comm_query(host) == TRI_OK;
  /* A peer that is gone must not be waited for: neither by our kernels, which look at the error, nor by the other
   * one's. */
  if (!sound) {
    tri_comm_abort(c);
    tri_comm_destroy(library);
  }
  tri_p2p_close(c);
  if (sound) tri_comm_barrier(host);
  tri_p2p_free(c);
  if (sound) tri_comm_destroy(library);
}

/* A tensor group's communicator has sums and gathers of its own, that of stages has transfers, a column's has rows. */
static const tri_comm_ops sum_ops = {
    .name = "p2p",
    .all_reduce = p2p_all_reduce,
    .all_gather = p2p_all_gather,
    .poll = p2p_poll,
    .abort = p2p_abort,
    .destroy = p2p_destroy,
};

static const tri_comm_ops transfer_ops = {
    .name = "p2p",
    .isend = tri_p2p_send,
    .wait = tri_p2p_wait_sent,
    .recv = tri_p2p_receive,
    .poll = p2p_poll,
    .abort = p2p_abort,
    .destroy = p2p_destroy,
};

static const tri_comm_ops row_ops = {
    .name = "p2p",
    .dispatch = tri_p2p_dispatch,
    .combine = tri_p2p_combine,
    .poll = p2p_poll,
    .abort = p2p_abort,
    .destroy = p2p_destroy,
};

/* ---- set-up ---- */

/* "..., 128K 4.8 - 7.3, ..." */
static void describe(tri_comm *c) {
  const tri_p2p_impl *p = tri_p2p_impl_of(c);
  int n = snprintf(c->about, sizeof c->about, "all-reduce over %d GPUs, us (one shot, two, NCCL)", c->size);
  for (int k = 0; k < TRI_P2P_SIZES; k++) {
    n += snprintf(c->about + n, sizeof c->about - (size_t)n, "%s %zuK", k ? "," : ":", tri_p2p_size(k) >> 10);
    for (int w = 0; w < TRI_P2P_ALGORITHMS; w++)
      n += p->figures.us[k][w] > 0 ? snprintf(c->about + n, sizeof c->about - (size_t)n, " %.1f", p->figures.us[k][w])
                                   : snprintf(c->about + n, sizeof c->about - (size_t)n, " -");
  }
}

/* The slowest rank's figures count, on all ranks the same. */
static tri_status agree_on_figures(tri_comm *c, tri_error *err) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  tri_p2p_figures all[TRI_P2P_RANKS];
  tri_status st = tri_comm_all_gather(p->host, &p->figures, all, sizeof *all);
  if (st != TRI_OK) return tri_fail(err, st, "comm", "the ranks cannot reach each other: %s", tri_status_text(st));
  for (int r = 0; r < c->size; r++)
    for (int k = 0; k < TRI_P2P_SIZES; k++)
      for (int w = 0; w < TRI_P2P_ALGORITHMS; w++)
        if (all[r].us[k][w] > p->figures.us[k][w]) p->figures.us[k][w] = all[r].us[k][w];
  describe(c);
  return TRI_OK;
}

/* With the memory open on all sides: checks that it works, and measures. */
static tri_status try_sums(tri_comm *c, tri_error *err) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  float *buf = NULL;
  tri_error here = {0};
  tri_status st;
  tri_p2p_need(cudaMalloc((void **)&buf, tri_p2p_size(TRI_P2P_SIZES - 1)), "no device memory", &here);
  TRI_TRY(tri_p2p_agree(p->host, &here, err));
  tri_p2p_check(c, buf, &here);
  TRI_TRY(tri_p2p_agree(p->host, &here, err));
  tri_p2p_measure(c, buf, &p->figures, &here);
  TRI_TRY(tri_p2p_agree(p->host, &here, err));
  TRI_TRY(agree_on_figures(c, err));
cleanup:
  cudaFree(buf);
  return st;
}

static tri_status try_mailboxes(tri_comm *c, tri_error *err) {
  tri_error here = {0};
  tri_p2p_check_mailboxes(c, &here);
  snprintf(c->about, sizeof c->about, "transfers between stages over peers' memory");
  return tri_p2p_agree(tri_p2p_impl_of(c)->host, &here, err);
}

static tri_status try_rows(tri_comm *c, tri_error *err) {
  tri_error here = {0};
  tri_p2p_check_rows(c, &here);
  snprintf(c->about, sizeof c->about, "experts' rows between %d GPUs by peer access", c->size);
  return tri_p2p_agree(tri_p2p_impl_of(c)->host, &here, err);
}

tri_status tri_comm_p2p_create(tri_backend *be, tri_comm *host, tri_comm *rest, tri_comm_use use,
                               const tri_rows_config *rows, tri_comm **out, tri_error *err) {
  static const tri_comm_ops *const ops[] = {
      [TRI_COMM_SUMS] = &sum_ops, [TRI_COMM_TRANSFERS] = &transfer_ops, [TRI_COMM_ROWS] = &row_ops};
  static tri_status (*const try[])(tri_comm *, tri_error *) = {
      [TRI_COMM_SUMS] = try_sums, [TRI_COMM_TRANSFERS] = try_mailboxes, [TRI_COMM_ROWS] = try_rows};
  tri_comm *c = NULL;
  tri_status st;
  if (host->size < 2 || host->size > TRI_P2P_RANKS)
    return tri_fail(err, TRI_UNSUPPORTED, "p2p", "2 to %d GPUs, not %d", TRI_P2P_RANKS, host->size);
  TRI_TRY(tri_p2p_open(be, host, use, rows, &c, err));
  c->fallback = rest;
  c->ops = ops[use];
  TRI_TRY(try[use](c, err));
  c->cfg.timeout_ms = host->cfg.timeout_ms;
  *out = c;
  return TRI_OK;
cleanup:
  if (c) tri_p2p_close(c);
  if (st == TRI_UNSUPPORTED) tri_comm_barrier(host); /* all come here */
  if (c) tri_p2p_free(c);
  return st;
}

tri_status tri_comm_device_create(tri_backend *be, tri_comm *host, tri_comm_use use, tri_comm **out, tri_error *err) {
  tri_comm *nccl = NULL;
  tri_error why = {0};
  tri_status st = tri_comm_nccl_create(be, host, &nccl, err);
  if (st != TRI_OK) return st;
  *out = nccl;
  if (be->no_peer_memory || use == TRI_COMM_ROWS) return TRI_OK;
  st = tri_comm_p2p_create(be, host, nccl, use, NULL, out, &why);
  if (st == TRI_OK) return TRI_OK;
  if (st == TRI_UNSUPPORTED) {
    *out = nccl;
    snprintf(nccl->about, sizeof nccl->about, "%s by NCCL alone: %.200s",
             use == TRI_COMM_SUMS ? "all-reduce" : "transfers between stages", why.message);
    return TRI_OK;
  }
  *out = NULL;
  tri_comm_abort(nccl);
  tri_comm_destroy(nccl);
  return tri_fail(err, st, why.field, "%s", why.message);
}

tri_status tri_comm_device_add_rows(tri_backend *be, tri_comm *host, const tri_rows_config *rows, tri_comm **c,
                                    tri_error *err) {
  if (be->no_peer_memory) return tri_fail(err, TRI_UNSUPPORTED, "p2p", "it is switched off");
  return tri_comm_p2p_create(be, host, *c, TRI_COMM_ROWS, rows, c, err);
}
