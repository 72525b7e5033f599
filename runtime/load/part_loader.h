/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the parts of a rank's weights that are streamed, or tells where they lie in the checkpoint. A loader is for
 * one thread at a time. */
#ifndef TRI_RUNTIME_LOAD_PART_LOADER_H
#define TRI_RUNTIME_LOAD_PART_LOADER_H

#include "offload/stream.h"
#include "runtime/load/weights.h"

typedef struct tri_part_loader tri_part_loader;

/* config: as for tri_weights_make, with tiers; what it points to outlives the loader. Its backend is one of host
 * memory: parts are filled there. */
tri_status tri_part_loader_create(const tri_weights_config *config, tri_part_loader **out, tri_error *err);
void tri_part_loader_destroy(tri_part_loader *p); /* NULL is fine */

/* Fills memory [the part's bytes], zeroed, with a streamed part as it lies in the ring. */
tri_status tri_part_loader_fill(tri_part_loader *p, int part, char *memory, tri_error *err);

typedef struct tri_part_extents {
  tri_stream_extent *extents; /* file: the checkpoint's number of it */
  int num, room;
} tri_part_extents;

/* Finds the bytes of the checkpoint that are a streamed part as it lies in the ring. *all false: some of it is stored
 * in another way, and there are no extents. No data is read. The extents are the caller's, to free with
 * tri_part_extents_free. */
tri_status tri_part_extents_find(tri_part_loader *p, int part, tri_part_extents *out, bool *all, tri_error *err);
void tri_part_extents_free(tri_part_extents *x);

#endif
