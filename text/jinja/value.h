/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a render, in its arena: nothing is freed before its end, and nothing that is made is changed but the
 * attributes of namespaces. */
#ifndef TRI_TEXT_JINJA_VALUE_H
#define TRI_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json/json.h"

typedef struct jx jx; /* a render: exec.h */

typedef enum jkind {
  J_UNDEFINED,
  J_NONE,
  J_BOOL,
  J_INT,
  J_FLOAT,
  J_LARGE, /* a number of JSON beyond int64_t and double: it is shown as it was spelled, and not reckoned with */
  J_STR,
  J_LIST,
  J_TUPLE,
  J_VIEW, /* what keys(), values(), items() and range() give: a list that is no JSON */
  J_ITER, /* what map, select and their like give: it can be gone through once */
  J_MAP,
  J_NAMESPACE,
  J_LOOP,
  J_MACRO,
  J_FUNCTION, /* of the language, or a method with its object */
} jkind;

/* A string. marks [n]: 1 where a byte comes from a foreign variable; NULL: all of it does, or nothing.
 * is_markup: it is what `safe` and `escape` give, and strings that are added to it are escaped. */
typedef struct jstr {
  const char *s;
  size_t n;
  const uint8_t *marks;
  bool foreign; /* without marks: all of it */
  bool is_markup;
} jstr;

typedef struct jlist jlist;
typedef struct jmap jmap;
typedef struct jloop jloop;
typedef struct jmacro jmacro;
typedef struct jfunction jfunction;

typedef struct jv {
  jkind kind;
  union {
    bool b;
    int64_t i;
    double f;
    const jstr *str; /* of STR, and the spelling of LARGE */
    jlist *list;     /* of LIST, TUPLE, VIEW and ITER */
    jmap *map;       /* of MAP and NAMESPACE */
    jloop *loop;
    const jmacro *macro;
    const jfunction *function;
    const char *name; /* of UNDEFINED: what was looked for; NULL: nothing has a name */
  };
} jv;

struct jlist {
  const jv *items;
  size_t n;
  size_t at;          /* of an ITER: those before it are gone */
  const char *shown;  /* of a VIEW: what repr calls it */
  bool is_range;      /* which repr shows by its ends */
  int64_t from, step; /* of a range */
  bool is_broken;     /* an ITER of what cannot be gone through, which is found when it is */
};

typedef struct jpair {
  jv key, value;
} jpair;

struct jmap {
  jpair *pairs;
  size_t n, cap;
};

/* Arguments of a call, a filter or a test: those by position, then those by name. */
typedef struct jargs {
  const jv *list;
  size_t n;
  const jpair *named; /* keys are strings */
  size_t num_named;
} jargs;

typedef jv (*jcall)(jx *x, jv self, const jargs *args);

struct jfunction {
  const char *name;
  jcall call;
  jv self;              /* of a method */
  const char *keywords; /* which arguments may be given by name, with spaces between; NULL: it takes what it gets */
  size_t most;          /* arguments */
};

/* ---- value.c ---- */

/* Values are 16 bytes, passed by value; what is larger lies in the arena. */
static inline jv j_none(void) { return (jv){.kind = J_NONE}; }
static inline jv j_bool(bool b) { return (jv){.kind = J_BOOL, .b = b}; }
static inline jv j_int(int64_t i) { return (jv){.kind = J_INT, .i = i}; }
static inline jv j_float(double f) { return (jv){.kind = J_FLOAT, .f = f}; }
static inline jv j_undefined(const char *name) { return (jv){.kind = J_UNDEFINED, .name = name}; }
jv j_str(jx *x, const char *s, size_t n);                 /* borrows s, which must live as long as the render */
jv j_text(jx *x, const char *s);                          /* the same of a C string */
jv j_slice(jx *x, const jstr *s, size_t from, size_t to); /* bytes */
jv j_markup(jx *x, jv s);                                 /* a string, as markup */
jv j_list(jx *x, jkind kind, const jv *items, size_t n);  /* borrows items */
jv j_pair(jx *x, jv first, jv second);                    /* a tuple */
void j_reverse(jv *items, size_t n);                      /* in place */
jv j_map(jx *x, jkind kind, size_t cap);
jv j_of_json(jx *x, const tri_json *json, bool foreign);

static inline bool j_is(jv v, jkind kind) { return v.kind == kind; }
static inline bool j_is_number(jv v) { return v.kind == J_INT || v.kind == J_FLOAT || v.kind == J_BOOL; }
static inline bool j_is_sequence(jv v) { return v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_VIEW; }
static inline int64_t j_integer(jv v) { return v.kind == J_BOOL ? v.b : v.i; } /* of an INT or a BOOL */
bool j_equals_text(jv v, const char *s);
/* A none that is an empty text where a text or a list is needed: see tri_jinja_variable. */
static inline jv j_soft_none(void) { return (jv){.kind = J_NONE, .b = true}; }
static inline bool j_is_soft(jv v) { return v.kind == J_NONE && v.b; }
jv j_harden(jx *x, jv v);           /* the empty text of a soft none; others stay */
bool j_is_large_integer(jv v);      /* a LARGE that is none of the reals */
double j_large_number(jx *x, jv v); /* the nearest double to a LARGE, infinity for reals */

/* Python's bool(); kinds without a length are true. */
bool j_truth(jv v);
bool j_equal(jx *x, jv a, jv b); /* fails at a limit: lists that share lists are larger than their memory */
/* -1, 0, 1; fails where Python has no order of them. */
int j_compare(jx *x, jv a, jv b);
const char *j_type_name(jv v);

/* NULL: it has none. */
const jv *j_map_find(jx *x, const jmap *m, jv key);
void j_map_put(jx *x, jmap *m, jv key, jv value);

/* ---- text.c: strings that are being made ---- */

typedef struct jbuf {
  jx *x;
  char *s;
  uint8_t *marks;
  size_t n, cap, num_foreign;
} jbuf;

/* Begin, put, end. After the end a buffer is not written to any more: the string has its memory. */
static inline jbuf j_begin(jx *x) { return (jbuf){.x = x}; }
void j_put(jbuf *b, const char *s, size_t n); /* the template's own */
void j_puts(jbuf *b, const char *s);
void j_put_char(jbuf *b, char c);
void j_put_str(jbuf *b, const jstr *s);
void j_put_part(jbuf *b, const jstr *s, size_t from, size_t to);
/* Puts s, all of which counts as foreign where any byte of `from` does: after it the bytes are others. */
void j_put_as(jbuf *b, const char *s, size_t n, const jstr *from);
jv j_end(jbuf *b);
jv j_end_like(jbuf *b, const jstr *s); /* markup where s is */

void j_put_value(jbuf *b, jv v); /* str(v) */
void j_put_repr(jbuf *b, jv v);  /* repr(v) */
jv j_to_str(jx *x, jv v);        /* str(v); v itself where it is one */

/* ---- json_text.c ---- */

typedef struct jjson {
  bool ensure_ascii, sort_keys;
  const jstr *indent; /* NULL: on one line */
  const jstr *item_separator, *key_separator;
} jjson;
void j_put_json(jbuf *b, jv v, const jjson *how, int depth);

/* Writes the shortest text that reads as x, as Python's repr of a float. */
enum { J_FLOAT_TEXT = 32 };
size_t j_float_text(double f, char out[J_FLOAT_TEXT]);

#endif
