/* SPDX-License-Identifier: Apache-2.0 */
/* The device's ceilings: what reading its memory takes, and GEMMs of its library. Times are those of events on the
 * stream, after work that keeps the device busy until all of them are there: the launches' own time is not in them.
 * Reads walk through a buffer of several times the caches, so that none of it is there from the last time. The variants
 * of reading and sizes of GEMMs are raced once, when the roofline is made, and the fastest are used from then on. */
#include <cublas_v2.h>
#include <stdio.h>

#include "kernels/cuda/cuda.h"
#include "kernels/roofline.h"

enum {
  PIECE = 1 << 15,        /* reads are in multiples of this: the tiles of every variant of reading */
  AHEAD = 32 << 20,       /* bytes read before the first event */
  LEAST_READ = 256 << 20, /* a shorter read's beginning and end would count */
  MOST_READ = 1 << 30,    /* a longer one goes no faster */
  STREAM_CACHES = 4,      /* the buffer is at least so many times the L2 cache */
  NUM_SIZES = 4,
};
static const int sizes[NUM_SIZES] = {2048, 4096, 6144, 8192};

struct device_roofline {
  tri_roofline base;
  tri_backend *be;
  cudaEvent_t from, to;
  char *stream; /* random numbers, and a word after them for what was read */
  size_t stream_bytes, at;
  char *matrices; /* two inputs and an output of the largest size */
  tri_dtype type;
  int num_sizes, size, variant;
};

/* The next bytes of the buffer, all of them others than the last. */
static const void *next(struct device_roofline *f, size_t bytes) {
  if (f->at + bytes > f->stream_bytes) f->at = 0;
  const void *p = f->stream + f->at;
  f->at += bytes;
  return p;
}

static void read_next(struct device_roofline *f, size_t bytes) {
  tri_cuda_roofline_read(tri_cuda_stream(f->be), next(f, bytes), bytes, f->variant, tri_cuda_of(f->be)->num_sms,
                         (uint32_t *)(void *)(f->stream + f->stream_bytes));
}

/* A read goes ahead of the first event and keeps the device busy while the host launches what is timed. */
static void begin(struct device_roofline *f) {
  read_next(f, AHEAD);
  tri_cuda_note(f->be, cudaEventRecord(f->from, tri_cuda_stream(f->be)));
}

static double end(struct device_roofline *f) {
  float ms = 0;
  tri_cuda_note(f->be, cudaGetLastError());
  tri_cuda_note(f->be, cudaEventRecord(f->to, tri_cuda_stream(f->be)));
  tri_cuda_note(f->be, cudaEventSynchronize(f->to));
  tri_cuda_note(f->be, cudaEventElapsedTime(&ms, f->from, f->to));
  return ms * 1e-3;
}

/* The time of reading so many bytes, scaled from a read that is neither too short to be timed nor longer than half of
 * the buffer. */
static double device_read(tri_roofline *base, double bytes) {
  struct device_roofline *f = (struct device_roofline *)base;
  size_t most = f->stream_bytes / 2, n = LEAST_READ;
  if (most > MOST_READ) most = MOST_READ;
  if (bytes > LEAST_READ) n = bytes > MOST_READ ? MOST_READ : (size_t)bytes / PIECE * PIECE;
  if (n > most) n = most;
  begin(f);
  read_next(f, n);
  return end(f) * bytes / (double)n;
}

/* A GEMM as linear.c has it: the weights' rows are as long as the inputs'. */
static double device_gemm(tri_roofline *base) {
  struct device_roofline *f = (struct device_roofline *)base;
  tri_cuda_impl *impl = tri_cuda_of(f->be);
  cudaDataType_t t = tri_cuda_type_of(f->type);
  int n = f->size;
  size_t bytes = (size_t)n * (size_t)n * tri_dtype_size(f->type);
  float one = 1, zero = 0;
  begin(f);
  cublasStatus_t st =
      cublasGemmEx(impl->blas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, f->matrices, t, n, f->matrices + bytes, t, n,
                   &zero, f->matrices + 2 * bytes, t, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (st != CUBLAS_STATUS_SUCCESS) tri_cuda_note(f->be, cudaErrorUnknown);
  return end(f) / ((double)n * n * n);
}

static double read_once(tri_roofline *base) { return device_read(base, LEAST_READ); }

/* Not counted under a tag: it comes and goes, and no budget has room for them. */
static void *room(size_t bytes) {
  void *p = NULL;
  if (cudaMalloc(&p, bytes) == cudaSuccess) return p;
  cudaGetLastError(); /* it does not stick */
  return NULL;
}

/* Halves the buffer, and takes smaller matrices, until the device has room for both. */
static tri_status allocate(struct device_roofline *f, size_t cache) {
  size_t bytes = (size_t)2 * MOST_READ, least = STREAM_CACHES * cache > LEAST_READ ? STREAM_CACHES * cache : LEAST_READ;
  while (!(f->stream = room(bytes + sizeof(uint32_t))) && bytes / 2 >= least) bytes /= 2;
  f->stream_bytes = bytes;
  for (f->num_sizes = NUM_SIZES; f->stream && !f->matrices && f->num_sizes; f->num_sizes -= !f->matrices) {
    size_t n = (size_t)sizes[f->num_sizes - 1];
    f->matrices = room(3 * n * n * tri_dtype_size(f->type));
  }
  return f->matrices ? TRI_OK : TRI_NO_MEMORY;
}

static void device_roofline_destroy(tri_roofline *base) {
  struct device_roofline *f = (struct device_roofline *)base;
  if (f->from) cudaEventDestroy(f->from);
  if (f->to) cudaEventDestroy(f->to);
  cudaFree(f->stream);
  cudaFree(f->matrices);
  tri_free(f);
}

static void choose(struct device_roofline *f) {
  static const int variants[TRI_CUDA_READ_VARIANTS] = {0, 1, 2, 3, 4, 5};
  cudaStream_t stream = tri_cuda_stream(f->be);
  size_t n = (size_t)sizes[f->num_sizes - 1];
  tri_cuda_roofline_fill(stream, f->stream, TRI_F32, f->stream_bytes / sizeof(float));
  tri_cuda_roofline_fill(stream, f->matrices, f->type, 3 * n * n);
  /* The first round, which loads kernels, is as good as any other. */
  f->variant = tri_roofline_fastest(&f->base, read_once, &f->variant, variants, TRI_CUDA_READ_VARIANTS);
  f->size = tri_roofline_fastest(&f->base, device_gemm, &f->size, sizes, f->num_sizes);
  snprintf(f->base.read_name, sizeof f->base.read_name, "device memory read");
  snprintf(f->base.gemm_name, sizeof f->base.gemm_name, "cuBLAS %s at %d", tri_dtype_name(f->type), f->size);
}

/* The buffer's size is the device's affair. */
tri_status tri_cuda_roofline_create(tri_backend *be, size_t stream_bytes, tri_dtype type, tri_roofline **out) {
  struct device_roofline *f = tri_calloc(1, sizeof *f);
  int cache = 0, device = tri_cuda_of(be)->device;
  (void)stream_bytes;
  if (!f) return TRI_NO_MEMORY;
  f->base = (tri_roofline){.read = device_read, .gemm = device_gemm, .destroy = device_roofline_destroy};
  f->be = be;
  f->type = type == TRI_F32 || type == TRI_F16 ? type : TRI_BF16; /* int8 weights are widened by most GEMMs */
  cudaSetDevice(device);                                          /* this may be another thread than the one before */
  cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device);
  tri_status st = allocate(f, (size_t)cache);
  if (st == TRI_OK && (cudaEventCreate(&f->from) != cudaSuccess || cudaEventCreate(&f->to) != cudaSuccess))
    st = TRI_NO_MEMORY;
  if (st == TRI_OK) choose(f);
  if (st == TRI_OK) st = be->ops.stream_sync(be);
  if (st == TRI_OK)
    *out = &f->base;
  else
    device_roofline_destroy(&f->base);
  return st;
}
