/* SPDX-License-Identifier: Apache-2.0 */
/* The shards of a group with data-parallel attention: each has KV blocks and slots of its own, and so a scheduler
 * (scheduler.h); all run the same step at the same time.
 *
 * Jobs wait here, in one queue by priority or arrival, and the first goes to a shard when one has place for it: slots,
 * blocks for its whole prompt, tokens left in the step, and no job before it. Of those that have, it is the one with
 * the fewest tokens, in its cache and still to be computed, where those of the job that its prefix cache holds count
 * against them: a step takes as long as its slowest shard. There it stays, with its choices and beams, since no other
 * shard has its blocks. By priority a job that finds no place goes where the least important sequences would make way
 * for it. One shard alone gets every job at once.
 *
 * No threads, clocks or sockets here, and nothing allocates but tri_shards_create. */
#ifndef TRI_WORKER_SCHEDULE_SHARDS_H
#define TRI_WORKER_SCHEDULE_SHARDS_H

#include "worker/schedule/scheduler.h"

typedef struct tri_shards tri_shards;

/* The limits are those of one shard. TRI_UNSUPPORTED: several shards of an encoder, or with whole batches. */
tri_status tri_shards_create(const tri_sched_config *config, int dp, tri_shards **out);
void tri_shards_destroy(tri_shards *s); /* with the jobs that it still holds; NULL is fine */

void tri_shards_add(tri_shards *s, tri_job *job); /* takes over */
/* False when the job is unknown (it may just have ended). */
bool tri_shards_abort(tri_shards *s, uint64_t job_id);
void tri_shards_abort_all(tri_shards *s);

/* Composes the next step of a lane that is not busy: plans[dp], one for every shard, all of one step; that of a shard
 * without work has no sequences. False: no shard has anything to do, or what one has must wait for the step under way;
 * the plans mean nothing. */
bool tri_shards_compose(tri_shards *s, int lane, tri_plan_writer *const *plans);
/* Takes in what a lane's step drew on one shard. Every shard answers every step, one without work with no tokens, and
 * its own steps in their order. */
void tri_shards_absorb(tri_shards *s, int shard, int lane, const tri_step_result *result, tri_outbox *out);
/* The same for an encoder, which has one shard: see tri_sched_absorb_embed. */
tri_status tri_shards_absorb_embed(tri_shards *s, int lane, const tri_embed_result *result, bool by_token,
                                   tri_outbox *out);
/* Ends jobs as tri_sched_reap does, also those that wait for a shard. */
bool tri_shards_reap(tri_shards *s, int64_t now_ns, tri_outbox *out);
/* Returns a job that has ended, for the caller to destroy; NULL when there is none. */
tri_job *tri_shards_retired(tri_shards *s);

bool tri_shards_has_work(const tri_shards *s);
/* Returns whether there is work, or an answer has yet to come, even if no job is left for it. */
bool tri_shards_is_busy(const tri_shards *s);
/* Returns whether a lane has a step that not all shards have answered. */
bool tri_shards_is_stepping(const tri_shards *s);
/* Returns whether as many steps are under way as may be: each is until its last shard has answered. */
bool tri_shards_lane_busy(const tri_shards *s, int lane);
tri_sched_stats tri_shards_get_stats(const tri_shards *s); /* of all */
const tri_sched *tri_shards_at(const tri_shards *s, int shard);
/* See tri_sched_set_batch_cost. */
void tri_shards_set_batch_cost(tri_shards *s, const tri_batch_cost *c);

#endif
