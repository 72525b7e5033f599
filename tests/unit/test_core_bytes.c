/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core: what it counts for jobs is the memory that they take. */
#include <malloc.h>

#include "tests/unit/core_world.h"

Suite *suite_core_bytes(void);

/* Bytes that the C library's allocator has given. The memory sanitizer has another one, and does not see this one's
 * answer. */
static size_t heap_bytes(void) {
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
  return 0;
#endif
#endif
  return mallinfo2().uordblks;
}

/* The queue counts for a job what the allocator gives it: while it waits, and after its answers have begun. */
static void compare_bytes(struct world *w, const tri_client_msg *m, const char *what) {
  tri_client_msg one = *m;
  one.id += 1000;
  submit(w, "a", &one); /* buffers of the core grow with the first one */
  one.id = m->id;
  size_t counted = tri_core_job_bytes(w->core), before = heap_bytes();
  struct stream *s = submit(w, "a", &one);
  size_t took = heap_bytes() - before; /* 0: another allocator, of a sanitizer */
  counted = tri_core_job_bytes(w->core) - counted;
  ck_assert_msg(s->accepted == 1, "%s: %s", what, s->message);
  ck_assert_msg((double)counted >= 0.9 * (double)took && (!took || (double)counted <= 1.5 * (double)took + 1000),
                "%s: %zu counted, %zu taken", what, counted, took);
}

START_TEST(test_bytes_of_jobs) {
  static const int64_t choices[] = {1, 8, 64};
  static char text[20000];
  static uint32_t ids[20000], allowed[500];
  static struct tri_wire_bias bias[200];
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 1000});
  memset(text, 'a', sizeof text);
  for (uint32_t i = 0; i < 500; i++) allowed[i] = i;
  for (uint32_t i = 0; i < 20000; i++) ids[i] = byte_token['a'];
  for (uint32_t i = 0; i < 200; i++) bias[i] = (struct tri_wire_bias){.id = i, .bias = 1};
  for (uint64_t i = 0; i < 24; i++) {
    char what[64];
    tri_client_msg m = submit_msg(100 + i);
    m.submit.sampling.n = choices[i % 3];
    m.submit.token_ids = ids;
    m.submit.num_token_ids = i / 3 % 2 ? 100 : 3;
    if (i / 6 % 2) {
      m.submit.sampling.num_stop = 2;
      m.submit.sampling.stop[0] = (tri_wire_str){text, 100};
      m.submit.sampling.stop[1] = (tri_wire_str){text, 900};
    }
    if (i >= 12) {
      m.submit.sampling.logit_bias = bias;
      m.submit.sampling.num_logit_bias = 200;
      m.submit.sampling.allowed_token_ids = allowed;
      m.submit.sampling.num_allowed_token_ids = 500;
    } else if (i / 3 % 2) {
      m.submit.sampling.constraint = (tri_wire_constraint){.kind = TRI_CONSTRAINT_JSON_SCHEMA, .text = {text, 9000}};
      w->tokenize_now = true; /* schemas are looked at by the tokenizer's threads */
      w->now_ids = ids;
      w->num_now_ids = m.submit.num_token_ids;
    }
    snprintf(what, sizeof what, "n %d, case %d", (int)choices[i % 3], (int)i);
    compare_bytes(w, &m, what);
  }
  world_destroy(w);
}
END_TEST

/* Answers that grow are counted as they do, and no longer once the job is forgotten. */
START_TEST(test_bytes_of_answers) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 1000});
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = MAX_CHOICES;
  m.submit.sampling.max_tokens = 100;
  m.submit.sampling.has_max_tokens = true;
  submit(w, "a", &m);
  uint64_t waiting = tri_core_job_bytes(w->core), had = waiting;
  size_t before = heap_bytes();
  for (uint64_t i = 0; i < 40; i++) {
    for (uint32_t k = 0; k < MAX_CHOICES; k++) token(w, w->assigns[0].a.job, k, i, byte_token['a'], 0, 0);
    ck_assert_uint_ge(tri_core_job_bytes(w->core), had);
    had = tri_core_job_bytes(w->core);
    size_t took = heap_bytes() - before;
    ck_assert_msg((double)(had - waiting) >= 0.9 * (double)took, "%zu counted, %zu taken", (size_t)(had - waiting),
                  took);
  }
  ck_assert_uint_gt(had - waiting, MAX_CHOICES * 1000);
  world_destroy(w);
}
END_TEST

/* Memory that is full of jobs takes no more of them. */
START_TEST(test_crowded) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 40});
  tri_client_msg m = submit_msg(1);
  ck_assert_int_eq(submit(w, "a", &m)->accepted, 1);
  tri_core_set_crowded(w->core, true);
  struct stream *s = submit(w, "b", &m);
  expect_error(s, "no_capacity", "");
  ck_assert_ptr_nonnull(strstr(s->message, "max_queue_bytes"));
  tri_core_set_crowded(w->core, false);
  ck_assert_int_eq(submit(w, "c", &m)->accepted, 1);
  world_destroy(w);
}
END_TEST

Suite *suite_core_bytes(void) {
  Suite *s = suite_create("core_bytes");
  TCase *t = add_case(s, "bytes");
  tcase_add_test(t, test_bytes_of_jobs);
  tcase_add_test(t, test_bytes_of_answers);
  tcase_add_test(t, test_crowded);
  return s;
}
