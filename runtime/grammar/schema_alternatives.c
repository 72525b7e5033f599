/* SPDX-License-Identifier: Apache-2.0 */
/* $ref, allOf, anyOf and oneOf: a conjunction becomes the sets of plain schemas of which one must hold. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/grammar/schema_impl.h"

enum { MAX_SET = 1000 };

/* ---- references within the document ---- */

typedef struct anchor {
  const char *name;
  const tri_json *found;
} anchor;

static tri_status look_for_anchor(void *ctx, const char *key, const tri_json *value) {
  anchor *a = ctx;
  (void)key;
  if (a->found) return TRI_OK;
  const char *own = tri_json_get_str(value, "$anchor");
  if (own && !strcmp(own, a->name)) {
    a->found = value;
    return TRI_OK;
  }
  if (tri_json_kind_of(value) == TRI_JSON_OBJECT) return tri_json_each(value, look_for_anchor, a);
  for (size_t i = 0; tri_json_kind_of(value) == TRI_JSON_ARRAY && i < tri_json_size(value); i++)
    look_for_anchor(a, "", tri_json_at(value, i));
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
  if (!ref[1]) {
    found = m->root;
  } else if (ref[1] == '/') {
    found = follow(m->root, ref + 2);
  } else {
    anchor a = {.name = ref + 1};
    look_for_anchor(&a, "", m->root);
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

static expansion copy_of(schema_maker *m, const expansion *from, tri_status *st) {
  expansion to = {.next = from->next};
  for (size_t i = 0; i < from->set.num && *st == TRI_OK; i++) *st = schema_set_add(m, &to.set, from->set.nodes[i]);
  return to;
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
static int plain_types(const schema_set *set) {
  int types = ALL_TYPES | INTEGER_TYPE;
  for (size_t i = 0; i < set->num; i++) {
    const tri_json *t = tri_json_get(set->nodes[i], "type");
    int own = 0;
    if (!t) continue;
    for (size_t k = 0; k < 7; k++) {
      static const char *const names[] = {"null", "boolean", "string", "integer", "number", "array", "object"};
      size_t num = tri_json_kind_of(t) == TRI_JSON_ARRAY ? tri_json_size(t) : 1;
      for (size_t j = 0; j < num; j++) {
        const char *name = tri_json_as_str(tri_json_kind_of(t) == TRI_JSON_ARRAY ? tri_json_at(t, j) : t, NULL);
        if (name && !strcmp(name, names[k])) own |= 1 << k;
      }
    }
    if (own & NUMBER_TYPE) own |= INTEGER_TYPE;
    types &= own;
  }
  return types;
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

static bool are_apart(const schema_set *a, const schema_set *b) {
  bool const_a, const_b;
  const tri_json *x = named_in(a, &const_a), *y = named_in(b, &const_b);
  if (!x || !y) return false;
  for (size_t i = 0; i < (const_a ? 1 : tri_json_size(x)); i++)
    for (size_t k = 0; k < (const_b ? 1 : tri_json_size(y)); k++)
      if (schema_equal(const_a ? x : tri_json_at(x, i), const_b ? y : tri_json_at(y, k))) return false;
  return true;
}

static bool requires(const schema_set *set, const char *key) {
  for (size_t i = 0; i < set->num; i++) {
    const tri_json *list = tri_json_get(set->nodes[i], "required");
    for (size_t k = 0; k < tri_json_size(list); k++) {
      const char *name = tri_json_as_str(tri_json_at(list, k), NULL);
      if (name && !strcmp(name, key)) return true;
    }
  }
  return false;
}

static const tri_json *property_of(const schema_set *set, const char *key) {
  for (size_t i = 0; i < set->num; i++) {
    const tri_json *p = tri_json_get(tri_json_get(set->nodes[i], "properties"), key);
    if (p) return p;
  }
  return NULL;
}

typedef struct pair {
  const schema_set *a, *b;
  bool apart;
} pair;

/* A key that both require, with values that are apart. */
static tri_status look_at_key(void *ctx, const char *key, const tri_json *value) {
  pair *p = ctx;
  const tri_json *other = property_of(p->b, key);
  if (!other || !requires(p->a, key) || !requires(p->b, key)) return TRI_OK;
  schema_set x = {.nodes = &value, .num = 1}, y = {.nodes = &other, .num = 1};
  if (are_apart(&x, &y) || !(plain_types(&x) & plain_types(&y))) p->apart = true;
  return TRI_OK;
}

/* A key that one requires and that the other, which is closed, does not have. */
static bool lacks_required(const schema_set *a, const schema_set *b) {
  for (size_t i = 0; i < a->num; i++) {
    const tri_json *list = tri_json_get(a->nodes[i], "required");
    for (size_t k = 0; k < tri_json_size(list); k++) {
      const char *name = tri_json_as_str(tri_json_at(list, k), NULL);
      for (size_t j = 0; name && j < b->num; j++)
        if (schema_is_false(tri_json_get(b->nodes[j], "additionalProperties")) &&
            !tri_json_get(tri_json_get(b->nodes[j], "properties"), name))
          return true;
    }
  }
  return false;
}

static bool exclude_each_other(const schema_set *a, const schema_set *b) {
  int types = plain_types(a) & plain_types(b);
  if (!types || are_apart(a, b)) return true;
  if (types != OBJECT_TYPE) return false;
  pair p = {a, b, false};
  for (size_t i = 0; i < a->num && !p.apart; i++) {
    const tri_json *properties = tri_json_get(a->nodes[i], "properties");
    if (tri_json_kind_of(properties) == TRI_JSON_OBJECT) tri_json_each(properties, look_at_key, &p);
  }
  return p.apart || lacks_required(a, b) || lacks_required(b, a);
}

/* Branches that may hold together are refused: oneOf takes what fits one alone. */
static tri_status check_one_of(schema_maker *m, const tri_json *node, const tri_json *list) {
  size_t num = tri_json_size(list);
  facts *all = tri_arena_alloc(m->arena, num, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  for (size_t i = 0; i < num; i++) {
    schema_set one = {0};
    TRI_CHECK(schema_set_add(m, &one, tri_json_at(list, i)));
    TRI_CHECK(schema_expand(m, &one, note_alternative, &all[i]));
  }
  for (size_t i = 0; i < num; i++)
    for (size_t k = 0; k < i; k++)
      if (all[i].num > 1 || all[k].num > 1 ||
          (all[i].num && all[k].num && !exclude_each_other(&all[k].set, &all[i].set)))
        return schema_fail(m, TRI_UNSUPPORTED, node, "oneOf",
                           "branches %zu and %zu of oneOf do not exclude each other by their type, const, enum or a "
                           "required key",
                           k, i);
  return TRI_OK;
}

/* ---- the search ---- */

static tri_status add_all_of(schema_maker *m, const tri_json *node, schema_set *set) {
  const tri_json *all = tri_json_get(node, "allOf"), *target;
  if (all) TRI_CHECK(check_list(m, node, "allOf", all));
  for (size_t i = 0; i < tri_json_size(all); i++) TRI_CHECK(schema_set_add(m, set, tri_json_at(all, i)));
  if (!tri_json_get(node, "$ref")) return TRI_OK;
  TRI_CHECK(resolve(m, node, &target));
  return schema_set_add(m, set, target);
}

/* Goes on with each branch of a list. */
static tri_status add_branches(schema_maker *m, expanding *e, const expansion *at, const tri_json *list) {
  for (size_t i = 0; i < tri_json_size(list); i++) {
    tri_status st = TRI_OK;
    expansion branch = copy_of(m, at, &st);
    if (st == TRI_OK) st = schema_set_add(m, &branch.set, tri_json_at(list, i));
    if (st == TRI_OK) st = expand(m, e, branch);
    TRI_CHECK(st);
  }
  return TRI_OK;
}

/* Both keywords of one schema: each branch of the one with each of the other. */
static tri_status branch_out(schema_maker *m, expanding *e, const expansion *at, const tri_json *any,
                             const tri_json *one) {
  if (!any || !one) return add_branches(m, e, at, any ? any : one);
  for (size_t i = 0; i < tri_json_size(any); i++) {
    tri_status st = TRI_OK;
    expansion branch = copy_of(m, at, &st);
    if (st == TRI_OK) st = schema_set_add(m, &branch.set, tri_json_at(any, i));
    if (st == TRI_OK) st = add_branches(m, e, &branch, one);
    TRI_CHECK(st);
  }
  return TRI_OK;
}

static tri_status expand(schema_maker *m, expanding *e, expansion at) {
  while (at.next < at.set.num) {
    const tri_json *node = at.set.nodes[at.next++];
    if (schema_is_false(node)) return TRI_OK;
    if (at.set.num > MAX_SET)
      return schema_fail(m, TRI_TOO_LARGE, node, NULL, "more than %d schemas must hold at once", MAX_SET);
    TRI_CHECK(add_all_of(m, node, &at.set));
    const tri_json *any = tri_json_get(node, "anyOf"), *one = tri_json_get(node, "oneOf");
    if (any) TRI_CHECK(check_list(m, node, "anyOf", any));
    if (one) TRI_CHECK(check_list(m, node, "oneOf", one));
    if (one) TRI_CHECK(check_one_of(m, node, one));
    if (any || one) return branch_out(m, e, &at, any, one);
  }
  if (!e->left--)
    return schema_fail(m, TRI_TOO_LARGE, at.set.nodes[0], NULL, "anyOf and oneOf have more than %d alternatives",
                       TRI_SCHEMA_MAX_ALTERNATIVES);
  return e->take(m, e->ctx, &at.set);
}

tri_status schema_expand(schema_maker *m, const schema_set *set, schema_take *take, void *ctx) {
  expanding e = {take, ctx, TRI_SCHEMA_MAX_ALTERNATIVES};
  expansion from = {.set = *set};
  tri_status st = TRI_OK;
  expansion own = copy_of(m, &from, &st);
  own.next = 0;
  return st == TRI_OK ? expand(m, &e, own) : st;
}
