/* What the scheduler's files share: its state, and the lists, slots and pages that all of them move (schedule_pages.c).
 */
#ifndef TRI_WORKER_SCHEDULE_H
#define TRI_WORKER_SCHEDULE_H

#include "worker/scheduler.h"

typedef struct tri_seq_list {
  tri_sequence *head, *tail;
  int count;
} tri_seq_list;

typedef struct tri_sched_lane {
  tri_seq_list running; /* oldest first */
  bool busy;
} tri_sched_lane;

struct tri_sched {
  tri_sched_config cfg;
  tri_block_pool pool;
  tri_seq_list waiting; /* by (priority, arrival) */
  tri_sched_lane *lanes;
  tri_sequence **slot_owner; /* [max_num_seqs]; NULL: free */
  int num_running;
  tri_job *jobs, *retired;
  uint64_t arrivals, tokens, preemptions;
  uint64_t step;
};

static inline int tri_sched_pages_for(const tri_sched *s, int tokens) {
  return (tokens + s->cfg.limits.block_size - 1) / s->cfg.limits.block_size;
}

/* Its source has yet to be encoded, or to be encoded again. */
static inline bool tri_seq_needs_source(const tri_sequence *q) { return q->job->num_source && !q->num_source_pages; }

void tri_seq_list_remove(tri_seq_list *l, tri_sequence *q);
void tri_seq_list_insert(const tri_sched *s, tri_seq_list *l, tri_sequence *q); /* in its place */
bool tri_seq_before(const tri_sched *s, const tri_sequence *a, const tri_sequence *b);

int tri_sched_free_slot(const tri_sched *s); /* -1: none */
void tri_sched_enter_lane(tri_sched *s, tri_sequence *q, int lane, int slot);
void tri_sched_leave_lane(tri_sched *s, tri_sequence *q); /* drops its pages */

/* Back to the queue; its tokens, the generated ones too, are the prompt of its second computation. */
void tri_sched_preempt(tri_sched *s, tri_sequence *q);
/* The last in order of the running sequences that are not under way and come after q; NULL when there is none. */
tri_sequence *tri_sched_last_idle(const tri_sched *s, const tri_sequence *q);
bool tri_sched_preempt_one(tri_sched *s, const tri_sequence *for_whom);

void tri_sched_drop_pages(tri_sched *s, tri_sequence *q);
void tri_sched_drop_source(tri_sched *s, tri_sequence *q);
/* `to` holds what `from` holds, by reference. */
void tri_sched_share_pages(tri_sched *s, tri_sequence *to, const tri_sequence *from);
void tri_sched_share_source(tri_sched *s, tri_sequence *to, const tri_sequence *from);
/* Pages for the source of q, all or none. */
bool tri_sched_secure_source(tri_sched *s, tri_sequence *q, bool may_preempt);
/* Pages for tokens num_computed .. +n-1 of q. *first is the index of the first page that the plan must name. A page
 * that is shared and about to be written is copied. On failure q has the pages that it had: the plan names only those
 * taken for it, so none may be left over from a plan that did not come. */
bool tri_sched_secure_pages(tri_sched *s, tri_sequence *q, int n, bool may_preempt, tri_plan_writer *plan, int *first);

void tri_sched_end_sequence(tri_sched *s, tri_sequence *q);
void tri_sched_retire_if_done(tri_sched *s, tri_job *j);

#endif
