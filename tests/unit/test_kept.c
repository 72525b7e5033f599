/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that outlive their connection: what is sent again, and what of the answers the program gets. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "client/kept.h"
#include "base/wait.h"

Suite *suite_kept(void);

enum { PATIENCE = 1000, FIRST = 7, TOKENS = 40 };

static tri_kept *kept;
static tri_arena *arena;
static tri_client_msg request;
static tri_buf packed;
/* What the program has been given of choices, and of the prompt behind them. */
static uint32_t ids[3][TOKENS];
static char text[3][TOKENS + 1];
static size_t num_ids[3], text_len[3];

static void start(void) {
  ck_assert_int_eq(tri_kept_create(PATIENCE, &kept), TRI_OK);
  ck_assert_int_eq(tri_arena_create(4096, &arena), TRI_OK);
  memset(num_ids, 0, sizeof num_ids);
  memset(text_len, 0, sizeof text_len);
}

static void stop(void) {
  tri_kept_destroy(kept);
  tri_arena_destroy(arena);
  tri_buf_free(&packed);
}

static void set_request_id(tri_request_id *r, uint64_t id) {
  memset(r, (int)id, sizeof *r);
  memcpy(r->bytes + 4, &id, sizeof id);
}

static void add(uint64_t id, bool seed) {
  memset(&request, 0, sizeof request);
  request.op = TRI_OP_SUBMIT;
  request.id = id;
  tri_submit_init(&request.submit);
  request.submit.prompt = (tri_wire_str){"a prompt", 8};
  request.submit.has_request_id = true;
  request.submit.sampling.has_seed = seed;
  set_request_id(&request.submit.request_id, id);
  ck_assert_int_eq(tri_client_msg_pack(&request, &packed), TRI_OK);
  ck_assert_int_eq(tri_kept_add(kept, &request, packed.data, packed.len), TRI_OK);
}

/* The next request to be sent is this one, so. */
static void expect_sent(uint64_t id, tri_client_op op) {
  const void *bytes;
  size_t len;
  uint64_t read;
  tri_client_msg m;
  ck_assert(tri_kept_next(kept, &bytes, &len));
  ck_assert_int_eq(tri_client_msg_unpack(bytes, len, arena, &m, &read, NULL), TRI_OK);
  ck_assert(m.id == id && m.op == op);
  if (op == TRI_OP_ATTACH) {
    ck_assert_uint_eq(m.attach.offset, 0);
    ck_assert_uint_eq(m.attach.request_id.bytes[3], id);
  }
  tri_kept_sent(kept);
}

static void expect_nothing_sent(void) {
  const void *bytes;
  size_t len;
  ck_assert(!tri_kept_next(kept, &bytes, &len));
}

static tri_kept_verdict say(tri_server_msg *m, uint64_t id, tri_server_op op) {
  m->id = id;
  m->op = op;
  return tri_kept_take(kept, arena, m);
}

static tri_kept_verdict say_accepted(uint64_t id) {
  static tri_server_msg m;
  return say(&m, id, TRI_REPLY_ACCEPTED);
}

static tri_kept_verdict say_done(uint64_t id) {
  static tri_server_msg m;
  return say(&m, id, TRI_REPLY_DONE);
}

static tri_kept_verdict say_error(uint64_t id, const char *code, char out[32]) {
  static tri_server_msg m;
  m.error.code = (tri_wire_str){code, strlen(code)};
  m.error.message = m.error.field = (tri_wire_str){"", 0};
  tri_kept_verdict v = say(&m, id, TRI_REPLY_ERROR);
  if (out) snprintf(out, 32, "%.*s", (int)m.error.code.len, m.error.code.s);
  return v;
}

/* Tokens from..to of a choice, or of the prompt (2), each with a letter of text; `changed` is another one. */
static tri_kept_verdict say_tokens(uint64_t id, uint32_t choice, uint32_t from, uint32_t to, uint32_t changed) {
  static tri_server_msg m;
  uint32_t all[TOKENS];
  char letters[TOKENS];
  for (uint32_t i = 0; i < TOKENS; i++) all[i] = 100 * choice + i + (i == changed);
  for (uint32_t i = 0; i < TOKENS; i++) letters[i] = (char)('a' + i % 26);
  tri_choice_tokens t = {.index = choice % 2,
                         .offset = from,
                         .ids = all + from,
                         .num_ids = to - from,
                         .text = {letters + from, choice == 2 ? 0 : to - from},
                         .of_prompt = choice == 2};
  m.tokens.num = 1;
  m.tokens.choices = &t;
  tri_kept_verdict v = say(&m, id, TRI_REPLY_TOKENS);
  if (v != KEPT_GIVE) return v;
  const tri_choice_tokens *got = m.tokens.choices;
  ck_assert_uint_eq(got->offset, num_ids[choice]);
  memcpy(ids[choice] + num_ids[choice], got->ids, got->num_ids * sizeof *got->ids);
  memcpy(text[choice] + text_len[choice], got->text.s, got->text.len);
  num_ids[choice] += got->num_ids;
  text_len[choice] += got->text.len;
  return v;
}

static void lose(int64_t now) { tri_kept_lost(kept, now, 0); }

/* What has not been answered is asked again as it was; what has begun is attached to, and nothing of it comes twice. */
START_TEST(test_continued) {
  add(FIRST, false);
  add(FIRST + 1, false);
  expect_sent(FIRST, TRI_OP_SUBMIT);
  expect_sent(FIRST + 1, TRI_OP_SUBMIT);
  expect_nothing_sent();
  ck_assert_int_eq(say_accepted(FIRST), KEPT_GIVE);
  ck_assert_int_eq(say_accepted(FIRST + 1), KEPT_GIVE);
  ck_assert_int_eq(say_tokens(FIRST, 2, 0, 3, TOKENS), KEPT_GIVE);
  ck_assert_int_eq(say_tokens(FIRST, 0, 0, 5, TOKENS), KEPT_GIVE);
  ck_assert_int_eq(say_tokens(FIRST, 1, 0, 2, TOKENS), KEPT_GIVE);
  for (uint32_t cut = 1; cut < 6; cut++) { /* wherever the pieces end now */
    lose(10 + cut);
    expect_sent(FIRST, TRI_OP_ATTACH);
    expect_sent(FIRST + 1, TRI_OP_SUBMIT);
    ck_assert_int_eq(say_accepted(FIRST), KEPT_DROP);
    ck_assert_int_eq(say_accepted(FIRST + 1), KEPT_DROP);
    ck_assert_int_eq(say_tokens(FIRST, 2, 0, 3, TOKENS), KEPT_DROP);
    ck_assert_int_eq(say_tokens(FIRST, 1, 0, 2, TOKENS), KEPT_DROP);
    ck_assert_int_eq(say_tokens(FIRST, 0, 0, cut, TOKENS), KEPT_DROP);
    ck_assert_int_eq(say_tokens(FIRST, 0, cut, 6 + cut, TOKENS), KEPT_GIVE);
  }
  ck_assert_int_eq(say_done(FIRST), KEPT_GIVE);
  ck_assert_int_eq(say_done(FIRST), KEPT_DROP); /* it is known no more */
  ck_assert(num_ids[0] == 11 && text_len[0] == 11 && num_ids[1] == 2 && num_ids[2] == 3);
  for (uint32_t i = 0; i < 11; i++) ck_assert(ids[0][i] == i && text[0][i] == (char)('a' + i));
  lose(100);
  expect_sent(FIRST + 1, TRI_OP_SUBMIT);
  expect_nothing_sent();
}
END_TEST

/* Another answer is not given as the rest of the one that has begun, wherever it differs, nor is a shorter one. */
START_TEST(test_another_answer) {
  for (uint32_t changed = 0; changed < 5; changed++) {
    num_ids[0] = text_len[0] = 0;
    add(FIRST + changed, true);
    expect_sent(FIRST + changed, TRI_OP_SUBMIT);
    ck_assert_int_eq(say_tokens(FIRST + changed, 0, 0, 5, TOKENS), KEPT_GIVE);
    lose(10);
    expect_sent(FIRST + changed, TRI_OP_ATTACH);
    if (changed == 4) {
      ck_assert_int_eq(say_tokens(FIRST + changed, 0, 0, 4, TOKENS), KEPT_DROP);
      ck_assert_int_eq(say_done(FIRST + changed), KEPT_GIVE_AND_CANCEL);
    } else {
      ck_assert_int_eq(say_tokens(FIRST + changed, 0, 0, 9, changed), KEPT_GIVE_AND_CANCEL);
    }
    ck_assert_int_eq(say_tokens(FIRST + changed, 0, 9, 10, TOKENS), KEPT_DROP);
  }
  ck_assert(num_ids[0] == 5);
}
END_TEST

/* An answer with a gap, a token that comes twice or another number of tokens than its end says is none. */
START_TEST(test_left_out) {
  static tri_server_msg m;
  static const uint32_t begins[] = {6, 4};
  for (size_t i = 0; i < 2; i++) {
    num_ids[0] = text_len[0] = 0;
    add(FIRST, true);
    ck_assert_int_eq(say_tokens(FIRST, 0, 0, 5, TOKENS), KEPT_GIVE);
    ck_assert_int_eq(say_tokens(FIRST, 0, begins[i], 8, TOKENS), KEPT_GIVE_AND_CANCEL);
  }
  for (uint64_t said = 4; said <= 6; said++) {
    num_ids[0] = text_len[0] = 0;
    add(FIRST, true);
    ck_assert_int_eq(say_tokens(FIRST, 0, 0, 5, TOKENS), KEPT_GIVE);
    m.done.num_choices = 1;
    m.done.choices[0].completion_tokens = said;
    ck_assert_int_eq(say(&m, FIRST, TRI_REPLY_DONE), said == 5 ? KEPT_GIVE : KEPT_GIVE_AND_CANCEL);
  }
}
END_TEST

/* A coordinator that does not know a job any more is asked for it anew where its draws are fixed. */
START_TEST(test_forgotten) {
  char code[32];
  add(FIRST, true);
  add(FIRST + 1, false);
  expect_sent(FIRST, TRI_OP_SUBMIT);
  expect_sent(FIRST + 1, TRI_OP_SUBMIT);
  ck_assert_int_eq(say_tokens(FIRST, 0, 0, 5, TOKENS), KEPT_GIVE);
  num_ids[0] = text_len[0] = 0;
  ck_assert_int_eq(say_tokens(FIRST + 1, 0, 0, 5, TOKENS), KEPT_GIVE);
  lose(10);
  expect_sent(FIRST, TRI_OP_ATTACH);
  expect_sent(FIRST + 1, TRI_OP_ATTACH);
  ck_assert_int_eq(say_error(FIRST, "not_found", NULL), KEPT_DROP);
  ck_assert_int_eq(say_error(FIRST + 1, "not_found", code), KEPT_GIVE);
  ck_assert_str_eq(code, "coordinator_lost");
  expect_sent(FIRST, TRI_OP_SUBMIT);
  ck_assert_int_eq(say_tokens(FIRST, 0, 0, 5, TOKENS), KEPT_DROP);
  ck_assert_int_eq(say_tokens(FIRST, 0, 5, 6, TOKENS), KEPT_GIVE);
  ck_assert_int_eq(say_error(FIRST, "not_found", code), KEPT_GIVE); /* as an answer to the request it is one */
  ck_assert_str_eq(code, "not_found");
}
END_TEST

/* What was cancelled is not begun anew, and a coordinator that ends has its jobs go on. */
START_TEST(test_ends) {
  char code[32];
  add(FIRST, true);
  expect_sent(FIRST, TRI_OP_SUBMIT);
  ck_assert_int_eq(say_tokens(FIRST, 0, 0, 5, TOKENS), KEPT_GIVE);
  ck_assert_int_eq(say_error(FIRST, "coordinator_lost", NULL), KEPT_LEAVING);
  tri_client_msg cancel = {.op = TRI_OP_CANCEL, .id = FIRST + 1, .cancel = {.target = FIRST, .has_target = true}};
  ck_assert_int_eq(tri_client_msg_pack(&cancel, &packed), TRI_OK);
  ck_assert_int_eq(tri_kept_add(kept, &cancel, packed.data, packed.len), TRI_OK);
  lose(10);
  expect_sent(FIRST, TRI_OP_ATTACH);
  expect_sent(FIRST + 1, TRI_OP_CANCEL);
  ck_assert_int_eq(say_error(FIRST, "not_found", code), KEPT_GIVE);
  ck_assert_str_eq(code, "aborted");
  ck_assert_int_eq(say_accepted(FIRST + 1), KEPT_GIVE);
  lose(20);
  expect_nothing_sent();
}
END_TEST

static void add_cancel(uint64_t id, uint64_t target, bool by_request_id) {
  tri_client_msg cancel = {
      .op = TRI_OP_CANCEL,
      .id = id,
      .cancel = {.target = target, .has_target = !by_request_id, .has_request_id = by_request_id},
  };
  set_request_id(&cancel.cancel.request_id, target);
  ck_assert_int_eq(tri_client_msg_pack(&cancel, &packed), TRI_OK);
  ck_assert_int_eq(tri_kept_add(kept, &cancel, packed.data, packed.len), TRI_OK);
  expect_sent(id, TRI_OP_CANCEL);
}

/* A cancel that a lost coordinator has accepted is said to the next one too, and the program hears of it once. */
START_TEST(test_cancelled) {
  for (int by_request_id = 0; by_request_id < 2; by_request_id++) {
    add(FIRST, true);
    expect_sent(FIRST, TRI_OP_SUBMIT);
    add_cancel(FIRST + 1, FIRST, by_request_id);
    ck_assert_int_eq(say_accepted(FIRST + 1), KEPT_GIVE);
    for (int n = 0; n < 2; n++) {
      lose(10);
      expect_sent(FIRST, TRI_OP_SUBMIT);
      expect_sent(FIRST + 1, TRI_OP_CANCEL);
      ck_assert_int_eq(say_accepted(FIRST + 1), KEPT_DROP);
    }
    ck_assert_int_eq(say_error(FIRST, "aborted", NULL), KEPT_GIVE);
    lose(20);
    expect_nothing_sent();
  }
  add(FIRST, true);
  expect_sent(FIRST, TRI_OP_SUBMIT);
  add_cancel(FIRST + 1, FIRST, false);
  ck_assert_int_eq(say_accepted(FIRST + 1), KEPT_GIVE);
  lose(10);
  expect_sent(FIRST, TRI_OP_SUBMIT);
  expect_sent(FIRST + 1, TRI_OP_CANCEL);
  ck_assert_int_eq(say_error(FIRST + 1, "not_found", NULL), KEPT_DROP);
  tri_kept_end_all(kept, "over");
  static tri_server_msg m;
  ck_assert(tri_kept_take_ended(kept, &m) && m.id == FIRST);
  ck_assert(!tri_kept_take_ended(kept, &m));
}
END_TEST

/* A cancel that was refused, or could not be sent, leaves its request as it was: the next coordinator is asked for it.
 * One that was accepted counts for good, also where the next coordinator refuses it. */
START_TEST(test_refused_cancel) {
  enum { REFUSED, UNSENT, ACCEPTED, CASES };
  char code[32];
  for (int how = 0; how < CASES; how++) {
    num_ids[0] = text_len[0] = 0;
    add(FIRST, true);
    expect_sent(FIRST, TRI_OP_SUBMIT);
    ck_assert_int_eq(say_tokens(FIRST, 0, 0, 5, TOKENS), KEPT_GIVE);
    add_cancel(FIRST + 1, FIRST, false);
    if (how == REFUSED) ck_assert_int_eq(say_error(FIRST + 1, "overloaded", NULL), KEPT_GIVE);
    if (how == UNSENT) tri_kept_forget(kept, FIRST + 1);
    if (how == ACCEPTED) ck_assert_int_eq(say_accepted(FIRST + 1), KEPT_GIVE);
    lose(10);
    expect_sent(FIRST, TRI_OP_ATTACH);
    if (how == ACCEPTED) {
      expect_sent(FIRST + 1, TRI_OP_CANCEL);
      ck_assert_int_eq(say_error(FIRST + 1, "not_found", NULL), KEPT_DROP);
      ck_assert_int_eq(say_error(FIRST, "not_found", code), KEPT_GIVE);
      ck_assert_str_eq(code, "aborted");
      continue;
    }
    ck_assert_int_eq(say_error(FIRST, "not_found", NULL), KEPT_DROP);
    expect_sent(FIRST, TRI_OP_SUBMIT);
    ck_assert_int_eq(say_error(FIRST, "aborted", NULL), KEPT_GIVE);
    expect_nothing_sent();
  }
}
END_TEST

/* Each of many requests costs what one costs: with a look at all others these would take minutes. */
START_TEST(test_many) {
  enum { MANY = 160000 };
  int64_t cpu = tri_thread_cpu_ns();
  for (uint64_t id = 1; id <= MANY; id++) {
    add(id, true);
    expect_sent(id, TRI_OP_SUBMIT);
  }
  for (uint64_t id = 1; id <= MANY; id++) {
    add_cancel(MANY + id, id, id % 2);
    ck_assert_int_eq(say_accepted(MANY + id), KEPT_GIVE);
  }
  for (uint64_t id = MANY / 2; id <= MANY; id++) ck_assert_int_eq(say_error(id, "aborted", NULL), KEPT_GIVE);
  lose(10);
  expect_sent(1, TRI_OP_SUBMIT);
  for (uint64_t id = 1; id < MANY / 2; id++) ck_assert_int_eq(say_error(id, "aborted", NULL), KEPT_GIVE);
  expect_nothing_sent(); /* each was found, and its cancel with it */
  ck_assert_int_lt(tri_thread_cpu_ns() - cpu, INT64_C(40000000000));
}
END_TEST

/* No request is asked for ever, be it what kills the coordinator or that none comes. */
START_TEST(test_given_up) {
  static tri_server_msg m;
  add(FIRST, false);
  add(FIRST + 1, false);
  for (int64_t now = 5; now <= 5 + PATIENCE; now += PATIENCE / 5) {
    ck_assert(!tri_kept_has_ended(kept));
    expect_sent(FIRST, TRI_OP_SUBMIT);
    expect_sent(FIRST + 1, TRI_OP_SUBMIT);
    if (now > 5 + PATIENCE / 2)
      ck_assert_int_ne(say_tokens(FIRST + 1, 0, 0, (uint32_t)num_ids[0] + 1, TOKENS), KEPT_LEAVING);
    lose(now);
    if (now > 5 + PATIENCE / 2) break;
  }
  expect_sent(FIRST, TRI_OP_SUBMIT);
  expect_sent(FIRST + 1, TRI_OP_ATTACH);
  lose(5 + PATIENCE);
  ck_assert(tri_kept_take_ended(kept, &m));
  ck_assert(m.op == TRI_REPLY_ERROR && m.id == FIRST && !tri_kept_has_ended(kept));
  expect_sent(FIRST + 1, TRI_OP_ATTACH); /* of this one something has come */
  tri_kept_end_all(kept, "nobody comes");
  ck_assert(tri_kept_take_ended(kept, &m));
  ck_assert(m.id == FIRST + 1 && m.error.message.len == 12);
  ck_assert(!tri_kept_take_ended(kept, &m));
  expect_nothing_sent();
}
END_TEST

/* A connection that has lasted shows that what waits for its turn is no reason for the next loss. */
START_TEST(test_connections_that_last) {
  add(FIRST, false);
  for (int64_t now = 5; now <= 5 + 3 * PATIENCE; now += PATIENCE / 2) {
    expect_sent(FIRST, TRI_OP_SUBMIT);
    tri_kept_lost(kept, now, INT64_C(6000000000));
    ck_assert(!tri_kept_has_ended(kept));
  }
}
END_TEST

Suite *suite_kept(void) {
  Suite *suite = suite_create("kept");
  TCase *t = tcase_create("all");
  tcase_add_checked_fixture(t, start, stop);
  tcase_add_test(t, test_continued);
  tcase_add_test(t, test_another_answer);
  tcase_add_test(t, test_left_out);
  tcase_add_test(t, test_forgotten);
  tcase_add_test(t, test_ends);
  tcase_add_test(t, test_cancelled);
  tcase_add_test(t, test_refused_cancel);
  tcase_add_test(t, test_many);
  tcase_add_test(t, test_given_up);
  tcase_add_test(t, test_connections_that_last);
  suite_add_tcase(suite, t);
  return suite;
}
