/* SPDX-License-Identifier: Apache-2.0 */
/* A render under way. A failure sticks: whatever fails says so in the render and returns an undefined value, and
 * nothing runs after it.
 *
 * So functions return values, not statuses, and callers need to look at j_ok only before they use what a failure may
 * have left NULL, or loop. All memory is the render's arena, which is freed as a whole. */
#ifndef TRI_TEXT_JINJA_EXEC_H
#define TRI_TEXT_JINJA_EXEC_H

#include "text/jinja/ast.h"
#include "text/jinja/jinja.h"

typedef struct jbinding {
  const char *name;
  jv value;
} jbinding;

/* Names that a block has set. Those of an enclosing scope are seen through `outer`. */
typedef struct jscope jscope;
struct jscope {
  jscope *outer;
  jbinding *bindings;
  size_t n, cap;
  bool is_kept; /* a macro that was defined in it sees it later */
};

struct jloop {
  const jv *items;
  size_t n, at;
  jv changed; /* the arguments of the last loop.changed() */
  bool has_changed;
};

struct jmacro {
  const jnode *node;
  jscope *scope; /* where it was defined */
  bool is_caller;
};

/* The filters and tests that there are, for those that call others by their names. NULL: there is none of a name. */
typedef struct jtables {
  const jfunction *(*filter)(const char *name), *(*test)(const char *name);
} jtables;
extern const jtables j_tables; /* tables.c */

/* One render, on one thread. depth: of evaluate, run_body and comparisons of values, against the C stack's end; calls:
 * of macros; line: of the node that was entered last, for errors; nodes: steps so far; out: the text that statements
 * write to, a buffer of their own inside captures. */
struct jx {
  tri_arena *arena;
  tri_error *err;
  tri_status st;
  size_t memory;
  int64_t nodes, deadline_ns, now_s;
  int depth, calls, line;
  jscope *scope;
  jbuf *out;
  const jtables *tables;
  const char *own; /* of the variable that is being made: see tri_jinja_variable */
};

/* ---- limits.c ---- */

/* Notes the first failure. Returns an undefined value, for callers to return. */
__attribute__((format(printf, 3, 4))) jv j_fail(jx *x, const char *kind, const char *fmt, ...);
static inline bool j_ok(const jx *x) { return x->st == TRI_OK; }

/* Counts a node. False: a limit is reached. */
bool j_visit(jx *x, const jnode *n);
/* Counts the steps of an operation that goes through many bytes or items without taking memory for them, which would
 * bound it. False: a limit is reached. */
bool j_spend(jx *x, size_t steps);
enum {
  J_STEP_BYTES = 1024, /* that are searched or compared */
  J_STEP_ITEMS = 64,
};
void *j_alloc(jx *x, size_t count, size_t size); /* zeroed; NULL after a failure, of which the render knows */
/* Room for one more of n items, where they are or in twice the memory; what they grow out of stays until the render
 * ends. NULL likewise. */
void *j_grow(jx *x, void *items, size_t n, size_t *cap, size_t size);

/* ---- scope.c ---- */

const jv *j_lookup(const jx *x, const char *name); /* NULL: it is not set */
void j_set(jx *x, const char *name, jv value);     /* in the innermost scope */
void j_assign(jx *x, const jnode *target, jv value);
void j_push(jx *x, jscope *s);
void j_pop(jx *x);
/* Begins a scope that macros may keep: it is the render's, not the C stack's. NULL: a failure. */
jscope *j_new_scope(jx *x);
/* Begins the scope of a loop's next turn: that of the last one, empty, unless a macro keeps it. */
jscope *j_next_scope(jx *x, jscope *last);

/* ---- items.c ---- */

/* Returns the items of what `for`, list() and the like go through: of a map its keys, of a string its characters. Fails
 * where Python cannot. */
const jv *j_items(jx *x, jv v, size_t *n);
/* Returns len(); fails likewise. */
int64_t j_length(jx *x, jv v);
bool j_contains(jx *x, jv in, jv what);

/* ---- attributes.c ---- */

/* Fails with the name that was looked for, if it had one. */
jv j_fail_undefined(jx *x, jv v);
/* a.name: methods come before keys. a[key]: the other way round. */
jv j_attribute(jx *x, jv of, const char *name);
jv j_item(jx *x, jv of, jv key);
static inline bool j_is_range(jv v) { return j_is(v, J_VIEW) && v.list->is_range; }

/* ---- interpreter.c ---- */

void j_run(jx *x, const jnodes *body);

/* ---- operators.c ---- */

/* Arithmetic, and comparisons, of values that are evaluated already. Arithmetic with undefined values and their order
 * fail. */
jv j_binary(jx *x, jop op, jv a, jv b);
bool j_compare_values(jx *x, jcompare_op op, jv a, jv b);

/* ---- numbers.c ---- */

jv j_too_large(jx *x); /* fails */
bool j_fits_int(double f);
/* The value of a decimal digit of any script; -1: it is none. */
int j_digit(uint32_t c);
bool j_is_decimal(uint32_t c);
bool j_is_digit(uint32_t c);
typedef enum jreading { J_NOT_READ, J_READ, J_TOO_LARGE } jreading;
/* Read the whole of a text, as int() and float() of Python do. */
jreading j_read_int(jx *x, const jstr *text, int64_t base, int64_t *out);
bool j_read_float(jx *x, const jstr *text, double *out);
jv j_round(jx *x, jv v, int64_t precision); /* v is a number */

/* ---- the tables: filters*.c, tests.c, methods.c, globals.c ---- */

typedef struct jtable_entry {
  const char *name;
  jcall call;
  size_t most; /* arguments */
  const char *keywords;
} jtable_entry;

/* A function for such a table that takes no arguments: an expression of the render x and the value v. */
#define J_OF_VALUE(name, value)                                                                                        \
  static jv name(jx *x, jv v, const jargs *a) {                                                                        \
    (void)x;                                                                                                           \
    (void)a;                                                                                                           \
    return value;                                                                                                      \
  }

/* Calls a function, which may be a filter or a test. Fails where it does not take the arguments. */
jv j_invoke(jx *x, const jfunction *f, jv on, const jargs *a);

const jfunction *j_test(const char *name);   /* NULL: there is none */
jv j_method(jx *x, jv of, const char *name); /* undefined: it has none */
const jfunction *j_global(const char *name);
jv j_range(jx *x, int64_t from, int64_t to, int64_t step);

/* ---- arguments ---- */

/* Returns argument i, or the one of that name; NULL: it is not there. */
const jv *j_argument(const jargs *a, size_t i, const char *name);
bool j_has_text(const jv *v);
int64_t j_argument_int(jx *x, const jargs *a, size_t i, const char *name, int64_t fallback);
bool j_argument_bool(const jargs *a, size_t i, const char *name, bool fallback);
/* The string of an argument; NULL, with a failure, where it is none. */
const jstr *j_argument_str(jx *x, const jargs *a, size_t i, const char *name, const jstr *fallback);

/* ---- strings (strings.c) ---- */

typedef enum jside { J_LEFT = 1, J_RIGHT = 2, J_BOTH = 3 } jside;
/* chars NULL: white space. */
jv j_strip(jx *x, const jstr *s, const jstr *chars, jside side);
typedef enum jcase { J_LOWER, J_UPPER, J_TITLE, J_CAPITALIZE } jcase;
jv j_change_case(jx *x, const jstr *s, jcase to, bool filter);
/* Returns it for HTML, as markup; markup itself stays. */
jv j_escape(jx *x, jv s);
/* most < 0: all. */
jv j_replace(jx *x, const jstr *s, const jstr *from, const jstr *to, int64_t most);
jv j_split(jx *x, const jstr *s, const jstr *by, int64_t most);
jv j_rsplit(jx *x, const jstr *s, const jstr *by, int64_t most); /* the last `most` separators cut */
/* Takes linear time. SIZE_MAX: it is not there, or a limit is reached. */
size_t j_find(jx *x, const jstr *s, const jstr *what, size_t from);
/* Returns where a text lies last that ends at `end` or before; SIZE_MAX likewise. */
size_t j_find_last(jx *x, const jstr *s, const jstr *what, size_t end);
jv j_characters(jx *x, const jstr *s, size_t *n); /* a list of them */
int64_t j_count_characters(const jstr *s);
bool j_is_space(uint32_t c);
bool j_is_space_at(const jstr *s, size_t at, size_t *len);
/* '%'-formatting, and str.format. may_be_unused: arguments. */
jv j_percent(jx *x, const jstr *format, const jargs *args, bool may_be_unused);
jv j_format(jx *x, const jstr *format, const jargs *args);

#endif
