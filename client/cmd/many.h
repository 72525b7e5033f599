/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the commands that take a file of requests (`submit --file`, `embed --file`, `classify --file`): an output
 * that is gone on with, and a bar of how far they are. */
#ifndef TRI_CLIENT_CMD_MANY_H
#define TRI_CLIENT_CMD_MANY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Opens an output to append to it: it is not truncated yet, so that without a coordinator what was there stays. Two at
 * once would write into each other's lines: a second one is refused. Returns the exit code. */
int many_output_open(const char *program, const char *path, FILE **out);
/* Empties an output that is not gone on with; say: and tells of answers that were there, which may have been wanted. */
bool many_output_empty(const char *path, FILE *out, bool say);

/* A bar on the terminal: "[####....] 37/1000 WORDS, eta 1:23". */
typedef struct many_bar {
  bool on;        /* the standard error is a terminal, and it is wanted */
  uint64_t total; /* lines that are not blank; 0: not known */
  int64_t started_ns, drawn_ns;
} many_bar;
enum { MANY_BAR_MS = 100 }; /* between two drawings */

/* Counts the lines of a file that can be read twice, where there will be a bar. */
void many_bar_begin(many_bar *b, bool wanted, FILE *in);
/* Draws it, if it is time to; before: of those that are over, what was so at the start. */
void many_bar_draw(many_bar *b, uint64_t over, uint64_t before, const char *words, bool last);
void many_bar_clear(const many_bar *b); /* for a line of something else */

#endif
