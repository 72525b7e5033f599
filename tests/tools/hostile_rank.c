/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody who has one key of a boot file and means ill, and a look at what a process has in its memory.
 *
 *   hostile_rank BOOT as KEY GROUP.RANK EPOCH WORLD
 *                      KEY: GROUP.RANK whose key it has, or `none`, a new pair. Registers as a rank of such an epoch,
 *                      prints what it is told ("refused: WHY", "welcome", or "no connection"), and then says that the
 *                      rank fails and that a step was far ahead
 *   hostile_rank BOOT keys PID
 *                      prints the GROUP.RANK whose secret keys are in the memory or the environment of a process, as
 *                      text or as bytes; exit code 77 where the system forbids to look */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/wire/boot.h"
#include "comm/wire/replica.h"
#include "base/mem.h"
#include "base/version.h"
#include "base/wait.h"

enum { CONNECT_MS = 60000, ANSWER_MS = 60000, LINGER_MS = 300, KEY_BYTES = 32, CHUNK = 1 << 20 };

typedef struct name {
  unsigned replica, rank;
} name;

static int die(const char *what, const char *why) {
  fprintf(stderr, "hostile_rank: %s: %s\n", what, why);
  return 2;
}

/* ---- as ---- */

static tri_status take_key(const tri_boot *b, const char *key, tri_boot_rank *out, tri_error *err) {
  name n;
  if (sscanf(key, "%u.%u", &n.replica, &n.rank) == 2) return tri_boot_of_rank(b, n.replica, n.rank, out, err);
  TRI_CHECK(tri_boot_of_rank(b, 0, 0, out, err));
  return tri_zkeypair_make(&out->own, err);
}

static bool send_msg(tri_zlink *l, tri_buf *buf, tri_replica_msg *m, uint64_t seq) {
  m->seq = seq;
  return tri_replica_msg_pack(m, buf) == TRI_OK && tri_zlink_send_wait(l, buf->data, buf->len, CONNECT_MS) == TRI_OK;
}

/* False: no answer came. */
static bool print_answer(tri_zlink *l, tri_arena *arena) {
  const void *data;
  size_t len;
  int64_t end = tri_deadline_after_ms(ANSWER_MS);
  while (tri_now_ns() < end) {
    tri_replica_msg m;
    tri_error err = {0};
    if (tri_zlink_recv(l, &data, &len) != TRI_OK) {
      usleep(1000);
      continue;
    }
    if (tri_wire_first(data, len, &len, &err) != TRI_OK ||
        tri_replica_msg_unpack(data, len, arena, &m, &err) != TRI_OK || m.op != TRI_REPLICA_WELCOME)
      continue;
    if (m.welcome.ok)
      puts("welcome");
    else
      printf("refused: %.*s\n", (int)m.welcome.message.len, m.welcome.message.s);
    return true;
  }
  return false;
}

static int speak(const tri_boot *boot, const char *key, name as, uint64_t epoch, uint32_t world) {
  static const char version[] = TRIREME_VERSION, why[] = "so a stranger says";
  tri_boot_rank own;
  tri_error err = {0};
  tri_zcontext *z = NULL;
  tri_zlink *l = NULL;
  tri_arena *arena = NULL;
  tri_buf buf = {0};
  int code = 1;
  tri_status st;
  TRI_TRY(take_key(boot, key, &own, &err));
  TRI_TRY(tri_arena_create(64 << 10, &arena));
  TRI_TRY(tri_zcontext_create(&z, &err));
  tri_zlink_config lc = {.endpoint = own.endpoint,
                         .own = &own.own,
                         .server_key = own.server_key,
                         .max_message = TRI_WIRE_MAX_MESSAGE,
                         .backlog = 100,
                         .refuse_unconnected = true};
  TRI_TRY(tri_zlink_open(z, &lc, &l, &err));
  tri_replica_msg reg = {.op = TRI_REPLICA_REGISTER,
                         .reg = {.version = {version, sizeof version - 1},
                                 .host = {"elsewhere", 9},
                                 .replica = as.replica,
                                 .rank = as.rank,
                                 .world = world,
                                 .tp = world,
                                 .pp = 1,
                                 .dp = 1,
                                 .ep = 1,
                                 .epoch = epoch,
                                 .pid = 1}};
  tri_replica_msg health = {.op = TRI_REPLICA_HEALTH,
                            .health = {.replica = as.replica, .rank = as.rank, .epoch = epoch, .step = 1 << 30}};
  tri_replica_msg failed = {.op = TRI_REPLICA_FAILED,
                            .failed = {.replica = as.replica,
                                       .rank = as.rank,
                                       .epoch = epoch,
                                       .code = {"internal", 8},
                                       .message = {why, sizeof why - 1}}};
  code = 0;
  if (!send_msg(l, &buf, &reg, 1)) {
    puts("no connection");
  } else if (print_answer(l, arena)) {
    send_msg(l, &buf, &health, 2);
    send_msg(l, &buf, &failed, 3);
    usleep(LINGER_MS * 1000);
  } else {
    puts("no answer");
  }
cleanup:
  if (st != TRI_OK) code = die("cannot speak", err.message);
  tri_zlink_close(l);
  tri_zcontext_destroy(z);
  tri_arena_destroy(arena);
  tri_buf_free(&buf);
  return code;
}

/* ---- keys ---- */

static void search(const tri_boot *b, const uint8_t *data, size_t len, bool *found) {
  for (uint32_t i = 0; i < b->replicas * b->ranks; i++) {
    uint8_t raw[KEY_BYTES];
    if (found[i] || !tri_zkey_raw(b->secrets[i], raw)) continue;
    found[i] = memmem(data, len, b->secrets[i], TRI_Z_KEY - 1) || memmem(data, len, raw, sizeof raw);
  }
}

/* Parts overlap by what a key has. */
static void search_range(const tri_boot *b, int mem, uint64_t at, uint64_t end, uint8_t *part, bool *found) {
  while (at < end) {
    size_t want = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
    ssize_t n = pread(mem, part, want, (off_t)at);
    if (n <= 0) return;
    search(b, part, (size_t)n, found);
    if ((uint64_t)n <= TRI_Z_KEY || at + (uint64_t)n >= end) return;
    at += (uint64_t)n - TRI_Z_KEY;
  }
}

static int print_keys(const tri_boot *b, const char *pid) {
  char path[64], line[512];
  bool *found = tri_calloc((size_t)b->replicas * b->ranks, sizeof *found);
  uint8_t *part = tri_malloc(CHUNK, 1);
  snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
  FILE *maps = fopen(path, "re");
  snprintf(path, sizeof path, "/proc/%.20s/mem", pid);
  int mem = open(path, O_RDONLY | O_CLOEXEC), code = 2;
  if (!found || !part) goto cleanup;
  if (!maps || mem < 0) {
    code = errno == EPERM || errno == EACCES ? 77 : die(path, strerror(errno));
    goto cleanup;
  }
  while (fgets(line, sizeof line, maps)) {
    unsigned long long from, to;
    char mode[5];
    if (sscanf(line, "%llx-%llx %4s", &from, &to, mode) == 3 && mode[1] == 'w')
      search_range(b, mem, from, to, part, found);
  }
  for (uint32_t i = 0; i < b->replicas * b->ranks; i++)
    if (found[i]) printf("%u.%u\n", b->first_replica + i / b->ranks, i % b->ranks);
  code = 0;
cleanup:
  if (maps) fclose(maps);
  if (mem >= 0) close(mem);
  tri_free(found);
  tri_free(part);
  return code;
}

int main(int argc, char **argv) {
  tri_boot boot = {0};
  tri_error err = {0};
  name as;
  if (argc < 4) return die("usage", "BOOT as KEY GROUP.RANK EPOCH WORLD, or BOOT keys PID");
  if (tri_boot_load(argv[1], tri_now_ns(), &boot, &err) != TRI_OK) return die(argv[1], err.message);
  int code = 2;
  if (!strcmp(argv[2], "keys"))
    code = print_keys(&boot, argv[3]);
  else if (argc == 7 && sscanf(argv[4], "%u.%u", &as.replica, &as.rank) == 2)
    code = speak(&boot, argv[3], as, strtoull(argv[5], NULL, 10), (uint32_t)strtoul(argv[6], NULL, 10));
  tri_boot_free(&boot);
  return code;
}
