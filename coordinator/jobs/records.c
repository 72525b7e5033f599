/* SPDX-License-Identifier: Apache-2.0 */
/* The facts about jobs that outlive this process: tri_core_io's record takes them. Of a job that was accepted nothing
 * goes to its client before that is durable. Tokens need not be durable, only written, before a client has them: if the
 * machine fails, the next start samples the same ones again, and passes over those that the client has (ahead). */
#include "coordinator/jobs/jobs_impl.h"

enum {
  TOKENS_AT_ONCE = 512,   /* of one message within the record of a whole job */
  TOKEN_BYTES = 32,       /* of a token in it, about, */
  ALTERNATIVE_BYTES = 10, /* and of an alternative's number and log probability */
  JOB_BYTES = 1024        /* of what every job has apart from its tokens */
};

static uint64_t record(tri_core *c, const tri_record *r) {
  if (c->restoring || !c->cfg.io.record) return 0;
  return c->cfg.io.record(c->cfg.io.ctx, r);
}

/* The request as if its client had sent token ids and a seed: the next start does not tokenize it again, and samples
 * the same. */
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

/* An encoder's answer cannot be asked for again, so that there is nothing to record. */
void record_accepted(tri_core *c, job *j) {
  if (c->restoring || !c->cfg.io.record || j->embed) return;
  j->record = record_request(c, j, 0);
}

static void record_begin(tri_core *c, const job *j) { record(c, &(tri_record){.op = TRI_RECORD_BEGIN, .job = j->id}); }

static void record_accepted_again(tri_core *c, int64_t now, const job *j) {
  record_request(c, j, now - j->submitted_ns);
}

static uint64_t record_end(tri_core *c, const job *j) {
  return record(c, &(tri_record){.op = TRI_RECORD_WHOLE, .job = j->id});
}

void record_assigned(tri_core *c, const job *j) {
  tri_record r = {.op = TRI_RECORD_ASSIGNED, .job = j->id, .assigned = {j->replica, j->epoch, j->weights_hash}};
  if (j->record) record(c, &r);
}

void record_died(tri_core *c, const job *j) {
  if (j->record) record(c, &(tri_record){.op = TRI_RECORD_DIED, .job = j->id});
}

void record_tokens(tri_core *c, uint32_t replica, const tri_replica_tokens *tokens) {
  tri_record r = {.op = TRI_RECORD_TOKENS, .tokens = {replica, tokens}};
  record(c, &r);
}

/* A job that the next start continues with has not ended: its client is to return. */
void record_ended(tri_core *c, const job *j) {
  tri_record r = {.op = TRI_RECORD_ENDED, .job = j->id, .ended = {j->timed_out, j->dropped, j->error}};
  bool returns = c->ending && j->error && j->error->status == TRI_COORDINATOR_LOST;
  if (j->record && !returns) record(c, &r);
}

/* Once for a job: one that is over keeps no segment of the journal any more (tri_core_oldest_record). */
void record_over(tri_core *c, job *j) {
  tri_record r = {.op = TRI_RECORD_OVER, .job = j->id};
  if (!j->record || j->over) return;
  j->over = true;
  record(c, &r);
}

bool record_is_durable(tri_core *c, const job *j) {
  if (j->record <= c->jobs->durable) return true;
  c->jobs->has_undurable = true;
  return false;
}

/* ---- all of a job ---- */

/* Returns about how many bytes the record of a job has. */
size_t record_bytes(const job *j) {
  size_t token = TOKEN_BYTES, tokens = j->scored.num;
  for (int64_t i = 0; i < j->sampling.n; i++) tokens += j->choices[i].num;
  if (j->sampling.logprobs >= 0 || j->scored.num) token += TRI_WIRE_MAX_LOGPROBS * ALTERNATIVE_BYTES;
  return JOB_BYTES + j->num_prompt * sizeof *j->prompt_ids + j->prompt_len + tokens * token;
}

/* By token, ch->logprobs has its own and TRI_WIRE_MAX_LOGPROBS places for alternatives, the first num_top of them used.
 */
static void put_logprobs(const job_choice *ch, size_t at, tri_replica_token *t) {
  const float *p = ch->logprobs + at * (1 + TRI_WIRE_MAX_LOGPROBS);
  t->flags |= TRI_TOKEN_LOGPROB;
  t->logprob = p[0];
  t->num_top = ch->num_top[at];
  t->top_ids = ch->top_ids + at * TRI_WIRE_MAX_LOGPROBS;
  t->top_logprobs = p + 1;
}

/* Says how a choice has ended, with its last token or after it. One that a stop string has ended ends by that again.
 */
static void put_end(const job_choice *ch, bool with_token, tri_replica_token *t) {
  t->reason = ch->reason;
  t->flags |= TRI_TOKEN_LAST;
  if (!with_token) t->flags |= TRI_TOKEN_NONE;
  if (with_token && ch->reason == TRI_FINISH_STOP && ch->stop_string < 0) t->flags |= TRI_TOKEN_STOP_ID;
}

/* The first entry of each message carries what the job has been through. */
static void put_progress(const job *j, tri_replica_token *t) {
  t->preemptions = j->preemptions;
  t->cached = j->cached_tokens;
  if (j->preemptions) t->flags |= TRI_TOKEN_PREEMPTED;
  if (j->begun_ns) t->flags |= TRI_TOKEN_WAITED | TRI_TOKEN_CACHED;
}

/* Records what a choice has, or the prompt's log probabilities, from number `from` on. */
static void record_choice(tri_core *c, const job *j, const job_choice *ch, uint32_t index, size_t from) {
  tri_replica_token all[TOKENS_AT_ONCE];
  tri_replica_tokens message = {.epoch = j->epoch, .tokens = all};
  bool of_prompt = ch == &j->scored, ended = !of_prompt && ch->ended;
  for (size_t at = from; at < ch->num || (ended && at == from && !ch->num);) {
    for (message.num = 0; message.num < TOKENS_AT_ONCE && at < ch->num; at++) {
      tri_replica_token *t = &all[message.num++];
      *t = (tri_replica_token){.job = j->id, .choice = index, .token = ch->ids[at], .offset = at};
      if (of_prompt) t->flags = TRI_TOKEN_PROMPT;
      if (ch->logprobs) put_logprobs(ch, at, t);
      if (ended && at + 1 == ch->num) put_end(ch, true, t);
    }
    if (!ch->num) {
      all[message.num] = (tri_replica_token){.job = j->id, .choice = index};
      put_end(ch, false, &all[message.num++]);
      at++;
    }
    put_progress(j, &all[0]);
    record_tokens(c, j->replica, &message);
  }
}

/* A job that has run twice counts as such afterwards: what it samples again is distinguished from what comes out of
 * turn. */
void record_whole(tri_core *c, int64_t now, job *j) {
  record_begin(c, j);
  record_accepted_again(c, now, j);
  for (uint32_t runs = 0; runs < j->runs && runs < 2; runs++) record_assigned(c, j);
  for (uint32_t deaths = 0; deaths < j->deaths; deaths++) record_died(c, j);
  if (j->scored.num) record_choice(c, j, &j->scored, 0, 1); /* the first token of a prompt has none */
  for (uint32_t i = 0; i < (uint32_t)j->sampling.n; i++) record_choice(c, j, &j->choices[i], i, 0);
  j->moved = record_end(c, j);
  c->jobs->has_moved |= j->moved != 0;
}

/* The answer comes from no replica: it is recorded as if a first start of replica 0 had given it. */
void record_answered(tri_core *c, job *j, uint64_t weights_hash) {
  record_accepted(c, j);
  if (!j->record) return;
  j->weights_hash = weights_hash;
  record_assigned(c, j);
  for (uint32_t i = 0; i < (uint32_t)j->sampling.n; i++) record_choice(c, j, &j->choices[i], i, 0);
}
