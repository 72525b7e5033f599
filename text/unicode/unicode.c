/* SPDX-License-Identifier: Apache-2.0 */
#include "text/unicode/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "base/foreign.h"
#include "base/mem.h"
#include "text/unicode/unicode_tables.h"

/* The permitted second bytes depend on the first (no overlong forms, no surrogates, nothing beyond U+10FFFF); later
 * bytes are 80..BF. Returns the sequence's length, 0 for a byte that begins none. */
static size_t lead(unsigned char b, unsigned char *low, unsigned char *high) {
  *low = 0x80;
  *high = 0xbf;
  if (b < 0x80) return 1;
  if (b >= 0xc2 && b <= 0xdf) return 2;
  if (b >= 0xe0 && b <= 0xef) {
    if (b == 0xe0) *low = 0xa0;
    if (b == 0xed) *high = 0x9f;
    return 3;
  }
  if (b >= 0xf0 && b <= 0xf4) {
    if (b == 0xf0) *low = 0x90;
    if (b == 0xf4) *high = 0x8f;
    return 4;
  }
  return 0;
}

tok_utf8 tok_utf8_step(const char *s, size_t n, size_t *len) {
  const unsigned char *u = (const unsigned char *)s;
  unsigned char low, high;
  size_t want = lead(u[0], &low, &high), i = 1;
  if (!want) {
    *len = 1;
    return TOK_UTF8_INVALID;
  }
  while (i < want && i < n && u[i] >= low && u[i] <= high) {
    low = 0x80;
    high = 0xbf;
    i++;
  }
  *len = i;
  if (i == want) return TOK_UTF8_CHAR;
  return i == n ? TOK_UTF8_TRUNCATED : TOK_UTF8_INVALID;
}

/* Most text is ASCII, which is skipped eight bytes at a time. */
size_t tok_utf8_valid_prefix(const char *s, size_t n) {
  size_t i = 0;
  while (i < n) {
    uint64_t eight;
    while (n - i >= 8 && (memcpy(&eight, s + i, 8), !(eight & 0x8080808080808080u))) i += 8;
    if (i == n) break;
    size_t len;
    if (tok_utf8_step(s + i, n - i, &len) != TOK_UTF8_CHAR) return i;
    i += len;
  }
  return n;
}

/* To a walk good bytes are copied, and each ill-formed part has become a U+FFFD. */
tri_status tok_utf8_repair(tri_buf *out, const char *s, size_t n, tok_spans_walk *walk) {
  for (size_t i = 0; i < n;) {
    size_t good = tok_utf8_valid_prefix(s + i, n - i), bad;
    TRI_CHECK(tok_spans_copy(walk, i, good, out->len));
    TRI_CHECK(tri_buf_append(out, s + i, good));
    i += good;
    if (i == n) break;
    tok_utf8_step(s + i, n - i, &bad);
    TRI_CHECK(tok_spans_change(walk, i, bad, out->len, 3));
    TRI_CHECK(tri_buf_append(out, "\xef\xbf\xbd", 3));
    i += bad;
  }
  return TRI_OK;
}

tri_status tok_utf8_append_lossy(tri_buf *out, const char *s, size_t n) { return tok_utf8_repair(out, s, n, NULL); }

uint32_t tok_utf8_decode(const char *s, size_t *len) {
  const unsigned char *u = (const unsigned char *)s;
  *len = 1;
  if (u[0] < 0x80) return u[0];
  *len = 2;
  if (u[0] < 0xe0) return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
  *len = 3;
  if (u[0] < 0xf0) return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
  *len = 4;
  return (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
}

size_t tok_utf8_count(const char *s, size_t n) {
  size_t chars = 0;
  for (size_t i = 0; i < n; i++) chars += ((unsigned char)s[i] & 0xc0) != 0x80;
  return chars;
}

size_t tok_utf8_encode(uint32_t c, char *out) {
  utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
  TRI_FOREIGN_WROTE(out, (size_t)n);
  return (size_t)n;
}

size_t tok_utf8_before(const char *s, size_t end) {
  do end--;
  while (end && ((unsigned char)s[end] & 0xc0) == 0x80);
  return end;
}

bool tok_is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Finds the row of a table whose range has c, or NULL; each row begins with its range. */
static const void *find_range(const void *table, size_t count, size_t size, uint32_t c) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    const tok_range *r = (const void *)((const char *)table + mid * size);
    if (c >= r->first && c <= r->last) return r;
    if (c < r->first)
      high = mid;
    else
      low = mid + 1;
  }
  return NULL;
}
#define FIND(table, c) find_range(table, table##_count, sizeof *(table), c)

bool tok_is_word(uint32_t c) {
  if (c == 0x200c || c == 0x200d) return true; /* Join_Control */
  const tok_addition *later = c < 0x80 ? NULL : FIND(tok_unicode16_additions, c);
  if (later) return later->alphabetic || later->category[0] == 'M' || !strcmp(later->category, "Nd");
  switch (utf8proc_category((utf8proc_int32_t)c)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_PC: return true;
  /* The symbols that are Alphabetic: circled, squared and negative Latin letters. */
  case UTF8PROC_CATEGORY_SO:
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189);
  default: return false;
  }
}

bool tok_is_mark(uint32_t c) { return c >= 0x300 && FIND(tok_unicode9_marks, c); }
bool tok_is_nonspacing_mark(uint32_t c) { return c >= 0x300 && FIND(tok_unicode8_nonspacing, c); }
bool tok_is_other(uint32_t c) { return FIND(tok_unicode8_other, c); }
bool tok_is_punctuation(uint32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c < 127);
  return FIND(tok_unicode8_punctuation, c);
}

bool tok_is_number(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO ||
         FIND(tok_unicode17_numbers, c);
}

const char *tok_category(uint32_t c) { return utf8proc_category_string((utf8proc_int32_t)c); }

uint32_t tok_script(uint32_t c) {
  const tok_script_range *r = FIND(tok_unicode9_scripts, c);
  return r ? r->script : 0;
}

size_t tok_lower(uint32_t c, uint32_t out[2]) {
  if (c == 0x130) { /* the only one that becomes two: i with a dot above */
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  const tok_lower_addition *later = c < 0x80 ? NULL : FIND(tok_unicode17_lower, c);
  out[0] = later ? (uint32_t)((int64_t)c + later->step) : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
  return 1;
}

size_t tok_grapheme_end(const char *s, size_t n, size_t from) {
  utf8proc_int32_t state = 0;
  size_t len;
  uint32_t c = tok_utf8_decode(s + from, &len);
  for (size_t end = from + len; end < n; end += len) {
    uint32_t next = tok_utf8_decode(s + end, &len);
    if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state)) return end;
    c = next;
  }
  return n;
}

void tok_codepoints_free(tok_codepoints *w) {
  tri_free(w->data);
  tri_free(w->sorted);
  *w = (tok_codepoints){0};
}

/* The reference's normal forms are those of Unicode 9, to which later characters are none: they stay as they are, have
 * no class and compose with nothing. */
static bool is_unknown(uint32_t c) { return c >= 0x300 && FIND(tok_unicode9_unknown, c); }

static tri_status decompose(tok_codepoints *w, tok_normal_form form, const char *s, size_t n, size_t *count) {
  enum { LONGEST = 32 }; /* more than any character decomposes to */
  bool compatible = form == TOK_NFKC || form == TOK_NFKD;
  utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  size_t used = 0;
  for (size_t i = 0, len; i < n; i += len) {
    uint32_t c = tok_utf8_decode(s + i, &len);
    TRI_CHECK(tri_array_reserve(&w->data, used, &w->cap, LONGEST, sizeof *w->data));
    if (is_unknown(c)) {
      w->data[used++] = (int32_t)c;
      continue;
    }
    int boundary = 0;
    utf8proc_ssize_t got = utf8proc_decompose_char((utf8proc_int32_t)c, w->data + used, LONGEST, options, &boundary);
    if (got < 0 || got > LONGEST) return TRI_INTERNAL;
    TRI_FOREIGN_WROTE(w->data + used, (size_t)got * sizeof *w->data);
    used += (size_t)got;
  }
  *count = used;
  return TRI_OK;
}

static unsigned combining_class(int32_t c) {
  unsigned class = (unsigned)utf8proc_get_property(c)->combining_class;
  return class && is_unknown((uint32_t)c) ? 0 : class;
}

/* Canonical ordering of one run of marks: a stable sort by combining class. utf8proc's own is a bubble sort, quadratic
 * in the run's length, and a text may be one long run. */
static tri_status sort_marks(tok_codepoints *w, int32_t *run, size_t n) {
  if (n <= 16) {
    for (size_t i = 1; i < n; i++) {
      int32_t c = run[i];
      size_t j = i;
      for (unsigned k = combining_class(c); j && combining_class(run[j - 1]) > k; j--) run[j] = run[j - 1];
      run[j] = c;
    }
    return TRI_OK;
  }
  TRI_CHECK(tri_array_reserve(&w->sorted, 0, &w->sorted_cap, n, sizeof *w->sorted));
  size_t start[257] = {0};
  for (size_t i = 0; i < n; i++) start[(combining_class(run[i]) & 255) + 1]++;
  for (size_t k = 1; k <= 256; k++) start[k] += start[k - 1];
  for (size_t i = 0; i < n; i++) w->sorted[start[combining_class(run[i]) & 255]++] = run[i];
  memcpy(run, w->sorted, n * sizeof *run);
  return TRI_OK;
}

/* A run of characters of class other than 0 stays between two of class 0, which no mark may pass. */
static tri_status order_marks(tok_codepoints *w, size_t count) {
  for (size_t i = 0; i < count;) {
    size_t end = i;
    while (end < count && combining_class(w->data[end])) end++;
    TRI_CHECK(sort_marks(w, w->data + i, end - i));
    i = end + 1;
  }
  return TRI_OK;
}

/* Composes run by run, between characters that Unicode 9 does not have: they take no part. */
static tri_status compose(tok_codepoints *w, size_t *count) {
  size_t kept = 0;
  for (size_t i = 0, end; i < *count; i = end + 1) {
    for (end = i; end < *count && !is_unknown((uint32_t)w->data[end]);) end++;
    utf8proc_ssize_t got =
        utf8proc_normalize_utf32(w->data + i, (utf8proc_ssize_t)(end - i), UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (got < 0) return TRI_INTERNAL;
    memmove(w->data + kept, w->data + i, (size_t)got * sizeof *w->data);
    kept += (size_t)got;
    if (end < *count) w->data[kept++] = w->data[end];
  }
  *count = kept;
  return TRI_OK;
}

/* Nothing below U+0300 changes under NFC, and their lead bytes are below 0xcc. Nothing in ASCII changes at all. */
static bool is_normal_at_a_glance(tok_normal_form form, const char *s, size_t n) {
  unsigned char limit = form == TOK_NFC ? 0xcc : 0x80;
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)s[i] >= limit) return false;
  return true;
}

/* UAX #15: decompose, order the marks between starters, compose for the C forms. */
tri_status tok_normal(tok_codepoints *w, tok_normal_form form, const char *s, size_t n, tri_buf *out) {
  if (is_normal_at_a_glance(form, s, n)) return tri_buf_append(out, s, n);
  size_t count, bytes;
  TRI_CHECK(decompose(w, form, s, n, &count));
  TRI_CHECK(order_marks(w, count));
  if (form == TOK_NFC || form == TOK_NFKC) TRI_CHECK(compose(w, &count));
  if (!tri_size_mul(count, 4, &bytes)) return TRI_OVERFLOW;
  TRI_CHECK(tri_buf_reserve(out, bytes));
  for (size_t i = 0; i < count; i++) out->len += tok_utf8_encode((uint32_t)w->data[i], out->data + out->len);
  return TRI_OK;
}

/* A piece may begin at a character whose first part under decomposition is of class 0 and composes with nothing before
 * it: neither a mark nor a vowel or final consonant of Hangul. Normal forms of pieces are then pieces of the whole's.
 */
static bool begins_piece(tok_normal_form form, uint32_t c) {
  enum { LONGEST = 32, VOWELS = 0x1160, BEHIND_FINALS = 0x1200 };
  utf8proc_int32_t parts[LONGEST];
  if (c < 0x300 || is_unknown(c)) return true;
  bool compatible = form == TOK_NFKC || form == TOK_NFKD;
  utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  int boundary = 0;
  utf8proc_ssize_t got = utf8proc_decompose_char((utf8proc_int32_t)c, parts, LONGEST, options, &boundary);
  TRI_FOREIGN_WROTE(parts, sizeof parts);
  if (got < 1 || combining_class(parts[0])) return false;
  utf8proc_category_t k = utf8proc_category(parts[0]);
  bool mark = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
  return !mark && (parts[0] < VOWELS || parts[0] >= BEHIND_FINALS);
}

tri_status tok_normal_pieces(tok_codepoints *w, tok_normal_form form, const char *s, size_t n, tok_spans_walk *walk,
                             tri_buf *out) {
  for (size_t i = 0, end, len; i < n; i = end) {
    size_t at = out->len;
    tok_utf8_decode(s + i, &len);
    for (end = i + len; end < n && !begins_piece(form, tok_utf8_decode(s + end, &len));) end += len;
    TRI_CHECK(tok_normal(w, form, s + i, end - i, out));
    bool same = out->len - at == end - i && !memcmp(out->data + at, s + i, end - i);
    if (same)
      TRI_CHECK(tok_spans_copy(walk, i, end - i, at));
    else
      TRI_CHECK(tok_spans_change(walk, i, end - i, at, out->len - at));
  }
  return TRI_OK;
}
