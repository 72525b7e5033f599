/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: requests from their submission until no client can attach to them any more. What others have of them stands
 * here. */
#ifndef TRI_COORDINATOR_JOBS_JOBS_H
#define TRI_COORDINATOR_JOBS_JOBS_H

#include "coordinator/core_config.h"
#include "coordinator/jobs/response_cache.h"

tri_status jobs_open(tri_core *c);
void jobs_close(tri_core *c);

/* ---- clients ---- */

void job_submit(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
void job_attach(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
void job_cancel(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
/* A job's schema cannot be kept. */
void job_schema_refused(tri_core *c, int64_t now, uint64_t id, const tri_error *why);
/* The tokenizer is done with a job. second: see tri_tokenizer_encode_pair. */
void job_tokenized(tri_core *c, int64_t now, uint64_t id, tri_status st, const uint32_t *ids, size_t count,
                   size_t second);
void deliver_all(tri_core *c, int64_t now); /* sends what clients have not had, of every job that has something new */
/* Finds the clients that have gone while nothing was said to them. */
void deliver_tick(tri_core *c, int64_t now);
/* See tri_core_connections_ended. */
void deliver_connections_ended(tri_core *c, int64_t now, const tri_connections *ended);

/* ---- replicas ---- */

void job_dispatch(tri_core *c, int64_t now); /* queued jobs to ready replicas */
void job_tokens(tri_core *c, int64_t now, uint32_t replica, const tri_replica_tokens *tokens);
void job_results(tri_core *c, int64_t now, uint32_t replica, const tri_replica_results *results); /* of an encoder */
void job_refused(tri_core *c, int64_t now, uint32_t replica, const tri_replica_msg *m);           /* by its leader */
/* Queues the jobs of a replica that is lost, or ends them where no replica is left that could run them again. */
void jobs_lose_replica(tri_core *c, int64_t now, uint32_t replica, const char *reason);
/* Takes back what a replica had, whose leader has let go of it; returns how many jobs that are. */
unsigned jobs_queue_again(tri_core *c, int64_t now, uint32_t replica);

/* ---- time, and the end ---- */

void jobs_tick(tri_core *c, int64_t now);
/* Ends what waits in a drain while no replica is left, or is about to come. */
void jobs_end_late(tri_core *c, int64_t now);
/* See tri_core_abandon; the messages to clients that it makes are to be delivered. */
void jobs_abandon(tri_core *c, int64_t now, const char *reason);

/* ---- refusals ---- */

/* Returns whether an error tells what is wrong with the request itself, which is no failure of the cluster. */
bool admission_is_invalid(const tri_error *err);
/* Names that as the HTTP gateway does: what can never fit is another thing than a cluster without room. */
const char *admission_reason(tri_status st);
uint64_t admission_invalid(const tri_core *c); /* how many such requests there were */
/* Counts a request that an error has ended. */
void admission_count(tri_core *c, const tri_error *err);

/* ---- figures ---- */

bool jobs_have_ended(const tri_core *c); /* all of them: none waits or runs */
bool jobs_are_over(const tri_core *c);   /* and all clients have been told */
/* Returns the journal's folder, where its disk is full and no job is taken; else an empty text. */
const char *jobs_full(const tri_core *c);
uint64_t jobs_retained_bytes(const tri_core *c); /* of those that have ended */
/* Counts jobs with a first token, or in an encoder's replica, and those before it. */
void jobs_count(const tri_core *c, uint64_t *running, uint64_t *waiting);
/* The same for a status, with the clients that they belong to. */
void jobs_report(const tri_core *c, tri_cluster_status *s);
bool jobs_cache_figures(const tri_core *c, tri_response_cache_figures *out); /* false: there is no response cache */

#endif
