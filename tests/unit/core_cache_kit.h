/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the response cache's tests. */
#ifndef TRI_TESTS_UNIT_CORE_CACHE_KIT_H
#define TRI_TESTS_UNIT_CORE_CACHE_KIT_H

#include "coordinator/jobs/jobs_impl.h"
#include "coordinator/queue/queue_impl.h"
#include "coordinator/replicas/replicas_impl.h"
#include "tests/unit/core_world.h"

enum { CACHE = 1 << 20 };
static uint64_t next_id; /* of a request */

static inline tri_client_msg greedy(void) {
  tri_client_msg m = submit_msg(++next_id);
  m.submit.sampling.has_temperature = true;
  m.submit.sampling.temperature = 0;
  return m;
}

/* Sends a request again under a new id. */
static inline struct stream *again(struct world *w, const char *peer, tri_client_msg *m) {
  m->id = ++next_id;
  return submit(w, peer, m);
}

/* Has the group answer a request with the text, for all of its choices. */
static inline struct stream *answered(struct world *w, const char *peer, tri_client_msg *m, const char *text) {
  int before = w->num_assigns;
  struct stream *s = again(w, peer, m);
  ck_assert_int_eq(w->num_assigns, before + 1);
  for (uint32_t i = 0; i < (uint32_t)m->submit.sampling.n; i++) bytes(w, last_job(w), i, text);
  ck_assert(s->done && !s->cached);
  return s;
}

/* Does the cache answer this? Where it does not, the job is cancelled. */
static inline bool hits(struct world *w, tri_client_msg *m) {
  int before = w->num_assigns;
  struct stream *s = again(w, "probe", m);
  bool hit = w->num_assigns == before;
  ck_assert_msg(!s->done == !hit, "%s", s->message);
  ck_assert(s->cached == hit);
  tri_client_msg stop = {.op = TRI_OP_CANCEL, .id = ++next_id, .cancel = {.target = m->id, .has_target = true}};
  open_stream(w, "probe", stop.id);
  if (!hit) tri_core_client(w->core, w->now, &s->peer, &stop);
  ck_assert(s->done);
  w->num_assigns = w->num_aborts = 0;
  w->num_streams = 0;
  return hit;
}

/* Two streams of one answer, to the last byte. */
static inline void expect_same(const struct stream *a, const struct stream *b, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const struct text *x = &a->choice[i], *y = &b->choice[i];
    ck_assert(x->num == y->num && !memcmp(x->ids, y->ids, x->num * sizeof *x->ids));
    ck_assert(x->len == y->len && !memcmp(x->text, y->text, x->len));
    ck_assert(x->reason == y->reason && x->num_logprobs == y->num_logprobs &&
              x->num_alternatives == y->num_alternatives);
  }
  ck_assert(a->prompt_tokens == b->prompt_tokens && a->completion_tokens == b->completion_tokens && a->seed == b->seed);
}

#endif
