/* SPDX-License-Identifier: Apache-2.0 */
/* The look at a model's weights against a plain read of as many bytes, on whatever memory the backend has. */
#include <stdio.h>

#include "kernels/roofline.h"
#include "base/wait.h"
#include "tests/opcheck/opcheck.h"

enum { ROUNDS = 7 };

static double seconds_of(oc *c, const void *x, size_t bytes, uint64_t *count) {
  int64_t start = tri_now_ns();
  c->be->ops.count_not_finite(c->be, x, TRI_BF16, bytes / 2, count);
  (void)c->be->ops.stream_sync(c->be);
  return (double)(tri_now_ns() - start) * 1e-9;
}

void oc_bench_finite(oc *c, tri_roofline *floor) {
  const size_t bytes = (size_t)(c->opt.quick ? 1 : 4) << 28;
  double read[ROUNDS], counted[ROUNDS];
  void *x = NULL, *count = NULL;
  if (c->be->ops.mem_alloc(c->be, TRI_MEM_WEIGHTS, bytes, &x) == TRI_OK &&
      c->be->ops.mem_alloc(c->be, TRI_MEM_WEIGHTS, sizeof(uint64_t), &count) == TRI_OK) {
    (void)seconds_of(c, x, bytes, count);
    for (int i = 0; i < ROUNDS; i++) {
      read[i] = tri_roofline_read(floor, (double)bytes);
      counted[i] = seconds_of(c, x, bytes, count);
    }
    double r = tri_median(read, ROUNDS), t = tri_median(counted, ROUNDS);
    printf("count_not_finite of %zu MiB %10.1f us  floor %10.1f us (memory)  ratio %.2f  %.1f of %.1f GB/s\n",
           bytes >> 20, t * 1e6, r * 1e6, r / t, (double)bytes / t * 1e-9, (double)bytes / r * 1e-9);
  }
  c->be->ops.mem_free(c->be, TRI_MEM_WEIGHTS, count, sizeof(uint64_t));
  c->be->ops.mem_free(c->be, TRI_MEM_WEIGHTS, x, bytes);
}
