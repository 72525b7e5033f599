/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized matrices element by element, from the definitions of their formats and in double: what the fast functions
 * are compared with. */
#ifndef TRI_TESTS_UNIT_SLOW_WIDEN_H
#define TRI_TESTS_UNIT_SLOW_WIDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

typedef enum slow_format { SLOW_FP8, SLOW_MXFP4, SLOW_PACKED, SLOW_INT8, SLOW_GPTQ, SLOW_AWQ } slow_format;

/* A layer's matrix [out, in], and the bytes of its tensors, whole. */
typedef struct slow_matrix {
  slow_format format;
  int bits;
  int64_t out, in;
  int64_t group_out, group_in; /* that share a scale */
  const uint8_t *codes, *scales, *zeros;
  tri_dtype scale_type;
  const int32_t *order; /* the group of each input; NULL: one after the other */
  bool less_one, zeros_are_bytes;
} slow_matrix;

/* Returns the element of an output and an input, rounded to float32. */
float slow_widen(const slow_matrix *m, int64_t out, int64_t in);

#endif
