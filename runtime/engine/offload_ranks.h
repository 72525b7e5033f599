/* The ranks of a host that stream the same weights and can read them for each other. */
#ifndef TRI_RUNTIME_ENGINE_OFFLOAD_RANKS_H
#define TRI_RUNTIME_ENGINE_OFFLOAD_RANKS_H

#include "offload/split.h"
#include "runtime/step/group.h"

/* A rank, as it tells the others of its column. */
typedef struct tri_offload_rank {
  uint64_t host;       /* whose memory it can share, and whose processes it can see */
  int32_t streams;     /* it streams weights */
  uint64_t num_words;  /* as tri_split_config has it */
  uint64_t room;       /* bytes for weights */
  tri_split_name name; /* of memory that it has made */
} tri_offload_rank;

/* Memory with the other ranks of the column that stream on this host, NULL where there is none to be had or no other
 * such rank; and *room becomes the least of theirs, so that they stream the same. Collective over the column, on every
 * rank of which some rank of the group streams; a failure is the communicator's. */
tri_status tri_offload_join_ranks(tri_group *g, bool streams, int num_words, size_t *room, tri_split **out,
                                  tri_error *err);

/* Returns how many of the ranks [count] share this one's memory, and sets *first and *rank: the first of them, which
 * makes it, and this rank's number among them. 0: it has none to share, or they are too many. */
int tri_offload_find_ranks(const tri_offload_rank *all, int count, int own, int *first, int *rank);

#endif
