/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of float32 from and to 16 bits on the host, as loops without branches that compilers turn into vectors
 * (TRI_WIDEST compiles them for several widths, and picks one at run time). */
#include "kernels/quantize.h"

#include "base/widest.h"

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

/* Loops over so many elements, a number that the compiler knows and without a branch, become vector instructions. */
enum { VECTOR = 32 };

/* To nearest even; a NaN becomes a quiet one, as rounding could carry it to infinity. */
static inline void narrow_bf16(uint16_t *out, const float *x) {
  for (int i = 0; i < VECTOR; i++) {
    uint32_t u;
    memcpy(&u, &x[i], sizeof u);
    uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    out[i] = (uint16_t)tri_pick((int32_t)(u & 0x7fffffffu) > 0x7f800000, u >> 16 | 0x40, rounded);
  }
}

/* A number below 2^-14 is added to 0.5, whose last bit is worth what float16's is there. */
static inline void narrow_f16(uint16_t *out, const float *x) {
  for (int i = 0; i < VECTOR; i++) {
    uint32_t u, small;
    memcpy(&u, &x[i], sizeof u);
    int32_t size = (int32_t)(u & 0x7fffffffu);
    float f = fabsf(x[i]) + 0.5f;
    memcpy(&small, &f, sizeof small);
    uint32_t normal = ((uint32_t)size - (112u << 23) + 0xfff + ((uint32_t)size >> 13 & 1)) >> 13;
    uint32_t half = tri_pick(size < 0x38800000, small - 0x3f000000u, normal);
    half = tri_pick(size >= 0x477ff000, 0x7c00, half);
    half = tri_pick(size > 0x7f800000, 0x7e00, half);
    out[i] = (uint16_t)((u >> 16 & 0x8000) | half);
  }
}

TRI_WIDEST static void narrow_all_bf16(uint16_t *restrict out, const float *x, size_t n) {
  for (size_t i = 0; i < n; i += VECTOR) narrow_bf16(out + i, x + i);
}

TRI_WIDEST static void narrow_all_f16(uint16_t *restrict out, const float *x, size_t n) {
  for (size_t i = 0; i < n; i += VECTOR) narrow_f16(out + i, x + i);
}

/* The elements after the last whole vector go through a vector of zeros, so that there is one loop and one rounding. */
void tri_narrow(void *out, tri_dtype dtype, size_t first, const float *x, size_t n) {
  void (*narrow)(uint16_t *, const float *, size_t) = dtype == TRI_F16 ? narrow_all_f16 : narrow_all_bf16;
  uint16_t last[VECTOR], *to = (uint16_t *)out + first;
  float rest[VECTOR] = {0};
  size_t whole = n - n % VECTOR;
  if (dtype == TRI_F32) {
    memcpy((float *)out + first, x, n * sizeof *x);
    return;
  }
  narrow(to, x, whole);
  if (whole == n) return;
  memcpy(rest, x + whole, (n - whole) * sizeof *x);
  narrow(last, rest, VECTOR);
  memcpy(to + whole, last, (n - whole) * sizeof *last);
}

/* Returns the largest bits but the sign's, which are in the order of magnitudes, with those of infinity and NaN after
 * all finite ones. */
TRI_WIDEST static int32_t largest_bits(const float *x, size_t n) {
  int32_t most = 0;
  for (size_t i = 0; i < n; i++) {
    int32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    bits &= INT32_MAX;
    most = bits > most ? bits : most;
  }
  return most;
}

/* Returns the largest magnitude that is a number. */
static float largest_number(const float *x, size_t n, float most) {
  for (size_t i = 0; i < n; i++) {
    float a = fabsf(x[i]);
    most = a > most ? a : most;
  }
  return most;
}

bool tri_quantize_max(const float *x, size_t n, float *max) {
  int32_t bits = largest_bits(x, n);
  float most;
  if (bits > 0x7f7fffff) {
    *max = largest_number(x, n, *max);
    return false;
  }
  memcpy(&most, &bits, sizeof most);
  if (most > *max) *max = most;
  return true;
}

/* The same as tri_f32_to_f8_e4m3 for finite numbers, without branches: a float32 of 1.5 * 2^23 more has the nearest
 * integer in its last bits. */
static inline uint8_t to_f8(float x) {
  float size = fabsf(x), shifted = size * 512 + 0x1.8p23f;
  uint32_t bits, small, sign;
  memcpy(&bits, &size, sizeof bits);
  memcpy(&small, &shifted, sizeof small);
  memcpy(&sign, &x, sizeof sign);
  bits = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3);
  bits = tri_pick(size >= TRI_F8_E4M3_MAX, 0x7e, bits);
  bits = tri_pick(size < 0x1p-6f, small & 0xf, bits);
  return (uint8_t)((sign >> 24 & 0x80) | bits);
}

TRI_WIDEST static void round_to_f8(uint8_t *restrict out, const float *restrict x, size_t n, float factor) {
  for (size_t i = 0; i < n; i++) out[i] = to_f8(x[i] * factor);
}

/* The same as tri_quantize_one where the product is within 2^22: the sum's last bits are its nearest even integer. */
TRI_WIDEST static void round_to_i8(int8_t *restrict out, const float *restrict x, size_t n, float factor) {
  for (size_t i = 0; i < n; i++) {
    float shifted = x[i] * factor + 0x1.8p23f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    out[i] = (int8_t)bits;
  }
}

void tri_round_elements(void *out, tri_dtype t, size_t first, const float *x, size_t n, float factor) {
  int8_t *integers = (int8_t *)out + first;
  if (t == TRI_I8)
    round_to_i8(integers, x, n, factor);
  else
    round_to_f8((uint8_t *)out + first, x, n, factor);
}
