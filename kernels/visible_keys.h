/* SPDX-License-Identifier: Apache-2.0 */
/* Which keys a query sees: all up to its last one, the last `window` of these, or, with chunks, those of its own chunk
 * of `window` tokens. */
#ifndef TRI_KERNELS_VISIBLE_KEYS_H
#define TRI_KERNELS_VISIBLE_KEYS_H

#include "kernels/ref/formulas.h"

/* Returns the first key that is seen where `last` is the last one, a key's number in its sequence. It never falls as
 * `last` rises. window 0: every key. */
TRI_FORMULA int tri_first_key(int window, bool chunked, int last) {
  int first = chunked && window > 0 ? last - last % window : last - window + 1;
  return window > 0 && first > 0 ? first : 0;
}

#endif
