/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences in the scheduler: the list that each is in, its slot, and the blocks that it holds. */
#include "worker/schedule/scheduler_impl.h"

/* ---- lists ---- */

void tri_seq_list_remove(tri_seq_list *l, tri_sequence *q) {
  *(q->prev ? &q->prev->next : &l->head) = q->next;
  *(q->next ? &q->next->prev : &l->tail) = q->prev;
  q->next = q->prev = NULL;
  l->count--;
}

bool tri_seq_before(const tri_sched *s, const tri_sequence *a, const tri_sequence *b) {
  if (s->cfg.by_priority && a->job->priority != b->job->priority) return a->job->priority < b->job->priority;
  if (a->job->arrival != b->job->arrival) return a->job->arrival < b->job->arrival;
  return a->choice < b->choice;
}

void tri_seq_list_insert(const tri_sched *s, tri_seq_list *l, tri_sequence *q) {
  tri_sequence *after = l->tail; /* most come last */
  while (after && tri_seq_before(s, q, after)) after = after->prev;
  q->prev = after;
  q->next = after ? after->next : l->head;
  *(q->prev ? &q->prev->next : &l->head) = q;
  *(q->next ? &q->next->prev : &l->tail) = q;
  l->count++;
}

/* ---- slots ---- */

/* A search chooses among the tokens before, and a constraint says what may follow them. */
static bool is_tied(const tri_job *j) { return j->search || j->constraint; }

static void leave_list(tri_sched *s, tri_sequence *q) {
  tri_seq_list_remove(tri_sched_list(s, q->micro_batch), q);
  if (q->micro_batch >= 0) s->micro_batches[q->micro_batch].num_tied -= is_tied(q->job);
  q->micro_batch = -1;
}

void tri_sched_leave(tri_sched *s, tri_sequence *q) {
  leave_list(s, q);
  s->slot_owner[q->slot] = NULL;
  s->num_running--;
  tri_sched_drop_blocks(s, q);
  tri_sched_drop_source(s, q);
  q->slot = -1;
  q->num_pending = 0;
}

void tri_sched_move(tri_sched *s, tri_sequence *q, int micro_batch) {
  leave_list(s, q);
  q->micro_batch = micro_batch;
  s->micro_batches[micro_batch].num_tied += is_tied(q->job);
  tri_seq_list_insert(s, &s->micro_batches[micro_batch].running, q);
}

void tri_sched_enter(tri_sched *s, tri_sequence *q, int slot) {
  q->state = TRI_SCHED_RUNNING;
  q->micro_batch = -1;
  q->slot = slot;
  q->fresh = true;
  q->since = s->step;
  q->last_step = 0;
  s->slot_owner[slot] = q;
  s->num_running++;
  tri_seq_list_insert(s, &s->prompts, q);
}

int tri_sched_free_slot(const tri_sched *s) {
  for (int i = 0; i < s->cfg.limits.max_num_seqs; i++)
    if (!s->slot_owner[i]) return i;
  return -1;
}

/* ---- blocks ---- */

/* The last one first: of a prefix that others may want, the beginning is kept longest. */
static void drop(tri_sched *s, const int32_t *blocks, int *n) {
  while (*n) tri_block_drop(&s->pool, blocks[--*n]);
}

void tri_sched_drop_blocks(tri_sched *s, tri_sequence *q) {
  drop(s, q->blocks, &q->num_blocks);
  q->num_entered = 0;
}
void tri_sched_drop_source(tri_sched *s, tri_sequence *q) { drop(s, q->source_blocks, &q->num_source_blocks); }

static void share(tri_sched *s, int32_t *to, const int32_t *from, int n) {
  for (int i = 0; i < n; i++) tri_block_share(&s->pool, to[i] = from[i]);
}

void tri_sched_share_blocks(tri_sched *s, tri_sequence *to, const tri_sequence *from) {
  share(s, to->blocks, from->blocks, from->num_blocks);
  to->num_blocks = from->num_blocks;
  to->num_entered = from->num_entered;
  to->prefix = from->prefix;
}

void tri_sched_share_source(tri_sched *s, tri_sequence *to, const tri_sequence *from) {
  share(s, to->source_blocks, from->source_blocks, from->num_source_blocks);
  to->num_source_blocks = from->num_source_blocks;
}

void tri_sched_forget_host_blocks(tri_sched *s, tri_sequence *q) {
  if (q->swapped) {
    s->blocks_swapped -= q->num_host_blocks;
    s->blocked = NULL;
  }
  q->swapped = false;
  q->num_host_blocks = 0;
}

void tri_sched_drop_host_blocks(tri_sched *s, tri_sequence *q) {
  for (int i = q->num_host_blocks; i--;) tri_block_drop(&s->host, q->host_blocks[i]);
  tri_sched_forget_host_blocks(s, q);
}

/* ---- the way back to the queue, and the end ---- */

void tri_sched_count_preemption(tri_sched *s, tri_job *j) {
  s->preemptions++;
  j->preemptions++;
}

void tri_sched_end_sequence(tri_sched *s, tri_sequence *q) {
  if (q->state == TRI_SCHED_RUNNING) tri_sched_leave(s, q);
  if (q->state == TRI_SCHED_WAITING) tri_seq_list_remove(&s->waiting, q);
  tri_sched_drop_host_blocks(s, q);
  q->state = TRI_SCHED_ENDED;
  q->job->num_open--;
}

void tri_sched_retire_if_done(tri_sched *s, tri_job *j) {
  if (j->num_open) return;
  *(j->prev ? &j->prev->next : &s->jobs) = j->next;
  if (j->next) j->next->prev = j->prev;
  j->prev = NULL;
  j->next = s->retired;
  s->retired = j;
}
