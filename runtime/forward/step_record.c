/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a step: which buffers each of its ops reads and writes, and what follows from that.
 *
 * Liveness, backwards over straight-line code: a buffer is live before an op that reads it, and dead before one that
 * writes it whole without reading it. */
#include "base/buf.h"
#include "runtime/forward/step_arena.h"

void tri_step_record_free(tri_step_record *r) {
  tri_free(r->events);
  r->events = NULL;
}

tri_status tri_step_record_add(tri_step_record *r, tri_step_event e) {
  TRI_CHECK(tri_array_reserve(&r->events, (size_t)r->count, &r->capacity, 1, sizeof *r->events));
  r->events[r->count++] = e;
  return TRI_OK;
}

tri_buffer_set tri_step_record_find(const tri_step_record *r, const void *at, bool *whole) {
  const char *p = at;
  if (whole) *whole = true;
  if (!p || p < r->memory || p >= r->memory + r->apart->bytes) return 0;
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    const char *from = r->memory + r->apart->buffers[i].offset;
    if (p < from || p >= from + tri_step_arena_bytes(&r->apart->buffers[i])) continue;
    if (whole) *whole = p == from;
    return (tri_buffer_set)1 << i;
  }
  return 0;
}

void tri_step_record_live(const tri_step_record *r, tri_buffer_set *live) {
  tri_buffer_set after = live[r->count] = r->results;
  for (int e = r->count; e-- > 0;) after = live[e] = (after & ~r->events[e].writes) | r->events[e].reads;
}
