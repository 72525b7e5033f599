/* SPDX-License-Identifier: Apache-2.0 */
/* Swapping: a sequence that gives its KV blocks back leaves what they hold in the host's memory, and continues where it
 * was when it has blocks again (PagedAttention, Kwon et al. 2023, section 4.5). With several micro-batches the running
 * ones whose micro-batch has no step at hand leave in turns, too (DeepSpeed-Inference, Aminabadi et al. 2022, section
 * IV.C.2). */
#include "worker/schedule/scheduler_impl.h"

/* Tokens of q that need not be computed again: of those that are known all but the last, after which is sampled. What
 * is pending is sampled again. A first choice stops a token earlier for those who wait to share its blocks. */
static int kept_tokens(const tri_sequence *q) {
  int known = q->num_tokens - 1 - (tri_seq_waits_to_fork(q) ? 1 : 0);
  return q->num_computed < known ? q->num_computed : known;
}

/* Returns whether others have one of these blocks, too. They keep it: q would take a copy along, and want more
 * blocks at its swap-in than it left. */
static bool shares_any(const tri_sched *s, const tri_sequence *q, int blocks) {
  for (int i = 0; i < blocks; i++)
    if (s->pool.refs[q->blocks[i]] > 1) return true;
  return false;
}

static bool is_cheaper(const tri_swap_cost *c, int blocks, int tokens) {
  int computed = tokens > c->free_tokens ? tokens - c->free_tokens : 0;
  return blocks * c->block_s <= computed * c->token_s;
}

/* A sequence that its slot has not heard of has computed nothing. What steps under way say of a prompt is lost with its
 * slot, and has to be computed again. */
static bool may_go_out(const tri_sequence *q) {
  return !q->fresh && !q->job->search && !q->source_blocks && !tri_seq_scores(q);
}

/* The plan only names the moves; the ranks make them before anything else in the step (tri_plan_add_swap_out). So the
 * blocks count as free at once, and the same plan may give them to another sequence. */
static void move_out(tri_sched *s, tri_sequence *q, int blocks) {
  for (int i = 0; i < blocks; i++) {
    q->host_blocks[i] = tri_block_take(&s->host);
    tri_plan_add_swap_out(s->plan, q->blocks[i], q->host_blocks[i]);
  }
  q->num_host_blocks = blocks;
  s->swaps_out++;
  s->blocks_out += (uint64_t)blocks;
}

bool tri_sched_swap_out(tri_sched *s, tri_sequence *q) {
  if (q->num_host_blocks) return true; /* it has not come in yet */
  int tokens = kept_tokens(q), blocks = tri_sched_blocks_for(s, tokens);
  if (tokens < 1 || blocks > tri_block_num_free(&s->host) || !may_go_out(q) || shares_any(s, q, blocks)) return false;
  if (!is_cheaper(&s->cfg.swap_cost, blocks, tokens)) return false;
  move_out(s, q, blocks);
  q->num_computed = tokens;
  return true;
}

/* Blocks that come in are read after those that go out: the host's stay taken until the next step, so that nothing
 * goes where something still comes from. */
void tri_sched_swap_in(tri_sched *s, tri_sequence *q) {
  int blocks = q->num_host_blocks;
  for (int i = 0; i < blocks; i++) {
    q->blocks[i] = tri_block_take(&s->pool);
    tri_plan_add_swap_in(s->plan, q->blocks[i], q->host_blocks[i]);
    s->blocks_read[s->num_blocks_read++] = q->host_blocks[i];
  }
  q->num_blocks = blocks;
  tri_sched_forget_host_blocks(s, q);
  s->swaps_in++;
  s->blocks_in += (uint64_t)blocks;
}

void tri_sched_end_reads(tri_sched *s) {
  while (s->num_blocks_read) tri_block_drop(&s->host, s->blocks_read[--s->num_blocks_read]);
}

/* ---- idle micro-batches ---- */

/* One sequence more in flight than there are blocks for costs each micro-batch's step the way of one out and of another
 * in. It pays while that is less than a step has for each of its round's tokens: N / t < (N + 1) / (t + cost). */
static bool pays_to_leave(const tri_swap_cost *c, int blocks) { return blocks * c->block_s <= c->decode_s; }

/* It decodes, and none of its tokens is in the step at hand; its last ones are, or will be, in its blocks by then. */
static bool may_leave(const tri_sched *s, const tri_sequence *q) {
  int blocks = q->num_blocks;
  if (q->swapped || !blocks || q->last_step == s->step || !may_go_out(q) || tri_seq_ends(q) || q->job->aborted)
    return false;
  return blocks <= tri_block_num_free(&s->host) && pays_to_leave(&s->cfg.swap_cost, blocks) &&
         !shares_any(s, q, blocks);
}

static tri_sequence *last_to_leave(const tri_sched *s, int micro_batch) {
  tri_sequence *q = s->micro_batches[micro_batch].running.tail;
  while (q && !may_leave(s, q)) q = q->prev;
  return q;
}

bool tri_sched_swap_out_one(tri_sched *s) {
  tri_sequence *leaves = NULL;
  uint64_t latest = 0;
  for (int l = 0; s->host.num_blocks && l < s->cfg.num_micro_batches; l++) {
    if (l == (int)s->plan->h.micro_batch || (leaves && s->micro_batches[l].last_step <= latest)) continue;
    tri_sequence *q = last_to_leave(s, l);
    if (!q) continue;
    leaves = q;
    latest = s->micro_batches[l].last_step;
  }
  if (!leaves) return false;
  move_out(s, leaves, leaves->num_blocks);
  tri_sched_drop_blocks(s, leaves);
  leaves->swapped = true;
  s->blocks_swapped += leaves->num_host_blocks;
  return true;
}
