/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.0 and 1.1 requests from bytes that come in any pieces. Pure: no sockets, no clock.
 *
 * It takes what RFC 9112 calls a request in its narrow form, and refuses what servers and proxies are known to read
 * differently, since that is how a request is smuggled: lines end in CRLF, a request has one Host (in 1.0 it may have
 * none), a body has one Content-Length of digits or is chunked, and nothing is folded. Extensions of chunks and trailer
 * fields are checked, bounded and dropped. What is refused ends the connection. */
#ifndef TRI_CLIENT_GATEWAY_HTTP_PARSE_H
#define TRI_CLIENT_GATEWAY_HTTP_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum {
  HTTP_MAX_HEADERS = 64,
  HTTP_HEAD_BYTES = 16 * 1024, /* request line and headers; of a chunked body, also extensions and trailers */
  HTTP_TARGET_BYTES = 2048,
};

typedef enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OPTIONS } http_method;

/* A view: it lies in the parser, and is valid until the next call of http_parse or http_parser_reset. */
typedef struct http_str {
  const char *s;
  size_t len;
} http_str;

typedef enum http_outcome {
  HTTP_MORE,         /* all bytes were taken, and the request continues */
  HTTP_HEAD_DONE,    /* once for each request: what it asks for is known, and its body has not begun */
  HTTP_REQUEST_DONE, /* the body is whole */
  HTTP_REFUSED,      /* status and why tell */
} http_outcome;

typedef struct http_field {
  uint16_t name, name_len, value, value_len; /* in head */
} http_field;

typedef struct http_parser {
  size_t max_body;
  /* The request, from HTTP_HEAD_DONE on. */
  http_method method;
  bool keep_alive; /* the client wants to send another request after this one */
  bool version_1_0;
  bool expects_continue; /* it waits for a 100 before it sends the body */
  tri_buf body;
  /* Why it was refused. */
  int status;
  const char *why;
  /* Inside. */
  int state;
  tri_buf head; /* lines without their ends; after them the line that is under way */
  size_t line;  /* where that begins in head */
  size_t used;  /* bytes of lines, their ends included */
  bool cr;      /* the last byte of the line was a CR */
  bool skipped; /* an empty line before the request */
  bool chunked;
  uint64_t left; /* bytes of the body or chunk that are still to come */
  uint16_t target, target_len;
  unsigned num_trailers, num_fields;
  http_field fields[HTTP_MAX_HEADERS];
} http_parser;

/* Begins with a parser of zeros, or ends one: its memory is free then. */
void http_parser_init(http_parser *p, size_t max_body);
void http_parser_free(http_parser *p);
/* Makes it ready for the next request of the same connection; memory of the last one is given back. */
void http_parser_reset(http_parser *p);

/* Takes bytes until something is to be told; *used says how many. Call it again with the rest, which may be none, after
 * HTTP_HEAD_DONE; after HTTP_REQUEST_DONE first reset it. It copies what it keeps: `s` may go after the call. Cost is
 * linear in the bytes, however they are cut. */
http_outcome http_parse(http_parser *p, const char *s, size_t len, size_t *used);

http_str http_parser_path(const http_parser *p); /* the target up to a '?', as it was sent */
/* Returns the value of the first field of that name in lower case; s is NULL where there is none. */
http_str http_parser_field(const http_parser *p, const char *name);

#endif
