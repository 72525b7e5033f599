/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/load/packed.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "runtime/model/layout.h"

/* A layer's stem is its name without ".weight", and a format's tensors are the stem with other ends. Which format a
 * layer has is seen from the type of its codes; which scheme, from the shapes of codes and scales, which must agree
 * with exactly one of the config's. Everything that the pieces index by later (groups, words, zero points) is checked
 * here once. */
enum { NAME_BYTES = 320 };

static const tri_widen_format
    *const no_formats[] = {NULL},
           *const fp8_formats[] = {&tri_widen_fp8, NULL}, *const mxfp4_formats[] = {&tri_widen_mxfp4, NULL},
           *const compressed_formats[] = {&tri_widen_fp8, &tri_widen_packed_int, &tri_widen_int8, NULL},
           *const gptq_formats[] = {&tri_widen_gptq, NULL}, *const awq_formats[] = {&tri_widen_awq, NULL};

const tri_widen_format *const *tri_packed_formats(tri_stored_method method) {
  switch (method) {
  case TRI_STORED_PLAIN:
  case TRI_STORED_GGUF: break; /* codes and scales are one tensor */
  case TRI_STORED_FP8: return fp8_formats;
  case TRI_STORED_MXFP4: return mxfp4_formats;
  case TRI_STORED_COMPRESSED: return compressed_formats;
  case TRI_STORED_GPTQ: return gptq_formats;
  case TRI_STORED_AWQ: return awq_formats;
  }
  return no_formats;
}

bool tri_packed_may_be(const tri_model_config *c, const tri_tensor_rule *rule) {
  return c->stored.method != TRI_STORED_PLAIN && !tri_rule_full_shape(c, rule, 0).vector;
}

/* ---- names ---- */

static const char weight[] = ".weight";

/* Returns whether a name ends as one of the format's tensors, and the length of what is before that. */
static bool has_suffix(const tri_widen_format *f, const char *name, size_t *stem) {
  const char *const *lists[] = {f->scales, f->ignored, (const char *const[]){f->codes, f->zeros, f->order, NULL}};
  const char *all[16];
  size_t n = 0;
  for (size_t i = 0; i < 2; i++)
    for (const char *const *s = lists[i]; *s; s++) all[n++] = *s;
  for (size_t i = 0; i < 3; i++)
    if (lists[2][i]) all[n++] = lists[2][i];
  for (size_t i = 0; i < n; i++) {
    if (!tri_text_ends_with(name, all[i])) continue;
    *stem = strlen(name) - strlen(all[i]);
    return true;
  }
  return false;
}

size_t tri_packed_stem(tri_stored_method method, const char *name, const char **plain) {
  size_t stem = 0;
  for (const tri_widen_format *const *f = tri_packed_formats(method); *f; f++) {
    if (!has_suffix(*f, name, &stem)) continue;
    *plain = (*f)->codes[0] == '.' ? weight : "";
    return stem;
  }
  return 0;
}

/* A layer: its name, the place after it, and the name in the checkpoint that was looked for last. */
struct layer {
  const tri_model_config *c;
  const tri_checkpoint *ckpt;
  char stem[NAME_BYTES], name[NAME_BYTES];
};

static struct layer name_layer(const tri_model_config *c, const tri_checkpoint *ckpt, const tri_tensor_rule *rule,
                               int layer, int expert) {
  struct layer l = {.c = c, .ckpt = ckpt};
  snprintf(l.stem, sizeof l.stem, rule->name, layer, expert);
  if (tri_text_ends_with(l.stem, weight)) l.stem[strlen(l.stem) - strlen(weight)] = '\0';
  return l;
}

static const tri_st_tensor *find(struct layer *l, const char *suffix) {
  const tri_st_tensor *t = NULL;
  const char *prefix;
  for (int i = 0; !t && (prefix = tri_tensor_prefix(l->c, i)); i++) {
    snprintf(l->name, sizeof l->name, "%s%s%s", prefix, l->stem, suffix);
    t = tri_checkpoint_find(l->ckpt, l->name);
  }
  return t;
}

static tri_status missing(struct layer *l, const char *suffix, const tri_st_tensor *codes, tri_error *err) {
  snprintf(l->name, sizeof l->name, "%s%s%s", tri_tensor_prefix(l->c, 0), l->stem, suffix);
  return tri_fail(err, TRI_CORRUPT, l->name, "the checkpoint has %.80s, but no tensor %.80s", codes->name, l->name);
}

static tri_status find_tensors(struct layer *l, const tri_widen_format *f, tri_packed *p, tri_error *err) {
  const tri_st_tensor *codes = p->codes.tensor;
  for (const char *const *s = f->scales; *s && !p->scales.tensor; s++) p->scales.tensor = find(l, *s);
  if (!p->scales.tensor) return missing(l, f->scales[0], codes, err);
  if (f->zeros) p->zeros.tensor = find(l, f->zeros);
  if (f == &tri_widen_fp8 && find(l, tri_widen_int8.zeros))
    return tri_fail(err, TRI_UNSUPPORTED, l->name, "tensor %.80s: FP8 with zero points is not supported", l->name);
  if (f->zeros_needed && !p->zeros.tensor) return missing(l, f->zeros, codes, err);
  if (f->order) p->order.tensor = find(l, f->order);
  return TRI_OK;
}

/* ---- shapes ---- */

static int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

static tri_status wrong_shape(const tri_st_tensor *t, const char *wants, int64_t rows, int64_t cols, tri_error *err) {
  char has[120] = "";
  size_t n = 0;
  for (int i = 0; i < t->rank && n < sizeof has; i++)
    n += (size_t)snprintf(has + n, sizeof has - n, "%s%lld", i ? " x " : "", (long long)t->shape[i]);
  return tri_fail(err, TRI_CORRUPT, t->name,
                  "tensor %.80s has the shape [%s] and the type %s, the config asks for %s %lld x %lld", t->name, has,
                  t->dtype < TRI_DTYPE_COUNT ? tri_dtype_name(t->dtype) : "of no weights", wants, (long long)rows,
                  (long long)cols);
}

/* Returns whether a tensor is a stack of `stack` (0: none) matrices of this shape, the last dimension of which may be
 * stored as two, or each be followed by one of 1. A vector does for one column, a single number for one row of it. */
static bool has_shape(const tri_st_tensor *t, int64_t stack, int64_t rows, int64_t cols) {
  const int64_t *shape = t->shape;
  int rank = t->rank;
  if (stack) {
    if (rank < 1 || shape[0] != stack) return false;
    shape++;
    rank--;
  }
  if (rank == 0) return rows == 1 && cols == 1;
  if (rank == 1) return shape[0] == rows && cols == 1;
  if (rank == 2) return shape[0] == rows && shape[1] == cols;
  if (rank == 4) return shape[0] == rows && shape[1] == 1 && shape[2] == cols && shape[3] == 1;
  return rank == 3 && shape[0] == rows && shape[1] * shape[2] == cols;
}

/* The matrix, and which of a stack it is. */
struct wanted {
  int64_t out, in, stack, number;
};

static tri_status take(tri_packed_tensor *t, const struct wanted *w, int64_t rows, int64_t cols, int height,
                       const char *what, tri_error *err) {
  if (!has_shape(t->tensor, w->stack, rows, cols)) return wrong_shape(t->tensor, what, rows, cols, err);
  t->rows = rows;
  t->pitch = (size_t)cols * tri_dtype_size(t->tensor->dtype);
  t->height = height;
  t->base = (uint64_t)w->number * (uint64_t)rows * t->pitch;
  return TRI_OK;
}

/* The shapes of codes: `each` of them in an element of the file. */
static tri_status take_codes(tri_packed *p, const struct wanted *w, int bits, tri_error *err) {
  int each = 8 * (int)tri_dtype_size(p->codes.tensor->dtype) / bits;
  bool gptq = p->format == &tri_widen_gptq;
  if (p->format->inputs_first && (w->out % each || (gptq && w->in % each)))
    return tri_fail(err, TRI_UNSUPPORTED, p->codes.tensor->name,
                    "tensor %.80s: %lld x %lld weights do not fill words of %d", p->codes.tensor->name,
                    (long long)w->in, (long long)w->out, each);
  if (gptq) return take(&p->codes, w, w->in / each, w->out, each, "codes of", err);
  if (p->format->inputs_first) return take(&p->codes, w, w->in, w->out / each, 1, "codes of", err);
  return take(&p->codes, w, w->out, parts_of(w->in, each), 1, "codes of", err);
}

/* Returns whether the codes can have so many bits. */
static bool fits_bits(const tri_packed *p, const struct wanted *w, int bits) {
  tri_packed trial = *p;
  tri_error ignored = {0};
  if (bits > 8 * (int)tri_dtype_size(p->codes.tensor->dtype)) return false;
  if (p->codes.tensor->dtype != TRI_I32 && p->format != &tri_widen_mxfp4 && bits != 8) return false;
  return take_codes(&trial, w, bits, &ignored) == TRI_OK;
}

/* Rows and columns of scales by a scheme, in the file's orientation. */
static void groups_of(const tri_packed *p, const tri_stored_scheme *s, tri_widen_layout *l) {
  int64_t rows = p->format->inputs_first ? s->cols : s->rows, cols = p->format->inputs_first ? s->rows : s->cols;
  l->group_rows = rows && rows < l->rows ? rows : l->rows;
  l->group_cols = cols && cols < l->cols ? cols : l->cols;
  l->scale_rows = parts_of(l->rows, l->group_rows);
  l->scale_cols = parts_of(l->cols, l->group_cols);
}

static bool same_layout(const tri_widen_layout *a, const tri_widen_layout *b) {
  return a->bits == b->bits && a->group_rows == b->group_rows && a->group_cols == b->group_cols;
}

/* Finds the scheme of the config that the tensors have. */
static tri_status find_scheme(const tri_stored *stored, tri_packed *p, const struct wanted *w, tri_error *err) {
  bool is_float = p->format == &tri_widen_fp8 || p->format == &tri_widen_mxfp4, found = false;
  tri_widen_layout l = p->layout;
  l.rows = p->format->inputs_first ? w->in : w->out;
  l.cols = p->format->inputs_first ? w->out : w->in;
  for (int i = 0; i < stored->num_schemes; i++) {
    const tri_stored_scheme *s = &stored->schemes[i];
    l.bits = s->bits;
    groups_of(p, s, &l);
    if (s->is_float != is_float && stored->method == TRI_STORED_COMPRESSED) continue;
    if (!fits_bits(p, w, s->bits) || !has_shape(p->scales.tensor, w->stack, l.scale_rows, l.scale_cols)) continue;
    if (found && !same_layout(&p->layout, &l))
      return tri_fail(err, TRI_UNSUPPORTED, p->codes.tensor->name,
                      "tensor %.80s: more than one scheme of the quantization_config can have such shapes",
                      p->codes.tensor->name);
    p->layout = l;
    found = true;
  }
  if (found) return TRI_OK;
  /* No scheme has these shapes: the error says what the first one asks for, of codes or else of scales. */
  TRI_CHECK(take_codes(p, w, stored->schemes[0].bits, err));
  l.bits = stored->schemes[0].bits;
  groups_of(p, &stored->schemes[0], &l);
  return wrong_shape(p->scales.tensor, "scales of", l.scale_rows, l.scale_cols, err);
}

static bool is_scale(const tri_packed *p) {
  tri_dtype t = p->scales.tensor->dtype;
  if (p->format == &tri_widen_mxfp4) return t == TRI_U8 || t == TRI_F8_E8M0;
  return t <= TRI_BF16 || (t == TRI_F8_E8M0 && !p->format->inputs_first);
}

static tri_status take_zeros(tri_packed *p, const struct wanted *w, tri_error *err) {
  tri_widen_layout *l = &p->layout;
  const tri_st_tensor *t = p->zeros.tensor;
  int64_t rows = l->scale_rows, cols = l->scale_cols;
  bool columns = p->format->inputs_first; /* that words are along */
  if (!t) return TRI_OK;
  l->zeros_are_bytes = !columns && t->dtype == TRI_I8;
  int each = l->zeros_are_bytes ? 1 : 32 / l->bits;
  if (columns)
    cols = parts_of(cols, each);
  else
    rows = parts_of(rows, each);
  if (!l->zeros_are_bytes && (t->dtype != TRI_I32 || p->format == &tri_widen_int8))
    return wrong_shape(t, "zero points of", rows, cols, err);
  return take(&p->zeros, w, rows, cols, columns ? 1 : each, "zero points of", err);
}

static tri_status take_order(tri_packed *p, const struct wanted *w, tri_error *err) {
  if (!p->order.tensor) return TRI_OK;
  if (p->order.tensor->dtype != TRI_I32) return wrong_shape(p->order.tensor, "groups of", w->in, 1, err);
  return take(&p->order, w, w->in, 1, 1, "groups of", err);
}

static tri_status fit(const tri_model_config *c, tri_packed *p, const struct wanted *w, tri_error *err) {
  if (!is_scale(p))
    return tri_fail(err, TRI_UNSUPPORTED, p->scales.tensor->name,
                    "tensor %.80s has the type %s, which scales do not have", p->scales.tensor->name,
                    p->scales.tensor->dtype < TRI_DTYPE_COUNT ? tri_dtype_name(p->scales.tensor->dtype) : "(unknown)");
  p->layout.scale_type = p->scales.tensor->dtype == TRI_U8 ? TRI_F8_E8M0 : p->scales.tensor->dtype;
  p->layout.zeros_less_one = c->stored.zeros_less_one;
  TRI_CHECK(find_scheme(&c->stored, p, w, err));
  TRI_CHECK(take_codes(p, w, p->layout.bits, err));
  TRI_CHECK(take(&p->scales, w, p->layout.scale_rows, p->layout.scale_cols, 1, "scales of", err));
  TRI_CHECK(take_zeros(p, w, err));
  return take_order(p, w, err);
}

bool tri_packed_is_codes(const tri_packed *p, tri_dtype type) {
  const tri_gguf_block *block = p->layout.block;
  bool typed = block ? type == TRI_I8 && block->id == TRI_GGUF_BLOCK_Q8_0 : p->format->codes_type == type;
  return typed && !p->turned && !p->zeros.tensor && !p->order.tensor;
}

/* A layer that has scales but numbers of another type is none that we know. */
static tri_status check_plain(struct layer *l, const tri_widen_format *f, const tri_st_tensor *t, tri_error *err) {
  for (const char *const *s = f->scales; *s; s++)
    if (find(l, *s))
      return tri_fail(
          err, TRI_UNSUPPORTED, t->name, "tensor %.80s has scales beside it, but is of the type %s, not of %s", t->name,
          t->dtype < TRI_DTYPE_COUNT ? tri_dtype_name(t->dtype) : "(unknown)", tri_dtype_name(f->codes_type));
  return TRI_OK;
}

/* A GGUF file's tensor: a row is a whole number of blocks. */
static tri_status find_blocks(struct layer *l, const tri_tensor_rule *rule, const struct wanted *w, tri_packed *out,
                              bool *found, tri_error *err) {
  bool named = tri_text_ends_with(rule->name, weight);
  const tri_st_tensor *t = find(l, named ? weight : "");
  if (!t || !t->block) return TRI_OK;
  if (!has_shape(t, w->stack, w->out, w->in)) return wrong_shape(t, "weights of", w->out, w->in, err);
  if (rule->flags & TRI_TENSOR_TRANSPOSED && rule->part != TRI_PART_KEY_UP)
    return tri_fail(err, TRI_UNSUPPORTED, t->name, "tensor %.80s: blocks of a transposed matrix are not supported",
                    t->name);
  tri_packed p = {.format = &tri_widen_blocks, .turned = rule->part == TRI_PART_KEY_UP};
  size_t pitch = (size_t)(w->in / t->block->weights) * (size_t)t->block->bytes;
  p.layout = (tri_widen_layout){.rows = w->out,
                                .cols = w->in,
                                .group_rows = 1,
                                .group_cols = t->block->weights,
                                .scale_rows = w->out,
                                .scale_cols = w->in / t->block->weights,
                                .block = t->block};
  p.codes = (tri_packed_tensor){t, (uint64_t)w->number * (uint64_t)w->out * pitch, w->out, pitch, 1};
  *out = p;
  *found = true;
  return TRI_OK;
}

tri_status tri_packed_find(const tri_model_config *c, const tri_checkpoint *ckpt, const tri_tensor_rule *rule,
                           int layer, int expert, tri_packed *out, bool *found, tri_error *err) {
  *found = false;
  if (!tri_packed_may_be(c, rule)) return TRI_OK;
  tri_weight_shape full = tri_rule_full_shape(c, rule, layer);
  bool transpose = rule->part == TRI_PART_KEY_UP; /* of the layer's matrix */
  bool stacked = rule->flags & TRI_TENSOR_STACKED;
  struct layer l = name_layer(c, ckpt, rule, layer, expert);
  struct wanted w = {.out = transpose ? full.k : full.n,
                     .in = transpose ? full.n : full.k,
                     .stack = stacked ? c->moe.num_experts : 0,
                     .number = stacked ? expert : 0};
  const tri_st_tensor *plain = NULL;
  if (c->stored.method == TRI_STORED_GGUF) return find_blocks(&l, rule, &w, out, found, err);
  for (const tri_widen_format *const *f = tri_packed_formats(c->stored.method); *f; f++) {
    tri_packed p = {.format = *f, .turned = (*f)->inputs_first != transpose};
    p.codes.tensor = find(&l, (*f)->codes);
    if (!p.codes.tensor) continue;
    if (p.codes.tensor->dtype != (*f)->codes_type) {
      plain = p.codes.tensor;
      continue;
    }
    TRI_CHECK(find_tensors(&l, *f, &p, err));
    TRI_CHECK(fit(c, &p, &w, err));
    *out = p;
    *found = true;
    return TRI_OK;
  }
  return plain ? check_plain(&l, tri_packed_formats(c->stored.method)[0], plain, err) : TRI_OK;
}
