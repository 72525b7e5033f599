/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/wire/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/wire/network.h"
#include "runtime/base/wait.h"

enum { MAX_TEXT = 512 }; /* of a boot, with room to spare */

tri_status tri_boot_save(const char *path, const tri_boot *b, tri_error *err) {
  char tmp[4096];
  snprintf(tmp, sizeof tmp, "%.4000s.new", path);
  unlink(tmp);
  int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return tri_fail(err, TRI_IO, "boot_file", "cannot write %s: %s", tmp, strerror(errno));
  int n = dprintf(fd, "%s\n%s\n%s\n%s\n", b->server_key, b->worker.public_key, b->worker.secret_key, b->endpoint);
  int failed = n < 0 || close(fd) || rename(tmp, path);
  if (failed) unlink(tmp);
  return failed ? tri_fail(err, TRI_IO, "boot_file", "cannot write %s: %s", path, strerror(errno)) : TRI_OK;
}

/* Both forms have the keys first, which are words, and the endpoint last, which goes to the end of its line: the path
 * of a socket may have spaces. */
static bool read_text(const char *text, tri_boot *out) {
  char format[48];
  snprintf(format, sizeof format, "%%%ds %%%ds %%%ds %%%zu[^\n]", TRI_Z_KEY - 1, TRI_Z_KEY - 1, TRI_Z_KEY - 1,
           sizeof out->endpoint - 1);
  return sscanf(text, format, out->server_key, out->worker.public_key, out->worker.secret_key, out->endpoint) == 4;
}

static tri_status read_file(const char *path, tri_boot *out, tri_error *err) {
  char text[MAX_TEXT];
  struct stat sb;
  FILE *f = fopen(path, "re");
  if (!f)
    return errno == ENOENT ? TRI_AGAIN
                           : tri_fail(err, TRI_IO, "boot_file", "cannot read %s: %s", path, strerror(errno));
  tri_status st = TRI_OK;
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  if (fstat(fileno(f), &sb) || sb.st_mode & 077)
    st = tri_fail(err, TRI_PERMISSION, "boot_file", "%s holds keys and may be read by its owner alone (mode 0600)",
                  path);
  else if (!read_text(text, out))
    st = tri_fail(err, TRI_CORRUPT, "boot_file", "%s is no boot file", path);
  fclose(f);
  return st;
}

tri_status tri_boot_load(const char *path, int64_t deadline_ns, tri_boot *out, tri_error *err) {
  static const tri_wait_policy policy = {0};
  tri_wait w = tri_wait_begin(&policy, deadline_ns);
  tri_status st;
  while ((st = read_file(path, out, err)) == TRI_AGAIN)
    if (tri_wait_pause(&w) != TRI_OK)
      return tri_fail(err, TRI_TIMEOUT, "boot_file", "%s did not appear: is the coordinator running?", path);
  return st;
}

tri_status tri_boot_to_env(const tri_boot *b, tri_error *err) {
  char text[MAX_TEXT];
  snprintf(text, sizeof text, "%s %s %s %s", b->server_key, b->worker.public_key, b->worker.secret_key, b->endpoint);
  return setenv(TRI_BOOT_ENV, text, 1) ? tri_fail(err, TRI_NO_MEMORY, TRI_BOOT_ENV, "no memory") : TRI_OK;
}

tri_status tri_boot_from_env(tri_boot *out, tri_error *err) {
  const char *text = getenv(TRI_BOOT_ENV);
  if (!text) return TRI_NOT_FOUND;
  bool ok = read_text(text, out);
  unsetenv(TRI_BOOT_ENV);
  return ok ? TRI_OK : tri_fail(err, TRI_CORRUPT, TRI_BOOT_ENV, "%s is malformed", TRI_BOOT_ENV);
}

int tri_boot_under_mpi(void) { return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK"); }

void tri_boot_host_address(const char *networks, char *out, size_t cap) {
  tri_network n;
  snprintf(out, cap, "%s", tri_network_find(networks, &n) ? n.address : "127.0.0.1");
}
