/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark of a device's ops: memory, rounds, floors. See bench_device.c. */
#ifndef TRI_TESTS_OPCHECK_BENCH_DEVICE_H
#define TRI_TESTS_OPCHECK_BENCH_DEVICE_H

#include "kernels/roofline.h"
#include "tests/opcheck/opcheck.h"

#define CACHES ((size_t)512 << 20) /* four times the largest L2 cache of today's devices */

enum { MAX_COPIES = 256, MAX_ROOMS = 16, BLOCK = 16 /* tokens of a KV block */ };

typedef struct bench {
  oc *c;
  tri_backend *be;
  tri_roofline *narrow, *single; /* of products with bfloat16, and with float32 weights */
  uint64_t key;                  /* of the last recorded round */
  int failed;
  struct {
    void *p;
    size_t bytes;
  } rooms[MAX_ROOMS];
  int num_rooms;
} bench;

/* copies arguments of one shape, and what each launch must move and multiply. Where then_args is not NULL another op
 * comes after each. */
typedef struct work {
  tri_op op;
  const void *args;
  size_t arg_size;
  tri_op then;
  const void *then_args;
  size_t then_size;
  tri_op_plan then_plan;
  int copies;
  double bytes, gemms;
  tri_dtype type; /* of the products */
  tri_op_plan plan;
} work;

static inline tri_mat bench_matrix(float *data, int rows, int cols) {
  return (tri_mat){data, rows, cols, cols, TRI_F32};
}

/* Memory that cannot be had ends the program. */
void bench_give_up(const char *what);
/* Device memory until bench_release. */
void *bench_room(bench *b, size_t bytes);
void bench_release(bench *b);
void *bench_on_device(bench *b, const void *host, size_t bytes);
/* n random elements on the device: a pattern longer than any row, over and over. */
void *bench_elements(bench *b, tri_dtype t, size_t n);
/* So many copies of inputs do not fit into a cache together. */
int bench_copies_of(double bytes);
/* Times the launches and prints them beside their floor. */
void bench_report(bench *b, const char *name, work w);

#define WORK(o, a, n, ...)                                                                                             \
  ((work){.op = TRI_KERNEL_##o, .args = (a), .arg_size = sizeof *(a), .copies = (n), __VA_ARGS__})
#define NAME(...) snprintf(name, sizeof name, __VA_ARGS__)

/* bench_device_attention.c */
void bench_device_attention(bench *b);
void bench_device_moves(bench *b);
/* bench_device_experts.c */
void bench_device_experts(bench *b);
/* bench_device_ends.c */
void bench_device_ends(bench *b);

#endif
