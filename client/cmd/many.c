/* SPDX-License-Identifier: Apache-2.0 */
/* An output is opened for appending and locked before anything is asked, and emptied only when the coordinator has been
 * reached. The bar redraws one line of the terminal, at most every MANY_BAR_MS. */
#include "client/cmd/many.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cmd/cmd.h"
#include "base/wait.h"

enum { BAR = 30, ETA_AFTER_MS = 2000 /* before that a rate says little */ };

/* ---- the output ---- */

int many_output_open(const char *program, const char *path, FILE **out) {
  struct stat file;
  *out = fopen(path, "ae");
  if (!*out) return cli_failed(program, "cannot write %s: %s", path, strerror(errno));
  bool regular = !fstat(fileno(*out), &file) && S_ISREG(file.st_mode);
  bool locked = regular && flock(fileno(*out), LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
  if (!locked) return TRI_EXIT_OK; /* or the file system has no locks */
  return cli_failed(program, "%s is being written by another %s", path, program);
}

bool many_output_empty(const char *path, FILE *out, bool say) {
  struct stat file;
  bool held = !fstat(fileno(out), &file) && file.st_size > 0;
  if (ftruncate(fileno(out), 0)) return errno == EINVAL; /* no file that has a length */
  if (held && say)
    fprintf(stderr, "trireme: %s held %lld bytes, which are overwritten; --resume continues a file\n", path,
            (long long)file.st_size);
  return true;
}

/* ---- the bar ---- */

/* Counts lines that have something else than blanks. */
static uint64_t count_lines(FILE *in) {
  uint64_t count = 0;
  bool seen = false;
  for (int c; (c = getc_unlocked(in)) != EOF;) {
    seen |= c != ' ' && c != '\t' && c != '\r' && c != '\n';
    if (c == '\n') {
      count += seen;
      seen = false;
    }
  }
  return count + seen;
}

void many_bar_begin(many_bar *b, bool wanted, FILE *in) {
  *b = (many_bar){.on = wanted && isatty(STDERR_FILENO), .started_ns = tri_now_ns()};
  if (!b->on || fseeko(in, 0, SEEK_SET)) return; /* a pipe has its lines once */
  b->total = count_lines(in);
  rewind(in);
}

void many_bar_clear(const many_bar *b) {
  if (b->on) fprintf(stderr, "\r\033[K");
}

/* The time that is left at the rate so far. */
static void print_eta(const many_bar *b, uint64_t over, uint64_t before, int64_t now) {
  int64_t elapsed = now - b->started_ns;
  if (over <= before || b->total <= over || elapsed < ETA_AFTER_MS * 1000000LL) return;
  long long s = (long long)((double)elapsed * 1e-9 * (double)(b->total - over) / (double)(over - before) + 0.5);
  if (s >= 3600)
    fprintf(stderr, ", eta %lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    fprintf(stderr, ", eta %lld:%02lld", s / 60, s % 60);
}

void many_bar_draw(many_bar *b, uint64_t over, uint64_t before, const char *words, bool last) {
  int64_t now = tri_now_ns();
  char bar[BAR + 1];
  if (!b->on || (!last && now - b->drawn_ns < MANY_BAR_MS * 1000000LL)) return;
  b->drawn_ns = now;
  int full = b->total ? (int)((double)over / (double)b->total * BAR) : 0;
  for (int i = 0; i < BAR; i++) bar[i] = i < full ? '#' : '.';
  bar[BAR] = '\0';
  fprintf(stderr, "\r\033[K[%s] ", bar);
  if (b->total) fprintf(stderr, "%llu/%llu ", (unsigned long long)over, (unsigned long long)b->total);
  fprintf(stderr, "%s", words);
  if (!last) print_eta(b, over, before, now);
  if (last) fputc('\n', stderr);
}
