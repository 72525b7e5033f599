/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cost/streaming.h"

#include <math.h>

/* Files and the link are read at the same time, so that the slower of both decides. */
double tri_streaming_pass(const tri_streaming *s, int stage) {
  const tri_streaming_share *at = &s->shares[stage];
  double disk = at->file_bytes > 0 ? at->file_bytes / s->disk_bytes_per_s : 0;
  double link = s->link_bytes_per_s > 0 ? at->link_bytes / s->link_bytes_per_s : 0;
  return fmax(disk, link);
}

/* A step of one micro-batch passes the stages one after the other (sum). With as many micro-batches as stages the
 * slowest stage always has work, and each micro-batch waits for all of them there. */
double tri_streaming_decode(const tri_streaming *s, int sequences, double context) {
  const tri_cost_model *m = s->model;
  tri_cost_load l = tri_cost_decode_load(m, sequences, context);
  double sum = 0, slowest = 0;
  for (int stage = 0; stage < m->p.pp; stage++) {
    tri_cost c = tri_cost_stage(m, stage, &l);
    double seconds = fmax(tri_cost_seconds(&c), tri_streaming_pass(s, stage));
    sum += seconds;
    slowest = fmax(slowest, seconds);
  }
  int micro_batches = sequences < m->p.pp ? sequences : m->p.pp; /* each walks over the weights by itself */
  return fmax(sum, micro_batches * slowest);
}

static bool hides(const tri_streaming *s, int64_t tokens) {
  const tri_cost_model *m = s->model;
  tri_cost_load l = {
      .tokens = (double)tokens, .all_tokens = (double)tokens * tri_parallel_dp(m->p), .sampled = 1, .queries = 1};
  for (int stage = 0; stage < m->p.pp; stage++) {
    tri_cost c = tri_cost_stage(m, stage, &l);
    if (tri_cost_seconds(&c) < tri_streaming_pass(s, stage)) return false;
  }
  return true;
}

/* A bisection: products take longer with every token and a pass does not. Steps of too_few tokens never hide it, those
 * of `enough` do. */
int64_t tri_streaming_hiding_tokens(const tri_streaming *s, int64_t most) {
  int64_t too_few = 0, enough = most;
  if (!hides(s, most)) return 0;
  while (too_few + 1 < enough) {
    int64_t middle = too_few + (enough - too_few) / 2;
    if (hides(s, middle))
      enough = middle;
    else
      too_few = middle;
  }
  return enough;
}
