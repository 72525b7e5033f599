/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that a worker refuses, until the refusal is sent: one that was lost would leave the job waiting. */
#ifndef TRI_WORKER_PROCESS_REFUSED_JOBS_H
#define TRI_WORKER_PROCESS_REFUSED_JOBS_H

#include <stdint.h>
#include <sys/queue.h>

#include "base/status.h"

typedef struct tri_refusal {
  STAILQ_ENTRY(tri_refusal) links;
  uint64_t job;
  tri_error err;
} tri_refusal;

typedef STAILQ_HEAD(tri_refusals, tri_refusal) tri_refusals;

tri_status tri_refusals_add(tri_refusals *r, uint64_t job, const tri_error *err); /* copies *err. TRI_NO_MEMORY */
typedef tri_status tri_refusals_send(void *ctx, const tri_refusal *one);          /* TRI_AGAIN: no room now */
/* Sends them in their order, as far as there is room: until one is TRI_AGAIN. */
void tri_refusals_flush(tri_refusals *r, tri_refusals_send *send, void *ctx);
void tri_refusals_forget(tri_refusals *r); /* all, unsent */

#endif
