/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/hash.h"
#include "runtime/grammar/gbnf_impl.h"

enum { MOST_NAME = 200 };

typedef struct reader {
  expr_context *x;
  gbnf *g;
  const uint32_t *text;
  size_t num, at, line;
  int depth;
} reader;

static tri_status refuse(const reader *r, tri_status st, const char *what) {
  return tri_fail(r->x->err, st, "", "line %zu: %s", r->line, what);
}

static bool is_at(const reader *r, uint32_t c) { return r->at < r->num && r->text[r->at] == c; }

static bool take(reader *r, uint32_t c) {
  if (!is_at(r, c)) return false;
  r->at++;
  return true;
}

static bool is_line_end(const reader *r) { return is_at(r, '\n') || is_at(r, '\r'); }

/* Skips blanks and comments, and line ends where they mean nothing. */
static void skip(reader *r, bool lines) {
  while (r->at < r->num) {
    if (is_at(r, '#')) {
      while (r->at < r->num && !is_line_end(r)) r->at++;
    } else if (is_at(r, ' ') || is_at(r, '\t') || (lines && is_line_end(r))) {
      r->line += is_at(r, '\n');
      r->at++;
    } else {
      return;
    }
  }
}

/* ---- rules by name ---- */

static uint64_t hash_name(const char *name) { return tri_hash_bytes(TRI_HASH_SEED, name, strlen(name)); }

static size_t slot_of(const gbnf *g, const char *name) {
  size_t at = hash_name(name) & (g->room_slots - 1);
  while (g->slots[at] && strcmp(g->list[g->slots[at] - 1].name, name)) at = (at + 1) & (g->room_slots - 1);
  return at;
}

static tri_status grow(expr_context *x, gbnf *g) {
  size_t room = g->room ? 2 * g->room : 16;
  gbnf_rule *list = tri_arena_alloc(x->arena, room, sizeof *list);
  uint32_t *slots = tri_arena_alloc(x->arena, 2 * room, sizeof *slots);
  if (!list || !slots) return TRI_NO_MEMORY;
  if (g->num) memcpy(list, g->list, g->num * sizeof *list);
  g->list = list;
  g->room = room;
  g->slots = slots;
  g->room_slots = 2 * room;
  for (size_t i = 0; i < g->num; i++) g->slots[slot_of(g, list[i].name)] = (uint32_t)i + 1;
  return expr_work(x, 10 * room);
}

uint32_t gbnf_rule_named(expr_context *x, gbnf *g, const char *name, size_t line, tri_status *st) {
  *st = TRI_OK;
  if (g->num == g->room) *st = grow(x, g);
  if (*st != TRI_OK) return UINT32_MAX;
  size_t at = slot_of(g, name);
  if (g->slots[at]) return g->slots[at] - 1;
  if (g->num == TRI_GBNF_MAX_RULES) {
    *st = tri_fail(x->err, TRI_TOO_LARGE, "", "line %zu: more than %d rules", line, TRI_GBNF_MAX_RULES);
    return UINT32_MAX;
  }
  g->list[g->num] = (gbnf_rule){.name = name, .line = line};
  g->slots[at] = (uint32_t)++g->num;
  return (uint32_t)g->num - 1;
}

static bool is_name_character(uint32_t c) {
  return (c | 32) >= 'a' ? (c | 32) <= 'z' || c == '_' : (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static tri_status read_name(reader *r, const char **out) {
  char name[MOST_NAME + 1];
  size_t len = 0;
  while (r->at < r->num && is_name_character(r->text[r->at]) && len < MOST_NAME) name[len++] = (char)r->text[r->at++];
  if (!len) return refuse(r, TRI_INVALID_ARGUMENT, "the name of a rule must stand here");
  if (r->at < r->num && is_name_character(r->text[r->at]))
    return refuse(r, TRI_TOO_LARGE, "a name of more than 200 characters");
  *out = tri_arena_strndup(r->x->arena, name, len);
  return *out ? expr_work(r->x, 20 + len) : TRI_NO_MEMORY;
}

/* ---- characters ---- */

static int hex_value(uint32_t c) {
  if (c >= '0' && c <= '9') return (int)(c - '0');
  return (c | 32) >= 'a' && (c | 32) <= 'f' ? (int)((c | 32) - 'a' + 10) : -1;
}

static tri_status read_hex(reader *r, int digits, uint32_t *out) {
  *out = 0;
  for (int i = 0; i < digits; i++, r->at++) {
    int value = r->at < r->num ? hex_value(r->text[r->at]) : -1;
    if (value < 0) return refuse(r, TRI_INVALID_ARGUMENT, "\\x, \\u and \\U need 2, 4 and 8 hexadecimal digits");
    *out = *out << 4 | (uint32_t)value;
  }
  if (*out > CHARSET_LAST || (*out >= 0xd800 && *out < 0xe000))
    return refuse(r, TRI_INVALID_ARGUMENT, "an escape that is no character");
  return TRI_OK;
}

static tri_status read_character(reader *r, uint32_t *out) {
  *out = r->text[r->at++];
  r->line += *out == '\n';
  if (*out != '\\') return TRI_OK;
  uint32_t c = r->at < r->num ? r->text[r->at++] : 0;
  switch (c) {
  case 'x': return read_hex(r, 2, out);
  case 'u': return read_hex(r, 4, out);
  case 'U': return read_hex(r, 8, out);
  case 't': *out = '\t'; return TRI_OK;
  case 'r': *out = '\r'; return TRI_OK;
  case 'n': *out = '\n'; return TRI_OK;
  case '\\':
  case '"':
  case '[':
  case ']':
  case '-':
  case '^': *out = c; return TRI_OK;
  default: return refuse(r, TRI_INVALID_ARGUMENT, "an escape that is not known");
  }
}

static tri_status make_class(reader *r, charset *set, bool invert, const expr **out) {
  if (!charset_sort(r->x->arena, set) || (invert && !charset_invert(r->x->arena, set))) return TRI_NO_MEMORY;
  TRI_CHECK(expr_work(r->x, 4 * set->num));
  return expr_class(r->x, set, r->line, out);
}

static tri_status read_text(reader *r, const expr **out) {
  expr *all = expr_make(r->x, EXPR_SEQUENCE, r->line);
  if (!all) return TRI_NO_MEMORY;
  while (r->at < r->num && !is_at(r, '"')) {
    charset set = {0};
    const expr *one;
    uint32_t c;
    TRI_CHECK(read_character(r, &c));
    if (!charset_add(r->x->arena, &set, c, c)) return TRI_NO_MEMORY;
    TRI_CHECK(expr_class(r->x, &set, r->line, &one));
    TRI_CHECK(expr_append(r->x, all, one));
  }
  *out = all->num == 1 ? all->parts[0] : all;
  return take(r, '"') ? TRI_OK : refuse(r, TRI_INVALID_ARGUMENT, "the text has no end");
}

static tri_status read_class(reader *r, const expr **out) {
  charset set = {0};
  bool invert = take(r, '^');
  while (r->at < r->num && !is_at(r, ']')) {
    uint32_t lo, hi;
    TRI_CHECK(read_character(r, &lo));
    hi = lo;
    if (is_at(r, '-') && r->at + 1 < r->num && r->text[r->at + 1] != ']') {
      r->at++;
      TRI_CHECK(read_character(r, &hi));
    }
    if (lo > hi) return refuse(r, TRI_INVALID_ARGUMENT, "a range ends before it begins");
    if (!charset_add(r->x->arena, &set, lo, hi)) return TRI_NO_MEMORY;
    TRI_CHECK(expr_work(r->x, 10));
  }
  if (!take(r, ']')) return refuse(r, TRI_INVALID_ARGUMENT, "the class has no end");
  return make_class(r, &set, invert, out);
}

static tri_status read_any(reader *r, const expr **out) {
  charset set = {0};
  if (!charset_add(r->x->arena, &set, 0, CHARSET_LAST)) return TRI_NO_MEMORY;
  return make_class(r, &set, false, out);
}

/* ---- repetitions ---- */

static tri_status read_number(reader *r, uint32_t *out) {
  uint64_t n = 0;
  size_t first = r->at;
  for (; r->at < r->num && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
    if (n < EXPR_NO_LIMIT) n = 10 * n + (r->text[r->at] - '0');
  if (r->at == first) return refuse(r, TRI_INVALID_ARGUMENT, "a number must stand here");
  if (n >= EXPR_NO_LIMIT) return refuse(r, TRI_TOO_LARGE, "the number of repetitions is too large");
  *out = (uint32_t)n;
  return TRI_OK;
}

/* Reads what follows the brace. */
static tri_status read_braces(reader *r, bool lines, uint32_t *least, uint32_t *most) {
  skip(r, lines);
  TRI_CHECK(read_number(r, least));
  skip(r, lines);
  *most = *least;
  if (take(r, ',')) {
    skip(r, lines);
    *most = EXPR_NO_LIMIT;
    if (!is_at(r, '}')) TRI_CHECK(read_number(r, most));
    skip(r, lines);
  }
  if (!take(r, '}')) return refuse(r, TRI_INVALID_ARGUMENT, "a repetition has no }");
  return *least > *most ? refuse(r, TRI_INVALID_ARGUMENT, "the larger number of repetitions comes first") : TRI_OK;
}

/* ---- rules ---- */

static tri_status read_alternatives(reader *r, bool lines, const expr **out);

static tri_status read_reference(reader *r, const expr **out) {
  const char *name;
  tri_status st;
  TRI_CHECK(read_name(r, &name));
  expr *e = expr_make(r->x, EXPR_RULE, r->line);
  if (!e) return TRI_NO_MEMORY;
  e->rule = gbnf_rule_named(r->x, r->g, name, r->line, &st);
  *out = e;
  return st;
}

static tri_status read_group(reader *r, const expr **out) {
  if (r->depth == EXPR_MAX_DEPTH) return refuse(r, TRI_TOO_LARGE, "more than 100 groups within each other");
  r->depth++;
  skip(r, true);
  TRI_CHECK(read_alternatives(r, true, out));
  r->depth--;
  while ((*out)->kind <= EXPR_ALTERNATIVES && (*out)->num == 1) *out = (*out)->parts[0];
  return take(r, ')') ? TRI_OK : refuse(r, TRI_INVALID_ARGUMENT, "a group has no end");
}

/* *out NULL: nothing that may stand in a sequence. */
static tri_status read_part(reader *r, const expr **out) {
  *out = NULL;
  if (take(r, '"')) return read_text(r, out);
  if (take(r, '[')) return read_class(r, out);
  if (take(r, '(')) return read_group(r, out);
  if (take(r, '.')) return read_any(r, out);
  if (is_at(r, '<') || is_at(r, '!')) return refuse(r, TRI_UNSUPPORTED, "tokens by name or number cannot be kept");
  if (is_at(r, '%')) return refuse(r, TRI_UNSUPPORTED, "a % begins something that is not GBNF");
  return r->at < r->num && is_name_character(r->text[r->at]) ? read_reference(r, out) : TRI_OK;
}

/* Repetitions may follow each other. */
static tri_status read_times(reader *r, bool lines, const expr **part) {
  for (;;) {
    uint32_t least = 0, most = EXPR_NO_LIMIT;
    skip(r, lines);
    if (take(r, '+'))
      least = 1;
    else if (take(r, '?'))
      most = 1;
    else if (take(r, '{'))
      TRI_CHECK(read_braces(r, lines, &least, &most));
    else if (!take(r, '*'))
      return TRI_OK;
    TRI_CHECK(expr_repeat(r->x, *part, least, most, r->line, part));
    if (++r->depth > EXPR_MAX_DEPTH) return refuse(r, TRI_TOO_LARGE, "more than 100 repetitions within each other");
  }
}

static tri_status read_sequence(reader *r, bool lines, const expr **out) {
  expr *all = expr_make(r->x, EXPR_SEQUENCE, r->line);
  int depth = r->depth;
  if (!all) return TRI_NO_MEMORY;
  for (;;) {
    const expr *part;
    TRI_CHECK(read_part(r, &part));
    if (!part) break;
    TRI_CHECK(read_times(r, lines, &part));
    r->depth = depth;
    TRI_CHECK(expr_append(r->x, all, part));
  }
  *out = all;
  return TRI_OK;
}

static tri_status read_alternatives(reader *r, bool lines, const expr **out) {
  expr *all = expr_make(r->x, EXPR_ALTERNATIVES, r->line);
  if (!all) return TRI_NO_MEMORY;
  for (;;) {
    const expr *part = NULL;
    TRI_CHECK(read_sequence(r, lines, &part));
    TRI_CHECK(expr_append(r->x, all, part));
    if (!take(r, '|')) break;
    skip(r, true);
  }
  *out = all;
  return TRI_OK;
}

static tri_status read_rule(reader *r) {
  const char *name;
  tri_status st;
  TRI_CHECK(read_name(r, &name));
  skip(r, false);
  if (!take(r, ':') || !take(r, ':') || !take(r, '='))
    return refuse(r, TRI_INVALID_ARGUMENT, "::= must follow the name of a rule");
  uint32_t number = gbnf_rule_named(r->x, r->g, name, r->line, &st);
  TRI_CHECK(st);
  if (r->g->list[number].body)
    return tri_fail(r->x->err, TRI_INVALID_ARGUMENT, "", "line %zu: the rule %s is there twice", r->line, name);
  const expr *body;
  skip(r, true);
  TRI_CHECK(read_alternatives(r, false, &body));
  r->g->list[number].body = body;
  if (r->at < r->num && !is_line_end(r)) return refuse(r, TRI_INVALID_ARGUMENT, "something that no rule can have");
  skip(r, true);
  return TRI_OK;
}

tri_status gbnf_read(expr_context *x, const char *text, size_t len, gbnf *out) {
  uint32_t *points;
  reader r = {.x = x, .g = out, .line = 1};
  if (len > TRI_GBNF_MAX_BYTES)
    return tri_fail(x->err, TRI_TOO_LARGE, "", "the grammar has %zu bytes, more than %d", len, TRI_GBNF_MAX_BYTES);
  TRI_CHECK(expr_decode(x, text, len, &points, &r.num));
  r.text = points;
  skip(&r, true);
  if (is_at(&r, '%')) return refuse(&r, TRI_UNSUPPORTED, "a % begins something that is not GBNF");
  while (r.at < r.num) TRI_CHECK(read_rule(&r));
  return TRI_OK;
}
