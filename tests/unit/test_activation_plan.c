/* SPDX-License-Identifier: Apache-2.0 */
/* Where the tensors of an inference are put: whatever they are, those that live at the same time share nothing, and
 * memory is asked for and given back when the header says so. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "tests/bench/activation_plan.h"
#include "base/mem.h"

Suite *suite_activation_plan(void);

enum { MAX = 600 };

static uint64_t state;
static uint64_t next(void) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return state * 0x2545f4914f6cdd1du;
}
static int below(int n) { return (int)(next() % (uint64_t)n); }

/* Memory that is never touched, so that it can have any size. */
struct device {
  size_t held, high_water, limit;
  uint64_t allocs, frees;
  uintptr_t at;
};

static tri_status device_alloc(void *ctx, size_t bytes, void **out) {
  struct device *d = ctx;
  if (d->held + bytes > d->limit) return TRI_NO_MEMORY;
  d->held += bytes;
  if (d->held > d->high_water) d->high_water = d->held;
  d->allocs++;
  d->at += (uintptr_t)1 << 40;
  *out = (void *)d->at;
  return TRI_OK;
}

static void device_free(void *ctx, void *p, size_t bytes) {
  struct device *d = ctx;
  (void)p;
  d->held -= bytes;
  d->frees++;
}

struct kit {
  struct device d;
  tri_activation_plan *p;
  tri_tensor_life t[MAX];
};
static struct kit k;

static tri_activation_config config_of(void) {
  return tri_activation_config_default((tri_activation_memory){&k.d, device_alloc, device_free});
}

static void begin_with(const tri_activation_config *c) {
  memset(&k, 0, sizeof k);
  k.d.limit = SIZE_MAX / 2;
  state = 88172645463325252u;
  ck_assert_int_eq(tri_activation_plan_create(c, &k.p, NULL), TRI_OK);
}

static void begin(void) {
  tri_activation_config c = config_of();
  begin_with(&c);
}

static void end(void) {
  tri_activation_plan_destroy(k.p);
  ck_assert_uint_eq(k.d.held, 0);
  ck_assert_uint_eq(k.d.allocs, k.d.frees);
}

static void make(int n) { ck_assert_int_eq(tri_activation_plan_make(k.p, k.t, n, NULL), TRI_OK); }

/* Short lives, and some that last. */
static void random_tensors(int n, int ops, size_t most) {
  for (int i = 0; i < n; i++) {
    int first = below(ops), left = ops - 1 - first, len = below(8) ? below(5) : below(ops);
    k.t[i] = (tri_tensor_life){1 + next() % most, first, first + (len < left ? len : left)};
  }
}

static bool meet(const tri_tensor_life *a, const tri_tensor_life *b) {
  return a->first_op <= b->last_op && b->first_op <= a->last_op;
}

/* Bytes of what lives at the operator that has most of them: no plan can do with less. */
static size_t live_bytes(int n) {
  size_t most = 0;
  for (int i = 0; i < n; i++) {
    size_t sum = 0;
    for (int j = 0; j < n; j++)
      if (k.t[j].first_op <= k.t[i].first_op && k.t[i].first_op <= k.t[j].last_op) sum += k.t[j].bytes;
    if (sum > most) most = sum;
  }
  return most;
}

/* NULL, or what is wrong. */
static const char *flaw(int n, size_t alignment) {
  if (tri_activation_plan_num_tensors(k.p) != n) return "not every tensor is placed";
  for (int i = 0; i < n; i++) {
    tri_tensor_place a = tri_activation_plan_place(k.p, i);
    if (a.chunk < 0 || a.chunk >= tri_activation_plan_num_chunks(k.p)) return "no such chunk";
    size_t room = tri_activation_plan_chunk_bytes(k.p, a.chunk);
    if (a.offset > room || k.t[i].bytes > room - a.offset) return "beyond the end of its chunk";
    if (a.offset % alignment || (uintptr_t)tri_activation_plan_data(k.p, i) % alignment) return "not aligned";
    for (int j = 0; j < i; j++) {
      tri_tensor_place b = tri_activation_plan_place(k.p, j);
      if (a.chunk == b.chunk && meet(&k.t[i], &k.t[j]) && a.offset < b.offset + k.t[j].bytes &&
          b.offset < a.offset + k.t[i].bytes)
        return "two tensors that live at the same time share bytes";
    }
  }
  tri_activation_stats s = tri_activation_plan_stats(k.p);
  if (s.held != k.d.held || s.high_water != k.d.high_water || s.allocs != k.d.allocs || s.frees != k.d.frees)
    return "statistics differ from what the memory saw";
  if (s.alloc_bytes - s.free_bytes != s.held) return "bytes allocated less bytes freed are not what is held";
  return NULL;
}

static void check_plan(int n, size_t alignment) {
  const char *wrong = flaw(n, alignment);
  ck_assert_msg(!wrong, "%s", wrong);
}

/* ---- placing ---- */

START_TEST(nothing_that_lives_together_overlaps) {
  static const size_t sizes[] = {300, 5000, 1 << 20, 6 << 20}, alignments[] = {1, 64, 256};
  for (int round = 0; round < 240; round++) {
    tri_activation_config c = config_of();
    c.alignment = alignments[round % 3];
    c.slack_percent = round % 50;
    c.chunk_bytes = round % 7 ? (size_t)2 << 20 : 0;
    c.keep_small = round & 8;
    begin_with(&c);
    state += (uint64_t)round;
    for (int i = 0; i < 6; i++) {
      int n = 1 + below(round % 5 ? 120 : MAX);
      random_tensors(n, 1 + below(200), sizes[round % 4]);
      make(n);
      check_plan(n, c.alignment);
      ck_assert_uint_ge(k.d.held, live_bytes(n));
      if (below(2)) tri_activation_plan_release(k.p, below(3) + 1);
      check_plan(n, c.alignment);
    }
    end();
  }
}
END_TEST

/* Algorithm 1 once more, as it is printed: every chunk is looked through in full. */
struct slow {
  size_t chunk[MAX];
  int num_chunks;
  tri_tensor_place place[MAX];
  bool placed[MAX];
};

static bool slow_fit(struct slow *s, int n, int t, int chunk) {
  size_t bytes = k.t[t].bytes, end = 0, smallest = SIZE_MAX, at = SIZE_MAX;
  bool seen[MAX] = {false};
  for (;;) {
    int i = -1;
    for (int j = 0; j < n; j++)
      if (s->placed[j] && !seen[j] && s->place[j].chunk == chunk && (i < 0 || s->place[j].offset < s->place[i].offset))
        i = j;
    if (i < 0) break;
    seen[i] = true;
    if (!meet(&k.t[i], &k.t[t])) continue;
    size_t offset = s->place[i].offset;
    if (offset >= end && offset - end >= bytes && offset - end < smallest) smallest = offset - end, at = end;
    if (offset + k.t[i].bytes > end) end = offset + k.t[i].bytes;
  }
  if (at == SIZE_MAX && s->chunk[chunk] - end >= bytes) at = end;
  if (at == SIZE_MAX) return false;
  s->place[t] = (tri_tensor_place){chunk, at};
  return true;
}

static void slow_plan(struct slow *s, int n) {
  memset(s->placed, 0, sizeof s->placed);
  for (int done = 0; done < n; done++) {
    int t = -1, c = 0;
    for (int i = 0; i < n; i++)
      if (!s->placed[i] && (t < 0 || k.t[i].bytes > k.t[t].bytes)) t = i;
    while (c < s->num_chunks && !slow_fit(s, n, t, c)) c++;
    if (c == s->num_chunks) {
      size_t scaled = k.t[t].bytes + k.t[t].bytes / 5;
      s->chunk[s->num_chunks++] = scaled > (size_t)2 << 20 ? scaled : (size_t)2 << 20;
      s->place[t] = (tri_tensor_place){.chunk = c};
    }
    s->placed[t] = true;
  }
}

START_TEST(as_the_paper_prints_it) {
  static struct slow s;
  tri_activation_config c = config_of();
  c.keep_small = true, c.alignment = 1;
  begin_with(&c);
  memset(&s, 0, sizeof s);
  int differ = 0;
  for (int round = 0; round < 40; round++) {
    int n = 1 + below(80);
    random_tensors(n, 60, (size_t)1 << (12 + below(11)));
    make(n);
    slow_plan(&s, n);
    for (int i = 0; i < n; i++) {
      tri_tensor_place p = tri_activation_plan_place(k.p, i);
      differ += p.chunk != s.place[i].chunk || p.offset != s.place[i].offset;
    }
    ck_assert_int_eq(tri_activation_plan_num_chunks(k.p), s.num_chunks);
  }
  ck_assert_int_eq(differ, 0);
  end();
}
END_TEST

START_TEST(the_smallest_gap_is_taken) {
  begin();
  /* Two gaps, of 300 and of 200 KiB, among tensors that live all the time; the largest come first. */
  k.t[0] = (tri_tensor_life){400 << 10, 0, 9};
  k.t[1] = (tri_tensor_life){300 << 10, 0, 3};
  k.t[2] = (tri_tensor_life){290 << 10, 0, 9};
  k.t[3] = (tri_tensor_life){200 << 10, 0, 3};
  k.t[4] = (tri_tensor_life){190 << 10, 0, 9};
  k.t[5] = (tri_tensor_life){180 << 10, 5, 9};
  make(6);
  check_plan(6, 64);
  ck_assert_int_eq(tri_activation_plan_num_chunks(k.p), 1);
  ck_assert_uint_eq(tri_activation_plan_place(k.p, 3).offset, 990 << 10);
  ck_assert_uint_eq(tri_activation_plan_place(k.p, 5).offset, 990 << 10);
  end();
}
END_TEST

START_TEST(chunks_have_the_papers_sizes) {
  begin();
  k.t[0] = (tri_tensor_life){1000, 0, 1};
  make(1);
  ck_assert_uint_eq(k.d.held, 2 << 20);
  k.t[0].bytes = 10 << 20;
  make(1);
  ck_assert_uint_eq(k.d.held, 12 << 20); /* the first one was too small, and is gone */
  ck_assert_uint_eq(k.d.high_water, 12 << 20);
  k.t[0].bytes = (size_t)12 << 20;
  make(1);
  ck_assert_uint_eq(k.d.allocs, 2); /* the slack holds it */
  end();
}
END_TEST

/* ---- allocation and release ---- */

START_TEST(the_same_again_allocates_nothing) {
  for (int round = 0; round < 60; round++) {
    tri_activation_config c = config_of();
    c.keep_small = round & 1;
    begin_with(&c);
    state += (uint64_t)round;
    for (int i = 0; i < 4; i++) {
      tri_tensor_place before[MAX];
      int n = 1 + below(100), moved = 0;
      random_tensors(n, 80, (size_t)4 << 20);
      make(n);
      for (int j = 0; j < n; j++) before[j] = tri_activation_plan_place(k.p, j);
      uint64_t allocs = k.d.allocs, frees = k.d.frees;
      make(n);
      ck_assert(k.d.allocs == allocs && k.d.frees == frees);
      for (int j = 0; j < n; j++) {
        tri_tensor_place p = tri_activation_plan_place(k.p, j);
        moved += p.chunk != before[j].chunk || p.offset != before[j].offset;
      }
      ck_assert_int_eq(moved, 0);
    }
    end();
  }
}
END_TEST

START_TEST(allocations_end_for_a_fixed_set_of_inferences) {
  enum { SET = 5, TENSORS = 40, TURNS = 400 };
  for (int round = 0; round < 20; round++) {
    tri_tensor_life set[SET][TENSORS];
    uint64_t last = 0;
    begin();
    state += (uint64_t)round;
    for (int s = 0; s < SET; s++) {
      random_tensors(TENSORS, 60, (size_t)8 << 20);
      memcpy(set[s], k.t, sizeof set[s]);
    }
    for (int turn = 0; turn < TURNS; turn++) {
      memcpy(k.t, set[below(SET)], sizeof set[0]);
      make(TENSORS);
      check_plan(TENSORS, 64);
      if (turn == TURNS / 2) last = k.d.allocs;
    }
    ck_assert_uint_eq(k.d.allocs, last);
    end();
  }
}
END_TEST

START_TEST(released_when_unused_for_long_enough) {
  tri_activation_config c = config_of();
  c.keep_small = true;
  begin_with(&c);
  k.t[0] = (tri_tensor_life){3 << 20, 0, 1};
  k.t[1] = (tri_tensor_life){3 << 20, 1, 2};
  k.t[2] = (tri_tensor_life){1000, 0, 2};
  make(3);
  ck_assert_int_eq(tri_activation_plan_num_chunks(k.p), 2);
  ck_assert_uint_eq(tri_activation_plan_release(k.p, 1), 0); /* all in use */
  for (int i = 0; i < 3; i++) {
    ck_assert_uint_eq(tri_activation_plan_release(k.p, 3), 0);
    ck_assert_int_eq(tri_activation_plan_make(k.p, k.t + 2, 1, NULL), TRI_OK);
  }
  size_t first = tri_activation_plan_chunk_bytes(k.p, 0), second = tri_activation_plan_chunk_bytes(k.p, 1);
  ck_assert_uint_eq(tri_activation_plan_release(k.p, 4), 0);
  ck_assert_uint_eq(tri_activation_plan_release(k.p, 3), second);
  ck_assert_uint_eq(k.d.held, first);
  ck_assert_int_eq(tri_activation_plan_num_tensors(k.p), 1);
  ck_assert_uint_eq(tri_activation_plan_release(k.p, 0), first);
  ck_assert_int_eq(tri_activation_plan_num_tensors(k.p), 0);
  ck_assert_uint_eq(k.d.held, 0);
  make(3);
  check_plan(3, 64);
  end();
}
END_TEST

/* A chunk in front of others goes: the places of the last plan stay what they are. */
START_TEST(places_survive_a_release) {
  begin();
  k.t[0] = (tri_tensor_life){1 << 20, 0, 1};
  make(1);
  k.t[0].bytes = k.t[1].bytes = 9 << 20;
  k.t[1].first_op = 0, k.t[1].last_op = 5;
  tri_activation_config c = config_of();
  c.keep_small = true;
  tri_activation_plan *keeping = NULL;
  ck_assert_int_eq(tri_activation_plan_create(&c, &keeping, NULL), TRI_OK);
  tri_tensor_life small = {1 << 20, 0, 1};
  ck_assert_int_eq(tri_activation_plan_make(keeping, &small, 1, NULL), TRI_OK);
  ck_assert_int_eq(tri_activation_plan_make(keeping, k.t, 2, NULL), TRI_OK);
  void *data[] = {tri_activation_plan_data(keeping, 0), tri_activation_plan_data(keeping, 1)};
  ck_assert_int_eq(tri_activation_plan_place(keeping, 1).chunk, 2);
  ck_assert_uint_eq(tri_activation_plan_release(keeping, 1), 2 << 20);
  ck_assert_int_eq(tri_activation_plan_place(keeping, 1).chunk, 1);
  ck_assert(tri_activation_plan_data(keeping, 0) == data[0] && tri_activation_plan_data(keeping, 1) == data[1]);
  tri_activation_plan_destroy(keeping);
  end();
}
END_TEST

/* ---- failures ---- */

START_TEST(failing_memory_leaves_everything_in_order) {
  for (int round = 0; round < 200; round++) {
    begin();
    state += (uint64_t)round;
    int n = 20 + below(60), failures = 0;
    random_tensors(n, 50, (size_t)4 << 20);
    make(n);
    for (int i = 0; i < 5; i++) {
      tri_error err = {0};
      random_tensors(n, 50, (size_t)8 << 20);
      k.d.limit = k.d.held + (next() % ((size_t)8 << 20));
      tri_status st = tri_activation_plan_make(k.p, k.t, n, &err);
      if (st == TRI_OK) {
        check_plan(n, 64);
        continue;
      }
      failures++;
      ck_assert(st == TRI_NO_MEMORY && err.status == TRI_NO_MEMORY && strstr(err.message, "chunk"));
      check_plan(0, 64);
      k.d.limit = SIZE_MAX / 2;
      if (below(2)) tri_activation_plan_release(k.p, below(2));
      make(n);
      check_plan(n, 64);
    }
    ck_assert(round || failures);
    end();
  }
}
END_TEST

/* What a failed plan has allocated is used by none. */
START_TEST(a_failed_plans_chunks_are_released) {
  begin();
  k.t[0] = (tri_tensor_life){1 << 20, 0, 1};
  make(1);
  k.t[1] = (tri_tensor_life){2 << 20, 0, 1};
  k.t[2] = (tri_tensor_life){3 << 20, 0, 1};
  k.d.limit = 7 << 20;
  ck_assert_int_eq(tri_activation_plan_make(k.p, k.t, 3, NULL), TRI_NO_MEMORY);
  ck_assert_int_eq(tri_activation_plan_num_chunks(k.p), 2);
  ck_assert_uint_gt(tri_activation_plan_release(k.p, 1), 0);
  k.d.limit = SIZE_MAX / 2;
  make(1);
  check_plan(1, 64);
  end();
}
END_TEST

static void refused(tri_tensor_life t, tri_status want) {
  tri_error err = {0};
  k.t[0] = (tri_tensor_life){100, 0, 1};
  k.t[1] = t;
  ck_assert_int_eq(tri_activation_plan_make(k.p, k.t, 2, &err), want);
  ck_assert(err.status == want && *err.message);
  check_plan(0, 64);
}

START_TEST(wrong_input_is_refused) {
  begin();
  refused((tri_tensor_life){0, 0, 1}, TRI_INVALID_ARGUMENT);
  refused((tri_tensor_life){8, -1, 1}, TRI_INVALID_ARGUMENT);
  refused((tri_tensor_life){8, 2, 1}, TRI_INVALID_ARGUMENT);
  refused((tri_tensor_life){8, 0, TRI_MAX_LIFE_OPS}, TRI_OUT_OF_RANGE);
  refused((tri_tensor_life){SIZE_MAX, 0, 1}, TRI_OVERFLOW);      /* cannot be aligned */
  refused((tri_tensor_life){SIZE_MAX - 63, 0, 1}, TRI_OVERFLOW); /* nor have slack */
  refused((tri_tensor_life){SIZE_MAX / 6 * 5 + 100, 0, 1}, TRI_OVERFLOW);
  ck_assert_int_eq(tri_activation_plan_make(k.p, k.t, -1, NULL), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_activation_plan_make(k.p, k.t, TRI_MAX_LIVES + 1, NULL), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_activation_plan_make(k.p, k.t, 0, NULL), TRI_OK);
  k.t[1] = (tri_tensor_life){8, 0, TRI_MAX_LIFE_OPS - 1};
  make(2);
  end();
  tri_activation_plan *none = NULL;
  tri_activation_config c = config_of();
  c.alignment = 48;
  ck_assert_int_eq(tri_activation_plan_create(&c, &none, NULL), TRI_INVALID_ARGUMENT);
  c = config_of(), c.slack_percent = -1;
  ck_assert_int_eq(tri_activation_plan_create(&c, &none, NULL), TRI_OUT_OF_RANGE);
  c = config_of(), c.memory.alloc = NULL;
  ck_assert_int_eq(tri_activation_plan_create(&c, &none, NULL), TRI_INVALID_ARGUMENT);
  ck_assert_ptr_null(none);
  tri_activation_plan_destroy(NULL);
}
END_TEST

START_TEST(on_a_backends_memory) {
  tri_backend *be;
  tri_backend_config bc = {.name = "ref"};
  ck_assert_int_eq(tri_backend_create(&bc, &be, NULL), TRI_OK);
  tri_activation_config c = tri_activation_config_default(tri_activation_memory_of(be));
  tri_activation_plan *p;
  ck_assert_int_eq(tri_activation_plan_create(&c, &p, NULL), TRI_OK);
  tri_tensor_life t[] = {{5000, 0, 1}, {7000, 1, 2}};
  ck_assert_int_eq(tri_activation_plan_make(p, t, 2, NULL), TRI_OK);
  memset(tri_activation_plan_data(p, 0), 1, t[0].bytes);
  memset(tri_activation_plan_data(p, 1), 2, t[1].bytes);
  ck_assert_int_eq(((char *)tri_activation_plan_data(p, 0))[4999], 1);
  ck_assert_uint_eq(be->allocated[TRI_MEM_ACTIVATIONS], tri_activation_plan_stats(p).held);
  tri_activation_plan_destroy(p);
  ck_assert_uint_eq(be->allocated[TRI_MEM_ACTIVATIONS], 0);
  tri_backend_destroy(be);
}
END_TEST

Suite *suite_activation_plan(void) {
  Suite *s = suite_create("activation_plan");
  TCase *placing = tcase_create("placing"), *release = tcase_create("release"), *failures = tcase_create("failures");
  tcase_set_timeout(placing, 120);
  tcase_add_test(placing, nothing_that_lives_together_overlaps);
  tcase_add_test(placing, as_the_paper_prints_it);
  tcase_add_test(placing, the_smallest_gap_is_taken);
  tcase_add_test(placing, chunks_have_the_papers_sizes);
  tcase_add_test(release, the_same_again_allocates_nothing);
  tcase_add_test(release, allocations_end_for_a_fixed_set_of_inferences);
  tcase_add_test(release, released_when_unused_for_long_enough);
  tcase_add_test(release, places_survive_a_release);
  tcase_add_test(failures, failing_memory_leaves_everything_in_order);
  tcase_add_test(failures, a_failed_plans_chunks_are_released);
  tcase_add_test(failures, wrong_input_is_refused);
  tcase_add_test(failures, on_a_backends_memory);
  suite_add_tcase(s, placing);
  suite_add_tcase(s, release);
  suite_add_tcase(s, failures);
  return s;
}
