/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a quantized matrix: its codes in pieces, as any weight, and in front of them what they are widened with.
 *
 * Codes whose rows are the weight's are read as a plain matrix is. GPTQ's and AWQ's are the transpose, and so is what
 * latent attention wants of a plain one; either is turned piece by piece. */
#include <string.h>

#include "runtime/load/load_impl.h"

enum { DIRECT_PIECE_BYTES = 64 << 10, WORD = 8 /* columns that any format's words begin at a multiple of */ };

/* ---- scales, zero points, order ---- */

void tri_load_leave_side(tri_side *side) {
  if (--side->users) return;
  *side->at = side->next;
  if (side->next) side->next->at = side->at;
  for (int i = 0; i < 3; i++) tri_free(side->memory[i]);
  tri_free(side->max);
  tri_free(side);
}

void tri_load_free_sides(tri_load *l) {
  while (l->sides) {
    l->sides->users = 1;
    tri_load_leave_side(l->sides);
  }
}

/* Refuses groups that there are no scales for. */
static tri_status check_order(const tri_load *l, const tri_side *side) {
  const tri_widen_layout *at = &side->packed.layout;
  int64_t groups = side->packed.format->inputs_first ? at->scale_rows : at->scale_cols;
  const char *name = side->packed.order.tensor ? side->packed.order.tensor->name : "";
  for (int64_t i = 0; side->view.order && i < side->packed.order.rows; i++)
    if (side->view.order[i] < 0 || side->view.order[i] >= groups)
      return tri_fail(l->err, TRI_CORRUPT, name, "tensor %.80s puts input %lld into group %d, of %lld", name,
                      (long long)i, (int)side->view.order[i], (long long)groups);
  return TRI_OK;
}

static tri_status finish_side(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  tri_side *side = p->side;
  (void)pipe;
  memcpy(p->to, data, (size_t)p->count);
  tri_status st = --side->missing ? TRI_OK : check_order(p->ctx, side);
  tri_load_leave_side(side);
  return st;
}

/* Begins to read stored rows of a tensor to memory of its own. */
static tri_status read_side(tri_load *l, tri_side *side, int number, const tri_packed_tensor *t, int64_t first,
                            int64_t rows) {
  size_t bytes = (size_t)rows * t->pitch;
  uint64_t at = t->base + (uint64_t)first * t->pitch;
  size_t unit = tri_dtype_size(t->tensor->dtype), most = l->most / unit * unit;
  char *to = tri_malloc(bytes, 1);
  side->memory[number] = to;
  if (!to) return tri_fail(l->err, TRI_NO_MEMORY, t->tensor->name, "no memory for %zu bytes of scales", bytes);
  for (size_t done = 0, n; done < bytes; done += n) {
    n = bytes - done < most ? bytes - done : most;
    tri_piece p = {
        .finish = finish_side, .ctx = l, .tensor = t->tensor, .side = side, .to = to + done, .count = (int64_t)n};
    side->missing++;
    side->users++;
    TRI_CHECK(tri_load_pipe_read(l->pipe, &p, at + done, n));
  }
  return TRI_OK;
}

/* Begins to read what the elements of some of the file's rows need. The side has one user, the caller. */
static tri_status begin_side(tri_load *l, int64_t row, int64_t rows, tri_side **out) {
  const tri_packed *p = &l->packed;
  const tri_widen_layout *at = &p->layout;
  bool any_group = p->order.tensor && p->format->inputs_first;
  int64_t first = any_group ? 0 : row / at->group_rows;
  int64_t end = any_group ? at->scale_rows : (row + rows - 1) / at->group_rows + 1;
  tri_side *side = tri_calloc(1, sizeof *side);
  if (!side) return tri_fail(l->err, TRI_NO_MEMORY, "model", "no memory to widen weights");
  side->packed = *p;
  side->users = 1;
  side->next = l->sides;
  side->at = &l->sides;
  if (l->sides) l->sides->at = &side->next;
  l->sides = side;
  side->view = (tri_widen_view){.layout = &side->packed.layout, .pitch = p->codes.pitch, .first_scale = first};
  TRI_CHECK(read_side(l, side, 0, &p->scales, first, end - first));
  side->view.scales = side->memory[0];
  if (p->zeros.tensor) {
    int64_t stored = first / p->zeros.height;
    TRI_CHECK(read_side(l, side, 1, &p->zeros, stored, (end - 1) / p->zeros.height + 1 - stored));
    side->view.zeros = side->memory[1];
    side->view.first_zero = stored;
  }
  if (p->order.tensor) {
    TRI_CHECK(read_side(l, side, 2, &p->order, 0, p->order.rows));
    side->view.order = side->memory[2];
  }
  *out = side;
  return TRI_OK;
}

/* ---- codes ---- */

/* The bytes of a stored row that have some columns. */
struct span {
  int64_t begin_col;
  size_t at, bytes;
};

static struct span span_of(const tri_load *l, int64_t col, int64_t cols) {
  const tri_packed *p = &l->packed;
  size_t word = WORD * p->codes.pitch; /* of all columns, so that no type or height matters */
  int64_t all = p->layout.cols, begin = col / WORD * WORD, end = (col + cols + WORD - 1) / WORD * WORD;
  struct span whole = {0, 0, p->codes.pitch}, s = {.begin_col = begin};
  if (all % WORD) return whole;
  s.at = (size_t)(begin / WORD) * (word / (size_t)all);
  s.bytes = (size_t)((end - begin) / WORD) * (word / (size_t)all);
  return s.bytes < DIRECT_PIECE_BYTES && whole.bytes <= l->most ? whole : s;
}

static tri_status too_long(const tri_load *l, size_t bytes) {
  return tri_fail(l->err, TRI_TOO_LARGE, l->tensor->name, "a row of %.80s has %zu bytes, the limit is %zu",
                  l->tensor->name, bytes, l->most);
}

/* How many stored rows are read at once: as many as a piece holds, and the room what they become. 0: not even one. */
static int64_t rows_at_once(const tri_load *l, size_t pitch, size_t bytes, size_t becomes) {
  size_t n = l->most / pitch, room = (tri_load_pipe_room_bytes(l->pipe) - TRI_LOAD_ALIGN) / becomes;
  if (!n) n = l->most >= bytes; /* the last one ends where its columns do */
  return (int64_t)(n < room ? n : room);
}

static tri_status read_codes(tri_load *l, tri_piece *p, uint64_t at, size_t bytes) {
  p->side->users++;
  return tri_load_pipe_read(l->pipe, p, l->packed.codes.base + at, bytes);
}

static tri_piece piece_of(tri_load *l, const tri_slice *s, tri_side *side,
                          tri_status (*finish)(tri_load_pipe *, const tri_piece *, char *)) {
  return (tri_piece){.finish = finish,
                     .ctx = l,
                     .tensor = l->tensor,
                     .place = l->target->place,
                     .slice = *s,
                     .k = l->target->k,
                     .side = side,
                     .waits_for = &side->missing};
}

/* Rows of the file that are the weight's. up_row not 0: those in between are, too. */
static tri_status load_rows(tri_load *l, const tri_slice *s, int64_t up_row, tri_side *side) {
  bool int8 = l->target->place.dtype == TRI_I8;
  size_t pitch = l->packed.codes.pitch;
  struct span span = int8 ? (struct span){0, 0, pitch} : span_of(l, s->src_col, s->cols);
  tri_piece p = piece_of(l, s, side, tri_load_finish_widen);
  size_t becomes = (size_t)s->cols * tri_dtype_size(p.place.dtype) + (int8 ? sizeof(float) : 0);
  size_t last = up_row ? pitch + span.bytes : span.bytes; /* of the last row, or pair of rows */
  if (up_row) becomes *= 2;
  int64_t at_once = rows_at_once(l, pitch * (size_t)s->row_step, last, becomes);
  if (!at_once) return too_long(l, last > becomes ? last : becomes);
  if (span.bytes < pitch) at_once = 1;
  p.up_row = up_row;
  p.from_pitch = pitch * (size_t)s->row_step;
  p.begin_col = span.begin_col;
  for (; p.first < s->rows; p.first += p.count) {
    p.count = s->rows - p.first < at_once ? s->rows - p.first : at_once;
    p.begin_row = s->src_row + p.first * s->row_step;
    TRI_CHECK(read_codes(l, &p, (uint64_t)p.begin_row * pitch + span.at, (size_t)(p.count - 1) * p.from_pitch + last));
  }
  return TRI_OK;
}

/* Stored rows of the file with the weight's columns from `first` on, `cols` of them. */
static tri_status read_turned(tri_load *l, tri_piece *p, int64_t first, int64_t cols) {
  const tri_packed_tensor *codes = &l->packed.codes;
  int64_t height = codes->height, end = (first + cols - 1) / height + 1, n;
  const tri_slice *s = &p->slice;
  struct span span = span_of(l, s->src_row, (s->rows - 1) * s->row_step + 1);
  size_t becomes = (size_t)s->rows * tri_dtype_size(p->place.dtype) * (size_t)height;
  int64_t at_once = rows_at_once(l, codes->pitch, span.bytes, becomes);
  if (p->place.dtype == TRI_I8) /* beside the scales */
    at_once = rows_at_once(l, codes->pitch, span.bytes, becomes + (size_t)s->rows * sizeof(float));
  if (!at_once) return too_long(l, span.bytes > becomes ? span.bytes : becomes);
  if (span.bytes < codes->pitch) at_once = 1;
  p->from_pitch = codes->pitch;
  p->begin_col = span.begin_col;
  for (int64_t row = first / height; row < end; row += n) {
    n = end - row < at_once ? end - row : at_once;
    int64_t from = row * height > first ? row * height : first, to = (row + n) * height;
    if (to > first + cols) to = first + cols;
    p->begin_row = row * height;
    p->first = from - first;
    p->count = to - from;
    TRI_CHECK(read_codes(l, p, (uint64_t)row * codes->pitch + span.at, (size_t)(n - 1) * codes->pitch + span.bytes));
  }
  return TRI_OK;
}

/* A row's scale needs all of its columns, which are rows of the file: those come in a pass of their own. */
static tri_status load_turned_int8(tri_load *l, const tri_slice *s, tri_side *side) {
  tri_piece maxima = piece_of(l, s, side, tri_load_finish_turn_maxima);
  tri_piece fill = piece_of(l, s, side, tri_load_finish_turn);
  side->max = tri_calloc((size_t)s->rows, sizeof *side->max);
  if (!side->max) return tri_fail(l->err, TRI_NO_MEMORY, "model", "no memory for %lld scales", (long long)s->rows);
  TRI_CHECK(read_turned(l, &maxima, 0, l->packed.layout.rows));
  TRI_CHECK(tri_load_pipe_drain(l->pipe));
  return read_turned(l, &fill, s->src_col, s->cols);
}

static tri_status load_turned(tri_load *l, const tri_slice *s, tri_side *side) {
  tri_piece p = piece_of(l, s, side, tri_load_finish_turn);
  return read_turned(l, &p, s->src_col, s->cols);
}

static tri_status load_plain_rows(tri_load *l, const tri_slice *s, int64_t up_row) {
  tri_side *side = NULL;
  TRI_CHECK(begin_side(l, s->src_row, (s->rows - 1) * s->row_step + 1 + (up_row != 0), &side));
  TRI_CHECK(load_rows(l, s, up_row, side));
  tri_load_leave_side(side);
  return TRI_OK;
}

tri_status tri_load_packed(void *ctx, const tri_slice *s) {
  tri_load *l = ctx;
  const tri_packed *p = &l->packed;
  tri_side *side = NULL;
  if (!s->rows || !s->cols) return TRI_OK;
  if (!p->turned && l->target->rule.part == TRI_PART_GATE_UP_INTERLEAVED) {
    if (s->src_row % 2) return load_plain_rows(l, &l->gates, s->dst_row);
    l->gates = *s; /* the ups come next */
    return TRI_OK;
  }
  if (!p->turned) return load_plain_rows(l, s, 0);
  if (l->target->place.dtype == TRI_I8) {
    TRI_CHECK(begin_side(l, 0, p->layout.rows, &side));
    TRI_CHECK(load_turned_int8(l, s, side));
  } else {
    TRI_CHECK(begin_side(l, s->src_col, s->cols, &side));
    TRI_CHECK(load_turned(l, s, side));
  }
  tri_load_leave_side(side);
  return TRI_OK;
}
