/* SPDX-License-Identifier: Apache-2.0 */
/* Byte ranges of files: what comes back against the file's bytes, from every queue; and every way in which a read can
 * fail to bring all of it, from a queue that does as it is told. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/reader.h"
#include "base/mem.h"

Suite *suite_reader(void);

enum { BLOCK = TRI_READER_BLOCK, PIECE = 4 * BLOCK, BUFFERS = 5, SIZE = 100 * BLOCK + 1234 };
#define PATH TRI_TEST_SCRATCH "/reader.bin"

static char byte_at(uint64_t i) { return (char)(i * 7 + i / 251 + i / BLOCK); }

static int make_file(size_t size) {
  char *all = tri_malloc(size, 1);
  int fd = open(PATH, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ck_assert_int_ge(fd, 0);
  for (size_t i = 0; i < size; i++) all[i] = byte_at(i);
  ck_assert_int_eq(write(fd, all, size), (ssize_t)size);
  fsync(fd);
  tri_free(all);
  return fd;
}

static void expect_bytes(const char *data, uint64_t offset, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (data[i] != byte_at(offset + i))
      ck_abort_msg("byte %zu of the %zu at %llu", i, bytes, (unsigned long long)offset);
}

struct range {
  uint64_t offset;
  size_t bytes;
};

static struct range random_range(unsigned *seed) {
  struct range r = {(uint64_t)rand_r(seed) % SIZE, 0};
  if (rand_r(seed) % 3 == 0) r.offset &= ~(uint64_t)(BLOCK - 1);
  size_t most = SIZE - r.offset < PIECE ? SIZE - r.offset : PIECE;
  r.bytes = rand_r(seed) % 4 ? 1 + (size_t)rand_r(seed) % most : most;
  return r;
}

/* Many ranges, as many at once as there are buffers, in any order. */
static void read_ranges(tri_reader *r, int file, int count) {
  struct range ranges[BUFFERS];
  unsigned seed = 1;
  tri_error err = {0};
  int begun = 0, done = 0, slot;
  while (done < count) {
    tri_status st = TRI_AGAIN;
    struct range next = random_range(&seed);
    if (begun == 0) next = (struct range){0, PIECE};
    if (begun == 1) next = (struct range){SIZE - 1, 1};
    if (begun == 2) next = (struct range){BLOCK - 1, PIECE};
    if (begun < count) st = tri_reader_start(r, file, next.offset, next.bytes, &slot, &err);
    if (st == TRI_OK) {
      ck_assert(slot >= 0 && slot < BUFFERS);
      ranges[slot] = next;
      begun++;
      continue;
    }
    ck_assert_msg(st == TRI_AGAIN, "%s", err.message);
    void *data;
    ck_assert_msg(tri_reader_next(r, &slot, &data, &err) == TRI_OK, "%s", err.message);
    ck_assert_uint_eq((uintptr_t)data % BLOCK, ranges[slot].offset % BLOCK);
    expect_bytes(data, ranges[slot].offset, ranges[slot].bytes);
    tri_reader_release(r, slot);
    done++;
  }
  void *none;
  ck_assert_int_eq(tri_reader_next(r, &slot, &none, &err), TRI_AGAIN);
}

/* Whether this kernel lets us have an io_uring. */
static bool has_uring(void) {
  tri_aio *a;
  if (tri_aio_uring_create(1, &a)) return false;
  a->ops->destroy(a);
  return true;
}

static const struct {
  tri_aio_kind kind;
  bool buffered;
} ways[] = {{TRI_AIO_URING, false}, {TRI_AIO_URING, true}, {TRI_AIO_THREADS, false}, {TRI_AIO_THREADS, true}};

START_TEST(every_byte_by_every_way) {
  if (ways[_i].kind == TRI_AIO_URING && !has_uring()) return;
  int fd = make_file(SIZE), file;
  tri_error err = {0};
  tri_reader *r = NULL;
  tri_reader_config config = {
      .piece_bytes = PIECE, .num_buffers = BUFFERS, .kind = ways[_i].kind, .buffered = ways[_i].buffered};
  ck_assert_msg(tri_reader_create(&config, &r, &err) == TRI_OK, "%s", err.message);
  ck_assert_str_eq(tri_reader_name(r), ways[_i].kind == TRI_AIO_URING ? "io_uring" : "threads");
  ck_assert_int_eq(tri_reader_add_file(r, fd, PATH, &file, &err), TRI_OK);
  read_ranges(r, file, 300);
  ck_assert(!ways[_i].buffered || !tri_reader_is_direct(r));
  ck_assert_uint_gt(tri_reader_bytes(r), 300);
  tri_reader_destroy(r);
  close(fd);
  unlink(PATH);
}
END_TEST

/* Reads under way when the reader goes: they must not write to what is freed. */
START_TEST(destroyed_in_the_middle) {
  if (ways[_i].kind == TRI_AIO_URING && !has_uring()) return;
  int fd = make_file(SIZE), file, slot;
  for (int round = 0; round < 20; round++) {
    tri_reader *r = NULL;
    tri_reader_config config = {
        .piece_bytes = PIECE, .num_buffers = BUFFERS, .kind = ways[_i].kind, .buffered = ways[_i].buffered};
    ck_assert_int_eq(tri_reader_create(&config, &r, NULL), TRI_OK);
    ck_assert_int_eq(tri_reader_add_file(r, fd, PATH, &file, NULL), TRI_OK);
    for (uint64_t i = 0; i < BUFFERS; i++)
      ck_assert_int_eq(tri_reader_start(r, file, i * PIECE, PIECE, &slot, NULL), TRI_OK);
    tri_reader_destroy(r);
  }
  close(fd);
  unlink(PATH);
}
END_TEST

START_TEST(a_file_that_became_shorter) {
  if (ways[_i].kind == TRI_AIO_URING && !has_uring()) return;
  int fd = make_file(3 * BLOCK), file, slot;
  tri_reader_config config = {
      .piece_bytes = PIECE, .num_buffers = BUFFERS, .kind = ways[_i].kind, .buffered = ways[_i].buffered};
  const size_t sizes[] = {3 * BLOCK - 1, 2 * BLOCK, 10, 0};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    tri_error err = {0};
    tri_reader *r = NULL;
    void *data;
    ck_assert_int_eq(tri_reader_create(&config, &r, &err), TRI_OK);
    ck_assert_int_eq(tri_reader_add_file(r, fd, PATH, &file, &err), TRI_OK);
    ck_assert_int_eq(ftruncate(fd, (off_t)sizes[i]), 0);
    ck_assert_int_eq(tri_reader_start(r, file, 5, 3 * BLOCK - 5, &slot, &err), TRI_OK);
    ck_assert_int_eq(tri_reader_next(r, &slot, &data, &err), TRI_IO);
    ck_assert_msg(strstr(err.message, "became shorter") && strstr(err.message, PATH), "%s", err.message);
    tri_reader_destroy(r);
  }
  close(fd);
  unlink(PATH);
}
END_TEST

START_TEST(a_descriptor_that_cannot_be_read) {
  if (ways[_i].kind == TRI_AIO_URING && !has_uring()) return;
  int fd = open(PATH, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), file, slot;
  tri_error err = {0};
  tri_reader *r = NULL;
  void *data;
  tri_reader_config config = {.piece_bytes = PIECE, .num_buffers = BUFFERS, .kind = ways[_i].kind, .buffered = true};
  ck_assert_int_eq(tri_reader_create(&config, &r, &err), TRI_OK);
  ck_assert_int_eq(tri_reader_add_file(r, fd, PATH, &file, &err), TRI_OK);
  ck_assert_int_eq(tri_reader_start(r, file, 0, 10, &slot, &err), TRI_OK);
  ck_assert_int_eq(tri_reader_next(r, &slot, &data, &err), TRI_IO);
  ck_assert_msg(strstr(err.message, strerror(EBADF)) != NULL, "%s", err.message);
  tri_reader_destroy(r);
  close(fd);
  unlink(PATH);
}
END_TEST

/* ---- a queue that does as it is told ---- */

/* What becomes of the next reads, one entry each; afterwards all goes well. A positive number: so many bytes at most.
 */
enum { ALL = 1 << 30, REFUSED_DIRECT = -100000 };

struct told {
  tri_aio base;
  const int *script;
  int num_script, at, submit_error, wait_error;
  tri_aio_read reads[BUFFERS];
  int num_reads, submitted, direct;
  bool destroyed;
};

static int told_submit(tri_aio *a, const tri_aio_read *r) {
  struct told *t = (struct told *)a;
  if (t->submit_error) return t->submit_error;
  ck_assert_int_lt(t->num_reads, BUFFERS);
  if (r->direct) ck_assert(r->offset % BLOCK == 0 && r->bytes % BLOCK == 0 && (uintptr_t)r->to % BLOCK == 0);
  t->reads[t->num_reads++] = *r;
  t->submitted++;
  t->direct += r->direct;
  return 0;
}

static int told_wait(tri_aio *a, int timeout_ms, int *tag, int64_t *result) {
  struct told *t = (struct told *)a;
  (void)timeout_ms;
  if (t->wait_error) return t->wait_error;
  ck_assert_int_gt(t->num_reads, 0);
  tri_aio_read r = t->reads[--t->num_reads]; /* the last one first */
  int what = t->at < t->num_script ? t->script[t->at++] : ALL;
  if (what == REFUSED_DIRECT) what = r.direct ? -EINVAL : ALL;
  *tag = r.tag;
  *result = what;
  if (what <= 0) return 0;
  size_t n = r.bytes < (size_t)what ? r.bytes : (size_t)what, left = r.offset < SIZE ? SIZE - r.offset : 0;
  if (n > left) n = left;
  for (size_t i = 0; i < n; i++) ((char *)r.to)[i] = byte_at(r.offset + i);
  *result = (int64_t)n;
  return 0;
}

static void told_destroy(tri_aio *a) { ((struct told *)a)->destroyed = true; }

static const tri_aio_ops told_ops = {told_submit, told_wait, told_destroy};

/* A reader of a file of SIZE bytes that is on this queue alone. */
static tri_reader *told_reader(struct told *t, int *fd, int *file) {
  tri_reader *r = NULL;
  tri_error err = {0};
  t->base = (tri_aio){&told_ops, "told"};
  static _Alignas(BLOCK) char memory[BUFFERS * (PIECE + BLOCK)];
  tri_reader_config config = {.piece_bytes = PIECE, .num_buffers = BUFFERS, .memory = memory, .aio = &t->base};
  ck_assert_msg(tri_reader_create(&config, &r, &err) == TRI_OK, "%s", err.message);
  *fd = make_file(1);
  ck_assert_int_eq(tri_reader_add_file(r, *fd, PATH, file, &err), TRI_OK);
  return r;
}

static const struct {
  int script[4], num;
  int submitted; /* reads asked for, of one range */
} told_cases[] = {
    {{ALL}, 1, 1},
    {{-EINTR, ALL}, 2, 2},
    {{-EAGAIN, -EINTR, -EAGAIN, ALL}, 4, 4},
    {{BLOCK, ALL}, 2, 2},     /* short, at a block's end */
    {{BLOCK + 1, ALL}, 2, 2}, /* short inside a block: the rest through the page cache */
    {{1, 1, 1, ALL}, 4, 4},
    {{1, -EINTR, 2 * BLOCK, ALL}, 4, 4},
    {{REFUSED_DIRECT, ALL}, 2, 2},
    {{REFUSED_DIRECT, 10, -EAGAIN, ALL}, 4, 4},
};

START_TEST(what_is_lacking_is_asked_for_again) {
  struct told t = {.script = told_cases[_i].script, .num_script = told_cases[_i].num};
  int fd, file, slot;
  void *data;
  tri_error err = {0};
  tri_reader *r = told_reader(&t, &fd, &file);
  ck_assert_int_eq(tri_reader_start(r, file, BLOCK + 5, 3 * BLOCK, &slot, &err), TRI_OK);
  ck_assert_msg(tri_reader_next(r, &slot, &data, &err) == TRI_OK, "%s", err.message);
  expect_bytes(data, BLOCK + 5, 3 * BLOCK);
  ck_assert_int_eq(t.submitted, told_cases[_i].submitted);
  tri_reader_release(r, slot);
  bool refused = told_cases[_i].script[0] == REFUSED_DIRECT;
  int direct = t.direct;
  read_ranges(r, file, 40); /* and the reader works on */
  ck_assert(!refused || (t.direct == direct && !tri_reader_is_direct(r)));
  tri_reader_destroy(r);
  close(fd);
  unlink(PATH);
}
END_TEST

static const struct {
  int script[3], num;
  const char *says;
} failures[] = {
    {{-EIO}, 1, "Input/output error"},
    {{BLOCK, 0}, 2, "became shorter"},
    {{0}, 1, "became shorter"},
    {{REFUSED_DIRECT, -EINVAL}, 2, "Invalid argument"}, /* without O_DIRECT that is no question of alignment */
    {{-EACCES}, 1, "Permission denied"},
};

START_TEST(failures_are_told) {
  struct told t = {.script = failures[_i].script, .num_script = failures[_i].num};
  int fd, file, slot;
  void *data;
  tri_error err = {0};
  tri_reader *r = told_reader(&t, &fd, &file);
  ck_assert_int_eq(tri_reader_start(r, file, 1, 2 * BLOCK, &slot, &err), TRI_OK);
  ck_assert_int_eq(tri_reader_next(r, &slot, &data, &err), TRI_IO);
  ck_assert_msg(strstr(err.message, failures[_i].says) && strstr(err.message, "bytes 1 to 8193"), "%s", err.message);
  ck_assert_str_eq(err.field, PATH);
  tri_reader_destroy(r);
  close(fd);
  unlink(PATH);
}
END_TEST

START_TEST(interrupted_for_ever) {
  static int script[3000];
  for (int i = 0; i < 3000; i++) script[i] = -EAGAIN;
  struct told t = {.script = script, .num_script = 3000};
  int fd, file, slot;
  void *data;
  tri_error err = {0};
  tri_reader *r = told_reader(&t, &fd, &file);
  ck_assert_int_eq(tri_reader_start(r, file, 0, 10, &slot, &err), TRI_OK);
  ck_assert_int_eq(tri_reader_next(r, &slot, &data, &err), TRI_IO);
  ck_assert_int_lt(t.submitted, 3000);
  tri_reader_destroy(r);
  close(fd);
  unlink(PATH);
}
END_TEST

START_TEST(a_queue_that_fails) {
  struct told t = {.submit_error = -ENOMEM};
  int fd, file, slot;
  void *data;
  tri_error err = {0};
  tri_reader *r = told_reader(&t, &fd, &file);
  ck_assert_int_eq(tri_reader_start(r, file, 0, 10, &slot, &err), TRI_IO);
  ck_assert_ptr_nonnull(strstr(err.message, strerror(ENOMEM)));
  tri_reader_destroy(r);
  close(fd);

  t = (struct told){.wait_error = -ETIME};
  r = told_reader(&t, &fd, &file);
  tri_error_clear(&err);
  ck_assert_int_eq(tri_reader_start(r, file, 0, 10, &slot, &err), TRI_OK);
  ck_assert_int_eq(tri_reader_next(r, &slot, &data, &err), TRI_TIMEOUT);
  t.wait_error = -EBADF;
  tri_error_clear(&err);
  ck_assert_int_eq(tri_reader_next(r, &slot, &data, &err), TRI_IO);
  /* What may still be written to stays, and so does who writes. */
  ck_assert(!tri_reader_destroy(r) && !t.destroyed);
  close(fd);

  t = (struct told){.wait_error = -ETIME};
  r = told_reader(&t, &fd, &file);
  ck_assert_int_eq(tri_reader_start(r, file, 0, 10, &slot, NULL), TRI_OK);
  ck_assert_int_eq(tri_reader_next(r, &slot, &data, NULL), TRI_TIMEOUT);
  t.wait_error = 0; /* late, but it has ended */
  ck_assert(tri_reader_destroy(r) && t.destroyed);
  close(fd);
  unlink(PATH);
}
END_TEST

START_TEST(a_disk_that_says_nothing) {
  if (ways[_i].kind == TRI_AIO_URING && !has_uring()) return;
  tri_aio *a = NULL;
  int pipes[2], tag;
  int64_t result;
  char to[8];
  ck_assert_int_eq(tri_aio_create(ways[_i].kind, 2, &a, NULL), TRI_OK);
  ck_assert_int_eq(a->ops->wait(a, 20, &tag, &result), -ETIME);
  if (ways[_i].kind == TRI_AIO_URING) { /* a read of an empty pipe does not end; pread refuses pipes */
    ck_assert_int_eq(pipe(pipes), 0);
    tri_aio_read r = {.fd = pipes[0], .to = to, .bytes = 8, .offset = (uint64_t)-1, .tag = 7};
    ck_assert_int_eq(a->ops->submit(a, &r), 0);
    ck_assert_int_eq(a->ops->wait(a, 20, &tag, &result), -ETIME);
    ck_assert_int_eq(write(pipes[1], "abc", 3), 3);
    ck_assert_int_eq(a->ops->wait(a, 5000, &tag, &result), 0);
    ck_assert(tag == 7 && result == 3);
    close(pipes[0]), close(pipes[1]);
  }
  a->ops->destroy(a);
}
END_TEST

START_TEST(what_a_reader_cannot_be) {
  const tri_reader_config bad[] = {{.piece_bytes = 0, .num_buffers = 1},
                                   {.piece_bytes = 5000, .num_buffers = 1},
                                   {.piece_bytes = PIECE, .num_buffers = 0},
                                   {.piece_bytes = PIECE, .num_buffers = TRI_AIO_MAX_DEPTH + 1},
                                   {.piece_bytes = (size_t)1 << 40, .num_buffers = 1}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tri_reader *r = NULL;
    tri_error err = {0};
    ck_assert_uint_eq(tri_reader_memory_bytes(&bad[i]), 0);
    ck_assert_int_eq(tri_reader_create(&bad[i], &r, &err), TRI_OUT_OF_RANGE);
    ck_assert_ptr_null(r);
  }
  tri_aio *a = NULL;
  ck_assert_int_eq(tri_aio_create(TRI_AIO_AUTO, 0, &a, NULL), TRI_OUT_OF_RANGE);
  struct told t = {0};
  int fd, file, slot;
  tri_reader *r = told_reader(&t, &fd, &file);
  ck_assert_int_eq(tri_reader_start(r, file, 0, 0, &slot, NULL), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_reader_start(r, file, 0, PIECE + 1, &slot, NULL), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_reader_start(r, file, UINT64_MAX - 5, 10, &slot, NULL), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_reader_start(r, file + 1, 0, 10, &slot, NULL), TRI_OUT_OF_RANGE);
  tri_reader_destroy(r);
  tri_reader_destroy(NULL);
  close(fd);
  unlink(PATH);
}
END_TEST

/* ---- where io_uring is refused ---- */

/* From here on io_uring_setup fails with `error`, as in a container. */
static bool refuse_uring(int error) {
  struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
                               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

enum { CANNOT_REFUSE = 77 };

/* In a process of its own, since this cannot be undone. */
static int without_uring(int fd, int error) {
  tri_reader_config config = {.piece_bytes = PIECE, .num_buffers = BUFFERS};
  tri_reader *r = NULL;
  tri_aio *a = NULL;
  tri_error err = {0};
  int file, slot;
  void *data;
  if (!refuse_uring(error)) return CANNOT_REFUSE;
  if (tri_aio_create(TRI_AIO_URING, 4, &a, &err) != TRI_UNSUPPORTED || !strstr(err.message, strerror(error))) return 1;
  tri_error_clear(&err);
  if (tri_reader_create(&config, &r, &err) != TRI_OK || strcmp(tri_reader_name(r), "threads")) return 2;
  if (tri_reader_add_file(r, fd, PATH, &file, &err) != TRI_OK) return 3;
  if (tri_reader_start(r, file, 3, PIECE, &slot, &err) != TRI_OK) return 4;
  if (tri_reader_next(r, &slot, &data, &err) != TRI_OK) return 5;
  for (size_t i = 0; i < PIECE; i++)
    if (((char *)data)[i] != byte_at(3 + i)) return 6;
  tri_reader_destroy(r);
  return 0;
}

START_TEST(threads_where_io_uring_is_refused) {
  static const int errors[] = {EPERM, ENOSYS, EACCES};
  int fd = make_file(SIZE), status;
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) _exit(without_uring(fd, errors[_i]));
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ck_assert_msg(code == 0 || code == CANNOT_REFUSE, "step %d", code);
  close(fd);
  unlink(PATH);
}
END_TEST

Suite *suite_reader(void) {
  Suite *s = suite_create("reader");
  TCase *c = tcase_create("files");
  int num_ways = (int)(sizeof ways / sizeof *ways);
  tcase_add_loop_test(c, every_byte_by_every_way, 0, num_ways);
  tcase_add_loop_test(c, destroyed_in_the_middle, 0, num_ways);
  tcase_add_loop_test(c, a_file_that_became_shorter, 0, num_ways);
  tcase_add_loop_test(c, a_descriptor_that_cannot_be_read, 0, num_ways);
  tcase_add_loop_test(c, a_disk_that_says_nothing, 0, num_ways);
  suite_add_tcase(s, c);
  c = tcase_create("told");
  tcase_add_loop_test(c, what_is_lacking_is_asked_for_again, 0, (int)(sizeof told_cases / sizeof *told_cases));
  tcase_add_loop_test(c, failures_are_told, 0, (int)(sizeof failures / sizeof *failures));
  tcase_add_test(c, interrupted_for_ever);
  tcase_add_test(c, a_queue_that_fails);
  tcase_add_test(c, what_a_reader_cannot_be);
  suite_add_tcase(s, c);
  c = tcase_create("refused");
  tcase_add_loop_test(c, threads_where_io_uring_is_refused, 0, 3);
  suite_add_tcase(s, c);
  return s;
}
