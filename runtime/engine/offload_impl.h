/* The state of a rank's streamed weights. */
#ifndef TRI_RUNTIME_ENGINE_OFFLOAD_IMPL_H
#define TRI_RUNTIME_ENGINE_OFFLOAD_IMPL_H

#include "runtime/engine/offload.h"
#include "runtime/load/part_loader.h"

struct tri_offload {
  const tri_tiers *tiers;
  tri_stream_part *parts;    /* [num_streamed] */
  tri_part_extents *extents; /* [num_streamed] */
  tri_stream_file *files;
  int num_files;
  tri_striped_pack *pack; /* NULL: from the checkpoint itself */
  /* of a device */
  tri_backend *backend;
  bool *in_dram; /* [num_streamed] */
  char **homes;  /* [num_streamed] pinned memory of the parts that lie there */
  char *buffers; /* pinned, for reads */
  size_t dram, buffer_bytes;
  tri_weight_stream *stream;
  /* of reads for several ranks */
  tri_split *split;        /* NULL: this rank reads all by itself */
  void *pinned;            /* of a device: the split's buffers */
  tri_part_extents *whole; /* [num_streamed] extents as they were before they were cut; of parts that are */
  size_t common;           /* bytes of a pass that one rank reads for all */
  int first_parts;         /* that the rings of all ranks have room for at first */
  char about[256];
  double bandwidth;
  int damaged; /* file of the pack, as far as a device has it checked; -1: none */
};

/* Tells whether a part is to come from a file. */
static inline bool tri_offload_is_read(const tri_offload *o, int number) { return !o->in_dram || !o->in_dram[number]; }

/* offload_split.c: finds, with the other ranks of the split, what one of them is to read for all, and has the parts'
 * extents say so; nothing where they have nothing in common. Waits for ranks that make their packs. */
tri_status tri_offload_share_reads(tri_offload *o, const tri_weights_config *weights, tri_split *split,
                                   const atomic_bool *stop, tri_error *err);

/* offload_pack.c: hashes where each tensor lies, in files that have not changed since; or the seed of what is made up.
 */
uint64_t tri_offload_hash_source(uint64_t h, const tri_weights_config *w);
/* offload_pack.c: takes those parts from a pack, which it makes where there is none. */
tri_status tri_offload_use_pack(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                const atomic_bool *stop, tri_error *err);
/* offload_homes.c: puts a device's parts into the host's memory, as far as that has room for local_ranks of them. */
tri_status tri_offload_fill_homes(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                  int local_ranks, const atomic_bool *stop, tri_error *err);
void tri_offload_free_homes(tri_offload *o);

#endif
