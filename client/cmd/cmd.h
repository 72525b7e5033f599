/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that the subcommands of `trireme` share. */
#ifndef TRI_CLIENT_CMD_H
#define TRI_CLIENT_CMD_H

#include <signal.h>
#include <stdio.h>

#include "client/trireme.h"
#include "comm/wire/endpoint.h"
#include "base/json/json.h"
#include "base/json/json_writer.h"
#include "base/options/options.h"
#include "base/options/sampling_numbers.h"

/* ---- subcommands: argv[0] is the name; they return the exit code ---- */

int cmd_submit(int argc, char **argv);
int cmd_embed(int argc, char **argv);
int cmd_classify(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_keygen(int argc, char **argv);
int cmd_journal(int argc, char **argv);
int cmd_bench(int argc, char **argv);

typedef struct cmd_command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *program; /* that takes this one's place, where run is NULL */
  const char *help;
} cmd_command;
/* Returns the command of that name in a table of n, NULL where there is none. */
const cmd_command *cmd_find(const cmd_command *all, size_t n, const char *name);
int cmd_run(const cmd_command *c, int argc, char **argv);
/* Says on stderr that there is no `noun` of that name, and which one may be meant; the line is left open. */
void cmd_say_unknown(const char *program, const char *noun, const char *name, const cmd_command *all, size_t n);

/* Set by SIGINT and SIGTERM once cmd_catch_signals was called. */
extern volatile sig_atomic_t cmd_signal;
void cmd_catch_signals(void);

/* ---- connecting ---- */

typedef struct cmd_connection {
  const char *endpoint, *key_file, *server_key;
  int64_t connect_timeout_ms;
  int64_t reconnect_timeout_ms; /* 0: a lost connection stays lost */
} cmd_connection;

#define CMD_RECONNECT_OPTION(S, m)                                                                                     \
  {                                                                                                                    \
    TRI_OPT(S, m.reconnect_timeout_ms),                                                                                \
        .name = "reconnect-timeout-ms", .env = "TRIREME_RECONNECT_TIMEOUT_MS", .min = 0, .max = 604800000,             \
        .fallback = TRI_NUMBER_TEXT(TRIREME_RECONNECT_TIMEOUT_MS), .group = "Connection",                              \
        .help = "how long a coordinator that is lost may be away; 0: requests end "                                    \
                "with it"                                                                                              \
  }

#define CMD_CONNECTION_OPTIONS(S, m)                                                                                   \
  {TRI_OPT(S, m.endpoint),                                                                                             \
   .name = "endpoint",                                                                                                 \
   .env = TRI_ENDPOINT_ENV,                                                                                            \
   .metavar = "ADDRESS",                                                                                               \
   .group = "Connection",                                                                                              \
   .help = "ipc://PATH or tcp://HOST:PORT of the coordinator; by default the socket of this user"},                    \
      {TRI_OPT(S, m.key_file), .name = "key-file",    .env = "TRIREME_KEY_FILE",                                       \
       .metavar = "FILE",      .group = "Connection", .help = "own CURVE key pair (see trireme keygen)"},              \
      {TRI_OPT(S, m.server_key), .name = "server-key",  .env = "TRIREME_SERVER_KEY",                                   \
       .metavar = "KEY",         .group = "Connection", .help = "the coordinator's public key"},                       \
  {                                                                                                                    \
    TRI_OPT(S, m.connect_timeout_ms), .name = "connect-timeout-ms", .min = 1, .max = 3600000,                          \
                                      .fallback = TRI_NUMBER_TEXT(TRIREME_CONNECT_TIMEOUT_MS), .group = "Connection",  \
                                      .help = "how long to wait for the coordinator"                                   \
  }

trireme_result cmd_try_connect(const cmd_connection *connection, trireme **out, trireme_error *error);
/* TRI_EXIT_OK, or the exit code after the error has been printed. */
int cmd_connect(const cmd_connection *connection, trireme **out);

/* Does an error's field go before its message? Not where the message names it, or when it is one of the protocol's that
 * nobody types. */
bool cmd_shows_field(const char *field, const char *message);
/* One line on stderr; returns the exit code that suits the error's code. */
int cmd_fail(const trireme_error *error);
/* The same of an error that the coordinator answered with: what it does not take was refused, and is not bad usage. */
int cmd_refused(const trireme_error *error);
/* Also prints where help is. */
int cmd_usage(const char *program, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The output cannot be written: says why, from errno, which for stdout is left to the end of main. */
int cmd_output_failed(const FILE *out);
/* For what is wrong with a file. */
int cmd_failed(const char *program, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- requests: one table for options and JSON lines ---- */

typedef struct cmd_request {
  trireme_request r;
  /* as options give them, before cmd_request_finish */
  const char *token_ids, *stop_token_ids, *allowed_token_ids;
  tri_opt_list stop, logit_bias;
  bool stream, add_special_tokens, cache;
  unsigned on_disconnect;
  /* owned */
  uint32_t *ids, *allowed;
  uint32_t stop_ids[32];
  trireme_string stops[16];
  trireme_logit_bias *bias;
  char *prompt, *model, *request_id, *cache_salt, *stop_text[16];
} cmd_request;

enum { CMD_REQUEST_OPTIONS_MAX = 40 };
/* Appends the request's options to table for a struct that holds a cmd_request at `offset`; returns how many. */
size_t cmd_request_options(tri_option table[CMD_REQUEST_OPTIONS_MAX], size_t offset);
void cmd_request_init(cmd_request *q);
/* Turns what the options said into q->r. parsed: to tell what was given. */
tri_status cmd_request_finish(cmd_request *q, const tri_options *parsed, tri_error *err);
/* Takes a member that is no field of a request. */
typedef struct cmd_unknown {
  tri_status (*take)(void *ctx, const char *key, const tri_json *v, tri_error *err);
  void *ctx;
} cmd_unknown;
/* Refuses it, with the field that may be meant. */
tri_status cmd_unknown_field(const char *key, tri_error *err);
bool cmd_is_like_field(const char *key); /* a slip of the pen */
/* Starts from `defaults` (after finish) and applies a JSON object; unknown NULL: members that are no fields are
 * refused. Free *out in any case. */
tri_status cmd_request_json(const cmd_request *defaults, const tri_json *object, const cmd_unknown *unknown,
                            cmd_request *out, tri_error *err);
void cmd_request_free(cmd_request *q);

/* "1,2,3" of an option: *out is the caller's to tri_free. */
tri_status cmd_parse_ids(const char *option, const char *text, uint32_t **out, size_t *count, tri_error *err);

/* Fails with "KEY must be WANTED": a member of a JSON line is not what it should be. */
tri_status cmd_wrong(tri_error *err, const char *key, const char *wanted);
/* Reads an array of at most `most` token ids, which takes the place of *out and is the caller's to tri_free. */
tri_status cmd_read_ids(const tri_json *v, const char *key, size_t most, uint32_t **out, size_t *count, tri_error *err);

/* Opens a file of `what`, "-" being the standard input. It must not be the file that the output goes to. Returns the
 * exit code. */
int cmd_open_lines(const char *program, const char *what, const char *file, const char *output, FILE **in);
/* Says on stderr what is wrong with one of its lines. */
void cmd_line_failed(const char *file, uint64_t line, const char *field, const char *message);
/* One line of a file of requests, which must be UTF-8 and JSON: the error names the position in the line. */
tri_status cmd_parse_line(const char *line, size_t len, tri_json_doc **out, tri_error *err);

/* ---- submit: one request, or those of a file ---- */

typedef struct cmd_submit_options {
  cmd_connection connection;
  cmd_request request;
  bool json;
  const char *file, *output;
  int64_t concurrency;
  bool progress, resume;
} cmd_submit_options;

int cmd_submit_file(const cmd_submit_options *o);

/* ---- embed and classify ---- */

typedef struct cmd_embed_options {
  cmd_connection connection;
  const char *program; /* for messages */
  bool classify, json, cache;
  trireme_embed_request request; /* of which lines of a file start */
  const char *token_ids, *file, *output;
  int64_t concurrency, top_k;
  bool progress, resume;
} cmd_embed_options;

/* embed_run.c: sends the request, or those of the file, and prints the answers. */
int cmd_embed_run(const cmd_embed_options *o);
/* embed_line.c: one line of a file of inputs. */
typedef struct cmd_embed_line {
  trireme_embed_request request; /* its strings lie in doc */
  tri_json_doc *doc;
  uint32_t *ids;
} cmd_embed_line;
/* Starts from `defaults` and applies the line's JSON object. kept gets members that are no fields, each with a comma
 * before it, for the answer; NULL: they are refused. Free *out on TRI_OK. */
tri_status cmd_embed_line_parse(const trireme_embed_request *defaults, bool classify, const char *line, size_t len,
                                tri_buf *kept, cmd_embed_line *out, tri_error *err);
void cmd_embed_line_free(cmd_embed_line *l);
/* embed_print.c: an answer as a line, or lines, of text, or as members of an open JSON object. */
void cmd_print_embed_reply(tri_buf *b, const trireme_event *e, int64_t top_k);
void cmd_json_embed_reply(tri_buf *b, const trireme_event *e, int64_t top_k);

/* ---- JSON of events ---- */

/* Members of the object that is open. */
void cmd_json_error(tri_buf *b, const char *code, const char *field, const char *message);
void cmd_json_event(tri_buf *b, const trireme_event *e);
void cmd_json_status(tri_buf *b, const trireme_status *s);
/* Elements {"id":..,"logprob":..,"token":..,"bytes":[..],"top":[..]} of a choice, appended to an open array. */
void cmd_json_logprobs(tri_buf *b, const trireme_choice *c);

/* Asks for the status and waits for it; e is valid until the next call on c. Events of other requests are dropped. */
int cmd_ask_status(trireme *c, int timeout_ms, trireme_event *e);

/* The user's last word of the coordinator. */
typedef struct cmd_presence {
  bool in_line; /* the terminal's line has something else in it */
  bool away;
} cmd_presence;
/* trireme_next, which says when the coordinator goes away and when one is there again. */
trireme_result cmd_next(trireme *c, int timeout_ms, cmd_presence *p, trireme_event *e, trireme_error *error);

/* Says whether the served model embeds or classifies: it generates nothing, and keeps no KV cache. */
bool cmd_is_encoder(const trireme_status *s);

/* A rank's layer under way as text; "-" between steps. */
const char *cmd_layer_text(uint64_t layer, char out[24]);
enum { CMD_STREAM_TEXT = 304 };
/* "group 0 is lost: ...", for status and top; empty where it serves. Returns out. */
const char *cmd_down_text(const trireme_group_status *g, char out[CMD_STREAM_TEXT]);
/* "group 0 reads ...", likewise; empty where all weights stay in memory. */
const char *cmd_stream_text(const trireme_group_status *g, char out[CMD_STREAM_TEXT]);
/* "group 0 has ... KV blocks in the host's memory ...", likewise; empty where it has none there. */
const char *cmd_swap_text(const trireme_group_status *g, char out[CMD_STREAM_TEXT]);
/* "response cache: ...", likewise; empty without one. */
const char *cmd_prefix_text(const trireme_group_status *g, char out[CMD_STREAM_TEXT]);
const char *cmd_cache_text(const trireme_status *s, char out[CMD_STREAM_TEXT]);

#endif
