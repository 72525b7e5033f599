/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/spacing.h"

#include <string.h>

#include "text/unicode/unicode.h"

#define VISIBLE_SPACE "\xe2\x96\x81"

void tok_spacing_free(tok_spacing *s) {
  tok_charsmap_destroy(s->charsmap);
  tok_user_pieces_free(&s->user);
  *s = (tok_spacing){0};
}

/* Finds what the text's first bytes become; returns how many they are. */
static size_t next(const tok_spacing *s, const char *text, size_t len, const char **to, size_t *to_len) {
  uint32_t id;
  size_t n = tok_user_piece_at(&s->user, text, len, &id);
  if (!n && s->charsmap && (n = tok_charsmap_longest(s->charsmap, text, len, to, to_len))) return n;
  if (!n) tok_utf8_decode(text, &n);
  *to = text;
  *to_len = n;
  return n;
}

static tri_status append(const tok_spacing *s, const char *text, size_t len, tri_buf *out) {
  for (size_t i = 0, n; i < len; i += n) {
    const char *space = s->escape ? memchr(text + i, ' ', len - i) : NULL;
    n = space ? (size_t)(space - text) - i : len - i;
    TRI_CHECK(tri_buf_append(out, text + i, n));
    if (!space) continue;
    TRI_CHECK(tri_buf_append(out, VISIBLE_SPACE, 3));
    n++;
  }
  return TRI_OK;
}

/* Takes the spaces at the end away, of the ranges as well. */
static void trim_end(const tok_spacing *s, size_t from, tok_spans_walk *walk, tri_buf *out) {
  const char *space = s->escape ? VISIBLE_SPACE : " ";
  size_t n = strlen(space);
  while (out->len >= from + n && !memcmp(out->data + out->len - n, space, n)) out->len -= n;
  for (tok_spans *to = walk ? walk->to : NULL; to && to->len && to->data[to->len - 1].to > out->len;) {
    tri_span *last = &to->data[to->len - 1];
    last->to = out->len;
    if (last->from < last->to) break;
    to->len--;
  }
}

tri_status tok_spacing_apply(const tok_spacing *s, const char *text, size_t len, bool at_start, tok_spans_walk *walk,
                             tri_buf *out) {
  bool add = s->add_space && (at_start || !s->first_only), after_space = s->remove_extra;
  const char *to;
  size_t i = 0, n, size, from = out->len;
  for (; s->remove_extra && i < len; i += n) {
    n = next(s, text + i, len - i, &to, &size);
    if (size != 1 || *to != ' ') break;
    TRI_CHECK(tok_spans_change(walk, i, n, out->len, 0));
  }
  if (i == len) return TRI_OK; /* an empty text gets no space */
  if (add && !s->after) TRI_CHECK(append(s, " ", 1, out));
  for (; i < len; i += n) {
    size_t at = out->len;
    n = next(s, text + i, len - i, &to, &size);
    for (; after_space && size && *to == ' '; size--) to++;
    TRI_CHECK(append(s, to, size, out));
    TRI_CHECK(tok_spans_change(walk, i, n, at, out->len - at));
    if (size) after_space = s->remove_extra && to[size - 1] == ' ';
  }
  if (s->remove_extra) trim_end(s, from, walk, out);
  return add && s->after ? append(s, " ", 1, out) : TRI_OK;
}
