/* SPDX-License-Identifier: Apache-2.0 */
/* Three lists of things that are kept once (stacks, places, configurations), each with a hash table of numbers, and a
 * table of steps from (configuration, byte) to a configuration. Number 0 of places and configurations is none; a step
 * to 0 is kept too. */
#include "runtime/grammar/configurations.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { MOST_TODO = 8 * TRI_CONFIG_PLACES }; /* places that are reached without a byte */

typedef struct stack {
  uint32_t state, count; /* behind the call */
  uint32_t parent, depth;
} stack;

typedef struct config {
  uint64_t bytes[4];
  uint32_t first, num; /* of members */
  bool may_end;
} config;

/* Numbers by hash, 0 being an empty place. */
typedef struct table {
  uint32_t *numbers;
  size_t room, used; /* room: a power of two */
} table;

typedef struct step {
  uint64_t key; /* config << 8 | byte; 0: empty, as configurations begin with 1 */
  uint32_t to;
} step;

struct tri_configs {
  const tri_net *net;
  size_t most_bytes, bytes;
  bool is_full;
  stack *stacks;
  tri_place *places;
  config *configs;
  uint32_t *members; /* numbers of places */
  uint32_t num_stacks, num_places, num_configs, num_members;
  uint32_t room_stacks, room_places, room_configs, room_members;
  table of_stacks, of_places, of_configs;
  step *steps;
  size_t room_steps, num_steps;
  /* The closure that is being made: */
  uint32_t *todo, *found; /* places to look at, and those that take bytes */
  uint32_t num_todo, num_found, room_todo, room_found;
  uint32_t *turn; /* [room_turn]: the closure in which a place was seen last */
  uint32_t room_turn, turns;
  bool may_end;
};

/* ---- memory ---- */

/* Makes *p of *room elements hold `wanted`. */
static bool grow(tri_configs *c, void **p, uint32_t *room, size_t wanted, size_t size) {
  if (wanted <= *room) return true;
  size_t grown = *room ? *room : 64, more;
  while (grown < wanted) grown *= 2;
  more = (grown - *room) * size;
  void *q = grown > UINT32_MAX || more > c->most_bytes - c->bytes ? NULL : tri_grow(*p, *room, grown, size);
  if (!q) {
    c->is_full = true;
    return false;
  }
  c->bytes += more;
  *p = q;
  *room = (uint32_t)grown;
  return true;
}
#define GROW(c, list, wanted) grow(c, (void **)&(c)->list, &(c)->room_##list, wanted, sizeof *(c)->list)

static bool take(tri_configs *c, size_t bytes) {
  if (bytes > c->most_bytes - c->bytes) {
    c->is_full = true;
    return false;
  }
  c->bytes += bytes;
  return true;
}

/* ---- tables ---- */

typedef uint64_t hash_of(const tri_configs *c, uint32_t number);

static uint64_t hash_stack(const tri_configs *c, uint32_t number) {
  const stack *s = &c->stacks[number];
  return tri_mix64((uint64_t)s->state << 32 | s->parent) ^ tri_mix64(s->count + 1);
}

static uint64_t hash_place(const tri_configs *c, uint32_t number) {
  const tri_place *p = &c->places[number];
  return tri_mix64((uint64_t)p->state << 32 | p->stack) ^ tri_mix64(p->count + 1);
}

static uint64_t hash_config(const tri_configs *c, uint32_t number) {
  const config *g = &c->configs[number];
  uint64_t h = g->may_end;
  for (uint32_t i = 0; i < g->num; i++) h = tri_mix64(h ^ c->members[g->first + i]);
  return h;
}

static void put(const tri_configs *c, table *t, uint32_t number, hash_of *hash) {
  size_t at = hash(c, number) & (t->room - 1);
  while (t->numbers[at]) at = (at + 1) & (t->room - 1);
  t->numbers[at] = number + 1;
  t->used++;
}

static bool make_table_room(tri_configs *c, table *t, hash_of *hash) {
  if (2 * (t->used + 1) <= t->room) return true;
  table grown = {.room = t->room ? 2 * t->room : 256};
  if (!take(c, (grown.room - t->room) * sizeof *grown.numbers)) return false;
  grown.numbers = tri_calloc(grown.room, sizeof *grown.numbers);
  if (!grown.numbers) {
    c->is_full = true;
    return false;
  }
  for (size_t i = 0; i < t->room; i++)
    if (t->numbers[i]) put(c, &grown, t->numbers[i] - 1, hash);
  tri_free(t->numbers);
  *t = grown;
  return true;
}

typedef bool equals(const tri_configs *c, uint32_t a, uint32_t b);

static bool equal_stacks(const tri_configs *c, uint32_t a, uint32_t b) {
  return !memcmp(&c->stacks[a], &c->stacks[b], sizeof *c->stacks);
}

static bool equal_places(const tri_configs *c, uint32_t a, uint32_t b) {
  return !memcmp(&c->places[a], &c->places[b], sizeof *c->places);
}

static bool equal_configs(const tri_configs *c, uint32_t a, uint32_t b) {
  const config *x = &c->configs[a], *y = &c->configs[b];
  return x->num == y->num && x->may_end == y->may_end &&
         (!x->num || !memcmp(c->members + x->first, c->members + y->first, x->num * sizeof *c->members));
}

/* Returns the number of what equals number `last`, which is the newest of its list: it, or an older one. Sets *is_new.
 * The table has room. */
static uint32_t keep_once(const tri_configs *c, table *t, uint32_t last, hash_of *hash, equals *same, bool *is_new) {
  size_t at = hash(c, last) & (t->room - 1);
  for (; t->numbers[at]; at = (at + 1) & (t->room - 1))
    if (same(c, t->numbers[at] - 1, last)) {
      *is_new = false;
      return t->numbers[at] - 1;
    }
  t->numbers[at] = last + 1;
  t->used++;
  *is_new = true;
  return last;
}

/* ---- stacks and places ---- */

/* False where there is no room, or the stack would be too deep. */
static bool push(tri_configs *c, uint32_t parent, uint32_t state, uint32_t count, uint32_t *out) {
  bool is_new;
  uint32_t depth = c->stacks[parent].depth + 1;
  if (depth > TRI_CONFIG_DEPTH || !GROW(c, stacks, (size_t)c->num_stacks + 1) ||
      !make_table_room(c, &c->of_stacks, hash_stack))
    return false;
  c->stacks[c->num_stacks] = (stack){state, count, parent, depth};
  *out = keep_once(c, &c->of_stacks, c->num_stacks, hash_stack, equal_stacks, &is_new);
  c->num_stacks += is_new;
  return true;
}

static uint32_t place_of(tri_configs *c, tri_place p) {
  bool is_new;
  if (!GROW(c, places, (size_t)c->num_places + 1) || !GROW(c, turn, (size_t)c->num_places + 1) ||
      !make_table_room(c, &c->of_places, hash_place))
    return 0;
  c->places[c->num_places] = p;
  uint32_t number = keep_once(c, &c->of_places, c->num_places, hash_place, equal_places, &is_new);
  if (is_new) c->turn[number] = 0;
  c->num_places += is_new;
  return number;
}

/* ---- closures: all places that are reached without a byte ---- */

static void closure_begin(tri_configs *c) {
  c->num_todo = c->num_found = 0;
  c->may_end = false;
  if (!++c->turns) { /* they have all been used */
    memset(c->turn, 0, c->room_turn * sizeof *c->turn);
    c->turns = 1;
  }
}

static void closure_add(tri_configs *c, uint32_t state, uint32_t count, uint32_t on) {
  uint32_t number = place_of(c, (tri_place){state, count, on});
  if (!number || c->turn[number] == c->turns || c->num_todo == MOST_TODO || !GROW(c, todo, (size_t)c->num_todo + 1))
    return;
  c->turn[number] = c->turns;
  c->todo[c->num_todo++] = number;
}

/* A call in last place keeps the stack, so that lists and the like need none that grows. */
static void closure_call(tri_configs *c, const tri_net_arc *a, uint32_t count, uint32_t on) {
  const tri_net_state *to = tri_net_state_at(c->net, a->to);
  uint32_t first = tri_net_first_state(c->net, a->rule);
  bool ends = to->is_final && tri_net_allows(c->net, to->guard, count);
  if (!to->num_arcs && !ends) return;
  if (to->num_arcs && !push(c, on, a->to, count, &on)) return;
  closure_add(c, first, 0, on);
}

static void closure_end(tri_configs *c, uint32_t on) {
  if (on == TRI_STACK_END)
    c->may_end = true;
  else
    closure_add(c, c->stacks[on].state, c->stacks[on].count, c->stacks[on].parent);
}

static void closure_look(tri_configs *c, uint32_t number) {
  tri_place p = c->places[number];
  const tri_net_state *s = tri_net_state_at(c->net, p.state);
  const tri_net_arc *arcs = tri_net_arcs_of(c->net, s);
  bool takes_bytes = false;
  for (uint32_t i = 0; i < s->num_arcs; i++) {
    const tri_net_arc *a = &arcs[i];
    if (!tri_net_allows(c->net, a->guard, p.count)) continue;
    uint32_t count = tri_net_counted(c->net, a, s->rule, p.count);
    if (a->kind == TRI_NET_EDGE) takes_bytes = true;
    if (a->kind == TRI_NET_STEP) closure_add(c, a->to, count, p.stack);
    if (a->kind == TRI_NET_CALL) closure_call(c, a, count, p.stack);
  }
  if (s->is_final && tri_net_allows(c->net, s->guard, p.count)) closure_end(c, p.stack);
  if (!takes_bytes || c->num_found == TRI_CONFIG_PLACES || !GROW(c, found, (size_t)c->num_found + 1)) return;
  c->found[c->num_found++] = number;
}

static int compare_numbers(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static void add_bytes(const tri_configs *c, config *g, uint32_t number) {
  const tri_place *p = &c->places[number];
  const tri_net_state *s = tri_net_state_at(c->net, p->state);
  const tri_net_arc *arcs = tri_net_arcs_of(c->net, s);
  for (uint32_t i = 0; i < s->num_arcs; i++)
    if (arcs[i].kind == TRI_NET_EDGE && tri_net_allows(c->net, arcs[i].guard, p->count))
      for (int b = arcs[i].lo; b <= arcs[i].hi; b++) g->bytes[b / 64] |= 1ull << b % 64;
}

/* Returns the configuration of the places in c->found; 0 of nothing. */
static uint32_t keep_found(tri_configs *c) {
  bool is_new;
  if (c->is_full || (!c->num_found && !c->may_end)) return 0;
  if (!GROW(c, configs, (size_t)c->num_configs + 1) || !GROW(c, members, (size_t)c->num_members + c->num_found) ||
      !make_table_room(c, &c->of_configs, hash_config))
    return 0;
  if (c->num_found > 1) qsort(c->found, c->num_found, sizeof *c->found, compare_numbers);
  config *g = &c->configs[c->num_configs];
  *g = (config){.first = c->num_members, .num = c->num_found, .may_end = c->may_end};
  if (g->num) memcpy(c->members + g->first, c->found, g->num * sizeof *c->members);
  uint32_t number = keep_once(c, &c->of_configs, c->num_configs, hash_config, equal_configs, &is_new);
  if (!is_new) return number;
  for (uint32_t i = 0; i < g->num; i++) add_bytes(c, g, c->members[g->first + i]);
  c->num_configs++;
  c->num_members += g->num;
  return number;
}

static uint32_t closure_finish(tri_configs *c) {
  for (uint32_t i = 0; i < c->num_todo && !c->is_full; i++) closure_look(c, c->todo[i]);
  return keep_found(c);
}

/* ---- steps ---- */

static size_t step_slot(const step *steps, size_t room, uint64_t key) {
  size_t at = tri_mix64(key) & (room - 1);
  while (steps[at].key && steps[at].key != key) at = (at + 1) & (room - 1);
  return at;
}

static bool make_step_room(tri_configs *c) {
  if (4 * (c->num_steps + 1) <= 3 * c->room_steps) return true;
  size_t room = c->room_steps ? 2 * c->room_steps : 1024;
  if (!take(c, (room - c->room_steps) * sizeof *c->steps)) return false;
  step *grown = tri_calloc(room, sizeof *grown);
  if (!grown) {
    c->is_full = true;
    return false;
  }
  for (size_t i = 0; i < c->room_steps; i++)
    if (c->steps[i].key) grown[step_slot(grown, room, c->steps[i].key)] = c->steps[i];
  tri_free(c->steps);
  c->steps = grown;
  c->room_steps = room;
  return true;
}

static uint32_t make_step(tri_configs *c, uint32_t number, uint8_t byte) {
  closure_begin(c);
  for (uint32_t i = 0; i < c->configs[number].num; i++) {
    tri_place p = c->places[c->members[c->configs[number].first + i]];
    const tri_net_state *s = tri_net_state_at(c->net, p.state);
    const tri_net_arc *arcs = tri_net_arcs_of(c->net, s);
    for (uint32_t k = 0; k < s->num_arcs; k++) {
      const tri_net_arc *a = &arcs[k];
      if (a->kind == TRI_NET_EDGE && a->lo <= byte && byte <= a->hi && tri_net_allows(c->net, a->guard, p.count))
        closure_add(c, a->to, tri_net_counted(c->net, a, s->rule, p.count), p.stack);
    }
  }
  return closure_finish(c);
}

uint32_t tri_configs_step(tri_configs *c, uint32_t number, uint8_t byte) {
  if (!number || !(c->configs[number].bytes[byte / 64] >> byte % 64 & 1)) return 0;
  uint64_t key = (uint64_t)number << 8 | byte;
  if (c->room_steps) {
    const step *known = &c->steps[step_slot(c->steps, c->room_steps, key)];
    if (known->key) return known->to;
  }
  uint32_t to = make_step(c, number, byte);
  if (c->is_full || !make_step_room(c)) return to;
  c->steps[step_slot(c->steps, c->room_steps, key)] = (step){key, to};
  c->num_steps++;
  return to;
}

uint32_t tri_configs_walk(tri_configs *c, uint32_t number, const void *bytes, size_t len) {
  for (size_t i = 0; i < len && number; i++) number = tri_configs_step(c, number, ((const uint8_t *)bytes)[i]);
  return number;
}

uint32_t tri_configs_of_place(tri_configs *c, tri_place p) {
  closure_begin(c);
  closure_add(c, p.state, p.count, p.stack);
  return closure_finish(c);
}

uint32_t tri_configs_begin(tri_configs *c) {
  return tri_configs_of_place(c, (tri_place){tri_net_begin(c->net), 0, TRI_STACK_END});
}

uint32_t tri_configs_without_text(tri_configs *c, uint32_t number) {
  closure_begin(c);
  for (uint32_t i = 0; i < c->configs[number].num; i++) {
    uint32_t place = c->members[c->configs[number].first + i];
    if (tri_net_state_at(c->net, c->places[place].state)->is_text) continue;
    if (!GROW(c, found, (size_t)c->num_found + 1)) return 0;
    c->found[c->num_found++] = place;
  }
  return keep_found(c);
}

/* ---- all of it ---- */

/* The numbers that stand for something by themselves. */
static bool make_first(tri_configs *c) {
  if (!GROW(c, stacks, 1) || !GROW(c, places, 1) || !GROW(c, configs, 1) || !GROW(c, turn, 1)) return false;
  c->stacks[0] = (stack){0, 0, 0, 0};
  c->num_stacks = 1;
  c->places[0] = (tri_place){0, 0, 0};
  c->configs[0] = (config){.num = 0};
  c->num_places = c->num_configs = 1;
  return true;
}

tri_status tri_configs_create(const tri_net *net, size_t most_bytes, tri_configs **out) {
  tri_configs *c = tri_calloc(1, sizeof *c);
  if (!c) return TRI_NO_MEMORY;
  c->net = net;
  c->most_bytes = most_bytes;
  if (!make_first(c)) {
    tri_configs_destroy(c);
    return TRI_NO_MEMORY;
  }
  *out = c;
  return TRI_OK;
}

static void free_all(tri_configs *c) {
  tri_free(c->stacks);
  tri_free(c->places);
  tri_free(c->configs);
  tri_free(c->members);
  tri_free(c->of_stacks.numbers);
  tri_free(c->of_places.numbers);
  tri_free(c->of_configs.numbers);
  tri_free(c->steps);
  tri_free(c->todo);
  tri_free(c->found);
  tri_free(c->turn);
}

void tri_configs_destroy(tri_configs *c) {
  if (!c) return;
  free_all(c);
  tri_free(c);
}

void tri_configs_reset(tri_configs *c) {
  tri_configs empty = {.net = c->net, .most_bytes = c->most_bytes};
  free_all(c);
  *c = empty;
  make_first(c); /* without memory all that follows is 0, and the whole is full */
}

bool tri_configs_is_full(const tri_configs *c) { return c->is_full; }
size_t tri_configs_bytes_used(const tri_configs *c) { return c->bytes; }
bool tri_configs_may_end(const tri_configs *c, uint32_t number) { return c->configs[number].may_end; }
bool tri_configs_may_go_on(const tri_configs *c, uint32_t number) { return c->configs[number].num > 0; }
const uint64_t *tri_configs_next_bytes(const tri_configs *c, uint32_t number) { return c->configs[number].bytes; }
tri_place tri_configs_place(const tri_configs *c, uint32_t place) { return c->places[place]; }
const tri_net *tri_configs_net(const tri_configs *c) { return c->net; }

const uint32_t *tri_configs_places(const tri_configs *c, uint32_t number, uint32_t *num) {
  *num = c->configs[number].num;
  return c->members + c->configs[number].first;
}
