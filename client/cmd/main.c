/* The `trireme` command: one table of subcommands. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd/cmd.h"
#include "runtime/base/mem.h"

static int run_up(int argc, char **argv) {
  (void)argc;
  return cmd_exec("trireme-up", argv);
}
static int run_plan(int argc, char **argv) {
  (void)argc;
  return cmd_exec("trireme-plan", argv);
}

static const struct command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *help;
} commands[] = {
    {"up", run_up, "start a coordinator and its replica groups"},
    {"submit", cmd_submit, "generate text for a prompt, or for a file of prompts"},
    {"embed", cmd_embed, "turn texts into vectors, with a served encoder"},
    {"classify", cmd_classify, "label texts or their tokens, with a served classifier"},
    {"status", cmd_status, "show the cluster's state"},
    {"top", cmd_top, "show the cluster's state, live"},
    {"cancel", cmd_cancel, "cancel a request"},
    {"plan", run_plan, "say whether and how a model fits, without running it"},
    {"bench", cmd_bench, "measure latency and throughput"},
    {"keygen", cmd_keygen, "make a CURVE key pair for tcp:// endpoints"},
};
enum { NUM_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out) {
  fprintf(out, "Usage: trireme COMMAND [OPTION]... [ARGUMENT]...\n\nRuns transformer models over many devices, and "
               "talks to them.\n\nCommands:\n");
  for (size_t i = 0; i < NUM_COMMANDS; i++) fprintf(out, "  %-10s%s\n", commands[i].name, commands[i].help);
  fprintf(out,
          "\n'trireme COMMAND --help' tells more. Options may be written with '-' or '_' between words.\n\n"
          "Environment: TRIREME_ENDPOINT, TRIREME_KEY_FILE, TRIREME_SERVER_KEY.\n"
          "Exit codes: %d done, %d failed, %d bad usage, %d refused.\n",
          TRI_EXIT_OK, TRI_EXIT_FAILED, TRI_EXIT_USAGE, TRI_EXIT_REFUSED);
}

static const struct command *find(const char *name) {
  for (size_t i = 0; i < NUM_COMMANDS; i++)
    if (!strcmp(commands[i].name, name)) return &commands[i];
  return NULL;
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

int cmd_exec(const char *program, char **argv) {
  char *name = tri_strdup(program), *first = argv[0];
  if (!name) return TRI_EXIT_FAILED;
  argv[0] = name;
  exec_beside(program, "", argv);
  exec_beside(program, "/../libexec/trireme", argv);
  execvp(program, argv);
  fprintf(stderr, "trireme: cannot run %s: %s\n", program, strerror(errno));
  argv[0] = first;
  tri_free(name);
  return TRI_EXIT_FAILED;
}

int main(int argc, char **argv) {
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
  const struct command *c = find(name);
  if (c && help) {
    char flag[] = "--help";
    char *args[] = {argv[2], flag, NULL};
    return c->run(2, args);
  }
  if (c) return c->run(argc - 1, argv + 1);
  int near = tri_nearest_name(name, commands, NUM_COMMANDS, sizeof commands[0]);
  fprintf(stderr, "trireme: there is no command \"%.60s\"", name);
  if (near >= 0) fprintf(stderr, "; did you mean %s?", commands[near].name);
  fprintf(stderr, "\nTry 'trireme --help'.\n");
  return TRI_EXIT_USAGE;
}
