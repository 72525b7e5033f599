/* SPDX-License-Identifier: Apache-2.0 */
#include "base/standard_output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/options/options.h"

void tri_stdout_tell(const char *program, int why) {
  if (why != EPIPE) fprintf(stderr, "%s: cannot write to stdout: %s\n", program, strerror(why));
}

/* Some file systems tell only when a descriptor is closed that there was no room. 0: there was. */
static int close_copy(void) {
  int copy = dup(STDOUT_FILENO);
  return copy >= 0 && close(copy) ? errno : 0;
}

/* A stream keeps that it failed and forgets why: what is missing in the output is lost, and a line's end more is
 * refused, too. */
static int find_reason(void) { return write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO; }

int tri_stdout_end(const char *program, int code) {
  int why = fflush(stdout) ? errno : 0;
  if (!why && ferror(stdout)) why = find_reason();
  if (!why) why = close_copy();
  if (!why) return code;
  tri_stdout_tell(program, why);
  clearerr(stdout); /* it is said once */
  return code ? code : TRI_EXIT_FAILED;
}
