/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/masks.h"

#include <string.h>
#include <sys/queue.h>

#include "base/mem.h"

typedef struct kept {
  TAILQ_ENTRY(kept) links; /* in the order of their last use */
  uint32_t config;
  uint64_t *bits;
} kept;

struct tri_masks {
  tri_configs *configs;
  const tri_vocabulary *vocabulary;
  size_t words;
  kept *all; /* [most] */
  uint32_t most, used;
  TAILQ_HEAD(kept_list, kept) by_use;
  kept **of_config; /* [room] */
  size_t room;
  /* A walk has [depth of the trie + 1] of these: */
  uint32_t *path, *at;
};

/* ---- walks ---- */

static void set_tokens(const tri_trie *t, uint32_t node, uint64_t *bits) {
  for (uint32_t i = t->first_token[node]; i < t->first_token[node + 1]; i++)
    bits[t->tokens[i] / 64] |= 1ull << t->tokens[i] % 64;
}

/* Adds the tokens of the trie that may come, but for those without bytes. */
static void walk(tri_masks *m, uint32_t config, uint64_t *bits) {
  const tri_trie *t = tri_vocabulary_trie(m->vocabulary);
  uint32_t depth = 0, i = 1;
  m->path[0] = 0;
  m->at[0] = config;
  while (i < t->num_nodes) {
    while (i >= t->end[m->path[depth]]) depth--;
    uint32_t next = tri_configs_step(m->configs, m->at[depth], t->byte[i]);
    if (!next) {
      i = t->end[i];
      continue;
    }
    set_tokens(t, i, bits);
    m->path[++depth] = i;
    m->at[depth] = next;
    i++;
  }
}

/* ---- inside strings ---- */

/* What a place inside a string allows: `rest` characters, and the quote after some of them. */
typedef struct inside {
  tri_place place;
  uint32_t rest;  /* UINT32_MAX: any number */
  uint32_t quote; /* the state that it leads to */
  uint32_t ends;  /* its guard */
  uint32_t most;  /* of the rule */
  bool is_counting;
} inside;

static uint32_t count_after(const inside *in, uint32_t chars) {
  if (!in->is_counting) return in->place.count;
  return in->most - in->place.count > chars ? in->place.count + chars : in->most;
}

static inside look_inside(const tri_masks *m, tri_place p) {
  const tri_net *net = tri_configs_net(m->configs);
  const tri_net_state *s = tri_net_state_at(net, p.state);
  const tri_net_arc *arcs = tri_net_arcs_of(net, s);
  inside in = {.place = p, .most = tri_net_most(net, s->rule)};
  uint32_t guard = 0;
  for (uint32_t i = 0; i < s->num_arcs; i++) {
    if (arcs[i].lo == '"' && arcs[i].hi == '"') {
      in.quote = arcs[i].to;
      in.ends = arcs[i].guard;
      continue;
    }
    guard = arcs[i].guard;
    in.is_counting = arcs[i].action == TRI_NET_ADD;
  }
  for (in.rest = 0; in.rest <= TRI_VOCABULARY_TOKEN; in.rest++) {
    uint32_t count = count_after(&in, in.rest);
    if (!tri_net_allows(net, guard, count)) return in;
    if (!in.is_counting || count == in.most) break;
  }
  in.rest = UINT32_MAX;
  return in;
}

/* Tokens that stay inside: all but those with too many characters, which are the first of by_len. is_first: no bit is
 * set yet. */
static void add_inside(const tri_masks *m, const inside *in, bool is_first, uint64_t *bits) {
  const tri_text_tokens *t = tri_vocabulary_text(m->vocabulary);
  uint32_t too_long = 0;
  while (too_long < t->num && t->chars[too_long] > in->rest) too_long++;
  if (too_long && (!is_first || too_long > t->num / 2)) {
    for (uint32_t i = too_long; i < t->num; i++) bits[t->by_len[i] / 64] |= 1ull << t->by_len[i] % 64;
    return;
  }
  for (size_t w = 0; w < m->words; w++) bits[w] |= t->inside[w];
  for (uint32_t i = 0; i < too_long; i++) bits[t->by_len[i] / 64] &= ~(1ull << t->by_len[i] % 64);
}

/* Tokens with so many characters before the quote that the configuration after it is `config`. */
static void set_rests(const tri_masks *m, const uint32_t *of_chars, uint32_t config, uint32_t node, uint64_t *bits) {
  const tri_text_tokens *t = tri_vocabulary_text(m->vocabulary);
  for (uint32_t i = t->rests->first_token[node]; i < t->rests->first_token[node + 1]; i++)
    if (of_chars[t->chars_before[i]] == config) bits[t->rests->tokens[i] / 64] |= 1ull << t->rests->tokens[i] % 64;
}

static void walk_rests(tri_masks *m, const uint32_t *of_chars, uint32_t config, uint64_t *bits) {
  const tri_trie *t = tri_vocabulary_text(m->vocabulary)->rests;
  uint32_t depth = 0, i = 1;
  m->path[0] = 0;
  m->at[0] = config;
  set_rests(m, of_chars, config, 0, bits);
  while (i < t->num_nodes) {
    while (i >= t->end[m->path[depth]]) depth--;
    uint32_t next = tri_configs_step(m->configs, m->at[depth], t->byte[i]);
    if (!next) {
      i = t->end[i];
      continue;
    }
    set_rests(m, of_chars, config, i, bits);
    m->path[++depth] = i;
    m->at[depth] = next;
    i++;
  }
}

/* Tokens that bring the closing quote. What follows it may depend on the characters before it; mostly it does not. */
static void add_rests(tri_masks *m, const inside *in, uint64_t *bits) {
  const tri_net *net = tri_configs_net(m->configs);
  uint32_t of_chars[TRI_VOCABULARY_TOKEN + 1], last = 0;
  for (uint32_t chars = 0; chars <= TRI_VOCABULARY_TOKEN; chars++) {
    uint32_t count = count_after(in, chars);
    bool may = chars <= in->rest && tri_net_allows(net, in->ends, count);
    if (chars && count == count_after(in, chars - 1) && (may == (of_chars[chars - 1] != 0)))
      of_chars[chars] = of_chars[chars - 1];
    else
      of_chars[chars] = may ? tri_configs_of_place(m->configs, (tri_place){in->quote, count, in->place.stack}) : 0;
  }
  for (uint32_t chars = 0; chars <= TRI_VOCABULARY_TOKEN; chars++) {
    bool is_new = of_chars[chars] && of_chars[chars] != last;
    for (uint32_t i = 0; is_new && i < chars; i++) is_new = of_chars[i] != of_chars[chars];
    if (is_new) walk_rests(m, of_chars, of_chars[chars], bits);
    if (is_new) last = of_chars[chars];
  }
}

/* ---- masks ---- */

static void make(tri_masks *m, uint32_t config, uint64_t *bits) {
  uint32_t num, text = 0;
  bool is_first = true;
  memset(bits, 0, m->words * sizeof *bits);
  const uint32_t *places = tri_configs_places(m->configs, config, &num);
  for (uint32_t i = 0; i < num && text < num; i++)
    text += tri_net_state_at(tri_configs_net(m->configs), tri_configs_place(m->configs, places[i]).state)->is_text;
  if (!text) {
    walk(m, config, bits);
    return;
  }
  for (uint32_t i = 0; i < num; i++) { /* lists may move when something is made */
    tri_place p = tri_configs_place(m->configs, tri_configs_places(m->configs, config, &num)[i]);
    if (!tri_net_state_at(tri_configs_net(m->configs), p.state)->is_text) continue;
    inside in = look_inside(m, p);
    add_inside(m, &in, is_first, bits);
    add_rests(m, &in, bits);
    is_first = false;
  }
  if (text < num) walk(m, tri_configs_without_text(m->configs, config), bits);
}

static bool make_room_for(tri_masks *m, uint32_t config) {
  if (config < m->room) return true;
  size_t room = m->room ? m->room : 256;
  while (room <= config) room *= 2;
  kept **grown = tri_grow(m->of_config, m->room, room, sizeof *grown);
  if (!grown) return false;
  m->of_config = grown;
  m->room = room;
  return true;
}

const uint64_t *tri_masks_of(tri_masks *m, uint32_t config) {
  if (!make_room_for(m, config)) return NULL;
  kept *k = m->of_config[config];
  bool is_new = !k;
  if (is_new && m->used < m->most) {
    k = &m->all[m->used];
    if (!k->bits) k->bits = tri_malloc(m->words ? m->words : 1, sizeof *k->bits);
    if (!k->bits && !m->used) return NULL;
  }
  if (is_new && (!k || !k->bits)) {
    k = TAILQ_FIRST(&m->by_use);
    m->of_config[k->config] = NULL;
    TAILQ_REMOVE(&m->by_use, k, links);
  } else if (is_new) {
    m->used++;
  } else {
    TAILQ_REMOVE(&m->by_use, k, links);
  }
  TAILQ_INSERT_TAIL(&m->by_use, k, links);
  k->config = config;
  m->of_config[config] = k;
  if (is_new) make(m, config, k->bits);
  return tri_configs_is_full(m->configs) ? NULL : k->bits;
}

/* ---- all of it ---- */

tri_status tri_masks_create(tri_configs *configs, const tri_vocabulary *vocabulary, uint32_t most, tri_masks **out) {
  uint32_t depth = tri_vocabulary_trie(vocabulary)->depth;
  tri_masks *m = tri_calloc(1, sizeof *m);
  if (!m) return TRI_NO_MEMORY;
  m->configs = configs;
  m->vocabulary = vocabulary;
  m->words = tri_vocabulary_words(vocabulary);
  m->most = most;
  TAILQ_INIT(&m->by_use);
  m->all = tri_calloc(most, sizeof *m->all);
  m->path = tri_calloc((size_t)depth + 1, sizeof *m->path);
  m->at = tri_calloc((size_t)depth + 1, sizeof *m->at);
  if (!m->all || !m->path || !m->at) {
    tri_masks_destroy(m);
    return TRI_NO_MEMORY;
  }
  *out = m;
  return TRI_OK;
}

void tri_masks_destroy(tri_masks *m) {
  if (!m) return;
  for (uint32_t i = 0; m->all && i < m->most; i++) tri_free(m->all[i].bits);
  tri_free(m->all);
  tri_free(m->of_config);
  tri_free(m->path);
  tri_free(m->at);
  tri_free(m);
}

void tri_masks_reset(tri_masks *m) {
  TAILQ_INIT(&m->by_use);
  m->used = 0;
  if (m->room) memset(m->of_config, 0, m->room * sizeof *m->of_config);
}
