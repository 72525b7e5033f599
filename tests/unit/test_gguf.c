/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of GGUF files: what they say, what a hostile one may claim, and how the files of a model are found. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/gguf_files.h"
#include "base/mem.h"
#include "tests/unit/gguf_file.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_gguf(void);

static void expect(gguf_file *f, tri_status want, const char *field, const char *words) {
  tri_gguf *g = NULL;
  tri_error err = {0};
  gguf_file_end(f);
  tri_status st = tri_gguf_parse(f->whole.data, f->whole.len, f->whole.len, &g, &err);
  ck_assert_msg(st == want, "%s: %s (%s), not %s", words, tri_status_name(st), err.message, tri_status_name(want));
  ck_assert_msg(strstr(err.message, words) != NULL, "\"%s\" does not say \"%s\"", err.message, words);
  ck_assert_str_eq(err.field, field);
  ck_assert_ptr_null(g);
  gguf_file_free(f);
}

static void put_good(gguf_file *f) {
  gguf_key_text(f, "general.architecture", "llama");
  gguf_key_uint(f, "llama.block_count", 2);
  gguf_key_float(f, "llama.eps", 0.5f);
  gguf_key_bool(f, "on", true);
  gguf_key(f, "small", TRI_GGUF_I8);
  gguf_put(&f->keys, 0xff, 1);
  gguf_key_array(f, "words", TRI_GGUF_STRING, 2);
  gguf_put_text(&f->keys, "a", 1);
  gguf_put_text(&f->keys, "bcd", 3);
  gguf_key_array(f, "counts", TRI_GGUF_U16, 3);
  for (int i = 0; i < 3; i++) gguf_put(&f->keys, 1000 + (uint64_t)i, 2);
  gguf_tensor(f, "one.weight", 3, 64, TRI_GGUF_BLOCK_Q8_0);
  gguf_tensor(f, "two.weight", 5, 0, TRI_GGUF_BLOCK_F32);
}

START_TEST(test_reads) {
  gguf_file f = {0};
  tri_gguf *g;
  tri_error err = {0};
  uint64_t n;
  double x;
  bool on = false;
  const char *s;
  size_t len, at = 0;
  put_good(&f);
  gguf_file_end(&f);
  ck_assert_msg(tri_gguf_parse(f.whole.data, f.whole.len, f.whole.len, &g, &err) == TRI_OK, "%s", err.message);
  ck_assert_uint_eq(g->num_keys, 7);
  ck_assert(tri_gguf_is(g, "general.architecture", "llama") && !tri_gguf_is(g, "general.architecture", "llam"));
  ck_assert(tri_gguf_uint(g, "llama.block_count", &n) && n == 2);
  ck_assert(!tri_gguf_uint(g, "small", &n) && !tri_gguf_uint(g, "nowhere", &n) && !tri_gguf_uint(g, "on", &n));
  ck_assert(tri_gguf_item_number(tri_gguf_find(g, "llama.eps"), 0, &x) && x == 0.5);
  ck_assert(tri_gguf_bool(g, "on", &on) && on);
  const tri_gguf_value *counts = tri_gguf_find(g, "counts"), *words = tri_gguf_find(g, "words");
  ck_assert(tri_gguf_item_uint(counts, 2, &n) && n == 1002 && !tri_gguf_item_uint(counts, 3, &n));
  ck_assert(words->is_array && words->count == 2 && !tri_gguf_text(g, "words", &s, &len));
  tri_gguf_next_text(words, &at, &s, &len);
  tri_gguf_next_text(words, &at, &s, &len);
  ck_assert(len == 3 && !memcmp(s, "bcd", 3) && at == words->bytes);
  ck_assert_uint_eq(g->num_tensors, 2);
  const tri_gguf_tensor *t = g->tensors;
  ck_assert(!strcmp(t[0].name, "one.weight") && t[0].rank == 2 && t[0].shape[0] == 64 && t[0].shape[1] == 3);
  ck_assert(t[0].bytes == 6 * 34 && t[0].offset % 32 == 0 && t[0].offset >= g->header_bytes);
  ck_assert(t[1].bytes == 20 && t[1].offset == t[0].offset + 224);
  tri_gguf_close(g);
  gguf_file_free(&f);
}
END_TEST

/* Every shorter file is refused, and every shorter part of the whole one wants more. */
START_TEST(test_every_length) {
  gguf_file f = {0};
  put_good(&f);
  gguf_file_end(&f);
  size_t data = f.whole.len - f.data;
  for (size_t len = 0; len < f.whole.len; len++) {
    tri_gguf *g = NULL;
    tri_error err = {0};
    char *part = tri_malloc(len + 1, 1); /* so that a sanitizer sees a byte too many */
    memcpy(part, f.whole.data, len);
    tri_status st = tri_gguf_parse(part, len, len, &g, &err);
    /* The last tensor's padding is not missed. */
    if (len < f.whole.len - 12) ck_assert_msg(st == TRI_CORRUPT && err.message[0], "%zu: %s", len, tri_status_name(st));
    tri_gguf_close(g);
    g = NULL;
    st = tri_gguf_parse(part, len, f.whole.len, &g, &err);
    if (len + 32 < data) ck_assert_msg(st == TRI_AGAIN, "%zu: %s", len, tri_status_name(st));
    tri_gguf_close(g);
    tri_free(part);
  }
  gguf_file_free(&f);
}
END_TEST

START_TEST(test_hostile_keys) {
  gguf_file f = {.version = 1};
  expect(&f, TRI_UNSUPPORTED, "header", "version 1");
  f.version = 3u << 24;
  expect(&f, TRI_UNSUPPORTED, "header", "big-endian");
  f.num_keys = 1ull << 40;
  expect(&f, TRI_CORRUPT, "header", "1099511627776 keys");
  f.num_tensors = 1ull << 40;
  expect(&f, TRI_CORRUPT, "header", "1099511627776 tensors");
  gguf_put(&f.keys, 1ull << 60, 8);
  f.num_keys = 1;
  gguf_tensor(&f, "t", 1, 0, 0);
  expect(&f, TRI_CORRUPT, "header", "name of key 0");
  gguf_key(&f, "a b", TRI_GGUF_U32);
  gguf_put(&f.keys, 0, 4);
  gguf_tensor(&f, "t", 1, 0, 0);
  expect(&f, TRI_CORRUPT, "header", "byte 32");
  gguf_key(&f, "k", (tri_gguf_type)13);
  gguf_tensor(&f, "t", 1, 0, 0);
  expect(&f, TRI_CORRUPT, "k", "unknown type 13");
  gguf_key(&f, "k", TRI_GGUF_STRING);
  gguf_put(&f.keys, UINT64_MAX, 8);
  gguf_tensor(&f, "t", 1, 0, 0);
  expect(&f, TRI_CORRUPT, "k", "18446744073709551615 bytes");
  gguf_key_array(&f, "k", TRI_GGUF_U64, 1ull << 61);
  gguf_tensor(&f, "t", 1, 0, 0);
  expect(&f, TRI_CORRUPT, "k", "2305843009213693952 items");
  gguf_key_array(&f, "k", TRI_GGUF_ARRAY, 1);
  gguf_tensor(&f, "t", 1, 0, 0);
  expect(&f, TRI_UNSUPPORTED, "k", "array of arrays");
  gguf_key_uint(&f, "k", 1);
  gguf_key_uint(&f, "k", 2);
  expect(&f, TRI_CORRUPT, "k", "two keys k");
  gguf_key_uint(&f, "general.alignment", 12);
  gguf_tensor(&f, "t", 1, 0, 0);
  expect(&f, TRI_CORRUPT, "general.alignment", "multiple of 8");
}
END_TEST

START_TEST(test_hostile_tensors) {
  gguf_file f = {0};
  gguf_tensor_at(&f, "t", 1, 256, 19, 0);
  f.data = 4096;
  expect(&f, TRI_UNSUPPORTED, "t", "IQ1_S (19)");
  gguf_tensor_at(&f, "t", 1, 256, 99, 0);
  f.data = 4096;
  expect(&f, TRI_UNSUPPORTED, "t", "unknown (99)");
  gguf_tensor_at(&f, "t", 1, 0, 0, 0);
  f.tensors.data[8 + 1] = 5; /* dimensions */
  f.data = 4096;
  expect(&f, TRI_CORRUPT, "t", "5 dimensions");
  gguf_tensor_at(&f, "t", 1ull << 40, 1ull << 40, 0, 0);
  expect(&f, TRI_CORRUPT, "t", "can be counted");
  gguf_tensor_at(&f, "t", 0, 0, 0, 0);
  f.data = 4096;
  expect(&f, TRI_CORRUPT, "t", "size of 0");
  gguf_tensor_at(&f, "t", 1, 100, TRI_GGUF_BLOCK_Q4_0, 0);
  f.data = 4096;
  expect(&f, TRI_CORRUPT, "t", "row of 100 elements");
  gguf_tensor_at(&f, "t", 1 << 20, 0, 0, 0);
  f.data = 4096;
  expect(&f, TRI_CORRUPT, "t", "larger than the file");
  gguf_tensor_at(&f, "t", 8, 0, 0, 16);
  f.data = 4096;
  expect(&f, TRI_CORRUPT, "t", "no multiple of the alignment");
  gguf_tensor_at(&f, "t", 8, 0, 0, 4096);
  f.data = 4096;
  expect(&f, TRI_CORRUPT, "t", "lies beyond");
  gguf_tensor_at(&f, "t", 8, 0, 0, UINT64_MAX - 31);
  f.data = 4096;
  expect(&f, TRI_CORRUPT, "t", "lies beyond");
  gguf_tensor_at(&f, "t", 16, 0, 0, 0);
  gguf_tensor_at(&f, "u", 16, 0, 0, 32);
  f.data = 4096;
  expect(&f, TRI_CORRUPT, "u", "before the end of the one before it");
}
END_TEST

START_TEST(test_files) {
  char dir[SCRATCH_BYTES], path[TRI_MODEL_FOLDER], found_path[TRI_MODEL_FOLDER];
  tri_error err = {0};
  gguf_file f = {0};
  bool found;
  int count;
  scratch_make(dir);
  ck_assert(tri_gguf_files_find(dir, found_path, &found, &err) == TRI_OK && !found);
  put_good(&f);
  gguf_key_uint(&f, "split.count", 2);
  snprintf(path, sizeof path, "%s/m-00001-of-00002.gguf", dir);
  gguf_file_write(&f, path);
  char other[TRI_MODEL_FOLDER];
  tri_gguf_files_part(path, 1, 2, other);
  ck_assert_ptr_nonnull(strstr(other, "/m-00002-of-00002.gguf"));
  gguf_file_write(&f, other);
  ck_assert(tri_gguf_files_find(dir, found_path, &found, &err) == TRI_OK && found);
  ck_assert_str_eq(found_path, path);
  ck_assert_int_eq(tri_gguf_files_find(other, found_path, &found, &err), TRI_INVALID_ARGUMENT);
  ck_assert_msg(strstr(err.message, "part 2 of 2") && strstr(err.message, path), "%s", err.message);
  err = (tri_error){0};
  tri_gguf *g;
  ck_assert_int_eq(tri_gguf_files_open(path, found_path, &g, &err), TRI_OK);
  ck_assert(tri_gguf_files_count(g, path, &count, &err) == TRI_OK && count == 2);
  ck_assert_int_eq(tri_gguf_files_count(g, "renamed.gguf", &count, &err), TRI_CORRUPT);
  tri_gguf_close(g);
  err = (tri_error){0};
  snprintf(path, sizeof path, "%s/other.gguf", dir);
  gguf_file_write(&f, path);
  ck_assert_int_eq(tri_gguf_files_find(dir, found_path, &found, &err), TRI_INVALID_ARGUMENT);
  ck_assert_msg(strstr(err.message, "several GGUF files"), "%s", err.message);
  snprintf(path, sizeof path, "%s/config.json", dir);
  gguf_file_write(&f, path);
  ck_assert(tri_gguf_files_find(dir, found_path, &found, &err) == TRI_OK && !found);
  gguf_file_free(&f);
  scratch_remove(dir);
}
END_TEST

Suite *suite_gguf(void) {
  Suite *s = suite_create("gguf");
  TCase *c = tcase_create("gguf");
  tcase_add_test(c, test_reads);
  tcase_add_test(c, test_every_length);
  tcase_add_test(c, test_hostile_keys);
  tcase_add_test(c, test_hostile_tensors);
  tcase_add_test(c, test_files);
  suite_add_tcase(s, c);
  return s;
}
