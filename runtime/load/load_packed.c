/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a quantized matrix: its codes in pieces, as any weight, and before them what they are widened with.
 *
 * Codes whose rows are the weight's are read as a plain matrix is. GPTQ's and AWQ's are the transpose, and so is what
 * latent attention wants of a plain one; either is turned piece by piece. */
#include "runtime/load/load_impl.h"

enum { DIRECT_PIECE_BYTES = 64 << 10, WORD = 8 /* columns that any format's words begin at a multiple of */ };

/* The bytes of a stored row that have some columns. */
struct span {
  int64_t begin_col;
  size_t at, bytes;
};

/* Returns the part of a stored row to read for some columns: whole words or blocks, or the whole row where the part is
 * short or rows do not consist of whole words. */
static struct span span_of(const tri_load *l, int64_t col, int64_t cols) {
  const tri_packed *p = &l->packed;
  int64_t unit = p->layout.block ? p->layout.block->weights : WORD;
  size_t word = (size_t)unit * p->codes.pitch; /* of all columns, so that no type or height matters */
  int64_t all = p->layout.cols, begin = col / unit * unit, end = (col + cols + unit - 1) / unit * unit;
  struct span whole = {0, 0, p->codes.pitch}, s = {.begin_col = begin};
  if (all % unit) return whole;
  s.at = (size_t)(begin / unit) * (word / (size_t)all);
  s.bytes = (size_t)((end - begin) / unit) * (word / (size_t)all);
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

/* The piece is a user of its side from here on, until its finish has left it. */
static tri_status read_codes(tri_load *l, tri_piece *p, uint64_t at, size_t bytes) {
  p->side->users++;
  return tri_load_pipe_read(l->pipe, p, l->packed.codes.base + at, bytes);
}

/* Pieces wait for the reads of their side (waits_for): the disk may give both in any order. */
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
  const tri_weight_place *place = &l->target->place;
  bool rounded = place->scale_bytes && !place->is_stored;
  size_t pitch = l->packed.codes.pitch, scales = (size_t)tri_groups_across(place->groups, (int)l->target->k);
  struct span span = rounded ? (struct span){0, 0, pitch} : span_of(l, s->src_col, s->cols);
  tri_piece p = piece_of(l, s, side, tri_load_finish_widen);
  size_t becomes = (size_t)s->cols * tri_dtype_size(place->dtype) + (place->scale_bytes ? scales * sizeof(float) : 0);
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
  if (p->place.scale_bytes) /* in addition to the scales */
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
static tri_status load_turned_rounded(tri_load *l, const tri_slice *s, tri_side *side) {
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
  TRI_CHECK(tri_load_begin_side(l, s->src_row, (s->rows - 1) * s->row_step + 1 + (up_row != 0), &side));
  TRI_CHECK(load_rows(l, s, up_row, side));
  tri_load_leave_side(side);
  return TRI_OK;
}

/* Chooses the way by orientation and type. Gates and ups in turn are read once for both: tri_shard_slices gives the
 * gates' rows first, which are remembered, and then the ups'. */
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
  if (l->target->place.scale_bytes) {
    TRI_CHECK(tri_load_begin_side(l, 0, p->layout.rows, &side));
    TRI_CHECK(load_turned_rounded(l, s, side));
  } else {
    TRI_CHECK(tri_load_begin_side(l, s->src_col, s->cols, &side));
    TRI_CHECK(load_turned(l, s, side));
  }
  tri_load_leave_side(side);
  return TRI_OK;
}
