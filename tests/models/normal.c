/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/models/normal.h"

#include <math.h>
#include <string.h>

enum { WORDS = 624, AHEAD = 397, GROUP = 16 };

static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static float of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void twist(uint32_t s[WORDS]) {
  for (int i = 0; i < WORDS; i++) {
    uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % WORDS] & 0x7fffffffu);
    s[i] = s[(i + AHEAD) % WORDS] ^ (y >> 1) ^ (-(y & 1) & 0x9908b0dfu);
  }
}

static uint32_t temper(uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

void normal_uniforms(uint32_t seed, float *out, size_t n) {
  uint32_t s[WORDS];
  s[0] = seed;
  for (uint32_t i = 1; i < WORDS; i++) s[i] = 1812433253u * (s[i - 1] ^ (s[i - 1] >> 30)) + i;
  for (size_t i = 0; i < n; i++) {
    if (i % WORDS == 0) twist(s);
    out[i] = (float)(temper(s[i % WORDS]) & 0xffffffu) * 0x1p-24f;
  }
}

/* The logarithm of x in (0, 1]. */
static float cephes_log(float x) {
  static const float p[] = {7.0376836292E-2f,  -1.1514610310E-1f, 1.1676998740E-1f,
                            -1.2420140846E-1f, 1.4249322787E-1f,  -1.6668057665E-1f,
                            2.0000714765E-1f,  -2.4999993993E-1f, 3.3333331174E-1f};
  float e = (float)((int)(bits_of(x) >> 23) - 126);
  x = of_bits((bits_of(x) & 0x807fffffu) | 0x3f000000u); /* in [0.5, 1) */
  if (x < 0.707106781186547524f) {
    e -= 1;
    x = x - 1 + x;
  } else {
    x -= 1;
  }
  float z = x * x, y = p[0];
  for (size_t i = 1; i < sizeof p / sizeof *p; i++) y = fmaf(y, x, p[i]);
  y = fmaf(y * x, z, e * -2.12194440e-4f);
  y = fmaf(z, -0.5f, y);
  return fmaf(e, 0.693359375f, x + y);
}

/* The sine and cosine of x in [0, 2 pi). */
static void cephes_sincos(float x, float *sine, float *cosine) {
  uint32_t octant = ((uint32_t)(x * 1.27323954473516f) + 1) & ~1u;
  float turns = (float)octant;
  x = fmaf(turns, -0.78515625f, x);
  x = fmaf(turns, -2.4187564849853515625e-4f, x);
  x = fmaf(turns, -3.77489497744594108e-8f, x);
  float z = x * x;
  float c = fmaf(fmaf(2.443315711809948E-5f, z, -1.388731625493765E-3f), z, 4.166664568298827E-2f);
  c = fmaf(c * z, z, z * -0.5f) + 1;
  float s = fmaf(fmaf(-1.9515295891E-4f, z, 8.3321608736E-3f), z, -1.6666654611E-1f);
  s = fmaf(s * z, x, x);
  int swapped = (octant & 2) != 0;
  *sine = of_bits(bits_of(swapped ? c : s) ^ (octant & 4) << 29);
  *cosine = of_bits(bits_of(swapped ? s : c) ^ (~(octant - 2) & 4) << 29);
}

void normal_sixteen(const float u[16], float out[16]) {
  for (int i = 0; i < 8; i++) {
    float sine, cosine, radius = sqrtf(-2 * cephes_log(1 - u[i]));
    cephes_sincos(6.283185307179586f * u[i + 8], &sine, &cosine);
    out[i] = radius * cosine;
    out[i + 8] = radius * sine;
  }
}

size_t normal_taken(size_t n) { return n % GROUP == 0 ? n : n + GROUP; }

void normal_fill(const float *u, float mean, float std, float *out, size_t n) {
  float values[GROUP];
  for (size_t i = 0; i + GROUP <= n; i += GROUP) {
    normal_sixteen(u + i, values);
    for (int k = 0; k < GROUP; k++) out[i + k] = fmaf(values[k], std, mean);
  }
  if (n % GROUP == 0) return;
  normal_sixteen(u + n, values);
  for (int k = 0; k < GROUP; k++) out[n - GROUP + k] = fmaf(values[k], std, mean);
}
