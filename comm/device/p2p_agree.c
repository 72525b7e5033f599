/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks learn together what one of them cannot do. */
#include <stdio.h>

#include "comm/device/p2p_impl.h"

tri_status tri_p2p_need(cudaError_t e, const char *what, tri_error *err) {
  if (e == cudaSuccess) return TRI_OK;
  cudaGetLastError(); /* it does not stick */
  return tri_fail(err, TRI_UNSUPPORTED, "p2p", "%s: %s", what, cudaGetErrorString(e));
}

tri_status tri_p2p_agree(tri_comm *host, const tri_error *mine, tri_error *err) {
  struct verdict {
    int32_t failed;
    char why[156];
  } verdict = {.failed = mine->status != TRI_OK}, all[TRI_P2P_RANKS];
  snprintf(verdict.why, sizeof verdict.why, "%.155s", mine->message);
  tri_status st = tri_comm_all_gather(host, &verdict, all, sizeof verdict);
  if (st != TRI_OK) return tri_fail(err, st, "comm", "the ranks cannot reach each other: %s", tri_status_text(st));
  for (int r = 0; r < host->size; r++)
    if (all[r].failed) return tri_fail(err, TRI_UNSUPPORTED, "p2p", "rank %d: %.155s", r, all[r].why);
  return TRI_OK;
}
