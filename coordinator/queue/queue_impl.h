/* SPDX-License-Identifier: Apache-2.0 */
/* The queue's data, shared by the files of this folder alone. */
#ifndef TRI_COORDINATOR_QUEUE_QUEUE_IMPL_H
#define TRI_COORDINATOR_QUEUE_QUEUE_IMPL_H

#include "coordinator/core_impl.h"
#include "coordinator/queue/queue.h"
#include "coordinator/replicas/replicas.h"

enum { NUM_FLOW_BUCKETS = 1024 };

TAILQ_HEAD(queue_entries, queue_entry);

/* The owner of flows: a key, a user of this host, or a connection whose transport tells neither. */
typedef struct flow_owner {
  LIST_ENTRY(flow_owner) chain;
  tri_peer peer;          /* of its first job: the owner counts, or where there is none the connection */
  double weight;          /* of its service */
  double served, clock;   /* tokens over weight: its own, and that of the flow that was last served */
  uint32_t flows, queued; /* that it has, and those of them that have jobs in the queue */
  int64_t jobs;           /* that have not ended, as the next */
  size_t bytes;
} flow_owner;

/* The jobs of one caller of an owner, or, of those without a caller, of one connection. */
typedef struct flow {
  LIST_ENTRY(flow) chain;
  LIST_ENTRY(flow) waiting; /* of those with jobs in the queue */
  flow_owner *owner;
  tri_peer peer;
  char caller[TRI_WIRE_MAX_CALLER + 1]; /* empty: the connection counts */
  double weight, served;
  struct queue_entries queue; /* the next one first */
  int64_t jobs;
  size_t bytes;
  uint32_t sequences[]; /* [num_replicas] that each replica has of it */
} flow;

LIST_HEAD(flow_chain, flow);
LIST_HEAD(flow_owner_chain, flow_owner);

/* The work that a replica has been given. A start of the replica begins with none. */
typedef struct replica_load {
  const replica_facts *facts; /* of the replica */
  uint64_t epoch;             /* of that start */
  /* of the jobs that it has: sequences, the most steps that they can take, and the jobs that it has shown no sign of
   * yet with the tokens of their prompts */
  uint64_t sequences, steps, pending, pending_tokens;
  priority_entry *by_priority; /* those jobs with their sequences; empty where priorities do not matter */
  /* of one look at the queue: jobs of this priority or a later one find no slot, where that is known */
  int64_t full_from;
  bool has_full;
  bool clogged;   /* its leader took no job in this look at the queue */
  uint64_t alone; /* the job that it is kept for, which gets no company; 0: none */
} replica_load;

struct fair_queue {
  struct flow_chain flows[NUM_FLOW_BUCKETS], waiting; /* waiting: those with jobs in the queue */
  struct flow_owner_chain flow_owners[NUM_FLOW_BUCKETS];
  priority_entry *queued;              /* jobs in the queue; empty where priorities do not matter */
  int64_t num_queued;                  /* of them, and */
  int64_t num_queued_alone;            /* those that run alone */
  int64_t num_jobs;                    /* in flows */
  double flow_clock;                   /* service of the owner that was last served */
  size_t bytes;                        /* of the jobs in flows */
  bool crowded;                        /* jobs have all of the memory: no new one is taken */
  bool has_clogged;                    /* a replica is */
  replica_load *loads;                 /* [num_replicas] */
  struct prefix_router *prefix_router; /* NULL: there is one replica, or none has a prefix cache */
};

/* Returns what the present start of a replica has. */
static inline replica_load *load_of(const tri_core *c, uint32_t index) {
  replica_load *load = &c->queue->loads[index];
  const replica_facts *facts = load->facts;
  if (load->epoch != facts->epoch) *load = (replica_load){.facts = facts, .epoch = facts->epoch};
  return load;
}

/* prefix_routing.c: replicas that have had prompts which begin like a job's */
tri_status prefix_routing_open(tri_core *c);
void prefix_routing_close(tri_core *c);
/* Picks the replica that is to get a job, of those that no other one is alone in; false: none takes any. */
bool prefix_routing_pick(tri_core *c, const queue_entry *e, uint32_t *index);
void prefix_routing_note(tri_core *c, uint32_t index); /* a replica has got the job that was last picked for */

#endif
