/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of the memory, each section from a multiple of HUGE_PAGE on: the head (states of all ranks, then their
 * words), the buffers of rank 0, 1, ..., the home. Each number, count and flag has one writer, which releases it after
 * what it stands for, and readers acquire it. There is no lock, which a rank that dies could leave locked. */
#include "offload/split.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* of Linux 6.1; older ones refuse it */
#endif

/* LINE: two cache lines, as neighbours are fetched in pairs. HUGE_PAGE: buffers of small pages are read into at half
 * the rate of some disks. */
enum { LINE = 128, HUGE_PAGE = TRI_SPLIT_HOME_ALIGN };

/* A piece's place. */
struct entry {
  _Atomic uint64_t number; /* of the piece, + 1 */
  uint64_t at;
};

struct counter {
  _Alignas(LINE) _Atomic uint64_t count;
};

struct rank_state {
  _Alignas(LINE) tri_waker waker;
  _Alignas(LINE) _Atomic uint64_t beats;
  _Atomic int told, left;
  _Atomic int answers[TRI_SPLIT_STAGES]; /* 0: none yet; else a bool + 1 */
  int32_t process;
  _Alignas(LINE) unsigned char card[TRI_SPLIT_CARD_BYTES];
  _Alignas(LINE) struct entry entries[TRI_SPLIT_PIECES]; /* piece n has entry n % TRI_SPLIT_PIECES */
  struct counter taken[TRI_SPLIT_MAX_RANKS];             /* of this rank's pieces, by each of the others */
};

struct head {
  _Alignas(LINE) uint64_t token;
  struct rank_state ranks[TRI_SPLIT_MAX_RANKS];
  uint64_t words[]; /* [size, num_words] */
};

struct tri_split {
  tri_split_config cfg;
  struct head *head;
  size_t first, stride, home, bytes; /* of rank 0's buffers, from one rank's to the next, of the home, of all */
  int fd;
};

/* ---- memory ---- */

static bool round_up(size_t bytes, size_t to, size_t *out) {
  if (!tri_size_add(bytes, to - 1, out)) return false;
  *out -= *out % to;
  return true;
}

static tri_status refuse_memory(size_t bytes, int code, tri_error *err) {
  return tri_fail(err, TRI_NO_MEMORY, "split", "the system gives no %.1f MiB of shared memory: %s",
                  (double)bytes / 0x1p20, strerror(code));
}

static tri_status measure(tri_split *s, tri_error *err) {
  const tri_split_config *c = &s->cfg;
  size_t words, all, home;
  bool fits = c->size >= 2 && c->size <= TRI_SPLIT_MAX_RANKS && c->rank >= 0 && c->rank < c->size &&
              c->num_words >= 0 && c->buffer_bytes;
  if (!fits || !tri_size_mul((size_t)c->size * sizeof(uint64_t), (size_t)c->num_words, &words) ||
      !tri_size_add(words, sizeof *s->head, &words) || !round_up(words, HUGE_PAGE, &s->first) ||
      !round_up(c->buffer_bytes, HUGE_PAGE, &s->stride) || !tri_size_mul(s->stride, (size_t)c->size, &all) ||
      !tri_size_add(all, s->first, &s->home) || !round_up(c->home_bytes, HUGE_PAGE, &home) ||
      !tri_size_add(s->home, home, &s->bytes) || s->bytes > INT64_MAX)
    return tri_fail(err, TRI_OUT_OF_RANGE, "split",
                    "%d ranks with buffers of %zu bytes and a home of %zu: they cannot share memory", c->size,
                    c->buffer_bytes, c->home_bytes);
  return TRI_OK;
}

/* Finds an address for it that begins a huge page. Room for one huge page more is reserved first: mmap places shared
 * mappings at small pages, and only a mapping whose address and offset agree modulo a huge page can have one. What is
 * left over at both ends is given back. */
static tri_status map(tri_split *s, int fd, tri_error *err) {
  size_t room = s->bytes + HUGE_PAGE;
  char *wide = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (wide == MAP_FAILED) return refuse_memory(s->bytes, errno, err);
  size_t skip = (HUGE_PAGE - (uintptr_t)wide % HUGE_PAGE) % HUGE_PAGE;
  void *at = mmap(wide + skip, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0);
  if (skip) munmap(wide, skip);
  munmap(wide + skip + s->bytes, HUGE_PAGE - skip);
  if (at == MAP_FAILED) return refuse_memory(s->bytes, errno, err);
  s->head = at;
  return TRI_OK;
}

/* Each rank takes what it fills or reads most, so that it lies near it. at: a multiple of a page. */
static tri_status take(tri_split *s, size_t at, size_t bytes, tri_error *err) {
  int code = posix_fallocate(s->fd, (off_t)at, (off_t)bytes);
  return code ? refuse_memory(bytes, code, err) : TRI_OK;
}

static tri_status take_buffers(tri_split *s, tri_error *err) {
  char *own = tri_split_buffers(s, s->cfg.rank);
  s->head->ranks[s->cfg.rank].process = getpid();
  TRI_CHECK(take(s, s->first + (size_t)s->cfg.rank * s->stride, s->stride, err));
  madvise(own, s->stride, MADV_HUGEPAGE); /* both are wishes: small pages are slower, not wrong */
  madvise(own, s->stride, MADV_COLLAPSE);
  return TRI_OK;
}

static tri_status make(const tri_split_config *config, tri_split **out, tri_error *err) {
  tri_split *s = tri_calloc(1, sizeof *s);
  if (!s) return tri_fail(err, TRI_NO_MEMORY, "split", "no memory for shared buffers");
  s->cfg = *config;
  s->fd = -1;
  tri_status st = measure(s, err);
  if (st != TRI_OK) tri_free(s);
  if (st == TRI_OK) *out = s;
  return st;
}

static void set_head(tri_split *s, uint64_t token) {
  for (int r = 0; r < s->cfg.size; r++) s->head->ranks[r].waker.between_processes = true;
  s->head->token = token;
}

tri_status tri_split_create(const tri_split_config *config, tri_split_name *name, tri_split **out, tri_error *err) {
  tri_split *s = NULL;
  uint64_t token;
  tri_status st;
  TRI_CHECK(make(config, &s, err));
  s->fd = memfd_create("trireme-split", MFD_CLOEXEC);
  if (s->fd < 0 || ftruncate(s->fd, (off_t)s->bytes) || posix_fallocate(s->fd, 0, (off_t)s->first) ||
      getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token)
    TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "split", "the system gives no shared memory: %s", strerror(errno)));
  TRI_TRY(map(s, s->fd, err));
  TRI_TRY(take_buffers(s, err));
  token |= 1;
  set_head(s, token);
  *name = (tri_split_name){.process = getpid(), .descriptor = s->fd, .token = token};
  *out = s;
  return TRI_OK;
cleanup:
  tri_split_close(s);
  return st;
}

/* The name says which process has it, as which of its open files. */
static tri_status open_file(const tri_split *s, const tri_split_name *name, int *fd, tri_error *err) {
  char path[64];
  struct stat file;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", name->process, name->descriptor);
  *fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (*fd < 0)
    return tri_fail(err, TRI_IO, "split", "cannot open the memory of process %d: %s", name->process, strerror(errno));
  if (fstat(*fd, &file) || !S_ISREG(file.st_mode) || file.st_size != (off_t)s->bytes)
    return tri_fail(err, TRI_IO, "split", "%s is not the memory that was looked for", path);
  return TRI_OK;
}

/* The token tells the memory from another file that the process may have opened under the same number. */
tri_status tri_split_open(const tri_split_config *config, const tri_split_name *name, tri_split **out, tri_error *err) {
  tri_split *s = NULL;
  tri_status st;
  TRI_CHECK(make(config, &s, err));
  TRI_TRY(open_file(s, name, &s->fd, err));
  TRI_TRY(map(s, s->fd, err));
  if (s->head->token != name->token)
    TRI_TRY(tri_fail(err, TRI_IO, "split", "process %d has other memory there", name->process));
  TRI_TRY(take_buffers(s, err));
  *out = s;
  s = NULL;
cleanup:
  tri_split_close(s);
  return st;
}

void tri_split_close(tri_split *s) {
  if (!s) return;
  if (s->head) {
    tri_split_leave(s);
    munmap(s->head, s->bytes);
  }
  if (s->fd >= 0) close(s->fd);
  tri_free(s);
}

int tri_split_rank(const tri_split *s) { return s->cfg.rank; }
int tri_split_size(const tri_split *s) { return s->cfg.size; }
size_t tri_split_buffer_bytes(const tri_split *s) { return s->cfg.buffer_bytes; }
size_t tri_split_all_bytes(const tri_split *s) { return s->home - s->first; }
char *tri_split_home(const tri_split *s) { return (char *)s->head + s->home; }
void *tri_split_buffers(const tri_split *s, int rank) { return (char *)s->head + s->first + (size_t)rank * s->stride; }

tri_status tri_split_take_home(tri_split *s, size_t at, size_t bytes, tri_error *err) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), first = at - at % page, end;
  if (!bytes) return TRI_OK;
  if (!tri_size_add(at, bytes, &end) || !round_up(end, page, &end) || end > s->bytes - s->home)
    return tri_fail(err, TRI_OUT_OF_RANGE, "split", "%zu bytes at %zu are not of shared memory", bytes, at);
  return take(s, s->home + first, end - first, err);
}

/* ---- words ---- */

static struct rank_state *state_of(const tri_split *s, int rank) { return &s->head->ranks[rank]; }
static struct rank_state *own_state(const tri_split *s) { return state_of(s, s->cfg.rank); }

static uint64_t *words_of(const tri_split *s, int rank) {
  return s->head->words + (size_t)rank * (size_t)s->cfg.num_words;
}

static void wake_others(tri_split *s) {
  for (int r = 0; r < s->cfg.size; r++)
    if (r != s->cfg.rank) tri_waker_wake(&state_of(s, r)->waker);
}

void tri_split_tell(tri_split *s, const uint64_t *words) {
  memcpy(words_of(s, s->cfg.rank), words, (size_t)s->cfg.num_words * sizeof *words);
  atomic_store_explicit(&own_state(s)->told, 1, memory_order_release);
}

static bool has_left(const tri_split *s, int rank) {
  return atomic_load_explicit(&state_of(s, rank)->left, memory_order_acquire);
}

tri_status tri_split_hear(const tri_split *s, int rank, const uint64_t **words) {
  bool left = has_left(s, rank); /* it may have told just before */
  if (!atomic_load_explicit(&state_of(s, rank)->told, memory_order_acquire)) return left ? TRI_PEER_LOST : TRI_AGAIN;
  *words = words_of(s, rank);
  return TRI_OK;
}

void *tri_split_card(const tri_split *s, int rank) { return state_of(s, rank)->card; }

void tri_split_answer(tri_split *s, int stage, bool yes) {
  atomic_store_explicit(&own_state(s)->answers[stage], 1 + yes, memory_order_release);
}

tri_status tri_split_answer_of(const tri_split *s, int rank, int stage, bool *yes) {
  bool left = has_left(s, rank); /* it may have answered just before */
  int answer = atomic_load_explicit(&state_of(s, rank)->answers[stage], memory_order_acquire);
  if (!answer) return left ? TRI_PEER_LOST : TRI_AGAIN;
  *yes = answer > 1;
  return TRI_OK;
}

/* ---- pieces ---- */

static struct entry *entry_of(const tri_split *s, int rank, uint64_t number) {
  return &state_of(s, rank)->entries[number % TRI_SPLIT_PIECES];
}

/* The place is written before the number that says it is there. The entry is free: the caller begins no piece before
 * the one TRI_SPLIT_PIECES earlier was taken by all. */
void tri_split_publish(tri_split *s, uint64_t number, size_t at) {
  struct entry *e = entry_of(s, s->cfg.rank, number);
  e->at = at;
  atomic_store_explicit(&e->number, number + 1, memory_order_release);
  wake_others(s);
}

tri_status tri_split_find(const tri_split *s, int rank, uint64_t number, size_t *at) {
  const struct entry *e = entry_of(s, rank, number);
  bool left = has_left(s, rank); /* it may have published just before */
  if (atomic_load_explicit(&e->number, memory_order_acquire) != number + 1) return left ? TRI_PEER_LOST : TRI_AGAIN;
  *at = e->at;
  return TRI_OK;
}

void tri_split_take(tri_split *s, int rank, uint64_t number) {
  atomic_store_explicit(&state_of(s, rank)->taken[s->cfg.rank].count, number + 1, memory_order_release);
  tri_waker_wake(&state_of(s, rank)->waker);
}

bool tri_split_has_taken(const tri_split *s, int rank, uint64_t number) {
  return atomic_load_explicit(&own_state(s)->taken[rank].count, memory_order_acquire) > number || has_left(s, rank);
}

bool tri_split_is_taken(const tri_split *s, uint64_t number) {
  for (int r = 0; r < s->cfg.size; r++)
    if (r != s->cfg.rank && !tri_split_has_taken(s, r, number)) return false;
  return true;
}

/* ---- signs of life ---- */

tri_waker *tri_split_waker(tri_split *s) { return &own_state(s)->waker; }
void tri_split_beat(tri_split *s) { atomic_fetch_add_explicit(&own_state(s)->beats, 1, memory_order_relaxed); }

uint64_t tri_split_beats(const tri_split *s, int rank) {
  return atomic_load_explicit(&state_of(s, rank)->beats, memory_order_relaxed);
}

void tri_split_leave(tri_split *s) {
  atomic_store_explicit(&own_state(s)->left, 1, memory_order_release);
  wake_others(s);
}

/* A process that has not been waited for yet has ended, too, but cannot be told from others here. */
bool tri_split_is_alive(const tri_split *s, int rank) { return !kill(state_of(s, rank)->process, 0) || errno != ESRCH; }
