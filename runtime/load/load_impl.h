/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the loader share this. loader.c decides which bytes of the files are needed, load_packed.c does so for
 * quantized matrices; load_pipe.c reads them, and calls a `finish` of load_pieces.c or packed_pieces.c for each piece,
 * which makes weights of them. All of it is one thread; a finish shares its work among the pool's. */
#ifndef TRI_RUNTIME_LOAD_LOAD_IMPL_H
#define TRI_RUNTIME_LOAD_LOAD_IMPL_H

#include <stdatomic.h>

#include "runtime/load/load_pipe.h"
#include "runtime/load/packed.h"

enum { TRI_LOAD_ALIGN = 64 }; /* of what a piece becomes */

/* Scales, zero points and order of inputs: what a slice of a quantized matrix needs in addition to its codes. It is
 * freed when the last piece of the codes is done. */
typedef struct tri_side {
  tri_packed packed;
  tri_widen_view view; /* but for the codes */
  void *memory[3];     /* scales, zero points, order */
  float *max;          /* [slice's rows] of a turned one that is quantized again: magnitudes */
  int missing, users;  /* reads under way; pieces, and the caller that asks for them */
  struct tri_side *next, **at;
} tri_side;

/* Fills weights from a checkpoint, or only finds out where in its files they lie. */
typedef struct tri_load {
  tri_backend *be;
  const tri_model_config *c;
  const tri_shard *s;
  const tri_checkpoint *ckpt;
  tri_error *err;
  tri_load_pipe *pipe;
  size_t most; /* bytes of a piece */
  char *to;    /* the memory that places count in */
  /* to find out: what to do with a run of bytes that is the weights' as it is, `at` bytes into that memory, and whether
   * there was anything else */
  tri_status (*found)(void *ctx, const tri_st_tensor *t, uint64_t offset, size_t bytes, size_t at);
  void *found_ctx;
  bool found_others;
  /* of the tensor at hand */
  const tri_st_tensor *tensor;
  const tri_weight_target *target;
  int64_t file_rows, file_cols; /* of the tensor as stored; of experts, of one */
  bool transposed;              /* it is stored [in, out] */
  uint64_t base;                /* where the expert at hand begins in a stacked tensor, in bytes */
  float *max;                   /* [slice's rows] of a stored transpose that is quantised: magnitudes */
  tri_packed packed;            /* of a quantized matrix */
  tri_slice gates;              /* of one whose ups come next */
  tri_side *sides;              /* all that there are */
} tri_load;

/* loader.c: a tensor, for tri_weights_each. ctx: a tri_load. */
tri_status tri_load_tensor(void *ctx, const tri_weight_target *t);
/* Refuses a checkpoint with tensors that are no part of the model. */
tri_status tri_load_check_all_known(const tri_load *l);

/* load_scales.c: refuses a tensor whose codes do not have the form that its weight keeps; packed: it has codes. */
tri_status tri_load_check_stored(const tri_load *l, bool packed);
/* Reads the scales of a rectangle whose codes stay as they are. */
tri_status tri_load_scales(tri_load *l, const tri_slice *s);

/* load_packed.c: a rectangle of the quantized matrix that is at hand, for tri_shard_slices. ctx: a tri_load. */
tri_status tri_load_packed(void *ctx, const tri_slice *s);

/* packed_side.c: begins to read what the elements of some of the file's rows need. The side has one user, the caller.
 */
tri_status tri_load_begin_side(tri_load *l, int64_t row, int64_t rows, tri_side **out);
/* Ends one use of a side; the last one frees it. */
void tri_load_leave_side(tri_side *side);
/* Frees those that a failure has left. */
void tri_load_free_sides(tri_load *l);

/* dummy.c: made-up weights of a map, to `to`, where its places count from, on the backend's compute stream. */
tri_status tri_dummy_fill(const tri_weights_config *config, const tri_weight_map *m, int part, char *to);

/* load_pieces.c: each sends what a piece comes to where it belongs (see load_pipe.h). */
tri_status tri_load_finish_copy(tri_load_pipe *pipe, const tri_piece *p, char *data);
tri_status tri_load_finish_convert(tri_load_pipe *pipe, const tri_piece *p, char *data);
tri_status tri_load_finish_quantize(tri_load_pipe *pipe, const tri_piece *p, char *data);
tri_status tri_load_finish_transpose(tri_load_pipe *pipe, const tri_piece *p, char *data);
/* Rows of a stored transpose: the magnitudes of what they are columns of, then, with those, the integers. */
tri_status tri_load_finish_maxima(tri_load_pipe *pipe, const tri_piece *p, char *data);
tri_status tri_load_finish_quantize_columns(tri_load_pipe *pipe, const tri_piece *p, char *data);

/* packed_pieces.c: the same for codes: widened as they lie, or turned; quantized again in either way. */
tri_status tri_load_finish_widen(tri_load_pipe *pipe, const tri_piece *p, char *data);
tri_status tri_load_finish_turn(tri_load_pipe *pipe, const tri_piece *p, char *data);
tri_status tri_load_finish_turn_maxima(tri_load_pipe *pipe, const tri_piece *p, char *data);

/* load_pieces.c, for both: shares work among the pool's threads where it is worth it. */
void tri_load_share(const tri_load *l, size_t bytes, void (*fn)(void *, int, int), void *w);
/* Returns where the weight's element lies that is the first of a piece. */
char *tri_load_destination(const tri_load *l, const tri_piece *p, int64_t row, int64_t col);
/* Rows to the weight: `from` has them `from_pitch` bytes apart. */
void tri_load_send_rows(tri_load *l, const tri_piece *p, const void *from, size_t from_pitch);
/* A piece of a stored transpose is some rows of the file: those columns of every row of the weight. */
void tri_load_send_columns(tri_load *l, const tri_piece *p, const void *from);
/* Scales of rows, each of which has groups of its own, from row `first` of the slice on. */
void tri_load_send_scales(tri_load *l, const tri_piece *p, const float *scales, int64_t first, int64_t rows);
tri_status tri_load_not_finite(tri_load *l, const tri_st_tensor *t);

/* Returns where part `index` of `count` begins. */
static inline int64_t tri_load_part_begin(int64_t n, int index, int count) {
  return n / count * index + (n % count) * index / count;
}

/* Returns the column of the file that is this row of a slice of a stored transpose. */
static inline size_t tri_load_file_column(const tri_piece *p, int64_t row) {
  return (size_t)(p->slice.src_row + row * p->slice.row_step);
}

#endif
