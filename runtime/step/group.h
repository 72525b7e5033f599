/* The ranks of a replica group as one of them sees it: its position, and the communicators it uses. */
#ifndef TRI_RUNTIME_STEP_GROUP_H
#define TRI_RUNTIME_STEP_GROUP_H

#include "comm/comm.h"
#include "runtime/model/layout.h"

/* Message tags within the group's communicator. */
enum { TRI_TAG_PLAN = 1, TRI_TAG_RESULT = 2, TRI_TAG_LOGITS = 3, TRI_TAG_TRACE = 4, TRI_TAG_HIDDEN = 16 /* + lane */ };

typedef struct tri_group {
  tri_parallel p;
  tri_comm *world; /* pp x tp ranks, tensor rank fastest; rank 0 leads */
  tri_comm *tensor;
} tri_group;

static inline int tri_group_rank(const tri_group *g, int pp_rank, int tp_rank) { return pp_rank * g->p.tp + tp_rank; }
/* The rank that samples: tensor rank 0 of the last stage. */
static inline int tri_group_sampler(const tri_group *g) { return tri_group_rank(g, g->p.pp - 1, 0); }
static inline bool tri_group_is_sampler(const tri_group *g) { return g->world->rank == tri_group_sampler(g); }
static inline bool tri_group_is_leader(const tri_group *g) { return g->world->rank == 0; }

/* Takes over world, whose size must be tp * pp. */
tri_status tri_group_create(tri_comm *world, int tp, int pp, tri_group *out, tri_error *err);
void tri_group_destroy(tri_group *g);

#endif
