/* SPDX-License-Identifier: Apache-2.0 */
/* The scales of a matrix whose codes stay as they are in the file.
 *
 * A rank's groups are the file's or parts of them (stored_form.h): a row of the rank's table of scales is a run of one
 * row of the file's, widened to float32. */
#include <stdio.h>

#include "runtime/load/load_impl.h"

tri_status tri_load_check_stored(const tri_load *l, bool packed) {
  const tri_weight_place *at = &l->target->place;
  const tri_widen_layout *f = &l->packed.layout;
  bool blocked = packed && f->group_cols < f->cols;
  bool same = packed && tri_packed_is_codes(&l->packed, at->dtype) &&
              (blocked ? f->group_cols == at->groups.cols && f->group_rows % at->groups.rows == 0 : !at->groups.cols);
  if (same) return TRI_OK;
  char name[160];
  snprintf(name, sizeof name, l->target->rule.name, l->target->layer, l->target->expert);
  return tri_fail(
      l->err, TRI_UNSUPPORTED, name,
      "tensor %s is quantized in another way than the others of its weight: --quantization none widens them", name);
}

/* Rows of the rank's table that begin with group `first`. */
struct rows {
  int64_t groups, each; /* of the slice; rows of the weight that share a row of the table */
};

static struct rows rows_of(const tri_piece *p) {
  int64_t each = p->place.groups.rows > 1 ? p->place.groups.rows : 1;
  return (struct rows){.groups = (p->slice.rows + each - 1) / each, .each = each};
}

/* Returns the row of the file's table that has the scales of the slice's group. */
static int64_t file_row(const tri_piece *p, int64_t group) {
  return (p->slice.src_row + group * rows_of(p).each) / p->group_rows;
}

static int64_t row_scales(const tri_piece *p) { return tri_groups_across(p->place.groups, (int)p->k); }

static tri_status finish_scales(tri_load_pipe *pipe, const tri_piece *p, char *data) {
  tri_load *l = p->ctx;
  int64_t across = row_scales(p);
  void *room;
  TRI_CHECK(tri_load_pipe_room(pipe, &room));
  float *out = room;
  for (int64_t i = 0; i < p->count; i++) {
    const char *row = data + (size_t)(file_row(p, p->first + i) - p->begin_row) * p->from_pitch + p->skip;
    for (int64_t k = 0; k < across; k++) *out++ = tri_load_f32(row, p->scale_type, (size_t)k);
  }
  size_t bytes = (size_t)(p->count * across) * sizeof *out;
  size_t at = (size_t)((p->slice.dst_row / rows_of(p).each + p->first) * across) * sizeof *out;
  tri_load_pipe_send(pipe, l->to + p->place.scale_offset + at, bytes, room, bytes, bytes, 1);
  return TRI_OK;
}

tri_status tri_load_scales(tri_load *l, const tri_slice *s) {
  const tri_packed_tensor *t = &l->packed.scales;
  const tri_widen_layout *f = &l->packed.layout;
  tri_piece p = {.finish = finish_scales, .ctx = l, .tensor = t->tensor, .place = l->target->place, .slice = *s};
  p.k = l->target->k;
  p.group_rows = f->group_rows;
  p.scale_type = f->scale_type;
  p.from_pitch = t->pitch;
  p.skip = (size_t)(s->src_col / f->group_cols) * tri_dtype_size(f->scale_type);
  int64_t groups = rows_of(&p).groups;
  int64_t at_once = (int64_t)(tri_load_pipe_room_bytes(l->pipe) / ((size_t)row_scales(&p) * sizeof(float)));
  int64_t rows_at_once = (int64_t)(l->most / t->pitch); /* of the file */
  if (!at_once || !rows_at_once)
    return tri_fail(l->err, TRI_TOO_LARGE, t->tensor->name, "a row of %.80s has %zu bytes, the limit is %zu",
                    t->tensor->name, t->pitch, l->most);
  for (; p.first < groups; p.first += p.count) {
    p.begin_row = file_row(&p, p.first);
    p.count = groups - p.first < at_once ? groups - p.first : at_once;
    while (file_row(&p, p.first + p.count - 1) - p.begin_row >= rows_at_once) p.count--;
    int64_t rows = file_row(&p, p.first + p.count - 1) + 1 - p.begin_row;
    TRI_CHECK(tri_load_pipe_read(l->pipe, &p, t->base + (uint64_t)p.begin_row * t->pitch, (size_t)rows * t->pitch));
  }
  return TRI_OK;
}
