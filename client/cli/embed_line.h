/* SPDX-License-Identifier: Apache-2.0 */
/* One line of a file of inputs, as `embed --file` takes them. */
#ifndef TRI_CLIENT_CLI_EMBED_LINE_H
#define TRI_CLIENT_CLI_EMBED_LINE_H

#include "client/trireme.h"
#include "base/buf.h"
#include "base/json/json.h"

typedef struct cli_embed_line {
  trireme_embed_request request; /* its strings lie in doc */
  tri_json_doc *doc;
  uint32_t *ids;
} cli_embed_line;
/* Starts from `defaults` and applies the line's JSON object. kept gets members that are no fields, each with a comma
 * before it, for the answer; NULL: they are refused. Free *out on TRI_OK. */
tri_status cli_embed_line_parse(const trireme_embed_request *defaults, bool classify, const char *line, size_t len,
                                tri_buf *kept, cli_embed_line *out, tri_error *err);
void cli_embed_line_free(cli_embed_line *l);

#endif
