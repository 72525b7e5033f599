/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences of a status, for `trireme status` and `trireme top`. */
#ifndef TRI_CLIENT_CLI_STATUS_TEXT_H
#define TRI_CLIENT_CLI_STATUS_TEXT_H

#include "client/trireme.h"

/* A rank's layer under way as text; "-" between steps. */
const char *cli_layer_text(uint64_t layer, char out[24]);
enum { CLI_STREAM_TEXT = 304 };
/* "replica 0 is lost: ...", for status and top; empty where it serves. Returns out. */
const char *cli_down_text(const trireme_group_status *g, char out[CLI_STREAM_TEXT]);
/* "replica 0 streams ...", likewise; empty where all weights stay in memory. */
const char *cli_stream_text(const trireme_group_status *g, char out[CLI_STREAM_TEXT]);
/* "replica 0 uses ... KV blocks in host memory ...", likewise; empty where it has none there. */
const char *cli_swap_text(const trireme_group_status *g, char out[CLI_STREAM_TEXT]);
/* "replica 0 found ... prompt tokens in the prefix cache ...", likewise; empty where nothing was looked for. */
const char *cli_prefix_text(const trireme_group_status *g, char out[CLI_STREAM_TEXT]);
/* "response cache: ...", likewise; empty without one. */
const char *cli_cache_text(const trireme_status *s, char out[CLI_STREAM_TEXT]);

#endif
