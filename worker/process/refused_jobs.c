/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/process/refused_jobs.h"

#include "base/mem.h"

tri_status tri_refusals_add(tri_refusals *r, uint64_t job, const tri_error *err) {
  tri_refusal *one = tri_malloc(1, sizeof *one);
  if (!one) return TRI_NO_MEMORY;
  *one = (tri_refusal){.job = job, .err = *err};
  STAILQ_INSERT_TAIL(r, one, links);
  return TRI_OK;
}

static void drop_first(tri_refusals *r) {
  tri_refusal *one = STAILQ_FIRST(r);
  STAILQ_REMOVE_HEAD(r, links);
  tri_free(one);
}

void tri_refusals_flush(tri_refusals *r, tri_refusals_send *send, void *ctx) {
  for (const tri_refusal *one; (one = STAILQ_FIRST(r)) && send(ctx, one) != TRI_AGAIN;) drop_first(r);
}

void tri_refusals_forget(tri_refusals *r) {
  while (!STAILQ_EMPTY(r)) drop_first(r);
}
