/* SPDX-License-Identifier: Apache-2.0 */
/* The `trireme` command: the table of subcommands, and that of benchmarks. */
#include <string.h>

#include "client/cmd/cmd.h"
#include "client/cmd/commands.h"
#include "base/standard_output.h"

static int bench(int argc, char **argv);

static const cmd_command commands[] = {
    {"serve", NULL, "trireme-up", "serve a model over OpenAI's HTTP API", "trireme-serve"},
    {"up", NULL, "trireme-up", "start a coordinator and its replicas", NULL},
    {"gateway", NULL, "trireme-gateway", "serve OpenAI's HTTP API for a coordinator", NULL},
    {"submit", cmd_submit, NULL, "generate text for a prompt, or for a file of prompts", NULL},
    {"chat", NULL, "trireme-chat", "talk with a served model", NULL},
    {"embed", cmd_embed, NULL, "turn texts into vectors, with a served encoder", NULL},
    {"classify", cmd_classify, NULL, "label texts or their tokens, with a served classifier", NULL},
    {"status", cmd_status, NULL, "show the cluster's state", NULL},
    {"top", NULL, "trireme-top", "show the cluster's state, live", NULL},
    {"cancel", cmd_cancel, NULL, "cancel a request", NULL},
    {"plan", NULL, "trireme-plan", "predict whether a model fits and how fast it runs", NULL},
    {"pack", NULL, "trireme-pack", "write the packs that weights are streamed from, before a start", NULL},
    {"doctor", NULL, "trireme-doctor", "check hosts before a cluster is started there", NULL},
    {"journal", cmd_journal, NULL, "list or remove the journals of this user's clusters", NULL},
    {"template", NULL, "trireme-template", "show the prompt that a chat template renders from messages", NULL},
    {"bench", bench, NULL, "measure latency and throughput", NULL},
    {"grammar", NULL, "trireme-grammar", "say whether answers can be made to fit a JSON Schema", NULL},
    {"eval", NULL, "trireme-eval", "measure perplexity, and how far two clusters agree", NULL},
    {"keygen", cmd_keygen, NULL, "make a CURVE key pair for tcp:// endpoints", NULL},
};
enum { NUM_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out) {
  fprintf(out, "Usage: trireme COMMAND [OPTION]... [ARGUMENT]...\n\nServes transformer models on one or many GPUs and "
               "hosts.\n\nCommands:\n");
  for (size_t i = 0; i < NUM_COMMANDS; i++) fprintf(out, "  %-10s%s\n", commands[i].name, commands[i].help);
  fprintf(out,
          "\n'trireme COMMAND --help' shows its options. Words of an option are joined by '-' or '_'.\n\n"
          "Environment: TRIREME_ENDPOINT, TRIREME_KEY_FILE, TRIREME_SERVER_KEY.\n"
          "Exit codes: %d done, %d failed, %d bad usage, %d refused; status: %d not serving.\n",
          TRI_EXIT_OK, TRI_EXIT_FAILED, TRI_EXIT_USAGE, TRI_EXIT_REFUSED, TRI_EXIT_NOT_SERVING);
}

static const cmd_command kinds[] = {
    {"serve", NULL, "trireme-bench-serve", "latencies under a load of arriving requests", NULL},
    {"throughput", NULL, "trireme-bench-serve", "tokens per second with all requests at once",
     "trireme-bench-throughput"},
    {"latency", NULL, "trireme-bench-latency", "one batch without a coordinator (trireme-bench-latency)", NULL},
    {"load", NULL, "trireme-bench-load", "loading weights, compared with the disk (trireme-bench-load)", NULL},
    {"stream", NULL, "trireme-bench-stream", "weight streaming, compared with the disk (trireme-bench-stream)", NULL},
};
enum { NUM_KINDS = sizeof kinds / sizeof *kinds };

static int bench(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  bool help = !strcmp(name, "--help") || !strcmp(name, "--help-all") || !strcmp(name, "-h");
  const cmd_command *kind = cmd_find(kinds, NUM_KINDS, name);
  if (kind) return cmd_run(kind, argc - 1, argv + 1);
  if (!strcmp(name, "--version")) {
    printf("trireme bench %s\n", trireme_version());
    return TRI_EXIT_OK;
  }
  FILE *out = help ? stdout : stderr;
  if (argc > 1 && !help) {
    cmd_say_unknown("trireme bench", "benchmark", name, kinds, NUM_KINDS);
    fputc('\n', out);
  }
  fprintf(out, "Usage: trireme bench KIND [OPTION]...\n\nKinds:\n");
  for (size_t i = 0; i < NUM_KINDS; i++) fprintf(out, "  %-12s%s\n", kinds[i].name, kinds[i].help);
  fprintf(out, "\n\"trireme bench KIND --help\" shows the options of a kind.\n");
  return help ? TRI_EXIT_OK : TRI_EXIT_USAGE;
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
