/* FP8 e4m3 with scales of blocks (DeepSeek-V3: 128 x 128), of rows, or of the whole matrix. */
#include <math.h>

#include "runtime/load/widen.h"

/* Numbers of one exponent, of both signs; the smallest have none. */
#define SEVEN(unit, from)                                                                                              \
  (from + 0) * (unit), (from + 1) * (unit), (from + 2) * (unit), (from + 3) * (unit), (from + 4) * (unit),             \
      (from + 5) * (unit), (from + 6) * (unit)
#define EXPONENT(unit) SEVEN(unit, 8), 15 * (unit)
#define NUMBERS(s)                                                                                                     \
  SEVEN(s 0x1p-9f, 0), 7 * (s 0x1p-9f), EXPONENT(s 0x1p-9f), EXPONENT(s 0x1p-8f), EXPONENT(s 0x1p-7f),                 \
      EXPONENT(s 0x1p-6f), EXPONENT(s 0x1p-5f), EXPONENT(s 0x1p-4f), EXPONENT(s 0x1p-3f), EXPONENT(s 0x1p-2f),         \
      EXPONENT(s 0x1p-1f), EXPONENT(s 0x1p0f), EXPONENT(s 0x1p1f), EXPONENT(s 0x1p2f), EXPONENT(s 0x1p3f),             \
      EXPONENT(s 0x1p4f), SEVEN(s 0x1p5f, 8), s NAN

static const float numbers[256] = {NUMBERS(+), NUMBERS(-)};

static void decode(const uint8_t *codes, size_t first, size_t n, float *out) {
  codes += first;
  for (size_t i = 0; i < n; i++) out[i] = numbers[codes[i]];
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
