/* SPDX-License-Identifier: Apache-2.0 */
/* FP8 e4m3 with scales of blocks (DeepSeek-V3: 128 x 128), of rows, or of the whole matrix. */
#include <string.h>

#include "base/widest.h"
#include "runtime/load/widen.h"

/* Returns what a code means: seeeemmm with a bias of 7. Its seven lower bits at bit 20 are a float32's exponent and
 * fraction but for the difference of the biases (127 - 7), which is added. Numbers of the smallest exponent have no
 * hidden bit: they are multiples of 2^-9. S1111111 is NaN, and there is no infinity. Chosen without branches, so that
 * a row is a vector loop. */
static inline float number(uint8_t code) {
  uint32_t size = code & 0x7f, normal = (size << 20) + ((127u - 7) << 23), bits;
  float small = (float)(int32_t)size * 0x1p-9f, x;
  memcpy(&bits, &small, sizeof bits);
  bits = tri_pick(size < 8, bits, normal);
  bits = tri_pick(size == 0x7f, 0x7fc00000u, bits);
  bits |= (uint32_t)(code & 0x80) << 24;
  memcpy(&x, &bits, sizeof x);
  return x;
}

TRI_WIDEST static void decode(const uint8_t *codes, size_t first, size_t n, float *restrict out) {
  codes += first;
  for (size_t i = 0; i < n; i++) out[i] = number(codes[i]);
}

static void widen(const tri_widen_view *v, const tri_widen_rect *r, float *out, size_t ld) {
  tri_widen_by_rows(v, r, decode, NULL, out, ld);
}

const tri_widen_format tri_widen_fp8 = {
    .name = "FP8",
    .widen = widen,
    .codes = ".weight",
    .codes_type = TRI_F8_E4M3,
    .scales = {".weight_scale_inv", ".weight_scale"},
    .ignored = {".input_scale", ".output_scale", ".input_scale_ub", ".activation_scale"},
};
