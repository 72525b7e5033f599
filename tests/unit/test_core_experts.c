/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of the rows that experts have had: ranks tell, the core adds. */
#include "tests/unit/core_world.h"

Suite *suite_core_experts(void);

static struct stream *ask(struct world *w, uint64_t id) {
  tri_client_msg m = {.op = TRI_OP_EXPERTS, .id = id};
  struct stream *s = open_stream(w, "e", id);
  tri_core_client(w->core, w->now, &s->peer, &m);
  return s;
}

/* Layers 1 and 2 of three have three experts each. */
static struct world *make_world(uint32_t replicas) {
  struct world *w = world_create(replicas);
  w->model.num_layers = 3;
  w->model.layer_flags[1] = w->model.layer_flags[2] = TRI_LAYER_SPARSE;
  w->model.moe.num_experts = 3;
  w->model.moe.num_groups = 1;
  return w;
}

static void start(struct world *w, uint32_t replica, uint32_t dp, uint32_t tp, uint32_t ep) {
  for (uint32_t r = 0; r < dp * tp; r++) {
    tri_replica_msg m = registration(replica, 1, r, dp * tp);
    m.reg.tp = tp, m.reg.pp = 1, m.reg.dp = dp, m.reg.ep = ep;
    send_worker(w, replica, 1, r, &m);
  }
  send_ready(w, replica, 1);
}

/* A rank's report of so many layers, of two slots each. */
static tri_replica_experts report_of(uint32_t replica, uint32_t rank, uint32_t first_layer, uint32_t num_layers,
                                     uint32_t first_slot, const uint32_t *of, const uint32_t *rows) {
  return (tri_replica_experts){.replica = replica,
                               .rank = rank,
                               .epoch = 1,
                               .first_layer = first_layer,
                               .num_layers = num_layers,
                               .first_slot = first_slot,
                               .num_own = 2,
                               .num_slots = 4,
                               .expert_of = of,
                               .num_expert_of = 2 * num_layers,
                               .rows = rows,
                               .num_rows = 4 * num_layers};
}

/* Only two layers have experts: a report of three, or of two from the second on, would end behind the sums. */
static void tell_too_much(struct world *w) {
  static const uint32_t of[6] = {0}, rows[12] = {0};
  tri_replica_experts reports[] = {report_of(0, 1, 0, 3, 2, of, rows), report_of(0, 1, 1, 2, 2, of, rows),
                                   report_of(0, 1, 0, 2, 2, of, rows), report_of(0, 1, 0, 2, 2, of, rows),
                                   report_of(0, 1, 0, 2, 2, of, rows)};
  reports[2].num_slots = 1u << 21;
  reports[3].earlier = rows;
  reports[3].num_earlier = 10; /* three experts in two layers are 12 halves */
  reports[4].hot = (tri_replica_hot){.slots = 1, .rows = 3, .device_rows = 4};
  for (int i = 0; i < 5; i++) {
    tri_replica_msg m = {.op = TRI_REPLICA_EXPERTS, .experts = reports[i]};
    send_worker(w, 0, 1, 1, &m);
  }
}

/* The rows of a rank's two slots in both layers. */
static void tell(struct world *w, uint32_t replica, uint32_t rank, uint32_t first_slot, const uint32_t of[4],
                 const uint32_t rows[8]) {
  tri_replica_msg m = {.op = TRI_REPLICA_EXPERTS, .experts = report_of(replica, rank, 0, 2, first_slot, of, rows)};
  send_worker(w, replica, 1, rank, &m);
}

static const uint32_t low_of[] = {0, 1, 2, 0}, high_of[] = {2, 0, 1, 0};
static const uint32_t low_rows[] = {10, 0, 20, 0, 1, 0, 2, 0}, high_rows[] = {5, 0, 25, 0, 0, 1, 6, 0};

/* Two shares of two slices each: those of one share tell the same, which counts once. */
START_TEST(sums) {
  struct world *w = make_world(1);
  start(w, 0, 2, 2, 2);
  ask(w, 1);
  ask(w, 2); /* nobody is asked again */
  ck_assert_int_eq(w->counts, 4);
  tell(w, 0, 0, 0, low_of, low_rows);
  tell(w, 0, 1, 0, low_of, low_rows);
  tell(w, 0, 2, 2, high_of, high_rows);
  ck_assert_int_eq(w->experts_answers, 0);
  tell(w, 0, 3, 2, high_of, high_rows);
  ck_assert_int_eq(w->experts_answers, 2);
  ck_assert_str_eq(
      w->experts,
      "{\"num_experts\":3,\"num_groups\":1,\"num_slots\":4,\"expert_parallel_size\":2,\"balancedness\":0.5000,"
      "\"share_rows\":[33,4294967332],\n"
      "\"layers\":[\n[0,1,2,0],\n[2,0,1,0]],\n\"rows\":[\n[35,20,5],\n[8,4294967296,1]]}");
  world_destroy(w);
}
END_TEST

/* A replica that becomes ready while somebody waits is asked then; nobody waits for a report that comes by itself. */
START_TEST(ready_while_somebody_asks) {
  struct world *w = make_world(2);
  start(w, 0, 2, 1, 2);
  ask(w, 1);
  ck_assert_int_eq(w->counts, 2);
  tell(w, 0, 0, 0, low_of, low_rows);
  start(w, 1, 2, 1, 2);
  ask(w, 2);
  ck_assert_int_eq(w->counts, 4);
  tick(w, SECOND / 10);
  ck_assert_int_eq(w->counts, 4); /* each once */
  tell(w, 0, 1, 2, high_of, high_rows);
  tell(w, 1, 0, 0, low_of, low_rows);
  ck_assert_int_eq(w->experts_answers, 0);
  tell(w, 1, 1, 2, high_of, high_rows);
  ck_assert_int_eq(w->experts_answers, 2);
  ask(w, 3); /* with the next question all are asked again */
  ck_assert_int_eq(w->counts, 8);
  world_destroy(w);
}
END_TEST

static void metrics(struct world *w, uint64_t id, char out[static STATS_BYTES]) {
  tri_client_msg m = {.op = TRI_OP_STATS, .id = id};
  struct stream *s = open_stream(w, "m", id);
  w->stats = out;
  tri_core_client(w->core, w->now, &s->peer, &m);
}

/* Reports come unasked, too; nothing is said before all are there. */
START_TEST(figures) {
  struct world *w = make_world(1);
  char text[STATS_BYTES];
  start(w, 0, 1, 2, 2);
  tell(w, 0, 0, 0, low_of, low_rows);
  metrics(w, 1, text);
  ck_assert(strstr(text, "trireme:prompt_tokens_total") && !strstr(text, "expert_balancedness"));
  tell(w, 0, 1, 2, high_of, low_rows);
  tell(w, 0, 1, 2, high_of, (const uint32_t[]){20, 0, 40, 0, 2, 0, 4, 0});
  metrics(w, 2, text);
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:expert_balancedness 0.75\n"));
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:expert_rank_tokens_total{group=\"0\",rank=\"1\"} 66\n"));
  world_destroy(w);
}
END_TEST

/* Experts that devices have beside their hosts: of ranks that have some, by rank and together. */
START_TEST(on_devices) {
  struct world *w = make_world(1);
  char text[STATS_BYTES];
  start(w, 0, 1, 2, 2);
  for (int told = 0; told < 2; told++) {
    ask(w, 1 + (uint64_t)told);
    tell(w, 0, 0, 0, low_of, low_rows);
    tri_replica_msg m = {.op = TRI_REPLICA_EXPERTS, .experts = report_of(0, 1, 0, 2, 2, high_of, low_rows)};
    if (told) m.experts.hot = (tri_replica_hot){.slots = 2, .rows = 200, .device_rows = 150, .exchanges = 7};
    send_worker(w, 0, 1, 1, &m);
    ck_assert(!strstr(w->experts, "hot_experts") == !told);
  }
  ck_assert_ptr_nonnull(strstr(w->experts,
                               "\"share_rows\":[33,33],\n\"hot_experts\":{\"slots\":2,\"rows\":200,"
                               "\"device_rows\":150,\"device_share\":0.7500,\"exchanges\":7},\n\"layers\""));
  metrics(w, 3, text);
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:hot_expert_slots{group=\"0\",rank=\"1\"} 2\n"));
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:hot_layers_expert_rows_total{group=\"0\",rank=\"1\"} 200\n"));
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:device_expert_rows_total{group=\"0\",rank=\"1\"} 150\n"));
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:hot_expert_exchanges_total{group=\"0\",rank=\"1\"} 7\n"));
  ck_assert_ptr_null(strstr(text, "hot_expert_slots{group=\"0\",rank=\"0\"}"));
  world_destroy(w);
}
END_TEST

START_TEST(replicas_add_up) {
  struct world *w = make_world(2);
  for (uint32_t g = 0; g < 2; g++) start(w, g, 1, 2, 2);
  ask(w, 1);
  for (uint32_t g = 0; g < 2; g++) {
    tell(w, g, 0, 0, low_of, low_rows);
    tell(w, g, 1, 2, high_of, low_rows);
  }
  ck_assert_int_eq(w->experts_answers, 1);
  ck_assert_ptr_nonnull(strstr(w->experts, "\"balancedness\":1.0000,\"share_rows\":[66,66]"));
  ck_assert_ptr_nonnull(strstr(w->experts, "\"layers\":[\n[0,1,2,0],\n[2,0,1,0]]"));
  ck_assert_ptr_nonnull(strstr(w->experts, "\"rows\":[\n[60,40,20],\n[8,2,2]]"));
  world_destroy(w);
}
END_TEST

/* Experts move between two ranks' words: all are asked again. Rows that an expert had elsewhere are its own all the
 * same, but say nothing of the placement that is in force. */
START_TEST(moved) {
  static const uint32_t earlier[] = {100, 0, 0, 0, 7, 0, 0, 0, 0, 1, 9, 0};
  struct world *w = make_world(1);
  char text[STATS_BYTES];
  start(w, 0, 1, 2, 2);
  struct stream *s = ask(w, 1);
  tri_replica_msg m = {.op = TRI_REPLICA_EXPERTS, .experts = report_of(0, 0, 0, 2, 0, low_of, low_rows)};
  m.experts.placement = 3;
  m.experts.earlier = earlier;
  m.experts.num_earlier = 12;
  send_worker(w, 0, 1, 0, &m);
  tell(w, 0, 1, 2, high_of, low_rows);
  ck_assert_int_eq(w->counts, 4);
  ck_assert(!w->experts_answers && !s->code[0]);
  send_worker(w, 0, 1, 0, &m);
  ck_assert_int_eq(w->experts_answers, 0);
  m.experts = report_of(0, 1, 0, 2, 2, high_of, low_rows);
  m.experts.placement = 3;
  send_worker(w, 0, 1, 1, &m);
  ck_assert_int_eq(w->counts, 4);
  ck_assert_int_eq(w->experts_answers, 1);
  ck_assert_ptr_nonnull(strstr(w->experts, "\"balancedness\":1.0000,\"share_rows\":[33,33]"));
  ck_assert_ptr_nonnull(strstr(w->experts, "\"rows\":[\n[130,20,17],\n[4,4294967297,10]]"));
  metrics(w, 2, text);
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:expert_rank_tokens_total{group=\"0\",rank=\"0\"} 4294967445\n"));
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:expert_moves_total{group=\"0\"} 0\n"));
  tri_replica_msg h = {.op = TRI_REPLICA_HEALTH,
                       .health = {.epoch = 1, .rearrangements = 2, .experts_moved = 5, .moving_ns = 1500000}};
  send_worker(w, 0, 1, 0, &h);
  metrics(w, 3, text);
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:expert_rearrangements_total{group=\"0\"} 2\n"));
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:expert_moves_total{group=\"0\"} 5\n"));
  ck_assert_ptr_nonnull(strstr(text, "\ntrireme:expert_move_seconds_total{group=\"0\"} 0.0015\n"));
  world_destroy(w);
}
END_TEST

START_TEST(refused) {
  struct world *w = make_world(1);
  ck_assert_str_eq(ask(w, 1)->code, "not_found"); /* no replica */
  start(w, 0, 1, 2, 2);
  struct stream *s = ask(w, 2);
  tell(w, 0, 0, 0, low_of, low_rows);
  tell(w, 0, 1, 3, high_of, high_rows);                        /* beyond the last slot */
  tell(w, 0, 1, 2, (const uint32_t[]){0, 1, 3, 0}, high_rows); /* there is no expert 3 */
  tell_too_much(w);
  ck_assert(!w->experts_answers && !s->code[0]);
  tick(w, 3 * SECOND);
  ck_assert_str_eq(s->code, "timeout");
  w->model.moe.num_experts = 0;
  ck_assert_str_eq(ask(w, 3)->code, "unsupported");
  w->model.moe.num_experts = 3;
  for (uint64_t id = 10; id < 18; id++) ck_assert(!ask(w, id)->code[0]);
  ck_assert_str_eq(ask(w, 18)->code, "no_capacity");
  world_destroy(w);
}
END_TEST

Suite *suite_core_experts(void) {
  Suite *suite = suite_create("core_experts");
  TCase *t = add_case(suite, "experts");
  tcase_add_test(t, sums);
  tcase_add_test(t, ready_while_somebody_asks);
  tcase_add_test(t, figures);
  tcase_add_test(t, on_devices);
  tcase_add_test(t, replicas_add_up);
  tcase_add_test(t, moved);
  tcase_add_test(t, refused);
  return suite;
}
