/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/xxh3.h"

/* Open addressing with linear probing, at most half full. The hash is kept with the id: most misses and all growth
 * need no look at the text. */
struct tok_vocab_slot {
  uint32_t hash, id;
};

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

/* Tokens are never removed, so that a search may end at the first empty slot; at most half of the slots are taken, so
 * that there is one. */
static void insert(struct tok_vocab_slot *slots, size_t mask, uint32_t hash, uint32_t id) {
  size_t i = hash & mask;
  while (slots[i].id != TOK_NO_ID) i = (i + 1) & mask;
  slots[i] = (struct tok_vocab_slot){hash, id};
}

static tri_status grow_slots(tok_vocab *v) {
  size_t cap = v->slots ? (v->slot_mask + 1) * 2 : 1024;
  struct tok_vocab_slot *slots = tri_malloc(cap, sizeof *slots);
  if (!slots) return TRI_NO_MEMORY;
  /* All bits set: TOK_NO_ID, which marks an empty slot. */
  memset(slots, 0xff, cap * sizeof *slots);
  for (size_t i = 0; v->slots && i <= v->slot_mask; i++)
    if (v->slots[i].id != TOK_NO_ID) insert(slots, cap - 1, v->slots[i].hash, v->slots[i].id);
  tri_free(v->slots);
  v->slots = slots;
  v->slot_mask = cap - 1;
  return TRI_OK;
}

/* Ids come in any order and may have gaps: new entries are zero, and a NULL text is what tok_vocab_at takes for no
 * token. */
tri_status tok_vocab_add_unlisted(tok_vocab *v, const char *text, size_t len, uint32_t id) {
  if (id >= TOK_MAX_IDS || len > UINT32_MAX) return TRI_OUT_OF_RANGE;
  if (tok_vocab_at(v, id)) return TRI_INVALID_ARGUMENT;
  if (id >= v->cap)
    TRI_CHECK(tri_array_reserve(&v->entries, v->cap, &v->cap, (size_t)id + 1 - v->cap, sizeof *v->entries));
  const char *copy = tri_arena_strndup(v->texts, text, len);
  if (!copy) return TRI_NO_MEMORY;
  v->entries[id] = (tok_entry){.text = copy, .len = (uint32_t)len};
  if (id >= v->size) v->size = (size_t)id + 1;
  return TRI_OK;
}

/* Slots grow before the entry is made, so that after a failure no token exists that cannot be found. */
tri_status tok_vocab_add(tok_vocab *v, const char *text, size_t len, uint32_t id) {
  if (tok_vocab_find(v, text, len) != TOK_NO_ID) return TRI_INVALID_ARGUMENT;
  if (!v->slots || (v->count + 1) * 2 > v->slot_mask + 1) {
    TRI_CHECK(grow_slots(v));
  }
  TRI_CHECK(tok_vocab_add_unlisted(v, text, len, id));
  insert(v->slots, v->slot_mask, (uint32_t)tri_xxh3(text, len), id);
  v->count++;
  return TRI_OK;
}

uint32_t tok_vocab_find(const tok_vocab *v, const char *text, size_t len) {
  if (!v->slots) return TOK_NO_ID;
  uint32_t hash = (uint32_t)tri_xxh3(text, len);
  for (size_t i = hash & v->slot_mask; v->slots[i].id != TOK_NO_ID; i = (i + 1) & v->slot_mask) {
    if (v->slots[i].hash != hash) continue;
    const tok_entry *e = &v->entries[v->slots[i].id];
    if (e->len == len && !memcmp(e->text, text, len)) return v->slots[i].id;
  }
  return TOK_NO_ID;
}

tri_status tok_vocab_add_or_shadow(tok_vocab *v, const char *text, size_t len, uint32_t id) {
  if (tok_vocab_find(v, text, len) == TOK_NO_ID) return tok_vocab_add(v, text, len, id);
  tri_status st = tok_vocab_add_unlisted(v, text, len, id);
  if (st == TRI_OK) v->count++;
  return st;
}

struct vocab_loader {
  const tok_field *field;
  tok_vocab *vocab;
  tri_buf text;
  tri_error *err;
};

static tri_status load_token(void *ctx, const char *key, const tri_json *value) {
  struct vocab_loader *l = ctx;
  uint32_t id;
  tok_field f = {.node = value};
  snprintf(f.path, sizeof f.path, "%.40s[\"%.40s\"]", l->field->path, key);
  TRI_CHECK(tok_field_id(&f, TOK_MAX_IDS, &id, l->err));
  tri_status st = tri_json_key(key, &l->text);
  if (st == TRI_OK) st = tok_vocab_add(l->vocab, l->text.data, l->text.len, id);
  if (st == TRI_INVALID_ARGUMENT) return tok_field_fail(&f, TRI_CORRUPT, l->err, "id %u is used twice", id);
  return st == TRI_OK ? st : tok_field_no_memory(&f, l->err);
}

tri_status tok_vocab_load(tok_vocab *v, const tok_field *f, tri_error *err) {
  if (tri_json_kind_of(f->node) != TRI_JSON_OBJECT) return tok_field_wrong(f, "an object", err);
  struct vocab_loader l = {.field = f, .vocab = v, .err = err};
  tri_status st = tri_buf_reserve(&l.text, 1); /* so that an empty token has an address */
  if (st == TRI_OK) st = tri_json_each(f->node, load_token, &l);
  tri_buf_free(&l.text);
  return st;
}

void tok_vocab_find_bytes(const tok_vocab *v, uint32_t out[256]) {
  for (unsigned i = 0; i < 256; i++) {
    char name[8];
    int n = snprintf(name, sizeof name, "<0x%02X>", i);
    out[i] = tok_vocab_find(v, name, (size_t)n);
  }
}
