/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the body of a /v1/completions: refused with a reason, or a request within the limits that the library's
 * struct has room for. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/completion.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/fuzz/mutate.h"

static void need(bool ok) {
  if (!ok) abort();
}

static void check(gateway *g, const oai_completion_request *q, const oai_ignored *ignored) {
  char fields[256];
  need(q->prompt.num >= 1 && q->prompt.num <= OAI_MAX_PROMPTS && q->r.n >= 1 && q->r.n <= OAI_MAX_CHOICES);
  for (size_t i = 0; i < q->prompt.num; i++) need(q->prompt.items[i].text || q->prompt.items[i].ids);
  need(q->r.num_stop <= OAI_MAX_STOP && q->r.num_stop_token_ids <= OAI_MAX_STOP_IDS &&
       q->r.num_logit_bias <= OAI_MAX_BIAS);
  gw_ignored_fields(g, ignored, fields);
  need(!strpbrk(ignored->names, "\r\n")); /* they go into a header */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tri_buf body = {.data = (char *)data, .len = size};
  gateway *g = tri_calloc(1, sizeof *g);
  oai_ignored ignored = {.allowed = true};
  oai_completion_request q;
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  need(g != NULL);
  tri_log_setup(TRI_LOG_ERROR, "-");
  if (gw_parse_body(&body, &doc, &err) == TRI_OK) {
    if (oai_completion_parse(tri_json_root(doc), &q, &ignored, &err) == TRI_OK)
      check(g, &q, &ignored);
    else
      need(err.status != TRI_OK && err.message[0]);
    oai_completion_request_free(&q);
  }
  tri_json_free(doc);
  tri_free(g);
  return 0;
}
