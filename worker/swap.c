/* Swapping: a sequence that gives its KV blocks back leaves what they hold in the host's memory, and goes on where it
 * was when it has blocks again (PagedAttention, Kwon et al. 2023, section 4.5). */
#include "worker/schedule.h"

/* Tokens of q that need not be computed again: of those that are known all but the last, behind which is drawn. What is
 * pending is drawn again. A first choice stops a token earlier for those who wait to share its blocks. */
static int kept_tokens(const tri_sequence *q) {
  int known = q->num_tokens - 1 - (tri_seq_waits_to_fork(q) ? 1 : 0);
  return q->num_computed < known ? q->num_computed : known;
}

/* Tells whether others have one of these blocks, too. They go on with it: q would take a copy along, and want more
 * blocks when it comes back than it left. */
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
 * slot, and has to be computed again. Blocks that come in are read behind those that go
 * out: none may go where one still comes from. */
static bool may_go_out(const tri_sched *s, const tri_sequence *q) {
  return !q->fresh && !q->job->search && !q->source_blocks && !tri_seq_scores(q) && !s->plan->h.num_swaps_in;
}

bool tri_sched_swap_out(tri_sched *s, tri_sequence *q) {
  if (q->num_host_blocks) return true; /* it has not come in yet */
  int tokens = kept_tokens(q), blocks = tri_sched_blocks_for(s, tokens);
  if (tokens < 1 || blocks > tri_block_num_free(&s->host) || !may_go_out(s, q) || shares_any(s, q, blocks))
    return false;
  if (!is_cheaper(&s->cfg.swap_cost, blocks, tokens)) return false;
  for (int i = 0; i < blocks; i++) {
    q->host_blocks[i] = tri_block_take(&s->host);
    tri_plan_add_swap_out(s->plan, q->blocks[i], q->host_blocks[i]);
  }
  q->num_host_blocks = blocks;
  q->num_computed = tokens;
  s->swaps_out++;
  s->blocks_out += (uint64_t)blocks;
  return true;
}

bool tri_sched_swap_in(tri_sched *s, tri_sequence *q) {
  int blocks = q->num_host_blocks;
  if (blocks > tri_block_num_free(&s->pool)) return false;
  for (int i = 0; i < blocks; i++) {
    q->blocks[i] = tri_block_take(&s->pool);
    tri_plan_add_swap_in(s->plan, q->blocks[i], q->host_blocks[i]);
  }
  q->num_blocks = blocks;
  tri_sched_drop_host_blocks(s, q);
  s->swaps_in++;
  s->blocks_in += (uint64_t)blocks;
  return true;
}

void tri_sched_drop_host_blocks(tri_sched *s, tri_sequence *q) {
  while (q->num_host_blocks) tri_block_drop(&s->host, q->host_blocks[--q->num_host_blocks]);
}
