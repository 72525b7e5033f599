/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: what was written comes back, torn ends are cut, damage is refused, full disks are told ahead. */
#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/journal/journal_impl.h"
#include "base/mem.h"
#include "base/wait.h"

Suite *suite_journal(void);

enum { SEGMENT = 4096, MOST = 2000 };
static char folder[64];

struct seen {
  size_t num;
  uint64_t first, last;
  uint32_t types[MOST];
  size_t lens[MOST];
  bool wrong;
};

static size_t len_of(uint64_t number) { return number * 37 % 300; }

static tri_status see(void *ctx, const tri_journal_record *r, tri_error *err) {
  (void)err;
  struct seen *s = ctx;
  if (!s->num) s->first = r->number;
  if (s->num && r->number != s->last + 1) s->wrong = true;
  s->last = r->number;
  s->types[s->num % MOST] = r->type;
  s->lens[s->num++ % MOST] = r->len;
  for (size_t i = 0; i < r->len; i++)
    if (((const uint8_t *)r->data)[i] != (uint8_t)(r->number + i)) s->wrong = true;
  return TRI_OK;
}

static tri_journal *open_one(struct seen *s) {
  tri_journal_config cfg = {.folder = folder, .segment_bytes = SEGMENT};
  tri_journal *j = NULL;
  tri_error err = {0};
  *s = (struct seen){0};
  tri_status st = tri_journal_open(&cfg, see, s, &j, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  return j;
}

static void add(tri_journal *j, uint64_t expected) {
  uint8_t bytes[SEGMENT * 4];
  size_t len = len_of(expected);
  uint64_t number = 0;
  for (size_t i = 0; i < len; i++) bytes[i] = (uint8_t)(expected + i);
  ck_assert(tri_journal_append(j, (uint32_t)expected % 7, bytes, len, &number) == TRI_OK);
  ck_assert_uint_eq(number, expected);
}

static void add_many(tri_journal *j, uint64_t from, uint64_t upto) {
  for (uint64_t n = from; n <= upto; n++) {
    add(j, n);
    if (n % 5 == 0) ck_assert(tri_journal_write(j, NULL) == TRI_OK);
  }
  ck_assert(tri_journal_write(j, NULL) == TRI_OK);
}

static void make_durable(tri_journal *j, uint64_t number) {
  int64_t until = tri_deadline_after_ms(60000);
  tri_journal_sync(j);
  while (tri_journal_durable(j) < number && tri_now_ns() < until) usleep(200);
  ck_assert_uint_ge(tri_journal_durable(j), number);
  ck_assert(tri_journal_take_sync(j, NULL) == TRI_OK);
}

static void set_up(void) {
  snprintf(folder, sizeof folder, "/tmp/trireme-journal.XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void tear_down(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

static void path_of(uint64_t first, char out[128]) { snprintf(out, 128, "%s/%016" PRIx64 ".journal", folder, first); }

/* What a process that is killed leaves: nothing is closed, and the folder's lock goes with the process. */
static void leave(tri_journal *j) { tri_journal_close(j); }

START_TEST(records_come_back) {
  static struct seen s;
  uint64_t next = 1;
  for (int start = 0; start < 4; start++) {
    tri_journal *j = open_one(&s);
    ck_assert(!s.wrong);
    ck_assert_uint_eq(s.num, next - 1);
    for (uint64_t n = 1; n < next; n++) {
      ck_assert_uint_eq(s.types[n - 1], n % 7);
      ck_assert_uint_eq(s.lens[n - 1], len_of(n));
    }
    add_many(j, next, next + 99);
    next += 100;
    make_durable(j, next - 1);
    leave(j);
  }
}
END_TEST

/* Longer than a segment, between short ones. */
START_TEST(long_records) {
  static struct seen s;
  tri_journal *j = open_one(&s);
  static uint8_t bytes[5 * SEGMENT];
  for (uint64_t n = 1; n <= 9; n++) {
    size_t len = n % 2 ? sizeof bytes : 10;
    for (size_t i = 0; i < len; i++) bytes[i] = (uint8_t)(n + i);
    ck_assert(tri_journal_append(j, 1, bytes, len, NULL) == TRI_OK);
  }
  ck_assert(tri_journal_write(j, NULL) == TRI_OK);
  leave(j);
  j = open_one(&s);
  ck_assert(!s.wrong);
  ck_assert_uint_eq(s.num, 9);
  ck_assert(tri_journal_append(j, 1, bytes, (size_t)TRI_JOURNAL_MOST_BYTES + 1, NULL) == TRI_TOO_LARGE);
  leave(j);
}
END_TEST

START_TEST(one_process_has_it) {
  static struct seen s;
  tri_journal *j = open_one(&s), *other = NULL;
  tri_journal_config cfg = {.folder = folder};
  tri_error err = {0};
  ck_assert(tri_journal_open(&cfg, see, &s, &other, &err) == TRI_AGAIN);
  ck_assert_ptr_nonnull(strstr(err.message, "another coordinator uses the journal"));
  leave(j);
  chmod(folder, 0755);
  err = (tri_error){0};
  ck_assert(tri_journal_open(&cfg, see, &s, &other, &err) == TRI_PERMISSION);
  ck_assert_ptr_nonnull(strstr(err.message, "mode 0755"));
  chmod(folder, 0700);
  if (chown(folder, 1, (gid_t)-1)) return; /* for root alone */
  err = (tri_error){0};
  ck_assert(tri_journal_open(&cfg, see, &s, &other, &err) == TRI_PERMISSION);
  ck_assert_ptr_nonnull(strstr(err.message, "not this user's"));
  ck_assert_int_eq(chown(folder, geteuid(), (gid_t)-1), 0);
}
END_TEST

/* Bytes of one segment, whose records were synced up to a number or not at all. */
static size_t load(uint64_t first, uint8_t *out, size_t cap) {
  char path[128];
  path_of(first, path);
  int fd = open(path, O_RDONLY);
  ssize_t n = read(fd, out, cap);
  close(fd);
  return n > 0 ? (size_t)n : 0;
}

static void store(uint64_t first, const uint8_t *bytes, size_t len) {
  char path[128];
  path_of(first, path);
  int fd = open(path, O_WRONLY | O_TRUNC);
  ck_assert(write(fd, bytes, len) == (ssize_t)len);
  close(fd);
}

/* Every cut of what was never synced leaves the whole records in front of it, and the journal goes on behind them. */
START_TEST(torn_ends_are_cut) {
  static struct seen s;
  static uint8_t whole[SEGMENT], torn[SEGMENT];
  tri_journal *j = open_one(&s);
  add_many(j, 1, 12);
  leave(j);
  size_t len = SEGMENT; /* as it is with a process that was killed */
  ck_assert_uint_lt(load(1, whole, sizeof whole), len);
  for (size_t cut = 16; cut < len; cut += 13) {
    memcpy(torn, whole, len);
    memset(torn + cut, 0, len - cut);
    store(1, torn, len);
    j = open_one(&s);
    ck_assert(!s.wrong);
    uint64_t had = s.num;
    add_many(j, had + 1, had + 1);
    leave(j);
    j = open_one(&s);
    ck_assert(!s.wrong);
    ck_assert_uint_eq(s.num, had + 1);
    leave(j);
  }
  /* One in the middle is gone, as pages come to the disk in any order: what is behind it goes, too, and for good. */
  memcpy(torn, whole, len);
  memset(torn + 100, 0, 200);
  store(1, torn, len);
  j = open_one(&s);
  ck_assert_uint_lt(s.num, 4);
  leave(j);
  j = open_one(&s);
  ck_assert(!s.wrong);
  ck_assert_uint_lt(s.num, 4);
  leave(j);
}
END_TEST

START_TEST(damage_is_refused) {
  static struct seen s;
  static uint8_t whole[SEGMENT], bad[SEGMENT];
  tri_journal_config cfg = {.folder = folder, .segment_bytes = SEGMENT};
  tri_journal *j = open_one(&s), *none = NULL;
  add_many(j, 1, 6);
  make_durable(j, 6);
  add_many(j, 7, 12); /* which say that 6 were durable */
  leave(j);
  size_t len = load(1, whole, sizeof whole), refused = 0;
  for (size_t at = 0; at < 600; at += at < JOURNAL_HEAD_BYTES ? 1 : 7) {
    tri_error err = {0};
    if (at == 7) continue; /* the version */
    memcpy(bad, whole, len);
    bad[at] ^= 0x10;
    store(1, bad, len);
    tri_status st = tri_journal_open(&cfg, see, &s, &none, &err);
    if (st == TRI_OK) leave(none); /* a byte of padding, which nothing depends on */
    if (st == TRI_OK) continue;
    ck_assert(st == TRI_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.message, "0000000000000001.journal is damaged at byte"));
    refused++;
  }
  ck_assert_uint_gt(refused, 100);
}
END_TEST

/* The bytes of a client's text that look like a record which says that those before it were durable, in one that a
 * failure of the machine has torn. Only the salt is not known to whoever wrote them. */
START_TEST(planted_bytes_are_no_record) {
  static struct seen s;
  static uint8_t bytes[SEGMENT];
  tri_journal *j = open_one(&s);
  add_many(j, 1, 3);
  journal_record_head planted = {.number = 5, .durable = 4};
  planted.sum = journal_sum(_i ? j->salt : 0, &planted, bytes);
  uint8_t text[512] = {1};
  memcpy(text + 256, &planted, sizeof planted);
  ck_assert(tri_journal_append(j, 0, text, sizeof text, NULL) == TRI_OK);
  ck_assert(tri_journal_write(j, NULL) == TRI_OK);
  uint64_t end = j->at;
  leave(j);
  size_t len = load(1, bytes, sizeof bytes);
  memset(bytes + end - sizeof text, 0, 64); /* its first bytes have not come to the disk */
  store(1, bytes, len);
  tri_journal_config cfg = {.folder = folder, .segment_bytes = SEGMENT};
  tri_error err = {0};
  s = (struct seen){0};
  tri_status st = tri_journal_open(&cfg, see, &s, &j, &err);
  ck_assert(st == (_i ? TRI_CORRUPT : TRI_OK)); /* 1: whoever knew it could */
  if (!_i) ck_assert_uint_eq(s.num, 3);
  if (!_i) leave(j);
}
END_TEST

/* A segment in the middle that is missing or cut. */
START_TEST(missing_segments_are_refused) {
  static struct seen s;
  tri_journal *j = open_one(&s), *none = NULL;
  tri_journal_config cfg = {.folder = folder, .segment_bytes = SEGMENT};
  tri_error err = {0};
  add_many(j, 1, 100);
  leave(j);
  char path[128];
  uint64_t second = 0;
  for (uint64_t n = 2; n < 100 && !second; n++) {
    path_of(n, path);
    if (!access(path, F_OK)) second = n;
  }
  ck_assert_uint_gt(second, 1);
  unlink(path);
  ck_assert(tri_journal_open(&cfg, see, &s, &none, &err) == TRI_CORRUPT);
  ck_assert_ptr_nonnull(strstr(err.message, "records are missing before it"));
}
END_TEST

START_TEST(other_things_are_refused) {
  static struct seen s;
  tri_journal *none = NULL;
  tri_journal_config cfg = {.folder = folder, .segment_bytes = SEGMENT};
  tri_error err = {0};
  char path[128];
  path_of(1, path);
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  ck_assert(tri_journal_open(&cfg, see, &s, &none, &err) == TRI_CORRUPT);
  ck_assert_ptr_nonnull(strstr(err.message, "is no plain file"));
}
END_TEST

static int files(void) {
  char command[128];
  snprintf(command, sizeof command, "ls %s | grep -c journal", folder);
  FILE *f = popen(command, "r");
  int n = -1;
  ck_assert_int_eq(fscanf(f, "%d", &n), 1);
  pclose(f);
  return n;
}

START_TEST(old_segments_go) {
  static struct seen s;
  tri_journal *j = open_one(&s);
  add_many(j, 1, 200);
  int all = files();
  ck_assert_int_gt(all, 5);
  ck_assert(tri_journal_forget(j, 1, NULL) == TRI_OK);
  ck_assert_int_eq(files(), all);
  ck_assert(tri_journal_forget(j, 100, NULL) == TRI_OK);
  int half = files();
  ck_assert_int_lt(half, all);
  leave(j);
  j = open_one(&s);
  ck_assert(!s.wrong && s.first <= 100 && s.last == 200);
  ck_assert(tri_journal_forget(j, 201, NULL) == TRI_OK);
  ck_assert_int_eq(files(), 1);
  leave(j);
  j = open_one(&s);
  ck_assert_uint_eq(s.num, 0);
  add_many(j, 201, 203); /* numbers go on */
  leave(j);
}
END_TEST

static uint64_t bytes_on_disk(void) {
  char command[128];
  unsigned long long n = 0;
  snprintf(command, sizeof command, "cat %s/* 2>/dev/null | wc -c", folder);
  FILE *f = popen(command, "r");
  ck_assert_int_eq(fscanf(f, "%llu", &n), 1);
  pclose(f);
  return n;
}

static tri_journal *open_usual(struct seen *s) {
  tri_journal_config cfg = {.folder = folder};
  tri_journal *j = NULL;
  *s = (struct seen){0};
  ck_assert(tri_journal_open(&cfg, see, s, &j, NULL) == TRI_OK);
  return j;
}

/* It takes what it holds: little while nothing is needed, and no more than that behind its end. */
START_TEST(no_larger_than_its_records) {
  enum { SMALL = 300 << 10 };
  static struct seen s;
  tri_journal *j = open_usual(&s);
  ck_assert_uint_lt(bytes_on_disk(), SMALL);
  ck_assert(!tri_journal_is_full(j));
  add_many(j, 1, 10);
  ck_assert_uint_gt(bytes_on_disk(), TRI_JOURNAL_SEGMENT_BYTES); /* room for what runs, on a disk that fills up */
  add_many(j, 11, 5000);
  leave(j);
  ck_assert_uint_lt(bytes_on_disk(), 5000 * 400);
  j = open_usual(&s);
  ck_assert(!s.wrong && s.num == 5000);
  ck_assert(!tri_journal_is_full(j));
  ck_assert_uint_gt(bytes_on_disk(), TRI_JOURNAL_SEGMENT_BYTES);
  add_many(j, 5001, 5010);
  ck_assert(tri_journal_forget(j, 5011, NULL) == TRI_OK);
  ck_assert_uint_lt(bytes_on_disk(), SMALL);
  add_many(j, 5011, 5020);
  tri_journal_remove(j);
  ck_assert_int_ne(access(folder, F_OK), 0);
  j = open_usual(&s);
  ck_assert_uint_eq(s.num, 0);
  leave(j);
}
END_TEST

/* What somebody has removed is made anew, behind what was numbered before; a start finds nothing but that. */
START_TEST(removed_by_somebody) {
  static const char *const ways[] = {"rm -rf %s", "rm %s/*.journal", "rm %s/lock", "rm -rf %s && mkdir -m 0700 %s"};
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    static struct seen s;
    char command[256];
    bool renewed = true;
    tri_journal *j = open_one(&s);
    uint64_t had = s.num ? s.last : 0;
    add_many(j, had + 1, had + 100);
    ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_OK);
    ck_assert(!renewed);
    snprintf(command, sizeof command, ways[i], folder, folder);
    ck_assert_int_eq(system(command), 0);
    ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_OK);
    ck_assert(renewed);
    add_many(j, had + 101, had + 150);
    make_durable(j, had + 150);
    leave(j);
    j = open_one(&s);
    ck_assert(!s.wrong && s.num == 50 && s.first == had + 101);
    leave(j);
  }
}
END_TEST

/* Somebody else's lock, as another coordinator has it; -1 with none. */
static int take_lock(const char *command) {
  char path[128];
  if (!strstr(command, "lock")) return -1;
  snprintf(path, sizeof path, "%s/lock", folder);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
  return fd;
}

static void run_command(const char *way) {
  char command[256];
  snprintf(command, sizeof command, "f=%s; %s", folder, way);
  ck_assert_int_eq(system(command), 0);
}

/* While it cannot be made anew what runs goes on, used or not, and nothing of another's folder changes; when it can,
 * it is made anew. */
START_TEST(removed_and_not_made_anew) {
  static const struct {
    const char *removes, *stays, *allows;
    tri_status why;
  } ways[] = {
      {"rm -rf $f && echo x >$f", "test -f $f", "rm $f", TRI_IO},
      {"rm -rf $f && ln -s /nonexistent/x $f", "test -L $f", "rm $f", TRI_IO},
      {"rm -rf $f && mkdir -m 0755 $f", "test -z \"$(ls $f)\"", "chmod 0700 $f", TRI_PERMISSION},
      {"rm -rf $f && mkdir -m 0700 $f && touch $f/lock $f/0000000000000001.journal",
       "test \"$(ls $f | xargs)\" = '0000000000000001.journal lock' && test ! -s $f/0000000000000001.journal",
       "rm -rf $f", TRI_AGAIN},
      {"rm $f/lock && touch $f/lock $f/spare && ls -s $f >$f.ls", "ls -s $f | diff - $f.ls", "rm -rf $f $f.ls",
       TRI_AGAIN},
  };
  static struct seen s;
  bool renewed = true;
  tri_error err = {0};
  tri_journal *j = open_one(&s);
  if (_i % 2) add_many(j, 1, 50);
  uint64_t next = j->next;
  run_command(ways[_i / 2].removes);
  int lock = take_lock(ways[_i / 2].removes);
  for (int i = 0; i < 3; i++, next += 100) {
    ck_assert_int_eq(tri_journal_renew(j, &renewed, &err), ways[_i / 2].why);
    ck_assert_str_ne(err.message, "");
    tri_error_clear(&err);
    ck_assert(!renewed && tri_journal_is_lost(j) && !tri_journal_is_full(j));
    add_many(j, next, next + 99);
    make_durable(j, next + 99);
    ck_assert(tri_journal_reserve(j, 10 * SEGMENT) == TRI_OK);
    ck_assert(tri_journal_forget(j, next, NULL) == TRI_OK);
    run_command(ways[_i / 2].stays);
  }
  run_command(ways[_i / 2].allows);
  if (lock >= 0) close(lock);
  ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_OK);
  ck_assert(renewed && !tri_journal_is_lost(j));
  add_many(j, next, next + 49);
  make_durable(j, next + 49);
  leave(j);
  j = open_one(&s);
  ck_assert(!s.wrong && s.num == 50 && s.first == next);
  leave(j);
}
END_TEST

/* The end of one that is lost removes nothing of the coordinator that has its folder now. */
START_TEST(another_has_the_name) {
  static struct seen s, others;
  bool renewed = true;
  tri_journal *j = open_one(&s);
  add_many(j, 1, 50);
  run_command("mv $f $f.old");
  tri_journal *other = open_one(&others);
  add_many(other, 1, 10);
  for (int i = 0; i < 3; i++) {
    ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_AGAIN);
    ck_assert(!renewed && !tri_journal_is_lost(j)); /* the folder is there, by another name */
    add_many(j, 51 + 100 * (uint64_t)i, 150 + 100 * (uint64_t)i);
  }
  tri_journal_remove(j);
  make_durable(other, 10);
  leave(other);
  other = open_one(&others);
  ck_assert(!others.wrong && others.num == 10);
  leave(other);
  run_command("rm -rf $f && mv $f.old $f");
  j = open_one(&s);
  ck_assert(!s.wrong && s.num == 350);
  leave(j);
}
END_TEST

Suite *suite_journal(void) {
  Suite *s = suite_create("journal");
  TCase *t = tcase_create("journal");
  tcase_set_timeout(t, 60);
  tcase_add_checked_fixture(t, set_up, tear_down);
  tcase_add_test(t, records_come_back);
  tcase_add_test(t, long_records);
  tcase_add_test(t, one_process_has_it);
  tcase_add_test(t, torn_ends_are_cut);
  tcase_add_test(t, damage_is_refused);
  tcase_add_loop_test(t, planted_bytes_are_no_record, 0, 2);
  tcase_add_test(t, missing_segments_are_refused);
  tcase_add_test(t, other_things_are_refused);
  tcase_add_test(t, old_segments_go);
  tcase_add_test(t, no_larger_than_its_records);
  tcase_add_test(t, removed_by_somebody);
  tcase_add_loop_test(t, removed_and_not_made_anew, 0, 10);
  tcase_add_test(t, another_has_the_name);
  suite_add_tcase(s, t);
  return s;
}
