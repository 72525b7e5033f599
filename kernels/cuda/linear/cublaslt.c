/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs through cuBLASLt, which adds bias and activation to the sums before it stores them: a kernel of our own
 * would read and write the whole result once more. Which kernel of the library does a GEMM is chosen already
 * (kernels/gemm_tactics.h) or asked once for each shape, and kept with the descriptors, in a table of fixed size, so
 * that a step neither asks nor allocates. */
#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "kernels/gemm_tactics.h"
#include "kernels/cuda/cuda.h"
#include "base/hash.h"

/* A model has a few GEMMs for each number of rows that its steps have had. A key may lie in any slot of its set. */
enum { SETS = 128, SET = 8 };
/* Bytes: the most that the library asks for, and the most that it loads at a time. */
enum { BEST_ALIGNMENT = 256, LOAD_ALIGNMENT = 16 };

/* The kernel depends on this, in ints alone, so that keys can be compared as bytes. */
typedef struct gemm_key {
  int m, n, k, ldx, ldo;
  int in, out; /* cudaDataType_t */
  int epilogue, adds;
  int align_w, align_x, align_out, align_bias;
  int scale_w, scale_x; /* cublasLtMatmulMatrixScale_t; both 0: without scales */
  int asks, words[2];   /* whether the library may choose; of a tactic's algorithm, folded; 0: none */
} gemm_key;
_Static_assert(sizeof(gemm_key) == 18 * sizeof(int), "no gaps");

typedef struct gemm {
  gemm_key key;  /* m is 0: an empty slot */
  bool works;    /* else the library has nothing for it */
  bool chosen;   /* algo is that of a tactic */
  uint64_t used; /* number of the last use */
  cublasLtMatmulDescOpaque_t op;
  cublasLtMatrixLayoutOpaque_t w, x, out;
  cublasLtMatmulAlgo_t algo;
} gemm;

struct tri_cuda_gemms {
  cublasLtHandle_t handle;
  uint64_t uses;
  gemm slots[SETS][SET];
};

tri_status tri_cuda_matmul_open(tri_cuda_impl *impl) {
  struct tri_cuda_gemms *all = tri_calloc(1, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  if (cublasLtCreate(&all->handle) != CUBLAS_STATUS_SUCCESS) {
    tri_free(all);
    return TRI_UNSUPPORTED;
  }
  impl->gemms = all;
  return TRI_OK;
}

void tri_cuda_matmul_close(tri_cuda_impl *impl) {
  if (impl->gemms) cublasLtDestroy(impl->gemms->handle);
  tri_free(impl->gemms);
  impl->gemms = NULL;
}

size_t tri_cuda_matmul_version(void) { return cublasLtGetVersion(); }

/* ---- what a GEMM is to the library ---- */

/* A bias must have the output's type, and ours are float32. The library's GELU is the one with tanh, in the precision
 * of 16-bit inputs. */
bool tri_cuda_matmul_finishes(const tri_linear_args *a) {
  if (a->w.dtype == TRI_F8_E4M3) return !a->bias && a->act == TRI_ACT_NONE;
  if (a->bias && (a->out.dtype != TRI_F32 || (uintptr_t)a->bias % LOAD_ALIGNMENT)) return false;
  return a->act == TRI_ACT_NONE || a->act == TRI_ACT_RELU || (a->act == TRI_ACT_GELU_TANH && a->w.dtype != TRI_F32);
}

static int epilogue_of(const tri_linear_args *a) {
  if (!tri_cuda_matmul_finishes(a)) return CUBLASLT_EPILOGUE_DEFAULT;
  if (a->act == TRI_ACT_RELU) return a->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  if (a->act == TRI_ACT_GELU_TANH) return a->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return a->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* The largest power of two that p and every row after it are multiples of. */
static int alignment(const void *p, int ld, tri_dtype t) {
  size_t bits = (size_t)(uintptr_t)p | (size_t)ld * tri_dtype_size(t) | BEST_ALIGNMENT;
  return (int)(bits & (~bits + 1));
}

static gemm_key key_of(const tri_linear_args *a, const void *x, int ldx) {
  gemm_key key = {.m = a->x.rows, .n = a->w.n, .k = a->w.k, .ldx = ldx, .ldo = a->out.ld};
  key.in = tri_cuda_type_of(a->w.dtype);
  key.out = tri_cuda_type_of(a->out.dtype);
  key.epilogue = epilogue_of(a);
  key.adds = a->accumulate;
  key.align_w = alignment(a->w.data, a->w.k, a->w.dtype);
  key.align_x = alignment(x, ldx, a->w.dtype);
  key.align_out = alignment(a->out.data, a->out.ld, a->out.dtype);
  /* The library looks at the pointer itself for this one. */
  if (key.epilogue & CUBLASLT_EPILOGUE_BIAS) key.align_bias = alignment(a->bias, 0, TRI_F32);
  return key;
}

static bool set(gemm *p, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes) {
  return cublasLtMatmulDescSetAttribute(&p->op, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool lay_out(cublasLtMatrixLayoutOpaque_t *l, int type, int rows, int cols, int ld) {
  return cublasLtMatrixLayoutInit(l, (cudaDataType_t)type, (uint64_t)rows, (uint64_t)cols, ld) == CUBLAS_STATUS_SUCCESS;
}

/* The vectors that a GEMM reads. */
typedef struct gemm_vectors {
  const float *bias, *scale_w, *scale_x;
} gemm_vectors;

/* The library wants to see them before it is asked, too. */
static bool point_at(gemm *p, const gemm_vectors *v) {
  bool biased = p->key.epilogue & CUBLASLT_EPILOGUE_BIAS, scaled = p->key.scale_w;
  return (!biased || set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &v->bias, sizeof v->bias)) &&
         (!scaled || (set(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &v->scale_w, sizeof v->scale_w) &&
                      set(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &v->scale_x, sizeof v->scale_x)));
}

static bool set_scale_modes(gemm *p) {
  int32_t w = p->key.scale_w, x = p->key.scale_x;
  return !w || (set(p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &w, sizeof w) &&
                set(p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &x, sizeof x));
}

/* Row-major out[m, n] = x[m, k] w[n, k]^T is column-major out[n, m] = w^T x. Sums are float32, never of TF32. */
static bool describe(gemm *p, const gemm_vectors *v) {
  const gemm_key *key = &p->key;
  int32_t transposed = CUBLAS_OP_T;
  uint32_t epilogue = (uint32_t)key->epilogue;
  return cublasLtMatmulDescInit(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
         set(p, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) &&
         set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) && set_scale_modes(p) && point_at(p, v) &&
         lay_out(&p->w, key->in, key->k, key->n, key->k) && lay_out(&p->x, key->in, key->k, key->m, key->ldx) &&
         lay_out(&p->out, key->out, key->n, key->m, key->ldo);
}

/* ---- the library's own choice ---- */

static bool prefer(cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t what, uint32_t value) {
  return cublasLtMatmulPreferenceSetAttribute(pref, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

/* Parts of a sum are put together in float32, whatever the output's type. */
static uint32_t reductions_for(const gemm_key *key) {
  return key->out == CUDA_R_32F ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

static bool state_limits(cublasLtMatmulPreference_t pref, const gemm_key *key) {
  uint64_t room = TRI_CUDA_BLAS_ROOM;
  return cublasLtMatmulPreferenceInit(pref) == CUBLAS_STATUS_SUCCESS &&
         cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room) ==
             CUBLAS_STATUS_SUCCESS &&
         prefer(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions_for(key)) &&
         prefer(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->align_w) &&
         prefer(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->align_x) &&
         prefer(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->align_out) &&
         prefer(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->align_out);
}

/* Up to `most` results; how many there are. */
static int ask(cublasLtHandle_t handle, gemm *p, int most, cublasLtMatmulHeuristicResult_t *results) {
  cublasLtMatmulPreferenceOpaque_t pref;
  int found = 0;
  if (!state_limits(&pref, &p->key) ||
      cublasLtMatmulAlgoGetHeuristic(handle, &p->op, &p->w, &p->x, &p->out, &p->out, &pref, most, results, &found) !=
          CUBLAS_STATUS_SUCCESS)
    return 0;
  return found;
}

static bool ask_for_best(cublasLtHandle_t handle, gemm *p) {
  cublasLtMatmulHeuristicResult_t best = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
  if (!ask(handle, p, 1, &best) || best.state != CUBLAS_STATUS_SUCCESS) return false;
  p->algo = best.algo;
  return true;
}

/* ---- tactics that were measured before ---- */

/* Returns the alignment in bytes of rows of that type and width, of a matrix that begins at a multiple of
 * LOAD_ALIGNMENT and has nothing between its rows. */
static int packed_alignment(int cols, int type) {
  size_t bits = (size_t)cols * (type == CUDA_R_32F ? 4 : 2) | LOAD_ALIGNMENT;
  return (int)(bits & (~bits + 1));
}

/* Tactics are measured for, and good for, GEMMs that lie no worse than that. */
static bool lies_well(const gemm_key *key) {
  return key->align_w >= packed_alignment(key->k, key->in) && key->align_x >= packed_alignment(key->k, key->in) &&
         key->align_out >= packed_alignment(key->n, key->out);
}

static bool get(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what, void *value,
                size_t bytes) {
  size_t written;
  return cublasLtMatmulAlgoConfigGetAttribute(algo, what, value, bytes, &written) == CUBLAS_STATUS_SUCCESS;
}

/* True where its parts, if it cuts sums into any, are put together as they must be. */
static bool sums_well(const cublasLtMatmulAlgo_t *algo, const gemm_key *key) {
  int32_t splits;
  uint32_t scheme;
  return get(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits) &&
         get(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme) &&
         (splits <= 1 || !(scheme & ~reductions_for(key)));
}

/* The library has the last word on whether it can do this GEMM, with the rows that it has, in this way. */
static bool restore(cublasLtHandle_t handle, gemm *p, const uint64_t *words) {
  cublasLtMatmulHeuristicResult_t result = {0};
  cublasLtMatmulAlgo_t known;
  cudaDataType_t in = (cudaDataType_t)p->key.in, out = (cudaDataType_t)p->key.out;
  int32_t id;
  _Static_assert(sizeof p->algo == TRI_TACTIC_WORDS * sizeof *words, "the words are the whole algorithm");
  memcpy(&p->algo, words, sizeof p->algo);
  return lies_well(&p->key) && get(&p->algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id) &&
         cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, in, in, out, out, id, &known) ==
             CUBLAS_STATUS_SUCCESS &&
         sums_well(&p->algo, &p->key) &&
         cublasLtMatmulAlgoCheck(handle, &p->op, &p->w, &p->x, &p->out, &p->out, &p->algo, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= TRI_CUDA_BLAS_ROOM;
}

static void describe_algo(const cublasLtMatmulAlgo_t *algo, char note[TRI_TACTIC_NOTE]) {
  int32_t id = -1, splits = 0;
  uint32_t tile = 0, stages = 0, scheme = 0, swizzle = 0, custom = 0;
  uint16_t inner = 0, cluster = 0;
  get(algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id);
  get(algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile);
  get(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages, sizeof stages);
  get(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits);
  get(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme);
  get(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &swizzle, sizeof swizzle);
  get(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &custom, sizeof custom);
  get(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, &inner, sizeof inner);
  get(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster, sizeof cluster);
  snprintf(note, TRI_TACTIC_NOTE,
           "algo %d tile %u stages %u splits %d reduction %u swizzle %u custom %u inner %u cluster %u", id, tile,
           stages, splits, scheme, swizzle, custom, inner, cluster);
}

int tri_cuda_matmul_propose(tri_backend *be, const tri_linear_args *a, const void *x, int ldx, int most,
                            tri_tactic *out) {
  cublasLtMatmulHeuristicResult_t results[TRI_CUDA_PROPOSALS];
  gemm p = {.key = key_of(a, x, ldx)};
  int count = 0;
  if (!lies_well(&p.key) || !describe(&p, &(gemm_vectors){.bias = a->bias})) return 0;
  p.key.align_w = p.key.align_x = packed_alignment(p.key.k, p.key.in);
  p.key.align_out = packed_alignment(p.key.n, p.key.out);
  int found = ask(tri_cuda_of(be)->gemms->handle, &p, most < TRI_CUDA_PROPOSALS ? most : TRI_CUDA_PROPOSALS, results);
  for (int i = 0; i < found; i++) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > TRI_CUDA_BLAS_ROOM) continue;
    out[count] = (tri_tactic){.kind = TRI_TACTIC_ALGO};
    memcpy(out[count].words, &results[i].algo, sizeof out[count].words);
    describe_algo(&results[i].algo, out[count++].note);
  }
  return count;
}

/* ---- a step's GEMMs ---- */

/* For the key: what was made with one tactic's algorithm is not another one's. */
static uint64_t fold(const uint64_t *words) {
  uint64_t h = 1;
  for (int i = 0; words && i < TRI_TACTIC_WORDS; i++) {
    h = (h ^ words[i]) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }
  return words ? h : 0;
}

/* The GEMM of a key; if it is new, in the place of the one of its set that has been unused for longest. words: the
 * algorithm of a tactic, or NULL. */
static gemm *find(struct tri_cuda_gemms *all, const gemm_key *key, const gemm_vectors *v, const uint64_t *words) {
  gemm *slots = all->slots[tri_hash_bytes(TRI_HASH_SEED, key, sizeof *key) % SETS], *oldest = slots;
  for (int i = 0; i < SET; i++) {
    if (!memcmp(&slots[i].key, key, sizeof *key)) return &slots[i];
    if (slots[i].used < oldest->used) oldest = &slots[i];
  }
  *oldest = (gemm){.key = *key};
  bool described = describe(oldest, v);
  oldest->chosen = described && words && restore(all->handle, oldest, words);
  oldest->works = oldest->chosen || (described && key->asks && ask_for_best(all->handle, oldest));
  return oldest;
}

static bool launch(tri_cuda_impl *impl, gemm *p, const tri_linear_args *a, const void *x, const gemm_vectors *v) {
  float one = 1, beta = a->accumulate ? 1 : 0;
  const tri_cuda_lane *lane = &impl->lanes[impl->lane];
  return point_at(p, v) && cublasLtMatmul(impl->gemms->handle, &p->op, &one, a->w.data, &p->w, x, &p->x, &beta,
                                          a->out.data, &p->out, a->out.data, &p->out, &p->algo, lane->blas_room,
                                          TRI_CUDA_BLAS_ROOM, lane->stream) == CUBLAS_STATUS_SUCCESS;
}

/* A GEMM that the library refused once is not tried again. */
bool tri_cuda_matmul(tri_backend *be, const tri_linear_args *a, const void *x, int ldx, const uint64_t *words,
                     bool asks) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  struct tri_cuda_gemms *all = impl->gemms;
  gemm_key key = key_of(a, x, ldx);
  uint64_t folded = fold(words);
  key.asks = asks;
  key.words[0] = (int)(uint32_t)folded;
  key.words[1] = (int)(uint32_t)(folded >> 32);
  gemm_vectors v = {.bias = a->bias};
  gemm *p = find(all, &key, &v, words);
  p->used = ++all->uses;
  if (p->works) p->works = launch(impl, p, a, x, &v);
  if (!p->works && p->chosen) { /* what the library had checked it then did not do: its own choice, from now on */
    p->chosen = false;
    p->works = asks && ask_for_best(all->handle, p) && launch(impl, p, a, x, &v);
  }
  impl->refused += words && !p->chosen;
  return p->works;
}

/* ---- GEMMs of 8 bits ---- */

/* The library's layouts of scales (cuBLAS 13.0, "Scaling Factors Layouts"): of weights [blocks of n, blocks of k], k's
 * in fours; of rows [groups of k, rows], with rows in fours. */
enum { BLOCK = 128, EIGHT_BIT_LINE = 16 };

static bool blocks_lie_well(const tri_weight *w) {
  const tri_groups *g = &w->groups;
  return g->rows == BLOCK && g->cols == BLOCK && !g->skip_row && !g->skip_col && w->k % (4 * BLOCK) == 0;
}

bool tri_cuda_matmul_8bit_fits(const tri_linear_args *a) {
  const tri_weight *w = &a->w;
  bool form = w->dtype == TRI_F8_E4M3 && (tri_weight_is_blocked(w) ? blocks_lie_well(w) : w->groups.rows <= 1);
  bool whole = w->k % EIGHT_BIT_LINE == 0 && w->n % EIGHT_BIT_LINE == 0 && a->out.ld % EIGHT_BIT_LINE == 0;
  uintptr_t places = (uintptr_t)w->data | (uintptr_t)w->scale | (uintptr_t)a->out.data;
  return form && whole && w->k && w->n && places % LOAD_ALIGNMENT == 0 && (!a->accumulate || a->act == TRI_ACT_NONE);
}

bool tri_cuda_matmul_8bit(tri_backend *be, const tri_linear_args *a, const tri_cuda_rounded *x) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  struct tri_cuda_gemms *all = impl->gemms;
  bool blocked = tri_weight_is_blocked(&a->w);
  gemm_key key = key_of(a, x->q, a->w.k);
  key.in = CUDA_R_8F_E4M3;
  key.asks = 1;
  key.scale_w = blocked ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  key.scale_x = blocked ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  gemm_vectors v = {.scale_w = a->w.scale, .scale_x = x->scales};
  gemm *p = find(all, &key, &v, NULL);
  p->used = ++all->uses;
  if (p->works) p->works = launch(impl, p, a, x->q, &v);
  return p->works;
}
