/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions (characters, sequences, alternatives, repetitions, calls of rules) and the states that they become, of
 * the files of this folder alone: regular expressions and GBNF are read into them.
 *
 * States are Thompson's ("Regular expression search algorithm", CACM 1968), so that nothing is tried and taken back:
 * configurations.h follows all ways at once. Characters are bytes of UTF-8, or, inside a string of JSON, in the one
 * spelling of text_states.h. A repetition of one class is a rule that counts; one of anything else is copies. */
#ifndef TRI_RUNTIME_GRAMMAR_EXPRESSION_H
#define TRI_RUNTIME_GRAMMAR_EXPRESSION_H

#include "runtime/grammar/charset.h"
#include "runtime/grammar/network.h"

enum {
  EXPR_MAX_COPIES = 1000,  /* of what is repeated and is no class */
  EXPR_MAX_DEPTH = 100,    /* of groups within each other */
  EXPR_MAX_LENGTH = 16000, /* characters that may be counted where an expression does not */
};
static const uint32_t EXPR_NO_LIMIT = UINT32_MAX;

typedef enum expr_kind {
  EXPR_SEQUENCE, /* of none: nothing */
  EXPR_ALTERNATIVES,
  EXPR_CLASS,
  EXPR_REPEAT, /* parts[0], `least` to `most` times (EXPR_NO_LIMIT: any number) */
  EXPR_RULE,   /* a call of rule number `rule` of what the expression is part of */
  EXPR_BEGIN,  /* ^ */
  EXPR_END,    /* $ */
} expr_kind;

typedef struct expr {
  expr_kind kind;
  const struct expr **parts;
  size_t num, room;
  const charset *set; /* of a CLASS, sorted */
  uint32_t least, most, rule;
  /* The fewest and the most characters of what fits, UINT64_MAX: any number. An empty class counts as one. */
  uint64_t shortest, longest;
  bool has_anchor; /* it is a BEGIN or an END, or has one in it */
  size_t place;    /* in the text that it was read from, for errors */
} expr;

/* The surroundings of reading and building. */
typedef struct expr_context {
  tri_arena *arena;
  tri_error *err;
  const char *place_name;              /* what places count: "character", "line" */
  uint64_t work, most_work;            /* in steps of some 10 ns */
  const struct categories *categories; /* categories.h's, once they are asked for */
} expr_context;

/* Counts work; TRI_TOO_LARGE beyond the limit. */
tri_status expr_work(expr_context *x, uint64_t steps);
expr *expr_make(expr_context *x, expr_kind kind, size_t place); /* NULL: memory is out */
tri_status expr_append(expr_context *x, expr *e, const expr *part);
tri_status expr_repeat(expr_context *x, const expr *of, uint32_t least, uint32_t most, size_t place, const expr **out);
tri_status expr_class(expr_context *x, const charset *set, size_t place, const expr **out);
/* Reads UTF-8 into code points of the arena. */
tri_status expr_decode(expr_context *x, const char *text, size_t len, uint32_t **out, size_t *num);

typedef struct expr_builder {
  expr_context *x;
  tri_net *net;
  bool in_string;        /* of JSON */
  const uint32_t *rules; /* numbers in the network of those that calls name */
  /* Characters may be counted by the rule that is built, `top` being its most: then each way has the counts with which
   * an end can still be reached as its guard, so that no answer comes to where nothing may follow. */
  uint32_t top;
  size_t words; /* of a set of counts; 0: they are not counted */
  bool is_dry;  /* only sets of counts are found */
  struct expr_known {
    const charset *set;
    uint32_t rule;
  } * known; /* rules of the longer characters of a class */
  size_t num_known, room_known;
  uint64_t *guard_sets[8]; /* those last made */
  uint32_t guards[8], next_guard;
} expr_builder;

/* Adds the ways from a state to another of the same rule. counts: [words] with those that may be had in `to`, which
 * becomes those in `from`; NULL where they are not counted. */
tri_status expr_build(expr_builder *b, const expr *e, uint32_t from, uint32_t to, uint64_t *counts);
/* Returns a set without counts, [words]. */
uint64_t *expr_counts(const expr_builder *b);
void expr_counts_add(const expr_builder *b, uint64_t *counts, uint32_t lo, uint32_t hi);
/* Adds the counts below those that are there. */
void expr_counts_add_below(const expr_builder *b, uint64_t *counts);
/* Makes counts after a character those before it. */
void expr_counts_before(const expr_builder *b, uint64_t *counts);
bool expr_counts_have(const uint64_t *counts, uint32_t count);
/* The guard of a set. *is_never: the set is empty. */
tri_status expr_guard(expr_builder *b, const uint64_t *counts, uint32_t *guard, bool *is_never);

#endif
