/* SPDX-License-Identifier: Apache-2.0 */
/* How long a layer takes for the largest step: what the watchdog of a stalled replica goes by. */
#ifndef TRI_WORKER_COST_LAYER_SECONDS_H
#define TRI_WORKER_COST_LAYER_SECONDS_H

#include "runtime/engine/engine.h"

/* Returns it from what the canary's one token took. */
double tri_predict_layer_seconds(const tri_engine *e, double canary_seconds);

#endif
