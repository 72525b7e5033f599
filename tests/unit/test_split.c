/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of several ranks that read what they have in common once for all: every byte in every pass, however far their
 * walks are apart and whatever else their parts have; and ranks that fail, stop or are killed in the middle. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/stream.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/xxh3.h"
#include "runtime/engine/offload_ranks.h"

Suite *suite_split(void);

enum { PARTS = 9, FILE_BYTES = 3 << 20, PIECE = 16 << 10, BUFFERS = 5, PASSES = 4, MOST_EXTENTS = 8, MOST_RANKS = 4 };
#define PATH TRI_TEST_SCRATCH "/split.bin"

/* ---- ranks of nothing but bytes ---- */

struct rank {
  tri_stream_file file;
  tri_stream_extent extents[PARTS][MOST_EXTENTS];
  tri_stream_part parts[PARTS];
  size_t bytes[PARTS];
  tri_ring_place places[PARTS];
  char *ring;
  size_t ring_bytes;
  uint64_t seed, own_bytes, all_bytes; /* bytes of a pass: that it reads, and all of them */
  tri_weight_stream_config config;
  tri_split *split;
  tri_weight_stream *stream;
  tri_status status;
};

struct world {
  int size;
  struct rank ranks[MOST_RANKS];
  tri_split_name name;
};

static char *content; /* of the file */

static int make_file(void) {
  content = tri_malloc(FILE_BYTES, 1);
  for (size_t i = 0; i < FILE_BYTES; i++) content[i] = (char)(i * 31 + i / 4099);
  int fd = open(PATH, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ck_assert(fd >= 0 && write(fd, content, FILE_BYTES) == FILE_BYTES);
  return fd;
}

static uint64_t draw(uint64_t *seed, uint64_t most) { return tri_splitmix64(seed) % most; }

static void add(struct rank *r, int part, tri_stream_extent x, int rank) {
  int n = r->parts[part].num_extents++;
  x.at = (r->bytes[part] + 63) / 64 * 64;
  x.checksum = tri_xxh3(content + x.offset, x.bytes);
  r->extents[part][n] = x;
  r->bytes[part] = x.at + x.bytes;
  r->all_bytes += x.bytes;
  if (!x.reader || x.reader == rank + 1) r->own_bytes += x.bytes;
}

static tri_stream_extent draw_extent(uint64_t *seed, int reader) {
  return (tri_stream_extent){
      .offset = draw(seed, FILE_BYTES - PIECE), .bytes = draw(seed, PIECE) + 1, .reader = reader};
}

/* Common pieces are the same on all ranks, and lie between others that are not. A part may have none of them, or be of
 * them alone. */
static void draw_parts(struct world *w, uint64_t seed) {
  for (int i = 0; i < PARTS; i++) {
    int pieces = i == 2 ? 0 : (int)draw(&seed, MOST_EXTENTS / 2) + 1;
    for (int k = 0; k < pieces; k++) {
      tri_stream_extent common = draw_extent(&seed, (int)draw(&seed, (uint64_t)w->size) + 1);
      for (int r = 0; r < w->size; r++) {
        if (draw(&seed, 3) == 0) add(&w->ranks[r], i, draw_extent(&seed, 0), r);
        add(&w->ranks[r], i, common, r);
      }
    }
    for (int r = 0; r < w->size; r++)
      if (!pieces || draw(&seed, 3) == 0) add(&w->ranks[r], i, draw_extent(&seed, 0), r);
  }
}

static tri_split_config split_config(const struct world *w, int rank) {
  const tri_reader_config reads = {.piece_bytes = PIECE, .num_buffers = BUFFERS};
  return (tri_split_config){
      .rank = rank, .size = w->size, .buffer_bytes = tri_reader_memory_bytes(&reads), .num_words = 2};
}

static void open_split(struct world *w, int rank) {
  struct rank *r = &w->ranks[rank];
  tri_split_config sc = split_config(w, rank);
  tri_error err = {0};
  tri_status st =
      rank ? tri_split_open(&sc, &w->name, &r->split, &err) : tri_split_create(&sc, &w->name, &r->split, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  r->config.split = r->split;
  r->config.reads.memory = tri_split_buffers(r->split, rank);
}

/* Rings of 1 to 4 parts. */
static void make_rank(struct world *w, int rank, uint64_t seed, int fd) {
  struct rank *r = &w->ranks[rank];
  r->seed = seed * 7 + (uint64_t)rank;
  r->file = (tri_stream_file){fd, PATH};
  for (int i = 0; i < PARTS; i++) r->parts[i].extents = r->extents[i];
  r->ring_bytes = tri_ring_bytes(r->bytes, PARTS, 1 + (int)draw(&r->seed, 4));
  ck_assert(tri_ring_plan(r->bytes, PARTS, r->ring_bytes, r->places));
  ck_assert_int_eq(tri_pages_alloc(r->ring_bytes, (void **)&r->ring), TRI_OK);
  r->config = (tri_weight_stream_config){.files = &r->file,
                                         .num_files = 1,
                                         .parts = r->parts,
                                         .part_bytes = r->bytes,
                                         .places = r->places,
                                         .num_parts = PARTS,
                                         .has_checksums = true,
                                         .ring = r->ring,
                                         .reads = {.piece_bytes = PIECE, .num_buffers = BUFFERS},
                                         .poison = true};
}

static void make_world(struct world *w, int size, uint64_t seed) {
  *w = (struct world){.size = size};
  int fd = make_file();
  draw_parts(w, seed);
  for (int r = 0; r < size; r++) make_rank(w, r, seed, fd);
}

static void open_stream(struct rank *r) {
  tri_error err = {0};
  ck_assert_msg(tri_weight_stream_create(&r->config, &r->stream, &err) == TRI_OK, "%s", err.message);
}

static void close_stream(struct rank *r) {
  ck_assert(tri_weight_stream_destroy(r->stream));
  tri_split_close(r->split);
  r->stream = NULL;
  r->split = NULL;
}

static void free_world(struct world *w) {
  for (int r = 0; r < w->size; r++) {
    if (w->ranks[r].stream) close_stream(&w->ranks[r]);
    tri_pages_free(w->ranks[r].ring, w->ranks[r].ring_bytes);
  }
  close(w->ranks[0].file.fd);
  unlink(PATH);
  tri_free(content);
}

static bool is_right(const struct rank *r, int part) {
  for (int k = 0; k < r->parts[part].num_extents; k++) {
    const tri_stream_extent *x = &r->extents[part][k];
    if (memcmp(r->ring + r->places[part].at + x->at, content + x->offset, x->bytes)) return false;
  }
  return true;
}

static void nap(struct rank *r) {
  if (draw(&r->seed, 4) == 0) usleep((useconds_t)draw(&r->seed, 2000));
}

/* TRI_CORRUPT: a part has other bytes than the file. */
static tri_status walk(struct rank *r, int steps) {
  for (int i = 0; i < steps; i++) {
    nap(r);
    TRI_CHECK(tri_weight_stream_acquire(r->stream, i % PARTS));
    if (!is_right(r, i % PARTS)) return TRI_CORRUPT;
    nap(r);
    tri_weight_stream_release(r->stream, i % PARTS);
  }
  return TRI_OK;
}

/* ---- what is right ---- */

static void check_figures(const struct rank *r, tri_stream_figures f) {
  ck_assert(f.passes == PASSES && f.bytes >= PASSES * r->all_bytes && f.bytes <= (PASSES + 1) * r->all_bytes);
  ck_assert(f.read >= PASSES * r->own_bytes && f.read <= (PASSES + 1) * r->own_bytes);
}

/* A rank that has done its passes leaves, while others may still take what it has read. */
static void *run_rank(void *ctx) {
  struct rank *r = ctx;
  r->status = walk(r, PASSES * PARTS);
  if (r->status == TRI_OK) check_figures(r, tri_weight_stream_figures(r->stream));
  close_stream(r);
  return NULL;
}

START_TEST(every_byte_on_every_rank) {
  for (uint64_t seed = 1; seed <= 6; seed++) {
    struct world w;
    pthread_t threads[MOST_RANKS];
    make_world(&w, _i, seed);
    for (int r = 0; r < w.size; r++) open_split(&w, r);
    for (int r = 0; r < w.size; r++) open_stream(&w.ranks[r]);
    for (int r = 0; r < w.size; r++) ck_assert(!pthread_create(&threads[r], NULL, run_rank, &w.ranks[r]));
    for (int r = 0; r < w.size; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < w.size; r++)
      ck_assert_msg(w.ranks[r].status == TRI_OK, "seed %d, rank %d: %s", (int)seed, r,
                    tri_status_text(w.ranks[r].status));
    free_world(&w);
  }
}
END_TEST

START_TEST(words_of_ranks) {
  struct world w;
  const uint64_t *heard, told[2] = {7, 8};
  make_world(&w, 3, 1);
  for (int r = 0; r < 3; r++) open_split(&w, r);
  ck_assert_int_eq(tri_split_hear(w.ranks[0].split, 1, &heard), TRI_AGAIN);
  tri_split_tell(w.ranks[1].split, told);
  ck_assert(tri_split_hear(w.ranks[0].split, 1, &heard) == TRI_OK && heard[0] == 7 && heard[1] == 8);
  tri_split_leave(w.ranks[1].split);
  ck_assert_int_eq(tri_split_hear(w.ranks[2].split, 1, &heard), TRI_OK);
  tri_split_leave(w.ranks[2].split);
  ck_assert_int_eq(tri_split_hear(w.ranks[0].split, 2, &heard), TRI_PEER_LOST);
  for (int r = 0; r < 3; r++) tri_split_close(w.ranks[r].split);
  free_world(&w);
}
END_TEST

/* What one rank puts into the home all find there, at the same place; and none takes what is not of it. */
START_TEST(a_home_for_all) {
  tri_split *s[2] = {NULL, NULL};
  tri_split_name name;
  tri_error err = {0};
  bool yes;
  for (int r = 0; r < 2; r++) {
    tri_split_config sc = {.rank = r, .size = 2, .buffer_bytes = PIECE, .home_bytes = 3 * TRI_SPLIT_HOME_ALIGN};
    ck_assert_int_eq(r ? tri_split_open(&sc, &name, &s[r], &err) : tri_split_create(&sc, &name, &s[r], &err), TRI_OK);
    ck_assert_uint_eq((uintptr_t)tri_split_home(s[r]) % TRI_SPLIT_HOME_ALIGN, 0);
  }
  size_t at = 2 * TRI_SPLIT_HOME_ALIGN + 5000, end = 3 * TRI_SPLIT_HOME_ALIGN;
  memset(tri_split_home(s[0]) + at, 7, 10000); /* before another rank reserves it */
  ck_assert_int_eq(tri_split_take_home(s[1], at + 3000, end - at - 3000, &err), TRI_OK);
  ck_assert(tri_split_home(s[1])[at] == 7 && tri_split_home(s[1])[at + 9999] == 7 && !tri_split_home(s[1])[at + 10000]);
  ck_assert_int_eq(tri_split_take_home(s[1], at, end - at + 1, &err), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_split_take_home(s[1], SIZE_MAX, 2, &err), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_split_answer_of(s[0], 1, 2, &yes), TRI_AGAIN);
  tri_split_answer(s[1], 2, false);
  ck_assert(tri_split_answer_of(s[0], 1, 2, &yes) == TRI_OK && !yes);
  tri_split_leave(s[1]);
  ck_assert_int_eq(tri_split_answer_of(s[0], 1, 3, &yes), TRI_PEER_LOST);
  ck_assert(tri_split_is_alive(s[0], 1));
  for (int r = 0; r < 2; r++) tri_split_close(s[r]);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(memory_that_is_not_there) {
  struct world w;
  tri_split *s = NULL;
  tri_error err = {0};
  make_world(&w, 2, 1);
  open_split(&w, 0);
  tri_split_config sc = split_config(&w, 1), other = sc;
  tri_split_name token = w.name, file = w.name;
  token.token ^= 2;
  file.descriptor = w.ranks[0].file.fd;
  other.size = 3; /* another size of memory */
  ck_assert_int_eq(tri_split_open(&sc, &token, &s, &err), TRI_IO);
  ck_assert_int_eq(tri_split_open(&sc, &file, &s, &err), TRI_IO);
  ck_assert_int_eq(tri_split_open(&other, &w.name, &s, &err), TRI_IO);
  sc.size = 1;
  ck_assert_int_eq(tri_split_open(&sc, &w.name, &s, &err), TRI_OUT_OF_RANGE);
  /* Buffers that no other rank would find anything in. */
  w.ranks[0].config.reads.memory = NULL;
  ck_assert_int_eq(tri_weight_stream_create(&w.ranks[0].config, &w.ranks[0].stream, &err), TRI_INVALID_ARGUMENT);
  tri_split_close(w.ranks[0].split);
  free_world(&w);
}
END_TEST

/* The walk fails, with the status and the words of a lost rank. Returns false where it was its own thread that did not
 * come in time. */
static bool expect_loss(struct rank *r) {
  tri_status st = walk(r, 1000 * PARTS);
  if (st == TRI_TIMEOUT) return false;
  ck_assert_msg(st == TRI_PEER_LOST, "%s", tri_status_text(st));
  ck_assert_msg(strstr(tri_weight_stream_failure(r->stream), "rank 1 of the 2 "), "%s",
                tri_weight_stream_failure(r->stream));
  return true;
}

enum { NEVER_MS = 3600000 }; /* longer than the suite may take */

/* Rank 1 leaves in the middle of a pass, in which rank 0 needs what it would have read. */
START_TEST(a_rank_that_leaves) {
  struct world w;
  make_world(&w, 2, 3);
  for (int r = 0; r < 2; r++) open_split(&w, r);
  for (int r = 0; r < 2; r++) {
    w.ranks[r].config.reads.timeout_ms = NEVER_MS;
    open_stream(&w.ranks[r]);
  }
  w.ranks[1].status = TRI_OK;
  usleep(20000);
  close_stream(&w.ranks[1]);
  ck_assert(expect_loss(&w.ranks[0]));
  free_world(&w);
}
END_TEST

static const int signals[] = {SIGKILL, SIGSTOP};

/* Rank 1 is a process that gets a signal in its third pass, and rank 0 walks on until it takes it for lost after so
 * much silence. Returns whether that was behind the two passes that rank 1 had a part in: where a busy machine leaves a
 * process without a core for so long, it is before. */
static bool is_lost_by_signal(int signal, int silence_ms) {
  struct world w;
  make_world(&w, 2, 5);
  open_split(&w, 0);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    open_split(&w, 1);
    w.ranks[1].config.reads.timeout_ms = NEVER_MS;
    open_stream(&w.ranks[1]);
    if (walk(&w.ranks[1], 2 * PARTS + 4) == TRI_OK) raise(signal);
    _exit(1);
  }
  w.ranks[0].config.reads.timeout_ms = silence_ms;
  open_stream(&w.ranks[0]);
  bool late = expect_loss(&w.ranks[0]) && tri_weight_stream_figures(w.ranks[0].stream).passes >= 2;
  ck_assert(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
  free_world(&w);
  return late;
}

/* A process that is killed or stopped in the middle is noticed by its silence. */
START_TEST(a_rank_that_is_killed) {
  int silence_ms = 500;
  while (!is_lost_by_signal(signals[_i], silence_ms)) {
    silence_ms *= 4;
    ck_assert_msg(silence_ms <= NEVER_MS, "a rank that lives is taken for lost after any silence");
  }
}
END_TEST

/* Changes a byte of what a rank reads for all. */
static void damage(struct rank *r, int rank, int fd) {
  for (int i = 0; i < PARTS; i++)
    for (int k = 0; k < r->parts[i].num_extents; k++) {
      const tri_stream_extent *x = &r->extents[i][k];
      char other = (char)~content[x->offset];
      if (x->reader != rank + 1) continue;
      ck_assert_int_eq(pwrite(fd, &other, 1, (off_t)x->offset), 1);
      return;
    }
  ck_abort_msg("rank %d reads nothing for others", rank);
}

/* Ranks with files of their own, as packs are: damage is that of the file that has it. */
START_TEST(a_file_of_another_rank) {
  struct world w;
  make_world(&w, 2, 7);
  tri_stream_file own = {open(PATH "2", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), PATH "2"};
  ck_assert(own.fd >= 0 && write(own.fd, content, FILE_BYTES) == FILE_BYTES);
  damage(&w.ranks[1], 1, own.fd);
  w.ranks[1].file = own;
  for (int r = 0; r < 2; r++) open_split(&w, r);
  for (int r = 0; r < 2; r++) open_stream(&w.ranks[r]);
  tri_status st = walk(&w.ranks[0], PARTS);
  ck_assert_msg(st == TRI_IO, "%s", tri_status_text(st));
  ck_assert_ptr_nonnull(strstr(tri_weight_stream_failure(w.ranks[0].stream), "other ranks of this host"));
  ck_assert_int_eq(tri_weight_stream_damaged_file(w.ranks[0].stream), -1);
  ck_assert_int_eq(walk(&w.ranks[1], PARTS), TRI_IO);
  ck_assert_int_eq(tri_weight_stream_damaged_file(w.ranks[1].stream), 0);
  free_world(&w);
  close(own.fd);
  unlink(PATH "2");
}
END_TEST

/* Ranks find each other by their host, and only those that stream as many parts. */
START_TEST(ranks_of_hosts) {
  tri_offload_rank all[] = {{.host = 5, .streams = 1, .num_words = 9}, {.host = 6, .streams = 1, .num_words = 9},
                            {.host = 5, .streams = 0, .num_words = 9}, {.host = 5, .streams = 1, .num_words = 9},
                            {.host = 6, .streams = 1, .num_words = 8}, {.host = 5, .streams = 1, .num_words = 9}};
  static const struct { int members, first, rank; } wanted[] = {{3, 0, 0}, {0}, {0}, {3, 0, 1}, {0}, {3, 0, 2}};
  for (int r = 0; r < 6; r++) {
    int first = 0, rank = 0, members = tri_offload_find_ranks(all, 6, r, &first, &rank);
    ck_assert_int_eq(members, wanted[r].members);
    ck_assert(!members || (first == wanted[r].first && rank == wanted[r].rank));
  }
}
END_TEST

/* A file that is not what it was: its rank says so, and the others that they have lost it. */
START_TEST(a_rank_with_other_bytes) {
  struct world w;
  bool changed = false;
  make_world(&w, 2, 7);
  for (int i = 0; i < PARTS && !changed; i++)
    for (int k = 0; k < w.ranks[1].parts[i].num_extents && !changed; k++)
      if ((changed = w.ranks[1].extents[i][k].reader == 2)) w.ranks[1].extents[i][k].checksum ^= 1;
  for (int r = 0; r < 2; r++) open_split(&w, r);
  for (int r = 0; r < 2; r++) {
    w.ranks[r].config.reads.timeout_ms = NEVER_MS;
    open_stream(&w.ranks[r]);
  }
  ck_assert(changed);
  ck_assert_int_eq(walk(&w.ranks[1], PARTS), TRI_IO);
  ck_assert_int_eq(tri_weight_stream_damaged_file(w.ranks[1].stream), 0);
  ck_assert(expect_loss(&w.ranks[0]));                                     /* at once: not when it is missed */
  ck_assert_int_eq(tri_weight_stream_damaged_file(w.ranks[0].stream), -1); /* its own file is as it was */
  free_world(&w);
}
END_TEST

Suite *suite_split(void) {
  Suite *s = suite_create("split");
  TCase *t = tcase_create("split");
  suite_add_tcase(s, t);
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, every_byte_on_every_rank, 2, MOST_RANKS + 1);
  tcase_add_test(t, words_of_ranks);
  tcase_add_test(t, a_home_for_all);
  tcase_add_test(t, memory_that_is_not_there);
  tcase_add_test(t, a_rank_that_leaves);
  tcase_add_loop_test(t, a_rank_that_is_killed, 0, 2);
  tcase_add_test(t, a_rank_with_other_bytes);
  tcase_add_test(t, a_file_of_another_rank);
  tcase_add_test(t, ranks_of_hosts);
  return s;
}
