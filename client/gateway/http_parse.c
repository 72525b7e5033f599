/* SPDX-License-Identifier: Apache-2.0 */
/* The parser keeps one buffer of lines, `head`. Each line is collected at its end, from `line` on; one of the request's
 * head stays there and its parts are kept as offsets, since the buffer may move; one of a chunk or a trailer is removed
 * when it has been read. Bodies are appended to `body` without the chunks' frames.
 *
 *   REQUEST_LINE -> FIELDS -> HEAD_DONE -> BODY -> DONE                                   (Content-Length)
 *                                      \-> CHUNK_SIZE -> CHUNK -> CHUNK_CR -> CHUNK_LF -> CHUNK_SIZE ...
 *                                          CHUNK_SIZE of 0 -> TRAILERS -> DONE
 *                                      \-> DONE                                           (no body)
 * and from each to REFUSED, which stays. take_line checks bytes once for all kinds of lines. */
#include "client/gateway/http_parse.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"

enum {
  STATE_REQUEST_LINE,
  STATE_FIELDS,
  STATE_HEAD_DONE, /* told, and what follows is not begun */
  STATE_BODY,
  STATE_CHUNK_SIZE,
  STATE_CHUNK,
  STATE_CHUNK_CR,
  STATE_CHUNK_LF,
  STATE_TRAILERS,
  STATE_DONE,
  STATE_REFUSED,
};

enum {
  VERSION_BYTES = 8,                                               /* HTTP/1.1 */
  REQUEST_LINE_BYTES = HTTP_TARGET_BYTES + VERSION_BYTES + 2 + 16, /* 16: methods are shorter */
  CHUNK_DIGITS = 16,                                               /* of 64 bits */
};

void http_parser_init(http_parser *p, size_t max_body) {
  *p = (http_parser){.max_body = max_body, .head.max = 2 * HTTP_HEAD_BYTES, .body.max = max_body};
}

void http_parser_free(http_parser *p) {
  tri_buf_free(&p->head);
  tri_buf_free(&p->body);
}

void http_parser_reset(http_parser *p) {
  size_t max_body = p->max_body;
  http_parser_free(p);
  http_parser_init(p, max_body);
}

static http_outcome refuse(http_parser *p, int status, const char *why) {
  p->state = STATE_REFUSED;
  p->status = status;
  p->why = why;
  return HTTP_REFUSED;
}

/* Bytes that no line has, apart from the CR and LF of its end. */
static bool is_control(unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }

static bool same(http_str a, const char *b) { return a.len == strlen(b) && !strncasecmp(a.s, b, a.len); }

static http_str field_name(const http_parser *p, unsigned i) {
  return (http_str){p->head.data + p->fields[i].name, p->fields[i].name_len};
}

static http_str field_value(const http_parser *p, unsigned i) {
  return (http_str){p->head.data + p->fields[i].value, p->fields[i].value_len};
}

http_str http_parser_field(const http_parser *p, const char *name) {
  for (unsigned i = 0; i < p->num_fields; i++)
    if (same(field_name(p, i), name)) return field_value(p, i);
  return (http_str){0};
}

http_str http_parser_path(const http_parser *p) {
  if (!p->target_len) return (http_str){"", 0}; /* it was refused before */
  http_str path = {p->head.data + p->target, p->target_len};
  const char *query = memchr(path.s, '?', path.len);
  if (query) path.len = (size_t)(query - path.s);
  return path;
}

/* ---- lines ---- */

/* Which lines are too long depends on where they stand. */
static http_outcome too_long(http_parser *p) {
  if (p->state >= STATE_BODY) return refuse(p, 400, "extensions of chunks and trailers have more than 16384 bytes");
  if (p->used > HTTP_HEAD_BYTES) return refuse(p, 431, "request line and headers have more than 16384 bytes");
  return refuse(p, 414, "the target has more than 2048 bytes");
}

/* Takes bytes of a line into head. HTTP_REQUEST_DONE: the line is whole, without its end. */
static http_outcome take_line(http_parser *p, const char *s, size_t len, size_t *used) {
  size_t i = 0;
  bool whole = false;
  bool first = p->state == STATE_REQUEST_LINE;
  for (; i < len && !whole; i++) {
    unsigned char c = (unsigned char)s[i];
    p->used++;
    if (p->used > HTTP_HEAD_BYTES || (first && p->head.len - p->line + i > REQUEST_LINE_BYTES)) return too_long(p);
    if (p->cr != (c == '\n')) return refuse(p, 400, "a line does not end in CR and LF");
    if (is_control(c) && c != '\r' && c != '\n') return refuse(p, 400, "a line has a control byte");
    p->cr = c == '\r';
    whole = c == '\n';
  }
  *used = i;
  if (tri_buf_append(&p->head, s, i) != TRI_OK) return refuse(p, 503, "out of memory");
  if (!whole) return HTTP_MORE;
  p->head.len -= 2;
  return HTTP_REQUEST_DONE;
}

/* Reads METHOD TARGET HTTP/1.x, with one space between each. Which error comes first matters to clients: a form that is
 * wrong is 400, a version 505, a method 405, and only then the target. */
static http_outcome request_line(http_parser *p) {
  static const char *const methods[] = {
      [HTTP_GET] = "GET", [HTTP_HEAD] = "HEAD", [HTTP_POST] = "POST", [HTTP_OPTIONS] = "OPTIONS"};
  const char *line = p->head.data, *end = line + p->head.len;
  const char *target = memchr(line, ' ', (size_t)(end - line));
  if (!target || !tri_text_is_token(line, (size_t)(target - line)))
    return refuse(p, 400, "the request line has no method");
  http_str method = {line, (size_t)(target++ - line)};
  const char *version = memchr(target, ' ', (size_t)(end - target));
  if (!version || end - version != VERSION_BYTES + 1 || memcmp(version, " HTTP/", 6) || version[7] != '.')
    return refuse(p, 400, "the request line is not METHOD TARGET HTTP/1.1");
  if (memcmp(version + 6, "1.1", 3) && memcmp(version + 6, "1.0", 3))
    return refuse(p, 505, "the version is neither HTTP/1.0 nor HTTP/1.1");
  p->version_1_0 = version[8] == '0';
  for (unsigned i = 0; i <= HTTP_OPTIONS; i++) {
    p->method = (http_method)i;
    if (method.len == strlen(methods[i]) && !memcmp(method.s, methods[i], method.len)) break;
    if (i == HTTP_OPTIONS) return refuse(p, 405, "the method is none of GET, HEAD, POST and OPTIONS");
  }
  if (version - target > HTTP_TARGET_BYTES) return refuse(p, 414, "the target has more than 2048 bytes");
  if (*target != '/') return refuse(p, 400, "the target does not begin with a slash");
  for (const char *c = target; c < version; c++)
    if (*c <= ' ' || *c == 0x7f) return refuse(p, 400, "the target has a byte that no URL has");
  p->target = (uint16_t)(target - line);
  p->target_len = (uint16_t)(version - target);
  p->state = STATE_FIELDS;
  return HTTP_MORE;
}

/* A trailer field is checked like a header, and dropped. */
static http_outcome field_line(http_parser *p, bool trailer) {
  const char *line = p->head.data + p->line, *end = p->head.data + p->head.len;
  const char *colon = memchr(line, ':', (size_t)(end - line));
  if (*line == ' ' || *line == '\t') return refuse(p, 400, "a header continues on a second line");
  if (!colon || !tri_text_is_token(line, (size_t)(colon - line))) return refuse(p, 400, "a header is not NAME: VALUE");
  unsigned *count = trailer ? &p->num_trailers : &p->num_fields;
  if (*count == HTTP_MAX_HEADERS) return refuse(p, trailer ? 400 : 431, "more than 64 headers or trailers");
  const char *value = colon + 1;
  while (value < end && (*value == ' ' || *value == '\t')) value++;
  while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
  if (!trailer)
    p->fields[*count] = (http_field){.name = (uint16_t)p->line,
                                     .name_len = (uint16_t)(colon - line),
                                     .value = (uint16_t)(value - p->head.data),
                                     .value_len = (uint16_t)(end - value)};
  ++*count;
  return HTTP_MORE;
}

/* ---- the head as a whole ---- */

/* Checks for bytes that no host has, with its port or without; whether there is such a host is not asked. */
static bool is_host(http_str host) {
  for (size_t i = 0; i < host.len; i++)
    if (host.s[i] <= ' ' || host.s[i] >= 0x7f || strchr("/?#@\\\"<>^`{|}", host.s[i])) return false;
  return true;
}

/* Looks through the words of a Connection field. */
static void take_connection(http_parser *p, http_str v) {
  while (v.len) {
    const char *comma = memchr(v.s, ',', v.len);
    http_str word = {v.s, comma ? (size_t)(comma - v.s) : v.len};
    size_t taken = word.len + (comma != NULL);
    for (; word.len && (*word.s == ' ' || *word.s == '\t'); word.len--) word.s++;
    while (word.len && (word.s[word.len - 1] == ' ' || word.s[word.len - 1] == '\t')) word.len--;
    if (same(word, "close")) p->keep_alive = false;
    if (same(word, "keep-alive") && p->version_1_0) p->keep_alive = true;
    v.s += taken;
    v.len -= taken;
  }
}

static http_outcome take_length(http_parser *p, http_str v) {
  uint64_t n = 0;
  if (!v.len) return refuse(p, 400, "Content-Length is no number");
  for (size_t i = 0; i < v.len; i++) {
    if (v.s[i] < '0' || v.s[i] > '9') return refuse(p, 400, "Content-Length is no number");
    n = n * 10 + (uint64_t)(v.s[i] - '0');
    if (n > p->max_body) n = (uint64_t)p->max_body + 1; /* too large whatever follows, and no overflow */
  }
  p->left = n;
  return n > p->max_body ? refuse(p, 413, "the body is larger than its limit") : HTTP_MORE;
}

/* Fields that decide where the request ends, or who sends it, come once. */
static bool comes_twice(const http_parser *p) {
  static const char *const once[] = {
      "host", "content-length", "transfer-encoding", "content-type", "content-encoding", "authorization", "expect"};
  for (size_t k = 0; k < sizeof once / sizeof *once; k++) {
    unsigned count = 0;
    for (unsigned i = 0; i < p->num_fields; i++) count += same(field_name(p, i), once[k]);
    if (count > 1) return true;
  }
  return false;
}

/* Decides where the request ends, and refuses a head that two readers could take for different requests. */
static http_outcome head_done(http_parser *p) {
  http_str host = http_parser_field(p, "host"), length = http_parser_field(p, "content-length");
  http_str encoding = http_parser_field(p, "transfer-encoding"), expect = http_parser_field(p, "expect");
  if (comes_twice(p)) return refuse(p, 400, "a header that comes once came twice");
  if (!host.s && !p->version_1_0) return refuse(p, 400, "there is no Host");
  if (!is_host(host)) return refuse(p, 400, "Host is no host");
  if (encoding.s && length.s) return refuse(p, 400, "there are both Content-Length and Transfer-Encoding");
  if (encoding.s && p->version_1_0) return refuse(p, 400, "HTTP/1.0 has no Transfer-Encoding");
  if (encoding.s && !same(encoding, "chunked")) return refuse(p, 501, "Transfer-Encoding is not \"chunked\"");
  if (length.s && take_length(p, length) == HTTP_REFUSED) return HTTP_REFUSED;
  if (expect.s && !same(expect, "100-continue")) return refuse(p, 417, "Expect is not \"100-continue\"");
  p->chunked = encoding.s != NULL;
  p->expects_continue = expect.s && !p->version_1_0 && (p->chunked || p->left);
  p->keep_alive = !p->version_1_0;
  for (unsigned i = 0; i < p->num_fields; i++)
    if (same(field_name(p, i), "connection")) take_connection(p, field_value(p, i));
  p->used = 0; /* what chunks and trailers bring has a limit of its own */
  p->state = STATE_HEAD_DONE;
  return HTTP_HEAD_DONE;
}

/* ---- the body ---- */

/* Reads the line before a chunk. Extensions count towards the limit of lines; a size and its line's end, which a
 * body of many chunks has to have, do not. */
static http_outcome chunk_line(http_parser *p) {
  const char *line = p->head.data + p->line;
  size_t len = p->head.len - p->line, digits = 0;
  uint64_t n = 0;
  for (; digits < len; digits++) {
    const char *hex = "0123456789abcdef", *at = strchr(hex, line[digits] | 0x20); /* no line has control bytes */
    if (!at) break;
    if (digits == CHUNK_DIGITS) return refuse(p, 400, "the size of a chunk has more than 16 digits");
    n = n * 16 + (uint64_t)(at - hex);
  }
  if (!digits || (digits < len && line[digits] != ';')) return refuse(p, 400, "the size of a chunk is no number");
  if (n > p->max_body - p->body.len) return refuse(p, 413, "the body is larger than its limit");
  p->used -= digits + 2;
  p->left = n;
  p->state = n ? STATE_CHUNK : STATE_TRAILERS;
  return HTTP_MORE;
}

static http_outcome take_body(http_parser *p, const char *s, size_t len, size_t *used) {
  size_t n = len < p->left ? len : (size_t)p->left;
  if (tri_buf_append(&p->body, s, n) != TRI_OK) return refuse(p, 503, "out of memory");
  *used = n;
  p->left -= n;
  if (!p->left) p->state = p->chunked ? STATE_CHUNK_CR : STATE_DONE;
  return HTTP_MORE;
}

static http_outcome chunk_end(http_parser *p, char c, size_t *used) {
  bool cr = p->state == STATE_CHUNK_CR;
  if (c != (cr ? '\r' : '\n')) return refuse(p, 400, "a chunk does not end in CR and LF");
  *used = 1;
  p->state = cr ? STATE_CHUNK_LF : STATE_CHUNK_SIZE;
  return HTTP_MORE;
}

/* ---- all together ---- */

/* Looks at a line that is whole. Lines of the head stay there, others go. */
static http_outcome line_done(http_parser *p) {
  bool empty = p->head.len == p->line;
  if (p->state == STATE_REQUEST_LINE && empty && !p->skipped) {
    p->skipped = true; /* some clients send one after the body of the request before */
    return HTTP_MORE;
  }
  http_outcome outcome = HTTP_MORE;
  size_t line = p->line;
  if (p->state == STATE_REQUEST_LINE)
    outcome = request_line(p);
  else if (p->state == STATE_CHUNK_SIZE)
    outcome = chunk_line(p);
  else if (!empty)
    outcome = field_line(p, p->state == STATE_TRAILERS);
  else if (p->state == STATE_FIELDS)
    return head_done(p);
  else
    p->state = STATE_DONE;
  p->line = p->state == STATE_FIELDS ? p->head.len : line;
  p->head.len = p->line;
  return outcome;
}

static http_outcome take_some(http_parser *p, const char *s, size_t len, size_t *used) {
  http_outcome outcome;
  switch (p->state) {
  case STATE_BODY:
  case STATE_CHUNK: return take_body(p, s, len, used);
  case STATE_CHUNK_CR:
  case STATE_CHUNK_LF: return chunk_end(p, *s, used);
  default: outcome = take_line(p, s, len, used); return outcome == HTTP_REQUEST_DONE ? line_done(p) : outcome;
  }
}

http_outcome http_parse(http_parser *p, const char *s, size_t len, size_t *used) {
  *used = 0;
  if (p->state == STATE_HEAD_DONE) {
    p->line = p->head.len;
    p->state = p->left ? STATE_BODY : STATE_DONE;
    if (p->chunked) p->state = STATE_CHUNK_SIZE;
  }
  while (*used < len && p->state != STATE_DONE && p->state != STATE_REFUSED) {
    size_t n = 0;
    http_outcome outcome = take_some(p, s + *used, len - *used, &n);
    *used += n;
    if (outcome != HTTP_MORE) return outcome;
  }
  if (p->state == STATE_REFUSED) return HTTP_REFUSED;
  return p->state == STATE_DONE ? HTTP_REQUEST_DONE : HTTP_MORE;
}
