/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/wire/constraint.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- the frame on the wire ---- */

enum { NUM_TEXTS = 3 };
static const struct {
  const char *key;
  size_t at;
} texts[NUM_TEXTS] = {{"begin", offsetof(tri_wire_frame, begin)},
                      {"separator", offsetof(tri_wire_frame, separator)},
                      {"end", offsetof(tri_wire_frame, end)}};

static tri_wire_str *text_at(tri_wire_frame *f, int i) { return (tri_wire_str *)((char *)f + texts[i].at); }

static const tri_wire_str *text_of(const tri_wire_frame *f, int i) {
  return (const tri_wire_str *)((const char *)f + texts[i].at);
}

static bool is_key(const tri_value *v, const char *key) {
  return v->kind == TRI_V_STR && v->len == strlen(key) && !memcmp(v->s, key, v->len);
}

static tri_status take_text(tri_unpacker *d, const char *key, const tri_value *v, tri_wire_str *out) {
  if (v->kind != TRI_V_STR)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "constraint", "%s of constraint must be a string", key);
  if (v->len > TRI_WIRE_MAX_FRAME_TEXT)
    return tri_fail(d->err, TRI_TOO_LARGE, "constraint", "%s of constraint has %zu bytes; allowed are %d", key, v->len,
                    TRI_WIRE_MAX_FRAME_TEXT);
  *out = (tri_wire_str){v->len ? v->s : NULL, v->len};
  return TRI_OK;
}

tri_status tri_wire_frame_take(tri_unpacker *d, const tri_value *key, const tri_value *v, tri_wire_frame *f,
                               bool *known) {
  int64_t most = 0;
  *known = true;
  for (int i = 0; i < NUM_TEXTS; i++)
    if (is_key(key, texts[i].key)) return take_text(d, texts[i].key, v, text_at(f, i));
  *known = is_key(key, "most");
  if (*known) TRI_CHECK(tri_read_i64(d, "constraint", v, 1, TRI_WIRE_MAX_FRAME_MOST, &most));
  if (*known) f->most = (uint32_t)most;
  return TRI_OK;
}

tri_status tri_wire_frame_check(const tri_wire_frame *f, tri_error *err) {
  if (f->most <= 1 || f->separator.len) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "constraint",
                  "constraint allows %u texts of JSON and has no separator between them", f->most);
}

uint32_t tri_wire_frame_members(const tri_wire_frame *f) {
  uint32_t n = f->most > 1;
  for (int i = 0; i < NUM_TEXTS; i++) n += text_of(f, i)->len > 0;
  return n;
}

void tri_wire_frame_write(tri_pack *p, const tri_wire_frame *f) {
  for (int i = 0; i < NUM_TEXTS; i++) {
    const tri_wire_str *s = text_of(f, i);
    if (!s->len) continue;
    tri_pack_str(p, texts[i].key, strlen(texts[i].key));
    tri_pack_str(p, s->s, s->len);
  }
  if (f->most <= 1) return;
  tri_pack_lit(p, "most");
  tri_pack_u64(p, f->most);
}

/* ---- constraints ---- */

size_t tri_wire_constraint_bytes(const tri_wire_constraint *c) {
  size_t n = c->text.len;
  for (int i = 0; i < NUM_TEXTS; i++) n += text_of(&c->frame, i)->len;
  return n;
}

/* An absent text stays so, and an empty one does not become absent. */
static void move(tri_wire_str *s, char **to) {
  if (s->len) memcpy(*to, s->s, s->len);
  if (s->s) s->s = *to;
  *to += s->len;
}

char *tri_wire_constraint_own(tri_wire_constraint *c) {
  char *block = tri_malloc(tri_wire_constraint_bytes(c) + 1, 1), *at = block;
  if (!block) return NULL;
  move(&c->text, &at);
  for (int i = 0; i < NUM_TEXTS; i++) move(text_at(&c->frame, i), &at);
  return block;
}

static bool is_same(const tri_wire_str *a, const tri_wire_str *b) {
  return a->len == b->len && (!a->len || !memcmp(a->s, b->s, a->len));
}

static uint32_t most_of(const tri_wire_frame *f) { return f->most ? f->most : 1; }

bool tri_wire_constraint_is_same(const tri_wire_constraint *a, const tri_wire_constraint *b) {
  bool same = a->kind == b->kind && most_of(&a->frame) == most_of(&b->frame) && is_same(&a->text, &b->text);
  for (int i = 0; i < NUM_TEXTS && same; i++) same = is_same(text_of(&a->frame, i), text_of(&b->frame, i));
  return same;
}
