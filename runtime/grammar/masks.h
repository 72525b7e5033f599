/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that may come in a configuration.
 *
 * A mask is found by one walk over the trie of the vocabulary from the configuration, where what the bytes of a token
 * make of it is kept (configurations.h), so that another walk is faster. Inside strings of JSON most tokens may come:
 * there the mask is what the vocabulary has found once (vocabulary.h), and the walk is over what may follow a closing
 * quote. Whole masks are kept, those not asked for the longest first out.
 *
 * One thread at a time. */
#ifndef TRI_RUNTIME_GRAMMAR_MASKS_H
#define TRI_RUNTIME_GRAMMAR_MASKS_H

#include "runtime/grammar/configurations.h"
#include "runtime/grammar/vocabulary.h"

typedef struct tri_masks tri_masks;

/* Both are borrowed. most: masks that are kept, at least 1. */
tri_status tri_masks_create(tri_configs *configs, const tri_vocabulary *vocabulary, uint32_t most, tri_masks **out);
void tri_masks_destroy(tri_masks *m); /* NULL is fine */
/* After tri_configs_reset. */
void tri_masks_reset(tri_masks *m);

/* Returns a mask of tri_vocabulary_words words, bit id % 64 of word id / 64 set where token id may come, and nothing
 * about the end (tri_configs_may_end); good until the next call. NULL: no room is left for configurations. */
const uint64_t *tri_masks_of(tri_masks *m, uint32_t config);

#endif
