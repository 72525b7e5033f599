/* SPDX-License-Identifier: Apache-2.0 */
/* Normal draws, bit for bit as torch 2 draws them on a CPU with AVX2 and FMA: uniforms of 24 bits from a Mersenne
 * twister, and for each 16 of them eight cosines and eight sines of Box and Muller, with the polynomials of Cephes for
 * the logarithm, sine and cosine. The random checkpoints of tests/data were drawn so, which is why their weights need
 * not be stored.
 *
 * Every product and sum is written as torch's compiler has joined them (fmaf), so that all compilers agree. */
#ifndef TRI_TESTS_MODELS_NORMAL_H
#define TRI_TESTS_MODELS_NORMAL_H

#include <stddef.h>
#include <stdint.h>

/* Fills out[n] with the uniforms in [0, 1) that a generator with this seed gives first. */
void normal_uniforms(uint32_t seed, float *out, size_t n);

/* Fills out[n] with the draws of torch's `normal_`, for a tensor of n >= 16 elements whose first uniform is u[0]. Takes
 * normal_taken(n) uniforms: where 16 does not divide n, the last 16 elements are drawn once more. */
void normal_fill(const float *u, float mean, float std, float *out, size_t n);
size_t normal_taken(size_t n);

/* The eight values from u[0] and those from u[8] on that normal_fill scales by `std`: first cosines, then sines. */
void normal_sixteen(const float u[16], float out[16]);

#endif
