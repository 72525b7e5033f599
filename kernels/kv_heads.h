/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a rank's query heads read which of its KV heads. A group of heads_per_kv neighbours shares one; where the
 * ranks' parts of the query heads cut through groups (40 heads over 10 KV heads on 4 ranks), the first one lacks its
 * skipped_heads first members and the last one what is beyond num_heads. */
#ifndef TRI_KERNELS_KV_HEADS_H
#define TRI_KERNELS_KV_HEADS_H

#include "kernels/ref/formulas.h"

typedef struct tri_heads {
  int first, count;
} tri_heads;

TRI_FORMULA int tri_kv_head_of(const tri_attention_args *a, int head) {
  return (head + a->skipped_heads) / a->heads_per_kv;
}

/* Returns the query heads of a KV head. */
TRI_FORMULA tri_heads tri_heads_of(const tri_attention_args *a, int kv_head) {
  int first = kv_head * a->heads_per_kv - a->skipped_heads, end = first + a->heads_per_kv;
  tri_heads h = {first > 0 ? first : 0, 0};
  h.count = (end < a->num_heads ? end : a->num_heads) - h.first;
  return h;
}

/* Returns how many query heads a KV head has at most: the same on ranks with as many heads. */
static inline int tri_most_heads(const tri_attention_args *a) {
  return a->heads_per_kv < a->num_heads ? a->heads_per_kv : a->num_heads;
}

#endif
