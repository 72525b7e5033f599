/* SPDX-License-Identifier: Apache-2.0 */
/* The token ids of a prompt that a chat template has made. */
#ifndef TRI_CLIENT_CHAT_CHAT_PROMPT_H
#define TRI_CLIENT_CHAT_CHAT_PROMPT_H

#include "client/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

/* Encodes it without the tokenizer's own template, since the chat's has put the special tokens where they belong; what
 * looks like one in a message is text. *ids lies in the scratch until its next use. */
tri_status chat_prompt_encode(const tri_tokenizer *t, tri_tokenizer_scratch *s, const tri_jinja_output *prompt,
                              const uint32_t **ids, size_t *count);

#endif
