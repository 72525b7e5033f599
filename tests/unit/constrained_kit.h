/* SPDX-License-Identifier: Apache-2.0 */
/* Constrained answers of the scheduler's stand-in for an engine: a small vocabulary with text, schemas, and which
 * tokens may come next, found by trying every token's bytes on the network, without masks. */
#ifndef TRI_TESTS_UNIT_CONSTRAINED_KIT_H
#define TRI_TESTS_UNIT_CONSTRAINED_KIT_H

#include "runtime/grammar/configurations.h"
#include "worker/schedule/constraint.h"

enum { CONSTRAINED_KINDS = 7 };

/* Returns the constraint with a number below CONSTRAINED_KINDS. */
tri_wire_constraint constrained_wire(int kind);
/* Returns the bytes of a token; NULL: it is special. */
const char *constrained_token(uint32_t id);
tri_vocabulary *constrained_vocabulary(uint32_t size);

/* Grammars of a vocabulary. */
typedef struct constrained_source {
  tri_grammar_source source; /* first */
  tri_vocabulary *vocabulary;
  tri_grammar_cache *cache;
} constrained_source;

void constrained_source_open(constrained_source *s, uint32_t size);
void constrained_source_close(constrained_source *s);

/* An answer on its way through a network. */
typedef struct constrained_walk {
  tri_net *net;
  tri_configs *configs;
  uint32_t at;
} constrained_walk;

void constrained_walk_begin(constrained_walk *w, const tri_wire_constraint *wire);
void constrained_walk_end(constrained_walk *w);
/* Sets the bits of the tokens below `size` that may come. Returns how many. */
int constrained_walk_next(const constrained_walk *w, uint32_t size, uint32_t *mask);
void constrained_walk_take(constrained_walk *w, uint32_t id);
bool constrained_walk_may_end(const constrained_walk *w);

#endif
