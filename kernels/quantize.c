#include "kernels/quantize.h"

void tri_widen(float *out, const void *src, tri_dtype dtype, size_t first, size_t n) {
  const uint16_t *half = (const uint16_t *)src + first;
  switch (dtype) {
  case TRI_BF16:
    for (size_t i = 0; i < n; i++) out[i] = tri_bf16_to_f32(half[i]);
    return;
  case TRI_F16:
    for (size_t i = 0; i < n; i++) out[i] = tri_f16_to_f32(half[i]);
    return;
  default: memcpy(out, (const float *)src + first, n * sizeof *out); return;
  }
}

bool tri_quantize_max(const float *x, size_t n, float *max) {
  bool finite = true;
  float m = *max;
  for (size_t i = 0; i < n; i++) {
    float a = fabsf(x[i]);
    finite &= a <= 3.402823466e+38f;
    m = a > m ? a : m;
  }
  *max = m;
  return finite;
}

tri_status tri_quantize_rows(const void *src, tri_dtype dtype, size_t n, size_t k, int8_t *out, float *scale) {
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
    float factor = tri_quantize_factor(max);
    scale[row] = tri_quantize_scale(max);
    for (size_t i = 0; i < k; i += PIECE) {
      size_t m = k - i < PIECE ? k - i : PIECE;
      tri_widen(piece, src, dtype, row * k + i, m);
      for (size_t j = 0; j < m; j++) out[i + j] = tri_quantize_one(piece[j], factor);
    }
  }
  return TRI_OK;
}
