/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of jobs that wait for a replica: fair between flows, and by age within one. A flow is the jobs that one
 * client, or one caller of a client, has. The queue decides whose turn it is and which replica gets the job, and counts
 * what flows and replicas have been given. */
#ifndef TRI_COORDINATOR_QUEUE_QUEUE_H
#define TRI_COORDINATOR_QUEUE_QUEUE_H

#include <sys/queue.h>

#include "coordinator/core_config.h"
#include "coordinator/queue/priorities.h"

/* A job as the queue sees it: a part of the job, which lives as long. */
typedef struct queue_entry {
  /* Set by the job before queue_push. */
  uint64_t id; /* of the job: an older one has a lower one */
  int64_t priority;
  int64_t max_tokens; /* of each sequence; negative: any */
  const uint32_t *prompt_ids;
  size_t num_prompt;
  const char *salt;
  size_t salt_len;
  uint32_t sequences; /* that it needs at a time */
  bool encoder;       /* it generates nothing */
  bool alone;         /* it gets a replica to itself */
  size_t bytes;       /* of the job, as they count in limits: set before flow_enter */
  /* The queue's own. */
  TAILQ_ENTRY(queue_entry) links; /* of its flow's queue */
  struct flow *of;                /* NULL: the job is in no flow, or has ended */
  uint64_t steps;                 /* that it can take at most, of its sequences together */
  uint64_t charged;               /* tokens of service */
  uint32_t replica;               /* that got it last */
  uint64_t epoch;
  int64_t queued_ns;                  /* since then it waits */
  bool in_queue, in_replica, pending; /* pending: its replica has shown no sign of it yet */
  bool early;                         /* it was picked before all of its slots were free */
  priority_entry by_priority;         /* of the queue or of its replica, with --scheduling-policy priority */
} queue_entry;

tri_status queue_open(tri_core *c);
void queue_close(tri_core *c);

/* ---- flows: what each client and each caller has of the room ---- */

/* Refuses a job of so many bytes where there is no room for it, or its flow has its share. */
tri_status flow_check(tri_core *c, const tri_peer *from, tri_wire_str caller, size_t bytes, tri_error *err);
/* Makes a job count, from its acceptance to its end. flow_check is not repeated: a job of the journal enters whatever
 * room there is. False: no memory. */
bool flow_enter(tri_core *c, queue_entry *e, const tri_peer *peer, const char *caller);
void flow_resize(tri_core *c, queue_entry *e, size_t bytes);
void flow_leave(tri_core *c, queue_entry *e); /* a job that has ended */
uint64_t queue_job_bytes(const tri_core *c);  /* of all jobs in flows */
/* Sets whether jobs have all of the memory that there is: then no new one is taken. */
void queue_set_crowded(tri_core *c, bool crowded);

/* ---- the queue ---- */

/* Puts a job, which is in a flow, to its place in that flow's queue. */
void queue_push(tri_core *c, int64_t now, queue_entry *e);
void queue_remove(tri_core *c, queue_entry *e); /* one that may be in the queue */
int64_t queue_count(const tri_core *c);
/* Returns the job whose turn it is and the replica that has room for it; NULL: none has room for any. */
queue_entry *queue_next(tri_core *c, uint32_t *index);
/* A replica has got the job that queue_next has named last: it leaves the queue and counts as service of its flow. */
void queue_assigned(tri_core *c, queue_entry *e, uint32_t index);
void queue_begun(tri_core *c, queue_entry *e); /* its replica has shown a sign of it */
void queue_released(tri_core *c, queue_entry *e,
                    uint64_t sampled); /* it has ended: service is what was done, in tokens */
/* Its replica is lost: what was done counts at its end. queue_push puts it back to its old place. */
void queue_returned(tri_core *c, queue_entry *e);
/* The replica's leader takes no job: it gets none until queue_unclog. */
void queue_clog(tri_core *c, uint32_t index);
void queue_unclog(tri_core *c);
void queue_release_alone(tri_core *c, uint64_t id); /* the replica that is kept for this job, if one is */

#endif
