/* SPDX-License-Identifier: Apache-2.0 */
/* The groups and their ranks, shared by the files of this folder alone. */
#ifndef TRI_COORDINATOR_REPLICAS_REPLICAS_IMPL_H
#define TRI_COORDINATOR_REPLICAS_REPLICAS_IMPL_H

#include "coordinator/core_impl.h"
#include "coordinator/replicas/replicas.h"
#include "coordinator/replies.h"

enum { REASON_BYTES = TRI_ERROR_MESSAGE + 40, MAX_CANARY = 20, MAX_RANKS = 1024, MAX_ASKS = 8 };

typedef enum group_state { GROUP_ABSENT, GROUP_STARTING, GROUP_READY, GROUP_DRAINING, GROUP_LOST } group_state;

/* A rank's rows of experts, as it reports them: tri_group_experts. */
typedef struct expert_report {
  bool asked, told; /* told: since it was last asked */
  uint64_t placement;
  uint32_t first_layer, num_layers, first_slot, num_own, num_slots;
  uint64_t *rows;
  uint32_t *expert_of;
  uint64_t *earlier; /* [num_layers, experts] */
  tri_group_hot hot;
} expert_report;

typedef struct rank_info {
  bool known;
  tri_peer peer;
  char host[64];
  int64_t pid, last_report;
  uint64_t step, layer, collective;
  uint32_t exchange;         /* tri_exchange_part */
  uint32_t running, waiting; /* on its shard, of several */
  int64_t progress_ns;       /* when step, layer or collective last changed */
  bool measured;             /* floors: since they were last asked for, or earlier where they could not be */
  tri_floors floors;
  expert_report experts;
  tri_group_stream stream;
} rank_info;

/* A client that waits for what ranks report. */
typedef struct rank_ask {
  tri_peer peer;
  uint64_t id;
  int64_t until_ns;
} rank_ask;

/* The cost of the scheduler in the last reports in which tokens were drawn. */
enum { COST_REPORTS = 10 };
typedef struct cost_window {
  uint64_t tokens[COST_REPORTS], ns[COST_REPORTS];
  unsigned count;
} cost_window;

/* The tokens that a group's canary has put first, the best first. */
typedef struct group_canary {
  int num;
  uint32_t ids[MAX_CANARY];
  double logprobs[MAX_CANARY];
} group_canary;

typedef struct group {
  group_state state;
  group_facts facts;
  uint64_t expected; /* the start that was begun last, as was told; 0: none was */
  bool coming;       /* that one has neither registered nor ended */
  uint32_t tp, pp, dp, ep, world;
  rank_info *ranks; /* [world] */
  uint64_t model_hash;
  group_canary canary;
  uint32_t running, waiting;
  uint64_t kv_blocks_used, tokens, scheduler_ns, preemptions, rearrangements, experts_moved, moving_ns;
  tri_group_swaps swaps;
  tri_group_prefixes prefixes;
  cost_window cost;
  /* that a layer takes for the largest step, as predicted when the group became ready first; 0: it never has */
  double layer_seconds;
  int64_t began_ns, ready_ns, last_lease;
  int64_t busy_since; /* as its leader reports; 0: it is idle */
  int64_t jobs_since; /* that it has had jobs without a pause, where it has some */
  int64_t died_ns;    /* when it was said to have ended; 0: it was not */
  tri_core_hold hold; /* it has ended, and is not started again before */
  int64_t hold_until_ns;
  char reason[REASON_BYTES]; /* why it is lost or stays down */
} group;

struct replicas {
  replica_hooks hooks;
  group *list;                /* [num_groups] */
  bool drain_sent;            /* they have been told to leave */
  int64_t suspended_until_ns; /* of the watchdog */
  char last_loss[200];        /* see replicas_last_loss */
  rank_ask asks[MAX_ASKS];    /* for roofline bounds */
  int num_asks;
  rank_ask expert_asks[MAX_ASKS];
  int num_expert_asks;
};

static inline group *group_at(const tri_core *c, uint32_t index) { return &c->replicas->list[index]; }

/* table.c */
group *group_find(tri_core *c, uint32_t index, uint64_t epoch); /* NULL: there is none, or it is lost */
/* Returns whether a connection was opened with a rank's key. */
bool group_is_key_of(const tri_core *c, uint32_t index, uint32_t rank, const tri_peer *from);
bool group_is_watched(const tri_core *c, const group *g);
/* The data-parallel shard of a rank. */
static inline uint32_t group_shard_of(const group *g, uint32_t rank) {
  return g->dp > 1 && g->tp ? rank / g->tp % g->dp : 0;
}
/* Frees what the ranks have told of their experts. */
void group_forget_experts(group *g);

/* compatibility.c: a group may serve beside those that do */
void canary_take(group_canary *c, const tri_group_msg *ready);
bool weights_are_same(const group *a, const group *b); /* as far as is known */
void weights_say_other(const group *g, const group *other, uint32_t index, char *why, size_t cap);
bool group_is_compatible(const tri_core *c, const group *g, char *why, size_t cap);

/* life.c: gives a group up and has its jobs run elsewhere; the rest is the reason, as for printf. */
__attribute__((format(printf, 4, 5))) void group_lose(tri_core *c, int64_t now, uint32_t index, const char *fmt, ...);

/* roofline.c: whether ranks measure at this moment, so that jobs wait */
bool roofline_is_measured(const tri_core *c, int64_t now);

/* weight_streams.c: adds up what a group's ranks have told, bytes of all, seconds of the one that has most. */
tri_group_stream weight_streams_of(const group *g);

#endif
