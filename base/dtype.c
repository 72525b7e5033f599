/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

#include <math.h>

static const struct {
  size_t bytes;
  const char *safetensors, *flag;
} types[] = {
#define X(name, bytes, st, flag) [TRI_##name] = {bytes, st, flag},
    TRI_DTYPE_LIST(X)
#undef X
};

size_t tri_dtype_size(tri_dtype t) { return types[t].bytes; }
const char *tri_dtype_name(tri_dtype t) { return types[t].flag; }

static bool find(const char *name, bool safetensors, tri_dtype *out) {
  for (int i = 0; i < TRI_DTYPE_COUNT; i++)
    if (!strcmp(name, safetensors ? types[i].safetensors : types[i].flag)) {
      *out = (tri_dtype)i;
      return true;
    }
  return false;
}

bool tri_dtype_from_safetensors(const char *name, tri_dtype *out) { return find(name, true, out); }
bool tri_dtype_from_name(const char *name, tri_dtype *out) { return find(name, false, out); }

float tri_f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff, u;
  if (exp == 31) {
    u = sign | 0x7f800000u | (man << 13);
  } else if (exp) {
    u = sign | ((exp + 112) << 23) | (man << 13);
  } else if (man) { /* subnormal: normalise by shifting the leading one into place */
    int shift = __builtin_clz(man) - 21;
    u = sign | ((uint32_t)(113 - shift) << 23) | ((man << (shift + 13)) & 0x7fffffu);
  } else {
    u = sign;
  }
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* Rounds on the bits: `drop` of the 24 significant bits go, 13 for a normal number and more for a subnormal one, by
 * nearest even. */
uint16_t tri_f32_to_f16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint16_t sign = (uint16_t)((u >> 16) & 0x8000);
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return sign | 0x7e00;
  if (u >= 0x477ff000u) return sign | 0x7c00; /* rounds to 65536 or more */
  if (u < 0x33000001u) return sign;           /* at most half of the smallest subnormal */
  uint32_t exp = u >> 23, man = (u & 0x7fffffu) | 0x800000u;
  int drop = exp >= 113 ? 13 : (int)(126 - exp);
  uint32_t half = 1u << (drop - 1), kept = man >> drop, rest = man & ((half << 1) - 1);
  kept += rest > half || (rest == half && (kept & 1));
  /* The implicit one of a normal number adds one to the exponent field by itself. */
  return (uint16_t)(sign + (exp >= 113 ? ((exp - 113) << 10) + kept : kept));
}

float tri_f8_e4m3_to_f32(uint8_t x) {
  uint32_t exp = x >> 3 & 15, man = x & 7;
  uint32_t bits = (exp + 120) << 23 | man << 20; /* the exponent's bias is 7, and 127 */
  float size = (float)man * 0x1p-9f;
  if (exp) memcpy(&size, &bits, sizeof size);
  if ((x & 0x7f) == 0x7f) size = NAN;
  return x & 0x80 ? -size : size;
}

/* Numbers below 2^-6 are multiples of 2^-9; the eighth of them has the code of 2^-6. Of the others the upper 12 bits
 * stay, of which the exponent's bias changes from 127 to 7. */
uint8_t tri_f32_to_f8_e4m3(float f) {
  float size = fabsf(f);
  uint32_t u, sign = signbit(f) ? 0x80 : 0;
  if (isnan(f)) return (uint8_t)(sign | 0x7f);
  if (size >= TRI_F8_E4M3_MAX) return (uint8_t)(sign | 0x7e);
  if (size < 0x1p-6f) return (uint8_t)(sign | (uint32_t)lrintf(size * 512));
  memcpy(&u, &size, sizeof u);
  u = (u + 0x7ffff + (u >> 20 & 1)) >> 20;
  return (uint8_t)(sign | (u - (120 << 3)));
}

float tri_f8_e8m0_to_f32(uint8_t x) {
  uint32_t u = x ? (uint32_t)x << 23 : 1u << 22; /* 2^-127 is subnormal */
  float f;
  memcpy(&f, &u, sizeof f);
  return x == 0xff ? NAN : f;
}

float tri_load_f32(const void *base, tri_dtype t, size_t i) {
  switch (t) {
  case TRI_F32: return ((const float *)base)[i];
  case TRI_F16: return tri_f16_to_f32(((const uint16_t *)base)[i]);
  case TRI_BF16: return tri_bf16_to_f32(((const uint16_t *)base)[i]);
  case TRI_I8: return ((const int8_t *)base)[i];
  case TRI_I32: return (float)((const int32_t *)base)[i];
  case TRI_I64: return (float)((const int64_t *)base)[i];
  case TRI_U8: return ((const uint8_t *)base)[i];
  case TRI_F8_E4M3: return tri_f8_e4m3_to_f32(((const uint8_t *)base)[i]);
  case TRI_F8_E8M0: return tri_f8_e8m0_to_f32(((const uint8_t *)base)[i]);
  case TRI_DTYPE_COUNT: break;
  }
  return 0;
}

void tri_store_f32(void *base, tri_dtype t, size_t i, float f) {
  if (t == TRI_F32) ((float *)base)[i] = f;
  if (t == TRI_F16) ((uint16_t *)base)[i] = tri_f32_to_f16(f);
  if (t == TRI_BF16) ((uint16_t *)base)[i] = tri_f32_to_bf16(f);
  if (t == TRI_F8_E4M3) ((uint8_t *)base)[i] = tri_f32_to_f8_e4m3(f);
}
