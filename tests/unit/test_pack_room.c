/* SPDX-License-Identifier: Apache-2.0 */
/* A look at the folders of a pack before anything is made: whether they have room for it. */
#include <check.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "offload/pack_room.h"
#include "pack_disk.h"
#include "pack_kit.h"

Suite *suite_pack_room(void);

#define PATH TRI_TEST_SCRATCH "/room.pack"
#define SECOND TRI_TEST_SCRATCH "/room2.pack"
enum { LARGEST = 20000 };

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

/* A look says what a maker would meet, and leaves nothing; packs that were looked at before have their room, and one
 * that is there, or is the same once more, wants none. */
START_TEST(a_look_at_the_room) {
  pack_kit k;
  tri_error err = {0};
  int made;
  init(&k);
  tri_weight_pack_key keys[4];
  tri_pack_rooms rooms = {.keys = keys};
  uint64_t bytes = pack_kit_file_bytes(&k, 0) + (num_files > 1 ? pack_kit_file_bytes(&k, 1) : 0);
  struct statvfs v;
  ck_assert(!statvfs(TRI_TEST_SCRATCH, &v));
  disk->room = (2 * bytes - 1) / v.f_frsize;
  ck_assert_int_eq(tri_striped_pack_check(&k.paths, &k.layout, &rooms, &err), TRI_OK);
  ck_assert_int_eq(tri_striped_pack_check(&k.paths, &k.layout, &rooms, &err), TRI_OK);
  k.layout.key.words[1]++;
  ck_assert_int_eq(tri_striped_pack_check(&k.paths, &k.layout, &rooms, &err), TRI_NO_CAPACITY);
  ck_assert_msg(strstr(err.message, num_files > 1 ? "the pack " SECOND " needs " : "the pack " PATH " needs ") != NULL,
                "%s", err.message);
  ck_assert(!pack_kit_exists(k.path) && !pack_kit_exists(k.part) && !disk->calls);
  disk->room = 0;
  ck_assert_int_eq(pack_kit_make(&k, &made, &err), TRI_OK);
  disk->room = 1;
  rooms = (tri_pack_rooms){.keys = keys};
  ck_assert_int_eq(tri_striped_pack_check(&k.paths, &k.layout, &rooms, &err), TRI_OK);
  if (num_files == 1) return;
  unlink(SECOND); /* what is missing of it */
  rooms = (tri_pack_rooms){.keys = keys};
  ck_assert_int_eq(tri_striped_pack_check(&k.paths, &k.layout, &rooms, &err), TRI_NO_CAPACITY);
}
END_TEST

/* A file that an earlier maker has left needs only the rest, and one that nobody may write to is named. */
START_TEST(a_look_at_what_was_begun) {
  pack_kit k;
  tri_error err = {0};
  int made;
  tri_weight_pack_key keys[1];
  init(&k);
  k.stop_at = KIT_PARTS / 2;
  ck_assert_int_eq(pack_kit_make(&k, &made, NULL), TRI_ABORTED);
  disk->room = 1;
  tri_pack_rooms rooms = {.keys = keys};
  ck_assert_int_eq(tri_striped_pack_check(&k.paths, &k.layout, &rooms, &err), TRI_OK);
  unlink(k.part);
  ck_assert(!mkdir(k.part, 0700));
  rooms = (tri_pack_rooms){.keys = keys};
  ck_assert_int_eq(tri_striped_pack_check(&k.paths, &k.layout, &rooms, &err), TRI_IO);
  ck_assert_msg(strstr(err.message, k.part) != NULL, "%s", err.message);
  rmdir(k.part);
  tri_error_clear(&err);
  bool root = !geteuid();
  ck_assert(!root || !seteuid(65534)); /* nobody: root may write anywhere */
  k.paths.list[0] = "/none.pack";
  rooms = (tri_pack_rooms){.keys = keys};
  tri_status st = tri_striped_pack_check(&k.paths, &k.layout, &rooms, &err);
  ck_assert(!root || !seteuid(0));
  ck_assert_int_eq(st, TRI_PERMISSION);
  ck_assert_msg(strstr(err.message, "/none.pack.part cannot be made, and there is no pack that fits") != NULL, "%s",
                err.message);
}
END_TEST

Suite *suite_pack_room(void) {
  Suite *s = suite_create("pack_room");
  TCase *one = tcase_create("one file"), *two = tcase_create("two files");
  tcase_add_checked_fixture(one, setup, teardown);
  tcase_add_checked_fixture(two, setup_two_files, teardown);
  tcase_add_test(one, a_look_at_the_room);
  tcase_add_test(one, a_look_at_what_was_begun);
  tcase_add_test(two, a_look_at_the_room);
  suite_add_tcase(s, one);
  suite_add_tcase(s, two);
  return s;
}
