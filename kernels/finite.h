/* SPDX-License-Identifier: Apache-2.0 */
/* Counts elements that are not finite: what the check of a model's weights at the start is made of. */
#ifndef TRI_KERNELS_FINITE_H
#define TRI_KERNELS_FINITE_H

#include <stdint.h>

#include "base/dtype.h"

/* The bits of a float's exponent are all set in infinities and NaN, and in nothing else; of F8_E4M3, which has no
 * infinities, those of NaN's fraction are, too. 0 for types of no floats. */
static inline uint32_t tri_exponent_bits(tri_dtype type) {
  switch (type) {
  case TRI_F32: return 0x7f800000u;
  case TRI_F16: return 0x7c00u;
  case TRI_BF16: return 0x7f80u;
  case TRI_F8_E4M3: return 0x7fu;
  default: return 0;
  }
}

struct tri_backend;

/* count_not_finite of the backends in the host's memory, by the pool. */
void tri_count_not_finite_host(struct tri_backend *be, const void *x, tri_dtype type, size_t n, uint64_t *count);

#endif
