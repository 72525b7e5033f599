/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: lengths, and one pattern, which may be a format's. */
#include <string.h>

#include "runtime/grammar/regex_impl.h"
#include "runtime/grammar/schema_impl.h"

/* ---- lengths alone ---- */

static void add_lengths(schema_maker *m, int64_t least, int64_t most, uint32_t from, uint32_t to) {
  bool is_free = !least && most == INT64_MAX;
  int64_t top = most == INT64_MAX ? least : most;
  uint32_t rule = is_free && m->any_string ? m->any_string : 0;
  if (!rule) {
    rule = tri_net_add_rule(m->net, is_free ? 0 : (uint32_t)top + 1);
    uint32_t text = tri_net_add_state(m->net, rule);
    uint32_t inside = most == INT64_MAX || !most ? 0 : tri_net_add_range(m->net, 0, (uint32_t)most - 1);
    uint32_t ends =
        is_free ? 0 : tri_net_add_range(m->net, (uint32_t)least, most == INT64_MAX ? UINT32_MAX : (uint32_t)most);
    tri_net_add_edge(m->net, tri_net_first_state(m->net, rule), '"', '"', text, TRI_NET_ANY);
    if (!most) {
      uint32_t end = tri_net_add_state(m->net, rule);
      tri_net_add_edge(m->net, text, '"', '"', end, TRI_NET_ANY);
      tri_net_set_final(m->net, end, 0);
    } else {
      tri_net_set_final(m->net, tri_net_add_text(m->net, text, inside, ends), 0);
    }
  }
  if (is_free) m->any_string = rule;
  tri_net_add_call(m->net, from, rule, to, TRI_NET_ANY);
}

/* ---- patterns ---- */

/* The one pattern of a set, and the keyword that has it. */
typedef struct pattern {
  const tri_json *node;
  const char *keyword;
  const char *text; /* NULL: there is none */
  size_t len;
} pattern;

static tri_status take_pattern(const schema_maker *m, const tri_json *node, const char *keyword, const char *text,
                               size_t len, pattern *p) {
  if (p->text && (p->len != len || memcmp(p->text, text, len)))
    return schema_fail(m, TRI_UNSUPPORTED, node, keyword,
                       "%s cannot be kept beside another pattern or format of the same text", keyword);
  *p = (pattern){node, keyword, text, len};
  return TRI_OK;
}

static tri_status find_pattern(schema_maker *m, const schema_set *set, pattern *p) {
  for (size_t i = 0; i < set->num; i++) {
    const tri_json *node = set->nodes[i], *own = tri_json_get(node, "pattern");
    const char *name = tri_json_get_str(node, "format"), *of_format = name ? schema_format_pattern(name) : NULL;
    size_t len = 0;
    const char *text = tri_json_as_str(own, &len);
    if (own && !text) return schema_fail(m, TRI_INVALID_ARGUMENT, node, "pattern", "pattern must be a text");
    TRI_CHECK(schema_work(m, 30 + len / 16));
    if (text) TRI_CHECK(take_pattern(m, node, "pattern", text, len, p));
    if (of_format) TRI_CHECK(take_pattern(m, node, "format", of_format, strlen(of_format), p));
  }
  return TRI_OK;
}

static tri_status make_pattern(expr_context *x, tri_net *net, const pattern *p, int64_t least, int64_t most,
                               uint32_t *rule, bool *is_never) {
  const expr *e;
  regex_ways ways = {0};
  TRI_CHECK(regex_read(x, p->text, p->len, &e));
  TRI_CHECK(regex_split(x, e, &ways));
  return regex_string_rule(x, net, &ways, least, most, rule, is_never);
}

static tri_status add_pattern(schema_maker *m, const pattern *p, int64_t least, int64_t most, uint32_t from,
                              uint32_t to, bool *any) {
  tri_error inner = {0};
  uint64_t left = m->most_work > m->work ? m->most_work - m->work : 0;
  expr_context x = {
      .arena = m->arena, .err = &inner, .place_name = "character", .most_work = left, .categories = m->categories};
  uint32_t rule;
  bool is_never;
  tri_status st = make_pattern(&x, m->net, p, least, most, &rule, &is_never);
  m->categories = x.categories;
  m->work += x.work;
  m->arcs = tri_net_num_arcs(m->net); /* which that work has counted */
  if (st != TRI_OK) return inner.message[0] ? schema_fail(m, st, p->node, p->keyword, "%s", inner.message) : st;
  if (is_never) return TRI_OK;
  tri_net_add_call(m->net, from, rule, to, TRI_NET_ANY);
  *any = true;
  return schema_work(m, 0);
}

tri_status schema_string(schema_maker *m, const schema_set *set, uint32_t from, uint32_t to, bool *any) {
  int64_t least = 0, most = INT64_MAX;
  pattern p = {0};
  TRI_CHECK(schema_bounds(m, set, "minLength", "maxLength", &least, &most));
  TRI_CHECK(find_pattern(m, set, &p));
  if (most >= TRI_NET_MAX_COUNT) most = INT64_MAX;
  if (least > most || least >= TRI_NET_MAX_COUNT) return TRI_OK;
  if (p.text) return add_pattern(m, &p, least, most, from, to, any);
  add_lengths(m, least, most, from, to);
  *any = true;
  return TRI_OK;
}
