/* SPDX-License-Identifier: Apache-2.0 */
/* The check that a replica may serve with those that are ready: replicas must be interchangeable. */
#include <math.h>
#include <stdio.h>

#include "coordinator/replicas/replicas_impl.h"

/* Nats between two logprobs of the canary that the same weights may have: layouts, backends and the order of sums
 * change the last bits of a bf16, and a token may go to another expert for it. Wrong weights or a broken device are far
 * beyond. */
#define CANARY_TOLERANCE 2.0

static const double *find(const replica_canary *c, uint32_t id) {
  for (int i = 0; i < c->num; i++)
    if (c->ids[i] == id) return &c->logprobs[i];
  return NULL;
}

/* Returns the first token of a's that b contradicts; -1: none. One that b has not among its first has a logprob there
 * of its last one at most. */
static int64_t contradiction(const replica_canary *a, const replica_canary *b) {
  for (int i = 0; i < a->num && b->num; i++) {
    const double *other = find(b, a->ids[i]);
    double above = a->logprobs[i] - b->logprobs[b->num - 1];
    if (other ? fabs(a->logprobs[i] - *other) > CANARY_TOLERANCE : above > CANARY_TOLERANCE) return a->ids[i];
  }
  return -1;
}

void canary_take(replica_canary *c, const tri_replica_msg *m) {
  size_t n = m->ready.num_canary_ids < MAX_CANARY ? m->ready.num_canary_ids : MAX_CANARY;
  c->num = m->ready.num_canary_millis < n ? (int)m->ready.num_canary_millis : (int)n;
  for (int i = 0; i < c->num; i++) {
    c->ids[i] = m->ready.canary_ids[i];
    c->logprobs[i] = -1e-3 * (double)m->ready.canary_millis[i];
  }
}

bool weights_are_same(const replica *a, const replica *b) {
  return !a->facts.weights_hash || !b->facts.weights_hash || a->facts.weights_hash == b->facts.weights_hash;
}

static bool fits(const replica *g, const replica *other, uint32_t index, char *why, size_t cap) {
  int64_t token = contradiction(&g->canary, &other->canary);
  if (token < 0) token = contradiction(&other->canary, &g->canary);
  /* KV blocks are a replica's own affair: those of devices are larger. */
  if (g->model_hash != other->model_hash || g->facts.max_model_len != other->facts.max_model_len)
    snprintf(why, cap, "it serves another model, or has other limits, than the replicas that are ready");
  else if (!weights_are_same(g, other))
    weights_say_other(g, other, index, why, cap);
  else if (token >= 0)
    snprintf(why, cap,
             "its canary disagrees with that of replica %u, which serves: the logprob of token %lld differs by more "
             "than %g. One of them computes wrongly, or has other weights",
             index, (long long)token, CANARY_TOLERANCE);
  else
    return true;
  return false;
}

void weights_say_other(const replica *g, const replica *other, uint32_t index, char *why, size_t cap) {
  snprintf(why, cap,
           "its weights (hash %016llx) are not those of replica %u (%016llx), which serves: the model's files have "
           "changed, or a host has other copies. They are served once no replica with the old ones is left",
           (unsigned long long)g->facts.weights_hash, index, (unsigned long long)other->facts.weights_hash);
}

bool replica_is_compatible(const tri_core *c, const replica *g, char *why, size_t cap) {
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++)
    if (replica_at(c, i) != g && replica_takes_jobs(c, i) && !fits(g, replica_at(c, i), i, why, cap)) return false;
  return true;
}
