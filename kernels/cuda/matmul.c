/* Products through cuBLASLt, which adds bias and activation to the sums before it stores them: a kernel of our own
 * would read and write the whole result once more. Which kernel of the library does a product is asked once for each
 * shape and kept with the descriptors, in a table of fixed size, so that a step neither asks nor allocates. */
#include <cublasLt.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "runtime/base/hash.h"

/* A model has a few products for each number of rows that its steps have had. A key may lie in any slot of its set. */
enum { SETS = 128, SET = 8 };
enum { BEST_ALIGNMENT = 256, BIAS_ALIGNMENT = 16 }; /* bytes: the most that the library asks for, and what it loads */

/* What the choice depends on, in ints alone, so that keys can be compared as bytes. */
typedef struct product_key {
  int m, n, k, ldx, ldo;
  int in, out; /* cudaDataType_t */
  int epilogue, adds;
  int align_w, align_x, align_out, align_bias;
} product_key;
_Static_assert(sizeof(product_key) == 13 * sizeof(int), "no gaps");

typedef struct product {
  product_key key; /* m is 0: an empty slot */
  bool works;      /* else the library has nothing for it */
  uint64_t used;   /* number of the last use */
  cublasLtMatmulDescOpaque_t op;
  cublasLtMatrixLayoutOpaque_t w, x, out;
  cublasLtMatmulAlgo_t algo;
} product;

struct tri_cuda_products {
  cublasLtHandle_t handle;
  uint64_t uses;
  product slots[SETS][SET];
};

tri_status tri_cuda_matmul_open(tri_cuda_impl *impl) {
  struct tri_cuda_products *all = tri_calloc(1, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  if (cublasLtCreate(&all->handle) != CUBLAS_STATUS_SUCCESS) {
    tri_free(all);
    return TRI_UNSUPPORTED;
  }
  impl->products = all;
  return TRI_OK;
}

void tri_cuda_matmul_close(tri_cuda_impl *impl) {
  if (impl->products) cublasLtDestroy(impl->products->handle);
  tri_free(impl->products);
  impl->products = NULL;
}

/* ---- what a product is to the library ---- */

static int type_of(tri_dtype t) { return t == TRI_BF16 ? CUDA_R_16BF : t == TRI_F16 ? CUDA_R_16F : CUDA_R_32F; }

/* A bias must have the output's type, and ours are float32. The library's GELU is the one with tanh, in the precision
 * of 16-bit inputs. */
bool tri_cuda_matmul_finishes(const tri_linear_args *a) {
  if (a->bias && (a->out.dtype != TRI_F32 || (uintptr_t)a->bias % BIAS_ALIGNMENT)) return false;
  return a->act == TRI_ACT_NONE || a->act == TRI_ACT_RELU || (a->act == TRI_ACT_GELU_TANH && a->w.dtype != TRI_F32);
}

static int epilogue_of(const tri_linear_args *a) {
  if (!tri_cuda_matmul_finishes(a)) return CUBLASLT_EPILOGUE_DEFAULT;
  if (a->act == TRI_ACT_RELU) return a->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  if (a->act == TRI_ACT_GELU_TANH) return a->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return a->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* The largest power of two that p and every row behind it are multiples of. */
static int alignment(const void *p, int ld, tri_dtype t) {
  size_t bits = (size_t)(uintptr_t)p | (size_t)ld * tri_dtype_size(t) | BEST_ALIGNMENT;
  return (int)(bits & (~bits + 1));
}

static product_key key_of(const tri_linear_args *a, const void *x, int ldx) {
  product_key key = {.m = a->x.rows, .n = a->w.n, .k = a->w.k, .ldx = ldx, .ldo = a->out.ld};
  key.in = type_of(a->w.dtype), key.out = type_of(a->out.dtype);
  key.epilogue = epilogue_of(a), key.adds = a->accumulate;
  key.align_w = alignment(a->w.data, a->w.k, a->w.dtype);
  key.align_x = alignment(x, ldx, a->w.dtype);
  key.align_out = alignment(a->out.data, a->out.ld, a->out.dtype);
  /* The library looks at the pointer itself for this one. */
  if (key.epilogue & CUBLASLT_EPILOGUE_BIAS) key.align_bias = alignment(a->bias, 0, TRI_F32);
  return key;
}

static bool set(product *p, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes) {
  return cublasLtMatmulDescSetAttribute(&p->op, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool lay_out(cublasLtMatrixLayoutOpaque_t *l, int type, int rows, int cols, int ld) {
  return cublasLtMatrixLayoutInit(l, (cudaDataType_t)type, (uint64_t)rows, (uint64_t)cols, ld) == CUBLAS_STATUS_SUCCESS;
}

/* Row-major out[m, n] = x[m, k] w[n, k]^T is column-major out[n, m] = w^T x. Sums are float32, never of TF32. */
static bool describe(product *p, const float *bias) {
  const product_key *key = &p->key;
  int32_t transposed = CUBLAS_OP_T;
  uint32_t epilogue = (uint32_t)key->epilogue;
  bool biased = epilogue & CUBLASLT_EPILOGUE_BIAS;
  return cublasLtMatmulDescInit(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
         set(p, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) &&
         set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
         (!biased || set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias)) &&
         lay_out(&p->w, key->in, key->k, key->n, key->k) && lay_out(&p->x, key->in, key->k, key->m, key->ldx) &&
         lay_out(&p->out, key->out, key->n, key->m, key->ldo);
}

/* ---- the choice ---- */

static bool prefer(cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t what, uint32_t value) {
  return cublasLtMatmulPreferenceSetAttribute(pref, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

/* Parts of a sum are put together in float32, whatever the output's type. */
static bool state_limits(cublasLtMatmulPreference_t pref, const product_key *key) {
  uint64_t room = TRI_CUDA_BLAS_ROOM;
  uint32_t reductions =
      key->out == CUDA_R_32F ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  return cublasLtMatmulPreferenceInit(pref) == CUBLAS_STATUS_SUCCESS &&
         cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room) ==
             CUBLAS_STATUS_SUCCESS &&
         prefer(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions) &&
         prefer(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->align_w) &&
         prefer(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->align_x) &&
         prefer(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->align_out) &&
         prefer(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->align_out);
}

static bool choose(cublasLtHandle_t handle, product *p) {
  cublasLtMatmulPreferenceOpaque_t pref;
  cublasLtMatmulHeuristicResult_t best = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
  int found = 0;
  if (!state_limits(&pref, &p->key) ||
      cublasLtMatmulAlgoGetHeuristic(handle, &p->op, &p->w, &p->x, &p->out, &p->out, &pref, 1, &best, &found) !=
          CUBLAS_STATUS_SUCCESS ||
      !found || best.state != CUBLAS_STATUS_SUCCESS)
    return false;
  p->algo = best.algo;
  return true;
}

/* The product of a key; if it is new, in the place of the one of its set that has been unused for longest. */
static product *find(struct tri_cuda_products *all, const product_key *key, const float *bias) {
  product *slots = all->slots[tri_hash_bytes(TRI_HASH_SEED, key, sizeof *key) % SETS], *oldest = slots;
  for (int i = 0; i < SET; i++) {
    if (!memcmp(&slots[i].key, key, sizeof *key)) return &slots[i];
    if (slots[i].used < oldest->used) oldest = &slots[i];
  }
  *oldest = (product){.key = *key};
  oldest->works = describe(oldest, bias) && choose(all->handle, oldest);
  return oldest;
}

/* A product that the library refused once is not tried again. */
bool tri_cuda_matmul(tri_cuda_impl *impl, const tri_linear_args *a, const void *x, int ldx) {
  struct tri_cuda_products *all = impl->products;
  product_key key = key_of(a, x, ldx);
  product *p = find(all, &key, a->bias);
  float one = 1, beta = a->accumulate ? 1 : 0;
  bool biased = key.epilogue & CUBLASLT_EPILOGUE_BIAS;
  p->used = ++all->uses;
  if (!p->works) return false;
  p->works =
      (!biased || set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias, sizeof a->bias)) &&
      cublasLtMatmul(all->handle, &p->op, &one, a->w.data, &p->w, x, &p->x, &beta, a->out.data, &p->out, a->out.data,
                     &p->out, &p->algo, impl->blas_room, TRI_CUDA_BLAS_ROOM, impl->stream) == CUBLAS_STATUS_SUCCESS;
  return p->works;
}
