/* SPDX-License-Identifier: Apache-2.0 */
/* The line of what goes on: its figures, and that there is none without work. */
#include "coordinator/stats/throughput.h"
#include "tests/unit/core_world.h"

Suite *suite_core_throughput(void);

static const int64_t second = SECOND;

START_TEST(rates_of_ten_seconds) {
  char line[TRI_THROUGHPUT_LINE];
  tri_throughput t = {.since_ns = 5 * second, .before = {.prompt_tokens = 100, .generation_tokens = 1000}};
  ck_assert(!tri_throughput_is_due(&t, 14 * second));
  ck_assert(tri_throughput_is_due(&t, 15 * second));
  tri_core_load load = {.prompt_tokens = 150, .generation_tokens = 3000, .running = 2, .waiting = 1};
  ck_assert(tri_throughput_text(&t, &load, 15 * second, line));
  ck_assert_str_eq(line, "prompt 5.0 tokens/s, generated 200.0 tokens/s, 2 running, 1 waiting");
  ck_assert(!tri_throughput_is_due(&t, 24 * second));
  /* A second late, with a KV cache and a prefix cache. */
  load.generation_tokens += 1100;
  load.kv_blocks = 200;
  load.kv_blocks_used = 33;
  load.prefix_queries = 400;
  load.prefix_hits = 100;
  ck_assert(tri_throughput_text(&t, &load, 26 * second, line));
  ck_assert_str_eq(line,
                   "prompt 0.0 tokens/s, generated 100.0 tokens/s, 2 running, 1 waiting, KV 16.5%, prefix hits 25.0%");
  /* Hits are those of the ten seconds, and a replica that was started again counts anew. */
  load.prefix_queries += 100;
  load.prefix_hits += 90;
  ck_assert(tri_throughput_text(&t, &load, 36 * second, line));
  ck_assert_ptr_nonnull(strstr(line, "prefix hits 90.0%"));
  load.prefix_queries = 10;
  load.prefix_hits = 1;
  ck_assert(tri_throughput_text(&t, &load, 46 * second, line));
  ck_assert_ptr_nonnull(strstr(line, "prefix hits 10.0%"));
}
END_TEST

START_TEST(no_line_without_work) {
  char line[TRI_THROUGHPUT_LINE];
  tri_throughput t = {.since_ns = 0};
  tri_core_load load = {.kv_blocks = 10};
  ck_assert(!tri_throughput_text(&t, &load, 10 * second, line));
  load.waiting = 1;
  ck_assert(tri_throughput_text(&t, &load, 20 * second, line));
  load.waiting = 0;
  load.prompt_tokens = 3;
  ck_assert(tri_throughput_text(&t, &load, 30 * second, line)); /* what was done since */
  ck_assert(!tri_throughput_text(&t, &load, 40 * second, line));
}
END_TEST

/* An encoder's line has its texts, and neither draws nor a KV cache. */
START_TEST(line_of_an_encoder) {
  char line[TRI_THROUGHPUT_LINE];
  tri_throughput t = {.since_ns = 0};
  tri_core_load load = {.encoder = true, .prompt_tokens = 50, .running = 2, .kv_blocks = 10, .kv_blocks_used = 5};
  ck_assert(tri_throughput_text(&t, &load, 10 * second, line));
  ck_assert_str_eq(line, "texts 5.0 tokens/s, 2 running, 0 waiting");
}
END_TEST

START_TEST(load_of_a_core) {
  struct world *w = world_create(1);
  tri_core_load load;
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1), other = submit_msg(2);
  submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['x'], 0, TRI_FINISH_STOP);
  submit(w, "a", &other);
  tri_core_load_of(w->core, &load);
  ck_assert(load.running == 1 && load.waiting == 1);
  ck_assert(load.prompt_tokens == 6 && load.generation_tokens == 1);
  ck_assert(load.kv_blocks > 0 && load.kv_blocks_used == 0);
  world_destroy(w);
}
END_TEST

Suite *suite_core_throughput(void) {
  Suite *s = suite_create("core_throughput");
  TCase *c = add_case(s, "lines");
  tcase_add_test(c, rates_of_ten_seconds);
  tcase_add_test(c, no_line_without_work);
  tcase_add_test(c, line_of_an_encoder);
  tcase_add_test(c, load_of_a_core);
  return s;
}
