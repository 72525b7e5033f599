/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the tests of jobs whose replica is lost. */
#ifndef TRI_TESTS_UNIT_CORE_REPLAY_KIT_H
#define TRI_TESTS_UNIT_CORE_REPLAY_KIT_H

#include "coordinator/jobs/jobs_impl.h"
#include "coordinator/queue/queue_impl.h"
#include "coordinator/replicas/replicas_impl.h"
#include "tests/unit/core_world.h"

static inline void lose(struct world *w, uint32_t replica, uint64_t epoch) {
  tri_replica_msg m = {.op = TRI_REPLICA_FAILED,
                       .failed = {.replica = replica, .epoch = epoch, .message = {"no disk", 7}}};
  send_worker(w, replica, epoch, 0, &m);
}

/* Loses replica 0 of that epoch and starts its next one. */
static inline void restart(struct world *w, uint64_t epoch) {
  lose(w, 0, epoch);
  start_replica(w, 0, epoch + 1, 1);
}

/* One token of a job of replica 0. */
static inline void draw(struct world *w, uint64_t epoch, uint64_t job, uint32_t choice, uint64_t offset, uint32_t id,
                        int flags) {
  token_of(w, epoch, job, choice, offset, id, flags, TRI_FINISH_LENGTH);
}

/* Bytes `from` .. of a text as tokens; the last one ends the choice where `ends`. */
static inline void say(struct world *w, uint64_t epoch, uint64_t job, uint32_t choice, size_t from, const char *text,
                       bool ends) {
  size_t n = strlen(text);
  for (size_t i = from; i < n; i++)
    draw(w, epoch, job, choice, i, byte_token[(uint8_t)text[i]], ends && i + 1 == n ? TRI_TOKEN_LAST : 0);
}

static inline const struct assigned *last_assign(const struct world *w) { return &w->assigns[w->num_assigns - 1]; }

static inline bool went_to(const struct assigned *a, uint32_t replica, uint64_t epoch) {
  tri_peer leader = rank_peer(replica, epoch, 0);
  return tri_peer_equal(&a->to, &leader) && a->a.epoch == epoch;
}

#endif
