/* SPDX-License-Identifier: Apache-2.0 */
/* A grammar as a network over bytes: rules of states with edges. Schemas are
 * made into one (schema.h), and configurations.h runs it.
 *
 * It is a recursive transition network (Woods, "Transition network grammars for natural language analysis", CACM 1970)
 * whose rules can count. A rule begins in its first state. An edge takes a byte of a range, a step takes none, and a
 * call takes what another rule does and continues after it. A rule ends in its final states.
 *
 * Each activation of a rule has a counter, which begins at 0: of characters, items or members, or the place among the
 * members of an object. Whatever leads from a state to another can have a guard, a set of counts with which it may be
 * gone, and does something to the counter. A rule's guards do not tell counts from its `most` on apart, and counts stop
 * there. A counter belongs to one activation: what is called begins with its own, and the caller's stands when that
 * has ended.
 *
 * A network is built by one thread and does not change after tri_net_finish; then all may read it. States, rules and
 * guards are numbers, 0 being none. Functions that make something return 0, and those that add something do nothing,
 * once a limit is reached or memory is out: tri_net_finish says so, so that callers need not look after each. */
#ifndef TRI_RUNTIME_GRAMMAR_NETWORK_H
#define TRI_RUNTIME_GRAMMAR_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/grammar/text_states.h"

enum {
  TRI_NET_MAX_STATES = 200000,
  TRI_NET_MAX_RULES = 20000,
  TRI_NET_MAX_ARCS = 1000000,  /* edges, steps and calls */
  TRI_NET_MAX_SPANS = 200000,  /* of all guards */
  TRI_NET_MAX_COUNT = 1 << 30, /* the largest `most` */
};

typedef struct tri_net tri_net;

/* Counts from lo to hi. */
typedef struct tri_net_span {
  uint32_t lo, hi;
} tri_net_span;

typedef enum tri_net_action {
  TRI_NET_KEEP, /* the count stays */
  TRI_NET_ADD,  /* it becomes one more, at most the rule's `most` */
  TRI_NET_SET,  /* it becomes `value` */
} tri_net_action;

/* What a way from a state to another asks of the counter, and does to it. */
typedef struct tri_net_count {
  uint32_t guard; /* 0: any count */
  tri_net_action action;
  uint32_t value; /* of SET */
} tri_net_count;

static const tri_net_count TRI_NET_ANY = {0, TRI_NET_KEEP, 0};

typedef enum tri_net_arc_kind { TRI_NET_EDGE, TRI_NET_STEP, TRI_NET_CALL } tri_net_arc_kind;

/* A way from a state. */
typedef struct tri_net_arc {
  uint8_t kind, lo, hi; /* lo, hi: of an EDGE */
  uint8_t action;
  uint32_t to;   /* the state it leads to; of a CALL, behind the called rule */
  uint32_t rule; /* of a CALL */
  uint32_t guard, value;
} tri_net_arc;

typedef struct tri_net_state {
  uint32_t first_arc, num_arcs;
  uint32_t rule;
  uint32_t guard; /* of the rule's end, where it is final */
  bool is_final;
  bool is_text; /* see tri_net_text */
} tri_net_state;

tri_status tri_net_create(tri_net **out);
void tri_net_destroy(tri_net *n); /* NULL is fine */

/* ---- building ---- */

/* most: counts from there on are one. */
uint32_t tri_net_add_rule(tri_net *n, uint32_t most);
uint32_t tri_net_first_state(const tri_net *n, uint32_t rule); /* 0 of rule 0 */
uint32_t tri_net_add_state(tri_net *n, uint32_t rule);
/* The spans are in order and apart. */
uint32_t tri_net_add_guard(tri_net *n, const tri_net_span *spans, size_t num);
uint32_t tri_net_add_range(tri_net *n, uint32_t lo, uint32_t hi); /* a guard of one span */
/* From a state to another of the same rule. */
void tri_net_add_edge(tri_net *n, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to, tri_net_count count);
void tri_net_add_step(tri_net *n, uint32_t from, uint32_t to, tri_net_count count);
void tri_net_add_call(tri_net *n, uint32_t from, uint32_t rule, uint32_t to, tri_net_count count);
/* Adds the bytes one after the other; returns the state after them. The count is of the first one. */
uint32_t tri_net_add_bytes(tri_net *n, uint32_t from, const char *bytes, size_t len, tri_net_count count);
/* The rule may end here with these counts. A state is made final once. */
void tri_net_set_final(tri_net *n, uint32_t state, uint32_t guard);
/* The inside of a string of JSON (text_states.h) and its closing quote. A character adds 1 to the counter where the
 * rule's `most` is not 0, and may come with counts of `inside`; the quote may come with those of `ends`, and leads to
 * the state that is returned. `from` has no other ways, and is_text: most tokens go through such states
 * (masks.h). */
uint32_t tri_net_add_text(tri_net *n, uint32_t from, uint32_t inside, uint32_t ends);
/* The ways of one state of text: from `from`, which stands for `at`, to those that stand for the others, but for bytes
 * in `skipped` ([256], NULL: none). The count is of first bytes of characters. */
void tri_net_add_text_arcs(tri_net *n, const uint32_t states[TRI_TEXT_STATES], tri_text_state at, uint32_t from,
                           const bool *skipped, tri_net_count count);
/* One character of UTF-8 from `lo` to `hi` (code points, no surrogates among them), as bytes. The count is of its first
 * byte. */
void tri_net_add_characters(tri_net *n, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to, tri_net_count count);
/* A rule has no end unless another one has, as the value of a key that must come; guards do not tell that. */
void tri_net_add_need(tri_net *n, uint32_t rule, uint32_t needed);
/* What begins: `rule` is the whole. Checks that no rule calls itself before a byte is taken, and puts arcs in their
 * order; TRI_TOO_LARGE, TRI_NO_MEMORY: something could not be added; TRI_UNSUPPORTED: a rule that calls itself first;
 * TRI_INVALID_ARGUMENT: no end can be reached. Ways that lead to no end are taken away. */
tri_status tri_net_finish(tri_net *n, uint32_t rule, tri_error *err);

/* Returns false from the moment when anything failed, so that a caller can leave off. */
bool tri_net_is_whole(const tri_net *n);
/* Returns what failed so far, with its words where a limit is reached: that of tri_net_finish, before it. */
tri_status tri_net_check(const tri_net *n, tri_error *err);
uint32_t tri_net_num_arcs(const tri_net *n); /* that were added */

/* ---- reading, after tri_net_finish ---- */

uint32_t tri_net_begin(const tri_net *n);              /* the first state of the whole */
bool tri_net_has_end(const tri_net *n, uint32_t rule); /* false: no bytes are ever all of it */
const tri_net_state *tri_net_state_at(const tri_net *n, uint32_t state);
const tri_net_arc *tri_net_arcs_of(const tri_net *n, const tri_net_state *s);
uint32_t tri_net_most(const tri_net *n, uint32_t rule);
bool tri_net_allows(const tri_net *n, uint32_t guard, uint32_t count);
uint32_t tri_net_num_states(const tri_net *n);
size_t tri_net_bytes(const tri_net *n); /* of memory */

/* Returns what an arc's way makes of a count that its guard allows. */
static inline uint32_t tri_net_counted(const tri_net *n, const tri_net_arc *a, uint32_t rule, uint32_t count) {
  uint32_t most;
  if (a->action == TRI_NET_KEEP) return count;
  most = tri_net_most(n, rule);
  if (a->action == TRI_NET_ADD) return count < most ? count + 1 : most;
  return a->value < most ? a->value : most;
}

#endif
