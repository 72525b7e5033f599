/* SPDX-License-Identifier: Apache-2.0 */
/* The facts about jobs that outlive this process: tri_core_io's record takes them. Of a job that was accepted nothing
 * goes to its client before that is durable. */
#include "coordinator/state.h"

static uint64_t record(tri_core *c, const tri_record *r) {
  if (c->restoring || !c->cfg.io.record) return 0;
  return c->cfg.io.record(c->cfg.io.ctx, r);
}

static void fill_submit(const job *j, tri_submit *s) {
  tri_submit_init(s);
  s->request_id = j->request_id;
  s->has_request_id = true;
  s->token_ids = j->prompt_ids;
  s->num_token_ids = j->num_prompt;
  s->sampling = j->sampling;
  s->sampling.echo = j->echo;
  s->sampling.truncate = 0; /* these are what it has left */
  s->sampling.seed = j->seed;
  s->sampling.has_seed = true;
  s->stream = j->stream;
  s->cache = j->use_cache;
  s->cache_salt = (tri_wire_str){j->salt, j->salt_len};
  s->caller = wire_str(j->caller);
  if (j->external_id) s->external_id = wire_str(j->external_id);
  s->return_token_ids = j->return_ids;
  s->on_disconnect = j->on_disconnect;
}

uint64_t record_model(const tri_core *c) {
  uint64_t hashes[] = {c->cfg.model_hash, c->cfg.tokenizer ? tri_tokenizer_hash(c->cfg.tokenizer) : 0};
  return tri_hash_bytes(TRI_HASH_SEED, hashes, sizeof hashes);
}

static uint64_t record_request(tri_core *c, const job *j, int64_t age_ns) {
  tri_record r = {.op = TRI_RECORD_ACCEPTED, .job = j->id, .age_ns = age_ns};
  r.accepted.msg.id = j->client_id;
  r.accepted.msg.op = TRI_OP_SUBMIT;
  fill_submit(j, &r.accepted.msg.submit);
  r.accepted.owner = j->peer.owner;
  r.accepted.model = record_model(c);
  r.accepted.content = (tri_record_content){j->content.prompt, j->content.rest};
  if (j->prompt) r.accepted.prompt = (tri_wire_str){j->prompt, j->prompt_len};
  return record(c, &r);
}

/* Nobody can come back for an encoder's answer, so that there is nothing to go on with. */
void record_accepted(tri_core *c, job *j) {
  if (c->restoring || !c->cfg.io.record || j->embed) return;
  j->record = record_request(c, j, 0);
}

void record_begin(tri_core *c, const job *j) { record(c, &(tri_record){.op = TRI_RECORD_BEGIN, .job = j->id}); }

void record_accepted_again(tri_core *c, int64_t now, const job *j) { record_request(c, j, now - j->submitted_ns); }

uint64_t record_end(tri_core *c, const job *j) {
  return record(c, &(tri_record){.op = TRI_RECORD_WHOLE, .job = j->id});
}

void record_assigned(tri_core *c, const job *j) {
  tri_record r = {.op = TRI_RECORD_ASSIGNED, .job = j->id, .assigned = {j->group, j->epoch, j->weights_hash}};
  if (j->record) record(c, &r);
}

void record_died(tri_core *c, const job *j) {
  if (j->record) record(c, &(tri_record){.op = TRI_RECORD_DIED, .job = j->id});
}

void record_tokens(tri_core *c, uint32_t group, const tri_group_tokens *tokens) {
  tri_record r = {.op = TRI_RECORD_TOKENS, .tokens = {group, tokens}};
  record(c, &r);
}

void record_ended(tri_core *c, const job *j) {
  tri_record r = {.op = TRI_RECORD_ENDED, .job = j->id, .ended = {j->timed_out, j->dropped, j->error}};
  if (j->record && !c->ending) record(c, &r);
}

void record_over(tri_core *c, job *j) {
  tri_record r = {.op = TRI_RECORD_OVER, .job = j->id};
  if (!j->record || j->over) return;
  j->over = true;
  record(c, &r);
}

/* ---- what is durable ---- */

bool record_is_durable(tri_core *c, const job *j) {
  if (j->record <= c->durable) return true;
  c->has_undurable = true;
  return false;
}

static void mark_durable(tri_core *c, struct job_list *list, uint64_t before) {
  for (job *j = TAILQ_FIRST(list); j; j = TAILQ_NEXT(j, links)) {
    if (j->record <= before || j->accepted_sent) continue;
    if (record_is_durable(c, j)) job_mark(c, j); /* others wait for the next sync */
  }
}

void tri_core_durable(tri_core *c, int64_t now, uint64_t number) {
  uint64_t before = c->durable;
  c->durable = number;
  compact_settle(c);
  if (!c->has_undurable || number <= before) return;
  c->has_undurable = false;
  mark_durable(c, &c->active, before);
  mark_durable(c, &c->ended, before);
  deliver_all(c, now);
}

static uint64_t oldest_of(const struct job_list *list, uint64_t least) {
  for (const job *j = TAILQ_FIRST(list); j; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && j->record < least) least = j->record;
  return least;
}

uint64_t tri_core_oldest_record(const tri_core *c) { return oldest_of(&c->ended, oldest_of(&c->active, UINT64_MAX)); }

bool tri_core_owes(const tri_core *c) {
  if (c->ending || !TAILQ_EMPTY(&c->active)) return true;
  for (const job *j = TAILQ_FIRST(&c->ended); j; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && (!j->done_sent || !j->attached)) return true;
  return false;
}
