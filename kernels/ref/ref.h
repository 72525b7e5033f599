/* SPDX-License-Identifier: Apache-2.0 */
/* The reference: every op in plain C with sums in double, written to be read. It is the specification of the ops; the
 * other backends are tested against it. Its plan functions check the shapes, and other host backends call them for
 * that. */
#ifndef TRI_KERNELS_REF_REF_H
#define TRI_KERNELS_REF_REF_H

#include "kernels/backend.h"

#define X(op)                                                                                                          \
  tri_status tri_ref_##op##_plan(tri_backend *be, const tri_##op##_args *a, tri_op_plan *plan);                        \
  void tri_ref_##op##_launch(tri_backend *be, const tri_op_plan *plan, const tri_##op##_args *a);
TRI_OP_LIST(X)
#undef X

/* The plan and the launch of an op that needs nothing but its arguments: from bool NAME_fits(a), which looks at the
 * shapes, and void NAME_run(a). */
#define TRI_REF_OP(op)                                                                                                 \
  tri_status tri_ref_##op##_plan(tri_backend *be, const tri_##op##_args *a, tri_op_plan *plan) {                       \
    (void)be;                                                                                                          \
    *plan = (tri_op_plan){0};                                                                                          \
    return op##_fits(a) ? TRI_OK : TRI_INVALID_ARGUMENT;                                                               \
  }                                                                                                                    \
  void tri_ref_##op##_launch(tri_backend *be, const tri_op_plan *plan, const tri_##op##_args *a) {                     \
    (void)be;                                                                                                          \
    (void)plan;                                                                                                        \
    op##_run(a);                                                                                                       \
  }

bool tri_ref_glu_ok(tri_act act, float limit); /* whether a gated activation can be computed with this limit */

/* Returns whether a weight's type is one of numbers, or one of elements with scales. */
static inline bool tri_ref_weight_type_ok(tri_dtype t) {
  return t == TRI_F32 || t == TRI_F16 || t == TRI_BF16 || t == TRI_I8 || t == TRI_F8_E4M3;
}

/* A row as the numbers that its integers stand for, q * scale by groups (kernels/quantize.h), in double, where that is
 * exact: NaN in a group with an element that is not finite. */
/* Returns whether rows may be rounded to the type of such weights: their groups are then those of w. */
bool tri_ref_rounds_for(const tri_weight *w);
void tri_ref_round_row(const tri_weight *w, const float *x, double *out);

/* The choices of token t, in double: host backends all use this one, so that two of them never choose differently.
 * scratch: tri_ref_moe_scratch() doubles. */
void tri_ref_moe_route_row(const tri_moe_route_args *a, int t, double *scratch);
size_t tri_ref_moe_scratch(const tri_moe_route_args *a);
/* The map, once all rows have their choices: a counting sort by expert. Does nothing without one. */
void tri_ref_moe_make_map(const tri_moe_route_args *a);

/* The distribution the sampler samples row `row` from, after adjustment and the cuts: weight[id] up to a common factor,
 * 0 for ids that were cut. Returns the sum. adjusted: [vocab] logits; order: scratch of vocab entries. */
double tri_ref_sample_weights(const tri_sample_params *p, const float *adjusted, int vocab, uint32_t *order,
                              double *weight);

/* inv_freq of one token under its rotary scaling; the same bits in every host backend, because at long positions one
 * unit in the last place of the frequency is a visible angle. */
void tri_ref_rope_frequencies(const tri_rope_angles_args *a, int rope_len, float *inv_freq);
/* Returns what cosines and sines are multiplied with. */
float tri_ref_rope_scale(const tri_rope_angles_args *a, int rope_len);

/* An element of a weight as a number. */
static inline double tri_ref_weight_at(const tri_weight *w, size_t row, size_t col) {
  double element = tri_load_f32(w->data, w->dtype, row * (size_t)w->k + col);
  int group;
  if (!w->scale) return element;
  tri_weight_group(w, (int)col, 1, &group);
  return element * tri_weight_scales(w, row)[group];
}

/* Returns the offset of key `pos` of a sequence, in elements of kv.k or kv.v. */
static inline size_t tri_ref_kv_offset(const tri_kv_layer *kv, const int32_t *kv_blocks, int pos, int kv_head) {
  size_t kv_block = (size_t)kv_blocks[pos / kv->block_size], in_block = (size_t)(pos % kv->block_size);
  return ((kv_block * (size_t)kv->num_kv_heads + (size_t)kv_head) * (size_t)kv->block_size + in_block) *
         (size_t)kv->head_dim;
}

#endif
