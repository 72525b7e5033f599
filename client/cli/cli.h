/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the programs that talk to a coordinator from a terminal: the connection and its options, signals, and
 * errors as lines on stderr with the exit code that suits them. */
#ifndef TRI_CLIENT_CLI_CLI_H
#define TRI_CLIENT_CLI_CLI_H

#include <signal.h>
#include <stdio.h>

#include "client/trireme.h"
#include "comm/wire/endpoint.h"
#include "base/options/options.h"
#include "base/options/sampling_numbers.h" /* TRI_NUMBER_TEXT */

/* ---- signals ---- */

/* Set by SIGINT and SIGTERM once cli_catch_signals was called. */
extern volatile sig_atomic_t cli_signal;
void cli_catch_signals(void);

/* ---- connecting ---- */

typedef struct cli_connection {
  const char *endpoint, *key_file, *server_key;
  int64_t connect_timeout_ms;
  int64_t reconnect_timeout_ms; /* 0: a lost connection stays lost */
} cli_connection;

#define CLI_RECONNECT_OPTION(S, m)                                                                                     \
  {                                                                                                                    \
    TRI_OPT(S, m.reconnect_timeout_ms),                                                                                \
        .name = "reconnect-timeout-ms", .env = "TRIREME_RECONNECT_TIMEOUT_MS", .min = 0, .max = 604800000,             \
        .fallback = TRI_NUMBER_TEXT(TRIREME_RECONNECT_TIMEOUT_MS), .group = "Connection",                              \
        .help = "how long a lost coordinator may be away; 0: requests end with it"                                     \
  }

#define CLI_CONNECTION_OPTIONS(S, m)                                                                                   \
  {TRI_OPT(S, m.endpoint),                                                                                             \
   .name = "endpoint",                                                                                                 \
   .env = TRI_ENDPOINT_ENV,                                                                                            \
   .metavar = "ADDRESS",                                                                                               \
   .group = "Connection",                                                                                              \
   .help = "address of the coordinator, ipc://PATH or tcp://HOST:PORT; default: this user's socket"},                  \
      {TRI_OPT(S, m.key_file), .name = "key-file",    .env = "TRIREME_KEY_FILE",                                       \
       .metavar = "FILE",      .group = "Connection", .help = "your CURVE key pair (see trireme keygen)"},             \
      {TRI_OPT(S, m.server_key), .name = "server-key",  .env = "TRIREME_SERVER_KEY",                                   \
       .metavar = "KEY",         .group = "Connection", .help = "the coordinator's public key"},                       \
  {                                                                                                                    \
    TRI_OPT(S, m.connect_timeout_ms), .name = "connect-timeout-ms", .min = 1, .max = 3600000,                          \
                                      .fallback = TRI_NUMBER_TEXT(TRIREME_CONNECT_TIMEOUT_MS), .group = "Connection",  \
                                      .help = "how long to wait for the coordinator"                                   \
  }

trireme_result cli_try_connect(const cli_connection *connection, trireme **out, trireme_error *error);
/* TRI_EXIT_OK, or the exit code after the error has been printed. */
int cli_connect(const cli_connection *connection, trireme **out);

/* Returns whether an error's field goes before its message: not where the message names it, or when it is one of the
 * protocol's that users do not type. */
bool cli_shows_field(const char *field, const char *message);
/* Returns the library's form of an error of this program's own. */
trireme_error cli_error_of(tri_status st, const tri_error *err);
/* One line on stderr; returns the exit code that suits the error's code. */
int cli_fail(const trireme_error *error);
/* The same of an error that the coordinator answered with: what it does not take was refused, and is not bad usage. */
int cli_refused(const trireme_error *error);
/* Also prints where help is. */
int cli_usage(const char *program, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The output cannot be written: says why, from errno, which for stdout is left to the end of main. */
int cli_output_failed(const FILE *out);
/* For what is wrong with a file. */
int cli_failed(const char *program, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- waiting ---- */

/* Asks for the status and waits for it; e is valid until the next call on c. Events of other requests are dropped. */
int cli_ask_status(trireme *c, int timeout_ms, trireme_event *e);

/* The user's last word of the coordinator. */
typedef struct cli_presence {
  bool in_line; /* the terminal's line has something else in it */
  bool away;
} cli_presence;
/* trireme_next, which says when the coordinator goes away and when one is there again. */
trireme_result cli_next(trireme *c, int timeout_ms, cli_presence *p, trireme_event *e, trireme_error *error);

/* Returns whether the served model embeds or classifies: it generates nothing, and keeps no KV cache. */
bool cli_is_encoder(const trireme_status *s);

#endif
