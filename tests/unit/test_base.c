/* SPDX-License-Identifier: Apache-2.0 */
/* The lowest layer: status, memory, conversions, log lines, rings, waits, the thread pool. */
#include <check.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/ring.h"
#include "base/status.h"
#include "base/host/topo.h"
#include "base/wait.h"

Suite *suite_base(void);

/* ---- status ---- */

START_TEST(status_names) {
  for (int i = 0; i < TRI_STATUS_COUNT; i++) {
    ck_assert_ptr_nonnull(tri_status_name((tri_status)i));
    ck_assert_ptr_nonnull(tri_status_text((tri_status)i));
    for (int k = 0; k < i; k++) ck_assert_str_ne(tri_status_name((tri_status)i), tri_status_name((tri_status)k));
  }
  ck_assert_int_eq(TRI_OK, 0);
  for (int i = 0; i < TRI_STATUS_COUNT; i++) {
    const char *name = tri_status_name((tri_status)i), *code = tri_status_code((tri_status)i);
    ck_assert_uint_eq(strlen(code), strlen(name));
    for (size_t k = 0; code[k]; k++) ck_assert_int_eq(code[k], tolower((unsigned char)name[k]));
    ck_assert_int_eq(tri_status_of_code(code, strlen(code)), i == TRI_OK ? TRI_INTERNAL : (tri_status)i);
  }
  ck_assert_int_eq(tri_status_of_code("no_capacity_at_all", 11), TRI_NO_CAPACITY);
  ck_assert_int_eq(tri_status_of_code("no_capacity_at_all", 12), TRI_INTERNAL);
  ck_assert_int_eq(tri_status_of_code(NULL, 0), TRI_INTERNAL);
  ck_assert_str_eq(tri_status_code((tri_status)-1), "unknown_status");
  ck_assert_str_eq(tri_status_name(TRI_OUT_OF_RANGE), "OUT_OF_RANGE");
  ck_assert_ptr_nonnull(tri_status_name((tri_status)-1));
  ck_assert_ptr_nonnull(tri_status_text((tri_status)1000));
}
END_TEST

/* Closed standard files are /dev/null, and others are left alone. */
START_TEST(standard_files) {
  fflush(NULL);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    struct stat null, at;
    close(0);
    close(2);
    tri_file_open_standard(false);
    bool ok = !stat("/dev/null", &null) && !fstat(0, &at) && at.st_rdev == null.st_rdev && !fstat(2, &at) &&
              at.st_rdev == null.st_rdev && write(2, "x", 1) < 0;
    int next = dup(0); /* nothing else was opened, or left open */
    close(next);
    close(2);
    tri_file_open_standard(true);
    ok = ok && write(2, "x", 1) == 1 && dup(0) == next;
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(error_keeps_the_first_reason) {
  tri_error e = {0};
  ck_assert_int_eq(tri_fail(&e, TRI_CORRUPT, "first", "value %d", 1), TRI_CORRUPT);
  ck_assert_int_eq(tri_fail(&e, TRI_IO, "second", "value %d", 2), TRI_IO);
  ck_assert_int_eq(e.status, TRI_CORRUPT);
  ck_assert_str_eq(e.field, "first");
  ck_assert_str_eq(e.message, "value 1");
  tri_error_clear(&e);
  ck_assert_int_eq(e.status, TRI_OK);
  ck_assert_int_eq(tri_fail(&e, TRI_IO, NULL, "x"), TRI_IO);
  ck_assert_str_eq(e.field, "");
  tri_error_in_file(&e, "a/b");
  ck_assert_str_eq(e.message, "a/b: x");
  snprintf(e.field, sizeof e.field, "a/b"); /* a line says a file once */
  ck_assert_str_eq(tri_error_field_beside(&e), "");
  snprintf(e.field, sizeof e.field, "c/d");
  ck_assert_str_eq(tri_error_field_beside(&e), "c/d");
  snprintf(e.field, sizeof e.field, "x");
  ck_assert_str_eq(tri_error_field_beside(&e), "x");
  snprintf(e.field, sizeof e.field, "nvme_path"); /* an option has - for _ */
  snprintf(e.message, sizeof e.message, "no pack: give --nvme-path DIR");
  ck_assert_str_eq(tri_error_field_beside(&e), "");
  snprintf(e.field, sizeof e.field, "backend");
  ck_assert_str_eq(tri_error_field_beside(&e), "backend");
  snprintf(e.message, sizeof e.message, "backend cuda: none");
  ck_assert_str_eq(tri_error_field_beside(&e), "");
  snprintf(e.message, sizeof e.message, "backends: none");
  ck_assert_str_eq(tri_error_field_beside(&e), "backend");
  snprintf(e.message, sizeof e.message, "a/b.json: backend: must be an object");
  ck_assert_str_eq(tri_error_field_beside(&e), "");
  snprintf(e.field, sizeof e.field, "memory"); /* no option has that name */
  ck_assert_str_eq(tri_error_field_beside(&e), "");
  char long_path[1000], end[TRI_ERROR_MESSAGE / 2 + 10];
  memset(long_path, 'p', sizeof long_path);
  strcpy(long_path + sizeof long_path - 6, "/name");
  memset(e.message, 'm', sizeof e.message - 1); /* both too long: the end of the path, the beginning of the message */
  tri_error_in_file(&e, long_path);
  snprintf(end, sizeof end, "%s: mmm", long_path + sizeof long_path - 1 - TRI_ERROR_MESSAGE / 2);
  ck_assert(!strncmp(e.message, "...", 3) && !strncmp(e.message + 3, end, strlen(end)));
  ck_assert_uint_eq(strlen(e.message), sizeof e.message - 1);
  tri_error_clear(&e);
  tri_error_in_file(&e, "a/b");
  tri_error_in_file(NULL, "a/b");
  ck_assert_str_eq(e.message, "");
  ck_assert_int_eq(tri_fail(NULL, TRI_TIMEOUT, "f", "nobody listens"), TRI_TIMEOUT);
  tri_error_clear(NULL);
}
END_TEST

START_TEST(error_texts_are_cut_not_overrun) {
  struct {
    tri_error e;
    char guard[16];
  } s = {.guard = "unharmed"};
  char longer[2 * TRI_ERROR_MESSAGE];
  memset(longer, 'x', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  tri_fail(&s.e, TRI_IO, longer, "%s", longer);
  ck_assert_uint_eq(strlen(s.e.field), TRI_ERROR_FIELD - 1);
  ck_assert_uint_eq(strlen(s.e.message), TRI_ERROR_MESSAGE - 1);
  ck_assert_str_eq(s.guard, "unharmed");
}
END_TEST

/* ---- memory ---- */

static bool all(const unsigned char *p, size_t n, unsigned value) {
  for (size_t i = 0; i < n; i++)
    if (p[i] != value) return false;
  return true;
}

/* The first numbers of seed 0, as the reference program prints them. */
START_TEST(splitmix) {
  static const uint64_t expected[] = {0xe220a8397b1dcdafu, 0x6e789e6aa1b965f4u, 0x06c45d188009454fu,
                                      0xf88bb8a8724c81ecu};
  uint64_t state = 0;
  for (int i = 0; i < 4; i++) ck_assert_uint_eq(tri_splitmix64(&state), expected[i]);
  ck_assert_uint_eq(state, 4 * TRI_SPLITMIX_STEP);
}
END_TEST

START_TEST(bufs_grow) {
  tri_buf b = {0};
  char expected[5000];
  for (int i = 0; i < 5000; i++) {
    expected[i] = (char)(i * 7);
    if (tri_buf_append(&b, &expected[i], 1) != TRI_OK) ck_abort_msg("append %d", i);
  }
  ck_assert_uint_eq(b.len, 5000);
  ck_assert_mem_eq(b.data, expected, 5000);
  char *data = b.data;
  b.len = 0;
  ck_assert_int_eq(tri_buf_append(&b, expected, 100), TRI_OK);
  ck_assert_ptr_eq(b.data, data); /* emptied, not freed */
  ck_assert_int_eq(tri_buf_append(&b, NULL, 0), TRI_OK);
  ck_assert_int_eq(tri_buf_reserve(&b, SIZE_MAX), TRI_OVERFLOW);
  ck_assert_int_eq(tri_buf_reserve(&b, SIZE_MAX - 120), TRI_NO_MEMORY); /* too much to align; sanitizers forbid less */
  b.max = 103;
  ck_assert_int_eq(tri_buf_append(&b, "abcd", 4), TRI_TOO_LARGE);
  ck_assert_int_eq(tri_buf_append(&b, "abc", 3), TRI_OK);
  ck_assert_int_eq(tri_buf_append(&b, "d", 1), TRI_TOO_LARGE);
  ck_assert_uint_eq(b.len, 103);
  ck_assert_mem_eq(b.data, expected, 100);
  tri_buf_free(&b);
  ck_assert_ptr_null(b.data);
}
END_TEST

START_TEST(arrays_grow) {
  uint64_t *a = NULL;
  size_t cap = 0;
  for (size_t i = 0; i < 1000; i++) {
    if (tri_array_reserve(&a, i, &cap, 1, sizeof *a) != TRI_OK || cap <= i) ck_abort_msg("element %zu", i);
    a[i] = i * i + 1;
  }
  ck_assert_uint_lt(cap, 2000);
  int wrong = 0;
  for (size_t i = 0; i < 1000; i++) wrong += a[i] != i * i + 1;
  ck_assert_int_eq(wrong, 0);
  size_t before = cap;
  ck_assert_int_eq(tri_array_reserve(&a, 1000, &cap, SIZE_MAX / 4, sizeof *a), TRI_NO_MEMORY); /* bytes overflow */
  ck_assert_int_eq(tri_array_reserve(&a, 1000, &cap, SIZE_MAX, sizeof *a), TRI_OVERFLOW);
  ck_assert_uint_eq(cap, before);
  ck_assert_uint_eq(a[999], 999 * 999 + 1);
  ck_assert_int_eq(tri_array_reserve(&a, 10, &cap, before, sizeof *a), TRI_OK);
  ck_assert_uint_eq(a[9], 82);
  for (size_t i = 10; i < cap; i++) wrong += a[i] != 0; /* only what is kept, is copied */
  ck_assert_int_eq(wrong, 0);
  tri_free(a);
}
END_TEST

START_TEST(sizes_that_overflow) {
  size_t out = 7;
  ck_assert(!tri_size_mul(SIZE_MAX, 2, &out));
  ck_assert(!tri_size_mul((size_t)1 << 32, (size_t)1 << 32, &out));
  ck_assert(!tri_size_add(SIZE_MAX, 1, &out));
  ck_assert(tri_size_mul(3, 5, &out));
  ck_assert_uint_eq(out, 15);
  ck_assert(tri_size_add(SIZE_MAX - 1, 1, &out));
  ck_assert_uint_eq(out, SIZE_MAX);
  ck_assert_ptr_null(tri_malloc(SIZE_MAX, 2));
  ck_assert_ptr_null(tri_calloc((size_t)1 << 33, (size_t)1 << 33));
  ck_assert_ptr_null(tri_malloc(SIZE_MAX, 1)); /* rounding up to the alignment overflows */
}
END_TEST

START_TEST(blocks_are_aligned_and_zeroed) {
  for (size_t n = 0; n < 300; n++) {
    unsigned char *p = tri_calloc(n, 1);
    ck_assert_ptr_nonnull(p);
    ck_assert_uint_eq((uintptr_t)p % 64, 0);
    ck_assert(all(p, n, 0));
    memset(p, 0xa5, n);
    unsigned char *q = tri_grow(p, n, n + 37, 1);
    ck_assert_ptr_nonnull(q);
    ck_assert(all(q, n, 0xa5));
    ck_assert(all(q + n, 37, 0));
    ck_assert_ptr_null(tri_grow(q, n + 37, n, 1)); /* growing never shrinks, and the block stays */
    ck_assert_ptr_null(tri_grow(q, n + 37, SIZE_MAX, 8));
    q[n] = 1;
    tri_free(q);
  }
  char *s = tri_strndup("abc\0def", 7);
  ck_assert_mem_eq(s, "abc\0def", 8);
  tri_free(s);
  s = tri_strdup("");
  ck_assert_str_eq(s, "");
  tri_free(s);
  tri_free(NULL);
}
END_TEST

START_TEST(pages) {
  unsigned char *p = NULL;
  void *out = NULL;
  ck_assert_int_eq(tri_pages_alloc(100000, &out), TRI_OK);
  p = out;
  ck_assert_uint_eq((uintptr_t)p % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
  ck_assert(all(p, 100000, 0));
  tri_pages_free(p, 100000);
  ck_assert_int_eq(tri_pages_alloc(0, &out), TRI_OK);
  tri_pages_free(out, 0);
  out = &p;
  ck_assert_int_eq(tri_pages_alloc(SIZE_MAX / 2, &out), TRI_NO_MEMORY);
  ck_assert_ptr_eq(out, &p); /* outputs are set only on success */
  tri_pages_free(NULL, 1);
}
END_TEST

START_TEST(arena) {
  enum { PIECES = 500 };
  struct {
    unsigned char *p;
    size_t n;
  } piece[PIECES];
  tri_arena *a = NULL;
  ck_assert_int_eq(tri_arena_create(1024, &a), TRI_OK);
  for (size_t i = 0; i < PIECES; i++) { /* some larger than a chunk */
    piece[i].n = i * i % 97 * (i % 50 ? 1 : 40);
    piece[i].p = tri_arena_alloc(a, piece[i].n, 1);
    ck_assert_ptr_nonnull(piece[i].p);
    ck_assert_uint_eq((uintptr_t)piece[i].p % 16, 0);
    ck_assert(all(piece[i].p, piece[i].n, 0));
    memset(piece[i].p, (int)(i % 251), piece[i].n);
  }
  for (size_t i = 0; i < PIECES; i++) /* no two pieces overlap */
    ck_assert(all(piece[i].p, piece[i].n, i % 251));
  ck_assert_ptr_null(tri_arena_alloc(a, SIZE_MAX, 2));
  ck_assert_ptr_null(tri_arena_alloc(a, SIZE_MAX - 3, 1));
  ck_assert_ptr_null(tri_arena_alloc(a, SIZE_MAX - 20, 1)); /* the chunk's head overflows */
  ck_assert_str_eq(tri_arena_strndup(a, "trireme", 3), "tri");
  tri_arena_destroy(a);
  tri_arena_destroy(NULL);
}
END_TEST

/* ---- conversions ---- */

static uint32_t bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

/* By the definition of a binary format, not by moving bits. */
static double by_definition(uint16_t h, int exp_bits, int man_bits) {
  int man = h & ((1 << man_bits) - 1), exp = h >> man_bits & ((1 << exp_bits) - 1), bias = (1 << (exp_bits - 1)) - 1;
  double sign = h & 0x8000 ? -1 : 1;
  if (exp == (1 << exp_bits) - 1) return man ? NAN : sign * INFINITY;
  return exp ? sign * ldexp((1 << man_bits) + man, exp - bias - man_bits) : sign * ldexp(man, 1 - bias - man_bits);
}

struct format {
  const char *name;
  tri_dtype type;
  int exp_bits, man_bits;
};
static const struct format formats[] = {{"f16", TRI_F16, 5, 10}, {"bf16", TRI_BF16, 8, 7}};

static float widen(const struct format *f, uint16_t h) {
  return f->type == TRI_F16 ? tri_f16_to_f32(h) : tri_bf16_to_f32(h);
}
static uint16_t narrow(const struct format *f, float x) {
  return f->type == TRI_F16 ? tri_f32_to_f16(x) : tri_f32_to_bf16(x);
}

START_TEST(every_value_widens_and_comes_back) {
  const struct format *f = &formats[_i];
  for (unsigned h = 0; h < 65536; h++) {
    double want = by_definition((uint16_t)h, f->exp_bits, f->man_bits);
    float got = widen(f, (uint16_t)h);
    uint16_t back = narrow(f, got);
    if (isnan(want)) {
      ck_assert_msg(isnan(got) && isnan(widen(f, back)), "%s %04x is not NaN", f->name, h);
      continue;
    }
    if (!((double)got == want && !!signbit(got) == !!(h & 0x8000)))
      ck_abort_msg("%s %04x widens to %g", f->name, h, got);
    if (back != h) ck_abort_msg("%s %04x comes back as %04x", f->name, h, back);
    if (bits(tri_load_f32(&(uint16_t){(uint16_t)h}, f->type, 0)) != bits(got))
      ck_abort_msg("%s %04x loads", f->name, h);
  }
}
END_TEST

START_TEST(every_gap_rounds_to_nearest_even) {
  const struct format *f = &formats[_i];
  unsigned infinite = ((1u << f->exp_bits) - 1) << f->man_bits;
  for (unsigned h = 0; h < infinite; h++) {
    double low = by_definition((uint16_t)h, f->exp_bits, f->man_bits), step;
    /* Above the largest finite value the next one would have been one step further. */
    step = h + 1 < infinite ? by_definition((uint16_t)(h + 1), f->exp_bits, f->man_bits) - low
                            : low - by_definition((uint16_t)(h - 1), f->exp_bits, f->man_bits);
    float half = (float)(low + step / 2);
    if ((double)half != low + step / 2) ck_abort_msg("the middle above %04x is no float32", h);
    unsigned even = h % 2 ? h + 1 : h;
    float below = nextafterf(half, 0), above = nextafterf(half, INFINITY);
    if (!(narrow(f, half) == even)) ck_abort_msg("%s: the middle above %04x", f->name, h);
    if (!(narrow(f, below) == h)) ck_abort_msg("%s: below the middle above %04x", f->name, h);
    if (!(narrow(f, above) == h + 1)) ck_abort_msg("%s: above the middle above %04x", f->name, h);
    if (!(narrow(f, -half) == (even | 0x8000))) ck_abort_msg("%s: the negative middle above %04x", f->name, h);
  }
  ck_assert_uint_eq(narrow(f, INFINITY), infinite);
  ck_assert_uint_eq(narrow(f, -INFINITY), infinite | 0x8000);
  ck_assert_uint_eq(narrow(f, 3.39e38f), infinite - (f->type == TRI_BF16));
  ck_assert_uint_eq(narrow(f, 1e-45f), 0);
  ck_assert_uint_eq(narrow(f, -0.0f), 0x8000);
  ck_assert(isnan(widen(f, narrow(f, NAN))));
  float small_nan; /* a NaN whose payload lies only in the bits that are cut off */
  uint32_t payload = 0x7f800001u;
  memcpy(&small_nan, &payload, 4);
  ck_assert(isnan(widen(f, narrow(f, small_nan))));
}
END_TEST

START_TEST(types_by_name) {
  tri_dtype t = TRI_DTYPE_COUNT;
  for (int i = 0; i < TRI_DTYPE_COUNT; i++) {
    ck_assert_uint_ge(tri_dtype_size((tri_dtype)i), 1);
    ck_assert(tri_dtype_from_name(tri_dtype_name((tri_dtype)i), &t));
    ck_assert_int_eq((int)t, i);
  }
  ck_assert(tri_dtype_from_safetensors("BF16", &t) && t == TRI_BF16 && tri_dtype_size(t) == 2);
  ck_assert(!tri_dtype_from_safetensors("bfloat16", &t));
  ck_assert(!tri_dtype_from_safetensors("", &t));
  ck_assert(!tri_dtype_from_name("F32", &t));
  ck_assert_float_eq(tri_load_f32(&(int8_t){-7}, TRI_I8, 0), -7);
  ck_assert_float_eq(tri_load_f32(&(uint8_t){200}, TRI_U8, 0), 200);
  ck_assert_float_eq(tri_load_f32(&(int32_t){-70000}, TRI_I32, 0), -70000);
  ck_assert_float_eq(tri_load_f32(&(int64_t){1 << 20}, TRI_I64, 0), 1 << 20);
  float f[2] = {0, 0};
  tri_store_f32(f, TRI_F32, 1, 1.5f);
  ck_assert_float_eq(tri_load_f32(f, TRI_F32, 1), 1.5f);
}
END_TEST

/* ---- log ---- */

START_TEST(log_lines) {
  char got[4096] = "";
  int ends[2], saved = dup(2);
  ck_assert_int_eq(pipe(ends), 0);
  fflush(stderr);
  dup2(ends[1], 2);
  tri_log_setup(TRI_LOG_WARN, "3");
  tri_log(TRI_LOG_WARN, "test", "%s%d", "value\x1b", 42);
  tri_log(TRI_LOG_INFO, "test", "below the threshold");
  char longer[3000];
  memset(longer, 'x', sizeof longer);
  longer[sizeof longer - 1] = '\0';
  tri_log(TRI_LOG_ERROR, "test", "%s", longer);
  tri_log_with_time(true);
  tri_log(TRI_LOG_WARN, "test", "later");
  tri_log_with_time(false);
  dup2(saved, 2);
  close(saved), close(ends[1]);
  size_t n = 0;
  for (ssize_t r; (r = read(ends[0], got + n, sizeof got - 1 - n)) > 0;) n += (size_t)r;
  close(ends[0]);
  tri_log_setup(TRI_LOG_INFO, "-");
  ck_assert_int_eq(strncmp(got, "WARN 3 test: value 42\n", 22), 0);
  ck_assert_ptr_null(strstr(got, "below"));
  ck_assert_int_eq(strncmp(got + 22, "ERROR 3 test: xxx", 17), 0);
  const char *last = strchr(got + 22, '\n') + 1; /* a cut line still ends */
  int year, month, day, hour, minute, second, ms, used = 0;
  sscanf(last, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &year, &month, &day, &hour, &minute, &second, &ms, &used);
  ck_assert_int_eq(used, 25);
  ck_assert_str_eq(last + used, "WARN 3 test: later\n");
}
END_TEST

/* Nobody reads the pipe: a line waits once, for a short time, and those that were dropped are counted. */
START_TEST(log_that_nobody_reads) {
  static char full[8192], got[8192];
  int ends[2], saved = dup(2);
  tri_log_setup(TRI_LOG_INFO, "-");
  ck_assert(!pipe(ends) && fcntl(ends[1], F_SETPIPE_SZ, 8192) == 8192);
  ck_assert_int_eq(write(ends[1], full, sizeof full), sizeof full);
  fflush(stderr);
  dup2(ends[1], 2);
  for (int i = 0; i < 20; i++) tri_log(TRI_LOG_WARN, "test", "lost"); /* one that waited would wait for ever */
  ck_assert_int_eq(read(ends[0], full, sizeof full), sizeof full);
  tri_log(TRI_LOG_WARN, "test", "there again");
  tri_log(TRI_LOG_WARN, "test", "and on");
  dup2(saved, 2);
  close(saved);
  close(ends[1]);
  size_t n = 0;
  for (ssize_t r; (r = read(ends[0], got + n, sizeof got - 1 - n)) > 0;) n += (size_t)r;
  close(ends[0]);
  ck_assert_str_eq(got,
                   "WARN - log: 20 lines lost, as they were not read\nWARN - test: there again\nWARN - test: and on\n");
}
END_TEST

/* A terminal that nobody sees, as stderr; the text that comes out of it is in got. */
static void log_to_terminal(const char *term, const char *no_color, char got[256]) {
  int master = posix_openpt(O_RDWR | O_NOCTTY), saved = dup(2);
  ck_assert(master >= 0 && !grantpt(master) && !unlockpt(master));
  int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  ck_assert_int_ge(slave, 0);
  fflush(stderr);
  dup2(slave, 2);
  ck_assert(!(term ? setenv("TERM", term, 1) : unsetenv("TERM")));
  ck_assert(!(no_color ? setenv("NO_COLOR", no_color, 1) : unsetenv("NO_COLOR")));
  tri_log_setup(TRI_LOG_INFO, "-");
  tri_log(TRI_LOG_INFO, "t", "i");
  tri_log(TRI_LOG_WARN, "t", "w");
  tri_log(TRI_LOG_ERROR, "t", "e");
  dup2(saved, 2);
  close(saved);
  size_t len = 0; /* a terminal gives as much as has come through it so far */
  got[0] = '\0';
  while (len < 255 && !strstr(got, "t: e\r\n")) {
    struct pollfd p = {.fd = master, .events = POLLIN};
    ck_assert_msg(poll(&p, 1, 5000) == 1, "nothing comes behind: %s", got);
    ssize_t n = read(master, got + len, 255 - len);
    ck_assert_int_gt(n, 0);
    len += (size_t)n;
    got[len] = '\0';
  }
  close(slave);
  close(master);
  tri_log_setup(TRI_LOG_INFO, "-");
}

START_TEST(log_colours) {
  static const char plain[] = "INFO - t: i\r\nWARN - t: w\r\nERROR - t: e\r\n";
  static const char colours[] = "INFO - t: i\r\n\033[33mWARN\033[0m - t: w\r\n\033[31mERROR\033[0m - t: e\r\n";
  char got[256];
  log_to_terminal("xterm", NULL, got);
  ck_assert_str_eq(got, colours);
  log_to_terminal("xterm", "", got);
  ck_assert_str_eq(got, colours);
  log_to_terminal("xterm", "1", got);
  ck_assert_str_eq(got, plain);
  log_to_terminal("dumb", NULL, got);
  ck_assert_str_eq(got, plain);
  log_to_terminal(NULL, NULL, got);
  ck_assert_str_eq(got, plain);
}
END_TEST

/* ---- rings ---- */

START_TEST(ring_fills_and_empties) {
  tri_ring r;
  int item[8];
  ck_assert_int_eq(tri_ring_init(&r, 5), TRI_OK); /* 8 */
  for (int round = 0; round < 3; round++) {
    ck_assert_ptr_null(tri_ring_pop(&r));
    for (int i = 0; i < 8; i++) ck_assert(tri_ring_push(&r, &item[i]));
    ck_assert(!tri_ring_push(&r, &item[0]));
    for (int i = 0; i < 8; i++) ck_assert_ptr_eq(tri_ring_pop(&r), &item[i]);
    ck_assert_ptr_null(tri_ring_pop(&r));
    ck_assert(tri_ring_push(&r, &item[0])); /* the next round starts elsewhere in the ring */
    ck_assert_ptr_eq(tri_ring_pop(&r), &item[0]);
  }
  tri_ring_free(&r);
}
END_TEST

enum { RING_ITEMS = 200000 };

static void *produce(void *arg) {
  tri_ring *r = arg;
  for (uintptr_t i = 1; i <= RING_ITEMS; i++) {
    size_t *item = tri_malloc(1, sizeof *item);
    *item = i;
    while (!tri_ring_push(r, item)) sched_yield();
  }
  return NULL;
}

START_TEST(ring_between_two_threads) {
  tri_ring r;
  pthread_t t;
  ck_assert_int_eq(tri_ring_init(&r, 64), TRI_OK);
  ck_assert_int_eq(pthread_create(&t, NULL, produce, &r), 0);
  for (size_t want = 1; want <= RING_ITEMS;) {
    size_t *item = tri_ring_pop(&r);
    if (!item) {
      sched_yield();
      continue;
    }
    if (*item != want)
      ck_abort_msg("item %zu came as number %zu", *item,
                   want); /* in order, none lost, and what it points to has arrived too */
    want++;
    tri_free(item);
  }
  pthread_join(t, NULL);
  ck_assert_ptr_null(tri_ring_pop(&r));
  tri_ring_free(&r);
}
END_TEST

/* ---- waits ---- */

/* Waits 20 ms under a policy and returns how often the caller could look in between; what a busy machine
 * cannot change is checked here. */
static unsigned looks_in_a_wait(const tri_wait_policy *p) {
  int64_t deadline = tri_now_ns() + 20000000, cpu = tri_thread_cpu_ns();
  tri_wait w = tri_wait_begin(p, deadline);
  tri_status st;
  unsigned looks = 0;
  while ((st = tri_wait_pause(&w)) == TRI_OK) looks++;
  ck_assert_int_eq(st, TRI_TIMEOUT);
  ck_assert_int_ge(tri_now_ns(), deadline);
  ck_assert_int_lt(tri_thread_cpu_ns() - cpu, 15000000); /* most of it asleep */
  st = tri_wait_pause(&w);
  for (int i = 0; i < 20 && st == TRI_OK; i++) st = tri_wait_pause(&w);
  ck_assert_int_eq(st, TRI_TIMEOUT); /* and stays so */
  return looks;
}

START_TEST(waits_end_at_their_deadline) {
  static const tri_wait_policy policies[] = {{0, 0, NULL}, {50, 0, NULL}, {0, 50, NULL}, {100, 100, NULL}};
  unsigned looks = 0;
  /* A machine that wakes a sleeper late leaves time for few looks, so one undisturbed wait of many is enough. */
  for (int i = 0; i < 200 && looks < 5; i++) looks = looks_in_a_wait(&policies[_i]);
  ck_assert_uint_ge(looks, 5);
}
END_TEST

static void *stop_soon(void *arg) {
  usleep(20000);
  atomic_store((atomic_bool *)arg, true);
  return NULL;
}

START_TEST(waits_end_when_stopped) {
  atomic_bool stop = false;
  pthread_t t;
  tri_wait_policy policy = {.spin_us = 10, .yield_us = 10, .stop = &stop};
  ck_assert_int_eq(pthread_create(&t, NULL, stop_soon, &stop), 0);
  tri_wait w = tri_wait_begin(&policy, TRI_NEVER);
  tri_status st;
  while ((st = tri_wait_pause(&w)) == TRI_OK) {
  }
  ck_assert_int_eq(st, TRI_ABORTED);
  pthread_join(t, NULL);
}
END_TEST

#define FOR_EVER INT64_C(3600000000000)

struct baton {
  tri_waker to, from;
  atomic_int value;
  int rounds;
};

static void *answer(void *arg) {
  struct baton *b = arg;
  for (int i = 0; i < b->rounds; i++) {
    while (atomic_load(&b->value) != 2 * i + 1) tri_waker_sleep(&b->to, FOR_EVER);
    atomic_store(&b->value, 2 * i + 2);
    tri_waker_wake(&b->from);
  }
  return NULL;
}

START_TEST(wakers) {
  tri_waker w = {0};
  int64_t begin = tri_now_ns();
  tri_waker_sleep(&w, 10000000);
  ck_assert_int_ge(tri_now_ns() - begin, 9000000); /* nobody wakes: the time passes */
  tri_waker_wake(&w);
  tri_waker_wake(&w);
  tri_waker_sleep(&w, FOR_EVER); /* woken before it slept */
  begin = tri_now_ns();
  tri_waker_sleep(&w, 10000000); /* two wakes make one signal */
  ck_assert_int_ge(tri_now_ns() - begin, 9000000);
  struct baton b = {.rounds = 2000};
  pthread_t t;
  ck_assert_int_eq(pthread_create(&t, NULL, answer, &b), 0);
  for (int i = 0; i < b.rounds; i++) { /* one lost wake alone would last beyond the suite's limit */
    atomic_store(&b.value, 2 * i + 1);
    tri_waker_wake(&b.to);
    while (atomic_load(&b.value) != 2 * i + 2) tri_waker_sleep(&b.from, FOR_EVER);
  }
  pthread_join(t, NULL);
}
END_TEST

/* ---- the pool ---- */

struct work {
  tri_pool *pool;
  int n, wrong;
  atomic_int sum;
  int phase[16];
};

static void add_index(void *ctx, int index, int count) {
  struct work *w = ctx;
  if (count != w->n || index < 0 || index >= count) w->wrong = 1;
  atomic_fetch_add(&w->sum, 1 << index);
}

/* Each phase writes what the next one reads from the neighbour, without atomics: only the barrier orders them. */
static void phases(void *ctx, int index, int count) {
  struct work *w = ctx;
  for (int i = 1; i <= 200; i++) {
    w->phase[index] = i;
    tri_pool_barrier(w->pool);
    if (w->phase[(index + 1) % count] != i) atomic_fetch_add(&w->sum, 1);
    tri_pool_barrier(w->pool);
  }
}

START_TEST(pool_runs) {
  static const int sizes[] = {1, 2, 3, 4, 7}, spins[] = {0, 50};
  for (size_t k = 0; k < 5; k++)
    for (int s = 0; s < 2; s++) {
      struct work w = {.n = sizes[k]};
      ck_assert_int_eq(tri_pool_create(w.n, NULL, spins[s], &w.pool), TRI_OK);
      ck_assert_int_eq(tri_pool_size(w.pool), w.n);
      for (int i = 0; i < 300; i++) {
        atomic_store(&w.sum, 0);
        tri_pool_run(w.pool, add_index, &w);
        ck_assert_int_eq(atomic_load(&w.sum), (1 << w.n) - 1); /* each index once, all back before run returns */
      }
      atomic_store(&w.sum, 0);
      tri_pool_run(w.pool, phases, &w);
      ck_assert_int_eq(atomic_load(&w.sum), 0);
      ck_assert_int_eq(w.wrong, 0);
      if (s) usleep(2000); /* threads asleep again when they are told to leave */
      tri_pool_destroy(w.pool);
    }
}
END_TEST

START_TEST(pool_edges) {
  tri_pool *p = NULL;
  ck_assert_int_eq(tri_pool_create(0, NULL, 0, &p), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_pool_create(-1, NULL, 0, &p), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_pool_create(100000, NULL, 0, &p), TRI_OUT_OF_RANGE);
  ck_assert_ptr_null(p);
  struct work w = {.n = 1};
  ck_assert_int_eq(tri_pool_size(NULL), 1);
  tri_pool_run(NULL, add_index, &w);
  ck_assert_int_eq(atomic_load(&w.sum), 1);
  tri_pool_barrier(NULL);
  tri_pool_destroy(NULL);
}
END_TEST

START_TEST(cores) {
  int n = tri_topo_num_cores(), core[64], over = -1;
  ck_assert_int_ge(n, 1);
  ck_assert_int_eq(tri_topo_assign(0, 1, 1, core, &over), TRI_OK);
  for (int i = 0; i < 64; i++) core[i] = 77777;
  int crowd = n < 60 ? n + 1 : 64;
  ck_assert_int_eq(tri_topo_assign(0, 1, crowd, core, &over), TRI_OK);
  if (crowd > n) {
    for (int i = 0; i < crowd; i++) ck_assert_int_eq(core[i], -1); /* more threads than cores: nothing is pinned */
  }
}
END_TEST

static TCase *add_case(Suite *s, const char *name, const TTest *const *tests) {
  TCase *c = tcase_create(name);
  tcase_set_timeout(c, 60);
  for (; *tests; tests++) tcase_add_test(c, *tests);
  suite_add_tcase(s, c);
  return c;
}
#define CASE(s, name, ...) add_case(s, name, (const TTest *const[]){__VA_ARGS__, NULL})

Suite *suite_base(void) {
  Suite *s = suite_create("base");
  CASE(s, "status", standard_files, status_names, error_keeps_the_first_reason, error_texts_are_cut_not_overrun);
  CASE(s, "mem", sizes_that_overflow, blocks_are_aligned_and_zeroed, pages, arena);
  TCase *dtype = CASE(s, "dtype", types_by_name);
  tcase_add_loop_test(dtype, every_value_widens_and_comes_back, 0, 2);
  tcase_add_loop_test(dtype, every_gap_rounds_to_nearest_even, 0, 2);
  CASE(s, "buf", bufs_grow, arrays_grow);
  CASE(s, "hash", splitmix);
  CASE(s, "log", log_lines, log_that_nobody_reads, log_colours);
  CASE(s, "ring", ring_fills_and_empties, ring_between_two_threads);
  TCase *wait = CASE(s, "wait", waits_end_when_stopped, wakers);
  tcase_add_loop_test(wait, waits_end_at_their_deadline, 0, 4);
  CASE(s, "pool", pool_runs, pool_edges, cores);
  return s;
}
