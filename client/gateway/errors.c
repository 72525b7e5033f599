/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as responses. All have a body of OpenAI's form, an id, and the header lines that their status asks for; one
 * without memory for its body has a constant one. */
#include <stdio.h>
#include <string.h>

#include "client/gateway/gateway.h"

void gw_respond_json(http_conn *c, tri_buf *b, const char *fields) {
  if (b->failed)
    gw_respond_error(c, &(oai_error){503, "no_memory", "", "out of memory"});
  else
    http_respond(c, 200, "application/json", fields, b->data, b->len);
  tri_buf_free(b);
}

void gw_respond_error_with(http_conn *c, const oai_error *e, const char *more) {
  static const char no_memory[] = "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,"
                                  "\"code\":\"no_memory\"}}";
  char id[GW_ID_LINE], fields[GW_ID_LINE + 64];
  tri_buf b = {0};
  oai_error_json(&b, e);
  gw_id_line(c, id, sizeof id);
  snprintf(fields, sizeof fields, "%s%s", id, more);
  if (b.failed)
    http_respond(c, 503, "application/json", fields, no_memory, sizeof no_memory - 1);
  else
    http_respond(c, e->status, "application/json", fields, b.data, b.len);
  tri_buf_free(&b);
}

void gw_respond_no_coordinator(http_conn *c) {
  gw_respond_error(c, &(oai_error){503, "closed", "", "there is no connection to the coordinator"});
}

oai_error gw_error_of(const trireme_error *e, const char *prompt_field) {
  oai_error error = oai_error_of(e);
  if (!strcmp(error.param, "prompt")) error.param = prompt_field;
  return error;
}

void gw_respond_error(http_conn *c, const oai_error *e) {
  const char *more = "";
  if (e->status == 401) more = "WWW-Authenticate: Bearer\r\n";
  if (e->status == 429 || e->status == 503) more = "Retry-After: 1\r\n";
  gw_respond_error_with(c, e, more);
}
