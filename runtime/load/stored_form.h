/* SPDX-License-Identifier: Apache-2.0 */
/* The form in which a weight of a quantized checkpoint stays in memory: its codes as the files have them, with the
 * scales of their blocks, where that is one matrix of equal blocks on this rank. Other weights are widened. */
#ifndef TRI_RUNTIME_LOAD_STORED_FORM_H
#define TRI_RUNTIME_LOAD_STORED_FORM_H

#include "kernels/tensor.h"
#include "runtime/load/packed.h"
#include "runtime/model/layout.h"

/* Blocks of the file's matrices, and where the rank's rows and columns of them lie, decide the form: rows of several
 * tensors (queries, keys, values; gates, ups) and of several experts lie one after the other in a weight, so that its
 * blocks have as many rows as fit whole into all of them. A rank whose columns begin inside a block has the block's
 * scale (tri_groups' skip_col).
 *
 * layer: of the model. dtype: of the codes, F8_E4M3 or I8; those of I8 have a scale for each row, as backends multiply
 * them. ckpt NULL: as the config alone says it. False: the weight has no such codes, or not in one form: it is widened,
 * or rounded anew. */
bool tri_stored_form_find(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt, tri_weight_id id,
                          int layer, tri_dtype dtype, tri_groups *groups);

#endif
