/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of more than a few rows of x on the tile registers of AMX.
 *
 * A tile instruction multiplies 16 rows of 32 bfloat16 with 32 rows of 16 and adds to 16 x 16 float32: sixteen times
 * the multiply-adds of float32 vectors in the same time. Weights of bfloat16, int8 and FP8 are such numbers as they
 * are. A row of x is float32, whose 24 bits are those of three bfloat16 (Henry, Tang and Heinecke, "Leveraging the
 * bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019): it is cut into them without a
 * rounding, and all three are multiplied. So the sums are those of float32 products, and only subnormal parts of an
 * element are lost, which tile instructions take for zeros. */
#ifndef TRI_KERNELS_CPU_KERN_TILES_H
#define TRI_KERNELS_CPU_KERN_TILES_H

#include "kernels/cpu/kern_rows.h"

#define V_HAS_TILES
enum { TILE_K = TRI_TILE_K, TILE_ELEMENTS = TRI_TILE_ELEMENTS };

/* Infinity less infinity would be NaN in the lower terms, whose product takes the whole sum with it. */
static inline __m512 lower_term(__m512 x, __m512 upper) {
  enum { NOT_FINITE = 0x99 };
  return _mm512_maskz_sub_ps((__mmask16)~_mm512_fpclass_ps_mask(x, NOT_FINITE), x, upper);
}

static inline __m512 upper_bits(__m512 x) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000u)));
}

/* The upper halves of 32 numbers of 32 bits. */
static inline __m512i upper_halves(__m512 a, __m512 b) {
  const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25,
                                       23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_epi16(_mm512_castps_si512(a), odd, _mm512_castps_si512(b));
}

static void isa_split(uint16_t *out, const float *x, int k) {
  for (int i = 0; i < k; i += TILE_K, out += (size_t)TRI_TILE_TERMS * TILE_ELEMENTS) {
    int left = k - i;
    __m512 a = load_some(x + i, tri_min(left, W)), b = v_zero();
    if (left > W) b = load_some(x + i + W, tri_min(left - W, W));
    V_UNROLL for (int t = 0; t < TRI_TILE_TERMS; t++) {
      _mm512_storeu_si512(out + (size_t)t * TILE_ELEMENTS, upper_halves(a, b));
      a = lower_term(a, upper_bits(a));
      b = lower_term(b, upper_bits(b));
    }
  }
}

/* c elements of a row of w, c <= TILE_K, as bfloat16. */
V_INLINE vf load_tile_row(tri_dtype DT, const char *w, int c) {
  if (DT == TRI_BF16) {
    __mmask32 there = c < TILE_K ? (1u << c) - 1 : UINT32_MAX;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(there, w));
  }
  vf a = c >= W ? v_load_as(DT, w) : v_loadn_as(DT, w, c), b = v_zero();
  if (c > W) b = c == TILE_K ? v_load_as(DT, w + W) : v_loadn_as(DT, w + W, c - W);
  return _mm512_castsi512_ps(upper_halves(a, b));
}

/* A tile of w has pairs of its columns in rows: row p has elements 2p and 2p + 1 of each of W rows of w. The two tiles
 * of the same columns follow each other; rows that do not exist are zeros. */
V_INLINE void pack_tile_pairs(tri_dtype DT, const tri_tile_pack *p) {
  size_t ldw = p->ldw * v_bytes(DT);
  uint16_t *out = p->out;
  for (int i = 0; i < p->k; i += TILE_K)
    for (int side = 0; side < 2; side++, out += TILE_ELEMENTS) {
      const char *w = (const char *)p->w + (size_t)side * W * ldw + (size_t)i * v_bytes(DT);
      int n = p->n - side * W, c = tri_min(TILE_K, p->k - i);
      vf a[W];
      if (n >= W && c == TILE_K) V_UNROLL for (int r = 0; r < W; r++) {
          a[r] = load_tile_row(DT, w + (size_t)r * ldw, TILE_K);
          v_prefetch(w + (size_t)r * ldw, p->ahead);
        }
      else
        V_UNROLL for (int r = 0; r < W; r++) a[r] = r < n ? load_tile_row(DT, w + (size_t)r * ldw, c) : v_zero();
      v_transpose(a);
      V_UNROLL for (int r = 0; r < W; r++) _mm512_storeu_ps(out + (size_t)r * TILE_K, a[r]);
    }
}

static void pack_tiles_BF16(const tri_tile_pack *p) { pack_tile_pairs(TRI_BF16, p); }
static void pack_tiles_I8(const tri_tile_pack *p) { pack_tile_pairs(TRI_I8, p); }
static void pack_tiles_F8(const tri_tile_pack *p) { pack_tile_pairs(TRI_F8_E4M3, p); }

static void isa_pack_tiles(const tri_tile_pack *p) {
  switch (p->dtype) {
  case TRI_I8: pack_tiles_I8(p); return;
  case TRI_F8_E4M3: pack_tiles_F8(p); return;
  default: pack_tiles_BF16(p); return;
  }
}

/* Registers 0 to 3 have sums, two rows of two tiles; 4 and 5 terms of x, 6 and 7 tiles of w. */
static void configure_tiles(void) {
  struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  _tile_loadconfig(&config);
}

/* The next k columns of 32 rows of x and of 32 of w. */
struct tile_part {
  const uint16_t *x, *w;
  int k;
};

/* y (+)= the sums of a part, or of its first 16 rows of x alone. */
V_INLINE void add_tiles(const bool both, const tri_tiles *t, const struct tile_part *part, float *y, size_t ldy,
                        bool add) {
  size_t ld = ldy * sizeof *y, below = (tri_round_up((size_t)t->k, TILE_K) / TILE_K) * TRI_TILE_TERMS * TILE_ELEMENTS;
  float *y2 = y + 16 * ldy;
  if (add) {
    _tile_loadd(0, y, ld);
    _tile_loadd(1, y + W, ld);
    if (both) _tile_loadd(2, y2, ld);
    if (both) _tile_loadd(3, y2 + W, ld);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const uint16_t *x = part->x, *w = part->w;
  for (int p = 0; p < part->k; p += TILE_K, w += 2 * TILE_ELEMENTS) {
    _tile_loadd(6, w, 64);
    _tile_loadd(7, w + TILE_ELEMENTS, 64);
    V_UNROLL for (int i = 0; i < TRI_TILE_TERMS; i++, x += TILE_ELEMENTS) {
      _tile_loadd(4, x, 64);
      if (both) _tile_loadd(5, x + below, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if (both) _tile_dpbf16ps(2, 5, 6);
      if (both) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, y, ld);
  _tile_stored(1, y + W, ld);
  if (both) _tile_stored(2, y2, ld);
  if (both) _tile_stored(3, y2 + W, ld);
}

typedef void (*add_tiles_of)(const tri_tiles *, const struct tile_part *, float *, size_t, bool);
static void add_tiles_of_32(const tri_tiles *t, const struct tile_part *part, float *y, size_t ldy, bool add) {
  add_tiles(true, t, part, y, ldy, add);
}
static void add_tiles_of_16(const tri_tiles *t, const struct tile_part *part, float *y, size_t ldy, bool add) {
  add_tiles(false, t, part, y, ldy, add);
}

static void finish_tiles(const tri_tiles *t, const float *sums, const float *scale, float *y, int m, bool add) {
  for (int i = 0; i < m; i++, y += t->ldy, sums += TRI_TILE_COLS) V_EACH(j, c, t->n) {
      vf a = v_load(sums + j);
      if (scale) a = v_mul(a, load_some(scale + j, c));
      store_some(y + j, add ? v_add(load_some(y + j, c), a) : a, c);
    }
}

/* Sums of up to 32 rows of x, a block of columns at a time, by way of memory. */
static void add_blocks(const tri_tiles *t, add_tiles_of of, const uint16_t *x, float *y, int m) {
  _Alignas(64) float sums[32 * TRI_TILE_COLS];
  for (int from = 0, block = 0; from < t->k; from += t->block, block++) {
    size_t steps = (size_t)from / TILE_K;
    struct tile_part part = {x + steps * TRI_TILE_TERMS * TILE_ELEMENTS, t->w + steps * 2 * TILE_ELEMENTS,
                             tri_min(t->block, t->k - from)};
    of(t, &part, sums, TRI_TILE_COLS, false);
    finish_tiles(t, sums, t->scale ? t->scale + (size_t)block * TRI_TILE_COLS : NULL, y, m, t->add || from > 0);
  }
}

/* Whole tiles go to their place; others, whose columns and rows there do not all exist, and those with scales by way of
 * memory. */
static void isa_tiles(const tri_tiles *t) {
  size_t row_elements = tri_round_up((size_t)t->k, TILE_K) * TRI_TILE_TERMS;
  __asm__ volatile("" ::: "memory"); /* tile loads do not tell the compiler that they read memory */
  configure_tiles();
  for (int row = 0; row < t->m; row += 32) {
    int m = tri_min(32, t->m - row);
    add_tiles_of of = m > 16 ? add_tiles_of_32 : add_tiles_of_16;
    const uint16_t *x = t->x + (size_t)row * row_elements;
    struct tile_part all = {x, t->w, t->k};
    float *y = t->y + (size_t)row * t->ldy;
    if (m % 16 == 0 && t->n == TRI_TILE_COLS && !t->scale) {
      of(t, &all, y, t->ldy, t->add);
      continue;
    }
    add_blocks(t, of, x, y, m);
  }
  _tile_release();
}

#endif
