/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cost/layer_seconds.h"

#include <math.h>

enum { WEIGHTS_SHARED_BY = 4 }; /* tokens that one reading of the weights does for, at least */

/* The canary's token waited for the weights; many tokens share each reading of them, so that one of many takes a
 * quarter of the time at most. */
static double predict_layer(const tri_engine *e, double canary_seconds) {
  double layers = (double)(e->model.num_layers + (e->model.seq2seq.on ? e->model.seq2seq.num_layers : 0));
  return canary_seconds / layers * fmax(1, (double)e->limits.max_num_batched_tokens / WEIGHTS_SHARED_BY);
}

static const double STREAMED_LAYER_SECONDS = 1.2; /* a tenth of what the watchdog waits */

/* Streamed weights are waited for by themselves, and at the same time as computing. A leader that streams none cannot
 * tell which of its canary's time the others waited for theirs: it takes all for that. A disk that stands still is to
 * be noticed by who reads it, who knows the file: the watchdog comes later. */
static double predict_streamed_layer(const tri_engine *e, double canary_seconds) {
  const tri_offload *o = e->offload;
  double stall = canary_seconds, layer = e->streamed_layer_seconds;
  if (o) {
    stall = (double)tri_weight_stream_figures(tri_offload_stream(o)).stall_ns * 1e-9;
    layer = fmax(layer, tri_offload_layer_seconds(o));
  }
  double computed = predict_layer(e, fmax(canary_seconds - stall, 0));
  return fmax(fmax(computed, layer), STREAMED_LAYER_SECONDS);
}

double tri_predict_layer_seconds(const tri_engine *e, double canary_seconds) {
  return e->replica_streams ? predict_streamed_layer(e, canary_seconds) : predict_layer(e, canary_seconds);
}
