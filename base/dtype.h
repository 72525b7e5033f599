/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, their safetensors names, and scalar conversions (the vector ones live in kernels/). */
#ifndef TRI_BASE_DTYPE_H
#define TRI_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* enum name, bytes, safetensors name, flag name */
/* The first three are types of weights and activations: code tests for them with `<= TRI_BF16`, so that they stay
 * first. */
#define TRI_DTYPE_LIST(X)                                                                                              \
  X(F32, 4, "F32", "float32")                                                                                          \
  X(F16, 2, "F16", "float16")                                                                                          \
  X(BF16, 2, "BF16", "bfloat16")                                                                                       \
  X(I8, 1, "I8", "int8")                                                                                               \
  X(I32, 4, "I32", "int32")                                                                                            \
  X(I64, 8, "I64", "int64")                                                                                            \
  X(U8, 1, "U8", "uint8")                                                                                              \
  X(F8_E4M3, 1, "F8_E4M3", "float8_e4m3fn")                                                                            \
  X(F8_E8M0, 1, "F8_E8M0", "float8_e8m0fnu")

typedef enum tri_dtype {
#define X(name, bytes, st, flag) TRI_##name,
  TRI_DTYPE_LIST(X)
#undef X
      TRI_DTYPE_COUNT
} tri_dtype;

/* Returns the bytes of one element. */
size_t tri_dtype_size(tri_dtype t);
const char *tri_dtype_name(tri_dtype t); /* "bfloat16" */
/* By safetensors name ("BF16") or by flag name ("bfloat16"). */
bool tri_dtype_from_safetensors(const char *name, tri_dtype *out);
bool tri_dtype_from_name(const char *name, tri_dtype *out);

/* Exact: bfloat16 is a float32's upper half. */
static inline float tri_bf16_to_f32(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* Round to nearest even; NaN stays NaN. */
static inline uint16_t tri_f32_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40);
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

/* The types of 8 bits of "OCP Microscaling Formats" (2023) and of FP8: four bits of exponent, three of fraction and no
 * infinity; an exponent alone, of a scale. */
float tri_f8_e4m3_to_f32(uint8_t x);
float tri_f8_e8m0_to_f32(uint8_t x);
#define TRI_F8_E4M3_MAX 448.0f
uint8_t tri_f32_to_f8_e4m3(float f); /* nearest even; beyond 448 becomes 448, NaN stays NaN */

float tri_f16_to_f32(uint16_t h);
uint16_t tri_f32_to_f16(float f); /* nearest even; beyond 65504 becomes infinity */

/* Element i of an array of type t, widened. Integer types convert by value. */
float tri_load_f32(const void *base, tri_dtype t, size_t i);
/* Rounds f into element i; t is F32, F16, BF16 or F8_E4M3. */
void tri_store_f32(void *base, tri_dtype t, size_t i, float f);

#ifdef __cplusplus
}
#endif

#endif
