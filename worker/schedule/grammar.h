/* SPDX-License-Identifier: Apache-2.0 */
/* A constraint, compiled: it tells which tokens may follow those that an answer has so far. Jobs with the same
 * constraint share one, with all that it has found out about the model's vocabulary (runtime/grammar/masks.h).
 *
 * Any thread may use it: one at a time does, and others wait for that long. The last one that drops it frees it. */
#ifndef TRI_WORKER_SCHEDULE_GRAMMAR_H
#define TRI_WORKER_SCHEDULE_GRAMMAR_H

#include "comm/wire/client.h"
#include "runtime/grammar/vocabulary.h"

typedef struct tri_grammar tri_grammar;

/* most_bytes: of what is kept of configurations, 0: as much as usual. vocabulary: borrowed. Errors are those of
 * tri_schema_compile; their field is "constraint". */
tri_status tri_grammar_create(const tri_wire_constraint *wire, const tri_vocabulary *vocabulary, size_t most_bytes,
                              tri_grammar **out, tri_error *err);
tri_grammar *tri_grammar_share(tri_grammar *g);
void tri_grammar_drop(tri_grammar *g); /* NULL is fine */

bool tri_grammar_is_of(const tri_grammar *g, const tri_wire_constraint *wire);
size_t tri_grammar_bytes(const tri_grammar *g); /* of memory, about: as of the last mask */

/* How far an answer has been followed. Zeros: not at all. */
typedef struct tri_grammar_place {
  uint32_t config;
  int num;         /* tokens */
  uint64_t resets; /* as of when config was made */
} tri_grammar_place;

/* An answer's tokens may be followed by: */
typedef struct tri_grammar_next {
  bool tokens;  /* some in the mask */
  bool the_end; /* the answer may be whole */
} tri_grammar_next;

/* Follows the tokens that the place has not seen, and sets the mask of those that may come next: bit id % 32 of word
 * id / 32, of tri_vocabulary_words words of 64 bits. Where memory is used up everything is forgotten and followed
 * once more; where that is not enough, or a token does not fit, nothing may follow. */
tri_grammar_next tri_grammar_mask(tri_grammar *g, tri_grammar_place *place, const uint32_t *tokens, int num,
                                  uint32_t *mask);

#endif
