/* SPDX-License-Identifier: Apache-2.0 */
/* The compiler of schemas, what all of its parts need: errors, the limit of work, sets, bounds, white space. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "runtime/grammar/schema_impl.h"

enum { MOST_SPACE = 40 };

/* ---- errors ---- */

typedef struct search {
  const tri_json *wanted;
  tri_buf path;
  bool found;
} search;

static tri_status search_in(search *s, const tri_json *at);

/* Adds a part of a JSON pointer (RFC 6901), where / and ~ have escapes. */
static void add_part(tri_buf *b, const char *key) {
  tri_text_add(b, "/", 1);
  for (; *key; key++) {
    bool escaped = *key == '~' || *key == '/';
    tri_text_add(b, *key == '/' ? "~1" : escaped ? "~0" : key, escaped ? 2 : 1);
  }
}

static tri_status search_member(void *ctx, const char *key, const tri_json *value) {
  search *s = ctx;
  size_t len = s->path.len;
  add_part(&s->path, key);
  tri_status st = search_in(s, value);
  if (st == TRI_OK) s->path.len = len;
  return st;
}

/* TRI_ABORTED: it was found. */
static tri_status search_in(search *s, const tri_json *at) {
  if (at == s->wanted) return TRI_ABORTED;
  if (tri_json_kind_of(at) == TRI_JSON_OBJECT) return tri_json_each(at, search_member, s);
  for (size_t i = 0; tri_json_kind_of(at) == TRI_JSON_ARRAY && i < tri_json_size(at); i++) {
    char number[24];
    snprintf(number, sizeof number, "%zu", i);
    TRI_CHECK(search_member(s, number, tri_json_at(at, i)));
  }
  return TRI_OK;
}

tri_status schema_fail(const schema_maker *m, tri_status st, const tri_json *node, const char *keyword, const char *fmt,
                       ...) {
  char message[400], field[TRI_ERROR_FIELD];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  search s = {.wanted = node};
  if (search_in(&s, m->root) != TRI_ABORTED) s.path.len = 0;
  if (keyword) add_part(&s.path, keyword);
  if (s.path.len < sizeof field)
    snprintf(field, sizeof field, "%.*s", (int)s.path.len, s.path.len ? (char *)s.path.data : "");
  else
    snprintf(field, sizeof field, "%.40s...%s", (char *)s.path.data, (char *)s.path.data + s.path.len - 40);
  tri_buf_free(&s.path);
  return tri_fail(m->err, st, field, "%s", message);
}

/* ---- work ---- */

tri_status schema_work(schema_maker *m, size_t steps) {
  uint32_t arcs = tri_net_num_arcs(m->net);
  m->work += steps + (uint64_t)(arcs - m->arcs) * STEPS_OF_ARC;
  m->arcs = arcs;
  if (m->work > m->most_work)
    return schema_fail(m, TRI_TOO_LARGE, m->at, NULL, "the schema takes too long to compile: more than %llu steps",
                       (unsigned long long)m->most_work);
  return tri_net_check(m->net, m->err);
}

/* ---- sets ---- */

tri_status schema_set_add(schema_maker *m, schema_set *set, const tri_json *node) {
  for (size_t i = 0; i < set->num; i++)
    if (set->nodes[i] == node) return schema_work(m, 1 + i / 8);
  if (set->num == TRI_SCHEMA_MAX_SET)
    return schema_fail(m, TRI_TOO_LARGE, m->at, NULL, "more than %d schemas must hold at once", TRI_SCHEMA_MAX_SET);
  if (set->num == set->room) {
    size_t room = set->room ? 2 * set->room : 4;
    const tri_json **grown = tri_arena_alloc(m->arena, room, sizeof *grown);
    if (!grown) return TRI_NO_MEMORY;
    if (set->num) memcpy(grown, set->nodes, set->num * sizeof *grown);
    set->nodes = grown;
    set->room = room;
  }
  set->nodes[set->num++] = node;
  return schema_work(m, 2 + set->num / 8);
}

bool schema_is_false(const tri_json *node) {
  bool value = true;
  return tri_json_as_bool(node, &value) && !value;
}

/* ---- bounds ---- */

tri_status schema_read_count(const schema_maker *m, const tri_json *node, const char *keyword, int64_t *out) {
  const tri_json *v = tri_json_get(node, keyword);
  int64_t n;
  double x;
  if (!v) return TRI_OK;
  if (tri_json_as_int(v, &n) && n >= 0) {
    *out = n;
    return TRI_OK;
  }
  if (tri_json_as_num(v, &x) && x >= 0 && x <= 1e15 && x == (double)(int64_t)x) {
    *out = (int64_t)x;
    return TRI_OK;
  }
  return schema_fail(m, TRI_INVALID_ARGUMENT, node, keyword, "%s must be an integer from 0", keyword);
}

tri_status schema_bounds(const schema_maker *m, const schema_set *set, const char *least_key, const char *most_key,
                         int64_t *least, int64_t *most) {
  for (size_t i = 0; i < set->num; i++) {
    int64_t lo = *least, hi = *most;
    TRI_CHECK(schema_read_count(m, set->nodes[i], least_key, &lo));
    TRI_CHECK(schema_read_count(m, set->nodes[i], most_key, &hi));
    if (lo > *least) *least = lo;
    if (hi < *most) *most = hi;
  }
  return TRI_OK;
}

/* ---- white space ---- */

static void make_white_space(schema_maker *m) {
  m->white_space = tri_net_add_rule(m->net, MOST_SPACE);
  uint32_t first = tri_net_first_state(m->net, m->white_space), line = tri_net_add_state(m->net, m->white_space);
  uint32_t blank = tri_net_add_state(m->net, m->white_space);
  tri_net_count more = {tri_net_add_range(m->net, 0, MOST_SPACE - 1), TRI_NET_ADD, 0};
  tri_net_add_edge(m->net, first, ' ', ' ', blank, TRI_NET_ANY);
  tri_net_add_edge(m->net, first, '\n', '\n', line, TRI_NET_ANY);
  tri_net_add_edge(m->net, line, ' ', ' ', line, more);
  tri_net_add_edge(m->net, line, '\t', '\t', line, more);
  tri_net_set_final(m->net, first, 0);
  tri_net_set_final(m->net, blank, 0);
  tri_net_set_final(m->net, line, 0);
}

uint32_t schema_space(schema_maker *m, uint32_t from) {
  if (m->options.no_white_space || !from) return from;
  if (!m->white_space) make_white_space(m);
  uint32_t to = tri_net_add_state(m->net, tri_net_state_at(m->net, from)->rule);
  tri_net_add_call(m->net, from, m->white_space, to, TRI_NET_ANY);
  return to;
}
