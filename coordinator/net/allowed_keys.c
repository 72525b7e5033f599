/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/net/allowed_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads the word weight=N, where the text begins with it. */
static tri_status read_weight(const char *text, double *out, tri_error *err) {
  static const char name[] = "weight=";
  char *end;
  *out = 1;
  text += strspn(text, " \t");
  if (strncmp(text, name, sizeof name - 1) != 0) return TRI_OK;
  *out = strtod(text + sizeof name - 1, &end);
  bool whole = end > text + sizeof name - 1 && strchr(" \t\r\n", *end);
  if (whole && *out >= TRI_LEAST_WEIGHT && *out <= TRI_MOST_WEIGHT) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "allowed_keys", "a weight is a number from %g to %g", TRI_LEAST_WEIGHT,
                  TRI_MOST_WEIGHT);
}

/* It is read more than once, which a pipe cannot be. */
static tri_status open_file(const char *path, FILE **out, tri_error *err) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would hold it up */
  bool regular = fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode);
  *out = regular ? fdopen(fd, "r") : NULL;
  if (*out) return TRI_OK;
  const char *why = fd >= 0 && !regular ? "not a regular file" : strerror(errno);
  if (fd >= 0) close(fd);
  return tri_fail(err, TRI_IO, "allowed_keys", "cannot open --allowed-keys %s: %s", path, why);
}

tri_status tri_allowed_keys_read(const char *path, tri_allowed_keys *out, tri_error *err) {
  FILE *f;
  tri_status st = TRI_OK;
  char line[256];
  int n = 0;
  TRI_CHECK(open_file(path, &f, err));
  for (int number = 1; st == TRI_OK && fgets(line, sizeof line, f); number++) {
    size_t len = strcspn(line, " \t\r\n");
    const char *rest = line + len + (line[len] != '\0');
    line[len] = '\0';
    tri_error why = {0};
    bool is_key = tri_zkey_check(line, "allowed_keys", &why) == TRI_OK;
    if (!line[0] || (!is_key && line[0] == '#')) continue;
    if (!is_key) {
      st = tri_fail(err, TRI_INVALID_ARGUMENT, "allowed_keys", "%s:%d: %s", path, number, why.message);
    } else if (n == TRI_MAX_ALLOWED_KEYS) {
      st = tri_fail(err, TRI_TOO_LARGE, "allowed_keys", "%s:%d: at most %d keys", path, number, TRI_MAX_ALLOWED_KEYS);
    } else if (read_weight(rest, &out->weights[n], &why) != TRI_OK) {
      st = tri_fail(err, TRI_INVALID_ARGUMENT, "allowed_keys", "%s:%d: %s", path, number, why.message);
    } else {
      memcpy(out->keys[n], line, TRI_Z_KEY);
      out->list[n] = out->keys[n];
      n++;
    }
  }
  fclose(f);
  if (st == TRI_OK && !n) st = tri_fail(err, TRI_INVALID_ARGUMENT, "allowed_keys", "%s names no public key", path);
  out->count = n;
  return st;
}

void tri_allowed_keys_add_own(tri_allowed_keys *a, const char *public_key) {
  snprintf(a->keys[a->count], TRI_Z_KEY, "%s", public_key);
  a->list[a->count] = a->keys[a->count];
  a->weights[a->count] = 1;
  a->count++;
}
