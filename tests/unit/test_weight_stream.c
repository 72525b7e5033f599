/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that come from files: their bytes in every pass, whatever the ring, the walk and the disk do; and what a disk
 * or a file can do wrong. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/stream.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/wait.h"
#include "base/xxh3.h"

Suite *suite_weight_stream(void);

enum { PARTS = 13, FILES = 2, FILE_BYTES = 3 << 20, PIECE = 32 << 10, READS = 5, MOST_EXTENTS = 4 };
#define PATH(i) (i ? TRI_TEST_SCRATCH "/stream1.bin" : TRI_TEST_SCRATCH "/stream0.bin")

static char byte_of(int file, uint64_t at) { return (char)(at * 31 + at / 4099 + (uint64_t)file * 77); }

/* ---- a model of nothing but bytes ---- */

struct model {
  tri_stream_file files[FILES];
  tri_stream_extent extents[PARTS][MOST_EXTENTS];
  tri_stream_part parts[PARTS];
  size_t bytes[PARTS];
  tri_ring_place places[PARTS];
  char *ring;
  size_t ring_bytes;
  uint64_t seed;
  tri_weight_stream_config config;
  tri_weight_stream *stream;
};

static uint64_t draw(struct model *m, uint64_t most) { return tri_splitmix64(&m->seed) % most; }

static int make_file(int i) {
  char *all = tri_malloc(FILE_BYTES, 1);
  int fd = open(PATH(i), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ck_assert_int_ge(fd, 0);
  for (size_t k = 0; k < FILE_BYTES; k++) all[k] = byte_of(i, k);
  ck_assert_int_eq(write(fd, all, FILE_BYTES), FILE_BYTES);
  tri_free(all);
  return fd;
}

/* Extents of any length, some of whole blocks at whole blocks. */
static void draw_part(struct model *m, int i) {
  int n = (int)draw(m, MOST_EXTENTS) + 1;
  size_t at = 0;
  for (int k = 0; k < n; k++) {
    bool whole = draw(m, 2);
    size_t bytes = draw(m, 40000) + 1;
    uint64_t offset = draw(m, FILE_BYTES - 200000);
    at = whole ? (at + 4095) / 4096 * 4096 : (at + 63) / 64 * 64;
    if (whole) offset -= offset % 4096;
    m->extents[i][k] = (tri_stream_extent){.file = (int)draw(m, FILES), .offset = offset, .bytes = bytes, .at = at};
    at += bytes;
  }
  m->parts[i] = (tri_stream_part){.extents = m->extents[i], .num_extents = n};
  m->bytes[i] = at;
}

static void make_model(struct model *m, uint64_t seed, int ring_parts) {
  *m = (struct model){.seed = seed};
  for (int i = 0; i < FILES; i++) m->files[i] = (tri_stream_file){make_file(i), PATH(i)};
  for (int i = 0; i < PARTS; i++) draw_part(m, i);
  m->ring_bytes = tri_ring_bytes(m->bytes, PARTS, ring_parts);
  ck_assert(tri_ring_plan(m->bytes, PARTS, m->ring_bytes, m->places));
  ck_assert_int_eq(tri_pages_alloc(m->ring_bytes, (void **)&m->ring), TRI_OK);
  m->config = (tri_weight_stream_config){.files = m->files,
                                         .num_files = FILES,
                                         .parts = m->parts,
                                         .part_bytes = m->bytes,
                                         .places = m->places,
                                         .num_parts = PARTS,
                                         .ring = m->ring,
                                         .reads = {.piece_bytes = PIECE, .num_buffers = READS},
                                         .poison = true};
}

static void open_stream(struct model *m) {
  tri_error err = {0};
  ck_assert_msg(tri_weight_stream_create(&m->config, &m->stream, &err) == TRI_OK, "%s", err.message);
}

static void free_model(struct model *m) {
  ck_assert(tri_weight_stream_destroy(m->stream));
  tri_pages_free(m->ring, m->ring_bytes);
  for (int i = 0; i < FILES; i++) {
    close(m->files[i].fd);
    unlink(PATH(i));
  }
}

static void expect_part(const struct model *m, int part) {
  for (int k = 0; k < m->parts[part].num_extents; k++) {
    const tri_stream_extent *x = &m->extents[part][k];
    const char *data = m->ring + m->places[part].at + x->at;
    for (size_t i = 0; i < x->bytes; i++)
      if (data[i] != byte_of(x->file, x->offset + i)) ck_abort_msg("byte %zu of extent %d of part %d", i, k, part);
  }
}

static void nap(struct model *m) {
  if (draw(m, 4) == 0) usleep((useconds_t)draw(m, 3000));
}

static void walk(struct model *m, int passes) {
  for (int i = 0; i < passes * PARTS; i++) {
    int part = i % PARTS;
    nap(m);
    tri_status st = tri_weight_stream_acquire(m->stream, part);
    ck_assert_msg(st == TRI_OK, "%s: %s", tri_status_text(st), tri_weight_stream_failure(m->stream));
    expect_part(m, part);
    nap(m);
    tri_weight_stream_release(m->stream, part);
  }
}

/* ---- what is right ---- */

static const struct {
  int ring_parts;
  tri_aio_kind kind;
  bool buffered;
} ways[] = {{1, TRI_AIO_AUTO, false},   {2, TRI_AIO_AUTO, false},     {2, TRI_AIO_THREADS, false},
            {3, TRI_AIO_THREADS, true}, {PARTS, TRI_AIO_AUTO, false}, {PARTS - 1, TRI_AIO_AUTO, true}};

START_TEST(every_byte_in_every_pass) {
  for (uint64_t seed = 1; seed < 3; seed++) {
    struct model m;
    double speed = 0;
    make_model(&m, seed, ways[_i].ring_parts);
    m.config.reads.kind = ways[_i].kind;
    m.config.reads.buffered = ways[_i].buffered;
    open_stream(&m);
    if (seed == 2) ck_assert(tri_weight_stream_fill(m.stream, &speed) == TRI_OK && speed > 0);
    walk(&m, 3);
    tri_stream_figures f = tri_weight_stream_figures(m.stream);
    uint64_t all = 0;
    for (int i = 0; i < PARTS; i++)
      for (int k = 0; k < m.parts[i].num_extents; k++) all += m.extents[i][k].bytes;
    ck_assert(f.passes == 3 && f.bytes >= 3 * all && f.bytes <= 4 * all && f.pass_ns > 0);
    free_model(&m);
  }
}
END_TEST

START_TEST(ended_in_the_middle) {
  for (uint64_t seed = 1; seed < 12; seed++) {
    struct model m;
    make_model(&m, seed, 2);
    open_stream(&m);
    if (seed % 3) usleep((useconds_t)draw(&m, 2000));
    if (seed % 2) {
      ck_assert_int_eq(tri_weight_stream_acquire(m.stream, 0), TRI_OK);
      ck_assert_int_eq(tri_weight_stream_acquire(m.stream, 2), TRI_INTERNAL); /* not the next one */
    }
    free_model(&m);
  }
}
END_TEST

/* ---- what goes wrong ---- */

/* Walks until it fails. */
static tri_status walk_on(struct model *m) {
  for (int i = 0; i < 100 * PARTS; i++) {
    tri_status st = tri_weight_stream_acquire(m->stream, i % PARTS);
    if (st != TRI_OK) return st;
    tri_weight_stream_release(m->stream, i % PARTS);
  }
  return TRI_OK;
}

START_TEST(a_file_that_changes) {
  struct model m;
  char word = 1;
  make_model(&m, 3, 2);
  open_stream(&m);
  walk(&m, 2);
  usleep(20000); /* file systems count time in ticks */
  ck_assert_int_eq(pwrite(m.files[1].fd, &word, 1, FILE_BYTES - 1), 1);
  ck_assert_int_eq(walk_on(&m), TRI_IO);
  ck_assert_msg(strstr(tri_weight_stream_failure(m.stream), PATH(1)) &&
                    strstr(tri_weight_stream_failure(m.stream), "has changed"),
                "%s", tri_weight_stream_failure(m.stream));
  ck_assert_int_eq(tri_weight_stream_acquire(m.stream, 0) == TRI_OK, 0);
  free_model(&m);
}
END_TEST

/* Of a pass that has bytes of two versions the walk never gets all parts, however far they have come by then. */
START_TEST(a_file_that_changes_within_a_pass) {
  for (int at = 0; at < PARTS - 2; at++) {
    struct model m;
    tri_status st = TRI_OK;
    char word = 1;
    make_model(&m, 7, 2);
    open_stream(&m);
    walk(&m, 1);
    usleep(20000); /* file systems count time in ticks */
    for (int part = 0; part < PARTS && st == TRI_OK; part++) {
      if (part == at) ck_assert_int_eq(pwrite(m.files[1].fd, &word, 1, FILE_BYTES - 1), 1);
      st = tri_weight_stream_acquire(m.stream, part);
      usleep(1000);
      if (st == TRI_OK) tri_weight_stream_release(m.stream, part);
    }
    ck_assert_msg(st == TRI_IO, "a pass of two versions, changed at part %d: %s", at, tri_status_text(st));
    free_model(&m);
  }
}
END_TEST

/* It is looked at when a pass ends, and a read may see it sooner. */
START_TEST(a_file_that_is_cut) {
  struct model m;
  make_model(&m, 4, 2);
  open_stream(&m);
  walk(&m, 1);
  ck_assert_int_eq(ftruncate(m.files[0].fd, 1000), 0);
  ck_assert_int_eq(walk_on(&m), TRI_IO);
  ck_assert_ptr_nonnull(strstr(tri_weight_stream_failure(m.stream), PATH(0)));
  free_model(&m);
}
END_TEST

static void add_checksums(struct model *m) {
  m->config.has_checksums = true;
  for (int i = 0; i < PARTS; i++)
    for (int k = 0; k < m->parts[i].num_extents; k++) {
      tri_stream_extent *x = &m->extents[i][k];
      char *bytes = tri_malloc(x->bytes, 1);
      for (size_t at = 0; at < x->bytes; at++) bytes[at] = byte_of(x->file, x->offset + at);
      x->checksum = tri_xxh3(bytes, x->bytes);
      tri_free(bytes);
    }
}

/* It is the file of the bytes that are others, and not another one of the same part, which is named. */
START_TEST(bytes_that_are_others) {
  for (int part = -1; part < PARTS; part++) {
    struct model m;
    make_model(&m, 8, 2);
    add_checksums(&m);
    tri_stream_extent *x = part < 0 ? NULL : &m.extents[part][m.parts[part].num_extents - 1];
    if (x) x->checksum ^= 1;
    open_stream(&m);
    if (x)
      ck_assert_int_eq(walk_on(&m), TRI_IO);
    else
      walk(&m, 3);
    ck_assert_int_eq(tri_weight_stream_damaged_file(m.stream), x ? x->file : -1);
    if (x) ck_assert_ptr_nonnull(strstr(tri_weight_stream_failure(m.stream), PATH(x->file)));
    free_model(&m);
  }
}
END_TEST

START_TEST(told_to_stop) {
  struct model m;
  atomic_bool stop = true;
  make_model(&m, 5, 1);
  m.config.stop = &stop;
  open_stream(&m);
  ck_assert_int_eq(walk_on(&m), TRI_ABORTED);
  free_model(&m);
}
END_TEST

/* A queue in front of another: what its n-th read comes back with is told. */
struct bad_disk {
  tri_aio base;
  tri_aio *behind;
  int until;      /* reads that are good */
  int64_t result; /* of one; 1: never comes back */
  int held_tag;
  bool holds;
};

static int bad_submit(tri_aio *a, const tri_aio_read *r) {
  struct bad_disk *d = (struct bad_disk *)a;
  if (d->until-- == 0) {
    d->holds = true;
    d->held_tag = r->tag;
    return 0;
  }
  return d->behind->ops->submit(d->behind, r);
}

static int bad_wait(tri_aio *a, int timeout_ms, int *tag, int64_t *result) {
  struct bad_disk *d = (struct bad_disk *)a;
  if (!d->holds || d->result == 1) return d->behind->ops->wait(d->behind, timeout_ms, tag, result);
  d->holds = false;
  *tag = d->held_tag;
  *result = d->result;
  return 0;
}

static void bad_destroy(tri_aio *a) {
  struct bad_disk *d = (struct bad_disk *)a;
  d->behind->ops->destroy(d->behind);
}

static const tri_aio_ops bad_ops = {bad_submit, bad_wait, bad_destroy};

static const struct {
  int64_t result;
  tri_status status;
  const char *says;
} faults[] = {{-EIO, TRI_IO, "Input/output error"},
              {0, TRI_IO, "became shorter"},
              {-EINTR, TRI_OK, ""},
              {1, TRI_TIMEOUT, "do not end"}};

START_TEST(a_bad_disk) {
  struct model m;
  struct bad_disk d = {.base = {&bad_ops, "bad"}, .until = 30, .result = faults[_i].result};
  ck_assert_int_eq(tri_aio_create(TRI_AIO_AUTO, READS, &d.behind, NULL), TRI_OK);
  make_model(&m, 6, 2);
  m.config.reads.aio = &d.base;
  m.config.reads.timeout_ms = 200;
  open_stream(&m);
  if (faults[_i].status == TRI_OK) {
    walk(&m, 4);
  } else {
    ck_assert_int_eq(walk_on(&m), faults[_i].status);
    ck_assert_msg(strstr(tri_weight_stream_failure(m.stream), faults[_i].says), "%s",
                  tri_weight_stream_failure(m.stream));
  }
  if (faults[_i].status != TRI_TIMEOUT) {
    free_model(&m);
    return;
  }
  ck_assert(!tri_weight_stream_destroy(m.stream)); /* the ring stays, as does the queue */
  d.behind->ops->destroy(d.behind);
}
END_TEST

Suite *suite_weight_stream(void) {
  Suite *s = suite_create("weight_stream");
  TCase *t = tcase_create("stream");
  suite_add_tcase(s, t);
  tcase_set_timeout(t, 100);
  tcase_add_loop_test(t, every_byte_in_every_pass, 0, sizeof ways / sizeof *ways);
  tcase_add_test(t, ended_in_the_middle);
  tcase_add_test(t, a_file_that_changes);
  tcase_add_test(t, a_file_that_changes_within_a_pass);
  tcase_add_test(t, a_file_that_is_cut);
  tcase_add_test(t, bytes_that_are_others);
  tcase_add_test(t, told_to_stop);
  tcase_add_loop_test(t, a_bad_disk, 0, sizeof faults / sizeof *faults);
  return s;
}
