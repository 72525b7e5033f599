/* Reads a checkpoint's tensors into a rank's weights.
 *
 * Every rank reads only the byte ranges of its own slices, many of them at once (load_pipe.h). What is stored as the
 * weight is goes from the disk's buffer to the backend as it is, in one copy for each piece; the rest is converted on
 * the way, by the backend's pool. A cut by columns reads each row's piece by itself when pieces are large, and
 * otherwise whole runs of rows, of which the copy takes its columns: a disk serves one large request faster than a
 * thousand small ones. To quantise a row its whole is read, for its largest magnitude; of a stored transpose, whose
 * rows are columns of the file, that takes a pass of its own before the one that fills the weight. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kernels/quantize.h"
#include "runtime/load/load_pipe.h"

enum { DIRECT_PIECE_BYTES = 64 << 10, WORTH_THREADS = 16 << 10 };

struct load {
  const tri_model_config *c;
  const tri_shard *s;
  const tri_checkpoint *ckpt;
  tri_weights *w;
  tri_error *err;
  tri_load_pipe *pipe;
  size_t most; /* bytes of a piece */
  /* of the tensor at hand */
  const tri_st_tensor *tensor;
  const tri_weight_target *target;
  int64_t file_rows, file_cols; /* of the tensor as stored; of experts, of one */
  uint64_t base;                /* where the expert at hand begins in a stacked tensor, in bytes */
  float *max;                   /* [slice's rows] of a stored transpose that is quantised: magnitudes */
};

/* ---- on the way: what becomes of a piece ---- */

/* A part of a piece's work, for one thread of the pool. */
struct work {
  const tri_piece *p;
  const char *data;
  void *out;
  float *scales;
  float *max;
  atomic_bool not_finite;
};

static void share(const struct load *l, size_t bytes, void (*fn)(void *, int, int), struct work *w) {
  if (bytes < WORTH_THREADS)
    fn(w, 0, 1);
  else
    tri_pool_run(l->w->backend->pool, fn, w);
}

static int64_t part_begin(int64_t n, int index, int count) { return n / count * index + (n % count) * index / count; }

static void convert(const void *src, tri_dtype from, size_t first, size_t stride, void *dst, tri_dtype to, size_t at,
                    size_t n) {
  if (from == to && stride == 1) {
    memcpy((char *)dst + at * tri_dtype_size(to), (const char *)src + first * tri_dtype_size(from),
           n * tri_dtype_size(to));
    return;
  }
  if (from == to && tri_dtype_size(from) == 2) {
    for (size_t i = 0; i < n; i++) ((uint16_t *)dst)[at + i] = ((const uint16_t *)src)[first + i * stride];
    return;
  }
  if (to == TRI_F32 && stride == 1) {
    tri_widen((float *)dst + at, src, from, first, n);
    return;
  }
  for (size_t i = 0; i < n; i++) tri_store_f32(dst, to, at + i, tri_load_f32(src, from, first + i * stride));
}

/* Returns where the weight's element lies that is the first of a piece. */
static char *destination(const struct load *l, const tri_piece *p, int64_t row, int64_t col) {
  return (char *)l->w->memory + p->place.offset +
         (size_t)((p->slice.dst_row + row) * p->k + p->slice.dst_col + col) * tri_dtype_size(p->place.dtype);
}

/* Rows to the weight: `from` has them `from_pitch` bytes apart. */
static void send_rows(struct load *l, const tri_piece *p, const void *from, size_t from_pitch) {
  size_t size = tri_dtype_size(p->place.dtype);
  tri_load_pipe_send(l->pipe, destination(l, p, p->first, 0), (size_t)p->k * size, from, from_pitch,
                     (size_t)p->slice.cols * size, (size_t)p->count);
}

static tri_status finish_copy(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  (void)pipe;
  send_rows(p->ctx, p, data + p->skip, p->from_pitch);
  return TRI_OK;
}

/* Elements in the order of rows. */
static void convert_share(void *ctx, int index, int count) {
  const struct work *w = ctx;
  const tri_piece *p = w->p;
  tri_dtype from = p->tensor->dtype;
  int64_t cols = p->slice.cols, all = p->count * cols, end = part_begin(all, index + 1, count);
  for (int64_t i = part_begin(all, index, count), n; i < end; i += n) {
    int64_t row = i / cols, col = i % cols;
    n = cols - col < end - i ? cols - col : end - i;
    convert(w->data + (size_t)row * p->from_pitch + p->skip, from, (size_t)col, 1, w->out, p->place.dtype, (size_t)i,
            (size_t)n);
  }
}

static tri_status finish_convert(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  struct load *l = p->ctx;
  struct work w = {.p = p, .data = data};
  tri_status st = tri_load_pipe_room(pipe, &w.out);
  if (st != TRI_OK) return st;
  size_t width = (size_t)p->slice.cols * tri_dtype_size(p->place.dtype);
  share(l, width * (size_t)p->count, convert_share, &w);
  send_rows(l, p, w.out, width);
  return TRI_OK;
}

static tri_status not_finite(struct load *l, const tri_st_tensor *t) {
  return tri_fail(l->err, TRI_UNSUPPORTED, t->name,
                  "tensor %.80s has an element that is not finite: it cannot be quantized", t->name);
}

/* The room of a quantised piece: `rows` scales, then the integers. */
static tri_status take_quantized(struct load *l, struct work *w, int64_t rows) {
  void *room;
  tri_status st = tri_load_pipe_room(l->pipe, &room);
  if (st != TRI_OK) return st;
  w->scales = room;
  w->out = w->scales + rows;
  return TRI_OK;
}

static void send_scales(struct load *l, const tri_piece *p, const float *scales, int64_t first, int64_t rows) {
  char *to = (char *)l->w->memory + p->place.scale_offset + (size_t)(p->slice.dst_row + first) * sizeof *scales;
  size_t bytes = (size_t)rows * sizeof *scales;
  tri_load_pipe_send(l->pipe, to, bytes, scales, bytes, bytes, 1);
}

/* Rows, each with its whole in the file; the columns of the slice are kept. */
static void quantize_share(void *ctx, int index, int count) {
  enum { WIDE = 2048 };
  struct work *w = ctx;
  const tri_piece *p = w->p;
  tri_dtype from = p->tensor->dtype;
  float wide[WIDE];
  size_t whole = (size_t)p->from_pitch / tri_dtype_size(from) / (size_t)p->slice.row_step, cols = (size_t)p->slice.cols;
  for (int64_t r = part_begin(p->count, index, count); r < part_begin(p->count, index + 1, count); r++) {
    const char *row = w->data + (size_t)r * p->from_pitch;
    float max = 0;
    bool finite = true;
    for (size_t i = 0, n; i < whole; i += n) {
      n = whole - i < WIDE ? whole - i : WIDE;
      tri_widen(wide, row, from, i, n);
      finite &= tri_quantize_max(wide, n, &max);
    }
    if (!finite) atomic_store(&w->not_finite, true);
    float factor = tri_quantize_factor(max);
    w->scales[r] = tri_quantize_scale(max);
    int8_t *out = (int8_t *)w->out + (size_t)r * cols;
    for (size_t i = 0, n; finite && i < cols; i += n) {
      n = cols - i < WIDE ? cols - i : WIDE;
      tri_widen(wide, row, from, (size_t)p->slice.src_col + i, n);
      for (size_t k = 0; k < n; k++) out[i + k] = tri_quantize_one(wide[k], factor);
    }
  }
}

static tri_status finish_quantize(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  (void)pipe;
  struct load *l = p->ctx;
  struct work w = {.p = p, .data = data};
  tri_status st = take_quantized(l, &w, p->count);
  if (st != TRI_OK) return st;
  share(l, (size_t)p->count * p->from_pitch, quantize_share, &w);
  if (atomic_load(&w.not_finite)) return not_finite(l, p->tensor);
  send_scales(l, p, w.scales, p->first, p->count);
  send_rows(l, p, w.out, (size_t)p->slice.cols);
  return TRI_OK;
}

/* A piece of a stored transpose is some rows of the file: those columns of every row of the weight. */
static void send_columns(struct load *l, const tri_piece *p, const void *from) {
  size_t size = tri_dtype_size(p->place.dtype), width = (size_t)p->count * size;
  tri_load_pipe_send(l->pipe, destination(l, p, 0, p->first), (size_t)p->k * size, from, width, width,
                     (size_t)p->slice.rows);
}

static size_t file_column(const tri_piece *p, int64_t row) {
  return (size_t)(p->slice.src_row + row * p->slice.row_step);
}

static void transpose_share(void *ctx, int index, int count) {
  const struct work *w = ctx;
  const tri_piece *p = w->p;
  tri_dtype from = p->tensor->dtype;
  size_t n = (size_t)p->count;
  for (int64_t r = part_begin(p->slice.rows, index, count); r < part_begin(p->slice.rows, index + 1, count); r++)
    convert(w->data, from, file_column(p, r), p->from_pitch / tri_dtype_size(from), w->out, p->place.dtype,
            (size_t)r * n, n);
}

static tri_status finish_transpose(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  struct load *l = p->ctx;
  struct work w = {.p = p, .data = data};
  tri_status st = tri_load_pipe_room(pipe, &w.out);
  if (st != TRI_OK) return st;
  share(l, (size_t)p->count * p->from_pitch, transpose_share, &w);
  send_columns(l, p, w.out);
  return TRI_OK;
}

/* The largest magnitude of each row of the weight, a column of the file. */
static void maxima_share(void *ctx, int index, int count) {
  struct work *w = ctx;
  const tri_piece *p = w->p;
  bool finite = true;
  int64_t end = part_begin(p->slice.rows, index + 1, count);
  for (int64_t k = 0; k < p->count; k++)
    for (int64_t r = part_begin(p->slice.rows, index, count); r < end; r++) {
      float x = tri_load_f32(w->data + (size_t)k * p->from_pitch, p->tensor->dtype, file_column(p, r));
      finite &= tri_quantize_max(&x, 1, &w->max[r]);
    }
  if (!finite) atomic_store(&w->not_finite, true);
}

static tri_status finish_maxima(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  (void)pipe;
  struct load *l = p->ctx;
  struct work w = {.p = p, .data = data, .max = l->max};
  share(l, (size_t)p->count * p->from_pitch, maxima_share, &w);
  return atomic_load(&w.not_finite) ? not_finite(l, p->tensor) : TRI_OK;
}

static void quantize_columns_share(void *ctx, int index, int count) {
  struct work *w = ctx;
  const tri_piece *p = w->p;
  for (int64_t r = part_begin(p->slice.rows, index, count); r < part_begin(p->slice.rows, index + 1, count); r++) {
    float factor = tri_quantize_factor(w->max[r]);
    int8_t *out = (int8_t *)w->out + r * p->count;
    w->scales[r] = tri_quantize_scale(w->max[r]);
    for (int64_t k = 0; k < p->count; k++) {
      const char *row = w->data + (size_t)k * p->from_pitch;
      out[k] = tri_quantize_one(tri_load_f32(row, p->tensor->dtype, file_column(p, r)), factor);
    }
  }
}

static tri_status finish_quantize_columns(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  (void)pipe;
  struct load *l = p->ctx;
  struct work w = {.p = p, .data = data, .max = l->max};
  tri_status st = take_quantized(l, &w, p->slice.rows);
  if (st != TRI_OK) return st;
  share(l, (size_t)p->count * p->from_pitch, quantize_columns_share, &w);
  send_scales(l, p, w.scales, 0, p->slice.rows);
  send_columns(l, p, w.out);
  return TRI_OK;
}

/* ---- what to read ---- */

static tri_piece piece_of(struct load *l, const tri_slice *s,
                          tri_status (*finish)(tri_load_pipe *, const tri_piece *, char *)) {
  return (tri_piece){
      .finish = finish, .ctx = l, .tensor = l->tensor, .place = l->target->place, .slice = *s, .k = l->target->k};
}

static tri_status row_too_long(struct load *l, size_t bytes) {
  return tri_fail(l->err, TRI_TOO_LARGE, l->tensor->name, "a row of %.80s has %zu bytes, the limit is %zu",
                  l->tensor->name, bytes, l->most);
}

/* A run of whole rows, contiguous here and there: pieces that end where blocks of the file end. */
static tri_status load_run(struct load *l, const tri_slice *s) {
  size_t esize = tri_dtype_size(l->tensor->dtype);
  bool same = l->tensor->dtype == l->target->place.dtype;
  int64_t all = s->rows * s->cols;
  uint64_t at = (uint64_t)(s->src_row * l->file_cols) * esize;
  tri_piece p = piece_of(l, s, same ? finish_copy : finish_convert);
  p.count = 1;
  for (int64_t i = 0, n; i < all; i += n) {
    size_t skew = (l->tensor->offset + l->base + at + (uint64_t)i * esize) % TRI_READER_BLOCK;
    n = (int64_t)((l->most - skew) / esize);
    if (n > all - i) n = all - i;
    /* One row of n elements, at the place where they belong. */
    p.slice.dst_row = s->dst_row + i / s->cols;
    p.slice.dst_col = i % s->cols;
    p.slice.cols = n;
    tri_status st = tri_load_pipe_read(l->pipe, &p, l->base + at + (uint64_t)i * esize, (size_t)n * esize);
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}

/* Rows of a piece from byte `at` of the tensor on, from_pitch bytes apart, at most `at_once` in one read. last: bytes
 * of the last row that are read. */
static tri_status read_rows(struct load *l, tri_piece *p, int64_t rows, int64_t at_once, uint64_t at, size_t last) {
  for (p->first = 0; p->first < rows; p->first += p->count) {
    p->count = rows - p->first < at_once ? rows - p->first : at_once;
    TRI_CHECK(tri_load_pipe_read(l->pipe, p, l->base + at + (uint64_t)p->first * p->from_pitch,
                                 (size_t)(p->count - 1) * p->from_pitch + last));
  }
  return TRI_OK;
}

/* A rectangle of a tensor stored in the weight's own orientation; a vector has one column. */
static tri_status load_plain(void *ctx, const tri_slice *s) {
  struct load *l = ctx;
  if (s->row_step == 1 && s->cols == l->file_cols && s->cols == l->target->k) return load_run(l, s);
  size_t esize = tri_dtype_size(l->tensor->dtype), stride = (size_t)l->file_cols * esize;
  bool whole_rows = (size_t)s->cols * esize < DIRECT_PIECE_BYTES || s->cols == l->file_cols;
  bool same = l->tensor->dtype == l->target->place.dtype;
  tri_piece p = piece_of(l, s, same ? finish_copy : finish_convert);
  p.from_pitch = stride * (size_t)s->row_step;
  p.skip = whole_rows ? (size_t)s->src_col * esize : 0;
  size_t last = p.skip + (size_t)s->cols * esize; /* of a run of rows: it ends with this slice's columns */
  if (last > l->most || (whole_rows && p.from_pitch > l->most))
    return row_too_long(l, whole_rows ? p.from_pitch : last);
  int64_t at_once = whole_rows ? (int64_t)(l->most / p.from_pitch) : 1;
  uint64_t at = (uint64_t)s->src_row * stride + (whole_rows ? 0 : (uint64_t)s->src_col * esize);
  return read_rows(l, &p, s->rows, at_once, at, last);
}

/* The same, quantised. */
static tri_status load_plain_int8(void *ctx, const tri_slice *s) {
  struct load *l = ctx;
  size_t stride = (size_t)l->file_cols * tri_dtype_size(l->tensor->dtype);
  tri_piece p = piece_of(l, s, finish_quantize);
  p.from_pitch = stride * (size_t)s->row_step;
  if (p.from_pitch > l->most) return row_too_long(l, p.from_pitch);
  /* Scales and integers of the rows fit into the room: a row in the file has two bytes or more for each of the latter.
   */
  int64_t at_once = (int64_t)(l->most / (p.from_pitch > sizeof(float) ? p.from_pitch : sizeof(float)));
  return read_rows(l, &p, s->rows, at_once, (uint64_t)s->src_row * stride, stride);
}

/* Rows of the file from `first` on, each up to the last column of the slice. p: what becomes of them. */
static tri_status read_columns(struct load *l, tri_piece *p, int64_t first, int64_t rows) {
  size_t esize = tri_dtype_size(l->tensor->dtype);
  p->from_pitch = (size_t)l->file_cols * esize;
  if (p->from_pitch > l->most) return row_too_long(l, p->from_pitch);
  if (!p->slice.rows) return TRI_OK;
  size_t last = (file_column(p, p->slice.rows - 1) + 1) * esize;
  int64_t at_once = (int64_t)(l->most / p->from_pitch);
  return read_rows(l, p, rows, at_once, (uint64_t)first * p->from_pitch, last);
}

/* The same where the file holds [in, out]. */
static tri_status load_transposed(void *ctx, const tri_slice *s) {
  struct load *l = ctx;
  tri_piece p = piece_of(l, s, finish_transpose);
  return read_columns(l, &p, s->src_col, s->cols);
}

static tri_status load_transposed_int8(void *ctx, const tri_slice *s) {
  struct load *l = ctx;
  tri_piece maxima = piece_of(l, s, finish_maxima), fill = piece_of(l, s, finish_quantize_columns);
  tri_status st = TRI_OK;
  l->max = tri_calloc((size_t)s->rows, sizeof *l->max);
  if (!l->max) return tri_fail(l->err, TRI_NO_MEMORY, "model", "no memory for %lld scales", (long long)s->rows);
  TRI_TRY(read_columns(l, &maxima, 0, l->file_rows));
  TRI_TRY(tri_load_pipe_drain(l->pipe));
  TRI_TRY(read_columns(l, &fill, s->src_col, s->cols));
  TRI_TRY(tri_load_pipe_drain(l->pipe));
cleanup:
  tri_free(l->max);
  l->max = NULL;
  return st;
}

/* Refuses a tensor without the shape that the rule wants of it. */
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
    return tri_fail(l->err, TRI_CORRUPT, name, "the checkpoint has no tensor %s%s", l->c->arch->prefix, name);
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
  tri_status (*load)(void *ctx, const tri_slice *s) = int8 ? load_plain_int8 : load_plain;
  if (transposed) load = int8 ? load_transposed_int8 : load_transposed;
  return tri_shard_slices(l->c, l->s, &t->rule, t->slot, load, l);
}

/* Tells whether name, with or without the prefix, is the pattern with a layer below `layers` (into *layer) and an
 * expert below `experts` for its first and second %d. */
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
  for (const char *const *p = a->ignored_tensors; *p; p++)
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

tri_status tri_weights_load_with(tri_backend *be, const tri_model_config *c, const tri_shard *s,
                                 const tri_checkpoint *ckpt, tri_dtype dtype, tri_quantization quantization,
                                 const tri_reader_config *io, tri_weights **out, tri_error *err) {
  tri_weight_map m;
  tri_status st = tri_weight_map_make(c, s, ckpt, dtype, quantization, &m, err);
  if (st != TRI_OK) return st;
  struct load l = {.c = c, .s = s, .ckpt = ckpt, .err = err};
  TRI_TRY(check_all_known(&l));
  TRI_TRY(tri_load_pipe_create(be, ckpt, io, m.bytes, &l.pipe, err));
  l.most = tri_load_pipe_piece_bytes(l.pipe);
  TRI_TRY(tri_weights_alloc(be, c, s, &m, &l.w, err));
  TRI_TRY(be->ops.stream_sync(be)); /* uploads go beside the stream that has cleared the memory */
  TRI_TRY(tri_weights_each(c, s, &m, load_tensor, &l));
  TRI_TRY(tri_load_pipe_drain(l.pipe));
  l.w->read_bytes = tri_load_pipe_bytes_read(l.pipe);
  *out = l.w;
  l.w = NULL;
cleanup:
  tri_load_pipe_destroy(l.pipe);
  tri_weights_destroy(l.w);
  tri_weight_map_free(&m);
  return st;
}

tri_status tri_weights_load(tri_backend *be, const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                            tri_dtype dtype, tri_quantization quantization, tri_weights **out, tri_error *err) {
  tri_reader_config io = tri_reader_config_default();
  return tri_weights_load_with(be, c, s, ckpt, dtype, quantization, &io, out, err);
}
