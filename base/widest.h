/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that are compiled for several widths of vectors, the widest that the machine has being taken when the program
 * starts. A build for one processor alone, or with a sanitizer, has the ordinary one. */
#ifndef TRI_BASE_WIDEST_H
#define TRI_BASE_WIDEST_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TRI_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TRI_WIDEST
#endif

/* Returns a or b without a branch, which would keep a loop from becoming vector instructions. */
static inline uint32_t tri_pick(bool first, uint32_t a, uint32_t b) {
  uint32_t mask = 0u - (uint32_t)first;
  return (a & mask) | (b & ~mask);
}

#endif
