/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/replace.h"

#include <string.h>

#include "base/mem.h"
#include "text/unicode/unicode.h"

/* ---- loading ---- */

static tri_status read_pattern(const tok_field *f, tok_field *text, bool *literal, tri_error *err) {
  TRI_CHECK(tok_field_object(f, "Regex String", err));
  if (tri_json_size(f->node) != 1)
    return tok_field_fail(f, TRI_CORRUPT, err, "must have exactly one of Regex and String");
  *literal = tri_json_get(f->node, "String") != NULL;
  *text = tok_field_get(f, *literal ? "String" : "Regex");
  return TRI_OK;
}

tri_status tok_pattern_load(const tok_field *f, tok_regex **out, tri_error *err) {
  const char *pattern;
  size_t len;
  bool literal;
  tok_field text;
  TRI_CHECK(read_pattern(f, &text, &literal, err));
  TRI_CHECK(tok_field_string(&text, &pattern, &len, err));
  return tok_regex_compile(pattern, len, literal, &text, out, err);
}

/* The table of Knuth, Morris and Pratt. Entries 0 and 1 are 0. There is none for a match of the whole pattern: matches
 * do not overlap, and the search starts anew after one. */
static tri_status set_literal(tok_replace *r, const char *pattern, size_t len) {
  if (len > UINT32_MAX) return TRI_TOO_LARGE;
  r->pattern = tri_malloc(len, 1);
  r->border = tri_calloc(len, sizeof *r->border);
  if (!r->pattern || !r->border) return TRI_NO_MEMORY;
  memcpy(r->pattern, pattern, len);
  r->pattern_len = len;
  for (size_t i = 1; i + 1 < len; i++) {
    uint32_t k = r->border[i];
    while (k && pattern[k] != pattern[i]) k = r->border[k];
    r->border[i + 1] = pattern[k] == pattern[i] ? k + 1 : 0;
  }
  return TRI_OK;
}

static tri_status set_content(tok_replace *r, const char *content, size_t len) {
  r->content = tri_malloc(len + 1, 1);
  if (!r->content) return TRI_NO_MEMORY;
  memcpy(r->content, content, len);
  r->content_len = len;
  return TRI_OK;
}

tri_status tok_replace_load(const tok_field *object, tok_replace **out, tri_error *err) {
  tok_field pattern = tok_field_get(object, "pattern"), content = tok_field_get(object, "content"), text;
  const char *s;
  size_t len;
  bool literal;
  tri_status st = TRI_NO_MEMORY;
  tok_replace *r = tri_calloc(1, sizeof *r);
  if (!r) goto cleanup;
  TRI_TRY(tok_field_string(&content, &s, &len, err));
  TRI_TRY(set_content(r, s, len));
  TRI_TRY(read_pattern(&pattern, &text, &literal, err));
  TRI_TRY(tok_field_string(&text, &s, &len, err));
  if (literal && len) /* an empty one matches between all characters: the regular expression's affair */
    TRI_TRY(set_literal(r, s, len));
  else
    TRI_TRY(tok_regex_compile(s, len, literal, &text, &r->regex, err));
  *out = r;
  r = NULL;
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(object, err);
  tok_replace_destroy(r);
  return st;
}

tri_status tok_replace_create(const char *pattern, const char *content, tok_replace **out) {
  tri_status st = TRI_NO_MEMORY;
  tok_replace *r = tri_calloc(1, sizeof *r);
  if (!r) return st;
  TRI_TRY(set_literal(r, pattern, strlen(pattern)));
  TRI_TRY(set_content(r, content, strlen(content)));
  *out = r;
  r = NULL;
cleanup:
  tok_replace_destroy(r);
  return st;
}

void tok_replace_destroy(tok_replace *r) {
  if (!r) return;
  tok_regex_destroy(r->regex);
  tri_free(r->pattern);
  tri_free(r->border);
  tri_free(r->content);
  tri_free(r);
}

/* ---- plain strings ---- */

/* Knuth, Morris and Pratt's search in parts: only the length of the pattern that has matched so far goes from part to
 * part, since its text is the pattern's own. Each turn of the loop takes a byte or shortens the match, which only a
 * taken byte can lengthen: there are at most two turns for a byte. */
tri_status tok_replace_feed(const tok_replace *r, size_t *matched, const char *text, size_t len, tri_buf *out) {
  size_t m = *matched, i = 0;
  tri_status st = TRI_OK;
  while (i < len) {
    if (!m) { /* to the next place where a match can begin */
      const char *next = memchr(text + i, r->pattern[0], len - i);
      size_t end = next ? (size_t)(next - text) : len;
      TRI_TRY(tri_buf_append(out, text + i, end - i));
      if ((i = end) == len) break;
    }
    if (r->pattern[m] == text[i]) {
      i++;
      if (++m < r->pattern_len) continue;
      TRI_TRY(tri_buf_append(out, r->content, r->content_len));
      m = 0;
    } else { /* m > 0, or the place would not have been found */
      size_t keep = r->border[m];
      TRI_TRY(tri_buf_append(out, r->pattern, m - keep));
      m = keep;
    }
  }
cleanup:
  *matched = m;
  return st;
}

tri_status tok_replace_flush(const tok_replace *r, size_t *matched, tri_buf *out) {
  tri_status st = tri_buf_append(out, r->pattern, *matched);
  *matched = 0;
  return st;
}

/* ---- both ---- */

/* A replacement takes the place of its match's last character. */
static void trace_start(const tok_replace *r, const char *text, size_t start, size_t end, bool *from_start) {
  if (from_start && !start && end && (!r->content_len || tok_utf8_count(text, end) > 1)) *from_start = false;
}

/* Appends text[done, start), and the content in the place of text[start, end). */
static tri_status replace_one(const tok_replace *r, const char *text, size_t done, size_t start, size_t end,
                              tok_spans_walk *walk, tri_buf *out) {
  TRI_CHECK(tok_spans_copy(walk, done, start - done, out->len));
  TRI_CHECK(tri_buf_append(out, text + done, start - done));
  TRI_CHECK(tok_spans_change(walk, start, end - start, out->len, r->content_len));
  return tri_buf_append(out, r->content, r->content_len);
}

static tri_status replace_matches(const tok_replace *r, tok_regex_scratch *scratch, const char *text, size_t len,
                                  bool *from_start, tok_spans_walk *walk, tri_buf *out) {
  tok_regex_walk matches = {.regex = r->regex, .scratch = scratch, .text = text, .len = len};
  size_t done = 0, start, end;
  tri_status st = TRI_OK;
  while ((st = tok_regex_next(&matches, &start, &end)) == TRI_OK) {
    trace_start(r, text, start, end, from_start);
    TRI_CHECK(replace_one(r, text, done, start, end, walk, out));
    done = end;
  }
  if (st != TRI_NOT_FOUND) return st;
  TRI_CHECK(tok_spans_copy(walk, done, len - done, out->len));
  return tri_buf_append(out, text + done, len - done);
}

/* memmem finds matches from left to right that do not overlap, as tok_replace_feed does in parts. */
static tri_status replace_plain(const tok_replace *r, const char *text, size_t len, bool *from_start,
                                tok_spans_walk *walk, tri_buf *out) {
  size_t done = 0;
  for (const char *at; done < len && (at = memmem(text + done, len - done, r->pattern, r->pattern_len));) {
    size_t start = (size_t)(at - text), end = start + r->pattern_len;
    trace_start(r, text, start, end, from_start);
    TRI_CHECK(replace_one(r, text, done, start, end, walk, out));
    done = end;
  }
  TRI_CHECK(tok_spans_copy(walk, done, len - done, out->len));
  return tri_buf_append(out, text + done, len - done);
}

tri_status tok_replace_apply(const tok_replace *r, tok_regex_scratch **scratch, const char *text, size_t len,
                             bool *from_start, tok_spans_walk *walk, tri_buf *out) {
  if (!r->regex) return replace_plain(r, text, len, from_start, walk, out);
  if (!*scratch) TRI_CHECK(tok_regex_scratch_create(NULL, scratch));
  return replace_matches(r, *scratch, text, len, from_start, walk, out);
}
