/* Streamed weights of a device, on one that does what is on its streams whenever it likes: every part that a launch
 * reads is whole and its own, from files and from the host's memory, whatever the order of copies and launches. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/stream.h"
#include "runtime/base/hash.h"
#include "runtime/base/mem.h"

Suite *suite_device_stream(void);

/* ---- a device ---- */

enum { QUEUE = 4096 };

typedef enum act { COPY, MARK, WAIT, READ } act;

struct action {
  act what;
  char *to;
  const char *from;
  size_t bytes;
  int event, part;
  uint64_t version;
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
  bool stop;
};

static struct device *device_of(tri_backend *be) { return (struct device *)be; }

/* Under the lock. */
static void put(struct device *d, tri_stream stream, struct action a) {
  ck_assert(d->streams[stream].begun - d->streams[stream].ended < QUEUE);
  d->streams[stream].actions[d->streams[stream].begun++ % QUEUE] = a;
}

static void upload_rows(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows) {
  struct device *d = device_of(be);
  ck_assert(rows == 1 && to_pitch == width && from_pitch == width);
  pthread_mutex_lock(&d->lock);
  put(d, TRI_STREAM_COPY, (struct action){.what = COPY, .to = to, .from = from, .bytes = width});
  pthread_mutex_unlock(&d->lock);
}

static void event_record(tri_backend *be, int event, tri_stream stream) {
  struct device *d = device_of(be);
  pthread_mutex_lock(&d->lock);
  put(d, stream, (struct action){.what = MARK, .event = event, .version = ++d->recorded[event]});
  pthread_mutex_unlock(&d->lock);
}

/* The last mark counts, as it is now. */
static void stream_wait(tri_backend *be, tri_stream stream, int event) {
  struct device *d = device_of(be);
  pthread_mutex_lock(&d->lock);
  put(d, stream, (struct action){.what = WAIT, .event = event, .version = d->recorded[event]});
  pthread_mutex_unlock(&d->lock);
}

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

enum { PARTS = 11, FILE_BYTES = 1 << 20, MOST = 20000, READS = 6 };
#define PATH TRI_TEST_SCRATCH "/device_stream.bin"

struct model {
  tri_stream_extent extents[PARTS];
  tri_stream_part parts[PARTS];
  size_t bytes[PARTS];
  tri_ring_place places[PARTS];
  char *ring, *file, *buffers;
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
    if (i % 3 == 0) m->parts[i] = (tri_stream_part){.home = m->file + m->extents[i].offset};
  }
  m->ring_bytes = tri_ring_bytes(m->bytes, PARTS, ring_parts);
  ck_assert(tri_ring_plan(m->bytes, PARTS, m->ring_bytes, m->places));
  ck_assert_int_eq(tri_pages_alloc(m->ring_bytes, (void **)&m->ring), TRI_OK);
}

static void free_model(struct model *m) {
  close(m->at.fd);
  unlink(PATH);
  tri_pages_free(m->ring, m->ring_bytes);
  tri_pages_free(m->buffers, m->buffer_bytes);
  tri_free(m->file);
}

/* ---- what the device does ---- */

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
  if (a.what == COPY) memcpy(a.to, a.from, a.bytes);
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
  pthread_mutex_lock(&d->lock);
  put(d, TRI_STREAM_COMPUTE, (struct action){.what = READ, .part = part});
  pthread_mutex_unlock(&d->lock);
}

/* ---- cases ---- */

START_TEST(launches_find_their_parts) {
  static struct device d;
  for (uint64_t seed = 1; seed <= 6; seed++) {
    struct model m;
    tri_weight_stream *s = NULL;
    tri_error err = {0};
    make_model(&m, seed, _i);
    start_device(&d, &m, seed);
    tri_weight_stream_config config = {.files = &m.at,
                                       .num_files = 1,
                                       .parts = m.parts,
                                       .part_bytes = m.bytes,
                                       .places = m.places,
                                       .num_parts = PARTS,
                                       .backend = &d.backend,
                                       .ring = m.ring,
                                       .reads = {.piece_bytes = 8192, .num_buffers = READS}};
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

/* Two ranks with a device each: a part's file is read by one of them, and goes to both devices from its buffers. */
enum { RANKS = 2 };

static void open_rank(struct model *m, struct device *d, int rank, tri_split_name *name, tri_split **split,
                      tri_weight_stream **out) {
  tri_error err = {0};
  tri_reader_config reads = {.piece_bytes = 5 * TRI_READER_BLOCK, .num_buffers = READS};
  tri_split_config sc = {
      .rank = rank, .size = RANKS, .num_buffers = READS, .buffer_bytes = tri_reader_memory_bytes(&reads)};
  tri_status st = rank ? tri_split_open(&sc, name, split, &err) : tri_split_create(&sc, name, split, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  reads.memory = tri_split_buffers(*split, rank);
  for (int i = 0; i < PARTS; i++) m->extents[i].reader = i % RANKS + 1;
  tri_weight_stream_config config = {.files = &m->at,
                                     .num_files = 1,
                                     .parts = m->parts,
                                     .part_bytes = m->bytes,
                                     .places = m->places,
                                     .num_parts = PARTS,
                                     .backend = &d->backend,
                                     .ring = m->ring,
                                     .reads = reads,
                                     .split = *split};
  ck_assert_msg(tri_weight_stream_create(&config, out, &err) == TRI_OK, "%s", err.message);
}

START_TEST(devices_that_share_reads) {
  static struct device d[RANKS];
  for (uint64_t seed = 1; seed <= 4; seed++) {
    struct model m[RANKS];
    tri_weight_stream *s[RANKS] = {0};
    tri_split *split[RANKS];
    tri_split_name name;
    for (int r = 0; r < RANKS; r++) make_model(&m[r], seed, _i + r);
    for (int r = 0; r < RANKS; r++) start_device(&d[r], &m[r], seed * RANKS + (uint64_t)r);
    for (int r = 0; r < RANKS; r++) open_rank(&m[r], &d[r], r, &name, &split[r], &s[r]);
    for (int i = 0; i < 8 * PARTS; i++)
      for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(tri_weight_stream_acquire(s[r], i % PARTS), TRI_OK);
        for (int k = 0; k < 3; k++) launch_read(&d[r], i % PARTS);
        tri_weight_stream_release(s[r], i % PARTS);
      }
    for (int r = 0; r < RANKS; r++) {
      ck_assert(tri_weight_stream_destroy(s[r]));
      stop_device(&d[r]);
      ck_assert_msg(!d[r].wrong && d[r].reads == 24 * PARTS, "%d of %d reads are wrong", d[r].wrong, d[r].reads);
    }
    for (int r = 0; r < RANKS; r++) {
      tri_split_close(split[r]);
      free_model(&m[r]);
    }
  }
}
END_TEST

Suite *suite_device_stream(void) {
  Suite *s = suite_create("device_stream");
  TCase *t = tcase_create("stream");
  suite_add_tcase(s, t);
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, launches_find_their_parts, 1, 6);
  tcase_add_loop_test(t, devices_that_share_reads, 1, 4);
  return s;
}
