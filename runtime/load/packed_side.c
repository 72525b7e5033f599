/* SPDX-License-Identifier: Apache-2.0 */
/* The side of a quantized matrix's pieces: the scales, zero points and order that its codes are widened with, which are
 * read before them and freed after the last piece that uses them.
 *
 * users counts the pieces that were asked for and the caller while it asks, so that a side outlives a finish that
 * comes before the last piece is asked for. missing counts its own reads: pieces of codes wait until it is 0. */
#include <string.h>

#include "runtime/load/load_impl.h"

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

tri_status tri_load_begin_side(tri_load *l, int64_t row, int64_t rows, tri_side **out) {
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
  if (p->scales.tensor) {
    TRI_CHECK(read_side(l, side, 0, &p->scales, first, end - first));
    side->view.scales = side->memory[0];
  }
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
