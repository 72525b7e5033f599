/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme journal`: the journals of this user's clusters, where `trireme up` has them by default.
 *
 * A coordinator holds the lock of its journal for as long as it runs. Here the same lock is tried without waiting: to
 * list, it is given back at once; to remove, it is held until the folder is gone, so that no coordinator starts in it
 * meanwhile. All names are resolved in open folders, and links are not followed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cmd/cmd.h"
#include "base/file.h"
#include "base/version.h"

enum { MOST_NAMES = 64 };

static bool is_hidden(const char *name) { return name[0] == '.'; }

/* The bytes that its files take, and when one of them changed last. */
typedef struct journal_about {
  unsigned long long bytes;
  time_t changed;
} journal_about;

static journal_about look(int folder) {
  journal_about about = {0};
  struct stat s;
  int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
  for (struct dirent *e; d && (e = readdir(d));) {
    if (is_hidden(e->d_name) || fstatat(folder, e->d_name, &s, AT_SYMLINK_NOFOLLOW)) continue;
    about.bytes += (unsigned long long)s.st_blocks * 512;
    if (s.st_mtime > about.changed) about.changed = s.st_mtime;
  }
  if (d)
    closedir(d);
  else if (fd >= 0)
    close(fd);
  return about;
}

/* Opens a journal's folder, and takes its lock; `make` is O_CREAT to make one that is missing. *lock -1: *used, or it
 * has none. A lock that cannot be had for another reason, or that another start has removed, may be a coordinator's,
 * too. */
static int open_journal(int all, const char *name, int make, int *lock, bool *used) {
  struct stat about;
  int fd = openat(all, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  *lock = fd >= 0 ? openat(fd, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC | make, 0600) : -1;
  *used = fd >= 0 && *lock < 0 && errno != ENOENT;
  if (*lock < 0) return fd;
  *used = flock(*lock, LOCK_EX | LOCK_NB) || fstat(*lock, &about) || !about.st_nlink;
  if (*used) close(*lock);
  if (*used) *lock = -1;
  return fd;
}

static void list(int all, DIR *d, const char *folder) {
  int lines = 0;
  for (struct dirent *e; (e = readdir(d));) {
    char when[32];
    bool used;
    int lock;
    int fd = is_hidden(e->d_name) ? -1 : open_journal(all, e->d_name, 0, &lock, &used);
    if (fd < 0) continue;
    if (lock >= 0) close(lock); /* at once: a coordinator may begin */
    journal_about about = look(fd);
    struct tm tm;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime_r(&about.changed, &tm));
    if (!lines++) printf("%-60s %10s  %-16s  %s\n", "NAME", "KiB", "CHANGED", "IN USE");
    printf("%-60s %10llu  %-16s  %s\n", e->d_name, about.bytes >> 10, when, used ? "yes" : "no");
    close(fd);
  }
  if (!lines) printf("there are no journals in %s\n", folder);
}

/* Removes the files that a journal has, and then its folder, unless there are others. */
static bool empty(int fd) {
  bool ok = true;
  int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = own >= 0 ? fdopendir(own) : NULL;
  for (struct dirent *e; d && (e = readdir(d));) {
    const char *dot = strrchr(e->d_name, '.');
    bool of_it = (dot && !strcmp(dot, ".journal")) || !strcmp(e->d_name, "spare");
    if (of_it) ok &= !unlinkat(fd, e->d_name, 0);
  }
  if (d)
    closedir(d);
  else if (own >= 0)
    close(own);
  return d && ok;
}

static int remove_one(int all, const char *name) {
  bool used = false;
  int lock = -1, fd = is_hidden(name) || strchr(name, '/') ? -1 : open_journal(all, name, O_CREAT, &lock, &used);
  const char *why = NULL;
  if (fd < 0)
    why = "there is no such journal: `trireme journal ls` lists the journals";
  else if (used)
    why = "a coordinator uses it";
  else if (!empty(fd))
    why = strerror(errno);
  if (why) {
    fprintf(stderr, "trireme journal: %s: %s\n", name, why);
  } else {
    unlinkat(fd, "lock", 0);
    unlinkat(all, name, AT_REMOVEDIR);
  }
  if (lock >= 0) close(lock);
  if (fd >= 0) close(fd);
  return why ? TRI_EXIT_FAILED : TRI_EXIT_OK;
}

static int run(const tri_options *o, const char *folder) {
  const char *what = tri_options_num_args(o) ? tri_options_arg(o, 0) : "ls";
  bool removes = !strcmp(what, "rm");
  int code = TRI_EXIT_OK, num = tri_options_num_args(o);
  if (strcmp(what, "ls") != 0 && !removes) return cli_usage("trireme journal", "it is ls, or rm NAME...");
  if (removes != (num > 1))
    return cli_usage("trireme journal", removes ? "which one? Its name is missing" : "ls takes no name");
  int all = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 1; i < num; i++)
    if (remove_one(all, tri_options_arg(o, i)) != TRI_EXIT_OK) code = TRI_EXIT_FAILED;
  if (removes) {
    if (all >= 0) close(all);
    return code;
  }
  int own = all >= 0 ? openat(all, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  DIR *d = own >= 0 ? fdopendir(own) : NULL;
  if (d)
    list(all, d, folder);
  else
    printf("there are no journals in %s\n", folder);
  if (d) closedir(d);
  if (all >= 0) close(all);
  return code;
}

int cmd_journal(int argc, char **argv) {
  const tri_options_spec spec = {.program = "trireme journal",
                                 .version = "trireme journal " TRIREME_VERSION,
                                 .usage = "[ls | rm NAME...]",
                                 .max_args = MOST_NAMES,
                                 .summary = "Lists the journals that `trireme up` keeps by default, or removes "
                                            "journals that no coordinator uses, with the "
                                            "requests in them.",
                                 .epilog = "Examples:\n"
                                           "  trireme journal\n"
                                           "  trireme journal rm trireme_sock-0123456789abcdef\n"};
  char nothing, folder[PATH_MAX];
  tri_options *parsed = NULL;
  int code = tri_options_main(&spec, &nothing, argc, argv, &parsed);
  if (code >= 0) return code;
  tri_state_file("journal", folder);
  if (folder[0]) {
    code = run(parsed, folder);
  } else {
    fprintf(stderr, "trireme journal: neither XDG_STATE_HOME nor HOME names a folder\n");
    code = TRI_EXIT_FAILED;
  }
  tri_options_free(parsed);
  return code;
}
