/* What is particular to the jobs of an encoder: whether the model can do what is asked, how large the answer will be,
 * and what becomes of the numbers that a group has computed. The life of such a job is that of any other (jobs.c), but
 * it is forgotten with its answer's delivery, and its memory is counted before it is taken. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/state.h"

enum { TEXT_OVERHEAD = 8, ID_BYTES = 12 };
/* All answers that are under way or wait for their clients, together. */
#define MAX_ANSWERS_BYTES ((size_t)256 << 20)

tri_status encode_open(tri_core *c) {
  const tri_labels *l = c->cfg.labels;
  if (!l || !l->count) return TRI_OK;
  c->labels = tri_calloc(l->count, sizeof *c->labels);
  if (!c->labels) return TRI_NO_MEMORY;
  for (size_t i = 0; i < l->count; i++) {
    c->labels[i] = wire_str(l->names[i]);
    c->label_bytes += c->labels[i].len + TEXT_OVERHEAD;
  }
  return TRI_OK;
}

/* ---- admission ---- */

/* Pooling is chosen when the cluster starts: all requests of a step share it. */
static tri_status check_pooling(const tri_core *c, tri_pool_choice wanted, tri_error *err) {
  const tri_model_config *m = c->cfg.model;
  tri_pool_choice has = m->head.has_pooler                 ? TRI_POOL_MODEL
                        : m->head.pooling == TRI_POOL_MEAN ? TRI_POOL_AVERAGE
                                                           : TRI_POOL_CLS;
  if (wanted == TRI_POOL_UNSET || wanted == has || (wanted == TRI_POOL_MODEL && c->cfg.pools_as_model)) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "pooling",
                  "pooling is \"%s\"; here it is \"%s\", which the option --pooling of the server decides",
                  tri_pool_choice_name(wanted), tri_pool_choice_name(c->cfg.pools_as_model ? TRI_POOL_MODEL : has));
}

tri_status encode_check(const tri_core *c, tri_client_op op, const tri_encode *e, tri_error *err) {
  const tri_model_config *m = c->cfg.model;
  if (!m->encoder)
    return tri_fail(err, TRI_UNSUPPORTED, "op",
                    "the model served here generates text: it neither embeds nor classifies");
  if (op == TRI_OP_EMBED && m->head.has_classifier)
    return tri_fail(err, TRI_UNSUPPORTED, "op", "the model served here classifies %s: it does not embed",
                    m->head.token_head ? "tokens" : "texts");
  if (op == TRI_OP_CLASSIFY && !m->head.has_classifier)
    return tri_fail(err, TRI_UNSUPPORTED, "op", "the model served here embeds: it has no classifier");
  if (e->text.s && !c->cfg.tokenizer)
    return tri_fail(err, TRI_UNSUPPORTED, "text", "this model has no tokenizer.json: send token_ids");
  if (e->text_pair.s && !tri_tokenizer_has_pairs(c->cfg.tokenizer))
    return tri_fail(err, TRI_UNSUPPORTED, "text_pair", "this model's tokenizer has no template for a pair of texts");
  return op == TRI_OP_EMBED ? check_pooling(c, e->pooling, err) : TRI_OK;
}

static tri_activation default_activation(const tri_core *c) {
  const tri_labels *l = c->cfg.labels;
  if (c->cfg.model->head.token_head || !l) return TRI_ACTIVATION_SOFTMAX;
  if (l->problem == TRI_PROBLEM_REGRESSION) return TRI_ACTIVATION_NONE;
  /* The softmax of one label would always be 1. */
  return l->problem == TRI_PROBLEM_MULTI || l->count == 1 ? TRI_ACTIVATION_SIGMOID : TRI_ACTIVATION_SOFTMAX;
}

bool encode_begin(const tri_core *c, job *j, tri_client_op op, const tri_encode *e) {
  j->encode = tri_calloc(1, sizeof *j->encode);
  if (!j->encode) return false;
  j->encode->classify = op == TRI_OP_CLASSIFY;
  j->encode->normalize = e->normalize;
  j->encode->activation = e->activation == TRI_ACTIVATION_UNSET ? default_activation(c) : e->activation;
  return true;
}

/* A token as it stands in the vocabulary, or its number where there is none. */
static tri_wire_str token_text(const tri_core *c, uint32_t id, char number[ID_BYTES]) {
  const char *s = c->cfg.tokenizer ? tri_tokenizer_token(c->cfg.tokenizer, id) : NULL;
  if (s) return wire_str(s);
  int n = snprintf(number, ID_BYTES, "%u", id);
  return (tri_wire_str){number, (size_t)n};
}

tri_status encode_reserve(tri_core *c, job *j, const uint32_t *ids, size_t count, tri_error *err) {
  const tri_model_config *m = c->cfg.model;
  job_encode *e = j->encode;
  char number[ID_BYTES];
  size_t width = (size_t)(m->head.has_classifier ? m->head.num_labels : m->hidden_size),
         bytes = e->classify ? c->label_bytes : 0;
  if (!tri_size_mul(width, m->head.token_head ? count : 1, &e->num_values)) return TRI_OVERFLOW;
  for (size_t i = 0; m->head.token_head && i < count; i++) bytes += token_text(c, ids[i], number).len + TEXT_OVERHEAD;
  if (e->num_values > TRI_WIRE_MAX_RESULT / sizeof(float) ||
      bytes + e->num_values * sizeof(float) > TRI_WIRE_MAX_RESULT)
    return tri_fail(err, TRI_NO_CAPACITY, "text",
                    "the answer for %zu tokens would have %zu numbers of 4 bytes and %zu bytes of names; the limit is "
                    "%d bytes",
                    count, e->num_values, bytes, TRI_WIRE_MAX_RESULT);
  size_t needs = e->num_values * sizeof(float) + bytes + count * sizeof *ids;
  if (needs > MAX_ANSWERS_BYTES - c->answer_bytes)
    return tri_fail(err, TRI_NO_CAPACITY, "", "the answers of other requests take %zu MiB, the limit is %zu",
                    c->answer_bytes >> 20, MAX_ANSWERS_BYTES >> 20);
  e->reserved = needs;
  c->answer_bytes += needs;
  return TRI_OK;
}

size_t encode_second_start(const tri_core *c, const job *j) {
  size_t second = j->encode->second_start;
  return c->cfg.model->embed.type_vocab_size > 1 && second < j->num_prompt ? second : 0;
}

void encode_release(tri_core *c, job *j) {
  if (!j->encode) return;
  c->answer_bytes -= j->encode->reserved;
  j->encode->reserved = 0;
}

void encode_free(job_encode *e) {
  if (e) tri_free(e->values);
  tri_free(e);
}

tri_status encode_check_fit(const job *j, const group *g, tri_error *err) {
  uint64_t pages = g->kv_pages * g->block_size;
  if (j->num_prompt > g->max_model_len)
    return tri_fail(err, TRI_NO_CAPACITY, "text", "the text has %zu tokens, the limit is max_model_len %llu",
                    j->num_prompt, (unsigned long long)g->max_model_len);
  if (j->num_prompt > pages)
    return tri_fail(err, TRI_NO_CAPACITY, "text", "the text has %zu tokens, the KV cache holds %llu", j->num_prompt,
                    (unsigned long long)pages);
  return TRI_OK;
}

/* ---- results ---- */

static void normalize(float *v, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
  /* torch.nn.functional.normalize's bound on the divisor: a vector of zeros stays one. */
  double scale = 1 / fmax(sqrt(sum), 1e-12);
  for (size_t i = 0; i < n; i++) v[i] = (float)((double)v[i] * scale);
}

static void softmax(float *v, size_t n) {
  double most = -INFINITY, sum = 0;
  for (size_t i = 0; i < n; i++) most = fmax(most, (double)v[i]);
  for (size_t i = 0; i < n; i++) sum += exp((double)v[i] - most);
  for (size_t i = 0; i < n; i++) v[i] = (float)(exp((double)v[i] - most) / sum);
}

static void finish_values(const tri_core *c, job_encode *e) {
  size_t width = (size_t)c->cfg.model->head.num_labels;
  if (!e->classify && e->normalize) normalize(e->values, e->num_values);
  if (!e->classify) return;
  for (size_t i = 0; e->activation == TRI_ACTIVATION_SOFTMAX && i < e->num_values; i += width)
    softmax(e->values + i, width);
  for (size_t i = 0; e->activation == TRI_ACTIVATION_SIGMOID && i < e->num_values; i++)
    e->values[i] = (float)(1 / (1 + exp(-(double)e->values[i])));
}

static void take_result(tri_core *c, int64_t now, job *j, const tri_group_result *r) {
  job_encode *e = j->encode;
  tri_error err = {0};
  if (r->num_values != e->num_values)
    tri_fail(&err, TRI_INTERNAL, "", "%zu numbers came where %zu were expected", r->num_values, e->num_values);
  else if (!(e->values = tri_malloc(e->num_values, sizeof *e->values)))
    tri_fail(&err, TRI_NO_MEMORY, "", "no memory for the answer");
  if (err.status != TRI_OK) {
    job_fail(c, now, j, &err);
    return;
  }
  memcpy(e->values, r->values, e->num_values * sizeof *e->values);
  finish_values(c, e);
  tri_histogram_add(&c->queue_time, (double)(j->assigned_ns - j->submitted_ns) / 1e9);
  choice_end(j, &j->choices[0], TRI_FINISH_STOP);
  job_finish(c, now, j);
}

void encode_results(tri_core *c, int64_t now, uint32_t index, const tri_group_results *results) {
  for (uint32_t i = 0; i < results->num; i++) {
    job *j = job_find(c, results->results[i].job);
    /* What an earlier life of the group still says, or what comes after a cancellation, has no owner any more. */
    if (!j || !j->encode || j->state != JOB_ASSIGNED || j->group != index || j->epoch != results->epoch) continue;
    take_result(c, now, j, &results->results[i]);
  }
}

/* ---- delivery ---- */

/* Texts of the tokens; numbers: where those live that the vocabulary does not have. */
static tri_wire_str *token_texts(const tri_core *c, const job *j, char **numbers) {
  tri_wire_str *all = tri_malloc(j->num_prompt, sizeof *all);
  *numbers = tri_malloc(j->num_prompt, ID_BYTES);
  for (size_t i = 0; all && *numbers && i < j->num_prompt; i++)
    all[i] = token_text(c, j->prompt_ids[i], *numbers + i * ID_BYTES);
  if (*numbers) return all;
  tri_free(all);
  return NULL;
}

static tri_status send_values(tri_core *c, job *j) {
  const job_encode *e = j->encode;
  bool by_token = e->classify && c->cfg.model->head.token_head;
  char *numbers = NULL;
  tri_wire_str *tokens = by_token ? token_texts(c, j, &numbers) : NULL;
  if (by_token && !tokens) {
    tri_free(numbers);
    return TRI_AGAIN;
  }
  tri_server_msg m;
  m.op = e->classify ? TRI_REPLY_SCORES : TRI_REPLY_EMBEDDING;
  m.id = j->client_id;
  m.encoded = (tri_encoded_reply){.values = e->values,
                                  .num_values = e->num_values,
                                  .num_labels = e->classify ? (uint32_t)c->cfg.model->head.num_labels : 0,
                                  .labels = c->labels,
                                  .num_tokens = by_token ? (uint32_t)j->num_prompt : 0,
                                  .tokens = tokens,
                                  .activation = e->activation,
                                  .prompt_tokens = j->num_prompt,
                                  .queue_ms = (double)(j->assigned_ns - j->submitted_ns) / 1e6,
                                  .total_ms = (double)(j->ended_ns - j->submitted_ns) / 1e6};
  tri_status st = c->cfg.io.to_client(c->cfg.io.ctx, &j->peer, &m);
  tri_free(tokens), tri_free(numbers);
  return st;
}

tri_status encode_deliver(tri_core *c, job *j) {
  tri_error err = {0};
  tri_status st;
  if (j->state != JOB_ENDED || j->done_sent) return TRI_OK;
  if (j->error)
    err = *j->error;
  else if (j->timed_out)
    tri_fail(&err, TRI_TIMEOUT, "deadline_ms", "deadline_ms passed before the request was answered");
  else if (!j->encode->values && j->choices[0].reason == TRI_FINISH_ABORT)
    tri_fail(&err, TRI_ABORTED, "", "the request was cancelled");
  else if (!j->encode->values)
    tri_fail(&err, TRI_INTERNAL, "", "the group that got the request could not run it");
  st = err.status == TRI_OK ? send_values(c, j) : deliver_error(c, &j->peer, j->client_id, &err);
  j->done_sent = st == TRI_OK;
  return st;
}
