/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/json/json_writer.h"
#include "runtime/grammar/schema_impl.h"

/* ---- texts ---- */

/* The next character of UTF-8, which a document's texts are. */
static uint32_t take_character(const uint8_t **at, const uint8_t *end) {
  uint32_t c = *(*at)++;
  int rest = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;
  if (rest) c &= 0x3fu >> rest;
  for (; rest && *at < end; rest--) c = c << 6 | (*(*at)++ & 0x3f);
  return c;
}

tri_status schema_spell(schema_maker *m, const char *text, size_t len, char **out, size_t *out_len) {
  const uint8_t *at = (const uint8_t *)text, *end = at + len;
  size_t room;
  if (!tri_size_mul(len, 6, &room)) return TRI_OVERFLOW;
  *out = tri_arena_alloc(m->arena, room + 1, 1);
  if (!*out) return TRI_NO_MEMORY;
  *out_len = 0;
  TRI_CHECK(schema_work(m, 2 + len));
  while (at < end) *out_len += (size_t)tri_text_spell(take_character(&at, end), *out + *out_len);
  return TRI_OK;
}

/* ---- literals ---- */

int schema_type_of(const tri_json *value) {
  double x;
  switch (tri_json_kind_of(value)) {
  case TRI_JSON_NULL: return NULL_TYPE;
  case TRI_JSON_BOOL: return BOOL_TYPE;
  case TRI_JSON_INT: return INTEGER_TYPE;
  case TRI_JSON_REAL:
    return tri_json_as_num(value, &x) && x < 1e15 && x > -1e15 && x == (double)(int64_t)x ? INTEGER_TYPE : NUMBER_TYPE;
  case TRI_JSON_STRING: return STRING_TYPE;
  case TRI_JSON_ARRAY: return ARRAY_TYPE;
  case TRI_JSON_OBJECT: return OBJECT_TYPE;
  }
  return 0;
}

static tri_status look_up(void *ctx, const char *key, const tri_json *value) {
  const tri_json *other = tri_json_get(ctx, key);
  return other && schema_equal(value, other) ? TRI_OK : TRI_NOT_FOUND;
}

bool schema_equal(const tri_json *a, const tri_json *b) {
  tri_json_kind ka = tri_json_kind_of(a), kb = tri_json_kind_of(b);
  bool numbers = (ka == TRI_JSON_INT || ka == TRI_JSON_REAL) && (kb == TRI_JSON_INT || kb == TRI_JSON_REAL);
  if (numbers) {
    int64_t i, k;
    double x, y;
    if (tri_json_as_int(a, &i) && tri_json_as_int(b, &k)) return i == k;
    return tri_json_as_num(a, &x) && tri_json_as_num(b, &y) && x == y;
  }
  if (ka != kb) return false;
  if (ka == TRI_JSON_BOOL) {
    bool x = false, y = false;
    tri_json_as_bool(a, &x);
    tri_json_as_bool(b, &y);
    return x == y;
  }
  if (ka == TRI_JSON_STRING) {
    size_t la = 0, lb = 0;
    const char *x = tri_json_as_str(a, &la), *y = tri_json_as_str(b, &lb);
    return la == lb && !memcmp(x, y, la);
  }
  if (ka == TRI_JSON_NULL) return true;
  if (tri_json_size(a) != tri_json_size(b)) return false;
  if (ka == TRI_JSON_OBJECT) return tri_json_each(a, look_up, (void *)b) == TRI_OK;
  for (size_t i = 0; i < tri_json_size(a); i++)
    if (!schema_equal(tri_json_at(a, i), tri_json_at(b, i))) return false;
  return true;
}

/* The parts of a value. */
typedef struct counting {
  size_t parts;
} counting;

static tri_status count_member(void *ctx, const char *key, const tri_json *value);

static tri_status count_parts(counting *c, const tri_json *value) {
  size_t len = 0;
  if (tri_json_as_str(value, &len)) c->parts += len / 64;
  c->parts++;
  if (tri_json_kind_of(value) == TRI_JSON_OBJECT) return tri_json_each(value, count_member, c);
  for (size_t i = 0; tri_json_kind_of(value) == TRI_JSON_ARRAY && i < tri_json_size(value); i++)
    TRI_CHECK(count_parts(c, tri_json_at(value, i)));
  return TRI_OK;
}

static tri_status count_member(void *ctx, const char *key, const tri_json *value) {
  (void)key;
  return count_parts(ctx, value);
}

tri_status schema_is_equal(schema_maker *m, const tri_json *a, const tri_json *b, bool *equal) {
  counting c = {0};
  tri_json_kind kind = tri_json_kind_of(a);
  *equal = false;
  if (kind == tri_json_kind_of(b) && (kind == TRI_JSON_ARRAY || kind == TRI_JSON_OBJECT || kind == TRI_JSON_STRING) &&
      tri_json_size(a) == tri_json_size(b))
    TRI_CHECK(count_parts(&c, a));
  TRI_CHECK(schema_work(m, 6 + 5 * c.parts));
  *equal = schema_equal(a, b);
  return TRI_OK;
}

typedef struct writing {
  schema_maker *m;
  uint32_t at;
  size_t members;
} writing;

static tri_status write_text(schema_maker *m, const char *text, size_t len, uint32_t *at) {
  char *spelled;
  size_t n;
  TRI_CHECK(schema_spell(m, text, len, &spelled, &n));
  *at = tri_net_add_bytes(m->net, *at, "\"", 1, TRI_NET_ANY);
  *at = tri_net_add_bytes(m->net, *at, spelled, n, TRI_NET_ANY);
  *at = tri_net_add_bytes(m->net, *at, "\"", 1, TRI_NET_ANY);
  return TRI_OK;
}

static tri_status write_member(void *ctx, const char *key, const tri_json *value) {
  writing *w = ctx;
  w->at = tri_net_add_bytes(w->m->net, w->at, w->members++ ? "," : "{", 1, TRI_NET_ANY);
  w->at = schema_space(w->m, w->at);
  TRI_CHECK(write_text(w->m, key, strlen(key), &w->at));
  w->at = schema_space(w->m, w->at);
  w->at = schema_space(w->m, tri_net_add_bytes(w->m->net, w->at, ":", 1, TRI_NET_ANY));
  TRI_CHECK(schema_literal(w->m, w->at, value, &w->at));
  w->at = schema_space(w->m, w->at);
  return TRI_OK;
}

static tri_status write_object(schema_maker *m, uint32_t from, const tri_json *value, uint32_t *to) {
  writing w = {m, from, 0};
  TRI_CHECK(tri_json_each(value, write_member, &w));
  if (!w.members) w.at = schema_space(m, tri_net_add_bytes(m->net, w.at, "{", 1, TRI_NET_ANY));
  *to = tri_net_add_bytes(m->net, w.at, "}", 1, TRI_NET_ANY);
  return TRI_OK;
}

static tri_status write_array(schema_maker *m, uint32_t from, const tri_json *value, uint32_t *to) {
  uint32_t at = schema_space(m, tri_net_add_bytes(m->net, from, "[", 1, TRI_NET_ANY));
  for (size_t i = 0; i < tri_json_size(value); i++) {
    if (i) at = schema_space(m, tri_net_add_bytes(m->net, at, ",", 1, TRI_NET_ANY));
    TRI_CHECK(schema_literal(m, at, tri_json_at(value, i), &at));
    at = schema_space(m, at);
  }
  *to = tri_net_add_bytes(m->net, at, "]", 1, TRI_NET_ANY);
  return TRI_OK;
}

tri_status schema_literal(schema_maker *m, uint32_t from, const tri_json *value, uint32_t *to) {
  size_t len = 0;
  const char *text = tri_json_as_str(value, &len);
  *to = from;
  TRI_CHECK(schema_work(m, 5));
  if (text) return write_text(m, text, len, to);
  if (tri_json_kind_of(value) == TRI_JSON_OBJECT) return write_object(m, from, value, to);
  if (tri_json_kind_of(value) == TRI_JSON_ARRAY) return write_array(m, from, value, to);
  tri_buf b = {0};
  tri_json_add_value(&b, value, false);
  *to = tri_net_add_bytes(m->net, from, b.data, b.len, TRI_NET_ANY);
  tri_buf_free(&b);
  return TRI_OK;
}

/* ---- any value ---- */

/* What schema_array and schema_object make of a schema that says nothing else, for values one level less deep. */
static tri_status add_lists(schema_maker *m, uint32_t inner, uint32_t from, uint32_t to) {
  tri_net *n = m->net;
  uint32_t owner = tri_net_state_at(n, from)->rule, item = tri_net_add_state(n, owner), behind;
  uint32_t begin = schema_space(m, tri_net_add_bytes(n, from, "[", 1, TRI_NET_ANY));
  tri_net_add_call(n, begin, inner, item, TRI_NET_ANY);
  behind = schema_space(m, item);
  uint32_t next = schema_space(m, tri_net_add_bytes(n, behind, ",", 1, TRI_NET_ANY));
  tri_net_add_call(n, next, inner, item, TRI_NET_ANY);
  tri_net_add_edge(n, begin, ']', ']', to, TRI_NET_ANY);
  tri_net_add_edge(n, behind, ']', ']', to, TRI_NET_ANY);
  return TRI_OK;
}

static void add_objects(schema_maker *m, uint32_t inner, uint32_t from, uint32_t to) {
  tri_net *n = m->net;
  uint32_t owner = tri_net_state_at(n, from)->rule, key = tri_net_add_state(n, owner),
           item = tri_net_add_state(n, owner);
  uint32_t begin = schema_space(m, tri_net_add_bytes(n, from, "{", 1, TRI_NET_ANY));
  tri_net_add_call(n, begin, m->any_string, key, TRI_NET_ANY);
  uint32_t value = schema_space(m, tri_net_add_bytes(n, schema_space(m, key), ":", 1, TRI_NET_ANY));
  tri_net_add_call(n, value, inner, item, TRI_NET_ANY);
  uint32_t behind = schema_space(m, item);
  uint32_t next = schema_space(m, tri_net_add_bytes(n, behind, ",", 1, TRI_NET_ANY));
  tri_net_add_call(n, next, m->any_string, key, TRI_NET_ANY);
  tri_net_add_edge(n, begin, '}', '}', to, TRI_NET_ANY);
  tri_net_add_edge(n, behind, '}', '}', to, TRI_NET_ANY);
}

static void make_any_string(schema_maker *m) {
  m->any_string = tri_net_add_rule(m->net, 0);
  uint32_t text = tri_net_add_state(m->net, m->any_string);
  tri_net_add_edge(m->net, tri_net_first_state(m->net, m->any_string), '"', '"', text, TRI_NET_ANY);
  tri_net_set_final(m->net, tri_net_add_text(m->net, text, 0, 0), 0);
}

tri_status schema_any(schema_maker *m, int depth, uint32_t *rule) {
  static const char *const words[] = {"null", "true", "false"};
  if (!m->any_string) make_any_string(m);
  if (m->any[depth]) {
    *rule = m->any[depth];
    return TRI_OK;
  }
  uint32_t own = m->any[depth] = tri_net_add_rule(m->net, 0), inner = 0;
  uint32_t from = tri_net_first_state(m->net, own), to = tri_net_add_state(m->net, own);
  if (!to) return tri_net_is_whole(m->net) ? TRI_INTERNAL : TRI_OK; /* which tri_net_finish says */
  tri_net_set_final(m->net, to, 0);
  tri_net_add_call(m->net, from, m->any_string, to, TRI_NET_ANY);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    tri_net_add_step(m->net, tri_net_add_bytes(m->net, from, words[i], strlen(words[i]), TRI_NET_ANY), to, TRI_NET_ANY);
  TRI_CHECK(schema_numbers(m, &(schema_set){0}, false, from, to));
  *rule = own;
  if (!depth) return TRI_OK;
  TRI_CHECK(schema_any(m, depth - 1, &inner));
  TRI_CHECK(add_lists(m, inner, from, to));
  add_objects(m, inner, from, to);
  return TRI_OK;
}
