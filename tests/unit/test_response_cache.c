/* SPDX-License-Identifier: Apache-2.0 */
/* The response cache: against a simple model of it under random calls, its bound to the byte, and its keys. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/jobs/response_cache.h"
#include "base/hash.h"

Suite *suite_response_cache(void);

static uint64_t worst_hash(tri_sip_key secret, const void *key, size_t len) {
  (void)secret, (void)key, (void)len;
  return 42;
}

static tri_response_cache *open_cache(uint64_t bytes, bool collide) {
  tri_response_cache_config config = {.max_bytes = bytes, .secret = {{1, 2}}, .hash = collide ? worst_hash : NULL};
  tri_response_cache *c = NULL;
  ck_assert_int_eq(tri_response_cache_create(&config, &c), TRI_OK);
  return c;
}

static void put(tri_response_cache *c, const char *key, const char *answer) {
  tri_response_cache_put(c, key, strlen(key), answer, strlen(answer));
}

static bool has(tri_response_cache *c, const char *key, const char *answer) {
  size_t len = 0;
  const void *got = tri_response_cache_get(c, key, strlen(key), &len);
  return answer ? got && len == strlen(answer) && !memcmp(got, answer, len) : !got;
}

/* The vectors of the paper's reference implementation: key 00 01 ... 0f, input 00 01 ..., of 0, 8 and 15 bytes. */
START_TEST(siphash) {
  const tri_sip_key key = {{0x0706050403020100u, 0x0f0e0d0c0b0a0908u}};
  uint8_t in[16];
  for (int i = 0; i < 16; i++) in[i] = (uint8_t)i;
  ck_assert(tri_siphash(key, in, 0) == 0x726fdb47dd0e0e31u);
  ck_assert(tri_siphash(key, in, 8) == 0x93f5f5799a932462u);
  ck_assert(tri_siphash(key, in, 15) == 0xa129ca6149be45e5u);
}
END_TEST

START_TEST(least_recently_used_goes_first) {
  tri_response_cache *c = open_cache(TRI_RESPONSE_CACHE_LEAST, false);
  char key[2] = "a", answer[16000];
  memset(answer, 'x', sizeof answer);
  for (char k = 'a'; k <= 'd'; k++) {
    key[0] = k;
    tri_response_cache_put(c, key, 1, answer, sizeof answer);
  }
  ck_assert(tri_response_cache_figures_of(c).entries == 4 && !tri_response_cache_figures_of(c).evictions);
  size_t len;
  ck_assert(tri_response_cache_get(c, "a", 1, &len) && len == sizeof answer); /* b is the oldest now */
  tri_response_cache_put(c, "b", 1, "", 0);                                   /* c is: a second put uses the first */
  tri_response_cache_put(c, "e", 1, answer, sizeof answer);
  const char *const left = "abde";
  for (const char *k = left; *k; k++) ck_assert_msg(tri_response_cache_get(c, k, 1, &len) != NULL, "%c", *k);
  ck_assert(!tri_response_cache_get(c, "c", 1, &len));
  ck_assert_uint_eq(tri_response_cache_figures_of(c).evictions, 1);
  tri_response_cache_destroy(c);
}
END_TEST

/* Fills the cache to its last byte; one more, and an entry must go. */
START_TEST(bound_is_exact) {
  for (int over = 0; over < 2; over++) {
    tri_response_cache *c = open_cache(TRI_RESPONSE_CACHE_LEAST, false);
    uint64_t empty = tri_response_cache_figures_of(c).bytes, room = TRI_RESPONSE_CACHE_LEAST - empty;
    static char answer[TRI_RESPONSE_CACHE_LEAST];
    size_t half = room / 2 - tri_response_cache_entry_bytes(1, 0), len;
    while (tri_response_cache_entry_bytes(1, half + 1) <= room / 2) half++;
    tri_response_cache_put(c, "a", 1, answer, half);
    size_t rest = room - tri_response_cache_entry_bytes(1, half);
    for (len = 0; tri_response_cache_entry_bytes(1, len + 1) <= rest;) len++;
    tri_response_cache_put(c, "b", 1, answer, len + (size_t)over);
    tri_response_cache_figures f = tri_response_cache_figures_of(c);
    ck_assert_uint_eq(f.entries, 2 - (uint64_t)over);
    ck_assert_uint_eq(f.evictions, (uint64_t)over);
    ck_assert_uint_le(f.bytes, TRI_RESPONSE_CACHE_LEAST);
    if (!over) ck_assert_uint_eq(f.bytes, TRI_RESPONSE_CACHE_LEAST);
    if (over) ck_assert_uint_eq(f.bytes, empty + tri_response_cache_entry_bytes(1, len + 1));
    tri_response_cache_destroy(c);
  }
}
END_TEST

START_TEST(too_large) {
  tri_response_cache *c = open_cache(TRI_RESPONSE_CACHE_LEAST, false);
  char *bytes = calloc(1, TRI_RESPONSE_CACHE_MOST_ANSWER + 1);
  size_t len;
  put(c, "small", "1");
  tri_response_cache_put(c, "x", 1, bytes, TRI_RESPONSE_CACHE_LEAST);               /* than the cache */
  tri_response_cache_put(c, bytes, TRI_RESPONSE_CACHE_LEAST, "x", 1);               /* by its key */
  ck_assert(tri_response_cache_figures_of(c).entries == 1 && has(c, "small", "1")); /* which nobody had to leave for */
  tri_response_cache_destroy(c);
  c = open_cache(1 << 20, false);
  tri_response_cache_put(c, "y", 1, bytes, TRI_RESPONSE_CACHE_MOST_ANSWER + 1);
  ck_assert(!tri_response_cache_get(c, "y", 1, &len));
  tri_response_cache_put(c, "y", 1, bytes, TRI_RESPONSE_CACHE_MOST_ANSWER);
  ck_assert(tri_response_cache_get(c, "y", 1, &len) && len == TRI_RESPONSE_CACHE_MOST_ANSWER);
  tri_response_cache_destroy(c);
  free(bytes);
}
END_TEST

/* All keys have one hash: only their bytes tell them apart, those of a key's beginning included. */
START_TEST(equal_hashes) {
  tri_response_cache *c = open_cache(TRI_RESPONSE_CACHE_LEAST, true);
  const char *const keys[] = {"", "k", "kk", "kkk", "kkl", "lkk", "kkkkkkkkkkkk"};
  size_t n = sizeof keys / sizeof *keys;
  for (size_t i = 0; i < n; i++) {
    ck_assert(has(c, keys[i], NULL));
    put(c, keys[i], keys[n - 1 - i]);
  }
  for (size_t i = 0; i < n; i++) ck_assert_msg(has(c, keys[i], keys[n - 1 - i]), "key %zu", i);
  put(c, "k", "another"); /* the first answer stays */
  ck_assert(has(c, "k", keys[n - 2]));
  tri_response_cache_destroy(c);
}
END_TEST

/* ---- against a model ---- */

enum { KEYS = 200, CALLS = 20000 };

typedef struct model {
  uint64_t used[KEYS]; /* when; 0: it is not there */
  size_t len[KEYS];
  uint64_t clock, bytes, limit, hits, misses, evictions, entries;
} model;

static size_t key_of(int k, char key[64]) { return (size_t)snprintf(key, 64, "key %0*d", 1 + k % 30, k); }

static void evict(model *m, const size_t bytes[KEYS]) {
  int oldest = -1;
  for (int k = 0; k < KEYS; k++)
    if (m->used[k] && (oldest < 0 || m->used[k] < m->used[oldest])) oldest = k;
  m->used[oldest] = 0;
  m->bytes -= bytes[oldest];
  m->entries--;
  m->evictions++;
}

static void model_put(model *m, size_t bytes[KEYS], int k, size_t key_len, size_t len) {
  size_t need = tri_response_cache_entry_bytes(key_len, len);
  if (m->used[k]) {
    m->used[k] = ++m->clock;
    return;
  }
  while (m->bytes + need > m->limit) evict(m, bytes);
  m->used[k] = ++m->clock;
  m->len[k] = len;
  m->bytes += bytes[k] = need;
  m->entries++;
}

/* An answer is bytes of its key's number, so that another key's would show. */
START_TEST(random_calls) {
  tri_response_cache *c = open_cache(TRI_RESPONSE_CACHE_LEAST, _i == 1);
  model m = {.bytes = tri_response_cache_figures_of(c).bytes, .limit = TRI_RESPONSE_CACHE_LEAST};
  size_t bytes[KEYS], wrong = 0;
  uint64_t random = 5 + (uint64_t)_i;
  static char answer[4096];
  for (int i = 0; i < CALLS; i++) {
    uint64_t r = tri_splitmix64(&random);
    int k = (int)(r % KEYS);
    char key[64];
    size_t key_len = key_of(k, key), len = r >> 32 & 2047, got = 0;
    if (r >> 60 < 6) {
      memset(answer, k, len);
      tri_response_cache_put(c, key, key_len, answer, len);
      model_put(&m, bytes, k, key_len, len);
    } else {
      const char *have = tri_response_cache_get(c, key, key_len, &got);
      wrong += (have != NULL) != (m.used[k] != 0);
      if (have && m.used[k]) {
        memset(answer, k, got);
        wrong += got != m.len[k] || memcmp(have, answer, got) != 0 || (uintptr_t)have % 8;
      }
      *(have ? &m.hits : &m.misses) += 1;
      if (have) m.used[k] = ++m.clock;
    }
    tri_response_cache_figures f = tri_response_cache_figures_of(c);
    wrong += f.bytes != m.bytes || f.bytes > f.max_bytes || f.entries != m.entries || f.evictions != m.evictions ||
             f.hits != m.hits || f.misses != m.misses;
  }
  ck_assert_uint_eq(wrong, 0);
  ck_assert(m.hits > 1000 && m.misses > 1000 && m.evictions > 1000);
  tri_response_cache_destroy(c);
}
END_TEST

START_TEST(sizes_are_checked) {
  const struct {
    uint64_t bytes, cap;
    bool ok;
  } cases[] = {{0, 0, true},
               {0, 1 << 24, true},
               {1, 1 << 30, false},
               {65535, 1 << 30, false},
               {65536, 1 << 30, true},
               {65536, 1 << 24, false},
               {1 << 20, 17 << 20, true},
               {(1 << 20) + 1, 17 << 20, false},
               {UINT64_MAX, 1 << 30, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    tri_status st = tri_response_cache_check(cases[i].bytes, cases[i].cap, &err);
    ck_assert_msg((st == TRI_OK) == cases[i].ok, "case %zu: %s", i, err.message);
    if (!cases[i].ok) ck_assert_str_eq(err.field, "response_cache");
  }
  tri_response_cache *c;
  ck_assert_int_eq(tri_response_cache_create(&(tri_response_cache_config){.max_bytes = 65535}, &c), TRI_OUT_OF_RANGE);
}
END_TEST

Suite *suite_response_cache(void) {
  Suite *s = suite_create("response_cache");
  TCase *t = tcase_create("response_cache");
  tcase_add_test(t, siphash);
  tcase_add_test(t, least_recently_used_goes_first);
  tcase_add_test(t, bound_is_exact);
  tcase_add_test(t, too_large);
  tcase_add_test(t, equal_hashes);
  tcase_add_loop_test(t, random_calls, 0, 2);
  tcase_add_test(t, sizes_are_checked);
  suite_add_tcase(s, t);
  return s;
}
