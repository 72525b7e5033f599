/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over a row of logits. */
#ifndef TRI_KERNELS_CPU_KERN_SAMPLE_H
#define TRI_KERNELS_CPU_KERN_SAMPLE_H

#include "kernels/cpu/kern_rows.h"
#include "kernels/sampling.h"

/* NaN is infinity here: v_min gives its second argument for one. */
static float isa_maximum(const float *x, int n) {
  vf top[4], infinity = v_set1(__builtin_inff());
  V_UNROLL for (int u = 0; u < 4; u++) top[u] = v_set1(-__builtin_inff());
  int i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    V_UNROLL for (int u = 0; u < 4; u++) top[u] = v_max(v_min(v_load(x + i + u * W), infinity), top[u]);
  }
  float best = v_maximum(v_max(v_max(top[0], top[1]), v_max(top[2], top[3])));
  for (; i < n; i++)
    if (!(x[i] <= best)) best = tri_sample_value(x[i]);
  return best;
}

/* Sum of exp((x - max) * inverse_temperature), floats gathered in double every few hundred elements; NaN adds nothing.
 */
static double isa_sum_exp(const float *x, int n, float max, float inverse_temperature) {
  enum { PIECE = 32 * W };
  vf m = v_set1(max), t = v_set1(inverse_temperature), low = v_set1(-200.0f);
  double total = 0;
  for (int i = 0; i < n; i += PIECE) {
    int end = tri_min(n, i + PIECE), j = i;
    vf sum = v_zero();
    for (; j + W <= end; j += W) sum = v_add(sum, v_exp_below(v_max(v_mul(v_sub(v_load(x + j), m), t), low)));
    if (j < end) {
      float rest[W], e[W];
      v_store(rest, v_exp_below(v_max(v_mul(v_sub(v_loadn(x + j, end - j), m), t), low)));
      memset(e, 0, sizeof e);
      memcpy(e, rest, (size_t)(end - j) * sizeof *e);
      sum = v_add(sum, v_load(e));
    }
    total += v_sum(sum);
  }
  return total;
}

static int isa_collect(const float *x, int from, int n, float threshold, uint32_t *ids, int cap, int *next) {
  vf t = v_set1(threshold);
  int count = 0, i = from;
  for (; i + W <= n && count + W <= cap; i += W)
    for (unsigned bits = v_bits(v_ge(v_load(x + i), t)); bits; bits &= bits - 1)
      ids[count++] = (uint32_t)(i + __builtin_ctz(bits));
  if (n - i < W)
    for (; i < n && count < cap; i++)
      if (x[i] >= threshold) ids[count++] = (uint32_t)i;
  *next = i;
  return count;
}

#endif
