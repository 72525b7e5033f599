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

struct tri_net {
  tri_net_state *states; /* [0] of each is none */
  rule *rules;
  tri_net_arc *arcs;
  uint32_t *from; /* of each arc, while it is built */
  guard *guards;
  tri_net_span *spans;
  uint32_t num_states, num_rules, num_arcs, num_guards, num_spans;
  uint32_t room_states, room_rules, room_arcs, room_from, room_guards, room_spans;
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

tri_status tri_net_create(tri_net **out) {
  tri_net *n = tri_calloc(1, sizeof *n);
  if (!n) return TRI_NO_MEMORY;
  if (!ROOM(n, states, 0, 1, 1) || !ROOM(n, rules, 0, 1, 1) || !ROOM(n, guards, 0, 1, 1)) {
    tri_net_destroy(n);
    return TRI_NO_MEMORY;
  }
  n->num_states = n->num_rules = n->num_guards = 1;
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
  for (int lo = 0; lo < 256;) {
    tri_text_state to = tri_text_next(at, (uint8_t)lo);
    bool leave = to == TRI_TEXT_OUT || (skipped && skipped[lo]);
    int hi = lo;
    while (hi < 255 && tri_text_next(at, (uint8_t)(hi + 1)) == to && !(skipped && skipped[hi + 1])) hi++;
    if (leave) hi = lo;
    if (!leave)
      tri_net_add_edge(n, from, (uint8_t)lo, (uint8_t)hi, states[to], at == TRI_TEXT_BEFORE ? count : TRI_NET_ANY);
    lo = hi + 1;
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

/* States that are reached from a rule's first one before a byte is taken. */
typedef struct reach {
  uint32_t *list;
  uint8_t *seen; /* [states]: 1 with the count of the beginning alone, 2 with any */
  uint32_t num;
} reach;

static void reach_state(reach *r, uint32_t state, uint8_t how) {
  if (r->seen[state] >= how) return;
  r->seen[state] = how;
  r->list[r->num++] = state;
}

/* A state may come twice, as more counts are reached. */
static void reach_all(const tri_net *n, reach *r, uint32_t first) {
  for (uint32_t i = 0; i < r->num; i++) r->seen[r->list[i]] = 0;
  r->num = 0;
  reach_state(r, first, 1);
  for (uint32_t i = 0; i < r->num; i++) {
    const tri_net_state *s = &n->states[r->list[i]];
    uint8_t how = r->seen[r->list[i]];
    for (const tri_net_arc *a = n->arcs + s->first_arc; a < n->arcs + s->first_arc + s->num_arcs; a++) {
      bool open = how == 2 || tri_net_allows(n, a->guard, 0);
      if (a->kind == TRI_NET_EDGE || !open || (a->kind == TRI_NET_CALL && !n->rules[a->rule].is_empty)) continue;
      reach_state(r, a->to, a->action == TRI_NET_KEEP ? how : 2);
    }
  }
}

static void find_empty(tri_net *n, reach *r) {
  for (bool more = true; more;) {
    more = false;
    for (uint32_t i = 1; i < n->num_rules; i++) {
      if (n->rules[i].is_empty) continue;
      reach_all(n, r, n->rules[i].first);
      for (uint32_t k = 0; k < r->num && !n->rules[i].is_empty; k++) {
        const tri_net_state *s = &n->states[r->list[k]];
        n->rules[i].is_empty = s->is_final && (r->seen[r->list[k]] == 2 || tri_net_allows(n, s->guard, 0));
      }
      more = more || n->rules[i].is_empty;
    }
  }
}

/* The rules that each rule may call before a byte is taken: called[first[i]] to called[first[i + 1] - 1]. */
typedef struct first_calls {
  uint32_t *first, *called;
  uint32_t num, room;
} first_calls;

static tri_status list_first_calls(const tri_net *n, reach *r, first_calls *f) {
  for (uint32_t i = 0; i < n->num_rules; i++) {
    f->first[i] = f->num;
    if (i) reach_all(n, r, n->rules[i].first);
    for (uint32_t k = 0; i && k < r->num; k++) {
      const tri_net_state *s = &n->states[r->list[k]];
      for (uint32_t a = s->first_arc; a < s->first_arc + s->num_arcs; a++) {
        if (n->arcs[a].kind != TRI_NET_CALL) continue;
        if (f->num == f->room) {
          uint32_t room = f->room ? 2 * f->room : 64;
          uint32_t *grown = tri_grow(f->called, f->room, room, sizeof *grown);
          if (!grown) return TRI_NO_MEMORY;
          f->called = grown;
          f->room = room;
        }
        f->called[f->num++] = n->arcs[a].rule;
      }
    }
  }
  f->first[n->num_rules] = f->num;
  return TRI_OK;
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

static tri_status check_cycles(tri_net *n, tri_error *err) {
  tri_status st = TRI_OK;
  reach r = {0};
  first_calls f = {0};
  uint32_t *stack = tri_calloc(n->num_rules, sizeof *stack), *next = tri_calloc(n->num_rules, sizeof *next);
  r.list = tri_calloc((size_t)n->num_states * 2, sizeof *r.list);
  r.seen = tri_calloc(n->num_states, 1);
  f.first = tri_calloc((size_t)n->num_rules + 1, sizeof *f.first);
  if (!stack || !next || !r.list || !r.seen || !f.first) st = TRI_NO_MEMORY;
  if (st == TRI_OK) find_empty(n, &r);
  if (st == TRI_OK) st = list_first_calls(n, &r, &f);
  if (st == TRI_OK && !is_free_of_cycles(n, &f, stack, next))
    st = tri_fail(err, TRI_UNSUPPORTED, "", "a rule begins with itself, so that it has no beginning");
  tri_free(stack);
  tri_free(next);
  tri_free(r.list);
  tri_free(r.seen);
  tri_free(f.first);
  tri_free(f.called);
  return st;
}

/* ---- what leads nowhere ---- */

/* One round over all states: a state is alive that may end its rule, or from which a way leads to one that is. Returns
 * whether any was found. */
static bool find_alive(const tri_net *n, bool *alive) {
  bool found = false;
  for (uint32_t s = n->num_states - 1; s; s--) {
    const tri_net_state *at = &n->states[s];
    bool now = alive[s] || at->is_final;
    for (uint32_t i = at->first_arc; i < at->first_arc + at->num_arcs && !now; i++)
      now = alive[n->arcs[i].to] && (n->arcs[i].kind != TRI_NET_CALL || alive[n->rules[n->arcs[i].rule].first]);
    found = found || now != alive[s];
    alive[s] = now;
  }
  return found;
}

/* Takes ways away that lead to no end, whatever counts are, so that no byte leads there. */
static tri_status trim(tri_net *n) {
  bool *alive = tri_calloc(n->num_states, sizeof *alive);
  if (!alive) return TRI_NO_MEMORY;
  while (find_alive(n, alive)) continue;
  for (uint32_t s = 1; s < n->num_states; s++) {
    tri_net_state *at = &n->states[s];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < at->num_arcs; i++) {
      const tri_net_arc *a = &n->arcs[at->first_arc + i];
      if (!alive[a->to] || (a->kind == TRI_NET_CALL && !alive[n->rules[a->rule].first])) continue;
      n->arcs[at->first_arc + kept++] = *a;
    }
    at->num_arcs = kept;
  }
  for (uint32_t i = 1; i < n->num_rules; i++) n->rules[i].is_alive = alive[n->rules[i].first];
  tri_free(alive);
  return TRI_OK;
}

tri_status tri_net_finish(tri_net *n, uint32_t whole, tri_error *err) {
  if (n->broken == TRI_OK && !whole) n->broken = TRI_INTERNAL;
  if (n->broken == TRI_TOO_LARGE)
    return tri_fail(err, TRI_TOO_LARGE, "",
                    "it becomes more than %d states, %d rules, %d ways between states or %d limits of counts",
                    TRI_NET_MAX_STATES, TRI_NET_MAX_RULES, TRI_NET_MAX_ARCS, TRI_NET_MAX_SPANS);
  if (n->broken != TRI_OK) return n->broken;
  TRI_CHECK(sort_arcs(n));
  TRI_CHECK(trim(n));
  if (!n->rules[whole].is_alive) return tri_fail(err, TRI_INVALID_ARGUMENT, "", "nothing fits it");
  TRI_CHECK(check_cycles(n, err));
  n->begin = n->rules[whole].first;
  return TRI_OK;
}

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
