/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a checkpoint's tensors into a rank's weights.
 *
 * Every rank reads only the byte ranges of its own slices, many of them at once (load_pipe.h). What is stored as the
 * weight is goes from the disk's buffer to the backend as it is, in one copy for each piece; the rest is converted on
 * the way, by the backend's pool. A cut by columns reads each row's piece by itself when pieces are large, and
 * otherwise whole runs of rows, of which the copy takes its columns: a disk serves one large request faster than a
 * thousand small ones. To quantise a row its whole is read, for its largest magnitude; of a stored transpose, whose
 * rows are columns of the file, that takes a pass of its own before the one that fills the weight. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/load/load_impl.h"

/* Columns of a row with fewer bytes are read together with the rest of the row. */
enum { DIRECT_PIECE_BYTES = 64 << 10 };

/* ---- what to read ---- */

static tri_piece piece_of(tri_load *l, const tri_slice *s,
                          tri_status (*finish)(tri_load_pipe *, const tri_piece *, char *)) {
  return (tri_piece){
      .finish = finish, .ctx = l, .tensor = l->tensor, .place = l->target->place, .slice = *s, .k = l->target->k};
}

static tri_status row_too_long(tri_load *l, size_t bytes) {
  return tri_fail(l->err, TRI_TOO_LARGE, l->tensor->name, "a row of %.80s has %zu bytes, the limit is %zu",
                  l->tensor->name, bytes, l->most);
}

/* A run of whole rows, contiguous here and there: pieces that end where blocks of the file end. */
static tri_status load_run(tri_load *l, const tri_slice *s) {
  size_t esize = tri_dtype_size(l->tensor->dtype);
  bool same = l->tensor->dtype == l->target->place.dtype;
  int64_t all = s->rows * s->cols;
  uint64_t at = (uint64_t)(s->src_row * l->file_cols) * esize;
  tri_piece p = piece_of(l, s, same ? tri_load_finish_copy : tri_load_finish_convert);
  p.count = 1;
  for (int64_t i = 0, n; i < all; i += n) {
    size_t skew = (l->tensor->offset + l->base + at + (uint64_t)i * esize) % TRI_READER_BLOCK;
    n = (int64_t)((l->most - skew) / esize);
    if (!n) return row_too_long(l, skew + esize); /* of pieces no larger than a block */
    if (n > all - i) n = all - i;
    /* One row of n elements, at the place where they belong. */
    p.slice.dst_row = s->dst_row + i / s->cols;
    p.slice.dst_col = i % s->cols;
    p.slice.cols = n;
    TRI_CHECK(tri_load_pipe_read(l->pipe, &p, l->base + at + (uint64_t)i * esize, (size_t)n * esize));
  }
  return TRI_OK;
}

/* Rows of a piece from byte `at` of the tensor on, from_pitch bytes apart, at most `at_once` in one read. last: bytes
 * of the last row that are read. */
static tri_status read_rows(tri_load *l, tri_piece *p, int64_t rows, int64_t at_once, uint64_t at, size_t last) {
  for (p->first = 0; p->first < rows; p->first += p->count) {
    p->count = rows - p->first < at_once ? rows - p->first : at_once;
    TRI_CHECK(tri_load_pipe_read(l->pipe, p, l->base + at + (uint64_t)p->first * p->from_pitch,
                                 (size_t)(p->count - 1) * p->from_pitch + last));
  }
  return TRI_OK;
}

/* Returns whether a slice has all columns, here and there, of rows that follow each other. */
static bool is_run(const tri_load *l, const tri_slice *s) {
  return s->row_step == 1 && s->cols == l->file_cols && s->cols == l->target->k;
}

/* Shows a run that lies in the file as it is to lie in memory. */
static tri_status find_run(void *ctx, const tri_slice *s) {
  tri_load *l = ctx;
  const tri_weight_place *place = &l->target->place;
  size_t esize = tri_dtype_size(place->dtype), row = (size_t)l->file_cols * esize;
  if (l->transposed || l->tensor->dtype != place->dtype || !is_run(l, s)) {
    l->found_others = true;
    return TRI_OK;
  }
  size_t at = place->offset + (size_t)(s->dst_row * l->target->k + s->dst_col) * esize;
  return l->found(l->found_ctx, l->tensor, l->base + (uint64_t)s->src_row * row, (size_t)s->rows * row, at);
}

/* A rectangle of a tensor stored in the weight's own orientation; a vector has one column. */
static tri_status load_plain(void *ctx, const tri_slice *s) {
  tri_load *l = ctx;
  if (is_run(l, s)) return load_run(l, s);
  size_t esize = tri_dtype_size(l->tensor->dtype), stride = (size_t)l->file_cols * esize;
  bool fits = stride * (size_t)s->row_step <= l->most;
  bool whole_rows = s->cols == l->file_cols || (fits && (size_t)s->cols * esize < DIRECT_PIECE_BYTES);
  bool same = l->tensor->dtype == l->target->place.dtype;
  tri_piece p = piece_of(l, s, same ? tri_load_finish_copy : tri_load_finish_convert);
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
static tri_status load_plain_rounded(void *ctx, const tri_slice *s) {
  tri_load *l = ctx;
  size_t stride = (size_t)l->file_cols * tri_dtype_size(l->tensor->dtype);
  tri_piece p = piece_of(l, s, tri_load_finish_quantize);
  p.from_pitch = stride * (size_t)s->row_step;
  if (p.from_pitch > l->most) return row_too_long(l, p.from_pitch);
  /* Scales and integers of the rows fit into the room: a row in the file has two bytes or more for each of the latter.
   */
  int64_t at_once = (int64_t)(l->most / (p.from_pitch > sizeof(float) ? p.from_pitch : sizeof(float)));
  return read_rows(l, &p, s->rows, at_once, (uint64_t)s->src_row * stride, stride);
}

/* Rows of the file from `first` on, each up to the last column of the slice. p: what becomes of them. */
static tri_status read_columns(tri_load *l, tri_piece *p, int64_t first, int64_t rows) {
  size_t esize = tri_dtype_size(l->tensor->dtype);
  p->from_pitch = (size_t)l->file_cols * esize;
  if (p->from_pitch > l->most) return row_too_long(l, p->from_pitch);
  if (!p->slice.rows) return TRI_OK;
  size_t last = (tri_load_file_column(p, p->slice.rows - 1) + 1) * esize;
  int64_t at_once = (int64_t)(l->most / p->from_pitch);
  return read_rows(l, p, rows, at_once, (uint64_t)first * p->from_pitch, last);
}

/* The same where the file holds [in, out]. */
static tri_status load_transposed(void *ctx, const tri_slice *s) {
  tri_load *l = ctx;
  tri_piece p = piece_of(l, s, tri_load_finish_transpose);
  return read_columns(l, &p, s->src_col, s->cols);
}

/* Two passes over the rows: the magnitudes of all columns must be there before the first number can be rounded. */
static tri_status load_transposed_rounded(void *ctx, const tri_slice *s) {
  tri_load *l = ctx;
  tri_piece maxima = piece_of(l, s, tri_load_finish_maxima), fill = piece_of(l, s, tri_load_finish_quantize_columns);
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

/* The function that takes the parts of a slice. */
struct halves {
  tri_load *l;
  tri_status (*load)(void *ctx, const tri_slice *s);
};

/* Rows of heads whose halves take turns in the file: of each half every second row. */
static tri_status load_halves(void *ctx, const tri_slice *s) {
  const struct halves *h = ctx;
  int64_t head = h->l->tensor->paired, half = head / 2, n;
  if (s->row_step != 1)
    return tri_fail(h->l->err, TRI_UNSUPPORTED, h->l->tensor->name, "tensor %.80s: rows of heads in another order",
                    h->l->tensor->name);
  for (int64_t row = 0; row < s->rows; row += n) {
    int64_t of_head = (s->src_row + row) % head, i = of_head % half;
    tri_slice part = *s;
    n = half - i < s->rows - row ? half - i : s->rows - row;
    part.src_row = tri_packed_row(h->l->tensor, s->src_row + row);
    part.row_step = 2;
    part.dst_row = s->dst_row + row;
    part.rows = n;
    TRI_CHECK(h->load(h->l, &part));
  }
  return TRI_OK;
}

/* The slices of the tensor that is at hand, each to `load`. */
static tri_status load_slices(tri_load *l, const tri_weight_target *t,
                              tri_status (*load)(void *ctx, const tri_slice *s)) {
  struct halves h = {l, load};
  if (!l->tensor->paired) return tri_shard_slices(l->c, l->s, &t->rule, t->layer, t->slot, load, l);
  return tri_shard_slices(l->c, l->s, &t->rule, t->layer, t->slot, load_halves, &h);
}

/* Returns whether a tensor has the shape that the rule wants of it, or that shape's transpose. */
static bool shape_fits(const tri_load *l, const tri_weight_target *w, const tri_st_tensor *t, bool transposed) {
  const tri_tensor_rule *rule = &w->rule;
  tri_weight_shape full = tri_rule_full_shape(l->c, rule, w->layer);
  int64_t rows = transposed ? full.k : full.n, cols = transposed ? full.n : full.k;
  bool stacked = rule->flags & TRI_TENSOR_STACKED;
  /* A gain for each head may be stored as [heads, head_dim], what is added to logits as [1, vocabulary], and what is
   * added to scores of experts as [1, experts]. */
  bool by_head = (rule->weight == TRI_W_Q_NORM || rule->weight == TRI_W_K_NORM || rule->weight == TRI_W_HEAD_BIAS ||
                  rule->weight == TRI_W_CHOICE_BIAS) &&
                 t->rank == 2;
  if (stacked && (t->rank < 1 || t->shape[0] != l->c->moe.num_experts)) return false;
  const int64_t *shape = t->shape + stacked;
  int rank = t->rank - stacked;
  if (full.vector) return rank == 1 + by_head && (by_head ? shape[0] * shape[1] : shape[0]) == full.n;
  return rank == 2 && shape[0] == rows && shape[1] == cols;
}

/* A tensor that is stored as numbers. */
static tri_status load_numbers(tri_load *l, const tri_weight_target *t) {
  const tri_st_tensor *src = tri_rule_find(l->c, l->ckpt, &t->rule, t->layer, t->expert);
  char name[160];
  if (!src) {
    snprintf(name, sizeof name, t->rule.name, t->layer, t->expert);
    return tri_fail(l->err, TRI_CORRUPT, name, "the checkpoint has no tensor %s%s", tri_tensor_prefix(l->c, 0), name);
  }
  tri_weight_shape full = tri_rule_full_shape(l->c, &t->rule, t->layer);
  bool transposed = t->rule.flags & TRI_TENSOR_TRANSPOSED, fits = shape_fits(l, t, src, transposed);
  if (!fits && t->rule.flags & TRI_TENSOR_EITHER) {
    fits = shape_fits(l, t, src, !transposed);
    transposed ^= fits;
  }
  if (!fits)
    return tri_fail(l->err, TRI_CORRUPT, src->name,
                    "tensor %.80s has %d dimensions of %lld x %lld, the config asks for %lld x %lld", src->name,
                    src->rank, src->rank > 0 ? (long long)src->shape[0] : 1,
                    src->rank > 1 ? (long long)src->shape[1] : 1, (long long)(transposed ? full.k : full.n),
                    (long long)(transposed ? full.n : full.k));
  if (src->dtype > TRI_BF16)
    return tri_fail(l->err, TRI_UNSUPPORTED, src->name, "tensor %.80s is neither F32, F16 nor BF16", src->name);
  l->tensor = src;
  l->transposed = transposed;
  l->file_rows = transposed ? full.k : full.n;
  l->file_cols = transposed ? full.n : full.k;
  l->base = t->rule.flags & TRI_TENSOR_STACKED
                ? (uint64_t)t->expert * (uint64_t)full.n * (uint64_t)full.k * tri_dtype_size(src->dtype)
                : 0;
  bool rounded = t->place.scale_bytes;
  tri_status (*load)(void *ctx, const tri_slice *s) = rounded ? load_plain_rounded : load_plain;
  if (transposed) load = rounded ? load_transposed_rounded : load_transposed;
  if (l->found) load = find_run;
  return load_slices(l, t, load);
}

/* A rectangle of codes that stay as they are, and the scales of their groups. */
static tri_status load_stored(void *ctx, const tri_slice *s) {
  TRI_CHECK(load_plain(ctx, s));
  return tri_load_scales(ctx, s);
}

tri_status tri_load_tensor(void *ctx, const tri_weight_target *t) {
  tri_load *l = ctx;
  bool packed;
  l->target = t;
  TRI_CHECK(tri_packed_find(l->c, l->ckpt, &t->rule, t->layer, t->expert, &l->packed, &packed, l->err));
  if (t->place.is_stored) TRI_CHECK(tri_load_check_stored(l, packed));
  if (!packed) return load_numbers(l, t);
  l->found_others = true;
  if (l->found) return TRI_OK;
  l->tensor = l->packed.codes.tensor;
  l->file_rows = l->packed.layout.rows;
  l->file_cols = l->packed.layout.cols;
  l->base = l->packed.codes.base;
  bool apart = t->place.is_stored && !l->packed.layout.block; /* codes and scales are tensors of their own */
  return load_slices(l, t, apart ? load_stored : tri_load_packed);
}

/* Returns whether name is the pattern with a layer below `layers` (into *layer) and an expert below `experts` for its
 * first and second %d, and anything for a * at its end. */
static bool is_pattern(const char *pattern, int64_t layers, int64_t experts, const char *name, int *layer) {
  int64_t limits[] = {layers, experts};
  *layer = 0;
  for (int number = 0; *pattern;) {
    if (*pattern == '*') return true;
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

/* The same of a name with or without a prefix. */
static bool matches(const tri_model_config *c, const char *pattern, int64_t layers, int64_t experts, const char *name,
                    int *layer) {
  const char *prefix;
  for (int i = 0; (prefix = tri_tensor_prefix(c, i)); i++)
    if (!strncmp(name, prefix, strlen(prefix)) && is_pattern(pattern, layers, experts, name + strlen(prefix), layer))
      return true;
  return false;
}

/* Returns whether a rule that applies has this name; packed: and may be quantized. */
static bool is_named(const tri_model_config *c, const char *name, bool packed) {
  int64_t layers = c->shared_layers ? 1 : c->num_layers;
  int layer;
  for (const tri_tensor_rule *r = tri_rule_next(c, NULL); r; r = tri_rule_next(c, r))
    if (matches(c, r->name, layers, c->moe.num_experts, name, &layer) && tri_rule_applies(c, r, layer) &&
        tri_weight_in_layer(c, r->weight, layer))
      return !packed || tri_packed_may_be(c, r);
  return false;
}

/* Returns whether it belongs to a layer after the model's own, which some name by what it is for: the prediction of
 * several tokens. */
static bool is_extra(const tri_model_config *c, const char *name) {
  static const char layers[] = "layers.";
  const char *prefix;
  int64_t layer = 0;
  for (int i = 0; (prefix = tri_tensor_prefix(c, i)); i++)
    if (!strncmp(name, prefix, strlen(prefix))) {
      name += strlen(prefix);
      break;
    }
  if (c->extra_layers && !strncmp(name, "mtp_", 4)) return true;
  if (strncmp(name, layers, sizeof layers - 1) != 0) return false;
  name += sizeof layers - 1;
  for (int i = 0; i < 9 && *name >= '0' && *name <= '9'; i++) layer = 10 * layer + (*name++ - '0');
  return *name == '.' && layer >= c->num_layers && layer < c->num_layers + c->extra_layers;
}

/* Scales of a quantized KV cache: ours is not. */
static bool is_of_cache(const tri_model_config *c, const char *name) {
  static const char *const names[] = {"layers.%d.self_attn.k_scale",        "layers.%d.self_attn.v_scale",
                                      "layers.%d.self_attn.q_scale",        "layers.%d.self_attn.kv_scale",
                                      "layers.%d.self_attn.k_proj.k_scale", "layers.%d.self_attn.v_proj.v_scale"};
  int layer;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if ((c->stored.method != TRI_STORED_PLAIN || c->stored.has_kv_scales) &&
        matches(c, names[i], c->num_layers, 0, name, &layer))
      return true;
  return false;
}

/* Returns whether it is one of the tensors that a quantized matrix has. */
static bool is_packed(const tri_model_config *c, const char *name) {
  const char *plain;
  char whole[320];
  size_t stem = tri_packed_stem(c->stored.method, name, &plain);
  if (!stem || stem + strlen(plain) >= sizeof whole) return false;
  snprintf(whole, sizeof whole, "%.*s%s", (int)stem, name, plain);
  return is_named(c, whole, true);
}

static bool is_known(const tri_model_config *c, const char *name) {
  int layer;
  if (is_named(c, name, false) || is_packed(c, name) || is_extra(c, name) || is_of_cache(c, name)) return true;
  if (tri_tensor_is_passed_over(c, name)) return true;
  for (const char *const *p = c->arch->ignored_tensors; *p; p++)
    if (matches(c, *p, 1 << 20, 1 << 20, name, &layer)) return true;
  return false;
}

/* GPTQ's tools store a bias for layers that have none: zeros. */
static bool is_no_bias(const tri_load *l, const tri_st_tensor *t) {
  enum { MOST = 1 << 20 };
  static const char bias[] = ".bias";
  const tri_model_config *c = l->c;
  size_t n = strlen(t->name), end = sizeof bias - 1;
  char layer[320];
  bool zero = false;
  if (c->stored.method != TRI_STORED_GPTQ && c->stored.method != TRI_STORED_AWQ) return false;
  if (n <= end || n >= sizeof layer - end || strcmp(t->name + n - end, bias) || t->bytes > MOST) return false;
  snprintf(layer, sizeof layer, "%.*s.qweight", (int)(n - end), t->name);
  if (!tri_checkpoint_find(l->ckpt, layer) || !is_packed(c, layer)) return false;
  char *bytes = tri_malloc(t->bytes + 1, 1);
  zero = bytes && pread(tri_checkpoint_fd(l->ckpt, t->file), bytes, t->bytes, (off_t)t->offset) == (ssize_t)t->bytes;
  for (uint64_t i = 0; zero && i < t->bytes; i++) zero = !bytes[i];
  tri_free(bytes);
  return zero;
}

/* A tensor that is not asked for would be a part of the model that is left out. Those of an encoder-decoder are looked
 * through for both. */
tri_status tri_load_check_all_known(const tri_load *l) {
  tri_model_config source;
  if (l->c->feeds_decoder) return TRI_OK;
  if (l->c->seq2seq.on) tri_model_config_source(l->c, &source);
  for (size_t i = 0; i < tri_checkpoint_num_tensors(l->ckpt); i++) {
    const tri_st_tensor *t = tri_checkpoint_tensor(l->ckpt, i);
    const char *name = t->name;
    if (!is_known(l->c, name) && !(l->c->seq2seq.on && is_known(&source, name)) && !is_no_bias(l, t))
      return tri_fail(l->err, TRI_UNSUPPORTED, name, "the checkpoint's tensor %.80s is not a part of %s", name,
                      l->c->arch->model_type);
  }
  return TRI_OK;
}
