/* SPDX-License-Identifier: Apache-2.0 */
/* A piece of a file on its way to the weights: it is copied, converted, transposed or quantised. Each finish has the
 * same three steps: room for the result, the work shared among the pool's threads by rows or elements, and a copy to
 * the weight that is queued. Plain copies need no room: the copy takes the slice's columns straight from the read
 * buffer.
 *
 * int8 has one scale for each row of the whole model's matrix (kernels/quantize.h). So magnitudes are taken over the
 * whole row of the file, also where the rank keeps some of its columns. */
#include <stdatomic.h>
#include <string.h>

#include "kernels/quantize.h"
#include "runtime/load/load_impl.h"

enum { WORTH_THREADS = 16 << 10 };

/* A part of a piece's work, for one thread of the pool. */
struct work {
  const tri_piece *p;
  const char *data;
  void *out;
  float *scales;
  float *max;
  atomic_bool not_finite;
};

void tri_load_share(const tri_load *l, size_t bytes, void (*fn)(void *, int, int), void *w) {
  if (bytes < WORTH_THREADS)
    fn(w, 0, 1);
  else
    tri_pool_run(l->be->pool, fn, w);
}

/* n elements from `first` on, `stride` apart, to element `at` of dst: bytes are moved where the type stays, and a
 * contiguous run of 16-bit numbers is widened by vectors; the rest goes one by one. */
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

char *tri_load_destination(const tri_load *l, const tri_piece *p, int64_t row, int64_t col) {
  return l->to + p->place.offset +
         (size_t)((p->slice.dst_row + row) * p->k + p->slice.dst_col + col) * tri_dtype_size(p->place.dtype);
}

void tri_load_send_rows(tri_load *l, const tri_piece *p, const void *from, size_t from_pitch) {
  size_t size = tri_dtype_size(p->place.dtype);
  tri_load_pipe_send(l->pipe, tri_load_destination(l, p, p->first, 0), (size_t)p->k * size, from, from_pitch,
                     (size_t)p->slice.cols * size, (size_t)p->count);
}

tri_status tri_load_finish_copy(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  (void)pipe;
  tri_load_send_rows(p->ctx, p, data + p->skip, p->from_pitch);
  return TRI_OK;
}

/* Elements in the order of rows. */
static void convert_share(void *ctx, int index, int count) {
  const struct work *w = ctx;
  const tri_piece *p = w->p;
  tri_dtype from = p->tensor->dtype;
  int64_t cols = p->slice.cols, all = p->count * cols, end = tri_load_part_begin(all, index + 1, count);
  for (int64_t i = tri_load_part_begin(all, index, count), n; i < end; i += n) {
    int64_t row = i / cols, col = i % cols;
    n = cols - col < end - i ? cols - col : end - i;
    convert(w->data + (size_t)row * p->from_pitch + p->skip, from, (size_t)col, 1, w->out, p->place.dtype, (size_t)i,
            (size_t)n);
  }
}

tri_status tri_load_finish_convert(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  tri_load *l = p->ctx;
  struct work w = {.p = p, .data = data};
  TRI_CHECK(tri_load_pipe_room(pipe, &w.out));
  size_t width = (size_t)p->slice.cols * tri_dtype_size(p->place.dtype);
  tri_load_share(l, width * (size_t)p->count, convert_share, &w);
  tri_load_send_rows(l, p, w.out, width);
  return TRI_OK;
}

tri_status tri_load_not_finite(tri_load *l, const tri_st_tensor *t) {
  return tri_fail(l->err, TRI_UNSUPPORTED, t->name,
                  "tensor %.80s has an element that is not finite: it cannot be quantized", t->name);
}

/* The room of a quantised piece: `rows` scales, then the elements. */
static tri_status take_quantized(tri_load *l, struct work *w, int64_t rows) {
  void *room;
  TRI_CHECK(tri_load_pipe_room(l->pipe, &room));
  w->scales = room;
  w->out = w->scales + rows;
  return TRI_OK;
}

void tri_load_send_scales(tri_load *l, const tri_piece *p, const float *scales, int64_t first, int64_t rows) {
  size_t row = (size_t)tri_groups_across(p->place.groups, (int)p->k) * sizeof *scales, bytes = (size_t)rows * row;
  char *to = l->to + p->place.scale_offset + (size_t)(p->slice.dst_row + first) * row;
  tri_load_pipe_send(l->pipe, to, bytes, scales, bytes, bytes, 1);
}

/* Rows, each with its whole in the file; the columns of the slice are kept. */
static void quantize_share(void *ctx, int index, int count) {
  enum { WIDE = 2048 };
  struct work *w = ctx;
  const tri_piece *p = w->p;
  tri_dtype from = p->tensor->dtype, to = p->place.dtype;
  float wide[WIDE];
  size_t whole = (size_t)p->from_pitch / tri_dtype_size(from) / (size_t)p->slice.row_step, cols = (size_t)p->slice.cols;
  for (int64_t r = tri_load_part_begin(p->count, index, count); r < tri_load_part_begin(p->count, index + 1, count);
       r++) {
    const char *row = w->data + (size_t)r * p->from_pitch;
    float max = 0;
    bool finite = true;
    for (size_t i = 0, n; i < whole; i += n) {
      n = whole - i < WIDE ? whole - i : WIDE;
      tri_widen(wide, row, from, i, n);
      finite &= tri_quantize_max(wide, n, &max);
    }
    if (!finite) atomic_store(&w->not_finite, true);
    float factor = tri_rounding_factor(to, max);
    w->scales[r] = tri_rounding_scale(to, max);
    for (size_t i = 0, n; finite && i < cols; i += n) {
      n = cols - i < WIDE ? cols - i : WIDE;
      tri_widen(wide, row, from, (size_t)p->slice.src_col + i, n);
      tri_round_elements(w->out, to, (size_t)r * cols + i, wide, n, factor);
    }
  }
}

tri_status tri_load_finish_quantize(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  (void)pipe;
  tri_load *l = p->ctx;
  struct work w = {.p = p, .data = data};
  TRI_CHECK(take_quantized(l, &w, p->count));
  tri_load_share(l, (size_t)p->count * p->from_pitch, quantize_share, &w);
  if (atomic_load(&w.not_finite)) return tri_load_not_finite(l, p->tensor);
  tri_load_send_scales(l, p, w.scales, p->first, p->count);
  tri_load_send_rows(l, p, w.out, (size_t)p->slice.cols);
  return TRI_OK;
}

void tri_load_send_columns(tri_load *l, const tri_piece *p, const void *from) {
  size_t size = tri_dtype_size(p->place.dtype), width = (size_t)p->count * size;
  tri_load_pipe_send(l->pipe, tri_load_destination(l, p, 0, p->first), (size_t)p->k * size, from, width, width,
                     (size_t)p->slice.rows);
}

static void transpose_share(void *ctx, int index, int count) {
  const struct work *w = ctx;
  const tri_piece *p = w->p;
  tri_dtype from = p->tensor->dtype;
  size_t n = (size_t)p->count;
  for (int64_t r = tri_load_part_begin(p->slice.rows, index, count);
       r < tri_load_part_begin(p->slice.rows, index + 1, count); r++)
    convert(w->data, from, tri_load_file_column(p, r), p->from_pitch / tri_dtype_size(from), w->out, p->place.dtype,
            (size_t)r * n, n);
}

tri_status tri_load_finish_transpose(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  tri_load *l = p->ctx;
  struct work w = {.p = p, .data = data};
  TRI_CHECK(tri_load_pipe_room(pipe, &w.out));
  tri_load_share(l, (size_t)p->count * p->from_pitch, transpose_share, &w);
  tri_load_send_columns(l, p, w.out);
  return TRI_OK;
}

/* The largest magnitude of each row of the weight, a column of the file. */
static void maxima_share(void *ctx, int index, int count) {
  struct work *w = ctx;
  const tri_piece *p = w->p;
  bool finite = true;
  int64_t end = tri_load_part_begin(p->slice.rows, index + 1, count);
  for (int64_t k = 0; k < p->count; k++)
    for (int64_t r = tri_load_part_begin(p->slice.rows, index, count); r < end; r++) {
      float x = tri_load_f32(w->data + (size_t)k * p->from_pitch, p->tensor->dtype, tri_load_file_column(p, r));
      finite &= tri_quantize_max(&x, 1, &w->max[r]);
    }
  if (!finite) atomic_store(&w->not_finite, true);
}

tri_status tri_load_finish_maxima(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  (void)pipe;
  tri_load *l = p->ctx;
  struct work w = {.p = p, .data = data, .max = l->max};
  tri_load_share(l, (size_t)p->count * p->from_pitch, maxima_share, &w);
  return atomic_load(&w.not_finite) ? tri_load_not_finite(l, p->tensor) : TRI_OK;
}

static void quantize_columns_share(void *ctx, int index, int count) {
  struct work *w = ctx;
  const tri_piece *p = w->p;
  for (int64_t r = tri_load_part_begin(p->slice.rows, index, count);
       r < tri_load_part_begin(p->slice.rows, index + 1, count); r++) {
    tri_dtype to = p->place.dtype;
    float factor = tri_rounding_factor(to, w->max[r]);
    w->scales[r] = tri_rounding_scale(to, w->max[r]);
    for (int64_t k = 0; k < p->count; k++) {
      const char *row = w->data + (size_t)k * p->from_pitch;
      float x = tri_load_f32(row, p->tensor->dtype, tri_load_file_column(p, r));
      tri_round_elements(w->out, to, (size_t)(r * p->count + k), &x, 1, factor);
    }
  }
}

tri_status tri_load_finish_quantize_columns(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  (void)pipe;
  tri_load *l = p->ctx;
  struct work w = {.p = p, .data = data, .max = l->max};
  TRI_CHECK(take_quantized(l, &w, p->slice.rows));
  tri_load_share(l, (size_t)p->count * p->from_pitch, quantize_columns_share, &w);
  tri_load_send_scales(l, p, w.scales, 0, p->slice.rows);
  tri_load_send_columns(l, p, w.out);
  return TRI_OK;
}
