/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of more than a few rows of x: as outer products.
 *
 * Rows of w are first laid side by side, widened and turned, into a panel [k][PANEL_COLS]; a tile then keeps MR rows of
 * x times the panel's columns in registers and adds, element of k by element, the row's broadcast value times the
 * panel's row. No sum runs across a vector, so short sums cost no more than long ones, and turning the weights is paid
 * once for all rows of x (the arrangement of Goto and van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication", 2008, with one side packed). */
#ifndef TRI_KERNELS_CPU_KERN_PANEL_H
#define TRI_KERNELS_CPU_KERN_PANEL_H

#include "kernels/cpu/kern_rows.h"

/* There are as many accumulators as leave registers for a row of the panel and a broadcast. */
enum { PANEL_ROWS = V_REGISTERS == 32 ? 12 : 6, PANEL_COLS = 2 * W };

/* W rows of w, n of which exist, elements p .. p+c-1, into W columns of the panel. */
V_INLINE void pack_square(tri_dtype DT, float *out, const char *w, size_t ldw, const float *scale, int n, int c,
                          ptrdiff_t ahead) {
  vf a[W];
  V_UNROLL for (int i = 0; i < W; i++) {
    const char *at = w + (size_t)i * ldw;
    if (i >= n) {
      a[i] = v_zero();
      continue;
    }
    a[i] = c == W ? v_load_as(DT, at) : v_loadn_as(DT, at, c);
    if (v_has_scales(DT)) a[i] = v_mul(a[i], v_set1(scale[i]));
    if (ahead) v_prefetch(at, ahead);
  }
  v_transpose(a);
  V_UNROLL for (int u = 0; u < W; u++) if (u < c) v_store(out + (size_t)u * PANEL_COLS, a[u]);
}

/* W columns of the panel from W rows of w, W elements at a time; the second loop has the rest of k, and rows that do
 * not exist, which become columns of zeros. */
V_INLINE void pack_columns(tri_dtype DT, const tri_panel_pack *p, int column) {
  size_t ldw = p->ldw * v_bytes(DT);
  const char *w = (const char *)p->w + (size_t)column * ldw;
  const float *scale = p->scale ? p->scale + column : NULL;
  float *out = p->out + column;
  int i = 0, n = p->n - column;
  for (; n >= W && i + W <= p->k; i += W, out += (size_t)W * PANEL_COLS)
    pack_square(DT, out, w + (size_t)i * v_bytes(DT), ldw, scale, W, W, p->ahead);
  for (; i < p->k; i += W, out += (size_t)W * PANEL_COLS)
    pack_square(DT, out, w + (size_t)i * v_bytes(DT), ldw, scale, n, tri_min(W, p->k - i), 0);
}

#define PACK(dt)                                                                                                       \
  static void pack_##dt(const tri_panel_pack *p) {                                                                     \
    pack_columns(TRI_##dt, p, 0);                                                                                      \
    pack_columns(TRI_##dt, p, W);                                                                                      \
  }
PACK(F32)
PACK(F16)
PACK(BF16)
PACK(I8)
PACK(F8_E4M3)

#ifdef V_TURN_BF16
/* A whole panel of the commonest type, two squares at a time and one prefetch per cache line. */
static void pack_whole_BF16(const tri_panel_pack *p) {
  const size_t element = v_bytes(TRI_BF16), ldw = p->ldw * element;
  const char *w = p->w;
  for (int i = 0; i < p->k; i += W, w += W * element) {
    if (p->ahead && (size_t)i * element % 64 == 0)
      for (int j = 0; j < PANEL_COLS; j++) v_prefetch(w + (size_t)j * ldw, p->ahead);
    v_turn_bf16(p->out + (size_t)i * PANEL_COLS, w, ldw);
  }
}
#endif

static void isa_pack(const tri_panel_pack *p) {
#ifdef V_TURN_BF16
  if (p->dtype == TRI_BF16 && p->n == PANEL_COLS && p->k % W == 0) {
    pack_whole_BF16(p);
    return;
  }
#endif
  switch (p->dtype) {
  case TRI_BF16: pack_BF16(p); return;
  case TRI_F16: pack_F16(p); return;
  case TRI_I8: pack_I8(p); return;
  case TRI_F8_E4M3: pack_F8_E4M3(p); return;
  default: pack_F32(p); return;
  }
}

/* 2 * MR accumulators. An element of k takes two loads of the panel, shared by all MR rows, and one broadcast a row: MR
 * is as large as registers allow, so that multiply-adds outnumber loads. */
V_INLINE void panel_tile(const int MR, const tri_panel *t, const float *x0, float *y) {
  vf acc[PANEL_ROWS][2];
  const float *x[PANEL_ROWS], *w = t->w;
  V_UNROLL for (int i = 0; i < MR; i++) acc[i][0] = acc[i][1] = v_zero(), x[i] = x0 + (size_t)i * t->ldx;
  for (int p = 0; p < t->k; p++, w += PANEL_COLS) {
    vf w0 = v_load(w), w1 = v_load(w + W);
    V_UNROLL for (int i = 0; i < MR; i++) {
      vf xv = v_set1(x[i][p]);
      acc[i][0] = v_fma(xv, w0, acc[i][0]);
      acc[i][1] = v_fma(xv, w1, acc[i][1]);
    }
  }
  V_UNROLL for (int i = 0; i < MR; i++) {
    float *row = y + (size_t)i * t->ldy;
    V_EACH(j, c, t->n) {
      vf a = acc[i][j / W];
      store_some(row + j, t->add ? v_add(load_some(row + j, c), a) : a, c);
    }
  }
}

#define PANEL_TILE(mr)                                                                                                 \
  static void panel_##mr(const tri_panel *t, const float *x, float *y) { panel_tile(mr, t, x, y); }
PANEL_TILE(1)
PANEL_TILE(2)
PANEL_TILE(3)
PANEL_TILE(4)
PANEL_TILE(5)
PANEL_TILE(6)
#define PANEL_TILES panel_1, panel_2, panel_3, panel_4, panel_5, panel_6
#if V_REGISTERS == 32
PANEL_TILE(7)
PANEL_TILE(8)
PANEL_TILE(9)
PANEL_TILE(10)
PANEL_TILE(11)
PANEL_TILE(12)
#define PANEL_WIDE_TILES , panel_7, panel_8, panel_9, panel_10, panel_11, panel_12
#else
#define PANEL_WIDE_TILES
#endif

static void (*const panel_tiles[PANEL_ROWS])(const tri_panel *, const float *,
                                             float *) = {PANEL_TILES PANEL_WIDE_TILES};

static void isa_panel(const tri_panel *t) {
  int left = t->m, tiles = (t->m + PANEL_ROWS - 1) / PANEL_ROWS;
  const float *x = t->x;
  float *y = t->y;
  for (; left > 0; tiles--) { /* tiles of even height: a low one has too few sums under way to hide their latency */
    int rows = (left + tiles - 1) / tiles;
    panel_tiles[rows - 1](t, x, y);
    x += (size_t)rows * t->ldx;
    y += (size_t)rows * t->ldy;
    left -= rows;
  }
}

#endif
