/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme submit`: one request, whose text is printed as it comes. The first Ctrl-C cancels the job and waits for its
 * end, CANCEL_MS for each event; the second ends the program as usual. Messages go to stderr, on a line of their own
 * where the text has left one open. */
#include <string.h>
#include <unistd.h>

#include "client/cmd/cmd.h"
#include "base/mem.h"
#include "base/version.h"

enum { CANCEL_MS = 2000, STDIN_MAX = 1 << 20 };

static const tri_option own_options[] = {
    {TRI_OPT(cmd_submit_options, json), .name = "json", .help = "print a JSON line for each event instead of text"},
    {TRI_OPT(cmd_submit_options, file), .name = "file", .metavar = "FILE", .group = "Many prompts",
     .help = "file with a JSON object a line, {\"prompt\": ..., any request field}, or in the form of OpenAI's "
             "batches; - is the standard input"},
    {TRI_OPT(cmd_submit_options, output), .name = "output", .metavar = "FILE", .group = "Many prompts",
     .help = "file for the answers, one JSON line each, in the order of the input; overwritten unless --resume is "
             "given. Default: the standard output"},
    {TRI_OPT(cmd_submit_options, resume), .name = "resume", .group = "Many prompts",
     .help = "continue an earlier --output; lines that have an answer there are not sent again"},
    {TRI_OPT(cmd_submit_options, concurrency), .name = "concurrency", .min = 1, .max = 65536, .fallback = "64",
     .group = "Many prompts", .help = "requests at a time"},
    {TRI_OPT(cmd_submit_options, progress), .name = "progress", .fallback = "true", .group = "Many prompts",
     .help = "show a progress bar on a terminal, and a summary at the end"},
    CLI_CONNECTION_OPTIONS(cmd_submit_options, connection),
    CLI_RECONNECT_OPTION(cmd_submit_options, connection),
};
enum { NUM_OWN = sizeof own_options / sizeof *own_options };

static const char epilog[] = "Examples:\n"
                             "  trireme submit \"Once upon a time\" --max-tokens 64\n"
                             "  trireme submit \"2 + 2 =\" --temperature 0 --stop . --json\n"
                             "  echo \"Call me\" | trireme submit -\n"
                             "  trireme submit --file prompts.jsonl --output results.jsonl --concurrency 256\n\n"
                             "The first Ctrl-C cancels the request, the second ends the program.\n";

/* The whole standard input as a prompt, but for the end of its last line, which echo and editors put there. */
static char *read_stdin(size_t *len) {
  char *text = tri_malloc(STDIN_MAX + 1, 1);
  if (!text) return NULL;
  *len = fread(text, 1, STDIN_MAX + 1, stdin);
  if (*len <= STDIN_MAX && !ferror(stdin)) {
    *len -= *len && text[*len - 1] == '\n';
    return text;
  }
  tri_free(text);
  return NULL;
}

static bool print_json(const trireme_event *e) {
  tri_buf b = {0};
  cmd_json_event(&b, e);
  if (b.failed) fprintf(stderr, "trireme: no memory for an event\n");
  bool ok = !b.failed && fwrite(b.data, 1, b.len, stdout) == b.len && !fflush(stdout);
  tri_buf_free(&b);
  return ok;
}

/* Texts of several choices cannot be mixed on one stream: each gets a buffer, and all are printed at the end. */
typedef struct texts {
  tri_buf choice[64];
  int64_t n;
  bool ids;  /* there is no text but an echo, which are ids, too: what is printed are token ids */
  bool open; /* the line that was printed last has no end yet */
} texts;

static bool print_piece(texts *t, const trireme_choice *c, const char *s, size_t len) {
  if (t->n <= 1) {
    if (len) t->open = s[len - 1] != '\n';
    return fwrite(s, 1, len, stdout) == len;
  }
  tri_text_add(&t->choice[c->index % 64], s, len);
  return true;
}

static bool print_ids(texts *t, const trireme_choice *c) {
  bool ok = true;
  for (size_t i = 0; i < c->num_ids; i++) {
    char id[16];
    int len = snprintf(id, sizeof id, c->offset + i ? " %u" : "%u", c->ids[i]);
    ok &= print_piece(t, c, id, (size_t)len);
  }
  return ok;
}

/* Flushed with each event, since a pipe would otherwise keep the text back; several choices wait in their buffers. */
static bool print_tokens(const trireme_event *e, texts *t) {
  bool ok = true;
  for (size_t i = 0; i < e->tokens.num; i++) {
    const trireme_choice *c = e->tokens.choices[i];
    ok &= print_piece(t, c, c->text, c->text_len);
    if (t->ids) ok &= print_ids(t, c);
  }
  return ok && (t->n > 1 || !fflush(stdout));
}

static bool print_done(const trireme_event *e, texts *t) {
  for (size_t i = 0; i < e->done.num; i++) {
    const trireme_finished *f = e->done.choices[i];
    tri_buf *b = &t->choice[i % 64];
    if (t->n > 1) printf("%s[%zu] %.*s", i ? "\n" : "", i, (int)b->len, b->data ? b->data : "");
    fwrite(f->text, 1, f->text_len, stdout);
  }
  putchar('\n');
  t->open = false;
  return !fflush(stdout);
}

/* A message about an error begins a line of its own. */
static void end_line(texts *t) {
  if (t->open) {
    putchar('\n');
    fflush(stdout);
  }
  t->open = false;
}

static int end_of(const trireme_event *e) {
  bool ok = true;
  for (size_t i = 0; i < e->done.num; i++)
    ok &= !strcmp(e->done.choices[i]->finish_reason, "stop") || !strcmp(e->done.choices[i]->finish_reason, "length");
  return ok ? TRI_EXIT_OK : TRI_EXIT_FAILED;
}

/* Tells those who did not say how long an answer may be that it was cut. In JSON the reason is next to the text. */
static void note_length(const cmd_submit_options *o, const trireme_event *e) {
  if (o->json || o->request.r.max_tokens != TRIREME_UNSET) return;
  for (size_t i = 0; i < e->done.num; i++)
    if (!strcmp(e->done.choices[i]->finish_reason, "length")) {
      fprintf(stderr, "trireme: cut after %llu tokens: --max-tokens says how many (-1: as many as fit)\n",
              (unsigned long long)e->done.choices[i]->completion_tokens);
      return;
    }
}

static int stream(trireme *c, uint64_t id, const cmd_submit_options *o) {
  texts t = {.n = o->request.r.n};
  cli_presence coordinator = {.in_line = !o->json};
  trireme_error error = {0};
  bool cancelled = false, ended = false, timed_out = false, written = true;
  int code = -1;
  while (code < 0 && written) {
    trireme_event e;
    trireme_result r = cli_next(c, cancelled ? CANCEL_MS : -1, &coordinator, &e, &error);
    if (cli_signal && !cancelled) {
      cancelled = true;
      trireme_cancel(c, id, NULL, NULL, NULL);
    }
    if (r == TRIREME_INTERRUPTED) continue;
    if (r != TRIREME_OK) {
      code = TRI_EXIT_FAILED;
      if (r == TRIREME_TIMEOUT && cancelled) continue;
      end_line(&t);
      code = cli_fail(&error);
      continue;
    }
    if (e.id != id) continue;
    if (e.kind == TRIREME_EVENT_ERROR) {
      end_line(&t);
      code = cli_refused(&e.error);
    }
    if (e.kind == TRIREME_EVENT_DONE) {
      code = end_of(&e);
      ended = true;
      timed_out = e.done.timed_out;
    }
    if (e.kind == TRIREME_EVENT_ACCEPTED) t.ids = e.accepted.token_ids_only;
    if (o->json)
      written = print_json(&e);
    else if (e.kind == TRIREME_EVENT_TOKENS)
      written = print_tokens(&e, &t);
    else if (e.kind == TRIREME_EVENT_DONE)
      written = print_done(&e, &t);
    if (e.kind == TRIREME_EVENT_DONE) note_length(o, &e);
  }
  end_line(&t);
  if (cancelled)
    fprintf(stderr, "trireme: cancelled\n");
  else if (ended && code)
    fprintf(stderr, "trireme: the job was ended before it was complete: %s\n",
            timed_out ? "its deadline_ms has passed" : "it was cancelled elsewhere");
  for (int i = 0; i < 64; i++) tri_buf_free(&t.choice[i]);
  return written ? code : TRI_EXIT_FAILED;
}

static int connect_and_stream(const cmd_submit_options *o) {
  trireme_error error = {0};
  trireme *c = NULL;
  uint64_t id;
  trireme_result r = cli_try_connect(&o->connection, &c, &error);
  if (!r) cli_catch_signals();
  if (!r) r = trireme_submit(c, &o->request.r, &id, &error);
  int code = r ? cli_fail(&error) : stream(c, id, o);
  trireme_close(c);
  return code;
}

static int submit_one(cmd_submit_options *o, const char *prompt) {
  char *input = NULL;
  size_t len = prompt ? strlen(prompt) : 0;
  if (prompt && !strcmp(prompt, "-")) {
    prompt = input = read_stdin(&len);
    if (!input)
      return cli_usage("trireme submit", "cannot read a prompt of at most %d bytes from the standard input", STDIN_MAX);
  }
  size_t valid = tri_utf8_prefix(prompt ? prompt : "", len);
  if (valid < len) {
    tri_free(input);
    return cli_usage("trireme submit", "byte %zu of the prompt is not UTF-8", valid + 1);
  }
  if (o->request.r.logprobs >= 0 && !o->json) fprintf(stderr, "trireme: --logprobs shows with --json alone\n");
  if (o->request.r.prompt_logprobs >= 0 && !o->json)
    fprintf(stderr, "trireme: --prompt-logprobs shows with --json alone\n");
  o->request.r.prompt = prompt;
  o->request.r.prompt_len = len;
  int code = connect_and_stream(o);
  tri_free(input);
  return code;
}

/* Messages of a file's lines are rendered here, as the server takes prompts alone. */
static void tell_of_folder(tri_option *table, size_t num) {
  for (size_t i = 0; i < num; i++)
    if (!strcmp(table[i].name, "model"))
      table[i].help = "model to use, if several names are served; for --file the served model's folder (DIR), whose "
                      "chat template lines for /v1/chat/completions need";
}

int cmd_submit(int argc, char **argv) {
  tri_option table[NUM_OWN + CLI_REQUEST_OPTIONS_MAX];
  size_t n = cli_request_options(table, offsetof(cmd_submit_options, request));
  memcpy(table + n, own_options, sizeof own_options);
  tell_of_folder(table, n);
  const tri_options_spec spec = {
      .program = "trireme submit",
      .version = "trireme submit " TRIREME_VERSION,
      .usage = "[OPTION]... PROMPT | --token-ids IDS | --file FILE",
      .epilog = epilog,
      .summary =
          "Generates text for a prompt and prints it as it is generated. The prompt - is the standard input, without "
          "a newline at its end.",
      .options = table,
      .count = n + NUM_OWN,
      .config_file = true,
      .max_args = 1};
  cmd_submit_options o = {0};
  cli_request_init(&o.request);
  tri_options *parsed = NULL;
  tri_error err = {0};
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  const char *prompt = tri_options_arg(parsed, 0);
  int ways = (prompt != NULL) + (o.request.token_ids != NULL) + (o.file != NULL);
  if (cli_request_finish(&o.request, parsed, &err))
    code = cli_usage(spec.program, "%s", err.message[0] ? err.message : tri_status_text(err.status));
  else if (ways != 1)
    code =
        cli_usage(spec.program, ways ? "a prompt, --token-ids and --file exclude each other" : "what is the prompt?");
  else if (o.output && !o.file)
    code = cli_usage(spec.program, "--output belongs to --file");
  else if (o.resume && (!o.output || !strcmp(o.output, "-")))
    code = cli_usage(spec.program, "--resume belongs to --file with --output");
  else
    code = o.file ? cmd_submit_file(&o) : submit_one(&o, prompt);
  cli_request_free(&o.request);
  tri_options_free(parsed);
  return code;
}
