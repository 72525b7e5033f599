/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as HTTP requests: whole, byte by byte and in pieces they are the same requests, or refused for the same
 * reason, and what was taken is within its limits. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/http_parse.h"
#include "tests/fuzz/mutate.h"

enum { BODY_LIMIT = 300, MAX_SEEN = 64 };

typedef struct seen {
  size_t status, body, path, fields; /* without padding */
} seen;

static void need(bool ok) {
  if (!ok) abort();
}

static seen look(const http_parser *p) {
  http_str path = http_parser_path(p);
  need(path.len && *path.s == '/' && path.len <= HTTP_TARGET_BYTES && p->body.len <= BODY_LIMIT);
  need(p->num_fields <= HTTP_MAX_HEADERS && (p->version_1_0 || http_parser_field(p, "host").s));
  return (seen){.status = 200, .body = p->body.len, .path = path.len, .fields = p->num_fields};
}

/* Pieces of 1 to `piece` bytes. */
static size_t parse(const char *s, size_t len, size_t piece, seen out[MAX_SEEN]) {
  http_parser p;
  size_t num = 0, at = 0, next = 1;
  http_parser_init(&p, BODY_LIMIT);
  while (at < len && num < MAX_SEEN) {
    size_t n = next > len - at ? len - at : next, used;
    http_outcome outcome = http_parse(&p, s + at, n, &used);
    need(used <= n && (outcome != HTTP_MORE || used == n));
    at += used;
    next = next % piece + 1;
    if (outcome == HTTP_HEAD_DONE) outcome = http_parse(&p, s + at, 0, &used);
    if (outcome == HTTP_REFUSED) {
      need(p.status >= 400 && p.status < 600 && p.why[0]);
      out[num++] = (seen){.status = (size_t)p.status};
      break;
    }
    if (outcome != HTTP_REQUEST_DONE) continue;
    out[num++] = look(&p);
    http_parser_reset(&p);
  }
  http_parser_free(&p);
  return num;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const size_t pieces[] = {1, 2, 3, 7, 64};
  seen first[MAX_SEEN], again[MAX_SEEN];
  size_t num = parse((const char *)data, size, size + 1, first);
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    size_t n = parse((const char *)data, size, pieces[i], again);
    need(n == num && !memcmp(first, again, n * sizeof *first));
  }
  return 0;
}
