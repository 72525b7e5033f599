/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/slow_widen.h"

#include <math.h>

/* Bits `first` .. `first + n - 1` of little-endian bytes. */
static unsigned take_bits(const uint8_t *bytes, size_t first, int n) {
  unsigned x = 0;
  for (int i = n - 1; i >= 0; i--) x = 2 * x + (bytes[(first + (size_t)i) / 8] >> (first + (size_t)i) % 8 & 1);
  return x;
}

/* A float of so many bits of exponent and fraction. */
static double small_float(unsigned x, int exponent, int fraction, int bias) {
  int e = (int)(x >> fraction & ((1u << exponent) - 1)), f = (int)(x & ((1u << fraction) - 1));
  double size = e ? (1 + f / pow(2, fraction)) * pow(2, e - bias) : f / pow(2, fraction) * pow(2, 1 - bias);
  return x >> (exponent + fraction) ? -size : size;
}

/* Output number o of eight is in this place of AWQ's word: the even ones come first. */
static int awq_place(int64_t o) {
  int in_eight = (int)(o % 8);
  return in_eight % 2 ? 4 + in_eight / 2 : in_eight / 2;
}

static double code_of(const slow_matrix *m, int64_t o, int64_t i) {
  size_t words = (size_t)((m->in + 32 / m->bits - 1) / (32 / m->bits)), n = (size_t)m->out;
  size_t row = (size_t)o, col = (size_t)i, bits = (size_t)m->bits;
  switch (m->format) {
  case SLOW_FP8: {
    unsigned x = m->codes[row * (size_t)m->in + col];
    return (x & 0x7f) == 0x7f ? NAN : small_float(x, 4, 3, 7);
  }
  case SLOW_MXFP4: return small_float(take_bits(m->codes, (row * (size_t)m->in + col) * 4, 4), 2, 1, 1);
  case SLOW_INT8: return (int8_t)m->codes[row * (size_t)m->in + col];
  case SLOW_PACKED: return (double)take_bits(m->codes, row * words * 32 + col * bits, m->bits) - pow(2, m->bits - 1);
  case SLOW_GPTQ: return take_bits(m->codes, (col * bits / 32 * n + row) * 32 + col * bits % 32, m->bits);
  case SLOW_AWQ: return take_bits(m->codes, (col * n / 8 + row / 8) * 32 + (size_t)awq_place(o) * 4, 4);
  }
  return NAN;
}

/* g: row and column of the scale, by outputs and inputs. */
static double zero_of(const slow_matrix *m, int64_t o, int64_t g_out, int64_t g_in, int64_t groups) {
  size_t bits = (size_t)m->bits, n = (size_t)m->out;
  if (!m->zeros) return 0;
  switch (m->format) {
  case SLOW_FP8:
  case SLOW_MXFP4: return 0;
  case SLOW_INT8: return (int8_t)m->zeros[g_out * groups + g_in];
  case SLOW_PACKED: {
    if (m->zeros_are_bytes) return (int8_t)m->zeros[g_out * groups + g_in];
    size_t first = (size_t)g_out * bits, word = first / 32 * (size_t)groups + (size_t)g_in;
    return (double)take_bits(m->zeros, word * 32 + first % 32, m->bits) - pow(2, m->bits - 1);
  }
  case SLOW_GPTQ: return (double)take_bits(m->zeros, (size_t)g_in * n * bits + (size_t)o * bits, m->bits) + m->less_one;
  case SLOW_AWQ: return take_bits(m->zeros, ((size_t)g_in * n / 8 + (size_t)o / 8) * 32 + (size_t)awq_place(o) * 4, 4);
  }
  return NAN;
}

float slow_widen(const slow_matrix *m, int64_t o, int64_t i) {
  int64_t groups = (m->in + m->group_in - 1) / m->group_in;
  int64_t g_out = o / m->group_out, g_in = m->order ? m->order[i] : i / m->group_in;
  bool inputs_first = m->format == SLOW_GPTQ || m->format == SLOW_AWQ;
  size_t at = (size_t)(inputs_first ? g_in * m->out + o : g_out * groups + g_in);
  double scale =
      m->format == SLOW_MXFP4 ? pow(2, (int)m->scales[at] - 127) : (double)tri_load_f32(m->scales, m->scale_type, at);
  if (m->format == SLOW_MXFP4 && m->scales[at] == 0xff) scale = NAN;
  return (float)((code_of(m, o, i) - zero_of(m, o, g_out, g_in, groups)) * scale);
}
