/* SPDX-License-Identifier: Apache-2.0 */
/* The constraint of a job: for each of its choices the mask of the next sample.
 *
 * The control thread makes it, and has its grammar and the first masks made elsewhere (mask_maker.h). From then on it
 * is the step thread's, which says what each choice has sampled and takes the masks; a sample waits for its own. What a
 * choice has sampled is followed from its beginning where that is needed, so that one which is computed again, here or
 * on another replica, needs nothing else. */
#ifndef TRI_WORKER_SCHEDULE_CONSTRAINT_H
#define TRI_WORKER_SCHEDULE_CONSTRAINT_H

#include "worker/schedule/grammar_cache.h"
#include "worker/schedule/mask_maker.h"

typedef struct tri_constraint tri_constraint;

/* The next sample of a choice is one of: */
typedef enum tri_mask_state {
  TRI_MASK_AWAITED, /* that is being found out */
  TRI_MASK_READY,   /* tokens of the mask */
  TRI_MASK_WHOLE,   /* nothing: the answer is whole */
  TRI_MASK_NONE,    /* nothing, and yet the answer is not whole, or no memory is left to find out */
} tri_mask_state;

/* Lists of ids are copied. */
typedef struct tri_constraint_job {
  const tri_wire_constraint *wire;
  int choices;
  int vocab_size;
  int most_tokens;     /* of a choice */
  int min_tokens;      /* no end before, unless nothing else may come */
  bool ignores_eos;    /* the same however long an answer is */
  const uint32_t *eos; /* ids that end an answer, which come where the answer may be whole */
  int num_eos;
  const uint32_t *stops; /* ids that end it as well; they come as what they say */
  int num_stops;
  const uint32_t *bad; /* ids that never come */
  int num_bad;
} tri_constraint_job;

/* The source of grammars: the thread that prepares asks it, which may take long at first. */
typedef struct tri_grammar_source {
  tri_grammar_cache *(*open)(struct tri_grammar_source *source); /* NULL: there are none */
} tri_grammar_source;

/* Copies the constraint. source, maker: outlive it. */
tri_status tri_constraint_create(tri_grammar_source *source, tri_mask_maker *maker, const tri_constraint_job *job,
                                 tri_constraint **out);
/* A mask that is being made keeps what it needs. NULL is fine. */
void tri_constraint_destroy(tri_constraint *c);
/* Begins a choice with tokens that it has already. */
void tri_constraint_begin(tri_constraint *c, int choice, const uint32_t *tokens, int num);
/* Has the grammar and the first masks of all choices made; then it is the step thread's. */
void tri_constraint_prepare(tri_constraint *c);

/* ---- the step thread ---- */

/* Notes what a choice has sampled, and has the mask of the next sample made. */
void tri_constraint_take(tri_constraint *c, int choice, uint32_t token);
tri_mask_state tri_constraint_look(tri_constraint *c, int choice);
/* Returns the mask of a choice whose state is READY (kernels/sample.h); it stays until the next take. */
const uint32_t *tri_constraint_mask(const tri_constraint *c, int choice);
/* Returns how many choices have become WHOLE or NONE. */
int tri_constraint_num_over(const tri_constraint *c);

#endif
