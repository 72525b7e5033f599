/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up weights: every element is a function of a key and of its place in the whole model's tensor, so that every
 * backend and every layout makes the same ones, bit for bit. */
#ifndef TRI_KERNELS_RANDOM_H
#define TRI_KERNELS_RANDOM_H

#include <stdint.h>

#include "kernels/backend.h"
#include "base/hash.h"

/* A counter-based generator (the finaliser of SplitMix64, Steele et al. 2014): no state, any order. */
TRI_HASH_FN uint64_t tri_random_mix(uint64_t x) { return tri_mix64(x + TRI_SPLITMIX_STEP); }

/* In [-1, 1), a multiple of 2^-23: exact in float32. */
TRI_HASH_FN float tri_random_unit(uint64_t key, int64_t row, int64_t col) {
  return (float)(tri_random_mix(key ^ ((uint64_t)row << 32 | (uint64_t)col)) >> 40) * 0x1p-23f - 1;
}

/* Element (r, c) of `rows` x `cols` at `to`, whose rows are `ld` elements apart, becomes mean + width *
 * tri_random_unit(key, first_row + r * row_step, first_col + c), in float32 with a rounding after each of the two, then
 * rounded to dtype: F32, F16, BF16, F8_E4M3 as 448 / width times that, or I8 as kernels/quantize.h has it for rows
 * whose largest magnitude is width (which none exceeds as mean is 0 then), with that scale for each row at `scales`. */
typedef struct tri_random_fill {
  void *to;
  float *scales; /* [rows]; I8 only */
  tri_dtype dtype;
  int64_t rows, cols, ld;
  int64_t first_row, row_step, first_col;
  uint64_t key;
  float mean, width;
} tri_random_fill;

/* On the host's memory, by the backend's pool. */
void tri_random_fill_host(tri_backend *be, const tri_random_fill *fill);

#endif
