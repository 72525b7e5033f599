/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that are made of messages with channels (harmony, as gpt-oss writes them):
 *
 *     <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
 *
 * analysis is reasoning, final is text. commentary is a call where it goes to functions.NAME, and text where it goes to
 * no recipient; messages to other tools are reasoning. The recipient (to=NAME) may stand before or after the channel.
 * Arguments are looked at as chat_answer.h says; what stands after them in their message is text. */
#ifndef TRI_CLIENT_CHAT_CHANNELS_H
#define TRI_CLIENT_CHAT_CHANNELS_H

#include "client/chat/chat_answer.h"

typedef struct chat_channels chat_channels;

tri_status chat_channels_create(const chat_answer_config *config, chat_channels **out);
void chat_channels_free(chat_channels *c); /* NULL is fine */
tri_status chat_channels_push(chat_channels *c, const char *s, size_t len);
tri_status chat_channels_finish(chat_channels *c, bool by_model);
/* Returns whether it calls tools, and each call that has begun is whole. */
bool chat_channels_calls(const chat_channels *c);

#endif
