/* SPDX-License-Identifier: Apache-2.0 */
/* A prediction of steps whose weights are streamed: each stage takes the longest of its disk, its link and what it
 * computes, as each hides after the others. Pure arithmetic. */
#ifndef TRI_RUNTIME_COST_STREAMING_H
#define TRI_RUNTIME_COST_STREAMING_H

#include "runtime/cost/cost.h"

/* Bytes of a pass over the layers of a stage, of the rank that has most. */
typedef struct tri_streaming_share {
  double file_bytes;     /* from files */
  double streamed_bytes; /* these, and those from the host's memory to a device */
  double link_bytes;     /* over a device's own link: without what other devices of the host bring for it */
} tri_streaming_share;

typedef struct tri_streaming {
  const tri_cost_model *model;
  const tri_streaming_share *shares; /* [model->p.pp] */
  double disk_bytes_per_s;           /* of what one rank has of its disk */
  double link_bytes_per_s;           /* from the host's memory to a device; 0: a CPU, which needs none */
} tri_streaming;

/* Returns the seconds of the stage's pass by its disk and link alone. */
double tri_streaming_pass(const tri_streaming *s, int stage);
/* One token for each of so many sequences, as tri_cost_decode has it. Returns the seconds between two tokens of one. */
double tri_streaming_decode(const tri_streaming *s, int sequences, double context);
/* Returns the fewest tokens of a step whose products take as long on every stage as its pass; 0: no step of `most` is
 * enough. */
int64_t tri_streaming_hiding_tokens(const tri_streaming *s, int64_t most);

#endif
