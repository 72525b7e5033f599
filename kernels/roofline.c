/* SPDX-License-Identifier: Apache-2.0 */
/* The host's ceilings, measured with the pool that the ops use: bytes read from memory in a second, and multiply-adds
 * of BLAS. */
#include "kernels/roofline.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "base/wait.h"
#include "base/widest.h"

enum { MAX_GEMM = 1536 };

struct host_roofline {
  tri_roofline base;
  tri_pool *pool;
  char *stream;
  size_t stream_bytes, at;
  float *gemm; /* per thread: two inputs and an output */
  size_t gemm_bytes;
  int size;   /* of the GEMMs */
  int reader; /* of readers[] */
};

struct reading {
  const char *p;
  size_t bytes;
  int reader;
  _Atomic uint64_t sink;
};

static double now(void) { return (double)tri_now_ns() * 1e-9; }

enum { PIECE = 4096, STREAMS = 4 }; /* several streams at a time: more reads in flight than one alone gets */

/* On some machines narrow loads do not fill the memory's bandwidth. The fastest reader differs between processors:
 * create() tries them all, and the fastest is the floor. */
#define READER(name, width, prefetch)                                                                                  \
  TRI_WIDEST static uint64_t name(const char *p, size_t pieces) {                                                      \
    typedef uint64_t lanes __attribute__((vector_size(width)));                                                        \
    lanes sum[STREAMS] = {{0}};                                                                                        \
    uint64_t all = 0;                                                                                                  \
    for (size_t i = 0; i < pieces; i++, p += STREAMS * PIECE)                                                          \
      for (size_t j = 0; j < PIECE; j += sizeof(lanes))                                                                \
        for (int s = 0; s < STREAMS; s++) {                                                                            \
          if (prefetch) __builtin_prefetch(p + (size_t)s * PIECE + j + (prefetch));                                    \
          sum[s] ^= *(const lanes *)(const void *)(p + (size_t)s * PIECE + j);                                         \
        }                                                                                                              \
    for (int s = 0; s < STREAMS; s++)                                                                                  \
      for (size_t w = 0; w < sizeof(lanes) / 8; w++) all ^= sum[s][w];                                                 \
    return all;                                                                                                        \
  }
READER(read_16, 16, 0)
READER(read_64, 64, 0)
READER(read_64_ahead, 64, 1024)
READER(read_64_far, 64, STREAMS *PIECE)

static uint64_t (*const readers[])(const char *, size_t) = {read_16, read_64, read_64_ahead, read_64_far};
enum { NUM_READERS = sizeof readers / sizeof *readers };

/* Whole pieces in equal shares; thread 0 adds what is left. The sum goes to a sink that the compiler cannot drop. */
static void read_thread(void *ctx, int index, int count) {
  struct reading *r = ctx;
  size_t pieces = r->bytes / (STREAMS * PIECE), first = pieces * (size_t)index / (size_t)count;
  size_t end = pieces * (size_t)(index + 1) / (size_t)count;
  uint64_t sum = readers[r->reader](r->p + first * STREAMS * PIECE, end - first);
  for (size_t i = pieces * STREAMS * PIECE; index == 0 && i + 8 <= r->bytes; i += 8)
    sum ^= *(const uint64_t *)(const void *)(r->p + i);
  atomic_fetch_xor(&r->sink, sum);
}

/* Continues where the last call ended, so that caches do not serve it; more bytes than the buffer has are read in
 * several equal turns. */
static double host_read(tri_roofline *base, double bytes) {
  struct host_roofline *f = (struct host_roofline *)base;
  size_t n = (size_t)bytes / 64 * 64 + 64;
  int turns = 1;
  for (; n > f->stream_bytes; n /= 2) turns *= 2;
  double seconds = 0;
  for (int i = 0; i < turns; i++) {
    if (f->at + n > f->stream_bytes) f->at = 0;
    struct reading r = {.p = f->stream + f->at, .bytes = n, .reader = f->reader};
    double start = now();
    if (n < 1 << 16)
      read_thread(&r, 0, 1); /* waking threads would cost more */
    else
      tri_pool_run(f->pool, read_thread, &r);
    seconds += now() - start;
    f->at += n;
  }
  return seconds;
}

static void gemm_thread(void *ctx, int index, int count) {
  const struct host_roofline *f = ctx;
  size_t n = (size_t)f->size;
  float *x = f->gemm + (size_t)index * 3 * MAX_GEMM * MAX_GEMM;
  (void)count;
  tri_blas_gemm(f->size, f->size, f->size, x, n, x + n * n, n, 0, x + 2 * n * n, n);
}

static double host_gemm(tri_roofline *base) {
  struct host_roofline *f = (struct host_roofline *)base;
  double start = now();
  tri_pool_run(f->pool, gemm_thread, f);
  return (now() - start) / ((double)f->size * f->size * f->size * tri_pool_size(f->pool));
}

static double read_once(tri_roofline *base) {
  return host_read(base, (double)((struct host_roofline *)base)->stream_bytes / 4);
}

int tri_roofline_fastest(tri_roofline *f, double (*run)(tri_roofline *f), int *setting, const int *values, int n) {
  double best = 1e9;
  int winner = values[0];
  for (int round = 0; round < 4; round++)
    for (int i = 0; i < n; i++) {
      *setting = values[i];
      double t = run(f);
      if (t < best) {
        best = t;
        winner = values[i];
      }
    }
  return winner;
}

static void host_destroy(tri_roofline *base) {
  struct host_roofline *f = (struct host_roofline *)base;
  tri_pages_free(f->stream, f->stream_bytes);
  tri_pages_free(f->gemm, f->gemm_bytes);
  tri_free(f);
}

static void choose(struct host_roofline *f, bool quick) {
  static const int sizes[] = {384, 512, 768, 1024, MAX_GEMM}, variants[NUM_READERS] = {0, 1, 2, 3};
  tri_blas_setup();
  f->size = sizes[1];
  if (!quick) f->size = tri_roofline_fastest(&f->base, host_gemm, &f->size, sizes, sizeof sizes / sizeof *sizes);
  f->reader = tri_roofline_fastest(&f->base, read_once, &f->reader, variants, NUM_READERS);
  snprintf(f->base.read_name, sizeof f->base.read_name, "memory read");
  snprintf(f->base.gemm_name, sizeof f->base.gemm_name, "BLAS's best sgemm rate, at %d", f->size);
}

static tri_status create(tri_backend *be, size_t stream_bytes, bool quick, tri_roofline **out) {
  struct host_roofline *f = tri_calloc(1, sizeof *f);
  if (!f) return TRI_NO_MEMORY;
  f->base = (tri_roofline){.read = host_read, .gemm = host_gemm, .destroy = host_destroy};
  f->pool = be->pool;
  f->stream_bytes = stream_bytes;
  f->gemm_bytes = (size_t)tri_pool_size(be->pool) * 3 * MAX_GEMM * MAX_GEMM * sizeof *f->gemm;
  if (tri_pages_alloc(stream_bytes, (void **)&f->stream) != TRI_OK ||
      tri_pages_alloc(f->gemm_bytes, (void **)&f->gemm) != TRI_OK) {
    host_destroy(&f->base);
    return TRI_NO_MEMORY;
  }
  for (size_t i = 0; i < stream_bytes; i += 8) *(uint64_t *)(void *)(f->stream + i) = i * 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < f->gemm_bytes / sizeof *f->gemm; i++) f->gemm[i] = (float)(i % 1009) * 1e-3f - 0.5f;
  choose(f, quick);
  *out = &f->base;
  return TRI_OK;
}

tri_status tri_roofline_create_host(tri_backend *be, size_t stream_bytes, tri_dtype type, tri_roofline **out) {
  (void)type;
  return create(be, stream_bytes, false, out);
}

tri_status tri_roofline_create_quick(tri_backend *be, size_t stream_bytes, tri_roofline **out) {
  return create(be, stream_bytes, true, out);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double tri_median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, by_size);
  return v[n / 2];
}
