/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/charset.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SURROGATE = 0xd800, LAST_SURROGATE = 0xdfff };

bool charset_add(tri_arena *a, charset *s, uint32_t lo, uint32_t hi) {
  if (s->num == s->room) {
    size_t room = s->room ? 2 * s->room : 2;
    charset_range *grown = tri_arena_alloc(a, room, sizeof *grown);
    if (!grown) return false;
    if (s->num) memcpy(grown, s->list, s->num * sizeof *grown);
    s->list = grown;
    s->room = room;
  }
  s->list[s->num++] = (charset_range){lo, hi};
  return true;
}

static int compare(const void *a, const void *b) {
  const charset_range *x = a, *y = b;
  return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Joins ranges that are in order of their first characters. */
static void join(charset *s) {
  size_t kept = 0;
  for (size_t i = 0; i < s->num; i++) {
    charset_range r = s->list[i];
    if (kept && r.lo <= s->list[kept - 1].hi + 1) {
      if (r.hi > s->list[kept - 1].hi) s->list[kept - 1].hi = r.hi;
    } else {
      s->list[kept++] = r;
    }
  }
  s->num = kept;
}

bool charset_sort(tri_arena *a, charset *s) {
  charset out = {0};
  if (s->num > 1) qsort(s->list, s->num, sizeof *s->list, compare);
  join(s);
  for (size_t i = 0; i < s->num; i++) {
    charset_range r = s->list[i];
    uint32_t below = r.hi < FIRST_SURROGATE ? r.hi : FIRST_SURROGATE - 1;
    uint32_t above = r.lo > LAST_SURROGATE ? r.lo : LAST_SURROGATE + 1;
    if (r.lo <= below && !charset_add(a, &out, r.lo, below)) return false;
    if (above <= r.hi && !charset_add(a, &out, above, r.hi)) return false;
  }
  *s = out;
  return true;
}

bool charset_invert(tri_arena *a, charset *s) {
  charset out = {0};
  uint32_t next = 0;
  for (size_t i = 0; i < s->num; i++) {
    if (s->list[i].lo > next && !charset_add(a, &out, next, s->list[i].lo - 1)) return false;
    next = s->list[i].hi + 1;
  }
  if (next <= CHARSET_LAST && !charset_add(a, &out, next, CHARSET_LAST)) return false;
  *s = out;
  return charset_sort(a, s);
}

bool charset_equal(const charset *a, const charset *b) {
  return a->num == b->num && (!a->num || !memcmp(a->list, b->list, a->num * sizeof *a->list));
}
