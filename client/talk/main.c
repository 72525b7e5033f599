/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme chat`: a conversation in a terminal, or of lines from a file.
 *
 * Each turn renders the whole conversation with the model's template and submits its ids; the coordinator's prefix
 * cache makes that cheap. A turn that fails takes its question out of the conversation, since two questions in a row
 * are what many templates refuse. Codes inside: -1, continue; else the exit code.
 *
 * Ctrl-C: in an answer it cancels the job, and what has come stays; at the prompt it only says how to end. The handler
 * is set anew for each turn, so that a second Ctrl-C within one ends the program. Without a terminal an interrupt ends
 * the program after the answer. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/chat/chat_answer.h"
#include "client/chat/conversation.h"
#include "client/cli/cli.h"
#include "client/cli/request.h"
#include "base/model_folder.h"
#include "base/standard_output.h"
#include "base/text.h"
#include "base/version.h"

enum { CANCEL_MS = 2000 };

typedef struct talk_options {
  cli_connection connection;
  cli_request request;
  const char *model, *template_file, *system;
} talk_options;

typedef struct talk {
  const talk_options *o;
  conversation conversation;
  trireme *c;
  tri_buf answer;     /* so far */
  chat_answer *parts; /* of an answer that is made of channels; else NULL */
  bool unprinted;     /* stdout takes nothing any more */
  bool terminal;      /* a user types */
  bool failed;        /* a turn has */
} talk;

static const tri_option own_options[] = {
    {TRI_OPT(talk_options, model), .name = "model", .metavar = "DIR",
     .help = "folder of the served model, for its tokenizer and chat template"},
    {TRI_OPT(talk_options, template_file), .name = "chat-template", .metavar = "FILE",
     .help = "file with a chat template to use instead of the model's, with the model's special tokens"},
    {TRI_OPT(talk_options, system), .name = "system", .metavar = "TEXT", .help = "system message"},
    CLI_CONNECTION_OPTIONS(talk_options, connection),
    CLI_RECONNECT_OPTION(talk_options, connection),
};
enum { NUM_OWN = sizeof own_options / sizeof *own_options };

/* ---- one answer ---- */

/* Writes all of a text: a signal that stops an answer must not lose what has come of it. stdout has nothing left. */
static bool print_text(const char *text, size_t len) {
  while (len) {
    ssize_t n = write(STDOUT_FILENO, text, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      tri_stdout_tell("trireme chat", errno);
      return false;
    }
    text += n;
    len -= (size_t)n;
  }
  return true;
}

/* Shows the text of an answer, which is what the conversation keeps; its reasoning is not shown. */
static void take_part(void *ctx, chat_part part, const char *s, size_t len) {
  talk *t = ctx;
  if (part != CHAT_PART_TEXT) return;
  tri_text_add(&t->answer, s, len);
  t->unprinted = t->unprinted || !print_text(s, len);
}

static bool no_tool(void *ctx, const char *name, size_t len) {
  (void)ctx;
  (void)name;
  (void)len;
  return false;
}

/* Models whose answers are made of channels tell the parts apart by special tokens. */
static tri_status begin_answer(talk *t, trireme_request *r) {
  chat_answer_config config = {.channels = true, .is_tool = no_tool, .give = take_part, .ctx = t};
  t->answer.len = 0;
  chat_answer_free(t->parts);
  t->parts = NULL;
  if (chat_template_calls(t->conversation.template) != CHAT_CALLS_CHANNELS) return TRI_OK;
  r->keep_special_tokens = true;
  return chat_answer_create(&config, &t->parts);
}

static bool print_tokens(talk *t, const trireme_event *e) {
  t->unprinted = t->unprinted || fflush(stdout);
  for (size_t i = 0; !t->unprinted && i < e->tokens.num; i++) {
    const trireme_choice *c = e->tokens.choices[i];
    if (!t->parts)
      take_part(t, CHAT_PART_TEXT, c->text, c->text_len);
    else if (chat_answer_push(t->parts, c->text, c->text_len) != TRI_OK)
      t->answer.failed = true;
  }
  return !t->unprinted;
}

/* Says that an answer has not come to its end by itself. */
static void note_end(const talk *t, const trireme_event *e) {
  const char *why = e->done.num ? e->done.choices[0]->finish_reason : "error";
  if (!strcmp(why, "length") && t->terminal) fprintf(stderr, "trireme chat: cut, as it is as long as it may be\n");
  if (!strcmp(why, "abort") && e->done.timed_out) fprintf(stderr, "trireme chat: its deadline_ms has passed\n");
}

/* Streams one answer. -1: the conversation continues; else the exit code. */
static int stream(talk *t, uint64_t id, bool *answered) {
  trireme_error error = {0};
  trireme_event e;
  bool cancelled = false;
  for (;;) {
    trireme_result r = trireme_next(t->c, cancelled ? CANCEL_MS : -1, &e, &error);
    if (cli_signal && !cancelled) {
      cancelled = true;
      trireme_cancel(t->c, id, NULL, NULL, NULL);
    }
    if (r == TRIREME_INTERRUPTED) continue;
    if (r == TRIREME_TIMEOUT) return -1; /* of a cancelled one; what still comes has another number than the next */
    if (r) return cli_fail(&error);
    if (e.id != id) continue;
    if (e.kind == TRIREME_EVENT_TOKENS && !print_tokens(t, &e)) return TRI_EXIT_FAILED;
    if (e.kind == TRIREME_EVENT_ERROR) {
      cli_refused(&e.error);
      return -1;
    }
    if (e.kind != TRIREME_EVENT_DONE) continue;
    *answered = true;
    if (t->parts && chat_answer_finish(t->parts, !cancelled) != TRI_OK) t->answer.failed = true;
    if (!cancelled) note_end(t, &e);
    return -1;
  }
}

/* Ends the line that an answer has left open. */
static void end_line(const talk *t) {
  if (t->answer.len && t->answer.data[t->answer.len - 1] == '\n') return;
  putchar('\n');
  fflush(stdout);
}

/* One turn. What was said stays in the conversation, with as much of an answer as came; where none came, neither does
 * the question. -1: the conversation continues. */
static int take_turn(talk *t, const char *text, size_t len) {
  conversation *c = &t->conversation;
  trireme_request r = t->o->request.r;
  trireme_error error = {0};
  tri_error err = {0};
  uint64_t id;
  bool answered = false;
  size_t mark = conversation_mark(c);
  conversation_add(c, "user", text, len);
  tri_status st = conversation_prompt(c, &r.token_ids, &r.num_token_ids, &err);
  int code = -1;
  if (st == TRI_OK) st = begin_answer(t, &r);
  if (st != TRI_OK) {
    fprintf(stderr, "trireme chat: %s\n", err.message[0] ? err.message : tri_status_text(st));
  } else if (trireme_submit(t->c, &r, &id, &error)) {
    code = cli_fail(&error);
  } else {
    code = stream(t, id, &answered);
    end_line(t);
  }
  t->failed |= !answered;
  if (answered || t->answer.len)
    conversation_add(c, "assistant", t->answer.data ? t->answer.data : "", t->answer.len);
  else
    conversation_back_to(c, mark);
  return code;
}

/* ---- what is typed ---- */

/* Reads a line, without its end. False: there is none any more. */
static bool read_turn(const talk *t, char **line, size_t *cap, size_t *len) {
  for (;;) {
    if (t->terminal) {
      printf("> ");
      fflush(stdout);
    }
    cli_signal = 0;
    cli_catch_signals(); /* again, as the last one has taken itself away */
    errno = 0;
    ssize_t n = getline(line, cap, stdin);
    bool interrupted = n < 0 && cli_signal == SIGINT && t->terminal;
    if (n < 0 && !interrupted) {
      if (t->terminal) putchar('\n');
      return false;
    }
    if (interrupted) {
      clearerr(stdin);
      fprintf(stderr, "\n(Ctrl-D ends)\n");
      continue;
    }
    while (n && ((*line)[n - 1] == '\n' || (*line)[n - 1] == '\r')) n--;
    *len = (size_t)n;
    if (n) return true;
  }
}

/* Returns true for what is said to this program and not to the model. */
static bool is_command(talk *t, const char *line, size_t len) {
  if (!t->terminal || len != 6 || memcmp(line, "/clear", 6) != 0) return false;
  conversation_forget(&t->conversation);
  fprintf(stderr, "(a new conversation)\n");
  return true;
}

static int talk_on(talk *t) {
  char *line = NULL;
  size_t cap = 0, len;
  int code = -1;
  t->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  if (t->terminal) fprintf(stderr, "Ctrl-C stops an answer, /clear begins anew, Ctrl-D ends.\n");
  while (code < 0 && cli_signal != SIGTERM && read_turn(t, &line, &cap, &len)) {
    if (is_command(t, line, len)) continue;
    code = take_turn(t, line, len);
    if (cli_signal == SIGINT && !t->terminal) code = TRI_EXIT_FAILED;
  }
  free(line); /* getline's */
  if (code >= 0) return code;
  return cli_signal || (t->failed && !t->terminal) ? TRI_EXIT_FAILED : TRI_EXIT_OK;
}

/* ---- options ---- */

/* Those of a request but for what a conversation decides itself, or has no use for. */
static size_t add_request_options(tri_option *table) {
  static const char without[] = "n num-beams length-penalty early-stopping logprobs echo add-special-tokens stream "
                                "on-disconnect token-ids model request-id truncate";
  tri_option all[CLI_REQUEST_OPTIONS_MAX];
  size_t n = cli_request_options(all, offsetof(talk_options, request)), kept = 0;
  for (size_t i = 0; i < n; i++) {
    if (tri_has_word(without, all[i].name)) continue;
    if (!strcmp(all[i].name, "max-tokens")) /* begin() replaces the default of 16 */
      all[i].help = "most tokens of an answer; -1, the default here: as many as the context holds";
    table[kept++] = all[i];
  }
  return kept;
}

/* Ids of another tokenizer than the served one would be another text. */
static int check_tokenizer(talk *t) {
  trireme_error error = {0};
  trireme_event e;
  uint64_t id;
  trireme_result r = trireme_ask_models(t->c, &id, &error);
  do {
    if (!r) r = trireme_next(t->c, (int)t->o->connection.connect_timeout_ms, &e, &error);
    if (r) return cli_fail(&error);
  } while (e.id != id);
  if (e.kind != TRIREME_EVENT_MODELS) return cli_refused(&e.error);
  if (e.models.tokenizer == tri_tokenizer_hash(t->conversation.tokenizer)) return -1;
  cli_failed("trireme chat", "the tokenizer.json in %s is not the one that the coordinator serves %s with", t->o->model,
             e.models.num ? e.models.names[0] : "its model");
  return TRI_EXIT_USAGE;
}

static int begin(talk *t, const tri_options *parsed) {
  talk_options *o = (talk_options *)t->o;
  tri_error err = {0};
  tri_status st =
      o->model
          ? cli_request_finish(&o->request, parsed, &err)
          : tri_fail(
                &err, TRI_USAGE, "model",
                "--model DIR is missing: the folder of the served model, which has its tokenizer and chat template");
  if (st != TRI_OK) return cli_usage("trireme chat", "%s", err.message);
  if (!tri_options_given(parsed, "max-tokens")) o->request.r.max_tokens = -1; /* as many as fit */
  char folder[TRI_MODEL_FOLDER];
  st = tri_model_folder_find(o->model, folder, &err);
  if (st == TRI_OK) st = conversation_open(folder, o->template_file, &t->conversation, &err);
  if (st != TRI_OK) {
    cli_failed("trireme chat", "%s", err.message[0] ? err.message : tri_status_text(st));
    return tri_exit_code(st);
  }
  conversation_begin(&t->conversation, o->system);
  int code = cli_connect(&o->connection, &t->c);
  return code == TRI_EXIT_OK ? check_tokenizer(t) : code;
}

int main(int argc, char **argv) {
  tri_option table[NUM_OWN + CLI_REQUEST_OPTIONS_MAX];
  memcpy(table, own_options, sizeof own_options);
  const tri_options_spec spec = {
      .program = "trireme chat",
      .usage = "MODEL [OPTION]...",
      .arg_option = "model",
      .summary = "Talks with a served model: each line is a turn, and the answer is printed as it is generated.",
      .epilog = "Examples:\n"
                "  trireme chat --model DIR --system \"Answer in one sentence.\"\n"
                "  echo \"What is a trireme?\" | trireme chat --model DIR --temperature 0\n\n"
                "Ctrl-C stops an answer, /clear starts a new conversation, Ctrl-D ends.\n"
                "Commands are for a terminal: from a pipe or a file every line is a turn.\n",
      .version = "trireme chat " TRIREME_VERSION,
      .options = table,
      .count = NUM_OWN + add_request_options(table + NUM_OWN),
      .config_file = true};
  talk_options o = {0};
  talk t = {.o = &o};
  tri_options *parsed = NULL;
  cli_request_init(&o.request);
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  code = begin(&t, parsed);
  if (code < 0) code = talk_on(&t);
  trireme_close(t.c);
  conversation_close(&t.conversation);
  tri_buf_free(&t.answer);
  chat_answer_free(t.parts);
  cli_request_free(&o.request);
  tri_options_free(parsed);
  return tri_stdout_end(spec.program, code);
}
