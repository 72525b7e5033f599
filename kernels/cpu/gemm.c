/* SPDX-License-Identifier: Apache-2.0 */
/* A block of columns by the algorithm that fits the number of rows. With few rows of x the memory's bandwidth is the
 * limit: dot products read each weight once, as it lies. With many rows the arithmetic is: panels and BLAS spend work
 * on widening and turning weights, which all rows then share.
 *
 * Deterministic mode keeps to dot products, whose sums are cut at multiples of TRI_DOT_CHUNK for any number of rows: a
 * row's bits do not depend on how many others come with it. */
#include "kernels/cpu/gemm.h"

#include <string.h>

/* Rows of x from which the next algorithm wins, measured on Zen 3 with AVX2. Short sums leave dot products little to do
 * between one horizontal addition and the next, and BLAS little between one visit to its result and the next. */
enum { SHORT_K = 512, PANEL_FROM = 64, PANEL_FROM_SHORT = 24, BLAS_FROM = 160, BLAS_FROM_SHORT = 640 };
/* Rows of x from which tiles win, which multiply rows that do not exist, too: on Sapphire Rapids. */
enum { TILES_FROM = 16 };
/* An own panel's share of k, and the most columns that one item takes. */
enum { OWN_PANEL_K = 256, OWN_PANEL_N = 96 };

/* A piece of a BLAS panel: k's share is one pass of the library's own blocking, together they are 576 KiB. */
enum { PANEL_N = 384, PANEL_K = 384 };
/* Columns of an own item: a multiple of the twelve rows of w that the kernel takes at a time. */
enum { OWN_N = 12, OWN_N_MAX = 96 };
/* Rows of x whose terms stay in the second-level cache, a tile's share of k, and the columns of an item: terms are made
 * once for each item, so that it should be wide. */
enum { TILES_M = 512, TILES_K = 256, TILES_N = 1536 };
/* With more than a few rows, pieces of x (and from WIDEN_ROWS on of w, widened) are first copied side by side: rows a
 * power of two apart would all fall into the same few sets of the caches. The pad keeps the copies from doing the same.
 */
enum { PACK_ROWS = 4, WIDEN_ROWS = 32, PACK_M = 64, PACK_LD = TRI_DOT_CHUNK + 16, PANEL_LD = OWN_PANEL_K + 16 };

/* Rows so far apart (in floats) meet in a few sets of the first-level cache. */
static bool rows_collide(size_t ld) { return ld % 256 == 0; }

bool tri_cpu_has_tiles(const tri_cpu_isa *isa, const tri_weight *w) {
  bool fits = w->dtype == TRI_BF16 || w->dtype == TRI_I8 || w->dtype == TRI_F8_E4M3;
  if (tri_weight_is_blocked(w)) /* a block is whole tiles, and a piece of k whole blocks */
    fits &= !w->groups.skip_col && w->groups.cols % TRI_TILE_K == 0 && TILES_K % w->groups.cols == 0;
  return isa->tiles && fits;
}

tri_cpu_gemm_algorithm tri_cpu_gemm_choose(const tri_cpu_gemm_shape *s) {
  bool is_short = s->k <= SHORT_K, direct = s->direct && !s->deterministic && s->k > 0;
  if (direct && s->tiles && s->m >= TILES_FROM) return TRI_ALGORITHM_TILES;
  if (direct && s->use_blas && !s->scattered && s->m >= (is_short ? BLAS_FROM_SHORT : BLAS_FROM))
    return TRI_ALGORITHM_BLAS;
  if (direct && s->m >= (is_short ? PANEL_FROM_SHORT : PANEL_FROM)) return TRI_ALGORITHM_PANELS;
  /* Plain dots want rows of x at even distances, and a single row always is. */
  int pack_from = s->scattered ? 2 : PACK_ROWS;
  return s->m >= pack_from && s->k > 0 ? TRI_ALGORITHM_PACKED_DOTS : TRI_ALGORITHM_DOTS;
}

int tri_cpu_gemm_block(const tri_cpu_isa *isa, tri_cpu_gemm_algorithm algorithm, int total, int threads) {
  int share = tri_max(1, total / (threads * 8)), cols = isa->panel_cols;
  if (algorithm == TRI_ALGORITHM_BLAS) {
    /* The same number of panels for every thread: a third panel for two of them would leave one waiting. */
    int each = (total + threads - 1) / threads, panels = (each + PANEL_N - 1) / PANEL_N;
    return tri_min(PANEL_N, (int)tri_round_up((size_t)((each + panels - 1) / panels), 16));
  }
  if (algorithm == TRI_ALGORITHM_TILES) {
    int each = (total + threads - 1) / threads, blocks = (each + TILES_N - 1) / TILES_N;
    return (int)tri_round_up((size_t)((each + blocks - 1) / blocks), TRI_TILE_COLS);
  }
  if (algorithm == TRI_ALGORITHM_PANELS) return tri_min(OWN_PANEL_N, (int)tri_round_up((size_t)share, (size_t)cols));
  return tri_min((int)tri_round_up((size_t)share, OWN_N), OWN_N_MAX);
}

/* Elements of the terms of up to TILES_M of m rows. */
static size_t tiles_x(int m) {
  return TRI_TILE_TERMS * tri_round_up((size_t)tri_min(m, TILES_M), TRI_TILE_ROWS) * TILES_K;
}

size_t tri_cpu_gemm_scratch(const tri_cpu_isa *isa, tri_cpu_gemm_algorithm algorithm, tri_dtype dtype, int m, int n,
                            size_t ldx, bool scattered) {
  size_t rows = (size_t)tri_min(m, PACK_M);
  switch (algorithm) {
  case TRI_ALGORITHM_BLAS: return dtype != TRI_F32 ? (size_t)n * PANEL_K : 0;
  case TRI_ALGORITHM_PANELS:
    return (size_t)isa->panel_cols * OWN_PANEL_K + (scattered || rows_collide(ldx) ? (size_t)m * PANEL_LD : 0);
  case TRI_ALGORITHM_TILES: return (tiles_x(m) + TRI_TILE_COLS * TILES_K) * sizeof(uint16_t) / sizeof(float);
  case TRI_ALGORITHM_PACKED_DOTS: return (size_t)n * rows + (rows + OWN_N) * PACK_LD;
  case TRI_ALGORITHM_DOTS: return (size_t)n * rows;
  }
  return 0;
}

static const void *weight_at(const tri_weight *w, int row, int col) {
  return (const char *)w->data + ((size_t)row * (size_t)w->k + (size_t)col) * tri_dtype_size(w->dtype);
}

void tri_cpu_widen_row(const tri_cpu_isa *isa, const tri_weight *w, size_t row, int col, int n, float factor,
                       float *out) {
  const char *data = (const char *)w->data + (row * (size_t)w->k + (size_t)col) * tri_dtype_size(w->dtype);
  const float *scales = w->scale ? tri_weight_scales(w, row) : NULL;
  for (int i = 0, run, group; i < n; i += run) {
    run = tri_weight_group(w, col + i, n - i, &group);
    isa->expand(out + i, data + (size_t)i * tri_dtype_size(w->dtype), w->dtype, run,
                scales ? factor * scales[group] : factor);
  }
}

static const float *x_row(const tri_cpu_gemm *p, int i) { return p->x + (size_t)(p->rows ? p->rows[i] : i) * p->ldx; }

/* k elements from column `from` on of m rows of x, side by side where they are not fit to be read in place. */
static const float *gather_x(const tri_cpu_gemm *p, int row, int m, int from, int k, float *copy, size_t ld_copy,
                             size_t *ld) {
  *ld = p->ldx;
  if (!p->rows && !rows_collide(p->ldx)) return x_row(p, row) + from;
  for (int i = 0; i < m; i++) memcpy(copy + (size_t)i * ld_copy, x_row(p, row + i) + from, (size_t)k * sizeof *copy);
  *ld = ld_copy;
  return copy;
}

static void finish_rows(const tri_cpu_gemm *p, const float *sums, int row, int m) {
  int n = p->w.n;
  for (int i = 0; i < m; i++) {
    tri_epilogue e = {.sum = sums + (size_t)i * (size_t)n, .bias = p->bias, .n = n, .act = p->act};
    e.scale = tri_weight_is_blocked(&p->w) ? NULL : p->w.scale; /* of rows */
    e.accumulate = p->accumulate;
    e.out = p->out + (size_t)(row + i) * p->ldo;
    p->isa->epilogue(&e);
  }
}

/* Fewer than PACK_ROWS rows, straight from where they are. */
static void dots(const tri_cpu_gemm *p, float *sums) {
  tri_dot d = {.x = p->m ? x_row(p, 0) : p->x, .ldx = p->ldx, .m = p->m, .n = p->w.n, .k = p->w.k};
  d.w = p->w.data;
  d.ldw = (size_t)p->w.k;
  d.dtype = p->w.dtype;
  /* The rows of w that the kernel takes up next. */
  d.ahead = (ptrdiff_t)((size_t)6 * (size_t)p->w.k * tri_dtype_size(p->w.dtype));
  d.y = sums;
  d.ldy = (size_t)p->w.n;
  d.blocks = tri_weight_is_blocked(&p->w) ? &p->w : NULL;
  p->isa->dot(&d);
  finish_rows(p, sums, 0, p->m);
}

/* One piece of the sums of up to PACK_M rows. Cut at TRI_DOT_CHUNK as the kernel itself does, so the bits are the same.
 */
static void packed_piece(const tri_cpu_gemm *p, float *sums, float *x, float *wide, int row, int m, int from) {
  int k = tri_min(TRI_DOT_CHUNK, p->w.k - from), n = p->w.n;
  size_t ldx;
  bool blocked = tri_weight_is_blocked(&p->w); /* widened, they would be rounded in another order than with few rows */
  const float *rows = gather_x(p, row, m, from, k, x, PACK_LD, &ldx);
  for (int j = 0; j < n; j += OWN_N) {
    tri_dot d = {.x = rows, .ldx = ldx, .m = m, .n = tri_min(OWN_N, n - j), .k = k, .add = from > 0};
    d.y = sums + j;
    d.ldy = (size_t)n;
    d.w = weight_at(&p->w, j, from);
    d.ldw = (size_t)p->w.k;
    d.dtype = p->w.dtype;
    d.ahead = (ptrdiff_t)((size_t)6 * (size_t)p->w.k * tri_dtype_size(p->w.dtype));
    d.blocks = blocked ? &p->w : NULL;
    d.row = (size_t)j;
    d.col = from;
    if (m >= WIDEN_ROWS && !blocked) {
      for (int i = 0; i < d.n; i++)
        p->isa->expand(wide + (size_t)i * PACK_LD, weight_at(&p->w, j + i, from), p->w.dtype, k, 1);
      d.w = wide;
      d.ldw = PACK_LD;
      d.dtype = TRI_F32;
      d.ahead = 0;
    }
    p->isa->dot(&d);
  }
}

static void packed_dots(const tri_cpu_gemm *p, float *scratch) {
  for (int row = 0; row < p->m; row += PACK_M) {
    int m = tri_min(PACK_M, p->m - row);
    float *x = scratch, *wide = x + (size_t)m * PACK_LD, *sums = wide + OWN_N * PACK_LD;
    for (int from = 0; from < p->w.k; from += TRI_DOT_CHUNK) packed_piece(p, sums, x, wide, row, m, from);
    finish_rows(p, sums, row, m);
  }
}

/* Bias and activation of columns whose sums are already where they belong. */
static void finish_in_place(const tri_cpu_gemm *p) {
  if (!p->bias && p->act == TRI_ACT_NONE) return;
  for (int i = 0; i < p->m; i++) {
    float *row = p->out + (size_t)i * p->ldo;
    tri_epilogue e = {.sum = row, .bias = p->bias, .out = row, .n = p->w.n, .act = p->act};
    p->isa->epilogue(&e);
  }
}

/* Columns from .. from + k - 1 of n rows from row j on, block by block. */
static void pack_panel(const tri_cpu_gemm *p, float *out, int j, int n, int from, int k) {
  enum { MOST_COLS = 32 };
  float scales[MOST_COLS];
  size_t element = tri_dtype_size(p->w.dtype), cols = (size_t)p->isa->panel_cols, w_k = (size_t)p->w.k;
  /* Next comes the same rows' next piece, or, where that was the last one, the next rows. */
  size_t next = p->w.k - from > OWN_PANEL_K ? OWN_PANEL_K : cols * w_k;
  tri_panel_pack pack = {.ldw = w_k, .dtype = p->w.dtype, .n = n, .ahead = (ptrdiff_t)(next * element)};
  pack.scale = p->w.scale ? scales : NULL;
  for (int i = 0, group; i < k; i += pack.k) {
    pack.k = tri_weight_group(&p->w, from + i, k - i, &group);
    for (int r = 0; p->w.scale && r < n; r++) scales[r] = tri_weight_scales(&p->w, (size_t)(j + r))[group];
    pack.w = weight_at(&p->w, j, from + i);
    pack.out = out + (size_t)i * cols;
    p->isa->pack(&pack);
  }
}

/* k is cut so that a panel's piece, [OWN_PANEL_K][panel_cols], stays in the first-level cache while all rows of x go
 * through it; pieces after the first one add to `out`. */
static void panels(const tri_cpu_gemm *p, float *scratch) {
  int cols = p->isa->panel_cols, k = p->w.k, n = p->w.n;
  float *copy = scratch + (size_t)cols * OWN_PANEL_K;
  tri_panel t = {.w = scratch, .ldy = p->ldo, .m = p->m};
  for (int from = 0; from < k; from += OWN_PANEL_K) {
    t.k = tri_min(OWN_PANEL_K, k - from);
    t.add = p->accumulate || from > 0;
    t.x = gather_x(p, 0, p->m, from, t.k, copy, PANEL_LD, &t.ldx);
    for (int j = 0; j < n; j += cols) {
      t.n = tri_min(cols, n - j);
      pack_panel(p, scratch, j, t.n, from, t.k);
      t.y = p->out + j;
      p->isa->panel(&t);
    }
  }
  finish_in_place(p);
}

/* Terms of up to TILES_M rows' piece of k. Rows that follow the last one are multiplied, too, and their sums dropped.
 */
static void split_rows(const tri_cpu_gemm *p, uint16_t *out, int row, int m, int from, int k) {
  size_t rows = TRI_TILE_TERMS * tri_round_up((size_t)k, TRI_TILE_K) * TRI_TILE_ROWS;
  if (m % TRI_TILE_ROWS) memset(out + (size_t)(m / TRI_TILE_ROWS) * rows, 0, rows * sizeof *out);
  for (int i = 0; i < m; i++) {
    uint16_t *at = out + (size_t)(i / TRI_TILE_ROWS) * rows + (size_t)(i % TRI_TILE_ROWS) * TRI_TILE_K;
    p->isa->split(at, x_row(p, row + i) + from, k);
  }
}

/* Scales of t->n rows from row j on for the columns from `from` on, as the tiles want them. */
static void gather_scales(const tri_cpu_gemm *p, const tri_tiles *t, float *out, int j, int from) {
  for (int r = 0; r < t->n; r++) {
    const float *scales = tri_weight_scales(&p->w, (size_t)(j + r));
    for (int i = 0, group; i < t->k; i += t->block) {
      tri_weight_group(&p->w, from + i, t->k - i, &group);
      out[i / t->block * TRI_TILE_COLS + r] = scales[group];
    }
  }
}

/* Does what panels() does, with the terms of x in place of its rows. */
static void tiles(const tri_cpu_gemm *p, float *scratch) {
  size_t w_k = (size_t)p->w.k, element = tri_dtype_size(p->w.dtype);
  uint16_t *terms = (uint16_t *)scratch, *w = terms + tiles_x(p->m);
  float scales[TILES_K / TRI_TILE_K * TRI_TILE_COLS];
  tri_tiles t = {.x = terms, .w = w, .ldy = p->ldo, .scale = p->w.scale ? scales : NULL};
  t.block = tri_weight_is_blocked(&p->w) ? p->w.groups.cols : TILES_K;
  for (int row = 0; row < p->m; row += TILES_M)
    for (int from = 0; from < p->w.k; from += TILES_K) {
      t.m = tri_min(TILES_M, p->m - row);
      t.k = tri_min(TILES_K, p->w.k - from);
      t.add = p->accumulate || from > 0;
      split_rows(p, terms, row, t.m, from, t.k);
      for (int j = 0; j < p->w.n; j += TRI_TILE_COLS) {
        t.n = tri_min(TRI_TILE_COLS, p->w.n - j);
        tri_tile_pack pack = {.out = w, .w = weight_at(&p->w, j, from), .ldw = w_k, .dtype = p->w.dtype};
        pack.n = t.n;
        pack.k = t.k;
        pack.ahead = (ptrdiff_t)(TRI_TILE_COLS * w_k * element);
        p->isa->pack_tiles(&pack);
        if (t.scale) gather_scales(p, &t, scales, j, from);
        t.y = p->out + (size_t)row * p->ldo + j;
        p->isa->tiles(&t);
      }
    }
  finish_in_place(p);
}

/* Float32 weights go to the library as they lie. Others are widened piece by piece into memory that stays in the
 * second-level cache, and the library adds each piece's product (beta 1). */
static void blas(const tri_cpu_gemm *p, float *wide) {
  int m = p->m, n = p->w.n, k = p->w.k;
  float beta = p->accumulate ? 1 : 0;
  if (p->w.dtype == TRI_F32) tri_blas_gemm(m, n, k, p->x, p->ldx, p->w.data, (size_t)k, beta, p->out, p->ldo);
  for (int from = 0; from < k && p->w.dtype != TRI_F32; from += PANEL_K, beta = 1) {
    int piece = tri_min(PANEL_K, k - from);
    for (int j = 0; j < n; j++) tri_cpu_widen_row(p->isa, &p->w, (size_t)j, from, piece, 1, wide + (size_t)j * PANEL_K);
    tri_blas_gemm(m, n, piece, p->x + from, p->ldx, wide, PANEL_K, beta, p->out, p->ldo);
  }
  finish_in_place(p);
}

void tri_cpu_gemm_run(const tri_cpu_gemm *p, float *scratch) {
  switch (p->algorithm) {
  case TRI_ALGORITHM_DOTS: dots(p, scratch); return;
  case TRI_ALGORITHM_PACKED_DOTS: packed_dots(p, scratch); return;
  case TRI_ALGORITHM_PANELS: panels(p, scratch); return;
  case TRI_ALGORITHM_TILES: tiles(p, scratch); return;
  case TRI_ALGORITHM_BLAS: blas(p, scratch); return;
  }
}
