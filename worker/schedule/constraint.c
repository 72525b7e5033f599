/* SPDX-License-Identifier: Apache-2.0 */
/* A choice's tokens and mask belong to the step thread while its state is not AWAITED, and to the thread that makes the
 * mask while it is: the ring hands them over, and the state hands them back. The grammar is there before any state is
 * another one. */
#include "worker/schedule/constraint.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

typedef struct choice {
  tri_mask_task task; /* first */
  tri_constraint *of;
  tri_grammar_place place;
  uint32_t *tokens; /* [most_tokens] */
  int num;
  bool unasked;   /* the ring was full */
  uint32_t *mask; /* [words] */
  _Atomic int state;
} choice;

struct tri_constraint {
  tri_mask_task prepare; /* first */
  atomic_int refs;       /* the job's, and that of each mask that is being made */
  _Atomic int num_over;
  tri_grammar_source *source;
  tri_wire_constraint wire;
  char *texts; /* of it */
  tri_grammar *grammar;
  tri_mask_maker *maker;
  size_t words; /* of 32 bits */
  tri_constraint_job job;
  uint32_t *ids; /* the lists of job, one after the other */
  int num_choices;
  choice choices[];
};

/* ---- made and freed ---- */

static bool copy_ids(tri_constraint *c) {
  tri_constraint_job *j = &c->job;
  const uint32_t **lists[] = {&j->eos, &j->stops, &j->bad};
  const int counts[] = {j->num_eos, j->num_stops, j->num_bad};
  size_t total = (size_t)j->num_eos + (size_t)j->num_stops + (size_t)j->num_bad;
  uint32_t *at = c->ids = tri_calloc(total ? total : 1, sizeof *c->ids);
  for (int i = 0; at && i < 3; i++) {
    if (counts[i]) memcpy(at, *lists[i], (size_t)counts[i] * sizeof *at);
    *lists[i] = at;
    at += counts[i];
  }
  return at;
}

static void make_task(tri_mask_task *task);
static void prepare_task(tri_mask_task *task);

static bool make_choices(tri_constraint *c) {
  size_t most = (size_t)c->job.most_tokens;
  for (int i = 0; i < c->num_choices; i++) {
    choice *x = &c->choices[i];
    x->task.run = make_task;
    x->of = c;
    x->tokens = tri_malloc(most ? most : 1, sizeof *x->tokens);
    x->mask = tri_calloc(c->words ? c->words : 1, sizeof *x->mask);
    if (!x->tokens || !x->mask) return false;
  }
  return true;
}

tri_status tri_constraint_create(tri_grammar_source *source, tri_mask_maker *maker, const tri_constraint_job *job,
                                 tri_constraint **out) {
  tri_status st = TRI_OK;
  tri_constraint *c = tri_calloc(1, sizeof *c + (size_t)job->choices * sizeof *c->choices);
  if (!c) return TRI_NO_MEMORY;
  atomic_init(&c->refs, 1);
  c->maker = maker;
  c->job = *job;
  c->num_choices = job->choices;
  c->words = 2 * (((size_t)job->vocab_size + 63) / 64);
  c->source = source;
  c->prepare.run = prepare_task;
  c->wire = *job->wire;
  c->job.wire = &c->wire;
  if (!(c->texts = tri_wire_constraint_own(&c->wire))) TRI_TRY(TRI_NO_MEMORY);
  if (!copy_ids(c) || !make_choices(c)) TRI_TRY(TRI_NO_MEMORY);
  *out = c;
  c = NULL;
cleanup:
  tri_constraint_destroy(c);
  return st;
}

void tri_constraint_destroy(tri_constraint *c) {
  if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1) return;
  for (int i = 0; i < c->num_choices; i++) {
    tri_free(c->choices[i].tokens);
    tri_free(c->choices[i].mask);
  }
  tri_grammar_drop(c->grammar);
  tri_free(c->texts);
  tri_free(c->ids);
  tri_free(c);
}

/* ---- masks ---- */

static void set(uint32_t *mask, size_t words, const uint32_t *ids, int n, bool on) {
  for (int i = 0; i < n; i++) {
    if (ids[i] / 32 >= words) continue;
    uint32_t bit = 1u << ids[i] % 32;
    mask[ids[i] / 32] = on ? mask[ids[i] / 32] | bit : mask[ids[i] / 32] & ~bit;
  }
}

static bool has(const uint32_t *mask, size_t words, uint32_t id) {
  return id / 32 < words && mask[id / 32] >> id % 32 & 1;
}

static bool has_any(const uint32_t *mask, size_t words) {
  for (size_t i = 0; i < words; i++)
    if (mask[i]) return true;
  return false;
}

/* Takes ids out of a mask, unless nothing would be left. */
static void take_out(uint32_t *mask, size_t words, const uint32_t *ids, int n) {
  bool there[64] = {false};
  for (int i = 0; i < n && i < 64; i++) there[i] = has(mask, words, ids[i]);
  set(mask, words, ids, n, false);
  if (has_any(mask, words)) return;
  for (int i = 0; i < n && i < 64; i++)
    if (there[i]) set(mask, words, &ids[i], 1, true);
}

static tri_mask_state make(choice *x) {
  const tri_constraint *c = x->of;
  if (!c->grammar) return TRI_MASK_NONE;
  const tri_constraint_job *j = &c->job;
  bool is_short = x->num < j->min_tokens;
  tri_grammar_next next = tri_grammar_mask(c->grammar, &x->place, x->tokens, x->num, x->mask);
  if (next.tokens) {
    set(x->mask, c->words, j->bad, j->num_bad, false);
    if (is_short) take_out(x->mask, c->words, j->stops, j->num_stops);
    next.tokens = has_any(x->mask, c->words);
  }
  if (!next.tokens) return next.the_end ? TRI_MASK_WHOLE : TRI_MASK_NONE;
  if (next.the_end && !is_short && !j->ignores_eos) set(x->mask, c->words, j->eos, j->num_eos, true);
  return TRI_MASK_READY;
}

static void make_mask(choice *x) {
  tri_mask_state state = make(x);
  if (state != TRI_MASK_READY) atomic_fetch_add_explicit(&x->of->num_over, 1, memory_order_relaxed);
  atomic_store_explicit(&x->state, state, memory_order_release);
}

static void make_task(tri_mask_task *task) {
  choice *x = (choice *)task;
  tri_constraint *c = x->of;
  make_mask(x);
  tri_constraint_destroy(c);
}

void tri_constraint_begin(tri_constraint *c, int i, const uint32_t *tokens, int num) {
  choice *x = &c->choices[i];
  if (num) memcpy(x->tokens, tokens, (size_t)num * sizeof *tokens);
  x->num = num;
}

/* Without a grammar no token may come: the job ends with an error. */
static void prepare_task(tri_mask_task *task) {
  tri_constraint *c = (tri_constraint *)task;
  tri_error err = {0};
  tri_grammar_cache *grammars = c->source->open(c->source);
  tri_status st = grammars ? tri_grammar_cache_get(grammars, &c->wire, &c->grammar, &err) : TRI_UNSUPPORTED;
  if (grammars && st != TRI_OK)
    tri_log(TRI_LOG_WARN, "worker", "a job's schema cannot be kept here: %s",
            err.message[0] ? err.message : tri_status_text(st));
  for (int i = 0; i < c->num_choices; i++) make_mask(&c->choices[i]);
  tri_constraint_destroy(c);
}

void tri_constraint_prepare(tri_constraint *c) {
  atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
  tri_mask_maker_prepare(c->maker, &c->prepare);
}

/* ---- the step thread ---- */

static void ask(tri_constraint *c, choice *x) {
  atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
  x->unasked = !tri_mask_maker_ask(c->maker, &x->task);
  if (x->unasked) atomic_fetch_sub_explicit(&c->refs, 1, memory_order_relaxed); /* the job's is left */
}

void tri_constraint_take(tri_constraint *c, int i, uint32_t token) {
  choice *x = &c->choices[i];
  if (x->num == c->job.most_tokens) return;
  x->tokens[x->num++] = token;
  atomic_store_explicit(&x->state, TRI_MASK_AWAITED, memory_order_relaxed);
  ask(c, x);
}

tri_mask_state tri_constraint_look(tri_constraint *c, int i) {
  choice *x = &c->choices[i];
  if (x->unasked) ask(c, x);
  return (tri_mask_state)atomic_load_explicit(&x->state, memory_order_acquire);
}

const uint32_t *tri_constraint_mask(const tri_constraint *c, int i) { return c->choices[i].mask; }

int tri_constraint_num_over(const tri_constraint *c) {
  return atomic_load_explicit(&c->num_over, memory_order_relaxed);
}
