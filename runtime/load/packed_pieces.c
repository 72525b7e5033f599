/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of a quantized matrix on their way to the weights: widened, turned where the file has the transpose, rounded
 * to the weight's type, or quantized again.
 *
 * Where the weight lies in host memory, it is written in place, without room and copy. Tiles of the turned way are as
 * wide as two cache lines of float32 (TILE_COLS) and as high as keeps a tile in the first-level cache (TILE_ROWS x
 * TILE_COLS floats are 8 KiB), since columns of the file are strided. */
#include "kernels/quantize.h"
#include "runtime/load/load_impl.h"

enum { WIDE = 1024, TILE_ROWS = 64, TILE_COLS = 32 };

/* A part of a piece's work, for one thread of the pool. */
struct work {
  const tri_piece *p;
  const tri_widen_format *format;
  tri_widen_view view;
  void *out;
  size_t ld; /* elements from a row of out to the next */
  float *scales;
  atomic_bool not_finite;
};

static struct work work_on(const tri_piece *p, const char *data) {
  struct work w = {.p = p, .format = p->side->packed.format, .view = p->side->view};
  w.view.codes = data;
  w.view.first_row = p->begin_row;
  w.view.first_col = p->begin_col;
  return w;
}

/* Elements col .. col + n - 1 of one row of the file. */
static void widen_row(const struct work *w, int64_t row, int64_t col, int64_t n, float *out) {
  tri_widen_rect r = {.row = row, .rows = 1, .col = col, .cols = n};
  tri_widen_elements(w->format, &w->view, &r, out, (size_t)n);
}

/* The pieces' users end here, whatever came of it. */
static tri_status done(const tri_piece *p, tri_status st) {
  tri_load_leave_side(p->side);
  return st;
}

/* The place that a piece's result goes to: the weight itself where that lies in the host's memory, otherwise to the
 * room, from which it is sent on. */
struct target {
  tri_load *l;
  char *room; /* NULL: none is needed */
  size_t taken;
};

static tri_status find_target(tri_load_pipe *pipe, const tri_piece *p, struct target *t) {
  void *room = NULL;
  *t = (struct target){.l = p->ctx};
  if (!t->l->be->host_memory) TRI_CHECK(tri_load_pipe_room(pipe, &room));
  t->room = room;
  return TRI_OK;
}

/* Takes bytes of the room. */
static void *take_room(struct target *t, size_t bytes) {
  char *at = t->room + t->taken;
  t->taken += (bytes + TRI_LOAD_ALIGN - 1) / TRI_LOAD_ALIGN * TRI_LOAD_ALIGN;
  return at;
}

/* Points the work to `rows` rows of `cols` elements of the weight, from row and column `row` and `col` of the piece's
 * slice on, and to the scales of rows from `row` on where it is rounded. */
static void aim(struct target *t, struct work *w, int64_t row, int64_t col, int64_t rows, int64_t cols) {
  const tri_piece *p = w->p;
  int64_t across = tri_groups_across(p->place.groups, (int)p->k);
  w->ld = (size_t)(t->room ? cols : p->k);
  if (!t->room) {
    w->out = tri_load_destination(t->l, p, row, col);
    w->scales = (float *)(void *)(t->l->to + p->place.scale_offset) + (p->slice.dst_row + row) * across;
    return;
  }
  if (p->place.scale_bytes) w->scales = take_room(t, (size_t)(rows * across) * sizeof *w->scales);
  w->out = take_room(t, (size_t)(rows * cols) * tri_dtype_size(p->place.dtype));
}

/* ---- as they lie ---- */

/* Elements in the order of rows. */
static void widen_share(void *ctx, int index, int count) {
  const struct work *w = ctx;
  const tri_piece *p = w->p;
  float wide[WIDE];
  int64_t cols = p->slice.cols, all = p->count * cols, end = tri_load_part_begin(all, index + 1, count);
  for (int64_t i = tri_load_part_begin(all, index, count), n; i < end; i += n) {
    int64_t row = i / cols, col = i % cols;
    n = cols - col < end - i ? cols - col : end - i;
    if (n > WIDE) n = WIDE;
    widen_row(w, p->begin_row + row * p->slice.row_step, p->slice.src_col + col, n, wide);
    tri_narrow(w->out, p->place.dtype, (size_t)row * w->ld + (size_t)col, wide, (size_t)n);
  }
}

/* Rows, each with its whole in the piece; the columns of the slice are kept. */
static void widen_rounded_share(void *ctx, int index, int count) {
  struct work *w = ctx;
  const tri_piece *p = w->p;
  float wide[WIDE];
  int64_t whole = w->view.layout->cols, cols = p->slice.cols;
  int64_t end = tri_load_part_begin(p->count, index + 1, count);
  for (int64_t r = tri_load_part_begin(p->count, index, count); r < end; r++) {
    int64_t row = p->begin_row + r * p->slice.row_step;
    float max = 0;
    bool finite = true;
    for (int64_t i = 0, n; i < whole; i += n) {
      n = whole - i < WIDE ? whole - i : WIDE;
      widen_row(w, row, i, n, wide);
      finite &= tri_quantize_max(wide, (size_t)n, &max);
    }
    if (!finite) atomic_store(&w->not_finite, true);
    float factor = tri_rounding_factor(p->place.dtype, max);
    w->scales[r] = tri_rounding_scale(p->place.dtype, max);
    for (int64_t i = 0, n; finite && i < cols; i += n) {
      n = cols - i < WIDE ? cols - i : WIDE;
      widen_row(w, row, p->slice.src_col + i, n, wide);
      tri_round_elements(w->out, p->place.dtype, (size_t)r * w->ld + (size_t)i, wide, (size_t)n, factor);
    }
  }
}

/* Rows of blocks whose codes and scales stay as they are, and go to places of their own. */
static void split_share(void *ctx, int index, int count) {
  const struct work *w = ctx;
  const tri_piece *p = w->p;
  int64_t across = tri_groups_across(p->place.groups, (int)p->k), end = tri_load_part_begin(p->count, index + 1, count);
  for (int64_t r = tri_load_part_begin(p->count, index, count); r < end; r++) {
    tri_widen_rect row = {
        .row = p->begin_row + r * p->slice.row_step, .rows = 1, .col = p->slice.src_col, .cols = p->slice.cols};
    tri_widen_split_q8_0(&w->view, &row, (int8_t *)w->out + (size_t)r * w->ld, w->scales + r * across);
  }
}

/* The slice's rows of a piece, or its ups. */
static tri_status widen_rows(struct target *t, struct work *w) {
  const tri_piece *p = w->p;
  size_t size = tri_dtype_size(p->place.dtype);
  void (*share)(void *, int, int) = p->place.scale_bytes ? widen_rounded_share : widen_share;
  if (p->place.is_stored) share = split_share;
  aim(t, w, p->first, 0, p->count, p->slice.cols);
  tri_load_share(t->l, (size_t)(p->count * p->slice.cols) * size, share, w);
  if (atomic_load(&w->not_finite)) return tri_load_not_finite(t->l, p->tensor);
  if (!t->room) return TRI_OK;
  if (p->place.scale_bytes) tri_load_send_scales(t->l, p, w->scales, p->first, p->count);
  tri_load_send_rows(t->l, p, w->out, w->ld * size);
  return TRI_OK;
}

tri_status tri_load_finish_widen(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  struct work gates = work_on(p, data), ups = work_on(p, data);
  tri_piece up = *p;
  struct target t;
  up.slice.dst_row = p->up_row;
  up.begin_row++;
  ups.p = &up;
  tri_status st = find_target(pipe, p, &t);
  if (st == TRI_OK) st = widen_rows(&t, &gates);
  if (st == TRI_OK && p->up_row) st = widen_rows(&t, &ups);
  return done(p, st);
}

/* ---- turned ---- */

/* Calls fn for the elements of a piece that are row r of the weight, from its column i of the piece's on: x[0 .. n). A
 * tile of the file at a time is widened, and its columns are gathered. */
static void each_line(const struct work *w, int64_t from, int64_t to,
                      void (*fn)(struct work *w, int64_t r, int64_t i, const float *x, int64_t n), struct work *out) {
  const tri_piece *p = w->p;
  int64_t step = p->slice.row_step, at_once = TILE_COLS / step, rows, n;
  int64_t file_row = p->slice.src_col + p->first;
  bool all_rows = p->finish == tri_load_finish_turn_maxima;
  float tile[TILE_ROWS][TILE_COLS], line[TILE_ROWS];
  if (all_rows) file_row = p->first;
  for (int64_t r = from; r < to; r += rows) {
    rows = to - r < at_once ? to - r : at_once;
    for (int64_t i = 0; i < p->count; i += n) {
      n = p->count - i < TILE_ROWS ? p->count - i : TILE_ROWS;
      tri_widen_rect rect = {
          .row = file_row + i, .rows = n, .col = (int64_t)tri_load_file_column(p, r), .cols = (rows - 1) * step + 1};
      tri_widen_elements(w->format, &w->view, &rect, &tile[0][0], TILE_COLS);
      for (int64_t j = 0; j < rows; j++) {
        for (int64_t k = 0; k < n; k++) line[k] = tile[k][j * step];
        fn(out, r + j, i, line, n);
      }
    }
  }
}

static void turn_share_with(struct work *w, int index, int count,
                            void (*fn)(struct work *w, int64_t r, int64_t i, const float *x, int64_t n)) {
  int64_t rows = w->p->slice.rows;
  each_line(w, tri_load_part_begin(rows, index, count), tri_load_part_begin(rows, index + 1, count), fn, w);
}

static void put_line(struct work *w, int64_t r, int64_t i, const float *x, int64_t n) {
  tri_narrow(w->out, w->p->place.dtype, (size_t)r * w->ld + (size_t)i, x, (size_t)n);
}

static void turn_share(void *ctx, int index, int count) { turn_share_with(ctx, index, count, put_line); }

static void note_max(struct work *w, int64_t r, int64_t i, const float *x, int64_t n) {
  (void)i;
  if (!tri_quantize_max(x, (size_t)n, &w->p->side->max[r])) atomic_store(&w->not_finite, true);
}

static void maxima_share(void *ctx, int index, int count) { turn_share_with(ctx, index, count, note_max); }

tri_status tri_load_finish_turn_maxima(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  tri_load *l = p->ctx;
  struct work w = work_on(p, data);
  (void)pipe;
  tri_load_share(l, (size_t)p->count * p->from_pitch, maxima_share, &w);
  return done(p, atomic_load(&w.not_finite) ? tri_load_not_finite(l, p->tensor) : TRI_OK);
}

static void put_rounded(struct work *w, int64_t r, int64_t i, const float *x, int64_t n) {
  tri_dtype to = w->p->place.dtype;
  float max = w->p->side->max[r];
  w->scales[r] = tri_rounding_scale(to, max);
  tri_round_elements(w->out, to, (size_t)r * w->ld + (size_t)i, x, (size_t)n, tri_rounding_factor(to, max));
}

static void turn_rounded_share(void *ctx, int index, int count) { turn_share_with(ctx, index, count, put_rounded); }

tri_status tri_load_finish_turn(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  struct work w = work_on(p, data);
  struct target t;
  bool rounded = p->place.scale_bytes;
  tri_status st = find_target(pipe, p, &t);
  if (st != TRI_OK) return done(p, st);
  aim(&t, &w, 0, p->first, p->slice.rows, p->count);
  tri_load_share(t.l, (size_t)p->count * p->from_pitch, rounded ? turn_rounded_share : turn_share, &w);
  if (!t.room) return done(p, TRI_OK);
  if (rounded) tri_load_send_scales(t.l, p, w.scales, 0, p->slice.rows);
  tri_load_send_columns(t.l, p, w.out);
  return done(p, TRI_OK);
}
