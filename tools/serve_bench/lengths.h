/* SPDX-License-Identifier: Apache-2.0 */
/* How many tokens each prompt of a benchmark has. */
#ifndef TRI_TOOLS_SERVE_BENCH_LENGTHS_H
#define TRI_TOOLS_SERVE_BENCH_LENGTHS_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

enum { BENCH_MAX_LEN = 200000 };

typedef enum bench_distribution {
  BENCH_FIXED,   /* all have `fixed` tokens */
  BENCH_UNIFORM, /* from min to max, every length as likely */
  BENCH_NORMAL,  /* around the middle of min and max, a sixth of their distance the deviation; clipped to them */
  BENCH_LISTED,  /* those of a file, in turn */
} bench_distribution;

typedef struct bench_lengths {
  bench_distribution distribution;
  uint32_t fixed, min, max;
  uint32_t *listed; /* [num_listed], owned */
  size_t num_listed;
} bench_lengths;

/* Returns a number that is at least 0 and less than 1. */
static inline double bench_uniform(uint64_t *random) { return (double)(tri_splitmix64(random) >> 11) * 0x1p-53; }

/* Returns the state before the first length that is drawn for a load: lengths are the same ones at every rate, and
 * whatever else is drawn. */
static inline uint64_t bench_lengths_seed(uint64_t seed) { return tri_mix64(seed + 1); }

/* Reads a file of one length a line; empty lines count for nothing. The error names the line. */
tri_status bench_lengths_read(bench_lengths *l, const char *path, tri_error *err);
void bench_lengths_free(bench_lengths *l);
/* Returns the length of the prompt at place i: the same ones for the same random numbers. */
uint32_t bench_lengths_draw(const bench_lengths *l, size_t i, uint64_t *random);
/* Returns the longest that can be drawn. */
uint32_t bench_lengths_longest(const bench_lengths *l);

#endif
