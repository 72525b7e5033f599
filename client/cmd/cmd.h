/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that the subcommands of `trireme` share. */
#ifndef TRI_CLIENT_CMD_CMD_H
#define TRI_CLIENT_CMD_CMD_H

#include <stdio.h>

#include "client/cli/cli.h"
#include "client/cli/embed_line.h"
#include "client/cli/request.h"
#include "client/cli/status_text.h"
#include "base/json/json_writer.h"

/* ---- subcommands: argv[0] is the name; they return the exit code ---- */

int cmd_submit(int argc, char **argv);
int cmd_embed(int argc, char **argv);
int cmd_classify(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_keygen(int argc, char **argv);
int cmd_journal(int argc, char **argv);

/* ---- submit: one request, or those of a file ---- */

typedef struct cmd_submit_options {
  cli_connection connection;
  cli_request request;
  bool json;
  const char *file, *output;
  int64_t concurrency;
  bool progress, resume;
} cmd_submit_options;

int cmd_submit_file(const cmd_submit_options *o);

/* ---- embed and classify ---- */

typedef struct cmd_embed_options {
  cli_connection connection;
  const char *program; /* for messages */
  bool classify, json, cache;
  trireme_embed_request request; /* of which lines of a file start */
  const char *token_ids, *file, *output;
  int64_t concurrency, top_k;
  bool progress, resume;
} cmd_embed_options;

/* embed_run.c: sends the request, or those of the file, and prints the answers. */
int cmd_embed_run(const cmd_embed_options *o);
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

#endif
