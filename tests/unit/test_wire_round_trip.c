/* SPDX-License-Identifier: Apache-2.0 */
/* Messages come out of unpacking as they went into packing, and what that costs. */
#include <check.h>
#include <msgpack.h>
#include <string.h>

#include "comm/wire/replica.h"
#include "base/wait.h"
#include "tests/unit/wire_samples.h"

Suite *suite_wire_round_trip(void);

/* ---- round trips ---- */

static void check_sampling(const tri_sampling *a, const tri_sampling *b, bool with_stop) {
#define SAME_INT(m) ck_assert_msg(a->m == b->m, #m)
#define SAME_NUMBER(context, type, name, option, least, most, def, absent, sampler, help)                              \
  SAME_INT(name);                                                                                                      \
  SAME_##absent(name)
#define SAME_FIXED(name)
#define SAME_OPEN(name) SAME_INT(has_##name);
#define SAME_MODEL(name) SAME_INT(has_##name);
  TRI_SAMPLING_NUMBERS(SAME_NUMBER, )
  SAME_INT(early_stopping);
  SAME_INT(has_early_stopping);
  SAME_INT(logprobs);
  SAME_INT(has_seed);
  SAME_INT(ignore_eos);
  SAME_INT(echo);
  SAME_INT(skip_special_tokens);
  SAME_INT(include_stop);
  SAME_INT(num_stop_token_ids);
  SAME_INT(num_logit_bias);
  ck_assert(a->seed == b->seed);
  ck_assert(!memcmp(a->stop_token_ids, b->stop_token_ids, (size_t)a->num_stop_token_ids * 4));
  SAME_INT(num_allowed_token_ids);
  for (size_t i = 0; i < a->num_allowed_token_ids; i++)
    ck_assert_uint_eq(a->allowed_token_ids[i], b->allowed_token_ids[i]);
  SAME_INT(constraint.kind);
  SAME_INT(constraint.text.len);
  ck_assert(!a->constraint.text.s == !b->constraint.text.s);
  if (a->constraint.text.len) ck_assert(!memcmp(a->constraint.text.s, b->constraint.text.s, a->constraint.text.len));
  ck_assert(tri_wire_constraint_is_same(&a->constraint, &b->constraint));
  for (int i = 0; i < a->num_logit_bias; i++) {
    ck_assert_uint_eq(a->logit_bias[i].id, b->logit_bias[i].id);
    ck_assert_float_eq(a->logit_bias[i].bias, b->logit_bias[i].bias);
  }
  if (!with_stop) return;
  SAME_INT(num_stop);
  for (int i = 0; i < a->num_stop; i++)
    ck_assert(a->stop[i].len == b->stop[i].len && !memcmp(a->stop[i].s, b->stop[i].s, a->stop[i].len));
}

START_TEST(round_trip_client) {
  tri_arena *a = arena();
  tri_buf buf = {0};
  tri_client_msg in = {.op = TRI_OP_SUBMIT, .id = 42}, out;
  uint64_t id;
  tri_error err = {0};
  fill_submit(&in.submit);
  ck_assert_int_eq(tri_client_msg_pack(&in, &buf), TRI_OK);
  ck_assert_msg(tri_client_msg_unpack(buf.data, buf.len, a, &out, &id, &err) == TRI_OK, "%s: %s", err.field,
                err.message);
  ck_assert(id == 42 && out.id == 42 && out.op == TRI_OP_SUBMIT);
  ck_assert(out.submit.has_request_id && !memcmp(&out.submit.request_id, &in.submit.request_id, 16));
  ck_str(out.submit.model, "abacus");
  ck_str(out.submit.prompt, "Hello, \xc3\xa4 \xff world");
  ck_assert(!out.submit.stream && !out.submit.add_special_tokens &&
            out.submit.on_disconnect == TRI_DISCONNECT_CONTINUE && !out.submit.token_ids && !out.submit.cache);
  ck_str(out.submit.cache_salt, "of one tenant");
  ck_str(out.submit.caller, "ann");
  ck_str(out.submit.external_id, "ann-1");
  check_sampling(&in.submit.sampling, &out.submit.sampling, true);

  /* Defaults: only the prompt travels. */
  tri_submit_init(&in.submit);
  in.submit.token_ids = ids4;
  in.submit.num_token_ids = 4;
  ck_assert_int_eq(tri_client_msg_pack(&in, &buf), TRI_OK);
  ck_assert_uint_lt(buf.len, 60);
  ck_assert_int_eq(tri_client_msg_unpack(buf.data, buf.len, a, &out, &id, &err), TRI_OK);
  check_sampling(&in.submit.sampling, &out.submit.sampling, true);
  ck_assert(out.submit.stream && out.submit.add_special_tokens && out.submit.cache && !out.submit.cache_salt.s);
  ck_assert(!out.submit.prompt.s && out.submit.num_token_ids == 4 && !memcmp(out.submit.token_ids, ids4, sizeof ids4));

  in = (tri_client_msg){.op = TRI_OP_ATTACH, .id = 1, .attach = {.request_id.bytes = {1, 2, 3}, .offset = 99}};
  ck_assert_int_eq(tri_client_msg_pack(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_client_msg_unpack(buf.data, buf.len, a, &out, &id, &err), TRI_OK);
  ck_assert(out.attach.offset == 99 && out.attach.request_id.bytes[2] == 3);
  in = (tri_client_msg){.op = TRI_OP_CANCEL, .id = 1, .cancel = {.target = 5, .has_target = true}};
  ck_assert_int_eq(tri_client_msg_pack(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_client_msg_unpack(buf.data, buf.len, a, &out, &id, &err), TRI_OK);
  ck_assert(out.cancel.target == 5 && !out.cancel.has_request_id);
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

/* Each number alone, at its largest value, which is no default. */
START_TEST(round_trip_numbers) {
  tri_arena *a = arena();
  tri_buf buf = {0};
  tri_client_msg in = {.op = TRI_OP_SUBMIT, .id = 42}, out;
  uint64_t id;
  tri_error err;
#define SET_FIXED(name)
#define SET_OPEN(name) in.submit.sampling.has_##name = true;
#define SET_MODEL(name) SET_OPEN(name)
#define ONE_NUMBER(context, type, name_, option, least, most, def, absent, sampler, help)                              \
  err = (tri_error){0};                                                                                                \
  tri_submit_init(&in.submit);                                                                                         \
  ck_assert_msg(in.submit.sampling.name_ == (def), #name_);                                                            \
  in.submit.token_ids = ids4;                                                                                          \
  in.submit.num_token_ids = 4;                                                                                         \
  if (strcmp(#name_, "max_tokens")) in.submit.sampling.max_tokens = -1; /* nothing is more than that */                \
  in.submit.sampling.has_max_tokens = true;                                                                            \
  SET_##absent(name_) in.submit.sampling.name_ = (most);                                                               \
  ck_assert_int_eq(tri_client_msg_pack(&in, &buf), TRI_OK);                                                            \
  ck_assert_msg(tri_client_msg_unpack(buf.data, buf.len, a, &out, &id, &err) == TRI_OK, "%s: %s", #name_,              \
                err.message);                                                                                          \
  check_sampling(&in.submit.sampling, &out.submit.sampling, true);                                                     \
  in.submit.sampling.name_ = (most)*2.0 + 1;                                                                           \
  ck_assert_int_eq(tri_client_msg_pack(&in, &buf), TRI_OK);                                                            \
  ck_assert_msg(tri_client_msg_unpack(buf.data, buf.len, a, &out, &id, &err) == TRI_OUT_OF_RANGE, "%s", #name_);       \
  ck_assert_str_eq(err.field, #name_);
  TRI_SAMPLING_NUMBERS(ONE_NUMBER, )
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(round_trip_server) {
  tri_arena *a = arena();
  tri_buf buf = {0};
  tri_error err = {0};
  static tri_server_msg in, out;
  const tri_wire_str texts2[2] = {str(" a"), {"\0\xff", 2}};
  tri_token_logprobs l[2] = {{.logprob = -0.25f,
                              .num_top = 2,
                              .top_ids = ids4,
                              .top_logprobs = floats2,
                              .text = str("\xc3"),
                              .top_texts = texts2},
                             {.logprob = -INFINITY, .text = str("")}};
  tri_choice_tokens ct[2] = {choice_tokens(l), choice_tokens(NULL)};
  ct[1].of_prompt = true;
  in = (tri_server_msg){.op = TRI_REPLY_TOKENS, .id = 2, .tokens = {2, ct}};
  ck_assert_int_eq(tri_server_msg_pack(&in, &buf), TRI_OK);
  ck_assert_msg(tri_server_msg_unpack(buf.data, buf.len, a, &out, &err) == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert(out.id == 2 && out.tokens.num == 2);
  const tri_choice_tokens *c = out.tokens.choices;
  ck_assert(c[0].index == 1 && c[0].offset == 1000 && c[0].num_ids == 2 && c[0].ids[1] == 50256);
  ck_str(c[1].text, " four");
  ck_assert(!c[0].of_prompt && c[1].of_prompt);
  ck_assert(c[0].logprobs && !c[1].logprobs && c[0].logprobs[0].num_top == 2 && c[0].logprobs[0].top_ids[1] == 50256);
  ck_assert_float_eq(c[0].logprobs[0].logprob, -0.25f);
  ck_assert_float_eq(c[0].logprobs[0].top_logprobs[1], -1.25f);
  ck_assert(isinf(c[0].logprobs[1].logprob) && !c[0].logprobs[1].num_top);
  ck_str(c[0].logprobs[0].text, "\xc3");
  ck_str(c[0].logprobs[0].top_texts[0], " a");
  ck_assert(c[0].logprobs[0].top_texts[1].len == 2 && !memcmp(c[0].logprobs[0].top_texts[1].s, "\0\xff", 2));
  ck_assert(c[0].logprobs[1].text.s && !c[0].logprobs[1].text.len);

  /* Without texts, as from a coordinator without a tokenizer. */
  l[0].text = l[1].text = (tri_wire_str){0};
  ck_assert_int_eq(tri_server_msg_pack(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_server_msg_unpack(buf.data, buf.len, a, &out, &err), TRI_OK);
  ck_assert(out.tokens.choices[0].logprobs && !out.tokens.choices[0].logprobs[0].text.s);

  for (int only = 0; only < 2; only++) {
    in = (tri_server_msg){
        .op = TRI_REPLY_ACCEPTED, .id = 3, .accepted = {.prompt_tokens = 5, .token_ids_only = only, .cached = !only}};
    static const uint32_t prompt_ids[] = {7, 8};
    in.accepted.token_ids = only ? prompt_ids : NULL;
    in.accepted.num_token_ids = only ? 2 : 0;
    ck_assert_int_eq(tri_server_msg_pack(&in, &buf), TRI_OK);
    ck_assert_int_eq(tri_server_msg_unpack(buf.data, buf.len, a, &out, &err), TRI_OK);
    ck_assert(out.accepted.num_token_ids == in.accepted.num_token_ids && (!only || out.accepted.token_ids[1] == 8));
    ck_assert(out.accepted.prompt_tokens == 5 && out.accepted.token_ids_only == only && !out.accepted.existing);
    ck_assert(out.accepted.cached == !only);
  }
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(round_trip_status) {
  tri_arena *a = arena();
  tri_buf buf = {0};
  tri_error err = {0};
  static tri_server_msg in, out;
  in = (tri_server_msg){.op = TRI_REPLY_STATUS, .id = 7};
  fill_status(&in.status);
  ck_assert_int_eq(tri_server_msg_pack(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_server_msg_unpack(buf.data, buf.len, a, &out, &err), TRI_OK);
  ck_str(out.status.model, "abacus");
  ck_str(out.status.task, "generate");
  ck_assert(out.status.requests_aborted == 2 && out.status.requests_invalid == 6 && out.status.requests_replayed == 4);
  ck_assert_uint_eq(out.status.requests_refused, 3);
  ck_str(out.status.journal_full, "/journal");
  ck_assert(out.status.num_replicas == 2 && out.status.replicas[1].steps == 77 && out.status.ranks[0].pid == 4711 &&
            out.status.vocab_size == 50257);
  ck_assert(out.status.response_cache_hits == 1ull << 33 && out.status.response_cache_misses == 6 &&
            out.status.response_cache_evictions == 7 && out.status.response_cache_entries == 8 &&
            out.status.response_cache_bytes == 1ull << 34 && out.status.response_cache_limit == 1ull << 35);
  ck_assert(out.status.refused_max_queue == 9 && out.status.refused_max_queue_bytes == 10 &&
            out.status.refused_client_jobs == 11 && out.status.refused_client_bytes == 12 &&
            out.status.expired_max_queue_time == 13 && out.status.refused_connections == 14 &&
            out.status.cut_connections == 1ull << 36);
  ck_str(out.status.replicas[1].state, "ready");
  ck_assert_double_eq(out.status.replicas[1].scheduler_us_per_token, 0.25);
  ck_assert_double_eq(out.status.replicas[1].scheduler_cpu_s, 1.75);
  ck_assert_uint_eq(out.status.replicas[1].streamed_bytes, 1ull << 40);
  ck_assert_double_eq(out.status.replicas[1].stream_bytes_per_s, 1.5e9);
  ck_assert_uint_eq(out.status.replicas[1].stream_peer_bytes, 1u << 29);
  ck_assert_double_eq(out.status.ranks[0].stream_stall_s, 1.25);
  const tri_replica_status *g = &out.status.replicas[1];
  ck_assert(g->host_kv_pages == 300 && g->host_kv_pages_used == 20 && g->swaps_out == 9 && g->swaps_in == 8);
  ck_assert(g->swapped_out_bytes == 1ull << 41 && g->swapped_in_bytes == 1ull << 42);
  ck_assert(g->prefix_cache_queries == 1ull << 43 && g->prefix_cache_hits == 7 && g->prefix_cache_evictions == 6);
  ck_assert_double_eq(out.status.coordinator_cpu_s, 3.25);
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(round_trip_floors_and_ends) {
  tri_arena *a = arena();
  tri_buf buf = {0};
  tri_error err = {0};
  static tri_server_msg in, out;
  in = (tri_server_msg){.op = TRI_REPLY_ROOFLINES, .id = 8, .rooflines = {.num_replicas = 1}};
  in.rooflines.replicas[0] =
      (tri_replica_rooflines){.replica = 3, .ranks = 4, .measured = 2, .sum = {1e10, 2e11, 3, 4, 5.5}};
  ck_assert_int_eq(tri_server_msg_pack(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_server_msg_unpack(buf.data, buf.len, a, &out, &err), TRI_OK);
  ck_assert(out.rooflines.num_replicas == 1 && out.rooflines.replicas[0].ranks == 4 &&
            out.rooflines.replicas[0].measured == 2);
  ck_assert_double_eq(out.rooflines.replicas[0].sum.flops_per_s, 2e11);
  ck_assert_double_eq(out.rooflines.replicas[0].sum.output_token_flops, 5.5);
  in.rooflines.num_replicas = TRI_STATUS_MAX_REPLICAS + 1;
  ck_assert_int_eq(tri_server_msg_pack(&in, &buf), TRI_INVALID_ARGUMENT);

  in = (tri_server_msg){.op = TRI_REPLY_DONE, .id = 2, .done = {.num_choices = 1, .prompt_tokens = 5, .total_ms = 30}};
  in.done.choices[0] = (struct tri_done_choice){.reason = TRI_FINISH_ABORT,
                                                .text = str("whole"),
                                                .completion_tokens = 16,
                                                .has_stop_token_id = true,
                                                .stop_token_id = UINT32_MAX};
  in.done.timed_out = true;
  in.done.seed = UINT64_MAX;
  in.done.cached_tokens = 4;
  ck_assert_int_eq(tri_server_msg_pack(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_server_msg_unpack(buf.data, buf.len, a, &out, &err), TRI_OK);
  ck_assert(out.done.num_choices == 1 && out.done.choices[0].reason == TRI_FINISH_ABORT &&
            out.done.choices[0].completion_tokens == 16 && out.done.timed_out && out.done.seed == UINT64_MAX);
  ck_str(out.done.choices[0].text, "whole");
  ck_assert(!out.done.choices[0].has_stop_string && out.done.choices[0].has_stop_token_id &&
            out.done.choices[0].stop_token_id == UINT32_MAX);
  ck_assert_uint_eq(out.done.cached_tokens, 4);
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(round_trip_group) {
  tri_arena *a = arena();
  tri_buf buf = {0};
  tri_error err = {0};
  static tri_replica_msg in, out;
  in = (tri_replica_msg){
      .op = TRI_REPLICA_TOKENS, .seq = 3, .tokens = {.epoch = 1, .step = 2, .num = 6, .tokens = group_tokens}};
  ck_assert_int_eq(tri_replica_msg_pack(&in, &buf), TRI_OK);
  ck_assert_msg(tri_replica_msg_unpack(buf.data, buf.len, a, &out, &err) == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert(out.seq == 3 && out.tokens.num == 6 && out.tokens.epoch == 1 && out.tokens.step == 2);
  const tri_replica_token *k = out.tokens.tokens;
  ck_assert(k[0].job == 1 && k[0].choice == 2 && k[0].token == 3 && k[0].offset == 4 && !k[0].flags);
  ck_assert(k[1].job == UINT64_MAX && k[1].choice == 3 && k[1].token == UINT32_MAX &&
            k[1].reason == TRI_FINISH_LENGTH && k[1].num_top == 2 && k[1].top_ids[1] == 50256);
  ck_assert_float_eq(k[1].top_logprobs[1], -1.25f);
  ck_assert(isinf(k[2].logprob) && k[2].num_top == 0 && k[2].preemptions == UINT32_MAX && k[2].waited_ns == UINT64_MAX);
  ck_assert(k[3].job == 6 && k[3].preemptions == 3 && !k[1].preemptions && !k[3].waited_ns);
  ck_assert(k[4].job == 7 && k[4].waited_ns == 4 && !k[4].preemptions && k[4].cached == 5 && !k[2].cached);
  ck_assert(k[5].flags == (TRI_TOKEN_PROMPT | TRI_TOKEN_LOGPROB) && k[5].offset == 1 && k[5].logprob == -3);

  tri_submit sub;
  fill_submit(&sub);
  in = (tri_replica_msg){.op = TRI_REPLICA_ASSIGN, .seq = 7};
  in.assign = (tri_replica_assign){.job = 1,
                                   .epoch = 2,
                                   .seed = 3,
                                   .remaining_ms = -1,
                                   .token_ids = ids4,
                                   .num_token_ids = 4,
                                   .cache_salt = {"of one", 6},
                                   .sampling = sub.sampling};
  in.assign.sampling.seed = 3;
  ck_assert_int_eq(tri_replica_msg_pack(&in, &buf), TRI_OK);
  ck_assert_msg(tri_replica_msg_unpack(buf.data, buf.len, a, &out, &err) == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert(out.assign.job == 1 && out.assign.seed == 3 && out.assign.remaining_ms == -1 &&
            out.assign.num_token_ids == 4);
  ck_str(out.assign.cache_salt, "of one");
  check_sampling(&in.assign.sampling, &out.assign.sampling, false);
  ck_assert_int_eq(out.assign.sampling.num_stop, 0);

  /* The model's own values, filled in by the coordinator without calling them given. */
  tri_submit_init(&sub);
  in.assign.sampling = sub.sampling;
  in.assign.sampling.temperature = 0.6;
  ck_assert_int_eq(tri_replica_msg_pack(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_replica_msg_unpack(buf.data, buf.len, a, &out, &err), TRI_OK);
  ck_assert_double_eq(out.assign.sampling.temperature, 0.6);
  ck_assert(!out.assign.sampling.has_top_p);
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

/* Every message packs to what unpacks to what packs to the same bytes, and msgpack-c's own unpacker accepts them.
 */
START_TEST(stable) {
  sample s[MAX_SAMPLES];
  int n = make_samples(s);
  for (int i = 0; i < n; i++) {
    tri_arena *a = arena();
    tri_error err = {0};
    tri_buf again = {0};
    msgpack_unpacked oracle;
    msgpack_unpacked_init(&oracle);
    size_t off = 0;
    ck_assert_int_eq(msgpack_unpack_next(&oracle, s[i].buf.data, s[i].buf.len, &off), MSGPACK_UNPACK_SUCCESS);
    ck_assert_uint_eq(off, s[i].buf.len);
    msgpack_unpacked_destroy(&oracle);
    static tri_client_msg c;
    static tri_server_msg r;
    static tri_replica_msg g;
    uint64_t id;
    tri_status st;
    if (s[i].kind == CLIENT) {
      st = tri_client_msg_unpack(s[i].buf.data, s[i].buf.len, a, &c, &id, &err);
      if (!st) st = tri_client_msg_pack(&c, &again);
    } else if (s[i].kind == SERVER) {
      st = tri_server_msg_unpack(s[i].buf.data, s[i].buf.len, a, &r, &err);
      if (!st) st = tri_server_msg_pack(&r, &again);
    } else {
      st = tri_replica_msg_unpack(s[i].buf.data, s[i].buf.len, a, &g, &err);
      if (!st) st = tri_replica_msg_pack(&g, &again);
    }
    ck_assert_msg(st == TRI_OK, "%s: %s: %s", s[i].name, err.field, err.message);
    ck_assert_msg(again.len == s[i].buf.len && !memcmp(again.data, s[i].buf.data, again.len), "%s", s[i].name);
    tri_buf_free(&again);
    tri_arena_destroy(a);
  }
  free_samples(s, n);
}
END_TEST

START_TEST(request_ids) {
  tri_request_id id;
  char text[TRI_REQUEST_ID_TEXT];
  ck_assert(tri_request_id_parse("00112233-4455-6677-8899-aAbBcCdDeEfF", 36, &id));
  tri_request_id_format(&id, text);
  ck_assert_str_eq(text, "00112233445566778899aabbccddeeff");
  ck_assert(!tri_request_id_parse(text, 31, &id));
  ck_assert(!tri_request_id_parse("-0112233445566778899aabbccddeeff", 32, &id));
  ck_assert(!tri_request_id_parse("0x112233445566778899aabbccddeeff", 32, &id));
  ck_assert(!tri_request_id_parse("00112233445566778899aabbccddeeff0", 33, &id));
}
END_TEST

static tri_submit beam_submit(void) {
  tri_submit s;
  tri_submit_init(&s);
  s.prompt = str("x");
  s.sampling.num_beams = 4;
  s.sampling.n = 3;
  s.sampling.length_penalty = -0.5;
  return s;
}

/* As a client gives them and as the coordinator fills them in, every value of early_stopping. */
START_TEST(beams_round_trip) {
  tri_arena *a = arena();
  tri_buf buf = {0};
  tri_error err = {0};
  uint64_t id;
  static tri_client_msg c, c_out;
  static tri_replica_msg g, g_out;
  for (tri_early_stopping e = TRI_EARLY_FALSE; e <= TRI_EARLY_NEVER; e++)
    for (int given = 0; given < 2; given++) {
      tri_submit s = beam_submit();
      s.sampling.early_stopping = e;
      s.sampling.has_num_beams = s.sampling.has_length_penalty = s.sampling.has_early_stopping = given;
      g = (tri_replica_msg){.op = TRI_REPLICA_ASSIGN, .assign = {.token_ids = ids4, .num_token_ids = 4}};
      g.assign.sampling = s.sampling;
      ck_assert_int_eq(tri_replica_msg_pack(&g, &buf), TRI_OK);
      ck_assert_msg(tri_replica_msg_unpack(buf.data, buf.len, a, &g_out, &err) == TRI_OK, "%s", err.message);
      ck_assert_int_eq(g_out.assign.sampling.num_beams, 4);
      ck_assert_double_eq(g_out.assign.sampling.length_penalty, -0.5);
      ck_assert_int_eq(g_out.assign.sampling.early_stopping, e);
      c = (tri_client_msg){.op = TRI_OP_SUBMIT, .id = 1, .submit = s};
      if (!given) c.submit.sampling.n = 1; /* the default of num_beams goes along */
      ck_assert_int_eq(tri_client_msg_pack(&c, &buf), TRI_OK);
      ck_assert_msg(tri_client_msg_unpack(buf.data, buf.len, a, &c_out, &id, &err) == TRI_OK, "%s", err.message);
      const tri_sampling *p = &c_out.submit.sampling;
      ck_assert_int_eq(p->num_beams, given ? 4 : 1);
      ck_assert_double_eq(p->length_penalty, given ? -0.5 : 1);
      ck_assert_int_eq(p->early_stopping, given ? e : TRI_EARLY_FALSE);
      ck_assert(p->has_num_beams == given && p->has_length_penalty == given && p->has_early_stopping == given);
    }
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

/* What has no meaning beside a search is refused by its name, from a client and from a coordinator. */
START_TEST(beams_refused) {
  static const char *const fields[] = {"logprobs",          "logit_bias", "repetition_penalty", "presence_penalty",
                                       "frequency_penalty", "n",          "prompt_logprobs",    "allowed_token_ids"};
  struct tri_wire_bias bias = {1, 1};
  static tri_client_msg c, out;
  uint64_t id;
  uint32_t allowed = 1;
  for (int i = 0; i < 8; i++)
    for (int beams = 1; beams <= 4; beams += 3) {
      tri_arena *a = arena();
      tri_buf buf = {0};
      tri_error err = {0};
      tri_submit s = beam_submit();
      tri_sampling *p = &s.sampling;
      p->num_beams = beams, p->has_num_beams = true;
      if (i == 0) p->logprobs = 0;
      if (i == 1) p->logit_bias = &bias, p->num_logit_bias = 1;
      if (i == 2) p->repetition_penalty = 1.5, p->has_repetition_penalty = true;
      if (i == 3) p->presence_penalty = 1;
      if (i == 4) p->frequency_penalty = 1;
      if (i == 5) p->n = 5;
      if (i == 6) p->prompt_logprobs = 0;
      if (i == 7) p->allowed_token_ids = &allowed, p->num_allowed_token_ids = 1;
      c = (tri_client_msg){.op = TRI_OP_SUBMIT, .id = 1, .submit = s};
      ck_assert_int_eq(tri_client_msg_pack(&c, &buf), TRI_OK);
      tri_status st = tri_client_msg_unpack(buf.data, buf.len, a, &out, &id, &err);
      ck_assert_int_eq(st, beams == 1 ? TRI_OK : i == 5 ? TRI_OUT_OF_RANGE : TRI_UNSUPPORTED);
      if (st) ck_assert_str_eq(err.field, fields[i]);
      tri_buf_free(&buf);
      tri_arena_destroy(a);
    }
}
END_TEST

START_TEST(field_table) {
  size_t n;
  const tri_wire_field *f = tri_wire_fields(&n);
  ck_assert_uint_ge(n, 15);
  for (size_t i = 0; i < n; i++) ck_assert(f[i].min < f[i].max && f[i].help && *f[i].help);
}
END_TEST

/* ---- cost ---- */

static double per_call_us(void (*fn)(void *), void *ctx, int calls) {
  int64_t best = INT64_MAX;
  for (int r = 0; r < 5; r++) {
    int64_t t = tri_now_ns();
    for (int i = 0; i < calls; i++) fn(ctx);
    t = tri_now_ns() - t;
    if (t < best) best = t;
  }
  return (double)best / calls / 1000;
}

typedef struct cost {
  tri_buf buf;
  tri_arena *arena;
  unsigned failures; /* an assertion writes to a file: too slow to be in the loop */
  const tri_replica_msg *g;
  const tri_server_msg *s;
  tri_replica_msg *g_out;
  tri_server_msg *s_out;
} cost;

static void pack_g(void *c) { tri_replica_msg_pack(((cost *)c)->g, &((cost *)c)->buf); }
static void pack_s(void *c) { tri_server_msg_pack(((cost *)c)->s, &((cost *)c)->buf); }
static void unpack_g(void *ctx) {
  cost *c = ctx;
  tri_arena_reset(c->arena);
  c->failures += tri_replica_msg_unpack(c->buf.data, c->buf.len, c->arena, c->g_out, NULL) != TRI_OK;
}
static void unpack_s(void *ctx) {
  cost *c = ctx;
  tri_arena_reset(c->arena);
  c->failures += tri_server_msg_unpack(c->buf.data, c->buf.len, c->arena, c->s_out, NULL) != TRI_OK;
}

/* Prints, and fails only far above what it should be: sanitizers and busy machines are slow. */
START_TEST(costs) {
  static tri_replica_msg g_out;
  static tri_server_msg s, s_out;
  tri_replica_token t[64];
  for (int i = 0; i < 64; i++)
    t[i] = (tri_replica_token){.job = 100000u + (unsigned)i, .token = 1000u * (unsigned)i, .offset = 300};
  tri_replica_msg g = {
      .op = TRI_REPLICA_TOKENS, .seq = 3000, .tokens = {.epoch = 1, .step = 20000, .num = 64, .tokens = t}};
  cost c = {.arena = arena(), .g = &g, .g_out = &g_out, .s = &s, .s_out = &s_out};
  double eg = per_call_us(pack_g, &c, 2000) / 64, dg = per_call_us(unpack_g, &c, 2000) / 64;
  tri_choice_tokens ct = {.offset = 300, .text = str(" four"), .ids = ids4, .num_ids = 1};
  s.op = TRI_REPLY_TOKENS;
  s.id = 200000;
  s.tokens.num = 1;
  s.tokens.choices = &ct;
  double es = per_call_us(pack_s, &c, 20000), ds = per_call_us(unpack_s, &c, 20000);
  printf("group tokens (64): pack %.3f us, unpack %.3f us per token; tokens reply: pack %.3f us, unpack %.3f us\n", eg,
         dg, es, ds);
  ck_assert_uint_eq(c.failures, 0);
  ck_assert(eg < 20 && dg < 20 && es < 50 && ds < 50);
  tri_buf_free(&c.buf);
  tri_arena_destroy(c.arena);
}
END_TEST

Suite *suite_wire_round_trip(void) {
  Suite *s = suite_create("wire_round_trip");
  ADD_CASE("round_trip", round_trip_client, round_trip_numbers, round_trip_server, round_trip_status,
           round_trip_floors_and_ends, round_trip_group, stable, request_ids, field_table, beams_round_trip,
           beams_refused);
  ADD_CASE("cost", costs);
  return s;
}
