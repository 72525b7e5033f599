/* SPDX-License-Identifier: Apache-2.0 */
/* Packs as they are read: what comes back of what was made, and that nothing else counts as a pack. */
#include <check.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/pack_form.h"
#include "pack_kit.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/xxh3.h"

Suite *suite_pack(void);

#define PATH TRI_TEST_SCRATCH "/read.pack"
enum { TABLE_END = TRI_READER_BLOCK + KIT_PARTS * sizeof(tri_weight_pack_entry) };

static void make(pack_kit *k, int want_made) {
  tri_error err = {0};
  int made;
  ck_assert_msg(pack_kit_make(k, &made, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(made, want_made);
  const char *fault = pack_kit_fault(k);
  ck_assert_msg(!fault, "%s", fault);
  ck_assert(!k->odd);
}

/* Opens what should not be a pack, and is told why. */
static void expect_none(const pack_kit *k, const char *why) {
  tri_weight_pack *p = NULL;
  tri_error err = {0};
  tri_status st = tri_weight_pack_open(k->path, &k->layout, &p, &err);
  ck_assert_msg(st == TRI_NOT_FOUND && !p && strstr(err.message, why), "%s, not %s: %s", tri_status_name(st), why,
                err.message);
}

START_TEST(made_once_and_read) {
  pack_kit k;
  pack_kit_init(&k, PATH, TRI_WEIGHT_PACK_ALIGN + 5);
  expect_none(&k, "no such file");
  mode_t old = umask(0777);
  make(&k, KIT_PARTS);
  umask(old);
  ck_assert_int_eq(k.fills, KIT_PARTS);
  ck_assert_int_eq(k.last_done, KIT_PARTS);
  ck_assert_uint_eq(k.bytes_done, k.bytes);
  make(&k, 0);
  ck_assert_int_eq(k.fills, 0);
}
END_TEST

START_TEST(in_the_folder_of_the_process) {
  pack_kit k;
  char *here = getcwd(NULL, 0);
  ck_assert(here && !chdir(TRI_TEST_SCRATCH));
  pack_kit_init(&k, "relative.pack", TRI_WEIGHT_PACK_ALIGN + 5);
  make(&k, KIT_PARTS);
  unlink("relative.pack");
  ck_assert(!chdir(here));
  free(here);
}
END_TEST

START_TEST(of_another_key_or_layout) {
  pack_kit k;
  pack_kit_init(&k, PATH, TRI_WEIGHT_PACK_ALIGN + 5);
  make(&k, KIT_PARTS);
  for (int word = 0; word < 2; word++) {
    k.layout.key.words[word]++;
    expect_none(&k, "of another model or layout");
    make(&k, KIT_PARTS);
  }
  k.sizes[KIT_PARTS - 1]++; /* in the same blocks: a file of the same length */
  expect_none(&k, "parts are others");
  make(&k, KIT_PARTS);
  k.layout.num_parts--;
  expect_none(&k, "parts are others");
}
END_TEST

START_TEST(layouts_that_no_file_can_have) {
  tri_weight_pack *p = NULL;
  size_t huge[] = {(size_t)INT64_MAX / 4, (size_t)INT64_MAX / 4, 1}, zero[] = {1, 0}, most[] = {SIZE_MAX, 1};
  const struct {
    const size_t *sizes;
    int count;
  } cases[] = {{huge, 3}, {zero, 2}, {most, 2}, {huge, 0}, {huge, -1}, {huge, TRI_WEIGHT_PACK_MAX_PARTS + 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_weight_pack_layout layout = {.part_bytes = cases[i].sizes, .num_parts = cases[i].count};
    ck_assert_uint_eq(tri_weight_pack_file_bytes(&layout), 0);
    ck_assert_int_eq(tri_weight_pack_open(PATH, &layout, &p, NULL), TRI_OUT_OF_RANGE);
    for (int files = 1; files < 4; files++) {
      tri_pack_paths paths = {.list = {PATH, PATH "2", PATH "3"}, .count = files};
      tri_striped_pack *s = NULL;
      ck_assert_int_eq(tri_striped_pack_make(&paths, &layout, &(tri_weight_pack_maker){0}, &s, NULL, NULL),
                       TRI_OUT_OF_RANGE);
    }
  }
  ck_assert(!pack_kit_exists(PATH ".part"));
}
END_TEST

/* Tables of more than one block, and of exactly one. */
START_TEST(many_parts) {
  enum { BLOCK_OF = TRI_READER_BLOCK / sizeof(tri_weight_pack_entry) };
  size_t sizes[BLOCK_OF + 1];
  for (int i = 0; i < BLOCK_OF + 1; i++) sizes[i] = 1;
  tri_weight_pack_layout one = {.part_bytes = sizes, .num_parts = BLOCK_OF},
                         two = {.part_bytes = sizes, .num_parts = BLOCK_OF + 1};
  ck_assert_uint_eq(tri_weight_pack_file_bytes(&one), BLOCK_OF * TRI_WEIGHT_PACK_ALIGN + TRI_READER_BLOCK);
  ck_assert_uint_eq(tri_weight_pack_file_bytes(&two), (BLOCK_OF + 1) * TRI_WEIGHT_PACK_ALIGN + TRI_READER_BLOCK);
  for (int i = 0; i < 2; i++) {
    tri_weight_pack_header h;
    const tri_weight_pack_layout *layout = i ? &two : &one;
    int fd = open(PATH, O_RDWR | O_CREAT | O_TRUNC, 0600);
    tri_weight_pack_header_fill(&h, layout);
    ck_assert_int_eq(pwrite(fd, &h, sizeof h, 0), sizeof h);
    for (int part = 0; part < layout->num_parts; part++) {
      tri_weight_pack_entry e =
          tri_weight_pack_entry_make(&h, (uint64_t)(part + 1) * TRI_WEIGHT_PACK_ALIGN, 1, (uint64_t)part);
      ck_assert_int_eq(pwrite(fd, &e, sizeof e, (off_t)tri_weight_pack_entry_offset(part)), sizeof e);
    }
    ck_assert(!ftruncate(fd, (off_t)h.file_bytes));
    close(fd);
    tri_weight_pack *p = NULL;
    ck_assert_int_eq(tri_weight_pack_open(PATH, layout, &p, NULL), TRI_OK);
    for (int part = 0; part < p->num_parts; part++) ck_assert_uint_eq(p->checksums[part], (uint64_t)part);
    tri_weight_pack_close(p);
  }
  unlink(PATH);
}
END_TEST

/* Writes the reason that a damaged byte should have. */
static void reason(char out[32], int at) {
  const char *why = at < 12 ? "another version" : "header is damaged";
  if (at < 8) why = "no pack";
  if (at < TRI_READER_BLOCK)
    snprintf(out, 32, "%s", why);
  else
    snprintf(out, 32, "part %d of", (at - TRI_READER_BLOCK) / (int)sizeof(tri_weight_pack_entry));
}

START_TEST(every_damaged_word) {
  pack_kit k;
  pack_kit_init(&k, PATH, TRI_WEIGHT_PACK_ALIGN + 5);
  make(&k, KIT_PARTS);
  int fd = open(PATH, O_RDWR);
  for (int at = 0; at < TABLE_END; at += 8) {
    uint64_t word, other;
    char why[32];
    ck_assert_int_eq(pread(fd, &word, 8, at), 8);
    for (int bit = 0; bit < 64; bit += 21) {
      other = word ^ (uint64_t)1 << bit;
      ck_assert_int_eq(pwrite(fd, &other, 8, at), 8);
      reason(why, at + bit / 8);
      expect_none(&k, why);
    }
    ck_assert_int_eq(pwrite(fd, &word, 8, at), 8);
  }
  ck_assert(!pack_kit_fault(&k));
  k.layout.key.words[0]++; /* what is damaged is made anew, as is what is another's */
  ck_assert_int_eq(pwrite(fd, "x", 1, 100), 1);
  close(fd);
  make(&k, KIT_PARTS);
}
END_TEST

START_TEST(of_any_other_length) {
  pack_kit k;
  pack_kit_init(&k, PATH, TRI_WEIGHT_PACK_ALIGN + 5);
  make(&k, KIT_PARTS);
  off_t whole = (off_t)tri_weight_pack_file_bytes(&k.layout);
  ck_assert(!truncate(PATH, whole + 1));
  expect_none(&k, " bytes where the pack has ");
  for (off_t length = whole - 1; length; length = length > TABLE_END + 64 ? length * 9 / 10 : length - 1) {
    ck_assert(!truncate(PATH, length));
    expect_none(&k, length < TRI_READER_BLOCK ? "cut off" : " bytes where the pack has ");
  }
  ck_assert(!truncate(PATH, 0));
  expect_none(&k, "cut off");
  make(&k, KIT_PARTS);
}
END_TEST

/* Parts of many sizes in up to 5 files. */
START_TEST(spread_over_files) {
  static const char *const more[] = {PATH "2", PATH "3", PATH "4", PATH "5"};
  static const size_t sizes[] = {TRI_WEIGHT_PACK_ALIGN + 5, 5 * TRI_WEIGHT_PACK_ALIGN - 1, 16 * TRI_WEIGHT_PACK_ALIGN,
                                 13 * TRI_WEIGHT_PACK_ALIGN + 4097};
  pack_kit k;
  for (int files = 2; files <= 5; files++)
    for (int i = 0; i < 4; i++) {
      pack_kit_init(&k, PATH, sizes[i]);
      for (int f = 2; f <= files; f++) pack_kit_spread(&k, more[f - 2]);
      make(&k, KIT_PARTS);
      make(&k, 0);
    }
  for (int f = 0; f < 4; f++) unlink(more[f]);
}
END_TEST

static struct timespec changed(const char *path) {
  struct stat s;
  ck_assert(!stat(path, &s));
  return s.st_ctim;
}

/* It is there when all of its files are; one that is whole stays as it is. */
START_TEST(a_file_is_missing) {
  pack_kit k;
  tri_striped_pack *p = NULL;
  tri_error err = {0};
  for (int missing = 0; missing < 3; missing++) {
    pack_kit_init(&k, PATH, TRI_WEIGHT_PACK_ALIGN + 5);
    pack_kit_spread(&k, PATH "2");
    pack_kit_spread(&k, PATH "3");
    make(&k, KIT_PARTS);
    const char *gone = k.paths.list[missing], *stays = k.paths.list[(missing + 1) % 3];
    struct timespec before = changed(stays);
    unlink(gone);
    tri_error_clear(&err);
    ck_assert_int_eq(tri_striped_pack_open(&k.paths, &k.layout, &p, &err), TRI_NOT_FOUND);
    ck_assert_msg(strstr(err.message, gone) != NULL, "%s", err.message);
    make(&k, missing ? KIT_PARTS - 1 - missing : KIT_PARTS); /* the smallest parts are not in every file */
    struct timespec after = changed(stays);
    ck_assert(before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec);
  }
}
END_TEST

/* Another number of files, or another order: none of them is of use. */
START_TEST(files_in_another_order) {
  pack_kit k, other;
  tri_striped_pack *p = NULL;
  tri_error err = {0};
  pack_kit_init(&k, PATH, TRI_WEIGHT_PACK_ALIGN + 5);
  pack_kit_spread(&k, PATH "2");
  make(&k, KIT_PARTS);
  other = k;
  other.paths.list[0] = PATH "2";
  other.paths.list[1] = PATH;
  ck_assert_int_eq(tri_striped_pack_open(&other.paths, &k.layout, &p, &err), TRI_NOT_FOUND);
  ck_assert_msg(strstr(err.message, "of another model or layout") != NULL, "%s", err.message);
  other.paths.count = 1;
  ck_assert_int_eq(tri_striped_pack_open(&other.paths, &k.layout, &p, NULL), TRI_NOT_FOUND);
  other.paths.list[0] = PATH;
  ck_assert_int_eq(tri_striped_pack_open(&other.paths, &k.layout, &p, NULL), TRI_NOT_FOUND);
  ck_assert(!pack_kit_fault(&k));
  unlink(PATH "2");
  unlink(PATH "3");
}
END_TEST

START_TEST(something_else_at_the_name) {
  pack_kit k;
  tri_error err;
  tri_weight_pack *p = NULL;
  int made;
  for (int i = 0; i < 6; i++) {
    pack_kit_init(&k, PATH, TRI_WEIGHT_PACK_ALIGN + 5);
    const char *at = i % 2 ? k.part : k.path;
    if (i / 2 == 0) ck_assert(!symlink("/dev/zero", at));
    if (i / 2 == 1) ck_assert(!mkdir(at, 0700));
    if (i / 2 == 2) ck_assert(!mkfifo(at, 0600));
    tri_error_clear(&err);
    ck_assert_int_eq(tri_weight_pack_open(k.path, &k.layout, &p, &err), i % 2 ? TRI_NOT_FOUND : TRI_IO);
    tri_error_clear(&err);
    ck_assert_int_eq(pack_kit_make(&k, &made, &err), TRI_IO);
    ck_assert_msg(strstr(err.message, at) != NULL, "%s", err.message);
    const char *why = i / 2 ? "not a file" : "symbolic link";
    if (i == 3) why = "Is a directory";
    ck_assert_msg(strstr(err.message, why) != NULL, "%s", err.message);
    ck_assert(pack_kit_exists(at) && !k.fills);
    ck_assert(!remove(at));
  }
  pack_kit_init(&k, TRI_TEST_SCRATCH "/no/such/folder", TRI_WEIGHT_PACK_ALIGN + 5);
  ck_assert_int_eq(pack_kit_make(&k, &made, &err), TRI_IO);
}
END_TEST

/* Nobody makes files there, not even root. */
START_TEST(a_folder_that_cannot_be_written) {
  pack_kit k;
  tri_error err = {0};
  int made;
  if (access("/sys", F_OK)) return;
  pack_kit_init(&k, "/sys/trireme.pack", TRI_WEIGHT_PACK_ALIGN + 5);
  ck_assert_int_eq(pack_kit_make(&k, &made, &err), TRI_PERMISSION);
  ck_assert_msg(strstr(err.message, "/sys/trireme.pack.part cannot be made") != NULL, "%s", err.message);
  pack_kit_init(&k, PATH, TRI_WEIGHT_PACK_ALIGN + 5);
  pack_kit_spread(&k, "/sys/trireme.pack");
  tri_error_clear(&err);
  ck_assert_int_eq(pack_kit_make(&k, &made, &err), TRI_PERMISSION);
  ck_assert_msg(strstr(err.message, "/sys/trireme.pack.part cannot be made") != NULL, "%s", err.message);
  ck_assert(!pack_kit_exists(k.path) && !pack_kit_exists(k.part)); /* what was begun in the other is gone */
}
END_TEST

/* Damages a few bytes, and puts the checksums right again at times: the field alone must be enough to refuse it, but
 * for a part's checksum, which the part's bytes do not meet then. */
static void damage(unsigned char image[TABLE_END], uint64_t *seed) {
  tri_weight_pack_header *h = (tri_weight_pack_header *)image;
  tri_weight_pack_entry *entries = (tri_weight_pack_entry *)(image + TRI_READER_BLOCK);
  uint64_t how = tri_splitmix64(seed);
  for (uint64_t n = 1 + how % 4; n; n--) {
    uint64_t r = tri_splitmix64(seed), at = (r >> 8) % TABLE_END;
    if (how & 16) at = (r >> 8) % 64; /* where a header's fields are */
    if (how & 32) at = TRI_READER_BLOCK + (r >> 8) % (TABLE_END - TRI_READER_BLOCK);
    image[at] = (unsigned char)r;
  }
  if (how & 64) h->checksum = tri_xxh3(h, offsetof(tri_weight_pack_header, checksum));
  for (int i = 0; how & 128 && i < KIT_PARTS; i++)
    entries[i] = tri_weight_pack_entry_make(h, entries[i].offset, entries[i].bytes, entries[i].checksum);
}

START_TEST(random_damage) {
  static _Alignas(8) unsigned char good[TABLE_END], image[TABLE_END];
  pack_kit k;
  uint64_t seed = 1;
  int refused = 0;
  pack_kit_init(&k, PATH, TRI_WEIGHT_PACK_ALIGN + 5);
  make(&k, KIT_PARTS);
  int fd = open(PATH, O_RDWR);
  ck_assert_int_eq(pread(fd, good, sizeof good, 0), sizeof good);
  for (int round = 0; round < 20000; round++) {
    tri_weight_pack *p = NULL;
    memcpy(image, good, sizeof good);
    damage(image, &seed);
    ck_assert_int_eq(pwrite(fd, image, sizeof image, 0), sizeof image);
    tri_status st = tri_weight_pack_open(PATH, &k.layout, &p, NULL);
    ck_assert(st == TRI_OK || st == TRI_NOT_FOUND);
    const tri_weight_pack_entry *now = (const tri_weight_pack_entry *)(image + TRI_READER_BLOCK),
                                *was = (const tri_weight_pack_entry *)(good + TRI_READER_BLOCK);
    bool same = !memcmp(image, good, TRI_READER_BLOCK);
    for (int i = 0; i < KIT_PARTS; i++) same &= now[i].offset == was[i].offset && now[i].bytes == was[i].bytes;
    ck_assert(same || st == TRI_NOT_FOUND);
    for (int i = 0; st == TRI_OK && i < KIT_PARTS; i++) ck_assert_uint_eq(p->checksums[i], now[i].checksum);
    refused += st != TRI_OK;
    tri_weight_pack_close(p);
  }
  ck_assert_int_gt(refused, 15000);
  close(fd);
  unlink(PATH);
}
END_TEST

Suite *suite_pack(void) {
  Suite *s = suite_create("pack");
  TCase *c = tcase_create("read");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, made_once_and_read);
  tcase_add_test(c, in_the_folder_of_the_process);
  tcase_add_test(c, of_another_key_or_layout);
  tcase_add_test(c, layouts_that_no_file_can_have);
  tcase_add_test(c, many_parts);
  tcase_add_test(c, every_damaged_word);
  tcase_add_test(c, of_any_other_length);
  tcase_add_test(c, something_else_at_the_name);
  tcase_add_test(c, a_folder_that_cannot_be_written);
  tcase_add_test(c, spread_over_files);
  tcase_add_test(c, a_file_is_missing);
  tcase_add_test(c, files_in_another_order);
  tcase_add_test(c, random_damage);
  suite_add_tcase(s, c);
  return s;
}
