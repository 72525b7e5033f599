/* SPDX-License-Identifier: Apache-2.0 */
/* Whole rows to int8 by the product's functions, which it calls for pieces as they are loaded. */
#ifndef TRI_TESTS_UNIT_QUANTIZE_ROWS_H
#define TRI_TESTS_UNIT_QUANTIZE_ROWS_H

#include "kernels/quantize.h"

/* n rows of k elements of F32, F16 or BF16 to int8 and one scale each. TRI_INVALID_ARGUMENT for another type, and where
 * an element is not finite. */
static inline tri_status quantize_rows(const void *src, tri_dtype dtype, size_t n, size_t k, int8_t *out,
                                       float *scale) {
  enum { PIECE = 512 };
  float piece[PIECE];
  if (dtype != TRI_F32 && dtype != TRI_F16 && dtype != TRI_BF16) return TRI_INVALID_ARGUMENT;
  for (size_t row = 0; row < n; row++, out += k) {
    float max = 0;
    for (size_t i = 0; i < k; i += PIECE) {
      size_t m = k - i < PIECE ? k - i : PIECE;
      tri_widen(piece, src, dtype, row * k + i, m);
      if (!tri_quantize_max(piece, m, &max)) return TRI_INVALID_ARGUMENT;
    }
    scale[row] = tri_quantize_scale(max);
    for (size_t i = 0; i < k; i++) {
      tri_widen(piece, src, dtype, row * k + i, 1);
      out[i] = tri_quantize_one(*piece, tri_quantize_factor(max));
    }
  }
  return TRI_OK;
}

#endif
