/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/gbnf.h"

#include <string.h>

#include "base/text.h"
#include "runtime/grammar/gbnf_impl.h"

enum { ARENA = 16384 };

/* ---- what may be nothing ---- */

static bool is_empty(const gbnf *g, const expr *e, uint64_t *steps) {
  bool all = true, any = false;
  ++*steps;
  if (e->kind == EXPR_CLASS) return false;
  if (e->kind == EXPR_RULE) return g->list[e->rule].is_empty;
  if (e->kind == EXPR_REPEAT && !e->least) return true;
  for (size_t i = 0; i < e->num; i++) {
    bool part = is_empty(g, e->parts[i], steps);
    all = all && part;
    any = any || part;
    if (part ? e->kind == EXPR_ALTERNATIVES : e->kind == EXPR_SEQUENCE) break;
  }
  return e->kind == EXPR_ALTERNATIVES ? any : all;
}

static tri_status find_empty(expr_context *x, gbnf *g) {
  bool found = true;
  while (found) {
    uint64_t steps = g->num;
    found = false;
    for (size_t i = 0; i < g->num; i++) {
      gbnf_rule *r = &g->list[i];
      if (r->is_empty || !is_empty(g, r->body, &steps)) continue;
      found = r->is_empty = true;
    }
    TRI_CHECK(expr_work(x, steps));
  }
  return TRI_OK;
}

/* ---- left recursion ---- */

static bool begins_with(const expr *e, uint32_t rule) {
  return e->kind == EXPR_SEQUENCE && e->num && e->parts[0]->kind == EXPR_RULE && e->parts[0]->rule == rule;
}

/* a ::= a x | a y | b | c becomes a ::= (b | c) (x | y)*. */
static tri_status rewrite(expr_context *x, gbnf_rule *r, uint32_t number) {
  size_t place = r->body->place;
  expr *begin = expr_make(x, EXPR_ALTERNATIVES, place), *behind = expr_make(x, EXPR_ALTERNATIVES, place);
  expr *whole = expr_make(x, EXPR_SEQUENCE, place), *body = expr_make(x, EXPR_ALTERNATIVES, place);
  const expr *loop;
  bool found = false;
  if (!begin || !behind || !whole || !body) return TRI_NO_MEMORY;
  for (size_t i = 0; i < r->body->num; i++) {
    const expr *own = r->body->parts[i];
    bool recurs = begins_with(own, number);
    found = found || recurs;
    if (!recurs) TRI_CHECK(expr_append(x, begin, own));
    if (!recurs || own->num == 1) continue; /* a ::= a says nothing */
    expr *rest = expr_make(x, EXPR_SEQUENCE, own->place);
    if (!rest) return TRI_NO_MEMORY;
    for (size_t k = 1; k < own->num; k++) TRI_CHECK(expr_append(x, rest, own->parts[k]));
    TRI_CHECK(expr_append(x, behind, rest));
  }
  if (!found) return TRI_OK;
  TRI_CHECK(expr_append(x, whole, begin));
  if (behind->num) {
    TRI_CHECK(expr_repeat(x, behind, 0, EXPR_NO_LIMIT, place, &loop));
    TRI_CHECK(expr_append(x, whole, loop));
  }
  r->body = body;
  return expr_append(x, body, whole);
}

/* The rules with which a rule may begin. */
typedef struct first_rules {
  uint32_t *list;
  size_t num, room, next; /* next: of the search */
} first_rules;

static tri_status add_first(expr_context *x, first_rules *f, uint32_t rule) {
  if (f->num == f->room) {
    size_t room = f->room ? 2 * f->room : 4;
    uint32_t *grown = tri_arena_alloc(x->arena, room, sizeof *grown);
    if (!grown) return TRI_NO_MEMORY;
    if (f->num) memcpy(grown, f->list, f->num * sizeof *grown);
    f->list = grown;
    f->room = room;
  }
  f->list[f->num++] = rule;
  return expr_work(x, 10);
}

static tri_status find_first(expr_context *x, const gbnf *g, const expr *e, first_rules *f) {
  uint64_t steps = 1;
  if (e->kind == EXPR_RULE) return add_first(x, f, e->rule);
  if (e->kind == EXPR_REPEAT && !e->most) return TRI_OK;
  for (size_t i = 0; i < e->num; i++) {
    TRI_CHECK(find_first(x, g, e->parts[i], f));
    if (e->kind == EXPR_SEQUENCE && !is_empty(g, e->parts[i], &steps)) break;
  }
  return expr_work(x, steps);
}

static tri_status refuse_row(expr_context *x, const gbnf *g, const uint32_t *row, size_t num) {
  tri_buf names = {0};
  for (size_t i = 0; i < num; i++) tri_text_printf(&names, "%s, ", g->list[row[i]].name);
  tri_text_printf(&names, "%s", g->list[row[0]].name);
  tri_status st = tri_fail(x->err, TRI_UNSUPPORTED, "",
                           "line %zu: left recursion, where each rule may begin with the next one: %.600s",
                           g->list[row[0]].line, names.data ? names.data : "");
  tri_buf_free(&names);
  return st;
}

/* A search in depth for a rule that comes to itself before a character. */
static tri_status search_from(expr_context *x, const gbnf *g, first_rules *first, uint8_t *mark, uint32_t begin,
                              uint32_t *stack) {
  enum { NEW, OPEN, DONE };
  size_t depth = 0;
  if (mark[begin] != NEW) return TRI_OK;
  stack[depth++] = begin;
  mark[begin] = OPEN;
  while (depth) {
    uint32_t at = stack[depth - 1];
    if (first[at].next == first[at].num) {
      mark[at] = DONE;
      depth--;
      continue;
    }
    uint32_t to = first[at].list[first[at].next++];
    if (mark[to] == OPEN) {
      while (stack[0] != to) memmove(stack, stack + 1, --depth * sizeof *stack);
      return refuse_row(x, g, stack, depth);
    }
    if (mark[to] == DONE) continue;
    mark[to] = OPEN;
    stack[depth++] = to;
  }
  return TRI_OK;
}

static tri_status check_left_recursion(expr_context *x, const gbnf *g) {
  first_rules *first = tri_arena_alloc(x->arena, g->num, sizeof *first);
  uint8_t *mark = tri_arena_alloc(x->arena, g->num, 1);
  uint32_t *stack = tri_arena_alloc(x->arena, g->num, sizeof *stack);
  if (!first || !mark || !stack) return TRI_NO_MEMORY;
  for (size_t i = 0; i < g->num; i++) TRI_CHECK(find_first(x, g, g->list[i].body, &first[i]));
  for (size_t i = 0; i < g->num; i++) TRI_CHECK(search_from(x, g, first, mark, (uint32_t)i, stack));
  return TRI_OK;
}

/* ---- the network ---- */

static tri_status check_names(expr_context *x, gbnf *g, uint32_t *root) {
  tri_status st;
  for (size_t i = 0; i < g->num; i++)
    if (!g->list[i].body)
      return tri_fail(x->err, TRI_INVALID_ARGUMENT, "", "line %zu: there is no rule %s", g->list[i].line,
                      g->list[i].name);
  size_t num = g->num;
  *root = gbnf_rule_named(x, g, "root", 1, &st);
  if (st == TRI_OK && *root == num)
    st = tri_fail(x->err, TRI_INVALID_ARGUMENT, "", "there is no rule root, with which answers begin");
  return st;
}

static tri_status build(expr_context *x, const gbnf *g, uint32_t root, tri_net *net) {
  uint32_t *rules = tri_arena_alloc(x->arena, g->num, sizeof *rules);
  if (!rules) return TRI_NO_MEMORY;
  expr_builder b = {.x = x, .net = net, .rules = rules};
  for (size_t i = 0; i < g->num; i++) rules[i] = tri_net_add_rule(net, 0);
  for (size_t i = 0; i < g->num; i++) {
    uint32_t end = tri_net_add_state(net, rules[i]);
    TRI_CHECK(expr_build(&b, g->list[i].body, tri_net_first_state(net, rules[i]), end, NULL));
    tri_net_set_final(net, end, 0);
  }
  return tri_net_finish(net, rules[root], x->err);
}

static tri_status compile(expr_context *x, const char *text, size_t len, tri_net *net) {
  gbnf g = {0};
  uint32_t root = 0;
  TRI_CHECK(gbnf_read(x, text, len, &g));
  TRI_CHECK(check_names(x, &g, &root));
  for (size_t i = 0; i < g.num; i++) TRI_CHECK(rewrite(x, &g.list[i], (uint32_t)i));
  TRI_CHECK(find_empty(x, &g));
  TRI_CHECK(check_left_recursion(x, &g));
  return build(x, &g, root, net);
}

tri_status tri_gbnf_compile(const char *text, size_t len, tri_net **out, tri_error *err) {
  expr_context x = {.err = err, .place_name = "line", .most_work = TRI_GBNF_MAX_WORK};
  tri_net *net = NULL;
  tri_status st = tri_arena_create(ARENA, &x.arena);
  if (st == TRI_OK) st = tri_net_create(&net);
  if (st == TRI_OK) st = compile(&x, text, len, net);
  if (st == TRI_OK) {
    *out = net;
    net = NULL;
  }
  tri_net_destroy(net);
  tri_arena_destroy(x.arena);
  return st;
}
