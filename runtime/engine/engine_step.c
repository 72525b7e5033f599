/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: from a plan's bytes to what was drawn. */
#include "runtime/engine/engine.h"

#include <string.h>

/* The rows that are drawn from, contiguous. Without observers every row of logits is one, in order. */
static tri_mat draw_rows(tri_engine *e, tri_mat logits) {
  const tri_batch_builder *b = e->batch;
  if (b->num_draws == logits.rows) return logits;
  size_t width = (size_t)logits.cols * sizeof(float);
  for (int i = 0; i < b->num_draws; i++)
    e->backend->ops.copy_rows(e->backend, e->draw_logits + (size_t)i * (size_t)logits.cols, width,
                              logits.data + (size_t)b->draw_rows[i] * (size_t)logits.ld, width, width, 1);
  return (tri_mat){e->draw_logits, b->num_draws, logits.cols, logits.cols, TRI_F32};
}

/* Returns what the step's draws ask for. Every rank knows it from the plans, but for what earlier steps drew: histories
 * are whole on the sampling rank alone. */
static tri_sample_args ask(tri_engine *e, const tri_engine_step_state *s) {
  for (int i = 0; i < s->num_draws; i++) {
    const tri_slot *slot = &e->slots->slots[s->draws[i].slot];
    bool given = s->draws[i].target != TRI_SAMPLE_NO_TARGET;
    e->targets[i] = s->draws[i].target;
    e->row_params[i] = given ? tri_sample_greedy() : slot->params;
    if (given) e->row_params[i].num_logprobs = slot->params.num_logprobs;
    if (!s->draws[i].ban) e->row_params[i].num_banned = 0;
    e->sample_params[i] = &e->row_params[i];
    e->history[i] = slot->history;
    e->num_history[i] = slot->num_history;
    e->num_prompt[i] = slot->num_prompt < slot->num_history ? slot->num_prompt : slot->num_history;
    e->counters[i] = s->draws[i].counter;
    if (!e->counts || !tri_sample_has_penalties(&e->row_params[i])) continue;
    e->sequence[i] = (int)s->draws[i].slot;
    e->fresh[i] = tri_counts_anew(&e->counted[s->draws[i].slot], &s->draws[i]);
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
                           .results = tri_group_is_sampler(e->group) ? s->samples : NULL,
                           .drawn = e->drawn};
}

/* Every rank of the tensor group embeds what one of them has drawn. */
static tri_status share_draws(tri_engine *e, const tri_engine_step_state *s) {
  tri_comm *c = e->device_tensor;
  if (!e->drawn || !c || !s->num_draws) return TRI_OK;
  return tri_comm_broadcast(c, e->drawn, (size_t)s->num_draws * sizeof *e->drawn, 0);
}

/* Sets the draws going, into the step's samples. The ranks of the last stage choose the same way, each by itself: it
 * depends on nothing but the plans. */
static tri_status draw(tri_engine *e, const tri_engine_step_state *s, tri_mat logits) {
  tri_sample_args args = ask(e, s);
  bool every_row = s->num_draws == logits.rows;
  int candidates = every_row ? tri_forward_num_candidates(e->forward, args.params, s->num_draws) : 0;
  if (candidates) {
    args.logits = logits;
    return tri_forward_draw(e->forward, &args, candidates);
  }
  TRI_CHECK(tri_forward_gather(e->forward, &logits));
  if (args.results && s->num_draws) {
    args.logits = draw_rows(e, logits);
    TRI_CHECK(tri_run_sample(e->backend, &args));
  }
  return share_draws(e, s);
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
  if (plan.h.lane >= (uint32_t)e->num_lanes) return TRI_CORRUPT;
  int number = (e->first + e->num_steps) % e->depth;
  tri_engine_step_state *s = &e->steps[number];
  atomic_store_explicit(&e->progress.step, plan.h.step, memory_order_relaxed);
  TRI_CHECK(tri_batch_build(e->batch, e->slots, &plan));
  s->step = plan.h.step;
  s->lane = plan.h.lane;
  s->num_draws = e->batch->num_draws;
  memcpy(s->draws, e->batch->draws, (size_t)s->num_draws * sizeof *s->draws);
  if (e->hot) tri_hot_experts_step(e->hot);
  if (e->source) TRI_CHECK(tri_source_run(e->source, e->batch, (int)plan.h.lane, e->forward));
  TRI_CHECK(tri_forward_run(e->forward, e->batch, (int)plan.h.lane, &logits, &e->encoder_output));
  if (e->answer) TRI_CHECK(bring_answer(e));
  if (logits.data) TRI_CHECK(draw(e, s, logits));
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
  if (!tri_group_is_sampler(e->group)) return TRI_OK;
  e->result.step = s->step;
  e->result.lane = s->lane;
  e->result.num_tokens = (uint32_t)s->num_draws;
  for (int i = 0; i < s->num_draws; i++) {
    const tri_draw *d = &s->draws[i];
    uint32_t scored = d->target == TRI_SAMPLE_NO_TARGET ? 0 : (uint32_t)d->position;
    e->result.tokens[i] = (tri_step_token){d->slot, scored, s->samples[i]};
    tri_slot_learn(e->slots, d, s->samples[i].token);
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
