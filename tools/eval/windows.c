/* SPDX-License-Identifier: Apache-2.0 */
/* The strided perplexity of transformers' documentation: a window begins i * stride into the text, and predicts what
 * the window before it has not reached. There a stride as long as the window loses the first token of each; here it
 * must be shorter. */
#include "tools/eval/windows.h"

size_t eval_num_windows(size_t tokens, size_t size, size_t stride) {
  if (tokens <= size) return 1;
  size_t rest = tokens - size;
  return 1 + rest / stride + (rest % stride != 0);
}

eval_window eval_window_at(size_t tokens, size_t size, size_t stride, size_t i) {
  eval_window w = {.begin = i * stride};
  w.end = tokens - w.begin < size ? tokens : w.begin + size;
  w.first = i ? w.begin - stride + size : 1; /* the end of the window before, which has all of its tokens */
  return w;
}
