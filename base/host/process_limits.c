/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host/process_limits.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

enum { MOST_ARGUMENTS = 8 << 20 };
/* Threads are given what the limit was when their program began. */
static const rlim_t LEAST_STACK = 1 << 20, USUAL_STACK = 8 << 20;

static bool is_less(rlim_t a, rlim_t b) { return a != RLIM_INFINITY && a < b; }

/* Root may have more than its limit says. */
static bool raise_stack(const struct rlimit *now) {
  struct rlimit more = {.rlim_cur = USUAL_STACK, .rlim_max = now->rlim_max};
  if (is_less(more.rlim_max, USUAL_STACK)) more.rlim_max = USUAL_STACK;
  if (!setrlimit(RLIMIT_STACK, &more)) return true;
  more = (struct rlimit){.rlim_cur = now->rlim_max, .rlim_max = now->rlim_max};
  return !is_less(now->rlim_max, LEAST_STACK) && !setrlimit(RLIMIT_STACK, &more);
}

/* The arguments of the program, of which the caller may hold a part. */
static tri_status run_again(tri_error *err) {
  tri_status st = TRI_OK;
  tri_buf text = {.max = MOST_ARGUMENTS};
  char **argv = NULL, piece[4096];
  ssize_t n = 0;
  size_t count = 0;
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  while (st == TRI_OK && fd >= 0 && (n = read(fd, piece, sizeof piece)) > 0)
    st = tri_buf_append(&text, piece, (size_t)n);
  if (fd >= 0) close(fd);
  if (st == TRI_OK && text.len) argv = tri_calloc(text.len + 1, sizeof *argv);
  for (size_t at = 0; argv && at < text.len; at += strlen(text.data + at) + 1) argv[count++] = text.data + at;
  if (argv && !text.data[text.len - 1]) execv("/proc/self/exe", argv);
  st = tri_fail(err, TRI_NO_CAPACITY, "",
                "stacks have too little room (ulimit -s), and the program cannot be run again");
  tri_free(argv);
  tri_buf_free(&text);
  return st;
}

tri_status tri_process_limits(tri_error *err) {
  struct rlimit stack;
  signal(SIGXFSZ, SIG_IGN);
  if (getrlimit(RLIMIT_STACK, &stack) || !is_less(stack.rlim_cur, LEAST_STACK)) return TRI_OK;
  if (!raise_stack(&stack))
    return tri_fail(err, TRI_NO_CAPACITY, "", "a stack may have %llu KiB (ulimit -s); %llu are needed",
                    (unsigned long long)stack.rlim_cur >> 10, (unsigned long long)LEAST_STACK >> 10);
  return run_again(err);
}
