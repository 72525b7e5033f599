/* SPDX-License-Identifier: Apache-2.0 */
#include "text/unicode/spans.h"

#include "base/mem.h"

void tok_spans_free(tok_spans *s) {
  tri_free(s->data);
  *s = (tok_spans){0};
}

tri_status tok_spans_add(tok_spans *s, size_t from, size_t to) {
  tri_span *last = s->len ? &s->data[s->len - 1] : NULL;
  if (last && from <= last->to) {
    if (to > last->to) last->to = to;
    return TRI_OK;
  }
  TRI_CHECK(tri_array_reserve(&s->data, s->len, &s->cap, 1, sizeof *s->data));
  s->data[s->len++] = (tri_span){from, to};
  return TRI_OK;
}

/* Goes to the first range that ends at a piece's beginning or after it. */
static size_t first_at(tok_spans_walk *w, size_t at) {
  while (w->at < w->from->len && w->from->data[w->at].to < at) w->at++;
  return w->at;
}

/* Errs towards the foreign: a piece that has one foreign byte becomes foreign as a whole, so that no rewriting can
 * free a client's byte. */
tri_status tok_spans_change(tok_spans_walk *w, size_t at, size_t n, size_t to, size_t size) {
  if (!w) return TRI_OK;
  for (size_t i = first_at(w, at); i < w->from->len && w->from->data[i].from <= at + n; i++) {
    const tri_span *s = &w->from->data[i];
    bool inside = s->from < at + n && s->to > at;
    size_t place = s->from <= at ? to : to + size; /* of an empty one at either end */
    if (inside)
      TRI_CHECK(tok_spans_add(w->to, to, to + size));
    else if (s->from == s->to)
      TRI_CHECK(tok_spans_add(w->to, place, place));
  }
  return TRI_OK;
}

tri_status tok_spans_copy(tok_spans_walk *w, size_t at, size_t n, size_t to) {
  if (!w) return TRI_OK;
  for (size_t i = first_at(w, at); i < w->from->len && w->from->data[i].from <= at + n; i++) {
    const tri_span *s = &w->from->data[i];
    size_t from = s->from < at ? at : s->from, end = s->to > at + n ? at + n : s->to;
    TRI_CHECK(tok_spans_add(w->to, from - at + to, end - at + to));
  }
  return TRI_OK;
}
