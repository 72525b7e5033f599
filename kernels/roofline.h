/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's roofline: its ceilings, measured where and when the work runs: what a plain read gets out of memory and
 * what the BLAS gets out of the cores, of the host or, where the backend's memory is elsewhere, of the device. Every
 * benchmark interleaves these with its own rounds and compares medians, so that a busy machine slows both alike. */
#ifndef TRI_KERNELS_ROOFLINE_H
#define TRI_KERNELS_ROOFLINE_H

#include "kernels/backend.h"

typedef struct tri_roofline tri_roofline;
struct tri_roofline {
  /* Seconds that reading so many bytes takes, on all threads of the backend's pool or by the whole device; each call
   * continues where the last one ended. */
  double (*read)(tri_roofline *f, double bytes);
  /* Seconds per multiply-add of the BLAS's GEMM at the size that it does best (found at create): one GEMM per
   * thread, or one for the whole device. */
  double (*gemm)(tri_roofline *f);
  void (*destroy)(tri_roofline *f);
  char read_name[48], gemm_name[48]; /* for people: "device memory read", "cuBLAS bfloat16 at 8192" */
};

static inline double tri_roofline_read(tri_roofline *f, double bytes) { return f->read(f, bytes); }
static inline double tri_roofline_gemm(tri_roofline *f) { return f->gemm(f); }
static inline void tri_roofline_destroy(tri_roofline *f) { /* NULL is fine */
  if (f) f->destroy(f);
}

/* The backends' slot roofline_create: the host's. */
tri_status tri_roofline_create_host(tri_backend *be, size_t stream_bytes, tri_dtype type, tri_roofline **out);
/* The host's with GEMMs of one size, not the best of five: within some percent of it, and without the seconds that
 * the search takes. */
tri_status tri_roofline_create_quick(tri_backend *be, size_t stream_bytes, tri_roofline **out);

/* For who implements one: the setting with the shortest of several rounds. */
int tri_roofline_fastest(tri_roofline *f, double (*run)(tri_roofline *f), int *setting, const int *values, int n);

double tri_median(double *v, int n); /* sorts v */

#endif
