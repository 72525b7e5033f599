/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a job: submitted, tokenized, queued, assigned to a replica, ended, forgotten.
 *
 * A job whose replica is lost goes back into the queue, and another replica, or the next epoch of the same one, resumes
 * it after the tokens that were received. Its seed is fixed and a sample is keyed by seed, choice and number of the
 * token, so that the client gets what an undisturbed replica would have sampled.
 *
 * A job may be what kills its replica. One under which replicas have died runs alone, so that it takes no other with it
 * and is not blamed for another, and is given up when that replica dies, too. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/jobs/jobs_impl.h"
#include "base/log.h"

enum { MOST_DEATHS = 3 };

/* ---- defaults: the model's generation_config fills in what a request leaves open ---- */

/* A model that is made to be searched is searched where the request asks for nothing that a search cannot do, a
 * temperature included. */
static void search_as_model(const tri_model_config *m, tri_sampling *s) {
  if (s->has_num_beams || s->has_temperature || m->generation.num_beams < 2 ||
      m->generation.num_beams > TRI_WIRE_MAX_BEAMS)
    return;
  s->num_beams = m->generation.num_beams;
  if (tri_sampling_check_beams(s, NULL) != TRI_OK) s->num_beams = 1;
}

#define APPLY(context, type, name, option, least, most, def, absent, sampler, help) APPLY_##absent(type, name)
#define APPLY_FIXED(type, name)
#define APPLY_OPEN(type, name)
#define APPLY_MODEL(type, name)                                                                                        \
  if (!s->has_##name && SAYS_##type(m->generation.name)) s->name = m->generation.name;
#define SAYS_F64(x) (!isnan(x))
#define SAYS_I64(x) ((x) >= 0)

static void apply_defaults(const tri_model_config *m, tri_sampling *s) {
  TRI_SAMPLING_NUMBERS(APPLY, )
  search_as_model(m, s);
  if (s->num_beams < 2) return;
  double most = TRI_WIRE_MAX_LENGTH_PENALTY;
  if (!s->has_length_penalty) s->length_penalty = fmin(fmax(m->generation.length_penalty, -most), most);
  if (!s->has_early_stopping) s->early_stopping = m->generation.early_stopping;
}

/* ---- a job is submitted ----
 *
 * From the message everything is copied that must outlive the call. A text goes to the tokenizer, which may answer at
 * once or through job_tokenized; token ids are there already. Either way take_tokens checks them, and the job is
 * queued. In a restart (c->restoring) the same path makes the jobs of the journal: checks that depend on the moment are
 * left out, as those jobs have been accepted. */

/* Takes a schema, and what stands around it, out of the message's memory. */
static bool own_constraint(job *j) {
  tri_wire_constraint *c = &j->sampling.constraint;
  if (c->kind == TRI_CONSTRAINT_NONE) return true;
  return (j->constraint = tri_wire_constraint_own(c));
}

/* Takes stop strings, biases and allowed ids out of the message's memory. */
static bool own_lists(job *j) {
  size_t total = 0, biases = (size_t)j->sampling.num_logit_bias, allowed = j->sampling.num_allowed_token_ids;
  if (biases) {
    if (!(j->bias = tri_malloc(biases, sizeof *j->bias))) return false;
    memcpy(j->bias, j->sampling.logit_bias, biases * sizeof *j->bias);
    j->sampling.logit_bias = j->bias;
  }
  if (allowed) {
    if (!(j->allowed = tri_malloc(allowed, sizeof *j->allowed))) return false;
    memcpy(j->allowed, j->sampling.allowed_token_ids, allowed * sizeof *j->allowed);
    j->sampling.allowed_token_ids = j->allowed;
  }
  for (int i = 0; i < j->sampling.num_stop; i++) total += j->sampling.stop[i].len;
  if (!total) return true;
  char *p = j->stop_text = tri_malloc(total, 1);
  for (int i = 0; p && i < j->sampling.num_stop; i++) {
    tri_wire_str *s = &j->sampling.stop[i];
    if (s->len) memcpy(p, s->s, s->len);
    s->s = p;
    p += s->len;
    if (s->len > j->longest_stop) j->longest_stop = s->len;
  }
  return j->stop_text != NULL;
}

static bool own_texts(job *j, const tri_submit *s) {
  if (s->cache_salt.len) j->salt = tri_strndup(s->cache_salt.s, s->cache_salt.len);
  j->salt_len = s->cache_salt.len;
  if (s->external_id.len) j->external_id = tri_strndup(s->external_id.s, s->external_id.len);
  return (j->salt || !s->cache_salt.len) && (j->external_id || !s->external_id.len);
}

static void note_failure(tri_core *c, tri_status st) { c->jobs->restore_failed |= c->restoring && st == TRI_NO_MEMORY; }

/* Returns about how many bytes the job of a request takes. */
static size_t bytes_of(const tri_submit *s) {
  size_t stops = 0;
  size_t n = block_bytes(sizeof(job) + (size_t)s->sampling.n * sizeof(job_choice));
  n += block_bytes(s->prompt.len) + block_bytes(s->num_token_ids * sizeof *s->token_ids);
  n += block_bytes(s->cache_salt.len) + block_bytes(s->external_id.len);
  n += block_bytes((size_t)s->sampling.num_logit_bias * sizeof *s->sampling.logit_bias);
  n += block_bytes(s->sampling.num_allowed_token_ids * sizeof *s->sampling.allowed_token_ids);
  n += block_bytes(tri_wire_constraint_bytes(&s->sampling.constraint));
  for (int i = 0; i < s->sampling.num_stop; i++) stops += s->sampling.stop[i].len;
  return n + block_bytes(stops);
}

/* embed: NULL for a job that generates text. */
static job *make_job(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m, const tri_submit *s,
                     const tri_embed_request *embed) {
  size_t size = sizeof(job) + (size_t)s->sampling.n * sizeof(job_choice); /* n is at most TRI_WIRE_MAX_N */
  job *j = tri_calloc(1, size);
  if (!j) return NULL;
  j->id = ++c->jobs->next_id;
  j->peer = *from;
  j->client_id = m->id;
  j->attached = true;
  j->stream = s->stream;
  j->on_disconnect = s->on_disconnect;
  j->sampling = s->sampling;
  j->echo = s->sampling.echo;
  j->use_cache = c->jobs->cache && s->cache;
  j->return_ids = s->return_token_ids;
  if (!embed) apply_defaults(c->cfg.model, &j->sampling);
  copy_text(j->caller, sizeof j->caller, s->caller);
  j->submitted_ns = j->said_ns = now;
  j->deadline_ns = s->sampling.deadline_ms ? now + s->sampling.deadline_ms * 1000000 : TRI_NEVER;
  j->num_open = (uint32_t)s->sampling.n;
  j->part.bytes = bytes_of(s);
  bool ok = own_lists(j) && own_constraint(j) && own_texts(j, s) && (!embed || embed_begin(c, j, m->op, embed));
  for (int64_t i = 0; i < s->sampling.n; i++) j->choices[i].stop_string = -1;
  if (ok && j->echo && s->prompt.s && !s->sampling.truncate) ok = prompt_keep(j, s->prompt);
  if (ok) return j;
  job_free(j);
  return NULL;
}

/* Gives a job its name and its seed. The name alone may open the job to a client that has it, so it tells nothing about
 * another's. The seed is fixed before any replica sees the job, so that a replica that runs it again samples the same.
 */
static tri_status name_job(tri_core *c, job *j, const tri_client_msg *m, const tri_submit *s, tri_error *err) {
  tri_status st = TRI_OK;
  j->request_id = s->request_id;
  j->seed = s->sampling.seed;
  if (!s->has_request_id) st = c->cfg.io.random(c->cfg.io.ctx, &j->request_id, sizeof j->request_id);
  if (!s->sampling.has_seed && c->cfg.seed)
    j->seed = mix64(c->cfg.seed + 0x51ed2701 * j->id);
  else if (st == TRI_OK && !s->sampling.has_seed)
    st = c->cfg.io.random(c->cfg.io.ctx, &j->seed, sizeof j->seed);
  if (st != TRI_OK) return tri_fail(err, st, "", "the system has no random numbers");
  if (!s->sampling.has_seed) j->seed >>= 64 - SAMPLED_SEED_BITS;
  if (m->op == TRI_OP_SUBMIT) st = content_of(c, m, &j->content);
  return st == TRI_OK ? st : tri_fail(err, st, "", "no memory for the job");
}

/* An embed or classify has the life of a submit with little to say. */
static void submit_of(const tri_embed_request *e, tri_submit *s) {
  tri_submit_init(s);
  s->model = e->model;
  s->prompt = e->text;
  s->token_ids = e->token_ids;
  s->num_token_ids = e->num_token_ids;
  s->sampling.priority = e->priority;
  s->sampling.deadline_ms = e->deadline_ms;
  s->cache = e->cache;
  s->cache_salt = e->cache_salt;
  s->caller = e->caller;
  s->external_id = e->external_id;
}

/* A replica's limits are checked at once where a replica is ready, so that the client hears of it before the job waits.
 */
static tri_status take_prompt(tri_core *c, job *j, const uint32_t *ids, size_t count, tri_error *err) {
  const char *field = admission_prompt_field(j);
  uint32_t index;
  j->num_prompt = count;
  if (j->state == JOB_TOKENIZING) TRI_CHECK(admission_check_room(c, err)); /* it may have had some when the text came */
  TRI_CHECK(admission_check_tokens(c, j, ids, count, err));
  if (replica_pick(c, &index)) TRI_CHECK(admission_check_fit(c, j, replica_facts_of(c, index), err));
  TRI_CHECK(admission_check_size(c, j, err));
  if (!(j->prompt_ids = tri_malloc(count, sizeof *ids)))
    return tri_fail(err, TRI_NO_MEMORY, field, "no memory for the %s", field);
  memcpy(j->prompt_ids, ids, count * sizeof *ids);
  if (j->embed) TRI_CHECK(embed_reserve(c, j, ids, count, err));
  if (j->sampling.prompt_logprobs >= 0 && prompt_score(j) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, "prompt_logprobs", "no memory for the prompt's logprobs");
  if (j->echo && !j->prompt && prompt_echo(c, j) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, "echo", "no memory for the prompt's text");
  choices_begin(c, j);
  flow_resize(c, &j->part, job_bytes(j)); /* the prompt's text has gone */
  return TRI_OK;
}

/* Puts a job to where its age, or its priority, has it in the queue. */
static void enqueue(tri_core *c, int64_t now, job *j) {
  const tri_sampling *s = &j->sampling;
  queue_entry *e = &j->part;
  e->id = j->id;
  e->priority = s->priority;
  e->max_tokens = s->max_tokens;
  e->prompt_ids = j->prompt_ids;
  e->num_prompt = j->num_prompt;
  e->salt = j->salt;
  e->salt_len = j->salt_len;
  e->sequences = (uint32_t)(s->num_beams > s->n ? s->num_beams : s->n);
  e->encoder = j->embed != NULL;
  e->alone = job_runs_alone(j);
  j->state = JOB_QUEUED;
  queue_push(c, now, e);
}

static job *job_of(queue_entry *e) { return (job *)((char *)e - offsetof(job, part)); }

static void finish_job(tri_core *c, int64_t now, job *j);

/* Ends a queued job with the answer that the cache has; false: it has none. */
static bool end_by_cache(tri_core *c, int64_t now, job *j) {
  tri_error err = {0};
  answer_found found = answer_find(c, now, j);
  if (found == ANSWER_TAKEN) finish_job(c, now, j);
  if (found != ANSWER_NO_MEMORY) return found == ANSWER_TAKEN;
  tri_fail(&err, TRI_NO_MEMORY, "", "no memory for the answer");
  job_fail(c, now, j, &err);
  return true;
}

static void take_tokens(tri_core *c, int64_t now, job *j, tri_status st, const uint32_t *ids, size_t count,
                        size_t second) {
  tri_error err = {0};
  if (j->embed) j->embed->second_start = second;
  st = st == TRI_OK ? take_prompt(c, j, ids, count, &err) : admission_refuse_text(c, j, st, &err);
  if (st != TRI_OK) {
    note_failure(c, st);
    job_fail(c, now, j, &err);
    return;
  }
  if (!c->restoring) c->totals.prompt_tokens += count;
  if (j->state == JOB_TOKENIZING) c->jobs->num_tokenizing--;
  enqueue(c, now, j);
  if (end_by_cache(c, now, j)) return;
  record_accepted(c, j);
  job_mark(c, j);
  job_dispatch(c, now);
  jobs_end_late(c, now);
}

void job_tokenized(tri_core *c, int64_t now, uint64_t id, tri_status st, const uint32_t *ids, size_t count,
                   size_t second) {
  job *j = job_find(c, id);
  if (j && j->state == JOB_TOKENIZING) take_tokens(c, now, j, st, ids, count, second); /* else it was cancelled */
}

void job_schema_refused(tri_core *c, int64_t now, uint64_t id, const tri_error *why) {
  job *j = job_find(c, id);
  if (j && j->state == JOB_TOKENIZING) job_fail(c, now, j, why); /* else it was cancelled */
}

/* Returns a job's text, or its tokens, and its schema. An accepted one has been looked at. */
static tri_core_text text_of(const tri_core *c, const tri_peer *from, const job *j, const tri_submit *s,
                             const tri_embed_request *embed) {
  const tri_wire_constraint *constraint = &j->sampling.constraint;
  tri_core_text text = {.from = from,
                        .text = s->prompt,
                        .special = s->add_special_tokens,
                        .ids = s->token_ids,
                        .num_ids = s->num_token_ids};
  if (constraint->kind == TRI_CONSTRAINT_JSON_SCHEMA && !c->restoring) {
    text.schema = constraint->text;
    text.frame = constraint->frame;
  }
  if (embed) text.pair = embed->text_pair;
  if (embed && embed->truncate) text.truncate_to = admission_most_tokens(c);
  if (embed || !s->sampling.truncate) return text;
  text.truncate_to = admission_truncate_to(c, &j->sampling);
  text.keep_end = true;
  if (text.text.s || text.num_ids <= text.truncate_to) return text;
  text.ids += text.num_ids - text.truncate_to;
  text.num_ids = text.truncate_to;
  return text;
}

void job_submit(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m) {
  const tri_embed_request *embed = m->op == TRI_OP_SUBMIT ? NULL : &m->embed;
  tri_submit of_embed;
  const tri_submit *s = embed ? &of_embed : &m->submit;
  char *joined = NULL;
  tri_error err = {0};
  if (embed) submit_of(embed, &of_embed);
  job *j = s->has_request_id ? job_find_request(c, from, &s->request_id) : NULL;
  if (j) {
    job_submit_again(c, now, j, from, m);
    return;
  }
  tri_status st = admission_check_id(c, from, m->id, NULL, &err);
  if (st == TRI_OK && !c->restoring) st = admission_check(c, m, s, &err);
  if (st == TRI_OK && embed) st = embed_add_prompt(c, embed, &of_embed, &joined, &err);
  if (st == TRI_OK && !c->restoring) st = flow_check(c, from, s->caller, bytes_of(s), &err);
  if (st == TRI_OK && !(j = make_job(c, now, from, m, s, embed)))
    st = tri_fail(&err, TRI_NO_MEMORY, "", "no memory for the job");
  if (j) st = tri_sampling_check_beams(&j->sampling, &err);
  if (j && st == TRI_OK) st = tri_sampling_check_constraint(&j->sampling, &err);
  if (j && st == TRI_OK) st = name_job(c, j, m, s, &err);
  if (j && st == TRI_OK && !flow_enter(c, &j->part, &j->peer, j->caller))
    st = tri_fail(&err, TRI_NO_MEMORY, "", "no memory for the job");
  if (st != TRI_OK) {
    if (j) job_free(j);
    note_failure(c, st);
    admission_count(c, &err);
    request_log_refusal(c, from, s, &err);
    answer_error(c, from, m->id, &err);
    tri_free(joined);
    return;
  }
  job_enlist(c, j);
  tri_core_text text = text_of(c, from, j, s, embed);
  const uint32_t *ids = text.ids;
  size_t count = text.num_ids, second = 0;
  bool elsewhere = text.text.s || text.schema.s;
  if (elsewhere) {
    j->state = JOB_TOKENIZING;
    c->jobs->num_tokenizing++;
    ids = NULL;
    st = c->cfg.io.tokenize(c->cfg.io.ctx, j->id, &text, &ids, &count, &second);
  }
  tri_free(joined);
  if (st != TRI_OK || ids || !elsewhere) take_tokens(c, now, j, st, ids, count, second);
}

/* ---- a replica gets it: after the tokens that have come, where one had it before ---- */

static uint64_t sampled_of(const job *j) {
  uint64_t sampled = 0;
  for (int64_t i = 0; i < j->sampling.n; i++) sampled += j->choices[i].num;
  return sampled;
}

static void log_replay(const job *j) {
  char id[TRI_REQUEST_ID_TEXT];
  if (tri_log_threshold() < TRI_LOG_DEBUG) return;
  tri_request_id_format(&j->request_id, id);
  tri_log(TRI_LOG_DEBUG, "jobs", "%s runs again, on replica %u (epoch %llu)%s, after %llu tokens; replicas lost: %u",
          id, j->replica, (unsigned long long)j->epoch, job_runs_alone(j) ? " alone" : "",
          (unsigned long long)sampled_of(j), j->deaths);
}

/* Returns how many ids an assign has room for in addition to the job itself. */
static size_t room_for_sampled(const job *j) {
  size_t others = admission_message_bytes(j);
  return others < TRI_WIRE_MAX_MESSAGE ? (TRI_WIRE_MAX_MESSAGE - others) / sizeof(uint32_t) : 0;
}

/* A search begins anew. So does a choice whose tokens a message has no room for: repeats leaves out what comes
 * twice. */
tri_status job_fill_sampled(tri_core *c, const job *j, uint32_t *counts, tri_replica_assign *a) {
  bool any = false;
  size_t room = room_for_sampled(j);
  if (!j->runs || j->embed || j->sampling.num_beams > 1) return TRI_OK;
  c->jobs->sampled.len = 0;
  for (int64_t i = 0; i < j->sampling.n; i++) {
    const job_choice *ch = &j->choices[i];
    size_t num = ch->ended || ch->num > room ? 0 : ch->num;
    any |= ch->ended || num;
    counts[i] = ch->ended ? TRI_SAMPLED_ENDED : (uint32_t)num;
    room -= num;
    if (num) TRI_CHECK(tri_buf_append(&c->jobs->sampled, ch->ids, num * sizeof *ch->ids));
  }
  if (j->sampling.prompt_logprobs >= 0) a->num_scored = j->scored.num;
  if (!any) return TRI_OK;
  a->sampled = (const uint32_t *)(const void *)c->jobs->sampled.data;
  a->num_sampled = c->jobs->sampled.len / sizeof *a->sampled;
  a->sampled_counts = counts;
  a->num_sampled_counts = (size_t)j->sampling.n;
  return TRI_OK;
}

static bool has_tokens(const job *j) {
  bool any = j->scored.num > 1; /* the first token of a prompt has no log probability of its own */
  for (int64_t i = 0; i < j->sampling.n; i++) any |= j->choices[i].num > 0;
  return any;
}

/* A hash of 0 is not known, and taken for the same. A job without tokens may begin anew with any weights. */
static tri_status check_weights(const job *j, const replica_facts *g, tri_error *err) {
  bool others = j->weights_hash && g->weights_hash && j->weights_hash != g->weights_hash;
  if (!others || !has_tokens(j)) return TRI_OK;
  return tri_fail(err, TRI_PEER_LOST, "",
                  "the replica that ran this job was lost, and the model has other weights since: the answer cannot "
                  "continue after its first tokens");
}

/* TRI_TOO_LARGE: no replica can be given the job. Anything else but TRI_OK: this one cannot now. */
static tri_status assign(tri_core *c, int64_t now, job *j, uint32_t index) {
  const replica_facts *g = replica_facts_of(c, index);
  uint32_t counts[TRI_WIRE_MAX_N];
  tri_replica_msg m = {.op = TRI_REPLICA_ASSIGN,
                       .assign = {.job = j->id,
                                  .epoch = g->epoch,
                                  .seed = j->seed,
                                  .remaining_ms = j->deadline_ns == TRI_NEVER ? -1 : (j->deadline_ns - now) / 1000000,
                                  .token_ids = j->prompt_ids,
                                  .num_token_ids = j->num_prompt,
                                  .second_start = j->embed ? embed_second_start(c, j) : 0,
                                  .cache_salt = {j->salt, j->salt_len},
                                  .sampling = j->sampling}};
  /* Stop strings are looked for here, in the detokenized text. */
  m.assign.sampling.num_stop = 0;
  TRI_CHECK(job_fill_sampled(c, j, counts, &m.assign));
  TRI_CHECK(replica_tell_leader(c, index, &m));
  queue_assigned(c, &j->part, index);
  j->state = JOB_ASSIGNED;
  j->replica = index;
  j->epoch = g->epoch;
  j->assigned_ns = now;
  j->weights_hash = g->weights_hash;
  if (j->runs++) {
    c->totals.replayed++;
    log_replay(j);
  }
  replica_got_job(c, index, now);
  record_assigned(c, j);
  return TRI_OK;
}

static void expire(tri_core *c, int64_t now, job *j) {
  j->timed_out = true;
  job_abort(c, now, j);
}

static void refuse_large(tri_core *c, int64_t now, job *j) {
  tri_error err = {0};
  tri_fail(&err, TRI_NO_CAPACITY, admission_prompt_field(j),
           "the job is larger than a message to its replica, %d bytes", TRI_WIRE_MAX_MESSAGE);
  job_fail(c, now, j, &err);
}

/* A leader whose queue is full, or that is just going, leaves its job where it is, and the other replicas continue: the
 * next tick tries again, and a replica that does not return is soon lost. */
void job_dispatch(tri_core *c, int64_t now) {
  uint32_t index;
  queue_unclog(c);
  for (queue_entry *e; (e = queue_next(c, &index));) {
    job *j = job_of(e);
    const replica_facts *g = replica_facts_of(c, index);
    tri_error err = {0};
    tri_status st = TRI_OK;
    if (now >= j->deadline_ns)
      expire(c, now, j);
    else if (admission_check_fit(c, j, g, &err) != TRI_OK || check_weights(j, g, &err) != TRI_OK)
      job_fail(c, now, j, &err);
    else if ((st = assign(c, now, j, index)) == TRI_TOO_LARGE)
      refuse_large(c, now, j);
    else if (st != TRI_OK)
      queue_clog(c, index);
  }
}

/* ---- the end ---- */

/* The one way into JOB_ENDED. The lists, and ids of a prompt that no answer names, are freed at once, for an ended job
 * stays for a minute; the output stays, for a client that returns. */
static void end_job(tri_core *c, int64_t now, job *j) {
  if (j->state == JOB_ENDED) return;
  request_log(c, j, now);
  if (j->state == JOB_ASSIGNED) replica_left_job(c, j->replica);
  if (job_runs_alone(j)) queue_release_alone(c, j->id);
  queue_remove(c, &j->part);
  queue_released(c, &j->part, sampled_of(j));
  flow_leave(c, &j->part);
  if (j->state == JOB_TOKENIZING) {
    c->jobs->num_tokenizing--;
    c->cfg.io.tokenize_stop(c->cfg.io.ctx, j->id);
  }
  if (!j->embed && !j->return_ids) { /* an encoder's result names its tokens */
    tri_free(j->prompt_ids);
    j->prompt_ids = NULL;
  }
  tri_free(j->bias);
  j->bias = NULL;
  j->sampling.num_logit_bias = 0;
  tri_free(j->allowed);
  j->allowed = NULL;
  j->sampling.num_allowed_token_ids = 0;
  tri_free(j->constraint);
  j->constraint = NULL;
  j->sampling.constraint = (tri_wire_constraint){.kind = TRI_CONSTRAINT_NONE};
  j->state = JOB_ENDED;
  j->ended_ns = now;
  job_retire(c, j);
  job_mark(c, j);
}

void job_fail(tri_core *c, int64_t now, job *j, const tri_error *err) {
  if (j->state == JOB_ENDED) return;
  for (int64_t i = 0; i < j->sampling.n; i++) choice_end(j, &j->choices[i], TRI_FINISH_ERROR);
  if ((j->error = tri_malloc(1, sizeof *err))) *j->error = *err; /* out of memory, no reason is recorded */
  record_ended(c, j);
  if (!c->restoring) admission_count(c, err);
  if (c->draining && (err->status == TRI_PEER_LOST || err->status == TRI_COORDINATOR_LOST)) c->totals.lost++;
  end_job(c, now, j);
}

/* A leader refuses a job before it computes anything of it: its reason is what the client gets. */
void job_refused(tri_core *c, int64_t now, uint32_t index, const tri_replica_msg *m) {
  job *j = job_find(c, m->refused.job);
  tri_error err = {0};
  char field[TRI_ERROR_FIELD], why[TRI_ERROR_MESSAGE];
  if (!j || j->state != JOB_ASSIGNED || j->replica != index || j->epoch != m->refused.epoch) return;
  tri_status st = tri_status_of_code(m->refused.code.s, m->refused.code.len);
  copy_line(field, sizeof field, m->refused.field);
  copy_line(why, sizeof why, m->refused.message);
  tri_fail(&err, st, field, "%s", why);
  job_fail(c, now, j, &err);
}

/* The first choice's reason stands for all: a job counts once. */
static void count_end(tri_core *c, int64_t now, const job *j) {
  tri_finish worst = j->choices[0].reason;
  uint64_t *count = &c->totals.done_abort;
  if (worst == TRI_FINISH_STOP) count = &c->totals.done_stop;
  if (worst == TRI_FINISH_LENGTH) count = &c->totals.done_length;
  ++*count;
  tri_histogram_add(&c->totals.e2e, (double)(now - j->submitted_ns) / 1e9);
}

/* Ends a job of which all choices have ended. */
static void finish_job(tri_core *c, int64_t now, job *j) {
  if (j->state == JOB_ENDED) return;
  if (!c->restoring) {
    count_end(c, now, j);
    answer_keep(c, j); /* what a journal has belongs to a replica that is not known yet */
  }
  end_job(c, now, j);
}

/* Tells the job's replica not to compute it any further. */
static void tell_abort(tri_core *c, const job *j) {
  tri_replica_msg m = {.op = TRI_REPLICA_ABORT, .abort = {.job = j->id}};
  if (j->state == JOB_ASSIGNED && replica_facts_of(c, j->replica)->epoch == j->epoch)
    replica_tell_leader(c, j->replica, &m);
}

/* Fails a job whose replica lives on and is to stop computing it. */
static void cut_job(tri_core *c, int64_t now, job *j, const tri_error *err) {
  if (j->state == JOB_ENDED) return;
  tell_abort(c, j);
  job_fail(c, now, j, err);
}

void job_abort(tri_core *c, int64_t now, job *j) {
  if (j->state == JOB_ENDED) return;
  record_ended(c, j);
  tell_abort(c, j);
  for (int64_t i = 0; i < j->sampling.n; i++) choice_end(j, &j->choices[i], TRI_FINISH_ABORT);
  finish_job(c, now, j);
}

void job_cancel(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m) {
  tri_error err = {0};
  job *j = NULL;
  if (m->cancel.has_request_id)
    j = job_find_request(c, from, &m->cancel.request_id);
  else
    j = job_find_of_client(c, from, m->cancel.target);
  if (!j) {
    tri_fail(&err, TRI_NOT_FOUND, m->cancel.has_request_id ? "request_id" : "target", "no such job");
    answer_error(c, from, m->id, &err);
    return;
  }
  job_abort(c, now, j);
  /* The canceller gets an answer under its own id; the job's own stream ends with `done`. */
  tri_server_msg reply = {.op = TRI_REPLY_ACCEPTED,
                          .id = m->id,
                          .accepted = {.request_id = j->request_id, .prompt_tokens = j->num_prompt, .existing = true}};
  c->cfg.io.answer(c->cfg.io.ctx, from, &reply);
}

/* ---- tokens, and an encoder's numbers ---- */

/* A step took it in, so long after its replica had it. */
static void note_begun(job *j, int64_t now, uint64_t waited_ns) {
  int64_t most = now - j->assigned_ns; /* whatever the replica's clock says */
  j->begun_ns = j->assigned_ns + (waited_ns < (uint64_t)most ? (int64_t)waited_ns : most);
}

/* Tokens of an earlier start have the times of then, and are counted as they were: there. */
static void note_times(tri_core *c, int64_t now, job *j) {
  bool first = !j->first_token_ns;
  int64_t before = j->last_token_ns;
  j->last_token_ns = now;
  if (first) {
    j->first_token_ns = now;
    queue_begun(c, &j->part);
    if (!j->begun_ns) note_begun(j, now, 0);
  }
  if (c->restoring) return;
  if (!first) tri_histogram_add(&c->totals.itl, (double)(now - before) / 1e9);
  if (!first) return;
  tri_histogram_add(&c->totals.ttft, (double)(now - j->submitted_ns) / 1e9);
  tri_histogram_add(&c->totals.queue_time, (double)job_queue_ns(j) / 1e9);
}

/* The token that came last is one that the client has. */
static void pass_over(job_choice *ch) {
  if (!ch->ahead) return;
  ch->ahead--;
  ch->sent = ch->num;
  ch->sent_text = ch->safe_after[ch->num - 1];
}

/* Ends a job whose numbers are infinite or NaN: an answer from them would be a text of one token, over and over. */
static void end_without_numbers(tri_core *c, int64_t now, job *j, const char *what) {
  tri_error err = {0};
  tri_fail(&err, TRI_INTERNAL, "",
           "the %s are not finite: weights are damaged, or numbers overflow in the type they have", what);
  c->totals.not_finite++;
  tri_log(TRI_LOG_ERROR, "coordinator", "replica %u: %s", j->replica, err.message);
  job_fail(c, now, j, &err);
}

/* Ends a job whose constraint has no answer. */
static void end_without_token(tri_core *c, int64_t now, job *j) {
  tri_error err = {0};
  tri_fail(&err, TRI_INTERNAL, "",
           "the answer cannot go on: its schema lets no token of the model come, or is too large where it is");
  tri_log(TRI_LOG_ERROR, "coordinator", "replica %u: %s", j->replica, err.message);
  job_fail(c, now, j, &err);
}

/* Returns whether an entry brings again what has come. */
static bool repeats(const job *j, const job_choice *ch, const tri_replica_token *t) {
  return j->runs > 1 && t->offset < ch->num && ch->ids[t->offset] == t->token;
}

/* Takes one entry of a job's: the next token of its prompt or of a choice, or the end of one. */
static tri_status take_entry(tri_core *c, int64_t now, job *j, const tri_replica_token *t, uint64_t *sampled) {
  job_choice *ch = &j->choices[t->choice];
  bool none = t->flags & TRI_TOKEN_NONE, prompt = t->flags & TRI_TOKEN_PROMPT;
  tri_error err = {0};
  size_t expected = prompt ? j->scored.num : ch->num;
  tri_status st = TRI_OK;
  /* A cancelled job has ended here already: a leader that ends one by itself does so at its deadline. */
  if (none && t->reason == TRI_FINISH_ABORT) j->timed_out = true;
  if (none && t->reason == TRI_FINISH_ERROR) {
    if (t->token == TRI_TOKEN_NO_OTHER)
      end_without_token(c, now, j);
    else
      end_without_numbers(c, now, j, "logits of a token");
    return TRI_INTERNAL;
  }
  bool again = !none && !prompt && repeats(j, ch, t);
  if (again && !(t->flags & TRI_TOKEN_LAST)) return TRI_OK;
  if (none || again)
    st = choice_end(j, ch, t->reason);
  else if (t->offset != expected)
    st = TRI_CORRUPT;
  else
    st = prompt ? prompt_push(c, j, t) : choice_push(c, j, ch, t);
  if (st != TRI_OK) {
    tri_fail(&err, TRI_INTERNAL, "", "token %llu came where %zu was expected, or memory is out",
             (unsigned long long)t->offset, expected);
    note_failure(c, st);
    cut_job(c, now, j, &err);
  } else if (!none && !again) {
    pass_over(prompt ? &j->scored : ch);
    *sampled += !prompt;
    if (!prompt) note_times(c, now - c->jobs->restored_age_ns, j);
  }
  return st;
}

/* Takes what an entry says of its job. Times and the cached tokens are those of the first replica that began it. */
static void note_progress(job *j, int64_t now, const tri_replica_token *t) {
  j->begun_here = true;
  if (t->flags & TRI_TOKEN_PREEMPTED) j->preemptions = j->earlier_preemptions + t->preemptions;
  if (j->begun_ns) return;
  if (t->flags & TRI_TOKEN_WAITED) note_begun(j, now, t->waited_ns);
  if (t->flags & TRI_TOKEN_CACHED && t->cached <= j->num_prompt) j->cached_tokens = t->cached;
}

void job_tokens(tri_core *c, int64_t now, uint32_t index, const tri_replica_tokens *tokens) {
  job *j = NULL;
  uint64_t sampled = 0;
  /* A restart continues with what is cut off with the cluster, and must not take how a replica ends it. */
  if (!c->ending) record_tokens(c, index, tokens);
  for (uint32_t i = 0; i < tokens->num; i++) {
    const tri_replica_token *t = &tokens->tokens[i];
    if (!j || j->id != t->job) j = job_find(c, t->job);
    /* A message of an earlier life of the replica, or one after a cancellation, has no owner any more. */
    if (!j || j->state != JOB_ASSIGNED || j->replica != index || j->epoch != tokens->epoch ||
        t->choice >= (uint32_t)j->sampling.n)
      continue;
    note_progress(j, now - c->jobs->restored_age_ns, t);
    if (j->choices[t->choice].ended) continue;
    if (j->embed && !(t->flags & TRI_TOKEN_NONE)) continue; /* there are no tokens to sample */
    if (take_entry(c, now, j, t, &sampled) != TRI_OK) continue;
    job_mark(c, j);
    if (j->num_open) continue;
    /* A stop string ends a choice here before its replica knows. */
    if (j->cut) tell_abort(c, j);
    finish_job(c, now, j);
  }
  if (sampled && !c->restoring) tri_histogram_add(&c->totals.step_tokens, (double)sampled);
}

/* An encoder's job is one choice without tokens, which ends with its result. */
static void take_result(tri_core *c, int64_t now, job *j, const tri_replica_result *r) {
  tri_error err = {0};
  tri_status st = embed_take(c, j, r, &err);
  if (st == TRI_OUT_OF_RANGE) {
    end_without_numbers(c, now, j, "numbers of the answer");
    return;
  }
  if (st != TRI_OK) {
    job_fail(c, now, j, &err);
    return;
  }
  note_begun(j, now, r->waited_ns);
  tri_histogram_add(&c->totals.queue_time, (double)job_queue_ns(j) / 1e9);
  choice_end(j, &j->choices[0], TRI_FINISH_STOP);
  finish_job(c, now, j);
}

void job_results(tri_core *c, int64_t now, uint32_t index, const tri_replica_results *results) {
  for (uint32_t i = 0; i < results->num; i++) {
    job *j = job_find(c, results->results[i].job);
    /* A message of an earlier life of the replica, or one after a cancellation, has no owner any more. */
    if (!j || !j->embed || j->state != JOB_ASSIGNED || j->replica != index || j->epoch != results->epoch) continue;
    take_result(c, now, j, &results->results[i]);
  }
}

/* ---- its replica is lost ----
 *
 * Which job killed it? Those that may have been in a step are at risk, and each of them counts one death. With the
 * second a job runs alone, so that only the guilty one comes to a third. */

/* Too many replicas have died under it. */
static bool is_given_up(const job *j) { return j->deaths >= MOST_DEATHS; }

static bool is_of(const job *j, uint32_t index) { return j->state == JOB_ASSIGNED && j->replica == index; }

/* Returns whether k, which stands before j in the list of all or not, has come to their replica before j. */
static bool came_before(const job *k, const job *j, bool older) {
  return k->assigned_ns < j->assigned_ns || (k->assigned_ns == j->assigned_ns && older);
}

/* Returns whether so many others of the replica had to begin before j: those that have, and those that came before it,
 * unless it is by priority and they matter less. */
static bool is_behind(const tri_core *c, const job *j, uint64_t slots) {
  uint64_t ahead = 0;
  bool older = true;
  for (const job *k = TAILQ_FIRST(&c->jobs->active); k && ahead < slots; k = TAILQ_NEXT(k, links)) {
    if (k == j) older = false;
    if (k == j || !is_of(k, j->replica)) continue;
    ahead += k->begun_here || (came_before(k, j, older) && k->sampling.priority <= j->sampling.priority);
  }
  return ahead >= slots;
}

/* Jobs begin in their order as slots become free. Twice as many as there are slots: those that have had them may have
 * ended without that having been heard. */
static void find_at_risk(tri_core *c, uint32_t index) {
  uint64_t slots = 2 * replica_slots(c, index);
  for (job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links))
    if (is_of(j, index)) j->at_risk = j->begun_here || !is_behind(c, j, slots);
}

/* Puts a job back to where its age has it in the queue. */
static void queue_again(tri_core *c, int64_t now, job *j) {
  replica_left_job(c, j->replica);
  queue_returned(c, &j->part);
  enqueue(c, now, j);
  j->earlier_preemptions = j->preemptions;
  j->begun_here = j->at_risk = j->cut = false;
}

void jobs_queue_all_again(tri_core *c, int64_t now) {
  for (job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links))
    if (j->state == JOB_ASSIGNED) queue_again(c, now, j);
}

unsigned jobs_queue_again(tri_core *c, int64_t now, uint32_t index) {
  unsigned count = 0;
  for (job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links)) {
    if (j->state != JOB_ASSIGNED || j->replica != index) continue;
    queue_again(c, now, j);
    count++;
  }
  return count;
}

/* Returns how jobs end that the end of the cluster takes with it. Where that was not asked for, the next start
 * continues with those that the journal has, and their clients are asked to return. */
static tri_status status_of_end(const tri_core *c) {
  return c->jobs->has_journal && !c->draining ? TRI_COORDINATOR_LOST : TRI_PEER_LOST;
}

/* Ends what waits: no replica will come. Jobs may come, and be cancelled, until the cluster has ended: their clients
 * hear of that, and the next start has to know it. */
static void end_waiting(tri_core *c, int64_t now, const char *reason) {
  tri_error ran = {0}, queued = {0};
  bool was_ending = c->ending;
  c->ending = true;
  tri_status st = status_of_end(c);
  tri_fail(&ran, st, "", "the replica that ran this job was lost: %s", reason);
  tri_fail(&queued, st, "", "the cluster is shutting down, and its last replica was lost: %s", reason);
  for (job *j = TAILQ_FIRST(&c->jobs->active), *next; j; j = next) {
    next = TAILQ_NEXT(j, links);
    if (j->state == JOB_QUEUED) job_fail(c, now, j, j->runs ? &ran : &queued);
  }
  c->ending = was_ending;
}

/* A job may be queued after a drain has lost its last replica: that loss has ended the others already. */
void jobs_end_late(tri_core *c, int64_t now) {
  if (c->draining && !replicas_may_serve(c)) end_waiting(c, now, replicas_last_loss(c));
}

/* Ends jobs whose third death is known, and their end is not. */
void jobs_end_poisoned(tri_core *c, int64_t now) {
  tri_error err = {0};
  tri_fail(&err, TRI_PEER_LOST, "", "three replicas have died while they ran this job, which is not tried again");
  for (job *j = TAILQ_FIRST(&c->jobs->active), *next; j; j = next) {
    next = TAILQ_NEXT(j, links);
    if (is_given_up(j)) job_fail(c, now, j, &err);
  }
}

void jobs_lose_replica(tri_core *c, int64_t now, uint32_t index, const char *reason) {
  tri_error err = {0};
  unsigned waiting = 0;
  tri_fail(&err, TRI_PEER_LOST, "",
           "three replicas have died while they ran this job, which is not tried again; the last one: %s", reason);
  find_at_risk(c, index);
  for (job *j = TAILQ_FIRST(&c->jobs->active), *next; j; j = next) {
    next = TAILQ_NEXT(j, links);
    if (j->state != JOB_ASSIGNED || j->replica != index) continue;
    j->deaths += j->at_risk;
    if (j->at_risk) record_died(c, j);
    if (is_given_up(j)) {
      job_fail(c, now, j, &err);
      continue;
    }
    queue_again(c, now, j);
    waiting++;
  }
  if (!replicas_may_serve(c))
    end_waiting(c, now, reason);
  else if (waiting)
    tri_log(TRI_LOG_INFO, "jobs", "%u jobs of replica %u wait to run again", waiting, index);
}

/* ---- the cluster ends ---- */

/* Jobs have ended whose clients wait for the disk, which may have failed: they get the error of those that have not. */
static void end_undurable(tri_core *c, const tri_error *err) {
  for (job *j = TAILQ_FIRST(&c->jobs->ended); j; j = TAILQ_NEXT(j, links)) {
    if (!j->attached || j->done_sent || j->error || j->record <= c->jobs->durable) continue;
    if ((j->error = tri_malloc(1, sizeof *err))) *j->error = *err;
    job_mark(c, j);
  }
}

void jobs_abandon(tri_core *c, int64_t now, const char *reason) {
  tri_error err = {0}, lost = {0};
  tri_status st = status_of_end(c);
  tri_fail(&err, st, "", "%s", reason);
  tri_fail(&lost, st, "", "%s; a replica that ran this job was lost before: %s", reason, replicas_last_loss(c));
  c->draining = c->ending = true;
  /* A replica leaves once it has nothing to compute. */
  for (job *j; (j = TAILQ_FIRST(&c->jobs->active));)
    cut_job(c, now, j, j->state == JOB_QUEUED && j->runs ? &lost : &err);
  end_undurable(c, &err);
}

/* ---- time ---- */

static void give_up_waiting(tri_core *c, int64_t now, job *j) {
  tri_error err = {0};
  tri_fail(&err, TRI_NO_CAPACITY, "",
           "no replica had room for the job within %g s, the limit max_queue_time; try again in a second",
           (double)c->cfg.max_queue_ns / 1e9);
  c->totals.refused[REFUSED_QUEUE_TIME]++;
  job_fail(c, now, j, &err);
}

void jobs_tick(tri_core *c, int64_t now) {
  for (job *j = TAILQ_FIRST(&c->jobs->active), *next; j && c->jobs->num_tokenizing + queue_count(c); j = next) {
    next = TAILQ_NEXT(j, links);
    /* Assigned jobs are ended by their leader, which knows what is under way. */
    if (j->state != JOB_ASSIGNED && now >= j->deadline_ns) expire(c, now, j);
    if (j->state == JOB_QUEUED && c->cfg.max_queue_ns && now - j->part.queued_ns >= c->cfg.max_queue_ns)
      give_up_waiting(c, now, j);
  }
  for (job *j = TAILQ_FIRST(&c->jobs->ended), *next; j; j = next) {
    next = TAILQ_NEXT(j, links);
    /* A client that reads nothing gets as long as one that may return. */
    bool expired = now - j->ended_ns > RETAIN_NS;
    bool crowded =
        c->jobs->num_retained > MAX_RETAINED || (c->cfg.most_retained && c->jobs->retained > c->cfg.most_retained);
    if (!expired && !crowded) break;
    bool owed = j->attached && !j->done_sent && j->record > c->jobs->durable; /* its client hears of it by then */
    if (!owed && (expired || !j->dirty)) job_forget(c, j);
  }
  job_dispatch(c, now);
}
