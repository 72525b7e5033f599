#include "client/chat/chat_prompt.h"

tri_status chat_prompt_encode(const tri_tokenizer *t, tri_tokenizer_scratch *s, const tri_jinja_output *prompt,
                              const uint32_t **ids, size_t *count) {
  return tri_tokenizer_encode(t, s, prompt->text.len ? prompt->text.data : "", prompt->text.len, false, 0, ids, count);
}
