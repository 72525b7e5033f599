/* SPDX-License-Identifier: Apache-2.0 */
/* The fields by which a request says what its answer must be: those of OpenAI's API, of vLLM and of llama.cpp. Each
 * comes to a JSON Schema, or to any JSON object; a request may have one of them. */
#ifndef TRI_CLIENT_OPENAI_ANSWER_FORMAT_H
#define TRI_CLIENT_OPENAI_ANSWER_FORMAT_H

#include "client/openai/completion_request.h"

/* Take a value of a structure that begins with an oai_completion_request: response_format; structured_outputs; and
 * guided_json or json_schema, a schema itself. */
tri_status oai_take_response_format(void *request, const oai_field *f, const tri_json *v, tri_error *err);
tri_status oai_take_structured_outputs(void *request, const oai_field *f, const tri_json *v, tri_error *err);
tri_status oai_take_schema(void *request, const oai_field *f, const tri_json *v, tri_error *err);

enum { OAI_PARAM_BYTES = 160 };
/* Returns a coordinator's name of a field as the request has it: of a schema, that by which it came and the pointer
 * into it. The result may lie in `out`. */
const char *oai_answer_format_param(const oai_completion_request *q, const char *field, char out[OAI_PARAM_BYTES]);

#endif
