#include "runtime/tokenizer/normalize.h"

#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/tokenizer/bytelevel.h"

/* ---- steps ---- */

static tri_status apply_form(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                             bool *from_start, tri_buf *out) {
  (void)from_start;
  return tok_normal(&s->points, step->form, text, len, out);
}

static tri_status apply_map(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                            bool *from_start, tri_buf *out) {
  (void)s;
  for (size_t i = 0, n; i < len; i += n) {
    uint32_t to[3];
    size_t count = step->map(tok_utf8_decode(text + i, &n), to);
    tri_status st = tri_buf_reserve(out, sizeof to);
    if (st != TRI_OK) return st;
    if (!i && !count) *from_start = false;
    for (size_t k = 0; k < count; k++) out->len += tok_utf8_encode(to[k], out->data + out->len);
  }
  return TRI_OK;
}

static tri_status apply_strip(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                              bool *from_start, tri_buf *out) {
  (void)s;
  size_t start = 0, n;
  while (step->left && start < len && tok_is_space(tok_utf8_decode(text + start, &n))) start += n;
  while (step->right && start < len) {
    size_t last = tok_utf8_before(text, len);
    if (!tok_is_space(tok_utf8_decode(text + last, &n))) break;
    len = last;
  }
  if (start) *from_start = false;
  return tri_buf_append(out, text + start, len - start);
}

static tri_status apply_prepend(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                                bool *from_start, tri_buf *out) {
  (void)s;
  (void)from_start;
  if (!len) return TRI_OK;
  tri_status st = tri_buf_append(out, step->prefix.data, step->prefix.len);
  return st == TRI_OK ? tri_buf_append(out, text, len) : st;
}

static tri_status apply_replace(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                                bool *from_start, tri_buf *out) {
  return tok_replace_apply(step->replace, &s->regex, text, len, from_start, out);
}

static tri_status apply_precompiled(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text,
                                    size_t len, bool *from_start, tri_buf *out) {
  (void)s;
  (void)from_start;
  return tok_charsmap_apply(step->charsmap, text, len, out);
}

static tri_status apply_byte_level(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text,
                                   size_t len, bool *from_start, tri_buf *out) {
  (void)step;
  (void)s;
  (void)from_start;
  size_t room;
  if (!tri_size_mul(len, 4, &room)) return TRI_OVERFLOW;
  tri_status st = tri_buf_reserve(out, room);
  for (size_t i = 0; st == TRI_OK && i < len; i++)
    out->len += tok_utf8_encode(tok_bytelevel_char((unsigned char)text[i]), out->data + out->len);
  return st;
}

/* ---- loading ---- */

/* One row per type. load appends the type's steps (Sequence: those of its members). */
typedef struct normalizer_type {
  const char *name;
  tri_status (*load)(tok_normalizer *n, const struct normalizer_type *type, const tok_field *f, tri_error *err);
  tok_normalize_step step; /* of types that have no fields */
} normalizer_type;

static void free_step(tok_normalize_step *step) {
  tri_buf_free(&step->prefix);
  tok_replace_destroy(step->replace);
  tok_charsmap_destroy(step->charsmap);
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

static tri_status load_plain(tok_normalizer *n, const normalizer_type *type, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", NULL};
  tri_status st = tok_field_object(f, keys, err);
  return st == TRI_OK ? add_step(n, type->step, f, err) : st;
}

static tri_status load_strip(tok_normalizer *n, const normalizer_type *type, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", "strip_left", "strip_right", NULL};
  (void)type;
  tok_normalize_step step = {.apply = apply_strip, .left = true, .right = true};
  TRI_CHECK(tok_field_object(f, keys, err));
  TRI_CHECK(tok_field_bool(f, "strip_left", &step.left, err));
  TRI_CHECK(tok_field_bool(f, "strip_right", &step.right, err));
  return add_step(n, step, f, err);
}

static tri_status load_prepend(tok_normalizer *n, const normalizer_type *type, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", "prepend", NULL};
  (void)type;
  tok_normalize_step step = {.apply = apply_prepend};
  const char *text;
  size_t len;
  tri_status st = TRI_OK;
  TRI_CHECK(tok_field_object(f, keys, err));
  tok_field prefix = tok_field_get(f, "prepend");
  TRI_CHECK(tok_field_string(&prefix, &text, &len, err));
  st = tri_buf_append(&step.prefix, text, len);
  if (st != TRI_OK) return tok_field_no_memory(f, err);
  st = add_step(n, step, f, err);
  return st;
}

static tri_status load_replace(tok_normalizer *n, const normalizer_type *type, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", "pattern", "content", NULL};
  (void)type;
  tok_normalize_step step = {.apply = apply_replace};
  TRI_CHECK(tok_field_object(f, keys, err));
  TRI_CHECK(tok_replace_load(f, &step.replace, err));
  return add_step(n, step, f, err);
}

static tri_status load_precompiled(tok_normalizer *n, const normalizer_type *type, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", "precompiled_charsmap", NULL};
  (void)type;
  tok_normalize_step step = {.apply = apply_precompiled};
  TRI_CHECK(tok_field_object(f, keys, err));
  tok_field map = tok_field_get(f, "precompiled_charsmap");
  TRI_CHECK(tok_charsmap_load(&map, &step.charsmap, err));
  return add_step(n, step, f, err);
}

static tri_status load_bert(tok_normalizer *n, const normalizer_type *type, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase", NULL};
  (void)type;
  bool clean = true, chinese = true, lowercase = true;
  TRI_CHECK(tok_field_object(f, keys, err));
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

static tri_status load_any(tok_normalizer *n, const tok_field *f, tri_error *err);

static tri_status load_sequence(tok_normalizer *n, const normalizer_type *type, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", "normalizers", NULL};
  (void)type;
  TRI_CHECK(tok_field_object(f, keys, err));
  tok_field members = tok_field_get(f, "normalizers");
  TRI_CHECK(tok_field_array(&members, err));
  for (size_t i = 0; i < tri_json_size(members.node); i++) {
    tok_field member = tok_field_at(&members, i);
    TRI_CHECK(load_any(n, &member, err));
  }
  return TRI_OK;
}

static const normalizer_type types[] = {
    {"NFC", load_plain, {.apply = apply_form, .form = TOK_NFC}},
    {"NFD", load_plain, {.apply = apply_form, .form = TOK_NFD}},
    {"NFKC", load_plain, {.apply = apply_form, .form = TOK_NFKC}},
    {"NFKD", load_plain, {.apply = apply_form, .form = TOK_NFKD}},
    {"Lowercase", load_plain, {.apply = apply_map, .map = tok_map_lowercase}},
    {"StripAccents", load_plain, {.apply = apply_map, .map = tok_map_without_marks}},
    {"Nmt", load_plain, {.apply = apply_map, .map = tok_map_nmt}},
    {"ByteLevel", load_plain, {.apply = apply_byte_level}},
    {"Strip", load_strip, {0}},
    {"Prepend", load_prepend, {0}},
    {"Replace", load_replace, {0}},
    {"Precompiled", load_precompiled, {0}},
    {"BertNormalizer", load_bert, {0}},
    {"Sequence", load_sequence, {0}},
};

static tri_status load_any(tok_normalizer *n, const tok_field *f, tri_error *err) {
  const char *type;
  tri_status st = tok_field_type(f, &type, err);
  if (st != TRI_OK) return st;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i].name, type)) return types[i].load(n, &types[i], f, err);
  return tok_field_unsupported_type(f, type, "normalizer", err);
}

tri_status tok_normalizer_load(tok_normalizer *n, const tok_field *f, tri_error *err) {
  return tok_field_is_null(f) ? TRI_OK : load_any(n, f, err);
}

void tok_normalizer_free(tok_normalizer *n) {
  for (size_t i = 0; i < n->count; i++) free_step(&n->steps[i]);
  n->count = 0;
}

/* ---- use ---- */

tri_status tok_normalize(const tok_normalizer *n, tok_normalize_scratch *s, const char *text, size_t len,
                         bool *from_start, const char **out, size_t *out_len) {
  bool ignored = true;
  s->buffers[0].max = s->buffers[1].max = tok_growth_limit(len);
  for (size_t i = 0; i < n->count; i++) {
    tri_buf *b = &s->buffers[i & 1];
    b->len = 0;
    tri_status st = tri_buf_reserve(b, 1); /* so that an empty result has an address */
    if (st == TRI_OK) st = n->steps[i].apply(&n->steps[i], s, text, len, from_start ? from_start : &ignored, b);
    if (st != TRI_OK) return st;
    text = b->data;
    len = b->len;
  }
  *out = text;
  *out_len = len;
  return TRI_OK;
}

void tok_normalize_scratch_free(tok_normalize_scratch *s) {
  tok_codepoints_free(&s->points);
  tri_buf_free(&s->buffers[0]);
  tri_buf_free(&s->buffers[1]);
  tok_regex_scratch_destroy(s->regex);
}
