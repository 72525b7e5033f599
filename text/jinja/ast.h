/* SPDX-License-Identifier: Apache-2.0 */
/* The syntax tree of a template. Nodes and their texts live in the template's arena. A tree is constant once it is
 * parsed, so that several threads may render it. */
#ifndef TRI_TEXT_JINJA_AST_H
#define TRI_TEXT_JINJA_AST_H

#include "base/mem.h"
#include "text/jinja/value.h"

typedef enum jop {
  /* expressions */
  JN_CONST,
  JN_NAME,
  JN_LIST,
  JN_TUPLE,
  JN_DICT,      /* items: key, value, key, ... */
  JN_ATTRIBUTE, /* a.text */
  JN_ITEM,      /* a[b] */
  JN_SLICE,     /* items: begin, end, step, each may be NULL; only as b of an ITEM */
  JN_CALL,
  JN_FILTER, /* a|text(...); a NULL: of a filter block or of a set block */
  JN_TEST,   /* a is text(...) */
  JN_NOT,
  JN_NEGATIVE,
  JN_POSITIVE,
  JN_AND,
  JN_OR,
  JN_IF_ELSE, /* a if b else c; c NULL: undefined */
  JN_ADD,
  JN_SUB,
  JN_MUL,
  JN_DIV,
  JN_FLOOR_DIV,
  JN_MOD,
  JN_POW,
  JN_CONCAT,  /* items, with ~ */
  JN_COMPARE, /* a, then items with an operator each in ops */
  /* statements */
  JN_OUTPUT,       /* a */
  JN_DATA,         /* text */
  JN_IF,           /* a; body; other: an elif is an IF alone in it */
  JN_FOR,          /* b: targets; a: what; c: the filter or NULL; body; other */
  JN_SET,          /* b: target; a: value */
  JN_SET_BLOCK,    /* b: target; body; a: filters or NULL */
  JN_MACRO,        /* text; params; body */
  JN_CALL_BLOCK,   /* a: the call; params; body */
  JN_FILTER_BLOCK, /* a; body */
  JN_BREAK,
  JN_CONTINUE,
  JN_BLOCK, /* body alone: generation */
} jop;

typedef enum jcompare_op { JC_EQ, JC_NE, JC_LT, JC_LE, JC_GT, JC_GE, JC_IN, JC_NOT_IN } jcompare_op;

typedef struct jnode jnode;

typedef struct jnodes {
  const jnode **items;
  size_t n, cap;
} jnodes;

/* A keyword argument, or a parameter with its default. */
typedef struct jnamed {
  const char *name;
  const jnode *value; /* of a parameter NULL: it has no default */
} jnamed;

typedef struct jnameds {
  jnamed *items;
  size_t n, cap;
} jnameds;

struct jnode {
  jop op;
  int line;
  const jnode *a, *b, *c;
  jnodes items; /* arguments by position, elements, ... */
  jnameds named;
  const jnode *star, *double_star; /* of calls */
  uint8_t *ops;                    /* jcompare_op, by item */
  const char *text;                /* a name, zero-terminated */
  jstr data;                       /* of DATA */
  jv value;                        /* of CONST */
  jnodes body, other;
};

struct tri_jinja {
  tri_arena *arena;
  jnodes body;
};

#endif
