#include "runtime/model/tok_vocab.h"

#include <string.h>
#include <xxhash.h>

/* Open addressing with linear probing, at most half full. The hash is kept beside the id: most misses and all growth
 * need no look at the text. */
struct tok_vocab_slot {
  uint32_t hash, id;
};

uint64_t tok_hash(const char *s, size_t len) { return XXH3_64bits(s, len); }

tri_status tok_vocab_init(tok_vocab *v) {
  *v = (tok_vocab){0};
  return tri_arena_create(1 << 16, &v->texts);
}

void tok_vocab_free(tok_vocab *v) {
  tri_arena_destroy(v->texts);
  tri_free(v->entries);
  tri_free(v->slots);
  *v = (tok_vocab){0};
}

static void place(struct tok_vocab_slot *slots, size_t mask, uint32_t hash, uint32_t id) {
  size_t i = hash & mask;
  while (slots[i].id != TOK_NO_ID) i = (i + 1) & mask;
  slots[i] = (struct tok_vocab_slot){hash, id};
}

static tri_status grow_slots(tok_vocab *v) {
  size_t cap = v->slots ? (v->slot_mask + 1) * 2 : 1024;
  struct tok_vocab_slot *slots = tri_malloc(cap, sizeof *slots);
  if (!slots) return TRI_NO_MEMORY;
  memset(slots, 0xff, cap * sizeof *slots);
  for (size_t i = 0; v->slots && i <= v->slot_mask; i++)
    if (v->slots[i].id != TOK_NO_ID) place(slots, cap - 1, v->slots[i].hash, v->slots[i].id);
  tri_free(v->slots);
  v->slots = slots;
  v->slot_mask = cap - 1;
  return TRI_OK;
}

tri_status tok_vocab_add_unlisted(tok_vocab *v, const char *text, size_t len, uint32_t id) {
  if (id >= TOK_MAX_IDS || len > UINT32_MAX) return TRI_OUT_OF_RANGE;
  if (tok_vocab_at(v, id)) return TRI_INVALID_ARGUMENT;
  if (id >= v->cap) {
    size_t cap = v->cap * 2 > (size_t)id + 1 ? v->cap * 2 : (size_t)id + 1024;
    tok_entry *entries = tri_grow(v->entries, v->cap, cap, sizeof *entries);
    if (!entries) return TRI_NO_MEMORY;
    v->entries = entries;
    v->cap = cap;
  }
  const char *copy = tri_arena_strndup(v->texts, text, len);
  if (!copy) return TRI_NO_MEMORY;
  v->entries[id] = (tok_entry){.text = copy, .len = (uint32_t)len};
  if (id >= v->size) v->size = (size_t)id + 1;
  return TRI_OK;
}

tri_status tok_vocab_add(tok_vocab *v, const char *text, size_t len, uint32_t id) {
  if (tok_vocab_find(v, text, len) != TOK_NO_ID) return TRI_INVALID_ARGUMENT;
  if (!v->slots || (v->count + 1) * 2 > v->slot_mask + 1) {
    tri_status st = grow_slots(v);
    if (st != TRI_OK) return st;
  }
  tri_status st = tok_vocab_add_unlisted(v, text, len, id);
  if (st != TRI_OK) return st;
  place(v->slots, v->slot_mask, (uint32_t)tok_hash(text, len), id);
  v->count++;
  return TRI_OK;
}

uint32_t tok_vocab_find(const tok_vocab *v, const char *text, size_t len) {
  if (!v->slots) return TOK_NO_ID;
  uint32_t hash = (uint32_t)tok_hash(text, len);
  for (size_t i = hash & v->slot_mask; v->slots[i].id != TOK_NO_ID; i = (i + 1) & v->slot_mask) {
    if (v->slots[i].hash != hash) continue;
    const tok_entry *e = &v->entries[v->slots[i].id];
    if (e->len == len && !memcmp(e->text, text, len)) return v->slots[i].id;
  }
  return TOK_NO_ID;
}
