/* SPDX-License-Identifier: Apache-2.0 */
/* API keys: a file of them, and comparing in constant time.
 *
 * Lines are NAME KEY with blanks between them; empty ones and those that begin with # do not count. All keys have
 * KEY_BYTES in memory, zeros after their end, and each comparison reads them all; only the length of what was sent may
 * show. The text of the file and a set are cleared before they are freed. A reload makes a new set and replaces the old
 * one when all of it was read. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/gateway/keys.h"
#include "base/mem.h"

enum { KEY_BYTES = 256, MAX_KEYS = 4096, FILE_BYTES = MAX_KEYS * 400, PREFIX = 7 /* "Bearer " */ };

typedef struct key {
  size_t len;
  char bytes[KEY_BYTES]; /* zeros after it */
  char name[GW_KEY_NAME];
} key;

struct gw_keys {
  key *keys;
  size_t num, cap;
};

void gw_keys_free(gw_keys *k) {
  if (!k) return;
  if (k->keys) explicit_bzero(k->keys, k->cap * sizeof *k->keys);
  tri_free(k->keys);
  tri_free(k);
}

static tri_status add_line(gw_keys *k, const char *line, size_t len, const char *path, size_t number, tri_error *err) {
  const char *end = line + len;
  while (end > line && (end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t')) end--;
  while (line < end && (*line == ' ' || *line == '\t')) line++;
  if (line == end || *line == '#') return TRI_OK;
  const char *value = line;
  while (value < end && *value != ' ' && *value != '\t') value++;
  size_t name = (size_t)(value - line);
  for (size_t i = 0; i < name; i++)
    if (line[i] <= ' ' || line[i] > '~') name = GW_KEY_NAME;
  while (value < end && (*value == ' ' || *value == '\t')) value++;
  size_t n = (size_t)(end - value);
  for (size_t i = 0; i < n; i++)
    if (value[i] <= ' ' || value[i] == 0x7f) n = 0;
  if (!n || n > KEY_BYTES)
    return tri_fail(err, TRI_CORRUPT, "api-key-file",
                    "%s: line %zu is not NAME KEY, with a key of 1 to %d visible bytes", path, number, KEY_BYTES);
  if (name >= GW_KEY_NAME)
    return tri_fail(err, TRI_CORRUPT, "api-key-file",
                    "%s: line %zu is not NAME KEY, with a name of 1 to %d visible characters of ASCII", path, number,
                    GW_KEY_NAME - 1);
  if (k->num == MAX_KEYS) return tri_fail(err, TRI_TOO_LARGE, "api-key-file", "more than %d keys", MAX_KEYS);
  if (tri_array_reserve(&k->keys, k->num, &k->cap, 1, sizeof *k->keys) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, "api-key-file", "no memory");
  key *out = &k->keys[k->num++];
  *out = (key){.len = n};
  memcpy(out->bytes, value, n);
  memcpy(out->name, line, name);
  return TRI_OK;
}

static tri_status read_file(const char *path, char *text, size_t *len, tri_error *err) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would hold it up */
  if (fd < 0) return tri_fail(err, TRI_NOT_FOUND, "api-key-file", "cannot open %s: %s", path, strerror(errno));
  bool secret = !fstat(fd, &info) && S_ISREG(info.st_mode) && !(info.st_mode & 077);
  ssize_t n = 0;
  for (*len = 0; secret && *len < FILE_BYTES && (n = read(fd, text + *len, FILE_BYTES - *len)) > 0; *len += (size_t)n)
    continue;
  close(fd);
  if (!secret)
    return tri_fail(err, TRI_PERMISSION, "api-key-file",
                    "only its owner may read a file of API keys, and %s is not such a file: chmod 600 '%s'", path,
                    path);
  if (n < 0) return tri_fail(err, TRI_IO, "api-key-file", "cannot read %s", path);
  if (*len == FILE_BYTES) return tri_fail(err, TRI_TOO_LARGE, "api-key-file", "%s is too long", path);
  return TRI_OK;
}

tri_status gw_keys_load(const char *path, gw_keys **out, tri_error *err) {
  tri_status st = TRI_OK;
  size_t len = 0, number = 1;
  char *text = tri_malloc(FILE_BYTES, 1);
  gw_keys *k = tri_calloc(1, sizeof *k);
  if (!text || !k) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "api-key-file", "no memory"));
  TRI_TRY(read_file(path, text, &len, err));
  for (const char *line = text, *end = text + len; line < end; number++) {
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    TRI_TRY(add_line(k, line, (size_t)(stop - line), path, number, err));
    line = stop + 1;
  }
  if (!k->num) TRI_TRY(tri_fail(err, TRI_CORRUPT, "api-key-file", "%s has no keys", path));
  *out = k;
  k = NULL;
cleanup:
  if (text) explicit_bzero(text, FILE_BYTES);
  tri_free(text);
  gw_keys_free(k);
  return st;
}

/* All bytes of all keys are looked at, whatever was sent. */
bool gw_keys_allow(const gw_keys *k, http_str authorization, char name[GW_KEY_NAME]) {
  key given = {0};
  size_t found = 0; /* its number, from 1 on */
  name[0] = '\0';
  if (!k) return true;
  if (authorization.len <= PREFIX || strncasecmp(authorization.s, "Bearer ", PREFIX)) return false;
  given.len = authorization.len - PREFIX;
  memcpy(given.bytes, authorization.s + PREFIX, given.len < KEY_BYTES ? given.len : KEY_BYTES);
  for (size_t i = 0; i < k->num; i++) {
    unsigned differs = k->keys[i].len != given.len;
    for (size_t b = 0; b < KEY_BYTES; b++) differs |= (unsigned char)(k->keys[i].bytes[b] ^ given.bytes[b]);
    size_t is = -(size_t)!differs; /* all ones, or none */
    found = (found & ~is) | ((i + 1) & is);
  }
  explicit_bzero(&given, sizeof given);
  if (found) memcpy(name, k->keys[found - 1].name, GW_KEY_NAME);
  return found;
}
