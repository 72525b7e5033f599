/* SPDX-License-Identifier: Apache-2.0 */
#include "client/chat/chat_prompt.h"

tri_status chat_prompt_encode(const tri_tokenizer *t, tri_tokenizer_scratch *s, const tri_jinja_output *prompt,
                              const uint32_t **ids, size_t *count) {
  const char *text = prompt->text.len ? prompt->text.data : "";
  return tri_tokenizer_encode_spans(t, s, text, prompt->text.len, prompt->spans, prompt->num_spans, false, 0, ids,
                                    count);
}
