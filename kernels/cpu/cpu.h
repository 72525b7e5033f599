/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the CPU backend: the table of inner kernels that each instruction set fills, and what the drivers share.
 *
 * The drivers (linear.c, attention.c, rows.c, sample.c) cut an op into items, hand the items to the pool's threads and
 * know nothing of vectors. The inner kernels (kern_*.h) are written once on the primitives of vec_*.h and compiled once
 * per instruction set (isa_*.c). */
#ifndef TRI_KERNELS_CPU_CPU_H
#define TRI_KERNELS_CPU_CPU_H

#include <stdatomic.h>

#include "kernels/backend.h"
#include "kernels/ref/ref.h"

/* y[i * ldy + j] (+)= x_i . w_j for i < m, j < n, over k elements. Each product is summed in pieces of TRI_DOT_CHUNK
 * elements in an order that depends on nothing else, so the bits of one element are those of any other m, n or tiling.
 */
enum { TRI_DOT_CHUNK = 1024 };
typedef struct tri_dot {
  const float *x;
  size_t ldx;
  const void *w;
  size_t ldw; /* elements */
  float *y;
  size_t ldy;
  int m, n, k;
  tri_dtype dtype;
  bool add;
  ptrdiff_t ahead; /* bytes from what is read of w to what will be read next, which is prefetched; 0: nothing is */
  const tri_weight *blocks; /* whose scales multiply the products, block by block (tri_weight_is_blocked); NULL: none */
  size_t row;               /* of blocks: where w begins */
  int col;
} tri_dot;

/* n <= panel_cols rows of w, k elements each, into a panel [k][panel_cols] of float32, zeros where n ends. */
typedef struct tri_panel_pack {
  float *out;
  const void *w;
  size_t ldw; /* elements */
  tri_dtype dtype;
  const float *scale; /* [n] factors of the rows; NULL: none */
  int n, k;
  ptrdiff_t ahead; /* as in tri_dot */
} tri_panel_pack;

/* y[i * ldy + j] (+)= sum over p of x[i * ldx + p] w[p * panel_cols + j] for i < m, j < n <= panel_cols, p < k. */
typedef struct tri_panel {
  const float *x, *w;
  size_t ldx, ldy;
  float *y;
  int m, n, k;
  bool add;
} tri_panel;

/* Numbers of 16 bits for tile registers: an element of x is the sum of so many bfloat16, exactly. n <= TRI_TILE_COLS
 * rows of w, k elements each, become what tri_tiles multiplies: TRI_TILE_COLS elements for each of k, rounded up to
 * whole groups of TRI_TILE_K, with zeros where n or k ends. The types are bfloat16, int8 and FP8; scales are left out.
 */
enum { TRI_TILE_TERMS = 3, TRI_TILE_COLS = 32, TRI_TILE_K = 32, TRI_TILE_ROWS = 16 };
typedef struct tri_tile_pack {
  uint16_t *out;
  const void *w;
  size_t ldw; /* elements */
  tri_dtype dtype;
  int n, k;
  ptrdiff_t ahead; /* as in tri_dot */
} tri_tile_pack;

/* y[i * ldy + j] (+)= the sum over p < k of x_i[p] w_j[p] for i < m, j < n <= TRI_TILE_COLS, where each block of
 * columns is multiplied by its scale of row j. x has TRI_TILE_ROWS rows after the other, of these TRI_TILE_K elements
 * after the other, and of these the terms, each [TRI_TILE_ROWS][TRI_TILE_K]: what follows m or k is there, and zeros
 * after k. */
enum { TRI_TILE_ELEMENTS = TRI_TILE_ROWS * TRI_TILE_K };
typedef struct tri_tiles {
  const uint16_t *x, *w;
  size_t ldy;
  const float *scale; /* [blocks of k][TRI_TILE_COLS] or NULL */
  int block;          /* columns that have a scale, a multiple of TRI_TILE_K; at least k: all */
  float *y;
  int m, n, k;
  bool add;
} tri_tiles;

/* y[i * ldy + j] += the sum over the groups of k elements (TRI_INT8_GROUP) of scales[i * lds + group] times the group's
 * part of x_i . w_j, for i < m, j < n; rows of x can be read up to a multiple of 64. */
typedef struct tri_int8_dot {
  const int16_t *x;
  size_t ldx;
  const float *scales;
  size_t lds;
  const int8_t *w;
  size_t ldw;
  float *y;
  size_t ldy;
  int m, n, k;
  ptrdiff_t ahead; /* as in tri_dot */
} tri_int8_dot;

/* s[i * ld + j] = q_i . k_j for i < rows, j < keys, keys rounded up to whole groups of TRI_SCORE_GROUP: there are as
 * many places in s and entries in `at`. at[j] is where row j lies; with `ahead`, row at[j + ahead] is prefetched. The
 * bits of a score depend on its row and its key alone. */
enum { TRI_SCORE_GROUP = 8 };
typedef struct tri_scores {
  const float *q;
  size_t ldq;
  const char *const *at;
  tri_dtype dtype;
  float *s;
  size_t ld;
  int rows, keys, d, ahead;
} tri_scores;

/* acc_i = acc_i * factor_i + sum over j of p[i * ldp + j] v_j, in the order of j; at and ahead as in tri_scores. */
typedef struct tri_weigh {
  float *acc;
  size_t ld;
  const float *factor, *p;
  size_t ldp;
  const char *const *at;
  tri_dtype dtype;
  int rows, keys, d, ahead;
} tri_weigh;

/* One query row against one block of keys: see kern_attn.h. */
typedef struct tri_softmax_row {
  float *s;                       /* scores in, probabilities out; n rounded up to whole vectors */
  int n, begin, end;              /* keys of the block, and those of them that this row sees */
  float softcap, slope, distance; /* distance: position of key 0 of the block minus the query's */
  float max, sum;                 /* running, in and out */
} tri_softmax_row;

typedef struct tri_norm_row {
  float *x, *out;
  const float *delta, *weight, *bias;
  int n;
  float delta_scale, eps, weight_offset;
  float mean_square; /* of the whole row; negative: of x */
  tri_norm_kind kind;
} tri_norm_row;

typedef struct tri_epilogue {
  const float *sum, *scale, *bias; /* scale and bias may be NULL */
  float *out;
  int n;
  tri_act act;
  bool accumulate;
} tri_epilogue;

typedef struct tri_cpu_isa {
  const char *name;
  void (*dot)(const tri_dot *d);
  void (*int8_dot)(const tri_int8_dot *d);
  void (*quantize)(int16_t *out, float *scales, const float *x, int k, int n); /* see kern_int8.h */
  int panel_cols;
  void (*pack)(const tri_panel_pack *p);
  void (*panel)(const tri_panel *t);
  /* NULL where the processor has no tile registers. split: k elements of a row of x, as tri_tiles has
   * them; out: its place in the first of the tiles. */
  void (*split)(uint16_t *out, const float *x, int k);
  void (*pack_tiles)(const tri_tile_pack *p);
  void (*tiles)(const tri_tiles *t);
  /* out = act(sum * scale + bias), or += */
  void (*epilogue)(const tri_epilogue *e);
  /* n elements at src widened to float32, times factor */
  void (*expand)(float *out, const void *src, tri_dtype dtype, int n, float factor);
  /* n floats rounded to a KV type */
  void (*narrow)(void *out, tri_dtype dtype, const float *src, int n);
  void (*norm)(const tri_norm_row *r);
  float (*square_sum)(const float *x, int n);
  void (*softcap)(float *x, int n, float scale, float cap);
  void (*glu)(float *out, const float *gate, const float *up, int n, tri_act act, float limit);
  void (*rotate)(float *x, int half, const float *cosine, const float *sine); /* pairs (i, i + half) */
  /* Turns scores into exp(score - new max) and updates max and sum; returns the factor that older sums must be scaled
   * by. */
  float (*softmax_row)(tri_softmax_row *r);
  void (*scores)(const tri_scores *t);
  void (*weigh)(const tri_weigh *t);
  void (*blend)(float *y, float a, const float *x, float b, int n); /* y = a y + b x */
  float (*maximum)(const float *x, int n);                          /* -inf when there is nothing but NaN */
  double (*sum_exp)(const float *x, int n, float max, float inverse_temperature);
  /* Ids from `from` on whose value is at least the threshold, until cap of them are found: returns their number and in
   * *next where to continue. */
  int (*collect)(const float *x, int from, int n, float threshold, uint32_t *ids, int cap, int *next);
} tri_cpu_isa;

extern const tri_cpu_isa tri_cpu_scalar;
#if defined(__x86_64__)
extern const tri_cpu_isa tri_cpu_avx2, tri_cpu_avx512, tri_cpu_avx512vbmi, tri_cpu_amx;
#endif

typedef struct tri_cpu_impl {
  const tri_cpu_isa *isa;
  bool use_blas;
} tri_cpu_impl;

static inline bool tri_cpu_use_blas(const tri_backend *be) { return ((const tri_cpu_impl *)be->impl)->use_blas; }
static inline const tri_cpu_isa *tri_cpu_isa_of(const tri_backend *be) { return ((const tri_cpu_impl *)be->impl)->isa; }

/* Multiply-adds that one thread does in a nanosecond, of floats and of int8: rough numbers for a core with AVX2. */
enum { TRI_CPU_MACS_PER_NS = 16, TRI_CPU_INT8_MACS_PER_NS = 24 };

/* Runs fn on the pool, or on the caller's thread alone (count 1) when the work, in rough nanoseconds of one thread,
 * would not pay for waking the others. The callers estimate it for a core with AVX2: so much for an element, a row or a
 * multiply-add. Nothing else depends on it, so an estimate may be off by a factor. */
static inline void tri_cpu_run(tri_backend *be, double nanoseconds, void (*fn)(void *, int, int), void *ctx) {
  enum { WORTH_SHARING_NS = 6000 };
  if (nanoseconds < WORTH_SHARING_NS || tri_pool_size(be->pool) == 1)
    fn(ctx, 0, 1);
  else
    tri_pool_run(be->pool, fn, ctx);
}

/* Items go to the next thread that asks: threads of a shared machine are not equally fast. */
typedef struct tri_ticket {
  _Atomic int next;
} tri_ticket;
static inline int tri_take(tri_ticket *t) { return atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed); }

static inline int tri_min(int a, int b) { return a < b ? a : b; }
static inline int tri_max(int a, int b) { return a > b ? a : b; }
static inline size_t tri_round_up(size_t a, size_t to) { return (a + to - 1) / to * to; }

/* blas.c, the only file that knows the BLAS: y[m, n] = x[m, k] w[n, k]^T + beta y on the caller's thread. */
void tri_blas_setup(void);
/* False where the library does not know the processor and takes more than twice as long as our own outer products: then
 * it is not used at all. Takes a few milliseconds. */
bool tri_blas_pays(const tri_cpu_isa *isa);
void tri_blas_gemm(int m, int n, int k, const float *x, size_t ldx, const float *w, size_t ldw, float beta, float *y,
                   size_t ldy);

/* gemm.c: n elements of a weight's row from column `col` on as numbers, times factor. */
void tri_cpu_widen_row(const tri_cpu_isa *isa, const tri_weight *w, size_t row, int col, int n, float factor,
                       float *out);

/* linear_int8.c: linear with rounds_rows */
tri_status tri_cpu_linear_int8_plan(tri_backend *be, const tri_linear_args *a, tri_op_plan *plan);
void tri_cpu_linear_int8_launch(tri_backend *be, const tri_linear_args *a);

/* Every op has a launch of this backend; the reference's is as good for these. A map is made while
 * the choices are in the cache; copies are rare and short, and pairs may chain; candidates are few. */
#define tri_cpu_gated_linear_launch tri_ref_gated_linear_launch
#define tri_cpu_gated_mlp_launch tri_ref_gated_mlp_launch
#define tri_cpu_moe_map_launch tri_ref_moe_map_launch
#define tri_cpu_copy_blocks_launch tri_ref_copy_blocks_launch
#define tri_cpu_move_blocks_launch tri_ref_move_blocks_launch
#define tri_cpu_sample_merge_launch tri_ref_sample_merge_launch

/* Ops whose plans are this backend's own; the reference's check the shapes of the others. */
#define TRI_CPU_PLANS(X)                                                                                               \
  X(linear)                                                                                                            \
  X(head_linear)                                                                                                       \
  X(rope_angles)                                                                                                       \
  X(attention)                                                                                                         \
  X(moe_route)                                                                                                         \
  X(moe_experts)                                                                                                       \
  X(sample)                                                                                                            \
  X(sample_part)

#define X(op) void tri_cpu_##op##_launch(tri_backend *be, const tri_op_plan *plan, const tri_##op##_args *a);
TRI_OP_LIST(X)
#undef X
#define X(op) tri_status tri_cpu_##op##_plan(tri_backend *be, const tri_##op##_args *a, tri_op_plan *plan);
TRI_CPU_PLANS(X)
#undef X

#endif
