/* SPDX-License-Identifier: Apache-2.0 */
/* $ref, allOf, anyOf and oneOf: a conjunction becomes the sets of plain schemas of which one must hold. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/grammar/schema_impl.h"

enum { MAX_BRANCHES = 1000, STEPS_OF_BRANCH = 20 };

/* ---- references within the document ---- */

typedef struct anchor {
  schema_maker *m;
  const char *name;
  const tri_json *found;
} anchor;

static tri_status look_for_anchor(void *ctx, const char *key, const tri_json *value) {
  anchor *a = ctx;
  (void)key;
  if (a->found) return TRI_OK;
  TRI_CHECK(schema_work(a->m, 12));
  const char *own = tri_json_get_str(value, "$anchor");
  if (own && !strcmp(own, a->name)) {
    a->found = value;
    return TRI_OK;
  }
  if (tri_json_kind_of(value) == TRI_JSON_OBJECT) return tri_json_each(value, look_for_anchor, a);
  for (size_t i = 0; tri_json_kind_of(value) == TRI_JSON_ARRAY && i < tri_json_size(value); i++)
    TRI_CHECK(look_for_anchor(a, "", tri_json_at(value, i)));
  return TRI_OK;
}

/* A part of a pointer without its escapes of JSON pointers and of URIs. */
static bool read_part(const char **at, char *out, size_t room) {
  size_t n = 0;
  const char *p = *at;
  while (*p && *p != '/') {
    char c = *p++;
    if (c == '%' && strchr("0123456789abcdefABCDEF", p[0]) && p[0] && strchr("0123456789abcdefABCDEF", p[1]) && p[1]) {
      const char hex[] = {p[0], p[1], 0};
      c = (char)strtol(hex, NULL, 16);
      p += 2;
    }
    if (c == '~' && (*p == '0' || *p == '1')) c = *p++ == '0' ? '~' : '/';
    if (n + 1 >= room) return false;
    out[n++] = c;
  }
  out[n] = 0;
  *at = *p ? p + 1 : p;
  return true;
}

static const tri_json *follow(const tri_json *at, const char *pointer) {
  char part[512];
  while (at && *pointer) {
    char *end;
    if (!read_part(&pointer, part, sizeof part)) return NULL;
    if (tri_json_kind_of(at) == TRI_JSON_ARRAY) {
      unsigned long i = strtoul(part, &end, 10);
      at = *part && !*end && i < tri_json_size(at) ? tri_json_at(at, i) : NULL;
    } else {
      at = tri_json_get(at, part);
    }
  }
  return at;
}

static tri_status resolve(schema_maker *m, const tri_json *node, const tri_json **out) {
  const char *ref = tri_json_get_str(node, "$ref");
  const tri_json *found = NULL;
  if (!ref) return schema_fail(m, TRI_INVALID_ARGUMENT, node, "$ref", "$ref must be a text");
  if (ref[0] != '#')
    return schema_fail(m, TRI_UNSUPPORTED, node, "$ref",
                       "only references within the schema are followed, which begin with #");
  TRI_CHECK(schema_work(m, 10 + strlen(ref)));
  if (!ref[1]) {
    found = m->root;
  } else if (ref[1] == '/') {
    found = follow(m->root, ref + 2);
  } else {
    anchor a = {.m = m, .name = ref + 1};
    TRI_CHECK(look_for_anchor(&a, "", m->root));
    found = a.found;
  }
  if (!found) return schema_fail(m, TRI_INVALID_ARGUMENT, node, "$ref", "nothing is at %.80s", ref);
  *out = found;
  return TRI_OK;
}

/* ---- alternatives ---- */

/* A set that is being expanded: nodes before `next` are plain, or have been looked at. */
typedef struct expansion {
  schema_set set;
  size_t next;
} expansion;

typedef struct expanding {
  schema_take *take;
  void *ctx;
  int left;
} expanding;

static tri_status expand(schema_maker *m, expanding *e, expansion at);

static tri_status copy(schema_maker *m, const expansion *from, expansion *to) {
  *to = (expansion){.next = from->next};
  to->set.num = from->set.num;
  to->set.room = from->set.num + 4;
  to->set.nodes = tri_arena_alloc(m->arena, to->set.room, sizeof *to->set.nodes);
  if (!to->set.nodes) return TRI_NO_MEMORY;
  if (from->set.num) memcpy(to->set.nodes, from->set.nodes, from->set.num * sizeof *to->set.nodes);
  return schema_work(m, STEPS_OF_BRANCH + from->set.num);
}

static tri_status check_list(const schema_maker *m, const tri_json *node, const char *keyword, const tri_json *list) {
  if (tri_json_kind_of(list) == TRI_JSON_ARRAY && tri_json_size(list)) return TRI_OK;
  return schema_fail(m, TRI_INVALID_ARGUMENT, node, keyword, "%s must be a list of schemas", keyword);
}

/* ---- whether the branches of oneOf exclude each other ---- */

typedef struct facts {
  int num;        /* alternatives */
  schema_set set; /* of the only one */
} facts;

static tri_status note_alternative(schema_maker *m, void *ctx, const schema_set *set) {
  facts *f = ctx;
  (void)m;
  f->num++;
  f->set = *set;
  return TRI_OK;
}

/* A number's types have an integer's among them here. */
static int types_named(const tri_json *node) {
  static const char *const names[] = {"null", "boolean", "string", "integer", "number", "array", "object"};
  const tri_json *t = tri_json_get(node, "type");
  bool is_list = tri_json_kind_of(t) == TRI_JSON_ARRAY, nullable = false;
  int types = 0;
  if (!t) return ALL_TYPES | INTEGER_TYPE;
  for (size_t i = 0; i < (is_list ? tri_json_size(t) : 1); i++) {
    const char *name = tri_json_as_str(is_list ? tri_json_at(t, i) : t, NULL);
    for (size_t k = 0; name && k < sizeof names / sizeof *names; k++)
      if (!strcmp(name, names[k])) types |= 1 << k;
  }
  if (tri_json_as_bool(tri_json_get(node, "nullable"), &nullable) && nullable) types |= NULL_TYPE;
  return types & NUMBER_TYPE ? types | INTEGER_TYPE : types;
}

static tri_status plain_types(schema_maker *m, const schema_set *set, int *types) {
  *types = ALL_TYPES | INTEGER_TYPE;
  for (size_t i = 0; i < set->num; i++) {
    TRI_CHECK(schema_work(m, 10 + 10 * tri_json_size(tri_json_get(set->nodes[i], "type"))));
    *types &= types_named(set->nodes[i]);
  }
  return TRI_OK;
}

/* The values that a set names; NULL: it names none. */
static const tri_json *named_in(const schema_set *set, bool *is_const) {
  for (size_t i = 0; i < set->num; i++) {
    const tri_json *one = tri_json_get(set->nodes[i], "const"), *list = tri_json_get(set->nodes[i], "enum");
    *is_const = one != NULL;
    if (one || list) return one ? one : list;
  }
  return NULL;
}

/* Whether both name values, and none that the other one names. */
static tri_status are_apart(schema_maker *m, const schema_set *a, const schema_set *b, bool *apart) {
  bool const_a, const_b, equal;
  const tri_json *x = named_in(a, &const_a), *y = named_in(b, &const_b);
  *apart = false;
  TRI_CHECK(schema_work(m, 10 * (a->num + b->num)));
  if (!x || !y) return TRI_OK;
  for (size_t i = 0; i < (const_a ? 1 : tri_json_size(x)); i++)
    for (size_t k = 0; k < (const_b ? 1 : tri_json_size(y)); k++) {
      TRI_CHECK(schema_is_equal(m, const_a ? x : tri_json_at(x, i), const_b ? y : tri_json_at(y, k), &equal));
      if (equal) return TRI_OK;
    }
  *apart = true;
  return TRI_OK;
}

static tri_status requires(schema_maker *m, const schema_set *set, const char *key, bool *found) {
  *found = false;
  for (size_t i = 0; i < set->num && !*found; i++) {
    const tri_json *list = tri_json_get(set->nodes[i], "required");
    TRI_CHECK(schema_work(m, 5 + tri_json_size(list)));
    for (size_t k = 0; k < tri_json_size(list) && !*found; k++) {
      const char *name = tri_json_as_str(tri_json_at(list, k), NULL);
      *found = name && !strcmp(name, key);
    }
  }
  return TRI_OK;
}

static const tri_json *property_of(const schema_set *set, const char *key) {
  for (size_t i = 0; i < set->num; i++) {
    const tri_json *p = tri_json_get(tri_json_get(set->nodes[i], "properties"), key);
    if (p) return p;
  }
  return NULL;
}

typedef struct pair {
  schema_maker *m;
  const schema_set *a, *b;
  bool apart;
} pair;

/* A key that both require, with values that are apart. */
static tri_status look_at_key(void *ctx, const char *key, const tri_json *value) {
  pair *p = ctx;
  bool needs_a, needs_b = false, apart;
  int x_types, y_types;
  TRI_CHECK(schema_work(p->m, 10 * (1 + p->b->num)));
  const tri_json *other = property_of(p->b, key);
  if (!other || p->apart) return TRI_OK;
  TRI_CHECK(requires(p->m, p->a, key, &needs_a));
  if (needs_a) TRI_CHECK(requires(p->m, p->b, key, &needs_b));
  if (!needs_b) return TRI_OK;
  schema_set x = {.nodes = &value, .num = 1}, y = {.nodes = &other, .num = 1};
  TRI_CHECK(are_apart(p->m, &x, &y, &apart));
  TRI_CHECK(plain_types(p->m, &x, &x_types));
  TRI_CHECK(plain_types(p->m, &y, &y_types));
  p->apart = apart || !(x_types & y_types);
  return TRI_OK;
}

/* A key that one requires and that the other, which is closed, does not have. */
static tri_status lacks_required(schema_maker *m, const schema_set *a, const schema_set *b, bool *lacks) {
  for (size_t i = 0; i < a->num && !*lacks; i++) {
    const tri_json *list = tri_json_get(a->nodes[i], "required");
    TRI_CHECK(schema_work(m, 5 + 10 * tri_json_size(list) * b->num));
    for (size_t k = 0; k < tri_json_size(list); k++) {
      const char *name = tri_json_as_str(tri_json_at(list, k), NULL);
      for (size_t j = 0; name && j < b->num; j++)
        if (schema_is_false(tri_json_get(b->nodes[j], "additionalProperties")) &&
            !tri_json_get(tri_json_get(b->nodes[j], "properties"), name))
          *lacks = true;
    }
  }
  return TRI_OK;
}

static tri_status exclude_each_other(schema_maker *m, const schema_set *a, const schema_set *b, bool *exclude) {
  int types_a, types_b;
  TRI_CHECK(plain_types(m, a, &types_a));
  TRI_CHECK(plain_types(m, b, &types_b));
  TRI_CHECK(are_apart(m, a, b, exclude));
  *exclude = *exclude || !(types_a & types_b);
  if (*exclude || (types_a & types_b) != OBJECT_TYPE) return TRI_OK;
  pair p = {m, a, b, false};
  for (size_t i = 0; i < a->num && !p.apart; i++) {
    const tri_json *properties = tri_json_get(a->nodes[i], "properties");
    if (tri_json_kind_of(properties) == TRI_JSON_OBJECT) TRI_CHECK(tri_json_each(properties, look_at_key, &p));
  }
  *exclude = p.apart;
  if (!*exclude) TRI_CHECK(lacks_required(m, a, b, exclude));
  return *exclude ? TRI_OK : lacks_required(m, b, a, exclude);
}

static tri_status check_pairs(schema_maker *m, const tri_json *node, const facts *all, size_t num) {
  for (size_t i = 0; i < num; i++)
    for (size_t k = 0; k < i; k++) {
      bool exclude = all[i].num <= 1 && all[k].num <= 1;
      if (exclude && all[i].num && all[k].num) TRI_CHECK(exclude_each_other(m, &all[k].set, &all[i].set, &exclude));
      TRI_CHECK(schema_work(m, 1));
      if (!exclude)
        return schema_fail(m, TRI_UNSUPPORTED, node, "oneOf",
                           "branches %zu and %zu of oneOf do not exclude each other by their type, const, enum or a "
                           "required key",
                           k, i);
    }
  return TRI_OK;
}

static bool is_node(const void *list, uint32_t number, const void *wanted) {
  (void)list;
  (void)number;
  (void)wanted;
  return true; /* the hash is the address */
}

/* Branches that may hold together are refused: oneOf takes what fits one alone. A schema is checked once, so that one
 * that comes within its own oneOf is not gone into again. */
static tri_status check_one_of(schema_maker *m, const tri_json *node, const tri_json *list) {
  size_t num = tri_json_size(list);
  if (schema_table_find(m, &m->one_ofs, (uintptr_t)node, is_node, NULL, NULL) != UINT32_MAX) return TRI_OK;
  TRI_CHECK(schema_table_add(m, &m->one_ofs, (uintptr_t)node, 0));
  facts *all = tri_arena_alloc(m->arena, num, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  for (size_t i = 0; i < num; i++) {
    schema_set one = {0};
    TRI_CHECK(schema_set_add(m, &one, tri_json_at(list, i)));
    TRI_CHECK(schema_expand(m, &one, note_alternative, &all[i]));
  }
  return check_pairs(m, node, all, num);
}

/* ---- the search ---- */

static tri_status add_all_of(schema_maker *m, const tri_json *node, schema_set *set) {
  const tri_json *all = tri_json_get(node, "allOf"), *target = NULL;
  if (all) TRI_CHECK(check_list(m, node, "allOf", all));
  for (size_t i = 0; i < tri_json_size(all); i++) TRI_CHECK(schema_set_add(m, set, tri_json_at(all, i)));
  if (!tri_json_get(node, "$ref")) return TRI_OK;
  TRI_CHECK(resolve(m, node, &target));
  return schema_set_add(m, set, target);
}

/* Goes on with each branch of a list. */
static tri_status add_branches(schema_maker *m, expanding *e, const expansion *at, const tri_json *list) {
  for (size_t i = 0; i < tri_json_size(list); i++) {
    expansion branch;
    TRI_CHECK(copy(m, at, &branch));
    TRI_CHECK(schema_set_add(m, &branch.set, tri_json_at(list, i)));
    TRI_CHECK(expand(m, e, branch));
  }
  return TRI_OK;
}

/* Both keywords of one schema: each branch of the one with each of the other. */
static tri_status branch_out(schema_maker *m, expanding *e, const expansion *at, const tri_json *any,
                             const tri_json *one) {
  if (!any || !one) return add_branches(m, e, at, any ? any : one);
  for (size_t i = 0; i < tri_json_size(any); i++) {
    expansion branch;
    TRI_CHECK(copy(m, at, &branch));
    TRI_CHECK(schema_set_add(m, &branch.set, tri_json_at(any, i)));
    TRI_CHECK(add_branches(m, e, &branch, one));
  }
  return TRI_OK;
}

/* Goes into the anyOf and oneOf of a schema; *branched: it has one of them. */
static tri_status look_into(schema_maker *m, expanding *e, const expansion *at, const tri_json *node, bool *branched) {
  const tri_json *any = tri_json_get(node, "anyOf"), *one = tri_json_get(node, "oneOf");
  *branched = any || one;
  if (!*branched) return TRI_OK;
  if (m->branches == MAX_BRANCHES)
    return schema_fail(m, TRI_TOO_LARGE, node, NULL, "more than %d of anyOf and oneOf are within each other",
                       MAX_BRANCHES);
  m->branches++;
  if (any) TRI_CHECK(check_list(m, node, "anyOf", any));
  if (one) TRI_CHECK(check_list(m, node, "oneOf", one));
  if (one) TRI_CHECK(check_one_of(m, node, one));
  TRI_CHECK(branch_out(m, e, at, any, one));
  m->branches--;
  return TRI_OK;
}

static tri_status expand(schema_maker *m, expanding *e, expansion at) {
  while (at.next < at.set.num) {
    const tri_json *node = at.set.nodes[at.next++];
    bool branched;
    TRI_CHECK(schema_work(m, 10));
    if (schema_is_false(node)) return TRI_OK;
    TRI_CHECK(add_all_of(m, node, &at.set));
    TRI_CHECK(look_into(m, e, &at, node, &branched));
    if (branched) return TRI_OK;
  }
  if (!e->left--)
    return schema_fail(m, TRI_TOO_LARGE, at.set.nodes[0], NULL, "anyOf and oneOf have more than %d alternatives",
                       TRI_SCHEMA_MAX_ALTERNATIVES);
  return e->take(m, e->ctx, &at.set);
}

tri_status schema_expand(schema_maker *m, const schema_set *set, schema_take *take, void *ctx) {
  expanding e = {take, ctx, TRI_SCHEMA_MAX_ALTERNATIVES};
  expansion from = {.set = *set}, own;
  TRI_CHECK(copy(m, &from, &own));
  return expand(m, &e, own);
}
