/* SPDX-License-Identifier: Apache-2.0 */
/* CURVE keys as text and as files. Buffers that have held a secret key are overwritten before they are left. */
#include "comm/wire/zsock_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool tri_zkey_raw(const char *key, uint8_t out[TRI_OWNER_BYTES]) {
  return strlen(key) == TRI_Z_KEY - 1 && zmq_z85_decode(out, key) != NULL;
}

const char *tri_owner_text(const tri_owner *o, char out[TRI_OWNER_TEXT]) {
  uint32_t uid;
  char key[TRI_Z_KEY] = "";
  memcpy(&uid, o->bytes, sizeof uid);
  snprintf(out, TRI_OWNER_TEXT, "-");
  if (o->kind == TRI_OWNER_USER) snprintf(out, TRI_OWNER_TEXT, "uid:%u", uid);
  if (o->kind == TRI_OWNER_KEY && zmq_z85_encode(key, o->bytes, TRI_Z_RAW_KEY))
    snprintf(out, TRI_OWNER_TEXT, "key:%s", key);
  return out;
}

tri_status tri_zkeypair_make(tri_zkeypair *out, tri_error *err) {
  tri_zkeypair k;
  if (zmq_curve_keypair(k.public_key, k.secret_key))
    return tri_fail(err, TRI_UNSUPPORTED, NULL, "cannot make a CURVE key pair: %s", zmq_strerror(zmq_errno()));
  *out = k;
  explicit_bzero(&k, sizeof k);
  return TRI_OK;
}

tri_status tri_zkey_public(const char *secret_key, char public_key[TRI_Z_KEY], tri_error *err) {
  bool ok = strlen(secret_key) == TRI_Z_KEY - 1 && !zmq_curve_public(public_key, secret_key);
  return ok ? TRI_OK : tri_fail(err, TRI_CORRUPT, NULL, "a secret key is not %d characters of Z85", TRI_Z_KEY - 1);
}

tri_status tri_zkey_check(const char *key, const char *what, tri_error *err) {
  uint8_t raw[TRI_Z_RAW_KEY];
  if (tri_zkey_raw(key, raw)) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, what,
                  "a key is %d characters of Z85; this one has %zu or a character outside of Z85", TRI_Z_KEY - 1,
                  strlen(key));
}

static tri_status keypair_read(FILE *f, const char *path, tri_zkeypair *k, tri_error *err) {
  char line[2][128];
  for (int i = 0; i < 2; i++) {
    if (!fgets(line[i], sizeof line[i], f))
      return tri_fail(err, TRI_CORRUPT, path, "a key file has two lines, public and secret key");
    line[i][strcspn(line[i], "\r\n")] = '\0';
    if (strlen(line[i]) != TRI_Z_KEY - 1)
      return tri_fail(err, TRI_CORRUPT, path, "line %d has %zu characters, a key has %d", i + 1, strlen(line[i]),
                      TRI_Z_KEY - 1);
  }
  memcpy(k->public_key, line[0], TRI_Z_KEY);
  memcpy(k->secret_key, line[1], TRI_Z_KEY);
  explicit_bzero(line, sizeof line);
  char derived[TRI_Z_KEY];
  if (zmq_curve_public(derived, k->secret_key) || strcmp(derived, k->public_key))
    return tri_fail(err, TRI_CORRUPT, path, "the two lines are not the public and secret key of one pair");
  return TRI_OK;
}

tri_status tri_zkeypair_load(const char *path, tri_zkeypair *out, tri_error *err) {
  tri_status st = TRI_OK;
  tri_zkeypair k = {0};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would hold it up */
  FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
  struct stat sb;
  if (!f || fstat(fd, &sb)) TRI_TRY(tri_fail(err, TRI_IO, path, "cannot open the key file: %s", strerror(errno)));
  if (!S_ISREG(sb.st_mode)) TRI_TRY(tri_fail(err, TRI_INVALID_ARGUMENT, path, "not a regular file"));
  if (sb.st_mode & 077)
    TRI_TRY(tri_fail(err, TRI_PERMISSION, path, "mode %04o lets others read the secret key; make it 0600",
                     (unsigned)sb.st_mode & 07777));
  setvbuf(f, NULL, _IONBF, 0); /* no copy of the secret in a buffer that is freed uncleared */
  TRI_TRY(keypair_read(f, path, &k, err));
  *out = k;
cleanup:
  explicit_bzero(&k, sizeof k);
  if (f)
    fclose(f);
  else if (fd >= 0)
    close(fd);
  return st;
}

tri_status tri_zkeypair_save(const char *path, const tri_zkeypair *k, tri_error *err) {
  /* An existing file is never overwritten: it may be the only copy of a key. */
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0 && errno == EEXIST) return tri_fail(err, TRI_IO, path, "is there already, and is not overwritten");
  if (fd < 0) return tri_fail(err, TRI_IO, path, "cannot create the key file: %s", strerror(errno));
  bool ok = dprintf(fd, "%s\n%s\n", k->public_key, k->secret_key) == 2 * TRI_Z_KEY && !fsync(fd);
  int e = errno;
  ok &= !close(fd);
  if (ok) return TRI_OK;
  unlink(path);
  return tri_fail(err, TRI_IO, path, "cannot write the key file: %s", strerror(e));
}
