/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of ^ and $, and the states of an expression.
 *
 * An expression is a list of alternatives, each with ^ and $ or without. Where an answer matches all of it they say
 * nothing. Inside a string of JSON an alternative without ^ has any text before it, and one without $ any text after
 * it: one state of each, which all alternatives share. */
#include "runtime/grammar/regex.h"

#include <string.h>

#include "runtime/grammar/regex_impl.h"

enum { MOST_WAYS = 256, ARENA = 16384 };

/* ---- ^ and $ ---- */

static tri_status refuse_anchors(expr_context *x, const expr *e) {
  if (e->kind == EXPR_BEGIN || e->kind == EXPR_END)
    return tri_fail(x->err, TRI_UNSUPPORTED, "", "character %zu: %s is kept at the %s of an alternative alone",
                    e->place, e->kind == EXPR_BEGIN ? "^" : "$", e->kind == EXPR_BEGIN ? "beginning" : "end");
  for (size_t i = 0; i < e->num && e->has_anchor; i++) TRI_CHECK(refuse_anchors(x, e->parts[i]));
  return TRI_OK;
}

static tri_status split(expr_context *x, const expr *e, bool begins, bool ends, regex_ways *out, int depth);

/* A sequence with another part in the place of one, which may be a sequence itself. */
static tri_status replace(expr_context *x, const expr *e, size_t at, const expr *by, expr **out) {
  *out = expr_make(x, EXPR_SEQUENCE, e->place);
  if (!*out) return TRI_NO_MEMORY;
  for (size_t i = 0; i < e->num; i++) {
    bool is_other = i == at, is_sequence = is_other && by && by->kind == EXPR_SEQUENCE;
    for (size_t k = 0; is_sequence && k < by->num; k++) TRI_CHECK(expr_append(x, *out, by->parts[k]));
    if (!is_sequence && (!is_other || by)) TRI_CHECK(expr_append(x, *out, is_other ? by : e->parts[i]));
  }
  return TRI_OK;
}

static tri_status add_way(expr_context *x, const expr *body, bool begins, bool ends, regex_ways *out) {
  TRI_CHECK(refuse_anchors(x, body));
  if (out->num == MOST_WAYS)
    return tri_fail(x->err, TRI_TOO_LARGE, "", "more than %d alternatives with ^ or $", MOST_WAYS);
  if (out->num == out->room) {
    size_t room = out->room ? 2 * out->room : 4;
    regex_way *grown = tri_arena_alloc(x->arena, room, sizeof *grown);
    if (!grown) return TRI_NO_MEMORY;
    if (out->num) memcpy(grown, out->list, out->num * sizeof *grown);
    out->list = grown;
    out->room = room;
  }
  out->list[out->num++] = (regex_way){body, begins, ends};
  return TRI_OK;
}

/* The first or the last part of a sequence: an anchor is taken away, alternatives with anchors become several
 * sequences, and a sequence becomes part of this one. *done: it was one of these. */
static tri_status split_edge(expr_context *x, const expr *e, size_t at, bool begins, bool ends, regex_ways *out,
                             int depth, bool *done) {
  const expr *part = e->parts[at];
  expr *other;
  bool is_begin = part->kind == EXPR_BEGIN && !at, is_end = part->kind == EXPR_END && at == e->num - 1;
  *done = is_begin || is_end || (part->has_anchor && part->kind <= EXPR_ALTERNATIVES);
  if (!*done) return TRI_OK;
  if (is_begin || is_end || part->kind == EXPR_SEQUENCE) {
    TRI_CHECK(replace(x, e, at, part->kind == EXPR_SEQUENCE ? part : NULL, &other));
    return split(x, other, begins || is_begin, ends || is_end, out, depth);
  }
  for (size_t i = 0; i < part->num; i++) {
    TRI_CHECK(replace(x, e, at, part->parts[i], &other));
    TRI_CHECK(split(x, other, begins, ends, out, depth));
  }
  return TRI_OK;
}

static tri_status split(expr_context *x, const expr *e, bool begins, bool ends, regex_ways *out, int depth) {
  bool done = false;
  TRI_CHECK(expr_work(x, 20 + e->num));
  if (depth > 4 * EXPR_MAX_DEPTH || !e->has_anchor) return add_way(x, e, begins, ends, out);
  if (e->kind == EXPR_ALTERNATIVES) {
    for (size_t i = 0; i < e->num; i++) TRI_CHECK(split(x, e->parts[i], begins, ends, out, depth + 1));
    return TRI_OK;
  }
  if (e->kind != EXPR_SEQUENCE) { /* an anchor alone */
    expr *sequence = expr_make(x, EXPR_SEQUENCE, e->place);
    if (!sequence) return TRI_NO_MEMORY;
    TRI_CHECK(expr_append(x, sequence, e));
    e = sequence;
  }
  TRI_CHECK(split_edge(x, e, 0, begins, ends, out, depth + 1, &done));
  if (!done) TRI_CHECK(split_edge(x, e, e->num - 1, begins, ends, out, depth + 1, &done));
  return done ? TRI_OK : add_way(x, e, begins, ends, out);
}

tri_status regex_split(expr_context *x, const expr *e, regex_ways *out) { return split(x, e, false, false, out, 0); }

/* ---- a whole answer ---- */

static tri_status build_whole(expr_context *x, const regex_ways *ways, tri_net *net) {
  expr_builder b = {.x = x, .net = net};
  uint32_t rule = tri_net_add_rule(net, 0), end = tri_net_add_state(net, rule);
  for (size_t i = 0; i < ways->num; i++)
    TRI_CHECK(expr_build(&b, ways->list[i].body, tri_net_first_state(net, rule), end, NULL));
  tri_net_set_final(net, end, 0);
  return tri_net_finish(net, rule, x->err);
}

tri_status tri_regex_compile(const char *text, size_t len, tri_net **out, tri_error *err) {
  expr_context x = {.err = err, .place_name = "character", .most_work = TRI_REGEX_MAX_WORK};
  regex_ways ways = {0};
  const expr *e;
  tri_net *net = NULL;
  tri_status st = tri_arena_create(ARENA, &x.arena);
  if (st == TRI_OK) st = regex_read(&x, text, len, &e);
  if (st == TRI_OK) st = regex_split(&x, e, &ways);
  if (st == TRI_OK) st = tri_net_create(&net);
  if (st == TRI_OK) st = build_whole(&x, &ways, net);
  if (st == TRI_OK) {
    *out = net;
    net = NULL;
  }
  tri_net_destroy(net);
  tri_arena_destroy(x.arena);
  return st;
}

/* ---- inside a string of JSON ---- */

/* The fewest repetitions are enough at an edge where any text may come before or after. */
static tri_status trim_edge(expr_context *x, const expr *e, bool is_last, const expr **out) {
  expr *other;
  const expr *part;
  *out = e;
  if (e->kind == EXPR_REPEAT && e->most != e->least) {
    TRI_CHECK(expr_repeat(x, e->parts[0], e->least, e->least, e->place, out));
    return TRI_OK;
  }
  if (e->kind != EXPR_SEQUENCE || !e->num) return TRI_OK;
  size_t at = is_last ? e->num - 1 : 0;
  TRI_CHECK(trim_edge(x, e->parts[at], is_last, &part));
  if (part == e->parts[at]) return TRI_OK;
  if (part->kind == EXPR_REPEAT && !part->most) part = NULL;
  TRI_CHECK(replace(x, e, at, part, &other));
  *out = other;
  return part ? TRI_OK : trim_edge(x, other, is_last, out);
}

typedef struct string_maker {
  expr_builder b;
  uint32_t rule, begin, end; /* states after the opening quote, and before the closing one */
  uint32_t before, after;    /* any text before an alternative, after one; 0: not made */
  uint64_t *counts_end;      /* NULL: no characters are counted */
  uint64_t *counts_after, *counts_before, *counts_begin;
} string_maker;

static tri_status any_class(expr_context *x, const expr **out) {
  charset all = {0};
  if (!charset_add(x->arena, &all, 0, CHARSET_LAST) || !charset_sort(x->arena, &all)) return TRI_NO_MEMORY;
  return expr_class(x, &all, 0, out);
}

static void join(const string_maker *s, uint64_t *counts, const uint64_t *others) {
  for (size_t i = 0; counts && i < s->b.words; i++) counts[i] |= others[i];
}

/* Begins to count characters, where the lengths ask for it. */
static tri_status begin_counts(string_maker *s, int64_t least, int64_t most) {
  if (!least && most == INT64_MAX) return TRI_OK;
  int64_t top = most == INT64_MAX ? least : most + 1;
  if (top > EXPR_MAX_LENGTH)
    return tri_fail(s->b.x->err, TRI_UNSUPPORTED, "",
                    "lengths of more than %d cannot be kept beside a pattern that does not have them itself",
                    EXPR_MAX_LENGTH - 1);
  s->b.top = (uint32_t)top;
  s->b.words = (size_t)top / 64 + 1;
  s->counts_end = expr_counts(&s->b);
  s->counts_after = expr_counts(&s->b);
  s->counts_before = expr_counts(&s->b);
  s->counts_begin = expr_counts(&s->b);
  if (!s->counts_end || !s->counts_after || !s->counts_before || !s->counts_begin) return TRI_NO_MEMORY;
  expr_counts_add(&s->b, s->counts_end, (uint32_t)least, most == INT64_MAX ? s->b.top : (uint32_t)most);
  join(s, s->counts_after, s->counts_end);
  expr_counts_add_below(&s->b, s->counts_after);
  return TRI_OK;
}

/* Any text to the closing quote. */
static tri_status make_after(string_maker *s, uint32_t final) {
  uint32_t inside = 0, ends = 0;
  bool is_never = false;
  if (s->after) return TRI_OK;
  s->after = tri_net_add_state(s->b.net, s->rule);
  if (s->counts_end) {
    uint64_t *inner = expr_counts(&s->b);
    if (!inner) return TRI_NO_MEMORY;
    join(s, inner, s->counts_after);
    expr_counts_before(&s->b, inner);
    TRI_CHECK(expr_guard(&s->b, s->counts_end, &ends, &is_never));
    TRI_CHECK(expr_guard(&s->b, inner, &inside, &is_never));
  }
  if (is_never) /* no character at all */
    tri_net_add_step(s->b.net, s->after, s->end, TRI_NET_ANY);
  else
    tri_net_add_step(s->b.net, tri_net_add_text(s->b.net, s->after, inside, ends), final, TRI_NET_ANY);
  return TRI_OK;
}

static tri_status add_string_way(string_maker *s, regex_way way, uint32_t final) {
  uint64_t *counts = NULL;
  if (!way.begins) TRI_CHECK(trim_edge(s->b.x, way.body, false, &way.body));
  if (!way.ends) TRI_CHECK(trim_edge(s->b.x, way.body, true, &way.body));
  if (!way.body->shortest && !way.ends) way.begins = true; /* any text has nothing at its beginning */
  if (!way.ends) TRI_CHECK(make_after(s, final));
  if (!way.begins && !s->before) s->before = tri_net_add_state(s->b.net, s->rule);
  if (s->counts_end) {
    counts = expr_counts(&s->b);
    if (!counts) return TRI_NO_MEMORY;
    join(s, counts, way.ends ? s->counts_end : s->counts_after);
  }
  TRI_CHECK(expr_build(&s->b, way.body, way.begins ? s->begin : s->before, way.ends ? s->end : s->after, counts));
  join(s, way.begins ? s->counts_begin : s->counts_before, counts);
  return TRI_OK;
}

/* Any text before alternatives without ^. */
static tri_status add_before(string_maker *s) {
  const expr *any;
  uint64_t *counts = NULL;
  if (!s->before) return TRI_OK;
  if (s->counts_end) {
    expr_counts_add_below(&s->b, s->counts_before);
    join(s, s->counts_begin, s->counts_before);
  }
  tri_net_add_step(s->b.net, s->begin, s->before, TRI_NET_ANY);
  TRI_CHECK(any_class(s->b.x, &any));
  if (s->counts_end) {
    counts = expr_counts(&s->b);
    if (!counts) return TRI_NO_MEMORY;
    join(s, counts, s->counts_before);
  }
  return expr_build(&s->b, any, s->before, s->before, counts);
}

/* Returns whether all that the alternatives match has lengths between the two anyway. */
static bool has_lengths(const regex_ways *ways, int64_t least, int64_t most) {
  for (size_t i = 0; i < ways->num; i++) {
    uint64_t fewest = ways->list[i].body->shortest, longest = ways->list[i].body->longest;
    if (!ways->list[i].begins || !ways->list[i].ends) longest = UINT64_MAX;
    if (fewest < (uint64_t)least || (most != INT64_MAX && longest > (uint64_t)most)) return false;
  }
  return true;
}

tri_status regex_string_rule(expr_context *x, tri_net *net, const regex_ways *ways, int64_t least, int64_t most,
                             uint32_t *rule, bool *is_never) {
  string_maker s = {.b = {.x = x, .net = net, .in_string = true}};
  uint32_t guard = 0;
  bool no_end = false;
  *is_never = false;
  if (!has_lengths(ways, least, most)) TRI_CHECK(begin_counts(&s, least, most));
  *rule = s.rule = tri_net_add_rule(net, s.b.top);
  s.begin = tri_net_add_state(net, s.rule);
  s.end = tri_net_add_state(net, s.rule);
  uint32_t final = tri_net_add_state(net, s.rule);
  tri_net_add_edge(net, tri_net_first_state(net, s.rule), '"', '"', s.begin, TRI_NET_ANY);
  for (size_t i = 0; i < ways->num; i++) TRI_CHECK(add_string_way(&s, ways->list[i], final));
  TRI_CHECK(add_before(&s));
  if (s.counts_end) {
    TRI_CHECK(expr_guard(&s.b, s.counts_end, &guard, &no_end));
    *is_never = !expr_counts_have(s.counts_begin, 0);
  }
  if (!no_end) tri_net_add_edge(net, s.end, '"', '"', final, (tri_net_count){guard, TRI_NET_KEEP, 0});
  tri_net_set_final(net, final, 0);
  return TRI_OK;
}
