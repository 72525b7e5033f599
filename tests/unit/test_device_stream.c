/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed weights of a device, on one that does what is on its streams whenever it likes: every part that a launch
 * reads is whole and its own, from files, from the host's memory and from other devices' rings, whatever the order of
 * copies and launches. Places are filled with 0xff before anything new comes there. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/stream.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/wait.h"

Suite *suite_device_stream(void);

/* ---- a device ---- */

enum { QUEUE = 4096 };

typedef enum act { COPY, ACROSS, MARK, WAIT, READ } act;

struct action {
  act what;
  char *to;
  const char *from;
  size_t bytes;
  int event, part;
  uint64_t version;
  uint64_t place; /* of a wait for one: its number, from 1 on */
};

struct model;

struct device {
  tri_backend backend;
  pthread_mutex_t lock;
  pthread_t thread;
  struct {
    struct action actions[QUEUE];
    uint64_t begun, ended;
  } streams[TRI_STREAM_COUNT];
  uint64_t recorded[TRI_EVENTS], done[TRI_EVENTS];
  uint64_t seed;
  const struct model *model;
  int wrong, reads, joined;
  uint64_t waits[TRI_STREAM_COUNT], next[TRI_STREAM_COUNT]; /* for places; the next position that waits */
  uint64_t poisoned;                                        /* waits behind which the place was filled */
  size_t uploaded, across;                                  /* bytes from the host, and from other devices */
  bool stop;
};

static uint64_t draw(uint64_t *seed, uint64_t most) { return tri_splitmix64(seed) % most; }
static struct device *device_of(tri_backend *be) { return (struct device *)be; }

/* Under the lock. Assertions are for one thread at a time. */
static void put(struct device *d, tri_stream stream, struct action a) {
  if (d->streams[stream].begun - d->streams[stream].ended >= QUEUE) abort();
  d->streams[stream].actions[d->streams[stream].begun++ % QUEUE] = a;
}

static void begin(struct device *d, tri_stream stream, struct action a) {
  pthread_mutex_lock(&d->lock);
  put(d, stream, a);
  pthread_mutex_unlock(&d->lock);
}

static void upload_rows(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows) {
  if (rows != 1 || to_pitch != width || from_pitch != width) abort();
  begin(device_of(be), TRI_STREAM_COPY, (struct action){.what = COPY, .to = to, .from = from, .bytes = width});
}

static void peer_copy(tri_backend *be, void *to, const void *from, size_t bytes) {
  begin(device_of(be), TRI_STREAM_PEER, (struct action){.what = ACROSS, .to = to, .from = from, .bytes = bytes});
}

static void event_record(tri_backend *be, int event, tri_stream stream) {
  struct device *d = device_of(be);
  pthread_mutex_lock(&d->lock);
  put(d, stream, (struct action){.what = MARK, .event = event, .version = ++d->recorded[event]});
  pthread_mutex_unlock(&d->lock);
}

static void stream_wait(tri_backend *be, tri_stream stream, int event);

static tri_status event_query(tri_backend *be, int event) {
  struct device *d = device_of(be);
  pthread_mutex_lock(&d->lock);
  bool done = d->done[event] == d->recorded[event];
  pthread_mutex_unlock(&d->lock);
  return done ? TRI_OK : TRI_AGAIN;
}

static tri_status event_wait(tri_backend *be, int event) {
  while (event_query(be, event) == TRI_AGAIN) usleep(20);
  return TRI_OK;
}

static void join_thread(tri_backend *be) { device_of(be)->joined++; }

/* ---- a model of bytes ---- */

enum { PARTS = 11, PIECES = 5, FILE_BYTES = 1 << 20, MOST = 20000, READS = 6 };
#define PATH TRI_TEST_SCRATCH "/device_stream.bin"

struct model {
  tri_stream_extent extents[PARTS], pieces[PARTS][PIECES]; /* whole parts; and cut, where ranks have them in common */
  tri_stream_part parts[PARTS];
  size_t bytes[PARTS];
  tri_ring_place places[PARTS];
  char *ring, *file, *buffers;
  char *opened; /* the ring, where other ranks find it */
  size_t ring_bytes, buffer_bytes;
  tri_stream_file at;
};

/* Every third part lies in the host's memory. */
static void make_model(struct model *m, uint64_t seed, int ring_parts) {
  *m = (struct model){.file = tri_malloc(FILE_BYTES, 1)};
  for (size_t i = 0; i < FILE_BYTES; i++) m->file[i] = (char)(i * 13 + i / 5000);
  m->at = (tri_stream_file){open(PATH, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), PATH};
  ck_assert(m->at.fd >= 0 && write(m->at.fd, m->file, FILE_BYTES) == FILE_BYTES);
  for (int i = 0; i < PARTS; i++) {
    m->bytes[i] = tri_splitmix64(&seed) % MOST + 1;
    m->extents[i] = (tri_stream_extent){.offset = tri_splitmix64(&seed) % (FILE_BYTES - MOST), .bytes = m->bytes[i]};
    m->parts[i] = (tri_stream_part){.extents = &m->extents[i], .num_extents = 1};
    if (i % 3 == 0) m->extents[i].home = m->file + m->extents[i].offset;
  }
  m->ring_bytes = tri_ring_bytes(m->bytes, PARTS, ring_parts);
  ck_assert(tri_ring_plan(m->bytes, PARTS, m->ring_bytes, m->places));
  int fd = memfd_create("ring", MFD_CLOEXEC);
  ck_assert(fd >= 0 && !ftruncate(fd, (off_t)m->ring_bytes));
  m->ring = mmap(NULL, m->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  m->opened = mmap(NULL, m->ring_bytes, PROT_READ, MAP_SHARED, fd, 0);
  ck_assert(m->ring != MAP_FAILED && m->opened != MAP_FAILED);
  close(fd);
}

static void free_model(struct model *m) {
  close(m->at.fd);
  unlink(PATH);
  munmap(m->ring, m->ring_bytes);
  munmap(m->opened, m->ring_bytes);
  tri_pages_free(m->buffers, m->buffer_bytes);
  tri_free(m->file);
}

/* ---- what the device does ---- */

/* Finds whose place a stream waits for: every position does that does not find an empty one. Under the lock. */
static void note_place(struct device *d, tri_stream stream, struct action *a) {
  uint64_t *next = &d->next[stream];
  while (*next < (uint64_t)d->model->places[*next % PARTS].back) ++*next;
  a->part = (int)((*next)++ % PARTS);
  a->place = ++d->waits[stream];
}

/* The last mark counts, as it is now. */
static void stream_wait(tri_backend *be, tri_stream stream, int event) {
  struct device *d = device_of(be);
  pthread_mutex_lock(&d->lock);
  struct action a = {.what = WAIT, .event = event, .version = d->recorded[event]};
  if (stream != TRI_STREAM_COMPUTE) note_place(d, stream, &a);
  put(d, stream, a);
  pthread_mutex_unlock(&d->lock);
}

/* The first stream that may write to a place finds nothing of what was there. */
static void poison(struct device *d, const struct action *a) {
  if (a->place <= d->poisoned) return;
  memset(d->model->ring + d->model->places[a->part].at, 0xff, d->model->bytes[a->part]);
  d->poisoned = a->place;
}

static void copy(const struct action *a, size_t *sum) {
  memcpy(a->to, a->from, a->bytes);
  *sum += a->bytes;
}

static void read_part(struct device *d, int part) {
  const struct model *m = d->model;
  d->reads++;
  d->wrong += memcmp(m->ring + m->places[part].at, m->file + m->extents[part].offset, m->bytes[part]) != 0;
}

/* One action of a stream, if it can be done. Under the lock. */
static void advance(struct device *d, int stream) {
  if (d->streams[stream].ended == d->streams[stream].begun) return;
  struct action a = d->streams[stream].actions[d->streams[stream].ended % QUEUE];
  if (a.what == WAIT && d->done[a.event] < a.version) return;
  if (a.what == WAIT && a.place) poison(d, &a);
  if (a.what == COPY) copy(&a, &d->uploaded);
  if (a.what == ACROSS) copy(&a, &d->across);
  if (a.what == READ) read_part(d, a.part);
  if (a.what == MARK) d->done[a.event] = a.version;
  d->streams[stream].ended++;
}

/* For a while one stream alone goes on, then another one. */
static void *work(void *ctx) {
  struct device *d = ctx;
  for (bool on = true; on;) {
    int stream = (int)(tri_splitmix64(&d->seed) % TRI_STREAM_COUNT), turns = (int)(tri_splitmix64(&d->seed) % 20);
    for (int turn = 0; turn < turns; turn++) {
      pthread_mutex_lock(&d->lock);
      for (int i = 0; i < 5; i++) advance(d, stream);
      on = !d->stop;
      pthread_mutex_unlock(&d->lock);
      sched_yield();
    }
  }
  return NULL;
}

static void start_device(struct device *d, const struct model *m, uint64_t seed) {
  *d = (struct device){.seed = seed, .model = m};
  d->backend.ops = (tri_backend_ops){.upload_rows = upload_rows,
                                     .peer_copy = peer_copy,
                                     .event_record = event_record,
                                     .stream_wait = stream_wait,
                                     .event_query = event_query,
                                     .event_wait = event_wait,
                                     .join_thread = join_thread};
  pthread_mutex_init(&d->lock, NULL);
  ck_assert_int_eq(pthread_create(&d->thread, NULL, work, d), 0);
}

static void stop_device(struct device *d) {
  for (bool idle = false; !idle; usleep(100)) {
    pthread_mutex_lock(&d->lock);
    idle = true;
    for (int i = 0; i < TRI_STREAM_COUNT; i++) idle &= d->streams[i].begun == d->streams[i].ended;
    d->stop = idle;
    pthread_mutex_unlock(&d->lock);
  }
  pthread_join(d->thread, NULL);
  pthread_mutex_destroy(&d->lock);
}

static void launch_read(struct device *d, int part) {
  begin(d, TRI_STREAM_COMPUTE, (struct action){.what = READ, .part = part});
}

/* ---- cases ---- */

static tri_weight_stream_config config_of(struct model *m, struct device *d) {
  return (tri_weight_stream_config){.files = &m->at,
                                    .num_files = 1,
                                    .parts = m->parts,
                                    .part_bytes = m->bytes,
                                    .places = m->places,
                                    .num_parts = PARTS,
                                    .backend = &d->backend,
                                    .ring = m->ring,
                                    .reads = {.piece_bytes = 8192, .num_buffers = READS}};
}

START_TEST(launches_find_their_parts) {
  static struct device d;
  for (uint64_t seed = 1; seed <= 6; seed++) {
    struct model m;
    tri_weight_stream *s = NULL;
    tri_error err = {0};
    make_model(&m, seed, _i);
    start_device(&d, &m, seed);
    tri_weight_stream_config config = config_of(&m, &d);
    ck_assert_msg(tri_weight_stream_create(&config, &s, &err) == TRI_OK, "%s", err.message);
    for (int i = 0; i < 8 * PARTS; i++) {
      ck_assert_int_eq(tri_weight_stream_acquire(s, i % PARTS), TRI_OK);
      for (int k = 0; k < 3; k++) launch_read(&d, i % PARTS);
      tri_weight_stream_release(s, i % PARTS);
    }
    ck_assert(tri_weight_stream_figures(s).passes == 8);
    ck_assert(tri_weight_stream_destroy(s));
    stop_device(&d);
    ck_assert_msg(!d.wrong && d.reads == 24 * PARTS, "%d of %d reads are wrong", d.wrong, d.reads);
    ck_assert_int_eq(d.joined, 1);
    free_model(&m);
  }
}
END_TEST

/* ---- several ranks with a device each ---- */

enum { MOST_RANKS = 3, PASSES = 8 };

struct rank {
  struct model m;
  struct device d;
  tri_split *split;
  tri_weight_stream *stream;
  tri_stream_ring rings[MOST_RANKS];
  uint64_t seed;
  bool ended;
  tri_status status;
};

struct world {
  int size;
  bool gathers; /* the devices reach each other's rings */
  tri_split_name name;
  struct rank ranks[MOST_RANKS];
};

/* The same on all ranks but for the last part, of which each has its own. Without reaching, what is in the host's
 * memory is each rank's own, too. reader: of everything; -1: drawn. */
static void cut_parts(const struct world *w, struct model *m, uint64_t seed, int reader) {
  for (int i = 0; i < PARTS; i++) {
    size_t n = 0, left = m->bytes[i], share = left / PIECES + 1;
    tri_stream_extent x = m->extents[i];
    for (; left; left -= x.bytes, n++) {
      x.at = m->bytes[i] - left;
      x.bytes = left < share ? left : share;
      x.offset = m->extents[i].offset + x.at;
      if (m->extents[i].home) x.home = m->extents[i].home + x.at;
      x.reader = 1 + (reader < 0 ? (int)draw(&seed, (uint64_t)w->size) : reader);
      if (i == PARTS - 1 || (x.home && !w->gathers)) x.reader = 0;
      m->pieces[i][n] = x;
    }
    m->parts[i] = (tri_stream_part){.extents = m->pieces[i], .num_extents = (int)n};
  }
}

static void make_world(struct world *w, int size, bool gathers, uint64_t seed, int ring_parts, int reader) {
  *w = (struct world){.size = size, .gathers = gathers};
  for (int r = 0; r < size; r++) {
    w->ranks[r].seed = seed * 5 + (uint64_t)r;
    make_model(&w->ranks[r].m, seed, ring_parts + r);
    cut_parts(w, &w->ranks[r].m, seed, reader);
  }
}

static void free_world(struct world *w) {
  for (int r = 0; r < w->size; r++) {
    tri_split_close(w->ranks[r].split);
    free_model(&w->ranks[r].m);
  }
}

static const tri_reader_config common_reads = {.piece_bytes = 5 * TRI_READER_BLOCK, .num_buffers = READS};

static tri_status open_split(struct world *w, int rank, tri_error *err) {
  tri_split_config sc = {.rank = rank, .size = w->size, .buffer_bytes = tri_reader_memory_bytes(&common_reads)};
  tri_split **s = &w->ranks[rank].split;
  return rank ? tri_split_open(&sc, &w->name, s, err) : tri_split_create(&sc, &w->name, s, err);
}

static tri_status try_rank(struct world *w, int rank, int timeout_ms, tri_error *err) {
  struct rank *r = &w->ranks[rank];
  if (!r->split) TRI_CHECK(open_split(w, rank, err));
  for (int i = 0; i < w->size; i++) r->rings[i] = (tri_stream_ring){w->ranks[i].m.opened, w->ranks[i].m.ring_bytes};
  start_device(&r->d, &r->m, r->seed);
  tri_weight_stream_config config = config_of(&r->m, &r->d);
  config.reads = common_reads;
  config.reads.timeout_ms = timeout_ms;
  config.reads.memory = tri_split_buffers(r->split, rank);
  config.split = r->split;
  config.rings = w->gathers ? r->rings : NULL;
  return tri_weight_stream_create(&config, &r->stream, err);
}

static void open_rank(struct world *w, int rank, int timeout_ms) {
  tri_error err = {0};
  ck_assert_msg(try_rank(w, rank, timeout_ms, &err) == TRI_OK, "%s", err.message);
}

static void nap(struct rank *r) { usleep((useconds_t)(draw(&r->seed, 4) ? 0 : draw(&r->seed, 500))); }

static tri_status walk(struct rank *r, int steps) {
  for (int i = 0; i < steps; i++) {
    nap(r);
    TRI_CHECK(tri_weight_stream_acquire(r->stream, i % PARTS));
    for (int k = 0; k < 3; k++) launch_read(&r->d, i % PARTS);
    nap(r);
    tri_weight_stream_release(r->stream, i % PARTS);
  }
  return TRI_OK;
}

/* A rank that has done its passes leaves, while others may still copy from its ring, which stays. */
static void *run_rank(void *ctx) {
  struct rank *r = ctx;
  r->status = walk(r, PASSES * PARTS);
  r->ended = tri_weight_stream_destroy(r->stream);
  stop_device(&r->d);
  return NULL;
}

/* Bytes that all have in common go over one link in a pass, and a stream is a pass ahead at most. */
static void check_links(const struct world *w) {
  size_t common = 0, own = w->ranks[0].m.bytes[PARTS - 1], uploaded = 0, across = 0;
  for (int i = 0; i < PARTS - 1; i++) common += w->ranks[0].m.bytes[i];
  for (int r = 0; r < w->size; r++) {
    uploaded += w->ranks[r].d.uploaded;
    across += w->ranks[r].d.across;
  }
  size_t others = w->gathers ? (size_t)w->size - 1 : 0, gathered = common * others;
  size_t once = (common + own) * (size_t)w->size - gathered;
  ck_assert(uploaded >= PASSES * once && uploaded <= (PASSES + 1) * once);
  ck_assert(across >= PASSES * gathered && across <= (PASSES + 1) * gathered);
}

static void run_world(int size, bool gathers, uint64_t seed, int ring_parts, int reader) {
  static struct world w;
  pthread_t threads[MOST_RANKS];
  make_world(&w, size, gathers, seed, ring_parts, reader);
  for (int r = 0; r < size; r++) open_rank(&w, r, 0);
  for (int r = 0; r < size; r++) ck_assert(!pthread_create(&threads[r], NULL, run_rank, &w.ranks[r]));
  for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
  for (int r = 0; r < size; r++) {
    const struct device *d = &w.ranks[r].d;
    ck_assert_msg(w.ranks[r].status == TRI_OK, "rank %d: %s", r, tri_status_text(w.ranks[r].status));
    ck_assert(w.ranks[r].ended);
    ck_assert_msg(!d->wrong && d->reads == 3 * PASSES * PARTS, "%d of %d reads are wrong", d->wrong, d->reads);
  }
  check_links(&w);
  free_world(&w);
}

/* A part's file is read by one of them, and goes to all devices from its buffers. */
START_TEST(devices_that_share_reads) {
  for (uint64_t seed = 1; seed <= 4; seed++) run_world(2, false, seed, _i, -1);
}
END_TEST

/* Each piece goes over one device's link, and from there to the others. */
START_TEST(devices_that_gather) {
  for (uint64_t seed = 1; seed <= 3; seed++)
    for (int size = 2; size <= MOST_RANKS; size++) run_world(size, true, seed, _i, -1);
  run_world(2, true, 9, _i, 1); /* one of them reads all */
}
END_TEST

/* Returns false where it was the rank's own thread that did not come in time. */
static bool expect_loss(struct rank *r) {
  tri_status st = walk(r, 1000 * PARTS);
  if (st == TRI_TIMEOUT) return false;
  ck_assert_msg(st == TRI_PEER_LOST, "%s", tri_status_text(st));
  ck_assert_ptr_nonnull(strstr(tri_weight_stream_failure(r->stream), "rank 1 of the 2 "));
  return true;
}

static void close_rank(struct rank *r) {
  ck_assert(tri_weight_stream_destroy(r->stream));
  stop_device(&r->d);
}

enum { NEVER_MS = 3600000 }; /* longer than the suite may take */

/* Bytes that it has brought to its ring are still there for the others; those that it has not are missed at once. */
START_TEST(a_device_that_leaves) {
  static struct world w;
  make_world(&w, 2, true, 3, 2, -1);
  for (int r = 0; r < 2; r++) open_rank(&w, r, NEVER_MS);
  usleep(20000);
  close_rank(&w.ranks[1]);
  ck_assert(expect_loss(&w.ranks[0]));
  close_rank(&w.ranks[0]);
  ck_assert(!w.ranks[0].d.wrong);
  free_world(&w);
}
END_TEST

static const struct loss { int signal, reader; } losses[] = {{SIGKILL, -1}, {SIGSTOP, 0}};

/* Rank 1 is a process that gets the signal in its third pass, and rank 0 walks on until it takes it for lost after so
 * much silence. Returns whether that was behind the two passes that rank 1 had a part in: where a busy machine leaves a
 * process without a core for so long, it is before. */
static bool is_lost_by_signal(struct loss l, int silence_ms) {
  static struct world w;
  make_world(&w, 2, true, 5, 2, l.reader);
  tri_error err = {0};
  ck_assert_int_eq(open_split(&w, 0, &err), TRI_OK);
  pid_t child = fork(); /* before there are threads */
  ck_assert_int_ge(child, 0);
  if (!child) {
    open_rank(&w, 1, NEVER_MS);
    if (walk(&w.ranks[1], 2 * PARTS + 4) == TRI_OK) raise(l.signal);
    _exit(1);
  }
  open_rank(&w, 0, silence_ms);
  bool late = expect_loss(&w.ranks[0]) && tri_weight_stream_figures(w.ranks[0].stream).passes >= 2;
  ck_assert(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
  close_rank(&w.ranks[0]);
  ck_assert(!w.ranks[0].d.wrong);
  free_world(&w);
  return late;
}

/* A process that is killed or stopped is noticed by its silence: by who waits for its pieces, and by the only reader,
 * whose places it does not give back. */
START_TEST(a_device_that_is_lost) {
  int silence_ms = 500;
  while (!is_lost_by_signal(losses[_i], silence_ms)) {
    silence_ms *= 4;
    ck_assert_msg(silence_ms <= NEVER_MS, "a rank that lives is taken for lost after any silence");
  }
}
END_TEST

/* Pieces in the host's memory go from ring to ring, or are each rank's own. */
START_TEST(homes_for_all_want_rings) {
  static struct world w;
  tri_error err = {0};
  make_world(&w, 2, true, 1, 2, -1);
  w.gathers = false;
  ck_assert_int_eq(try_rank(&w, 0, 0, &err), TRI_INVALID_ARGUMENT);
  stop_device(&w.ranks[0].d);
  free_world(&w);
}
END_TEST

Suite *suite_device_stream(void) {
  Suite *s = suite_create("device_stream");
  TCase *t = tcase_create("stream");
  suite_add_tcase(s, t);
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, launches_find_their_parts, 1, 6);
  tcase_add_loop_test(t, devices_that_share_reads, 1, 4);
  tcase_add_loop_test(t, devices_that_gather, 1, 4);
  tcase_add_test(t, a_device_that_leaves);
  tcase_add_loop_test(t, a_device_that_is_lost, 0, 2);
  tcase_add_test(t, homes_for_all_want_rings);
  return s;
}
