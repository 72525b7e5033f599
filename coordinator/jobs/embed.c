/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of an encoder. The model must be able to do what they ask for, and the memory of their answers is counted before
 * it is taken. The numbers that a replica has computed are made into embeddings or scores, and sent; a job is forgotten
 * once its answer is delivered. Their life is that of any other job (life.c), as one choice without tokens. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/jobs/jobs_impl.h"

enum { TEXT_OVERHEAD = 8 /* of a text within a message, in bytes */ };
/* The limit of all answers together that are under way or wait for their clients. */
#define MAX_ANSWERS_BYTES ((size_t)256 << 20)

/* Names are borrowed from the configuration, which outlives the jobs. Every classify answer has all of them. */
tri_status embed_open(tri_core *c) {
  const tri_labels *l = c->cfg.labels;
  if (!l || !l->count) return TRI_OK;
  c->jobs->labels = tri_calloc(l->count, sizeof *c->jobs->labels);
  if (!c->jobs->labels) return TRI_NO_MEMORY;
  for (size_t i = 0; i < l->count; i++) {
    c->jobs->labels[i] = wire_str(l->names[i]);
    c->jobs->label_bytes += c->jobs->labels[i].len + TEXT_OVERHEAD;
  }
  return TRI_OK;
}

/* Pooling is chosen when the cluster starts: all requests of a step share it. */
static tri_status check_pooling(const tri_core *c, const tri_embed_request *e, tri_error *err) {
  const tri_model_config *m = c->cfg.model;
  tri_pooling has = m->head.has_pooler ? TRI_POOL_NONE : m->head.pooling;
  if (!e->has_pooling || e->pooling == has || (e->pooling == TRI_POOL_NONE && c->cfg.pools_as_model)) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "pooling",
                  "pooling is \"%s\"; here it is \"%s\", which the option --pooling of the server decides",
                  tri_pooling_names[e->pooling], tri_pooling_names[c->cfg.pools_as_model ? TRI_POOL_NONE : has]);
}

tri_status embed_check(const tri_core *c, tri_client_op op, const tri_embed_request *e, tri_error *err) {
  const tri_model_config *m = c->cfg.model;
  if (!m->encoder)
    return tri_fail(err, TRI_UNSUPPORTED, "op",
                    "the model served here generates text: it neither embeds nor classifies");
  if (op == TRI_OP_EMBED && m->head.has_classifier)
    return tri_fail(err, TRI_UNSUPPORTED, "op", "the model served here classifies %s: it does not embed",
                    m->head.token_head ? "tokens" : "texts");
  if (op == TRI_OP_CLASSIFY && !m->head.has_classifier)
    return tri_fail(err, TRI_UNSUPPORTED, "op", "the model served here embeds: it has no classifier");
  if (e->text.s && !c->cfg.tokenizer) return refuse_untokenized(c, "text", err);
  if (e->truncate && !e->text.s)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "truncate",
                    "truncate is for texts: token_ids, whose last may be special, are taken as they are");
  if (e->text_pair.s && !tri_tokenizer_has_pairs(c->cfg.tokenizer))
    return tri_fail(err, TRI_UNSUPPORTED, "text_pair", "this model's tokenizer has no template for a pair of texts");
  return op == TRI_OP_EMBED ? check_pooling(c, e, err) : TRI_OK;
}

tri_status embed_add_prompt(const tri_core *c, const tri_embed_request *e, tri_submit *s, char **joined,
                            tri_error *err) {
  const tri_prompts *p = c->cfg.prompts;
  const tri_wire_str *name = &e->prompt_name;
  const char *prompt = p && !name->s ? p->usual : NULL;
  if (p && name->len) prompt = tri_prompts_find(p, name->s, name->len);
  if (name->len && !prompt)
    return tri_fail(err, TRI_NOT_FOUND, "prompt_name", "the model's folder has no prompt \"%.*s\"",
                    (int)(name->len < 60 ? name->len : 60), name->s);
  size_t len = prompt && e->text.s ? strlen(prompt) : 0, all;
  if (!len) return TRI_OK;
  if (!tri_size_add(len, e->text.len, &all) || !(*joined = tri_malloc(all, 1)))
    return tri_fail(err, TRI_NO_MEMORY, "prompt_name", "no memory for a text with its prompt");
  memcpy(*joined, prompt, len);
  memcpy(*joined + len, e->text.s, e->text.len);
  s->prompt = (tri_wire_str){*joined, all};
  return TRI_OK;
}

static tri_activation default_activation(const tri_core *c) {
  const tri_labels *l = c->cfg.labels;
  if (c->cfg.model->head.token_head || !l) return TRI_ACTIVATION_SOFTMAX;
  if (l->problem == TRI_PROBLEM_REGRESSION) return TRI_ACTIVATION_NONE;
  /* The softmax of one label would always be 1. */
  return l->problem == TRI_PROBLEM_MULTI || l->count == 1 ? TRI_ACTIVATION_SIGMOID : TRI_ACTIVATION_SOFTMAX;
}

bool embed_begin(const tri_core *c, job *j, tri_client_op op, const tri_embed_request *e) {
  j->embed = tri_calloc(1, sizeof *j->embed);
  if (!j->embed) return false;
  j->embed->classify = op == TRI_OP_CLASSIFY;
  j->embed->normalize = e->has_normalize ? e->normalize : c->cfg.model->sentence.normalize;
  j->embed->activation = e->activation == TRI_ACTIVATION_UNSET ? default_activation(c) : e->activation;
  return true;
}

tri_wire_str embed_token_text(const tri_core *c, uint32_t id, char number[EMBED_ID_BYTES]) {
  const char *s = c->cfg.tokenizer ? tri_tokenizer_token(c->cfg.tokenizer, id) : NULL;
  if (s) return wire_str(s);
  int n = snprintf(number, EMBED_ID_BYTES, "%u", id);
  return (tri_wire_str){number, (size_t)n};
}

/* A width of numbers for the text, or for each token with a head for tokens, whose answer also has the tokens' texts.
 * answer_bytes never exceeds the limit, so that what is left of it cannot wrap. */
tri_status embed_reserve(tri_core *c, job *j, const uint32_t *ids, size_t count, tri_error *err) {
  const tri_model_config *m = c->cfg.model;
  job_embed *e = j->embed;
  char number[EMBED_ID_BYTES];
  size_t width = (size_t)tri_model_config_width(m);
  size_t bytes = e->classify ? c->jobs->label_bytes : 0;
  if (!tri_size_mul(width, m->head.token_head ? count : 1, &e->num_values)) return TRI_OVERFLOW;
  for (size_t i = 0; m->head.token_head && i < count; i++)
    bytes += embed_token_text(c, ids[i], number).len + TEXT_OVERHEAD;
  if (e->num_values > TRI_WIRE_MAX_RESULT / sizeof(float) ||
      bytes + e->num_values * sizeof(float) > TRI_WIRE_MAX_RESULT)
    return tri_fail(err, TRI_NO_CAPACITY, "text",
                    "the answer for %zu tokens would have %zu numbers of 4 bytes and %zu bytes of names; the limit is "
                    "%d bytes",
                    count, e->num_values, bytes, TRI_WIRE_MAX_RESULT);
  size_t needs = e->num_values * sizeof(float) + bytes + count * sizeof *ids;
  if (needs > MAX_ANSWERS_BYTES - c->jobs->answer_bytes)
    return tri_fail(err, TRI_NO_CAPACITY, "", "the answers of other requests take %zu MiB, the limit is %zu",
                    c->jobs->answer_bytes >> 20, MAX_ANSWERS_BYTES >> 20);
  e->reserved = needs;
  c->jobs->answer_bytes += needs;
  return TRI_OK;
}

size_t embed_second_start(const tri_core *c, const job *j) {
  size_t second = j->embed->second_start;
  return c->cfg.model->embed.type_vocab_size > 1 && second <= j->num_prompt ? second : 0;
}

void embed_release(tri_core *c, job *j) {
  if (!j->embed) return;
  c->jobs->answer_bytes -= j->embed->reserved;
  j->embed->reserved = 0;
}

void embed_free(job_embed *e) {
  if (e) tri_free(e->values);
  tri_free(e);
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

/* Scores are rows of num_labels, one for the text or one for each token; a vector is normalized as a whole. */
static void finish_values(const tri_core *c, job_embed *e) {
  size_t width = (size_t)c->cfg.model->head.num_labels;
  if (!e->classify && e->normalize) normalize(e->values, e->num_values);
  if (!e->classify) return;
  for (size_t i = 0; e->activation == TRI_ACTIVATION_SOFTMAX && i < e->num_values; i += width)
    softmax(e->values + i, width);
  for (size_t i = 0; e->activation == TRI_ACTIVATION_SIGMOID && i < e->num_values; i++)
    e->values[i] = (float)(1 / (1 + exp(-(double)e->values[i])));
}

static bool are_finite(const float *v, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!isfinite(v[i])) return false;
  return true;
}

tri_status embed_take(const tri_core *c, job *j, const tri_replica_result *r, tri_error *err) {
  job_embed *e = j->embed;
  if (!are_finite(r->values, r->num_values)) return TRI_OUT_OF_RANGE;
  if (r->num_values != e->num_values)
    return tri_fail(err, TRI_INTERNAL, "", "%zu numbers came where %zu were expected", r->num_values, e->num_values);
  if (!(e->values = tri_malloc(e->num_values, sizeof *e->values)))
    return tri_fail(err, TRI_NO_MEMORY, "", "no memory for the answer");
  memcpy(e->values, r->values, e->num_values * sizeof *e->values);
  finish_values(c, e);
  return TRI_OK;
}

/* ---- delivery ---- */

/* Texts of the tokens. *numbers owns those of ids that the vocabulary has no text for. */
static tri_wire_str *token_texts(const tri_core *c, const job *j, char **numbers) {
  tri_wire_str *all = tri_malloc(j->num_prompt, sizeof *all);
  *numbers = tri_malloc(j->num_prompt, EMBED_ID_BYTES);
  for (size_t i = 0; all && *numbers && i < j->num_prompt; i++)
    all[i] = embed_token_text(c, j->prompt_ids[i], *numbers + i * EMBED_ID_BYTES);
  if (*numbers) return all;
  tri_free(all);
  return NULL;
}

static tri_status send_values(tri_core *c, job *j) {
  const job_embed *e = j->embed;
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
  m.embed = (tri_embed_reply){.values = e->values,
                              .num_values = e->num_values,
                              .num_labels = e->classify ? (uint32_t)c->cfg.model->head.num_labels : 0,
                              .labels = c->jobs->labels,
                              .num_tokens = by_token ? (uint32_t)j->num_prompt : 0,
                              .tokens = tokens,
                              .activation = e->activation,
                              .prompt_tokens = j->num_prompt,
                              .queue_ms = (double)job_queue_ns(j) / 1e6,
                              .total_ms = (double)(j->ended_ns - j->submitted_ns) / 1e6,
                              .cached = j->cached};
  tri_status st = c->cfg.io.to_client(c->cfg.io.ctx, &j->peer, &m);
  tri_free(tokens);
  tri_free(numbers);
  return st;
}

tri_status embed_deliver(tri_core *c, job *j) {
  tri_error err = {0};
  if (j->state != JOB_ENDED || j->done_sent) return TRI_OK;
  if (j->error)
    err = *j->error;
  else if (j->timed_out)
    tri_fail(&err, TRI_TIMEOUT, "deadline_ms", "deadline_ms passed before the request was answered");
  else if (!j->embed->values && j->choices[0].reason == TRI_FINISH_ABORT)
    tri_fail(&err, TRI_ABORTED, "", "the request was cancelled");
  else if (!j->embed->values)
    tri_fail(&err, TRI_INTERNAL, "", "the replica that got the request could not run it");
  tri_status st = err.status == TRI_OK ? send_values(c, j) : reply_error(c, &j->peer, j->client_id, &err);
  j->done_sent = st == TRI_OK;
  return st;
}
