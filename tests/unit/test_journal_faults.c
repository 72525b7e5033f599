/* SPDX-License-Identifier: Apache-2.0 */
/* A journal whose disk is full, fails or stops in the middle: each call that touches the disk fails once, and what was
 * durable before comes back in any case. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/journal/journal.h"
#include "base/wait.h"

Suite *suite_journal_faults(void);

enum { SEGMENT = 4096, RECORD = 200 };
static char folder[64];

/* The call with this number fails with this error; 0: none does. `for_good`: so do all later ones of its kind. */
static struct {
  int at, error, calls;
  bool for_good, only_allocation, short_write;
  off_t room; /* of the disk, for one file; 0: enough */
} fault;

/* The journal's own thread stays in a sync as long as it is held there. */
static struct {
  pthread_t owner;
  bool on, is_in, lost_its_file;
} hold;

static struct rlimit files; /* that a process may have, as the test has found it */

static bool fails(bool is_allocation) {
  if (fault.only_allocation && !is_allocation) return false;
  int call = __atomic_add_fetch(&fault.calls, 1, __ATOMIC_SEQ_CST);
  return fault.at && (fault.for_good ? call >= fault.at : call == fault.at);
}

ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at) {
  if (!fails(false)) return __real_pwrite(fd, p, n, at);
  if (fault.short_write && n > 8) return __real_pwrite(fd, p, n / 2, at);
  errno = fault.error;
  return -1;
}

static void be_held(int fd) {
  struct stat before, behind;
  if (pthread_equal(pthread_self(), hold.owner) || !__atomic_load_n(&hold.on, __ATOMIC_SEQ_CST)) return;
  bool lost = fstat(fd, &before) != 0;
  __atomic_store_n(&hold.is_in, true, __ATOMIC_SEQ_CST);
  int64_t until = tri_deadline_after_ms(60000);
  while (__atomic_load_n(&hold.on, __ATOMIC_SEQ_CST) && tri_now_ns() < until) usleep(100);
  lost |= fstat(fd, &behind) || before.st_ino != behind.st_ino;
  __atomic_store_n(&hold.lost_its_file, lost, __ATOMIC_SEQ_CST);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd) {
  be_held(fd);
  if (!fails(false)) return __real_fdatasync(fd);
  errno = fault.error;
  return -1;
}

int __real_posix_fallocate(int fd, off_t at, off_t n);
int __wrap_posix_fallocate(int fd, off_t at, off_t n);
int __wrap_posix_fallocate(int fd, off_t at, off_t n) {
  if (fault.room && at + n > fault.room) return ENOSPC;
  return fails(true) ? fault.error : __real_posix_fallocate(fd, at, n);
}

static uint64_t seen;
static tri_status see(void *ctx, const tri_journal_record *r, tri_error *err) {
  (void)ctx;
  (void)err;
  ck_assert_uint_eq(r->number, ++seen);
  ck_assert_uint_eq(r->len, RECORD);
  for (size_t i = 0; i < r->len; i++) ck_assert_uint_eq(((const uint8_t *)r->data)[i], (uint8_t)r->number);
  return TRI_OK;
}

static tri_status open_one(tri_journal **j, tri_error *err) {
  tri_journal_config cfg = {.folder = folder, .segment_bytes = SEGMENT};
  seen = 0;
  *err = (tri_error){0};
  return tri_journal_open(&cfg, see, NULL, j, err);
}

static tri_status add(tri_journal *j, tri_error *err) {
  uint8_t bytes[RECORD];
  static uint64_t next;
  if (!next || !seen) next = seen + 1;
  memset(bytes, (int)(next & 0xff), sizeof bytes);
  uint64_t number;
  ck_assert(tri_journal_append(j, 1, bytes, sizeof bytes, &number) == TRI_OK);
  if (number != next) { /* another journal */
    next = number;
    ck_abort_msg("records are numbered by their journal");
  }
  next++;
  seen++;
  return tri_journal_write(j, err);
}

static void set_up(void) {
  memset(&fault, 0, sizeof fault);
  memset(&hold, 0, sizeof hold);
  hold.owner = pthread_self();
  ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
  snprintf(folder, sizeof folder, "/tmp/trireme-journal.XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void tear_down(void) {
  char command[128];
  memset(&fault, 0, sizeof fault);
  __atomic_store_n(&hold.on, false, __ATOMIC_SEQ_CST);
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

/* A full disk is told while there is room for what runs; when there is room again, it goes on. */
START_TEST(full_disk) {
  tri_journal *j;
  tri_error err;
  ck_assert(open_one(&j, &err) == TRI_OK);
  ck_assert(!tri_journal_is_full(j));
  fault.error = ENOSPC;
  fault.only_allocation = fault.for_good = true;
  fault.at = 1;
  tri_status st = TRI_OK;
  int written = 0, after_full = 0;
  while (written < 1000 && (st = add(j, &err)) == TRI_OK) {
    written++;
    after_full += tri_journal_is_full(j);
  }
  ck_assert(st == TRI_NO_CAPACITY);
  ck_assert_ptr_nonnull(strstr(err.message, "has no room for"));
  ck_assert_int_gt(after_full, SEGMENT / 2 / RECORD); /* most of a segment was left when it said so */
  fault.at = 0;
  ck_assert(tri_journal_write(j, &err) == TRI_OK);
  ck_assert(!tri_journal_is_full(j));
  tri_journal_close(j);
  ck_assert(open_one(&j, &err) == TRI_OK);
  ck_assert_uint_eq(seen, (uint64_t)written + 1);
  tri_journal_close(j);
}
END_TEST

/* Room for a large record is there or not before the record is: without it all is as before. */
START_TEST(room_that_there_is_not) {
  tri_journal *j;
  tri_error err;
  ck_assert(open_one(&j, &err) == TRI_OK);
  for (int i = 0; i < 3; i++) ck_assert(add(j, &err) == TRI_OK);
  ck_assert(tri_journal_reserve(j, RECORD) == TRI_OK); /* there always is */
  fault.error = ENOSPC;
  fault.only_allocation = true;
  fault.at = fault.calls + 1;
  ck_assert(tri_journal_reserve(j, 10 * SEGMENT) == TRI_NO_CAPACITY);
  ck_assert(!tri_journal_is_full(j));
  fault.for_good = true;
  fault.at = 1;
  for (int i = 0; i < SEGMENT / RECORD; i++) ck_assert(add(j, &err) == TRI_OK); /* the spare is what it was */
  fault.at = 0;
  ck_assert(tri_journal_reserve(j, 10 * SEGMENT) == TRI_OK);
  fault.at = 1;
  static uint8_t large[10 * SEGMENT];
  ck_assert(tri_journal_append(j, 2, large, sizeof large, NULL) == TRI_OK);
  ck_assert_msg(tri_journal_write(j, &err) == TRI_OK, "%s", err.message);
  tri_journal_close(j);
}
END_TEST

/* With nothing that is needed a full disk has room again: for the segment that is there. */
START_TEST(full_disk_without_jobs) {
  tri_journal *j;
  tri_error err;
  ck_assert(open_one(&j, &err) == TRI_OK);
  fault.error = ENOSPC;
  fault.only_allocation = fault.for_good = true;
  fault.at = 1;
  while (!tri_journal_is_full(j)) ck_assert(add(j, &err) == TRI_OK);
  ck_assert(add(j, &err) == TRI_OK);
  fault.calls = 0;
  fault.at = 1; /* a second one beside it finds no room, one in its place does */
  fault.for_good = false;
  ck_assert(tri_journal_forget(j, UINT64_MAX, &err) == TRI_OK);
  fault.at = 0;
  ck_assert(add(j, &err) == TRI_OK);
  tri_journal_close(j);
}
END_TEST

static void expect_durable(tri_journal *j, uint64_t number) {
  tri_error err = {0};
  tri_status st = TRI_OK;
  tri_journal_sync(j);
  for (int64_t until = tri_deadline_after_ms(60000); tri_journal_durable(j) < number && tri_now_ns() < until;) {
    st = tri_journal_take_sync(j, &err);
    ck_assert_msg(st == TRI_OK, "%s", err.message);
    usleep(200);
  }
  ck_assert_uint_eq(tri_journal_durable(j), number);
}

static void add_so_many(tri_journal *j, int n) {
  tri_error err = {0};
  for (int i = 0; i < n; i++) ck_assert_msg(add(j, &err) == TRI_OK, "record %d of %d: %s", i, n, err.message);
}

static void add_until_full(tri_journal *j) {
  tri_error err = {0};
  while (!tri_journal_is_full(j)) ck_assert(add(j, &err) == TRI_OK);
}

/* Running jobs go on in smaller segments on a disk without room for a whole one; new ones are refused. */
START_TEST(smaller_segments) {
  tri_journal *j;
  tri_error err;
  ck_assert(open_one(&j, &err) == TRI_OK);
  fault.room = SEGMENT / 2;
  add_until_full(j);
  for (int i = 0; i < 10 * SEGMENT / RECORD; i++) {
    add_so_many(j, 1);
    ck_assert(tri_journal_is_full(j));
    ck_assert(tri_journal_forget(j, 0, &err) == TRI_OK);
  }
  expect_durable(j, seen);
  fault.room = RECORD; /* too little for a record with its heads */
  tri_status st = TRI_OK;
  for (int i = 0; i < SEGMENT / RECORD && st == TRI_OK; i++) st = add(j, &err);
  ck_assert(st == TRI_NO_CAPACITY);
  ck_assert_ptr_nonnull(strstr(err.message, "has no room for 1 KiB"));
  fault.room = 2 * RECORD;
  ck_assert(tri_journal_write(j, &err) == TRI_OK);
  add_so_many(j, 3);
  fault.room = 0;
  ck_assert(tri_journal_forget(j, 0, &err) == TRI_OK);
  ck_assert(!tri_journal_is_full(j));
  add_so_many(j, 2 * SEGMENT / RECORD);
  uint64_t written = seen;
  tri_journal_close(j);
  ck_assert_msg(open_one(&j, &err) == TRI_OK, "%s", err.message);
  ck_assert_uint_eq(seen, written);
  tri_journal_close(j);
}
END_TEST

/* The end on a full disk leaves its room to the next start. */
START_TEST(a_start_on_a_full_disk) {
  tri_journal *j;
  tri_error err;
  ck_assert(open_one(&j, &err) == TRI_OK);
  fault.room = SEGMENT / 2;
  add_until_full(j);
  add_so_many(j, 2);
  uint64_t written = seen;
  tri_journal_close(j);
  fault.room = 1;
  ck_assert_msg(open_one(&j, &err) == TRI_OK, "%s", err.message);
  ck_assert_uint_eq(seen, written);
  ck_assert(tri_journal_is_full(j));
  add_so_many(j, SEGMENT / 2 / RECORD);
  tri_journal_close(j);
}
END_TEST

/* A start that has no room for what its jobs record next is none, and changes nothing. */
START_TEST(a_start_without_room) {
  tri_journal *j;
  tri_error err;
  ck_assert(open_one(&j, &err) == TRI_OK);
  add_so_many(j, 3);
  tri_journal_close(j);
  fault.room = SEGMENT / 2;
  for (int i = 0; i < 2; i++) {
    ck_assert(open_one(&j, &err) == TRI_NO_CAPACITY);
    ck_assert_ptr_nonnull(strstr(err.message, "has no room for 4 KiB of the journal"));
  }
  fault.room = 0;
  ck_assert_msg(open_one(&j, &err) == TRI_OK, "%s", err.message);
  ck_assert_uint_eq(seen, 3);
  add_so_many(j, 1);
  tri_journal_close(j);
  ck_assert(open_one(&j, &err) == TRI_OK);
  ck_assert_uint_eq(seen, 4);
  tri_journal_close(j);
}
END_TEST

START_TEST(a_sync_that_fails) {
  tri_journal *j;
  tri_error err;
  ck_assert(open_one(&j, &err) == TRI_OK);
  ck_assert(add(j, &err) == TRI_OK);
  fault.calls = 0;
  fault.at = 1;
  fault.error = EIO;
  tri_journal_sync(j);
  tri_status st = TRI_OK;
  for (int64_t until = tri_deadline_after_ms(60000); st == TRI_OK && tri_now_ns() < until; usleep(200))
    st = tri_journal_take_sync(j, &err);
  ck_assert(st == TRI_IO);
  ck_assert_ptr_nonnull(strstr(err.message, "cannot be synced"));
  ck_assert_uint_eq(tri_journal_durable(j), 0);
  tri_journal_close(j);
}
END_TEST

/* A process that has all the files that it may have is no disk that fails: the next segment is open already. It is as
 * full, though, until there is a file for the one behind that. */
START_TEST(no_free_descriptor) {
  tri_journal *j;
  tri_error err;
  struct rlimit none = {.rlim_cur = 0, .rlim_max = files.rlim_max};
  ck_assert(open_one(&j, &err) == TRI_OK);
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
  ck_assert_int_eq(dup(0), -1);
  ck_assert(add(j, &err) == TRI_OK);
  expect_durable(j, 1);
  for (int i = 0; i < SEGMENT / RECORD; i++) ck_assert_msg(add(j, &err) == TRI_OK, "%s", err.message);
  expect_durable(j, seen);
  ck_assert(tri_journal_is_full(j));
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
  ck_assert(tri_journal_forget(j, 0, &err) == TRI_OK);
  ck_assert(!tri_journal_is_full(j));
  tri_journal_close(j);
}
END_TEST

static int open_files(void) {
  int count = 0;
  for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

/* Segments that are left while their sync is under way stay open for it, and no longer. */
START_TEST(left_while_it_is_synced) {
  tri_journal *j;
  tri_error err;
  int before = open_files();
  ck_assert(open_one(&j, &err) == TRI_OK);
  ck_assert(add(j, &err) == TRI_OK);
  hold.on = true;
  tri_journal_sync(j);
  int64_t until = tri_deadline_after_ms(60000);
  while (!__atomic_load_n(&hold.is_in, __ATOMIC_SEQ_CST) && tri_now_ns() < until) usleep(100);
  ck_assert(__atomic_load_n(&hold.is_in, __ATOMIC_SEQ_CST));
  for (int i = 0; i < 3 * SEGMENT / RECORD; i++) ck_assert_msg(add(j, &err) == TRI_OK, "%s", err.message);
  __atomic_store_n(&hold.on, false, __ATOMIC_SEQ_CST);
  expect_durable(j, seen);
  ck_assert(!__atomic_load_n(&hold.lost_its_file, __ATOMIC_SEQ_CST));
  tri_journal_close(j);
  ck_assert_int_eq(open_files(), before);
  ck_assert(open_one(&j, &err) == TRI_OK);
  tri_journal_close(j);
}
END_TEST

/* Runs some records with one failing call. Returns the number of calls that there were; *durable is what was said to
 * be durable, *written what was written. */
static int run(uint64_t *durable, uint64_t *written) {
  tri_journal *j;
  tri_error err;
  *durable = *written = 0;
  fault.calls = 0;
  if (open_one(&j, &err) != TRI_OK) {
    ck_assert_str_ne(err.message, "");
    return fault.calls;
  }
  for (int i = 0; i < 40; i++) {
    tri_status st = add(j, &err);
    if (st != TRI_OK) {
      ck_assert_str_ne(err.message, "");
      break;
    }
    *written = seen;
    if (i % 8 == 7) {
      tri_journal_sync(j);
      for (int64_t until = tri_deadline_after_ms(60000); tri_now_ns() < until; usleep(100))
        if (tri_journal_durable(j) >= seen || tri_journal_take_sync(j, NULL) != TRI_OK) break;
    }
    if (tri_journal_take_sync(j, NULL) != TRI_OK) break;
  }
  *durable = tri_journal_durable(j);
  int calls = fault.calls;
  tri_journal_close(j);
  return calls;
}

static void fail_each(int error, bool short_write) {
  uint64_t durable, written;
  int most = 1, failed = 0;
  for (int at = 1; at <= most + 1; at++) {
    tear_down();
    set_up();
    fault.at = at;
    fault.error = error;
    fault.short_write = short_write;
    int calls = run(&durable, &written);
    if (calls > most) most = calls;
    failed += written < 40;
    fault.at = 0;
    tri_journal *j;
    tri_error err;
    tri_status st = open_one(&j, &err);
    ck_assert_msg(st == TRI_OK, "call %d: %s", at, err.message);
    ck_assert_msg(seen >= durable && seen <= 41, "call %d: %d records of %d durable ones", at, (int)seen, (int)durable);
    tri_journal_close(j);
  }
  ck_assert_int_gt(most, 40);
  if (!short_write) ck_assert_int_gt(failed, 10);
}

START_TEST(every_call_fails_once) { fail_each(EIO, false); }
END_TEST
START_TEST(every_call_finds_no_room_once) { fail_each(ENOSPC, false); }
END_TEST
START_TEST(every_write_is_short_once) { fail_each(EIO, true); }
END_TEST

Suite *suite_journal_faults(void) {
  Suite *s = suite_create("journal_faults");
  TCase *t = tcase_create("journal_faults");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, set_up, tear_down);
  tcase_add_test(t, full_disk);
  tcase_add_test(t, room_that_there_is_not);
  tcase_add_test(t, full_disk_without_jobs);
  tcase_add_test(t, smaller_segments);
  tcase_add_test(t, a_start_on_a_full_disk);
  tcase_add_test(t, a_start_without_room);
  tcase_add_test(t, a_sync_that_fails);
  tcase_add_test(t, no_free_descriptor);
  tcase_add_test(t, left_while_it_is_synced);
  tcase_add_test(t, every_call_fails_once);
  tcase_add_test(t, every_call_finds_no_room_once);
  tcase_add_test(t, every_write_is_short_once);
  suite_add_tcase(s, t);
  return s;
}
