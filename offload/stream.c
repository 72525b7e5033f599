/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads: the mover, which this stream has made, and the walk, the caller's. Positions count parts over all
 * passes:
 *
 *   released <= acquired <= arrived <= landed <= next.position
 *
 * The mover may begin a position when the one `back` before it has been released (ring.h), which keeps it from
 * overwriting what the walk still reads. `arrived` is written by the mover and `released` by the walk, each with a
 * release that the other acquires; on a device events order the copies and kernels in the same way, so that neither
 * thread waits for it. */
#include <string.h>
#include <unistd.h>

#include "offload/stream_impl.h"
#include "base/mem.h"
#include "base/xxh3.h"

enum { STALL_MS = 10000, BLOCK = TRI_READER_BLOCK };
static const int64_t NAP_NS = 100000000;           /* between two looks at what has no wake-up */
static const int64_t COPY_NAP_NS = 50000;          /* between two looks at a device's copies */
static const size_t HOME_PIECE = (size_t)64 << 20; /* smaller copies are slower */

/* ---- the mover ---- */

static bool has_room(const tri_weight_stream *s, uint64_t position) {
  uint64_t back = tri_stream_back(s, position);
  return position < back || atomic_load_explicit(&s->released, memory_order_acquire) > position - back;
}

static bool is_same(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Weights of two versions of a file in one step would be no one's model. */
static tri_status check_files(tri_weight_stream *s) {
  for (int i = 0; i < s->cfg.num_files; i++) {
    struct stat now;
    if (fstat(s->cfg.files[i].fd, &now) || !is_same(&now, &s->seen[i]))
      return tri_fail(&s->err, TRI_IO, s->cfg.files[i].path, "%s has changed while its weights were in use",
                      s->cfg.files[i].path);
  }
  return TRI_OK;
}

static int event_of(int first, uint64_t position) { return first + (int)(position % TRI_PART_EVENTS); }

/* Before the first byte of a position is moved. */
static void begin_position(tri_weight_stream *s) {
  tri_backend *be = s->cfg.backend;
  uint64_t position = s->next.position, back = tri_stream_back(s, position);
  if (be && position >= back) {
    int freed = event_of(TRI_EVENT_FREED, position - back);
    be->ops.stream_wait(be, TRI_STREAM_COPY, freed);
    if (s->cfg.rings) be->ops.stream_wait(be, TRI_STREAM_PEER, freed);
  }
  tri_stream_split_begin(s);
}

/* All of it is on its way: once. */
static void end_position(tri_weight_stream *s, uint64_t position) {
  tri_backend *be = s->cfg.backend;
  if (be) be->ops.event_record(be, event_of(TRI_EVENT_ARRIVED, position), TRI_STREAM_COPY);
}

static char *place_of(const tri_weight_stream *s, const tri_stream_extent *x) {
  return s->cfg.ring + s->cfg.places[tri_stream_part_at(s, s->next.position)].at + x->at + s->next.done;
}

/* Has the device copy the next bytes of an extent that is in the host's memory. */
static tri_status start_home(tri_weight_stream *s, const tri_stream_extent *x) {
  tri_backend *be = s->cfg.backend;
  const char *from = x->home + s->next.done;
  char *to = place_of(s, x);
  size_t n = x->bytes - s->next.done;
  if (tri_stream_is_for_all(s, x)) {
    if (!tri_stream_split_can_hold(s) || !tri_stream_can_copy_up(s)) return TRI_AGAIN;
    struct copy c = {.slot = -1, .publishes = true, .giver = -1, .at = (size_t)(to - s->cfg.ring)};
    c.number = tri_stream_split_hold(s, -1);
    tri_stream_copy_up(s, to, from, n, c);
  } else {
    if (n > HOME_PIECE) n = HOME_PIECE;
    be->ops.upload_rows(be, to, n, from, n, n, 1);
  }
  s->next.done += n;
  atomic_fetch_add_explicit(&s->bytes, n, memory_order_relaxed);
  return TRI_OK;
}

/* Begins to read the next bytes of an extent: whole blocks straight to their place where file and memory allow that,
 * else through a buffer. */
static tri_status start_read(tri_weight_stream *s, const tri_stream_extent *x) {
  int part = tri_stream_part_at(s, s->next.position), slot;
  size_t most = s->cfg.reads.piece_bytes, n = x->bytes - s->next.done;
  uint64_t offset = x->offset + s->next.done;
  char *to = place_of(s, x);
  bool for_all = tri_stream_is_for_all(s, x); /* a piece, which comes as one, to where all find it */
  bool in_place = !for_all && !s->cfg.backend && !((offset | (uintptr_t)to) % BLOCK) && n >= BLOCK;
  if (in_place) {
    n = n < most ? n - n % BLOCK : most;
  } else if (!for_all) {
    size_t whole = most - offset % BLOCK; /* ends where a block of the file ends */
    if (n > whole) n = whole;
  }
  if (for_all && !tri_stream_split_can_hold(s)) return TRI_AGAIN;
  TRI_CHECK(in_place ? tri_reader_start_at(s->reader, x->file, offset, n, to, &slot, &s->err)
                     : tri_reader_start(s->reader, x->file, offset, n, &slot, &s->err));
  s->pieces[slot] = (struct piece){.part = part, .to = to, .bytes = n, .in_place = in_place, .is_common = for_all};
  if (for_all) s->pieces[slot].number = tri_stream_split_hold(s, slot);
  s->under_way[part]++;
  s->next.done += n;
  return TRI_OK;
}

/* Begins what is left of the next position. TRI_AGAIN: there is room for no more now. */
static tri_status feed_position(tri_weight_stream *s) {
  const tri_stream_part *part = &s->cfg.parts[tri_stream_part_at(s, s->next.position)];
  if (!s->next.begun) begin_position(s);
  s->next.begun = true;
  while (s->next.extent < part->num_extents) {
    const tri_stream_extent *x = &part->extents[s->next.extent];
    while (s->next.done < x->bytes && !tri_stream_is_others(s, x))
      TRI_CHECK(x->home ? start_home(s, x) : start_read(s, x));
    s->next.extent++;
    s->next.done = 0;
  }
  tri_stream_split_end(s);
  s->next = (struct cursor){.position = s->next.position + 1};
  return TRI_OK;
}

/* Begins as many reads and copies as there is room for. */
static tri_status feed(tri_weight_stream *s) {
  bool room = true;
  while (has_room(s, s->next.position)) {
    if (!s->next.begun) TRI_CHECK(tri_stream_split_look(s, s->next.position, &room));
    tri_status st = room ? feed_position(s) : TRI_AGAIN;
    if (st != TRI_OK) return st == TRI_AGAIN ? TRI_OK : st;
  }
  return TRI_OK;
}

static bool read_all(int fd, const tri_stream_extent *x, char *to) {
  for (size_t done = 0; done < x->bytes;) {
    ssize_t n = pread(fd, to + done, x->bytes - done, (off_t)(x->offset + done));
    if (n <= 0) return false;
    done += (size_t)n;
  }
  return true;
}

/* Bytes that other ranks have read may be wrong where this rank's file is not. */
static bool is_file_right(const tri_weight_stream *s, const tri_stream_extent *x) {
  char *bytes = s->cfg.split ? tri_malloc(x->bytes, 1) : NULL;
  bool right = bytes && read_all(s->cfg.files[x->file].fd, x, bytes) && tri_xxh3(bytes, x->bytes) == x->checksum;
  tri_free(bytes);
  return right;
}

static tri_status refuse(tri_weight_stream *s, const tri_stream_extent *x, int part) {
  const char *path = s->cfg.files[x->file].path;
  if (is_file_right(s, x))
    return tri_fail(&s->err, TRI_IO, path, "of part %d other ranks of this host have read other bytes than %s has",
                    part, path);
  atomic_store_explicit(&s->damaged, x->file, memory_order_relaxed);
  return tri_fail(&s->err, TRI_IO, path,
                  "%s is damaged: the %zu bytes at %llu, of part %d, are not those that were written", path, x->bytes,
                  (unsigned long long)x->offset, part);
}

static tri_status check_part(tri_weight_stream *s, uint64_t position) {
  int part = tri_stream_part_at(s, position);
  const char *at = s->cfg.ring + s->cfg.places[part].at;
  const tri_stream_part *p = &s->cfg.parts[part];
  if (!s->cfg.has_checksums || position >= (uint64_t)s->cfg.num_parts) return TRI_OK;
  for (int i = 0; i < (p->checked ? p->num_checked : p->num_extents); i++) {
    const tri_stream_extent *x = p->checked ? &p->checked[i] : &p->extents[i];
    if (tri_xxh3(at + x->at, x->bytes) != x->checksum) return refuse(s, x, part);
  }
  return TRI_OK;
}

/* Tells the walk of parts that have become whole. A pass gets its last one when all of it is of the same files. */
static tri_status tell(tri_weight_stream *s) {
  tri_status st = TRI_OK;
  uint64_t landed = s->landed;
  while (s->landed < s->next.position) {
    int part = tri_stream_part_at(s, s->landed);
    if (s->under_way[part] || tri_stream_missing(s, part)) break;
    st = check_part(s, s->landed);
    if (st == TRI_OK && part == s->cfg.num_parts - 1) st = check_files(s);
    if (st != TRI_OK) break;
    end_position(s, s->landed++);
  }
  if (landed == s->landed) return st;
  atomic_store_explicit(&s->arrived, s->landed, memory_order_release);
  tri_waker_wake(&s->walk);
  return st;
}

/* Takes in what has come. TRI_AGAIN: nothing is under way. With a device the buffer stays taken until its copy has
 * ended (settle in stream_copies.c); that of a piece for all until the others have it, too. */
static tri_status land(tri_weight_stream *s) {
  int slot;
  void *data;
  TRI_CHECK(tri_reader_next(s->reader, &slot, &data, &s->err));
  const struct piece *p = &s->pieces[slot];
  if (p->is_common && !s->cfg.rings)
    tri_stream_publish(s, p->number, (size_t)((char *)data - (char *)s->cfg.reads.memory));
  if (s->cfg.backend) {
    struct copy c = {.slot = slot, .giver = -1, .number = p->number, .at = (size_t)(p->to - s->cfg.ring)};
    c.publishes = p->is_common && s->cfg.rings;
    tri_stream_copy_up(s, p->to, data, p->bytes, c);
  } else {
    if (!p->in_place) memcpy(p->to, data, p->bytes);
    if (!p->is_common) tri_reader_release(s->reader, slot);
  }
  s->under_way[p->part]--;
  atomic_fetch_add_explicit(&s->bytes, p->bytes, memory_order_relaxed);
  atomic_fetch_add_explicit(&s->read, p->bytes, memory_order_release); /* never seen to be more than bytes */
  return TRI_OK;
}

/* One turn. TRI_AGAIN: nothing is under way but copies and other ranks' reads. What frees buffers and places comes
 * first, then what fills them; land waits for one of the reads under way. */
static tri_status turn(tri_weight_stream *s) {
  if (tri_stream_copies(s)) TRI_CHECK(tri_stream_retire_copies(s));
  tri_stream_split_retire(s);
  TRI_CHECK(feed(s));
  TRI_CHECK(tri_stream_split_take(s));
  TRI_CHECK(tell(s));
  TRI_CHECK(land(s));
  return tell(s);
}

static void *move(void *ctx) {
  tri_weight_stream *s = ctx;
  tri_status st = TRI_OK;
  tri_aio_leave_core();
  if (s->cfg.backend) s->cfg.backend->ops.join_thread(s->cfg.backend);
  while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
    st = turn(s);
    if (st != TRI_OK && st != TRI_AGAIN) break;
    if (st == TRI_AGAIN) tri_waker_sleep(s->mover, tri_stream_copies(s) ? COPY_NAP_NS : NAP_NS);
    st = TRI_OK;
  }
  if (st == TRI_OK) return NULL;
  if (!s->err.status) tri_fail(&s->err, st, "io", "weights cannot be read: %s", tri_status_text(st));
  atomic_store_explicit(&s->failed, st, memory_order_release);
  if (s->cfg.split) tri_split_leave(s->cfg.split); /* the others wait for this rank's pieces */
  tri_waker_wake(&s->walk);
  return NULL;
}

/* ---- the walk ---- */

/* Waits until the position is whole. *start: when the wait began; 0: there was none. */
static tri_status wait_for(tri_weight_stream *s, uint64_t position, int64_t *start) {
  *start = 0;
  if (atomic_load_explicit(&s->arrived, memory_order_acquire) > position) return TRI_OK;
  atomic_store_explicit(&s->wanted, position + 1, memory_order_relaxed);
  while (atomic_load_explicit(&s->arrived, memory_order_acquire) <= position) {
    int failed = atomic_load_explicit(&s->failed, memory_order_acquire);
    if (failed) return (tri_status)failed;
    if (s->cfg.stop && atomic_load_explicit(s->cfg.stop, memory_order_relaxed)) return TRI_ABORTED;
    if (!*start) *start = tri_now_ns();
    tri_waker_sleep(&s->walk, NAP_NS);
  }
  return TRI_OK;
}

tri_status tri_weight_stream_fill(tri_weight_stream *s, double *bytes_per_second) {
  uint64_t last = 0, bytes = 0;
  int64_t waited;
  int most = s->cfg.first_parts;
  while (has_room(s, last + 1) && (!most || last + 1 < (uint64_t)most)) last++; /* nothing has been released */
  TRI_CHECK(wait_for(s, last, &waited));
  if (s->cfg.backend) s->cfg.backend->ops.event_wait(s->cfg.backend, event_of(TRI_EVENT_ARRIVED, last));
  for (uint64_t p = 0; p <= last; p++) bytes += s->cfg.part_bytes[tri_stream_part_at(s, p)];
  *bytes_per_second = (double)bytes / ((double)(tri_now_ns() - s->created) * 1e-9);
  return TRI_OK;
}

/* On a device the host waits until the copies have been queued, and the compute stream until they have ended. */
tri_status tri_weight_stream_acquire(tri_weight_stream *s, int part) {
  uint64_t position = s->acquired;
  int64_t start;
  if (part != tri_stream_part_at(s, position)) return TRI_INTERNAL;
  if (!part) s->pass_start = tri_now_ns();
  TRI_CHECK(wait_for(s, position, &start));
  if (start) atomic_fetch_add_explicit(&s->stall_ns, (uint64_t)(tri_now_ns() - start), memory_order_relaxed);
  if (s->cfg.backend)
    s->cfg.backend->ops.stream_wait(s->cfg.backend, TRI_STREAM_COMPUTE, event_of(TRI_EVENT_ARRIVED, position));
  s->acquired++;
  return TRI_OK;
}

static void note_pass(tri_weight_stream *s) {
  int64_t now = tri_now_ns();
  atomic_store_explicit(&s->pass_ns, (uint64_t)(now - s->pass_start), memory_order_relaxed);
  atomic_fetch_add_explicit(&s->passes, 1, memory_order_relaxed);
}

void tri_weight_stream_release(tri_weight_stream *s, int part) {
  uint64_t position = atomic_load_explicit(&s->released, memory_order_relaxed);
  tri_backend *be = s->cfg.backend;
  if (be) be->ops.event_record(be, event_of(TRI_EVENT_FREED, position), TRI_STREAM_COMPUTE);
  if (s->cfg.poison && !be) memset(s->cfg.ring + s->cfg.places[part].at, 0xff, s->cfg.part_bytes[part]);
  if (part == s->cfg.num_parts - 1) note_pass(s);
  atomic_fetch_add_explicit(&s->released, 1, memory_order_release);
  tri_waker_wake(s->mover);
}

int tri_weight_stream_damaged_file(const tri_weight_stream *s) {
  return atomic_load_explicit(&s->damaged, memory_order_relaxed);
}

const char *tri_weight_stream_failure(const tri_weight_stream *s) {
  return atomic_load_explicit(&s->failed, memory_order_acquire) ? s->err.message : "";
}

tri_stream_figures tri_weight_stream_figures(const tri_weight_stream *s) {
  uint64_t read = atomic_load_explicit(&s->read, memory_order_acquire); /* both before bytes */
  uint64_t peer = atomic_load_explicit(&s->peer, memory_order_acquire);
  return (tri_stream_figures){.bytes = atomic_load_explicit(&s->bytes, memory_order_relaxed),
                              .read = read,
                              .peer = peer,
                              .stall_ns = atomic_load_explicit(&s->stall_ns, memory_order_relaxed),
                              .passes = atomic_load_explicit(&s->passes, memory_order_relaxed),
                              .pass_ns = atomic_load_explicit(&s->pass_ns, memory_order_relaxed)};
}

/* ---- from nothing and back ---- */

static tri_status open_files(tri_weight_stream *s, tri_error *err) {
  for (int i = 0; i < s->cfg.num_files; i++) {
    const tri_stream_file *f = &s->cfg.files[i];
    int number;
    if (fstat(f->fd, &s->seen[i])) return tri_fail(err, TRI_IO, f->path, "cannot look at %s", f->path);
    TRI_CHECK(tri_reader_add_file(s->reader, f->fd, f->path, &number, err));
  }
  return TRI_OK;
}

tri_status tri_weight_stream_create(const tri_weight_stream_config *config, tri_weight_stream **out, tri_error *err) {
  tri_status st;
  tri_weight_stream *s = tri_calloc(1, sizeof *s);
  if (!s) return tri_fail(err, TRI_NO_MEMORY, "io", "no memory for a stream of weights");
  s->cfg = *config;
  s->created = tri_now_ns();
  s->damaged = -1;
  s->mover = &s->own_mover;
  if (!s->cfg.reads.timeout_ms) s->cfg.reads.timeout_ms = STALL_MS;
  TRI_TRY(tri_reader_create(&s->cfg.reads, &s->reader, err));
  s->seen = tri_calloc((size_t)config->num_files, sizeof *s->seen);
  s->under_way = tri_calloc((size_t)config->num_parts, sizeof *s->under_way);
  s->pieces = tri_calloc((size_t)config->reads.num_buffers, sizeof *s->pieces);
  if (!s->seen || !s->under_way || !s->pieces)
    TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "io", "no memory for a stream of %d parts", config->num_parts));
  TRI_TRY(tri_stream_split_create(s, err));
  TRI_TRY(open_files(s, err));
  if (pthread_create(&s->thread, NULL, move, s))
    TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "io", "no thread to read weights"));
  s->has_thread = true;
  *out = s;
  return TRI_OK;
cleanup:
  tri_weight_stream_destroy(s);
  return st;
}

bool tri_weight_stream_destroy(tri_weight_stream *s) {
  if (!s) return true;
  atomic_store(&s->stop, true);
  tri_waker_wake(s->mover);
  if (s->has_thread) pthread_join(s->thread, NULL);
  if (s->has_thread && s->cfg.backend) tri_stream_end_copies(s);
  tri_stream_split_destroy(s);
  bool ended = tri_reader_destroy(s->reader);
  tri_free(s->seen);
  tri_free(s->under_way);
  tri_free(s->pieces);
  tri_free(s);
  return ended;
}
