/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's streamed weights: where they come from, and the stream itself. */
#ifndef TRI_RUNTIME_ENGINE_OFFLOAD_H
#define TRI_RUNTIME_ENGINE_OFFLOAD_H

#include <limits.h>

#include "offload/pack_room.h"
#include "offload/stream.h"
#include "runtime/engine/offload_plan.h"

typedef struct tri_offload tri_offload;

/* The ranks of this host. */
typedef struct tri_offload_ranks {
  int local_ranks;  /* that share its memory */
  tri_split *split; /* with those that hold other experts of the same model, or none, which all call tri_offload_create
                       or leave the split; what they have in common each reads a part of, for all; NULL: there are
                       none; it outlives the offload */
  size_t host_room; /* with a split of devices: bytes of the host's memory for each one's weights, the same on all */
  const atomic_bool *stop; /* true ends waits and the making of a pack; may be NULL */
} tri_offload_ranks;

/* weights: what they were made of, with tiers, of which something is streamed; all that it points to outlives this, the
 * checkpoint among it. A device's parts lie in the host's memory as far as that has room. The others, and those of a
 * CPU, come from the checkpoint as they are where its layout allows that, else from a pack, which is made when there is
 * none. Each rank has its own. May take minutes where a pack is made, and waits for the other ranks of a split without
 * a limit but `stop`. Ends with a full ring. */
tri_status tri_offload_create(const tri_offload_config *config, const tri_weights_config *weights, char *ring,
                              const tri_offload_ranks *ranks, tri_offload **out, tri_error *err);
/* Returns how many words ranks with so many layers tell each other by a split. */
int tri_offload_num_words(int num_layers);
/* False: the ring and the split must stay for the life of the process. NULL is fine. A read that the system never
 * finishes would write to freed memory otherwise. */
bool tri_offload_destroy(tri_offload *o);

/* Shows how far a pack has come, once a second. */
typedef void (*tri_pack_progress)(const char *path, uint64_t bytes_done, uint64_t bytes);
/* Makes the pack of a rank in the folders (offload_folders.h), unless there is one (*made false), and tells the path of
 * its first file. weights: without tiers, of a backend of host memory. */
tri_status tri_offload_make_pack(const char *folders, const tri_weights_config *weights, tri_pack_progress tell,
                                 const atomic_bool *stop, char path[static PATH_MAX], bool *made, tri_error *err);
/* Finds out, without making anything, whether the rank's pack is there or could be made, together with those of other
 * ranks: see tri_striped_pack_check. */
tri_status tri_offload_check_room(const char *folders, const tri_weights_config *weights, tri_pack_rooms *rooms,
                                  tri_error *err);

tri_weight_stream *tri_offload_stream(const tri_offload *o);
const char *tri_offload_about(const tri_offload *o); /* where they come from, in words */
double tri_offload_bandwidth(const tri_offload *o); /* bytes per second, when the ring was filled or in the last pass */
/* Returns the seconds that the streamed weights of the largest layer take at that rate. */
double tri_offload_layer_seconds(const tri_offload *o);

/* The streamed parts' bytes, which stay the offload's. */
typedef struct tri_offload_source {
  const tri_stream_file *files;
  int num_files;
  const tri_stream_part *parts; /* [num_streamed] */
  const tri_striped_pack *pack; /* NULL: no part is of one */
  size_t dram;                  /* bytes of the parts that lie in the host's memory */
  size_t common;                /* bytes of a pass of which each of so many ranks reads a part for all, */
  int num_readers;              /* else 0 */
  bool gathers;                 /* these ranks' devices copy them from each other */
} tri_offload_source;
tri_offload_source tri_offload_source_of(const tri_offload *o);

#endif
