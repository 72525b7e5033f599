/* MXFP4 ("OCP Microscaling Formats", 2023): FP4 e2m1, two in a byte, and a power of two for each 32 of a row. */
#include "runtime/load/widen.h"

static const tri_widen_pair numbers[256] = {
    TRI_WIDEN_PAIRS(0.f, 0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f)};

static void decode(const uint8_t *codes, size_t first, size_t n, float *out) {
  tri_widen_halves(codes, first, n, numbers, out);
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
