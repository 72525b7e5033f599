/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what is not finite in weights, at the speed of reading them. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/finite.h"

enum { THREADS = 256, MAX_BLOCKS = 4096 };

/* How many of a word's elements, of which a word has one of 32 bits, two of 16 or four of 8, have all bits of
 * `exponent`. */
template <int BITS> __device__ static inline int count_word(uint32_t word, uint32_t exponent) {
  int found = 0;
#pragma unroll
  for (int shift = 0; shift < 32; shift += BITS) found += (word >> shift & exponent) == exponent;
  return found;
}

template <int BITS> struct element;
template <> struct element<8> { typedef uint8_t type; };
template <> struct element<16> { typedef uint16_t type; };
template <> struct element<32> { typedef uint32_t type; };

/* x [n], of BITS bits. Up to 4096 blocks of 256 threads, which continue in steps of the grid; 16 bytes a load, but for
 * what is left at the end. */
template <int BITS>
__global__ static void __launch_bounds__(THREADS)
    count_kernel(const void *x, size_t n, uint32_t exponent, unsigned long long *count) {
  enum { EACH = 128 / BITS };
  size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x, step = (size_t)gridDim.x * THREADS, whole = n / EACH;
  const uint4 *quads = (const uint4 *)x;
  int found = 0;
  for (size_t i = first; i < whole; i += step) {
    uint4 q = __ldcs(&quads[i]);
    found += count_word<BITS>(q.x, exponent) + count_word<BITS>(q.y, exponent) + count_word<BITS>(q.z, exponent) +
             count_word<BITS>(q.w, exponent);
  }
  for (size_t i = whole * EACH + first; i < n; i += step)
    found += (((const typename element<BITS>::type *)x)[i] & exponent) == exponent;
  if (found) atomicAdd(count, (unsigned long long)found);
}

void tri_cuda_count_not_finite(cudaStream_t stream, const void *x, tri_dtype type, size_t n, uint64_t *count) {
  uint32_t exponent = tri_exponent_bits(type);
  if (!exponent || !n) return;
  size_t blocks = n / (THREADS * 16) + 1;
  unsigned grid = (unsigned)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS);
  auto *sum = (unsigned long long *)count;
  if (type == TRI_F32)
    count_kernel<32><<<grid, THREADS, 0, stream>>>(x, n, exponent, sum);
  else if (type == TRI_F8_E4M3)
    count_kernel<8><<<grid, THREADS, 0, stream>>>(x, n, exponent, sum);
  else
    count_kernel<16><<<grid, THREADS, 0, stream>>>(x, n, exponent, sum);
}
