/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as OpenAI's API has them, also for `trireme submit --file`. The code is the coordinator's, and the status
 * follows from it alone, but for no_capacity, which stands for a full queue (429) and for a request that can never fit
 * (400). */
#include "client/openai/error.h"

#include <string.h>

#include "base/json/json_writer.h"

static const char *type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

void oai_error_json(tri_buf *b, const oai_error *e) {
  tri_text_add(b, "{", 1); /* wherever it stands */
  tri_json_open(b, "error", '{');
  tri_json_put_word(b, "message", e->message);
  tri_json_put_word(b, "type", type_of(e->status));
  tri_json_add_key(b, "param");
  if (e->param && e->param[0])
    tri_json_add_string(b, e->param, strlen(e->param));
  else
    tri_text_add(b, "null", 4);
  tri_json_put_word(b, "code", e->code);
  tri_text_add(b, "}}", 2);
}

/* The status of a code; what is wrong with the request itself is 400. */
static int status_of(const char *code) {
  static const struct {
    const char *code;
    int status;
  } rows[] = {{"invalid_argument", 400}, {"out_of_range", 400}, {"unknown_field", 400}, {"unsupported", 400},
              {"corrupt", 400},          {"not_found", 404},    {"too_large", 413},     {"permission", 403},
              {"draining", 503},         {"peer_lost", 503},    {"device_lost", 503},   {"closed", 503},
              {"aborted", 503},          {"no_memory", 503},    {"timeout", 504},       {"coordinator_lost", 503},
              {"taken_over", 409},       {"overflow", 400},     {"again", 503}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(code, rows[i].code)) return rows[i].status;
  return 500;
}

/* The name that the request's field has here. */
static const char *param_of(const char *field) {
  static const char *const names[][2] = {{"token_ids", "prompt"}, {"text", "input"}, {"op", ""}, {"id", ""}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(field, names[i][0])) return names[i][1];
  return field;
}

/* A full queue names no field; what can never fit names the one that is too long. */
static oai_error error_with(const char *code, const char *field, const char *message) {
  oai_error out = {status_of(code), code, field, message};
  if (strcmp(code, "no_capacity") != 0) return out;
  out.status = field[0] ? 400 : 429;
  if (field[0]) out.code = "context_length_exceeded";
  return out;
}

oai_error oai_error_of(const trireme_error *e) {
  oai_error out = error_with(e->code, param_of(e->field), e->message);
  if (!out.code[0]) out.code = "internal";
  if (!out.message[0]) out.message = "the coordinator did not say why";
  return out;
}

oai_error oai_error_of_status(const tri_error *e) {
  return error_with(tri_status_code(e->status), e->field, e->message);
}
