/* SPDX-License-Identifier: Apache-2.0 */
/* MXFP4 ("OCP Microscaling Formats", 2023): FP4 e2m1, two in a byte, and a power of two for each 32 of a row. */
#include <string.h>

#include "base/widest.h"
#include "runtime/load/widen.h"

enum { AT_ONCE = 256 };

/* Returns what a code means: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and the same below zero. It is s eem with a bias of 1,
 * widened as FP8 is; 0 and 1 are multiples of a half. */
static inline float number(uint8_t code) {
  uint32_t size = code & 7, normal = (size << 22) + (126u << 23), bits;
  float small = (float)(int32_t)size * 0.5f, x;
  memcpy(&bits, &small, sizeof bits);
  bits = tri_pick(size < 2, bits, normal);
  bits |= (uint32_t)(code & 8) << 28;
  memcpy(&x, &bits, sizeof x);
  return x;
}

TRI_WIDEST static void numbers(const uint8_t *codes, size_t n, float *restrict out) {
  for (size_t i = 0; i < n; i++) out[i] = number(codes[i]);
}

static void decode(const uint8_t *codes, size_t first, size_t n, float *out) {
  uint8_t each[AT_ONCE];
  for (size_t i = 0, m; i < n; i += m) {
    m = n - i < AT_ONCE ? n - i : AT_ONCE;
    tri_widen_halves(codes, first + i, m, each);
    numbers(each, m, out + i);
  }
}

static void widen(const tri_widen_view *v, const tri_widen_rect *r, float *out, size_t ld) {
  tri_widen_by_rows(v, r, decode, NULL, out, ld);
}

const tri_widen_format tri_widen_mxfp4 = {
    .name = "MXFP4",
    .widen = widen,
    .codes = "_blocks",
    .codes_type = TRI_U8,
    .scales = {"_scales"},
};
