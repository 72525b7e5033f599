/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of requests, and the fields of them that are ignored. */
#include <stdio.h>
#include <string.h>

#include "client/gateway/gateway.h"
#include "base/log.h"
#include "base/mem.h"

/* The log names a field once, and no more than GW_MAX_KNOWN of them. */
static void log_once(gateway *g, const char *name) {
  for (unsigned i = 0; i < g->num_known; i++)
    if (!strcmp(g->known[i], name)) return;
  if (g->num_known == GW_MAX_KNOWN) return;
  snprintf(g->known[g->num_known++], OAI_FIELD_BYTES, "%s", name);
  tri_log(TRI_LOG_WARN, "gateway", "requests have a field %s, which is ignored", name);
}

void gw_ignored_fields(gateway *g, const oai_ignored *ignored, char out[256]) {
  char names[sizeof ignored->names], *rest = names;
  out[0] = '\0';
  if (!ignored->names[0]) return;
  snprintf(out, 256, "X-Trireme-Ignored: %s\r\n", ignored->names);
  snprintf(names, sizeof names, "%s", ignored->names);
  for (char *name; (name = strsep(&rest, ","));) log_once(g, name + strspn(name, " "));
}

void gw_answer_lines(gateway *g, const http_conn *c, const oai_ignored *ignored, char out[GW_ANSWER_LINES]) {
  char names[256], id[GW_ID_LINE];
  gw_ignored_fields(g, ignored, names);
  gw_id_line(c, id, sizeof id);
  snprintf(out, GW_ANSWER_LINES, "%s%s", id, names);
}

/* Counts what a document is made of apart from values, each of which takes memory and time far beyond its bytes. It
 * runs before the parser, so it reads bytes that may be no JSON: the count is exact for a document and harmless
 * otherwise, since the parser refuses the rest. */
static size_t count_parts(const char *s, size_t len) {
  size_t n = 0;
  bool in_text = false;
  for (size_t i = 0; i < len; i++) {
    if (in_text && s[i] == '\\')
      i++;
    else if (s[i] == '"')
      in_text = !in_text;
    else
      n += !in_text && (s[i] == '{' || s[i] == '[' || s[i] == ':');
  }
  return n;
}

/* The parts of a body take up to 80 times its bytes: objects in a list. */
size_t gw_most_documents(size_t max_body) {
  enum { USUAL = 512 << 20, TIMES = 128 };
  size_t most;
  if (!tri_size_mul(max_body, TIMES, &most)) return SIZE_MAX;
  return most > USUAL ? most : USUAL;
}

/* A body of at most GW_MAX_PARTS bytes cannot have more parts than that and is not counted. */
tri_status gw_parse_body(const tri_buf *body, tri_json_doc **out, tri_error *err) {
  static const char byte_order_mark[] = "\xef\xbb\xbf";
  const size_t size = sizeof byte_order_mark - 1;
  tri_json_doc *doc = NULL;
  size_t parts = body->len > GW_MAX_PARTS ? count_parts(body->data, body->len) : 0;
  if (parts > GW_MAX_PARTS)
    return tri_fail(err, TRI_TOO_LARGE, "", "the body has %zu objects, arrays and members; allowed are %d", parts,
                    GW_MAX_PARTS);
  bool marked = body->len >= size && !memcmp(body->data, byte_order_mark, size);
  size_t skipped = marked ? size : 0;
  if (body->len == skipped) return tri_fail(err, TRI_CORRUPT, "", "the body is empty: it must be a JSON object");
  TRI_CHECK(tri_json_parse(body->data ? body->data + skipped : "", body->len - skipped, &doc, err));
  if (tri_json_kind_of(tri_json_root(doc)) != TRI_JSON_OBJECT) {
    tri_json_free(doc);
    return tri_fail(err, TRI_INVALID_ARGUMENT, "", "the body must be a JSON object");
  }
  *out = doc;
  return TRI_OK;
}
