/* SPDX-License-Identifier: Apache-2.0 */
/* A request from options and from JSON lines, by one table. */
#ifndef TRI_CLIENT_CLI_REQUEST_H
#define TRI_CLIENT_CLI_REQUEST_H

#include <stdio.h>

#include "client/trireme.h"
#include "base/json/json.h"
#include "base/options/options.h"
#include "base/options/sampling_numbers.h"

typedef struct cli_request {
  trireme_request r;
  /* as options give them, before cli_request_finish */
  const char *token_ids, *stop_token_ids, *allowed_token_ids, *json_schema;
  tri_opt_list stop, logit_bias;
  bool stream, add_special_tokens, cache;
  unsigned on_disconnect;
  /* owned */
  uint32_t *ids, *allowed;
  uint32_t stop_ids[32];
  trireme_string stops[16];
  trireme_logit_bias *bias;
  char *prompt, *model, *request_id, *cache_salt, *schema, *stop_text[16];
} cli_request;

enum { CLI_REQUEST_OPTIONS_MAX = 40 };
/* Appends the request's options to table for a struct that holds a cli_request at `offset`; returns how many. */
size_t cli_request_options(tri_option table[CLI_REQUEST_OPTIONS_MAX], size_t offset);
void cli_request_init(cli_request *q);
/* Turns what the options said into q->r. parsed: to tell what was given. */
tri_status cli_request_finish(cli_request *q, const tri_options *parsed, tri_error *err);
/* Takes a member that is no field of a request. */
typedef struct cli_unknown {
  tri_status (*take)(void *ctx, const char *key, const tri_json *v, tri_error *err);
  void *ctx;
} cli_unknown;
/* Refuses it, with the field that may be meant. */
tri_status cli_unknown_field(const char *key, tri_error *err);
bool cli_is_like_field(const char *key); /* a slip of the pen */
/* Starts from `defaults` (after finish) and applies a JSON object; unknown NULL: members that are no fields are
 * refused. Free *out in any case. */
tri_status cli_request_json(const cli_request *defaults, const tri_json *object, const cli_unknown *unknown,
                            cli_request *out, tri_error *err);
void cli_request_free(cli_request *q);

/* "1,2,3" of an option: *out is the caller's to tri_free. */
tri_status cli_parse_ids(const char *option, const char *text, uint32_t **out, size_t *count, tri_error *err);

/* Fails with "KEY must be WANTED": a member of a JSON line is not what it should be. */
tri_status cli_wrong(tri_error *err, const char *key, const char *wanted);
/* Reads an array of at most `most` token ids, which takes the place of *out and is the caller's to tri_free. */
tri_status cli_read_ids(const tri_json *v, const char *key, size_t most, uint32_t **out, size_t *count, tri_error *err);

/* ---- lines of a file ---- */

/* Opens a file of `what`, "-" being the standard input. It must not be the file that the output goes to. Returns the
 * exit code. */
int cli_open_lines(const char *program, const char *what, const char *file, const char *output, FILE **in);
/* Says on stderr what is wrong with one of its lines. */
void cli_line_failed(const char *file, uint64_t line, const char *field, const char *message);
/* One line of a file of requests, which must be UTF-8 and JSON: the error names the position in the line. */
tri_status cli_parse_line(const char *line, size_t len, tri_json_doc **out, tri_error *err);

#endif
