/* SPDX-License-Identifier: Apache-2.0 */
/* The rates that the ops of a CPU reach with a model's sizes: few rows of a product are bound by reading and widening
 * weights, more by the kernels that the backend takes for so many (kernels/cpu/gemm.h), attention by its heads. */
#ifndef TRI_RUNTIME_COST_HOST_RATES_H
#define TRI_RUNTIME_COST_HOST_RATES_H

#include "kernels/backend.h"
#include "runtime/cost/cost.h"

typedef struct tri_host_rates {
  double gemms[TRI_CPU_GEMM_ROWS]; /* operations per second, by the rows */
  double attention;                /* operations per second of a prompt's; 0: of a latent, which is not timed */
  double queries;                  /* the same of sequences that decode */
  double op_s;                     /* of an op of one row */
  double element_s;                /* of ops that go row by row, of many */
} tri_host_rates;

/* Times the backend's own ops. Products go through the matrices of `share`, one after the other through as many bytes
 * of weights as a step reads, or more than a CPU's caches hold: a model that fits into them is read from there. Takes
 * about half a second. TRI_UNSUPPORTED: the share has no matrices. */
tri_status tri_host_rates_measure(tri_backend *be, const tri_cost_share *share, tri_host_rates *out);

#endif
