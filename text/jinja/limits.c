/* SPDX-License-Identifier: Apache-2.0 */
/* The failure of a render that sticks, and the limits of its steps and memory. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/wait.h"
#include "text/jinja/exec.h"

jv j_fail(jx *x, const char *kind, const char *fmt, ...) {
  char what[240];
  va_list ap;
  if (!j_ok(x)) return j_undefined(NULL);
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  tri_status st = strcmp(kind, TRI_JINJA_LIMIT) ? TRI_INVALID_ARGUMENT : TRI_TOO_LARGE;
  if (!strcmp(kind, TRI_JINJA_RAISED))
    x->st = tri_fail(x->err, st, kind, "%s", what);
  else
    x->st = tri_fail(x->err, st, kind, "line %d of the chat template: %s", x->line, what);
  return j_undefined(NULL);
}

/* Time is looked at every 4096 steps: reading a clock costs more than a step. It is the thread's processor time, so
 * that a busy machine fails no render. */
bool j_spend(jx *x, size_t steps) {
  enum { LOOK_EVERY = 4096 };
  if (!j_ok(x)) return false;
  int64_t looked = x->nodes / LOOK_EVERY;
  x->nodes += (int64_t)steps;
  if (x->nodes > TRI_JINJA_MOST_NODES)
    j_fail(x, TRI_JINJA_LIMIT, "it takes more than %d steps", TRI_JINJA_MOST_NODES);
  else if (x->nodes / LOOK_EVERY != looked && tri_thread_cpu_ns() > x->deadline_ns)
    j_fail(x, TRI_JINJA_LIMIT, "it takes longer than %d ms of a processor", TRI_JINJA_MOST_MS);
  return j_ok(x);
}

bool j_visit(jx *x, const jnode *n) {
  if (n && j_ok(x)) x->line = n->line;
  return j_spend(x, 1);
}

void *j_alloc(jx *x, size_t count, size_t size) {
  size_t bytes;
  if (!j_ok(x)) return NULL;
  if (!tri_size_mul(count, size, &bytes) || bytes > TRI_JINJA_MOST_MEMORY - x->memory) {
    j_fail(x, TRI_JINJA_LIMIT, "it takes more than %d MiB of memory", TRI_JINJA_MOST_MEMORY >> 20);
    return NULL;
  }
  x->memory += bytes;
  void *p = tri_arena_alloc(x->arena, count ? count : 1, size);
  if (!p) x->st = TRI_NO_MEMORY;
  return p;
}

void *j_grow(jx *x, void *items, size_t n, size_t *cap, size_t size) {
  if (n < *cap) return items;
  size_t twice = *cap ? 2 * *cap : 4;
  void *more = j_alloc(x, twice, size);
  if (!more) return NULL;
  if (n) memcpy(more, items, n * size);
  *cap = twice;
  return more;
}
