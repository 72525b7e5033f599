/* SPDX-License-Identifier: Apache-2.0 */
/* The boot file and variable. Every buffer that has held a key is overwritten before it is freed, and no message quotes
 * a word that may be one. */
#include "comm/wire/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/wire/network.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/wait.h"

enum {
  HEAD_BYTES = 512,       /* of a text without its keys, with room to spare */
  WORD_BYTES = TRI_Z_KEY, /* of a key with the blank after it */
  MOST_DIGITS = 9,        /* of a number that is looked at */
};

static size_t num_keys(const tri_boot *b) { return (size_t)b->replicas * b->ranks; }

static size_t text_bytes(size_t keys) { return HEAD_BYTES + keys * WORD_BYTES; }

static tri_status alloc_keys(tri_boot *b, tri_error *err) {
  b->secrets = tri_calloc(num_keys(b), sizeof *b->secrets);
  return b->secrets ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "boot_file", "no memory for the keys of the ranks");
}

tri_status tri_boot_make_keys(tri_boot *b, uint32_t replicas, uint32_t ranks, tri_error *err) {
  tri_status st = TRI_OK;
  if (!replicas || replicas > TRI_BOOT_MAX_REPLICAS || !ranks || ranks > TRI_BOOT_MAX_RANKS)
    return tri_fail(err, TRI_TOO_LARGE, "boot_file", "%u replicas of %u ranks: there can be %d, of %d each", replicas,
                    ranks, TRI_BOOT_MAX_REPLICAS, TRI_BOOT_MAX_RANKS);
  b->first_replica = 0;
  b->replicas = replicas;
  b->ranks = ranks;
  TRI_CHECK(alloc_keys(b, err));
  for (size_t i = 0; st == TRI_OK && i < num_keys(b); i++) {
    tri_zkeypair k = {0};
    st = tri_zkeypair_make(&k, err);
    memcpy(b->secrets[i], k.secret_key, sizeof b->secrets[i]);
    explicit_bzero(&k, sizeof k);
  }
  return st;
}

void tri_boot_free(tri_boot *b) {
  if (b->secrets) explicit_bzero(b->secrets, num_keys(b) * sizeof *b->secrets);
  tri_free(b->secrets);
  *b = (tri_boot){.replicas = 0};
}

bool tri_boot_equal(const tri_boot *a, const tri_boot *b) {
  return !strcmp(a->endpoint, b->endpoint) && !strcmp(a->server_key, b->server_key) &&
         a->first_replica == b->first_replica && a->replicas == b->replicas && a->ranks == b->ranks &&
         !memcmp(a->secrets, b->secrets, num_keys(a) * sizeof *a->secrets);
}

static const char *secret_of(const tri_boot *b, uint32_t replica, uint32_t rank) {
  return b->secrets[(size_t)(replica - b->first_replica) * b->ranks + rank];
}

tri_status tri_boot_public_key(const tri_boot *b, uint32_t replica, uint32_t rank, char out[TRI_Z_KEY],
                               tri_error *err) {
  tri_error why = {0};
  tri_status st = tri_zkey_public(secret_of(b, replica, rank), out, &why);
  if (st == TRI_OK) return st;
  return tri_fail(err, st, "boot_file", "%s%sthe key of rank %u of replica %u is invalid: %s", b->from,
                  b->from[0] ? ": " : "", rank, replica, why.message);
}

tri_status tri_boot_of_rank(const tri_boot *b, uint32_t replica, uint32_t rank, tri_boot_rank *out, tri_error *err) {
  if (replica < b->first_replica || replica - b->first_replica >= b->replicas || rank >= b->ranks)
    return tri_fail(err, TRI_USAGE, "boot_file",
                    "%s%sthe coordinator has no key for rank %u of replica %u, but for %u ranks of each of %u replicas "
                    "from replica %u on: its options give another layout than this worker's",
                    b->from, b->from[0] ? ": " : "", rank, replica, b->ranks, b->replicas, b->first_replica);
  *out = (tri_boot_rank){.own = {.public_key = ""}};
  memcpy(out->endpoint, b->endpoint, sizeof out->endpoint);
  memcpy(out->server_key, b->server_key, sizeof out->server_key);
  memcpy(out->own.secret_key, secret_of(b, replica, rank), TRI_Z_KEY);
  return tri_boot_public_key(b, replica, rank, out->own.public_key, err);
}

/* ---- as text ---- */

/* Writes so many replicas from one on, and a new line after all. Returns the text, of text_bytes, with its length;
 * NULL: no memory. */
static char *write_text(const tri_boot *b, uint32_t first, uint32_t replicas, char blank, size_t *len) {
  size_t keys = (size_t)replicas * b->ranks, cap = text_bytes(keys);
  char *text = tri_calloc(cap, 1);
  if (!text) return NULL;
  int n = snprintf(text, cap, TRI_BOOT_VERSION " %s %u %u %u%c", b->server_key, first, replicas, b->ranks, blank);
  for (size_t i = 0; i < keys; i++)
    n += snprintf(text + n, cap - (size_t)n, "%s%c", b->secrets[(size_t)(first - b->first_replica) * b->ranks + i],
                  blank);
  n += snprintf(text + n, cap - (size_t)n, "%s\n", b->endpoint);
  *len = (size_t)n;
  return text;
}

static void wipe(char *text, size_t bytes) {
  if (text) explicit_bzero(text, bytes);
  tri_free(text);
}

/* Copies the next word, which has so many characters. */
static bool take_word(const char **at, char *out, size_t len) {
  *at += strspn(*at, " \n");
  bool ok = strcspn(*at, " \n") == len;
  if (ok) memcpy(out, *at, len);
  if (ok) *at += len;
  return ok;
}

/* A word that is no number is not said: it may be a key. */
static tri_status take_number(const char **at, const char *name, uint32_t least, uint32_t most, uint32_t *out,
                              tri_error *err) {
  *at += strspn(*at, " \n");
  size_t len = strcspn(*at, " \n"), digits = strspn(*at, "0123456789");
  if (!len || digits != len)
    return tri_fail(err, TRI_CORRUPT, "boot_file", "%s is missing or no number; it can be %u to %u", name, least, most);
  unsigned long v = len <= MOST_DIGITS ? strtoul(*at, NULL, 10) : ULONG_MAX;
  if (v < least || v > most)
    return tri_fail(err, TRI_CORRUPT, "boot_file", "%s is %.*s; it can be %u to %u", name, (int)(len < 40 ? len : 40),
                    *at, least, most);
  *out = (uint32_t)v;
  *at += len;
  return TRI_OK;
}

/* Reads what stands before the ranks' keys. */
static tri_status take_head(const char **at, tri_boot *out, tri_error *err) {
  const size_t len = strlen(TRI_BOOT_VERSION);
  if (strncmp(*at, TRI_BOOT_VERSION, len) || ((*at)[len] != ' ' && (*at)[len] != '\n'))
    return tri_fail(err, TRI_CORRUPT, "boot_file", "it is none, or of another version of Trireme");
  *at += len;
  if (!take_word(at, out->server_key, TRI_Z_KEY - 1))
    return tri_fail(err, TRI_CORRUPT, "boot_file", "the coordinator's key has not %d characters", TRI_Z_KEY - 1);
  TRI_CHECK(take_number(at, "the first replica", 0, TRI_BOOT_MAX_REPLICAS - 1, &out->first_replica, err));
  TRI_CHECK(take_number(at, "the number of replicas", 1, TRI_BOOT_MAX_REPLICAS, &out->replicas, err));
  return take_number(at, "the number of ranks", 1, TRI_BOOT_MAX_RANKS, &out->ranks, err);
}

/* Reads the keys of the ranks, the first that is not whole being named. */
static tri_status take_keys(const char **at, tri_boot *out, tri_error *err) {
  TRI_CHECK(alloc_keys(out, err));
  for (size_t i = 0; i < num_keys(out); i++)
    if (!take_word(at, out->secrets[i], TRI_Z_KEY - 1))
      return tri_fail(err, TRI_CORRUPT, "boot_file",
                      "it is cut off or damaged: the key of rank %u of replica %u does not have %d characters",
                      (uint32_t)(i % out->ranks), out->first_replica + (uint32_t)(i / out->ranks), TRI_Z_KEY - 1);
  return TRI_OK;
}

/* The endpoint comes last: the path of a socket may have spaces. */
static tri_status read_text(const char *text, tri_boot *out, tri_error *err) {
  const char *at = text;
  TRI_CHECK(take_head(&at, out, err));
  TRI_CHECK(take_keys(&at, out, err));
  at += strspn(at, " \n");
  size_t len = strcspn(at, "\n");
  bool ok = len && len < sizeof out->endpoint;
  if (ok) memcpy(out->endpoint, at, len);
  if (ok) out->endpoint[len] = '\0';
  return ok ? TRI_OK : tri_fail(err, TRI_CORRUPT, "boot_file", "it is cut off or damaged: it has no address");
}

/* out has nothing where this fails. */
static tri_status take_text(const char *text, tri_boot *out, const char *where, tri_error *err) {
  tri_error why = {0};
  *out = (tri_boot){.replicas = 0};
  snprintf(out->from, sizeof out->from, "%s", where);
  tri_status st = read_text(text, out, &why);
  if (st == TRI_OK) return st;
  tri_boot_free(out);
  return tri_fail(err, st, "boot_file", "%s is no boot file of use: %s", where, why.message);
}

tri_status tri_boot_save(const char *path, const tri_boot *b, tri_error *err) {
  char tmp[4096];
  size_t len = 0;
  snprintf(tmp, sizeof tmp, "%.4000s.new", path);
  char *text = write_text(b, b->first_replica, b->replicas, '\n', &len);
  if (!text) return tri_fail(err, TRI_NO_MEMORY, "boot_file", "no memory");
  unlink(tmp);
  int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool failed = fd < 0 || !tri_file_write_all(fd, text, len);
  int e = errno;
  if (fd >= 0 && close(fd) && !failed) failed = (e = errno);
  if (!failed && rename(tmp, path)) failed = (e = errno);
  wipe(text, text_bytes(num_keys(b)));
  if (!failed) return TRI_OK;
  if (fd >= 0) unlink(tmp);
  return tri_fail(err, TRI_IO, "boot_file", "cannot write %s: %s", path, strerror(e));
}

static tri_status read_file(const char *path, tri_boot *out, tri_error *err) {
  const size_t most = text_bytes((size_t)TRI_BOOT_MAX_REPLICAS * TRI_BOOT_MAX_RANKS);
  struct stat sb;
  char *text = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would hold it up */
  FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
  int e = errno;
  if (!f && fd >= 0) close(fd);
  if (!f) return e == ENOENT ? TRI_AGAIN : tri_fail(err, TRI_IO, "boot_file", "cannot read %s: %s", path, strerror(e));
  tri_status st;
  size_t bytes = 0;
  setvbuf(f, NULL, _IONBF, 0); /* no copy of the keys in a buffer that is freed uncleared */
  if (fstat(fd, &sb) || !S_ISREG(sb.st_mode))
    TRI_TRY(tri_fail(err, TRI_INVALID_ARGUMENT, "boot_file", "%s is not a regular file", path));
  if (sb.st_mode & 077)
    TRI_TRY(tri_fail(err, TRI_PERMISSION, "boot_file", "%s holds keys and may be read by its owner alone (mode 0600)",
                     path));
  bytes = sb.st_size > 0 && (size_t)sb.st_size < most ? (size_t)sb.st_size : most;
  text = tri_calloc(bytes + 1, 1);
  if (!text) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "boot_file", "no memory"));
  text[fread(text, 1, bytes, f)] = '\0';
  TRI_TRY(take_text(text, out, path, err));
cleanup:
  fclose(f);
  wipe(text, bytes);
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

tri_status tri_boot_to_env(const tri_boot *b, uint32_t replica, tri_error *err) {
  size_t len = 0;
  char *text = write_text(b, replica, 1, ' ', &len);
  if (text) text[len - 1] = '\0'; /* no new line */
  bool ok = text && !setenv(TRI_BOOT_ENV, text, 1);
  wipe(text, len);
  return ok ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, TRI_BOOT_ENV, "no memory");
}

/* Others see the environment that a process was started with (/proc) as long as it is not overwritten. */
void tri_boot_clear_env(void) {
  char *text = getenv(TRI_BOOT_ENV);
  if (text) explicit_bzero(text, strlen(text));
  unsetenv(TRI_BOOT_ENV);
}

tri_status tri_boot_from_env(tri_boot *out, tri_error *err) {
  const char *text = getenv(TRI_BOOT_ENV);
  if (!text) return TRI_NOT_FOUND;
  tri_status st = take_text(text, out, TRI_BOOT_ENV, err);
  tri_boot_clear_env();
  return st;
}

int tri_boot_under_mpi(void) { return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK"); }

void tri_boot_host_address(const char *networks, char *out, size_t cap) {
  tri_network n;
  snprintf(out, cap, "%s", tri_network_find(networks, &n) ? n.address : "127.0.0.1");
}
