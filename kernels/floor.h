/* The machine's ceilings, measured where and when the work runs: what a plain read gets out of memory and what the BLAS
 * gets out of the cores. Every benchmark interleaves these with its own rounds and compares medians, so that a busy
 * machine slows both alike. */
#ifndef TRI_KERNELS_FLOOR_H
#define TRI_KERNELS_FLOOR_H

#include "kernels/backend.h"

typedef struct tri_floor tri_floor;

/* stream_bytes: size of the buffer that reads walk through; several times the caches. */
tri_status tri_floor_create(tri_pool *pool, size_t stream_bytes, tri_floor **out);
void tri_floor_destroy(tri_floor *f); /* NULL is fine */

/* Seconds that reading so many bytes takes, on all threads of the pool; each call goes on where the last one ended. */
double tri_floor_read(tri_floor *f, double bytes);
/* Seconds per multiply-add of the BLAS's single-precision product at the size that it does best (found at create), one
 * product per thread. */
double tri_floor_gemm(tri_floor *f);
int tri_floor_gemm_size(const tri_floor *f);

double tri_median(double *v, int n); /* sorts v */

#endif
