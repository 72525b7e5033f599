/* SPDX-License-Identifier: Apache-2.0 */
/* tool_choice, and the constraint of an answer that must call a tool: a schema of calls, with what the model writes
 * around each of them. */
#ifndef TRI_CLIENT_OPENAI_TOOL_CHOICE_H
#define TRI_CLIENT_OPENAI_TOOL_CHOICE_H

#include "client/openai/chat_request.h"

typedef enum oai_choice_kind {
  OAI_CHOICE_NONE,
  OAI_CHOICE_AUTO,
  OAI_CHOICE_REQUIRED,
  OAI_CHOICE_NAMED
} oai_choice_kind;

typedef struct oai_tool_choice {
  oai_choice_kind kind;
  const char *name; /* of NAMED: the function's, in the document */
  size_t len;
} oai_tool_choice;

/* Reads the member; v NULL: auto. */
tri_status oai_tool_choice_read(const tri_json *v, oai_tool_choice *out, tri_error *err);
/* Returns what an error calls it. */
const char *oai_tool_choice_word(const oai_tool_choice *c);

enum { OAI_MAX_FORCED_TOOLS = 256, OAI_MAX_FORCED_CALLS = 16, OAI_MAX_FORCED_NAME = 200 /* bytes, as JSON */ };

/* Makes the answer one call of a function of q's tools, or, of REQUIRED with parallel_tool_calls, up to
 * OAI_MAX_FORCED_CALLS of them: each an object with the name and arguments that fit the function's parameters. Where
 * those cannot be kept any object will do, unless the function is strict: then their place is named. TRI_UNSUPPORTED
 * also where the model does not write calls as JSON between texts. */
tri_status oai_tool_choice_force(oai_chat_request *q, const oai_tool_choice *c, const oai_model *model, tri_error *err);

/* Returns the name of a place in the schema of calls as the request has it. pointer: into the schema, "" of all. The
 * result may lie in `out`. */
const char *oai_tool_choice_param(const oai_completion_request *q, const char *pointer, char *out, size_t size);

#endif
