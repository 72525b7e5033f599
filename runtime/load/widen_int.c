/* SPDX-License-Identifier: Apache-2.0 */
/* The integers of compressed-tensors: of 8 bits as they are, or of 4 or 8 bits in 32-bit words, lowest bits first, with
 * half of their range added. Zero points lie like the codes, but in words along the outputs;
 * in the first releases they were bytes next to packed codes, too. */
#include "runtime/load/widen.h"

enum { AT_ONCE = 256 };

static void decode_four(const uint8_t *codes, size_t first, size_t n, float *out) {
  uint8_t each[AT_ONCE];
  for (size_t i = 0, m; i < n; i += m) {
    m = n - i < AT_ONCE ? n - i : AT_ONCE;
    tri_widen_halves(codes, first + i, m, each);
    for (size_t j = 0; j < m; j++) out[i + j] = (float)((int)each[j] - 8);
  }
}

static void decode_eight(const uint8_t *codes, size_t first, size_t n, float *out) {
  codes += first;
  for (size_t i = 0; i < n; i++) out[i] = (float)((int)codes[i] - 128);
}

static float zero(const tri_widen_view *v, int64_t row, int64_t group) {
  return ((const int8_t *)v->zeros)[(row - v->first_zero) * v->layout->scale_cols + group];
}

/* Zero points have half of their range added, as codes have. */
static float packed_zero(const tri_widen_view *v, int64_t row, int64_t group) {
  const tri_widen_layout *l = v->layout;
  int64_t each = 32 / l->bits;
  if (l->zeros_are_bytes) return zero(v, row, group);
  uint32_t word = ((const uint32_t *)v->zeros)[(row / each - v->first_zero) * l->scale_cols + group];
  uint32_t code = word >> (row % each * l->bits) & ((1u << l->bits) - 1);
  return (float)((int)code - (1 << (l->bits - 1)));
}

static void widen_packed(const tri_widen_view *v, const tri_widen_rect *r, float *out, size_t ld) {
  tri_widen_by_rows(v, r, v->layout->bits == 4 ? decode_four : decode_eight, packed_zero, out, ld);
}

static void decode(const uint8_t *codes, size_t first, size_t n, float *out) {
  const int8_t *numbers = (const int8_t *)codes + first;
  for (size_t i = 0; i < n; i++) out[i] = numbers[i];
}

static void widen(const tri_widen_view *v, const tri_widen_rect *r, float *out, size_t ld) {
  tri_widen_by_rows(v, r, decode, zero, out, ld);
}

const tri_widen_format tri_widen_packed_int = {
    .name = "pack-quantized",
    .widen = widen_packed,
    .codes = ".weight_packed",
    .codes_type = TRI_I32,
    .scales = {".weight_scale"},
    .zeros = ".weight_zero_point",
    .order = ".weight_g_idx",
    .ignored = {".weight_shape", ".input_scale", ".input_zero_point", ".output_scale"},
};

const tri_widen_format tri_widen_int8 = {
    .name = "int-quantized",
    .widen = widen,
    .codes = ".weight",
    .codes_type = TRI_I8,
    .scales = {".weight_scale"},
    .zeros = ".weight_zero_point",
    .order = ".weight_g_idx",
    .ignored = {".input_scale", ".input_zero_point", ".output_scale"},
};
