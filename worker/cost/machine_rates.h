/* SPDX-License-Identifier: Apache-2.0 */
/* The best that the machine could do, to compare a benchmark's figures with: measured on request, while nothing runs.
 */
#ifndef TRI_WORKER_COST_MACHINE_RATES_H
#define TRI_WORKER_COST_MACHINE_RATES_H

#include "comm/wire/client.h"
#include "runtime/engine/engine.h"

/* Multiply-adds of this rank's matrices for one token, with the experts that it chooses; head: the output layer's too,
 * which only sampled tokens need. */
double tri_measure_gemms(const tri_engine *e, bool head);
/* Bytes of weights that one decode step reads: matrices, without the embedding's lookup. */
double tri_measure_weight_bytes(const tri_engine *e);
/* The same where so many experts of each layer are read. */
double tri_measure_step_bytes(const tri_engine *e, double experts);
/* The type of the largest matrix. */
tri_dtype tri_measure_type(const tri_engine *e);
/* About a second on every thread of the backend's pool, or on its device. Fills in the rates and this rank's work per
 * token. */
tri_status tri_measure_rooflines(const tri_engine *e, tri_rooflines *out);

#endif
