/* SPDX-License-Identifier: Apache-2.0 */
/* Subcommands with large libraries are programs of their own and replace this process: the client alone can be
 * installed without them. */
#include "client/cmd/commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/options/options.h"

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

/* Replaces the process by `program`, found next to this one, in ../libexec/trireme or on PATH, with
 * the name `called`. Returns only when that fails. */
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

int cmd_run(const cmd_command *c, int argc, char **argv) {
  if (c->run) return c->run(argc, argv);
  return replace(c->program, c->called ? c->called : c->program, argv);
}
