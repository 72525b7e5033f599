/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/instance.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/text.h"

static bool may_come(const tri_configs *c, uint32_t config, int byte) {
  return tri_configs_next_bytes(c, config)[byte / 64] >> byte % 64 & 1;
}

/* A byte that people like to read, where there is one: no escapes, and a text's end now and then. */
static int choose_byte(const tri_configs *c, uint32_t config, uint64_t *seed) {
  static const char *const likely[] = {"\"", "abcdefghijklmnopqrstuvwxyz", "0123456789", "{}[],:tfn-."};
  enum { TRIES = 40, KINDS = sizeof likely / sizeof *likely };
  for (int i = 0; i < TRIES; i++) {
    uint64_t r = tri_splitmix64(seed);
    const char *kind = likely[r % KINDS];
    size_t len = 0;
    while (kind[len]) len++;
    int byte = (uint8_t)kind[(r >> 8) % len];
    if (may_come(c, config, byte)) return byte;
  }
  for (int b = 0, first = (int)(tri_splitmix64(seed) % 256); b < 256; b++)
    if (may_come(c, config, (first + b) % 256)) return (first + b) % 256;
  return -1;
}

/* Configurations in the order in which a search in breadth has found them, each with the one that it comes from. */
typedef struct found {
  uint32_t config;
  uint32_t from;
  uint8_t byte;
} found;

typedef struct breadth {
  found *list;
  size_t num, room;
  uint8_t *seen; /* [room_seen], by configuration */
  size_t room_seen;
} breadth;

static tri_status add(breadth *s, uint32_t config, size_t from, int byte) {
  if (config >= s->room_seen) {
    size_t room = s->room_seen ? s->room_seen : 1024;
    while (room <= config) room *= 2;
    uint8_t *grown = tri_grow(s->seen, s->room_seen, room, 1);
    if (!grown) return TRI_NO_MEMORY;
    s->seen = grown;
    s->room_seen = room;
  }
  if (s->seen[config]) return TRI_OK;
  s->seen[config] = 1;
  if (s->num == s->room) {
    size_t room = s->room ? 2 * s->room : 1024;
    found *grown = tri_grow(s->list, s->room, room, sizeof *grown);
    if (!grown) return TRI_NO_MEMORY;
    s->list = grown;
    s->room = room;
  }
  s->list[s->num++] = (found){config, (uint32_t)from, (uint8_t)byte};
  return TRI_OK;
}

/* Adds the bytes that lead to the element `at` of the search, which are found from the last to the first. */
static tri_status add_path(const breadth *s, size_t at, tri_buf *out) {
  size_t len = 0;
  for (size_t i = at; i; i = s->list[i].from) len++;
  char *path = tri_malloc(len + 1, 1);
  if (!path) return TRI_NO_MEMORY;
  for (size_t i = at, k = len; i; i = s->list[i].from) path[--k] = (char)s->list[i].byte;
  tri_text_add(out, path, len);
  tri_free(path);
  return TRI_OK;
}

static tri_status go_to_end(tri_configs *c, uint32_t config, tri_buf *out) {
  breadth s = {0};
  tri_status st = add(&s, config, 0, 0);
  for (size_t i = 0; st == TRI_OK && i < s.num; i++) {
    if (tri_configs_may_end(c, s.list[i].config)) {
      st = add_path(&s, i, out);
      break;
    }
    for (int b = 0; b < 256 && st == TRI_OK; b++) {
      uint32_t next = tri_configs_step(c, s.list[i].config, (uint8_t)b);
      if (next) st = add(&s, next, i, b);
    }
    if (tri_configs_is_full(c)) st = TRI_NO_CAPACITY;
  }
  tri_free(s.list);
  tri_free(s.seen);
  return st;
}

tri_status tri_grammar_instance(tri_configs *c, uint64_t *seed, size_t random_bytes, tri_buf *out) {
  uint32_t config = tri_configs_begin(c);
  for (size_t i = 0; i < random_bytes && config; i++) {
    int byte = choose_byte(c, config, seed);
    if (byte < 0) break; /* it can only end */
    uint32_t next = tri_configs_step(c, config, (uint8_t)byte);
    if (!next) break;
    const char text[] = {(char)byte};
    tri_text_add(out, text, 1);
    config = next;
  }
  if (!config) return tri_configs_is_full(c) ? TRI_NO_CAPACITY : TRI_INTERNAL;
  return go_to_end(c, config, out);
}
