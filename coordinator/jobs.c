/* A job's life: submitted, encoded, queued, assigned to a group, ended, forgotten. */
#include <stdio.h>
#include <string.h>

#include "coordinator/state.h"
#include "runtime/base/hash.h"

static uint64_t mix(uint64_t x) { return tri_mix64(x + TRI_SPLITMIX_STEP); }

static job **id_bucket(tri_core *c, uint64_t id) { return &c->by_id[id % NUM_BUCKETS]; }

static job **request_bucket(tri_core *c, const tri_request_id *r) {
  uint64_t h;
  memcpy(&h, r->bytes, sizeof h);
  return &c->by_request[mix(h) % NUM_BUCKETS];
}

job *job_find(const tri_core *c, uint64_t id) {
  job *j = c->by_id[id % NUM_BUCKETS];
  while (j && j->id != id) j = j->id_chain;
  return j;
}

static job *find_request(tri_core *c, const tri_request_id *r) {
  job *j = *request_bucket(c, r);
  while (j && memcmp(j->request_id.bytes, r->bytes, sizeof r->bytes)) j = j->request_chain;
  return j;
}

static bool same_peer(const tri_zpeer *a, const tri_zpeer *b) {
  return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}

static void free_job(job *j) {
  for (int64_t i = 0; i < j->sampling.n; i++) choice_free(&j->choices[i]);
  tri_free(j->stop_text), tri_free(j->bias), tri_free(j->prompt), tri_free(j->prompt_ids), tri_free(j->error);
  encode_free(j->encode);
  tri_free(j);
}

static void list_append(job_list *l, job *j) {
  j->next = NULL;
  j->prev = l->tail;
  *(l->tail ? &l->tail->next : &l->head) = j;
  l->tail = j;
}

static void list_remove(job_list *l, job *j) {
  *(j->prev ? &j->prev->next : &l->head) = j->next;
  *(j->next ? &j->next->prev : &l->tail) = j->prev;
}

void job_forget(tri_core *c, job *j) {
  job **p = id_bucket(c, j->id);
  while (*p != j) p = &(*p)->id_chain;
  *p = j->id_chain;
  p = request_bucket(c, &j->request_id);
  while (*p != j) p = &(*p)->request_chain;
  *p = j->request_chain;
  list_remove(j->state == JOB_ENDED ? &c->ended : &c->active, j);
  if (j->dirty) {
    for (p = &c->dirty; *p != j; p = &(*p)->dirty_next) {
    }
    *p = j->dirty_next;
  }
  if (j->state == JOB_ENDED)
    c->num_retained--;
  else
    c->num_active--;
  encode_release(c, j);
  free_job(j);
}

static void enlist(tri_core *c, job *j) {
  job **p = id_bucket(c, j->id);
  j->id_chain = *p;
  *p = j;
  p = request_bucket(c, &j->request_id);
  j->request_chain = *p;
  *p = j;
  list_append(&c->active, j);
  c->num_active++;
}

/* Takes stop strings and biases out of the message's memory. */
static bool own_lists(job *j) {
  size_t total = 0, biases = (size_t)j->sampling.num_logit_bias;
  if (biases) {
    if (!(j->bias = tri_malloc(biases, sizeof *j->bias))) return false;
    memcpy(j->bias, j->sampling.logit_bias, biases * sizeof *j->bias);
    j->sampling.logit_bias = j->bias;
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

static tri_status check_generates(const tri_core *c, tri_error *err) {
  const tri_model_config *m = c->cfg.model;
  if (!m->encoder) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "op", "the model served here is an encoder: it does not generate text, it %s",
                  m->head.has_classifier ? "classifies" : "embeds");
}

static tri_status check_submit(tri_core *c, const tri_submit *s, tri_error *err) {
  if (c->draining) return tri_fail(err, TRI_DRAINING, "", "the cluster is shutting down and takes no new jobs");
  if (c->num_active >= c->cfg.max_queue)
    return tri_fail(err, TRI_NO_CAPACITY, "", "%lld jobs are waiting or running, the limit is max_queue %lld",
                    (long long)c->num_active, (long long)c->cfg.max_queue);
  if (s->model.s && (s->model.len != strlen(c->cfg.model_name) || memcmp(s->model.s, c->cfg.model_name, s->model.len)))
    return tri_fail(err, TRI_NOT_FOUND, "model", "no model \"%.*s\" here, only \"%s\"",
                    (int)(s->model.len < 100 ? s->model.len : 100), s->model.s, c->cfg.model_name);
  if (s->prompt.s && !c->cfg.tokenizer)
    return tri_fail(err, TRI_UNSUPPORTED, "prompt", "this model has no tokenizer.json: send token_ids");
  if (s->sampling.num_stop && !c->cfg.tokenizer)
    return tri_fail(err, TRI_UNSUPPORTED, "stop", "stop strings need a tokenizer, and this model has none");
  if (s->sampling.min_tokens > s->sampling.max_tokens && s->sampling.max_tokens >= 0)
    return tri_fail(err, TRI_OUT_OF_RANGE, "min_tokens", "min_tokens %lld exceeds max_tokens %lld",
                    (long long)s->sampling.min_tokens, (long long)s->sampling.max_tokens);
  return TRI_OK;
}

/* encode: NULL for a job that generates text. */
static job *make_job(tri_core *c, int64_t now, const tri_zpeer *from, const tri_client_msg *m, const tri_submit *s,
                     const tri_encode *encode) {
  size_t size = sizeof(job) + (size_t)s->sampling.n * sizeof(job_choice); /* n is at most TRI_WIRE_MAX_N */
  job *j = tri_calloc(1, size);
  if (!j) return NULL;
  j->id = ++c->next_id;
  j->request_id = s->request_id;
  if (!s->has_request_id) {
    uint64_t r[2] = {mix(c->cfg.seed ^ j->id), mix(mix(c->cfg.seed) + j->id)};
    memcpy(j->request_id.bytes, r, sizeof r);
  }
  j->peer = *from;
  j->client_id = m->id;
  j->attached = true;
  j->stream = s->stream;
  j->on_disconnect = s->on_disconnect;
  j->sampling = s->sampling;
  j->echo = s->sampling.echo;
  if (!encode) defaults_apply(c->cfg.model, &j->sampling);
  /* Fixed here, before any group sees the job: whoever runs it, or runs it again, draws the same. */
  j->seed = s->sampling.has_seed ? s->sampling.seed : mix(c->cfg.seed + 0x51ed2701 * j->id);
  j->submitted_ns = now;
  j->deadline_ns = s->sampling.deadline_ms ? now + s->sampling.deadline_ms * 1000000 : TRI_NEVER;
  j->num_open = (uint32_t)s->sampling.n;
  bool ok = own_lists(j) && (!encode || encode_begin(c, j, m->op, encode));
  for (int64_t i = 0; ok && !encode && c->cfg.tokenizer && i < s->sampling.n; i++)
    ok = tri_detokenizer_create(c->cfg.tokenizer, true, &j->choices[i].detok) == TRI_OK;
  if (ok && j->echo && s->prompt.s) {
    ok = (j->prompt = tri_strndup(s->prompt.s, s->prompt.len)) != NULL;
    j->prompt_len = s->prompt.len;
  }
  if (ok) return j;
  free_job(j);
  return NULL;
}

/* Asked for again under the same request_id: the answer is the job that exists. */
static void adopt(tri_core *c, job *j, const tri_zpeer *from, uint64_t client_id, uint64_t offset) {
  j->peer = *from;
  j->client_id = client_id;
  j->attached = true;
  j->done_sent = false;
  j->accepted_sent = false;
  j->known = true;
  j->echo_sent = 0;
  j->echo_at = 0;
  for (int64_t i = 0; i < j->sampling.n; i++) {
    job_choice *ch = &j->choices[i];
    ch->sent = offset < ch->num ? offset : ch->num;
    ch->sent_text = ch->sent ? ch->safe_after[ch->sent - 1] : 0;
  }
  deliver_mark(c, j);
}

/* An embed or classify has the life of a submit with little to say. */
static void submit_of(const tri_encode *e, tri_submit *s) {
  tri_submit_init(s);
  s->model = e->model;
  s->prompt = e->text;
  s->token_ids = e->token_ids;
  s->num_token_ids = e->num_token_ids;
  s->sampling.priority = e->priority;
  s->sampling.deadline_ms = e->deadline_ms;
}

void job_submit(tri_core *c, int64_t now, const tri_zpeer *from, const tri_client_msg *m) {
  const tri_encode *encode = m->op == TRI_OP_SUBMIT ? NULL : &m->encode;
  tri_submit of_encode;
  const tri_submit *s = encode ? &of_encode : &m->submit;
  tri_error err = {0};
  if (encode) submit_of(encode, &of_encode);
  job *j = s->has_request_id ? find_request(c, &s->request_id) : NULL;
  if (j) {
    adopt(c, j, from, m->id, 0);
    return;
  }
  tri_status st = encode ? encode_check(c, m->op, encode, &err) : check_generates(c, &err);
  if (st == TRI_OK) st = check_submit(c, s, &err);
  if (st == TRI_OK && !(j = make_job(c, now, from, m, s, encode)))
    st = tri_fail(&err, TRI_NO_MEMORY, "", "no memory for the job");
  if (st == TRI_OK && (st = tri_sampling_check_beams(&j->sampling, &err)) != TRI_OK) free_job(j);
  if (st != TRI_OK) {
    c->failed++;
    deliver_error(c, from, m->id, &err);
    return;
  }
  enlist(c, j);
  const uint32_t *ids = s->token_ids;
  size_t count = s->num_token_ids;
  if (s->prompt.s) {
    j->state = JOB_ENCODING;
    ids = NULL;
    tri_wire_str pair = encode ? encode->text_pair : (tri_wire_str){0};
    size_t second = 0;
    st = c->cfg.io.encode(c->cfg.io.ctx, j->id, s->prompt, pair, &ids, &count, &second);
    if (encode) j->encode->second_start = second;
  }
  if (st != TRI_OK || ids || !s->prompt.s) job_encoded(c, now, j, st, ids, count);
}

void job_attach(tri_core *c, int64_t now, const tri_zpeer *from, const tri_client_msg *m) {
  tri_error err = {0};
  job *j = find_request(c, &m->attach.request_id);
  (void)now;
  if (j && m->attach.offset && j->sampling.n > 1) {
    tri_fail(&err, TRI_INVALID_ARGUMENT, "offset",
             "the job has %lld choices, and an offset is that of one: attach from 0 for all", (long long)j->sampling.n);
    deliver_error(c, from, m->id, &err);
    return;
  }
  if (j) {
    adopt(c, j, from, m->id, m->attach.offset);
    return;
  }
  tri_fail(&err, TRI_NOT_FOUND, "request_id",
           "no such job: it was never submitted here, or it ended more than %lld s ago", RETAIN_NS / 1000000000);
  deliver_error(c, from, m->id, &err);
}

static job *find_target(const tri_core *c, const tri_zpeer *from, uint64_t target) {
  const job_list *lists[] = {&c->active, &c->ended};
  for (int i = 0; i < 2; i++)
    for (job *j = lists[i]->head; j; j = j->next)
      if (j->client_id == target && same_peer(&j->peer, from)) return j;
  return NULL;
}

void job_cancel(tri_core *c, int64_t now, const tri_zpeer *from, const tri_client_msg *m) {
  tri_error err = {0};
  job *j = NULL;
  if (m->cancel.has_request_id)
    j = find_request(c, &m->cancel.request_id);
  else
    j = find_target(c, from, m->cancel.target);
  if (!j) {
    tri_fail(&err, TRI_NOT_FOUND, "request_id", "no such job");
    deliver_error(c, from, m->id, &err);
    return;
  }
  job_abort(c, now, j);
  /* The canceller gets an answer under its own id; the job's own stream ends with `done`. */
  tri_server_msg reply = {.op = TRI_REPLY_ACCEPTED,
                          .id = m->id,
                          .accepted = {.request_id = j->request_id, .prompt_tokens = j->num_prompt, .existing = true}};
  c->cfg.io.to_client(c->cfg.io.ctx, from, &reply);
}

/* What was asked for must fit behind the prompt, or behind what begins an encoder-decoder's answer. What was not is cut
 * by the group. */
static tri_status check_max_tokens(const tri_core *c, const job *j, const group *g, tri_error *err) {
  const tri_sampling *s = &j->sampling;
  const tri_seq2seq *source = &c->cfg.model->seq2seq;
  uint64_t before = source->on ? 1 + (source->forced_bos_token_id >= 0) : j->num_prompt;
  if (!s->has_max_tokens || s->max_tokens < 0 || before + (uint64_t)s->max_tokens <= g->max_model_len) return TRI_OK;
  return tri_fail(err, TRI_NO_CAPACITY, "max_tokens",
                  "max_tokens is %lld, and %s %llu tokens; both together have at most max_model_len %llu",
                  (long long)s->max_tokens, source->on ? "what begins an answer has" : "the prompt has",
                  (unsigned long long)before, (unsigned long long)g->max_model_len);
}

static tri_status check_fit(const tri_core *c, const job *j, const group *g, tri_error *err) {
  if (j->encode) return encode_check_fit(j, g, err);
  if (c->cfg.model->seq2seq.on && j->num_prompt > g->max_model_len)
    return tri_fail(err, TRI_NO_CAPACITY, "prompt", "the source has %zu tokens, the limit is max_model_len %llu",
                    j->num_prompt, (unsigned long long)g->max_model_len);
  if (!c->cfg.model->seq2seq.on && j->num_prompt >= g->max_model_len)
    return tri_fail(err, TRI_NO_CAPACITY, "prompt",
                    "the prompt has %zu tokens; max_model_len is %llu, and an answer needs room for one at least",
                    j->num_prompt, (unsigned long long)g->max_model_len);
  if ((uint64_t)j->sampling.n > g->max_num_seqs)
    return tri_fail(err, TRI_NO_CAPACITY, "n", "n is %lld, the limit is max_num_seqs %llu", (long long)j->sampling.n,
                    (unsigned long long)g->max_num_seqs);
  if ((uint64_t)j->sampling.num_beams > g->max_num_seqs)
    return tri_fail(err, TRI_NO_CAPACITY, "num_beams", "num_beams is %lld, the limit is max_num_seqs %llu",
                    (long long)j->sampling.num_beams, (unsigned long long)g->max_num_seqs);
  if (j->num_prompt >= g->kv_pages * g->block_size)
    return tri_fail(err, TRI_NO_CAPACITY, "prompt", "the prompt has %zu tokens, the KV cache holds %llu", j->num_prompt,
                    (unsigned long long)(g->kv_pages * g->block_size));
  return check_max_tokens(c, j, g, err);
}

/* The field that the prompt came in, for messages. */
static const char *prompt_field(const job *j) { return j->encode ? "text" : "prompt"; }

/* Every id that the request names is a token's. */
static tri_status check_vocabulary(const tri_core *c, const job *j, const uint32_t *ids, size_t count, tri_error *err) {
  const tri_sampling *s = &j->sampling;
  uint64_t vocab = (uint64_t)c->cfg.model->vocab_size;
  for (size_t i = 0; i < count; i++)
    if (ids[i] >= vocab)
      return tri_fail(err, TRI_OUT_OF_RANGE, "token_ids", "token_ids[%zu] is %u, the vocabulary has %llu tokens", i,
                      ids[i], (unsigned long long)vocab);
  for (int i = 0; i < s->num_logit_bias; i++)
    if (s->logit_bias[i].id >= vocab)
      return tri_fail(err, TRI_OUT_OF_RANGE, "logit_bias", "logit_bias names token %u, the vocabulary has %llu tokens",
                      s->logit_bias[i].id, (unsigned long long)vocab);
  for (int i = 0; i < s->num_stop_token_ids; i++)
    if (s->stop_token_ids[i] >= vocab)
      return tri_fail(err, TRI_OUT_OF_RANGE, "stop_token_ids",
                      "stop_token_ids names token %u, the vocabulary has %llu tokens", s->stop_token_ids[i],
                      (unsigned long long)vocab);
  return TRI_OK;
}

static void take_prompt(tri_core *c, int64_t now, job *j, const uint32_t *ids, size_t count) {
  tri_error err = {0};
  if (!count) tri_fail(&err, TRI_INVALID_ARGUMENT, prompt_field(j), "the %s has no tokens", prompt_field(j));
  if (err.status == TRI_OK) check_vocabulary(c, j, ids, count, &err);
  if (err.status == TRI_OK && !(j->prompt_ids = tri_malloc(count, sizeof *ids)))
    tri_fail(&err, TRI_NO_MEMORY, prompt_field(j), "no memory for the %s", prompt_field(j));
  uint32_t index;
  group *g = member_pick(c, &index);
  j->num_prompt = count;
  if (err.status == TRI_OK && g) check_fit(c, j, g, &err);
  if (err.status == TRI_OK) memcpy(j->prompt_ids, ids, count * sizeof *ids);
  if (err.status == TRI_OK && j->encode) encode_reserve(c, j, ids, count, &err);
  if (err.status == TRI_OK && j->echo && !j->prompt && prompt_echo(c, j) != TRI_OK)
    tri_fail(&err, TRI_NO_MEMORY, "echo", "no memory for the prompt's text");
  if (err.status != TRI_OK) {
    job_fail(c, now, j, &err);
    return;
  }
  c->prompt_tokens += count;
  j->state = JOB_QUEUED;
  c->num_queued++;
  deliver_mark(c, j);
  job_dispatch(c, now);
}

void job_encoded(tri_core *c, int64_t now, job *j, tri_status st, const uint32_t *ids, size_t count) {
  tri_error err = {0};
  if (st == TRI_OK) {
    take_prompt(c, now, j, ids, count);
    return;
  }
  const char *field = prompt_field(j);
  if (st == TRI_AGAIN)
    tri_fail(&err, TRI_NO_CAPACITY, field, "too many prompts wait for the tokenizer");
  else if (st == TRI_TOO_LARGE && j->encode)
    tri_fail(&err, TRI_NO_CAPACITY, field, "the text has more than %lld tokens, the limit of max_model_len",
             (long long)c->cfg.max_prompt);
  else if (st == TRI_TOO_LARGE && c->cfg.model->seq2seq.on)
    tri_fail(&err, TRI_NO_CAPACITY, field, "the source has more than %lld tokens, the limit of max_model_len",
             (long long)c->cfg.max_prompt);
  else if (st == TRI_TOO_LARGE)
    tri_fail(&err, TRI_NO_CAPACITY, field,
             "the prompt has more than %lld tokens; prompt and answer share max_model_len",
             (long long)c->cfg.max_prompt);
  else
    tri_fail(&err, st, field, "the %s cannot be encoded: %s", field, tri_status_text(st));
  job_fail(c, now, j, &err);
}

static bool assign(tri_core *c, int64_t now, job *j, group *g, uint32_t index) {
  tri_group_msg m = {.op = TRI_GROUP_ASSIGN,
                     .assign = {.job = j->id,
                                .epoch = g->epoch,
                                .seed = j->seed,
                                .remaining_ms = j->deadline_ns == TRI_NEVER ? -1 : (j->deadline_ns - now) / 1000000,
                                .token_ids = j->prompt_ids,
                                .num_token_ids = j->num_prompt,
                                .second_start = j->encode ? encode_second_start(c, j) : 0,
                                .sampling = j->sampling}};
  m.assign.sampling.num_stop = 0;
  /* A leader whose queue is full, or that is just going, leaves the job where it is: the next tick tries again, and a
   * group that does not come back is soon lost. */
  if (c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[0].peer, &m) != TRI_OK) return false;
  j->state = JOB_ASSIGNED;
  c->num_queued--;
  j->group = index;
  j->epoch = g->epoch;
  j->assigned_ns = now;
  g->jobs++;
  return true;
}

static void expire(tri_core *c, int64_t now, job *j) {
  j->timed_out = true;
  job_abort(c, now, j);
}

void job_dispatch(tri_core *c, int64_t now) {
  /* The queued ones are the newest: walk back to the first of them. */
  job *j = c->active.tail;
  for (int64_t left = c->num_queued; j && left > 0 && (left -= j->state == JOB_QUEUED) > 0;) j = j->prev;
  for (job *next; c->num_queued && j; j = next) {
    uint32_t index;
    tri_error err = {0};
    next = j->next;
    if (j->state != JOB_QUEUED) continue;
    group *g = member_pick(c, &index);
    if (!g) return;
    if (now >= j->deadline_ns)
      expire(c, now, j);
    else if (check_fit(c, j, g, &err) != TRI_OK)
      job_fail(c, now, j, &err);
    else if (!assign(c, now, j, g, index))
      return;
  }
}

static void end_job(tri_core *c, int64_t now, job *j) {
  if (j->state == JOB_ENDED) return;
  if (j->state == JOB_ASSIGNED && c->groups[j->group].jobs) c->groups[j->group].jobs--;
  if (j->state == JOB_QUEUED) c->num_queued--;
  list_remove(&c->active, j);
  list_append(&c->ended, j);
  if (!j->encode) { /* whose answer names its tokens */
    tri_free(j->prompt_ids);
    j->prompt_ids = NULL;
  }
  tri_free(j->bias);
  j->bias = NULL;
  j->sampling.num_logit_bias = 0;
  j->state = JOB_ENDED;
  j->ended_ns = now;
  c->num_active--;
  c->num_retained++;
  deliver_mark(c, j);
}

void job_fail(tri_core *c, int64_t now, job *j, const tri_error *err) {
  if (j->state == JOB_ENDED) return;
  for (int64_t i = 0; i < j->sampling.n; i++) choice_end(j, &j->choices[i], TRI_FINISH_ERROR);
  if ((j->error = tri_malloc(1, sizeof *err))) *j->error = *err; /* without memory the reason stays unsaid */
  c->failed++;
  end_job(c, now, j);
}

static bool is_code(const char *name, const tri_wire_str *code) {
  for (size_t i = 0; i < code->len; i++)
    if (name[i] != (code->s[i] >= 'a' && code->s[i] <= 'z' ? code->s[i] - 32 : code->s[i])) return false;
  return !name[code->len];
}

void job_refused(tri_core *c, int64_t now, uint32_t index, const tri_group_msg *m) {
  job *j = job_find(c, m->refused.job);
  const tri_wire_str *why = &m->refused.message, *field = &m->refused.field;
  tri_error err = {0};
  tri_status st = TRI_INTERNAL;
  char name[TRI_ERROR_FIELD];
  if (!j || j->state != JOB_ASSIGNED || j->group != index || j->epoch != m->refused.epoch) return;
  for (int i = TRI_OK + 1; i < TRI_STATUS_COUNT; i++)
    if (is_code(tri_status_name((tri_status)i), &m->refused.code)) st = (tri_status)i;
  snprintf(name, sizeof name, "%.*s", (int)(field->len < sizeof name ? field->len : 0), field->s ? field->s : "");
  tri_fail(&err, st, name, "%.*s", (int)(why->len < TRI_ERROR_MESSAGE ? why->len : 0), why->s ? why->s : "");
  job_fail(c, now, j, &err);
}

void job_finish(tri_core *c, int64_t now, job *j) {
  if (j->state == JOB_ENDED) return;
  tri_finish worst = j->choices[0].reason;
  *(worst == TRI_FINISH_STOP ? &c->done_stop : worst == TRI_FINISH_LENGTH ? &c->done_length : &c->done_abort) += 1;
  tri_histogram_add(&c->e2e, (double)(now - j->submitted_ns) / 1e9);
  end_job(c, now, j);
}

/* Its group need not compute it any further. */
static void tell_abort(tri_core *c, const job *j) {
  const group *g = &c->groups[j->group];
  tri_group_msg m = {.op = TRI_GROUP_ABORT, .abort = {.job = j->id}};
  if (j->state == JOB_ASSIGNED && g->epoch == j->epoch && g->world)
    c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[0].peer, &m);
}

void job_cut(tri_core *c, int64_t now, job *j, const tri_error *err) {
  if (j->state == JOB_ENDED) return;
  tell_abort(c, j);
  job_fail(c, now, j, err);
}

void job_abort(tri_core *c, int64_t now, job *j) {
  if (j->state == JOB_ENDED) return;
  tell_abort(c, j);
  for (int64_t i = 0; i < j->sampling.n; i++) choice_end(j, &j->choices[i], TRI_FINISH_ABORT);
  job_finish(c, now, j);
}

static void note_times(tri_core *c, int64_t now, job *j) {
  if (!j->first_token_ns) {
    j->first_token_ns = now;
    tri_histogram_add(&c->ttft, (double)(now - j->submitted_ns) / 1e9);
    tri_histogram_add(&c->queue_time, (double)(j->assigned_ns - j->submitted_ns) / 1e9);
  } else {
    tri_histogram_add(&c->itl, (double)(now - j->last_token_ns) / 1e9);
  }
  j->last_token_ns = now;
}

void job_tokens(tri_core *c, int64_t now, uint32_t index, const tri_group_tokens *tokens) {
  job *j = NULL;
  uint64_t drawn = 0;
  for (uint32_t i = 0; i < tokens->num; i++) {
    const tri_group_token *t = &tokens->tokens[i];
    if (!j || j->id != t->job) j = job_find(c, t->job);
    /* What an earlier life of the group still says, or what comes after a cancellation, has no owner any more. */
    if (!j || j->state != JOB_ASSIGNED || j->group != index || j->epoch != tokens->epoch ||
        t->choice >= (uint32_t)j->sampling.n)
      continue;
    job_choice *ch = &j->choices[t->choice];
    if (ch->ended) continue;
    bool none = t->flags & TRI_TOKEN_NONE;
    if (j->encode && !none) continue; /* there are no tokens to draw */
    /* What is cancelled has ended here already: a leader that ends one by itself does so at its deadline. */
    if (none && t->reason == TRI_FINISH_ABORT) j->timed_out = true;
    if (none)
      choice_end(j, ch, t->reason);
    else if (t->offset != ch->num || choice_push(c, j, ch, t) != TRI_OK) {
      tri_error err = {0};
      tri_fail(&err, TRI_INTERNAL, "", "token %llu came where %zu was expected, or memory is out",
               (unsigned long long)t->offset, ch->num);
      job_cut(c, now, j, &err);
      continue;
    } else {
      drawn++;
      note_times(c, now, j);
    }
    deliver_mark(c, j);
    if (j->num_open) continue;
    /* A stop string ends a choice here before its group knows. */
    if (j->cut) tell_abort(c, j);
    job_finish(c, now, j);
  }
  if (drawn) tri_histogram_add(&c->step_tokens, (double)drawn);
}

void jobs_tick(tri_core *c, int64_t now) {
  for (job *j = c->active.head, *next; j && c->num_queued; j = next) {
    next = j->next;
    /* Assigned jobs are ended by their leader, which knows what is under way. */
    if (j->state == JOB_QUEUED && now >= j->deadline_ns) expire(c, now, j);
  }
  for (job *j = c->ended.head, *next; j; j = next) {
    next = j->next;
    /* A client that reads nothing gets as long as one that may come back. */
    bool expired = now - j->ended_ns > RETAIN_NS, crowded = c->num_retained > MAX_RETAINED;
    if (!expired && !crowded) break;
    if (expired || !j->dirty) job_forget(c, j);
  }
  job_dispatch(c, now);
}

void jobs_destroy(tri_core *c) {
  while (c->active.head) job_forget(c, c->active.head);
  while (c->ended.head) job_forget(c, c->ended.head);
}
