/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that generate text: what /v1/completions asks for, and what chats ask for with it. */
#ifndef TRI_CLIENT_OPENAI_COMPLETION_REQUEST_H
#define TRI_CLIENT_OPENAI_COMPLETION_REQUEST_H

#include "client/openai/fields.h"

enum {
  OAI_MAX_STOP = 16,
  OAI_MAX_STOP_IDS = 32,
  OAI_MAX_BIAS = 512,
  OAI_MAX_ALLOWED_IDS = 131072,
  OAI_MAX_SCHEMA = 256 << 10, /* bytes */
  OAI_MAX_CHOICES = 64
};

/* A request: its texts lie in the document that it was read from, until they are kept. */
typedef struct oai_completion_request {
  trireme_request r;
  oai_inputs prompt;
  bool stream, include_usage, continuous_usage, beam_search, add_special_tokens, cache;
  bool skip_special_tokens, include_stop, return_token_ids;
  int64_t best_of;
  int64_t prompt_logprobs; /* in the form of vLLM; -1: none. Those of an echo are in the request */
  trireme_string stops[OAI_MAX_STOP];
  uint32_t *stop_ids, *allowed_ids;
  trireme_logit_bias *bias;
  tri_buf texts; /* of oai_completion_keep */
  tri_buf schema;
  const char *schema_field; /* by which that came, or the wish for a JSON object; NULL: by none. A constant */
  size_t first_tool;        /* of a schema of calls: the number of the first tool in it */
} oai_completion_request;

/* Fields that both endpoints have, of a structure that begins with a oai_completion_request. */
extern const oai_field_table oai_completion_fields;
void oai_completion_request_init(oai_completion_request *q);
/* Checks them together, and makes of them the fields of a job. */
tri_status oai_completion_check(oai_completion_request *q, tri_error *err);
/* Reads a request of /v1/completions. Free *out in any case. */
tri_status oai_completion_parse(const tri_json *object, oai_completion_request *out, oai_ignored *ignored,
                                tri_error *err);
/* Copies its texts, which the document is not needed for any more. */
tri_status oai_completion_keep(oai_completion_request *q, tri_error *err);
void oai_completion_request_free(oai_completion_request *q);

#endif
