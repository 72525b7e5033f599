#include "kernels/floor.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "runtime/base/wait.h"

enum { MAX_GEMM = 1536 };

struct tri_floor {
  tri_pool *pool;
  char *stream;
  size_t stream_bytes, at;
  float *gemm; /* per thread: two inputs and an output */
  size_t gemm_bytes;
  int size;
};

struct reader {
  const char *p;
  size_t bytes;
  _Atomic uint64_t sink;
};

static double now(void) { return (double)tri_now_ns() * 1e-9; }

static void read_thread(void *ctx, int index, int count) {
  typedef uint64_t lanes __attribute__((vector_size(16)));
  enum { PIECE = 4096 }; /* four streams at a time: more reads in flight than one alone gets */
  struct reader *r = ctx;
  size_t pieces = r->bytes / (4 * PIECE), end = pieces * (size_t)(index + 1) / (size_t)count;
  lanes a = {0}, b = {0}, d = {0}, e = {0};
  for (size_t i = pieces * (size_t)index / (size_t)count; i < end; i++) {
    const lanes *p = (const lanes *)(const void *)(r->p + i * 4 * PIECE), *q = p + PIECE / 16, *u = q + PIECE / 16;
    const lanes *v = u + PIECE / 16;
    for (size_t j = 0; j < PIECE / 16; j += 4) {
      a ^= p[j] ^ p[j + 1] ^ p[j + 2] ^ p[j + 3], b ^= q[j] ^ q[j + 1] ^ q[j + 2] ^ q[j + 3];
      d ^= u[j] ^ u[j + 1] ^ u[j + 2] ^ u[j + 3], e ^= v[j] ^ v[j + 1] ^ v[j + 2] ^ v[j + 3];
    }
  }
  if (index == 0) {
    const char *rest = r->p + pieces * 4 * PIECE;
    for (size_t i = 0; i < r->bytes % (4 * PIECE) / 16; i++) a ^= ((const lanes *)(const void *)rest)[i];
  }
  a ^= b ^ d ^ e;
  atomic_fetch_xor(&r->sink, a[0] ^ a[1]);
}

double tri_floor_read(tri_floor *f, double bytes) {
  size_t n = (size_t)bytes / 64 * 64 + 64;
  int turns = 1;
  for (; n > f->stream_bytes; n /= 2) turns *= 2;
  double seconds = 0;
  for (int i = 0; i < turns; i++) {
    if (f->at + n > f->stream_bytes) f->at = 0;
    struct reader r = {.p = f->stream + f->at, .bytes = n};
    double start = now();
    if (n < 1 << 16) read_thread(&r, 0, 1); /* waking threads would cost more */
    else tri_pool_run(f->pool, read_thread, &r);
    seconds += now() - start;
    f->at += n;
  }
  return seconds;
}

static void gemm_thread(void *ctx, int index, int count) {
  const tri_floor *f = ctx;
  size_t n = (size_t)f->size;
  float *x = f->gemm + (size_t)index * 3 * MAX_GEMM * MAX_GEMM;
  (void)count;
  tri_blas_gemm(f->size, f->size, f->size, x, n, x + n * n, n, 0, x + 2 * n * n, n);
}

double tri_floor_gemm(tri_floor *f) {
  double start = now();
  tri_pool_run(f->pool, gemm_thread, f);
  return (now() - start) / ((double)f->size * f->size * f->size * tri_pool_size(f->pool));
}

int tri_floor_gemm_size(const tri_floor *f) { return f->size; }

tri_status tri_floor_create(tri_pool *pool, size_t stream_bytes, tri_floor **out) {
  static const int sizes[] = {384, 512, 768, 1024, MAX_GEMM};
  tri_floor *f = tri_calloc(1, sizeof *f);
  if (!f) return TRI_NO_MEMORY;
  f->pool = pool;
  f->stream_bytes = stream_bytes;
  f->gemm_bytes = (size_t)tri_pool_size(pool) * 3 * MAX_GEMM * MAX_GEMM * sizeof *f->gemm;
  if (tri_pages_alloc(stream_bytes, (void **)&f->stream) != TRI_OK || tri_pages_alloc(f->gemm_bytes, (void **)&f->gemm) != TRI_OK) {
    tri_floor_destroy(f);
    return TRI_NO_MEMORY;
  }
  for (size_t i = 0; i < stream_bytes; i += 8) *(uint64_t *)(void *)(f->stream + i) = i * 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < f->gemm_bytes / sizeof *f->gemm; i++) f->gemm[i] = (float)(i % 1009) * 1e-3f - 0.5f;
  tri_blas_setup();
  double best = 1;
  int best_size = sizes[0];
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    f->size = sizes[i];
    for (int round = 0; round < 4; round++) {
      double t = tri_floor_gemm(f);
      if (t < best) best = t, best_size = sizes[i];
    }
  }
  f->size = best_size;
  *out = f;
  return TRI_OK;
}

void tri_floor_destroy(tri_floor *f) {
  if (!f) return;
  tri_pages_free(f->stream, f->stream_bytes);
  tri_pages_free(f->gemm, f->gemm_bytes);
  tri_free(f);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double tri_median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, by_size);
  return v[n / 2];
}
