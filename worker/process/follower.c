/* SPDX-License-Identifier: Apache-2.0 */
/* The step loop of every rank but the leader: take a plan, run it, and, on the sampling rank, send back what was
 * sampled.
 *
 * A follower decides nothing: it runs plans in the order in which they come, and takes the next one while earlier steps
 * are under way, as far as the engine has room for them. */
#include "worker/process/canary.h"
#include "worker/placement/eplb_run.h"
#include "worker/process/worker.h"

struct follower {
  tri_worker *w;
  void *plan;
  size_t plan_cap;
  void **results; /* [micro-batches] packed; one may still be under way while the next micro-batch runs */
  tri_comm_req *sends;
  size_t result_cap;
};

static tri_status send_result(struct follower *f, const tri_step_result *r) {
  tri_comm *c = f->w->replica.world;
  TRI_CHECK(tri_comm_wait(c, &f->sends[r->micro_batch]));
  const tri_engine *e = f->w->engine;
  tri_embed_result embed = {
      .step = r->step, .micro_batch = r->micro_batch, .values = tri_embed_values(&e->encoder_output)};
  size_t n = e->model.encoder ? tri_embed_result_pack(&embed, f->results[r->micro_batch], f->result_cap)
                              : tri_result_pack(r, f->results[r->micro_batch], f->result_cap);
  return tri_comm_isend(c, f->results[r->micro_batch], n, 0, TRI_TAG_RESULT, &f->sends[r->micro_batch]);
}

/* Sees to the oldest step under way, if it has ended, and waits for that where the engine takes no more. */
static tri_status end_step(struct follower *f) {
  tri_engine *e = f->w->engine;
  const tri_step_result *result;
  tri_wait wait = tri_wait_begin(&e->wait_policy, TRI_NEVER);
  tri_status st;
  if (!e->num_steps) return TRI_OK;
  while ((st = tri_engine_poll(e, &result)) == TRI_AGAIN && e->num_steps == e->depth)
    if ((st = tri_wait_pause(&wait)) != TRI_OK) return st;
  if (st == TRI_AGAIN) return TRI_OK;
  return st == TRI_OK && result ? send_result(f, result) : st;
}

/* Steps that are under way end meanwhile. */
static tri_status receive_plan(struct follower *f, size_t *len) {
  tri_worker *w = f->w;
  tri_comm *c = w->replica.world;
  tri_status st = TRI_OK;
  tri_wait wait = tri_wait_begin(&c->cfg.policy, TRI_NEVER); /* idle until the leader has work; the lease ends it */
  while ((st = tri_comm_try_recv(c, f->plan, f->plan_cap, 0, TRI_TAG_PLAN, len)) == TRI_AGAIN) {
    TRI_CHECK(end_step(f));
    tri_worker_count_experts(w);
    if (!w->engine->num_steps) {
      atomic_store_explicit(&w->busy, false, memory_order_relaxed);
      tri_worker_measure(w);
    }
    if (w->engine->num_steps) wait = tri_wait_begin(&c->cfg.policy, TRI_NEVER);
    TRI_CHECK(tri_wait_pause(&wait));
  }
  return st;
}

/* The leader has its results, but a device may not be done with the step on this rank. */
static tri_status take_part(struct follower *f, const tri_plan_header *h) {
  tri_wait wait = tri_wait_begin(&f->w->engine->wait_policy, TRI_NEVER);
  while (f->w->engine->num_steps) {
    TRI_CHECK(end_step(f));
    TRI_CHECK(tri_wait_pause(&wait));
  }
  return tri_eplb_take_part(f->w->engine, h, NULL);
}

static tri_status run_one(struct follower *f, bool *stop) {
  tri_worker *w = f->w;
  size_t len;
  tri_worker_count_experts(w);
  TRI_CHECK(receive_plan(f, &len));
  atomic_store_explicit(&w->busy, true, memory_order_relaxed);
  tri_plan_view view;
  TRI_CHECK(tri_plan_read(f->plan, len, &view));
  *stop = view.h.kind == TRI_PLAN_STOP;
  if (*stop) return TRI_OK;
  if (view.h.kind != TRI_PLAN_STEP) return take_part(f, &view.h);
  TRI_CHECK(tri_engine_begin(w->engine, f->plan, len));
  return end_step(f);
}

/* The first step. What is wrong with its logits is said before its result leaves. */
static tri_status run_canary(struct follower *f, bool *stop, tri_error *err) {
  tri_worker *w = f->w;
  tri_canary canary;
  size_t len;
  tri_plan_view view;
  TRI_CHECK(receive_plan(f, &len));
  TRI_CHECK(tri_plan_read(f->plan, len, &view));
  *stop = view.h.kind == TRI_PLAN_STOP;
  if (*stop) return TRI_OK;
  tri_status st = tri_canary_begin(&canary, w, err);
  if (st == TRI_OK) st = tri_engine_begin(w->engine, f->plan, len);
  TRI_CHECK(tri_canary_end(&canary, st, err));
  return end_step(f);
}

tri_status tri_follower_run(tri_worker *w, tri_error *err) {
  struct follower f = {.w = w};
  tri_status st;
  bool stop = false;
  int micro_batches = w->engine->num_micro_batches;
  tri_plan_writer *sizes = NULL;
  const tri_limits *l = &w->engine->limits;
  tri_plan_sizes most = tri_limits_plan_sizes(l);
  TRI_TRY(tri_plan_writer_create(&most, &sizes));
  f.plan_cap = tri_plan_max_bytes(sizes);
  f.result_cap = tri_result_max_bytes((size_t)l->max_num_seqs);
  if (w->engine->model.encoder) {
    size_t rows, cols;
    TRI_TRY(tri_embed_result_max(&w->engine->model, l, &rows, &cols) ? TRI_OK : TRI_OVERFLOW);
    f.result_cap = tri_embed_result_bytes(rows, cols);
  }
  f.plan = tri_malloc(f.plan_cap, 1);
  f.results = tri_calloc((size_t)micro_batches, sizeof *f.results);
  f.sends = tri_calloc((size_t)micro_batches, sizeof *f.sends);
  for (int i = 0; f.results && i < micro_batches; i++)
    if (!(f.results[i] = tri_malloc(f.result_cap, 1))) st = TRI_NO_MEMORY;
  if (!f.plan || !f.results || !f.sends || st != TRI_OK)
    TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "follower", "no memory for the step buffers"));
  TRI_TRY(run_canary(&f, &stop, err));
  tri_start_watch_end(&w->start_watch);
  while (!stop) TRI_TRY(run_one(&f, &stop));
cleanup:
  if (st == TRI_ABORTED && atomic_load(&w->stop)) st = TRI_OK; /* told to leave */
  if (st != TRI_OK)
    tri_fail(err, st, "step", "rank %d: step %llu failed: %s", w->rank,
             (unsigned long long)atomic_load(&w->engine->progress.step), tri_engine_failure(w->engine, st));
  for (int i = 0; f.results && i < micro_batches; i++) tri_free(f.results[i]);
  tri_free(f.results);
  tri_free(f.sends);
  tri_free(f.plan);
  tri_plan_writer_destroy(sizes);
  return st;
}
