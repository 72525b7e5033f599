/* SPDX-License-Identifier: Apache-2.0 */
/* The allocators that the chunked plan is compared with: a comparison with something broken says nothing. */
#include <check.h>
#include <string.h>

#include "base/mem.h"
#include "tests/bench/caching_allocator.h"
#include "tests/bench/greedy_arena.h"

Suite *suite_bench_allocators(void);

enum { MAX = 200 };

static uint64_t state;
static uint64_t next(void) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return state * 0x2545f4914f6cdd1du;
}
static int below(int n) { return (int)(next() % (uint64_t)n); }

/* Memory that is never touched. */
struct device {
  size_t held, limit;
  uint64_t allocs, frees;
  uintptr_t at;
};
static struct device device;

static tri_status device_alloc(void *ctx, size_t bytes, void **out) {
  struct device *d = ctx;
  if (d->held + bytes > d->limit) return TRI_NO_MEMORY;
  d->held += bytes;
  d->allocs++;
  d->at += (uintptr_t)1 << 32;
  *out = (void *)d->at;
  return TRI_OK;
}

static void device_free(void *ctx, void *p, size_t bytes) {
  struct device *d = ctx;
  (void)p;
  d->held -= bytes;
  d->frees++;
}

static const tri_activation_memory memory = {&device, device_alloc, device_free};

static void begin(void) {
  device = (struct device){.limit = SIZE_MAX / 2};
  state = 88172645463325252u;
}

static void end(void) {
  ck_assert_uint_eq(device.held, 0);
  ck_assert_uint_eq(device.allocs, device.frees);
}

/* ---- caching ---- */

static const size_t KB = 1 << 10, MB = 1 << 20;

/* Bytes of memory that a first allocation of so many takes. */
static size_t segment_of(size_t bytes) {
  tri_caching_allocator *a;
  tri_caching_block *b;
  begin();
  ck_assert_int_eq(tri_caching_create(memory, &a), TRI_OK);
  ck_assert_int_eq(tri_caching_alloc(a, bytes, &b), TRI_OK);
  size_t held = device.held;
  tri_caching_destroy(a);
  end();
  return held;
}

START_TEST(segments_have_the_documented_sizes) {
  ck_assert_uint_eq(segment_of(1), 2 * MB);
  ck_assert_uint_eq(segment_of(MB), 2 * MB);
  ck_assert_uint_eq(segment_of(MB + 1), 20 * MB);
  ck_assert_uint_eq(segment_of(10 * MB - 512), 20 * MB);
  ck_assert_uint_eq(segment_of(10 * MB), 10 * MB);
  ck_assert_uint_eq(segment_of(10 * MB + 1), 12 * MB);
  ck_assert_uint_eq(segment_of(31 * MB), 32 * MB);
}
END_TEST

static tri_caching_block *take(tri_caching_allocator *a, size_t bytes) {
  tri_caching_block *b = NULL;
  ck_assert_int_eq(tri_caching_alloc(a, bytes, &b), TRI_OK);
  return b;
}

START_TEST(blocks_are_cut_and_merge_again) {
  tri_caching_allocator *a;
  begin();
  ck_assert_int_eq(tri_caching_create(memory, &a), TRI_OK);
  tri_caching_block *x = take(a, 100), *y = take(a, 513), *z = take(a, 512);
  char *base = tri_caching_data(x);
  ck_assert_ptr_eq(tri_caching_data(y), base + 512);
  ck_assert_ptr_eq(tri_caching_data(z), base + 1536);
  tri_caching_free(a, y);
  tri_caching_block *w = take(a, 700); /* the best fit is the hole */
  ck_assert_ptr_eq(tri_caching_data(w), base + 512);
  tri_caching_free(a, x), tri_caching_free(a, z), tri_caching_free(a, w);
  tri_caching_block *m[] = {take(a, MB), take(a, MB)}; /* all of the segment */
  ck_assert_uint_eq(device.allocs, 1);
  ck_assert_ptr_eq(tri_caching_data(m[0]), base);
  /* A large block keeps what is left of it up to 1 MiB. */
  tri_caching_block *l = take(a, 9 * MB), *r = take(a, 10 * MB - 512), *more = take(a, 2 * MB);
  ck_assert_uint_eq(device.held, 42 * MB);
  ck_assert_ptr_eq(tri_caching_data(r), (char *)tri_caching_data(l) + 9 * MB);
  ck_assert_ptr_ne(tri_caching_data(more), (char *)tri_caching_data(r) + 10 * MB - 512);
  tri_caching_destroy(a);
  end();
}
END_TEST

START_TEST(free_segments_go_when_memory_is_out) {
  tri_caching_allocator *a;
  begin();
  device.limit = 45 * MB;
  ck_assert_int_eq(tri_caching_create(memory, &a), TRI_OK);
  tri_caching_block *big = take(a, 30 * MB), *small = take(a, KB), *none;
  tri_caching_free(a, big);
  take(a, 40 * MB);
  ck_assert_uint_eq(device.held, 42 * MB);
  ck_assert_int_eq(tri_caching_alloc(a, 40 * MB, &none), TRI_NO_MEMORY);
  ck_assert_int_eq(tri_caching_alloc(a, SIZE_MAX, &none), TRI_OVERFLOW);
  tri_caching_free(a, small);
  tri_caching_destroy(a);
  end();
}
END_TEST

START_TEST(used_blocks_never_overlap) {
  static tri_caching_block *used[MAX];
  static size_t bytes[MAX];
  tri_caching_allocator *a;
  int n = 0, overlaps = 0;
  begin();
  ck_assert_int_eq(tri_caching_create(memory, &a), TRI_OK);
  for (int step = 0; step < 20000; step++) {
    if (n == MAX || (n && below(2))) {
      int i = below(n);
      tri_caching_free(a, used[i]);
      used[i] = used[--n], bytes[i] = bytes[n];
      continue;
    }
    bytes[n] = 1 + next() % (below(2) ? 3 * MB : below(8) ? 64 * KB : 30 * MB);
    used[n] = take(a, bytes[n]);
    const char *p = tri_caching_data(used[n]);
    for (int i = 0; i < n; i++) {
      const char *q = tri_caching_data(used[i]);
      overlaps += p < q + bytes[i] && q < p + bytes[n];
    }
    n++;
  }
  ck_assert_int_eq(overlaps, 0);
  while (n) tri_caching_free(a, used[--n]);
  tri_caching_trim(a); /* all has merged, so all can go */
  end();
  tri_caching_destroy(a);
}
END_TEST

/* ---- greedy by size ---- */

static bool meet(const tri_tensor_life *a, const tri_tensor_life *b) {
  return a->first_op <= b->last_op && b->first_op <= a->last_op;
}

START_TEST(an_arena_holds_what_lives_at_once) {
  for (int exact = 0; exact < 2; exact++) {
    tri_greedy_arena *a;
    size_t most = 0;
    begin();
    ck_assert_int_eq(tri_greedy_create(memory, 64, exact, &a), TRI_OK);
    for (int round = 0; round < 200; round++) {
      tri_tensor_life t[MAX];
      int n = 1 + below(MAX), wrong = 0;
      size_t end_of_all = 0;
      for (int i = 0; i < n; i++) {
        int first = below(100);
        t[i] = (tri_tensor_life){1 + next() % 100000, first, first + below(6)};
      }
      ck_assert_int_eq(tri_greedy_make(a, t, n), TRI_OK);
      for (int i = 0; i < n; i++) {
        size_t x = tri_greedy_offset(a, i), end_of_i = x + ((t[i].bytes + 63) & ~(size_t)63);
        if (end_of_i > end_of_all) end_of_all = end_of_i;
        wrong += x % 64 != 0;
        for (int j = 0; j < i; j++) {
          size_t y = tri_greedy_offset(a, j);
          wrong += meet(&t[i], &t[j]) && x < y + t[j].bytes && y < x + t[i].bytes;
        }
      }
      if (end_of_all > most) most = end_of_all;
      ck_assert_int_eq(wrong, 0);
      ck_assert_uint_ge(end_of_all, tri_live_bytes(t, n));
      ck_assert_uint_eq(tri_greedy_bytes(a), exact ? end_of_all : most);
      ck_assert_uint_eq(device.held, tri_greedy_bytes(a));
    }
    tri_greedy_destroy(a);
    end();
  }
}
END_TEST

START_TEST(an_arena_that_does_not_fit_is_none) {
  tri_greedy_arena *a;
  tri_tensor_life t = {1000, 0, 0}, huge = {SIZE_MAX, 0, 0};
  begin();
  device.limit = 2000;
  ck_assert_int_eq(tri_greedy_create(memory, 64, false, &a), TRI_OK);
  ck_assert_int_eq(tri_greedy_make(a, &t, 1), TRI_OK);
  ck_assert_int_eq(tri_greedy_make(a, &huge, 1), TRI_OVERFLOW);
  t.bytes = 3000;
  ck_assert_int_eq(tri_greedy_make(a, &t, 1), TRI_NO_MEMORY);
  ck_assert_uint_eq(device.held, 0);
  t.bytes = 1500;
  ck_assert_int_eq(tri_greedy_make(a, &t, 1), TRI_OK);
  tri_greedy_destroy(a);
  end();
}
END_TEST

START_TEST(live_bytes_by_hand) {
  tri_tensor_life t[] = {{10, 0, 4}, {5, 0, 1}, {7, 2, 3}, {8, 3, 5}};
  ck_assert_uint_eq(tri_live_bytes(t, 4), 25);
  ck_assert_uint_eq(tri_live_bytes(t, 0), 0);
}
END_TEST

Suite *suite_bench_allocators(void) {
  Suite *s = suite_create("bench_allocators");
  TCase *caching = tcase_create("caching"), *greedy = tcase_create("greedy");
  tcase_set_timeout(caching, 60), tcase_set_timeout(greedy, 60);
  tcase_add_test(caching, segments_have_the_documented_sizes);
  tcase_add_test(caching, blocks_are_cut_and_merge_again);
  tcase_add_test(caching, free_segments_go_when_memory_is_out);
  tcase_add_test(caching, used_blocks_never_overlap);
  tcase_add_test(greedy, an_arena_holds_what_lives_at_once);
  tcase_add_test(greedy, an_arena_that_does_not_fit_is_none);
  tcase_add_test(greedy, live_bytes_by_hand);
  suite_add_tcase(s, caching);
  suite_add_tcase(s, greedy);
  return s;
}
