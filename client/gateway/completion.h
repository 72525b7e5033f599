/* Shared by the files of /v1/completions. */
#ifndef TRI_CLIENT_GATEWAY_COMPLETION_H
#define TRI_CLIENT_GATEWAY_COMPLETION_H

#include "client/gateway/gateway.h"

enum { GW_MAX_STOP = 16, GW_MAX_STOP_IDS = 32, GW_MAX_BIAS = 512, GW_MAX_CHOICES = 64 };

/* A request: its texts lie in the document that it was read from. */
typedef struct gw_completion_request {
  trireme_request r;
  gw_inputs prompt;
  bool stream, include_usage, continuous_usage, beam_search, add_special_tokens, cache;
  bool skip_special_tokens;
  int64_t best_of, seed;
  trireme_string stops[GW_MAX_STOP];
  uint32_t *stop_ids;
  trireme_logit_bias *bias;
} gw_completion_request;

/* Free *out in any case. */
tri_status gw_completion_parse(const tri_json *object, gw_completion_request *out, gw_ignored *ignored, tri_error *err);
void gw_completion_request_free(gw_completion_request *q);

/* ---- logprobs.c: the legacy form, four arrays ---- */

typedef struct gw_logprobs {
  cmd_buf tokens, values, tops, offsets; /* elements, with commas */
  uint64_t characters;                   /* of the text before the next token */
} gw_logprobs;
void gw_logprobs_add(gw_logprobs *l, const trireme_choice *c);
/* Writes the object and forgets the tokens, but not how far the text has come. */
void gw_logprobs_write(gw_logprobs *l, cmd_buf *out);
void gw_logprobs_free(gw_logprobs *l);

#endif
