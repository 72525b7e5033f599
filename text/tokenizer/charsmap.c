/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/charsmap.h"

#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/base64.h"
#include "text/unicode/unicode.h"

/* The map, after base64: the trie's size in bytes (uint32), the trie's units (uint32 each), then the replacements,
 * each ended by a NUL, which the trie's values point into. All integers are little-endian.
 *
 * A corrupt map cannot lead out of its memory: each index is compared with the number of units, each offset with the
 * texts' end. */
struct tok_charsmap {
  uint32_t *units; /* the trie; see below */
  size_t count;
  tri_buf bytes; /* the file's map; what follows the trie are the replacements */
  const char *texts;
  size_t texts_len;
};

/* ---- loading ---- */

static tri_status decode_base64(const tok_field *f, const char *s, size_t len, tri_buf *out, tri_error *err) {
  size_t bad;
  tri_status st = tok_base64(s, len, out, &bad);
  if (st != TRI_CORRUPT) return st;
  if (bad == len) return tok_field_fail(f, st, err, "base64 of %zu characters, no multiple of 4", len);
  return tok_field_fail(f, st, err, "character %zu is no base64", bad);
}

static uint32_t little_endian(const char *s) {
  const unsigned char *u = (const unsigned char *)s;
  return u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

static tri_status read_map(tok_charsmap *m, const tok_field *f, tri_error *err) {
  if (m->bytes.len < 4) return tok_field_fail(f, TRI_CORRUPT, err, "the map has %zu bytes", m->bytes.len);
  m->count = little_endian(m->bytes.data) / 4;
  if (m->count > (m->bytes.len - 4) / 4)
    return tok_field_fail(f, TRI_CORRUPT, err, "a trie of %zu units in %zu bytes", m->count, m->bytes.len);
  m->units = tri_calloc(m->count + 1, sizeof *m->units);
  if (!m->units) return TRI_NO_MEMORY;
  for (size_t i = 0; i < m->count; i++) m->units[i] = little_endian(m->bytes.data + 4 + 4 * i);
  m->texts = m->bytes.data + 4 + 4 * m->count;
  m->texts_len = m->bytes.len - 4 - 4 * m->count;
  if (tok_utf8_valid_prefix(m->texts, m->texts_len) != m->texts_len)
    return tok_field_fail(f, TRI_CORRUPT, err, "the map's replacements are not UTF-8");
  return TRI_OK;
}

/* Takes the bytes over, also on failure. */
static tri_status make(tri_buf bytes, const tok_field *f, tok_charsmap **out, tri_error *err) {
  tok_charsmap *m = tri_calloc(1, sizeof *m);
  if (!m) {
    tri_buf_free(&bytes);
    return TRI_NO_MEMORY;
  }
  m->bytes = bytes;
  tri_status st = read_map(m, f, err);
  if (st == TRI_OK)
    *out = m;
  else
    tok_charsmap_destroy(m);
  return st;
}

tri_status tok_charsmap_load(const tok_field *f, tok_charsmap **out, tri_error *err) {
  const char *s;
  size_t len;
  tri_buf bytes = {0};
  tri_status st;
  TRI_TRY(tok_field_string(f, &s, &len, err));
  TRI_TRY(decode_base64(f, s, len, &bytes, err));
  st = make(bytes, f, out, err);
  bytes = (tri_buf){0};
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  tri_buf_free(&bytes);
  return st;
}

tri_status tok_charsmap_copy(const char *map, size_t len, const tok_field *f, tok_charsmap **out, tri_error *err) {
  tri_buf bytes = {0};
  tri_status st = tri_buf_append(&bytes, map, len);
  if (st == TRI_OK)
    st = make(bytes, f, out, err);
  else
    tri_buf_free(&bytes);
  return st == TRI_NO_MEMORY ? tok_field_no_memory(f, err) : st;
}

void tok_charsmap_destroy(tok_charsmap *m) {
  if (!m) return;
  tri_free(m->units);
  tri_buf_free(&m->bytes);
  tri_free(m);
}

/* ---- replacing ---- */

/* A unit of the trie (the darts-clone format): its children lie at its own index XOR offset XOR their byte, and a child
 * is one only if its label is that byte. One with a leaf has its value at its index XOR offset. */
static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }
static uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xff); }
static bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }

/* Finds the entries that s begins with: *at is the offset of the replacement of the shortest one, or of the longest.
 * Returns its length, 0 without one. */
static size_t find(const tok_charsmap *m, const char *s, size_t n, bool longest, uint32_t *at) {
  size_t found = 0;
  if (!m->count) return 0;
  uint32_t index = offset_of(m->units[0]);
  for (size_t i = 0; i < n && s[i]; i++) {
    unsigned char byte = (unsigned char)s[i];
    index ^= byte;
    if (index >= m->count || label_of(m->units[index]) != byte) break;
    uint32_t unit = m->units[index];
    index ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (index >= m->count) break;
    *at = m->units[index] & 0x7fffffff;
    found = i + 1;
    if (!longest) break;
  }
  return found;
}

/* Returns whether an offset is of a replacement; no well-formed map has one that is not (after the texts, within a
 * character), and it counts as no entry. */
static bool is_text(const tok_charsmap *m, uint32_t at) {
  return at <= m->texts_len && (at == m->texts_len || ((unsigned char)m->texts[at] & 0xc0) != 0x80);
}

size_t tok_charsmap_longest(const tok_charsmap *m, const char *s, size_t n, const char **text, size_t *len) {
  uint32_t at = 0;
  size_t found = find(m, s, n, true, &at);
  /* An entry that ends within a character would leave the rest of it. */
  if (!found || !is_text(m, at) || (found < n && ((unsigned char)s[found] & 0xc0) == 0x80)) return 0;
  *text = m->texts + at;
  *len = strnlen(*text, m->texts_len - at);
  return found;
}

/* Replaces n bytes at `from` as a whole if an entry fits; *done tells. That the entry may be shorter than they are is
 * what models were trained with. */
static tri_status replace_whole(const tok_charsmap *m, const char *s, size_t from, size_t n, tok_spans_walk *walk,
                                tri_buf *out, bool *done) {
  uint32_t at;
  *done = find(m, s + from, n, false, &at) && is_text(m, at);
  if (!*done) return TRI_OK;
  size_t size = strnlen(m->texts + at, m->texts_len - at);
  TRI_CHECK(tok_spans_change(walk, from, n, out->len, size));
  return tri_buf_append(out, m->texts + at, size);
}

tri_status tok_charsmap_apply(const tok_charsmap *m, const char *s, size_t n, tok_spans_walk *walk, tri_buf *out) {
  enum { WHOLE = 5 }; /* bytes of the longest grapheme that is looked up as one */
  bool done;
  for (size_t i = 0, end; i < n; i = end) {
    end = tok_grapheme_end(s, n, i);
    if (end - i <= WHOLE) {
      TRI_CHECK(replace_whole(m, s, i, end - i, walk, out, &done));
      if (done) continue;
    }
    for (size_t at = i, len; at < end; at += len) {
      tok_utf8_decode(s + at, &len);
      TRI_CHECK(replace_whole(m, s, at, len, walk, out, &done));
      if (done) continue;
      TRI_CHECK(tok_spans_copy(walk, at, len, out->len));
      TRI_CHECK(tri_buf_append(out, s + at, len));
    }
  }
  return TRI_OK;
}
