/* SPDX-License-Identifier: Apache-2.0 */
/* Where an answer is in a network: its configurations, as numbers.
 *
 * A configuration is the set of all places that the bytes so far can have led to. A place is a state with its rule's
 * count and the calls that have not ended (a stack, whose tails are shared). Equal stacks, places and configurations
 * are kept once, and what a byte makes of a configuration is kept as well, so that the network becomes a deterministic
 * automaton as far as answers go there: another answer, or a choice of the same one, that comes to a configuration
 * finds it made. Forking and going back are free, since a configuration is one number.
 *
 * Places whose stack is deeper than TRI_CONFIG_DEPTH and those beyond TRI_CONFIG_PLACES are left out: a byte that would
 * need one may not come.
 *
 * One thread at a time. */
#ifndef TRI_RUNTIME_GRAMMAR_CONFIGURATIONS_H
#define TRI_RUNTIME_GRAMMAR_CONFIGURATIONS_H

#include "runtime/grammar/network.h"

enum { TRI_CONFIG_DEPTH = 256, TRI_CONFIG_PLACES = 4096 };

enum { TRI_STACK_END }; /* the stack of no open calls: where the rule ends, the whole does */

typedef struct tri_configs tri_configs;

typedef struct tri_place {
  uint32_t state, count, stack;
} tri_place;

/* net: borrowed. most_bytes: of all that is kept. */
tri_status tri_configs_create(const tri_net *net, size_t most_bytes, tri_configs **out);
void tri_configs_destroy(tri_configs *c); /* NULL is fine */
/* Forgets all: numbers from before mean nothing any more. */
void tri_configs_reset(tri_configs *c);
/* Returns whether something could not be made since the last reset, as most_bytes or memory are used up. What was
 * returned since is good but where it was 0. */
bool tri_configs_is_full(const tri_configs *c);
size_t tri_configs_bytes_used(const tri_configs *c);

/* Each returns a configuration; 0: there is none, or no room (tri_configs_is_full). */
uint32_t tri_configs_begin(tri_configs *c);
uint32_t tri_configs_step(tri_configs *c, uint32_t config, uint8_t byte);
uint32_t tri_configs_walk(tri_configs *c, uint32_t config, const void *bytes, size_t len);
/* What is reached from one place without a byte. */
uint32_t tri_configs_of_place(tri_configs *c, tri_place place);
/* That of a configuration's places that are not text (tri_net_add_text). */
uint32_t tri_configs_without_text(tri_configs *c, uint32_t config);

/* Returns whether the whole may end here. */
bool tri_configs_may_end(const tri_configs *c, uint32_t config);
/* Returns whether a byte may come. */
bool tri_configs_may_go_on(const tri_configs *c, uint32_t config);
/* The bytes that may come: bit b % 64 of word b / 64. Good until the next call that makes something. */
const uint64_t *tri_configs_next_bytes(const tri_configs *c, uint32_t config);
/* The places that take bytes. Good until the next call that makes something. */
const uint32_t *tri_configs_places(const tri_configs *c, uint32_t config, uint32_t *num);
tri_place tri_configs_place(const tri_configs *c, uint32_t place);
const tri_net *tri_configs_net(const tri_configs *c);

#endif
