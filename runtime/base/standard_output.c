/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/standard_output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/options.h"

static int first_failure; /* errno; 0: none is known */

void tri_stdout_failed(int why) {
  if (!first_failure) first_failure = why;
}

bool tri_stdout_write(const void *p, size_t n) {
  if (fwrite(p, 1, n, stdout) == n) return true;
  tri_stdout_failed(errno);
  return false;
}

bool tri_stdout_flush(void) {
  if (!fflush(stdout)) return !ferror(stdout);
  tri_stdout_failed(errno);
  return false;
}

/* A stream forgets why it failed: what is missing in the output is lost, and a line's end more is refused, too. */
static void find_reason(void) {
  if (!first_failure && write(STDOUT_FILENO, "\n", 1) < 0) first_failure = errno;
}

/* Some file systems tell only when a descriptor is closed that there was no room. */
static bool close_copy(void) {
  int copy = dup(STDOUT_FILENO);
  if (copy < 0 || !close(copy)) return true;
  tri_stdout_failed(errno);
  return false;
}

int tri_stdout_end(const char *program, int code) {
  bool written = tri_stdout_flush();
  written = close_copy() && written && !first_failure;
  if (written) return code;
  find_reason();
  if (first_failure != EPIPE)
    fprintf(stderr, "%s: cannot write to stdout%s%s\n", program, first_failure ? ": " : "",
            first_failure ? strerror(first_failure) : "");
  clearerr(stdout); /* it is said once */
  first_failure = 0;
  return code ? code : TRI_EXIT_FAILED;
}
