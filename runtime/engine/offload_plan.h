/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a rank's weights stay in its memory: from what was asked for, and from the room that there is. */
#ifndef TRI_RUNTIME_ENGINE_OFFLOAD_PLAN_H
#define TRI_RUNTIME_ENGINE_OFFLOAD_PLAN_H

#include "base/kinds.h"
#include "runtime/load/weights.h"

typedef struct tri_offload_config {
  tri_offload_tier tier;
  int gpu_layers;        /* not below 0: exactly so many layers stay */
  int64_t bytes;         /* not 0: of weights that leave */
  int64_t max_in_cpu;    /* not 0: of the host's memory for weights; 0: 80% of what is free */
  const char *nvme_path; /* folders for packs (offload_folders.h); NULL: none are made */
  int ring_parts;        /* parts that the ring has room for; 0: TRI_OFFLOAD_RING_PARTS */
  int chunk_tokens;      /* see tri_limits; 0: TRI_OFFLOAD_CHUNK, of a device TRI_OFFLOAD_DEVICE_CHUNK */
  int64_t host_kv;       /* of the host's memory for KV blocks of sequences that wait */
  int host_experts;      /* of a rank with a device: see tri_parallel; INT_MAX: those of all layers */
  int hot_experts;       /* of these, of each layer, that lie on the device, too: so many, or TRI_HOT_EXPERTS_AUTO */
  int hot_window;        /* for tests: see tri_hot_experts_config, as the next one */
  size_t hot_step_bytes;
  bool always_pack; /* for tests: also where the checkpoint could be read as it is */
  bool poison;      /* for tests: see tri_weight_stream_config */
  bool always_host; /* for tests: host_experts is for backends of host memory, too */
} tri_offload_config;

enum {
  TRI_HOT_EXPERTS_AUTO = -1, /* as many as there is memory left for */
  TRI_OFFLOAD_RING_PARTS = 4,
  TRI_OFFLOAD_READS = 16,
  TRI_OFFLOAD_PIECE_BYTES = 2 << 20, /* of files, and of the host's memory where devices gather them: copies of */
  TRI_OFFLOAD_LINK_BYTES = 16 << 20, /* so many bytes have a link's rate, and a ring has room for many */
  TRI_OFFLOAD_CHUNK = 512,
  TRI_OFFLOAD_DEVICE_CHUNK = 2048
};

/* Returns how streamed weights are read; and the memory that this takes in addition to the ring. */
tri_reader_config tri_offload_reads(void);
size_t tri_offload_buffer_bytes(void);

/* Returns whether weights are to leave the backend's memory even where all would fit. */
bool tri_offload_is_asked(const tri_offload_config *o, bool device);
/* Returns whether they may leave where they do not fit. */
bool tri_offload_is_allowed(const tri_offload_config *o);

/* Refuses host_experts, with TRI_UNSUPPORTED, of a model without experts, where data-parallel ranks exchange rows, and
 * where experts move between ranks; and a number of hot_experts without them, or of a backend whose bits may not change
 * with who computes. */
tri_status tri_offload_check_experts(const tri_offload_config *o, const tri_model_config *c, tri_parallel p,
                                     bool deterministic, tri_error *err);
/* Returns how many of a data-parallel rank's experts of each layer are to lie on the device, too, or
 * TRI_HOT_EXPERTS_AUTO; 0 where the host has none of its layers'. */
int tri_offload_hot_experts(const tri_offload_config *o, const tri_model_config *c, const tri_shard *s, bool device,
                            bool deterministic);
/* Returns how many first layers' experts lie in the host's memory, of a rank with a device or without. */
int tri_offload_host_experts(const tri_offload_config *o, bool device);
/* Refuses, with TRI_NO_CAPACITY, more bytes of experts than the host has memory for, of so many ranks that share it. */
tri_status tri_offload_check_host_experts(size_t bytes, int sharing, tri_error *err);

/* Returns the tokens of a chunk of a step whose weights are streamed; 0: with several data-parallel ranks, or with
 * norms after the sums on a device, a step goes through a part as a whole. */
int tri_offload_chunk(const tri_offload_config *o, const tri_model_config *c, tri_parallel p, bool device);

/* Returns the tokens of a step that are wanted while weights are streamed: `hiding`, from which on its products take as
 * long as a pass of the weights, in whole chunks of so many; not less than the usual ones, not more than TRI_MAX_CHUNKS
 * chunks or what the KV cache holds. The usual ones where a step is not cut (chunk 0), or where that is not known
 * (hiding 0). */
int tri_offload_step_tokens(int64_t hiding, int usual, int chunk, int64_t kv_tokens);

/* Returns the bytes of the host's memory that a device's rank may take for weights in addition to its KV blocks, of so
 * many that share it. */
size_t tri_offload_host_room(const tri_offload_config *o, int sharing);
/* Returns words in brackets that say how that came about where it was not given, for messages; else "". */
const char *tri_offload_spares(const tri_offload_config *o);
/* Refuses, with TRI_NO_CAPACITY, more KV blocks of a device's rank than the host has memory for. */
tri_status tri_offload_check_host_kv(const tri_offload_config *o, int sharing, tri_error *err);

/* The room for all weights, as tri_offload_plan takes it, in bytes. */
typedef struct tri_offload_room {
  size_t least; /* less is refused: what always stays, what is to stay, a ring of two parts, buffers of reads */
  size_t usual; /* that with a ring of the usual size */
  size_t most;  /* more would not be used */
  size_t stays; /* of the least: matrices of embedding and head, norms, and layers that are to stay */
  size_t ring;  /* of the least */
  size_t leave; /* bytes of all layers' parts but for those that are to stay */
} tri_offload_room;

/* Sets *out for the weights of a model that can be streamed. m: without tiers. TRI_NO_MEMORY. */
tri_status tri_offload_find_room(const tri_offload_config *o, const tri_weight_map *m, int num_layers, bool device,
                                 tri_offload_room *out);

/* room: bytes of the backend's memory for all weights and, unless it is a device, the buffers of their reads. m:
 * without tiers. Fails as tri_tiers_plan does, and with TRI_UNSUPPORTED where the model cannot be streamed. */
tri_status tri_offload_plan(const tri_offload_config *o, const tri_model_config *c, const tri_weight_map *m,
                            int num_layers, size_t room, bool device, tri_tiers **out, tri_error *err);
/* Refuses, with TRI_NO_CAPACITY, weights that need a pack where no folder is given for it. made_up: they are no
 * checkpoint's. */
tri_status tri_offload_check_pack(const tri_offload_config *o, bool made_up, tri_error *err);
/* Sets in_dram [num_streamed], of a device, for the streamed parts that lie in the host's memory, of which this rank
 * may use so many bytes: all if they have room, else some of them, spread evenly; and returns the parts' bytes. m: with
 * tiers; what it has in common with others so many ranks have there once, and each counts a share of it; NULL: it has
 * nothing in common. */
size_t tri_offload_place(const tri_tiers *t, const tri_weight_map *m, int sharing, size_t room, bool *in_dram);

/* Sets *bytes to those of the memory in which ranks of a host could have all their parts in common. m: without tiers.
 * False: too many to count. */
bool tri_offload_home_bytes(const tri_weight_map *m, int num_layers, size_t *bytes);

#endif
