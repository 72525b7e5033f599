/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: jobs that wait for another replica, and those that kill their
 * replicas.
 */
#include "tests/unit/core_replay_kit.h"

Suite *suite_core_deaths(void);

/* ---- in the queue ---- */

/* Those that come back stand where their age has them, whoever has come meanwhile. */
START_TEST(the_oldest_first) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  for (uint64_t i = 1; i <= 3; i++) {
    tri_client_msg m = submit_msg(i);
    submit(w, "a", &m);
  }
  draw(w, 1, w->assigns[1].a.job, 0, 0, 40, TRI_TOKEN_LAST);
  lose(w, 0, 1);
  tri_client_msg m = submit_msg(4);
  submit(w, "a", &m);
  ck_assert_int_eq(w->num_assigns, 3);
  start_replica(w, 0, 2, 1);
  ck_assert_int_eq(w->num_assigns, 6);
  ck_assert_uint_eq(w->assigns[3].a.job, w->assigns[0].a.job);
  ck_assert_uint_eq(w->assigns[4].a.job, w->assigns[2].a.job);
  ck_assert(w->assigns[5].a.job > w->assigns[4].a.job);
  world_destroy(w);
}
END_TEST

START_TEST(deadlines_go_on) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  struct stream *s[2];
  for (uint64_t i = 0; i < 2; i++) {
    tri_client_msg m = submit_msg(i + 1);
    m.submit.sampling.deadline_ms = i ? 10000 : 3000;
    s[i] = submit(w, "a", &m);
  }
  say(w, 1, w->assigns[0].a.job, 0, 0, "ab", false);
  lose(w, 0, 1);
  tick(w, 2 * SECOND);
  ck_assert(!s[0]->done);
  tick(w, 2 * SECOND); /* past the first one's */
  ck_assert(s[0]->done && !s[0]->code[0] && s[0]->timed_out);
  ck_assert_int_eq(s[0]->choice[0].reason, TRI_FINISH_ABORT);
  expect_text(s[0], 0, "ab");
  start_replica(w, 0, 2, 1);
  ck_assert_int_eq(w->num_assigns, 3);
  ck_assert_int_eq(w->assigns[1].a.remaining_ms, 10000);
  ck_assert_int_eq(w->assigns[2].a.remaining_ms, 6000);
  world_destroy(w);
}
END_TEST

/* Who waits for the next replica may be cancelled, attached to, and submitted again. */
START_TEST(clients_meanwhile) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s[2];
  for (int i = 0; i < 2; i++) {
    m.id = (uint64_t)i + 1;
    s[i] = submit(w, "a", &m);
    say(w, 1, last_job(w), 0, 0, "abcd", false);
  }
  lose(w, 0, 1);
  cancel(w, "a", 9, s[0]);
  ck_assert(s[0]->done && s[0]->choice[0].reason == TRI_FINISH_ABORT);
  expect_text(s[0], 0, "abcd");
  struct stream *other = attach(w, 10, s[1], 2);
  expect_text(other, 0, "abcd");
  start_replica(w, 0, 2, 1);
  ck_assert_int_eq(w->num_assigns, 3);
  say(w, 2, last_job(w), 0, 4, "abcde", true);
  ck_assert(other->done && !other->code[0]);
  expect_text(other, 0, "abcde");
  expect_error(s[1], "taken_over", "request_id");
  ck_assert_int_eq(w->num_aborts, 0); /* nobody runs what was cancelled */
  world_destroy(w);
}
END_TEST

/* An answer of two replicas is kept like that of one. */
START_TEST(into_the_cache) {
  struct world *w = world_create_caching(1 << 20);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.temperature = 0;
  m.submit.sampling.has_temperature = true;
  submit(w, "a", &m);
  say(w, 1, last_job(w), 0, 0, "ab", false);
  restart(w, 1);
  say(w, 2, last_job(w), 0, 2, "abc", true);
  m.id = 2;
  struct stream *s = submit(w, "a", &m);
  ck_assert(s->done && s->cached);
  expect_text(s, 0, "abc");
  ck_assert_int_eq(w->num_assigns, 2);
  world_destroy(w);
}
END_TEST

/* ---- no replica to come ---- */

START_TEST(no_hope) {
  struct world *w = world_create(2); /* draining, a replica is left for those of the other, and then none */
  for (uint32_t g = 0; g < 2; g++) start_replica(w, g, 1, 1);
  struct stream *s[3];
  for (uint64_t i = 0; i < 2; i++) {
    tri_client_msg m = submit_msg(i + 1);
    s[i] = submit(w, "a", &m);
  }
  tri_client_msg text = submit_msg(3);
  text.submit.prompt = (tri_wire_str){"Hello", 5};
  s[2] = submit(w, "a", &text);
  tri_core_drain(w->core);
  lose(w, 0, 1);
  ck_assert(!s[0]->done && went_to(last_assign(w), 1, 1));
  lose(w, 1, 1);
  for (int i = 0; i < 2; i++) {
    expect_error(s[i], "peer_lost", "");
    ck_assert(strstr(s[i]->message, "no disk"));
  }
  static const uint32_t ids[] = {5, 6, 7};
  ck_assert(!s[2]->done && !tri_core_is_idle(w->core)); /* its text is being looked at */
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, ids, 3, 0);
  expect_error(s[2], "peer_lost", "");
  ck_assert_uint_eq(tri_core_lost(w->core), 3);
  ck_assert(tri_core_is_idle(w->core));
  world_destroy(w);

  w = world_create(1); /* one MPI job */
  w->core->cfg.lost_for_good = true;
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  s[0] = submit(w, "a", &m);
  lose(w, 0, 1);
  expect_error(s[0], "peer_lost", "");
  ck_assert(strstr(s[0]->message, "no disk"));
  world_destroy(w);

  w = world_create(1); /* the supervisor gives up meanwhile */
  start_replica(w, 0, 1, 1);
  s[0] = submit(w, "a", &m);
  lose(w, 0, 1);
  tri_core_drain(w->core);
  ck_assert(!s[0]->done);
  tri_core_abandon(w->core, w->now, "the power goes");
  expect_error(s[0], "peer_lost", "");
  ck_assert(strstr(s[0]->message, "the power goes") && strstr(s[0]->message, "no disk"));
  ck_assert(tri_core_is_idle(w->core));
  world_destroy(w);
}
END_TEST

/* A start that was begun before a drain may come, one that is held or has ended does not. */
START_TEST(absent_in_a_drain) {
  for (int held = 0; held < 2; held++) {
    struct world *w = world_create(2);
    start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    struct stream *s = submit(w, "a", &m);
    if (held) tri_core_replica_held(w->core, 1, TRI_CORE_GIVEN_UP, w->now + SECOND, "it did not start");
    tri_core_drain(w->core);
    lose(w, 0, 1);
    ck_assert(s->done == held);
    tri_core_replica_died(w->core, w->now, 1, 1, "replica 1 ended");
    tick(w, 100 * MS);
    expect_error(s, "peer_lost", "");
    ck_assert(strstr(s->message, "no disk"));
    ck_assert(tri_core_is_idle(w->core));
    world_destroy(w);
  }
  struct world *w = world_create(1); /* the next start of the same one */
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  lose(w, 0, 1);
  tri_core_replica_expected(w->core, 0, 2);
  tri_core_drain(w->core);
  tick(w, 100 * MS);
  start_replica(w, 0, 2, 1);
  ck_assert(!s->done && went_to(last_assign(w), 0, 2));
  world_destroy(w);
}
END_TEST

/* ---- what kills replicas ---- */

/* A job under which three replicas have died ends; the last time nobody else was with it. */
START_TEST(a_poison) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  struct stream *s[3];
  for (uint64_t i = 0; i < 3; i++) {
    tri_client_msg m = submit_msg(i + 1);
    s[i] = submit(w, "a", &m);
  }
  uint64_t jobs[] = {w->assigns[0].a.job, w->assigns[1].a.job, w->assigns[2].a.job};
  say(w, 1, jobs[1], 0, 0, "a", false);
  restart(w, 1);
  ck_assert_int_eq(w->num_assigns, 6); /* all of them once more */
  restart(w, 2);
  ck_assert_int_eq(w->num_assigns, 7); /* now one by one */
  ck_assert(last_job(w) == jobs[0] && went_to(last_assign(w), 0, 3));
  tri_client_msg m = submit_msg(9); /* newcomers wait */
  struct stream *late = submit(w, "a", &m);
  tick(w, SECOND / 2);
  ck_assert_int_eq(w->num_assigns, 7);
  say(w, 3, jobs[0], 0, 0, "innocent", true);
  ck_assert(s[0]->done && !s[0]->code[0]);
  ck_assert_int_eq(w->num_assigns, 8);
  ck_assert_uint_eq(last_job(w), jobs[1]);
  say(w, 3, jobs[1], 0, 1, "ab", false);
  restart(w, 3);
  expect_error(s[1], "peer_lost", "");
  ck_assert(strstr(s[1]->message, "three replicas have died") && strstr(s[1]->message, "no disk"));
  expect_text(s[1], 0, "ab");
  ck_assert(!s[2]->done && last_job(w) == jobs[2] && went_to(last_assign(w), 0, 4));
  say(w, 4, jobs[2], 0, 0, "x", true);
  ck_assert(s[2]->done && !s[2]->code[0]);
  ck_assert_int_eq(w->num_assigns, 10); /* and the newcomer */
  say(w, 4, last_job(w), 0, 0, "y", true);
  ck_assert(late->done && tri_core_is_idle(w->core));
  world_destroy(w);
}
END_TEST

/* A replica that runs a job alone gets no other, and another replica does; until the job ends or is cancelled. */
START_TEST(alone_beside_others) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  uint64_t suspect = last_job(w);
  restart(w, 1);
  lose(w, 0, 2);
  start_replica(w, 1, 1, 1); /* it runs there, alone */
  ck_assert(went_to(last_assign(w), 1, 1) && last_job(w) == suspect);
  m.id = 2;
  submit(w, "a", &m);
  ck_assert_int_eq(w->num_assigns, 3);
  start_replica(w, 0, 3, 1);
  ck_assert(went_to(last_assign(w), 0, 3)); /* the other one's */
  cancel(w, "a", 99, s);                    /* its replica is anybody's again */
  ck_assert_int_eq(w->num_aborts, 1);
  m.id = 3;
  submit(w, "a", &m);
  ck_assert(went_to(last_assign(w), 1, 1));
  world_destroy(w);
}
END_TEST

/* Of several jobs that are to be alone one is at a time, so that a replica is left for the others. */
START_TEST(one_replica_is_kept) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(0);
  for (uint64_t i = 1; i <= 2; i++) {
    m.id = i;
    submit(w, "a", &m);
  }
  restart(w, 1);
  restart(w, 2);
  ck_assert_int_eq(w->num_assigns, 5);
  uint64_t first = last_job(w), second = first == w->assigns[0].a.job ? w->assigns[1].a.job : w->assigns[0].a.job;
  start_replica(w, 1, 1, 1);
  tick(w, 100 * MS);
  ck_assert_int_eq(w->num_assigns, 5);
  ck_assert(w->core->queue->loads[0].alone == first && !w->core->queue->loads[1].alone);
  m.id = 3;
  submit(w, "a", &m);
  ck_assert(went_to(last_assign(w), 1, 1));
  say(w, 3, first, 0, 0, "x", true);
  ck_assert(last_job(w) == second && went_to(last_assign(w), 0, 3));
  world_destroy(w);
}
END_TEST

/* The replica that is kept runs empty while others go elsewhere. */
START_TEST(a_replica_is_kept) {
  struct world *w = world_create(3);
  for (uint32_t g = 0; g < 3; g++) start_replica(w, g, 1, 1);
  tri_client_msg m = submit_msg(0);
  for (uint64_t i = 1; i <= 6; i++) {
    m.id = i;
    submit(w, "a", &m);
  }
  uint64_t suspect = 0;
  for (int i = 0; i < 6; i++) /* one of replica 0, and so of jobs by age neither the first nor the last */
    if (went_to(&w->assigns[i], 0, 1)) suspect = w->assigns[i].a.job;
  job_find(w->core, suspect)->deaths = 1; /* as if one had died under it before */
  lose(w, 0, 1);
  /* The other one of replica 0 has gone on; the suspect waits for the least busy of the other two. */
  ck_assert_int_eq(w->num_assigns, 7);
  ck_assert_uint_ne(last_job(w), suspect);
  uint32_t kept = w->core->queue->loads[1].alone ? 1 : 2;
  ck_assert(w->core->queue->loads[kept].alone == suspect && !w->core->queue->loads[3 - kept].alone);
  for (uint64_t i = 7; i <= 12; i++) {
    m.id = i;
    submit(w, "a", &m);
    ck_assert(went_to(last_assign(w), 3 - kept, 1));
  }
  for (int i = 0; i < 7; i++) {
    tri_replica_token t = {.job = w->assigns[i].a.job, .token = 40, .flags = TRI_TOKEN_LAST};
    if (!went_to(&w->assigns[i], kept, 1)) continue;
    ck_assert_uint_ne(last_job(w), suspect);
    send_tokens(w, kept, 1, &t, 1);
  }
  ck_assert(last_job(w) == suspect && went_to(last_assign(w), kept, 1));
  m.id = 13;
  submit(w, "a", &m);
  ck_assert(went_to(last_assign(w), 3 - kept, 1));
  tri_replica_token t = {.job = suspect, .token = 40, .flags = TRI_TOKEN_LAST};
  send_tokens(w, kept, 1, &t, 1);
  ck_assert(!w->core->queue->loads[kept].alone);
  m.id = 14;
  submit(w, "a", &m);
  ck_assert(went_to(last_assign(w), kept, 1));
  world_destroy(w);
}
END_TEST

/* Jobs that no step can have had a part of have seen no death: there are SLOTS slots, and twice as many jobs may have
 * had them. */
START_TEST(who_was_not_in_a_step) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  uint64_t jobs[2 * SLOTS + 4];
  for (uint64_t i = 0; i < 2 * SLOTS + 4; i++) {
    tri_client_msg m = submit_msg(i + 1);
    m.submit.sampling.priority = i == 2 * SLOTS + 2 ? -1 : 0; /* by priority it would have been the first */
    m.submit.sampling.max_tokens = 4;                         /* of short jobs a replica gets more than it has slots */
    submit(w, "a", &m);
    jobs[i] = last_job(w);
  }
  draw(w, 1, jobs[2 * SLOTS + 3], 0, 0, 40, 0); /* of this one it is known */
  lose(w, 0, 1);
  for (uint64_t i = 0; i < 2 * SLOTS + 4; i++) {
    bool may = i < 2 * SLOTS - 1 || i >= 2 * SLOTS + 2; /* the last one has been in front of the 2 * SLOTS - 1st */
    ck_assert_msg(job_find(w->core, jobs[i])->deaths == may, "job %d", (int)i);
  }
  world_destroy(w);
}
END_TEST

/* An older job that has come to the replica later, since its own was lost, was not in front of one that had come
 * before.
 */
START_TEST(who_came_first) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 1);
  for (uint64_t i = 0; i < 2 * SLOTS; i++) {
    tri_client_msg m = submit_msg(i + 1);
    submit(w, "a", &m);
  }
  start_replica(w, 1, 1, 1);
  tri_client_msg m = submit_msg(100);
  submit(w, "a", &m);
  uint64_t youngest = last_job(w);
  ck_assert(went_to(last_assign(w), 1, 1));
  tick(w, 100 * MS);
  lose(w, 0, 1); /* all of the others come to its replica, behind it */
  lose(w, 1, 1);
  ck_assert_uint_eq(job_find(w->core, youngest)->deaths, 1);
  world_destroy(w);
}
END_TEST

Suite *suite_core_deaths(void) {
  Suite *s = suite_create("core_deaths");
  TCase *t = add_case(s, "queue");
  tcase_add_test(t, the_oldest_first);
  tcase_add_test(t, deadlines_go_on);
  tcase_add_test(t, clients_meanwhile);
  tcase_add_test(t, into_the_cache);
  tcase_add_test(t, no_hope);
  tcase_add_test(t, absent_in_a_drain);
  t = add_case(s, "deaths");
  tcase_add_test(t, a_poison);
  tcase_add_test(t, alone_beside_others);
  tcase_add_test(t, one_replica_is_kept);
  tcase_add_test(t, a_replica_is_kept);
  tcase_add_test(t, who_was_not_in_a_step);
  tcase_add_test(t, who_came_first);
  return s;
}
