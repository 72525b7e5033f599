/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of an encoder until they are queued: the model must be able to do what they ask for, and the memory of their
 * answers is counted before it is taken. Their life is that of any other job (jobs.c), their answers are in
 * embed_results.c. */
#include <stdio.h>

#include "coordinator/state.h"

enum { TEXT_OVERHEAD = 8 /* of a text within a message, in bytes */ };
/* The limit of all answers together that are under way or wait for their clients. */
#define MAX_ANSWERS_BYTES ((size_t)256 << 20)

tri_status embed_open(tri_core *c) {
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
  if (e->text.s && !c->cfg.tokenizer) return admission_refuse_untokenized(c, "text", err);
  if (e->truncate && !e->text.s)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "truncate",
                    "truncate is for texts: token_ids, whose last may be special, are taken as they are");
  if (e->text_pair.s && !tri_tokenizer_has_pairs(c->cfg.tokenizer))
    return tri_fail(err, TRI_UNSUPPORTED, "text_pair", "this model's tokenizer has no template for a pair of texts");
  return op == TRI_OP_EMBED ? check_pooling(c, e, err) : TRI_OK;
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

tri_status embed_reserve(tri_core *c, job *j, const uint32_t *ids, size_t count, tri_error *err) {
  const tri_model_config *m = c->cfg.model;
  job_embed *e = j->embed;
  char number[EMBED_ID_BYTES];
  size_t width = (size_t)(m->head.has_classifier ? m->head.num_labels : m->hidden_size);
  size_t bytes = e->classify ? c->label_bytes : 0;
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
  if (needs > MAX_ANSWERS_BYTES - c->answer_bytes)
    return tri_fail(err, TRI_NO_CAPACITY, "", "the answers of other requests take %zu MiB, the limit is %zu",
                    c->answer_bytes >> 20, MAX_ANSWERS_BYTES >> 20);
  e->reserved = needs;
  c->answer_bytes += needs;
  return TRI_OK;
}

size_t embed_second_start(const tri_core *c, const job *j) {
  size_t second = j->embed->second_start;
  return c->cfg.model->embed.type_vocab_size > 1 && second <= j->num_prompt ? second : 0;
}

void embed_release(tri_core *c, job *j) {
  if (!j->embed) return;
  c->answer_bytes -= j->embed->reserved;
  j->embed->reserved = 0;
}

void embed_free(job_embed *e) {
  if (e) tri_free(e->values);
  tri_free(e);
}
