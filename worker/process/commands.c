/* SPDX-License-Identifier: Apache-2.0 */
/* The order of commands is kept by one rule: while anything is in the list, nothing goes into the ring but from the
 * list's head. */
#include "worker/process/commands.h"

tri_status tri_commands_init(tri_commands *c, size_t in_ring) {
  TAILQ_INIT(&c->behind);
  return tri_ring_init(&c->ring, in_ring);
}

/* In the ring a number is distinguished from a job's address by its last bit. */
static bool push(tri_commands *c, tri_job *job, uint64_t abort) {
  return tri_ring_push(&c->ring, job ? (void *)job : (void *)(uintptr_t)(abort << 1 | 1));
}

static tri_status add(tri_commands *c, tri_job *job, uint64_t abort) {
  if (TAILQ_EMPTY(&c->behind) && push(c, job, abort)) return TRI_OK;
  tri_command *one = tri_malloc(1, sizeof *one);
  if (!one) return TRI_NO_MEMORY;
  *one = (tri_command){.job = job, .abort = abort};
  TAILQ_INSERT_TAIL(&c->behind, one, links);
  return TRI_OK;
}

static void drop(tri_commands *c, tri_command *one) {
  TAILQ_REMOVE(&c->behind, one, links);
  tri_free(one);
}

tri_status tri_commands_add(tri_commands *c, tri_job *job) { return add(c, job, 0); }

tri_status tri_commands_abort(tri_commands *c, uint64_t id) {
  tri_command *one = TAILQ_LAST(&c->behind, tri_command_list);
  while (one && !(one->job && tri_job_id(one->job) == id)) one = TAILQ_PREV(one, tri_command_list, links);
  if (!one) return add(c, NULL, id);
  tri_job_destroy(one->job);
  drop(c, one);
  return TRI_OK;
}

bool tri_commands_move(tri_commands *c) {
  bool any = false;
  for (tri_command *one; (one = TAILQ_FIRST(&c->behind)) && push(c, one->job, one->abort); any = true) drop(c, one);
  return any;
}

void tri_commands_forget(tri_commands *c) {
  for (tri_command *one; (one = TAILQ_FIRST(&c->behind));) {
    tri_job_destroy(one->job);
    drop(c, one);
  }
}

bool tri_commands_hold(const tri_commands *c) { return tri_ring_holds(&c->ring) || !TAILQ_EMPTY(&c->behind); }

bool tri_commands_take(tri_commands *c, tri_job **job, uint64_t *abort) {
  void *item = tri_ring_pop(&c->ring);
  bool aborts = (uintptr_t)item & 1;
  *job = aborts ? NULL : item;
  *abort = (uint64_t)((uintptr_t)item >> 1);
  return item;
}

void tri_commands_drop(tri_commands *c) {
  uint64_t abort;
  for (tri_job *job; tri_commands_take(c, &job, &abort);) tri_job_destroy(job);
}

void tri_commands_free(tri_commands *c) {
  if (!c->ring.items) return;
  tri_commands_forget(c);
  tri_commands_drop(c);
  tri_ring_free(&c->ring);
}
