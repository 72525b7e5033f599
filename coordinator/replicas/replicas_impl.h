/* SPDX-License-Identifier: Apache-2.0 */
/* The replicas and their ranks, shared by the files of this folder alone. */
#ifndef TRI_COORDINATOR_REPLICAS_REPLICAS_IMPL_H
#define TRI_COORDINATOR_REPLICAS_REPLICAS_IMPL_H

#include "coordinator/core_impl.h"
#include "coordinator/replicas/replicas.h"
#include "coordinator/replies.h"

enum { REASON_BYTES = TRI_ERROR_MESSAGE + 40, MAX_CANARY = 20, MAX_RANKS = 1024, MAX_ASKS = 8 };

/* Transitions: life.c. */
typedef enum replica_state {
  REPLICA_ABSENT,
  REPLICA_STARTING,
  REPLICA_READY,
  REPLICA_DRAINING,
  REPLICA_LOST
} replica_state;

/* A rank's rows of experts, as it reports them: tri_replica_experts. */
typedef struct expert_report {
  bool asked, told; /* told: since it was last asked */
  uint64_t placement;
  uint32_t first_layer, num_layers, first_slot, num_own, num_slots;
  uint64_t *rows;
  uint32_t *expert_of;
  uint64_t *earlier; /* [num_layers, experts] */
  tri_replica_hot hot;
} expert_report;

/* A rank of the present start, by its registration and its last report. */
typedef struct rank_info {
  bool known; /* it has registered; without that nothing else here means anything */
  tri_peer peer;
  char host[64];
  int64_t pid, last_report;
  uint64_t step, layer, collective;
  uint32_t exchange;         /* tri_all2all_part */
  uint32_t running, waiting; /* on its data-parallel rank, of several */
  int64_t progress_ns;       /* when step, layer or collective last changed */
  bool measured;             /* rooflines: since they were last asked for, or earlier where they could not be */
  tri_rooflines rooflines;
  expert_report experts;
  tri_replica_stream stream;
} rank_info;

/* A client that waits for what ranks report. */
typedef struct rank_ask {
  tri_peer peer;
  uint64_t id;
  int64_t until_ns;
} rank_ask;

typedef struct rank_asks {
  rank_ask list[MAX_ASKS];
  int num;
} rank_asks;

/* The cost of the scheduler in the last reports in which tokens were drawn. */
enum { COST_REPORTS = 10 };
typedef struct cost_window {
  uint64_t tokens[COST_REPORTS], ns[COST_REPORTS];
  unsigned count;
} cost_window;

/* The tokens that a replica's canary has put first, the best first. */
typedef struct replica_canary {
  int num;
  uint32_t ids[MAX_CANARY];
  double logprobs[MAX_CANARY];
} replica_canary;

typedef struct replica {
  replica_state state;
  replica_facts facts;
  uint64_t expected; /* the start that was begun last, as was told; 0: none was */
  bool coming;       /* that one has neither registered nor ended */
  uint32_t tp, pp, dp, ep, world;
  rank_info *ranks; /* [world] */
  uint64_t model_hash;
  replica_canary canary;
  uint32_t running, waiting, prompt_bound;
  uint64_t kv_blocks_used, tokens, scheduler_ns, preemptions, rearrangements, experts_moved, moving_ns;
  tri_replica_swaps swaps;
  tri_replica_prefixes prefixes;
  cost_window cost;
  /* that a layer takes for the largest step, as predicted when the replica became ready first; 0: it never has */
  double layer_seconds;
  int64_t began_ns, ready_ns, last_lease;
  int64_t busy_since; /* as its leader reports; 0: it is idle */
  int64_t jobs_since; /* that it has had jobs without a pause, where it has some */
  int64_t died_ns;    /* when it was said to have ended; 0: it was not */
  tri_core_hold hold; /* it has ended, and is not started again before */
  int64_t hold_until_ns;
  char reason[REASON_BYTES]; /* why it is lost or stays down */
} replica;

struct replicas {
  replica_hooks hooks;
  replica *list;               /* [num_replicas] */
  bool drain_sent;             /* they have been told to leave */
  int64_t suspended_until_ns;  /* of the watchdog */
  char last_loss[200];         /* see replicas_last_loss */
  rank_asks asks, expert_asks; /* for roofline bounds; for the rows of experts */
};

static inline replica *replica_at(const tri_core *c, uint32_t index) { return &c->replicas->list[index]; }

/* table.c */
replica *replica_find(tri_core *c, uint32_t index, uint64_t epoch); /* NULL: there is none, or it is lost */
/* Returns whether a connection was opened with a rank's key. */
bool replica_is_key_of(const tri_core *c, uint32_t index, uint32_t rank, const tri_peer *from);
bool replica_is_watched(const tri_core *c, const replica *g);
/* The data-parallel rank of a rank. */
static inline uint32_t replica_dp_rank_of(const replica *g, uint32_t rank) {
  return g->dp > 1 && g->tp ? rank / g->tp % g->dp : 0;
}
/* Frees what a rank, or each of a replica, has told of its experts. */
void rank_forget_experts(expert_report *e);
void replica_forget_experts(replica *g);
/* Returns whether this is so of each rank of the replicas that are ready. */
bool ranks_all(const tri_core *c, bool (*is_so)(const replica *g, const rank_info *rank));
/* Answers those who wait for ranks: all of them where it is complete, else those whose time is up. */
void rank_asks_answer(tri_core *c, int64_t now, rank_asks *asks, bool complete,
                      void (*answer)(tri_core *c, const rank_ask *ask));

/* compatibility.c: a replica may serve with those that do */
void canary_take(replica_canary *c, const tri_replica_msg *ready);
bool weights_are_same(const replica *a, const replica *b); /* as far as is known */
void weights_say_other(const replica *g, const replica *other, uint32_t index, char *why, size_t cap);
bool replica_is_compatible(const tri_core *c, const replica *g, char *why, size_t cap);

/* life.c: gives a replica up and has its jobs run elsewhere; the rest is the reason, as for printf. */
__attribute__((format(printf, 4, 5))) void replica_lose(tri_core *c, int64_t now, uint32_t index, const char *fmt, ...);

/* roofline.c: whether ranks measure at this moment, so that jobs wait */
bool roofline_is_measured(const tri_core *c, int64_t now);

/* weight_streams.c: adds up what a replica's ranks have told, bytes of all, seconds of the one that has most. */
tri_replica_stream weight_streams_of(const replica *g);

#endif
