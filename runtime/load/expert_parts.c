/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/load/expert_parts.h"

const tri_weight_id tri_expert_weights[TRI_EXPERT_WEIGHTS] = {TRI_W_EXPERT_UP, TRI_W_EXPERT_UP_BIAS, TRI_W_EXPERT_DOWN,
                                                              TRI_W_EXPERT_DOWN_BIAS};

/* A stacked weight has the rows of all slots one after the other, and their scales, no group of which has rows of two
 * slots: a slot's are one run of either. A bias is a weight of one column without scales; so six runs are the most. */
static void add_run(tri_expert_part *parts, int *n, const void *data, size_t all, int slots, int slot) {
  size_t bytes = all / (size_t)slots;
  if (data && bytes) parts[(*n)++] = (tri_expert_part){(char *)data + (size_t)slot * bytes, bytes};
}

int tri_expert_parts(const tri_layer_weights *y, int slots, int slot, tri_expert_part out[TRI_EXPERT_PARTS]) {
  int n = 0;
  for (int i = 0; i < TRI_EXPERT_WEIGHTS; i++) {
    const tri_weight *w = &y->w[tri_expert_weights[i]];
    add_run(out, &n, w->data, (size_t)w->n * (size_t)w->k * tri_dtype_size(w->dtype), slots, slot);
    add_run(out, &n, w->scale, tri_weight_num_scales(w) * sizeof *w->scale, slots, slot);
  }
  return n;
}
