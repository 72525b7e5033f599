/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a rank's streamed parts that all data-parallel ranks have, of the same stage and tensor rank: all but
 * experts' weights (layout.h). What the ranks of a host have in common they read from the disk once (offload/split.h).
 */
#ifndef TRI_RUNTIME_LOAD_COMMON_BYTES_H
#define TRI_RUNTIME_LOAD_COMMON_BYTES_H

#include "runtime/load/weights.h"

/* Bytes of a part that lie together on every data-parallel rank, though maybe at other places. */
typedef struct tri_common_range {
  size_t at, bytes; /* in this rank's part */
  uint64_t name;    /* on every data-parallel rank the same, and another one for each range of a part */
} tri_common_range;

/* Room for the elements and the scales of all weights of a part. */
enum { TRI_COMMON_RANGES = 2 * TRI_W_COUNT };

/* Sets ranges [TRI_COMMON_RANGES] to those of a streamed part of the map, in the order of their places, and returns how
 * many there are. A part without experts is one range, with what lies between its weights. m: with tiers. */
int tri_common_ranges(const tri_weight_map *m, int part, tri_common_range *ranges);

/* Returns the common bytes of a streamed part; m as above. */
size_t tri_common_part_bytes(const tri_weight_map *m, int part);

/* Returns the common bytes of all streamed parts. m: with these tiers. */
size_t tri_common_bytes(const tri_weight_map *m, const tri_tiers *tiers);

#endif
