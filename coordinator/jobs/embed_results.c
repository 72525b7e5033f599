/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of an encoder: the numbers that a group has computed, made into embeddings or scores, and sent. A job is
 * forgotten once its answer is delivered. */
#include <math.h>
#include <string.h>

#include "coordinator/state.h"

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

static void take_result(tri_core *c, int64_t now, job *j, const tri_group_result *r) {
  job_embed *e = j->embed;
  tri_error err = {0};
  if (!are_finite(r->values, r->num_values)) {
    job_end_without_numbers(c, now, j, "numbers of the answer");
    return;
  }
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
  job_begun(j, now, r->waited_ns);
  tri_histogram_add(&c->queue_time, (double)job_queue_ns(j) / 1e9);
  choice_end(j, &j->choices[0], TRI_FINISH_STOP);
  job_finish(c, now, j);
}

void embed_results(tri_core *c, int64_t now, uint32_t index, const tri_group_results *results) {
  for (uint32_t i = 0; i < results->num; i++) {
    job *j = job_find(c, results->results[i].job);
    /* A message of an earlier life of the group, or one behind a cancellation, has no owner any more. */
    if (!j || !j->embed || j->state != JOB_ASSIGNED || j->group != index || j->epoch != results->epoch) continue;
    take_result(c, now, j, &results->results[i]);
  }
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
                              .labels = c->labels,
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
    tri_fail(&err, TRI_INTERNAL, "", "the group that got the request could not run it");
  tri_status st = err.status == TRI_OK ? send_values(c, j) : reply_error(c, &j->peer, j->client_id, &err);
  j->done_sent = st == TRI_OK;
  return st;
}
