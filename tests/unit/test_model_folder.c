/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of models in a Hugging Face cache: which has the files, and what the model is called. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/model_folder.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_model_folder(void);

static char root[SCRATCH_BYTES];

static void setup(void) { scratch_make(root); }
static void teardown(void) { scratch_remove(root); }

static const char *below(const char *path) {
  static char out[4][300];
  static unsigned next;
  char *to = out[next++ % 4];
  snprintf(to, sizeof out[0], "%s/%s", root, path);
  return to;
}

static void make_folder(const char *path) {
  char command[400];
  snprintf(command, sizeof command, "mkdir -p '%s'", below(path));
  ck_assert_int_eq(system(command), 0);
}

static void make_file(const char *path, const char *text) {
  FILE *f = fopen(below(path), "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  ck_assert_int_eq(fclose(f), 0);
}

static void make_snapshot(const char *entry, const char *revision) {
  char path[300];
  snprintf(path, sizeof path, "%s/snapshots/%s", entry, revision);
  make_folder(path);
  snprintf(path, sizeof path, "%s/snapshots/%s/config.json", entry, revision);
  make_file(path, "{}");
}

static void expect(const char *given, const char *folder, const char *name) {
  char out[TRI_MODEL_FOLDER], called[TRI_MODEL_NAME];
  tri_error err = {0};
  ck_assert_msg(tri_model_folder_find(given, out, &err) == TRI_OK, "%s: %s", given, err.message);
  ck_assert_str_eq(out, folder);
  tri_model_folder_name(out, called);
  ck_assert_str_eq(called, name);
}

#define ENTRY "hub/models--meta-llama--Llama-3.2-1B"

START_TEST(entries_of_a_cache) {
  char out[TRI_MODEL_FOLDER];
  tri_error err = {0};
  make_folder(ENTRY "/refs");
  ck_assert_int_eq(tri_model_folder_find(below(ENTRY), out, &err), TRI_OK); /* an empty folder is what it is */
  make_folder(ENTRY "/snapshots");
  ck_assert_int_eq(tri_model_folder_find(below(ENTRY), out, &err), TRI_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(err.message, "without a snapshot"));
  make_snapshot(ENTRY, "0a1b");
  expect(below(ENTRY), below(ENTRY "/snapshots/0a1b"), "meta-llama/Llama-3.2-1B");
  make_snapshot(ENTRY, "9f8e");
  tri_error_clear(&err);
  ck_assert_int_eq(tri_model_folder_find(below(ENTRY), out, &err), TRI_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "2 snapshots"));
  make_file(ENTRY "/refs/main", "9f8e\n");
  expect(below(ENTRY), below(ENTRY "/snapshots/9f8e"), "meta-llama/Llama-3.2-1B");
  expect(below(ENTRY "/snapshots/0a1b"), below(ENTRY "/snapshots/0a1b"), "meta-llama/Llama-3.2-1B");
  expect(below(ENTRY "/snapshots/0a1b/"), below(ENTRY "/snapshots/0a1b/"), "meta-llama/Llama-3.2-1B");
  make_file(ENTRY "/refs/main", "../../../etc");
  tri_error_clear(&err);
  ck_assert_int_eq(tri_model_folder_find(below(ENTRY), out, &err), TRI_INVALID_ARGUMENT);
  make_snapshot("hub/models--gpt2", "77");
  expect(below("hub/models--gpt2"), below("hub/models--gpt2/snapshots/77"), "gpt2");
  make_snapshot("hub/models--a--b--c", "1");
  expect(below("hub/models--a--b--c"), below("hub/models--a--b--c/snapshots/1"), "a/b--c");
}
END_TEST

START_TEST(other_folders) {
  make_folder("models/mine");
  expect(below("models/mine"), below("models/mine"), "mine");
  expect(below("models/mine//"), below("models/mine//"), "mine");
  expect("/", "/", "model");
  expect(below("nowhere"), below("nowhere"), "nowhere");
  make_folder("snapshots/x"); /* nothing of a cache */
  expect(below("snapshots/x"), below("snapshots/x"), "x");
  make_snapshot(ENTRY, "0a1b");
  ck_assert_int_eq(symlink(below(ENTRY "/snapshots/0a1b"), below("models/link")), 0);
  expect(below("models/link"), below("models/link"), "link");
  char before[4096];
  ck_assert_ptr_nonnull(getcwd(before, sizeof before));
  ck_assert_int_eq(chdir(below(ENTRY "/snapshots/0a1b")), 0);
  expect(".", ".", "meta-llama/Llama-3.2-1B");
  ck_assert_int_eq(chdir(".."), 0);
  expect("0a1b", "0a1b", "meta-llama/Llama-3.2-1B");
  ck_assert_int_eq(chdir(before), 0);
}
END_TEST

/* The name of a repository that lies in the cache; a folder of that name here goes first. */
START_TEST(repositories) {
  char before[4096], old[4096] = "";
  const char *was = getenv("HF_HUB_CACHE");
  if (was) snprintf(old, sizeof old, "%s", was);
  make_snapshot(ENTRY, "0a1b");
  setenv("HF_HUB_CACHE", below("hub"), 1);
  expect("meta-llama/Llama-3.2-1B", below(ENTRY "/snapshots/0a1b"), "meta-llama/Llama-3.2-1B");
  expect("meta-llama/No-such", "meta-llama/No-such", "No-such");
  expect("../hub/models--meta-llama", "../hub/models--meta-llama", "meta-llama");
  ck_assert_ptr_nonnull(getcwd(before, sizeof before));
  ck_assert_int_eq(chdir(root), 0);
  make_folder("meta-llama/Llama-3.2-1B");
  expect("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B", "Llama-3.2-1B");
  ck_assert_int_eq(chdir(before), 0);
  if (was)
    setenv("HF_HUB_CACHE", old, 1);
  else
    unsetenv("HF_HUB_CACHE");
}
END_TEST

START_TEST(long_paths) {
  char path[TRI_MODEL_FOLDER + 10], out[TRI_MODEL_FOLDER], name[TRI_MODEL_NAME];
  tri_error err = {0};
  memset(path, 'x', sizeof path);
  path[TRI_MODEL_FOLDER] = '\0';
  ck_assert_int_eq(tri_model_folder_find(path, out, &err), TRI_TOO_LARGE);
  path[TRI_MODEL_FOLDER - 1] = '\0';
  ck_assert_int_eq(tri_model_folder_find(path, out, &err), TRI_OK);
  tri_model_folder_name(out, name);
  ck_assert_uint_eq(strlen(name), TRI_MODEL_NAME - 1);
}
END_TEST

Suite *suite_model_folder(void) {
  Suite *s = suite_create("model_folder");
  TCase *c = tcase_create("model_folder");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, entries_of_a_cache);
  tcase_add_test(c, other_folders);
  tcase_add_test(c, repositories);
  tcase_add_test(c, long_paths);
  suite_add_tcase(s, c);
  return s;
}
