/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of commands, and programs that take this one's place. */
#ifndef TRI_CLIENT_CMD_COMMANDS_H
#define TRI_CLIENT_CMD_COMMANDS_H

#include <stddef.h>

typedef struct cmd_command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *program; /* that takes this one's place, where run is NULL, */
  const char *help;
  const char *called; /* with this name; NULL: its own */
} cmd_command;

/* Returns the command of that name in a table of n, NULL where there is none. */
const cmd_command *cmd_find(const cmd_command *all, size_t n, const char *name);
/* Runs it, and returns its exit code; of a program only where it cannot be run. */
int cmd_run(const cmd_command *c, int argc, char **argv);
/* Says on stderr that there is no `noun` of that name, and which one may be meant; the line is left open. */
void cmd_say_unknown(const char *program, const char *noun, const char *name, const cmd_command *all, size_t n);

#endif
