/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/schema_impl.h"

/* The schemas of item number `at`: of prefixItems, or of draft 7's list of items, and of items after those. */
static tri_status schemas_of_item(schema_maker *m, const schema_set *set, size_t at, schema_set *out) {
  TRI_CHECK(schema_work(m, 10 + 10 * set->num));
  for (size_t i = 0; i < set->num; i++) {
    const tri_json *node = set->nodes[i], *prefix = tri_json_get(node, "prefixItems"),
                   *items = tri_json_get(node, "items");
    if (!prefix && tri_json_kind_of(items) == TRI_JSON_ARRAY) {
      prefix = items;
      items = tri_json_get(node, "additionalItems");
    }
    const tri_json *own = at < tri_json_size(prefix) ? tri_json_at(prefix, at) : items;
    if (own) TRI_CHECK(schema_set_add(m, out, own));
  }
  return TRI_OK;
}

static size_t longest_prefix(const schema_set *set) {
  size_t longest = 0;
  for (size_t i = 0; i < set->num; i++) {
    const tri_json *prefix = tri_json_get(set->nodes[i], "prefixItems"), *items = tri_json_get(set->nodes[i], "items");
    size_t own = tri_json_size(prefix ? prefix : tri_json_kind_of(items) == TRI_JSON_ARRAY ? items : NULL);
    if (own > longest) longest = own;
  }
  return longest;
}

/* An array that is being built: its states before an item and after one. */
typedef struct building {
  schema_maker *m;
  const schema_set *set;
  uint32_t end;
  int64_t least, most; /* items */
} building;

static bool may_close(const building *b, int64_t items) { return items >= b->least; }

/* Items after those with a schema of their own, of which there are `done`. They are counted from there. */
static tri_status add_others(const building *b, uint32_t behind, uint32_t first, int64_t done) {
  tri_net *n = b->m->net;
  schema_set others = {0};
  uint32_t rule;
  bool is_never;
  if (done >= b->most) return TRI_OK;
  TRI_CHECK(schemas_of_item(b->m, b->set, (size_t)done, &others));
  TRI_CHECK(b->m->rule_of(b->m, &others, &rule, &is_never));
  if (is_never) return TRI_OK;
  uint32_t owner = tri_net_state_at(n, behind)->rule, item = tri_net_add_state(n, owner);
  uint32_t fewer = b->most == INT64_MAX ? 0 : tri_net_add_range(n, 0, (uint32_t)(b->most - done - 1));
  uint32_t enough = b->least > done ? tri_net_add_range(n, (uint32_t)(b->least - done), UINT32_MAX) : 0;
  uint32_t after = schema_space(b->m, item);
  uint32_t comma = tri_net_add_state(n, owner), next = schema_space(b->m, comma);
  tri_net_add_edge(n, after, ',', ',', comma, (tri_net_count){fewer, TRI_NET_KEEP, 0});
  tri_net_add_call(n, next, rule, item, (tri_net_count){0, TRI_NET_ADD, 0});
  tri_net_add_edge(n, after, ']', ']', b->end, (tri_net_count){enough, TRI_NET_KEEP, 0});
  if (first) {
    tri_net_add_call(n, first, rule, item, (tri_net_count){0, TRI_NET_ADD, 0});
    return TRI_OK;
  }
  tri_net_add_edge(n, behind, ',', ',', comma, TRI_NET_ANY);
  return TRI_OK;
}

tri_status schema_array(schema_maker *m, const schema_set *set, uint32_t *rule, bool *is_never) {
  building b = {.m = m, .set = set, .most = INT64_MAX};
  size_t prefix = longest_prefix(set), at = 0;
  *is_never = false;
  TRI_CHECK(schema_bounds(m, set, "minItems", "maxItems", &b.least, &b.most));
  if (b.most != INT64_MAX && b.most >= TRI_NET_MAX_COUNT) b.most = INT64_MAX;
  if (b.least >= TRI_NET_MAX_COUNT || b.least > b.most) {
    *is_never = true;
    return TRI_OK;
  }
  int64_t top = b.most == INT64_MAX ? b.least : b.most;
  *rule = tri_net_add_rule(m->net, (uint32_t)top + 1);
  uint32_t open = tri_net_add_state(m->net, *rule);
  b.end = tri_net_add_state(m->net, *rule);
  tri_net_set_final(m->net, b.end, 0);
  tri_net_add_edge(m->net, tri_net_first_state(m->net, *rule), '[', '[', open, TRI_NET_ANY);
  uint32_t first = schema_space(m, open), behind = first;
  for (; at < prefix && (int64_t)at < b.most; at++) {
    schema_set own = {0};
    uint32_t item;
    bool never;
    TRI_CHECK(schemas_of_item(m, set, at, &own));
    if (may_close(&b, (int64_t)at)) tri_net_add_edge(m->net, behind, ']', ']', b.end, TRI_NET_ANY);
    TRI_CHECK(m->rule_of(m, &own, &item, &never));
    if (never) return TRI_OK;
    uint32_t from = at ? schema_space(m, tri_net_add_bytes(m->net, behind, ",", 1, TRI_NET_ANY)) : first;
    uint32_t to = tri_net_add_state(m->net, *rule);
    tri_net_add_call(m->net, from, item, to, TRI_NET_ANY);
    behind = schema_space(m, to);
  }
  if (may_close(&b, (int64_t)at)) tri_net_add_edge(m->net, behind, ']', ']', b.end, TRI_NET_ANY);
  if (!behind || !tri_net_is_whole(m->net)) return TRI_OK; /* which tri_net_finish says */
  return add_others(&b, behind, at ? 0 : first, (int64_t)at);
}
