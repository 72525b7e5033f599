/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/normalize.h"

#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/bytelevel.h"

/* ---- steps ---- */

static tri_status apply_form(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                             bool *from_start, tri_buf *out) {
  (void)from_start;
  if (s->walk) return tok_normal_pieces(&s->points, step->form, text, len, s->walk, out);
  return tok_normal(&s->points, step->form, text, len, out);
}

/* A character that becomes nothing at the start takes the text's beginning with it: from_start. */
static tri_status apply_map(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                            bool *from_start, tri_buf *out) {
  for (size_t i = 0, n; i < len; i += n) {
    uint32_t to[3];
    size_t count = step->map(tok_utf8_decode(text + i, &n), to), at = out->len;
    TRI_CHECK(tri_buf_reserve(out, sizeof to));
    if (!i && !count) *from_start = false;
    for (size_t k = 0; k < count; k++) out->len += tok_utf8_encode(to[k], out->data + out->len);
    TRI_CHECK(tok_spans_change(s->walk, i, n, at, out->len - at));
  }
  return TRI_OK;
}

static tri_status apply_strip(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                              bool *from_start, tri_buf *out) {
  size_t start = 0, n;
  while (step->left && start < len && tok_is_space(tok_utf8_decode(text + start, &n))) start += n;
  while (step->right && start < len) {
    size_t last = tok_utf8_before(text, len);
    if (!tok_is_space(tok_utf8_decode(text + last, &n))) break;
    len = last;
  }
  if (start) *from_start = false;
  TRI_CHECK(tok_spans_copy(s->walk, start, len - start, 0));
  return tri_buf_append(out, text + start, len - start);
}

/* An empty text stays empty, as in the reference: otherwise the prefix alone would become tokens. */
static tri_status apply_prepend(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                                bool *from_start, tri_buf *out) {
  (void)from_start;
  if (!len) return TRI_OK;
  TRI_CHECK(tok_spans_copy(s->walk, 0, len, step->prefix.len));
  tri_status st = tri_buf_append(out, step->prefix.data, step->prefix.len);
  return st == TRI_OK ? tri_buf_append(out, text, len) : st;
}

static tri_status apply_replace(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                                bool *from_start, tri_buf *out) {
  return tok_replace_apply(step->replace, &s->regex, text, len, from_start, s->walk, out);
}

static tri_status apply_precompiled(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text,
                                    size_t len, bool *from_start, tri_buf *out) {
  (void)from_start;
  return tok_charsmap_apply(step->charsmap, text, len, s->walk, out);
}

static tri_status apply_byte_level(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text,
                                   size_t len, bool *from_start, tri_buf *out) {
  (void)step;
  (void)from_start;
  size_t room;
  /* 4 bytes are the most that UTF-8 has for a character: one reservation, and none in the loop. */
  if (!tri_size_mul(len, 4, &room)) return TRI_OVERFLOW;
  TRI_CHECK(tri_buf_reserve(out, room));
  for (size_t i = 0; i < len; i++) {
    size_t n = tok_utf8_encode(tok_bytelevel_char((unsigned char)text[i]), out->data + out->len);
    TRI_CHECK(tok_spans_change(s->walk, i, 1, out->len, n));
    out->len += n;
  }
  return TRI_OK;
}

static tri_status apply_spacing(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                                bool *from_start, tri_buf *out) {
  return tok_spacing_apply(&step->spacing, text, len, *from_start, s->walk, out);
}

/* ---- loading ---- */

/* One row per type. load fills in what the object says of the row's step, and appends it. */
typedef struct normalizer_type {
  tok_type type;
  tri_status (*load)(tok_normalizer *n, tok_normalize_step step, const tok_field *f, tri_error *err);
  tok_normalize_step step;
} normalizer_type;

static void free_step(tok_normalize_step *step) {
  tri_buf_free(&step->prefix);
  tok_replace_destroy(step->replace);
  tok_charsmap_destroy(step->charsmap);
  tok_spacing_free(&step->spacing);
}

/* The chain owns what step has from here on, also on failure. */
static tri_status add_step(tok_normalizer *n, tok_normalize_step step, const tok_field *f, tri_error *err) {
  if (n->count == TOK_MAX_STEPS) {
    free_step(&step);
    return tok_field_fail(f, TRI_TOO_LARGE, err, "more than %d normalizers", TOK_MAX_STEPS);
  }
  n->steps[n->count++] = step;
  return TRI_OK;
}

static tri_status add_map(tok_normalizer *n, tok_char_map map, const tok_field *f, tri_error *err) {
  return add_step(n, (tok_normalize_step){.apply = apply_map, .map = map}, f, err);
}

static tri_status load_strip(tok_normalizer *n, tok_normalize_step step, const tok_field *f, tri_error *err) {
  TRI_CHECK(tok_field_bool(f, "strip_left", &step.left, err));
  TRI_CHECK(tok_field_bool(f, "strip_right", &step.right, err));
  return add_step(n, step, f, err);
}

static tri_status load_prepend(tok_normalizer *n, tok_normalize_step step, const tok_field *f, tri_error *err) {
  const char *text;
  size_t len;
  tok_field prefix = tok_field_get(f, "prepend");
  TRI_CHECK(tok_field_string(&prefix, &text, &len, err));
  if (tri_buf_append(&step.prefix, text, len) != TRI_OK) return tok_field_no_memory(f, err);
  return add_step(n, step, f, err);
}

static tri_status load_replace(tok_normalizer *n, tok_normalize_step step, const tok_field *f, tri_error *err) {
  TRI_CHECK(tok_replace_load(f, &step.replace, err));
  return add_step(n, step, f, err);
}

static tri_status load_precompiled(tok_normalizer *n, tok_normalize_step step, const tok_field *f, tri_error *err) {
  tok_field map = tok_field_get(f, "precompiled_charsmap");
  TRI_CHECK(tok_charsmap_load(&map, &step.charsmap, err));
  return add_step(n, step, f, err);
}

/* One object becomes up to five steps, in the reference's order: accents go before letters become lowercase, and NFD
 * takes them off their letters first. */
static tri_status load_bert(tok_normalizer *n, tok_normalize_step step, const tok_field *f, tri_error *err) {
  (void)step;
  bool clean = true, chinese = true, lowercase = true;
  TRI_CHECK(tok_field_bool(f, "clean_text", &clean, err));
  TRI_CHECK(tok_field_bool(f, "handle_chinese_chars", &chinese, err));
  TRI_CHECK(tok_field_bool(f, "lowercase", &lowercase, err));
  bool strip = lowercase; /* null: as the original BERT did, accents go with the case */
  TRI_CHECK(tok_field_bool(f, "strip_accents", &strip, err));
  if (clean) TRI_CHECK(add_map(n, tok_map_bert_clean, f, err));
  if (chinese) TRI_CHECK(add_map(n, tok_map_bert_chinese, f, err));
  if (strip) {
    TRI_CHECK(add_step(n, (tok_normalize_step){.apply = apply_form, .form = TOK_NFD}, f, err));
    TRI_CHECK(add_map(n, tok_map_without_nonspacing_marks, f, err));
  }
  if (lowercase) TRI_CHECK(add_map(n, tok_map_lowercase, f, err));
  return TRI_OK;
}

static tri_status load_any(void *chain, const tok_field *f, tri_error *err);

static tri_status load_sequence(tok_normalizer *n, tok_normalize_step step, const tok_field *f, tri_error *err) {
  (void)step;
  return tok_field_each(f, "normalizers", load_any, n, err);
}

static const normalizer_type types[] = {
    {{"NFC", ""}, add_step, {.apply = apply_form, .form = TOK_NFC}},
    {{"NFD", ""}, add_step, {.apply = apply_form, .form = TOK_NFD}},
    {{"NFKC", ""}, add_step, {.apply = apply_form, .form = TOK_NFKC}},
    {{"NFKD", ""}, add_step, {.apply = apply_form, .form = TOK_NFKD}},
    {{"Lowercase", ""}, add_step, {.apply = apply_map, .map = tok_map_lowercase}},
    {{"StripAccents", ""}, add_step, {.apply = apply_map, .map = tok_map_without_marks}},
    {{"Nmt", ""}, add_step, {.apply = apply_map, .map = tok_map_nmt}},
    {{"ByteLevel", ""}, add_step, {.apply = apply_byte_level}},
    {{"Strip", "strip_left strip_right"}, load_strip, {.apply = apply_strip, .left = true, .right = true}},
    {{"Prepend", "prepend"}, load_prepend, {.apply = apply_prepend}},
    {{"Replace", "pattern content"}, load_replace, {.apply = apply_replace}},
    {{"Precompiled", "precompiled_charsmap"}, load_precompiled, {.apply = apply_precompiled}},
    {{"BertNormalizer", "clean_text handle_chinese_chars strip_accents lowercase"}, load_bert, {0}},
    {{"Sequence", "normalizers"}, load_sequence, {0}},
};

static tri_status load_any(void *chain, const tok_field *f, tri_error *err) {
  size_t i;
  TRI_CHECK(tok_field_type(f, types, sizeof types / sizeof *types, sizeof *types, "normalizer", &i, err));
  return types[i].load(chain, types[i].step, f, err);
}

tri_status tok_normalizer_load(tok_normalizer *n, const tok_field *f, tri_error *err) {
  return tok_field_is_null(f) ? TRI_OK : load_any(n, f, err);
}

void tok_normalizer_add_spacing(tok_normalizer *n, tok_spacing spacing) {
  n->steps[n->count++] = (tok_normalize_step){.apply = apply_spacing, .spacing = spacing};
}

void tok_normalizer_free(tok_normalizer *n) {
  for (size_t i = 0; i < n->count; i++) free_step(&n->steps[i]);
  n->count = 0;
}

/* ---- use ---- */

/* Two buffers take turns, and so do two lists of ranges: no step reads what it writes. */
tri_status tok_normalize(const tok_normalizer *n, tok_normalize_scratch *s, const char *text, size_t len,
                         bool *from_start, tok_spans *spans, const char **out, size_t *out_len) {
  bool ignored = true;
  /* The limit is that of the first text for all steps: a chain of Replace could multiply a length at each of them. */
  s->buffers[0].max = s->buffers[1].max = tok_growth_limit(len);
  for (size_t i = 0; i < n->count; i++) {
    tri_buf *b = &s->buffers[i & 1];
    b->len = 0;
    tok_spans_walk walk = {.from = spans, .to = &s->spare};
    s->walk = spans ? &walk : NULL;
    s->spare.len = 0;
    tri_status st = tri_buf_reserve(b, 1); /* so that an empty result has an address */
    if (st == TRI_OK) st = n->steps[i].apply(&n->steps[i], s, text, len, from_start ? from_start : &ignored, b);
    s->walk = NULL;
    if (st != TRI_OK) return st;
    text = b->data;
    len = b->len;
    if (!spans) continue;
    tok_spans moved = s->spare;
    s->spare = *spans;
    *spans = moved;
  }
  *out = text;
  *out_len = len;
  return TRI_OK;
}

void tok_normalize_scratch_free(tok_normalize_scratch *s) {
  tok_codepoints_free(&s->points);
  tri_buf_free(&s->buffers[0]);
  tri_buf_free(&s->buffers[1]);
  tok_spans_free(&s->spare);
  tok_regex_scratch_destroy(s->regex);
}
