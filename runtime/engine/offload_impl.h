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
  char about[256];
  double bandwidth;
  int damaged; /* file of the pack, as far as a device has it checked; -1: none */
};

/* Tells whether a part is to come from a file. */
static inline bool tri_offload_is_read(const tri_offload *o, int number) { return !o->in_dram || !o->in_dram[number]; }

/* offload_pack.c: takes those parts from a pack, which it makes where there is none. */
tri_status tri_offload_use_pack(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                const atomic_bool *stop, tri_error *err);
/* offload_homes.c: puts a device's parts into the host's memory, as far as that has room for local_ranks of them. */
tri_status tri_offload_fill_homes(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                  int local_ranks, const atomic_bool *stop, tri_error *err);
void tri_offload_free_homes(tri_offload *o);

#endif
