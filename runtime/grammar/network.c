/* SPDX-License-Identifier: Apache-2.0 */
/* While a network is built its arcs are one list in the order of the calls, each with the state it leaves; finish sorts
 * them by that state. */
#include "runtime/grammar/network.h"

#include <string.h>

#include "base/mem.h"

typedef struct rule {
  uint32_t first, most;
  bool is_empty;  /* it may end before a byte is taken */
  bool is_alive;  /* it may end at all */
  uint8_t colour; /* of the search for rules that call themselves first */
} rule;

typedef struct guard {
  uint32_t first, num; /* of the spans */
} guard;

typedef struct need {
  uint32_t rule, of;
} need;

/* Bytes of a text's state that lead to the same next one. */
enum { MAX_RUNS = 16 };
typedef struct text_runs {
  struct text_run {
    uint8_t lo, hi, to;
  } list[MAX_RUNS];
  int num;
} text_runs;

struct tri_net {
  text_runs runs[TRI_TEXT_STATES];
  tri_net_state *states; /* [0] of each is none */
  rule *rules;
  tri_net_arc *arcs;
  uint32_t *from; /* of each arc, while it is built */
  guard *guards;
  tri_net_span *spans;
  need *needs;
  uint32_t num_states, num_rules, num_arcs, num_guards, num_spans, num_needs;
  uint32_t room_states, room_rules, room_arcs, room_from, room_guards, room_spans, room_needs;
  uint32_t begin;
  tri_status broken; /* by what */
};

static void break_off(tri_net *n, tri_status why) {
  if (n->broken == TRI_OK) n->broken = why;
}

/* Makes room for `more` elements beyond `num`, at most `most` in all. *room counts elements. */
static bool make_room(tri_net *n, void **p, uint32_t *room, uint32_t num, size_t more, uint32_t most, size_t size) {
  if (n->broken != TRI_OK) return false;
  if (more > most || num > most - more) {
    break_off(n, TRI_TOO_LARGE);
    return false;
  }
  size_t wanted = num + more;
  if (wanted <= *room) return true;
  size_t grown = *room ? *room : 16;
  while (grown < wanted) grown *= 2;
  void *q = tri_grow(*p, *room, grown, size);
  if (!q) {
    break_off(n, TRI_NO_MEMORY);
    return false;
  }
  *p = q;
  *room = (uint32_t)grown;
  return true;
}
#define ROOM(n, list, num, more, most)                                                                                 \
  make_room(n, (void **)&(n)->list, &(n)->room_##list, num, more, most, sizeof *(n)->list)

static void list_runs(tri_text_state at, text_runs *r) {
  int last = TRI_TEXT_OUT;
  for (int b = 0; b < 256; b++) {
    int to = tri_text_next(at, (uint8_t)b);
    if (to != TRI_TEXT_OUT && to == last)
      r->list[r->num - 1].hi = (uint8_t)b;
    else if (to != TRI_TEXT_OUT && r->num < MAX_RUNS)
      r->list[r->num++] = (struct text_run){(uint8_t)b, (uint8_t)b, (uint8_t)to};
    last = to;
  }
}

tri_status tri_net_create(tri_net **out) {
  tri_net *n = tri_calloc(1, sizeof *n);
  if (!n) return TRI_NO_MEMORY;
  if (!ROOM(n, states, 0, 1, 1) || !ROOM(n, rules, 0, 1, 1) || !ROOM(n, guards, 0, 1, 1)) {
    tri_net_destroy(n);
    return TRI_NO_MEMORY;
  }
  n->num_states = n->num_rules = n->num_guards = 1;
  for (int i = 0; i < TRI_TEXT_STATES; i++) list_runs((tri_text_state)i, &n->runs[i]);
  *out = n;
  return TRI_OK;
}

void tri_net_destroy(tri_net *n) {
  if (!n) return;
  tri_free(n->states);
  tri_free(n->rules);
  tri_free(n->arcs);
  tri_free(n->from);
  tri_free(n->guards);
  tri_free(n->spans);
  tri_free(n->needs);
  tri_free(n);
}

bool tri_net_is_whole(const tri_net *n) { return n->broken == TRI_OK; }

/* ---- building ---- */

uint32_t tri_net_add_rule(tri_net *n, uint32_t most) {
  if (most > TRI_NET_MAX_COUNT) break_off(n, TRI_TOO_LARGE);
  if (!ROOM(n, rules, n->num_rules, 1, TRI_NET_MAX_RULES)) return 0;
  uint32_t number = n->num_rules++;
  n->rules[number] = (rule){.most = most};
  uint32_t first = tri_net_add_state(n, number);
  n->rules[number].first = first;
  return first ? number : 0;
}

uint32_t tri_net_first_state(const tri_net *n, uint32_t number) { return n->rules[number].first; }

uint32_t tri_net_add_state(tri_net *n, uint32_t number) {
  if (!number || !ROOM(n, states, n->num_states, 1, TRI_NET_MAX_STATES)) return 0;
  n->states[n->num_states] = (tri_net_state){.rule = number};
  return n->num_states++;
}

uint32_t tri_net_add_guard(tri_net *n, const tri_net_span *spans, size_t num) {
  if (!ROOM(n, spans, n->num_spans, num, TRI_NET_MAX_SPANS) || !ROOM(n, guards, n->num_guards, 1, TRI_NET_MAX_SPANS))
    return 0;
  if (num) memcpy(n->spans + n->num_spans, spans, num * sizeof *spans);
  n->guards[n->num_guards] = (guard){n->num_spans, (uint32_t)num};
  n->num_spans += (uint32_t)num;
  return n->num_guards++;
}

uint32_t tri_net_add_range(tri_net *n, uint32_t lo, uint32_t hi) {
  return tri_net_add_guard(n, &(tri_net_span){lo, hi}, 1);
}

static void add_arc(tri_net *n, uint32_t from, tri_net_arc arc, tri_net_count count) {
  if (!from || !arc.to || !ROOM(n, arcs, n->num_arcs, 1, TRI_NET_MAX_ARCS) ||
      !ROOM(n, from, n->num_arcs, 1, TRI_NET_MAX_ARCS))
    return;
  arc.guard = count.guard;
  arc.action = (uint8_t)count.action;
  arc.value = count.value;
  n->from[n->num_arcs] = from;
  n->arcs[n->num_arcs++] = arc;
  n->states[from].num_arcs++;
}

void tri_net_add_edge(tri_net *n, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to, tri_net_count count) {
  add_arc(n, from, (tri_net_arc){.kind = TRI_NET_EDGE, .lo = lo, .hi = hi, .to = to}, count);
}

void tri_net_add_step(tri_net *n, uint32_t from, uint32_t to, tri_net_count count) {
  add_arc(n, from, (tri_net_arc){.kind = TRI_NET_STEP, .to = to}, count);
}

void tri_net_add_call(tri_net *n, uint32_t from, uint32_t number, uint32_t to, tri_net_count count) {
  if (number) add_arc(n, from, (tri_net_arc){.kind = TRI_NET_CALL, .rule = number, .to = to}, count);
}

uint32_t tri_net_add_bytes(tri_net *n, uint32_t from, const char *bytes, size_t len, tri_net_count count) {
  for (size_t i = 0; i < len && from; i++) {
    uint32_t to = tri_net_add_state(n, n->states[from].rule);
    tri_net_add_edge(n, from, (uint8_t)bytes[i], (uint8_t)bytes[i], to, i ? TRI_NET_ANY : count);
    from = to;
  }
  return from;
}

void tri_net_set_final(tri_net *n, uint32_t state, uint32_t number) {
  if (!state) return;
  n->states[state].is_final = true;
  n->states[state].guard = number;
}

void tri_net_add_need(tri_net *n, uint32_t number, uint32_t needed) {
  if (!number || !needed || !ROOM(n, needs, n->num_needs, 1, TRI_NET_MAX_ARCS)) return;
  n->needs[n->num_needs++] = (need){needed, number};
}

/* ---- characters ---- */

/* `left` bytes from 80 to BF, then `to`. */
static uint32_t before_rest(tri_net *n, uint32_t to, int left) {
  for (; left > 0 && to; left--) {
    uint32_t at = tri_net_add_state(n, n->states[to].rule);
    tri_net_add_edge(n, at, 0x80, 0xbf, to, TRI_NET_ANY);
    to = at;
  }
  return to;
}

typedef struct utf8 {
  uint8_t bytes[4];
  int num;
} utf8;

static utf8 encode(uint32_t c) {
  if (c < 0x80) return (utf8){{(uint8_t)c}, 1};
  if (c < 0x800) return (utf8){{(uint8_t)(0xc0 | c >> 6), (uint8_t)(0x80 | (c & 63))}, 2};
  if (c < 0x10000)
    return (utf8){{(uint8_t)(0xe0 | c >> 12), (uint8_t)(0x80 | (c >> 6 & 63)), (uint8_t)(0x80 | (c & 63))}, 3};
  return (utf8){{(uint8_t)(0xf0 | c >> 18), (uint8_t)(0x80 | (c >> 12 & 63)), (uint8_t)(0x80 | (c >> 6 & 63)),
                 (uint8_t)(0x80 | (c & 63))},
                4};
}

/* Characters of as many bytes each, from byte number `at` of lo and hi on, all before which are equal. */
static void add_encoded(tri_net *n, uint32_t from, utf8 lo, utf8 hi, int at, uint32_t to, tri_net_count count) {
  int rest = lo.num - at - 1;
  uint32_t owner = from ? n->states[from].rule : 0;
  if (!from || !to) return;
  if (!rest) {
    tri_net_add_edge(n, from, lo.bytes[at], hi.bytes[at], to, count);
    return;
  }
  if (lo.bytes[at] == hi.bytes[at]) {
    uint32_t next = tri_net_add_state(n, owner);
    tri_net_add_edge(n, from, lo.bytes[at], lo.bytes[at], next, count);
    add_encoded(n, next, lo, hi, at + 1, to, TRI_NET_ANY);
    return;
  }
  uint8_t first = lo.bytes[at], last = hi.bytes[at];
  bool whole_lo = true, whole_hi = true;
  for (int i = at + 1; i < lo.num; i++) {
    whole_lo = whole_lo && lo.bytes[i] == 0x80;
    whole_hi = whole_hi && hi.bytes[i] == 0xbf;
  }
  if (!whole_lo) {
    utf8 end = lo;
    for (int i = at + 1; i < end.num; i++) end.bytes[i] = 0xbf;
    add_encoded(n, from, lo, end, at, to, count);
    first++;
  }
  if (!whole_hi) {
    utf8 begin = hi;
    for (int i = at + 1; i < begin.num; i++) begin.bytes[i] = 0x80;
    add_encoded(n, from, begin, hi, at, to, count);
    last--;
  }
  if (first <= last) tri_net_add_edge(n, from, first, last, before_rest(n, to, rest), count);
}

void tri_net_add_characters(tri_net *n, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to, tri_net_count count) {
  static const tri_net_span lengths[] = {
      {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    uint32_t a = lo > lengths[i].lo ? lo : lengths[i].lo, b = hi < lengths[i].hi ? hi : lengths[i].hi;
    if (a <= b) add_encoded(n, from, encode(a), encode(b), 0, to, count);
  }
}

void tri_net_add_text_arcs(tri_net *n, const uint32_t states[TRI_TEXT_STATES], tri_text_state at, uint32_t from,
                           const bool *skipped, tri_net_count count) {
  tri_net_count own = at == TRI_TEXT_BEFORE ? count : TRI_NET_ANY;
  for (int i = 0; i < n->runs[at].num; i++) {
    struct text_run r = n->runs[at].list[i];
    for (int lo = r.lo, hi; lo <= r.hi; lo = hi + 1) {
      bool leave = skipped && skipped[lo];
      hi = leave ? lo : r.hi;
      for (int b = lo; skipped && !leave && b <= r.hi && hi == r.hi; b++)
        if (skipped[b]) hi = b - 1;
      if (!leave) tri_net_add_edge(n, from, (uint8_t)lo, (uint8_t)hi, states[r.to], own);
    }
  }
}

uint32_t tri_net_add_text(tri_net *n, uint32_t from, uint32_t inside, uint32_t ends) {
  if (!from) return 0;
  uint32_t owner = n->states[from].rule, end = tri_net_add_state(n, owner), states[TRI_TEXT_STATES] = {from};
  tri_net_count one = {inside, n->rules[owner].most ? TRI_NET_ADD : TRI_NET_KEEP, 0};
  for (int i = 1; i < TRI_TEXT_STATES; i++) states[i] = tri_net_add_state(n, owner);
  if (n->broken != TRI_OK) return 0;
  n->states[from].is_text = true;
  tri_net_add_edge(n, from, '"', '"', end, (tri_net_count){ends, TRI_NET_KEEP, 0});
  for (int i = 0; i < TRI_TEXT_STATES; i++) tri_net_add_text_arcs(n, states, (tri_text_state)i, states[i], NULL, one);
  return end;
}

/* ---- finish ---- */

static tri_status sort_arcs(tri_net *n) {
  tri_net_arc *sorted = tri_malloc(n->num_arcs ? n->num_arcs : 1, sizeof *sorted);
  if (!sorted) return TRI_NO_MEMORY;
  uint32_t at = 0;
  for (uint32_t s = 1; s < n->num_states; s++) {
    n->states[s].first_arc = at;
    at += n->states[s].num_arcs;
    n->states[s].num_arcs = 0;
  }
  for (uint32_t i = 0; i < n->num_arcs; i++) {
    tri_net_state *s = &n->states[n->from[i]];
    sorted[s->first_arc + s->num_arcs++] = n->arcs[i];
  }
  tri_free(n->arcs);
  tri_free(n->from);
  n->arcs = sorted;
  n->room_arcs = n->num_arcs;
  n->from = NULL;
  n->room_from = 0;
  return TRI_OK;
}

/* Numbers of arcs by what they lead to: at[first[i]] to at[first[i + 1] - 1]. */
typedef struct arc_index {
  uint32_t *first, *at;
} arc_index;

typedef uint32_t key_of(const tri_net_arc *a);
static uint32_t key_to(const tri_net_arc *a) { return a->to; }
static uint32_t key_rule(const tri_net_arc *a) { return a->kind == TRI_NET_CALL ? a->rule : 0; }

/* keys: below this. */
static bool make_index(const tri_net *n, uint32_t keys, key_of *key, arc_index *out) {
  out->first = tri_calloc((size_t)keys + 2, sizeof *out->first);
  out->at = tri_malloc(n->num_arcs ? n->num_arcs : 1, sizeof *out->at);
  if (!out->first || !out->at) return false;
  uint32_t *next = out->first + 1; /* where the next one of a key goes */
  for (uint32_t i = 0; i < n->num_arcs; i++) next[key(&n->arcs[i]) + 1]++;
  for (uint32_t i = 1; i <= keys; i++) next[i] += next[i - 1];
  for (uint32_t i = 0; i < n->num_arcs; i++) out->at[next[key(&n->arcs[i])]++] = i;
  return true;
}

static void free_index(arc_index *x) {
  tri_free(x->first);
  tri_free(x->at);
}

/* What finish works with. Each state and each arc is looked at a limited number of times. */
typedef struct finishing {
  tri_net *n;
  uint32_t *from;           /* [arcs] */
  arc_index to_state, call; /* arcs by the state they lead to, calls by their rule */
  uint8_t *mark;            /* [states] */
  uint32_t *todo;           /* [2 * states]: each state comes at most twice */
  uint32_t num_todo;
  uint32_t *unmet;   /* [rules]: needs that have no end so far */
  uint32_t *by_rule; /* [rules]: the first of the needs of this rule, plus 1 */
  uint32_t *next;    /* [needs]: the next one of the same rule, plus 1 */
  uint8_t *waits;    /* [rules]: its first state is alive but for needs */
} finishing;

static void mark_state(finishing *f, uint32_t state, uint8_t mark) {
  if (f->mark[state] >= mark) return;
  f->mark[state] = mark;
  f->todo[f->num_todo++] = state;
}

/* ---- what leads nowhere ---- */

static bool leads_to_end(const finishing *f, const tri_net_arc *a) {
  return f->mark[a->to] && (a->kind != TRI_NET_CALL || f->mark[f->n->rules[a->rule].first]);
}

/* A rule has no end, and so its first state none, before all that it needs has one. */
static void mark_alive(finishing *f, uint32_t state) {
  uint32_t owner = f->n->states[state].rule;
  f->waits[owner] |= f->n->rules[owner].first == state;
  if (f->n->rules[owner].first != state || !f->unmet[owner]) mark_state(f, state, 1);
}

static void look_back(finishing *f, const arc_index *x, uint32_t key) {
  for (uint32_t i = x->first[key]; i < x->first[key + 1]; i++)
    if (leads_to_end(f, &f->n->arcs[x->at[i]])) mark_alive(f, f->from[x->at[i]]);
}

static void look_at_needs(finishing *f, uint32_t number) {
  for (uint32_t i = f->by_rule[number]; i; i = f->next[i - 1]) {
    uint32_t of = f->n->needs[i - 1].of;
    if (!--f->unmet[of] && f->waits[of]) mark_state(f, f->n->rules[of].first, 1);
  }
}

static void list_needs(finishing *f) {
  for (uint32_t i = 0; i < f->n->num_needs; i++) {
    need own = f->n->needs[i];
    f->unmet[own.of]++;
    f->next[i] = f->by_rule[own.rule];
    f->by_rule[own.rule] = i + 1;
  }
}

/* Marks states that may end their rule, or from which a way leads to one that does, whatever counts are. */
static void find_alive(finishing *f) {
  tri_net *n = f->n;
  list_needs(f);
  for (uint32_t s = 1; s < n->num_states; s++)
    if (n->states[s].is_final) mark_alive(f, s);
  for (uint32_t i = 0; i < f->num_todo; i++) {
    uint32_t state = f->todo[i], owner = n->states[state].rule;
    look_back(f, &f->to_state, state);
    if (n->rules[owner].first != state) continue;
    look_back(f, &f->call, owner);
    look_at_needs(f, owner);
  }
}

/* Makes ways that lead to no end unusable, so that no byte goes there: they stay in their places until `squeeze`. */
static void mark_dead(finishing *f) {
  for (uint32_t i = 0; i < f->n->num_arcs; i++)
    if (!leads_to_end(f, &f->n->arcs[i])) f->n->arcs[i].to = 0;
  for (uint32_t i = 1; i < f->n->num_rules; i++) f->n->rules[i].is_alive = f->mark[f->n->rules[i].first];
}

static void squeeze(tri_net *n) {
  for (uint32_t s = 1; s < n->num_states; s++) {
    tri_net_state *at = &n->states[s];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < at->num_arcs; i++)
      if (n->arcs[at->first_arc + i].to) n->arcs[at->first_arc + kept++] = n->arcs[at->first_arc + i];
    at->num_arcs = kept;
  }
}

/* ---- rules that call themselves before a byte is taken ---- */

/* Marks of states that are reached before a byte: 1 with the count of the beginning alone, 2 with any. */
static void go_without_byte(finishing *f, uint32_t number) {
  const tri_net *n = f->n;
  const tri_net_arc *a = &n->arcs[number];
  uint8_t how = f->mark[f->from[number]];
  if (!how || !a->to || a->kind == TRI_NET_EDGE || (a->kind == TRI_NET_CALL && !n->rules[a->rule].is_empty)) return;
  if (how == 1 && !tri_net_allows(n, a->guard, 0)) return;
  mark_state(f, a->to, a->action == TRI_NET_KEEP ? how : 2);
}

static void look_at_end(finishing *f, uint32_t state) {
  tri_net *n = f->n;
  const tri_net_state *s = &n->states[state];
  rule *r = &n->rules[s->rule];
  if (r->is_empty || !s->is_final || (f->mark[state] == 1 && !tri_net_allows(n, s->guard, 0))) return;
  r->is_empty = true;
  for (uint32_t i = f->call.first[s->rule]; i < f->call.first[s->rule + 1]; i++) go_without_byte(f, f->call.at[i]);
}

/* A state may come twice, as more counts are reached. */
static void reach_all(finishing *f) {
  tri_net *n = f->n;
  memset(f->mark, 0, n->num_states);
  f->num_todo = 0;
  for (uint32_t i = 1; i < n->num_rules; i++) mark_state(f, n->rules[i].first, 1);
  for (uint32_t i = 0; i < f->num_todo; i++) {
    const tri_net_state *s = &n->states[f->todo[i]];
    for (uint32_t a = s->first_arc; a < s->first_arc + s->num_arcs; a++) go_without_byte(f, a);
    look_at_end(f, f->todo[i]);
  }
}

/* The rules that each rule may call before a byte is taken: called[first[i]] to called[first[i + 1] - 1]. */
typedef struct first_calls {
  uint32_t *first, *called;
} first_calls;

static bool is_first_call(const finishing *f, uint32_t number) {
  const tri_net_arc *a = &f->n->arcs[number];
  return a->to && a->kind == TRI_NET_CALL && f->mark[f->from[number]];
}

static void list_first_calls(const finishing *f, first_calls *c) {
  const tri_net *n = f->n;
  uint32_t *next = c->first + 1;
  for (uint32_t i = 0; i < n->num_arcs; i++)
    if (is_first_call(f, i)) next[n->states[f->from[i]].rule + 1]++;
  for (uint32_t i = 1; i <= n->num_rules; i++) next[i] += next[i - 1];
  for (uint32_t i = 0; i < n->num_arcs; i++)
    if (is_first_call(f, i)) c->called[next[n->states[f->from[i]].rule]++] = n->arcs[i].rule;
}

/* Returns whether there is no way from a rule to itself, by a search in depth. stack: [rules]. */
static bool is_free_of_cycles(tri_net *n, const first_calls *f, uint32_t *stack, uint32_t *next) {
  enum { NEW, OPEN, DONE };
  for (uint32_t begin = 1; begin < n->num_rules; begin++) {
    uint32_t depth = 0;
    if (n->rules[begin].colour != NEW) continue;
    stack[depth++] = begin;
    n->rules[begin].colour = OPEN;
    while (depth) {
      uint32_t at = stack[depth - 1];
      if (f->first[at] + next[at] == f->first[at + 1]) {
        n->rules[at].colour = DONE;
        depth--;
        continue;
      }
      uint32_t to = f->called[f->first[at] + next[at]++];
      if (n->rules[to].colour == OPEN) return false;
      if (n->rules[to].colour == DONE) continue;
      n->rules[to].colour = OPEN;
      stack[depth++] = to;
    }
  }
  return true;
}

static tri_status check_cycles(finishing *f, tri_error *err) {
  tri_net *n = f->n;
  tri_status st = TRI_OK;
  first_calls c = {0};
  uint32_t *stack = tri_calloc(n->num_rules, sizeof *stack), *next = tri_calloc(n->num_rules, sizeof *next);
  c.first = tri_calloc((size_t)n->num_rules + 2, sizeof *c.first);
  c.called = tri_malloc(n->num_arcs ? n->num_arcs : 1, sizeof *c.called);
  if (!stack || !next || !c.first || !c.called) TRI_TRY(TRI_NO_MEMORY);
  reach_all(f);
  list_first_calls(f, &c);
  if (!is_free_of_cycles(n, &c, stack, next))
    st = tri_fail(err, TRI_UNSUPPORTED, "", "a rule begins with itself, so that it has no beginning");
cleanup:
  tri_free(stack);
  tri_free(next);
  tri_free(c.first);
  tri_free(c.called);
  return st;
}

static bool finishing_make(finishing *f) {
  tri_net *n = f->n;
  f->from = tri_malloc(n->num_arcs ? n->num_arcs : 1, sizeof *f->from);
  f->mark = tri_calloc(n->num_states, 1);
  f->todo = tri_malloc((size_t)n->num_states * 2, sizeof *f->todo);
  f->unmet = tri_calloc(n->num_rules, sizeof *f->unmet);
  f->by_rule = tri_calloc(n->num_rules, sizeof *f->by_rule);
  f->next = tri_calloc((size_t)n->num_needs + 1, sizeof *f->next);
  f->waits = tri_calloc(n->num_rules, 1);
  if (!f->unmet || !f->by_rule || !f->next || !f->waits) return false;
  if (!f->from || !f->mark || !f->todo || !make_index(n, n->num_states, key_to, &f->to_state) ||
      !make_index(n, n->num_rules, key_rule, &f->call))
    return false;
  for (uint32_t s = 1; s < n->num_states; s++)
    for (uint32_t i = 0; i < n->states[s].num_arcs; i++) f->from[n->states[s].first_arc + i] = s;
  return true;
}

static tri_status check_and_trim(tri_net *n, uint32_t whole, tri_error *err) {
  tri_status st = TRI_OK;
  finishing f = {.n = n};
  if (!finishing_make(&f)) TRI_TRY(TRI_NO_MEMORY);
  find_alive(&f);
  mark_dead(&f);
  if (!n->rules[whole].is_alive) TRI_TRY(tri_fail(err, TRI_INVALID_ARGUMENT, "", "nothing fits it"));
  TRI_TRY(check_cycles(&f, err));
  squeeze(n);
cleanup:
  tri_free(f.from);
  tri_free(f.mark);
  tri_free(f.todo);
  tri_free(f.unmet);
  tri_free(f.by_rule);
  tri_free(f.next);
  tri_free(f.waits);
  free_index(&f.to_state);
  free_index(&f.call);
  return st;
}

tri_status tri_net_check(const tri_net *n, tri_error *err) {
  if (n->broken != TRI_TOO_LARGE) return n->broken;
  return tri_fail(err, TRI_TOO_LARGE, "",
                  "it becomes more than %d states, %d rules, %d ways between states or %d limits of counts",
                  TRI_NET_MAX_STATES, TRI_NET_MAX_RULES, TRI_NET_MAX_ARCS, TRI_NET_MAX_SPANS);
}

tri_status tri_net_finish(tri_net *n, uint32_t whole, tri_error *err) {
  if (n->broken == TRI_OK && !whole) n->broken = TRI_INTERNAL;
  TRI_CHECK(tri_net_check(n, err));
  TRI_CHECK(sort_arcs(n));
  TRI_CHECK(check_and_trim(n, whole, err));
  n->begin = n->rules[whole].first;
  return TRI_OK;
}

bool tri_net_has_end(const tri_net *n, uint32_t number) { return n->rules[number].is_alive; }
uint32_t tri_net_num_arcs(const tri_net *n) { return n->num_arcs; }

/* ---- reading ---- */

uint32_t tri_net_begin(const tri_net *n) { return n->begin; }
const tri_net_state *tri_net_state_at(const tri_net *n, uint32_t state) { return &n->states[state]; }
const tri_net_arc *tri_net_arcs_of(const tri_net *n, const tri_net_state *s) { return n->arcs + s->first_arc; }
uint32_t tri_net_most(const tri_net *n, uint32_t number) { return n->rules[number].most; }
uint32_t tri_net_num_states(const tri_net *n) { return n->num_states; }

/* Guards have few spans; those of large objects are searched. */
bool tri_net_allows(const tri_net *n, uint32_t number, uint32_t count) {
  if (!number) return true;
  const tri_net_span *spans = n->spans + n->guards[number].first;
  uint32_t lo = 0, hi = n->guards[number].num;
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (spans[mid].hi < count)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo < n->guards[number].num && spans[lo].lo <= count;
}

size_t tri_net_bytes(const tri_net *n) {
  return n->num_states * sizeof *n->states + n->num_arcs * sizeof *n->arcs + n->num_rules * sizeof *n->rules +
         n->num_spans * sizeof *n->spans + n->num_guards * sizeof *n->guards;
}
