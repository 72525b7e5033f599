/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes for tables and random numbers for tests, benchmarks and dummy weights; none of them withstands an adversary.
 */
#ifndef TRI_BASE_HASH_H
#define TRI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define TRI_HASH_FN __host__ __device__ static inline
#else
#define TRI_HASH_FN static inline
#endif

#define TRI_HASH_SEED 0xcbf29ce484222325u

/* FNV-1a over bytes: for keys of a few words. Start with TRI_HASH_SEED. */
static inline uint64_t tri_hash_bytes(uint64_t h, const void *p, size_t n) {
  for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
  return h;
}

/* SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): a counter that grows
 * by TRI_SPLITMIX_STEP, and a function that mixes its bits. */
#define TRI_SPLITMIX_STEP 0x9e3779b97f4a7c15u

TRI_HASH_FN uint64_t tri_mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* Returns the generator's next number; any start value is a seed. */
static inline uint64_t tri_splitmix64(uint64_t *state) {
  *state += TRI_SPLITMIX_STEP;
  return tri_mix64(*state);
}

#endif
