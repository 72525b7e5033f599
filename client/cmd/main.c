/* SPDX-License-Identifier: Apache-2.0 */
/* The `trireme` command: one table of subcommands. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd/cmd.h"
#include "base/mem.h"
#include "base/standard_output.h"

static int serve(int argc, char **argv);

static const cmd_command commands[] = {
    {"serve", serve, NULL, "serve a model over OpenAI's HTTP API"},
    {"up", NULL, "trireme-up", "start a coordinator and its replica groups"},
    {"gateway", NULL, "trireme-gateway", "serve OpenAI's HTTP API in front of a coordinator"},
    {"submit", cmd_submit, NULL, "generate text for a prompt, or for a file of prompts"},
    {"chat", NULL, "trireme-chat", "talk with a served model"},
    {"embed", cmd_embed, NULL, "turn texts into vectors, with a served encoder"},
    {"classify", cmd_classify, NULL, "label texts or their tokens, with a served classifier"},
    {"status", cmd_status, NULL, "show the cluster's state"},
    {"top", cmd_top, NULL, "show the cluster's state, live"},
    {"cancel", cmd_cancel, NULL, "cancel a request"},
    {"plan", NULL, "trireme-plan", "say whether and how a model fits, without running it"},
    {"pack", NULL, "trireme-pack", "make the files that weights are streamed from, ahead of a start"},
    {"doctor", NULL, "trireme-doctor", "check hosts before a cluster is started there"},
    {"journal", cmd_journal, NULL, "list the journals of this user's clusters, or remove some"},
    {"template", NULL, "trireme-template", "show the prompt that a model's chat template makes of messages"},
    {"bench", cmd_bench, NULL, "measure latency and throughput"},
    {"keygen", cmd_keygen, NULL, "make a CURVE key pair for tcp:// endpoints"},
};
enum { NUM_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out) {
  fprintf(out, "Usage: trireme COMMAND [OPTION]... [ARGUMENT]...\n\nRuns transformer models over many devices, and "
               "talks to them.\n\nCommands:\n");
  for (size_t i = 0; i < NUM_COMMANDS; i++) fprintf(out, "  %-10s%s\n", commands[i].name, commands[i].help);
  fprintf(out,
          "\n'trireme COMMAND --help' tells more. Options may be written with '-' or '_' between words.\n\n"
          "Environment: TRIREME_ENDPOINT, TRIREME_KEY_FILE, TRIREME_SERVER_KEY.\n"
          "Exit codes: %d done, %d failed, %d bad usage, %d refused; of status, %d: it does not serve.\n",
          TRI_EXIT_OK, TRI_EXIT_FAILED, TRI_EXIT_USAGE, TRI_EXIT_REFUSED, TRI_EXIT_NOT_SERVING);
}

const cmd_command *cmd_find(const cmd_command *all, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(all[i].name, name)) return &all[i];
  return NULL;
}

void cmd_say_unknown(const char *program, const char *noun, const char *name, const cmd_command *all, size_t n) {
  int near = tri_nearest_name(name, all, n, sizeof *all);
  fprintf(stderr, "%s: there is no %s \"%.60s\"", program, noun, name);
  if (near >= 0) fprintf(stderr, "; did you mean %s?", all[near].name);
}

/* Tries DIR/program, DIR being this program's folder with `suffix`. */
static void exec_beside(const char *program, const char *suffix, char **argv) {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return;
  path[n] = '\0';
  char *slash = strrchr(path, '/');
  if (!slash) return;
  size_t used = (size_t)(slash - path);
  if ((size_t)snprintf(slash, sizeof path - used, "%s/%s", suffix, program) < sizeof path - used) execv(path, argv);
}

/* Replaces the process by `program`, found beside this one, in ../libexec/trireme or on PATH, which is told that its
 * name is `called`. Returns only when that fails. */
static int replace(const char *program, const char *called, char **argv) {
  char *name = tri_strdup(called), *first = argv[0];
  if (!name) return TRI_EXIT_FAILED;
  argv[0] = name;
  exec_beside(program, "", argv);
  exec_beside(program, "/../libexec/trireme", argv);
  execvp(program, argv);
  const char *why = errno == ENOENT ? "it is not here: was only the client installed?" : strerror(errno);
  fprintf(stderr, "trireme: cannot run %s: %s\n", program, why);
  argv[0] = first;
  tri_free(name);
  return TRI_EXIT_FAILED;
}

static int serve(int argc, char **argv) {
  (void)argc;
  return replace("trireme-up", "trireme-serve", argv);
}

int cmd_run(const cmd_command *c, int argc, char **argv) {
  return c->run ? c->run(argc, argv) : replace(c->program, c->program, argv);
}

static int run(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : NULL;
  if (!name) {
    print_help(stderr);
    return TRI_EXIT_USAGE;
  }
  if (!strcmp(name, "--version") || !strcmp(name, "version")) {
    printf("trireme %s\n", trireme_version());
    return TRI_EXIT_OK;
  }
  bool help = !strcmp(name, "help");
  if ((help && argc == 2) || !strcmp(name, "--help") || !strcmp(name, "-h")) {
    print_help(stdout);
    return TRI_EXIT_OK;
  }
  if (help) name = argv[2];
  const cmd_command *c = cmd_find(commands, NUM_COMMANDS, name);
  if (c && help) {
    char flag[] = "--help";
    char *args[] = {argv[2], flag, NULL};
    return cmd_run(c, 2, args);
  }
  if (c) return cmd_run(c, argc - 1, argv + 1);
  cmd_say_unknown("trireme", "command", name, commands, NUM_COMMANDS);
  fprintf(stderr, "\nTry 'trireme --help'.\n");
  return TRI_EXIT_USAGE;
}

int main(int argc, char **argv) { return tri_stdout_end("trireme", run(argc, argv)); }
