/* SPDX-License-Identifier: Apache-2.0 */
/* Tactics: how a device runs a GEMM for which it has several kernels. What was measured is kept by shape,
 * and written down as text.
 *
 *   trireme-tactics 1
 *   for NVIDIA H200, sm_90, 132 SMs, cuBLASLt 130100
 *   linear m 8 n 6144 k 4096 w bfloat16 x bfloat16 out float32 act none bias 0 add 0 use gemm ns 15110 default 15110
 *   linear m 16 n 4096 k 4096 w bfloat16 ... use algo 42 1c00000012 0 0 0 0 0 0 check 9f3a01b2 ns 9120 default 10480 #
 * ...
 *
 * The first line names the format. What follows a `for` line is for that device and library alone. Lines may be empty
 * or begin with '#'. An algorithm is the library's own words, which its documentation allows to be kept for the same
 * version; after '#' it is described for people. `check` is a sum over the shape and those words, so that no damaged
 * ones reach the library. A text with a line that is not understood is refused as a whole. */
#ifndef TRI_KERNELS_GEMM_TACTICS_H
#define TRI_KERNELS_GEMM_TACTICS_H

#include "kernels/backend.h"

enum {
  TRI_TACTIC_WORDS = 8,
  TRI_TACTIC_NOTE = 128,
  TRI_TACTICS_MOST = 1 << 14,     /* in one table */
  TRI_TACTICS_TEXT_MOST = 8 << 20 /* bytes of a text */
};

/* DEFAULT: what the backend does without a tactic; it was measured to be the fastest. OWN: its own kernel. GEMM: the
 * library's plain GEMM, as the library chooses its kernel. ALGO: the library's GEMM with these words for its
 * algorithm. A tactic that cannot be used is as DEFAULT. */
typedef enum tri_tactic_kind {
  TRI_TACTIC_DEFAULT,
  TRI_TACTIC_OWN,
  TRI_TACTIC_GEMM,
  TRI_TACTIC_ALGO,
  TRI_TACTIC_COUNT
} tri_tactic_kind;

/* A tactic depends on this; it is ints alone, so that shapes can be compared as bytes. */
typedef struct tri_gemm_shape {
  int32_t m, n, k;
  int32_t w, x, out; /* tri_dtype: of weights, inputs, outputs */
  int32_t act;       /* tri_act */
  int32_t bias, add; /* 0 or 1 */
} tri_gemm_shape;
_Static_assert(sizeof(tri_gemm_shape) == 9 * sizeof(int32_t), "no gaps");

typedef struct tri_tactic {
  tri_gemm_shape shape;
  tri_tactic_kind kind;
  uint64_t words[TRI_TACTIC_WORDS]; /* ALGO only */
  int32_t ns, default_ns;           /* of one launch, with this tactic and the default one */
  char note[TRI_TACTIC_NOTE];       /* printable ASCII, for people; may be empty */
} tri_tactic;

typedef struct tri_tactics {
  tri_tactic *slots; /* [capacity], open addressing; m 0: empty */
  size_t capacity, count;
} tri_tactics;

tri_status tri_tactics_create(tri_tactics **out);
void tri_tactics_destroy(tri_tactics *c); /* NULL is fine */
/* Replaces what is there for the shape. TRI_TOO_LARGE beyond TRI_TACTICS_MOST. */
tri_status tri_tactics_put(tri_tactics *c, const tri_tactic *tactic);
/* Puts all of `from`, whose tactics replace those of the same shape; TRI_TOO_LARGE: none of them. */
tri_status tri_tactics_put_all(tri_tactics *c, const tri_tactics *from);

/* For exactly this shape; NULL: none. */
const tri_tactic *tri_tactics_get(const tri_tactics *c, const tri_gemm_shape *shape);
/* For this shape, or the one with as many rows as tri_padded_rows says: kernels work through rows in tiles, so that
 * what was measured for a few rows more serves as well. NULL: none, or the default one. Allocates nothing. */
const tri_tactic *tri_tactics_find(const tri_tactics *c, const tri_gemm_shape *shape);

static inline tri_gemm_shape tri_gemm_shape_of(const tri_linear_args *a) {
  return (tri_gemm_shape){.m = a->x.rows,
                          .n = a->w.n,
                          .k = a->w.k,
                          .w = (int32_t)a->w.dtype,
                          .x = (int32_t)a->x.dtype,
                          .out = (int32_t)a->out.dtype,
                          .act = (int32_t)a->act,
                          .bias = a->bias != NULL,
                          .add = a->accumulate};
}

/* The next of 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, ...: the numbers of rows that tactics are measured for. n is at most
 * 1 << 24. */
static inline int tri_padded_rows(int n) {
  int size = 1;
  while (size < n) size *= 2;
  if (size > 16 && n <= size / 4 * 3) size = size / 4 * 3;
  return size;
}

/* Puts those of a text's tactics that are for `key`; all or, where the text is refused (TRI_CORRUPT, TRI_TOO_LARGE),
 * none. name: where the text comes from, for messages. *num, which may be NULL: how many they were. */
tri_status tri_tactics_read(tri_tactics *c, const char *text, size_t len, const char *key, const char *name, int *num,
                            tri_error *err);
/* The table as a text for `key`, one printable line, in the order of shapes; free *out with tri_free. */
tri_status tri_tactics_write(const tri_tactics *c, const char *key, char **out, size_t *len);

#endif
