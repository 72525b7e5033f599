/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core: a state machine without sockets, clocks, threads or files.
 *
 * Inputs are the calls below, each with the time it happened, and what the calls on tri_core_io return: the status of
 * to_client and look (TRI_AGAIN keeps a message for later, TRI_CLOSED may cancel a job), the status of to_worker (other
 * than TRI_OK leaves a job in the queue), and the status, the ids and the numbers of tokenize, and random's bytes.
 * Outputs are the calls on tri_core_io. The same inputs in the same order give the same outputs. Of these a journal
 * keeps what another core must know to continue (record.h). One thread owns it. */
#ifndef TRI_COORDINATOR_CORE_H
#define TRI_COORDINATOR_CORE_H

#include "coordinator/core_config.h"
#include "coordinator/jobs/recovery.h"

/* Copies *config, but not what its pointers lead to. Times of all calls are tri_now_ns, and never go back. */
tri_status tri_core_create(const tri_core_config *config, int64_t now, tri_core **out);
void tri_core_destroy(tri_core *c); /* NULL is fine */

/* ---- inputs ---- */

/* Takes a request that has been unpacked. Its strings are borrowed for the call. */
void tri_core_client(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m);
/* Answers bytes that were no request. */
void tri_core_client_error(tri_core *c, int64_t now, const tri_peer *from, uint64_t id, const tri_error *err);
/* Connections of clients have ended: those that had them are looked for soon. */
void tri_core_connections_ended(tri_core *c, int64_t now, const tri_connections *ended);
/* Brings what tri_core_io.tokenize had put off: ids are borrowed for the call, st says why there are none. A job that
 * is gone is passed over. */
void tri_core_tokenized(tri_core *c, int64_t now, uint64_t job, tri_status st, const uint32_t *ids, size_t count,
                        size_t second);
/* Brings, instead of that, why a job's schema is refused. */
void tri_core_schema_refused(tri_core *c, int64_t now, uint64_t job, const tri_error *why);
/* Takes a rank's message. One that does not come over the connection of the rank that it names is passed over. */
void tri_core_worker(tri_core *c, int64_t now, const tri_peer *from, const tri_replica_msg *m);
/* A replica has ended, as its supervisor sees: it gets no jobs any more, and is lost as soon as what its ranks may
 * have said before has had time to come, which tells more than `reason`. */
void tri_core_replica_died(tri_core *c, int64_t now, uint32_t replica, uint64_t epoch, const char *reason);
/* A start of a replica begins, or was begun before: from now on no other of it may register that has not. */
void tri_core_replica_expected(tri_core *c, uint32_t replica, uint64_t epoch);
void tri_core_replica_held(tri_core *c, uint32_t replica, tri_core_hold hold, int64_t until_ns, const char *reason);
/* Sets whether jobs have all of the memory that there is: then no new job is taken. */
void tri_core_set_crowded(tri_core *c, bool crowded);
/* Says that the coordinator stood still itself until now, as one that was stopped or whose disk did: ranks have
 * reported what has not been read, and the watchdog is suspended for the time from one report to the next. */
void tri_core_stood_still(tri_core *c, int64_t now);
/* Sees to deadlines, leases, retries and the watchdog. Called about ten times a second. */
void tri_core_tick(tri_core *c, int64_t now);
/* Takes no new work; replicas have to leave when the last job has ended. The watchdog is suspended, as what ranks
 * have reported may come after the request to end. */
void tri_core_drain(tri_core *c);
/* Ends every job with an error, here and in its replica: the cluster goes down. */
void tri_core_abandon(tri_core *c, int64_t now, const char *reason);

/* ---- questions ---- */

bool tri_core_is_idle(const tri_core *c); /* no job that has not ended, none whose end is undelivered */
void tri_core_load_of(const tri_core *c, tri_core_load *out);
void tri_core_set_facts(tri_core *c, const tri_core_facts *facts);
uint64_t tri_core_generated_tokens(const tri_core *c);
uint64_t tri_core_cached_bytes(const tri_core *c); /* memory of the response cache */
uint64_t tri_core_job_bytes(const tri_core *c);    /* of jobs, also of those that have ended */
uint64_t tri_core_lost(const tri_core *c); /* jobs that were under way when a drain or an abandon began, and failed */

#endif
