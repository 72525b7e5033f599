/* SPDX-License-Identifier: Apache-2.0 */
/* A block of columns of a GEMM with a weight, on the caller's thread: what linear layers, experts and per-head
 * GEMMs have in common. Few rows of x: dot products, which read every weight once and convert it in registers. More:
 * outer products with panels of weights, widened and turned in a workspace that fits the first-level cache, or, with
 * weights that have no more bits than bfloat16, the same in tile registers. Many: the same columns through
 * single-threaded BLAS, the weights widened piece by piece for the second-level cache. */
#ifndef TRI_KERNELS_CPU_GEMM_H
#define TRI_KERNELS_CPU_GEMM_H

#include "kernels/cpu/cpu.h"

typedef enum tri_cpu_gemm_algorithm {
  TRI_ALGORITHM_DOTS,
  TRI_ALGORITHM_PACKED_DOTS,
  TRI_ALGORITHM_PANELS,
  TRI_ALGORITHM_TILES,
  TRI_ALGORITHM_BLAS
} tri_cpu_gemm_algorithm;

/* out = act(x w^T + bias), or out +=, for n columns of out: those of the rows of w. */
typedef struct tri_cpu_gemm {
  const tri_cpu_isa *isa;
  tri_cpu_gemm_algorithm algorithm;
  const float *x; /* row i is at x + i * ldx, or, where rows is given, at x + rows[i] * ldx */
  size_t ldx;
  const int32_t *rows;
  int m;
  tri_weight w;      /* the rows of this block alone, and their scales */
  const float *bias; /* [n] or NULL */
  tri_act act;
  bool accumulate;
  float *out;
  size_t ldo;
} tri_cpu_gemm;

/* The algorithm is chosen by this. Deterministic mode knows only dot products, whose sums do not depend on the number
 * of rows. scattered: the rows of x are given one by one. */
typedef struct tri_cpu_gemm_shape {
  int m, k;
  bool deterministic, scattered, use_blas;
  bool tiles;  /* tri_cpu_has_tiles of the weight */
  bool direct; /* no activation between GEMM and accumulation: it would need a place of its own for the GEMM */
} tri_cpu_gemm_shape;
/* Returns whether tile registers take the weight as it is. */
bool tri_cpu_has_tiles(const tri_cpu_isa *isa, const tri_weight *w);
tri_cpu_gemm_algorithm tri_cpu_gemm_choose(const tri_cpu_gemm_shape *s);

/* Floats of scratch for a block of up to n columns and m rows; ldx tells whether rows must be moved apart. */
size_t tri_cpu_gemm_scratch(const tri_cpu_isa *isa, tri_cpu_gemm_algorithm algorithm, tri_dtype dtype, int m, int n,
                            size_t ldx, bool scattered);

void tri_cpu_gemm_run(const tri_cpu_gemm *p, float *scratch);

/* The same with rows of x that are integers already (see tri_linear_args' rounds_rows), in dot products only:
 * groups are added in one order, so a row's bits never depend on the batch. */
typedef struct tri_cpu_gemm_int8 {
  const tri_cpu_isa *isa;
  const int16_t *x;    /* [m, tri_int8_row(k)] */
  const float *scales; /* [m, tri_int8_groups(k)] */
  int m;
  tri_weight w; /* a block of rows */
  const float *bias;
  tri_act act;
  bool accumulate;
  float *out;
  size_t ldo;
} tri_cpu_gemm_int8;
size_t tri_int8_row(int k);     /* elements */
size_t tri_int8_scratch(int n); /* bytes, for a block of up to n columns */
void tri_cpu_gemm_int8_run(const tri_cpu_gemm_int8 *p, void *scratch);

/* Columns of a block of `total` ones, a few blocks for each of the threads, on whose sizes the algorithms work best. */
int tri_cpu_gemm_block(const tri_cpu_isa *isa, tri_cpu_gemm_algorithm algorithm, int total, int threads);

#endif
