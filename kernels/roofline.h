/* The machine's roofline: its ceilings, measured where and when the work runs: what a plain read gets out of memory and
 * what the BLAS gets out of the cores, of the host or, where the backend's memory is elsewhere, of the device. Every
 * benchmark interleaves these with its own rounds and compares medians, so that a busy machine slows both alike. */
#ifndef TRI_KERNELS_ROOFLINE_H
#define TRI_KERNELS_ROOFLINE_H

#include "kernels/backend.h"

typedef struct tri_roofline tri_roofline;

/* stream_bytes: size of the buffer that reads walk through, several times the caches; a device chooses its own. type:
 * of the weights that products are compared with; the host's products are in single precision whatever it is. */
tri_status tri_roofline_create(tri_backend *be, size_t stream_bytes, tri_dtype type, tri_roofline **out);
void tri_roofline_destroy(tri_roofline *f); /* NULL is fine */

/* Seconds that reading so many bytes takes, on all threads of the backend's pool or by the whole device; each call goes
 * on where the last one ended. */
double tri_roofline_read(tri_roofline *f, double bytes);
/* Seconds per multiply-add of the BLAS's product at the size that it does best (found at create): one product per
 * thread, or one for the whole device. */
double tri_roofline_gemm(tri_roofline *f);
/* Names of what the two measure, for people: "device memory read", "cuBLAS bfloat16 at 8192". */
const char *tri_roofline_read_name(const tri_roofline *f);
const char *tri_roofline_gemm_name(const tri_roofline *f);

/* A backend's own, behind the slot roofline_create. */
typedef struct tri_device_roofline {
  double (*read)(struct tri_device_roofline *f, double bytes);
  double (*gemm)(struct tri_device_roofline *f);
  void (*destroy)(struct tri_device_roofline *f);
  char read_name[48], gemm_name[48];
} tri_device_roofline;

double tri_median(double *v, int n); /* sorts v */

#endif
