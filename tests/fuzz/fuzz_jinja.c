/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a chat template, and what follows a line `%%` as the JSON of its messages: refused with a reason, or a
 * text with spans that lie in it. */
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "text/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok) {
  if (!ok) abort();
}

static void render(const tri_jinja *t, const char *json, size_t len) {
  tri_json_doc *doc = NULL;
  tri_jinja_output out = {0};
  tri_error err = {0};
  if (json) tri_json_parse(json, len, &doc, NULL);
  tri_jinja_variable variables[] = {
      {.name = "messages", .json = doc ? tri_json_root(doc) : NULL, .foreign = true, .soft_nulls = true},
      {.name = "bos_token", .text = "<s>"},
  };
  tri_jinja_input in = {.variables = variables, .num_variables = 2};
  tri_status st = tri_jinja_render(t, &in, &out, &err);
  need(st == TRI_OK || (err.message[0] && err.field[0]));
  size_t from = 0;
  for (size_t i = 0; st == TRI_OK && i < out.num_spans; i++) {
    need(out.spans[i].from >= from && out.spans[i].to > out.spans[i].from && out.spans[i].to <= out.text.len);
    from = out.spans[i].to;
  }
  tri_jinja_output_free(&out);
  tri_json_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *cut = memmem(data, size, "%%\n", 3);
  const char *json = cut ? (const char *)cut + 3 : NULL;
  size_t len = cut ? (size_t)(cut - data) : size;
  tri_jinja *t = NULL;
  tri_error err = {0};
  if (tri_jinja_parse((const char *)data, len, &t, &err) == TRI_OK)
    render(t, json, cut ? size - len - 3 : 0);
  else
    need(err.message[0]);
  tri_jinja_free(t);
  return 0;
}
