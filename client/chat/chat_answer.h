/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a model's answer: reasoning, text, calls of tools. A filter of a stream: what it gives does not depend
 * on the pieces in which the answer comes, and all that is certain is given at once.
 *
 * A call is given with the first value of its arguments, or when it is whole without one: until then it may be text.
 * The arguments that follow are an object of JSON in any case. Where they continue as no object does, or the answer
 * ends, the call is broken: what has been given is completed with a quote and brackets, and the rest is text. A call
 * whose arguments are whole stays one, whatever comes after them but the end of the answer.
 *
 * In arguments that the model writes as JSON a key may come twice, as the model wrote it; most readers take the last.
 * Of a parameter in tags that comes twice the first stays, as it has been given when the second comes. Of `arguments`
 * and `parameters` in one call the first is taken. */
#ifndef TRI_CLIENT_CHAT_CHAT_ANSWER_H
#define TRI_CLIENT_CHAT_CHAT_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* How models write calls. Special tokens are no text of an answer, so that a marker that is one is not there: the forms
 * whose markers are often special are also taken without them, at the beginning of an answer and of known tools. */
typedef enum chat_calls {
  CHAT_CALLS_NONE,
  CHAT_CALLS_HERMES,   /* <tool_call>{"name": ..., "arguments": {...}}</tool_call> */
  CHAT_CALLS_MISTRAL,  /* [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]NAME{...} */
  CHAT_CALLS_LLAMA,    /* {"name": ..., "parameters": {...}}, with ; between several */
  CHAT_CALLS_FUNCTION, /* <function=NAME>{...}</function> */
  CHAT_CALLS_TAGS,     /* <tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call> */
  CHAT_CALLS_CHANNELS, /* a message of a channel to functions.NAME: see channels.h */
  CHAT_NUM_CALLS
} chat_calls;

typedef enum chat_part {
  CHAT_PART_TEXT,
  CHAT_PART_REASONING,
  CHAT_PART_CALL,      /* one begins: the function's name, whole */
  CHAT_PART_ARGUMENTS, /* bytes of the last call's: joined, an object of JSON */
} chat_part;

typedef struct chat_answer_config {
  chat_calls calls;
  bool reasoning;    /* <think>...</think> at the beginning is */
  bool in_reasoning; /* and the prompt has its <think> already */
  bool channels;     /* the answer is made of channels, with its special tokens: channels.h */
  bool in_text;      /* of channels: the prompt ends in the text of an answer */
  bool (*is_tool)(void *ctx, const char *name, size_t len);
  /* Returns whether a parameter is text by the tool's schema, whatever it looks like; NULL: one that is JSON is none.
   */
  bool (*is_text)(void *ctx, const char *name, size_t len, const char *key, size_t key_len);
  /* Returns whether the tool has such a parameter; NULL: each is one. */
  bool (*is_parameter)(void *ctx, const char *name, size_t len, const char *key, size_t key_len);
  void (*give)(void *ctx, chat_part part, const char *s, size_t len); /* len > 0, but of a name */
  void *ctx;
} chat_answer_config;

typedef struct chat_answer chat_answer;

tri_status chat_answer_create(const chat_answer_config *config, chat_answer **out);
void chat_answer_free(chat_answer *a); /* NULL is fine */
tri_status chat_answer_push(chat_answer *a, const char *s, size_t len);
/* The answer has ended: what was held back is text after all, or dropped as white space around calls. by_model: it has
 * not been cut, by a limit or a stop string: then a call of channels may have nothing where its arguments stand. */
tri_status chat_answer_finish(chat_answer *a, bool by_model);
/* Returns whether it calls tools, and each call that has begun is whole. */
bool chat_answer_calls(const chat_answer *a);

/* "hermes", ...; false: there is no such form. */
bool chat_calls_by_name(const char *name, chat_calls *out);
const char *chat_calls_name(chat_calls calls);

/* How an answer of nothing but calls is written: `begin`, an object, further ones after `separator` each, `end`. */
typedef struct chat_call_frame {
  const char *begin, *separator, *end;
  const char *begin_in_reasoning; /* where the prompt ends in reasoning */
  const char *arguments;          /* the object's key of them, after `name` */
} chat_call_frame;
/* NULL: calls of this form are no JSON between texts, or have markers that are no text. */
const chat_call_frame *chat_calls_frame(chat_calls calls);

enum { CHAT_CALLS_NAMES = 128 };
/* Writes the names of all forms but none, with commas between them. */
void chat_calls_names(char out[CHAT_CALLS_NAMES]);

#endif
