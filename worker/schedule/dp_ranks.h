/* SPDX-License-Identifier: Apache-2.0 */
/* The data-parallel ranks of a replica with data-parallel attention: each has KV blocks and slots of its own, and so a
 * scheduler (scheduler.h); all run the same step at the same time.
 *
 * Jobs wait here, in one queue by priority or arrival, and the first goes to a data-parallel rank when one has place
 * for it: slots, blocks for its whole prompt, tokens left in the step, and no job before it. Of those that have, it is
 * the one with the fewest tokens, in its cache and still to be computed, where those of the job that its prefix cache
 * holds count against them: a step takes as long as its slowest data-parallel rank. There it stays, with its choices
 * and beams, since no other data-parallel rank has its blocks. By priority a job that finds no place goes where the
 * least important sequences would make way for it. One data-parallel rank alone gets every job at once.
 *
 * No threads, clocks or sockets here, and nothing allocates but tri_dp_ranks_create. */
#ifndef TRI_WORKER_SCHEDULE_DP_RANKS_H
#define TRI_WORKER_SCHEDULE_DP_RANKS_H

#include "worker/schedule/scheduler.h"

typedef struct tri_dp_ranks tri_dp_ranks;

/* The limits are those of one data-parallel rank. TRI_UNSUPPORTED: several data-parallel ranks of an encoder, or with
 * whole batches. */
tri_status tri_dp_ranks_create(const tri_sched_config *config, int dp, tri_dp_ranks **out);
void tri_dp_ranks_destroy(tri_dp_ranks *s); /* with the jobs that it still holds; NULL is fine */

void tri_dp_ranks_add(tri_dp_ranks *s, tri_job *job); /* takes over */
/* False when the job is unknown (it may just have ended). */
bool tri_dp_ranks_abort(tri_dp_ranks *s, uint64_t job_id);
void tri_dp_ranks_abort_all(tri_dp_ranks *s);

/* See tri_sched_bound_prompts: for each data-parallel rank. */
void tri_dp_ranks_bound_prompts(tri_dp_ranks *s, int tokens);
/* Returns what a micro-batch's next step could have: the most of all data-parallel ranks, as a step takes as long as
 * its slowest one. */
tri_step_outlook tri_dp_ranks_outlook(tri_dp_ranks *s, int micro_batch);
/* Returns likewise what the step has that was composed last. */
tri_step_load tri_dp_ranks_load_of(const tri_dp_ranks *s, tri_plan_writer *const *plans);

/* Composes the next step of a micro-batch that is not busy: plans[dp], one for every data-parallel rank, all of one
 * step; that of a data-parallel rank without work has no sequences. False: no data-parallel rank has anything to do, or
 * what one has must wait for the step under way; the plans mean nothing. */
bool tri_dp_ranks_compose(tri_dp_ranks *s, int micro_batch, tri_plan_writer *const *plans);
/* See tri_sched_awaits_masks: on any data-parallel rank. */
bool tri_dp_ranks_awaits_masks(const tri_dp_ranks *s, int micro_batch, bool late);
/* Takes in what a micro-batch's step sampled on one data-parallel rank. Every data-parallel rank answers every step,
 * one without work with no tokens, and its own steps in their order. */
void tri_dp_ranks_absorb(tri_dp_ranks *s, int dp_rank, int micro_batch, const tri_step_result *result, tri_outbox *out);
/* The same for an encoder, which has one data-parallel rank: see tri_sched_absorb_embed. */
tri_status tri_dp_ranks_absorb_embed(tri_dp_ranks *s, int micro_batch, const tri_embed_result *result, bool by_token,
                                     tri_outbox *out);
/* Ends jobs as tri_sched_reap does, also those that wait for a data-parallel rank. */
bool tri_dp_ranks_reap(tri_dp_ranks *s, int64_t now_ns, tri_outbox *out);
/* Returns a job that has ended, for the caller to destroy; NULL when there is none. */
tri_job *tri_dp_ranks_retired(tri_dp_ranks *s);

bool tri_dp_ranks_has_work(const tri_dp_ranks *s);
/* Returns whether there is work, or an answer has yet to come, even if no job is left for it. */
bool tri_dp_ranks_is_busy(const tri_dp_ranks *s);
/* Returns whether a micro-batch has a step that not all data-parallel ranks have answered. */
bool tri_dp_ranks_is_stepping(const tri_dp_ranks *s);
/* Returns how many steps of a micro-batch all data-parallel ranks have answered. */
uint64_t tri_dp_ranks_num_ended(const tri_dp_ranks *s, int micro_batch);
/* Returns whether as many steps are under way as may be: each is until its last data-parallel rank has answered. */
bool tri_dp_ranks_micro_batch_busy(const tri_dp_ranks *s, int micro_batch);
tri_sched_stats tri_dp_ranks_get_stats(const tri_dp_ranks *s); /* of all */
const tri_sched *tri_dp_ranks_at(const tri_dp_ranks *s, int dp_rank);
/* See tri_sched_set_batch_cost. */
void tri_dp_ranks_set_batch_cost(tri_dp_ranks *s, const tri_batch_cost *c);

#endif
