/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the compiler of schemas, of its files alone.
 *
 * What is compiled is a conjunction: a set of schemas all of which must hold, as allOf and a $ref with other keywords
 * asks for. It is expanded into alternatives, each a set of schemas without $ref, allOf, anyOf and oneOf, and each
 * alternative gives a part of the rule for every type that it allows. A conjunction becomes one rule, wherever it
 * comes, so that schemas may refer to themselves. */
#ifndef TRI_RUNTIME_GRAMMAR_SCHEMA_IMPL_H
#define TRI_RUNTIME_GRAMMAR_SCHEMA_IMPL_H

#include "base/mem.h"
#include "runtime/grammar/schema.h"

/* Schemas, in the order in which they were found, each once. */
typedef struct schema_set {
  const tri_json **nodes;
  size_t num, room;
} schema_set;

/* Numbers by hash, of things that lie in a list elsewhere. */
typedef struct schema_table {
  struct schema_slot {
    uint64_t hash;
    uint32_t number; /* plus 1; 0: empty */
  } * slots;
  size_t room, used; /* room: a power of two */
} schema_table;

typedef struct known_rule {
  schema_set of;
  uint32_t rule; /* 0: not made in this round */
  bool is_never; /* nothing fits it */
} known_rule;

enum {
  NULL_TYPE = 1,
  BOOL_TYPE = 2,
  STRING_TYPE = 4,
  INTEGER_TYPE = 8,
  NUMBER_TYPE = 16,
  ARRAY_TYPE = 32,
  OBJECT_TYPE = 64,
  ALL_TYPES = 127 & ~INTEGER_TYPE
};

struct schema_maker;
/* The rule of a conjunction. *is_never: nothing fits it; the rule then has no end. One that is being compiled counts as
 * one that something fits. */
typedef tri_status schema_rule_of(struct schema_maker *m, const schema_set *set, uint32_t *rule, bool *is_never);

/* For schema_work. */
enum { STEPS_OF_ARC = 6, STEPS_OF_RULE = 40, STEPS_OF_NODE = 100, STEPS_OF_KEYWORD = 60 };

typedef struct schema_maker {
  schema_rule_of *rule_of; /* schema.c's, for the parts that it is made of */
  tri_net *net;
  const tri_json *root;
  tri_schema_options options;
  tri_error *err;
  tri_arena *arena;
  known_rule *known;
  size_t num_known, room_known;
  schema_table of_known;
  schema_table one_ofs; /* schemas whose oneOf is checked, or being checked, by address */
  const tri_json *at;   /* the schema that is being compiled, for the limit of work */
  uint64_t work, most_work;
  uint32_t arcs;                          /* of the network that work has counted */
  uint32_t white_space;                   /* a rule */
  uint32_t any[TRI_SCHEMA_MAX_DEPTH + 1]; /* rules of any value so deep; 0: not made yet */
  uint32_t any_string, any_number, any_integer;
  const struct categories *categories; /* of patterns (categories.h) */
  int depth;                           /* of the schemas that are being compiled */
  int branches; /* of anyOf and oneOf that are being expanded within each other, in all of those */
} schema_maker;

/* ---- schema_base.c ---- */

/* Counts work, in steps of some 10 ns, and that of the arcs added since. Fails beyond the limit, and where the network
 * has reached one. */
tri_status schema_work(schema_maker *m, size_t steps);
tri_status schema_set_add(schema_maker *m, schema_set *set, const tri_json *node);
/* Fails with the pointer to a schema's keyword. */
tri_status schema_fail(const schema_maker *m, tri_status st, const tri_json *node, const char *keyword, const char *fmt,
                       ...) __attribute__((format(printf, 5, 6)));
/* Reads a number that is no negative integer; *out stays where the keyword is not there. */
tri_status schema_read_count(const schema_maker *m, const tri_json *node, const char *keyword, int64_t *out);
bool schema_is_false(const tri_json *node);
/* White space from a state to the one that is returned. */
uint32_t schema_space(schema_maker *m, uint32_t from);
/* The larger of the minima and the smaller of the maxima of a set. *most stays where there is none. */
tri_status schema_bounds(const schema_maker *m, const schema_set *set, const char *least_key, const char *most_key,
                         int64_t *least, int64_t *most);

/* ---- schema_alternatives.c ---- */

typedef tri_status schema_take(schema_maker *m, void *ctx, const schema_set *alternative);
/* Calls take for each alternative of a conjunction that is not false. */
tri_status schema_expand(schema_maker *m, const schema_set *set, schema_take *take, void *ctx);

/* ---- schema_values.c: literals, and values that no schema speaks of ---- */

/* A literal's JSON, from a state to the one that is returned. */
tri_status schema_literal(schema_maker *m, uint32_t from, const tri_json *value, uint32_t *to);
tri_status schema_any(schema_maker *m, int depth, uint32_t *rule);
/* A text as the inside of a string spells it. *out is the arena's. */
tri_status schema_spell(schema_maker *m, const char *text, size_t len, char **out, size_t *out_len);
int schema_type_of(const tri_json *value); /* one of the types */
bool schema_equal(const tri_json *a, const tri_json *b);
/* The same, with its work counted. */
tri_status schema_is_equal(schema_maker *m, const tri_json *a, const tri_json *b, bool *equal);

/* ---- schema_strings.c ---- */

/* Strings of a set's lengths, pattern and format, from a state to another. *any: something fits. */
tri_status schema_string(schema_maker *m, const schema_set *set, uint32_t from, uint32_t to, bool *any);

/* ---- schema_formats.c ---- */

tri_status schema_check_format(const schema_maker *m, const tri_json *node); /* the schema has the keyword */
const char *schema_format_pattern(const char *name);                         /* NULL: it has none */
bool schema_format_counts(const char *name); /* false: it has no effect, or is not known */

/* ---- schema_table.c ---- */

typedef bool schema_same(const void *list, uint32_t number, const void *wanted);
/* Returns the number of what equals `wanted`, or UINT32_MAX. */
uint32_t schema_table_find(schema_maker *m, const schema_table *t, uint64_t hash, schema_same *same, const void *list,
                           const void *wanted);
/* Adds what is not there. */
tri_status schema_table_add(schema_maker *m, schema_table *t, uint64_t hash, uint32_t number);

/* ---- schema_numbers.c ---- */

/* Numbers of a set's bounds; is_integer: integers alone. From a state to another. */
tri_status schema_numbers(schema_maker *m, const schema_set *set, bool is_integer, uint32_t from, uint32_t to);

/* ---- schema_array.c, schema_object.c: from a state to another; *is_never: nothing fits ---- */

tri_status schema_array(schema_maker *m, const schema_set *set, uint32_t *rule, bool *is_never);
tri_status schema_object(schema_maker *m, const schema_set *set, uint32_t *rule, bool *is_never);

#endif
