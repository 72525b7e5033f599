/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule/grammar_cache.h"

#include <sys/queue.h>

#include "base/mem.h"

/* A walk over all of them is short compared with compiling one. */
enum { MOST_GRAMMARS = 256 };

typedef struct kept {
  TAILQ_ENTRY(kept) links;
  tri_grammar *grammar;
} kept;

struct tri_grammar_cache {
  const tri_vocabulary *vocabulary;
  size_t most_bytes;
  int num;
  TAILQ_HEAD(kept_grammars, kept) all; /* the one asked for last comes first */
};

tri_status tri_grammar_cache_create(const tri_vocabulary *vocabulary, size_t most_bytes, tri_grammar_cache **out) {
  tri_grammar_cache *c = tri_calloc(1, sizeof *c);
  if (!c) return TRI_NO_MEMORY;
  c->vocabulary = vocabulary;
  c->most_bytes = most_bytes;
  TAILQ_INIT(&c->all);
  *out = c;
  return TRI_OK;
}

static void drop(tri_grammar_cache *c, kept *k) {
  TAILQ_REMOVE(&c->all, k, links);
  c->num--;
  tri_grammar_drop(k->grammar);
  tri_free(k);
}

void tri_grammar_cache_destroy(tri_grammar_cache *c) {
  if (!c) return;
  while (!TAILQ_EMPTY(&c->all)) drop(c, TAILQ_FIRST(&c->all));
  tri_free(c);
}

const tri_vocabulary *tri_grammar_cache_vocabulary(const tri_grammar_cache *c) { return c->vocabulary; }

/* Lets the last ones go until the others fit. The first one stays. */
static void make_room(tri_grammar_cache *c) {
  size_t bytes = 0;
  for (kept *k = TAILQ_FIRST(&c->all); k; k = TAILQ_NEXT(k, links)) bytes += tri_grammar_bytes(k->grammar);
  while (c->num > 1 && (bytes > c->most_bytes || c->num > MOST_GRAMMARS)) {
    kept *last = TAILQ_LAST(&c->all, kept_grammars);
    bytes -= tri_grammar_bytes(last->grammar);
    drop(c, last);
  }
}

static kept *find(const tri_grammar_cache *c, const tri_wire_constraint *wire) {
  kept *k = TAILQ_FIRST(&c->all);
  while (k && !tri_grammar_is_of(k->grammar, wire)) k = TAILQ_NEXT(k, links);
  return k;
}

tri_status tri_grammar_cache_get(tri_grammar_cache *c, const tri_wire_constraint *wire, tri_grammar **out,
                                 tri_error *err) {
  kept *k = find(c, wire);
  if (k) {
    TAILQ_REMOVE(&c->all, k, links);
    TAILQ_INSERT_HEAD(&c->all, k, links);
    *out = tri_grammar_share(k->grammar);
    return TRI_OK;
  }
  if (!(k = tri_calloc(1, sizeof *k))) return TRI_NO_MEMORY;
  tri_status st = tri_grammar_create(wire, c->vocabulary, 0, &k->grammar, err);
  if (st != TRI_OK) {
    tri_free(k);
    return st;
  }
  TAILQ_INSERT_HEAD(&c->all, k, links);
  c->num++;
  *out = tri_grammar_share(k->grammar);
  make_room(c);
  return TRI_OK;
}
