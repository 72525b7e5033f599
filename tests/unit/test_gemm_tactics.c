/* SPDX-License-Identifier: Apache-2.0 */
/* Tactics of products: their text, what is refused of it, which of several holds for a number of rows, the
 * files, and for which numbers of rows products are measured. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/gemm_tactics.h"
#include "base/file.h"
#include "base/log.h"
#include "runtime/forward/tactic_files.h"
#include "runtime/forward/tune.h"

Suite *suite_gemm_tactics(void);

static const char key[] = "NVIDIA H200, sm_90, 132 SMs, cuBLASLt 130100";

static tri_tactics *table(void) {
  tri_tactics *c = NULL;
  ck_assert_int_eq(tri_tactics_create(&c), TRI_OK);
  return c;
}

static tri_tactic tactic(int m, int n, tri_tactic_kind kind) {
  tri_tactic c = {.shape = {.m = m, .n = n, .k = 4096, .w = TRI_BF16, .x = TRI_BF16, .out = TRI_F32}, .kind = kind};
  c.ns = 100 + m, c.default_ns = 200 + m;
  for (int i = 0; kind == TRI_TACTIC_ALGO && i < TRI_TACTIC_WORDS; i++)
    c.words[i] = i % 3 ? (uint64_t)n << (5 * i) | (uint64_t)m : i ? UINT64_MAX : 0;
  if (kind == TRI_TACTIC_ALGO) snprintf(c.note, sizeof c.note, "algo 66 tile %d", m);
  return c;
}

static void put(tri_tactics *c, int m, int n, tri_tactic_kind kind) {
  tri_tactic one = tactic(m, n, kind);
  ck_assert_int_eq(tri_tactics_put(c, &one), TRI_OK);
}

static tri_tactic_kind kind_at(const tri_tactics *c, int m, int n) {
  tri_tactic wanted = tactic(m, n, TRI_TACTIC_DEFAULT);
  const tri_tactic *found = tri_tactics_find(c, &wanted.shape);
  return found ? found->kind : TRI_TACTIC_DEFAULT;
}

static bool same(const tri_tactics *a, const tri_tactics *b) {
  bool all = a->count == b->count;
  for (size_t i = 0; i < a->capacity; i++) {
    const tri_tactic *x = &a->slots[i], *y = x->shape.m ? tri_tactics_get(b, &x->shape) : NULL;
    if (x->shape.m)
      all = all && y && x->kind == y->kind && !memcmp(x->words, y->words, sizeof x->words) && x->ns == y->ns &&
            x->default_ns == y->default_ns && !strcmp(x->note, y->note);
  }
  return all;
}

static tri_status read_text(tri_tactics *c, const char *text, tri_error *err) {
  tri_error_clear(err);
  return tri_tactics_read(c, text, strlen(text), key, "file", NULL, err);
}

/* ---- the text ---- */

START_TEST(round_trip) {
  tri_tactics *c = table(), *again = table(), *others = table();
  tri_error err = {0};
  char *text, *twice;
  size_t len, twice_len;
  int count = -1;
  for (int i = 1; i <= 1000; i++) put(c, i, 128 * (i % 7 + 1), (tri_tactic_kind)(i % TRI_TACTIC_COUNT));
  tri_tactic odd = {.shape = {1 << 24, 1, 1, TRI_F32, TRI_F32, TRI_F16, TRI_ACT_SWIGLU_CLAMPED, 1, 1}, .ns = 1};
  odd.default_ns = INT32_MAX;
  memset(odd.note, 'x', sizeof odd.note - 1);
  ck_assert_int_eq(tri_tactics_put(c, &odd), TRI_OK);
  ck_assert_int_eq(tri_tactics_write(c, key, &text, &len), TRI_OK);
  ck_assert_msg(tri_tactics_read(again, text, len, key, "file", &count, &err) == TRI_OK, "%s", err.message);
  ck_assert(count == 1001 && same(c, again) && same(again, c));
  ck_assert_int_eq(tri_tactics_write(again, key, &twice, &twice_len), TRI_OK);
  ck_assert(len == twice_len && !memcmp(text, twice, len));
  /* Another device, and another version of the library, have nothing of it. */
  ck_assert_int_eq(
      tri_tactics_read(others, text, len, "NVIDIA H200, sm_90, 132 SMs, cuBLASLt 130200", "file", &count, &err),
      TRI_OK);
  ck_assert(!count && !others->count);
  tri_free(text), tri_free(twice);
  tri_tactics_destroy(c), tri_tactics_destroy(again), tri_tactics_destroy(others);
}
END_TEST

#define HEAD "trireme-tactics 1\n"
#define FOR "for NVIDIA H200, sm_90, 132 SMs, cuBLASLt 130100\n"
#define SHAPE "linear m 8 n 64 k 32 w bfloat16 x float32 out float32 act gelu_tanh bias 1 add 0 "
#define TIMES " ns 5 default 6"
#define WORDS "42 1 0 0 0 0 0 0"

START_TEST(what_is_accepted) {
  static const struct {
    const char *text;
    size_t count;
  } cases[] = {{HEAD, 0},
               {HEAD FOR, 0},
               {HEAD "# words\n\n" FOR "\n" SHAPE "use own" TIMES "\n# more\n", 1},
               {HEAD FOR SHAPE "use gemm" TIMES " # for people: m 8\n", 1},
               {HEAD FOR SHAPE "use default" TIMES " #\n", 1},
               {HEAD "for something else\n" SHAPE "use own" TIMES "\n" FOR, 0},
               {HEAD "for something else\n" SHAPE "use own" TIMES "\n" SHAPE "use own" TIMES "\n" FOR SHAPE
                     "use own" TIMES "\n",
                1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tactics *c = table();
    tri_error err = {0};
    ck_assert_msg(read_text(c, cases[i].text, &err) == TRI_OK, "%zu: %s", i, err.message);
    ck_assert_msg(c->count == cases[i].count, "%zu: %zu", i, c->count);
    tri_tactics_destroy(c);
  }
}
END_TEST

START_TEST(what_is_refused) {
  static const struct {
    const char *text, *where;
  } cases[] = {
      {"", "file:1:"},
      {"trireme-tactics 1", "file:1: the line does not end"},
      {"trireme-tactics 2\n", "file:1:"},
      {" trireme-tactics 1\n", "file:1:"},
      {"trireme-tactics 1\r\n", "file:1:"},
      {HEAD SHAPE "use own" TIMES "\n", "file:2: the line comes before"},
      {HEAD FOR SHAPE "use own" TIMES, "file:3: the line does not end"},
      {HEAD "for \n", "file:2: the line names no device"},
      {HEAD FOR "linear\n", "file:3:"},
      {HEAD FOR "conv m 8\n", "file:3: the line is neither"},
      {HEAD FOR SHAPE "use own" TIMES "\n" SHAPE "use gemm" TIMES "\n", "file:4: the line has a shape"},
      {HEAD FOR SHAPE "use any" TIMES "\n", "file:3: the line has no tactic"},
      {HEAD FOR SHAPE "use own" TIMES " \n", "file:3: the line ends in a space"},
      {HEAD FOR SHAPE "use own" TIMES " and\n", "file:3: the line has something"},
      {HEAD FOR SHAPE "use own ns 0 default 6\n", "file:3: the line has no times"},
      {HEAD FOR SHAPE "use own ns 5 default 2147483648\n", "file:3: the line has no times"},
      {HEAD FOR SHAPE "use own ns 05 default 6\n", "file:3: the line has no times"},
      {HEAD FOR SHAPE "use own ns -5 default 6\n", "file:3: the line has no times"},
      {HEAD FOR SHAPE "use own" TIMES " # \xc3\xa4\n", "file:3: the line has a byte"},
      {HEAD FOR SHAPE "use own" TIMES " # \t\n", "file:3: the line has a byte"},
      {HEAD FOR SHAPE "use algo " WORDS TIMES "\n", "damaged"},
      {HEAD FOR SHAPE "use algo " WORDS " check 1" TIMES "\n", "damaged"},
      {HEAD FOR SHAPE "use algo 42 check 1" TIMES "\n", "damaged"},
      {HEAD FOR SHAPE "use algo 42 1 0 0 0 0 0 10000000000000000 check 1" TIMES "\n", "damaged"},
      {HEAD FOR "linear m 0 n 64 k 32 w bfloat16 x float32 out float32 act none bias 1 add 0 use own" TIMES "\n",
       "no m, n and k"},
      {HEAD FOR "linear m 16777217 n 64 k 32 w bfloat16 x float32 out float32 act none bias 1 add 0 use own" TIMES "\n",
       "no m, n and k"},
      {HEAD FOR "linear m 8 n 64 k 32 w int8 x float32 out float32 act none bias 1 add 0 use own" TIMES "\n",
       "no types"},
      {HEAD FOR "linear m 8 n 64 k 32 w bfloat16 x float32 out float32 act elu bias 1 add 0 use own" TIMES "\n",
       "no act"},
      {HEAD FOR "linear m 8 n 64 k 32 w bfloat16 x float32 out float32 act none bias 2 add 0 use own" TIMES "\n",
       "no act"},
      {HEAD FOR "linear m 8 n 64 k 32 w bfloat16 x float32 out float32 act none bias 9 add 0 use own" TIMES "\n",
       "no act"},
      {HEAD FOR "linear  m 8 n 64 k 32 w bfloat16 x float32 out float32 act none bias 1 add 0 use own" TIMES "\n",
       "no m, n and k"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tactics *c = table();
    tri_error err;
    put(c, 4, 4, TRI_TACTIC_OWN);
    ck_assert_msg(read_text(c, cases[i].text, &err) == TRI_CORRUPT, "%zu was read", i);
    ck_assert_msg(strstr(err.message, cases[i].where) != NULL, "%zu: %s", i, err.message);
    ck_assert_msg(c->count == 1, "%zu has left something", i);
    tri_tactics_destroy(c);
  }
}
END_TEST

/* Any byte of a text changed, or the rest of it cut off: it is refused, or gives tactics that can be written and read
 * again, and no other algorithm than there was. */
START_TEST(damaged_texts) {
  tri_tactics *c = table();
  tri_error err;
  char *text;
  size_t len;
  uint64_t random = 88172645463325252u;
  for (int i = 1; i <= 12; i++) put(c, i, 64 * i, i % 3 ? TRI_TACTIC_ALGO : TRI_TACTIC_GEMM);
  ck_assert_int_eq(tri_tactics_write(c, key, &text, &len), TRI_OK);
  int accepted = 0, wrong = 0;
  for (int round = 0; round < 20000; round++) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    size_t at = (size_t)(random % len), keep = round % 5 ? len : at;
    char before = text[at];
    text[at] = (char)(random >> 40);
    tri_tactics *damaged = table();
    tri_error_clear(&err);
    tri_status st = tri_tactics_read(damaged, text, keep, key, "file", NULL, &err);
    wrong += st != TRI_OK && (st != TRI_CORRUPT || !err.message[0] || damaged->count);
    accepted += st == TRI_OK;
    for (size_t i = 0; i < damaged->capacity; i++) {
      const tri_tactic *x = &damaged->slots[i], *y = x->shape.m ? tri_tactics_get(c, &x->shape) : NULL;
      if (x->shape.m && x->kind == TRI_TACTIC_ALGO)
        wrong += !y || y->kind != TRI_TACTIC_ALGO || memcmp(x->words, y->words, sizeof x->words);
    }
    tri_tactics_destroy(damaged);
    text[at] = before;
  }
  ck_assert_int_eq(wrong, 0);
  ck_assert_int_lt(accepted, 16000);
  tri_free(text);
  tri_tactics_destroy(c);
}
END_TEST

/* ---- the table ---- */

START_TEST(rows_between) {
  tri_tactics *c = table();
  put(c, 8, 64, TRI_TACTIC_OWN);
  put(c, 16, 64, TRI_TACTIC_GEMM);
  put(c, 100, 64, TRI_TACTIC_ALGO);
  put(c, 384, 64, TRI_TACTIC_ALGO);
  put(c, 64, 64, TRI_TACTIC_DEFAULT);
  static const struct {
    int m;
    tri_tactic_kind kind;
  } cases[] = {{0, TRI_TACTIC_DEFAULT},   {4, TRI_TACTIC_DEFAULT},  {5, TRI_TACTIC_OWN},
               {8, TRI_TACTIC_OWN},       {9, TRI_TACTIC_GEMM},     {16, TRI_TACTIC_GEMM},
               {17, TRI_TACTIC_DEFAULT},  {60, TRI_TACTIC_DEFAULT}, {64, TRI_TACTIC_DEFAULT},
               {99, TRI_TACTIC_DEFAULT},  {100, TRI_TACTIC_ALGO},   {101, TRI_TACTIC_DEFAULT},
               {256, TRI_TACTIC_DEFAULT}, {257, TRI_TACTIC_ALGO},   {384, TRI_TACTIC_ALGO},
               {385, TRI_TACTIC_DEFAULT}, {-1, TRI_TACTIC_DEFAULT}, {1 << 30, TRI_TACTIC_DEFAULT}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_msg(kind_at(c, cases[i].m, 64) == cases[i].kind, "%d rows", cases[i].m);
  ck_assert_int_eq(kind_at(c, 8, 65), TRI_TACTIC_DEFAULT);
  tri_tactic other = tactic(8, 64, TRI_TACTIC_OWN);
  other.shape.x = TRI_F32;
  ck_assert_ptr_null(tri_tactics_find(c, &other.shape));
  put(c, 8, 64, TRI_TACTIC_GEMM);
  ck_assert(kind_at(c, 7, 64) == TRI_TACTIC_GEMM && c->count == 5);
  tri_tactics_destroy(c);
}
END_TEST

START_TEST(no_more_than_fit) {
  tri_tactics *c = table();
  for (int i = 1; i <= TRI_TACTICS_MOST; i++) put(c, i, 64, TRI_TACTIC_OWN);
  tri_tactic more = tactic(TRI_TACTICS_MOST + 1, 64, TRI_TACTIC_OWN);
  ck_assert_int_eq(tri_tactics_put(c, &more), TRI_TOO_LARGE);
  put(c, 7, 64, TRI_TACTIC_GEMM);
  more.shape.m = 0;
  ck_assert_int_eq(tri_tactics_put(c, &more), TRI_INVALID_ARGUMENT);

  tri_tactics *others = table(); /* one that is known, one that is not: neither comes in */
  put(others, 8, 64, TRI_TACTIC_GEMM), put(others, TRI_TACTICS_MOST + 1, 64, TRI_TACTIC_GEMM);
  ck_assert_int_eq(tri_tactics_put_all(c, others), TRI_TOO_LARGE);
  tri_tactic known = tactic(8, 64, TRI_TACTIC_OWN);
  ck_assert_int_eq(tri_tactics_get(c, &known.shape)->kind, TRI_TACTIC_OWN);
  tri_tactics_destroy(others);
  tri_tactics_destroy(c);
}
END_TEST

START_TEST(padded_rows) {
  static const int want[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  size_t at = 0;
  for (int m = 1; m <= 256; m++) {
    if (m > want[at]) at++;
    ck_assert_msg(tri_padded_rows(m) == want[at], "%d rows are padded to %d", m, tri_padded_rows(m));
  }
}
END_TEST

static void expect_sizes(int seqs, int tokens, bool encoder, const int *want, int count) {
  tri_limits limits = {.max_num_seqs = seqs, .max_num_batched_tokens = tokens};
  int got[TRI_TUNE_SIZES], n = tri_tune_sizes(&limits, encoder, got);
  ck_assert_msg(n == count && !memcmp(got, want, (size_t)count * sizeof *want), "%d sizes for %d and %d", n, seqs,
                tokens);
}

START_TEST(measured_rows) {
  static const int usual[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
  static const int odd[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 100, 128, 192, 250};
  static const int few[] = {1, 2, 3, 4, 5}, one[] = {1}, encoder[] = {16, 24, 32, 40}, late[] = {1, 2, 4, 5, 6};
  expect_sizes(128, 512, false, usual, 15);
  expect_sizes(100, 250, false, odd, 14);
  expect_sizes(3, 5, false, few, 5);
  expect_sizes(5, 6, false, late, 5);
  expect_sizes(9, 1, false, one, 1);
  expect_sizes(9, 40, true, encoder, 4);
  expect_sizes(9, 1, true, one, 1);
  tri_limits most = {.max_num_seqs = 4095, .max_num_batched_tokens = 1 << 17};
  int sizes[TRI_TUNE_SIZES], n = tri_tune_sizes(&most, false, sizes);
  ck_assert(n < TRI_TUNE_SIZES && sizes[n - 1] == 1 << 17);
  for (int i = 1; i < n; i++) ck_assert_int_gt(sizes[i], sizes[i - 1]);
}
END_TEST

/* ---- files ---- */

static char folder[PATH_MAX];

static void set_up(void) {
  snprintf(folder, sizeof folder, "%s/tactics.XXXXXX", TRI_TEST_SCRATCH);
  ck_assert_ptr_nonnull(mkdtemp(folder));
  tri_log_setup(TRI_LOG_ERROR, "-");
}

static void tear_down(void) {
  char command[PATH_MAX + 16];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  ck_assert_int_eq(system(command), 0);
  tri_log_setup(TRI_LOG_INFO, "-");
}

static const char *in_folder(const char *name, char out[PATH_MAX]) {
  ck_assert_int_lt(snprintf(out, PATH_MAX, "%.3000s/%s", folder, name), PATH_MAX);
  return out;
}

static int entries(void) {
  char command[PATH_MAX + 32], text[16] = "";
  snprintf(command, sizeof command, "find '%s' -type f | wc -l", folder);
  FILE *f = popen(command, "r");
  ck_assert(f && fgets(text, sizeof text, f));
  pclose(f);
  return atoi(text);
}

START_TEST(cache_over_shipped) {
  char shipped[PATH_MAX], cache[PATH_MAX];
  tri_tactics *a = table(), *b = table(), *got = table();
  tri_error err = {0};
  int counts[2] = {-1, -1};
  in_folder("share/x.txt", shipped), in_folder("cache/deep/y.txt", cache);
  tri_tactic_files_load(got, key, shipped, cache, counts);
  ck_assert(!counts[0] && !counts[1] && !got->count); /* neither is there */
  put(a, 8, 64, TRI_TACTIC_OWN), put(a, 16, 64, TRI_TACTIC_OWN);
  put(b, 8, 64, TRI_TACTIC_GEMM);
  ck_assert_msg(tri_tactic_file_add(shipped, key, a, &err) == TRI_OK, "%s", err.message);
  ck_assert_msg(tri_tactic_file_add(cache, key, b, &err) == TRI_OK, "%s", err.message);
  tri_tactic_files_load(got, key, shipped, cache, counts);
  ck_assert(counts[0] == 2 && counts[1] == 1 && got->count == 2);
  ck_assert(kind_at(got, 8, 64) == TRI_TACTIC_GEMM && kind_at(got, 16, 64) == TRI_TACTIC_OWN);
  tri_tactics_destroy(a), tri_tactics_destroy(b), tri_tactics_destroy(got);
}
END_TEST

START_TEST(adding_to_a_file) {
  char path[PATH_MAX];
  tri_tactics *a = table(), *b = table(), *got = table();
  int counts[2];
  in_folder("y.txt", path);
  put(a, 8, 64, TRI_TACTIC_OWN), put(a, 16, 64, TRI_TACTIC_OWN);
  put(b, 16, 64, TRI_TACTIC_ALGO), put(b, 24, 64, TRI_TACTIC_ALGO);
  ck_assert_int_eq(tri_tactic_file_add(path, key, a, NULL), TRI_OK);
  ck_assert_int_eq(tri_tactic_file_add(path, key, b, NULL), TRI_OK);
  tri_tactic_files_load(got, key, "", path, counts);
  ck_assert(got->count == 3 && kind_at(got, 8, 64) == TRI_TACTIC_OWN && kind_at(got, 16, 64) == TRI_TACTIC_ALGO);
  ck_assert_int_eq(entries(), 1); /* nothing is left beside it */
  struct stat s;
  ck_assert(!stat(path, &s) && (s.st_mode & 0777) == 0600);
  /* A damaged one is not used, and gives way to what is measured next. */
  ck_assert_int_eq(tri_file_replace(path, "damaged\n", 8, NULL), TRI_OK);
  tri_tactics_destroy(got), got = table();
  tri_tactic_files_load(got, key, "", path, counts);
  ck_assert(!got->count && !counts[1]);
  ck_assert_int_eq(tri_tactic_file_add(path, key, b, NULL), TRI_OK);
  tri_tactic_files_load(got, key, "", path, counts);
  ck_assert_int_eq(got->count, 2);
  tri_tactics_destroy(a), tri_tactics_destroy(b), tri_tactics_destroy(got);
}
END_TEST

/* Where a folder cannot be made (a file is in its place: the superuser may write everywhere else), or a file not be
 * replaced, there is an error with its path, and what was there stays. */
START_TEST(what_cannot_be_written) {
  char path[PATH_MAX], inside[PATH_MAX];
  tri_tactics *c = table();
  tri_error err = {0};
  put(c, 8, 64, TRI_TACTIC_OWN);
  ck_assert_int_eq(tri_file_replace(in_folder("file", path), "x", 1, NULL), TRI_OK);
  ck_assert_int_eq(tri_tactic_file_add(in_folder("file/y.txt", inside), key, c, &err), TRI_IO);
  ck_assert(strstr(err.message, inside) != NULL);
  ck_assert_int_eq(mkdir(in_folder("folder", path), 0700), 0);
  ck_assert_int_eq(mkdir(in_folder("folder/inside", inside), 0700), 0);
  tri_error_clear(&err);
  ck_assert_int_eq(tri_tactic_file_add(path, key, c, &err), TRI_IO);
  ck_assert_int_eq(entries(), 1); /* "file" alone: what was written beside the path is gone */
  tri_tactics_destroy(c);
}
END_TEST

START_TEST(where_files_are) {
  const char *before = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char path[PATH_MAX], *kept = before ? strdup(before) : NULL, *kept_home = home ? strdup(home) : NULL;
  tri_tactic_file_shipped(path);
  ck_assert(strstr(path, "/../share/trireme/cuda-gemm-tactics.txt") != NULL);
  setenv("XDG_CACHE_HOME", "/c", 1);
  tri_tactic_file_cache(key, path);
  ck_assert_str_eq(path, "/c/trireme/tactics-nvidia-h200-sm-90-132-sms-cublaslt-130100.txt");
  tri_tactic_file_cache("../../etc/passwd", path);
  ck_assert_str_eq(path, "/c/trireme/tactics-etc-passwd.txt");
  setenv("XDG_CACHE_HOME", "c", 1), setenv("HOME", "/h", 1);
  tri_tactic_file_cache("x", path);
  ck_assert_str_eq(path, "/h/.cache/trireme/tactics-x.txt");
  unsetenv("XDG_CACHE_HOME"), unsetenv("HOME");
  tri_tactic_file_cache("x", path);
  ck_assert_str_eq(path, "");
  if (kept) setenv("XDG_CACHE_HOME", kept, 1);
  if (kept_home) setenv("HOME", kept_home, 1);
  free(kept), free(kept_home);
}
END_TEST

/* What comes with the product must be readable. */
START_TEST(the_shipped_file) {
  char *text;
  size_t len;
  tri_error err = {0};
  tri_tactics *c = table();
  ck_assert_int_eq(
      tri_file_read(TRI_SOURCE "/kernels/cuda/linear/gemm_tactics.txt", TRI_TACTICS_TEXT_MOST, &text, &len, NULL),
      TRI_OK);
  char shipped[TRI_TACTICS_KEY] = "";
  const char *device = strstr(text, "\nfor ");
  ck_assert(device && sscanf(device, "\nfor %159[^\n]", shipped) == 1);
  ck_assert_msg(tri_tactics_read(c, text, len, shipped, "gemm_tactics.txt", NULL, &err) == TRI_OK, "%s", err.message);
  ck_assert_uint_gt(c->count, 200);
  tri_free(text);
  tri_tactics_destroy(c);
}
END_TEST

Suite *suite_gemm_tactics(void) {
  Suite *s = suite_create("gemm_tactics");
  TCase *text = tcase_create("text"), *rows = tcase_create("table"), *files = tcase_create("files");
  tcase_add_test(text, round_trip);
  tcase_add_test(text, what_is_accepted);
  tcase_add_test(text, what_is_refused);
  tcase_add_test(text, damaged_texts);
  tcase_add_test(text, the_shipped_file);
  tcase_add_test(rows, rows_between);
  tcase_add_test(rows, no_more_than_fit);
  tcase_add_test(rows, padded_rows);
  tcase_add_test(rows, measured_rows);
  tcase_add_checked_fixture(files, set_up, tear_down);
  tcase_add_test(files, cache_over_shipped);
  tcase_add_test(files, adding_to_a_file);
  tcase_add_test(files, what_cannot_be_written);
  tcase_add_test(files, where_files_are);
  suite_add_tcase(s, text), suite_add_tcase(s, rows), suite_add_tcase(s, files);
  return s;
}
