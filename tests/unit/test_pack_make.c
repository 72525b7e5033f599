/* SPDX-License-Identifier: Apache-2.0 */
/* How packs are made: by makers that are killed at every call that changes a file, that fail, that find no room, and by
 * several at once. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/pack_form.h"
#include "pack_disk.h"
#include "pack_kit.h"
#include "base/hash.h"

Suite *suite_pack_make(void);

#define PATH TRI_TEST_SCRATCH "/make.pack"
#define SECOND TRI_TEST_SCRATCH "/make2.pack"
enum { LARGEST = 20000, FIRST_ALONE = 2, ALL_ALONE = 4 /* first parts, parts that are in the first file alone */ };

static int num_files; /* of the packs of a test */

static void init(pack_kit *k) {
  pack_kit_init(k, PATH, LARGEST);
  if (num_files > 1) pack_kit_spread(k, SECOND);
}

static void setup(void) {
  num_files = 1;
  pack_disk_open();
}
static void setup_two_files(void) {
  setup();
  num_files = 2;
}
static void teardown(void) { pack_disk_close(PATH, SECOND); }
static void new_disk(void) {
  ck_assert(!disk->broken);
  *disk = (struct disk){0};
}

static void expect_whole(const pack_kit *k) {
  const char *fault = pack_kit_fault(k);
  ck_assert_msg(!fault, "%s", fault);
  ck_assert(!k->odd && !disk->broken);
}

/* Makes the pack, and says how many parts that took. */
static int finish(pack_kit *k) {
  tri_error err = {0};
  int made;
  ck_assert_msg(pack_kit_make(k, &made, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(made, k->fills);
  expect_whole(k);
  return made;
}

static tri_status expect_failure(pack_kit *k, tri_error *err) {
  int made;
  tri_error_clear(err);
  tri_status st = pack_kit_make(k, &made, err);
  ck_assert_int_ne(st, TRI_OK);
  ck_assert_int_eq(made, -1);
  ck_assert_str_ne(err->message, "");
  ck_assert(!pack_kit_exists(PATH));
  return st;
}

/* A process that makes the pack: its exit code is the parts that it made, 100 and more where it failed. Nothing in it
 * may assert. */
static pid_t start_maker(pack_kit *k) {
  pid_t pid = fork();
  if (pid) return pid;
  int made;
  tri_status st = pack_kit_make(k, &made, NULL);
  _exit(st == TRI_OK ? 50 + made : 100 + (int)st);
}

static int wait_for(pid_t pid) {
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* The first file alone is there. */
static void leave_one_file(pack_kit *k) {
  new_disk();
  finish(k);
  unlink(SECOND);
}

/* Kills a maker at its nth call, then one that goes on with what it left, and then finishes. False: there is no such
 * call. */
static bool kill_at(int n, kill_kind kind, int second, bool begun) {
  pack_kit k;
  init(&k);
  if (begun) leave_one_file(&k);
  int sealed = begun ? ALL_ALONE : 0;
  for (int i = 0; i < 2; i++) {
    new_disk();
    disk->kill = kind;
    disk->kill_at = i ? second : n;
    disk->seed = (uint64_t)n;
    int code = wait_for(start_maker(&k));
    int made = code - 50;
    bool some = kind == KILL_POWER || num_files > 1; /* parts are whole where all of their stripes are */
    ck_assert_msg(code == KILLED || made == KIT_PARTS - sealed || (some && made > KIT_PARTS - sealed), "code %d", code);
    if (!i && code != KILLED) return false;
    sealed += disk->entries;
  }
  new_disk();
  int made = finish(&k);
  if (kind == KILL_POWER || num_files > 1)
    ck_assert_int_ge(made, KIT_PARTS - sealed);
  else
    ck_assert_int_eq(made, KIT_PARTS - sealed);
  return true;
}

START_TEST(killed_at_every_call) {
  int n = 1;
  while (kill_at(n, (kill_kind)_i, 1 + n * 7 % 40, false)) n++;
  ck_assert_int_gt(n, num_files * 2 * KIT_PARTS + 6);
}
END_TEST

START_TEST(killed_beside_a_whole_file) {
  int n = 1;
  while (kill_at(n, (kill_kind)_i, 1 + n * 7 % 20, true)) n++;
  ck_assert_int_gt(n, KIT_PARTS + 6);
}
END_TEST

START_TEST(short_and_interrupted_writes) {
  pack_kit k;
  new_disk();
  disk->short_writes = true;
  init(&k);
  ck_assert_int_eq(finish(&k), KIT_PARTS);
}
END_TEST

/* The disk is waited for now and then, and not after each part. */
START_TEST(parts_are_waited_for_together) {
  pack_kit k;
  new_disk();
  init(&k);
  ck_assert_int_eq(finish(&k), KIT_PARTS);
  /* 16 MiB and the rest; the file and its folder. A second file has less than 16 MiB. */
  ck_assert_int_eq(disk->syncs, num_files > 1 ? 4 + 3 : 4);
}
END_TEST

START_TEST(what_is_whole_stays) {
  pack_kit k;
  tri_error err;
  for (int part = 0; part < KIT_PARTS; part++) {
    new_disk();
    init(&k);
    k.fail_at = part;
    ck_assert_int_eq(expect_failure(&k, &err), TRI_DEVICE_LOST);
    ck_assert_str_eq(err.field, "fill");
    ck_assert_int_eq(pack_kit_exists(k.part), part > 0);
    k.fail_at = -1;
    k.stop_at = part;
    if (part < KIT_PARTS - 1) {
      ck_assert_int_eq(expect_failure(&k, &err), TRI_ABORTED);
      ck_assert_int_eq(k.fills, 1);
      ck_assert_int_eq(k.last_done, part + 1);
    }
    atomic_store(&k.stop, false);
    k.stop_at = -1;
    ck_assert_int_eq(finish(&k), part < KIT_PARTS - 1 ? KIT_PARTS - 1 - part : 1);
  }
}
END_TEST

START_TEST(of_another_key_is_begun_anew) {
  pack_kit k;
  tri_error err;
  for (int i = 0; i < 3; i++) {
    new_disk();
    init(&k);
    k.fail_at = 9;
    expect_failure(&k, &err);
    k.fail_at = -1;
    if (i == 0) k.layout.key.words[0]++;
    if (i == 1) k.sizes[KIT_PARTS - 1]++; /* not made yet; of several files the last one's alone */
    if (i == 2) ck_assert(!truncate(k.part, (off_t)pack_kit_file_bytes(&k, 0) - 1));
    ck_assert_int_eq(finish(&k), KIT_PARTS - (i == 1 && num_files > 1 ? FIRST_ALONE : 0));
  }
}
END_TEST

/* A file that somebody has written to: what its sound entries say is believed, and no more. */
START_TEST(begun_by_nobody) {
  pack_kit k;
  tri_error err;
  uint64_t seed = 7;
  for (int round = 0; round < 200; round++) {
    unsigned char bytes[8];
    new_disk();
    init(&k);
    k.fail_at = 9;
    expect_failure(&k, &err);
    k.fail_at = -1;
    uint64_t r = tri_splitmix64(&seed);
    size_t end = sizeof(tri_weight_pack_header) + KIT_PARTS * sizeof(tri_weight_pack_entry), at = (r >> 16) % end;
    if (r & 1) at = sizeof(tri_weight_pack_header) + at % (end - sizeof(tri_weight_pack_header));
    memcpy(bytes, &r, sizeof bytes);
    FILE *f = fopen(k.part, "r+e");
    ck_assert(f && !fseek(f, (long)at, SEEK_SET) && fwrite(bytes, sizeof bytes, 1, f) == 1 && !fclose(f));
    int first = at + sizeof bytes <= sizeof(tri_weight_pack_header) ? 0 : 1, made = finish(&k);
    ck_assert(first || made == KIT_PARTS);
  }
}
END_TEST

START_TEST(no_room) {
  static const int codes[] = {ENOSPC, EDQUOT, EFBIG};
  pack_kit k;
  tri_error err;
  char needed[32];
  for (int i = 0; i < 7; i++) {
    new_disk();
    init(&k);
    if (i < 3) disk->fallocate_errno = codes[i];
    if (i == 3) disk->room = 17;
    disk->write_errno = i > 3 ? codes[i - 4] : 0;
    disk->write_fails_at = 10;
    ck_assert_int_eq(expect_failure(&k, &err), TRI_NO_CAPACITY);
    int full = num_files > 1 && strstr(err.message, SECOND);
    snprintf(needed, sizeof needed, "%llu bytes", (unsigned long long)pack_kit_file_bytes(&k, full));
    ck_assert_msg(strstr(err.message, needed) && strstr(err.message, " free: "), "%s", err.message);
    if (i == 3) ck_assert_int_eq(disk->calls, 2); /* the file becomes empty, twice; nobody else's room is taken */
    ck_assert(!pack_kit_exists(k.part) && !pack_kit_exists(SECOND ".part") && (i > 3) == (k.fills > 0));
  }
}
END_TEST

/* The one that has no room is named, and nothing is left in the other. */
START_TEST(the_second_folder_is_full) {
  pack_kit k;
  tri_error err;
  new_disk();
  init(&k);
  disk->fallocate_errno = ENOSPC;
  disk->fallocates_well = 1;
  ck_assert_int_eq(expect_failure(&k, &err), TRI_NO_CAPACITY);
  ck_assert_msg(strstr(err.message, "the pack " SECOND " needs ") != NULL, "%s", err.message);
  ck_assert(!pack_kit_exists(k.part) && !pack_kit_exists(SECOND ".part"));
  /* A file that is whole stays. */
  leave_one_file(&k);
  disk->fallocate_errno = ENOSPC;
  disk->fallocates_well = 0;
  int made;
  ck_assert_int_eq(pack_kit_make(&k, &made, &err), TRI_NO_CAPACITY);
  ck_assert(pack_kit_exists(PATH) && !pack_kit_exists(k.part) && !pack_kit_exists(SECOND ".part"));
  new_disk();
  ck_assert_int_lt(finish(&k), KIT_PARTS);
}
END_TEST

START_TEST(no_larger_than_allowed) {
  pack_kit k;
  tri_error err;
  struct rlimit old, less;
  new_disk();
  init(&k);
  ck_assert(!getrlimit(RLIMIT_FSIZE, &old));
  less = (struct rlimit){1 << 20, old.rlim_max};
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  ck_assert(!setrlimit(RLIMIT_FSIZE, &less));
  tri_status st = expect_failure(&k, &err);
  ck_assert(!setrlimit(RLIMIT_FSIZE, &old));
  signal(SIGXFSZ, handler);
  ck_assert_int_eq(st, TRI_NO_CAPACITY);
  ck_assert(!pack_kit_exists(k.part));
  ck_assert_int_eq(finish(&k), KIT_PARTS);
}
END_TEST

START_TEST(file_systems_without_fallocate) {
  pack_kit k;
  for (int i = 0; i < 2; i++) {
    new_disk();
    init(&k);
    disk->fallocate_errno = i ? EINTR : EOPNOTSUPP;
    ck_assert_int_eq(finish(&k), KIT_PARTS);
  }
}
END_TEST

START_TEST(a_disk_that_fails) {
  pack_kit k;
  tri_error err;
  for (int i = 0; i < 2; i++) {
    new_disk();
    init(&k);
    disk->sync_errno = i ? 0 : EIO;
    disk->write_errno = i ? EIO : 0;
    disk->write_fails_at = 10;
    ck_assert_int_eq(expect_failure(&k, &err), TRI_IO);
    ck_assert_msg(strstr(err.message, ".pack.part cannot ") != NULL, "%s", err.message);
    new_disk();
    int left = num_files > 1 ? 5 : 2;
    ck_assert_int_eq(finish(&k), i ? left : KIT_PARTS); /* no entry says that what the disk refused is there */
  }
}
END_TEST

/* Stops in a part until the test lets it go on. */
static tri_status (*kit_fill)(void *ctx, int part, void *memory, tri_error *err);
static tri_status fill_and_hold(void *ctx, int part, void *memory, tri_error *err) {
  pack_kit *k = ctx;
  if (part == k->stop_at) {
    k->stop_at = -1;
    atomic_store(&disk->holding, true);
    while (atomic_load(&disk->hold)) usleep(200);
  }
  return kit_fill(ctx, part, memory, err);
}

static void count_other(void *ctx) {
  (void)ctx;
  atomic_fetch_add(&disk->others, 1);
}

/* Two makers, the first of which holds in a part, and the second of which waits. */
static void start_two(pack_kit *k, int part, pid_t pids[2]) {
  pack_kit first;
  new_disk();
  init(k);
  first = *k;
  first.maker.ctx = &first;
  first.maker.stop = NULL;
  kit_fill = k->maker.fill;
  first.maker.fill = fill_and_hold;
  first.stop_at = part;
  k->maker.other_wrote = count_other;
  atomic_store(&disk->hold, true);
  pids[0] = start_maker(&first);
  while (!atomic_load(&disk->holding)) usleep(200);
  pids[1] = start_maker(k);
  usleep(30000);
  ck_assert_int_eq(waitpid(pids[1], NULL, WNOHANG), 0);
}

START_TEST(the_second_finds_the_pack) {
  pack_kit k;
  pid_t pids[2];
  start_two(&k, 3, pids);
  atomic_store(&disk->hold, false);
  ck_assert_int_eq(wait_for(pids[0]), 50 + KIT_PARTS);
  ck_assert_int_eq(wait_for(pids[1]), 50);
  expect_whole(&k);
}
END_TEST

/* Whoever watches the second's start sees whether the first goes on. */
START_TEST(the_second_sees_the_first_write) {
  pack_kit k;
  pid_t pids[2];
  start_two(&k, 3, pids);
  for (int writes = 1; writes < 4; writes++) {
    for (int i = 0; i < 60000 && atomic_load(&disk->others) < writes; i++) usleep(1000);
    usleep(30000);
    ck_assert_int_eq(atomic_load(&disk->others), writes);
    ck_assert_int_eq(utimensat(AT_FDCWD, k.part, NULL, 0), 0);
  }
  atomic_store(&disk->hold, false);
  ck_assert_int_eq(wait_for(pids[0]), 50 + KIT_PARTS);
  ck_assert_int_eq(wait_for(pids[1]), 50);
}
END_TEST

static tri_status fill_when_allowed(void *ctx, int part, void *memory, tri_error *err) {
  while (part >= atomic_load(&disk->allowed)) usleep(200);
  return kit_fill(ctx, part, memory, err);
}

/* Also where the file whose lock it waits for is whole, or has all of its parts, and another one is written. */
START_TEST(the_second_sees_another_file_written) {
  pack_kit k, first;
  init(&k);
  leave_one_file(&k);
  if (_i) ck_assert_int_eq(rename(k.path, k.part), 0);
  new_disk();
  first = k;
  first.maker.ctx = &first;
  kit_fill = k.maker.fill;
  first.maker.fill = fill_when_allowed;
  k.maker.other_wrote = count_other;
  pid_t one = start_maker(&first);
  while (!pack_kit_exists(SECOND ".part")) usleep(200);
  pid_t other = start_maker(&k);
  for (int part = 5; part < KIT_PARTS; part++) {
    int before = atomic_load(&disk->others);
    usleep(20000); /* file systems count time in ticks */
    atomic_store(&disk->allowed, part);
    for (int i = 0; i < 60000 && atomic_load(&disk->others) == before; i++) usleep(1000);
    ck_assert_int_gt(atomic_load(&disk->others), before);
  }
  atomic_store(&disk->allowed, KIT_PARTS);
  ck_assert_int_gt(wait_for(one), 50);
  ck_assert_int_eq(wait_for(other), 50);
  expect_whole(&k);
}
END_TEST

START_TEST(the_second_goes_on) {
  pack_kit k;
  pid_t pids[2];
  start_two(&k, KIT_PARTS - 1, pids);
  kill(pids[0], SIGKILL);
  ck_assert_int_eq(wait_for(pids[0]), -SIGKILL);
  int made = wait_for(pids[1]) - 50;
  ck_assert_msg(made > 0 && made < KIT_PARTS, "%d parts", made);
  expect_whole(&k);
}
END_TEST

/* The first takes its file away: the second has waited for one that has no name any more. */
START_TEST(the_second_begins_anew) {
  pack_kit k;
  pid_t pids[2];
  start_two(&k, 2, pids);
  disk->write_errno = ENOSPC;
  disk->write_fails_at = 0;
  atomic_store(&disk->hold, false);
  ck_assert_int_eq(wait_for(pids[0]), 100 + TRI_NO_CAPACITY);
  ck_assert_int_eq(wait_for(pids[1]), 50 + KIT_PARTS);
  expect_whole(&k);
}
END_TEST

START_TEST(the_second_is_stopped) {
  pid_t pids[2];
  pack_kit *k = mmap(NULL, sizeof *k, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(k != MAP_FAILED);
  start_two(k, 2, pids);
  atomic_store(&k->stop, true);
  ck_assert_int_eq(wait_for(pids[1]), 100 + TRI_ABORTED);
  atomic_store(&disk->hold, false);
  ck_assert_int_eq(wait_for(pids[0]), 50 + KIT_PARTS);
  expect_whole(k);
  munmap(k, sizeof *k);
}
END_TEST

START_TEST(many_makers_at_once) {
  enum { MAKERS = 5, ROUNDS = 20 };
  pack_kit k;
  for (int round = 0; round < ROUNDS; round++) {
    pid_t pids[MAKERS];
    int made = 0;
    new_disk();
    init(&k);
    for (int i = 0; i < MAKERS; i++) pids[i] = start_maker(&k);
    for (int i = 0; i < MAKERS; i++) made += wait_for(pids[i]) - 50;
    ck_assert_int_eq(made, KIT_PARTS);
    expect_whole(&k);
  }
}
END_TEST

static void add_one(TCase *c) {
  tcase_set_timeout(c, 100);
  tcase_add_loop_test(c, killed_at_every_call, 0, KILL_KINDS);
  tcase_add_test(c, short_and_interrupted_writes);
  tcase_add_test(c, parts_are_waited_for_together);
  tcase_add_test(c, what_is_whole_stays);
  tcase_add_test(c, of_another_key_is_begun_anew);
  tcase_add_test(c, begun_by_nobody);
  tcase_add_test(c, no_room);
  tcase_add_test(c, no_larger_than_allowed);
  tcase_add_test(c, file_systems_without_fallocate);
  tcase_add_test(c, a_disk_that_fails);
}

static void add_two(TCase *c) {
  tcase_set_timeout(c, 60);
  tcase_add_test(c, the_second_finds_the_pack);
  tcase_add_test(c, the_second_sees_the_first_write);
  tcase_add_test(c, the_second_goes_on);
  tcase_add_test(c, the_second_begins_anew);
  tcase_add_test(c, the_second_is_stopped);
  tcase_add_test(c, many_makers_at_once);
}

Suite *suite_pack_make(void) {
  Suite *s = suite_create("pack_make");
  TCase *cases[] = {tcase_create("one"), tcase_create("two"), tcase_create("one_of_two_files"),
                    tcase_create("two_of_two_files")};
  for (int i = 0; i < 4; i++) {
    tcase_add_checked_fixture(cases[i], i < 2 ? setup : setup_two_files, teardown);
    if (i % 2)
      add_two(cases[i]);
    else
      add_one(cases[i]);
    suite_add_tcase(s, cases[i]);
  }
  tcase_add_loop_test(cases[2], killed_beside_a_whole_file, 0, KILL_KINDS);
  tcase_add_test(cases[2], the_second_folder_is_full);
  tcase_add_loop_test(cases[3], the_second_sees_another_file_written, 0, 2);
  return s;
}
