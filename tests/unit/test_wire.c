/* Messages: round trips of every one, the words of every refusal, and hostile bytes. */
#include <check.h>
#include <math.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "comm/wire_group.h"
#include "comm/wire_pack.h"
#include "runtime/base/wait.h"

Suite *suite_wire(void);

/* ---- helpers ---- */

static tri_wire_str str(const char *s) { return (tri_wire_str){s, strlen(s)}; }

#define ck_str(wire, expected)                                                                                         \
  do {                                                                                                                 \
    ck_assert_uint_eq((wire).len, strlen(expected));                                                                   \
    ck_assert(!memcmp((wire).s, expected, (wire).len));                                                                \
  } while (0)

static tri_arena *arena(void) {
  tri_arena *a = NULL;
  ck_assert(tri_arena_create(1 << 16, &a) == TRI_OK);
  return a;
}

/* A valid message of each kind, for the hostile tests. */
typedef enum which { CLIENT, SERVER, GROUP } which;
typedef struct sample {
  which kind;
  const char *name;
  tri_wire_buf buf;
} sample;
enum { MAX_SAMPLES = 64 };

static tri_status decode(which kind, const void *data, size_t len, tri_arena *a, tri_error *err) {
  static tri_client_msg c;
  static tri_server_msg s;
  static tri_group_msg g;
  uint64_t id;
  switch (kind) {
  case CLIENT: return tri_client_msg_decode(data, len, a, &c, &id, err);
  case SERVER: return tri_server_msg_decode(data, len, a, &s, err);
  default: return tri_group_msg_decode(data, len, a, &g, err);
  }
}

static const uint32_t ids4[] = {1, 50256, 7, UINT32_MAX};
static const float floats2[] = {-0.5f, -1.25f};

static void fill_submit(tri_submit *s) {
  tri_submit_init(s);
  s->has_request_id = true;
  for (int i = 0; i < 16; i++) s->request_id.bytes[i] = (uint8_t)(i * 17);
  s->model = str("abacus");
  s->prompt = str("Hello, \xc3\xa4 \xff world");
  tri_sampling *p = &s->sampling;
  p->max_tokens = -1;
  p->min_tokens = 3;
  p->has_max_tokens = p->has_temperature = p->has_top_p = p->has_top_k = p->has_repetition_penalty = p->has_seed = true;
  p->temperature = 0.7;
  p->top_p = 0.9;
  p->min_p = 0.05;
  p->top_k = 40;
  p->repetition_penalty = 1.1;
  p->presence_penalty = -0.5;
  p->frequency_penalty = 2;
  p->seed = UINT64_MAX;
  p->n = 4;
  p->logprobs = 5;
  p->ignore_eos = p->echo = true;
  p->stop[0] = str("\n\n");
  p->stop[1] = str("END");
  p->num_stop = 2;
  p->stop_token_ids[0] = 2;
  p->num_stop_token_ids = 1;
  static const struct tri_wire_bias bias[] = {{50, -100}, {51, 1.5f}};
  p->logit_bias = bias;
  p->num_logit_bias = 2;
  p->priority = -7;
  p->deadline_ms = 60000;
  s->stream = false;
  s->on_disconnect = TRI_DISCONNECT_CONTINUE;
}

static void keep_client(sample *out, int *n, const char *name, const tri_client_msg *m) {
  out[*n] = (sample){.kind = CLIENT, .name = name};
  ck_assert_int_eq(tri_client_msg_encode(m, &out[*n].buf), TRI_OK);
  ++*n;
}

static void keep_server(sample *out, int *n, const char *name, const tri_server_msg *m) {
  out[*n] = (sample){.kind = SERVER, .name = name};
  ck_assert_int_eq(tri_server_msg_encode(m, &out[*n].buf), TRI_OK);
  ++*n;
}

static void keep_group(sample *out, int *n, const char *name, const tri_group_msg *m) {
  out[*n] = (sample){.kind = GROUP, .name = name};
  ck_assert_int_eq(tri_group_msg_encode(m, &out[*n].buf), TRI_OK);
  ++*n;
}

static tri_choice_tokens choice_tokens(const tri_token_logprobs *l) {
  return (tri_choice_tokens){
      .index = 1, .offset = 1000, .text = str(" four"), .ids = ids4, .num_ids = 2, .logprobs = l};
}

static void fill_status(tri_cluster_status *s) {
  *s = (tri_cluster_status){.version = str("0.1.0"),
                            .model = str("abacus"),
                            .state = str("serving"),
                            .task = str("generate"),
                            .uptime_s = 12.5,
                            .clients = 3,
                            .running = 2,
                            .waiting = 1,
                            .requests_done = 9,
                            .requests_failed = 1,
                            .requests_aborted = 2,
                            .prompt_tokens = 100,
                            .generation_tokens = 1000,
                            .tokens_per_second = 55.5,
                            .coordinator_us_per_token = 1.5,
                            .resident_mb = 20,
                            .num_groups = 2,
                            .num_ranks = 1,
                            .max_model_len = 2048,
                            .vocab_size = 50257};
  s->groups[1] = (tri_group_status){.group = 1,
                                    .epoch = 4,
                                    .state = str("ready"),
                                    .tp = 2,
                                    .pp = 2,
                                    .running = 2,
                                    .kv_pages = 100,
                                    .kv_pages_used = 50,
                                    .steps = 77,
                                    .tokens = 500,
                                    .scheduler_us_per_token = 0.25};
  s->ranks[0] = (tri_rank_status){.group = 1,
                                  .rank = 3,
                                  .host = str("node7"),
                                  .pid = 4711,
                                  .step = 5,
                                  .block = 6,
                                  .collective = 7,
                                  .seconds_since_report = 0.5};
}

static int make_samples(sample out[MAX_SAMPLES]) {
  static tri_client_msg c;
  static tri_server_msg s;
  static tri_group_msg g;
  int n = 0;
  c = (tri_client_msg){.op = TRI_OP_HELLO, .id = 1, .hello.client = str("test 1")};
  keep_client(out, &n, "hello", &c);
  c.op = TRI_OP_SUBMIT;
  fill_submit(&c.submit);
  keep_client(out, &n, "submit", &c);
  c.submit.prompt = (tri_wire_str){0};
  c.submit.token_ids = ids4;
  c.submit.num_token_ids = 4;
  keep_client(out, &n, "submit of ids", &c);
  c = (tri_client_msg){.op = TRI_OP_ATTACH, .id = 300, .attach = {.offset = 70000}};
  keep_client(out, &n, "attach", &c);
  c = (tri_client_msg){.op = TRI_OP_CANCEL, .id = 70000, .cancel.target = 0};
  keep_client(out, &n, "cancel by target", &c);
  c.cancel.has_request_id = true;
  keep_client(out, &n, "cancel by request", &c);
  for (tri_client_op op = TRI_OP_STATUS; op <= TRI_OP_FLOORS; op++) {
    if (op == TRI_OP_EMBED || op == TRI_OP_CLASSIFY) continue;
    c = (tri_client_msg){.op = op, .id = UINT64_MAX};
    keep_client(out, &n, "plain", &c);
  }
  c = (tri_client_msg){.op = TRI_OP_EMBED,
                       .id = 9,
                       .encode = {.model = str("bert"),
                                  .text = str("a text"),
                                  .pooling = TRI_POOL_CLS,
                                  .normalize = true,
                                  .priority = -5,
                                  .deadline_ms = 70000}};
  keep_client(out, &n, "embed", &c);
  c = (tri_client_msg){.op = TRI_OP_CLASSIFY,
                       .id = 10,
                       .encode = {.token_ids = ids4, .num_token_ids = 4, .activation = TRI_ACTIVATION_SIGMOID}};
  keep_client(out, &n, "classify", &c);
  s = (tri_server_msg){.op = TRI_REPLY_HELLO, .id = 1, .hello = {str("0.1.0"), TRI_WIRE_MAX_MESSAGE}};
  keep_server(out, &n, "hello reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_ACCEPTED, .id = 2, .accepted = {.prompt_tokens = 5, .existing = true}};
  keep_server(out, &n, "accepted", &s);
  s.accepted.token_ids_only = true;
  keep_server(out, &n, "accepted without a tokenizer", &s);
  tri_token_logprobs l[2] = {{-0.25f, 2, ids4, floats2}, {-INFINITY, 0, NULL, NULL}};
  tri_choice_tokens ct[2] = {choice_tokens(l), choice_tokens(NULL)};
  s = (tri_server_msg){.op = TRI_REPLY_TOKENS, .id = 2, .tokens = {2, ct}};
  keep_server(out, &n, "tokens", &s);
  s = (tri_server_msg){.op = TRI_REPLY_DONE,
                       .id = 2,
                       .done = {.num_choices = 2,
                                .prompt_tokens = 5,
                                .completion_tokens = 40,
                                .queue_ms = 0.5,
                                .first_token_ms = 2,
                                .total_ms = 30,
                                .preemptions = 1,
                                .timed_out = true}};
  s.done.choices[0] = (struct tri_done_choice){TRI_FINISH_LENGTH, str("whole"), 16};
  s.done.choices[1] = (struct tri_done_choice){TRI_FINISH_STOP, {0}, 24};
  keep_server(out, &n, "done", &s);
  s = (tri_server_msg){.op = TRI_REPLY_ERROR, .id = 2, .error = {str("out_of_range"), str("too much"), str("n")}};
  keep_server(out, &n, "error", &s);
  s = (tri_server_msg){.op = TRI_REPLY_STATUS, .id = 2};
  fill_status(&s.status);
  keep_server(out, &n, "status reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_STATS, .id = 2, .stats = str("trireme:x 1\n")};
  keep_server(out, &n, "stats reply", &s);
  tri_wire_str names[] = {str("a"), str("b")};
  s = (tri_server_msg){.op = TRI_REPLY_MODELS, .id = 2, .models = {2, names, 2048}};
  keep_server(out, &n, "models reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_FLOORS, .id = 2, .floors = {.num_groups = 2}};
  s.floors.groups[1] = (tri_group_floors){.group = 1, .ranks = 4, .measured = 3, .sum = {1e10, 2e11, 3, 4, 5.5}};
  keep_server(out, &n, "floors reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_EMBEDDING,
                       .id = 9,
                       .encoded = {.values = floats2, .num_values = 2, .prompt_tokens = 4, .total_ms = 1.5}};
  keep_server(out, &n, "embedding reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_SCORES,
                       .id = 10,
                       .encoded = {.values = floats2,
                                   .num_values = 2,
                                   .num_labels = 1,
                                   .labels = names,
                                   .num_tokens = 2,
                                   .tokens = names,
                                   .activation = TRI_ACTIVATION_NONE}};
  keep_server(out, &n, "scores reply", &s);

  g = (tri_group_msg){.op = TRI_GROUP_REGISTER,
                      .seq = 1,
                      .reg = {.version = str("0.1.0"),
                              .host = str("n"),
                              .backend = str("cpu"),
                              .group = 1,
                              .rank = 2,
                              .world = 4,
                              .tp = 2,
                              .pp = 2,
                              .epoch = 3,
                              .pid = 99,
                              .model_hash = UINT64_MAX,
                              .max_model_len = 2048,
                              .vocab_size = 5,
                              .kv_pages = 6,
                              .block_size = 16,
                              .max_num_seqs = 8}};
  keep_group(out, &n, "register", &g);
  g = (tri_group_msg){.op = TRI_GROUP_READY, .seq = 2, .ready = {1, 2, 3.5, 0.25}};
  keep_group(out, &n, "ready", &g);
  tri_group_token t[3] = {{.job = 1, .choice = 2, .token = 3, .offset = 4},
                          {.job = UINT64_MAX,
                           .choice = 3,
                           .token = UINT32_MAX,
                           .offset = 1u << 20,
                           .flags = TRI_TOKEN_LAST | TRI_TOKEN_LOGPROB,
                           .reason = TRI_FINISH_LENGTH,
                           .logprob = -2,
                           .num_top = 2,
                           .top_ids = ids4,
                           .top_logprobs = floats2},
                          {.job = 5, .flags = TRI_TOKEN_LOGPROB, .logprob = -INFINITY}};
  g = (tri_group_msg){.op = TRI_GROUP_TOKENS, .seq = 3, .tokens = {.epoch = 1, .step = 2, .num = 3, .tokens = t}};
  keep_group(out, &n, "group tokens", &g);
  tri_group_result results[2] = {{UINT64_MAX, floats2, 2}, {1, floats2, 1}};
  g = (tri_group_msg){.op = TRI_GROUP_ENCODED, .seq = 3, .encoded = {.epoch = 1, .num = 2, .results = results}};
  keep_group(out, &n, "encoded", &g);
  g = (tri_group_msg){.op = TRI_GROUP_HEALTH, .seq = 4, .health = {1, 2, 3, 4, 5, 6, true, 7, 8, 9, 10, 11, 12}};
  keep_group(out, &n, "health", &g);
  g = (tri_group_msg){.op = TRI_GROUP_FAILED, .seq = 5, .failed = {1, 2, 3, str("io"), str("disk"), str("f")}};
  keep_group(out, &n, "failed", &g);
  g = (tri_group_msg){.op = TRI_GROUP_REFUSED, .seq = 5, .refused = {1, 2, str("io"), str("disk"), str("f")}};
  keep_group(out, &n, "refused", &g);
  g = (tri_group_msg){.op = TRI_GROUP_FLOORS, .seq = 5, .floors = {1, 2, 3, {1e10, 2e11, 3, 4, 5.5}}};
  keep_group(out, &n, "floors", &g);
  g = (tri_group_msg){.op = TRI_GROUP_MEASURE, .seq = 5};
  keep_group(out, &n, "measure", &g);
  g = (tri_group_msg){.op = TRI_GROUP_WELCOME, .seq = 6, .welcome = {false, str("no")}};
  keep_group(out, &n, "welcome", &g);
  g = (tri_group_msg){.op = TRI_GROUP_ASSIGN, .seq = 7};
  g.assign = (tri_group_assign){.job = 1,
                                .epoch = 2,
                                .seed = UINT64_MAX,
                                .offset = 4,
                                .remaining_ms = -1,
                                .token_ids = ids4,
                                .num_token_ids = 4,
                                .second_start = 3};
  tri_submit sub;
  fill_submit(&sub);
  g.assign.sampling = sub.sampling;
  keep_group(out, &n, "assign", &g);
  g = (tri_group_msg){.op = TRI_GROUP_ABORT, .seq = 8, .abort.job = 17};
  keep_group(out, &n, "abort", &g);
  g = (tri_group_msg){.op = TRI_GROUP_DRAIN, .seq = 9};
  keep_group(out, &n, "drain", &g);
  g = (tri_group_msg){.op = TRI_GROUP_LEASE, .seq = 10, .lease.time_ms = 123456789};
  keep_group(out, &n, "lease", &g);
  ck_assert_int_lt(n, MAX_SAMPLES);
  return n;
}

static void free_samples(sample *s, int n) {
  for (int i = 0; i < n; i++) tri_wire_buf_free(&s[i].buf);
}

/* ---- round trips ---- */

static void check_sampling(const tri_sampling *a, const tri_sampling *b, bool with_stop) {
#define SAME_INT(m) ck_assert_msg(a->m == b->m, #m)
#define SAME_NUM(m) ck_assert_msg(a->m == b->m, #m)
  SAME_INT(max_tokens);
  SAME_INT(has_max_tokens);
  SAME_INT(min_tokens);
  SAME_INT(top_k);
  SAME_INT(n);
  SAME_INT(num_beams);
  SAME_INT(has_num_beams);
  SAME_NUM(length_penalty);
  SAME_INT(has_length_penalty);
  SAME_INT(early_stopping);
  SAME_INT(has_early_stopping);
  SAME_INT(logprobs);
  SAME_INT(priority);
  SAME_INT(deadline_ms);
  SAME_INT(has_temperature);
  SAME_INT(has_top_p);
  SAME_INT(has_top_k);
  SAME_INT(has_repetition_penalty);
  SAME_INT(has_seed);
  SAME_INT(ignore_eos);
  SAME_INT(echo);
  SAME_INT(num_stop_token_ids);
  SAME_INT(num_logit_bias);
  SAME_NUM(temperature);
  SAME_NUM(top_p);
  SAME_NUM(min_p);
  SAME_NUM(repetition_penalty);
  SAME_NUM(presence_penalty);
  SAME_NUM(frequency_penalty);
  ck_assert(a->seed == b->seed);
  ck_assert(!memcmp(a->stop_token_ids, b->stop_token_ids, (size_t)a->num_stop_token_ids * 4));
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
  tri_wire_buf buf = {0};
  tri_client_msg in = {.op = TRI_OP_SUBMIT, .id = 42}, out;
  uint64_t id;
  tri_error err = {0};
  fill_submit(&in.submit);
  ck_assert_int_eq(tri_client_msg_encode(&in, &buf), TRI_OK);
  ck_assert_msg(tri_client_msg_decode(buf.data, buf.len, a, &out, &id, &err) == TRI_OK, "%s: %s", err.field,
                err.message);
  ck_assert(id == 42 && out.id == 42 && out.op == TRI_OP_SUBMIT);
  ck_assert(out.submit.has_request_id && !memcmp(&out.submit.request_id, &in.submit.request_id, 16));
  ck_str(out.submit.model, "abacus");
  ck_str(out.submit.prompt, "Hello, \xc3\xa4 \xff world");
  ck_assert(!out.submit.stream && out.submit.on_disconnect == TRI_DISCONNECT_CONTINUE && !out.submit.token_ids);
  check_sampling(&in.submit.sampling, &out.submit.sampling, true);

  /* Defaults: only the prompt travels. */
  tri_submit_init(&in.submit);
  in.submit.token_ids = ids4;
  in.submit.num_token_ids = 4;
  ck_assert_int_eq(tri_client_msg_encode(&in, &buf), TRI_OK);
  ck_assert_uint_lt(buf.len, 60);
  ck_assert_int_eq(tri_client_msg_decode(buf.data, buf.len, a, &out, &id, &err), TRI_OK);
  check_sampling(&in.submit.sampling, &out.submit.sampling, true);
  ck_assert(out.submit.stream && !out.submit.prompt.s && out.submit.num_token_ids == 4 &&
            !memcmp(out.submit.token_ids, ids4, sizeof ids4));

  in = (tri_client_msg){.op = TRI_OP_ATTACH, .id = 1, .attach = {.request_id.bytes = {1, 2, 3}, .offset = 99}};
  ck_assert_int_eq(tri_client_msg_encode(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_client_msg_decode(buf.data, buf.len, a, &out, &id, &err), TRI_OK);
  ck_assert(out.attach.offset == 99 && out.attach.request_id.bytes[2] == 3);
  in = (tri_client_msg){.op = TRI_OP_CANCEL, .id = 1, .cancel.target = 5};
  ck_assert_int_eq(tri_client_msg_encode(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_client_msg_decode(buf.data, buf.len, a, &out, &id, &err), TRI_OK);
  ck_assert(out.cancel.target == 5 && !out.cancel.has_request_id);
  tri_wire_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(round_trip_server) {
  tri_arena *a = arena();
  tri_wire_buf buf = {0};
  tri_error err = {0};
  static tri_server_msg in, out;
  tri_token_logprobs l[2] = {{-0.25f, 2, ids4, floats2}, {-INFINITY, 0, NULL, NULL}};
  tri_choice_tokens ct[2] = {choice_tokens(l), choice_tokens(NULL)};
  in = (tri_server_msg){.op = TRI_REPLY_TOKENS, .id = 2, .tokens = {2, ct}};
  ck_assert_int_eq(tri_server_msg_encode(&in, &buf), TRI_OK);
  ck_assert_msg(tri_server_msg_decode(buf.data, buf.len, a, &out, &err) == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert(out.id == 2 && out.tokens.num == 2);
  const tri_choice_tokens *c = out.tokens.choices;
  ck_assert(c[0].index == 1 && c[0].offset == 1000 && c[0].num_ids == 2 && c[0].ids[1] == 50256);
  ck_str(c[1].text, " four");
  ck_assert(c[0].logprobs && !c[1].logprobs && c[0].logprobs[0].num_top == 2 && c[0].logprobs[0].top_ids[1] == 50256);
  ck_assert_float_eq(c[0].logprobs[0].logprob, -0.25f);
  ck_assert_float_eq(c[0].logprobs[0].top_logprobs[1], -1.25f);
  ck_assert(isinf(c[0].logprobs[1].logprob) && !c[0].logprobs[1].num_top);

  for (int only = 0; only < 2; only++) {
    in = (tri_server_msg){.op = TRI_REPLY_ACCEPTED, .id = 3, .accepted = {.prompt_tokens = 5, .token_ids_only = only}};
    ck_assert_int_eq(tri_server_msg_encode(&in, &buf), TRI_OK);
    ck_assert_int_eq(tri_server_msg_decode(buf.data, buf.len, a, &out, &err), TRI_OK);
    ck_assert(out.accepted.prompt_tokens == 5 && out.accepted.token_ids_only == only && !out.accepted.existing);
  }

  in = (tri_server_msg){.op = TRI_REPLY_STATUS, .id = 7};
  fill_status(&in.status);
  ck_assert_int_eq(tri_server_msg_encode(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_server_msg_decode(buf.data, buf.len, a, &out, &err), TRI_OK);
  ck_str(out.status.model, "abacus");
  ck_str(out.status.task, "generate");
  ck_assert(out.status.num_groups == 2 && out.status.groups[1].steps == 77 && out.status.ranks[0].pid == 4711 &&
            out.status.vocab_size == 50257);
  ck_str(out.status.groups[1].state, "ready");
  ck_assert_double_eq(out.status.groups[1].scheduler_us_per_token, 0.25);

  in = (tri_server_msg){.op = TRI_REPLY_FLOORS, .id = 8, .floors = {.num_groups = 1}};
  in.floors.groups[0] = (tri_group_floors){.group = 3, .ranks = 4, .measured = 2, .sum = {1e10, 2e11, 3, 4, 5.5}};
  ck_assert_int_eq(tri_server_msg_encode(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_server_msg_decode(buf.data, buf.len, a, &out, &err), TRI_OK);
  ck_assert(out.floors.num_groups == 1 && out.floors.groups[0].ranks == 4 && out.floors.groups[0].measured == 2);
  ck_assert_double_eq(out.floors.groups[0].sum.flops_per_s, 2e11);
  ck_assert_double_eq(out.floors.groups[0].sum.output_token_flops, 5.5);
  in.floors.num_groups = TRI_STATUS_MAX_GROUPS + 1;
  ck_assert_int_eq(tri_server_msg_encode(&in, &buf), TRI_INVALID_ARGUMENT);

  in = (tri_server_msg){.op = TRI_REPLY_DONE, .id = 2, .done = {.num_choices = 1, .prompt_tokens = 5, .total_ms = 30}};
  in.done.choices[0] = (struct tri_done_choice){TRI_FINISH_ABORT, str("whole"), 16};
  in.done.timed_out = true;
  ck_assert_int_eq(tri_server_msg_encode(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_server_msg_decode(buf.data, buf.len, a, &out, &err), TRI_OK);
  ck_assert(out.done.num_choices == 1 && out.done.choices[0].reason == TRI_FINISH_ABORT &&
            out.done.choices[0].completion_tokens == 16 && out.done.timed_out);
  ck_str(out.done.choices[0].text, "whole");
  tri_wire_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(round_trip_group) {
  tri_arena *a = arena();
  tri_wire_buf buf = {0};
  tri_error err = {0};
  static tri_group_msg in, out;
  tri_group_token t[3] = {{.job = 1, .choice = 2, .token = 3, .offset = 4},
                          {.job = UINT64_MAX,
                           .token = UINT32_MAX,
                           .offset = 1u << 20,
                           .flags = TRI_TOKEN_LAST | TRI_TOKEN_LOGPROB,
                           .reason = TRI_FINISH_LENGTH,
                           .logprob = -2,
                           .num_top = 2,
                           .top_ids = ids4,
                           .top_logprobs = floats2},
                          {.job = 5, .flags = TRI_TOKEN_LOGPROB, .logprob = -INFINITY}};
  in = (tri_group_msg){.op = TRI_GROUP_TOKENS, .seq = 3, .tokens = {.epoch = 1, .step = 2, .num = 3, .tokens = t}};
  ck_assert_int_eq(tri_group_msg_encode(&in, &buf), TRI_OK);
  ck_assert_msg(tri_group_msg_decode(buf.data, buf.len, a, &out, &err) == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert(out.seq == 3 && out.tokens.num == 3 && out.tokens.epoch == 1 && out.tokens.step == 2);
  const tri_group_token *k = out.tokens.tokens;
  ck_assert(k[0].job == 1 && k[0].choice == 2 && k[0].token == 3 && k[0].offset == 4 && !k[0].flags);
  ck_assert(k[1].job == UINT64_MAX && k[1].token == UINT32_MAX && k[1].reason == TRI_FINISH_LENGTH &&
            k[1].num_top == 2 && k[1].top_ids[1] == 50256);
  ck_assert_float_eq(k[1].top_logprobs[1], -1.25f);
  ck_assert(isinf(k[2].logprob) && k[2].num_top == 0);

  tri_submit sub;
  fill_submit(&sub);
  in = (tri_group_msg){.op = TRI_GROUP_ASSIGN, .seq = 7};
  in.assign = (tri_group_assign){.job = 1,
                                 .epoch = 2,
                                 .seed = 3,
                                 .offset = 4,
                                 .remaining_ms = -1,
                                 .token_ids = ids4,
                                 .num_token_ids = 4,
                                 .sampling = sub.sampling};
  in.assign.sampling.seed = 3;
  ck_assert_int_eq(tri_group_msg_encode(&in, &buf), TRI_OK);
  ck_assert_msg(tri_group_msg_decode(buf.data, buf.len, a, &out, &err) == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert(out.assign.job == 1 && out.assign.seed == 3 && out.assign.remaining_ms == -1 &&
            out.assign.num_token_ids == 4);
  check_sampling(&in.assign.sampling, &out.assign.sampling, false);
  ck_assert_int_eq(out.assign.sampling.num_stop, 0);

  /* The model's own values, filled in by the coordinator without calling them given. */
  tri_submit_init(&sub);
  in.assign.sampling = sub.sampling;
  in.assign.sampling.temperature = 0.6;
  ck_assert_int_eq(tri_group_msg_encode(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_group_msg_decode(buf.data, buf.len, a, &out, &err), TRI_OK);
  ck_assert_double_eq(out.assign.sampling.temperature, 0.6);
  ck_assert(!out.assign.sampling.has_top_p);
  tri_wire_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

/* Every message encodes to what decodes to what encodes to the same bytes, and msgpack-c's own unpacker accepts them.
 */
START_TEST(stable) {
  sample s[MAX_SAMPLES];
  int n = make_samples(s);
  for (int i = 0; i < n; i++) {
    tri_arena *a = arena();
    tri_error err = {0};
    tri_wire_buf again = {0};
    msgpack_unpacked oracle;
    msgpack_unpacked_init(&oracle);
    size_t off = 0;
    ck_assert_int_eq(msgpack_unpack_next(&oracle, s[i].buf.data, s[i].buf.len, &off), MSGPACK_UNPACK_SUCCESS);
    ck_assert_uint_eq(off, s[i].buf.len);
    msgpack_unpacked_destroy(&oracle);
    static tri_client_msg c;
    static tri_server_msg r;
    static tri_group_msg g;
    uint64_t id;
    tri_status st;
    if (s[i].kind == CLIENT) {
      st = tri_client_msg_decode(s[i].buf.data, s[i].buf.len, a, &c, &id, &err);
      if (!st) st = tri_client_msg_encode(&c, &again);
    } else if (s[i].kind == SERVER) {
      st = tri_server_msg_decode(s[i].buf.data, s[i].buf.len, a, &r, &err);
      if (!st) st = tri_server_msg_encode(&r, &again);
    } else {
      st = tri_group_msg_decode(s[i].buf.data, s[i].buf.len, a, &g, &err);
      if (!st) st = tri_group_msg_encode(&g, &again);
    }
    ck_assert_msg(st == TRI_OK, "%s: %s: %s", s[i].name, err.field, err.message);
    ck_assert_msg(again.len == s[i].buf.len && !memcmp(again.data, s[i].buf.data, again.len), "%s", s[i].name);
    tri_wire_buf_free(&again);
    tri_arena_destroy(a);
  }
  free_samples(s, n);
}
END_TEST

/* ---- refusals: one request field after another ---- */

typedef struct refusal {
  const char *key;
  void (*value)(msgpack_packer *k);
  tri_status status;
  const char *field;
} refusal;

static void v_str(msgpack_packer *k) { msgpack_pack_str_with_body(k, "text", 4); }
static void v_empty(msgpack_packer *k) { msgpack_pack_str_with_body(k, "", 0); }
static void v_never(msgpack_packer *k) { msgpack_pack_str_with_body(k, "never", 5); }
static void v_true(msgpack_packer *k) { msgpack_pack_true(k); }
static void v_false(msgpack_packer *k) { msgpack_pack_false(k); }
static void v_nil(msgpack_packer *k) { msgpack_pack_nil(k); }
static void v_0(msgpack_packer *k) { msgpack_pack_int(k, 0); }
static void v_1(msgpack_packer *k) { msgpack_pack_int(k, 1); }
static void v_4(msgpack_packer *k) { msgpack_pack_int(k, 4); }
static void v_65(msgpack_packer *k) { msgpack_pack_int(k, 65); }
static void v_minus_2(msgpack_packer *k) { msgpack_pack_int(k, -2); }
static void v_huge(msgpack_packer *k) { msgpack_pack_uint64(k, UINT64_MAX); }
static void v_lowest(msgpack_packer *k) { msgpack_pack_int64(k, INT64_MIN); }
static void v_1_5(msgpack_packer *k) { msgpack_pack_double(k, 1.5); }
static void v_101(msgpack_packer *k) { msgpack_pack_double(k, 101); }
static void v_nan(msgpack_packer *k) { msgpack_pack_double(k, NAN); }
static void v_inf(msgpack_packer *k) { msgpack_pack_float(k, INFINITY); }
static void v_bin3(msgpack_packer *k) { msgpack_pack_bin_with_body(k, "abc", 3); }
static void v_array0(msgpack_packer *k) { msgpack_pack_array(k, 0); }
static void v_array_nil(msgpack_packer *k) { msgpack_pack_array(k, 1), msgpack_pack_nil(k); }
static void v_array_big(msgpack_packer *k) { msgpack_pack_array(k, 1), msgpack_pack_uint64(k, 1ULL << 32); }
static void v_stops17(msgpack_packer *k) {
  msgpack_pack_array(k, 17);
  for (int i = 0; i < 17; i++) v_str(k);
}
static void v_ints33(msgpack_packer *k) {
  msgpack_pack_array(k, 33);
  for (int i = 0; i < 33; i++) v_1(k);
}
static void v_map0(msgpack_packer *k) { msgpack_pack_map(k, 0); }
static void v_map_1_1(msgpack_packer *k) { msgpack_pack_map(k, 1), v_1(k), v_1(k); }
static void v_map_digits(msgpack_packer *k) {
  msgpack_pack_map(k, 1), msgpack_pack_str_with_body(k, "4294967295", 10), v_minus_2(k);
}
static void v_map_over(msgpack_packer *k) {
  msgpack_pack_map(k, 1), msgpack_pack_str_with_body(k, "4294967296", 10), v_1(k);
}
static void v_map_word(msgpack_packer *k) { msgpack_pack_map(k, 1), v_str(k), v_1(k); }
static void v_map_101(msgpack_packer *k) { msgpack_pack_map(k, 1), v_1(k), v_101(k); }
static void v_map_nan(msgpack_packer *k) { msgpack_pack_map(k, 1), v_1(k), v_nan(k); }
static void v_map_twice(msgpack_packer *k) {
  msgpack_pack_map(k, 2), v_1(k), v_1(k), msgpack_pack_str_with_body(k, "1", 1), v_1(k);
}
static void v_map_513(msgpack_packer *k) {
  msgpack_pack_map(k, 513);
  for (int i = 0; i < 513; i++) msgpack_pack_int(k, i), v_1(k);
}
static void v_map_512(msgpack_packer *k) {
  msgpack_pack_map(k, 512);
  for (int i = 0; i < 512; i++) msgpack_pack_int(k, i * 1024), v_1(k);
}

#define BAD TRI_INVALID_ARGUMENT
#define RANGE TRI_OUT_OF_RANGE
static const refusal refusals[] = {
    {"max_tokens", v_4, TRI_OK, ""},
    {"max_tokens", v_nil, TRI_OK, ""},
    {"max_tokens", v_0, RANGE, "max_tokens"},
    {"max_tokens", v_minus_2, RANGE, "max_tokens"},
    {"max_tokens", v_huge, RANGE, "max_tokens"},
    {"max_tokens", v_lowest, RANGE, "max_tokens"},
    {"max_tokens", v_1_5, BAD, "max_tokens"},
    {"max_tokens", v_str, BAD, "max_tokens"},
    {"max_tokens", v_map0, BAD, "max_tokens"},
    {"min_tokens", v_65, RANGE, "min_tokens"},
    {"temperature", v_1, TRI_OK, ""},
    {"temperature", v_nan, RANGE, "temperature"},
    {"temperature", v_inf, RANGE, "temperature"},
    {"temperature", v_101, RANGE, "temperature"},
    {"temperature", v_minus_2, RANGE, "temperature"},
    {"temperature", v_true, BAD, "temperature"},
    {"top_p", v_1_5, RANGE, "top_p"},
    {"min_p", v_1_5, RANGE, "min_p"},
    {"top_k", v_0, TRI_OK, ""},
    {"top_k", v_minus_2, RANGE, "top_k"},
    {"top_k", v_huge, RANGE, "top_k"},
    {"repetition_penalty", v_0, RANGE, "repetition_penalty"},
    {"presence_penalty", v_4, RANGE, "presence_penalty"},
    {"frequency_penalty", v_4, RANGE, "frequency_penalty"},
    {"seed", v_huge, TRI_OK, ""},
    {"seed", v_minus_2, RANGE, "seed"},
    {"seed", v_1_5, BAD, "seed"},
    {"n", v_65, RANGE, "n"},
    {"n", v_0, RANGE, "n"},
    {"logprobs", v_true, TRI_OK, ""},
    {"logprobs", v_false, TRI_OK, ""},
    {"logprobs", v_4, TRI_OK, ""},
    {"logprobs", v_65, RANGE, "logprobs"},
    {"logprobs", v_str, BAD, "logprobs"},
    {"top_logprobs", v_4, TRI_OK, ""},
    {"top_logprobs", v_true, BAD, "top_logprobs"},
    {"top_logprobs", v_65, RANGE, "top_logprobs"},
    {"stop", v_str, TRI_OK, ""},
    {"stop", v_array0, TRI_OK, ""},
    {"stop", v_empty, RANGE, "stop"},
    {"stop", v_array_nil, BAD, "stop"},
    {"stop", v_stops17, RANGE, "stop"},
    {"stop", v_1, BAD, "stop"},
    {"stop_token_ids", v_array0, TRI_OK, ""},
    {"stop_token_ids", v_array_big, BAD, "stop_token_ids"},
    {"stop_token_ids", v_ints33, RANGE, "stop_token_ids"},
    {"stop_token_ids", v_bin3, BAD, "stop_token_ids"},
    {"logit_bias", v_map_1_1, TRI_OK, ""},
    {"logit_bias", v_map_digits, TRI_OK, ""},
    {"logit_bias", v_map_512, TRI_OK, ""},
    {"logit_bias", v_map_over, BAD, "logit_bias"},
    {"logit_bias", v_map_word, BAD, "logit_bias"},
    {"logit_bias", v_map_101, RANGE, "logit_bias"},
    {"logit_bias", v_map_nan, RANGE, "logit_bias"},
    {"logit_bias", v_map_twice, BAD, "logit_bias"},
    {"logit_bias", v_map_513, RANGE, "logit_bias"},
    {"logit_bias", v_array0, BAD, "logit_bias"},
    {"ignore_eos", v_1, BAD, "ignore_eos"},
    {"echo", v_str, BAD, "echo"},
    {"stream", v_0, BAD, "stream"},
    {"on_disconnect", v_str, BAD, "on_disconnect"},
    {"priority", v_minus_2, TRI_OK, ""},
    {"priority", v_huge, RANGE, "priority"},
    {"deadline_ms", v_minus_2, RANGE, "deadline_ms"},
    {"request_id", v_str, BAD, "request_id"},
    {"request_id", v_bin3, BAD, "request_id"},
    {"model", v_1, BAD, "model"},
    {"token_ids", v_ints33, BAD, "token_ids"}, /* beside prompt */
    {"num_beams", v_1, TRI_OK, ""},
    {"num_beams", v_4, TRI_OK, ""},
    {"num_beams", v_0, RANGE, "num_beams"},
    {"num_beams", v_65, RANGE, "num_beams"},
    {"num_beams", v_1_5, BAD, "num_beams"},
    {"best_of", v_4, TRI_UNSUPPORTED, "best_of"},
    {"best_of", v_1, TRI_OK, ""},
    {"length_penalty", v_1_5, TRI_OK, ""},
    {"length_penalty", v_minus_2, TRI_OK, ""},
    {"length_penalty", v_101, RANGE, "length_penalty"},
    {"length_penalty", v_nan, RANGE, "length_penalty"},
    {"length_penalty", v_true, BAD, "length_penalty"},
    {"early_stopping", v_false, TRI_OK, ""},
    {"early_stopping", v_true, TRI_OK, ""},
    {"early_stopping", v_never, TRI_OK, ""},
    {"early_stopping", v_str, BAD, "early_stopping"},
    {"early_stopping", v_empty, BAD, "early_stopping"},
    {"early_stopping", v_1, BAD, "early_stopping"},
    {"messages", v_array0, TRI_UNSUPPORTED, "messages"},
    {"input", v_str, TRI_UNKNOWN_FIELD, "input"},
    {"temprature", v_1, TRI_UNKNOWN_FIELD, "temprature"},
    {"", v_1, TRI_UNKNOWN_FIELD, ""},
};

static void begin(msgpack_sbuffer *b, msgpack_packer *k, uint32_t pairs, const char *op, uint64_t id) {
  msgpack_sbuffer_init(b);
  msgpack_packer_init(k, b, msgpack_sbuffer_write);
  msgpack_pack_map(k, pairs);
  msgpack_pack_str_with_body(k, "v", 1);
  msgpack_pack_int(k, 1);
  msgpack_pack_str_with_body(k, "op", 2);
  msgpack_pack_str_with_body(k, op, strlen(op));
  msgpack_pack_str_with_body(k, "id", 2);
  msgpack_pack_uint64(k, id);
}

START_TEST(fields_refused) {
  const refusal *r = &refusals[_i];
  msgpack_sbuffer b;
  msgpack_packer k;
  tri_client_msg m;
  uint64_t id = 0;
  tri_error err = {0};
  tri_arena *a = arena();
  begin(&b, &k, 5, "submit", 77);
  msgpack_pack_str_with_body(&k, "prompt", 6);
  msgpack_pack_str_with_body(&k, "x", 1);
  msgpack_pack_str_with_body(&k, r->key, strlen(r->key));
  r->value(&k);
  tri_status st = tri_client_msg_decode(b.data, b.size, a, &m, &id, &err);
  ck_assert_msg(st == r->status, "%s (case %d): %s %s", r->key, _i, tri_status_name(st), err.message);
  ck_assert_uint_eq(id, 77);
  if (st) {
    ck_assert_str_eq(err.field, r->field);
    ck_assert_msg(strlen(err.message) > 10, "%s", err.message);
  }
  msgpack_sbuffer_destroy(&b);
  tri_arena_destroy(a);
}
END_TEST

static tri_status decode_bytes(const char *bytes, size_t len, uint64_t *id, tri_error *err) {
  tri_client_msg m;
  tri_arena *a = arena();
  *err = (tri_error){0};
  tri_status st = tri_client_msg_decode(bytes, len, a, &m, id, err);
  tri_arena_destroy(a);
  return st;
}
#define DECODE(literal) decode_bytes(literal, sizeof(literal) - 1, &id, &err)

START_TEST(envelope_refused) {
  uint64_t id;
  tri_error err;
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6status\xa2id\x05"), TRI_OK);
  ck_assert_int_eq(DECODE("\x83\xa2id\x05\xa2op\xa6status\xa1v\x01"), TRI_OK);
  ck_assert_uint_eq(id, 5);
  ck_assert_int_eq(DECODE("\x82\xa2op\xa6status\xa2id\x05"), BAD);
  ck_assert_str_eq(err.field, "v");
  ck_assert_uint_eq(id, 5);
  ck_assert_int_eq(DECODE("\x82\xa1v\x01\xa2id\x05"), BAD);
  ck_assert_str_eq(err.field, "op");
  ck_assert_int_eq(DECODE("\x82\xa1v\x01\xa2op\xa6status"), BAD);
  ck_assert_str_eq(err.field, "id");
  ck_assert_int_eq(DECODE("\x83\xa1v\x02\xa2op\xa6status\xa2id\x05"), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "v");
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6statut\xa2id\x05"), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "op");
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6status\xa2id\xff"), BAD);
  ck_assert_str_eq(err.field, "id");
  /* twice */
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6status\xa2id\x05\xa2id\x06"), BAD);
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa1v\x01\xa2op\xa6status\xa2id\x05"), BAD);
  ck_assert_int_eq(DECODE("\x85\xa1v\x01\xa2op\xa6submit\xa2id\x05\xa6prompt\xa1x\xa6prompt\xa1y"), BAD);
  ck_assert_str_eq(err.field, "prompt");
  /* a field of another op, a key that is no string, a name that is no text */
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6status\xa2id\x05\xa1n\x01"), TRI_UNKNOWN_FIELD);
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6status\xa2id\x05\x05\x01"), BAD);
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6status\xa2id\x05\xa3\x1b[H\x01"), TRI_UNKNOWN_FIELD);
  ck_assert_str_eq(err.field, "?[H");
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa5"
                          "embed\xa2id\x05\xa5input\xa1x"),
                   TRI_UNKNOWN_FIELD);
  /* cancel needs exactly one name, attach its request_id, submit a prompt */
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6"
                          "cancel\xa2id\x05"),
                   BAD);
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6"
                          "attach\xa2id\x05"),
                   BAD);
  ck_assert_str_eq(err.field, "request_id");
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6submit\xa2id\x05"), BAD);
  ck_assert_str_eq(err.field, "prompt");
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6submit\xa2id\x05\xa9token_ids\xc4\x00"), BAD);
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6submit\xa2id\x05\xa6prompt\xc4\x02\xff\xfe"), TRI_OK);
}
END_TEST

/* ---- hostile bytes ---- */

START_TEST(malformed) {
  static const struct {
    const char *bytes;
    size_t len;
  } cases[] = {
#define CASE(literal) {literal, sizeof(literal) - 1}
      CASE(""),
      CASE("\xc0"),
      CASE("\x90"),
      CASE("\xc1"),
      CASE("\x80\x80"),             /* something after the map */
      CASE("\xdf\xff\xff\xff\xff"), /* four billion pairs */
      CASE("\xde\xff\xff"),
      CASE("\x81\xa1x\xdd\xff\xff\xff\xff"), /* four billion values */
      CASE("\x81\xa1x\xdc\xff\xff"),
      CASE("\x81\xa1x\xdf\x80\x00\x00\x00\x01\x01"), /* 2 * pairs overflows 32 bits */
      CASE("\x81\xa1x\xdb\xff\xff\xff\xff"
           "a"), /* strings and binary longer than what is left */
      CASE("\x81\xa1x\xc6\xff\xff\xff\xff"
           "a"),
      CASE("\x81\xa1x\xc4\x02"
           "a"),
      CASE("\x81\xa1x\xd9\x02"
           "a"),
      CASE("\x81\xa1x\xd4\x01"
           "a"), /* extension types */
      CASE("\x81\xa1x\xd6\xff"
           "abcd"),
      CASE("\x81\xa1x\xc7\x01\x05"
           "a"),
      CASE("\x81\xa1x\xc1"),
      CASE("\x81\xa1x"),
      CASE("\x81\xa1x\xcb\x00"),
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int kind = 0; kind < 3; kind++) {
      tri_error err = {0};
      tri_arena *a = arena();
      char *copy = malloc(cases[i].len ? cases[i].len : 1); /* exact size: a read beyond it is seen */
      memcpy(copy, cases[i].bytes, cases[i].len);
      ck_assert_msg(decode((which)kind, copy, cases[i].len, a, &err) == TRI_CORRUPT, "case %zu", i);
      free(copy);
      tri_arena_destroy(a);
    }
}
END_TEST

START_TEST(depth) {
  /* {"x": [[[...]]]}: the map is level 1, so seven arrays pass the walk and eight do not. */
  for (int arrays = 1; arrays < 200000; arrays = arrays < 12 ? arrays + 1 : arrays * 7) {
    char *b = malloc((size_t)arrays + 4);
    memcpy(b, "\x81\xa1x", 3);
    memset(b + 3, 0x91, (size_t)arrays);
    b[3 + arrays] = 1;
    tri_error err = {0};
    tri_status st = tri_unpack_check(b, (size_t)arrays + 4, &err);
    ck_assert_msg(st == (arrays <= 7 ? TRI_OK : TRI_CORRUPT), "%d arrays: %s", arrays, err.message);
    free(b);
  }
}
END_TEST

/* Frames of several messages: each is found, in order, and what is behind a whole one does not count against it. */
START_TEST(several_in_a_frame) {
  char frame[1000];
  size_t len = 0, used = 0, ends[3];
  tri_wire_buf buf = {0};
  tri_error err = {0};
  tri_arena *a = arena();
  static tri_server_msg m;
  for (uint64_t i = 0; i < 3; i++) {
    m.op = TRI_REPLY_ACCEPTED;
    m.id = 70 + i;
    ck_assert_int_eq(tri_server_msg_encode(&m, &buf), TRI_OK);
    memcpy(frame + len, buf.data, buf.len);
    ends[i] = len += buf.len;
  }
  for (size_t at = 0, i = 0; i < 3; i++, at += used) {
    ck_assert_int_eq(tri_server_msg_first(frame + at, len - at, &used, &err), TRI_OK);
    ck_assert_uint_eq(at + used, ends[i]);
    ck_assert_int_eq(tri_server_msg_decode(frame + at, used, a, &m, &err), TRI_OK);
    ck_assert_uint_eq(m.id, 70 + i);
  }
  /* One decoder call is one message, and a message that is cut off has no end. */
  ck_assert_int_eq(tri_server_msg_decode(frame, len, a, &m, &err), TRI_CORRUPT);
  ck_assert_int_eq(tri_client_msg_decode(frame, len, a, &(tri_client_msg){0}, &(uint64_t){0}, &err), TRI_CORRUPT);
  for (size_t n = 0; n < ends[0]; n++) ck_assert_int_eq(tri_server_msg_first(frame, n, &used, &err), TRI_CORRUPT);
  frame[ends[0]] = 1; /* what follows is looked at when its turn comes */
  ck_assert_int_eq(tri_group_msg_first(frame, len, &used, &err), TRI_OK);
  ck_assert_uint_eq(used, ends[0]);
  ck_assert_int_eq(tri_group_msg_first(frame + used, len - used, &used, &err), TRI_CORRUPT);
  tri_wire_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(too_large) {
  char *b = calloc(1, TRI_WIRE_MAX_MESSAGE + 1);
  tri_error err = {0};
  b[0] = (char)0x80;
  ck_assert_int_eq(tri_unpack_check(b, TRI_WIRE_MAX_MESSAGE + 1, &err), TRI_TOO_LARGE);
  /* and nothing larger is made */
  tri_client_msg m = {.op = TRI_OP_SUBMIT, .id = 1};
  tri_wire_buf buf = {0};
  tri_submit_init(&m.submit);
  m.submit.prompt = (tri_wire_str){b, TRI_WIRE_MAX_MESSAGE};
  ck_assert_int_eq(tri_client_msg_encode(&m, &buf), TRI_TOO_LARGE);
  m.submit.prompt.len = TRI_WIRE_MAX_MESSAGE - 100;
  ck_assert_int_eq(tri_client_msg_encode(&m, &buf), TRI_OK);
  tri_wire_buf_free(&buf);
  free(b);
}
END_TEST

START_TEST(truncated) {
  sample s[MAX_SAMPLES];
  int n = make_samples(s);
  for (int i = 0; i < n; i++) {
    tri_arena *a = arena();
    for (size_t len = 0; len < s[i].buf.len; len++) {
      tri_error err = {0};
      char *copy = malloc(len ? len : 1);
      memcpy(copy, s[i].buf.data, len);
      tri_status st = decode(s[i].kind, copy, len, a, &err);
      ck_assert_msg(st == TRI_CORRUPT, "%s cut to %zu of %zu: %s", s[i].name, len, s[i].buf.len, tri_status_name(st));
      ck_assert(err.message[0]);
      free(copy);
    }
    tri_arena_destroy(a);
  }
  free_samples(s, n);
}
END_TEST

START_TEST(bit_flips) {
  sample s[MAX_SAMPLES];
  int n = make_samples(s);
  unsigned refused = 0;
  for (int i = 0; i < n; i++) {
    char *copy = malloc(s[i].buf.len);
    for (size_t bit = 0; bit < 8 * s[i].buf.len; bit++) {
      tri_error err = {0};
      tri_arena *a = arena();
      memcpy(copy, s[i].buf.data, s[i].buf.len);
      copy[bit / 8] = (char)(copy[bit / 8] ^ 1 << (bit % 8));
      tri_status st = decode(s[i].kind, copy, s[i].buf.len, a, &err);
      refused += st != TRI_OK;
      ck_assert_msg(!st || err.message[0], "%s, bit %zu: %s without a word", s[i].name, bit, tri_status_name(st));
      tri_arena_destroy(a);
    }
    free(copy);
  }
  ck_assert_uint_gt(refused, 1000);
  free_samples(s, n);
}
END_TEST

/* Reply fields of tomorrow are read over by the clients of today. */
START_TEST(unknown_reply_fields) {
  msgpack_sbuffer b;
  msgpack_packer k;
  static tri_server_msg m;
  tri_error err = {0};
  tri_arena *a = arena();
  begin(&b, &k, 5, "error", 3);
  msgpack_pack_str_with_body(&k, "novelty", 7);
  msgpack_pack_map(&k, 1), v_1(&k), v_array_nil(&k);
  msgpack_pack_str_with_body(&k, "code", 4);
  v_str(&k);
  ck_assert_msg(tri_server_msg_decode(b.data, b.size, a, &m, &err) == TRI_OK, "%s", err.message);
  ck_str(m.error.code, "text");
  msgpack_sbuffer_destroy(&b);
  tri_arena_destroy(a);
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
  tri_wire_buf buf = {0};
  tri_error err = {0};
  uint64_t id;
  static tri_client_msg c, c_out;
  static tri_group_msg g, g_out;
  for (tri_early_stopping e = TRI_EARLY_FALSE; e <= TRI_EARLY_NEVER; e++)
    for (int given = 0; given < 2; given++) {
      tri_submit s = beam_submit();
      s.sampling.early_stopping = e;
      s.sampling.has_num_beams = s.sampling.has_length_penalty = s.sampling.has_early_stopping = given;
      g = (tri_group_msg){.op = TRI_GROUP_ASSIGN, .assign = {.token_ids = ids4, .num_token_ids = 4}};
      g.assign.sampling = s.sampling;
      ck_assert_int_eq(tri_group_msg_encode(&g, &buf), TRI_OK);
      ck_assert_msg(tri_group_msg_decode(buf.data, buf.len, a, &g_out, &err) == TRI_OK, "%s", err.message);
      ck_assert_int_eq(g_out.assign.sampling.num_beams, 4);
      ck_assert_double_eq(g_out.assign.sampling.length_penalty, -0.5);
      ck_assert_int_eq(g_out.assign.sampling.early_stopping, e);
      c = (tri_client_msg){.op = TRI_OP_SUBMIT, .id = 1, .submit = s};
      if (!given) c.submit.sampling.n = 1; /* the default of num_beams goes along */
      ck_assert_int_eq(tri_client_msg_encode(&c, &buf), TRI_OK);
      ck_assert_msg(tri_client_msg_decode(buf.data, buf.len, a, &c_out, &id, &err) == TRI_OK, "%s", err.message);
      const tri_sampling *p = &c_out.submit.sampling;
      ck_assert_int_eq(p->num_beams, given ? 4 : 1);
      ck_assert_double_eq(p->length_penalty, given ? -0.5 : 1);
      ck_assert_int_eq(p->early_stopping, given ? e : TRI_EARLY_FALSE);
      ck_assert(p->has_num_beams == given && p->has_length_penalty == given && p->has_early_stopping == given);
    }
  tri_wire_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

/* What has no meaning beside a search is refused by its name, from a client and from a coordinator. */
START_TEST(beams_refused) {
  static const char *const fields[] = {"logprobs",         "logit_bias",        "repetition_penalty",
                                       "presence_penalty", "frequency_penalty", "n"};
  struct tri_wire_bias bias = {1, 1};
  static tri_client_msg c, out;
  uint64_t id;
  for (int i = 0; i < 6; i++)
    for (int beams = 1; beams <= 4; beams += 3) {
      tri_arena *a = arena();
      tri_wire_buf buf = {0};
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
      c = (tri_client_msg){.op = TRI_OP_SUBMIT, .id = 1, .submit = s};
      ck_assert_int_eq(tri_client_msg_encode(&c, &buf), TRI_OK);
      tri_status st = tri_client_msg_decode(buf.data, buf.len, a, &out, &id, &err);
      ck_assert_int_eq(st, beams == 1 ? TRI_OK : i == 5 ? TRI_OUT_OF_RANGE : TRI_UNSUPPORTED);
      if (st) ck_assert_str_eq(err.field, fields[i]);
      tri_wire_buf_free(&buf);
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
  tri_wire_buf buf;
  tri_arena *arena;
  unsigned failures; /* an assertion writes to a file: too slow to be in the loop */
  const tri_group_msg *g;
  const tri_server_msg *s;
  tri_group_msg *g_out;
  tri_server_msg *s_out;
} cost;

static void encode_g(void *c) { tri_group_msg_encode(((cost *)c)->g, &((cost *)c)->buf); }
static void encode_s(void *c) { tri_server_msg_encode(((cost *)c)->s, &((cost *)c)->buf); }
static void decode_g(void *ctx) {
  cost *c = ctx;
  tri_arena_reset(c->arena);
  c->failures += tri_group_msg_decode(c->buf.data, c->buf.len, c->arena, c->g_out, NULL) != TRI_OK;
}
static void decode_s(void *ctx) {
  cost *c = ctx;
  tri_arena_reset(c->arena);
  c->failures += tri_server_msg_decode(c->buf.data, c->buf.len, c->arena, c->s_out, NULL) != TRI_OK;
}

/* Prints, and fails only far above what it should be: sanitizers and busy machines are slow. */
START_TEST(costs) {
  static tri_group_msg g_out;
  static tri_server_msg s, s_out;
  tri_group_token t[64];
  for (int i = 0; i < 64; i++)
    t[i] = (tri_group_token){.job = 100000u + (unsigned)i, .token = 1000u * (unsigned)i, .offset = 300};
  tri_group_msg g = {
      .op = TRI_GROUP_TOKENS, .seq = 3000, .tokens = {.epoch = 1, .step = 20000, .num = 64, .tokens = t}};
  cost c = {.arena = arena(), .g = &g, .g_out = &g_out, .s = &s, .s_out = &s_out};
  double eg = per_call_us(encode_g, &c, 2000) / 64, dg = per_call_us(decode_g, &c, 2000) / 64;
  tri_choice_tokens ct = {.offset = 300, .text = str(" four"), .ids = ids4, .num_ids = 1};
  s.op = TRI_REPLY_TOKENS;
  s.id = 200000;
  s.tokens.num = 1;
  s.tokens.choices = &ct;
  double es = per_call_us(encode_s, &c, 20000), ds = per_call_us(decode_s, &c, 20000);
  printf("group tokens (64): encode %.3f us, decode %.3f us per token; tokens reply: encode %.3f us, decode %.3f us\n",
         eg, dg, es, ds);
  ck_assert_uint_eq(c.failures, 0);
  ck_assert(eg < 20 && dg < 20 && es < 50 && ds < 50);
  tri_wire_buf_free(&c.buf);
  tri_arena_destroy(c.arena);
}
END_TEST

static void add_case(Suite *s, const char *name, const TTest *const *tests, size_t n) {
  TCase *c = tcase_create(name);
  tcase_set_timeout(c, 120);
  for (size_t i = 0; i < n; i++) tcase_add_test(c, tests[i]);
  suite_add_tcase(s, c);
}
#define ADD_CASE(name, ...)                                                                                            \
  do {                                                                                                                 \
    const TTest *const list[] = {__VA_ARGS__};                                                                         \
    add_case(s, name, list, sizeof list / sizeof *list);                                                               \
  } while (0)

Suite *suite_wire(void) {
  Suite *s = suite_create("wire");
  ADD_CASE("round_trip", round_trip_client, round_trip_server, round_trip_group, stable, request_ids, field_table,
           beams_round_trip, beams_refused);
  ADD_CASE("refused", envelope_refused, unknown_reply_fields);
  TCase *c = tcase_create("fields");
  tcase_add_loop_test(c, fields_refused, 0, sizeof refusals / sizeof *refusals);
  suite_add_tcase(s, c);
  ADD_CASE("hostile", malformed, depth, several_in_a_frame, too_large, truncated, bit_flips);
  ADD_CASE("cost", costs);
  return s;
}
