/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/files/release.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

/* ---- added tokens ---- */

tri_status tok_added_list_init(tok_added_list *l) { return tri_arena_create(1 << 12, &l->texts); }

void tok_added_list_free(tok_added_list *l) {
  tri_arena_destroy(l->texts);
  tri_free(l->data);
  *l = (tok_added_list){0};
}

/* Lists are read in order of ids, nearly always: the place is at the end or is found by halving. */
static size_t place_of(const tok_added_list *l, uint32_t id) {
  size_t low = 0, high = l->len;
  if (high && l->data[high - 1].id < id) return high;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    if (l->data[mid].id < id)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

tok_added *tok_added_list_at(const tok_added_list *l, uint32_t id) {
  size_t at = place_of(l, id);
  return at < l->len && l->data[at].id == id ? &l->data[at] : NULL;
}

tri_status tok_added_list_put(tok_added_list *l, const char *text, size_t len, uint32_t id, bool special) {
  size_t at = place_of(l, id);
  const char *copy = tri_arena_strndup(l->texts, text, len);
  if (!copy) return TRI_NO_MEMORY;
  if (at == l->len || l->data[at].id != id) {
    TRI_CHECK(tri_array_reserve(&l->data, l->len, &l->cap, 1, sizeof *l->data));
    memmove(l->data + at + 1, l->data + at, (l->len - at) * sizeof *l->data);
    l->len++;
  }
  l->data[at] = (tok_added){.text = copy, .len = len, .id = id, .special = special};
  return TRI_OK;
}

typedef struct reading {
  tok_added_list *list;
  tok_field field;
  tri_error *err;
} reading;

static tri_status put_checked(reading *r, const tok_field *f, const char *text, size_t len, uint32_t id, bool special) {
  if (!len) return TRI_OK; /* matches nothing */
  if (len > TOK_LONGEST_ADDED)
    return tok_field_fail(f, TRI_TOO_LARGE, r->err, "%zu bytes, the limit is %d", len, TOK_LONGEST_ADDED);
  tri_status st = tok_added_list_put(r->list, text, len, id, special);
  return st == TRI_NO_MEMORY ? tok_field_no_memory(f, r->err) : st;
}

/* "text": id */
static tri_status read_pair(void *ctx, const char *key, const tri_json *value) {
  reading *r = ctx;
  uint32_t id;
  tok_field f = tok_field_get(&r->field, key);
  f.node = value;
  TRI_CHECK(tok_field_id(&f, TOK_MAX_IDS, &id, r->err));
  return put_checked(r, &f, key, strlen(key), id, true);
}

static bool read_id(const char *key, uint32_t *id) {
  *id = 0;
  for (const char *p = key; *p; p++) {
    if (*p < '0' || *p > '9' || *id >= TOK_MAX_IDS) return false;
    *id = *id * 10 + (uint32_t)(*p - '0');
  }
  return *key && *id < TOK_MAX_IDS;
}

/* "id": {"content": text, ...}. That a token is normalized plays no part: these tokens are matched in the text as it
 * came, as the files' own tokenizers do. */
static tri_status read_entry(void *ctx, const char *key, const tri_json *value) {
  reading *r = ctx;
  uint32_t id;
  const char *text;
  size_t len;
  bool special = false;
  tok_field f = tok_field_get(&r->field, key);
  f.node = value;
  if (!read_id(key, &id)) return tok_field_fail(&f, TRI_CORRUPT, r->err, "%.40s is no id below %d", key, TOK_MAX_IDS);
  tok_field content = tok_field_get(&f, "content");
  TRI_CHECK(tok_field_string(&content, &text, &len, r->err));
  TRI_CHECK(tok_field_bool(&f, "special", &special, r->err));
  TRI_CHECK(put_checked(r, &content, text, len, id, special));
  tok_added *t = tok_added_list_at(r->list, id);
  if (!t) return TRI_OK;
  TRI_CHECK(tok_field_bool(&f, "lstrip", &t->lstrip, r->err));
  TRI_CHECK(tok_field_bool(&f, "rstrip", &t->rstrip, r->err));
  return tok_field_bool(&f, "single_word", &t->single_word, r->err);
}

tri_status tok_added_list_read(tok_added_list *l, const tok_release *release, tri_error *err) {
  reading r = {.list = l, .err = err, .field = {.path = "added_tokens.json"}};
  if (tri_json_kind_of(release->added) != TRI_JSON_NULL) {
    r.field.node = release->added;
    if (tri_json_kind_of(release->added) != TRI_JSON_OBJECT) return tok_field_wrong(&r.field, "an object", err);
    TRI_CHECK(tri_json_each(release->added, read_pair, &r));
  }
  tok_field config = {.node = release->config, .path = "tokenizer_config.json"};
  r.field = tok_field_get(&config, "added_tokens_decoder");
  if (tok_field_is_null(&r.field)) return TRI_OK;
  if (tri_json_kind_of(r.field.node) != TRI_JSON_OBJECT) return tok_field_wrong(&r.field, "an object", err);
  return tri_json_each(r.field.node, read_entry, &r);
}

/* ---- the rest ---- */

bool tok_release_is(const tok_release *release, const char *types) {
  return (release->types[0] && tri_has_word(types, release->types[0])) ||
         (release->types[1] && tri_has_word(types, release->types[1]));
}

const char *tok_release_token(const tok_release *release, const char *key, const char *otherwise) {
  const char *text = tri_json_get_str(release->config, key);
  if (!text) text = tri_json_get_str(tri_json_get(release->config, key), "content");
  return text ? text : otherwise;
}

bool tok_release_flag(const tok_release *release, const char *key, bool otherwise) {
  tri_json_as_bool(tri_json_get(release->config, key), &otherwise);
  return otherwise;
}
