/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of a few rows of x with many rows of w, both contiguous along the summed index.
 *
 * A tile is MR rows of x times NR rows of w, one vector of partial sums per pair: weights are converted in registers
 * and read once for the MR rows. The pairs' sums are independent of the tile they fall in (see tri_dot). */
#ifndef TRI_KERNELS_CPU_KERN_DOT_H
#define TRI_KERNELS_CPU_KERN_DOT_H

#include "kernels/cpu/kern_math.h"

typedef struct dot_tile_args {
  const float *x;
  size_t ldx;
  const char *w;
  size_t ldw; /* bytes */
  float *y;
  size_t ldy;
  size_t stepy; /* between the results of one row of w and the next */
  int k;
  bool add;
  ptrdiff_t ahead;
  const tri_weight *blocks; /* as in tri_dot */
  size_t row, next_row;     /* of blocks: the tile's first, and from one to the next */
  int col;
} dot_tile_args;

/* acc += the products of n elements of k from the p-th on. */
V_INLINE void dot_add(const int MR, const int NR, const tri_dtype DT, const dot_tile_args *t, size_t p, size_t n,
                      vf acc[4][6]) {
  const float *x[4];
  const char *w[6];
  V_UNROLL for (int i = 0; i < MR; i++) x[i] = t->x + (size_t)i * t->ldx;
  V_UNROLL for (int j = 0; j < NR; j++) w[j] = t->w + (size_t)j * t->ldw;
  const ptrdiff_t ahead = t->ahead;
  const size_t k = p + n;
  /* Four vectors of FP8 at a time. A row of x is read again for each row of w: registers have the sums. */
  for (; DT == TRI_F8_E4M3 && k - p >= 4 * W; p += 4 * W) {
    V_UNROLL for (int j = 0; j < NR; j++) {
      vf wv[4];
      v_load_f8x4(w[j] + p, wv);
      v_prefetch(w[j] + p, ahead);
      V_UNROLL for (int i = 0; i < MR; i++) {
        V_UNROLL for (int q = 0; q < 4; q++) acc[i][j] = v_fma(v_load(x[i] + p + q * W), wv[q], acc[i][j]);
      }
    }
  }
  /* One row of x is bound by memory alone: a cache line of each row of w at a time, and one prefetch for it. Rows are
   * short against what the hardware's own prefetcher needs to find its stride. */
  const size_t line = 64 / v_bytes(DT);
  for (; MR == 1 && k - p >= line; p += line) {
    V_UNROLL for (int j = 0; j < NR; j++) v_prefetch(w[j] + p * v_bytes(DT), ahead);
    V_UNROLL for (size_t q = 0; q < line; q += W) {
      vf xv = v_load(x[0] + p + q);
      V_UNROLL for (int j = 0; j < NR; j++) acc[0][j] =
          v_fma(xv, v_load_as(DT, w[j] + (p + q) * v_bytes(DT)), acc[0][j]);
    }
  }
  for (; p + W <= k; p += W) {
    vf wv[6];
    V_UNROLL for (int j = 0; j < NR; j++) {
      wv[j] = v_load_as(DT, w[j] + p * v_bytes(DT));
      if (MR > 1 && ahead) v_prefetch(w[j] + p * v_bytes(DT), ahead);
    }
    V_UNROLL for (int i = 0; i < MR; i++) {
      vf xv = v_load(x[i] + p);
      V_UNROLL for (int j = 0; j < NR; j++) acc[i][j] = v_fma(xv, wv[j], acc[i][j]);
    }
  }
  if (p < k) {
    int left = (int)(k - p);
    V_UNROLL for (int j = 0; j < NR; j++) {
      vf wv = v_loadn_as(DT, w[j] + p * v_bytes(DT), left);
      V_UNROLL for (int i = 0; i < MR; i++) acc[i][j] = v_fma(v_loadn(x[i] + p, left), wv, acc[i][j]);
    }
  }
}

V_INLINE void dot_clear(const int MR, const int NR, vf acc[4][6]) {
  V_UNROLL for (int i = 0; i < MR; i++) V_UNROLL for (int j = 0; j < NR; j++) acc[i][j] = v_zero();
}

V_INLINE void dot_store(const int MR, const int NR, const dot_tile_args *t, vf acc[4][6]) {
  V_UNROLL for (int j = 0; j < NR; j++) {
    float sum[4];
    v_sum4_to(sum, acc[0][j], acc[MR > 1 ? 1 : 0][j], acc[MR > 2 ? 2 : 0][j], acc[MR > 3 ? 3 : 0][j]);
    V_UNROLL for (int i = 0; i < MR; i++) {
      float *y = t->y + (size_t)i * t->ldy + (size_t)j * t->stepy;
      *y = t->add ? *y + sum[i] : sum[i];
    }
  }
}

V_INLINE void dot_tile(const int MR, const int NR, const tri_dtype DT, const dot_tile_args *t) {
  vf acc[4][6];
  dot_clear(MR, NR, acc);
  dot_add(MR, NR, DT, t, 0, (size_t)t->k, acc);
  dot_store(MR, NR, t, acc);
}

/* Each block's part of the sums is multiplied by the block's scale where the block ends, while it is still spread over
 * a vector: the scales cost a multiply-add a block, and no sum across a vector. */
V_INLINE void dot_blocked_tile(const int MR, const int NR, const tri_dtype DT, const dot_tile_args *t) {
  const float *scales[6];
  vf acc[4][6];
  int group, n = tri_weight_group(t->blocks, t->col, t->k, &group);
  V_UNROLL for (int j = 0; j < NR; j++) scales[j] = tri_weight_scales(t->blocks, t->row + (size_t)j * t->next_row);
  dot_clear(MR, NR, acc);
  for (int p = 0; p < t->k; p += n, n = tri_min(t->blocks->groups.cols, t->k - p), group++) {
    vf part[4][6];
    dot_clear(MR, NR, part);
    dot_add(MR, NR, DT, t, (size_t)p, (size_t)n, part);
    V_UNROLL for (int j = 0; j < NR; j++) {
      vf scale = v_set1(scales[j][group]);
      V_UNROLL for (int i = 0; i < MR; i++) acc[i][j] = v_fma(part[i][j], scale, acc[i][j]);
    }
  }
  dot_store(MR, NR, t, acc);
}

/* The same of int8 in whole blocks of 32, such as GGUF files have: fewer than dot_add takes at a time. */
enum { SMALL_BLOCK = 32 };
static inline bool dot_has_small_blocks(const dot_tile_args *t) {
  const tri_groups *g = &t->blocks->groups;
  return g->cols == SMALL_BLOCK && g->rows <= 1 && (t->col + g->skip_col) % SMALL_BLOCK == 0 && t->k % SMALL_BLOCK == 0;
}

V_INLINE void dot_small_blocks_tile(const int MR, const int NR, const dot_tile_args *t) {
  const size_t across = (size_t)tri_groups_across(t->blocks->groups, t->blocks->k);
  const float *scale = t->blocks->scale + t->row * across + (t->col + t->blocks->groups.skip_col) / SMALL_BLOCK;
  const size_t next_scale = across * t->next_row;
  const ptrdiff_t ahead = t->ahead;
  vf acc[4][6];
  dot_clear(MR, NR, acc);
  for (size_t p = 0; p < (size_t)t->k; p += SMALL_BLOCK, scale++) {
    V_UNROLL for (int j = 0; j < NR; j++) {
      const char *w = t->w + (size_t)j * t->ldw + p;
      vf factor = v_set1(scale[(size_t)j * next_scale]), part[4];
      if (p % 64 == 0) v_prefetch(w, ahead);
      V_UNROLL for (size_t q = 0; q < SMALL_BLOCK; q += W) {
        vf wv = v_load_i8(w + q);
        V_UNROLL for (int i = 0; i < MR; i++) {
          vf xv = v_load(t->x + (size_t)i * t->ldx + p + q);
          part[i] = q ? v_fma(xv, wv, part[i]) : v_mul(xv, wv);
        }
      }
      V_UNROLL for (int i = 0; i < MR; i++) acc[i][j] = v_fma(part[i], factor, acc[i][j]);
    }
  }
  dot_store(MR, NR, t, acc);
}

#define DOT_TILE(dt, mr, nr)                                                                                           \
  static void dot_##dt##_##mr##_##nr(const dot_tile_args *t) { dot_tile(mr, nr, TRI_##dt, t); }
#define DOT_BLOCKED_TILE(dt, mr, nr)                                                                                   \
  static void dot_##dt##_BLOCKS_##mr##_##nr(const dot_tile_args *t) {                                                  \
    if (TRI_##dt == TRI_I8 && dot_has_small_blocks(t))                                                                 \
      dot_small_blocks_tile(mr, nr, t);                                                                                \
    else                                                                                                               \
      dot_blocked_tile(mr, nr, TRI_##dt, t);                                                                           \
  }
#define DOT_TILES(tile, dt)                                                                                            \
  tile(dt, 1, 1) tile(dt, 2, 1) tile(dt, 3, 1) tile(dt, 4, 1) tile(dt, 1, 6) tile(dt, 2, 4) tile(dt, 3, 3)             \
      tile(dt, 4, 3)
DOT_TILES(DOT_TILE, F32)
DOT_TILES(DOT_TILE, F16)
DOT_TILES(DOT_TILE, BF16)
DOT_TILES(DOT_TILE, I8)
DOT_TILES(DOT_TILE, F8_E4M3)
DOT_TILES(DOT_BLOCKED_TILE, I8)
DOT_TILES(DOT_BLOCKED_TILE, F8_E4M3)

/* [dtype, whether it has blocks][rows of x - 1][0: one row of w, 1: as many as fit] */
static void (*const dot_table[TRI_DTYPE_COUNT][2][4][2])(const dot_tile_args *) = {
#define DOT_ROW(dt)                                                                                                    \
  {                                                                                                                    \
    {dot_##dt##_1_1, dot_##dt##_1_6}, {dot_##dt##_2_1, dot_##dt##_2_4}, {dot_##dt##_3_1, dot_##dt##_3_3}, {            \
      dot_##dt##_4_1, dot_##dt##_4_3                                                                                   \
    }                                                                                                                  \
  }
    [TRI_F32] = {DOT_ROW(F32)},
    [TRI_F16] = {DOT_ROW(F16)},
    [TRI_BF16] = {DOT_ROW(BF16)},
    [TRI_I8] = {DOT_ROW(I8), DOT_ROW(I8_BLOCKS)},
    [TRI_F8_E4M3] = {DOT_ROW(F8_E4M3), DOT_ROW(F8_E4M3_BLOCKS)},
};

/* Rows j0 .. j0+n-1 of w, pieces p .. p+k-1 of the sum, against all of x. */
static void dot_columns(const tri_dot *d, int j0, int n, int p, int k, bool add) {
  size_t element = v_bytes(d->dtype);
  dot_tile_args t = {
      .ldx = d->ldx, .ldw = d->ldw * element, .ldy = d->ldy, .stepy = 1, .k = k, .add = add, .ahead = d->ahead};
  t.blocks = d->blocks;
  t.next_row = 1;
  for (int i = 0; i < d->m; i += 4) {
    int rows = tri_min(4, d->m - i);
    for (int j = j0; j < j0 + n;) {
      int step = tile_columns[rows - 1];
      bool whole = j + step <= j0 + n;
      t.x = d->x + (size_t)i * d->ldx + p;
      t.w = (const char *)d->w + (size_t)j * t.ldw + (size_t)p * element;
      t.y = d->y + (size_t)i * d->ldy + j;
      t.row = d->row + (size_t)j;
      t.col = d->col + p;
      dot_table[d->dtype][d->blocks != NULL][rows - 1][whole](&t);
      j += whole ? step : 1;
    }
  }
}

/* One row of x is bound by memory: six long streams, each over consecutive rows of w, suit the hardware's prefetcher
 * better than six neighbouring rows do. */
static void dot_streams(const tri_dot *d) {
  enum { STREAMS = 6, AHEAD = 2048 };
  size_t element = v_bytes(d->dtype), each = (size_t)d->n / STREAMS, row = d->ldw * element;
  for (size_t j = 0; j < each; j++)
    for (int p = 0; p < d->k; p += TRI_DOT_CHUNK) {
      dot_tile_args t = {.x = d->x + p, .w = (const char *)d->w + j * row + (size_t)p * element, .ldw = each * row};
      t.y = d->y + j;
      t.stepy = each;
      t.k = tri_min(TRI_DOT_CHUNK, d->k - p);
      t.add = d->add || p > 0;
      t.ahead = AHEAD;
      t.blocks = d->blocks;
      t.row = d->row + j;
      t.next_row = each;
      t.col = d->col + p;
      dot_table[d->dtype][d->blocks != NULL][0][1](&t);
    }
  for (int j = (int)each * STREAMS; j < d->n; j++)
    for (int p = 0; p < d->k; p += TRI_DOT_CHUNK)
      dot_columns(d, j, 1, p, tri_min(TRI_DOT_CHUNK, d->k - p), d->add || p > 0);
}

/* Twelve rows of w at a time (a multiple of every tile's width) keep one piece of them and of four rows of x in the
 * first-level cache. */
static void isa_dot(const tri_dot *d) {
  enum { GROUP = 12 };
  if (d->m == 1 && d->n >= GROUP && d->k > 0) {
    dot_streams(d);
    return;
  }
  for (int j = 0; j < d->n; j += GROUP) {
    int n = tri_min(GROUP, d->n - j);
    bool add = d->add;
    for (int p = 0; p < d->k || p == 0; p += TRI_DOT_CHUNK, add = true)
      dot_columns(d, j, n, p, tri_min(TRI_DOT_CHUNK, d->k - p), add);
  }
}

#endif
