/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of weights that do not stay in memory: ranks tell, the core adds them up for status and metrics. */
#include "tests/unit/core_world.h"

Suite *suite_core_streams(void);

static void tell(struct world *w, uint32_t replica, uint32_t rank, tri_replica_stream stream) {
  tri_replica_msg m = {.op = TRI_REPLICA_HEALTH,
                       .health = {.replica = replica, .rank = rank, .epoch = 1, .stream = stream}};
  send_worker(w, replica, 1, rank, &m);
}

static void ask(struct world *w, tri_client_op op, uint64_t id) {
  tri_client_msg m = {.op = op, .id = id};
  struct stream *s = open_stream(w, "m", id);
  tri_core_client(w->core, w->now, &s->peer, &m);
}

static const tri_replica_stream first = {.bytes = 3000000000,
                                         .stall_ns = 2500000000,
                                         .pass_bytes = 1000000000,
                                         .pass_ns = 500000000,
                                         .bytes_per_s = 2000000000};
static const tri_replica_stream second = {.bytes = 3100000000,
                                          .dram_bytes = 100000000,
                                          .peer_bytes = 600000000,
                                          .stall_ns = 500000000,
                                          .pass_bytes = 900000000,
                                          .pass_ns = 700000000,
                                          .bytes_per_s = 1000000000};

/* Nothing is said where nothing streams. */
START_TEST(metrics) {
  struct world *w = world_create(2);
  char text[STATS_BYTES];
  w->stats = text;
  for (uint32_t g = 0; g < 2; g++) start_replica(w, g, 1, 2);
  ask(w, TRI_OP_STATS, 1);
  ck_assert(strstr(text, "trireme:prompt_tokens_total") && !strstr(text, "stream"));
  tell(w, 1, 0, first);
  tell(w, 1, 1, second);
  ask(w, TRI_OP_STATS, 2);
  static const char *const lines[] = {
      "\n# TYPE trireme:streamed_bytes_total counter\n"
      "trireme:streamed_bytes_total{group=\"1\",rank=\"0\",tier=\"nvme\"} 3000000000\n"
      "trireme:streamed_bytes_total{group=\"1\",rank=\"1\",tier=\"nvme\"} 2400000000\n"
      "trireme:streamed_bytes_total{group=\"1\",rank=\"0\",tier=\"cpu\"} 0\n"
      "trireme:streamed_bytes_total{group=\"1\",rank=\"1\",tier=\"cpu\"} 100000000\n"
      "trireme:streamed_bytes_total{group=\"1\",rank=\"0\",tier=\"peer\"} 0\n"
      "trireme:streamed_bytes_total{group=\"1\",rank=\"1\",tier=\"peer\"} 600000000\n",
      "\ntrireme:stream_stall_seconds_total{group=\"1\",rank=\"0\"} 2.5\n",
      "\ntrireme:stream_pass_seconds{group=\"1\",rank=\"1\"} 0.7\n",
      "\ntrireme:stream_bandwidth_bytes_per_second{group=\"1\",rank=\"0\"} 2000000000\n",
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    ck_assert_msg(strstr(text, lines[i]) != NULL, "no %s in %s", lines[i], text);
  ck_assert(!strstr(text, "streamed_bytes_total{group=\"0\""));
  world_destroy(w);
}
END_TEST

START_TEST(status) {
  static tri_cluster_status status;
  struct world *w = world_create(2);
  w->status = &status;
  for (uint32_t g = 0; g < 2; g++) start_replica(w, g, 1, 2);
  tell(w, 1, 0, first);
  tell(w, 1, 1, second);
  ask(w, TRI_OP_STATUS, 1);
  const tri_replica_status *g = &w->status->replicas[1];
  ck_assert_uint_eq(w->status->replicas[0].stream_pass_bytes, 0);
  ck_assert_uint_eq(g->streamed_bytes, 6100000000);
  ck_assert_uint_eq(g->stream_pass_bytes, 1900000000);
  ck_assert_double_eq_tol(g->stream_stall_s, 2.5, 1e-9);
  ck_assert_double_eq_tol(g->stream_pass_s, 0.7, 1e-9);
  ck_assert_double_eq_tol(g->stream_bytes_per_s, 3e9, 1);
  ck_assert_uint_eq(g->stream_peer_bytes, 600000000);
  ck_assert_uint_eq(w->status->num_ranks, 4);
  ck_assert_uint_eq(w->status->ranks[3].streamed_bytes, 3100000000);
  ck_assert_double_eq_tol(w->status->ranks[2].stream_pass_s, 0.5, 1e-9);
  world_destroy(w);
}
END_TEST

/* Sequences that wait in the hosts' memory: sums of the replicas that have blocks there, of what their leaders tell. */
START_TEST(swaps) {
  static tri_cluster_status status;
  struct world *w = world_create(2);
  char text[STATS_BYTES];
  w->stats = text;
  w->status = &status;
  for (uint32_t g = 0; g < 2; g++) start_replica(w, g, 1, 2);
  ask(w, TRI_OP_STATS, 1);
  ck_assert(!strstr(text, "host_kv") && !strstr(text, "swap"));
  tri_replica_msg m = {.op = TRI_REPLICA_HEALTH,
                       .health = {.replica = 1, .epoch = 1, .swaps = {300, 20, 9, 8, 4000, 3000}}};
  send_worker(w, 1, 1, 0, &m);
  m.health.rank = 1;
  m.health.swaps = (tri_replica_swaps){0};
  send_worker(w, 1, 1, 1, &m);
  ask(w, TRI_OP_STATS, 2);
  static const char *const lines[] = {
      "\ntrireme:host_kv_blocks 300\n",
      "\ntrireme:host_kv_blocks_used 20\n",
      "\ntrireme:swaps_total{direction=\"out\"} 9\ntrireme:swaps_total{direction=\"in\"} 8\n",
      "\ntrireme:swapped_bytes_total{direction=\"out\"} 4000\ntrireme:swapped_bytes_total{direction=\"in\"} 3000\n",
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    ck_assert_msg(strstr(text, lines[i]) != NULL, "no %s in %s", lines[i], text);
  ask(w, TRI_OP_STATUS, 3);
  const tri_replica_status *g = &w->status->replicas[1];
  ck_assert(g->host_kv_pages == 300 && g->host_kv_pages_used == 20 && g->swaps_out == 9 && g->swaps_in == 8);
  ck_assert(g->swapped_out_bytes == 4000 && g->swapped_in_bytes == 3000 && !w->status->replicas[0].host_kv_pages);
  world_destroy(w);
}
END_TEST

/* The bound on prompt tokens with decodes: the least that a replica has, for as long as one has any. */
START_TEST(prompt_bound) {
  static const struct {
    uint32_t bounds[2];
    const char *line;
  } cases[] = {{{0, 0}, "\ntrireme:max_prompt_tokens_with_decodes 0\n"},
               {{700, 0}, "\ntrireme:max_prompt_tokens_with_decodes 700\n"},
               {{700, 256}, "\ntrireme:max_prompt_tokens_with_decodes 256\n"},
               {{0, 512}, "\ntrireme:max_prompt_tokens_with_decodes 512\n"}};
  struct world *w = world_create(2);
  char text[STATS_BYTES];
  w->stats = text;
  for (uint32_t g = 0; g < 2; g++) start_replica(w, g, 1, 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (uint32_t g = 0; g < 2; g++) {
      tri_replica_msg m = {.op = TRI_REPLICA_HEALTH,
                           .health = {.replica = g, .epoch = 1, .prompt_bound = cases[i].bounds[g]}};
      send_worker(w, g, 1, 0, &m);
    }
    ask(w, TRI_OP_STATS, 1 + i);
    ck_assert_msg(strstr(text, cases[i].line) != NULL, "no %s in %s", cases[i].line, text);
  }
  world_destroy(w);
}
END_TEST

/* The prefix caches: sums over the replicas, of what their leaders tell. */
START_TEST(prefixes) {
  static tri_cluster_status status;
  struct world *w = world_create(2);
  char text[STATS_BYTES];
  w->stats = text;
  w->status = &status;
  for (uint32_t g = 0; g < 2; g++) start_replica(w, g, 1, 1);
  ask(w, TRI_OP_STATS, 1);
  ck_assert(!strstr(text, "prefix_cache"));
  for (uint32_t g = 0; g < 2; g++) {
    tri_replica_msg m = {.op = TRI_REPLICA_HEALTH, .health = {.replica = g, .epoch = 1, .prefixes = {300 + g, 20, 9}}};
    send_worker(w, g, 1, 0, &m);
  }
  ask(w, TRI_OP_STATS, 2);
  static const char *const lines[] = {"\ntrireme:prefix_cache_queries_total 601\n",
                                      "\ntrireme:prefix_cache_hits_total 40\n",
                                      "\ntrireme:prefix_cache_evictions_total 18\n"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    ck_assert_msg(strstr(text, lines[i]) != NULL, "no %s in %s", lines[i], text);
  ask(w, TRI_OP_STATUS, 3);
  const tri_replica_status *g = &w->status->replicas[1];
  ck_assert(g->prefix_cache_queries == 301 && g->prefix_cache_hits == 20 && g->prefix_cache_evictions == 9);
  world_destroy(w);
}
END_TEST

Suite *suite_core_streams(void) {
  Suite *s = suite_create("core_streams");
  TCase *t = add_case(s, "core_streams");
  tcase_add_test(t, metrics);
  tcase_add_test(t, status);
  tcase_add_test(t, swaps);
  tcase_add_test(t, prompt_bound);
  tcase_add_test(t, prefixes);
  return s;
}
