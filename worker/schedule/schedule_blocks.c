/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's lists, slots and blocks. */
#include <string.h>

#include "worker/schedule/scheduler_impl.h"

/* ---- lists ---- */

void tri_seq_list_remove(tri_seq_list *l, tri_sequence *q) {
  *(q->prev ? &q->prev->next : &l->head) = q->next;
  *(q->next ? &q->next->prev : &l->tail) = q->prev;
  q->next = q->prev = NULL;
  l->count--;
}

/* a runs before b. */
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

/* A search chooses among the tokens before. */
static bool is_tied(const tri_job *j) { return j->search != NULL; }

static void leave_list(tri_sched *s, tri_sequence *q) {
  tri_seq_list_remove(tri_sched_list(s, q->lane), q);
  if (q->lane >= 0) s->lanes[q->lane].num_tied -= is_tied(q->job);
  q->lane = -1;
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

void tri_sched_move(tri_sched *s, tri_sequence *q, int lane) {
  leave_list(s, q);
  q->lane = lane;
  s->lanes[lane].num_tied += is_tied(q->job);
  tri_seq_list_insert(s, &s->lanes[lane].running, q);
}

void tri_sched_enter(tri_sched *s, tri_sequence *q, int slot) {
  q->state = TRI_SCHED_RUNNING;
  q->lane = -1;
  q->slot = slot;
  q->fresh = true;
  q->since = s->step;
  q->last_step = 0;
  s->slot_owner[slot] = q;
  s->num_running++;
  s->batch_size++;
  tri_seq_list_insert(s, &s->prompts, q);
}

int tri_sched_free_slot(const tri_sched *s) {
  for (int i = 0; i < s->cfg.limits.max_num_seqs; i++)
    if (!s->slot_owner[i]) return i;
  return -1;
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

bool tri_sched_make_room(tri_sched *s, const tri_sequence *q) {
  return tri_sched_send_away(s) || tri_sched_preempt_one(s, q);
}

static bool take_block(tri_sched *s, const tri_sequence *q, int32_t *block, bool may_preempt) {
  while ((*block = tri_block_take(&s->pool)) < 0)
    if (!may_preempt || !tri_sched_make_room(s, q)) return false;
  return true;
}

bool tri_sched_secure_source(tri_sched *s, tri_sequence *q, bool may_preempt) {
  int need = tri_sched_blocks_for(s, q->job->num_source);
  while (q->num_source_blocks < need) {
    if (!take_block(s, q, &q->source_blocks[q->num_source_blocks], may_preempt)) {
      tri_sched_drop_source(s, q);
      return false;
    }
    q->num_source_blocks++;
  }
  return true;
}

static bool is_shared(const tri_sched *s, const tri_sequence *q, int index) {
  return q->num_computed % s->cfg.limits.block_size && s->pool.refs[q->blocks[index]] > 1;
}

bool tri_sched_secure_blocks(tri_sched *s, tri_sequence *q, int n, bool may_preempt, tri_plan_writer *plan,
                             int *first) {
  int need = tri_sched_blocks_for(s, q->num_computed + n), at = q->num_computed / s->cfg.limits.block_size;
  int had = q->num_blocks;
  int32_t copy;
  while (q->num_blocks < need) {
    if (!take_block(s, q, &q->blocks[q->num_blocks], may_preempt)) goto fail;
    q->num_blocks++;
  }
  *first = had;
  if (!is_shared(s, q, at)) return true;
  if (take_block(s, q, &copy, may_preempt)) {
    tri_plan_add_copy(plan, q->blocks[at], copy);
    tri_block_drop(&s->pool, q->blocks[at]);
    q->blocks[at] = copy;
    *first = at;
  } else if (is_shared(s, q, at)) { /* those who shared it may just have been preempted */
    goto fail;
  }
  return true;
fail:
  while (q->num_blocks > had) tri_block_drop(&s->pool, q->blocks[--q->num_blocks]);
  return false;
}

/* Decoders that run will soon want one more block, and so will the beams of a search; those that are away want theirs
 * again. */
static int needed_blocks(const tri_sched *s, const tri_sequence *q) {
  int need = tri_sched_blocks_for(s, q->num_tokens);
  if (tri_seq_needs_source(q)) need += tri_sched_blocks_for(s, q->job->num_source);
  if (q->job->search && q->job->max_tokens > 1) need += q->job->num_seqs - 1;
  return need + s->blocks_away + (s->num_running > 0 && !s->cfg.limits.whole_sequences);
}

bool tri_sched_finds_blocks(const tri_sched *s, const tri_sequence *q, tri_prefix_hit hit) {
  return tri_block_num_free(&s->pool) - hit.idle >= needed_blocks(s, q) - hit.blocks;
}

bool tri_sched_would_find_blocks(const tri_sched *s, const tri_sequence *q, int more) {
  return tri_block_num_free(&s->pool) + more >= needed_blocks(s, q);
}

bool tri_seq_finds_place(const tri_sched *s, const tri_sequence *q) {
  return tri_sched_num_free(s) >= tri_seq_slots(q) && tri_sched_finds_blocks(s, q, tri_sched_prefix_find(s, q));
}

/* ---- figures ---- */

tri_sched_stats tri_sched_get_stats(const tri_sched *s) {
  return (tri_sched_stats){
      .running = (uint32_t)s->num_running,
      .waiting = (uint32_t)s->waiting.count,
      .blocks_used = (uint64_t)(s->pool.num_blocks - tri_block_num_free(&s->pool)),
      .tokens = s->tokens,
      .preemptions = s->preemptions,
      .host_blocks_used = (uint64_t)(s->host.num_blocks - tri_block_num_free(&s->host) - s->num_blocks_read),
      .swaps_out = s->swaps_out,
      .swaps_in = s->swaps_in,
      .blocks_out = s->blocks_out,
      .blocks_in = s->blocks_in,
      .prefix_queries = s->prefix_queries,
      .prefix_hits = s->prefix_hits,
      .prefix_evictions = s->pool.cache ? tri_prefix_num_evicted(s->pool.cache) : 0,
  };
}
