/* SPDX-License-Identifier: Apache-2.0 */
/* Counting infinities and NaNs: elements whose exponent bits are all ones. */
#include "kernels/finite.h"

#include "kernels/backend.h"

struct range {
  const void *x;
  uint32_t exponent;
  size_t width, n; /* bytes of an element, elements */
  uint64_t *count;
};

/* The loops are plain enough for compilers to turn into vectors. Counts of a run fit into the elements' own type, but
 * for bytes, which are counted in shorter ones. */
enum { RUN = 1 << 12 };

static uint64_t count_16(const uint16_t *x, size_t n, uint16_t exponent) {
  uint16_t found = 0;
  for (size_t i = 0; i < n; i++) found = (uint16_t)(found + ((x[i] & exponent) == exponent));
  return found;
}

static uint64_t count_32(const uint32_t *x, size_t n, uint32_t exponent) {
  uint32_t found = 0;
  for (size_t i = 0; i < n; i++) found += (x[i] & exponent) == exponent;
  return found;
}

static uint64_t count_8(const uint8_t *x, size_t n, uint8_t exponent) {
  uint64_t found = 0;
  for (size_t i = 0, end; i < n; i = end) {
    uint8_t few = 0;
    end = n - i < UINT8_MAX ? n : i + UINT8_MAX;
    for (size_t k = i; k < end; k++) few = (uint8_t)(few + ((x[k] & exponent) == exponent));
    found += few;
  }
  return found;
}

static void count_share(void *ctx, int index, int threads) {
  const struct range *r = ctx;
  size_t at = r->n / (size_t)threads * (size_t)index, end = index == threads - 1 ? r->n : at + r->n / (size_t)threads;
  uint64_t found = 0;
  for (size_t n; at < end; at += n) {
    n = end - at < RUN ? end - at : RUN;
    if (r->width == sizeof(uint8_t))
      found += count_8((const uint8_t *)r->x + at, n, (uint8_t)r->exponent);
    else if (r->width == sizeof(uint16_t))
      found += count_16((const uint16_t *)r->x + at, n, (uint16_t)r->exponent);
    else
      found += count_32((const uint32_t *)r->x + at, n, r->exponent);
  }
  if (found) __atomic_fetch_add(r->count, found, __ATOMIC_RELAXED);
}

void tri_count_not_finite_host(tri_backend *be, const void *x, tri_dtype type, size_t n, uint64_t *count) {
  enum { WORTH_THREADS = 1 << 16 };
  struct range r = {x, tri_exponent_bits(type), tri_dtype_size(type), n, count};
  if (!r.exponent) return;
  if (n > WORTH_THREADS)
    tri_pool_run(be->pool, count_share, &r);
  else
    count_share(&r, 0, 1);
}
