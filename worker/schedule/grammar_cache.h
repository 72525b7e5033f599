/* SPDX-License-Identifier: Apache-2.0 */
/* The grammars that jobs have had, by their constraint: requests that ask for the same share one. Those asked for the
 * longest ago leave first when all take too much memory; a job keeps its own for as long as it runs. One thread. */
#ifndef TRI_WORKER_SCHEDULE_GRAMMAR_CACHE_H
#define TRI_WORKER_SCHEDULE_GRAMMAR_CACHE_H

#include "worker/schedule/grammar.h"

typedef struct tri_grammar_cache tri_grammar_cache;

/* vocabulary: borrowed. most_bytes: of all grammars, about. */
tri_status tri_grammar_cache_create(const tri_vocabulary *vocabulary, size_t most_bytes, tri_grammar_cache **out);
void tri_grammar_cache_destroy(tri_grammar_cache *c); /* NULL is fine */
const tri_vocabulary *tri_grammar_cache_vocabulary(const tri_grammar_cache *c);

/* Returns the grammar of a constraint, made now unless it is there: the caller's, for tri_grammar_drop. */
tri_status tri_grammar_cache_get(tri_grammar_cache *c, const tri_wire_constraint *wire, tri_grammar **out,
                                 tri_error *err);

#endif
