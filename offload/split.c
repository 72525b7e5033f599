#include "offload/split.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/mem.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* of Linux 6.1; older ones refuse it */
#endif

/* LINE: two cache lines, as neighbours are fetched in pairs. HUGE_PAGE: buffers of small pages are read into at half
 * the rate of some disks. */
enum { LINE = 128, PAGE = 4096, HUGE_PAGE = 2 << 20 };

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
  _Alignas(LINE) struct entry entries[TRI_SPLIT_MAX_BUFFERS]; /* piece n has entry n % num_buffers */
  struct counter taken[TRI_SPLIT_MAX_RANKS];                  /* of this rank's pieces, by each of the others */
};

struct head {
  _Alignas(LINE) uint64_t token;
  struct rank_state ranks[TRI_SPLIT_MAX_RANKS];
  uint64_t words[]; /* [size, num_words] */
};

struct tri_split {
  tri_split_config cfg;
  struct head *head;
  size_t first, stride, bytes; /* of rank 0's buffers, from one rank's to the next, of all */
  int fd;                      /* rank 0's */
};

/* ---- memory ---- */

static bool round_up(size_t bytes, size_t to, size_t *out) {
  if (!tri_size_add(bytes, to - 1, out)) return false;
  *out -= *out % to;
  return true;
}

static tri_status measure(tri_split *s, tri_error *err) {
  const tri_split_config *c = &s->cfg;
  size_t words, all;
  bool fits = c->size >= 2 && c->size <= TRI_SPLIT_MAX_RANKS && c->rank >= 0 && c->rank < c->size &&
              c->num_buffers >= 1 && c->num_buffers <= TRI_SPLIT_MAX_BUFFERS && c->num_words >= 0 && c->buffer_bytes;
  if (!fits || !tri_size_mul((size_t)c->size * sizeof(uint64_t), (size_t)c->num_words, &words) ||
      !tri_size_add(words, sizeof *s->head, &words) || !round_up(words, HUGE_PAGE, &s->first) ||
      !round_up(c->buffer_bytes, HUGE_PAGE, &s->stride) || !tri_size_mul(s->stride, (size_t)c->size, &all) ||
      !tri_size_add(all, s->first, &s->bytes) || s->bytes > INT64_MAX)
    return tri_fail(err, TRI_OUT_OF_RANGE, "split", "%d ranks with %d buffers of %zu bytes: they cannot share memory",
                    c->size, c->num_buffers, c->buffer_bytes);
  return TRI_OK;
}

/* Finds an address for it that begins a huge page. */
static tri_status map(tri_split *s, int fd, tri_error *err) {
  size_t room = s->bytes + HUGE_PAGE;
  char *wide = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (wide == MAP_FAILED) goto failed;
  size_t skip = (HUGE_PAGE - (uintptr_t)wide % HUGE_PAGE) % HUGE_PAGE;
  void *at = mmap(wide + skip, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  if (skip) munmap(wide, skip);
  munmap(wide + skip + s->bytes, HUGE_PAGE - skip);
  if (at == MAP_FAILED) goto failed;
  s->head = at;
  return TRI_OK;
failed:
  return tri_fail(err, TRI_NO_MEMORY, "split", "the system gives no %.1f MiB of shared memory: %s",
                  (double)s->bytes / 0x1p20, strerror(errno));
}

/* Each rank takes its own, so that they lie near it. */
static tri_status take_buffers(tri_split *s, int fd, tri_error *err) {
  size_t at = s->first + (size_t)s->cfg.rank * s->stride;
  char *own = (char *)s->head + at;
  int code = posix_fallocate(fd, (off_t)at, (off_t)s->stride);
  if (code)
    return tri_fail(err, TRI_NO_MEMORY, "split", "the system gives no %.1f MiB of shared memory: %s",
                    (double)s->stride / 0x1p20, strerror(code));
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
  TRI_TRY(take_buffers(s, s->fd, err));
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

tri_status tri_split_open(const tri_split_config *config, const tri_split_name *name, tri_split **out, tri_error *err) {
  tri_split *s = NULL;
  int fd = -1;
  tri_status st;
  TRI_CHECK(make(config, &s, err));
  TRI_TRY(open_file(s, name, &fd, err));
  TRI_TRY(map(s, fd, err));
  if (s->head->token != name->token)
    TRI_TRY(tri_fail(err, TRI_IO, "split", "process %d has other memory there", name->process));
  TRI_TRY(take_buffers(s, fd, err));
  *out = s;
  s = NULL;
cleanup:
  if (fd >= 0) close(fd);
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
size_t tri_split_all_bytes(const tri_split *s) { return s->bytes - s->first; }
void *tri_split_buffers(const tri_split *s, int rank) { return (char *)s->head + s->first + (size_t)rank * s->stride; }

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

/* ---- pieces ---- */

static struct entry *entry_of(const tri_split *s, int rank, uint64_t number) {
  return &state_of(s, rank)->entries[number % (uint64_t)s->cfg.num_buffers];
}

void tri_split_publish(tri_split *s, uint64_t number, size_t at) {
  struct entry *e = entry_of(s, s->cfg.rank, number);
  e->at = at;
  atomic_store_explicit(&e->number, number + 1, memory_order_release);
  wake_others(s);
}

tri_status tri_split_find(const tri_split *s, int rank, uint64_t number, size_t bytes, const char **data) {
  const struct entry *e = entry_of(s, rank, number);
  bool left = has_left(s, rank); /* it may have published just before */
  if (atomic_load_explicit(&e->number, memory_order_acquire) != number + 1) return left ? TRI_PEER_LOST : TRI_AGAIN;
  if (bytes > s->cfg.buffer_bytes || e->at > s->cfg.buffer_bytes - bytes) return TRI_CORRUPT;
  *data = (const char *)tri_split_buffers(s, rank) + e->at;
  return TRI_OK;
}

void tri_split_take(tri_split *s, int rank, uint64_t number) {
  atomic_store_explicit(&state_of(s, rank)->taken[s->cfg.rank].count, number + 1, memory_order_release);
  tri_waker_wake(&state_of(s, rank)->waker);
}

bool tri_split_is_taken(const tri_split *s, uint64_t number) {
  for (int r = 0; r < s->cfg.size; r++)
    if (r != s->cfg.rank && atomic_load_explicit(&own_state(s)->taken[r].count, memory_order_acquire) <= number)
      return false;
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
