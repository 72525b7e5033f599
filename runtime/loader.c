/* Reads a checkpoint's tensors into a rank's weights.
 *
 * Every rank reads only the byte ranges of its own slices. Rows that are needed whole are read in requests of up to
 * STAGING_BYTES; a cut by columns reads each row's piece by itself when pieces are large, and otherwise whole runs of
 * rows, of which it keeps its columns: a disk and a page cache serve one large request faster than a thousand small
 * ones. To quantise a row its whole is read, for its largest magnitude; of a stored transpose, whose rows are columns
 * of the file, that takes a pass of its own before the one that fills the weight. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/quantize.h"
#include "runtime/weights.h"

enum { STAGING_BYTES = 4 << 20, DIRECT_PIECE_BYTES = 64 << 10 };

struct load {
  const tri_model_config *c;
  const tri_shard *s;
  const tri_checkpoint *ckpt;
  tri_weights *w;
  tri_error *err;
  char *raw, *converted; /* STAGING_BYTES, and room for the same elements as float32 */
  /* of the tensor at hand */
  const tri_st_tensor *tensor;
  const tri_weight_target *target;
  int64_t file_rows, file_cols; /* of the tensor as stored; of experts, of one */
  uint64_t base;                /* where the expert at hand begins in a stacked tensor, in bytes */
};

static tri_status read_range(struct load *l, uint64_t offset, char *to, size_t bytes) {
  int fd = tri_checkpoint_fd(l->ckpt, l->tensor->file);
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pread(fd, to + done, bytes - done, (off_t)(l->tensor->offset + l->base + offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return tri_fail(l->err, TRI_IO, l->tensor->name, "cannot read tensor %.80s from %s: %s", l->tensor->name,
                      tri_checkpoint_path(l->ckpt, l->tensor->file), n ? strerror(errno) : "the file became shorter");
    done += (size_t)n;
  }
  return TRI_OK;
}

static void convert(const void *src, tri_dtype from, size_t first, size_t stride, void *dst, tri_dtype to, size_t n) {
  if (from == to && stride == 1) {
    memcpy(dst, (const char *)src + first * tri_dtype_size(from), n * tri_dtype_size(to));
    return;
  }
  if (from == to && tri_dtype_size(from) == 2) {
    for (size_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = ((const uint16_t *)src)[first + i * stride];
    return;
  }
  for (size_t i = 0; i < n; i++) tri_store_f32(dst, to, i, tri_load_f32(src, from, first + i * stride));
}

static void put_row(struct load *l, int64_t row, int64_t col, const void *from, size_t elements) {
  const tri_weight_place *p = &l->target->place;
  size_t size = tri_dtype_size(p->dtype), at = p->offset + (size_t)(row * l->target->k + col) * size;
  tri_backend *be = l->w->backend;
  be->ops.upload(be, (char *)l->w->memory + at, from, elements * size, NULL);
}

/* Columns of a row whose largest magnitude is max: every stride-th number of x, by way of `room` (n bytes). */
static void put_quantized(struct load *l, int64_t row, int64_t col, const float *x, size_t stride, size_t n, float max,
                          int8_t *room) {
  tri_backend *be = l->w->backend;
  float scale = tri_quantize_scale(max), factor = tri_quantize_factor(max);
  for (size_t i = 0; i < n; i++) room[i] = tri_quantize_one(x[i * stride], factor);
  put_row(l, row, col, room, n);
  be->ops.upload(be, (char *)l->w->memory + l->target->place.scale_offset + (size_t)row * sizeof scale, &scale,
                 sizeof scale, NULL);
}

static tri_status row_too_long(struct load *l, size_t bytes) {
  return tri_fail(l->err, TRI_TOO_LARGE, l->tensor->name, "a row of %.80s has %zu bytes, the limit is %d",
                  l->tensor->name, bytes, STAGING_BYTES);
}

static tri_status not_finite(struct load *l) {
  return tri_fail(l->err, TRI_UNSUPPORTED, l->tensor->name,
                  "tensor %.80s has an element that is not finite: it cannot be quantized", l->tensor->name);
}

/* A rectangle of a tensor stored in the weight's own orientation. */
static tri_status load_plain(void *ctx, const tri_slice *s) {
  struct load *l = ctx;
  size_t esize = tri_dtype_size(l->tensor->dtype), piece = (size_t)s->cols * esize,
         stride = (size_t)l->file_cols * esize;
  tri_dtype to = l->target->place.dtype;
  bool whole_rows = piece < DIRECT_PIECE_BYTES || s->cols == l->file_cols;
  size_t row_bytes = whole_rows ? stride * (size_t)s->row_step : piece;
  int64_t rows_at_once = whole_rows ? (int64_t)(STAGING_BYTES / row_bytes) : 1;
  if (row_bytes > STAGING_BYTES) return row_too_long(l, row_bytes);
  for (int64_t r = 0; r < s->rows; r += rows_at_once) {
    int64_t n = s->rows - r < rows_at_once ? s->rows - r : rows_at_once;
    uint64_t at = (uint64_t)(s->src_row + r * s->row_step) * stride + (whole_rows ? 0 : (uint64_t)s->src_col * esize);
    size_t skip = whole_rows ? (size_t)s->src_col : 0;
    /* The last row of a run ends with this slice's columns. */
    size_t bytes = (size_t)(n - 1) * row_bytes + (skip + (size_t)s->cols) * esize;
    tri_status st = read_range(l, at, l->raw, bytes);
    if (st != TRI_OK) return st;
    for (int64_t i = 0; i < n; i++) {
      convert(l->raw, l->tensor->dtype, (size_t)i * (row_bytes / esize) + skip, 1, l->converted, to, (size_t)s->cols);
      put_row(l, s->dst_row + r + i, s->dst_col, l->converted, (size_t)s->cols);
    }
  }
  return TRI_OK;
}

/* The same, quantised. */
static tri_status load_plain_int8(void *ctx, const tri_slice *s) {
  struct load *l = ctx;
  size_t stride = (size_t)l->file_cols * tri_dtype_size(l->tensor->dtype), row_bytes = stride * (size_t)s->row_step;
  float *row = (float *)l->converted;
  if (row_bytes > STAGING_BYTES) return row_too_long(l, row_bytes);
  int64_t rows_at_once = (int64_t)(STAGING_BYTES / row_bytes);
  for (int64_t r = 0; r < s->rows; r += rows_at_once) {
    int64_t n = s->rows - r < rows_at_once ? s->rows - r : rows_at_once;
    tri_status st =
        read_range(l, (uint64_t)(s->src_row + r * s->row_step) * stride, l->raw, (size_t)(n - 1) * row_bytes + stride);
    if (st != TRI_OK) return st;
    for (int64_t i = 0; i < n; i++) {
      char *stored = l->raw + (size_t)i * row_bytes;
      float max = 0;
      tri_widen(row, stored, l->tensor->dtype, 0, (size_t)l->file_cols);
      if (!tri_quantize_max(row, (size_t)l->file_cols, &max)) return not_finite(l);
      /* The stored row, widened by now, is room enough. */
      put_quantized(l, s->dst_row + r + i, s->dst_col, row + s->src_col, 1, (size_t)s->cols, max, (int8_t *)stored);
    }
  }
  return TRI_OK;
}

/* A vector is one row of the file, and one of the weight. */
static tri_status load_vector(void *ctx, const tri_slice *s) {
  struct load *l = ctx;
  size_t esize = tri_dtype_size(l->tensor->dtype);
  int64_t at_once = (int64_t)(STAGING_BYTES / esize) / s->row_step;
  for (int64_t r = 0; r < s->rows; r += at_once) {
    int64_t n = s->rows - r < at_once ? s->rows - r : at_once;
    size_t span = (size_t)((n - 1) * s->row_step + 1);
    tri_status st = read_range(l, (uint64_t)(s->src_row + r * s->row_step) * esize, l->raw, span * esize);
    if (st != TRI_OK) return st;
    convert(l->raw, l->tensor->dtype, 0, (size_t)s->row_step, l->converted, l->target->place.dtype, (size_t)n);
    put_row(l, s->dst_row + r, 0, l->converted, (size_t)n);
  }
  return TRI_OK;
}

/* The same where the file holds [in, out]: a run of file rows is read and its columns become weight rows. */
static tri_status load_transposed(void *ctx, const tri_slice *s) {
  struct load *l = ctx;
  size_t esize = tri_dtype_size(l->tensor->dtype), stride = (size_t)l->file_cols * esize;
  tri_dtype to = l->target->place.dtype;
  int64_t at_once = (int64_t)(STAGING_BYTES / stride);
  if (at_once < 1) return row_too_long(l, stride);
  for (int64_t k = 0; k < s->cols; k += at_once) {
    int64_t n = s->cols - k < at_once ? s->cols - k : at_once;
    size_t bytes = (size_t)(n - 1) * stride + (size_t)(s->src_row + (s->rows - 1) * s->row_step + 1) * esize;
    tri_status st = read_range(l, (uint64_t)(s->src_col + k) * stride, l->raw, bytes);
    if (st != TRI_OK) return st;
    for (int64_t r = 0; r < s->rows; r++) {
      convert(l->raw, l->tensor->dtype, (size_t)(s->src_row + r * s->row_step), (size_t)l->file_cols, l->converted, to,
              (size_t)n);
      put_row(l, s->dst_row + r, s->dst_col + k, l->converted, (size_t)n);
    }
  }
  return TRI_OK;
}

/* Reads rows of the file from `first` on, up to the last column of the slice, as float32: l->converted has
 * l->file_cols of them a row. */
static tri_status read_wide(struct load *l, const tri_slice *s, int64_t first, int64_t rows) {
  size_t esize = tri_dtype_size(l->tensor->dtype);
  size_t n = (size_t)((rows - 1) * l->file_cols + s->src_row + (s->rows - 1) * s->row_step + 1);
  tri_status st = read_range(l, (uint64_t)(first * l->file_cols) * esize, l->raw, n * esize);
  if (st == TRI_OK) tri_widen((float *)l->converted, l->raw, l->tensor->dtype, 0, n);
  return st;
}

/* The largest magnitude of each row of the weight, a column of the file. */
static tri_status column_maxima(struct load *l, const tri_slice *s, int64_t at_once, float *max) {
  for (int64_t k = 0; k < l->file_rows; k += at_once) {
    int64_t n = l->file_rows - k < at_once ? l->file_rows - k : at_once;
    tri_status st = read_wide(l, s, k, n);
    if (st != TRI_OK) return st;
    for (int64_t i = 0; i < n; i++) {
      const float *x = (const float *)l->converted + i * l->file_cols + s->src_row;
      bool finite = true;
      for (int64_t r = 0; r < s->rows; r++) finite &= tri_quantize_max(x + r * s->row_step, 1, &max[r]);
      if (!finite) return not_finite(l);
    }
  }
  return TRI_OK;
}

static tri_status load_transposed_int8(void *ctx, const tri_slice *s) {
  struct load *l = ctx;
  size_t stride = (size_t)l->file_cols * tri_dtype_size(l->tensor->dtype);
  if (stride > STAGING_BYTES) return row_too_long(l, stride);
  int64_t at_once = (int64_t)(STAGING_BYTES / stride);
  float *max = tri_calloc((size_t)s->rows, sizeof *max);
  tri_status st =
      max ? TRI_OK : tri_fail(l->err, TRI_NO_MEMORY, "model", "no memory for %lld scales", (long long)s->rows);
  if (st == TRI_OK) TRI_TRY(column_maxima(l, s, at_once, max));
  for (int64_t k = 0; st == TRI_OK && k < s->cols; k += at_once) {
    int64_t n = s->cols - k < at_once ? s->cols - k : at_once;
    TRI_TRY(read_wide(l, s, s->src_col + k, n));
    for (int64_t r = 0; r < s->rows; r++)
      put_quantized(l, s->dst_row + r, s->dst_col + k, (const float *)l->converted + s->src_row + r * s->row_step,
                    (size_t)l->file_cols, (size_t)n, max[r], (int8_t *)l->raw);
  }
cleanup:
  tri_free(max);
  return st;
}

/* Whether the tensor has the shape that the rule wants of it. */
static bool shape_fits(const struct load *l, const tri_tensor_rule *rule, const tri_st_tensor *t) {
  tri_weight_shape full = tri_rule_full_shape(l->c, rule);
  bool transposed = rule->flags & TRI_TENSOR_TRANSPOSED;
  int64_t rows = transposed ? full.k : full.n, cols = transposed ? full.n : full.k;
  bool stacked = rule->flags & TRI_TENSOR_STACKED;
  /* A gain for each head may be stored as [heads, head_dim], what is added to logits as [1, vocabulary]. */
  bool by_head =
      (rule->weight == TRI_W_Q_NORM || rule->weight == TRI_W_K_NORM || rule->weight == TRI_W_HEAD_BIAS) && t->rank == 2;
  if (stacked && (t->rank < 1 || t->shape[0] != l->c->moe.num_experts)) return false;
  const int64_t *shape = t->shape + stacked;
  int rank = t->rank - stacked;
  if (full.vector) return rank == 1 + by_head && (by_head ? shape[0] * shape[1] : shape[0]) == full.n;
  return rank == 2 && shape[0] == rows && shape[1] == cols;
}

static tri_status load_tensor(void *ctx, const tri_weight_target *t) {
  struct load *l = ctx;
  const tri_st_tensor *src = tri_rule_find(l->c, l->ckpt, &t->rule, t->layer, t->expert);
  char name[160];
  if (!src) {
    snprintf(name, sizeof name, t->rule.name, t->layer, t->expert);
    return tri_fail(l->err, TRI_NOT_FOUND, name, "the checkpoint has no tensor %s%s", l->c->arch->prefix, name);
  }
  tri_weight_shape full = tri_rule_full_shape(l->c, &t->rule);
  bool transposed = t->rule.flags & TRI_TENSOR_TRANSPOSED;
  if (!shape_fits(l, &t->rule, src))
    return tri_fail(l->err, TRI_CORRUPT, src->name,
                    "tensor %.80s has %d dimensions of %lld x %lld, the config asks for %lld x %lld", src->name,
                    src->rank, src->rank > 0 ? (long long)src->shape[0] : 1,
                    src->rank > 1 ? (long long)src->shape[1] : 1, (long long)(transposed ? full.k : full.n),
                    (long long)(transposed ? full.n : full.k));
  if (src->dtype > TRI_BF16)
    return tri_fail(l->err, TRI_UNSUPPORTED, src->name, "tensor %.80s is neither F32, F16 nor BF16", src->name);
  l->tensor = src;
  l->target = t;
  l->file_rows = transposed ? full.k : full.n;
  l->file_cols = transposed ? full.n : full.k;
  l->base = t->rule.flags & TRI_TENSOR_STACKED
                ? (uint64_t)t->expert * (uint64_t)full.n * (uint64_t)full.k * tri_dtype_size(src->dtype)
                : 0;
  bool int8 = t->place.dtype == TRI_I8;
  tri_status st = tri_shard_slices(l->c, l->s, &t->rule, t->expert,
                                   full.vector          ? load_vector
                                   : transposed && int8 ? load_transposed_int8
                                   : transposed         ? load_transposed
                                   : int8               ? load_plain_int8
                                                        : load_plain,
                                   l);
  return st == TRI_OK ? l->w->backend->ops.stream_sync(l->w->backend, NULL) : st;
}

/* Whether name, with or without the prefix, is the pattern with a layer below `layers` (into *layer) and an expert
 * below `experts` for its first and second %d. */
static bool matches(const char *pattern, const char *prefix, int64_t layers, int64_t experts, const char *name,
                    int *layer) {
  int64_t limits[] = {layers, experts};
  size_t p = strlen(prefix);
  *layer = 0;
  if (!strncmp(name, prefix, p)) name += p;
  for (int number = 0; *pattern;) {
    if (*pattern != '%') {
      if (*pattern++ != *name++) return false;
      continue;
    }
    int64_t value = 0;
    const char *digits = name;
    while (*name >= '0' && *name <= '9' && name - digits < 9) value = 10 * value + (*name++ - '0');
    if (name == digits || (*digits == '0' && name - digits > 1) || value >= limits[number]) return false;
    if (!number++) *layer = (int)value;
    pattern += 2;
  }
  return !*name;
}

static bool is_known(const tri_model_config *c, const char *name) {
  const tri_arch *a = c->arch;
  int64_t layers = c->shared_layers ? 1 : c->num_layers;
  int layer;
  for (const tri_tensor_rule *r = a->tensors; r->name; r++)
    if (tri_rule_applies(c, r) && matches(r->name, a->prefix, layers, c->moe.num_experts, name, &layer) &&
        tri_weight_in_layer(c, r->weight, layer))
      return true;
  for (const char *const *p = a->ignored_tensors; p && *p; p++)
    if (matches(*p, a->prefix, 1 << 20, 1 << 20, name, &layer)) return true;
  return false;
}

/* A tensor that nobody asks for would be a part of the model that is left out. Those of an encoder-decoder are looked
 * through for both. */
static tri_status check_all_known(const struct load *l) {
  tri_model_config source;
  if (l->c->feeds_decoder) return TRI_OK;
  if (l->c->seq2seq.on) tri_model_config_source(l->c, &source);
  for (size_t i = 0; i < tri_checkpoint_num_tensors(l->ckpt); i++) {
    const char *name = tri_checkpoint_tensor(l->ckpt, i)->name;
    if (!is_known(l->c, name) && !(l->c->seq2seq.on && is_known(&source, name)))
      return tri_fail(l->err, TRI_UNSUPPORTED, name, "the checkpoint's tensor %.80s is not a part of %s", name,
                      l->c->arch->model_type);
  }
  return TRI_OK;
}

tri_status tri_weights_load(tri_backend *be, const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                            tri_dtype dtype, tri_quantization quantization, tri_weights **out, tri_error *err) {
  tri_weight_map m;
  tri_status st = tri_weight_map_make(c, s, ckpt, dtype, quantization, &m, err);
  if (st != TRI_OK) return st;
  struct load l = {.c = c, .s = s, .ckpt = ckpt, .err = err};
  l.raw = tri_malloc(STAGING_BYTES, 1);
  l.converted = tri_malloc(STAGING_BYTES, 2); /* 16-bit elements may widen */
  if (!l.raw || !l.converted) {
    st = tri_fail(err, TRI_NO_MEMORY, "model", "no memory for the staging buffers");
    goto cleanup;
  }
  TRI_TRY(check_all_known(&l));
  TRI_TRY(tri_weights_alloc(be, c, s, &m, &l.w, err));
  TRI_TRY(tri_weights_each(c, s, &m, load_tensor, &l));
  *out = l.w;
  l.w = NULL;
cleanup:
  tri_weights_destroy(l.w);
  tri_weight_map_free(&m);
  tri_free(l.raw);
  tri_free(l.converted);
  return st;
}
