/* SPDX-License-Identifier: Apache-2.0 */
/* Objects. The count of an object's rule is the place of the next property that may come, so that one state stands for
 * all sets of properties that are left: property p may come with counts from the one after the last required property
 * before p up to p, and sets the count to p + 1. Keys are a trie, in which a byte may come with the counts of the
 * properties whose keys continue with it.
 *
 * Other keys come after all properties. They are texts that are no property's key: copies of the trie's states, from
 * which other bytes lead to text. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "runtime/grammar/schema_impl.h"

typedef struct property {
  const char *key;
  char *spelled; /* as the inside of a string */
  size_t len;
  schema_set set;
  bool is_required;
  uint32_t rule;
  bool is_never;
} property;

typedef struct object {
  schema_maker *m;
  const schema_set *set;
  property *list;
  size_t num, room;
  schema_table by_key;
  uint32_t *least;   /* [num + 1]: see least_count */
  schema_set others; /* of other keys' values */
  bool is_open;      /* other keys may come */
  uint32_t owner;
  uint32_t behind, end, value_of_other;
} object;

/* ---- what there is ---- */

static bool has_key(const void *list, uint32_t number, const void *wanted) {
  return !strcmp(((const property *)list)[number].key, wanted);
}

static uint64_t hash_key(const char *key) { return tri_hash_bytes(TRI_HASH_SEED, key, strlen(key)); }

static property *find(const object *o, const char *key) {
  uint32_t number = schema_table_find(o->m, &o->by_key, hash_key(key), has_key, o->list, key);
  return number == UINT32_MAX ? NULL : &o->list[number];
}

static tri_status add_property(void *ctx, const char *key, const tri_json *value) {
  object *o = ctx;
  (void)value;
  TRI_CHECK(schema_work(o->m, 10 + strlen(key) / 8));
  if (find(o, key)) return TRI_OK;
  if (o->num == TRI_SCHEMA_MAX_PROPERTIES)
    return schema_fail(o->m, TRI_TOO_LARGE, o->set->nodes[0], "properties", "an object has more than %d properties",
                       TRI_SCHEMA_MAX_PROPERTIES);
  if (o->num == o->room) {
    size_t room = o->room ? 2 * o->room : 16;
    property *grown = tri_arena_alloc(o->m->arena, room, sizeof *grown);
    if (!grown) return TRI_NO_MEMORY;
    if (o->num) memcpy(grown, o->list, o->num * sizeof *grown);
    o->list = grown;
    o->room = room;
  }
  property *p = &o->list[o->num++];
  *p = (property){.key = key};
  TRI_CHECK(schema_table_add(o->m, &o->by_key, hash_key(key), (uint32_t)o->num - 1));
  return schema_spell(o->m, key, strlen(key), &p->spelled, &p->len);
}

static tri_status list_properties(object *o) {
  for (size_t i = 0; i < o->set->num; i++) {
    const tri_json *properties = tri_json_get(o->set->nodes[i], "properties");
    if (properties && tri_json_kind_of(properties) != TRI_JSON_OBJECT)
      return schema_fail(o->m, TRI_INVALID_ARGUMENT, o->set->nodes[i], "properties", "properties must be an object");
    if (properties) TRI_CHECK(tri_json_each(properties, add_property, o));
  }
  for (size_t i = 0; i < o->set->num; i++) {
    const tri_json *required = tri_json_get(o->set->nodes[i], "required");
    if (tri_json_kind_of(required) == TRI_JSON_BOOL) continue; /* draft 3's */
    for (size_t k = 0; k < tri_json_size(required); k++) {
      const char *key = tri_json_as_str(tri_json_at(required, k), NULL);
      if (!key)
        return schema_fail(o->m, TRI_INVALID_ARGUMENT, o->set->nodes[i], "required", "required must be a list of keys");
      TRI_CHECK(add_property(o, key, NULL));
      find(o, key)->is_required = true;
    }
  }
  return TRI_OK;
}

/* An object with properties is closed unless additionalProperties says otherwise. */
static tri_status look_at_others(object *o) {
  bool has_properties = false, says = false;
  o->is_open = true;
  for (size_t i = 0; i < o->set->num; i++) {
    const tri_json *others = tri_json_get(o->set->nodes[i], "additionalProperties");
    has_properties = has_properties || tri_json_size(tri_json_get(o->set->nodes[i], "properties"));
    says = says || others;
    if (others) TRI_CHECK(schema_set_add(o->m, &o->others, others));
    if (others && schema_is_false(others)) o->is_open = false;
  }
  if (has_properties && !says) o->is_open = false;
  return TRI_OK;
}

/* The schemas that hold for a property: its own in each schema that names it, else what that says of other keys. */
static tri_status find_sets(object *o) {
  for (size_t i = 0; i < o->num; i++) {
    property *p = &o->list[i];
    TRI_CHECK(schema_work(o->m, 10 * o->set->num));
    for (size_t k = 0; k < o->set->num; k++) {
      const tri_json *own = tri_json_get(tri_json_get(o->set->nodes[k], "properties"), p->key);
      if (!own) own = tri_json_get(o->set->nodes[k], "additionalProperties");
      if (own) TRI_CHECK(schema_set_add(o->m, &p->set, own));
    }
    TRI_CHECK(o->m->rule_of(o->m, &p->set, &p->rule, &p->is_never));
  }
  return TRI_OK;
}

/* ---- counts ---- */

/* The least count with which property number `at` may come; of `num` the end. */
static uint32_t least_count(const object *o, size_t at) { return o->least[at]; }

static tri_status list_least_counts(object *o) {
  o->least = tri_arena_alloc(o->m->arena, o->num + 1, sizeof *o->least);
  if (!o->least) return TRI_NO_MEMORY;
  for (size_t i = 0; i < o->num; i++) o->least[i + 1] = o->list[i].is_required ? (uint32_t)i + 1 : o->least[i];
  return TRI_OK;
}

enum { NO_KEY = UINT32_MAX - 1 };

/* The largest count with which another key may come. */
static uint32_t last_count(const object *o) {
  if (o->is_open) return UINT32_MAX;
  for (size_t i = o->num; i; i--)
    if (!o->list[i - 1].is_never) return (uint32_t)i - 1;
  return NO_KEY;
}

/* ---- keys ---- */

/* A node of the trie of keys: those from `first` to `last` of the order, equal in `len` bytes. */
typedef struct node {
  size_t first, last, len;
} node;

typedef struct keys {
  object *o;
  size_t *order;                   /* of properties by their spelling */
  uint32_t others;                 /* a guard; of other keys */
  uint32_t texts[TRI_TEXT_STATES]; /* of other keys that have left the trie */
} keys;

static int compare_spelled(const property *a, const property *b) {
  size_t len = a->len < b->len ? a->len : b->len;
  int order = len ? memcmp(a->spelled, b->spelled, len) : 0;
  return order ? order : (a->len > b->len) - (a->len < b->len);
}

/* A merge sort: qsort's comparison would not see the object. */
static void sort(const object *o, size_t *order, size_t *room, size_t num) {
  if (num < 2) return;
  size_t half = num / 2, i = 0, k = half, n = 0;
  sort(o, order, room, half);
  sort(o, order + half, room, num - half);
  while (i < half || k < num)
    room[n++] = k == num || (i < half && compare_spelled(&o->list[order[i]], &o->list[order[k]]) <= 0) ? order[i++]
                                                                                                       : order[k++];
  memcpy(order, room, num * sizeof *order);
}

static int compare_spans(const void *a, const void *b) {
  const tri_net_span *x = a, *y = b;
  return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* The counts with which one of the properties first .. last may come. */
static tri_status guard_of(const keys *k, size_t first, size_t last, uint32_t *guard) {
  const object *o = k->o;
  tri_net_span *spans = tri_calloc(last - first + 1, sizeof *spans);
  size_t num = 0, kept = 0;
  if (!spans) return TRI_NO_MEMORY;
  for (size_t i = first; i <= last; i++)
    if (!o->list[k->order[i]].is_never)
      spans[num++] = (tri_net_span){least_count(o, k->order[i]), (uint32_t)k->order[i]};
  if (num) qsort(spans, num, sizeof *spans, compare_spans);
  for (size_t i = 0; i < num; i++) {
    if (kept && spans[i].lo <= spans[kept - 1].hi + 1) {
      if (spans[i].hi > spans[kept - 1].hi) spans[kept - 1].hi = spans[i].hi;
    } else {
      spans[kept++] = spans[i];
    }
  }
  *guard = tri_net_add_guard(o->m->net, spans, kept);
  tri_free(spans);
  return schema_work(o->m, 10 + 10 * (last - first));
}

/* A property's key is whole: its value follows. */
static void add_value(const keys *k, size_t number, uint32_t from) {
  object *o = k->o;
  property *p = &o->list[number];
  tri_net *n = o->m->net;
  if (p->is_never) return;
  uint32_t may = tri_net_add_range(n, least_count(o, number), (uint32_t)number), quote = tri_net_add_state(n, o->owner);
  tri_net_add_edge(n, from, '"', '"', quote, (tri_net_count){may, TRI_NET_SET, (uint32_t)number + 1});
  uint32_t value = schema_space(o->m, tri_net_add_bytes(n, schema_space(o->m, quote), ":", 1, TRI_NET_ANY));
  tri_net_add_call(n, value, p->rule, o->behind, TRI_NET_ANY);
}

static size_t end_of_byte(const keys *k, const node *at, size_t from, uint8_t *byte) {
  size_t i = from;
  *byte = (uint8_t)k->o->list[k->order[from]].spelled[at->len];
  while (i <= at->last && (uint8_t)k->o->list[k->order[i]].spelled[at->len] == *byte) i++;
  return i;
}

/* Ways of a state of other keys, but for bytes with which a property's key continues. */
static void add_leaving(const keys *k, uint32_t other, tri_text_state text, const bool *skipped, bool ends) {
  tri_net *n = k->o->m->net;
  if (!other) return;
  tri_net_add_text_arcs(n, k->texts, text, other, skipped, TRI_NET_ANY);
  if (text == TRI_TEXT_BEFORE && !ends) tri_net_add_edge(n, other, '"', '"', k->o->value_of_other, TRI_NET_ANY);
}

/* A node of the trie with the states that stand for it: `key` of the properties' keys, `other` of other keys (0: none
 * come). */
typedef struct key_place {
  node at;
  uint32_t key, other;
  tri_text_state text;
} key_place;

static void go_on(const keys *k, key_place *p, uint8_t byte, uint32_t guard) {
  tri_net *n = k->o->m->net;
  uint32_t to = tri_net_add_state(n, k->o->owner), other_to = p->other ? tri_net_add_state(n, k->o->owner) : 0;
  tri_net_add_edge(n, p->key, byte, byte, to, (tri_net_count){guard, TRI_NET_KEEP, 0});
  if (p->other) tri_net_add_edge(n, p->other, byte, byte, other_to, TRI_NET_ANY);
  *p = (key_place){{p->at.first, p->at.last, p->at.len + 1}, to, other_to, tri_text_next(p->text, byte)};
}

/* Goes on with the bytes that all keys of a node have next, which need no guard: the edge to the node had it. Keys can
 * be long, and so this is no recursion. */
static tri_status add_common(const keys *k, key_place *p) {
  const property *first = &k->o->list[k->order[p->at.first]], *last = &k->o->list[k->order[p->at.last]];
  while (p->at.len < first->len && p->at.len < last->len &&
         first->spelled[p->at.len] == last->spelled[p->at.len]) { /* and so all between them */
    bool skipped[256] = {false};
    uint8_t byte = (uint8_t)first->spelled[p->at.len];
    uint32_t other = p->other;
    tri_text_state text = p->text;
    skipped[byte] = true;
    go_on(k, p, byte, 0);
    add_leaving(k, other, text, skipped, false);
    TRI_CHECK(schema_work(k->o->m, 10));
  }
  return TRI_OK;
}

static tri_status add_node(const keys *k, key_place p) {
  bool skipped[256] = {false};
  TRI_CHECK(add_common(k, &p));
  bool ends = k->o->list[k->order[p.at.first]].len == p.at.len; /* keys differ, so that one alone may */
  if (ends) add_value(k, k->order[p.at.first], p.key);
  for (size_t i = p.at.first + ends, next; i <= p.at.last; i = next) {
    key_place below = p;
    uint8_t byte;
    uint32_t guard;
    next = end_of_byte(k, &p.at, i, &byte);
    TRI_CHECK(guard_of(k, i, next - 1, &guard));
    below.at.first = i;
    below.at.last = next - 1;
    skipped[byte] = true;
    go_on(k, &below, byte, guard);
    TRI_CHECK(add_node(k, below));
  }
  add_leaving(k, p.other, p.text, skipped, ends);
  return schema_work(k->o->m, 20);
}

/* States of other keys that are no beginning of a property's, and what follows such a key. */
static tri_status add_other_keys(keys *k) {
  object *o = k->o;
  tri_net *n = o->m->net;
  uint32_t rule;
  bool is_never;
  TRI_CHECK(o->m->rule_of(o->m, &o->others, &rule, &is_never));
  if (is_never) {
    o->is_open = false;
    return TRI_OK;
  }
  o->value_of_other = tri_net_add_state(n, o->owner);
  uint32_t value = schema_space(o->m, tri_net_add_bytes(n, schema_space(o->m, o->value_of_other), ":", 1, TRI_NET_ANY));
  tri_net_add_call(n, value, rule, o->behind, TRI_NET_ANY);
  for (int i = 0; i < TRI_TEXT_STATES; i++) k->texts[i] = tri_net_add_state(n, o->owner);
  for (int i = 0; i < TRI_TEXT_STATES; i++)
    tri_net_add_text_arcs(n, k->texts, (tri_text_state)i, k->texts[i], NULL, TRI_NET_ANY);
  tri_net_add_edge(n, k->texts[TRI_TEXT_BEFORE], '"', '"', o->value_of_other, TRI_NET_ANY);
  k->others = tri_net_add_range(n, least_count(o, o->num), (uint32_t)o->num);
  return TRI_OK;
}

/* A key from `from` on, its quote first. */
static tri_status add_keys(object *o, uint32_t from) {
  keys k = {.o = o};
  tri_net *n = o->m->net;
  size_t *room = tri_arena_alloc(o->m->arena, 2 * o->num + 1, sizeof *room);
  if (!room) return TRI_NO_MEMORY;
  k.order = room + o->num;
  for (size_t i = 0; i < o->num; i++) k.order[i] = i;
  sort(o, k.order, room, o->num);
  if (o->is_open) TRI_CHECK(add_other_keys(&k));
  uint32_t key = tri_net_add_state(n, o->owner), other = 0;
  if (o->num) {
    uint32_t guard;
    TRI_CHECK(guard_of(&k, 0, o->num - 1, &guard));
    tri_net_add_edge(n, from, '"', '"', key, (tri_net_count){guard, TRI_NET_KEEP, 0});
  }
  if (o->is_open) {
    other = o->num ? tri_net_add_state(n, o->owner) : k.texts[TRI_TEXT_BEFORE];
    tri_net_add_edge(n, from, '"', '"', other, (tri_net_count){k.others, TRI_NET_SET, (uint32_t)o->num});
  }
  return o->num ? add_node(&k, (key_place){{0, o->num - 1, 0}, key, other, TRI_TEXT_BEFORE}) : TRI_OK;
}

/* ---- the object ---- */

/* minProperties and maxProperties are kept where keys are counted anyway, or where they change nothing. */
static tri_status check_counts(object *o, bool *is_never) {
  int64_t least = 0, most = INT64_MAX, required = 0, could = 0;
  TRI_CHECK(schema_bounds(o->m, o->set, "minProperties", "maxProperties", &least, &most));
  for (size_t i = 0; i < o->num; i++) {
    required += o->list[i].is_required;
    could += !o->list[i].is_never;
  }
  if (o->is_open) could = INT64_MAX;
  *is_never = required > most || could < least;
  if (*is_never || (least <= required && most >= could)) return TRI_OK;
  for (size_t i = 0; i < o->set->num; i++)
    for (int k = 0; k < 2; k++) {
      const char *keyword = k ? "maxProperties" : "minProperties";
      if (tri_json_get(o->set->nodes[i], keyword))
        return schema_fail(o->m, TRI_UNSUPPORTED, o->set->nodes[i], keyword, "%s cannot be kept here", keyword);
    }
  return TRI_OK;
}

tri_status schema_object(schema_maker *m, const schema_set *set, uint32_t *rule, bool *is_never) {
  object o = {.m = m, .set = set};
  TRI_CHECK(list_properties(&o));
  TRI_CHECK(look_at_others(&o));
  TRI_CHECK(list_least_counts(&o));
  TRI_CHECK(find_sets(&o));
  TRI_CHECK(check_counts(&o, is_never));
  for (size_t i = 0; i < o.num; i++) *is_never = *is_never || (o.list[i].is_required && o.list[i].is_never);
  if (*is_never) return TRI_OK;
  tri_net *n = m->net;
  *rule = o.owner = tri_net_add_rule(n, (uint32_t)o.num + 1);
  for (size_t i = 0; i < o.num; i++)
    if (o.list[i].is_required) tri_net_add_need(n, *rule, o.list[i].rule);
  uint32_t open = tri_net_add_state(n, *rule), comma = tri_net_add_state(n, *rule), next = tri_net_add_state(n, *rule);
  o.behind = tri_net_add_state(n, *rule);
  o.end = tri_net_add_state(n, *rule);
  if (!o.end) return TRI_OK; /* which tri_net_finish says */
  tri_net_set_final(n, o.end, 0);
  uint32_t enough = least_count(&o, o.num), last = last_count(&o);
  tri_net_add_edge(n, tri_net_first_state(n, *rule), '{', '{', open, TRI_NET_ANY);
  uint32_t first = schema_space(m, open), after = schema_space(m, o.behind);
  if (!enough) tri_net_add_edge(n, first, '}', '}', o.end, TRI_NET_ANY);
  tri_net_add_edge(n, after, '}', '}', o.end,
                   (tri_net_count){tri_net_add_range(n, enough, UINT32_MAX), TRI_NET_KEEP, 0});
  if (last == NO_KEY) return TRI_OK;
  tri_net_add_step(n, first, next, TRI_NET_ANY);
  tri_net_add_edge(n, after, ',', ',', comma, (tri_net_count){tri_net_add_range(n, 0, last), TRI_NET_KEEP, 0});
  tri_net_add_step(n, schema_space(m, comma), next, TRI_NET_ANY);
  return add_keys(&o, next);
}
