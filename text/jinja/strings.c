/* SPDX-License-Identifier: Apache-2.0 */
/* Strings as Python has them: by code points, with the white space and the cases of Unicode.
 *
 * Places and lengths are bytes of UTF-8 inside; templates see code points, and methods convert at their edges. Every
 * pass over a text pays for it with steps (j_spend), so that a template cannot take long by a few operations on large
 * texts. */
#include <string.h>

#include "text/jinja/exec.h"
#include "text/unicode/unicode.h"

bool j_is_space(uint32_t c) { return (c >= 0x1c && c <= 0x1f) || tok_is_space(c); }
bool j_is_space_at(const jstr *s, size_t at, size_t *len) { return j_is_space(tok_utf8_decode(s->s + at, len)); }

int64_t j_count_characters(const jstr *s) { return (int64_t)tok_utf8_count(s->s, s->n); }

/* The result always has a list, an empty one after a failure: callers take its items without a check. */
jv j_characters(jx *x, const jstr *s, size_t *n) {
  size_t count = tok_utf8_count(s->s, s->n), at = 0;
  jv *items = j_alloc(x, count, sizeof *items);
  *n = 0;
  for (size_t i = 0, len; i < count && j_ok(x); i++, at += len) {
    tok_utf8_decode(s->s + at, &len);
    items[i] = j_slice(x, s, at, at + len);
  }
  if (j_ok(x)) *n = count;
  static jlist empty;
  jv list = j_list(x, J_LIST, items, *n);
  return j_ok(x) ? list : (jv){.kind = J_LIST, .list = &empty};
}

size_t j_find(jx *x, const jstr *s, const jstr *what, size_t from) {
  if (from > s->n || what->n > s->n - from) return SIZE_MAX;
  if (!what->n) return from;
  const char *found = memmem(s->s + from, s->n - from, what->s, what->n);
  size_t at = found ? (size_t)(found - s->s) : s->n;
  return j_spend(x, (at - from + what->n) / J_STEP_BYTES) && found ? at : SIZE_MAX;
}

size_t j_find_last(jx *x, const jstr *s, const jstr *what, size_t end) {
  if (what->n > end) return SIZE_MAX;
  if (!what->n) return end;
  size_t at = end - what->n + 1;
  bool found = false;
  while (!found && at > 0 && j_ok(x)) {
    if (s->s[--at] != *what->s) continue;
    found = !memcmp(s->s + at, what->s, what->n);
    j_spend(x, what->n / J_STEP_BYTES);
  }
  return j_spend(x, (end - at) / J_STEP_ITEMS) && found ? at : SIZE_MAX;
}

/* ---- strip, split, replace ---- */

/* chars is a set of characters, whose order does not count, as in Python's strip(). */
static bool is_stripped(jx *x, const jstr *s, size_t at, const jstr *chars, size_t *len) {
  bool space = j_is_space_at(s, at, len);
  if (!chars) return space;
  jstr one = {.s = s->s + at, .n = *len};
  return j_find(x, chars, &one, 0) != SIZE_MAX;
}

jv j_strip(jx *x, const jstr *s, const jstr *chars, jside side) {
  size_t from = 0, to = s->n, len;
  while (side & J_LEFT && from < to && is_stripped(x, s, from, chars, &len)) from += len;
  while (side & J_RIGHT && to > from) {
    size_t before = tok_utf8_before(s->s, to);
    if (!is_stripped(x, s, before, chars, &len)) break;
    to = before;
  }
  j_spend(x, (s->n - (to - from)) / J_STEP_BYTES);
  return j_slice(x, s, from, to);
}

/* A list that is being made. */
struct growing {
  jx *x;
  jv *items;
  size_t n, cap;
};

static void add(struct growing *g, jv v) {
  jv *items = j_grow(g->x, g->items, g->n, &g->cap, sizeof *items);
  if (!items) return;
  g->items = items;
  g->items[g->n++] = v;
}

static void split_at_space(struct growing *g, const jstr *s, int64_t most) {
  size_t at = 0, len;
  for (;;) {
    while (at < s->n && j_is_space_at(s, at, &len)) at += len;
    if (at == s->n || !j_ok(g->x)) return;
    size_t from = at;
    if (most >= 0 && (int64_t)g->n == most) {
      jv rest = j_slice(g->x, s, from, s->n);
      if (j_ok(g->x)) add(g, j_strip(g->x, rest.str, NULL, J_RIGHT));
      return;
    }
    while (at < s->n && !j_is_space_at(s, at, &len)) at += len;
    add(g, j_slice(g->x, s, from, at));
  }
}

jv j_split(jx *x, const jstr *s, const jstr *by, int64_t most) {
  struct growing g = {.x = x};
  j_spend(x, s->n / J_STEP_ITEMS);
  if (!by) {
    split_at_space(&g, s, most);
    return j_list(x, J_LIST, g.items, g.n);
  }
  if (!by->n) return j_fail(x, TRI_JINJA_TYPE, "empty separator");
  size_t from = 0, at;
  while (j_ok(x) && (most < 0 || (int64_t)g.n < most) && (at = j_find(x, s, by, from)) != SIZE_MAX) {
    add(&g, j_slice(x, s, from, at));
    from = at + by->n;
  }
  add(&g, j_slice(x, s, from, s->n));
  return j_list(x, J_LIST, g.items, g.n);
}

/* Returns where the white space that ends at a place begins. */
static size_t space_before(const jstr *s, size_t end) {
  while (end > 0) {
    size_t len, at = tok_utf8_before(s->s, end);
    if (!j_is_space_at(s, at, &len)) break;
    end = at;
  }
  return end;
}

/* Both rsplits collect the parts from the end; j_rsplit turns them round. */
static void rsplit_at_space(struct growing *g, const jstr *s, int64_t most) {
  size_t end = space_before(s, s->n);
  while (end > 0 && j_ok(g->x)) {
    size_t from = end;
    bool rest = most >= 0 && (int64_t)g->n == most;
    while (!rest && from > 0 && space_before(s, from) == from) from = tok_utf8_before(s->s, from);
    add(g, j_slice(g->x, s, rest ? 0 : from, end));
    end = rest ? 0 : space_before(s, from);
  }
}

static void rsplit_at_text(struct growing *g, const jstr *s, const jstr *by, int64_t most) {
  size_t end = s->n, at;
  while (j_ok(g->x) && (most < 0 || (int64_t)g->n < most) && (at = j_find_last(g->x, s, by, end)) != SIZE_MAX) {
    add(g, j_slice(g->x, s, at + by->n, end));
    end = at;
  }
  add(g, j_slice(g->x, s, 0, end));
}

jv j_rsplit(jx *x, const jstr *s, const jstr *by, int64_t most) {
  struct growing g = {.x = x};
  if (by && !by->n) return j_fail(x, TRI_JINJA_TYPE, "empty separator");
  j_spend(x, s->n / J_STEP_ITEMS);
  if (by)
    rsplit_at_text(&g, s, by, most);
  else
    rsplit_at_space(&g, s, most);
  j_reverse(g.items, g.n);
  return j_list(x, J_LIST, g.items, g.n);
}

/* Between all characters, and at both ends. */
static jv replace_nothing(jx *x, const jstr *s, const jstr *to, int64_t most) {
  jbuf b = j_begin(x);
  size_t at = 0;
  for (int64_t i = 0; j_ok(x); i++) {
    size_t len = 0;
    if (most < 0 || i < most) j_put_str(&b, to);
    if (at == s->n) break;
    tok_utf8_decode(s->s + at, &len);
    j_put_part(&b, s, at, at + len);
    at += len;
  }
  return j_end(&b);
}

jv j_replace(jx *x, const jstr *s, const jstr *from, const jstr *to, int64_t most) {
  jbuf b = j_begin(x);
  size_t begin = 0, at;
  j_spend(x, s->n / J_STEP_ITEMS);
  if (!from->n) return replace_nothing(x, s, to, most);
  for (int64_t i = 0; (most < 0 || i < most) && j_ok(x) && (at = j_find(x, s, from, begin)) != SIZE_MAX; i++) {
    j_put_part(&b, s, begin, at);
    j_put_str(&b, to);
    begin = at + from->n;
  }
  j_put_part(&b, s, begin, s->n);
  return j_end(&b);
}

jv j_escape(jx *x, jv s) {
  static const char from[] = "&<>'\"";
  static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  const jstr *text = s.str;
  jbuf b = j_begin(x);
  if (text->is_markup) return s;
  for (size_t at = 0; at < text->n; at++) {
    const char *special = text->s[at] ? strchr(from, text->s[at]) : NULL;
    if (special)
      j_put_as(&b, to[special - from], strlen(to[special - from]), text);
    else
      j_put_part(&b, text, at, at + 1);
  }
  return j_markup(x, j_end(&b));
}

/* ---- cases ---- */

/* jinja2's title filter begins a word after white space and some marks alone; Python's method after whatever has no
 * case. */
static bool begins_word(uint32_t before, bool filter) {
  static const char marks[] = "-({[<";
  if (!filter) return !tok_is_cased(before);
  return (before < 128 && before && strchr(marks, (int)before)) || tok_is_space(before);
}

/* Returns whether no letter follows in the word. */
static bool ends_word(const jstr *s, size_t at) {
  for (size_t len; at < s->n; at += len) {
    uint32_t c = tok_utf8_decode(s->s + at, &len);
    if (!tok_is_case_ignorable(c)) return !tok_is_cased(c);
  }
  return true;
}

enum { CAPITAL_SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };

static size_t lower(uint32_t c, char out[TOK_CASE_BYTES]) {
  uint32_t made[2];
  size_t n = tok_lower(c, made), bytes = 0;
  for (size_t i = 0; i < n; i++) bytes += tok_utf8_encode(made[i], out + bytes);
  return bytes;
}

/* One character at a time: a letter's other case can have up to three characters, a small sigma is another one at a
 * word's end, and jinja2's title filter differs from Python's method in details. */
jv j_change_case(jx *x, const jstr *s, jcase to, bool filter) {
  jbuf b = j_begin(x);
  uint32_t before = ' ';
  bool behind_letter = false; /* in the word, to find its end */
  for (size_t at = 0, len; at < s->n && j_ok(x); at += len) {
    char made[TOK_CASE_BYTES];
    uint32_t c = tok_utf8_decode(s->s + at, &len);
    bool begins = to == J_TITLE ? begins_word(before, filter) : to == J_CAPITALIZE && at == 0;
    size_t n;
    if (to == J_UPPER || (begins && to == J_TITLE && filter)) /* jinja2 gives the first of a word upper case */
      n = tok_upper(c, made);
    else if (begins)
      n = tok_title(c, made);
    else
      n = lower(c == CAPITAL_SIGMA && behind_letter && ends_word(s, at + len) ? FINAL_SIGMA : c, made);
    if (n == len && !memcmp(made, s->s + at, n))
      j_put_part(&b, s, at, at + len);
    else
      j_put_as(&b, made, n, s);
    if (!tok_is_case_ignorable(c)) behind_letter = tok_is_cased(c);
    if (begins && to == J_TITLE && filter) behind_letter = false; /* and lower case to the rest by itself */
    before = c;
  }
  return filter && to == J_TITLE ? j_end(&b) : j_end_like(&b, s);
}
