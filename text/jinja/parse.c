/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "text/jinja/jinja.h"
#include "text/jinja/parser.h"

/* Statements by recursive descent, a function for each kind of block, which begins after the block's name. A body runs
 * to the block that closes or divides it: body() takes that block's begin, its caller the name and the end.
 *
 * Nothing is resolved here: names of filters, tests and variables are looked up when the template runs. `break` and
 * `continue` are checked, by the number of loops around them. */
static void want_block_end(jparser *p) {
  if (!jp_ok(p)) return;
  if (p->at->kind == JT_BLOCK_END)
    p->at++;
  else
    jp_fail(p, "the end of a block is missing");
}

static const jnode *statement(jparser *p);

/* Is at `{% word` for one of the words, which end with NULL. The last token is an END, so that there is one after a
 * BLOCK_BEGIN. */
static bool at_any(const jparser *p, const char *const *words) {
  if (p->at->kind != JT_BLOCK_BEGIN || p->at[1].kind != JT_NAME) return false;
  for (; *words; words++)
    if (p->at[1].n == strlen(*words) && !memcmp(p->at[1].s, *words, p->at[1].n)) return true;
  return false;
}

/* Text, variables and blocks up to a block of one of the words, whose begin and name are taken. NULL: to the end. */
static void body(jparser *p, const char *const *until, jnodes *out) {
  if (!jp_enter(p)) return;
  while (jp_ok(p) && p->at->kind != JT_END && !(until && at_any(p, until))) {
    jnode *n = NULL;
    if (p->at->kind == JT_DATA) {
      n = jp_node(p, JN_DATA);
      if (n) n->data = (jstr){.s = p->at->s, .n = p->at->n};
      p->at++;
      jp_add(p, out, n);
    } else if (p->at->kind == JT_VARIABLE_BEGIN) {
      p->at++;
      n = jp_node(p, JN_OUTPUT);
      if (n) n->a = jp_tuple(p, true);
      if (jp_ok(p) && p->at->kind != JT_VARIABLE_END) jp_fail(p, "the end of an expression is missing");
      p->at += jp_ok(p);
      jp_add(p, out, n);
    } else {
      p->at++; /* BLOCK_BEGIN: the lexer gives nothing else here */
      const jnode *s = statement(p);
      if (s) jp_add(p, out, s);
    }
  }
  jp_leave(p);
  if (!until || !jp_ok(p)) return;
  if (p->at->kind == JT_END)
    jp_fail(p, "a block has no %s", until[0]);
  else
    p->at++;
}

/* A body up to one word, with the block's end after it. */
static void body_to(jparser *p, const char *end, jnodes *out) {
  const char *const until[] = {end, NULL};
  want_block_end(p);
  body(p, until, out);
  jp_take_name(p, end);
  if (!strcmp(end, "endmacro") || !strcmp(end, "endset") || !strcmp(end, "endcall")) /* a name may follow */
    if (p->at->kind == JT_NAME) p->at++;
  want_block_end(p);
}

/* A body that is no part of the loop around it. */
static void own_body(jparser *p, const char *end, jnodes *out) {
  int loops = p->loops;
  p->loops = 0;
  body_to(p, end, out);
  p->loops = loops;
}

/* An elif is an if of its own in the other branch, one level deeper: jp_enter bounds a chain of them. */
static const jnode *if_block(jparser *p) {
  static const char *const until[] = {"endif", "elif", "else", NULL}, *const end[] = {"endif", NULL};
  jnode *n = jp_node(p, JN_IF);
  if (!n || !jp_enter(p)) return NULL;
  n->a = jp_tuple(p, false);
  want_block_end(p);
  body(p, until, &n->body);
  if (jp_take_name(p, "elif")) {
    jp_add(p, &n->other, if_block(p)); /* takes the end as well */
  } else {
    if (jp_take_name(p, "else")) {
      want_block_end(p);
      body(p, end, &n->other);
    }
    jp_take_name(p, "endif");
    want_block_end(p);
  }
  jp_leave(p);
  return n;
}

static const jnode *for_block(jparser *p) {
  static const char *const until[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
  jnode *n = jp_node(p, JN_FOR);
  if (!n) return NULL;
  n->b = jp_target(p, false);
  if (!jp_take_name(p, "in")) jp_fail(p, "'in' is missing");
  n->a = jp_tuple(p, false);
  if (jp_take_name(p, "if")) n->c = jp_expression(p);
  if (jp_is_name(p, "recursive")) jp_fail(p, "recursive loops are not supported");
  want_block_end(p);
  p->loops++;
  body(p, until, &n->body);
  p->loops--;
  if (jp_take_name(p, "else")) {
    want_block_end(p);
    body(p, end, &n->other);
  }
  jp_take_name(p, "endfor");
  want_block_end(p);
  return n;
}

static const jnode *set_block(jparser *p) {
  jnode *n = jp_node(p, JN_SET);
  if (!n) return NULL;
  n->b = jp_target(p, true);
  if (jp_take(p, "=")) {
    n->a = jp_tuple(p, true);
    want_block_end(p);
    return n;
  }
  n->op = JN_SET_BLOCK;
  if (jp_is(p, "|")) n->a = jp_filters(p, NULL, false);
  body_to(p, "endset", &n->body);
  return n;
}

static const jnode *macro_block(jparser *p) {
  jnode *n = jp_node(p, JN_MACRO);
  if (!n) return NULL;
  n->text = jp_name(p);
  jp_parameters(p, n);
  own_body(p, "endmacro", &n->body);
  return n;
}

static const jnode *call_block(jparser *p) {
  jnode *n = jp_node(p, JN_CALL_BLOCK);
  if (!n) return NULL;
  n->text = "caller";
  jp_parameters(p, n);
  n->a = jp_call(p);
  own_body(p, "endcall", &n->body);
  return n;
}

static const jnode *filter_block(jparser *p) {
  jnode *n = jp_node(p, JN_FILTER_BLOCK);
  if (!n) return NULL;
  n->a = jp_filters(p, NULL, true);
  body_to(p, "endfilter", &n->body);
  return n;
}

static const jnode *loop_control(jparser *p, jop op) {
  if (!p->loops) jp_fail(p, "break and continue belong into a loop");
  jnode *n = jp_node(p, op);
  want_block_end(p);
  return n;
}

/* The reference makes a call block of it: no loop around it is its own, and neither is what it sets anybody else's. */
static const jnode *generation_block(jparser *p) {
  jnode *n = jp_node(p, JN_BLOCK);
  if (n) own_body(p, "endgeneration", &n->body);
  return n;
}

static const jnode *statement(jparser *p) {
  if (jp_take_name(p, "if")) return if_block(p);
  if (jp_take_name(p, "for")) return for_block(p);
  if (jp_take_name(p, "set")) return set_block(p);
  if (jp_take_name(p, "macro")) return macro_block(p);
  if (jp_take_name(p, "call")) return call_block(p);
  if (jp_take_name(p, "filter")) return filter_block(p);
  if (jp_take_name(p, "break")) return loop_control(p, JN_BREAK);
  if (jp_take_name(p, "continue")) return loop_control(p, JN_CONTINUE);
  if (jp_take_name(p, "generation")) return generation_block(p);
  if (p->at->kind == JT_NAME)
    jp_fail(p, "there is no block '%.*s'", (int)(p->at->n < 40 ? p->at->n : 40), p->at->s);
  else
    jp_fail(p, "the name of a block is missing");
  return NULL;
}

/* ---- a template ---- */

tri_status tri_jinja_parse(const char *source, size_t len, tri_jinja **out, tri_error *err) {
  tri_jinja *t = tri_calloc(1, sizeof *t);
  jtokens tokens = {0};
  tri_status st = t ? tri_arena_create(1 << 14, &t->arena) : TRI_NO_MEMORY;
  if (st == TRI_OK) st = j_lex(source, len, t->arena, &tokens, err);
  if (st == TRI_OK) {
    jparser p = {.at = tokens.items, .arena = t->arena, .err = err};
    body(&p, NULL, &t->body);
    st = p.st;
  }
  tri_free(tokens.items);
  if (st == TRI_OK) {
    *out = t;
    return st;
  }
  tri_jinja_free(t);
  return st == TRI_NO_MEMORY ? tri_fail(err, st, TRI_JINJA_SYNTAX, "no memory for the chat template") : st;
}

void tri_jinja_free(tri_jinja *t) {
  if (!t) return;
  tri_arena_destroy(t->arena);
  tri_free(t);
}
