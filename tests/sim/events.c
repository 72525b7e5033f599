/* SPDX-License-Identifier: Apache-2.0 */
/* Events to come, in the order of time: a heap. */
#include <stdlib.h>

#include "base/mem.h"
#include "tests/sim/sim.h"

static bool before(const event *a, const event *b) { return a->at != b->at ? a->at < b->at : a->order < b->order; }

static void swap(event *a, event *b) {
  event t = *a;
  *a = *b;
  *b = t;
}

void events_add(sim *s, event e) {
  if (s->num_events == s->cap_events) {
    size_t cap = s->cap_events ? 2 * s->cap_events : 256;
    event *heap = tri_grow(s->heap, s->cap_events, cap, sizeof *heap);
    if (!heap) abort();
    s->heap = heap;
    s->cap_events = cap;
  }
  e.order = s->orders++;
  size_t i = s->num_events++;
  s->heap[i] = e;
  for (; i && before(&s->heap[i], &s->heap[(i - 1) / 2]); i = (i - 1) / 2) swap(&s->heap[i], &s->heap[(i - 1) / 2]);
}

bool events_next(sim *s, event *out) {
  if (!s->num_events) return false;
  *out = s->heap[0];
  s->heap[0] = s->heap[--s->num_events];
  for (size_t i = 0;;) {
    size_t least = i;
    for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < s->num_events; k++)
      if (before(&s->heap[k], &s->heap[least])) least = k;
    if (least == i) return true;
    swap(&s->heap[i], &s->heap[least]);
    i = least;
  }
}

void events_free(sim *s) {
  for (size_t i = 0; i < s->num_events; i++) tri_free(s->heap[i].data);
  tri_free(s->heap);
  s->heap = NULL;
  s->num_events = s->cap_events = 0;
}
