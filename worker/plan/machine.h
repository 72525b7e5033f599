/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that a prediction is for: what was measured of it, or else of machines of its kind. */
#ifndef TRI_WORKER_PLAN_MACHINE_H
#define TRI_WORKER_PLAN_MACHINE_H

#include "kernels/backend.h"
#include "worker/plan/host_rates.h"

/* The best that hardware could do, as kernels/roofline.h measures it: a read-only sum, the library's largest product.
 */
typedef struct tri_ceilings {
  double read_bytes_per_s, flops_per_s;
} tri_ceilings;

/* One NVIDIA H200 with 16-bit weights (docs/performance.md). */
extern const tri_ceilings tri_h200_ceilings;

/* The rates that our kernels reach of the ceilings, and the links of such machines. */
tri_machine tri_machine_make(tri_ceilings best, bool device, int ranks_per_host);

/* Copies of pinned memory to such a device, in bytes per second. */
extern const double tri_h200_link;

/* The figures that were measured of a host. */
typedef struct tri_host_figures {
  tri_ceilings best;
  tri_host_rates ops;
} tri_host_figures;

/* Measures what a backend of host memory reaches with its own threads, reading as many bytes as a step of `share` does
 * and multiplying with its matrices. */
tri_status tri_machine_measure_backend(tri_backend *be, const tri_cost_share *share, tri_host_figures *out);
/* Measures this host in about a second, on so many threads (0: one for each core); each of so many ranks has an equal
 * part of it. */
tri_status tri_machine_measure(const tri_cost_share *share, int ranks, int threads, tri_host_figures *out,
                               tri_error *err);
/* Has ops take what they took, instead of parts of the ceilings. */
void tri_machine_take_ops(tri_machine *m, const tri_host_rates *ops);

#endif
