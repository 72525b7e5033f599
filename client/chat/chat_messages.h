/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as templates expect them, made of messages as clients send them. */
#ifndef TRI_CLIENT_CHAT_CHAT_MESSAGES_H
#define TRI_CLIENT_CHAT_CHAT_MESSAGES_H

#include "base/json/json.h"

enum { CHAT_MOST_MESSAGES = 4096, CHAT_MOST_TOOLS = 256 };

/* The forms of a message that a template understands. */
typedef struct chat_form {
  bool takes_parts;     /* content may be a list of parts; else parts of text are joined with line ends */
  bool takes_text;      /* content may be a text; else it becomes a list of one part */
  bool names_developer; /* it knows the role; else it is `system`, and leading system messages are one */
  bool text_arguments;  /* arguments of calls are the text of an object, not the object */
  bool null_calls;      /* tool_calls that are null are no calls for it; else they go, as empty ones do */
  bool without_nulls;   /* it fails at members that are null: a content is an empty text, others go */
} chat_form;

/* Checks the messages and writes them anew: arguments of calls become objects, or texts of such, and those of a
 * function without parameters are empty; a call has a content, which may be null; empty lists of calls go;
 * reasoning_content, reasoning and thinking fill each other. *out is for tri_json_free. model: its name, for the
 * refusal of a part that is not text; may be NULL. TRI_INVALID_ARGUMENT: a message is malformed; err->field is like
 * messages[3].role. */
tri_status chat_messages_make(const tri_json *messages, const char *model, const chat_form *form, tri_json_doc **out,
                              tri_error *err);

#endif
