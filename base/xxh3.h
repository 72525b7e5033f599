/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 of 64 bits: for large tables, and for the bytes of files, where it finds what a disk got wrong but withstands no
 * adversary. The same on every machine. xxh3.c is the only user of xxhash. */
#ifndef TRI_BASE_XXH3_H
#define TRI_BASE_XXH3_H

#include <stddef.h>
#include <stdint.h>

/* The hash of n bytes, with the seed 0. */
uint64_t tri_xxh3(const void *p, size_t n);

#endif
