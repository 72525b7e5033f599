/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's step loop: commands in, plans out, results in, tokens out.
 *
 * The loop never waits for one thing: in each round it takes what has come from the control thread, ends jobs that are
 * over, and for every micro-batch composes a step where one may begin, looks for the end of this rank's own part, and
 * for results of sampling ranks. It pauses only after a round in which nothing happened, and sleeps only where nothing
 * is under way. A pipeline is kept full by that alone: whichever micro-batch can begin a step does so.
 *
 * Every rank gets plans in one order, that of composing, over messages that keep their order; so all ranks run the same
 * steps one after the other without any other agreement. */
#include <string.h>

#include "base/log.h"
#include "worker/process/canary.h"
#include "worker/cost/encoder_cost.h"
#include "worker/placement/eplb_run.h"
#include "worker/cost/layer_seconds.h"
#include "worker/process/scheduler_figures.h"
#include "worker/schedule/dp_ranks.h"
#include "worker/cost/swap_cost.h"
#include "worker/process/warm_up.h"
#include "worker/process/worker.h"

enum { MASKS_SLEEP_NS = 1000000 }; /* while nothing is under way: each mask that is made wakes the leader */
/* For so long a step waits for masks of constrained answers, which take microseconds; then it begins without them. */
static const int64_t MASKS_GRACE_NS = 2000000;
enum { IDLE_SLEEP_NS = 500000000 }; /* a command wakes the leader; now and then it looks at what has no command */
/* After which a warm-up begins no more steps. Where weights are streamed the time begins with the canary, as steps wait
 * longer for weights than for a kernel that is loaded or launched for the first time: a pass over a disk's files may
 * take longer than all of this, and the canary's is then the only one. */
static const int64_t WARM_UP_NS = 8000000000, STREAMED_WARM_UP_NS = 1000000000;
static const int64_t MEASURE_NS = 2000000000; /* for what an encoder's batches cost */

struct micro_batch {
  void **plans;        /* [data-parallel ranks] copies that the transfers to the other ranks read */
  tri_comm_req *sends; /* [world] */
  int64_t masks_since; /* when its next step was first seen to lack masks; 0: it does not */
};

/* A finished one. */
struct plan {
  const void *bytes;
  size_t len;
};

struct leader {
  tri_worker *w;
  tri_dp_ranks *dp_ranks;
  tri_plan_writer **writers; /* [data-parallel ranks] */
  struct micro_batch *micro_batches;
  tri_outbox *out;
  tri_eplb *eplb;         /* NULL: experts stay where they are */
  int64_t held_ns;        /* since when no step begins, for its sake; 0: steps begin */
  tri_step_result result; /* of a sampling rank elsewhere */
  void *packed;
  size_t packed_cap, packed_len; /* packed_len: of the last one that was waited for */
  bool embeds;                   /* instead of sampling tokens, */
  size_t max_rows, width;        /* with so many rows of numbers in one step at most */
  tri_encoder_cost cost;         /* of an encoder's batches */
  tri_prompt_bound bound;        /* on tokens of prompts in steps with decodes */
};

static int num_dp_ranks(const tri_worker *w) { return tri_replica_num_dp_ranks(&w->replica); }

/* ---- set-up ---- */

static int prompt_tokens(const tri_worker *w) {
  const tri_engine *e = w->engine;
  int asked = w->opts.prompt_micro_batch_tokens, hiding = e->hiding_tokens;
  int tokens = tri_sched_prompt_tokens(asked, e->num_micro_batches, !e->backend->host_memory, hiding);
  if (!asked && tokens && hiding)
    tri_log(TRI_LOG_INFO, "worker", "micro-batches have up to %d prompt tokens: %d hide the streamed weights", tokens,
            hiding);
  return tokens;
}

static tri_status create_writers(struct leader *ld) {
  const tri_limits *l = &ld->w->engine->limits;
  tri_plan_sizes sizes = tri_limits_plan_sizes(l);
  int dp = num_dp_ranks(ld->w);
  if (!(ld->writers = tri_calloc((size_t)dp, sizeof *ld->writers))) return TRI_NO_MEMORY;
  for (int i = 0; i < dp; i++) TRI_CHECK(tri_plan_writer_create(&sizes, &ld->writers[i]));
  return TRI_OK;
}

static tri_status create_micro_batches(struct leader *ld) {
  const tri_worker *w = ld->w;
  int dp = num_dp_ranks(w), micro_batches = w->engine->num_micro_batches;
  if (!(ld->micro_batches = tri_calloc((size_t)micro_batches, sizeof *ld->micro_batches))) return TRI_NO_MEMORY;
  for (int i = 0; i < micro_batches; i++) {
    struct micro_batch *l = &ld->micro_batches[i];
    l->plans = tri_calloc((size_t)dp, sizeof *l->plans);
    l->sends = tri_calloc((size_t)w->world, sizeof *l->sends);
    if (!l->plans || !l->sends) return TRI_NO_MEMORY;
    for (int d = 0; d < dp; d++)
      if (!(l->plans[d] = tri_malloc(tri_plan_max_bytes(ld->writers[d]), 1))) return TRI_NO_MEMORY;
  }
  return TRI_OK;
}

/* With several stages a token waits for the steps of all micro-batches, whose prompts have a limit of their own, and
 * what a step takes is not seen from its beginning and end. */
static void init_bound(struct leader *ld) {
  const tri_engine *e = ld->w->engine;
  bool one_stage = e->num_micro_batches == 1, in_pieces = !e->limits.whole_sequences && !e->limits.has_source;
  double factor = one_stage && in_pieces ? ld->w->opts.max_inter_token_factor : 0;
  tri_prompt_bound_init(&ld->bound, factor, !e->backend->host_memory);
}

static tri_status create(struct leader *ld, tri_error *err) {
  tri_worker *w = ld->w;
  const tri_limits *l = &w->engine->limits;
  tri_status st;
  tri_sched_config sc = {.limits = *l,
                         .num_micro_batches = w->engine->num_micro_batches,
                         .depth = w->engine->micro_batch_depth,
                         .prompt_tokens = prompt_tokens(w),
                         .swap_cost = tri_swap_cost_find(&w->opts, w->engine, w->local_ranks),
                         .by_priority = w->opts.scheduling_policy == 1,
                         .encoder_batching = (tri_encoder_batching)w->opts.encoder_batching,
                         .latency_limit_ns = (int64_t)(w->opts.encoder_latency_limit * 1e6)};
  TRI_TRY(tri_sched_prefixes_make(&w->engine->model, &sc.prefixes));
  init_bound(ld);
  TRI_TRY(tri_dp_ranks_create(&sc, num_dp_ranks(w), &ld->dp_ranks));
  TRI_TRY(create_writers(ld));
  TRI_TRY(create_micro_batches(ld));
  TRI_TRY(tri_eplb_start(w->engine, (uint64_t)w->opts.eplb_step_interval, w->host_of, &ld->eplb));
  ld->packed_cap = tri_result_max_bytes((size_t)l->max_num_seqs);
  if (ld->embeds && !tri_embed_result_max(&w->engine->model, l, &ld->max_rows, &ld->width)) st = TRI_OVERFLOW;
  if (ld->embeds) ld->packed_cap = tri_embed_result_bytes(ld->max_rows, ld->width);
  TRI_TRY(st);
  ld->packed = tri_malloc(ld->packed_cap, 1);
  ld->result.tokens = tri_calloc((size_t)l->max_num_seqs, sizeof *ld->result.tokens);
  if (!ld->packed || !ld->result.tokens) st = TRI_NO_MEMORY;
  for (int i = 0; st == TRI_OK && i < TRI_NUM_OUTBOXES; i++) {
    st = ld->embeds ? tri_outbox_init_results(&w->outboxes[i], l->max_num_seqs, ld->max_rows * ld->width)
                    : tri_outbox_init(&w->outboxes[i], l->max_num_seqs);
    tri_ring_push(&w->outbox_free, &w->outboxes[i]);
  }
  ld->out = tri_ring_pop(&w->outbox_free);
cleanup:
  return st == TRI_OK ? st : tri_fail(err, st, "max_num_seqs", "no memory for the leader's state");
}

static void destroy(struct leader *ld) {
  int dp = num_dp_ranks(ld->w);
  for (int i = 0; ld->micro_batches && i < ld->w->engine->num_micro_batches; i++) {
    for (int d = 0; ld->micro_batches[i].plans && d < dp; d++) tri_free(ld->micro_batches[i].plans[d]);
    tri_free(ld->micro_batches[i].plans);
    tri_free(ld->micro_batches[i].sends);
  }
  tri_free(ld->micro_batches);
  tri_free(ld->packed);
  tri_free(ld->result.tokens);
  for (int d = 0; ld->writers && d < dp; d++) tri_plan_writer_destroy(ld->writers[d]);
  tri_free(ld->writers);
  tri_eplb_destroy(ld->eplb);
  tri_dp_ranks_destroy(ld->dp_ranks);
}

/* ---- one step ---- */

/* Until the other ranks have the micro-batch's plans. */
static tri_status await_plans(struct leader *ld, int micro_batch) {
  tri_comm *c = ld->w->replica.world;
  for (int r = 1; r < c->size; r++) TRI_CHECK(tri_comm_wait(c, &ld->micro_batches[micro_batch].sends[r]));
  return TRI_OK;
}

/* Tells every data-parallel rank what the others have in the step: their ranks exchange rows. */
static void tell_dp_ranks(struct leader *ld, bool one) {
  uint32_t tokens[TRI_MAX_DP_RANKS], longest[TRI_MAX_DP_RANKS];
  int dp = num_dp_ranks(ld->w);
  for (int d = 0; d < dp; d++) {
    tokens[d] = ld->writers[one ? 0 : d]->h.num_tokens;
    longest[d] = tri_plan_longest(ld->writers[one ? 0 : d]);
  }
  for (int d = 0; dp > 1 && d < (one ? 1 : dp); d++)
    tri_plan_set_dp_ranks(ld->writers[d], tokens, longest, (uint32_t)dp);
}

/* Hands every other rank the finished plan of its data-parallel rank, or, where one is for all, the first; *own is this
 * rank's. A long one moves only while this rank is in the communicator's calls, and a device's queue that is full keeps
 * it in a launch until the other ranks' sums come, who would be waiting for their plan: there all must have it first.
 */
static tri_status send_plans(struct leader *ld, int micro_batch, bool one, struct plan *own) {
  tri_comm *c = ld->w->replica.world;
  struct micro_batch *l = &ld->micro_batches[micro_batch];
  tell_dp_ranks(ld, one);
  own->bytes = tri_plan_finish(ld->writers[0], &own->len);
  if (c->size == 1) return TRI_OK;
  TRI_CHECK(await_plans(ld, micro_batch));
  for (int d = 0; d < num_dp_ranks(ld->w); d++) {
    struct plan p = *own;
    if (d && !one) p.bytes = tri_plan_finish(ld->writers[d], &p.len);
    memcpy(l->plans[d], p.bytes, p.len);
    for (int r = 1; r < c->size; r++)
      if (tri_replica_dp_rank_of(&ld->w->replica, r) == d)
        TRI_CHECK(tri_comm_isend(c, l->plans[d], p.len, r, TRI_TAG_PLAN, &l->sends[r]));
  }
  own->bytes = l->plans[0];
  return ld->w->engine->backend->async ? await_plans(ld, micro_batch) : TRI_OK;
}

/* CPU time, not wall time: on a busy host the thread may be off its core in between. */
static void count_time(tri_worker *w, int64_t since) {
  atomic_fetch_add_explicit(&w->scheduler_ns, (uint64_t)(tri_thread_cpu_ns() - since), memory_order_relaxed);
}

/* The outbox goes to the control thread; an empty one takes its place. Waits while the control thread has all others,
 * which holds the replica back where the coordinator is slower than it. */
static tri_status flush(struct leader *ld) {
  tri_worker *w = ld->w;
  /* A full ring: the control thread has fallen behind, and memory matters more than the time that freeing takes. */
  for (tri_job *j; (j = tri_dp_ranks_retired(ld->dp_ranks));)
    if (!tri_ring_push(&w->retired, j)) tri_job_destroy(j);
  if (!ld->out->num && !ld->out->num_results) return TRI_OK;
  tri_ring_push(&w->outbox_full, ld->out);
  tri_control_notify(w);
  tri_wait wait = tri_wait_begin(&w->replica.world->cfg.policy, TRI_NEVER);
  while (!(ld->out = tri_ring_pop(&w->outbox_free))) TRI_CHECK(tri_wait_pause(&wait));
  return TRI_OK;
}

/* Notes the ends of steps that all data-parallel ranks have answered. */
static void note_ends(struct leader *ld, int micro_batch) {
  if (!(ld->bound.factor > 0)) return;
  while (ld->bound.ended < tri_dp_ranks_num_ended(ld->dp_ranks, micro_batch))
    tri_prompt_bound_end(&ld->bound, tri_now_ns());
}

static tri_status absorb(struct leader *ld, int dp_rank, int micro_batch, const tri_step_result *result) {
  int64_t t = tri_thread_cpu_ns();
  tri_dp_ranks_absorb(ld->dp_ranks, dp_rank, micro_batch, result, ld->out);
  note_ends(ld, micro_batch);
  tri_status st = flush(ld);
  count_time(ld->w, t);
  return st;
}

static tri_status absorb_embed(struct leader *ld, int micro_batch, const tri_embed_result *result) {
  int64_t t = tri_thread_cpu_ns();
  if (tri_encoder_cost_end(&ld->cost, tri_now_ns())) tri_dp_ranks_set_batch_cost(ld->dp_ranks, &ld->cost.table);
  tri_status st =
      tri_dp_ranks_absorb_embed(ld->dp_ranks, micro_batch, result, ld->w->engine->model.head.token_head, ld->out);
  if (st == TRI_OK) st = flush(ld);
  count_time(ld->w, t);
  return st;
}

/* The result of a step on this rank. */
static tri_status absorb_own(struct leader *ld, int micro_batch, const tri_step_result *result) {
  tri_embed_result embed = {.step = result->step,
                            .micro_batch = result->micro_batch,
                            .values = tri_embed_values(&ld->w->engine->encoder_output)};
  return ld->embeds ? absorb_embed(ld, micro_batch, &embed) : absorb(ld, 0, micro_batch, result);
}

/* The result of a data-parallel rank's step on another rank, whose bytes are in ld->packed. */
static tri_status absorb_packed(struct leader *ld, int dp_rank, size_t len) {
  const tri_engine *e = ld->w->engine;
  tri_embed_result embed;
  TRI_CHECK(ld->embeds ? tri_embed_result_unpack(ld->packed, len, ld->max_rows, ld->width, &embed)
                       : tri_result_unpack(ld->packed, len, &ld->result, (size_t)e->limits.max_num_seqs));
  uint32_t micro_batch = ld->embeds ? embed.micro_batch : ld->result.micro_batch;
  if (micro_batch >= (uint32_t)e->num_micro_batches) return TRI_CORRUPT;
  return ld->embeds ? absorb_embed(ld, (int)micro_batch, &embed) : absorb(ld, dp_rank, (int)micro_batch, &ld->result);
}

/* Composes a step with as many tokens of prompts as its decodes may wait for. A step that was to be one of decodes
 * alone and finds none to run has prompts after all. */
static bool compose(struct leader *ld, int micro_batch) {
  tri_dp_ranks *r = ld->dp_ranks;
  if (!(ld->bound.factor > 0)) return tri_dp_ranks_compose(r, micro_batch, ld->writers);
  tri_step_outlook outlook = tri_dp_ranks_outlook(r, micro_batch);
  int tokens = tri_prompt_bound_next(&ld->bound, &outlook);
  tri_dp_ranks_bound_prompts(r, tokens);
  bool any = tri_dp_ranks_compose(r, micro_batch, ld->writers);
  if (!any && !tokens) {
    tri_dp_ranks_bound_prompts(r, TRI_NO_PROMPT_BOUND);
    any = tri_dp_ranks_compose(r, micro_batch, ld->writers);
  }
  if (!any) return false;
  tri_prompt_bound_begin(&ld->bound, tri_dp_ranks_load_of(r, ld->writers), tri_now_ns());
  uint32_t shown = tokens == TRI_NO_PROMPT_BOUND ? 0 : (uint32_t)tokens;
  atomic_store_explicit(&ld->w->prompt_bound, shown, memory_order_relaxed);
  return true;
}

/* Returns whether a micro-batch's next step is put off until masks are there that its sequences need: without them they
 * would come into every other step alone. */
static bool waits_for_masks(struct leader *ld, int micro_batch) {
  int64_t *since = &ld->micro_batches[micro_batch].masks_since;
  if (!tri_dp_ranks_awaits_masks(ld->dp_ranks, micro_batch, false)) {
    *since = 0;
    return false;
  }
  if (!*since) *since = tri_now_ns();
  return tri_now_ns() - *since < MASKS_GRACE_NS;
}

static tri_status start_micro_batch(struct leader *ld, int micro_batch, bool *worked) {
  tri_worker *w = ld->w;
  struct plan own;
  int64_t t = tri_thread_cpu_ns();
  if (tri_dp_ranks_micro_batch_busy(ld->dp_ranks, micro_batch) || waits_for_masks(ld, micro_batch)) return TRI_OK;
  if (!compose(ld, micro_batch)) return TRI_OK;
  /* Concurrently with steps of other micro-batches and data-parallel ranks it would take as long as these let it. */
  if (ld->embeds && w->engine->num_micro_batches == 1 && num_dp_ranks(w) == 1)
    tri_encoder_cost_begin(&ld->cost, &ld->writers[0]->h, tri_now_ns());
  tri_status st = send_plans(ld, micro_batch, false, &own);
  count_time(w, t);
  if (st == TRI_OK) st = tri_engine_begin(w->engine, own.bytes, own.len);
  *worked = true;
  return st;
}

/* The end of this rank's own oldest step, which is waited for where the engine takes no more and the next micro-batch's
 * is to begin. */
static tri_status end_step(struct leader *ld, bool *worked) {
  tri_engine *e = ld->w->engine;
  const tri_step_result *result;
  tri_wait wait = tri_wait_begin(&e->wait_policy, TRI_NEVER);
  tri_status st;
  if (!e->num_steps) return TRI_OK;
  while ((st = tri_engine_poll(e, &result)) == TRI_AGAIN && e->num_micro_batches > 1 && e->num_steps == e->depth)
    if ((st = tri_wait_pause(&wait)) != TRI_OK) return st;
  if (st == TRI_AGAIN) return TRI_OK;
  *worked = true;
  return st == TRI_OK && result ? absorb_own(ld, (int)result->micro_batch, result) : st;
}

/* A result from each data-parallel rank's sampling rank, if one has come. */
static tri_status poll_results(struct leader *ld, bool *worked) {
  tri_worker *w = ld->w;
  tri_comm *c = w->replica.world;
  for (int d = 0; d < num_dp_ranks(w); d++) {
    int rank = tri_replica_sampler(&w->replica, d);
    size_t len;
    if (rank == c->rank) continue;
    tri_status st = tri_comm_try_recv(c, ld->packed, ld->packed_cap, rank, TRI_TAG_RESULT, &len);
    if (st == TRI_AGAIN) continue;
    if (st != TRI_OK) return st;
    *worked = true;
    TRI_CHECK(absorb_packed(ld, d, len));
  }
  return TRI_OK;
}

static void take_commands(struct leader *ld) {
  tri_worker *w = ld->w;
  uint64_t abort;
  for (tri_job *j; tri_commands_take(&w->commands, &j, &abort);)
    if (j)
      tri_dp_ranks_add(ld->dp_ranks, j);
    else
      tri_dp_ranks_abort(ld->dp_ranks, abort);
  /* Known before the step that may never end. */
  if (tri_dp_ranks_has_work(ld->dp_ranks)) atomic_store_explicit(&w->busy, true, memory_order_relaxed);
}

/* Drops the jobs of a coordinator that is lost, and says so once nothing comes of them any more. */
static void drop_jobs(struct leader *ld) {
  tri_worker *w = ld->w;
  uint64_t line = atomic_load(&w->line);
  if (line == atomic_load_explicit(&w->cleared, memory_order_relaxed)) return;
  tri_commands_drop(&w->commands);
  tri_dp_ranks_abort_all(ld->dp_ranks);
  if (tri_dp_ranks_is_busy(ld->dp_ranks) || w->engine->num_steps || ld->out->num || ld->out->num_results) return;
  atomic_store(&w->cleared, line);
  tri_control_notify(w);
}

/* A rank that waits for what a device does must not sleep: the next step may wait for that, too, also where it is
 * another rank's device. */
static const tri_wait_policy *policy_of(const struct leader *ld) {
  const tri_engine *e = ld->w->engine;
  bool ahead = e->backend->async && tri_dp_ranks_is_busy(ld->dp_ranks);
  return e->num_steps || ahead ? &e->wait_policy : &ld->w->replica.world->cfg.policy;
}

/* Movement of experts, one thing between two steps: none begins until the ranks have done it. */
static tri_status rearrange(struct leader *ld, bool *worked) {
  tri_worker *w = ld->w;
  tri_plan_header *h = &ld->writers[0]->h;
  tri_expert_move move = {0};
  struct plan own;
  const float *rows = NULL;
  uint64_t steps = atomic_load_explicit(&w->engine->progress.step, memory_order_relaxed);
  bool idle = !tri_dp_ranks_has_work(ld->dp_ranks);
  tri_plan_kind kind = tri_eplb_next(ld->eplb, steps, idle, &move);
  *worked |= idle && tri_eplb_is_busy(ld->eplb); /* it does not sleep before the last move */
  tri_worker_publish_moves(w, ld->eplb);
  tri_eplb_log(ld->eplb);
  if (kind == TRI_PLAN_STEP) {
    ld->held_ns = 0;
    return TRI_OK;
  }
  if (!ld->held_ns) ld->held_ns = tri_now_ns();
  if (tri_dp_ranks_is_stepping(ld->dp_ranks) || w->engine->num_steps) return TRI_OK;
  atomic_store_explicit(&w->busy, true, memory_order_relaxed);
  tri_plan_begin(ld->writers[0], 0, steps);
  h->kind = (uint32_t)kind;
  h->move = move;
  TRI_CHECK(send_plans(ld, 0, true, &own));
  TRI_CHECK(await_plans(ld, 0));
  TRI_CHECK(tri_eplb_take_part(w->engine, h, &rows));
  tri_eplb_done(ld->eplb, steps, rows, (uint64_t)(tri_now_ns() - ld->held_ns));
  ld->held_ns = 0;
  *worked = true;
  return TRI_OK;
}

/* Returns whether masks are all that is waited for. */
static bool has_masks_alone(const struct leader *ld) {
  const tri_engine *e = ld->w->engine;
  if (tri_dp_ranks_is_stepping(ld->dp_ranks) || e->num_steps) return false;
  for (int i = 0; i < e->num_micro_batches; i++)
    if (tri_dp_ranks_awaits_masks(ld->dp_ranks, i, true)) return true;
  return false;
}

/* A pause while something is under way. What makes masks wakes the leader, so that it need not poll for them. */
static tri_status pause_busy(struct leader *ld, tri_wait *wait) {
  const tri_wait_policy *p = wait->policy;
  bool spins = tri_now_ns() - wait->start_ns < (int64_t)(p->spin_us + p->yield_us) * 1000;
  if (spins || !has_masks_alone(ld)) return tri_wait_pause(wait);
  tri_waker_sleep(&ld->w->waker, MASKS_SLEEP_NS);
  return TRI_OK;
}

static tri_status serve(struct leader *ld) {
  tri_worker *w = ld->w;
  const tri_wait_policy *policy = &w->replica.world->cfg.policy;
  tri_wait wait = tri_wait_begin(policy, TRI_NEVER);
  bool idle = true;
  while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
    bool worked = false;
    tri_status st = TRI_OK;
    drop_jobs(ld);
    take_commands(ld);
    tri_dp_ranks_reap(ld->dp_ranks, tri_now_ns(), ld->out);
    if (ld->out->num) st = flush(ld);
    if (st == TRI_OK && ld->eplb) st = rearrange(ld, &worked);
    for (int micro_batch = 0; st == TRI_OK && micro_batch < w->engine->num_micro_batches; micro_batch++) {
      if (!ld->held_ns) st = start_micro_batch(ld, micro_batch, &worked);
      if (st == TRI_OK) st = end_step(ld, &worked);
      if (st == TRI_OK) st = poll_results(ld, &worked);
    }
    tri_worker_publish(w, ld->dp_ranks);
    if (st != TRI_OK) return st;
    tri_worker_count_experts(w);
    if (worked) {
      idle = false;
      atomic_store_explicit(&w->measure, false, memory_order_relaxed); /* asked for in vain: work has come */
      wait = tri_wait_begin(policy_of(ld), TRI_NEVER);
      continue;
    }
    /* The last step may be one that was begun for sequences which have ended since. */
    if (tri_dp_ranks_is_busy(ld->dp_ranks) || w->engine->num_steps) {
      if ((st = pause_busy(ld, &wait)) != TRI_OK) return st;
      continue;
    }
    if (atomic_load(&w->drain)) return TRI_OK;
    if (!idle) {
      idle = true;
      atomic_store(&w->idled, true);
      tri_control_notify(w);
    }
    tri_worker_measure(w);
    tri_waker_sleep(&w->waker, IDLE_SLEEP_NS);
    wait = tri_wait_begin(policy, TRI_NEVER);
  }
  return TRI_OK;
}

/* Waits until every data-parallel rank's sampling rank but this one has answered. */
static tri_status await_results(struct leader *ld) {
  tri_comm *c = ld->w->replica.world;
  tri_wait wait = tri_wait_begin(&c->cfg.policy, tri_deadline_after_ms(c->cfg.timeout_ms));
  for (int d = 0; d < num_dp_ranks(ld->w); d++) {
    int rank = tri_replica_sampler(&ld->w->replica, d);
    tri_status st = rank == c->rank ? TRI_OK : TRI_AGAIN;
    size_t len;
    while (st == TRI_AGAIN) {
      st = tri_comm_try_recv(c, ld->packed, ld->packed_cap, rank, TRI_TAG_RESULT, &len);
      if (st == TRI_AGAIN) TRI_CHECK(tri_wait_pause(&wait));
    }
    if (st != TRI_OK) return st;
    if (rank != c->rank) ld->packed_len = len;
  }
  return TRI_OK;
}

/* The plan in the first writer, on every rank of every data-parallel rank, to its end. */
static tri_status run_plan(void *ctx) {
  struct leader *ld = ctx;
  tri_worker *w = ld->w;
  struct plan own;
  const tri_step_result *result;
  __atomic_fetch_add(&w->warm_steps, 1, __ATOMIC_RELAXED);
  TRI_CHECK(send_plans(ld, 0, true, &own));
  TRI_CHECK(tri_engine_step(w->engine, own.bytes, own.len, &result));
  return await_results(ld);
}

/* The same in the warm-up, whose steps are the first that are known to take some time: those of decodes alone have as
 * many rows as there are sequences. */
static tri_status run_warm_up_plan(void *ctx) {
  struct leader *ld = ctx;
  const tri_plan_writer *plan = ld->writers[0];
  bool decodes = tri_plan_longest(plan) > 0;
  int tokens = (int)plan->h.num_tokens;
  int64_t start = tri_now_ns();
  TRI_CHECK(run_plan(ld));
  double seconds = (double)(tri_now_ns() - start) * 1e-9;
  tri_step_times_add(&ld->bound.times, decodes ? tokens : 0, decodes ? 0 : tokens, seconds);
  return TRI_OK;
}

/* READY means that a token has gone through every rank, and that its logits are numbers. */
static tri_status canary(struct leader *ld, tri_error *err) {
  tri_worker *w = ld->w;
  tri_canary canary;
  tri_status st = tri_canary_begin(&canary, w, err);
  tri_canary_plan(w, ld->writers[0]);
  if (st == TRI_OK) st = run_plan(ld);
  TRI_CHECK(tri_canary_end(&canary, st, err));
  if (ld->embeds) return TRI_OK;
  bool is_sampler = tri_replica_is_sampler(&w->replica);
  if (!is_sampler)
    TRI_CHECK(tri_result_unpack(ld->packed, ld->packed_len, &ld->result, (size_t)w->engine->limits.max_num_seqs));
  tri_canary_keep(w, is_sampler ? &w->engine->result : &ld->result);
  return TRI_OK;
}

/* Runs the warm-up where steps are recorded; elsewhere the first one is as fast as any. */
static tri_status warm_up(struct leader *ld, int64_t canary_began_ns) {
  tri_worker *w = ld->w;
  const tri_engine *e = w->engine;
  int64_t start = tri_now_ns();
  tri_warm_up u = {.limits = e->limits,
                   .num_micro_batches = e->num_micro_batches,
                   .plan = ld->writers[0],
                   .run = run_warm_up_plan,
                   .ctx = ld};
  u.until_ns = e->offload ? canary_began_ns + STREAMED_WARM_UP_NS : start + WARM_UP_NS;
  int steps = 0;
  if (!w->opts.warmup || !e->backend->records) return TRI_OK;
  tri_start_watch_phase(&w->start_watch, "warm-up", &w->warm_steps);
  tri_status st = tri_warm_up_run(&u, &steps);
  tri_log(TRI_LOG_INFO, "worker", "warm-up: %d steps in %.2f s", steps, (double)(tri_now_ns() - start) / 1e9);
  return st;
}

/* Finds out what an encoder's batches cost. */
static tri_status weigh_batches(struct leader *ld) {
  tri_worker *w = ld->w;
  tri_batch_measure m = {.limits = w->engine->limits, .plan = ld->writers[0], .run = run_plan, .ctx = ld};
  if (!ld->embeds) return TRI_OK;
  m.until_ns = tri_now_ns() + (w->opts.warmup ? MEASURE_NS : 0);
  tri_start_watch_phase(&w->start_watch, "measuring batches", &w->warm_steps);
  TRI_CHECK(tri_encoder_cost_start(w->engine, tri_pool_size(w->pool), &m, &ld->cost));
  if (!ld->cost.known) return TRI_OK;
  tri_dp_ranks_set_batch_cost(ld->dp_ranks, &ld->cost.table);
  return TRI_OK;
}

static void dismiss(struct leader *ld) {
  struct plan own;
  tri_plan_begin(ld->writers[0], 0, 0);
  ld->writers[0]->h.kind = TRI_PLAN_STOP;
  if (send_plans(ld, 0, true, &own) == TRI_OK) await_plans(ld, 0);
}

/* Says what of the steps so far has no fast kernel. */
static void tell_general(const tri_backend *be) {
  static const char *const names[] = {"", "attention", "experts", "attention and experts"};
  if (be->general)
    tri_log(TRI_LOG_WARN, "worker", "%s of this model: the GPU has kernels for any shape alone, which are slow",
            names[be->general & (TRI_GENERAL_ATTENTION | TRI_GENERAL_EXPERTS)]);
}

tri_status tri_leader_run(tri_worker *w, tri_error *err) {
  struct leader ld = {.w = w, .embeds = w->engine->model.encoder};
  tri_status st = create(&ld, err);
  int64_t start = tri_now_ns();
  if (st == TRI_OK) st = canary(&ld, err);
  if (st == TRI_OK) {
    double seconds = (double)(tri_now_ns() - start) / 1e9;
    w->layer_seconds = tri_predict_layer_seconds(w->engine, seconds);
    st = warm_up(&ld, start);
    if (st == TRI_OK) st = weigh_batches(&ld);
    tell_general(w->engine->backend);
  }
  if (st == TRI_OK) {
    tri_start_watch_end(&w->start_watch);
    atomic_store(&w->ready, true);
    tri_control_notify(w);
    st = serve(&ld);
    if (ld.embeds) tri_encoder_cost_keep(&ld.cost);
  }
  if (st == TRI_ABORTED && atomic_load(&w->stop)) st = TRI_OK;
  if (st == TRI_OK) {
    dismiss(&ld);
  } else {
    tri_fail(err, st, "step", "leader: step %llu failed: %s",
             (unsigned long long)atomic_load(&w->engine->progress.step), tri_engine_failure(w->engine, st));
    w->failure = *err; /* the control thread's last word */
  }
  tri_control_stop(w); /* it may hold an outbox or a job of this scheduler */
  destroy(&ld);
  return st;
}
