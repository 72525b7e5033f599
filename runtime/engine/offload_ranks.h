/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a host that stream the same weights and can read them for each other. */
#ifndef TRI_RUNTIME_ENGINE_OFFLOAD_RANKS_H
#define TRI_RUNTIME_ENGINE_OFFLOAD_RANKS_H

#include "offload/split.h"
#include "runtime/step/replica.h"

/* A rank, as it tells the others of its column. */
typedef struct tri_offload_rank {
  uint64_t host;      /* whose memory it can share, and whose processes it can see */
  int32_t streams;    /* it streams weights */
  uint64_t num_words; /* as tri_split_config has it */
  uint64_t room;      /* bytes for weights, and of the host's memory for those of a device */
  uint64_t host_room;
  uint64_t home_bytes; /* as tri_split_config has it: the most of any counts */
  tri_split_name name; /* of memory that it has made */
} tri_offload_rank;

typedef struct tri_offload_joining {
  bool streams;
  int num_words;
  size_t home_bytes;      /* of a device: tri_offload_home_bytes; else 0 */
  size_t room, host_room; /* these become the least of the ranks', so that they stream the same */
} tri_offload_joining;

/* Returns what stands for the kernel that a process runs on and the processes that it can see. */
uint64_t tri_offload_host(void);

/* Memory with the other ranks of the column that stream on this host, NULL where there is none to be had or no other
 * such rank. Collective over the column, on every rank of which some rank of the replica streams; a failure is the
 * communicator's. */
tri_status tri_offload_join_ranks(tri_replica *g, tri_offload_joining *own, tri_split **out, tri_error *err);

/* Returns how many of the ranks [count] share this one's memory, and sets *first and *rank: the first of them, which
 * makes it, and this rank's number among them. 0: it has none to share, or they are too many. */
int tri_offload_find_ranks(const tri_offload_rank *all, int count, int own, int *first, int *rank);

#endif
