/* SPDX-License-Identifier: Apache-2.0 */
/* The options of the HTTP gateway that `trireme gateway` and `trireme up --http` share. */
#ifndef TRI_BASE_OPTIONS_GATEWAY_OPTIONS_H
#define TRI_BASE_OPTIONS_GATEWAY_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/options/options.h"

enum { TRI_GATEWAY_ADDRESS = 64 };

typedef struct tri_gateway_options {
  const char *listen, *api_key_file, *tool_parser, *reasoning_parser, *chat_template, *metrics_prefix;
  tri_opt_list cors_origins;
  bool http_open, reject_unknown_fields, parse_special, metrics_only;
  uint64_t max_body;
  int64_t max_connections, drain_delay, drain_timeout, sse_ping, workers;
} tri_gateway_options;

extern const tri_option tri_gateway_option_table[];
extern const size_t tri_gateway_option_count;

/* Copies the table for a struct that holds a tri_gateway_options at `offset`; returns how many there are. */
size_t tri_gateway_options_copy(tri_option *table, size_t offset);

/* Calls for each origin of --cors-origin, which may also be a list in JSON, as vLLM's --allowed-origins is. TRI_USAGE:
 * one is neither a star nor an origin. take may be NULL. */
tri_status tri_gateway_each_origin(const tri_gateway_options *o,
                                   tri_status (*take)(void *ctx, const char *origin, tri_error *err), void *ctx,
                                   tri_error *err);

/* The address that a gateway listens at. */
typedef struct tri_gateway_place {
  char address[TRI_GATEWAY_ADDRESS]; /* of numbers; 127.0.0.1 where none was given */
  int port;
  bool loopback; /* other hosts cannot ask */
} tri_gateway_place;

/* Takes --http apart. TRI_USAGE: it is missing or malformed, or would let everybody in without a word of --http-open.
 */
tri_status tri_gateway_place_make(const tri_gateway_options *o, tri_gateway_place *out, tri_error *err);

#endif
