/* SPDX-License-Identifier: Apache-2.0 */
/* A step is composed for all data-parallel ranks at once and counts as under way until each has answered. Answers have
 * no step number to be found by: each rank's come in the order of its steps, so that counting them says which one it
 * is. A rank without sequences in a step answers, too, and its scheduler hears nothing of it. */
#include "worker/schedule/dp_ranks.h"

#include "worker/schedule/scheduler_impl.h"

/* A step under way. */
struct step {
  int due;     /* answers */
  bool *works; /* [dp] the data-parallel ranks that have sequences in it */
};

/* Steps begin and end in their order: each data-parallel rank's answers come in it. */
struct micro_batch {
  struct step *steps; /* [depth] a ring */
  uint64_t begun, ended;
  uint64_t *answered; /* [dp] by each data-parallel rank */
};

struct tri_dp_ranks {
  int dp, num_micro_batches, depth;
  bool by_priority;
  tri_sched **scheds; /* [dp] */
  struct micro_batch *micro_batches;
  tri_job *first, *last; /* the queue */
  int num_waiting;       /* sequences in it */
  uint64_t step;
};

/* ---- set-up ---- */

static tri_status create_micro_batch(const tri_dp_ranks *s, struct micro_batch *l) {
  l->steps = tri_calloc((size_t)s->depth, sizeof *l->steps);
  l->answered = tri_calloc((size_t)s->dp, sizeof *l->answered);
  if (!l->steps || !l->answered) return TRI_NO_MEMORY;
  for (int i = 0; i < s->depth; i++)
    if (!(l->steps[i].works = tri_calloc((size_t)s->dp, sizeof *l->steps[i].works))) return TRI_NO_MEMORY;
  return TRI_OK;
}

static void destroy_micro_batch(const tri_dp_ranks *s, struct micro_batch *l) {
  for (int i = 0; l->steps && i < s->depth; i++) tri_free(l->steps[i].works);
  tri_free(l->steps);
  tri_free(l->answered);
}

tri_status tri_dp_ranks_create(const tri_sched_config *config, int dp, tri_dp_ranks **out) {
  tri_status st = TRI_OK;
  if (dp < 1) return TRI_INVALID_ARGUMENT;
  if (dp > 1 && config->limits.whole_sequences) return TRI_UNSUPPORTED;
  tri_dp_ranks *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  s->dp = dp;
  s->num_micro_batches = config->num_micro_batches;
  s->depth = config->depth ? config->depth : 1;
  s->by_priority = config->by_priority;
  s->scheds = tri_calloc((size_t)dp, sizeof *s->scheds);
  s->micro_batches = tri_calloc((size_t)s->num_micro_batches, sizeof *s->micro_batches);
  TRI_TRY(s->scheds && s->micro_batches ? TRI_OK : TRI_NO_MEMORY);
  for (int i = 0; i < dp; i++) TRI_TRY(tri_sched_create(config, &s->scheds[i]));
  for (int l = 0; l < s->num_micro_batches; l++) TRI_TRY(create_micro_batch(s, &s->micro_batches[l]));
  *out = s;
  s = NULL;
cleanup:
  tri_dp_ranks_destroy(s);
  return st;
}

void tri_dp_ranks_destroy(tri_dp_ranks *s) {
  if (!s) return;
  for (tri_job *j = s->first, *next; j; j = next) {
    next = j->next;
    tri_job_destroy(j);
  }
  for (int l = 0; s->micro_batches && l < s->num_micro_batches; l++) destroy_micro_batch(s, &s->micro_batches[l]);
  for (int i = 0; s->scheds && i < s->dp; i++) tri_sched_destroy(s->scheds[i]);
  tri_free(s->micro_batches);
  tri_free(s->scheds);
  tri_free(s);
}

/* ---- the queue ---- */

static int num_waiting(const tri_job *j) {
  int n = 0;
  for (int i = 0; i < j->num_seqs; i++) n += j->seqs[i].state == TRI_SCHED_WAITING;
  return n;
}

void tri_dp_ranks_add(tri_dp_ranks *s, tri_job *j) {
  if (s->dp == 1) {
    tri_sched_add(s->scheds[0], j);
    return;
  }
  tri_job *after = s->last;
  while (s->by_priority && after && after->priority > j->priority) after = after->prev;
  j->prev = after;
  j->next = after ? after->next : s->first;
  *(j->prev ? &j->prev->next : &s->first) = j;
  *(j->next ? &j->next->prev : &s->last) = j;
  s->num_waiting += num_waiting(j);
}

/* Moves a job from the queue to a data-parallel rank. */
static void give(tri_dp_ranks *s, tri_job *j, int dp_rank) {
  *(j->prev ? &j->prev->next : &s->first) = j->next;
  *(j->next ? &j->next->prev : &s->last) = j->prev;
  s->num_waiting -= num_waiting(j);
  tri_sched_add(s->scheds[dp_rank], j);
}

bool tri_dp_ranks_abort(tri_dp_ranks *s, uint64_t job_id) {
  for (tri_job *j = s->first; j; j = j->next)
    if (j->id == job_id) {
      j->aborted = true;
      return true;
    }
  for (int i = 0; i < s->dp; i++)
    if (tri_sched_abort(s->scheds[i], job_id)) return true;
  return false;
}

void tri_dp_ranks_abort_all(tri_dp_ranks *s) {
  for (tri_job *j = s->first; j; j = j->next) j->aborted = true;
  for (int i = 0; i < s->dp; i++) tri_sched_abort_all(s->scheds[i]);
}

/* A job that ends before it has a data-parallel rank is answered for by the first one's scheduler, like any that waits
 * there. */
bool tri_dp_ranks_reap(tri_dp_ranks *s, int64_t now_ns, tri_outbox *out) {
  bool all = true;
  for (tri_job *j = s->first, *next; j; j = next) {
    next = j->next;
    bool over = j->num_over == j->num_open;
    if (over || j->aborted || now_ns >= j->deadline_ns) give(s, j, 0);
  }
  for (int i = 0; i < s->dp; i++) all &= tri_sched_reap(s->scheds[i], now_ns, out);
  return all;
}

/* ---- composing ---- */

/* Returns the data-parallel rank with place for a job that has the fewest tokens, without those of the job that need
 * not be computed there; -1: none has place. */
static int find_place(const tri_dp_ranks *s, const tri_job *j) {
  int best = -1;
  int64_t least = 0;
  for (int i = 0; i < s->dp; i++) {
    if (!tri_sched_has_place(s->scheds[i], j)) continue;
    int64_t load = tri_sched_load_with(s->scheds[i], j);
    if (best >= 0 && load >= least) continue;
    best = i;
    least = load;
  }
  return best;
}

/* Returns the data-parallel rank where those who would make way for a job matter least, and among equals that with the
 * fewest tokens; -1: none. */
static int find_way(const tri_dp_ranks *s, const tri_job *j) {
  int best = -1;
  int64_t most = 0, least = 0, yields;
  for (int i = 0; i < s->dp; i++) {
    if (!tri_sched_would_make_way(s->scheds[i], j, &yields)) continue;
    int64_t load = tri_sched_load(s->scheds[i]);
    if (best >= 0 && (yields < most || (yields == most && load >= least))) continue;
    best = i;
    most = yields;
    least = load;
  }
  return best;
}

/* Comes before running sequences get their part of this step: those that have one make way no more. */
static void give_urgent(tri_dp_ranks *s) {
  for (int i; s->by_priority && s->first && find_place(s, s->first) < 0; give(s, s->first, i))
    if ((i = find_way(s, s->first)) < 0) return;
}

/* One at a time: whom a data-parallel rank takes into this step counts when the next one's is looked for. */
static void give_and_admit(tri_dp_ranks *s, int micro_batch, tri_plan_writer *const *plans) {
  for (int i = 0; i < s->dp; i++) tri_sched_admit(s->scheds[i], micro_batch, plans[i]);
  for (int i; s->first && (i = find_place(s, s->first)) >= 0;) {
    give(s, s->first, i);
    tri_sched_admit(s->scheds[i], micro_batch, plans[i]);
  }
}

/* Micro-batches of a data-parallel rank share evenly what it may get of the queue, too. */
static void expect(tri_dp_ranks *s) {
  for (int i = 0; i < s->dp; i++) tri_sched_expect(s->scheds[i], (s->num_waiting + s->dp - 1) / s->dp);
}

void tri_dp_ranks_bound_prompts(tri_dp_ranks *s, int tokens) {
  for (int i = 0; i < s->dp; i++) tri_sched_bound_prompts(s->scheds[i], tokens);
}

static int larger(int a, int b) { return a > b ? a : b; }

tri_step_outlook tri_dp_ranks_outlook(tri_dp_ranks *s, int micro_batch) {
  tri_step_outlook all = {.prompts = s->first != NULL};
  expect(s);
  for (int i = 0; i < s->dp; i++) {
    tri_step_outlook one = tri_sched_outlook(s->scheds[i], micro_batch);
    all.decodes = larger(all.decodes, one.decodes);
    all.sequences = larger(all.sequences, one.sequences);
    all.prompts |= one.prompts;
  }
  return all;
}

tri_step_load tri_dp_ranks_load_of(const tri_dp_ranks *s, tri_plan_writer *const *plans) {
  tri_step_load all = {0};
  for (int i = 0; i < s->dp; i++) {
    tri_step_load one = tri_sched_load_of(s->scheds[i], plans[i]);
    all.decodes = larger(all.decodes, one.decodes);
    all.prompt_tokens = larger(all.prompt_tokens, one.prompt_tokens);
  }
  return all;
}

/* A search on one data-parallel rank keeps the micro-batch's steps apart for all: else it would miss every other one,
 * and its data-parallel rank's other sequences with it. */
static bool may_begin(const tri_dp_ranks *s, int micro_batch) {
  bool any = s->first != NULL;
  for (int i = 0; i < s->dp; i++) {
    if (tri_sched_micro_batch_is_tied(s->scheds[i], micro_batch)) return false;
    any |= tri_sched_micro_batch_has_any(s->scheds[i], micro_batch);
  }
  return any;
}

bool tri_dp_ranks_compose(tri_dp_ranks *s, int micro_batch, tri_plan_writer *const *plans) {
  struct micro_batch *l = &s->micro_batches[micro_batch];
  struct step *step = &l->steps[l->begun % (uint64_t)s->depth];
  bool any = false;
  if (!may_begin(s, micro_batch)) return false;
  expect(s);
  for (int i = 0; i < s->dp; i++) tri_sched_begin_step(s->scheds[i], micro_batch, s->step + 1, plans[i]);
  give_urgent(s);
  for (int i = 0; i < s->dp; i++) tri_sched_run(s->scheds[i], micro_batch, plans[i]);
  give_and_admit(s, micro_batch, plans);
  for (int i = 0; i < s->dp; i++) any |= step->works[i] = tri_sched_end_step(s->scheds[i], micro_batch, plans[i]);
  if (!any) return false;
  step->due = s->dp;
  l->begun++;
  s->step++;
  return true;
}

bool tri_dp_ranks_awaits_masks(const tri_dp_ranks *s, int micro_batch, bool late) {
  for (int i = 0; i < s->dp; i++)
    if (tri_sched_awaits_masks(s->scheds[i], micro_batch, late)) return true;
  return false;
}

/* ---- absorbing ---- */

/* Notes a data-parallel rank's answer. True: it has sequences in that step. */
static bool answer(const tri_dp_ranks *s, int micro_batch, int dp_rank) {
  struct micro_batch *l = &s->micro_batches[micro_batch];
  struct step *step = &l->steps[l->answered[dp_rank]++ % (uint64_t)s->depth];
  if (!--step->due) l->ended++;
  return step->works[dp_rank];
}

void tri_dp_ranks_absorb(tri_dp_ranks *s, int dp_rank, int micro_batch, const tri_step_result *result,
                         tri_outbox *out) {
  if (answer(s, micro_batch, dp_rank)) tri_sched_absorb(s->scheds[dp_rank], micro_batch, result, out);
}

tri_status tri_dp_ranks_absorb_embed(tri_dp_ranks *s, int micro_batch, const tri_embed_result *result, bool by_token,
                                     tri_outbox *out) {
  return answer(s, micro_batch, 0) ? tri_sched_absorb_embed(s->scheds[0], micro_batch, result, by_token, out)
                                   : TRI_CORRUPT;
}

tri_job *tri_dp_ranks_retired(tri_dp_ranks *s) {
  for (int i = 0; i < s->dp; i++) {
    tri_job *j = tri_sched_retired(s->scheds[i]);
    if (j) return j;
  }
  return NULL;
}

/* ---- figures ---- */

bool tri_dp_ranks_has_work(const tri_dp_ranks *s) {
  for (int i = 0; i < s->dp; i++)
    if (tri_sched_has_work(s->scheds[i])) return true;
  return s->first != NULL;
}

bool tri_dp_ranks_is_stepping(const tri_dp_ranks *s) {
  for (int l = 0; l < s->num_micro_batches; l++)
    if (s->micro_batches[l].begun != s->micro_batches[l].ended) return true;
  return false;
}

bool tri_dp_ranks_is_busy(const tri_dp_ranks *s) { return tri_dp_ranks_is_stepping(s) || tri_dp_ranks_has_work(s); }

uint64_t tri_dp_ranks_num_ended(const tri_dp_ranks *s, int micro_batch) { return s->micro_batches[micro_batch].ended; }

bool tri_dp_ranks_micro_batch_busy(const tri_dp_ranks *s, int micro_batch) {
  const struct micro_batch *l = &s->micro_batches[micro_batch];
  return l->begun - l->ended >= (uint64_t)s->depth;
}

tri_sched_stats tri_dp_ranks_get_stats(const tri_dp_ranks *s) {
  tri_sched_stats all = {.waiting = (uint32_t)s->num_waiting};
  for (int i = 0; i < s->dp; i++) {
    tri_sched_stats one = tri_sched_get_stats(s->scheds[i]);
    all.running += one.running;
    all.waiting += one.waiting;
    all.blocks_used += one.blocks_used;
    all.tokens += one.tokens;
    all.preemptions += one.preemptions;
    all.host_blocks_used += one.host_blocks_used;
    all.swaps_out += one.swaps_out;
    all.swaps_in += one.swaps_in;
    all.blocks_out += one.blocks_out;
    all.blocks_in += one.blocks_in;
    all.prefix_queries += one.prefix_queries;
    all.prefix_hits += one.prefix_hits;
    all.prefix_evictions += one.prefix_evictions;
  }
  return all;
}

const tri_sched *tri_dp_ranks_at(const tri_dp_ranks *s, int dp_rank) { return s->scheds[dp_rank]; }

void tri_dp_ranks_set_batch_cost(tri_dp_ranks *s, const tri_batch_cost *c) {
  for (int i = 0; i < s->dp; i++) tri_sched_set_batch_cost(s->scheds[i], c);
}
