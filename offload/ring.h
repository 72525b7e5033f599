/* SPDX-License-Identifier: Apache-2.0 */
/* The places of a model's parts in a ring that has room for some of them, when they come and go in a fixed order that
 * repeats. Pure arithmetic.
 *
 * Positions number the loads: position p is part p mod num_parts. Each part has a fixed offset, so
 * that a reader needs its place only once. Places are given one after the other in rounds: each begins at the ring's
 * start, and so does the first of every pass. Rounds are made as equal as can be, so that where a pass ends no part
 * waits for one that came shortly before. */
#ifndef TRI_OFFLOAD_RING_H
#define TRI_OFFLOAD_RING_H

#include <stdbool.h>
#include <stddef.h>

/* Places are multiples of it, and no two parts share one such block. */
enum { TRI_RING_ALIGN = 4096 };

typedef struct tri_ring_place {
  size_t at; /* of its first byte in the ring */
  int back;  /* 1 .. num_parts: the part may come at position p when what came at p - back, and all before, has gone */
} tri_ring_place;

/* Sets places [num_parts] in a ring of ring_bytes. False: a part is larger than the ring. bytes [num_parts], each > 0.
 */
bool tri_ring_plan(const size_t *bytes, int num_parts, size_t ring_bytes, tri_ring_place *places);

/* Returns the bytes of a ring with room for any `parts` parts that follow each other; 0: too many to count. */
size_t tri_ring_bytes(const size_t *bytes, int num_parts, int parts);

#endif
