/* SPDX-License-Identifier: Apache-2.0 */
/* The self-test of weights that stay as the checkpoint has them: what the backend multiplies with is what the files
 * say, on this device, for these shapes and slices. */
#ifndef TRI_RUNTIME_LOAD_FORM_CHECK_H
#define TRI_RUNTIME_LOAD_FORM_CHECK_H

#include "runtime/load/weights.h"

/* Multiplies matrices that are stored (tri_weight_place.is_stored) and lie in memory by rows that have some inputs of
 * one group each, and compares the results with sums of the files' numbers, widened one by one: an output of each
 * group, so that each scale of the first 1,024 pieces of blocks has a part in it, and 64 and more of outputs that have
 * a scale each. Layer after layer until tri_now_ns() is `until`, but at least the first of those with an MLP and of
 * those with experts, of which it looks at the first and the last expert here.
 *
 * A result may be off by 2^-7 of the sum of its products' magnitudes, which is what rounding inputs and results to
 * bfloat16 comes to. TRI_CORRUPT, by weight and layer: one is further off. *checked: the matrices looked at. */
tri_status tri_form_check(const tri_weights_config *config, const tri_weight_map *m, const tri_weights *w,
                          int64_t until, int *checked, tri_error *err);

#endif
