/* SPDX-License-Identifier: Apache-2.0 */
/* Flows: what the fair queue shares between. A flow is the jobs that one client, or one caller of a client, has. */
#ifndef TRI_COORDINATOR_QUEUE_FAIR_QUEUE_H
#define TRI_COORDINATOR_QUEUE_FAIR_QUEUE_H

#include <sys/queue.h>

#include "comm/wire/client.h"
#include "comm/wire/peer.h"
#include "coordinator/queue/priorities.h"

struct job;
TAILQ_HEAD(queued_jobs, job);

/* Whoever is behind flows: a key, a user of this host, or a connection whose transport tells neither. */
typedef struct flow_owner {
  LIST_ENTRY(flow_owner) chain;
  tri_peer peer;          /* of its first job: the owner counts, or where it is nobody the connection */
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
  struct queued_jobs queue; /* the next one first */
  int64_t jobs;
  size_t bytes;
  uint32_t sequences[]; /* [num_groups] that each group has of it */
} flow;

LIST_HEAD(flow_chain, flow);
LIST_HEAD(flow_owner_chain, flow_owner);

/* Weights of service; 1 where nothing is said. */
typedef struct tri_share {
  tri_owner owner;  /* TRI_OWNER_NOBODY: it is a caller's */
  const char *name; /* of the caller */
  double weight;
} tri_share;

/* A job's part in the fair queue. */
typedef struct flow_part {
  flow *of;                         /* NULL: the job is in no flow, or has ended */
  size_t bytes;                     /* of the job, as they count in limits */
  uint32_t sequences;               /* that it needs at a time */
  uint64_t steps;                   /* that it can take at most, of its sequences together */
  uint64_t charged;                 /* tokens of service */
  int64_t queued_ns;                /* since then it waits */
  bool in_queue, in_group, pending; /* pending: its group has shown no sign of it yet */
  bool early;                       /* it was picked before all of its slots were free */
  priority_entry by_priority;       /* of the queue or of its group, with --scheduling-policy priority */
} flow_part;

#endif
