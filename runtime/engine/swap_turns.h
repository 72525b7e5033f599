/* SPDX-License-Identifier: Apache-2.0 */
/* In which order the ranks of a host move the layers of KV blocks to its memory and back.
 *
 * DeepSpeed-Inference (Aminabadi et al. 2022, section IV.C.2) has two devices after one link move the even and the odd
 * layers in turns. Here it is n turns, of as many layers each: rank i begins with the layers l with l % n == i % n. n
 * is how often the rate of all ranks together goes into the sum of what each reaches alone. */
#ifndef TRI_RUNTIME_ENGINE_SWAP_TURNS_H
#define TRI_RUNTIME_ENGINE_SWAP_TURNS_H

#include <stdint.h>

#include "base/status.h"

typedef struct tri_engine tri_engine;

/* A rank, as it tells the others of its replica. */
typedef struct tri_swap_rank {
  uint64_t host;          /* whose memory it moves to */
  uint64_t block_bytes;   /* that a block has on it */
  double together, alone; /* seconds of a block's way out and in; alone 0: not measured */
} tri_swap_rank;

typedef struct tri_swap_turns {
  int ranks, number; /* of the host; this one's among them */
  int turns;         /* 1 where each is as fast together with the others as alone, or not all were measured */
} tri_swap_turns;

/* own: this rank's number in `all` [count], which is the same on all ranks, so that they find the same turns. */
tri_swap_turns tri_swap_find_turns(const tri_swap_rank *all, int count, int own);

/* Measures how long blocks take where that takes longest (tri_engine.swap_block_seconds), with all ranks at it at a
 * time. On devices each does it alone, too, and has its cache move in so many turns. Collective over the replica. */
tri_status tri_engine_measure_swaps(tri_engine *e, tri_error *err);

#endif
