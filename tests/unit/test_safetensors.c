/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors headers: what a hostile file may claim, and what sharded checkpoints may name. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/model/safetensors.h"

Suite *suite_safetensors(void);

#define DIR TRI_TEST_SCRATCH "/safetensors"

/* ---- helpers ---- */

static void write_file(const char *name, const void *bytes, size_t n) {
  char path[700];
  snprintf(path, sizeof path, DIR "/%s", name);
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
  ck_assert_int_eq(fclose(f), 0);
}

/* A file of a length field, a header and data_len bytes of data counting up. claimed 0: the header's true length. */
static void write_st(const char *name, const char *header, size_t header_len, size_t data_len, uint64_t claimed) {
  size_t n = 8 + header_len + data_len;
  unsigned char *bytes = tri_calloc(n, 1);
  uint64_t len = claimed ? claimed : header_len;
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(len >> (8 * i));
  memcpy(bytes + 8, header, header_len);
  for (size_t i = 0; i < data_len; i++) bytes[8 + header_len + i] = (unsigned char)i;
  write_file(name, bytes, n);
  tri_free(bytes);
}

static void clear_dir(void) {
  static const char *const names[] = {
      "model.safetensors", "model.safetensors.index.json", "a", "b", "a.safetensors", "b.safetensors", "link",
      "sub/a.safetensors"};
  ck_assert(!mkdir(DIR, 0755) || access(DIR, W_OK) == 0);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[700];
    snprintf(path, sizeof path, DIR "/%s", names[i]);
    if (unlink(path)) rmdir(path);
  }
  rmdir(DIR "/sub");
}

static void expect(tri_status st, tri_status want, const tri_error *err, const char *field, const char *what) {
  ck_assert_msg(st == want, "%s: %s (%s: %s), not %s", what, tri_status_name(st), err->field, err->message,
                tri_status_name(want));
  if (want == TRI_OK) return;
  ck_assert_msg(err->status == want && err->message[0], "%s: refused without a reason", what);
  /* A path may be longer than the field: then the sentence names the file. */
  if (field)
    ck_assert_msg(strstr(err->field, field) || strstr(err->message, field), "%s: blamed on \"%s\" (%s), not on %s",
                  what, err->field, err->message, field);
}

/* ---- one file ---- */

#define T(name, dtype, shape, from, to)                                                                                \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

/* All of these are TRI_CORRUPT. */
static const struct hostile {
  const char *what, *header;
  size_t data_len;
  uint64_t claimed; /* the length field; 0: the truth */
  const char *field;
} hostile[] = {
    /* the length field */
    {"header longer than the file", "{}", 0, 3, "model"},
    {"header longer than the file by far", "{}", 0, 1 << 20, "model"},
    {"header above 100 MB", "{}", 0, ((uint64_t)100 << 20) + 1, "model"},
    {"header of 2^63 bytes", "{}", 0, (uint64_t)1 << 63, "model"},
    {"header of 2^64-1 bytes", "{}", 0, UINT64_MAX, "model"},
    {"header of 2^64-8 bytes", "{}", 0, UINT64_MAX - 7, "model"},
    {"header cut short", "{" T("w", "F32", "[1]", "0", "4") "}", 4, 20, ""},
    {"header that runs into the data", "{" T("w", "F32", "[1]", "0", "4") "}", 4, 62, ""},
    /* the JSON */
    {"empty header", "", 0, 0, ""},
    {"no JSON", "hello", 0, 0, ""},
    {"an array", "[]", 0, 0, "header"},
    {"a number", "1", 0, 0, "header"},
    {"null", "null", 0, 0, "header"},
    {"text after the object", "{} {}", 0, 0, ""},
    {"two tensors of one name", "{" T("w", "F32", "[1]", "0", "4") "," T("w", "F32", "[1]", "4", "8") "}", 8, 0, ""},
    {"two __metadata__", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, 0, ""},
    {"a name that is not UTF-8", "{" T("w\xff", "F32", "[1]", "0", "4") "}", 4, 0, ""},
    {"a name with a NUL", "{" T("w\\u0000x", "F32", "[1]", "0", "4") "}", 4, 0, ""},
    {"a tensor that is no object", "{\"w\":4}", 0, 0, "w"},
    {"a tensor that is an array", "{\"w\":[\"F32\",[1],[0,4]]}", 4, 0, "w"},
    {"a tensor that is null", "{\"w\":null}", 0, 0, "w"},
    /* types */
    {"no type", "{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 0, "w"},
    {"an unknown type", "{" T("w", "F33", "[1]", "0", "4") "}", 4, 0, "w"},
    {"a type in lower case", "{" T("w", "f32", "[1]", "0", "4") "}", 4, 0, "w"},
    {"a type that is a number", "{\"w\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 0, "w"},
    {"a type with a NUL", "{" T("w", "F32\\u0000", "[1]", "0", "4") "}", 4, 0, "w"},
    /* shapes */
    {"no shape", "{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, 0, "w"},
    {"a shape that is a number", "{" T("w", "F32", "1", "0", "4") "}", 4, 0, "w"},
    {"a negative size", "{" T("w", "F32", "[-1]", "0", "4") "}", 4, 0, "w"},
    {"two negative sizes", "{" T("w", "F32", "[-1,-1]", "0", "4") "}", 4, 0, "w"},
    {"a fraction", "{" T("w", "F32", "[1.0]", "0", "4") "}", 4, 0, "w"},
    {"a size in quotes", "{" T("w", "F32", "[\"1\"]", "0", "4") "}", 4, 0, "w"},
    {"more than 64 bits", "{" T("w", "F32", "[18446744073709551617]", "0", "4") "}", 4, 0, ""},
    {"elements overflow", "{" T("w", "F32", "[4294967296,4294967296]", "0", "0") "}", 0, 0, "w"},
    {"elements overflow to the right number", "{" T("w", "I8", "[4294967297,4294967297,4294967297]", "0", "1") "}", 1,
     0, "w"},
    {"bytes overflow", "{" T("w", "F32", "[4611686018427387904]", "0", "0") "}", 0, 0, "w"},
    {"bytes overflow to 4", "{" T("w", "F32", "[4611686018427387905]", "0", "4") "}", 4, 0, "w"},
    {"nine dimensions", "{" T("w", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, 0, "w"},
    {"shape smaller than the bytes", "{" T("w", "F32", "[1]", "0", "8") "}", 8, 0, "w"},
    {"shape larger than the bytes", "{" T("w", "F32", "[3]", "0", "8") "}", 8, 0, "w"},
    {"type larger than the bytes", "{" T("w", "F64", "[2]", "0", "8") "}", 8, 0, "w"},
    /* offsets */
    {"no offsets", "{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, 0, "w"},
    {"one offset", "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}}", 4, 0, "w"},
    {"three offsets", "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8, 0, "w"},
    {"offsets by name", "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{\"0\":0,\"1\":4}}}", 4, 0, "w"},
    {"offsets backwards", "{" T("w", "F32", "[1]", "4", "0") "}", 4, 0, "w"},
    {"a negative begin", "{" T("w", "F32", "[2]", "-4", "4") "}", 4, 0, "w"},
    {"both negative", "{" T("w", "F32", "[1]", "-8", "-4") "}", 4, 0, "w"},
    {"a fraction of a byte", "{" T("w", "F32", "[1]", "0.0", "4.0") "}", 4, 0, "w"},
    {"end beyond the file", "{" T("w", "F32", "[2]", "0", "8") "}", 4, 0, "w"},
    {"end beyond the file by 2^62", "{" T("w", "I8", "[4611686018427387904]", "0", "4611686018427387904") "}", 4, 0,
     "w"},
    {"end of 2^63-1, its header's length added overflows",
     "{" T("w", "I8", "[1]", "9223372036854775806", "9223372036854775807") "}", 4, 0, "w"},
    /* cover */
    {"a gap in front", "{" T("w", "F32", "[1]", "4", "8") "}", 8, 0, "w"},
    {"a gap between", "{" T("v", "F32", "[1]", "0", "4") "," T("w", "F32", "[1]", "8", "12") "}", 12, 0, "w"},
    {"a rest behind", "{" T("w", "F32", "[1]", "0", "4") "}", 5, 0, "data_offsets"},
    {"data and no tensors", "{}", 1, 0, "data_offsets"},
    {"data and metadata alone", "{\"__metadata__\":{\"format\":\"pt\"}}", 4, 0, "data_offsets"},
    {"the same bytes twice", "{" T("v", "F32", "[1]", "0", "4") "," T("w", "F32", "[1]", "0", "4") "}", 4, 0, ""},
    {"overlap", "{" T("v", "F32", "[2]", "0", "8") "," T("w", "F32", "[2]", "4", "12") "}", 12, 0, "w"},
    {"one inside the other", "{" T("v", "F32", "[3]", "0", "12") "," T("w", "F32", "[1]", "4", "8") "}", 12, 0, "w"},
    {"an overlap that hides a gap",
     "{" T("u", "F32", "[2]", "0", "8") "," T("v", "F32", "[1]", "4", "8") "," T("w", "F32", "[1]", "12", "16") "}", 16,
     0, "v"},
    {"an empty tensor in the middle of another",
     "{" T("v", "F32", "[2]", "0", "8") "," T("w", "F32", "[0]", "4", "4") "}", 8, 0, "w"},
};

START_TEST(hostile_files) {
  const struct hostile *h = &hostile[_i];
  clear_dir();
  write_st("model.safetensors", h->header, strlen(h->header), h->data_len, h->claimed);
  tri_checkpoint *c = NULL;
  tri_error err = {0};
  const tri_status want = TRI_CORRUPT;
  expect(tri_checkpoint_open_file(DIR "/model.safetensors", &c, &err), want, &err, h->field, h->what);
  ck_assert_ptr_null(c);
  tri_error_clear(&err);
  expect(tri_checkpoint_open(DIR, &c, &err), want, &err, h->field, h->what);
  ck_assert_ptr_null(c);
  /* The same through the fuzzer's door, whatever the length field said. */
  if (h->claimed) return;
  tri_st_tensor *tensors = NULL;
  size_t count = 7;
  char *names = NULL;
  tri_error_clear(&err);
  expect(tri_st_parse_header(h->header, strlen(h->header), h->data_len, &tensors, &count, &names, &err), want, &err,
         h->field, h->what);
  ck_assert(!tensors && !names && count == 7);
}
END_TEST

/* What lies in the place of a checkpoint that was not fetched, or not to its end. */
START_TEST(incomplete_downloads) {
  static const char header[] = "{" T("v", "F32", "[1]", "0", "4") "," T("w", "F32", "[2]", "4", "12") "}";
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 3200000\n";
  static const char path[] = DIR "/model.safetensors";
  char want[400];
  tri_checkpoint *c = NULL;
  tri_error err = {0};
  clear_dir();
  write_st("model.safetensors", header, strlen(header), 5, 0);
  ck_assert_int_eq(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT);
  snprintf(want, sizeof want,
           "%s: %zu bytes, but its header wants %zu (up to the end of tensor w): an incomplete download?", path,
           8 + strlen(header) + 5, 8 + strlen(header) + 12);
  ck_assert_str_eq(err.message, want);
  tri_error_clear(&err);
  write_st("model.safetensors", header, 20, 0, strlen(header));
  ck_assert_int_eq(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT);
  snprintf(want, sizeof want, "%s has 28 bytes, but its header alone %zu: an incomplete download?", path,
           strlen(header));
  ck_assert_str_eq(err.message, want);
  tri_error_clear(&err);
  write_file("model.safetensors", pointer, strlen(pointer));
  ck_assert_int_eq(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT);
  snprintf(want, sizeof want, "%s is a Git LFS pointer: the file itself was not fetched", path);
  ck_assert_str_eq(err.message, want);
  tri_error_clear(&err);
  unlink(path);
  write_file("model.safetensors.index.json", pointer, strlen(pointer));
  ck_assert_int_eq(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT);
  ck_assert_ptr_nonnull(strstr(err.message, "model.safetensors.index.json is a Git LFS pointer"));
  ck_assert_ptr_null(c);
  clear_dir();
}
END_TEST

START_TEST(deep_and_large_headers) {
  static char text[1 << 20];
  tri_st_tensor *tensors = NULL;
  size_t count, n = 0;
  char *names = NULL;
  tri_error err = {0};
  n += (size_t)sprintf(text, "{\"__metadata__\":");
  memset(text + n, '[', 1000);
  expect(tri_st_parse_header(text, n + 1000, 0, &tensors, &count, &names, &err), TRI_TOO_LARGE, &err, "", "deep");
  n = (size_t)sprintf(text, "{");
  for (int i = 0; i < 5000; i++)
    n += (size_t)sprintf(text + n, "%s\"layers.%d.w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                         i ? "," : "", i, 4999 - i, 5000 - i);
  n += (size_t)sprintf(text + n, "}");
  tri_error_clear(&err);
  expect(tri_st_parse_header(text, n, 5000, &tensors, &count, &names, &err), TRI_OK, &err, NULL, "5000 tensors");
  ck_assert_uint_eq(count, 5000);
  tri_free(tensors);
  tri_free(names);
}
END_TEST

START_TEST(good_file) {
  static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}," T("z", "F32", "[2,3]", "0", "24") "," T(
      "scalar", "BF16", "[]", "24", "26") "," T("empty", "F32", "[0,9223372036854775807]", "26",
                                                "26") "," T("mask", "BOOL", "[4]", "26",
                                                            "30") "," T("a", "F16", "[1,1,1,1,1,1,1,2]", "30",
                                                                        "34") "}      ";
  clear_dir();
  write_st("model.safetensors", header, sizeof header - 1, 34, 0);
  tri_checkpoint *c = NULL;
  tri_error err = {0};
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_OK, &err, NULL, "good file");
  ck_assert_uint_eq(tri_checkpoint_num_tensors(c), 5);
  static const char *const sorted[] = {"a", "empty", "mask", "scalar", "z"};
  for (size_t i = 0; i < 5; i++) ck_assert_str_eq(tri_checkpoint_tensor(c, i)->name, sorted[i]);
  const tri_st_tensor *t = tri_checkpoint_find(c, "z");
  ck_assert(t && t->dtype == TRI_F32 && t->rank == 2 && t->shape[0] == 2 && t->shape[1] == 3 && t->bytes == 24);
  ck_assert_uint_eq(t->offset, 8 + sizeof header - 1);
  ck_assert_ptr_nonnull(strstr(tri_checkpoint_path(c, t->file), "model.safetensors"));
  t = tri_checkpoint_find(c, "scalar");
  ck_assert(t && t->dtype == TRI_BF16 && t->rank == 0 && t->bytes == 2);
  unsigned char byte;
  ck_assert_int_eq(pread(tri_checkpoint_fd(c, t->file), &byte, 1, (off_t)t->offset), 1);
  ck_assert_uint_eq(byte, 24);
  t = tri_checkpoint_find(c, "mask");
  ck_assert(t && t->dtype == TRI_DTYPE_COUNT && t->bytes == 4); /* may stand there, cannot be a weight */
  t = tri_checkpoint_find(c, "empty");
  ck_assert(t && t->bytes == 0);
  ck_assert_ptr_null(tri_checkpoint_find(c, "b"));
  ck_assert_ptr_null(tri_checkpoint_find(c, ""));
  tri_checkpoint_close(c);
  write_st("model.safetensors", "{}", 2, 0, 0);
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_OK, &err, NULL, "no tensors");
  ck_assert_uint_eq(tri_checkpoint_num_tensors(c), 0);
  ck_assert_ptr_null(tri_checkpoint_find(c, "x"));
  tri_checkpoint_close(c);
  tri_checkpoint_close(NULL);
}
END_TEST

START_TEST(not_a_file) {
  tri_checkpoint *c = NULL;
  tri_error err = {0};
  clear_dir();
  expect(tri_checkpoint_open(DIR "/nowhere", &c, &err), TRI_NOT_FOUND, &err, "model", "no folder");
  tri_error_clear(&err);
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT, &err, "model", "empty folder");
  tri_error_clear(&err);
  expect(tri_checkpoint_open_file(DIR "/nowhere", &c, &err), TRI_NOT_FOUND, &err, "nowhere", "no file");
  for (size_t n = 0; n < 8; n++) {
    write_file("model.safetensors", "\2\0\0\0\0\0\0\0", n);
    tri_error_clear(&err);
    expect(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT, &err, "model.safetensors", "shorter than 8 bytes");
  }
  clear_dir();
  ck_assert_int_eq(mkdir(DIR "/model.safetensors", 0755), 0);
  tri_error_clear(&err);
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT, &err, "model.safetensors", "a folder in its place");
  clear_dir();
  ck_assert_int_eq(mkfifo(DIR "/model.safetensors", 0644), 0);
  tri_error_clear(&err);
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT, &err, "model.safetensors", "a pipe nobody writes to");
  clear_dir();
  ck_assert_int_eq(symlink("/dev/zero", DIR "/model.safetensors"), 0);
  tri_error_clear(&err);
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT, &err, "model.safetensors", "a link to an endless device");
  clear_dir();
  ck_assert_int_eq(symlink("model.safetensors", DIR "/model.safetensors"), 0);
  tri_error_clear(&err);
  tri_status st = tri_checkpoint_open(DIR, &c, &err);
  ck_assert_msg(st == TRI_IO || st == TRI_CORRUPT, "a link to itself: %s", tri_status_name(st));
  ck_assert_ptr_null(c);
  clear_dir();
}
END_TEST

/* ---- sharded ---- */

#define FILE_A "{" T("a", "U8", "[4]", "0", "4") "}"
#define FILE_B "{" T("b", "U8", "[4]", "0", "4") "}"
#define INDEX(map) "{\"metadata\":{\"total_size\":8},\"weight_map\":" map "}"

static void write_shards(void) {
  clear_dir();
  write_st("a.safetensors", FILE_A, strlen(FILE_A), 4, 0);
  write_st("b.safetensors", FILE_B, strlen(FILE_B), 4, 0);
}

static const struct bad_index {
  const char *what, *index;
  tri_status status;
  const char *field;
} bad_indexes[] = {
    {"no JSON", "{", TRI_CORRUPT, "index.json"},
    {"an array", "[]", TRI_CORRUPT, "weight_map"},
    {"no weight_map", "{\"metadata\":{}}", TRI_CORRUPT, "weight_map"},
    {"a weight_map that is an array", INDEX("[\"a.safetensors\"]"), TRI_CORRUPT, "weight_map"},
    {"a name twice", INDEX("{\"a\":\"a.safetensors\",\"a\":\"b.safetensors\"}"), TRI_CORRUPT, "index.json"},
    {"a missing file", INDEX("{\"a\":\"a.safetensors\",\"b\":\"c.safetensors\"}"), TRI_CORRUPT, "c.safetensors"},
    {"a file name that is a number", INDEX("{\"a\":1}"), TRI_CORRUPT, "a"},
    {"an empty file name", INDEX("{\"a\":\"\"}"), TRI_CORRUPT, "a"},
    {"a path up", INDEX("{\"a\":\"../a.safetensors\"}"), TRI_CORRUPT, "a"},
    {"a path down", INDEX("{\"a\":\"sub/a.safetensors\"}"), TRI_CORRUPT, "a"},
    {"an absolute path", INDEX("{\"a\":\"/etc/passwd\"}"), TRI_CORRUPT, "a"},
    {"the folder itself", INDEX("{\"a\":\".\"}"), TRI_CORRUPT, ""},
    {"the folder above", INDEX("{\"a\":\"..\"}"), TRI_CORRUPT, "a"},
    {"a NUL in a file name", INDEX("{\"a\":\"a.safetensors\\u0000x\"}"), TRI_CORRUPT, "a"},
    {"the index itself", INDEX("{\"a\":\"model.safetensors.index.json\"}"), TRI_CORRUPT, "index.json"},
    {"a tensor in the other file", INDEX("{\"a\":\"b.safetensors\",\"b\":\"a.safetensors\"}"), TRI_CORRUPT, "a"},
    {"a tensor that no file has", INDEX("{\"a\":\"a.safetensors\",\"x\":\"b.safetensors\"}"), TRI_CORRUPT, "x"},
    {"a file that is a folder", INDEX("{\"a\":\"sub\"}"), TRI_CORRUPT, "sub"},
};

START_TEST(bad_shard_indexes) {
  const struct bad_index *b = &bad_indexes[_i];
  write_shards();
  ck_assert_int_eq(mkdir(DIR "/sub", 0755), 0);
  write_st("sub/a.safetensors", FILE_A, strlen(FILE_A), 4, 0);
  write_file("model.safetensors.index.json", b->index, strlen(b->index));
  tri_checkpoint *c = NULL;
  tri_error err = {0};
  expect(tri_checkpoint_open(DIR, &c, &err), b->status, &err, b->field, b->what);
  ck_assert_ptr_null(c);
  clear_dir();
}
END_TEST

START_TEST(shards) {
  static const char index[] = INDEX("{\"b\":\"b.safetensors\",\"a\":\"link\"}"),
                    again[] = INDEX("{\"a\":\"a\",\"b\":\"b\"}");
  write_shards();
  /* Download caches keep the files elsewhere and link to them: a link is a file name like any other. */
  ck_assert_int_eq(symlink("a.safetensors", DIR "/link"), 0);
  write_file("model.safetensors.index.json", index, sizeof index - 1);
  tri_checkpoint *c = NULL;
  tri_error err = {0};
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_OK, &err, NULL, "two shards");
  const tri_st_tensor *a = tri_checkpoint_find(c, "a"), *b = tri_checkpoint_find(c, "b");
  ck_assert(a && b && a->file != b->file);
  ck_assert_ptr_nonnull(strstr(tri_checkpoint_path(c, b->file), "/b.safetensors"));
  tri_checkpoint_close(c);
  /* The same tensor in both files. */
  write_st("a", FILE_A, strlen(FILE_A), 4, 0);
  static const char both[] = "{" T("b", "U8", "[4]", "0", "4") "," T("a", "U8", "[2]", "4", "6") "}";
  write_st("b", both, sizeof both - 1, 6, 0);
  write_file("model.safetensors.index.json", again, sizeof again - 1);
  c = NULL;
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT, &err, "a", "a tensor in two files");
  ck_assert_ptr_null(c);
  /* A hostile file is found behind an index too. */
  write_st("b", "{" T("b", "U8", "[5]", "0", "5") "}", strlen("{" T("b", "U8", "[5]", "0", "5") "}"), 4, 0);
  tri_error_clear(&err);
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT, &err, "b", "a bad shard");
  /* Without its index a single model.safetensors wins, and an index alone is enough. */
  clear_dir();
}
END_TEST

START_TEST(more_shards_than_files_may_be) {
  size_t n = 0, cap = 1 << 20;
  char *index = tri_malloc(cap, 1);
  clear_dir();
  write_st("a.safetensors", "{}", 2, 0, 0);
  n += (size_t)snprintf(index, cap, "{\"weight_map\":{");
  for (int i = 0; i < 5000; i++) n += (size_t)snprintf(index + n, cap - n, "%s\"t%d\":\"file%d\"", i ? "," : "", i, i);
  n += (size_t)snprintf(index + n, cap - n, "}}");
  write_file("model.safetensors.index.json", index, n);
  tri_free(index);
  tri_checkpoint *c = NULL;
  tri_error err = {0};
  expect(tri_checkpoint_open(DIR, &c, &err), TRI_CORRUPT, &err, "file0", "5000 files that are not there");
  clear_dir();
}
END_TEST

/* Every file is closed again, whatever happened. */
START_TEST(no_descriptor_leaks) {
  int before = dup(0), after;
  close(before);
  for (int i = 0; i < (int)(sizeof bad_indexes / sizeof *bad_indexes); i++) {
    write_shards();
    write_file("model.safetensors.index.json", bad_indexes[i].index, strlen(bad_indexes[i].index));
    tri_checkpoint *c = NULL;
    ck_assert_int_ne(tri_checkpoint_open(DIR, &c, NULL), TRI_OK);
  }
  clear_dir();
  after = dup(0);
  close(after);
  ck_assert_int_eq(after, before);
}
END_TEST

Suite *suite_safetensors(void) {
  Suite *s = suite_create("safetensors");
  TCase *c = tcase_create("safetensors");
  tcase_add_loop_test(c, hostile_files, 0, sizeof hostile / sizeof *hostile);
  tcase_add_test(c, incomplete_downloads);
  tcase_add_test(c, deep_and_large_headers);
  tcase_add_test(c, good_file);
  tcase_add_test(c, not_a_file);
  tcase_add_loop_test(c, bad_shard_indexes, 0, sizeof bad_indexes / sizeof *bad_indexes);
  tcase_add_test(c, shards);
  tcase_add_test(c, more_shards_than_files_may_be);
  tcase_add_test(c, no_descriptor_leaks);
  suite_add_tcase(s, c);
  return s;
}
