/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized matrices as numbers again: pure functions over bytes in memory, one file for each way of storing them.
 *
 * Rows and columns count elements as the file has them. Most formats store a linear layer's matrix as it is, [out, in];
 * GPTQ and AWQ store [in, out], with several elements in each 32-bit word. An element is
 *
 *     (code - zero) * scale
 *
 * where code is a small number and scale, and zero where there is one, are those of the element's group. All of it is
 * exact in float32 but the last product, which is rounded once. */
#ifndef TRI_RUNTIME_LOAD_WIDEN_H
#define TRI_RUNTIME_LOAD_WIDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/gguf.h"

/* How a matrix is stored. */
typedef struct tri_widen_layout {
  int bits;                       /* of a code */
  int64_t rows, cols;             /* elements */
  int64_t group_rows, group_cols; /* elements that share a scale */
  int64_t scale_rows, scale_cols;
  tri_dtype scale_type;
  bool zeros_less_one;         /* a zero point is stored as one less */
  bool zeros_are_bytes;        /* of packed codes, as compressed-tensors' first releases had them */
  const tri_gguf_block *block; /* of tri_widen_blocks: codes and their scales are together; NULL: of other formats */
} tri_widen_layout;

/* Bytes of a matrix's tensors, from some row on. */
typedef struct tri_widen_view {
  const tri_widen_layout *layout;
  const void *codes;
  size_t pitch;                 /* bytes from a stored row of codes to the next */
  int64_t first_row, first_col; /* element that codes begin with; the first of a word */
  const void *scales;
  int64_t first_scale;  /* row of scales that they begin with */
  const void *zeros;    /* NULL: all are 0 */
  int64_t first_zero;   /* stored row that they begin with */
  const int32_t *order; /* [inputs] the group of each; NULL: one after the other */
} tri_widen_view;

typedef struct tri_widen_rect {
  int64_t row, rows, col, cols;
} tri_widen_rect;

typedef struct tri_widen_format {
  const char *name;
  void (*widen)(const tri_widen_view *v, const tri_widen_rect *r, float *out, size_t ld);
  bool inputs_first; /* [in, out] */
  /* After the name of a layer: */
  const char *codes;
  tri_dtype codes_type;
  const char *scales[3]; /* one of these; NULL-terminated */
  const char *zeros;     /* NULL: the format has none; which layers may lack them says zeros_needed */
  bool zeros_needed;
  const char *order;      /* NULL: the format has none; any layer may lack it */
  const char *ignored[6]; /* tensors that hold nothing for us (scales of activations, shapes); NULL-terminated */
} tri_widen_format;

extern const tri_widen_format tri_widen_fp8;        /* FP8 e4m3, scales of blocks, rows or the whole */
extern const tri_widen_format tri_widen_mxfp4;      /* FP4 e2m1, a power of two for 32 */
extern const tri_widen_format tri_widen_packed_int; /* compressed-tensors' pack-quantized: 4 or 8 bits in words */
extern const tri_widen_format tri_widen_int8;       /* compressed-tensors' int-quantized */
extern const tri_widen_format tri_widen_gptq, tri_widen_awq;
extern const tri_widen_format tri_widen_blocks; /* GGUF's types, whose scales are among the codes */

/* Writes a rectangle of elements to out, whose rows are ld floats apart. */
static inline void tri_widen_elements(const tri_widen_format *f, const tri_widen_view *v, const tri_widen_rect *r,
                                      float *out, size_t ld) {
  f->widen(v, r, out, ld);
}

/* Writes the codes of one row's rectangle of Q8_0 blocks, and the scale of each block that it has a part of. */
void tri_widen_split_q8_0(const tri_widen_view *v, const tri_widen_rect *r, int8_t *codes, float *scales);

/* For formats whose rows are outputs: writes n codes of a row as numbers, from column `first` of `codes` on. */
typedef void (*tri_widen_decode)(const uint8_t *codes, size_t first, size_t n, float *out);
/* Returns the zero point of a row's group. */
typedef float (*tri_widen_zero)(const tri_widen_view *v, int64_t row, int64_t group);
/* Does the rest: zero NULL where the format has none. */
void tri_widen_by_rows(const tri_widen_view *v, const tri_widen_rect *r, tri_widen_decode decode, tri_widen_zero zero,
                       float *out, size_t ld);

/* Writes n codes of four bits, a byte each: those from number `first` on, where a byte has the lower half first. */
void tri_widen_halves(const uint8_t *codes, size_t first, size_t n, uint8_t *out);

#endif
