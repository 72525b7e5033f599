/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: from a plan's bytes to what was sampled.
 *
 * States of a step: begun (its work is queued, its samples are noted in steps[]), under way, ended (its event has
 * passed; results are in host memory), polled. With a depth of 2 the host builds step n + 1 while the device runs step
 * n, and tokens of n that n + 1 needs are read on the device (tri_engine.sampled). Results are taken in the order of
 * the steps. */
#include "runtime/engine/engine.h"

#include <string.h>

/* The rows that are sampled from, contiguous. Without observers every row of logits is one, in order. */
static tri_mat sample_rows(tri_engine *e, tri_mat logits) {
  const tri_batch_builder *b = e->batch;
  if (b->num_samples == logits.rows) return logits;
  size_t width = (size_t)logits.cols * sizeof(float);
  for (int i = 0; i < b->num_samples; i++)
    e->backend->ops.copy_rows(e->backend, e->sample_logits + (size_t)i * (size_t)logits.cols, width,
                              logits.data + (size_t)b->sample_rows[i] * (size_t)logits.ld, width, width, 1);
  return (tri_mat){e->sample_logits, b->num_samples, logits.cols, logits.cols, TRI_F32};
}

/* Returns what the step's samples ask for. Every rank knows it from the plans, but for what earlier steps sampled:
 * histories are whole on the sampling rank alone. */
static tri_sample_args ask(tri_engine *e, const tri_engine_step_state *s) {
  for (int i = 0; i < s->num_samples; i++) {
    const tri_slot *slot = &e->slots->slots[s->samples[i].slot];
    bool given = s->samples[i].target != TRI_SAMPLE_NO_TARGET;
    e->targets[i] = s->samples[i].target;
    e->row_params[i] = given ? tri_sample_greedy() : slot->params;
    if (given) e->row_params[i].num_logprobs = slot->params.num_logprobs;
    if (!s->samples[i].ban) e->row_params[i].num_banned = 0;
    e->sample_params[i] = &e->row_params[i];
    e->history[i] = slot->history;
    e->num_history[i] = slot->num_history;
    e->num_prompt[i] = slot->num_prompt < slot->num_history ? slot->num_prompt : slot->num_history;
    e->counters[i] = s->samples[i].counter;
    if (!e->counts || !tri_sample_has_penalties(&e->row_params[i])) continue;
    e->sequence[i] = (int)s->samples[i].slot;
    e->fresh[i] = tri_counts_anew(&e->counted[s->samples[i].slot], &s->samples[i]);
  }
  return (tri_sample_args){.params = e->sample_params,
                           .history = e->history,
                           .num_prompt = e->num_prompt,
                           .num_history = e->num_history,
                           .counter = e->counters,
                           .target = e->targets,
                           .counts = e->counts,
                           .sequence = e->sequence,
                           .fresh = e->fresh,
                           .results = tri_replica_is_sampler(e->replica) ? s->results : NULL,
                           .sampled = e->sampled};
}

/* Every rank of the tensor group embeds what one of them has sampled. */
static tri_status share_samples(tri_engine *e, const tri_engine_step_state *s) {
  tri_comm *c = e->device_tensor;
  if (!e->sampled || !c || !s->num_samples) return TRI_OK;
  return tri_comm_broadcast(c, e->sampled, (size_t)s->num_samples * sizeof *e->sampled, 0);
}

/* Sets the samples going, into the step's samples. The ranks of the last stage choose the same way, each by itself: it
 * depends on nothing but the plans. */
static tri_status sample(tri_engine *e, const tri_engine_step_state *s, tri_mat logits) {
  tri_sample_args args = ask(e, s);
  bool every_row = s->num_samples == logits.rows;
  int candidates = every_row ? tri_forward_num_candidates(e->forward, args.params, s->num_samples) : 0;
  if (candidates) {
    args.logits = logits;
    return tri_forward_sample(e->forward, &args, candidates);
  }
  TRI_CHECK(tri_forward_gather(e->forward, &logits));
  if (args.results && s->num_samples) {
    args.logits = sample_rows(e, logits);
    TRI_CHECK(tri_run_sample(e->backend, &args));
  }
  return share_samples(e, s);
}

/* An encoder's answer, from the backend's memory to the host's. */
static tri_status bring_answer(tri_engine *e) {
  tri_backend *be = e->backend;
  tri_mat *m = e->encoder_output.scores.data ? &e->encoder_output.scores : &e->encoder_output.pooled;
  size_t width = (size_t)m->cols;
  if (!m->data) return TRI_OK;
  for (int i = 0; i < m->rows; i++)
    be->ops.download(be, e->answer + (size_t)i * width, m->data + (size_t)i * (size_t)m->ld, width * sizeof(float));
  *m = (tri_mat){e->answer, m->rows, m->cols, m->cols, TRI_F32};
  return be->ops.stream_sync(be);
}

tri_status tri_engine_begin(tri_engine *e, const void *bytes, size_t len) {
  tri_plan_view plan;
  tri_mat logits;
  if (e->num_steps == e->depth) return TRI_INVALID_ARGUMENT;
  tri_status st = tri_plan_read(bytes, len, &plan);
  if (st != TRI_OK) return st;
  if (plan.h.micro_batch >= (uint32_t)e->num_micro_batches) return TRI_CORRUPT;
  int number = (e->first + e->num_steps) % e->depth;
  tri_engine_step_state *s = &e->steps[number];
  atomic_store_explicit(&e->progress.step, plan.h.step, memory_order_relaxed);
  TRI_CHECK(tri_batch_build(e->batch, e->slots, &plan));
  s->step = plan.h.step;
  s->micro_batch = plan.h.micro_batch;
  s->num_samples = e->model.encoder ? 0 : e->batch->num_samples; /* those stand for its answers */
  memcpy(s->samples, e->batch->samples, (size_t)s->num_samples * sizeof *s->samples);
  if (e->hot) tri_hot_experts_step(e->hot);
  if (e->source) TRI_CHECK(tri_source_run(e->source, e->batch, (int)plan.h.micro_batch, e->forward));
  TRI_CHECK(tri_forward_run(e->forward, e->batch, (int)plan.h.micro_batch, &logits, &e->encoder_output));
  if (e->answer) TRI_CHECK(bring_answer(e));
  if (logits.data) TRI_CHECK(sample(e, s, logits));
  e->backend->ops.event_record(e->backend, TRI_EVENT_STEP + number, TRI_STREAM_COMPUTE);
  e->num_steps++;
  return st;
}

/* While a step is under way: a peer that is gone would be waited for on the device without end. */
static tri_status look_at_peers(tri_engine *e) {
  tri_status st = e->device_tensor ? tri_comm_poll(e->device_tensor) : TRI_OK;
  if (st == TRI_OK && e->device_column) st = tri_comm_poll(e->device_column);
  if (st == TRI_OK && e->device_world) st = tri_comm_poll(e->device_world);
  return st == TRI_OK ? TRI_AGAIN : st;
}

tri_status tri_engine_poll(tri_engine *e, const tri_step_result **result) {
  tri_backend *be = e->backend;
  tri_engine_step_state *s = &e->steps[e->first];
  *result = NULL;
  if (!e->num_steps) return TRI_INVALID_ARGUMENT;
  tri_status st = be->ops.event_query(be, TRI_EVENT_STEP + e->first);
  if (st == TRI_AGAIN && e->hot) tri_hot_experts_go_on(e->hot);
  if (st == TRI_AGAIN) return look_at_peers(e);
  if (st == TRI_OK && e->device_tensor) st = tri_comm_query(e->device_tensor); /* what sums and transfers met there */
  if (st == TRI_OK && e->device_column) st = tri_comm_query(e->device_column);
  if (st == TRI_OK && e->device_world) st = tri_comm_query(e->device_world);
  if (st != TRI_OK) return st;
  e->first = (e->first + 1) % e->depth;
  e->num_steps--;
  if (!tri_replica_is_sampler(e->replica)) return TRI_OK;
  e->result.step = s->step;
  e->result.micro_batch = s->micro_batch;
  e->result.num_tokens = (uint32_t)s->num_samples;
  for (int i = 0; i < s->num_samples; i++) {
    const tri_sample_row *d = &s->samples[i];
    uint32_t scored = d->target == TRI_SAMPLE_NO_TARGET ? 0 : (uint32_t)d->position;
    e->result.tokens[i] = (tri_step_token){d->slot, scored, s->results[i]};
    tri_slot_learn(e->slots, d, s->results[i].token);
  }
  *result = &e->result;
  return TRI_OK;
}

tri_status tri_engine_step(tri_engine *e, const void *plan, size_t len, const tri_step_result **result) {
  *result = NULL;
  tri_status st = tri_engine_begin(e, plan, len);
  tri_wait wait = tri_wait_begin(&e->wait_policy, TRI_NEVER);
  while (st == TRI_OK && (st = tri_engine_poll(e, result)) == TRI_AGAIN) st = tri_wait_pause(&wait);
  return st;
}

const char *tri_engine_failure(const tri_engine *e, tri_status st) {
  const char *stream = e->offload ? tri_weight_stream_failure(tri_offload_stream(e->offload)) : "";
  if (stream[0]) return stream;
  bool said = (st == TRI_DEVICE_LOST || st == TRI_UNSUPPORTED) && e->backend->failure[0];
  return said ? e->backend->failure : tri_status_text(st);
}
