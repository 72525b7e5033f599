/* SPDX-License-Identifier: Apache-2.0 */
/* The response cache as jobs see it: which of them it may answer, what an answer belongs to, and the two ways of an
 * answer, from a job that has ended into the cache and from there into a job that is queued. Texts, token ids, log
 * probabilities and numbers are kept as the job has them, so that they are sent as those of any other job. */
#include <string.h>

#include "coordinator/jobs/jobs_impl.h"

tri_status answers_open(tri_core *c) {
  tri_response_cache_config config = {.max_bytes = c->cfg.response_cache};
  if (!config.max_bytes) return TRI_OK;
  c->jobs->cache_answer.max = TRI_RESPONSE_CACHE_MOST_ANSWER;
  TRI_CHECK(c->cfg.io.random(c->cfg.io.ctx, &config.secret, sizeof config.secret));
  return tri_response_cache_create(&config, &c->jobs->cache);
}

void answers_close(tri_core *c) {
  tri_response_cache_destroy(c->jobs->cache);
  tri_buf_free(&c->jobs->cache_key);
  tri_buf_free(&c->jobs->cache_answer);
}

bool jobs_cache_figures(const tri_core *c, tri_response_cache_figures *out) {
  if (c->jobs->cache) *out = tri_response_cache_figures_of(c->jobs->cache);
  return c->jobs->cache != NULL;
}

/* ---- keys ---- */

static bool is_sampled(const job *j) { return !j->embed && j->sampling.num_beams < 2 && j->sampling.temperature > 0; }

/* A job whose answer is that of the next one like it, and whose answer is all of it. A seed that is sampled differs
 * each time. */
static bool is_repeatable(const job *j) {
  return j->use_cache && (!is_sampled(j) || j->sampling.has_seed) && j->sampling.prompt_logprobs < 0;
}

/* The part of a key in addition to the job as its replica gets it. The lengths say how the bytes after it are divided.
 */
typedef struct key_tail {
  uint64_t model, weights, tokenizer;
  uint64_t max_model_len, kv_tokens; /* of the replica: a default of max_tokens is cut by them */
  uint64_t op, normalize, activation, pooling;
  uint64_t salt_len, num_stop, stop_len[TRI_WIRE_MAX_STOP];
} key_tail;

static uint64_t op_of(const job *j) {
  if (!j->embed) return TRI_OP_SUBMIT;
  return j->embed->classify ? TRI_OP_CLASSIFY : TRI_OP_EMBED;
}

#define GIVEN(s, type, name, option, least, most, def, absent, sampler, help) GIVEN_##absent(s, name)
#define GIVEN_FIXED(s, name)
#define GIVEN_OPEN(s, name) (s)->has_##name = true;
#define GIVEN_MODEL(s, name) GIVEN_OPEN(s, name)

/* Takes out of a copy what does not change the answer, and who said what does: all of it is written. */
static void plain_sampling(tri_sampling *s) {
  TRI_SAMPLING_NUMBERS(GIVEN, s)
  s->has_early_stopping = true;
  s->priority = s->deadline_ms = s->truncate = 0;
  s->num_stop = 0; /* in the tail */
}

static tri_status append_tail(tri_core *c, const job *j, const replica_facts *g) {
  const tri_sampling *s = &j->sampling;
  key_tail tail = {.model = c->cfg.model_hash,
                   .weights = g->weights_hash,
                   .tokenizer = c->cfg.tokenizer ? tri_tokenizer_hash(c->cfg.tokenizer) : 0,
                   .max_model_len = g->max_model_len,
                   .kv_tokens = g->kv_blocks * g->block_size,
                   .op = op_of(j),
                   .normalize = j->embed && j->embed->normalize,
                   .activation = j->embed ? (uint64_t)j->embed->activation : 0,
                   .pooling = (uint64_t)c->cfg.model->head.pooling,
                   .salt_len = j->salt_len,
                   .num_stop = (uint64_t)s->num_stop};
  for (int i = 0; i < s->num_stop; i++) tail.stop_len[i] = s->stop[i].len;
  TRI_CHECK(tri_buf_append(&c->jobs->cache_key, &tail, sizeof tail));
  TRI_CHECK(tri_buf_append(&c->jobs->cache_key, j->salt, j->salt_len));
  for (int i = 0; i < s->num_stop; i++) TRI_CHECK(tri_buf_append(&c->jobs->cache_key, s->stop[i].s, s->stop[i].len));
  return TRI_OK;
}

/* Fills cache_key: the job as a replica gets it, so that no number of a request can be forgotten here, and the tail. */
static tri_status make_key(tri_core *c, const job *j, const replica_facts *g) {
  tri_replica_msg m = {.op = TRI_REPLICA_ASSIGN,
                       .assign = {.seed = is_sampled(j) ? j->seed : 0,
                                  .token_ids = j->prompt_ids,
                                  .num_token_ids = j->num_prompt,
                                  .second_start = j->embed ? embed_second_start(c, j) : 0,
                                  .sampling = j->sampling}};
  plain_sampling(&m.assign.sampling);
  TRI_CHECK(tri_replica_msg_pack(&m, &c->jobs->cache_key));
  return append_tail(c, j, g);
}

/* ---- into the cache ---- */

/* A choice in an answer. After it are its ids, safe_after, and text; with logprobs, before the text, those of the
 * tokens, how many alternatives each has, and the ids and the logprobs of all alternatives. */
typedef struct kept_choice {
  uint64_t num, text_len;
  tri_finish reason;
  int32_t stop_string;
  bool stopped_by_id;
} kept_choice;

/* A token's alternatives alone are kept, not all of the places that the job has for them. */
static tri_status keep_logprobs(tri_buf *b, const job_choice *ch) {
  enum { TOP = TRI_WIRE_MAX_LOGPROBS };
  for (size_t i = 0; i < ch->num; i++) {
    const float *own = ch->logprobs + i * (1 + TOP);
    TRI_CHECK(tri_buf_append(b, &ch->num_top[i], sizeof *ch->num_top));
    TRI_CHECK(tri_buf_append(b, own, (1 + (size_t)ch->num_top[i]) * sizeof *own));
    TRI_CHECK(tri_buf_append(b, ch->top_ids + i * TOP, ch->num_top[i] * sizeof *ch->top_ids));
  }
  return TRI_OK;
}

/* The struct is cleared first, so that its padding takes no bytes of the stack into the cache. */
static tri_status keep_choice(tri_buf *b, const job *j, const job_choice *ch) {
  kept_choice k;
  memset(&k, 0, sizeof k);
  k.num = ch->num;
  k.text_len = ch->text_len;
  k.reason = ch->reason;
  k.stop_string = ch->stop_string;
  k.stopped_by_id = ch->stopped_by_id;
  TRI_CHECK(tri_buf_append(b, &k, sizeof k));
  TRI_CHECK(tri_buf_append(b, ch->ids, ch->num * sizeof *ch->ids));
  TRI_CHECK(tri_buf_append(b, ch->safe_after, ch->num * sizeof *ch->safe_after));
  if (j->sampling.logprobs >= 0) TRI_CHECK(keep_logprobs(b, ch));
  return tri_buf_append(b, ch->text, ch->text_len);
}

/* Fills cache_answer. TRI_TOO_LARGE: the answer is not one to keep. */
static tri_status make_answer(tri_core *c, const job *j) {
  tri_buf *b = &c->jobs->cache_answer;
  b->len = 0;
  TRI_CHECK(tri_buf_append(b, &j->seed, sizeof j->seed));
  for (int64_t i = 0; i < j->sampling.n; i++) TRI_CHECK(keep_choice(b, j, &j->choices[i]));
  return TRI_OK;
}

static bool is_whole(const job *j) {
  bool whole = !j->error && !j->timed_out && (!j->embed || j->embed->values);
  for (int64_t i = 0; i < j->sampling.n; i++)
    whole &= j->choices[i].reason == TRI_FINISH_STOP || j->choices[i].reason == TRI_FINISH_LENGTH;
  return whole;
}

void answer_keep(tri_core *c, const job *j) {
  if (j->state != JOB_ASSIGNED || !is_repeatable(j) || !is_whole(j)) return;
  if (make_key(c, j, replica_facts_of(c, j->replica)) != TRI_OK) return;
  const job_embed *e = j->embed;
  const tri_buf *key = &c->jobs->cache_key, *b = &c->jobs->cache_answer;
  if (e)
    tri_response_cache_put(c->jobs->cache, key->data, key->len, e->values, e->num_values * sizeof *e->values);
  else if (make_answer(c, j) == TRI_OK)
    tri_response_cache_put(c->jobs->cache, key->data, key->len, b->data, b->len);
}

/* ---- out of it ---- */

/* An answer is what make_answer has written in this process, so that no length in it is checked again. */
static void take(const char **at, void *to, size_t size) {
  if (size) memcpy(to, *at, size);
  *at += size;
}

static bool take_logprobs(const char **at, job_choice *ch) {
  enum { TOP = TRI_WIRE_MAX_LOGPROBS };
  ch->logprobs = tri_malloc(ch->num, (1 + TOP) * sizeof *ch->logprobs);
  ch->top_ids = tri_malloc(ch->num, TOP * sizeof *ch->top_ids);
  ch->num_top = tri_malloc(ch->num, sizeof *ch->num_top);
  if (!ch->logprobs || !ch->top_ids || !ch->num_top) return false;
  for (size_t i = 0; i < ch->num; i++) {
    float *own = ch->logprobs + i * (1 + TOP);
    take(at, &ch->num_top[i], sizeof *ch->num_top);
    take(at, own, (1 + (size_t)ch->num_top[i]) * sizeof *own);
    take(at, ch->top_ids + i * TOP, ch->num_top[i] * sizeof *ch->top_ids);
  }
  return true;
}

static bool take_choice(const char **at, job *j, job_choice *ch) {
  kept_choice k;
  take(at, &k, sizeof k);
  ch->ids = tri_malloc(k.num, sizeof *ch->ids);
  ch->safe_after = tri_malloc(k.num, sizeof *ch->safe_after);
  ch->text = tri_malloc(k.text_len, 1);
  if (!ch->ids || !ch->safe_after || !ch->text) return false;
  ch->num = ch->cap = k.num;
  ch->text_len = ch->text_cap = k.text_len;
  if (k.num) j->first_token_ns = j->begun_ns;
  take(at, ch->ids, k.num * sizeof *ch->ids);
  take(at, ch->safe_after, k.num * sizeof *ch->safe_after);
  if (j->sampling.logprobs >= 0 && !take_logprobs(at, ch)) return false;
  take(at, ch->text, k.text_len);
  ch->stop_string = k.stop_string;
  ch->stopped_by_id = k.stopped_by_id;
  choice_end(j, ch, k.reason);
  return true;
}

/* A job that was given no seed reports the one that has made the answer. */
static bool take_answer(job *j, const char *at) {
  uint64_t seed;
  take(&at, &seed, sizeof seed);
  if (!j->sampling.has_seed) j->seed = seed;
  for (int64_t i = 0; i < j->sampling.n; i++)
    if (!take_choice(&at, j, &j->choices[i])) return false;
  return true;
}

static bool take_values(job *j, const void *values) {
  job_embed *e = j->embed;
  if (!(e->values = tri_malloc(e->num_values, sizeof *e->values))) return false;
  memcpy(e->values, values, e->num_values * sizeof *e->values);
  choice_end(j, &j->choices[0], TRI_FINISH_STOP);
  return true;
}

answer_found answer_find(tri_core *c, int64_t now, job *j) {
  uint32_t index;
  size_t len;
  /* Without a replica it is not known how long an answer may be. */
  if (!is_repeatable(j) || !replica_pick(c, &index)) return ANSWER_NONE;
  const replica_facts *g = replica_facts_of(c, index);
  if (now >= j->deadline_ns || make_key(c, j, g) != TRI_OK) return ANSWER_NONE;
  const void *answer = tri_response_cache_get(c->jobs->cache, c->jobs->cache_key.data, c->jobs->cache_key.len, &len);
  if (!answer) return ANSWER_NONE;
  j->cached = true;
  j->begun_ns = now;
  if (!(j->embed ? take_values(j, answer) : take_answer(j, answer))) return ANSWER_NO_MEMORY;
  record_answered(c, j, g->weights_hash);
  return ANSWER_TAKEN;
}
