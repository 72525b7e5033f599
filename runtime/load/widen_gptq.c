/* SPDX-License-Identifier: Apache-2.0 */
/* GPTQ and AWQ: [in, out] in 32-bit words. GPTQ's words have codes of inputs that follow each other, lowest bits first,
 * AWQ's those of eight outputs, in the order that its kernels unpack them in. Zero points lie in words along the
 * outputs in both. */
#include "kernels/quantize.h"
#include "runtime/load/widen.h"

enum { COLS = 256 }; /* at once */

/* Output j of eight lies in this part of AWQ's word. */
static const uint8_t awq_part[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* Zero points and scales of some outputs, of one group. */
struct group {
  int64_t number; /* -1: none yet */
  float zero[COLS], scale[COLS];
};

/* Inputs of one group follow each other in most files, so that zero points and scales are unpacked once for a run of
 * rows. */
static void load_group(const tri_widen_view *v, int64_t number, int64_t col, int64_t cols, bool awq, struct group *g) {
  const tri_widen_layout *l = v->layout;
  int each = 32 / l->bits, in_word = each == 8 ? 3 : 2; /* bits of the place in a word */
  const uint32_t *words = (const uint32_t *)v->zeros + (number - v->first_zero) * (l->cols >> in_word);
  size_t scales = (size_t)((number - v->first_scale) * l->scale_cols + col);
  if (g->number == number) return;
  g->number = number;
  for (int64_t j = 0; j < cols; j++) {
    int64_t at = (col + j) & (each - 1), part = awq ? awq_part[at] : at;
    uint32_t code = words[(col + j) >> in_word] >> (part * l->bits) & ((1u << l->bits) - 1);
    g->zero[j] = (float)(int32_t)(code + l->zeros_less_one);
  }
  tri_widen(g->scale, v->scales, l->scale_type, scales, (size_t)cols);
}

static void gptq_row(const tri_widen_view *v, int64_t row, int64_t col, int64_t cols, float *out) {
  int bits = v->layout->bits;
  int64_t each = 32 / bits, stored = (row - v->first_row) / each;
  int shift = (int)(row % each) * bits;
  uint32_t mask = (1u << bits) - 1;
  const uint32_t *words = (const uint32_t *)(const void *)((const char *)v->codes + (size_t)stored * v->pitch);
  words += col - v->first_col;
  for (int64_t j = 0; j < cols; j++) out[j] = (float)(int32_t)(words[j] >> shift & mask);
}

/* Whole words in the middle are unpacked with constant shifts. */
static void awq_row(const tri_widen_view *v, int64_t row, int64_t col, int64_t cols, float *out) {
  const char *codes = (const char *)v->codes + (size_t)(row - v->first_row) * v->pitch;
  const uint32_t *words = (const uint32_t *)(const void *)codes;
  int64_t j = 0, at = col - v->first_col;
  for (; j < cols && at % 8; j++, at++) out[j] = (float)(int32_t)(words[at / 8] >> 4 * awq_part[at % 8] & 15);
  for (; j + 8 <= cols; j += 8, at += 8)
    for (int i = 0; i < 8; i++) out[j + i] = (float)(int32_t)(words[at / 8] >> 4 * awq_part[i] & 15);
  for (; j < cols; j++, at++) out[j] = (float)(int32_t)(words[at / 8] >> 4 * awq_part[at % 8] & 15);
}

static void widen_inputs(const tri_widen_view *v, const tri_widen_rect *r, bool awq, float *out, size_t ld) {
  struct group g;
  for (int64_t c = 0, n; c < r->cols; c += n) {
    n = r->cols - c < COLS ? r->cols - c : COLS;
    g.number = -1;
    for (int64_t i = 0; i < r->rows; i++) {
      int64_t row = r->row + i;
      float *x = out + (size_t)i * ld + c;
      load_group(v, v->order ? v->order[row] : row / v->layout->group_rows, r->col + c, n, awq, &g);
      (awq ? awq_row : gptq_row)(v, row, r->col + c, n, x);
      for (int64_t j = 0; j < n; j++) x[j] = (x[j] - g.zero[j]) * g.scale[j];
    }
  }
}

static void widen_gptq(const tri_widen_view *v, const tri_widen_rect *r, float *out, size_t ld) {
  widen_inputs(v, r, false, out, ld);
}

static void widen_awq(const tri_widen_view *v, const tri_widen_rect *r, float *out, size_t ld) {
  widen_inputs(v, r, true, out, ld);
}

const tri_widen_format tri_widen_gptq = {
    .name = "GPTQ",
    .widen = widen_gptq,
    .inputs_first = true,
    .codes = ".qweight",
    .codes_type = TRI_I32,
    .scales = {".scales"},
    .zeros = ".qzeros",
    .zeros_needed = true,
    .order = ".g_idx",
};

const tri_widen_format tri_widen_awq = {
    .name = "AWQ",
    .widen = widen_awq,
    .inputs_first = true,
    .codes = ".qweight",
    .codes_type = TRI_I32,
    .scales = {".scales"},
    .zeros = ".qzeros",
    .zeros_needed = true,
};
