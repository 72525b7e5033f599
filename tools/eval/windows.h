/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over the tokens of a text: each token but the first is predicted in one of them. */
#ifndef TRI_TOOLS_EVAL_WINDOWS_H
#define TRI_TOOLS_EVAL_WINDOWS_H

#include <stddef.h>

/* Tokens begin .. end - 1 are the prompt. Those from first on are predicted, and those before it are their context. */
typedef struct eval_window {
  size_t begin, first, end;
} eval_window;

/* Returns how many windows a text of `tokens` tokens (2 at least) has. A window has at most `size` tokens and begins
 * `stride` after the one before it: 1 <= stride < size, so that every token has one before it. */
size_t eval_num_windows(size_t tokens, size_t size, size_t stride);
/* Returns window i of them. */
eval_window eval_window_at(size_t tokens, size_t size, size_t stride, size_t i);

#endif
