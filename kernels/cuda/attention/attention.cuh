/* SPDX-License-Identifier: Apache-2.0 */
/* All kinds of attention share this: the keys that a token sees, and the formula of a score. */
#ifndef TRI_KERNELS_CUDA_ATTENTION_ATTENTION_CUH
#define TRI_KERNELS_CUDA_ATTENTION_ATTENTION_CUH

#include "kernels/cuda/linear/gemm_few_rows.cuh"
#include "kernels/kv_heads.h"
#include "kernels/visible_keys.h"

/* The keys that a token sees, and their pages. first .. last: keys by their number in the sequence, both included. */
struct view {
  int position, first, last, tokens, seq; /* tokens: of its sequence in this step */
  const int32_t *kv_blocks;
};

/* Finds the sequence of row t by halving seq_start. The batch's arrays come from the host, before a step's first
 * kernel: it may be called before the wait. */
__device__ static view view_of(const tri_attention_args &a, const tri_batch &b, int t) {
  bool one_each = b.num_single == b.num_seqs; /* then rows are sequences */
  int low = one_each ? t : 0, high = one_each ? t : b.num_seqs - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (b.seq_start[middle] <= t)
      low = middle;
    else
      high = middle - 1;
  }
  view v;
  v.seq = low;
  v.tokens = b.seq_start[low + 1] - b.seq_start[low];
  v.position = b.context_len[low] - (b.seq_start[low + 1] - t);
  v.last = tri_last_key(a.causal, a.window, v.position, b.context_len[low]);
  v.first = tri_first_key(a.window, a.chunked, v.position);
  v.kv_blocks = b.block_table + b.block_start[low];
  return v;
}

/* A score out of q . k of head `head` and key j: scaled, capped (Gemma 2), with ALiBi's slope times the distance, or
 * with a learned bias, a row per head that is indexed by the key or by its distance. The order is the reference's. */
__device__ static inline float adjust(const tri_attention_args &a, float s, int head, int j, int position) {
  s *= a.scale;
  if (a.softcap > 0) s = a.softcap * tanhf(s / a.softcap);
  if (a.alibi_slopes) s += a.alibi_slopes[head] * (j - position);
  if (!a.position_bias) return s;
  int i = j + a.bias_offset - (a.bias_relative ? position : 0);
  return s + a.position_bias[(size_t)head * (size_t)a.bias_len + (size_t)max(0, min(a.bias_len - 1, i))];
}

#endif
