/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a rank's streamed weights. */
#ifndef TRI_RUNTIME_ENGINE_OFFLOAD_IMPL_H
#define TRI_RUNTIME_ENGINE_OFFLOAD_IMPL_H

#include "runtime/engine/offload.h"
#include "runtime/load/part_loader.h"

/* A part's place in the host's memory: what ranks have in common in the split's home, the rest in this one's own. */
typedef struct tri_offload_home {
  char *own; /* pinned */
  size_t own_bytes;
  bool is_shared;
  size_t at, common; /* in the home */
  void *pinned;      /* of the home, for this rank's copies */
} tri_offload_home;

struct tri_offload {
  const tri_tiers *tiers;
  tri_stream_part *parts;    /* [num_streamed] */
  tri_part_extents *extents; /* [num_streamed] */
  tri_stream_file *files;
  int num_files;
  tri_striped_pack *pack; /* NULL: from the checkpoint itself */
  /* of a device */
  tri_backend *backend;
  bool *in_dram;             /* [num_streamed] */
  tri_offload_home *homes;   /* [num_streamed] of the parts that lie there */
  char *buffers;             /* pinned, for reads */
  size_t dram, buffer_bytes; /* dram: of those parts */
  tri_weight_stream *stream;
  /* of reads for several ranks */
  tri_split *split;        /* NULL: this rank reads all by itself */
  void *pinned;            /* of a device: the split's buffers */
  tri_part_extents *whole; /* [num_streamed] extents as they were before they were cut; of parts that are */
  tri_stream_ring *rings;  /* of devices that reach each other's; NULL: none, or these do not */
  size_t common;           /* bytes of a pass that one rank reads for all */
  int first_parts;         /* that the rings of all ranks have room for at first */
  char about[256];
  double bandwidth;
  int damaged; /* file of the pack, as far as a device has it checked; -1: none */
};

/* Returns whether a part is to come from a file. */
static inline bool tri_offload_is_read(const tri_offload *o, int number) { return !o->in_dram || !o->in_dram[number]; }

/* offload_split.c: finds, with the other ranks of the split, what one of them is to read for all, and has the parts'
 * extents say so; nothing where they have nothing in common. Waits for ranks that make their packs. */
tri_status tri_offload_share_reads(tri_offload *o, const tri_weights_config *weights, tri_split *split,
                                   const atomic_bool *stop, tri_error *err);

/* Questions that the ranks of a split answer. */
enum { TRI_OFFLOAD_SHOWS_RING, TRI_OFFLOAD_HAS_RINGS, TRI_OFFLOAD_HOME_IS_FULL, TRI_OFFLOAD_LETS_GO };
/* offload_gather.c: waits for all ranks' answers, however long they take. *all: every one is yes. */
tri_status tri_offload_ask_all(const tri_offload *o, int stage, const atomic_bool *stop, bool *all, tri_error *err);
/* offload_gather.c, of a device with a split: opens the other ranks' rings, where all ranks can. */
tri_status tri_offload_open_rings(tri_offload *o, char *ring, const atomic_bool *stop, tri_error *err);
/* Closes them. False: others have not closed this rank's, which must stay. */
bool tri_offload_close_rings(tri_offload *o);

/* offload_pack.c: hashes where each tensor lies, in files that have not changed since; or the seed of what is made up.
 */
uint64_t tri_offload_hash_source(uint64_t h, const tri_weights_config *w);
/* offload_pack.c: takes those parts from a pack, which it makes where there is none. */
tri_status tri_offload_use_pack(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                const atomic_bool *stop, tri_error *err);
/* offload_host_memory.c: chooses the parts of a device that lie in the host's memory, as far as that has room; then,
 * after tri_offload_open_rings, puts them there. */
tri_status tri_offload_place_homes(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                   const tri_offload_ranks *ranks, tri_error *err);
tri_status tri_offload_fill_homes(tri_offload *o, const tri_weights_config *weights, const atomic_bool *stop,
                                  tri_error *err);
void tri_offload_free_homes(tri_offload *o);

#endif
