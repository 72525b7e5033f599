/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the tensors that a quantized checkpoint has in place of a matrix, and checks that they fit each other. */
#ifndef TRI_RUNTIME_LOAD_PACKED_H
#define TRI_RUNTIME_LOAD_PACKED_H

#include "runtime/load/widen.h"
#include "runtime/model/arch.h"
#include "runtime/model/safetensors.h"

/* One tensor, and where in it the matrix's part begins: experts may be stacked. */
typedef struct tri_packed_tensor {
  const tri_st_tensor *tensor; /* NULL: there is none */
  uint64_t base;
  int64_t rows; /* stored */
  size_t pitch; /* bytes of each */
  int height;   /* rows of elements, of scales for zeros, in a stored row */
} tri_packed_tensor;

typedef struct tri_packed {
  const tri_widen_format *format;
  tri_widen_layout layout;
  tri_packed_tensor codes, scales, zeros, order;
  bool turned; /* rows of the weight are columns of the file */
} tri_packed;

/* Returns where a matrix's row lies in a tensor that may have the rows of a head's halves in turns. */
static inline int64_t tri_packed_row(const tri_st_tensor *t, int64_t row) {
  if (!t->paired) return row;
  int64_t of_head = row % t->paired, half = t->paired / 2;
  return row - of_head + 2 * (of_head % half) + of_head / half;
}

/* Returns whether a tensor's codes of the type, times their scales, are its numbers, row by row as in memory. */
bool tri_packed_is_codes(const tri_packed *p, tri_dtype type);

/* Finds whether a rule's tensor is quantized in a layer (and expert), and how. *found false: it is stored as it is, or
 * not at all. Refuses, by the tensor's name, what does not fit the config. */
tri_status tri_packed_find(const tri_model_config *c, const tri_checkpoint *ckpt, const tri_tensor_rule *rule,
                           int layer, int expert, tri_packed *out, bool *found, tri_error *err);

/* The formats that a method's layers may have; NULL-terminated. */
const tri_widen_format *const *tri_packed_formats(tri_stored_method method);

/* Returns the length of `name` without what a format puts after a layer's name, 0 where it is no name of a format's
 * tensors. *weight: what the layer's plain tensor has there. */
size_t tri_packed_stem(tri_stored_method method, const char *name, const char **weight);

/* Returns whether a rule's tensor may be quantized. */
bool tri_packed_may_be(const tri_model_config *c, const tri_tensor_rule *rule);

#endif
