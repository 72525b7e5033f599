/* SPDX-License-Identifier: Apache-2.0 */
/* Symmetric int8: numbers are q * scale with q in -127 .. 127, the largest magnitude at 127. Weights are quantised per
 * output channel when they are loaded (the row-wise scheme of Dettmers et al., "LLM.int8()", 2022, section 2.1, without
 * its outliers); activations as they come, each TRI_INT8_GROUP of a row's elements with a scale of their own: one
 * outlier then costs its group alone its precision. FP8 is the same with 448 in the place of 127; rows that meet
 * weights with a scale for each row have one scale, since the library's GEMMs take no other. */
#ifndef TRI_KERNELS_QUANTIZE_H
#define TRI_KERNELS_QUANTIZE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/tensor.h"

enum { TRI_INT8_GROUP = 128 }; /* the last group of a row may be shorter */
static inline int tri_int8_groups(int k) { return (k + TRI_INT8_GROUP - 1) / TRI_INT8_GROUP; }

/* A row, or a group of one, is multiplied with this factor before it is rounded to the nearest integer, to even on a
 * tie, all in float32. A row of next to nothing becomes zeros. */
static inline float tri_quantize_factor(float max) { return max > 1e-30f ? 127 / max : 0; }
static inline float tri_quantize_scale(float max) { return max > 1e-30f ? max / 127 : 0; }

static inline int8_t tri_quantize_one(float x, float factor) { return (int8_t)lrintf(x * factor); }

/* The same for weights of either 8-bit type, I8 or F8_E4M3, whose largest magnitude is 127 or 448. */
static inline float tri_rounding_limit(tri_dtype t) { return t == TRI_I8 ? 127 : TRI_F8_E4M3_MAX; }
static inline float tri_rounding_factor(tri_dtype t, float max) {
  return max > 1e-30f ? tri_rounding_limit(t) / max : 0;
}
static inline float tri_rounding_scale(tri_dtype t, float max) {
  return max > 1e-30f ? max / tri_rounding_limit(t) : 0;
}
/* Elements of a row of x that have one scale where x is rounded to the type of such weights. */
static inline int tri_rounding_group(const tri_weight *w) {
  return w->dtype == TRI_I8 || tri_weight_is_blocked(w) ? TRI_INT8_GROUP : w->k;
}
/* Rounds n numbers times factor to elements `first` .. first + n - 1 of such a type. */
void tri_round_elements(void *out, tri_dtype t, size_t first, const float *x, size_t n, float factor);

/* The largest magnitude of x and *max. False where an element is not finite: such a row has no scale. */
bool tri_quantize_max(const float *x, size_t n, float *max);

/* Elements first .. first + n - 1 of F32, F16 or BF16 as float32. */
void tri_widen(float *out, const void *src, tri_dtype dtype, size_t first, size_t n);

/* The other way: n floats to elements first .. first + n - 1 of F32, F16 or BF16, rounded to the nearest. */
void tri_narrow(void *out, tri_dtype dtype, size_t first, const float *x, size_t n);

#endif
