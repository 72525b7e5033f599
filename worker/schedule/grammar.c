/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule/grammar.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/grammar/masks.h"
#include "runtime/grammar/schema.h"

/* MASKS_BYTES: of the masks that are kept, within these numbers of them. */
enum { MOST_BYTES = 16 << 20, MASKS_BYTES = 1 << 20, FEWEST_MASKS = 16, MOST_MASKS = 1024 };

struct tri_grammar {
  atomic_int refs;
  tri_wire_constraint wire;
  char *texts; /* of it */
  const tri_vocabulary *vocabulary;
  tri_net *net;
  pthread_mutex_t lock; /* of what follows */
  tri_configs *configs;
  tri_masks *masks;
  size_t masks_bytes;
  uint64_t resets;
  _Atomic size_t bytes;
};

/* ---- made and freed ---- */

static tri_status compile(const tri_wire_constraint *wire, tri_net **net, tri_error *err) {
  const tri_wire_frame *f = &wire->frame;
  const tri_schema_frame frame = {f->begin.s,       f->separator.s, f->end.s,          f->begin.len,
                                  f->separator.len, f->end.len,     f->most + !f->most};
  const tri_schema_options options = {.frame = &frame};
  if (wire->kind == TRI_CONSTRAINT_JSON_OBJECT) return tri_schema_any_object(&options, net, err);
  if (wire->kind == TRI_CONSTRAINT_JSON_SCHEMA)
    return tri_schema_compile_text(wire->text.s, wire->text.len, &options, net, err);
  return tri_fail(err, TRI_UNSUPPORTED, "constraint", "a constraint of an unknown kind");
}

static uint32_t most_masks(const tri_vocabulary *v) {
  size_t one = tri_vocabulary_words(v) * sizeof(uint64_t), most = one ? MASKS_BYTES / one : MOST_MASKS;
  if (most < FEWEST_MASKS) most = FEWEST_MASKS;
  return (uint32_t)(most > MOST_MASKS ? MOST_MASKS : most);
}

static void count_bytes(tri_grammar *g) {
  size_t bytes = sizeof *g + tri_wire_constraint_bytes(&g->wire) + tri_net_bytes(g->net) +
                 tri_configs_bytes_used(g->configs) + g->masks_bytes;
  atomic_store_explicit(&g->bytes, bytes, memory_order_relaxed);
}

tri_status tri_grammar_create(const tri_wire_constraint *wire, const tri_vocabulary *vocabulary, size_t most_bytes,
                              tri_grammar **out, tri_error *err) {
  tri_status st = TRI_OK;
  tri_grammar *g = tri_calloc(1, sizeof *g);
  if (!g) return TRI_NO_MEMORY;
  atomic_init(&g->refs, 1);
  pthread_mutex_init(&g->lock, NULL);
  g->vocabulary = vocabulary;
  g->wire = *wire;
  if (!(g->texts = tri_wire_constraint_own(&g->wire))) TRI_TRY(TRI_NO_MEMORY);
  TRI_TRY(compile(wire, &g->net, err));
  TRI_TRY(tri_configs_create(g->net, most_bytes ? most_bytes : MOST_BYTES, &g->configs));
  uint32_t masks = most_masks(vocabulary);
  g->masks_bytes = masks * tri_vocabulary_words(vocabulary) * sizeof(uint64_t);
  TRI_TRY(tri_masks_create(g->configs, vocabulary, masks, &g->masks));
  count_bytes(g);
  *out = g;
  g = NULL;
cleanup:
  tri_grammar_drop(g);
  return st;
}

tri_grammar *tri_grammar_share(tri_grammar *g) {
  atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
  return g;
}

void tri_grammar_drop(tri_grammar *g) {
  if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) > 1) return;
  tri_masks_destroy(g->masks);
  tri_configs_destroy(g->configs);
  tri_net_destroy(g->net);
  pthread_mutex_destroy(&g->lock);
  tri_free(g->texts);
  tri_free(g);
}

bool tri_grammar_is_of(const tri_grammar *g, const tri_wire_constraint *wire) {
  return tri_wire_constraint_is_same(&g->wire, wire);
}

size_t tri_grammar_bytes(const tri_grammar *g) { return atomic_load_explicit(&g->bytes, memory_order_relaxed); }

/* ---- masks ---- */

/* Moves a place on by the tokens that it has not seen; a place from before a reset begins anew. Special tokens, those
 * that end an answer among them, have no bytes and fit nowhere. */
static uint32_t follow(tri_grammar *g, tri_grammar_place *p, const uint32_t *tokens, int num) {
  if (!p->config || p->resets != g->resets || p->num > num)
    *p = (tri_grammar_place){.config = tri_configs_begin(g->configs), .resets = g->resets};
  for (; p->num < num && p->config; p->num++) {
    uint32_t len;
    const uint8_t *bytes = tri_vocabulary_token(g->vocabulary, tokens[p->num], &len);
    p->config = bytes ? tri_configs_walk(g->configs, p->config, bytes, len) : 0;
  }
  return p->config;
}

/* NULL: no token fits, or there is no room to find out. */
static const uint64_t *find(tri_grammar *g, tri_grammar_place *p, const uint32_t *tokens, int num) {
  return follow(g, p, tokens, num) ? tri_masks_of(g->masks, p->config) : NULL;
}

static bool copy(const uint64_t *bits, size_t words, uint32_t *mask) {
  uint64_t any = 0;
  for (size_t i = 0; i < words; i++) {
    mask[2 * i] = (uint32_t)bits[i];
    mask[2 * i + 1] = (uint32_t)(bits[i] >> 32);
    any |= bits[i];
  }
  return any;
}

static void forget(tri_grammar *g) {
  tri_configs_reset(g->configs);
  tri_masks_reset(g->masks);
  g->resets++;
}

tri_grammar_next tri_grammar_mask(tri_grammar *g, tri_grammar_place *p, const uint32_t *tokens, int num,
                                  uint32_t *mask) {
  tri_grammar_next next = {.tokens = false};
  pthread_mutex_lock(&g->lock);
  const uint64_t *bits = find(g, p, tokens, num);
  if (!bits && tri_configs_is_full(g->configs)) {
    forget(g);
    bits = find(g, p, tokens, num);
  }
  if (bits) {
    next.tokens = copy(bits, tri_vocabulary_words(g->vocabulary), mask);
    next.the_end = tri_configs_may_end(g->configs, p->config);
  }
  count_bytes(g);
  pthread_mutex_unlock(&g->lock);
  return next;
}
