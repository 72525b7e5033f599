/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: whether a request may become a job, and whether a job fits into a replica.
 *
 * Three looks, each as soon as what it needs is known: the request itself (admission_check), its tokens when the
 * tokenizer has them (check_tokens, check_size), and the limits of a replica, when one is ready and again when the job
 * is given to one (check_fit). An error that names a field is the request's own, also the next time; one without says
 * that there is no room now. Metrics and the gateway's HTTP codes tell them apart by that. */
#include <stdio.h>
#include <string.h>

#include "comm/wire/job_limits.h"
#include "comm/wire/pack.h"
#include "coordinator/jobs/jobs_impl.h"

static tri_status check_generates(const tri_core *c, tri_error *err) {
  const tri_model_config *m = c->cfg.model;
  if (!m->encoder) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "op", "the model served here is an encoder: it does not generate text, it %s",
                  m->head.has_classifier ? "classifies" : "embeds");
}

tri_status admission_check_room(tri_core *c, tri_error *err) {
  int64_t most = MAX_RETAINED + c->cfg.max_queue;
  /* More ended jobs than are kept otherwise, by a margin: one whose record is not durable cannot be forgotten while its
   * client waits for its end. */
  bool many = c->jobs->num_retained > most || (c->cfg.most_retained && c->jobs->retained > 2 * c->cfg.most_retained);
  bool slow = c->jobs->has_undurable && many;
  if (slow || c->jobs->full) c->totals.refused[REFUSED_JOURNAL]++;
  if (slow)
    return tri_fail(err, TRI_NO_CAPACITY, "",
                    "the disk of the journal is slow: %lld jobs that have ended wait for it; try again in a second",
                    (long long)c->jobs->num_retained);
  if (!c->jobs->full) return TRI_OK;
  return tri_fail(err, TRI_NO_CAPACITY, "",
                  "the disk of the journal is full: new jobs are refused until it has room again");
}

static bool is_name(tri_wire_str given, const char *name) {
  return given.len == strlen(name) && !memcmp(given.s, name, given.len);
}

static bool is_served(const tri_core *c, tri_wire_str given) {
  bool is = is_name(given, c->cfg.model_name);
  for (uint32_t i = 0; i < c->cfg.num_other_names; i++) is |= is_name(given, c->cfg.other_names[i]);
  return is;
}

static tri_status refuse_model(const tri_core *c, tri_wire_str given, tri_error *err) {
  char shown[64], names[TRI_ERROR_MESSAGE];
  size_t used = (size_t)snprintf(names, sizeof names, "\"%s\"", c->cfg.model_name);
  /* snprintf counts what it had to leave out, too: names that are full end the loop. */
  for (uint32_t i = 0; i < c->cfg.num_other_names && used < sizeof names; i++)
    used += (size_t)snprintf(names + used, sizeof names - used, ", \"%s\"", c->cfg.other_names[i]);
  return tri_fail(err, TRI_NOT_FOUND, "model", "no model \"%s\" here, only %s",
                  tri_wire_printable(given.s, given.len, shown), names);
}

static tri_status check_submit(tri_core *c, const tri_submit *s, tri_error *err) {
  if (c->draining) return tri_fail(err, TRI_DRAINING, "", "the cluster is shutting down and takes no new jobs");
  TRI_CHECK(admission_check_room(c, err));
  if (s->model.s && !is_served(c, s->model)) return refuse_model(c, s->model, err);
  if (s->prompt.s && !c->cfg.tokenizer) return refuse_untokenized(c, "prompt", err);
  if (s->sampling.num_stop && !c->cfg.tokenizer)
    return tri_fail(err, TRI_UNSUPPORTED, "stop", "stop strings need a tokenizer, and this model has none");
  if (s->sampling.constraint.kind != TRI_CONSTRAINT_NONE && !c->cfg.tokenizer)
    return tri_fail(err, TRI_UNSUPPORTED, "constraint",
                    "a constrained answer needs a tokenizer, and this model has none");
  if (s->sampling.min_tokens > s->sampling.max_tokens && s->sampling.max_tokens >= 0)
    return tri_fail(err, TRI_OUT_OF_RANGE, "min_tokens", "min_tokens %lld exceeds max_tokens %lld",
                    (long long)s->sampling.min_tokens, (long long)s->sampling.max_tokens);
  return TRI_OK;
}

tri_status admission_check(tri_core *c, const tri_client_msg *m, const tri_submit *s, tri_error *err) {
  tri_status st = m->op == TRI_OP_SUBMIT ? check_generates(c, err) : embed_check(c, m->op, &m->embed, err);
  return st == TRI_OK ? check_submit(c, s, err) : st;
}

tri_status admission_check_id(tri_core *c, const tri_peer *from, uint64_t id, const job *same, tri_error *err) {
  const job *j = job_find_of_client(c, from, id);
  if (!j || j == same || (j->state == JOB_ENDED && (j->done_sent || !j->attached))) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "id",
                  "the id %llu is that of a request of this connection which is under way: a new one needs another",
                  (unsigned long long)id);
}

/* g: NULL where no replica is ready yet, whose limits are not known then. */
static tri_job_limits limits_of(const tri_core *c, const replica_facts *g) {
  const tri_model_config *m = c->cfg.model;
  tri_job_limits l = {.use = TRI_PROMPT_CONTINUED,
                      .vocab_size = (uint64_t)m->vocab_size,
                      .num_types = (uint64_t)m->embed.type_vocab_size,
                      .eos = m->eos_token_ids,
                      .num_eos = m->num_eos_token_ids,
                      .bad = m->bad_token_ids,
                      .num_bad = m->num_bad_token_ids};
  if (m->encoder) l.use = TRI_PROMPT_WHOLE;
  if (m->seq2seq.on) {
    l.use = TRI_PROMPT_SOURCE;
    l.num_start = m->seq2seq.forced_bos_token_id >= 0 ? 2 : 1;
  }
  if (!g) return l;
  l.max_model_len = g->max_model_len;
  l.max_num_seqs = g->max_num_seqs;
  l.kv_tokens = g->kv_blocks * g->block_size;
  return l;
}

size_t admission_most_tokens(const tri_core *c) {
  uint32_t index;
  uint64_t most = (uint64_t)c->cfg.max_prompt;
  if (!replica_pick(c, &index)) return (size_t)most;
  uint64_t len = replica_facts_of(c, index)->max_model_len;
  return len < most ? (size_t)len : (size_t)most;
}

size_t admission_truncate_to(const tri_core *c, const tri_sampling *s) {
  if (s->truncate > 0) return (size_t)s->truncate;
  size_t most = admission_most_tokens(c), answer = s->has_max_tokens && s->max_tokens > 0 ? (size_t)s->max_tokens : 1;
  if (c->cfg.model->seq2seq.on) return most;   /* a source shares its room with nothing */
  return answer < most ? most - answer : most; /* then max_tokens is what is refused */
}

tri_status admission_check_tokens(const tri_core *c, const job *j, const uint32_t *ids, size_t count, tri_error *err) {
  tri_job_limits l = limits_of(c, NULL);
  tri_job_request r = {.token_ids = ids, .num_token_ids = count, .sampling = &j->sampling};
  return tri_job_check_tokens(&l, &r, err);
}

/* The max_tokens that a client has asked for must fit after the prompt, or after the tokens that begin an
 * encoder-decoder's answer. A default is cut by the replica instead. */
static tri_status check_max_tokens(const tri_job_limits *l, const job *j, tri_error *err) {
  const tri_sampling *s = &j->sampling;
  bool source = l->use == TRI_PROMPT_SOURCE;
  uint64_t before = source ? l->num_start : j->num_prompt;
  if (!s->has_max_tokens || s->max_tokens < 0 || before + (uint64_t)s->max_tokens <= l->max_model_len) return TRI_OK;
  return tri_fail(err, TRI_NO_CAPACITY, "max_tokens",
                  "max_tokens is %lld, and %s %llu tokens; both together have at most max_model_len %llu",
                  (long long)s->max_tokens, source ? "what begins an answer has" : "the prompt has",
                  (unsigned long long)before, (unsigned long long)l->max_model_len);
}

tri_status admission_check_fit(const tri_core *c, const job *j, const replica_facts *g, tri_error *err) {
  tri_job_limits l = limits_of(c, g);
  tri_job_request r = {.num_token_ids = j->num_prompt,
                       .second_start = j->embed ? embed_second_start(c, j) : 0,
                       .sampling = &j->sampling};
  tri_status st = tri_job_check_fit(&l, &r, err);
  return st == TRI_OK && !j->embed ? check_max_tokens(&l, j, err) : st;
}

/* An upper bound from counts, without packing: what is not listed here fits into NAMES_AND_NUMBERS. */
size_t admission_message_bytes(const job *j) {
  enum { NAMES_AND_NUMBERS = 16 << 10, BIAS = 16 };
  const tri_sampling *s = &j->sampling;
  size_t bytes = NAMES_AND_NUMBERS + j->salt_len + (size_t)s->num_logit_bias * BIAS;
  bytes += (j->num_prompt + s->num_allowed_token_ids) * sizeof(uint32_t) + tri_wire_constraint_bytes(&s->constraint);
  for (int i = 0; i < s->num_stop; i++) bytes += s->stop[i].len;
  return j->external_id ? bytes + strlen(j->external_id) : bytes;
}

/* A job is one message to its replica, and one in the journal. Of a restored one both have been looked at. */
tri_status admission_check_size(const tri_core *c, const job *j, tri_error *err) {
  const char *field = admission_prompt_field(j);
  size_t bytes = admission_message_bytes(j);
  if (c->restoring) return TRI_OK;
  if (j->num_prompt > (uint64_t)c->cfg.max_prompt)
    return tri_fail(err, TRI_NO_CAPACITY, field, "the %s has %llu tokens, the limit max_model_len is %lld", field,
                    (unsigned long long)j->num_prompt, (long long)c->cfg.max_prompt);
  if (bytes <= TRI_WIRE_MAX_MESSAGE) return TRI_OK;
  return tri_fail(err, TRI_NO_CAPACITY, field,
                  "the %s has %llu tokens, which with the request's other lists make a message of %zu bytes; the limit "
                  "is %d",
                  field, (unsigned long long)j->num_prompt, bytes, TRI_WIRE_MAX_MESSAGE);
}

const char *admission_prompt_field(const job *j) { return j->embed ? "text" : "prompt"; }

tri_status admission_refuse_text(tri_core *c, const job *j, tri_status st, tri_error *err) {
  const char *field = admission_prompt_field(j);
  long long most = c->cfg.max_prompt;
  if (st == TRI_AGAIN) c->totals.refused[REFUSED_TOKENIZER]++;
  if (st == TRI_AGAIN) return tri_fail(err, TRI_NO_CAPACITY, "", "too many prompts wait for the tokenizer");
  if (st == TRI_NO_CAPACITY)
    return tri_fail(err, st, field,
                    "the %s is too much work for a pattern of tokenizer.json: it looks far ahead from every place of a "
                    "long run, of digits perhaps; a shorter run is fine",
                    field);
  if (st != TRI_TOO_LARGE)
    return tri_fail(err, st, field, "the %s cannot be tokenized: %s", field, tri_status_text(st));
  if (j->sampling.truncate)
    return tri_fail(err, TRI_OUT_OF_RANGE, "truncate", "truncate leaves no room for the special tokens around the %s",
                    field);
  if (j->embed)
    return tri_fail(err, TRI_NO_CAPACITY, field,
                    "the text has more than %lld tokens, the limit of max_model_len: truncate leaves out its end",
                    most);
  if (c->cfg.model->seq2seq.on)
    return tri_fail(err, TRI_NO_CAPACITY, field, "the source has more than %lld tokens, the limit of max_model_len",
                    most);
  return tri_fail(err, TRI_NO_CAPACITY, field,
                  "the prompt has more than %lld tokens; prompt and answer share max_model_len", most);
}

bool admission_is_invalid(const tri_error *err) {
  bool cannot_fit = err->status == TRI_NO_CAPACITY && err->field[0]; /* a full queue names no field */
  return cannot_fit || tri_status_is_refusal(err->status);
}

bool admission_is_turned_away(const tri_error *err) { return err->status == TRI_NO_CAPACITY && !err->field[0]; }

const char *admission_reason(tri_status st) {
  return st == TRI_NO_CAPACITY ? "context_length_exceeded" : tri_status_code(st);
}

uint64_t admission_invalid(const tri_core *c) {
  uint64_t sum = 0;
  for (int i = 0; i < TRI_STATUS_COUNT; i++) sum += c->totals.invalid[i];
  return sum;
}

/* Every refusal counts in one total: failed, invalid by its status, or turned away. */
void admission_count(tri_core *c, const tri_error *err) {
  uint64_t *count = &c->totals.failed;
  if (admission_is_invalid(err)) count = &c->totals.invalid[err->status];
  if (admission_is_turned_away(err)) count = &c->totals.turned_away;
  ++*count;
}
