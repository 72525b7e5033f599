#include "runtime/model/tok_normalize.h"

#include <string.h>

/* One row per type. load appends the type's steps (Sequence: those of its members). */
typedef struct normalizer_type {
  const char *name;
  tri_status (*load)(tok_normalizer *n, const tok_field *f, tri_error *err);
} normalizer_type;

static tri_status add_step(tok_normalizer *n, tok_normalize_step step, const tok_field *f, tri_error *err) {
  if (n->count == TOK_MAX_STEPS)
    return tok_field_fail(f, TRI_TOO_LARGE, err, "more than %d normalizers", TOK_MAX_STEPS);
  n->steps[n->count++] = step;
  return TRI_OK;
}

static tri_status apply_nfc(const tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                            tok_buf *out) {
  (void)step;
  return tok_nfc(&s->points, text, len, out);
}

static tri_status load_nfc(tok_normalizer *n, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", NULL};
  tri_status st = tok_field_object(f, keys, err);
  return st == TRI_OK ? add_step(n, (tok_normalize_step){.apply = apply_nfc}, f, err) : st;
}

static tri_status load_any(tok_normalizer *n, const tok_field *f, tri_error *err);

static tri_status load_sequence(tok_normalizer *n, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", "normalizers", NULL};
  tri_status st;
  TRI_TRY(tok_field_object(f, keys, err));
  tok_field members = tok_field_get(f, "normalizers");
  TRI_TRY(tok_field_array(&members, err));
  for (size_t i = 0; i < tri_json_size(members.node); i++) {
    tok_field member = tok_field_at(&members, i);
    TRI_TRY(load_any(n, &member, err));
  }
cleanup:
  return st;
}

static const normalizer_type types[] = {
    {"NFC", load_nfc},
    {"Sequence", load_sequence},
};

static tri_status load_any(tok_normalizer *n, const tok_field *f, tri_error *err) {
  const char *type;
  tri_status st = tok_field_type(f, &type, err);
  if (st != TRI_OK) return st;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i].name, type)) return types[i].load(n, f, err);
  return tok_field_unsupported_type(f, type, "normalizer", err);
}

tri_status tok_normalizer_load(tok_normalizer *n, const tok_field *f, tri_error *err) {
  return tok_field_is_null(f) ? TRI_OK : load_any(n, f, err);
}

void tok_normalizer_free(tok_normalizer *n) { n->count = 0; /* no step owns anything yet */ }

tri_status tok_normalize(const tok_normalizer *n, tok_normalize_scratch *s, const char *text, size_t len,
                         const char **out, size_t *out_len) {
  for (size_t i = 0; i < n->count; i++) {
    tok_buf *b = &s->buffers[i & 1];
    b->len = 0;
    tri_status st = tok_buf_reserve(b, 1); /* so that an empty result has an address */
    if (st == TRI_OK) st = n->steps[i].apply(&n->steps[i], s, text, len, b);
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
  tok_buf_free(&s->buffers[0]);
  tok_buf_free(&s->buffers[1]);
}
