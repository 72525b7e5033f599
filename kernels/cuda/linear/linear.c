/* SPDX-License-Identifier: Apache-2.0 */
/* Runs GEMMs by their tactics. Without a tactic (kernels/gemm_tactics.h): few rows, few columns, and int8, through
 * our own kernels; others through cuBLAS, or, where a bias or an activation follows, through cuBLASLt
 * (linear/cublaslt.c) if that takes it. The inputs of GEMMs with 16-bit weights are rounded to their type; sums are
 * float32 (never TF32).
 */
#include <cublas_v2.h>

#include "kernels/gemm_tactics.h"
#include "kernels/cuda/cuda.h"

/* Rows from which the library is as fast as reading the weights: on its tensor cores, and on plain float32 ones. */
enum { LIBRARY_FROM = 3, LIBRARY_FROM_F32 = 17 };

/* Points the handle at the lane's stream and memory. Setting the stream takes the memory away, and without it the
 * library would allocate inside a recorded step. */
static bool follow(tri_cuda_impl *impl) {
  const tri_cuda_lane *lane = &impl->lanes[impl->lane];
  return cublasSetStream(impl->blas, lane->stream) == CUBLAS_STATUS_SUCCESS &&
         cublasSetWorkspace(impl->blas, lane->blas_room, TRI_CUDA_BLAS_ROOM) == CUBLAS_STATUS_SUCCESS;
}

tri_status tri_cuda_blas_open(tri_cuda_impl *impl) {
  cublasHandle_t handle;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return TRI_UNSUPPORTED;
  impl->blas = handle;
  for (int i = 0; i < TRI_CUDA_LANES; i++)
    if (cudaMalloc(&impl->lanes[i].blas_room, TRI_CUDA_BLAS_ROOM) != cudaSuccess) return TRI_UNSUPPORTED;
  if (!follow(impl) || cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH) != CUBLAS_STATUS_SUCCESS) return TRI_UNSUPPORTED;
  return tri_cuda_matmul_open(impl);
}

void tri_cuda_blas_follow(tri_backend *be) {
  if (!follow(tri_cuda_of(be))) tri_cuda_note(be, cudaErrorUnknown);
}

void tri_cuda_blas_close(tri_cuda_impl *impl) {
  tri_cuda_matmul_close(impl);
  if (impl->blas) cublasDestroy(impl->blas);
  for (int i = 0; i < TRI_CUDA_LANES; i++)
    if (impl->lanes[i].blas_room) cudaFree(impl->lanes[i].blas_room);
}

/* Both an activation and an addition are not for the library: it would add the old output first, and ours is added to
 * what the activation gives. */
bool tri_cuda_library_can(const tri_linear_args *a) {
  bool sums_in_place = !a->accumulate || a->act == TRI_ACT_NONE;
  return a->w.dtype <= TRI_BF16 && sums_in_place && a->w.k > 0 && a->w.n > 0 && a->x.rows > 0;
}

static bool is_skinny(const tri_backend *be, const tri_linear_args *a) {
  return tri_cuda_of(be)->is_hopper && !tri_cuda_is_narrow(a) && tri_cuda_skinny_fits(a);
}
bool tri_cuda_skinny_by_default(const tri_backend *be, const tri_linear_args *a) {
  return is_skinny(be, a) && tri_cuda_skinny_pays(a, tri_cuda_of(be)->num_sms);
}

bool tri_cuda_library_by_default(const tri_backend *be, const tri_linear_args *a) {
  int from = a->w.dtype == TRI_F32 ? LIBRARY_FROM_F32 : LIBRARY_FROM;
  return tri_cuda_library_can(a) && a->x.rows >= from && !tri_cuda_is_narrow(a) && !tri_cuda_skinny_by_default(be, a);
}

/* Looks at shapes alone, so that plan and launch agree. */
static const tri_tactic *tactic_for(const tri_backend *be, const tri_linear_args *a) {
  static const tri_tactic none = {.kind = TRI_TACTIC_DEFAULT};
  const tri_cuda_impl *impl = tri_cuda_of(be);
  tri_gemm_shape shape = tri_gemm_shape_of(a);
  const tri_tactic *found = impl->forced ? impl->forced : tri_tactics_find(be->tactics, &shape);
  if (!found && a->accumulate) { /* what it adds to comes last */
    shape.add = 0;
    found = tri_tactics_find(be->tactics, &shape);
  }
  return found ? found : &none;
}

static bool uses_library(const tri_backend *be, const tri_linear_args *a, const tri_tactic *tactic) {
  if (tactic->kind == TRI_TACTIC_DEFAULT || !tri_cuda_library_can(a)) return tri_cuda_library_by_default(be, a);
  return tactic->kind != TRI_TACTIC_OWN;
}

static bool is_8bit_gemm(const tri_backend *be, const tri_linear_args *a) {
  return tri_cuda_of(be)->is_hopper && tri_cuda_8bit_fits(a);
}

/* ---- prompts with weights of int8 ----
 *
 * With rows of 16 bits it is cheaper, from some rows on, to widen the weights, a slab at a time, and multiply with the
 * kernels of 16 bits than to widen each tile's weights once for every 128 rows. A slab is small enough to be read from
 * the second-level cache where k allows it, and wide enough to fill the device. */

/* Rows from which it pays (H200, an 8B: 4.6 ms of widening a step, against 21 ms that 2,048 rows lose in the other
 * kernel), and a slab's. */
enum { WIDENED_FROM = 512, GATED_FROM = 1024, SLAB = 4096, SLAB_ELEMENTS = 1 << 24, SIXTEEN = 16 };

static int slab_of(const tri_linear_args *a) {
  int rows = SLAB_ELEMENTS / a->w.k / SLAB * SLAB;
  if (rows < SLAB) rows = SLAB;
  return rows < a->w.n ? rows : a->w.n;
}

static bool can_widen(const tri_linear_args *a) {
  return a->w.dtype == TRI_I8 && !a->rounds_rows && a->x.dtype != TRI_F32 && a->w.k % SIXTEEN == 0 && a->w.k > 0 &&
         a->w.n % SIXTEEN == 0 && (uintptr_t)a->w.data % SIXTEEN == 0;
}

static bool widens_weights(const tri_linear_args *a) { return can_widen(a) && a->x.rows >= WIDENED_FROM; }

size_t tri_cuda_int8_slab_bytes(const tri_linear_args *a) { return (size_t)slab_of(a) * (size_t)a->w.k * 2; }

/* ---- prompts with rows of FP8 ----
 *
 * The library multiplies rows and weights of FP8 from some rows on faster than our own kernel; the last rows, where it
 * wants fours of them, are the own kernel's. */

enum { LIBRARY_8BIT_FROM = 65, FOURS = 4 };

bool tri_cuda_prefers_library_8bit(const tri_linear_args *a) {
  return a->rounds_rows && a->x.rows >= LIBRARY_8BIT_FROM && tri_cuda_matmul_8bit_fits(a);
}

static tri_linear_args rows_of(const tri_linear_args *a, int first, int rows) {
  tri_linear_args part = *a;
  part.x.data = (float *)((char *)a->x.data + (size_t)first * (size_t)a->x.ld * tri_dtype_size(a->x.dtype));
  part.out.data = (float *)((char *)a->out.data + (size_t)first * (size_t)a->out.ld * tri_dtype_size(a->out.dtype));
  part.x.rows = part.out.rows = rows;
  return part;
}

static tri_status library_8bit(tri_backend *be, const tri_linear_args *a) {
  cudaStream_t stream = tri_cuda_stream(be);
  int num_sms = tri_cuda_of(be)->num_sms, fours = tri_weight_is_blocked(&a->w) ? FOURS : 1;
  int left = a->x.rows % fours, most = a->x.rows - left;
  tri_linear_args part = rows_of(a, 0, most), last = rows_of(a, most, left);
  if (!tri_cuda_prefers_library_8bit(a)) return TRI_UNSUPPORTED;
  tri_cuda_rounded x = tri_cuda_round(stream, part.x, &a->w, be->workspace);
  if (!tri_cuda_matmul_8bit(be, &part, &x)) return TRI_UNSUPPORTED;
  tri_cuda_epilogue(stream, &part);
  if (left) tri_cuda_note(be, tri_cuda_8bit_linear(stream, &last, be->workspace, tri_cuda_queue_of(be), num_sms));
  return TRI_OK;
}

/* Returns the bytes of our own kernel, for all rows or for the last ones, which the library leaves to it. */
static size_t workspace_8bit(const tri_linear_args *a, int num_sms) {
  size_t whole = tri_cuda_8bit_workspace(a, num_sms), rest = 0;
  for (int left = 1; left < FOURS && tri_cuda_prefers_library_8bit(a); left++) {
    tri_linear_args last = rows_of(a, 0, left);
    size_t bytes = tri_cuda_8bit_workspace(&last, num_sms);
    if (bytes > rest) rest = bytes;
  }
  return whole > rest ? whole : rest;
}

/* ---- any GEMM ---- */

/* Weights of float32 take such rows alone. */
static bool widens_rows(const tri_linear_args *a) { return a->w.dtype == TRI_F32 && a->x.dtype != TRI_F32; }
static size_t widened_bytes(const tri_linear_args *a) {
  return ((size_t)a->x.rows * (size_t)a->w.k * sizeof(float) + 255) & ~(size_t)255;
}
static tri_linear_args with_rows_at(const tri_linear_args *a, void *rows) {
  tri_linear_args wide = *a;
  wide.x = (tri_mat){.data = rows, .rows = a->x.rows, .cols = a->x.cols, .ld = a->w.k, .dtype = TRI_F32};
  return wide;
}

static size_t workspace_of(const tri_backend *be, const tri_linear_args *a) {
  if (widens_weights(a)) return tri_cuda_int8_slab_bytes(a);
  if (is_8bit_gemm(be, a)) return workspace_8bit(a, tri_cuda_of(be)->num_sms);
  if (!uses_library(be, a, tactic_for(be, a))) return tri_cuda_own_linear_workspace(a);
  return a->w.dtype == a->x.dtype ? 0 : (size_t)a->x.rows * (size_t)a->w.k * 2;
}

size_t tri_cuda_linear_workspace(const tri_backend *be, const tri_linear_args *a) {
  if (!widens_rows(a)) return workspace_of(be, a);
  tri_linear_args wide = with_rows_at(a, NULL);
  return widened_bytes(a) + workspace_of(be, &wide);
}

/* The same GEMM as tri_cuda_matmul's, of sums alone. */
static cublasStatus_t gemm(tri_cuda_impl *impl, const tri_linear_args *a, const void *x, int ldx) {
  float one = 1, beta = a->accumulate ? 1 : 0;
  cudaDataType_t type = tri_cuda_type_of(a->w.dtype);
  return cublasGemmEx(impl->blas, CUBLAS_OP_T, CUBLAS_OP_N, a->w.n, a->x.rows, a->w.k, &one, a->w.data, type, a->w.k, x,
                      type, ldx, &beta, a->out.data, tri_cuda_type_of(a->out.dtype), a->out.ld, CUBLAS_COMPUTE_32F,
                      CUBLAS_GEMM_DEFAULT);
}

/* Through the library. False: by the tactic it was to be an algorithm that does not work here, and the default one is
 * another one. */
static bool library_linear(tri_backend *be, const tri_linear_args *a, const tri_tactic *tactic) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  const void *x = a->x.data;
  int ldx = a->x.ld;
  bool chosen = tactic->kind == TRI_TACTIC_ALGO, by_default = tri_cuda_library_by_default(be, a), done = false;
  /* The older interface has the same kernels for plain GEMMs, and chooses better among them for few rows. */
  bool plain = !a->bias && a->act == TRI_ACT_NONE, asks = by_default && !plain && tactic->kind != TRI_TACTIC_GEMM;
  if (a->w.dtype != a->x.dtype) {
    tri_cuda_narrow(tri_cuda_stream(be), &a->x, a->w.dtype, be->workspace);
    x = be->workspace;
    ldx = a->w.k;
  }
  if (chosen || asks) done = tri_cuda_matmul(be, a, x, ldx, chosen ? tactic->words : NULL, asks);
  if (done && tri_cuda_matmul_finishes(a)) return true;
  if (!done && chosen && !by_default) return false;
  if (!done && gemm(impl, a, x, ldx) != CUBLAS_STATUS_SUCCESS) tri_cuda_note(be, cudaErrorUnknown);
  tri_cuda_epilogue(tri_cuda_stream(be), a);
  return true;
}

unsigned *tri_cuda_queue_of(tri_backend *be) { return tri_cuda_lane_of(be)->slabs + TRI_CUDA_SLABS; }

/* Columns first .. first + n - 1 of a GEMM, with weights that are widened to be->workspace. */
static tri_linear_args slab_at(tri_backend *be, const tri_linear_args *a, int first, int n) {
  tri_linear_args s = *a;
  s.w = (tri_weight){.data = be->workspace, .dtype = a->x.dtype, .n = n, .k = a->w.k};
  s.bias = a->bias ? a->bias + first : NULL;
  s.out.data = (float *)((char *)a->out.data + (size_t)first * tri_dtype_size(a->out.dtype));
  s.out.cols = n;
  return s;
}

static void widened_linear(tri_backend *be, const tri_linear_args *a) {
  int slab = slab_of(a);
  for (int first = 0; first < a->w.n; first += slab) {
    int n = slab < a->w.n - first ? slab : a->w.n - first;
    tri_linear_args s = slab_at(be, a, first, n);
    tri_cuda_widen_int8(tri_cuda_stream(be), &a->w, first, n, s.w.dtype, be->workspace);
    tri_cuda_linear(be, &s);
  }
}

void tri_cuda_linear(tri_backend *be, const tri_linear_args *given) {
  const tri_linear_args *a = given;
  tri_linear_args wide;
  if (widens_rows(given)) { /* no GEMM with such weights looks at the workspace */
    wide = with_rows_at(given, be->workspace);
    tri_cuda_widen(tri_cuda_stream(be), &given->x, wide.x.data);
    a = &wide;
  }
  const tri_tactic *tactic = tactic_for(be, a);
  if (uses_library(be, a, tactic) && library_linear(be, a, tactic)) return;
  if (library_8bit(be, a) == TRI_OK) return;
  if (widens_weights(a))
    widened_linear(be, a);
  else if (is_8bit_gemm(be, a))
    tri_cuda_note(be, tri_cuda_8bit_linear(tri_cuda_stream(be), a, be->workspace, tri_cuda_queue_of(be),
                                           tri_cuda_of(be)->num_sms));
  else if (is_skinny(be, a) && (a->x.rows >= LIBRARY_FROM || tri_cuda_skinny_by_default(be, a)))
    tri_cuda_note(be, tri_cuda_skinny(tri_cuda_stream(be), a));
  else
    tri_cuda_own_linear(tri_cuda_stream(be), a, be->workspace);
}

/* Units first .. first + n - 1 of a gated GEMM: a slab has their gates and then their ups. */
static tri_gated_linear_args gated_slab_at(tri_backend *be, const tri_gated_linear_args *a, int first, int n) {
  tri_gated_linear_args s = *a;
  s.up.w = (tri_weight){.data = be->workspace, .dtype = a->up.x.dtype, .n = 2 * n, .k = a->up.w.k};
  s.glu.out.data = (float *)((char *)a->glu.out.data + (size_t)first * tri_dtype_size(a->glu.out.dtype));
  s.glu.out.cols = n;
  return s;
}

bool tri_cuda_int8_gated_prompt_fits(const tri_gated_linear_args *a) {
  tri_gated_linear_args wide = *a;
  if (!can_widen(&a->up) || a->up.x.rows < GATED_FROM) return false;
  wide.up.w.dtype = a->up.x.dtype;
  return tri_cuda_gated_prompt_fits(&wide);
}

void tri_cuda_int8_gated_prompt(tri_backend *be, const tri_gated_linear_args *a) {
  cudaStream_t stream = tri_cuda_stream(be);
  int units = a->glu.out.cols, slab = slab_of(&a->up) / 2;
  for (int first = 0; first < units; first += slab) {
    int n = slab < units - first ? slab : units - first;
    tri_gated_linear_args s = gated_slab_at(be, a, first, n);
    char *ups = (char *)be->workspace + (size_t)n * (size_t)a->up.w.k * 2;
    tri_cuda_widen_int8(stream, &a->up.w, first, n, s.up.w.dtype, be->workspace);
    tri_cuda_widen_int8(stream, &a->up.w, units + first, n, s.up.w.dtype, ups);
    tri_cuda_note(be, tri_cuda_gated_prompt(stream, &s, tri_cuda_of(be)->num_sms));
  }
}
