/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "runtime/grammar/configurations.h"
#include "runtime/grammar/schema_impl.h"

enum { MAX_DEPTH = 200, ARENA = 16384 };

static bool is_true(const tri_json *node) {
  bool value = false;
  if (tri_json_as_bool(node, &value)) return value;
  return tri_json_kind_of(node) == TRI_JSON_OBJECT && !tri_json_size(node);
}

/* ---- keywords ---- */

static const char kept[] = "type enum const nullable properties required additionalProperties minProperties "
                           "maxProperties items prefixItems additionalItems minItems maxItems uniqueItems minLength "
                           "maxLength minimum maximum exclusiveMinimum exclusiveMaximum anyOf oneOf allOf $ref $defs "
                           "definitions $id $anchor pattern format";
static const char without_effect[] = "title description default examples example deprecated readOnly writeOnly $schema "
                                     "$comment $vocabulary contentEncoding contentMediaType contentSchema "
                                     "markdownDescription enumDescriptions";

static tri_status check_keyword(void *ctx, const char *key, const tri_json *value) {
  const schema_maker *m = ((void **)ctx)[0];
  const tri_json *node = ((void **)ctx)[1];
  bool is_unique;
  (void)value;
  if (!strcmp(key, "uniqueItems") && tri_json_as_bool(value, &is_unique) && is_unique)
    return schema_fail(m, TRI_UNSUPPORTED, node, key, "uniqueItems cannot be kept");
  if (!strcmp(key, "format")) return schema_check_format(m, node);
  if (!strncmp(key, "x-", 2) || tri_has_word(kept, key) || tri_has_word(without_effect, key)) return TRI_OK;
  return schema_fail(m, TRI_UNSUPPORTED, node, key, "the keyword %.60s cannot be kept", key);
}

static tri_status check_node(const schema_maker *m, const tri_json *node) {
  bool value;
  if (tri_json_as_bool(node, &value)) return TRI_OK;
  if (tri_json_kind_of(node) != TRI_JSON_OBJECT)
    return schema_fail(m, TRI_INVALID_ARGUMENT, node, NULL, "a schema must be an object, true or false");
  const void *ctx[] = {m, node};
  return tri_json_each(node, check_keyword, ctx);
}

/* ---- types ---- */

static int type_named(const char *name) {
  static const char *const names[] = {"null", "boolean", "string", "integer", "number", "array", "object"};
  for (int i = 0; i < 7; i++)
    if (!strcmp(name, names[i])) return 1 << i;
  return 0;
}

/* The types that a schema allows; a number may be an integer. */
static tri_status types_of(schema_maker *m, const tri_json *node, int *types) {
  const tri_json *t = tri_json_get(node, "type");
  bool nullable = false;
  *types = ALL_TYPES;
  if (!t) return TRI_OK;
  size_t num = tri_json_kind_of(t) == TRI_JSON_ARRAY ? tri_json_size(t) : 1;
  *types = 0;
  TRI_CHECK(schema_work(m, 4 * num));
  for (size_t i = 0; i < num; i++) {
    const char *name = tri_json_as_str(tri_json_kind_of(t) == TRI_JSON_ARRAY ? tri_json_at(t, i) : t, NULL);
    int type = name ? type_named(name) : 0;
    if (!type)
      return schema_fail(
          m, TRI_INVALID_ARGUMENT, node, "type",
          "type must be one of null, boolean, string, integer, number, array and object, or a list of them");
    *types |= type;
  }
  if (tri_json_as_bool(tri_json_get(node, "nullable"), &nullable) && nullable) *types |= NULL_TYPE;
  if (*types & NUMBER_TYPE) *types &= ~INTEGER_TYPE;
  return TRI_OK;
}

static int both_types(int a, int b) {
  int both = a & b;
  if ((a & INTEGER_TYPE && b & (NUMBER_TYPE | INTEGER_TYPE)) || (b & INTEGER_TYPE && a & NUMBER_TYPE))
    both = (both | INTEGER_TYPE) & ~NUMBER_TYPE;
  return both;
}

/* ---- enum and const ---- */

static const tri_json *values_of(const schema_maker *m, const tri_json *node, size_t *num, bool *is_const,
                                 tri_status *st) {
  const tri_json *list = tri_json_get(node, "enum"), *one = tri_json_get(node, "const");
  *is_const = one != NULL;
  *num = one ? 1 : tri_json_size(list);
  *st = TRI_OK;
  if (list &&
      (tri_json_kind_of(list) != TRI_JSON_ARRAY || !tri_json_size(list) || tri_json_size(list) > TRI_SCHEMA_MAX_VALUES))
    *st = schema_fail(m, TRI_INVALID_ARGUMENT, node, "enum", "enum must be a list of 1 to %d values",
                      TRI_SCHEMA_MAX_VALUES);
  return one ? one : list;
}

static const tri_json *value_at(const tri_json *list, bool is_const, size_t i) {
  return is_const ? list : tri_json_at(list, i);
}

/* Whether a value is one of those that a schema names, or it names none. */
static tri_status is_named(schema_maker *m, const tri_json *node, const tri_json *value, bool *found) {
  size_t num;
  bool is_const;
  tri_status st;
  const tri_json *list = values_of(m, node, &num, &is_const, &st);
  *found = !list;
  TRI_CHECK(st);
  for (size_t i = 0; i < num && !*found; i++) TRI_CHECK(schema_is_equal(m, value_at(list, is_const, i), value, found));
  return TRI_OK;
}

static const char value_keywords[] =
    "properties required additionalProperties minProperties maxProperties items "
    "prefixItems additionalItems minItems maxItems minLength maxLength minimum maximum "
    "exclusiveMinimum exclusiveMaximum pattern";

static tri_status check_beside(void *ctx, const char *key, const tri_json *value) {
  const char *format = strcmp(key, "format") ? NULL : tri_json_as_str(value, NULL);
  if (!tri_has_word(value_keywords, key) && (!format || !schema_format_counts(format))) return TRI_OK;
  return schema_fail(((void **)ctx)[0], TRI_UNSUPPORTED, ((void **)ctx)[1], key,
                     "%s cannot be kept beside enum or const", key);
}

/* The values of the first schema that names some which all others allow, too. */
static tri_status add_named(schema_maker *m, const schema_set *set, size_t first, int types, uint32_t from, uint32_t to,
                            bool *any) {
  size_t num;
  bool is_const;
  tri_status st;
  const tri_json *list = values_of(m, set->nodes[first], &num, &is_const, &st);
  TRI_CHECK(st);
  for (size_t i = 0; i < set->num; i++) {
    const void *ctx[] = {m, set->nodes[i]};
    TRI_CHECK(tri_json_each(set->nodes[i], check_beside, ctx));
  }
  if (num > TRI_CONFIG_PLACES) /* an answer would begin at so many places at once */
    return schema_fail(m, TRI_TOO_LARGE, set->nodes[first], "enum", "%zu values, where an enum may have %d", num,
                       TRI_CONFIG_PLACES);
  for (size_t i = 0; i < num; i++) {
    const tri_json *value = value_at(list, is_const, i);
    int own = schema_type_of(value);
    bool fits = types & own || (own == INTEGER_TYPE && types & NUMBER_TYPE);
    for (size_t k = 0; k < set->num && fits; k++)
      if (k != first) TRI_CHECK(is_named(m, set->nodes[k], value, &fits));
    TRI_CHECK(schema_work(m, 10));
    if (!fits) continue;
    uint32_t end;
    TRI_CHECK(schema_literal(m, from, value, &end));
    tri_net_add_step(m->net, end, to, TRI_NET_ANY);
    *any = true;
  }
  return TRI_OK;
}

/* ---- rules ---- */

/* What an alternative gives a rule: ways from its first state to its last one. */
typedef struct ways {
  uint32_t from, to;
  bool any;
} ways;

static void add_words(schema_maker *m, int types, ways *w) {
  static const struct {
    int type;
    const char *word;
  } words[] = {{NULL_TYPE, "null"}, {BOOL_TYPE, "true"}, {BOOL_TYPE, "false"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (!(types & words[i].type)) continue;
    uint32_t end = tri_net_add_bytes(m->net, w->from, words[i].word, strlen(words[i].word), TRI_NET_ANY);
    tri_net_add_step(m->net, end, w->to, TRI_NET_ANY);
    w->any = true;
  }
}

static tri_status add_nested(schema_maker *m, const schema_set *set, bool is_object, ways *w) {
  uint32_t rule;
  bool is_never;
  TRI_CHECK(is_object ? schema_object(m, set, &rule, &is_never) : schema_array(m, set, &rule, &is_never));
  if (is_never) return TRI_OK;
  tri_net_add_call(m->net, w->from, rule, w->to, TRI_NET_ANY);
  w->any = true;
  return TRI_OK;
}

static tri_status take_alternative(schema_maker *m, void *ctx, const schema_set *set) {
  ways *w = ctx;
  int types = ALL_TYPES;
  size_t named = SIZE_MAX;
  for (size_t i = 0; i < set->num; i++) {
    int own;
    TRI_CHECK(schema_work(m, STEPS_OF_NODE + STEPS_OF_KEYWORD * tri_json_size(set->nodes[i])));
    TRI_CHECK(check_node(m, set->nodes[i]));
    TRI_CHECK(types_of(m, set->nodes[i], &own));
    types = both_types(types, own);
    if (named == SIZE_MAX && (tri_json_get(set->nodes[i], "enum") || tri_json_get(set->nodes[i], "const"))) named = i;
  }
  if (named != SIZE_MAX) return add_named(m, set, named, types, w->from, w->to, &w->any);
  add_words(m, types, w);
  if (types & STRING_TYPE) TRI_CHECK(schema_string(m, set, w->from, w->to, &w->any));
  if (types & (INTEGER_TYPE | NUMBER_TYPE)) {
    TRI_CHECK(schema_numbers(m, set, !(types & NUMBER_TYPE), w->from, w->to));
    w->any = true;
  }
  if (types & ARRAY_TYPE) TRI_CHECK(add_nested(m, set, false, w));
  if (types & OBJECT_TYPE) TRI_CHECK(add_nested(m, set, true, w));
  return TRI_OK;
}

static uint64_t hash_set(const schema_set *set) {
  uint64_t h = set->num;
  for (size_t i = 0; i < set->num; i++) h += tri_mix64((uintptr_t)set->nodes[i]); /* in any order */
  return h;
}

static int compare_nodes(const void *a, const void *b) {
  uintptr_t x = (uintptr_t) * (const tri_json *const *)a, y = (uintptr_t) * (const tri_json *const *)b;
  return x < y ? -1 : x > y;
}

/* Sets are compared with their nodes in order of address. */
static bool is_known(const void *list, uint32_t number, const void *wanted) {
  const schema_set *a = &((const known_rule *)list)[number].of, *b = wanted;
  return a->num == b->num && (!a->num || !memcmp(a->nodes, b->nodes, a->num * sizeof *a->nodes));
}

static tri_status keep_set(schema_maker *m, const schema_set *set, uint64_t hash, uint32_t *number) {
  if (m->num_known == m->room_known) {
    size_t room = m->room_known ? 2 * m->room_known : 64;
    known_rule *grown = tri_grow(m->known, m->room_known, room, sizeof *grown);
    if (!grown) return TRI_NO_MEMORY;
    m->known = grown;
    m->room_known = room;
  }
  *number = (uint32_t)m->num_known++;
  m->known[*number] = (known_rule){.of = *set};
  return schema_table_add(m, &m->of_known, hash, *number);
}

/* Finds a set among the known ones, and makes it one of them. */
static tri_status find_known(schema_maker *m, const schema_set *set, uint32_t *number) {
  schema_set sorted = {.num = set->num};
  const tri_json **nodes = tri_arena_alloc(m->arena, set->num, sizeof *nodes);
  if (!nodes) return TRI_NO_MEMORY;
  memcpy(nodes, set->nodes, set->num * sizeof *nodes);
  qsort(nodes, set->num, sizeof *nodes, compare_nodes);
  sorted.nodes = nodes;
  TRI_CHECK(schema_work(m, STEPS_OF_RULE + 4 * set->num));
  uint64_t hash = hash_set(&sorted);
  *number = schema_table_find(m, &m->of_known, hash, is_known, m->known, &sorted);
  return *number == UINT32_MAX ? keep_set(m, &sorted, hash, number) : TRI_OK;
}

static tri_status make_rule(schema_maker *m, const schema_set *set, uint32_t number) {
  const tri_json *outer = m->at;
  if (m->depth == MAX_DEPTH)
    return schema_fail(m, TRI_TOO_LARGE, set->nodes[0], NULL, "schemas are nested more than %d deep", MAX_DEPTH);
  uint32_t rule = m->known[number].rule = tri_net_add_rule(m->net, 0);
  if (!rule) return tri_net_check(m->net, m->err);
  ways w = {tri_net_first_state(m->net, rule), tri_net_add_state(m->net, rule), false};
  tri_net_set_final(m->net, w.to, 0);
  m->at = set->nodes[0];
  m->depth++;
  TRI_CHECK(schema_expand(m, set, take_alternative, &w));
  m->depth--;
  m->at = outer;
  m->known[number].is_never = !w.any;
  return TRI_OK;
}

static tri_status rule_of(schema_maker *m, const schema_set *given, uint32_t *rule, bool *is_never) {
  schema_set set = {0};
  uint32_t number;
  *is_never = false;
  for (size_t i = 0; i < given->num; i++)
    if (!is_true(given->nodes[i])) TRI_CHECK(schema_set_add(m, &set, given->nodes[i]));
  if (!set.num) return schema_any(m, TRI_SCHEMA_MAX_DEPTH, rule);
  TRI_CHECK(find_known(m, &set, &number));
  if (!m->known[number].rule && !m->known[number].is_never) TRI_CHECK(make_rule(m, &set, number));
  *rule = m->known[number].rule;
  *is_never = m->known[number].is_never;
  return TRI_OK;
}

/* ---- all of it ---- */

/* Begins a network, with what is known of sets that nothing fits. */
static tri_status begin_round(schema_maker *m) {
  tri_net_destroy(m->net);
  m->net = NULL;
  TRI_CHECK(tri_net_create(&m->net));
  for (size_t i = 0; i < m->num_known; i++) m->known[i].rule = 0;
  memset(m->any, 0, sizeof m->any);
  m->white_space = m->any_string = m->any_number = m->any_integer = m->arcs = 0;
  return TRI_OK;
}

/* Returns whether the finished network has told of sets that nothing fits them. */
static bool learn_never(schema_maker *m) {
  bool learned = false;
  for (size_t i = 0; i < m->num_known; i++) {
    known_rule *k = &m->known[i];
    if (!k->rule || k->is_never || tri_net_has_end(m->net, k->rule)) continue;
    learned = k->is_never = true;
  }
  return learned;
}

/* Makes the rule of a text of JSON that of the whole answer. Its count is of separators. */
static uint32_t frame_rule(const schema_maker *m, uint32_t text) {
  const tri_schema_frame *f = m->options.frame;
  if (!f) return text;
  uint32_t rule = tri_net_add_rule(m->net, f->most - 1);
  uint32_t before = tri_net_add_bytes(m->net, tri_net_first_state(m->net, rule), f->begin, f->begin_len, TRI_NET_ANY);
  uint32_t behind = tri_net_add_state(m->net, rule);
  tri_net_add_call(m->net, before, text, behind, TRI_NET_ANY);
  tri_net_set_final(m->net, tri_net_add_bytes(m->net, behind, f->end, f->end_len, TRI_NET_ANY), 0);
  if (f->most == 1) return rule;
  const tri_net_count next = {tri_net_add_range(m->net, 0, f->most - 2), TRI_NET_ADD, 0};
  tri_net_add_step(m->net, tri_net_add_bytes(m->net, behind, f->separator, f->separator_len, next), before,
                   TRI_NET_ANY);
  return rule;
}

/* An object must know of its properties' values whether anything fits them: after a comma a key must be able to come.
 * Of a schema that refers to itself the finished network tells it first, and the next round makes use of it. */
static tri_status compile_rounds(schema_maker *m) {
  schema_set whole = {0};
  uint32_t rule;
  bool is_never = false;
  do {
    TRI_CHECK(begin_round(m));
    whole.num = 0;
    TRI_CHECK(schema_set_add(m, &whole, m->root));
    TRI_CHECK(rule_of(m, &whole, &rule, &is_never));
    if (is_never) return tri_fail(m->err, TRI_INVALID_ARGUMENT, "", "nothing fits it");
    TRI_CHECK(schema_work(m, 0));
    TRI_CHECK(tri_net_finish(m->net, frame_rule(m, rule), m->err));
  } while (learn_never(m));
  return TRI_OK;
}

tri_status tri_schema_compile(const tri_json *schema, const tri_schema_options *options, tri_net **out,
                              tri_error *err) {
  schema_maker m = {.root = schema, .at = schema, .err = err, .rule_of = rule_of};
  if (options) m.options = *options;
  const tri_schema_frame *f = m.options.frame;
  if (f && (f->most < 1 || f->most > TRI_SCHEMA_MAX_TEXTS || (f->most > 1 && !f->separator_len)))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "", "a frame of %u texts of JSON, or of several without a separator",
                    f->most);
  m.most_work = m.options.most_work ? m.options.most_work : TRI_SCHEMA_MAX_WORK;
  tri_status st = tri_arena_create(ARENA, &m.arena);
  if (st == TRI_OK) st = compile_rounds(&m);
  if (st == TRI_OK) {
    *out = m.net;
    m.net = NULL;
  }
  tri_net_destroy(m.net);
  tri_arena_destroy(m.arena);
  tri_free(m.known);
  return st;
}

tri_status tri_schema_compile_text(const char *text, size_t len, const tri_schema_options *options, tri_net **out,
                                   tri_error *err) {
  tri_json_doc *doc;
  tri_status st = tri_json_parse(text, len, &doc, err);
  if (st == TRI_CORRUPT) { /* it is what was asked for that is wrong, and no file */
    st = TRI_INVALID_ARGUMENT;
    if (err) err->status = st;
  }
  TRI_CHECK(st);
  st = tri_schema_compile(tri_json_root(doc), options, out, err);
  tri_json_free(doc);
  return st;
}

tri_status tri_schema_any_object(const tri_schema_options *options, tri_net **out, tri_error *err) {
  static const char text[] = "{\"type\":\"object\"}";
  return tri_schema_compile_text(text, sizeof text - 1, options, out, err);
}
