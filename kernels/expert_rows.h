/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of experts between the ranks of a column (comm/all2all.h), as a communicator that can send a row to those alone
 * who have its experts takes them: `dispatch` and `combine` of comm/comm.h. On device memory of one host. */
#ifndef TRI_KERNELS_EXPERT_ROWS_H
#define TRI_KERNELS_EXPERT_ROWS_H

#include "kernels/ops.h"
#include "kernels/quantize.h"
#include "base/mem.h"

enum { TRI_ROWS_RANKS = 8 };

/* The rows that may come. All ranks give the same. */
typedef struct tri_rows_config {
  int ranks;
  int max_rows; /* of a rank in one round */
  int hidden;   /* elements of a row */
  int top_k;
  tri_dtype type; /* of rows, and of what each rank gives back of them: F32, F16 or BF16 */
  /* The slots that each rank has experts in; other columns' are not listed. */
  int32_t first_slot[TRI_ROWS_RANKS], end_slot[TRI_ROWS_RANKS];
} tri_rows_config;

/* The memory for the rows of all ranks, numbered rank * stride + i. */
typedef struct tri_all2all_rows {
  void *x;          /* [ranks * max_rows, hidden] */
  int32_t *experts; /* [ranks * max_rows, top_k]; -1: none, as of rows that a rank does not have */
  float *weights;   /* [ranks * max_rows, top_k] */
} tri_all2all_rows;

typedef struct tri_rows_dispatch {
  const int32_t *rows; /* [ranks] of each, on the host; not all 0 */
  int stride;          /* the most of them */
  const void *x;       /* this rank's */
  const int32_t *experts;
  const float *weights;
  const tri_moe_route_args *route; /* NULL; or how they are to be routed, to no other place than `all` */
  bool rounded; /* rows travel as e4m3, as below: all ranks give the same; only where tri_rows_can_round */
  tri_all2all_rows all;
} tri_rows_dispatch;

/* Follows the dispatch of the same rows. */
typedef struct tri_rows_combine {
  const int32_t *rows, *all_experts; /* as the dispatch left them */
  int stride;
  const float *y; /* [ranks * stride, hidden] this rank's sums; looked at where one of its slots was chosen */
  float *out;     /* [rows[rank], hidden] the sum over the ranks, added in their order */
} tri_rows_combine;

/* ---- boxes: what a rank's memory holds while rows are on their way; kernels/cuda/exchange/all2all.h says why ---- */

enum { TRI_ROWS_VECTOR = 16 }; /* bytes that are sent at once */

/* Vectors of a row, results likewise, and of a row's table: two choices each. */
static inline int tri_rows_vectors(const tri_rows_config *c) {
  return (int)(((size_t)c->hidden * (c->type == TRI_F32 ? 4u : 2u) + TRI_ROWS_VECTOR - 1) / TRI_ROWS_VECTOR);
}
static inline int tri_rows_table_vectors(const tri_rows_config *c) { return (c->top_k + 1) / 2; }

/* Rows of BF16 that GEMMs would round to FP8 anyway may be rounded by their sender: a row travels as codes of e4m3, one
 * after the other, and then a float32 scale for each TRI_INT8_GROUP elements, both as kernels/quantize.h has them, and
 * zeros up to a whole vector. That is half of the bytes. Where the row arrives it becomes BF16 again, each element its
 * code times the scale, rounded to the nearest; a rank's own rows stay as they are.
 *
 * Such rows give the codes and scales that they came with when they are rounded once more: a GEMM that rounds its rows
 * computes the same bits from them as from rows that were sent whole. For BF16 has 8 bits of an element: times the
 * scale the largest code is again the group's largest magnitude, so that the scale is the same, and no other code moves
 * by more than 2^-8 of itself, where it would take 2^-5 to come to its neighbour. (tests/unit/test_rounded_rows.c) */
static inline bool tri_rows_can_round(const tri_rows_config *c) {
  return c->type == TRI_BF16 && c->hidden % TRI_INT8_GROUP == 0;
}
/* Vectors of such a row's codes, which its scales follow. Both have room in the box of a row of BF16. */
static inline int tri_rows_code_vectors(const tri_rows_config *c) { return c->hidden / TRI_ROWS_VECTOR; }

/* Bytes of all boxes of a rank. False: too many to count. */
static inline bool tri_rows_bytes(const tri_rows_config *c, size_t *bytes) {
  size_t vectors = 3 * (size_t)tri_rows_vectors(c) + 2 * (size_t)tri_rows_table_vectors(c), rows;
  return tri_size_mul((size_t)c->ranks, (size_t)c->max_rows, &rows) && tri_size_mul(rows, vectors, &rows) &&
         tri_size_mul(rows, TRI_ROWS_VECTOR, bytes);
}

#endif
