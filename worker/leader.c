/* The leader's step loop: commands in, plans out, results in, tokens out. */
#include <math.h>
#include <string.h>

#include "runtime/base/log.h"
#include "worker/warm_up.h"
#include "worker/worker.h"

enum {
  IDLE_SLEEP_NS = 500000000, /* a command wakes the leader; now and then it looks at what has no command */
  HOST_PROMPT_TOKENS = 256,  /* of a step with several stages: docs/performance.md has what was measured */
  WEIGHTS_SHARED_BY = 4,     /* tokens that one reading of the weights does for, at least: see predict_layer */
};
static const int64_t WARM_UP_NS = 8000000000; /* after which it begins no more steps */

struct lane {
  void *plan;          /* copy that the transfers to the other ranks read */
  tri_comm_req *sends; /* [world] */
};

struct leader {
  tri_worker *w;
  tri_sched *sched;
  tri_plan_writer *writer;
  struct lane *lanes;
  tri_outbox *out;
  tri_step_result result; /* of a sampling rank elsewhere */
  void *packed;
  size_t packed_cap;
  bool embeds;            /* instead of drawing tokens, */
  size_t max_rows, width; /* with so many rows of numbers in one step at most */
};

/* ---- set-up ---- */

/* Returns how many tokens of prompts a step takes; 0: as many as fit. */
static int prompt_tokens(const tri_worker *w) {
  const tri_engine *e = w->engine;
  int asked = w->opts.prompt_micro_batch_tokens;
  return !asked && e->num_lanes > 1 && e->backend->host_memory ? HOST_PROMPT_TOKENS : asked;
}

static tri_status create(struct leader *ld, tri_error *err) {
  tri_worker *w = ld->w;
  const tri_limits *l = &w->engine->limits;
  tri_status st;
  tri_sched_config sc = {.limits = *l,
                         .num_lanes = w->engine->num_lanes,
                         .depth = w->engine->lane_depth,
                         .prompt_tokens = prompt_tokens(w),
                         .by_priority = w->opts.scheduling_policy == 1};
  TRI_TRY(tri_sched_create(&sc, &ld->sched));
  TRI_TRY(tri_plan_writer_create(tri_plan_entries(l->max_num_seqs), (size_t)l->max_num_batched_tokens,
                                 tri_plan_blocks(l->max_num_seqs, l->max_num_batched_tokens, l->block_size),
                                 &ld->writer));
  ld->packed_cap = tri_result_max_bytes((size_t)l->max_num_seqs);
  if (ld->embeds && !tri_embed_result_max(&w->engine->model, l, &ld->max_rows, &ld->width)) st = TRI_OVERFLOW;
  if (ld->embeds) ld->packed_cap = tri_embed_result_bytes(ld->max_rows, ld->width);
  TRI_TRY(st);
  ld->packed = tri_malloc(ld->packed_cap, 1);
  ld->result.tokens = tri_calloc((size_t)l->max_num_seqs, sizeof *ld->result.tokens);
  ld->lanes = tri_calloc((size_t)sc.num_lanes, sizeof *ld->lanes);
  if (!ld->packed || !ld->result.tokens || !ld->lanes) st = TRI_NO_MEMORY;
  for (int i = 0; st == TRI_OK && i < sc.num_lanes; i++) {
    ld->lanes[i].plan = tri_malloc(tri_plan_max_bytes(ld->writer), 1);
    ld->lanes[i].sends = tri_calloc((size_t)w->world, sizeof *ld->lanes[i].sends);
    if (!ld->lanes[i].plan || !ld->lanes[i].sends) st = TRI_NO_MEMORY;
  }
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
  for (int i = 0; ld->lanes && i < ld->w->engine->num_lanes; i++) {
    tri_free(ld->lanes[i].plan);
    tri_free(ld->lanes[i].sends);
  }
  tri_free(ld->lanes);
  tri_free(ld->packed);
  tri_free(ld->result.tokens);
  tri_plan_writer_destroy(ld->writer);
  tri_sched_destroy(ld->sched);
}

/* ---- one step ---- */

/* Until the other ranks have the lane's plan. */
static tri_status await_plan(struct leader *ld, int lane) {
  tri_comm *c = ld->w->group.world;
  for (int r = 1; r < c->size; r++) TRI_CHECK(tri_comm_wait(c, &ld->lanes[lane].sends[r]));
  return TRI_OK;
}

/* Hands the finished plan to every other rank. A long one moves only while this rank is in the communicator's calls,
 * and a device's queue that is full keeps it in a launch until the other ranks' sums come, who would be waiting for
 * their plan: there all must have it first. */
static tri_status send_plan(struct leader *ld, int lane, const void **plan, size_t *len) {
  tri_comm *c = ld->w->group.world;
  struct lane *l = &ld->lanes[lane];
  const void *bytes = tri_plan_finish(ld->writer, len);
  *plan = bytes;
  if (c->size == 1) return TRI_OK;
  TRI_CHECK(await_plan(ld, lane));
  memcpy(l->plan, bytes, *len);
  *plan = l->plan;
  for (int r = 1; r < c->size; r++) TRI_CHECK(tri_comm_isend(c, l->plan, *len, r, TRI_TAG_PLAN, &l->sends[r]));
  return ld->w->engine->backend->async ? await_plan(ld, lane) : TRI_OK;
}

/* CPU time, not wall time: on a busy host the thread may be off its core in between. */
static void count_time(tri_worker *w, int64_t since) {
  atomic_fetch_add_explicit(&w->scheduler_ns, (uint64_t)(tri_thread_cpu_ns() - since), memory_order_relaxed);
}

/* The outbox goes to the control thread; an empty one takes its place. Waits while the control thread is behind. */
static tri_status flush(struct leader *ld) {
  tri_worker *w = ld->w;
  for (tri_job *j; (j = tri_sched_retired(ld->sched));) {
    /* A full ring is destroyed from here: it means that the control thread is far behind, and memory matters more then.
     */
    if (!tri_ring_push(&w->retired, j)) tri_job_destroy(j);
  }
  if (!ld->out->num && !ld->out->num_results) return TRI_OK;
  tri_ring_push(&w->outbox_full, ld->out);
  tri_control_notify(w);
  tri_wait wait = tri_wait_begin(&w->group.world->cfg.policy, TRI_NEVER);
  while (!(ld->out = tri_ring_pop(&w->outbox_free))) TRI_CHECK(tri_wait_pause(&wait));
  return TRI_OK;
}

static tri_status absorb(struct leader *ld, int lane, const tri_step_result *result) {
  int64_t t = tri_thread_cpu_ns();
  tri_sched_absorb(ld->sched, lane, result, ld->out);
  tri_status st = flush(ld);
  count_time(ld->w, t);
  return st;
}

static tri_status absorb_embed(struct leader *ld, int lane, const tri_embed_result *result) {
  int64_t t = tri_thread_cpu_ns();
  tri_status st = tri_sched_absorb_embed(ld->sched, lane, result, ld->w->engine->model.head.token_head, ld->out);
  if (st == TRI_OK) st = flush(ld);
  count_time(ld->w, t);
  return st;
}

/* The result of a step on this rank. */
static tri_status absorb_own(struct leader *ld, int lane, const tri_step_result *result) {
  tri_embed_result embed = {
      .step = result->step, .lane = result->lane, .values = tri_embed_values(&ld->w->engine->encoder_output)};
  return ld->embeds ? absorb_embed(ld, lane, &embed) : absorb(ld, lane, result);
}

/* The result of a step on another rank, whose bytes are in ld->packed. */
static tri_status absorb_packed(struct leader *ld, size_t len) {
  const tri_engine *e = ld->w->engine;
  tri_embed_result embed;
  TRI_CHECK(ld->embeds ? tri_embed_result_unpack(ld->packed, len, ld->max_rows, ld->width, &embed)
                       : tri_result_unpack(ld->packed, len, &ld->result, (size_t)e->limits.max_num_seqs));
  uint32_t lane = ld->embeds ? embed.lane : ld->result.lane;
  if (lane >= (uint32_t)e->num_lanes) return TRI_CORRUPT;
  return ld->embeds ? absorb_embed(ld, (int)lane, &embed) : absorb(ld, (int)lane, &ld->result);
}

static tri_status start_lane(struct leader *ld, int lane, bool *worked) {
  tri_worker *w = ld->w;
  const void *plan;
  size_t len;
  int64_t t = tri_thread_cpu_ns();
  if (tri_sched_lane_busy(ld->sched, lane) || !tri_sched_compose(ld->sched, lane, ld->writer)) return TRI_OK;
  tri_status st = send_plan(ld, lane, &plan, &len);
  count_time(w, t);
  if (st == TRI_OK) st = tri_engine_begin(w->engine, plan, len);
  *worked = true;
  return st;
}

/* The end of this rank's own oldest step, which is waited for where the engine takes no more and the next lane's is to
 * begin. */
static tri_status end_step(struct leader *ld, bool *worked) {
  tri_engine *e = ld->w->engine;
  const tri_step_result *result;
  tri_wait wait = tri_wait_begin(&e->wait_policy, TRI_NEVER);
  tri_status st;
  if (!e->num_steps) return TRI_OK;
  while ((st = tri_engine_poll(e, &result)) == TRI_AGAIN && e->num_lanes > 1 && e->num_steps == e->depth)
    if ((st = tri_wait_pause(&wait)) != TRI_OK) return st;
  if (st == TRI_AGAIN) return TRI_OK;
  *worked = true;
  return st == TRI_OK && result ? absorb_own(ld, (int)result->lane, result) : st;
}

/* A result from the sampling rank, if one has come. */
static tri_status poll_result(struct leader *ld, bool *worked) {
  tri_worker *w = ld->w;
  tri_comm *c = w->group.world;
  size_t len;
  if (tri_group_is_sampler(&w->group)) return TRI_OK;
  tri_status st =
      tri_comm_try_recv(c, ld->packed, ld->packed_cap, tri_group_sampler(&w->group, 0), TRI_TAG_RESULT, &len);
  if (st == TRI_AGAIN) return TRI_OK;
  if (st != TRI_OK) return st;
  *worked = true;
  return absorb_packed(ld, len);
}

static void take_commands(struct leader *ld) {
  tri_worker *w = ld->w;
  for (tri_job *j; (j = tri_ring_pop(&w->jobs));) tri_sched_add(ld->sched, j);
  for (void *id; (id = tri_ring_pop(&w->aborts));) tri_sched_abort(ld->sched, (uint64_t)(uintptr_t)id);
  /* Known before the step that may never end. */
  if (tri_sched_has_work(ld->sched)) atomic_store_explicit(&w->busy, true, memory_order_relaxed);
}

static void publish(struct leader *ld) {
  tri_worker *w = ld->w;
  tri_sched_stats s = tri_sched_get_stats(ld->sched);
  atomic_store_explicit(&w->running, s.running, memory_order_relaxed);
  atomic_store_explicit(&w->waiting, s.waiting, memory_order_relaxed);
  atomic_store_explicit(&w->blocks_used, s.blocks_used, memory_order_relaxed);
  atomic_store_explicit(&w->tokens, s.tokens, memory_order_relaxed);
  atomic_store_explicit(&w->preemptions, s.preemptions, memory_order_relaxed);
  atomic_store_explicit(&w->busy, tri_sched_is_busy(ld->sched), memory_order_relaxed);
}

/* A rank that waits for what a device does must not sleep: the next step may wait for that, too, also where it is
 * another rank's device. */
static const tri_wait_policy *policy_of(const struct leader *ld) {
  const tri_engine *e = ld->w->engine;
  bool ahead = e->backend->async && tri_sched_is_busy(ld->sched);
  return e->num_steps || ahead ? &e->wait_policy : &ld->w->group.world->cfg.policy;
}

static tri_status serve(struct leader *ld) {
  tri_worker *w = ld->w;
  const tri_wait_policy *policy = &w->group.world->cfg.policy;
  tri_wait wait = tri_wait_begin(policy, TRI_NEVER);
  bool idle = true;
  while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
    bool worked = false;
    tri_status st = TRI_OK;
    take_commands(ld);
    tri_sched_reap(ld->sched, tri_now_ns(), ld->out);
    if (ld->out->num) st = flush(ld);
    for (int lane = 0; st == TRI_OK && lane < w->engine->num_lanes; lane++) {
      st = start_lane(ld, lane, &worked);
      if (st == TRI_OK) st = end_step(ld, &worked);
      if (st == TRI_OK) st = poll_result(ld, &worked);
    }
    publish(ld);
    if (st != TRI_OK) return st;
    if (worked) {
      idle = false;
      atomic_store_explicit(&w->measure, false, memory_order_relaxed); /* asked for in vain: work has come */
      wait = tri_wait_begin(policy_of(ld), TRI_NEVER);
      continue;
    }
    /* The last step may be one that was begun for sequences which have ended since. */
    if (tri_sched_is_busy(ld->sched) || w->engine->num_steps) {
      if ((st = tri_wait_pause(&wait)) != TRI_OK) return st;
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

/* The plan in the writer, on every rank, to its end. */
static tri_status run_plan(void *ctx) {
  struct leader *ld = ctx;
  tri_worker *w = ld->w;
  const void *plan;
  size_t len;
  const tri_step_result *result;
  __atomic_fetch_add(&w->warm_steps, 1, __ATOMIC_RELAXED);
  tri_status st = send_plan(ld, 0, &plan, &len);
  if (st == TRI_OK) st = tri_engine_step(w->engine, plan, len, &result);
  tri_comm *c = w->group.world;
  tri_wait wait = tri_wait_begin(&c->cfg.policy, tri_deadline_after_ms(c->cfg.timeout_ms));
  while (st == TRI_OK && !result) {
    st = tri_comm_try_recv(c, ld->packed, ld->packed_cap, tri_group_sampler(&w->group, 0), TRI_TAG_RESULT, &len);
    if (st == TRI_OK) break;
    if (st == TRI_AGAIN) st = tri_wait_pause(&wait);
  }
  return st;
}

/* READY means that a token has gone through every rank. */
static tri_status canary(struct leader *ld) {
  const tri_sample_params greedy = tri_sample_greedy();
  tri_worker *w = ld->w;
  uint32_t id = 0;
  int32_t block = 0, source_block = 1;
  uint8_t flags = ld->embeds ? TRI_SEQ_FLAG_FIRST : TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS | TRI_SEQ_FLAG_SAMPLE;
  tri_plan_seq s = {.kind = TRI_SEQ_CHUNK, .flags = flags, .num_tokens = 1, .num_blocks = 1};
  tri_plan_seq source = {.kind = TRI_SEQ_SOURCE, .num_tokens = 1, .num_blocks = 1};
  tri_plan_begin(ld->writer, 0, 0);
  if (w->engine->limits.has_source) tri_plan_add(ld->writer, &source, &id, &source_block, NULL, 0);
  tri_plan_add(ld->writer, &s, &id, &block, &greedy, 1);
  return run_plan(ld);
}

/* Runs the warm-up where steps are recorded; elsewhere the first one is as fast as any. */
static tri_status warm_up(struct leader *ld) {
  tri_worker *w = ld->w;
  const tri_engine *e = w->engine;
  int64_t start = tri_now_ns();
  tri_warm_up u = {.limits = e->limits, .num_lanes = e->num_lanes, .plan = ld->writer, .run = run_plan, .ctx = ld};
  u.until_ns = start + WARM_UP_NS;
  int steps = 0;
  if (!w->opts.warmup || !e->backend->records) return TRI_OK;
  tri_start_watch_phase(&w->start_watch, "warm-up", &w->warm_steps);
  tri_status st = tri_warm_up_run(&u, &steps);
  tri_log(TRI_LOG_INFO, "worker", "warm-up: %d steps in %.2f s", steps, (double)(tri_now_ns() - start) / 1e9);
  return st;
}

/* How long a layer takes for the largest step, from what the canary's one token took. That one waited for the weights;
 * many tokens share each reading of them, so that one of many takes a quarter of the time at most. */
static double predict_layer(const tri_worker *w, double canary_seconds) {
  const tri_engine *e = w->engine;
  double layers = (double)(e->model.num_layers + (e->model.seq2seq.on ? e->model.seq2seq.num_layers : 0));
  return canary_seconds / layers * fmax(1, (double)e->limits.max_num_batched_tokens / WEIGHTS_SHARED_BY);
}

static void dismiss(struct leader *ld) {
  const void *plan;
  size_t len;
  tri_plan_begin(ld->writer, 0, 0);
  ld->writer->h.stop = 1;
  if (send_plan(ld, 0, &plan, &len) == TRI_OK) await_plan(ld, 0);
}

tri_status tri_leader_run(tri_worker *w, tri_error *err) {
  struct leader ld = {.w = w, .embeds = w->engine->model.encoder};
  tri_status st = create(&ld, err);
  int64_t start = tri_now_ns();
  if (st == TRI_OK) st = canary(&ld);
  if (st == TRI_OK) {
    w->layer_seconds = predict_layer(w, (double)(tri_now_ns() - start) / 1e9);
    st = warm_up(&ld);
  }
  if (st == TRI_OK) {
    tri_start_watch_end(&w->start_watch);
    atomic_store(&w->ready, true);
    tri_control_notify(w);
    st = serve(&ld);
  }
  if (st == TRI_ABORTED && atomic_load(&w->stop)) st = TRI_OK;
  if (st == TRI_OK)
    dismiss(&ld);
  else
    tri_fail(err, st, "step", "leader: step %llu failed: %s",
             (unsigned long long)atomic_load(&w->engine->progress.step), tri_engine_failure(w->engine, st));
  tri_control_stop(w); /* it may hold an outbox or a job of this scheduler */
  destroy(&ld);
  return st;
}
