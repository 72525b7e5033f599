/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of GGUF files: a run of a row's weights with their scales, which are read together.
 *
 * d and m are float16, and products of d with a small integer fit into the 24 bits of a float32, so that a weight is
 * exact, or, where a minimum is subtracted, rounded once: a compiler that fuses product and sum changes no bit. */
#include <string.h>

#include "runtime/load/widen.h"

enum { LARGEST = 256 };

static float half_at(const uint8_t *p) { return tri_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* ---- 32 weights, a byte having weights i and i + 16 ---- */

static void halves(const uint8_t *codes, uint8_t q[32]) {
  for (int i = 0; i < 16; i++) {
    q[i] = codes[i] & 15;
    q[i + 16] = codes[i] >> 4;
  }
}

/* Adds bit 4 of each weight. */
static void add_fifth(const uint8_t *high, uint8_t q[32]) {
  uint32_t h = high[0] | (uint32_t)high[1] << 8 | (uint32_t)high[2] << 16 | (uint32_t)high[3] << 24;
  for (int i = 0; i < 32; i++) q[i] |= (uint8_t)((h >> i & 1) << 4);
}

static void around(float d, const uint8_t q[32], int zero, float *out) {
  for (int i = 0; i < 32; i++) out[i] = d * (float)(q[i] - zero);
}

static void above(float d, float m, const uint8_t q[32], float *out) {
  for (int i = 0; i < 32; i++) out[i] = d * (float)q[i] + m;
}

static void look_up(float d, const int8_t table[16], const uint8_t q[32], float *out) {
  for (int i = 0; i < 32; i++) out[i] = d * (float)table[q[i]];
}

static void q4_0(const uint8_t *b, float *out) {
  uint8_t q[32];
  halves(b + 2, q);
  around(half_at(b), q, 8, out);
}

static void q4_1(const uint8_t *b, float *out) {
  uint8_t q[32];
  halves(b + 4, q);
  above(half_at(b), half_at(b + 2), q, out);
}

static void q5_0(const uint8_t *b, float *out) {
  uint8_t q[32];
  halves(b + 6, q);
  add_fifth(b + 2, q);
  around(half_at(b), q, 16, out);
}

static void q5_1(const uint8_t *b, float *out) {
  uint8_t q[32];
  halves(b + 8, q);
  add_fifth(b + 4, q);
  above(half_at(b), half_at(b + 2), q, out);
}

static void q8_0(const uint8_t *b, float *out) {
  float d = half_at(b);
  for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)b[2 + i];
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void iq4_nl(const uint8_t *b, float *out) {
  uint8_t q[32];
  halves(b + 2, q);
  look_up(half_at(b), iq4_values, q, out);
}

/* The values are twice those of FP4, and the power of two, e - 127, is one less for it. */
static void mxfp4(const uint8_t *b, float *out) {
  static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  uint32_t bits = b[0] < 2 ? 0x200000u << b[0] : (uint32_t)(b[0] - 1) << 23;
  uint8_t q[32];
  float d;
  memcpy(&d, &bits, sizeof d);
  halves(b + 1, q);
  look_up(d, values, q, out);
}

/* ---- 256 weights in groups ---- */

/* Scale and minimum of group j, 6 bits each, out of 12 bytes. */
static void scale_of(const uint8_t *s, int j, int *scale, int *min) {
  if (j < 4) {
    *scale = s[j] & 63;
    *min = s[j + 4] & 63;
    return;
  }
  *scale = (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
  *min = s[j + 4] >> 4 | (s[j] >> 6 << 4);
}

/* Eight groups of 32. high: 32 bytes with bit 4 of each weight, or NULL. */
static void groups_of_32(const uint8_t *b, const uint8_t *high, const uint8_t *codes, float *out) {
  float d = half_at(b), m = half_at(b + 2);
  for (int j = 0; j < 8; j++, out += 32) {
    const uint8_t *c = codes + 32 * (j / 2);
    int scale, min;
    scale_of(b + 4, j, &scale, &min);
    float ds = d * (float)scale, ms = m * (float)min;
    for (int l = 0; l < 32; l++) {
      int q = c[l] >> 4 * (j % 2) & 15;
      if (high) q |= (high[l] >> j & 1) << 4;
      out[l] = ds * (float)q - ms;
    }
  }
}

static void q4_k(const uint8_t *b, float *out) { groups_of_32(b, NULL, b + 16, out); }
static void q5_k(const uint8_t *b, float *out) { groups_of_32(b, b + 16, b + 48, out); }

static void q6_k(const uint8_t *b, float *out) {
  const uint8_t *low = b, *high = b + 128, *scales = b + 192;
  float d = half_at(b + 208);
  for (int t = 0; t < 2; t++)
    for (int k = 0; k < 4; k++)
      for (int l = 0; l < 32; l++) {
        int q = low[64 * t + 32 * (k % 2) + l] >> 4 * (k / 2) & 15;
        q |= (high[32 * t + l] >> 2 * k & 3) << 4;
        *out++ = d * (float)(int8_t)scales[8 * t + 2 * k + l / 16] * (float)(q - 32);
      }
}

/* Sixteen groups of 16: four bits of scale and minimum each, two of a weight. */
static void q2_k(const uint8_t *b, float *out) {
  const uint8_t *scales = b, *codes = b + 16;
  float d = half_at(b + 80), m = half_at(b + 82);
  for (int g = 0; g < 16; g++) {
    float ds = d * (float)(scales[g] & 15), ms = m * (float)(scales[g] >> 4);
    const uint8_t *c = codes + 32 * (g / 8) + 16 * (g % 2);
    for (int l = 0; l < 16; l++) *out++ = ds * (float)(c[l] >> 2 * (g / 2 % 4) & 3) - ms;
  }
}

/* The same with scales of six bits, and weights of three, the highest of which is stored apart and the other way. */
static void q3_k(const uint8_t *b, float *out) {
  const uint8_t *high = b, *codes = b + 32, *s = b + 96;
  float d = half_at(b + 108);
  for (int g = 0; g < 16; g++) {
    int scale = (s[g % 8] >> 4 * (g / 8) & 15) | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4;
    float ds = d * (float)(scale - 32);
    const uint8_t *c = codes + 32 * (g / 8) + 16 * (g % 2), *h = high + 16 * (g % 2);
    for (int l = 0; l < 16; l++) {
      int q = c[l] >> 2 * (g / 2 % 4) & 3;
      *out++ = ds * (float)(q - (h[l] >> g / 2 & 1 ? 0 : 4));
    }
  }
}

static void iq4_xs(const uint8_t *b, float *out) {
  unsigned high = b[2] | (unsigned)b[3] << 8;
  float d = half_at(b);
  for (int j = 0; j < 8; j++, out += 32) {
    int scale = (b[4 + j / 2] >> 4 * (j % 2) & 15) | (int)(high >> 2 * j & 3) << 4;
    uint8_t q[32];
    halves(b + 8 + 16 * j, q);
    look_up(d * (float)(scale - 32), iq4_values, q, out);
  }
}

/* ---- rows ---- */

typedef void (*decode_fn)(const uint8_t *block, float *out);

static decode_fn decode_of(tri_gguf_block_id id) {
  switch (id) {
  case TRI_GGUF_BLOCK_Q4_0: return q4_0;
  case TRI_GGUF_BLOCK_Q4_1: return q4_1;
  case TRI_GGUF_BLOCK_Q5_0: return q5_0;
  case TRI_GGUF_BLOCK_Q5_1: return q5_1;
  case TRI_GGUF_BLOCK_Q8_0: return q8_0;
  case TRI_GGUF_BLOCK_Q2_K: return q2_k;
  case TRI_GGUF_BLOCK_Q3_K: return q3_k;
  case TRI_GGUF_BLOCK_Q4_K: return q4_k;
  case TRI_GGUF_BLOCK_Q5_K: return q5_k;
  case TRI_GGUF_BLOCK_Q6_K: return q6_k;
  case TRI_GGUF_BLOCK_IQ4_NL: return iq4_nl;
  case TRI_GGUF_BLOCK_IQ4_XS: return iq4_xs;
  case TRI_GGUF_BLOCK_MXFP4: return mxfp4;
  case TRI_GGUF_BLOCK_F32:
  case TRI_GGUF_BLOCK_F16:
  case TRI_GGUF_BLOCK_BF16: break; /* numbers, which are read as such */
  }
  return NULL;
}

/* A block of which a part alone is wanted is decoded aside. */
static void widen_row(const tri_gguf_block *block, decode_fn decode, const uint8_t *row, int64_t col, int64_t cols,
                      float *out) {
  float aside[LARGEST];
  int64_t size = block->weights;
  for (int64_t n; cols; out += n, col += n, cols -= n) {
    int64_t skip = col % size;
    const uint8_t *from = row + (size_t)(col / size) * (size_t)block->bytes;
    n = size - skip < cols ? size - skip : cols;
    if (n == size) {
      decode(from, out);
      continue;
    }
    decode(from, aside);
    memcpy(out, aside + skip, (size_t)n * sizeof *out);
  }
}

/* Returns where a row lies. */
static const uint8_t *row_at(const tri_widen_view *v, int64_t row) {
  return (const uint8_t *)v->codes + (size_t)(row - v->first_row) * v->pitch;
}

void tri_widen_split_q8_0(const tri_widen_view *v, const tri_widen_rect *r, int8_t *codes, float *scales) {
  const tri_gguf_block *block = v->layout->block;
  int64_t size = block->weights, col = r->col - v->first_col, left = r->cols;
  const uint8_t *row = row_at(v, r->row);
  for (int64_t n; left; codes += n, col += n, left -= n) {
    const uint8_t *b = row + (size_t)(col / size) * (size_t)block->bytes;
    int64_t skip = col % size;
    n = size - skip < left ? size - skip : left;
    *scales++ = half_at(b);
    memcpy(codes, b + 2 + skip, (size_t)n);
  }
}

static void widen(const tri_widen_view *v, const tri_widen_rect *r, float *out, size_t ld) {
  const tri_gguf_block *block = v->layout->block;
  decode_fn decode = decode_of(block->id);
  for (int64_t i = 0; i < r->rows; i++, out += ld) {
    widen_row(block, decode, row_at(v, r->row + i), r->col - v->first_col, r->cols, out);
  }
}

const tri_widen_format tri_widen_blocks = {.name = "GGUF", .widen = widen, .codes = "", .codes_type = TRI_DTYPE_COUNT};
