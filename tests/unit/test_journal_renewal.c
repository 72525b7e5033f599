/* SPDX-License-Identifier: Apache-2.0 */
/* A journal whose folder others use, or remove: nothing of theirs is touched, and nothing passes for durable that no
 * start would find. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/journal/journal.h"
#include "base/wait.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_journal_renewal(void);

enum { SEGMENT = 4096, RECORD = 200, SEVERAL = 60 /* records in several segments */, OTHERS = 10 };
static char scratch[SCRATCH_BYTES];
static char folder[2 * SCRATCH_BYTES]; /* the journal's, $f in commands */

static void set_up(void) {
  scratch_make(scratch);
  snprintf(folder, sizeof folder, "%s/j", scratch);
}

static void tear_down(void) { scratch_remove(scratch); }

static int try_command(const char *way) {
  char command[1024];
  snprintf(command, sizeof command, "f=%s; %s", folder, way);
  return system(command);
}

static void run_command(const char *way) { ck_assert_msg(!try_command(way), "%s", way); }

static tri_status count(void *ctx, const tri_journal_record *r, tri_error *err) {
  (void)r;
  (void)err;
  ++*(uint64_t *)ctx;
  return TRI_OK;
}

static tri_journal *open_one(uint64_t *num) {
  tri_journal_config cfg = {.folder = folder, .segment_bytes = SEGMENT};
  tri_journal *j = NULL;
  tri_error err = {0};
  *num = 0;
  tri_status st = tri_journal_open(&cfg, count, num, &j, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  return j;
}

/* Returns the number of the last one. */
static uint64_t add(tri_journal *j, int records) {
  static const char bytes[RECORD];
  uint64_t number = 0;
  for (int i = 0; i < records; i++) ck_assert(tri_journal_append(j, 1, bytes, sizeof bytes, &number) == TRI_OK);
  return number;
}

static void write_many(tri_journal *j, int records) {
  tri_error err = {0};
  add(j, records);
  tri_status st = tri_journal_write(j, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
}

static void make_durable(tri_journal *j, uint64_t number) {
  int64_t until = tri_deadline_after_ms(60000);
  tri_journal_sync(j);
  while (tri_journal_durable(j) < number && tri_now_ns() < until) usleep(200);
  ck_assert_uint_ge(tri_journal_durable(j), number);
}

/* Leaves the journal of another start, which was killed, in $f.other. */
static void make_others(void) {
  uint64_t num;
  tri_journal *j = open_one(&num);
  write_many(j, OTHERS);
  tri_journal_close(j);
  run_command("test -f $f/0000000000000001.journal && mv $f $f.other");
}

/* Segments that another start has left stay as they are, whatever their names, and the journal waits for their going.
 * Nobody has a lock there. */
START_TEST(others_segments_stay) {
  static const struct {
    const char *comes, *goes;
    bool lost;
  } ways[] = {
      {"rm -rf $f && mv $f.other $f", "mv $f $f.other", true},
      {"rm -rf $f/* && cp -p $f.other/*.journal $f", "rm -rf $f.other && cp -rp $f $f.other && rm -rf $f", true},
      {"rm $f/*.journal && cp -p $f.other/*.journal $f", "rm -rf $f.other && cp -rp $f $f.other && rm -rf $f", true},
      {"mv $f $f.old && mv $f.other $f", "mv $f $f.other", false},
  };
  uint64_t num;
  bool renewed = true;
  tri_error err = {0};
  make_others();
  tri_journal *j = open_one(&num);
  write_many(j, SEVERAL);
  run_command(ways[_i].comes);
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(tri_journal_renew(j, &renewed, &err), TRI_AGAIN);
    ck_assert_ptr_nonnull(strstr(err.message, "0000000000000001.journal is of another start's journal"));
    tri_error_clear(&err);
    ck_assert(!renewed && tri_journal_is_lost(j) == ways[_i].lost);
    write_many(j, SEVERAL);
    ck_assert(tri_journal_forget(j, SEVERAL, NULL) == TRI_OK);
  }
  run_command(ways[_i].goes);
  ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_OK);
  ck_assert(renewed && !tri_journal_is_lost(j));
  write_many(j, SEVERAL);
  tri_journal_close(j);
  j = open_one(&num);
  ck_assert_uint_eq(num, SEVERAL);
  tri_journal_close(j);
  run_command("rm -rf $f && mv $f.other $f");
  j = open_one(&num);
  ck_assert_uint_eq(num, OTHERS);
  tri_journal_close(j);
}
END_TEST

/* The end of one that may not use a folder removes nothing in it. */
START_TEST(others_segments_stay_at_its_end) {
  uint64_t num;
  bool renewed;
  make_others();
  tri_journal *j = open_one(&num);
  write_many(j, SEVERAL);
  run_command("rm -rf $f && mv $f.other $f");
  if (_i) ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_AGAIN);
  tri_journal_remove(j);
  j = open_one(&num);
  ck_assert_uint_eq(num, OTHERS);
  tri_journal_close(j);
}
END_TEST

/* Old segments are removed in the folder that the journal has, and while that is its own. */
START_TEST(forgets_nothing_of_others) {
  static const struct {
    const char *comes, *stays;
  } ways[] = {
      {"rm $f/lock $f/0000000000000001.journal && echo x >$f/0000000000000001.journal && touch $f/lock && ls -li $f "
       ">$f.ls",
       "ls -li $f | diff - $f.ls"},
      {"mv $f $f.old && mkdir -m 0700 $f && touch $f/lock && echo x >$f/0000000000000001.journal && ls -li $f >$f.ls",
       "ls -li $f | diff - $f.ls && test ! -e $f.old/0000000000000001.journal"},
  };
  uint64_t num;
  tri_journal *j = open_one(&num);
  write_many(j, SEVERAL);
  make_durable(j, SEVERAL);
  run_command(ways[_i].comes);
  ck_assert(tri_journal_forget(j, SEVERAL, NULL) == TRI_OK);
  run_command(ways[_i].stays);
  if (!_i) ck_assert(tri_journal_forget(j, SEVERAL + 1, NULL) == TRI_OK);
  run_command(ways[_i].stays);
  tri_journal_close(j);
}
END_TEST

static void wait_for_removal(tri_journal *j) {
  int64_t until = tri_deadline_after_ms(60000);
  tri_journal_sync(j);
  while (!tri_journal_is_removed(j) && tri_now_ns() < until) usleep(200);
  ck_assert(tri_journal_is_removed(j));
}

/* Records synced into a file without a name are not durable until a sync after a renewal, or until there is no journal
 * any more. */
START_TEST(removed_before_its_sync) {
  uint64_t num;
  bool renewed = false, can = _i == 0;
  tri_journal *j = open_one(&num);
  write_many(j, 2);
  make_durable(j, 2);
  write_many(j, 3);
  run_command(can ? "rm -rf $f" : "rm -rf $f && echo x >$f");
  wait_for_removal(j);
  ck_assert(tri_journal_take_sync(j, NULL) == TRI_OK);
  ck_assert_uint_eq(tri_journal_durable(j), 2);
  ck_assert((tri_journal_renew(j, &renewed, NULL) == TRI_OK) == can);
  ck_assert(renewed == can && tri_journal_is_lost(j) == !can);
  ck_assert_uint_eq(tri_journal_durable(j), 2);
  ck_assert(tri_journal_write(j, NULL) == TRI_OK);
  if (can) ck_assert(!tri_journal_is_removed(j));
  make_durable(j, 5);
  write_many(j, 1);
  make_durable(j, 6);
  tri_journal_close(j);
  if (!can) run_command("rm $f");
  j = open_one(&num);
  ck_assert_uint_eq(num, can ? 1 : 0);
  tri_journal_close(j);
}
END_TEST

/* A segment that follows one without a name would be the first of its folder, and missing others. */
START_TEST(removed_before_the_next_segment) {
  uint64_t num;
  bool renewed = false;
  tri_journal *j = open_one(&num);
  write_many(j, 1);
  run_command("rm $f/*.journal");
  add(j, SEVERAL);
  ck_assert(tri_journal_write(j, NULL) == TRI_IO);
  run_command("test -z \"$(ls $f/*.journal 2>/dev/null)\"");
  ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_OK && renewed);
  ck_assert(tri_journal_write(j, NULL) == TRI_OK);
  make_durable(j, 1 + SEVERAL);
  tri_journal_close(j);
  j = open_one(&num);
  ck_assert_uint_gt(num, 0);
  ck_assert_uint_lt(num, SEVERAL);
  tri_journal_close(j);
}
END_TEST

/* A copy of the journal's folder in its place, or the folder itself that comes back late, has segments of its own. */
START_TEST(comes_back) {
  static const char *const ways[] = {"cp -r $f $f.copy && rm -r $f && mv $f.copy $f", "rm -r $f && mv $f.copy $f"};
  uint64_t num;
  bool renewed = false;
  tri_journal *j = open_one(&num);
  write_many(j, SEVERAL);
  if (_i) {
    run_command("mv $f $f.copy");
    ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_OK && renewed);
    write_many(j, SEVERAL);
    ck_assert(tri_journal_forget(j, 2 * SEVERAL, NULL) == TRI_OK);
  }
  run_command(ways[_i]);
  ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_OK);
  ck_assert(renewed && !tri_journal_is_lost(j));
  write_many(j, 3);
  tri_journal_close(j);
  j = open_one(&num);
  ck_assert_uint_eq(num, 3);
  tri_journal_close(j);
}
END_TEST

/* A segment is emptied in place, as log rotation does; the next record then lies past its end. */
START_TEST(truncated) {
  uint64_t num;
  bool renewed = false;
  tri_journal *j = open_one(&num);
  write_many(j, 2);
  make_durable(j, 2);
  run_command(_i % 2 ? "truncate -s 64 $f/*.journal" : "truncate -s 0 $f/*.journal");
  if (_i < 2) {
    write_many(j, 1);
    wait_for_removal(j);
    ck_assert_uint_eq(tri_journal_durable(j), 2);
  }
  ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_OK);
  ck_assert(renewed && !tri_journal_is_lost(j) && !tri_journal_is_removed(j));
  write_many(j, 3);
  make_durable(j, _i < 2 ? 6 : 5);
  tri_journal_close(j);
  j = open_one(&num);
  ck_assert_uint_eq(num, 3);
  tri_journal_close(j);
}
END_TEST

/* A segment after a truncated one would lack the records before it. */
START_TEST(truncated_before_the_next_segment) {
  uint64_t num;
  bool renewed = false;
  tri_journal *j = open_one(&num);
  write_many(j, 1);
  run_command("truncate -s 0 $f/*.journal");
  add(j, SEVERAL);
  ck_assert(tri_journal_write(j, NULL) == TRI_IO);
  ck_assert(tri_journal_renew(j, &renewed, NULL) == TRI_OK && renewed);
  ck_assert(tri_journal_write(j, NULL) == TRI_OK);
  make_durable(j, 1 + SEVERAL);
  tri_journal_close(j);
  j = open_one(&num);
  ck_assert_uint_gt(num, 0);
  tri_journal_close(j);
}
END_TEST

Suite *suite_journal_renewal(void) {
  Suite *s = suite_create("journal_renewal");
  TCase *t = tcase_create("journal_renewal");
  tcase_set_timeout(t, 60);
  tcase_add_checked_fixture(t, set_up, tear_down);
  tcase_add_loop_test(t, others_segments_stay, 0, 4);
  tcase_add_loop_test(t, others_segments_stay_at_its_end, 0, 2);
  tcase_add_loop_test(t, forgets_nothing_of_others, 0, 2);
  tcase_add_loop_test(t, removed_before_its_sync, 0, 2);
  tcase_add_test(t, removed_before_the_next_segment);
  tcase_add_loop_test(t, comes_back, 0, 2);
  tcase_add_loop_test(t, truncated, 0, 4);
  tcase_add_test(t, truncated_before_the_next_segment);
  suite_add_tcase(s, t);
  return s;
}
