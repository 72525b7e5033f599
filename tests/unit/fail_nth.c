/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fail_nth.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t left; /* allocations up to the one that fails; 0: none does */
static atomic_bool has_failed;
static bool counts_malloc;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
FILE *__real_fdopen(int fd, const char *mode);
FILE *__wrap_fdopen(int fd, const char *mode);

/* Also of threads that the code under test has. */
bool fail_nth_fails(void) {
  uint64_t n = atomic_load(&left);
  while (n && !atomic_compare_exchange_weak(&left, &n, n - 1)) continue;
  if (n != 1) return false;
  atomic_store(&has_failed, true);
  return true;
}

/* base/mem.c has all memory from the one, base/json/json.c that of its documents from the other. */
void *__wrap_aligned_alloc(size_t align, size_t n) { return fail_nth_fails() ? NULL : __real_aligned_alloc(align, n); }

void *__wrap_malloc(size_t n) { return counts_malloc && fail_nth_fails() ? NULL : __real_malloc(n); }

/* The C library's own memory for a stream. */
FILE *__wrap_fdopen(int fd, const char *mode) {
  if (!fail_nth_fails()) return __real_fdopen(fd, mode);
  errno = ENOMEM;
  return NULL;
}

void fail_nth_arm(uint64_t n) {
  left = n;
  has_failed = false;
}

void fail_nth_count_malloc(bool on) { counts_malloc = on; }

bool fail_nth_has_failed(void) { return has_failed; }

static void expect_same(outcome want, outcome got, const char *name, const char *when, uint64_t n) {
  ck_assert_msg(got.status == want.status && (got.status != TRI_OK || got.digest == want.digest),
                "%s, %s allocation %llu failed: %s and %llx, not %s and %llx", name, when, (unsigned long long)n,
                tri_status_text(got.status), (unsigned long long)got.digest, tri_status_text(want.status),
                (unsigned long long)want.digest);
}

uint64_t fail_nth_each(fail_nth_run *run, const char *name, const char *data, size_t len) {
  outcome want = run(data, len);
  uint64_t n = 1;
  ck_assert_msg(want.status != TRI_NO_MEMORY, "%s: there is no memory", name);
  for (bool failed = true; failed; n++) {
    fail_nth_arm(n);
    outcome got = run(data, len);
    failed = has_failed;
    fail_nth_arm(0);
    if (!failed || got.status != TRI_NO_MEMORY) expect_same(want, got, name, "when", n);
    if (n % 16 == 1) expect_same(want, run(data, len), name, "after", n);
  }
  return n - 2;
}
