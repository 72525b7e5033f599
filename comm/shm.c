/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds over shared memory; comm/shm.h says why two slots are enough. */
#include "comm/shm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/mem.h"

enum { LINE = 128 }; /* two cache lines: neighbours are fetched in pairs */

struct round_counter {
  _Alignas(LINE) _Atomic uint64_t published;
};

struct tri_shm {
  struct round_counter *counters; /* one per rank */
  char *slots;                    /* [rank][parity][TRI_SHM_SLOT_BYTES] */
  size_t mapped;
  uint64_t round;
  int rank, size;
  void (*progress)(void *arg);
  void *progress_arg;
};

static size_t bytes_of(int size) {
  return (size_t)size * (sizeof(struct round_counter) + 2 * (size_t)TRI_SHM_SLOT_BYTES);
}

static tri_status map(int fd, int rank, int size, tri_shm **out) {
  tri_shm *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  void *base = mmap(NULL, bytes_of(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    tri_free(s);
    return TRI_NO_MEMORY;
  }
  *s = (tri_shm){.counters = base, .mapped = bytes_of(size), .rank = rank, .size = size};
  s->slots = (char *)base + (size_t)size * sizeof(struct round_counter);
  *out = s;
  return TRI_OK;
}

/* The memory is allocated here, not at the first touch: a host without room for it says so now instead of with a SIGBUS
 * in a step. */
tri_status tri_shm_create(char name[TRI_SHM_NAME_BYTES], int size, tri_shm **out) {
  uint64_t id[2];
  if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id) return TRI_IO;
  snprintf(name, TRI_SHM_NAME_BYTES, "/trireme-%" PRIx64 "%08" PRIx64, id[0], id[1] & 0xffffffff);
  int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0) return TRI_IO;
  tri_status st = posix_fallocate(fd, 0, (off_t)bytes_of(size)) ? TRI_NO_MEMORY : map(fd, 0, size, out);
  if (st != TRI_OK) shm_unlink(name);
  close(fd);
  return st;
}

tri_status tri_shm_open(const char *name, int rank, int size, tri_shm **out) {
  int fd = shm_open(name, O_RDWR, 0);
  if (fd < 0) return TRI_IO;
  tri_status st = map(fd, rank, size, out);
  close(fd);
  return st;
}

void tri_shm_unlink(const char *name) { shm_unlink(name); }

void tri_shm_close(tri_shm *s) {
  if (!s) return;
  munmap(s->counters, s->mapped);
  tri_free(s);
}

void tri_shm_set_progress(tri_shm *s, void (*progress)(void *arg), void *arg) {
  s->progress = progress;
  s->progress_arg = arg;
}

/* This round's slot of a rank. */
static char *slot(const tri_shm *s, int rank) {
  return s->slots + (2 * (size_t)rank + s->round % 2) * TRI_SHM_SLOT_BYTES;
}

/* Begins a round; the caller then fills its slot and calls meet(). */
static char *begin_round(tri_shm *s) {
  s->round++;
  return slot(s, s->rank);
}

/* The release publishes this rank's slot with the number, the acquire makes the others' slots readable. No clock is
 * read before a rank is late. */
static tri_status meet(tri_shm *s, tri_comm *c) {
  atomic_store_explicit(&s->counters[s->rank].published, s->round, memory_order_release);
  tri_wait w = {0};
  for (int r = 0, polls = 0; r < s->size; r++) {
    while (atomic_load_explicit(&s->counters[r].published, memory_order_acquire) < s->round) {
      if (!w.policy) w = tri_wait_begin(&c->cfg.policy, tri_deadline_after_ms(c->cfg.timeout_ms));
      if (++polls % 32 == 0 && s->progress) s->progress(s->progress_arg);
      TRI_CHECK(tri_wait_pause(&w));
      TRI_CHECK(tri_comm_query(c));
    }
  }
  return TRI_OK;
}

/* Adds what lies after the first floats of every slot: a block at a time, so that the sums stay in the first cache
 * while the ranks' addends pass. */
static void sum_slots(const tri_shm *s, size_t first, float *restrict buf, size_t count) {
  enum { BLOCK = 1024 };
  for (size_t at = 0; at < count; at += BLOCK) {
    size_t n = count - at < BLOCK ? count - at : BLOCK;
    memcpy(buf + at, (const float *)slot(s, 0) + first + at, n * sizeof *buf);
    for (int r = 1; r < s->size; r++) {
      const float *restrict part = (const float *)slot(s, r) + first + at;
      for (size_t i = 0; i < n; i++) buf[at + i] += part[i];
    }
  }
}

tri_status tri_shm_all_reduce(tri_shm *s, tri_comm *c, float *buf, size_t count) {
  const size_t most = TRI_SHM_SLOT_BYTES / sizeof *buf;
  for (size_t at = 0; at < count; at += most) {
    size_t n = count - at < most ? count - at : most;
    memcpy(begin_round(s), buf + at, n * sizeof *buf);
    TRI_CHECK(meet(s, c));
    sum_slots(s, 0, buf + at, n);
  }
  return TRI_OK;
}

tri_status tri_shm_all_gather(tri_shm *s, tri_comm *c, const void *send, void *recv, size_t bytes) {
  for (size_t at = 0; at < bytes; at += TRI_SHM_SLOT_BYTES) {
    size_t n = bytes - at < TRI_SHM_SLOT_BYTES ? bytes - at : TRI_SHM_SLOT_BYTES;
    memcpy(begin_round(s), (const char *)send + at, n);
    TRI_CHECK(meet(s, c));
    for (int r = 0; r < s->size; r++) memcpy((char *)recv + (size_t)r * bytes + at, slot(s, r), n);
  }
  return TRI_OK;
}

/* A slot has a piece of the addends for every rank. */
tri_status tri_shm_reduce_scatter(tri_shm *s, tri_comm *c, const float *send, float *recv, size_t count) {
  const size_t size = (size_t)s->size, most = TRI_SHM_SLOT_BYTES / sizeof *recv / size;
  for (size_t at = 0; at < count; at += most) {
    size_t n = count - at < most ? count - at : most;
    float *mine = (float *)begin_round(s);
    for (size_t r = 0; r < size; r++) memcpy(mine + r * n, send + r * count + at, n * sizeof *send);
    TRI_CHECK(meet(s, c));
    sum_slots(s, (size_t)s->rank * n, recv + at, n);
  }
  return TRI_OK;
}

/* In an all-to-all a rank's parts for the others are one stream, a piece of which is in its slot after this. Only the
 * heads tell how many rounds it takes: no rank knows what the others send each other. */
struct stream_head {
  _Alignas(LINE) size_t starts[TRI_SHM_MAX_RANKS + 1]; /* of the parts; starts[size] is the stream's end */
};
enum { PIECE = TRI_SHM_SLOT_BYTES - sizeof(struct stream_head) };

/* Both the part [first, end) of a stream and the stream's piece at `at` have these n bytes. */
struct overlap {
  size_t in_piece, in_part, n;
};

static struct overlap overlap_of(size_t at, size_t first, size_t end) {
  size_t from = at > first ? at : first, to = at + PIECE < end ? at + PIECE : end;
  return from < to ? (struct overlap){from - at, from - first, to - from} : (struct overlap){0};
}

static void put_piece(tri_shm *s, size_t at, const char *send, const size_t *send_bytes) {
  struct stream_head *head = (struct stream_head *)begin_round(s);
  size_t start = 0;
  for (int r = 0; r < s->size; r++) {
    size_t n = r == s->rank ? 0 : send_bytes[r];
    struct overlap o = overlap_of(at, start, start + n);
    memcpy((char *)(head + 1) + o.in_piece, send + o.in_part, o.n);
    head->starts[r] = start;
    start += n;
    send += send_bytes[r];
  }
  head->starts[s->size] = start;
}

/* Sets *end to where the longest stream ends. */
static tri_status take_pieces(const tri_shm *s, size_t at, char *recv, const size_t *recv_bytes, size_t *end) {
  for (int r = 0; r < s->size; recv += recv_bytes[r++]) {
    const struct stream_head *head = (const struct stream_head *)slot(s, r);
    if (head->starts[s->size] > *end) *end = head->starts[s->size];
    if (r == s->rank) continue;
    size_t first = head->starts[s->rank], last = head->starts[s->rank + 1];
    if (last - first != recv_bytes[r]) return TRI_INVALID_ARGUMENT;
    struct overlap o = overlap_of(at, first, last);
    memcpy(recv + o.in_part, (const char *)(head + 1) + o.in_piece, o.n);
  }
  return TRI_OK;
}

/* A rank's part for itself goes through no slot. */
static void copy_own_part(const tri_shm *s, const char *send, const size_t *send_bytes, char *recv,
                          const size_t *recv_bytes) {
  for (int r = 0; r < s->rank; r++) {
    send += send_bytes[r];
    recv += recv_bytes[r];
  }
  memcpy(recv, send, send_bytes[s->rank]);
}

tri_status tri_shm_all_to_all(tri_shm *s, tri_comm *c, const void *send, const size_t *send_bytes, void *recv,
                              const size_t *recv_bytes) {
  if (send_bytes[s->rank] != recv_bytes[s->rank]) return TRI_INVALID_ARGUMENT;
  for (size_t at = 0, end = 1; at < end; at += PIECE) {
    put_piece(s, at, send, send_bytes);
    if (at == 0) copy_own_part(s, send, send_bytes, recv, recv_bytes); /* the others may be late */
    TRI_CHECK(meet(s, c));
    TRI_CHECK(take_pieces(s, at, recv, recv_bytes, &end));
  }
  return TRI_OK;
}

tri_status tri_shm_broadcast(tri_shm *s, tri_comm *c, void *buf, size_t bytes, int root) {
  for (size_t at = 0; at < bytes; at += TRI_SHM_SLOT_BYTES) {
    size_t n = bytes - at < TRI_SHM_SLOT_BYTES ? bytes - at : TRI_SHM_SLOT_BYTES;
    char *mine = begin_round(s);
    if (s->rank == root) memcpy(mine, (char *)buf + at, n);
    TRI_CHECK(meet(s, c));
    if (s->rank != root) memcpy((char *)buf + at, slot(s, root), n);
  }
  return TRI_OK;
}

/* A round whose slots stay as they are. */
tri_status tri_shm_barrier(tri_shm *s, tri_comm *c) {
  begin_round(s);
  return meet(s, c);
}
