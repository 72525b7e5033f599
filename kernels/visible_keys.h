/* SPDX-License-Identifier: Apache-2.0 */
/* Which keys a token sees, by their numbers in its sequence: first .. last, both included. A window has the last
 * `window` keys up to the token's own; without causality as many after it (EmbeddingGemma, ModernBERT). With chunks
 * they are those of its own chunk of `window` tokens (Llama 4). Neither end falls as the position rises. window 0: all.
 */
#ifndef TRI_KERNELS_VISIBLE_KEYS_H
#define TRI_KERNELS_VISIBLE_KEYS_H

#include "kernels/ref/formulas.h"

TRI_FORMULA int tri_first_key(int window, bool chunked, int position) {
  int first = chunked && window > 0 ? position - position % window : position - window + 1;
  return window > 0 && first > 0 ? first : 0;
}

/* context: keys of the sequence. */
TRI_FORMULA int tri_last_key(bool causal, int window, int position, int context) {
  if (causal) return position;
  return window > 0 && window < context - position ? position + window - 1 : context - 1;
}

#endif
