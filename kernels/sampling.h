/* SPDX-License-Identifier: Apache-2.0 */
/* Every host sampler shares this, so that two backends given the same logits differ in nothing but speed. */
#ifndef TRI_KERNELS_SAMPLING_H
#define TRI_KERNELS_SAMPLING_H

#include "kernels/sample.h"

/* Uniform in [0, 1), a pure function of its arguments: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy
 * as 1, 2, 3", SC 2011) with the seed as key. */
double tri_sample_uniform(uint64_t seed, uint64_t counter);

/* Mask, logit bias, banned ids and penalties on one row, in place. counts: scratch of vocab entries, contents
 * immaterial; touched only at the ids of the history. */
void tri_sample_adjust(float *logits, int vocab, const tri_sample_params *p, const uint32_t *history, int num_prompt,
                       int num_history, int32_t *counts);
/* Mask, logit bias and banned ids alone, on the n logits from id `first` on. */
void tri_sample_adjust_part(float *logits, uint32_t first, int n, const tri_sample_params *p);

/* Returns whether a row without anything to sample may be one of numbers that are all forbidden. */
static inline bool tri_sample_forbids(const tri_sample_params *p) { return p->mask || p->num_banned; }

static inline bool tri_sample_is_number(float x) { return x > -__builtin_inff() && x < __builtin_inff(); }

/* tri_sample_result.broken of a row, or of a part of one, by its largest logit after all changes. */
static inline bool tri_sample_is_broken(const tri_sample_params *p, float largest) {
  return !tri_sample_is_number(largest) && (largest != -__builtin_inff() || !tri_sample_forbids(p));
}

/* NaN counts as infinity, so that a row with one is found by its largest logit. */
static inline float tri_sample_value(float x) { return x == x ? x : __builtin_inff(); }

/* The order that decides top_k, top_p and logprobs: larger value first, then lower id. */
static inline bool tri_sample_before(float a, uint32_t ia, float b, uint32_t ib) {
  float x = tri_sample_value(a), y = tri_sample_value(b);
  return x > y || (x == y && ia < ib);
}

#endif
