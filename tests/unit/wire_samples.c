/* SPDX-License-Identifier: Apache-2.0 */
#include "base/version.h"
#include "tests/unit/wire_samples.h"

#include <math.h>

tri_arena *arena(void) {
  tri_arena *a = NULL;
  ck_assert(tri_arena_create(1 << 16, &a) == TRI_OK);
  return a;
}

tri_status unpack(which kind, const void *data, size_t len, tri_arena *a, tri_error *err) {
  static tri_client_msg c;
  static tri_server_msg s;
  static tri_replica_msg g;
  uint64_t id;
  switch (kind) {
  case CLIENT: return tri_client_msg_unpack(data, len, a, &c, &id, err);
  case SERVER: return tri_server_msg_unpack(data, len, a, &s, err);
  default: return tri_replica_msg_unpack(data, len, a, &g, err);
  }
}

const uint32_t ids4[4] = {1, 50256, 7, UINT32_MAX};
const float floats2[2] = {-0.5f, -1.25f};
const tri_replica_token group_tokens[6] = {
    {.job = 1, .choice = 2, .token = 3, .offset = 4},
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
    {.job = 5,
     .flags = TRI_TOKEN_LOGPROB | TRI_TOKEN_PREEMPTED | TRI_TOKEN_WAITED,
     .preemptions = UINT32_MAX,
     .waited_ns = UINT64_MAX,
     .logprob = -INFINITY},
    {.job = 6, .flags = TRI_TOKEN_PREEMPTED, .preemptions = 3},
    {.job = 7, .flags = TRI_TOKEN_WAITED | TRI_TOKEN_CACHED, .waited_ns = 4, .cached = 5},
    {.job = 8, .token = 9, .offset = 1, .flags = TRI_TOKEN_PROMPT | TRI_TOKEN_LOGPROB, .logprob = -3}};

void fill_submit(tri_submit *s) {
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
  static const uint32_t allowed[] = {50, 51, 4000000000u};
  p->allowed_token_ids = allowed;
  p->num_allowed_token_ids = 3;
  p->constraint = (tri_wire_constraint){TRI_CONSTRAINT_JSON_SCHEMA,
                                        str("{\"type\":\"object\"}"),
                                        {str("<begin>"), str("<and>"), str("<end>"), TRI_WIRE_MAX_FRAME_MOST}};
  p->priority = -7;
  p->deadline_ms = 60000;
  p->truncate = -1;
  s->stream = s->add_special_tokens = s->cache = p->skip_special_tokens = false;
  s->return_token_ids = p->include_stop = true;
  s->cache_salt = str("of one tenant");
  s->caller = str("ann");
  s->external_id = str("ann-1");
  s->on_disconnect = TRI_DISCONNECT_CONTINUE;
}

static void keep_client(sample *out, int *n, const char *name, const tri_client_msg *m) {
  out[*n] = (sample){.kind = CLIENT, .name = name};
  ck_assert_int_eq(tri_client_msg_pack(m, &out[*n].buf), TRI_OK);
  ++*n;
}

static void keep_server(sample *out, int *n, const char *name, const tri_server_msg *m) {
  out[*n] = (sample){.kind = SERVER, .name = name};
  ck_assert_int_eq(tri_server_msg_pack(m, &out[*n].buf), TRI_OK);
  ++*n;
}

static void keep_group(sample *out, int *n, const char *name, const tri_replica_msg *m) {
  out[*n] = (sample){.kind = GROUP, .name = name};
  ck_assert_int_eq(tri_replica_msg_pack(m, &out[*n].buf), TRI_OK);
  ++*n;
}

tri_choice_tokens choice_tokens(const tri_token_logprobs *l) {
  return (tri_choice_tokens){
      .index = 1, .offset = 1000, .text = str(" four"), .ids = ids4, .num_ids = 2, .logprobs = l};
}

void fill_status(tri_cluster_status *s) {
  *s = (tri_cluster_status){.version = str(TRIREME_VERSION),
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
                            .requests_invalid = 6,
                            .requests_refused = 3,
                            .journal_full = str("/journal"),
                            .requests_replayed = 4,
                            .prompt_tokens = 100,
                            .generation_tokens = 1000,
                            .tokens_per_second = 55.5,
                            .coordinator_us_per_token = 1.5,
                            .coordinator_cpu_s = 3.25,
                            .resident_mb = 20,
                            .num_replicas = 2,
                            .num_ranks = 1,
                            .num_callers = 1,
                            .max_model_len = 2048,
                            .vocab_size = 50257,
                            .response_cache_hits = 1ull << 33,
                            .response_cache_misses = 6,
                            .response_cache_evictions = 7,
                            .response_cache_entries = 8,
                            .response_cache_bytes = 1ull << 34,
                            .response_cache_limit = 1ull << 35,
                            .refused_max_queue = 9,
                            .refused_max_queue_bytes = 10,
                            .refused_client_jobs = 11,
                            .refused_client_bytes = 12,
                            .expired_max_queue_time = 13,
                            .refused_connections = 14,
                            .cut_connections = 1ull << 36};
  s->replicas[1] = (tri_replica_status){.group = 1,
                                        .epoch = 4,
                                        .state = str("ready"),
                                        .tp = 2,
                                        .pp = 2,
                                        .dp = 4,
                                        .ep = 8,
                                        .running = 2,
                                        .kv_pages = 100,
                                        .kv_pages_used = 50,
                                        .steps = 77,
                                        .tokens = 500,
                                        .scheduler_us_per_token = 0.25,
                                        .scheduler_cpu_s = 1.75,
                                        .streamed_bytes = 1ull << 40,
                                        .stream_pass_bytes = 1u << 30,
                                        .stream_pass_s = 0.75,
                                        .stream_stall_s = 2.5,
                                        .stream_bytes_per_s = 1.5e9,
                                        .stream_peer_bytes = 1u << 29,
                                        .host_kv_pages = 300,
                                        .host_kv_pages_used = 20,
                                        .swaps_out = 9,
                                        .swaps_in = 8,
                                        .swapped_out_bytes = 1ull << 41,
                                        .swapped_in_bytes = 1ull << 42,
                                        .prefix_cache_queries = 1ull << 43,
                                        .prefix_cache_hits = 7,
                                        .prefix_cache_evictions = 6};
  s->ranks[0] = (tri_rank_status){.group = 1,
                                  .rank = 3,
                                  .host = str("node7"),
                                  .pid = 4711,
                                  .step = 5,
                                  .block = 6,
                                  .collective = 7,
                                  .exchange = str("combine"),
                                  .seconds_since_report = 0.5,
                                  .dp_rank = 3,
                                  .shard_running = 8,
                                  .shard_waiting = 9,
                                  .streamed_bytes = 77,
                                  .stream_stall_s = 1.25};
  s->callers[0] = (tri_caller_status){.name = str("ann"), .running = 5, .waiting = 1ull << 33};
}
static void client_samples(sample *out, int *n) {
  static tri_client_msg c;
  c = (tri_client_msg){.op = TRI_OP_HELLO, .id = 1, .hello.client = str("test 1")};
  keep_client(out, n, "hello", &c);
  c.op = TRI_OP_SUBMIT;
  fill_submit(&c.submit);
  keep_client(out, n, "submit", &c);
  c.submit.prompt = (tri_wire_str){0};
  c.submit.token_ids = ids4;
  c.submit.num_token_ids = 4;
  keep_client(out, n, "submit of ids", &c);
  c = (tri_client_msg){.op = TRI_OP_ATTACH, .id = 300, .attach = {.offset = 70000}};
  keep_client(out, n, "attach", &c);
  c = (tri_client_msg){.op = TRI_OP_CANCEL, .id = 70000, .cancel = {.target = 0, .has_target = true}};
  keep_client(out, n, "cancel by target", &c);
  c.cancel.has_request_id = true;
  c.cancel.has_target = false;
  keep_client(out, n, "cancel by request", &c);
  for (tri_client_op op = TRI_OP_STATUS; op <= TRI_OP_EXPERTS; op++) {
    if (op == TRI_OP_EMBED || op == TRI_OP_CLASSIFY) continue;
    c = (tri_client_msg){.op = op, .id = UINT64_MAX};
    keep_client(out, n, "plain", &c);
  }
  c = (tri_client_msg){.op = TRI_OP_EMBED,
                       .id = 9,
                       .embed = {.model = str("bert"),
                                 .text = str("a text"),
                                 .prompt_name = str("query"),
                                 .has_pooling = true,
                                 .pooling = TRI_POOL_FIRST,
                                 .has_normalize = true,
                                 .normalize = true,
                                 .truncate = true,
                                 .priority = -5,
                                 .deadline_ms = 70000,
                                 .cache = true,
                                 .cache_salt = str("\xc3\xa4")}};
  keep_client(out, n, "embed", &c);
  c = (tri_client_msg){.op = TRI_OP_CLASSIFY,
                       .id = 10,
                       .embed = {.token_ids = ids4, .num_token_ids = 4, .activation = TRI_ACTIVATION_SIGMOID}};
  keep_client(out, n, "classify", &c);
}

static void server_samples(sample *out, int *n) {
  static tri_server_msg s;
  s = (tri_server_msg){.op = TRI_REPLY_HELLO, .id = 1, .hello = {str(TRIREME_VERSION), TRI_WIRE_MAX_MESSAGE}};
  keep_server(out, n, "hello reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_ACCEPTED, .id = 2, .accepted = {.prompt_tokens = 5, .existing = true}};
  keep_server(out, n, "accepted", &s);
  s.accepted.token_ids_only = s.accepted.cached = true;
  keep_server(out, n, "accepted without a tokenizer", &s);
  const tri_wire_str texts2[2] = {str(" a"), {"\0\xff", 2}};
  tri_token_logprobs l[2] = {{.logprob = -0.25f,
                              .num_top = 2,
                              .top_ids = ids4,
                              .top_logprobs = floats2,
                              .text = str("\xc3"),
                              .top_texts = texts2},
                             {.logprob = -INFINITY, .text = str("")}};
  tri_choice_tokens ct[2] = {choice_tokens(l), choice_tokens(NULL)};
  s = (tri_server_msg){.op = TRI_REPLY_TOKENS, .id = 2, .tokens = {2, ct}};
  keep_server(out, n, "tokens", &s);
  s = (tri_server_msg){.op = TRI_REPLY_DONE,
                       .id = 2,
                       .done = {.num_choices = 2,
                                .prompt_tokens = 5,
                                .completion_tokens = 40,
                                .queue_ms = 0.5,
                                .first_token_ms = 2,
                                .total_ms = 30,
                                .preemptions = 1,
                                .cached_tokens = 8,
                                .timed_out = true}};
  s.done.choices[0] =
      (struct tri_done_choice){.reason = TRI_FINISH_LENGTH, .text = str("whole"), .completion_tokens = 16};
  s.done.choices[1] = (struct tri_done_choice){.reason = TRI_FINISH_STOP,
                                               .completion_tokens = 24,
                                               .has_stop_string = true,
                                               .stop_string = 1,
                                               .has_stop_token_id = true,
                                               .stop_token_id = 7};
  keep_server(out, n, "done", &s);
  s = (tri_server_msg){.op = TRI_REPLY_ERROR, .id = 2, .error = {str("out_of_range"), str("too much"), str("n")}};
  keep_server(out, n, "error", &s);
  s = (tri_server_msg){.op = TRI_REPLY_STATUS, .id = 2};
  fill_status(&s.status);
  keep_server(out, n, "status reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_STATS, .id = 2, .stats = str("trireme:x 1\n")};
  keep_server(out, n, "stats reply", &s);
  tri_wire_str names[] = {str("a"), str("b")};
  s = (tri_server_msg){.op = TRI_REPLY_MODELS, .id = 2, .models = {2, names, 2048, 0xfedcba9876543210}};
  keep_server(out, n, "models reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_ROOFLINES, .id = 2, .rooflines = {.num_replicas = 2}};
  s.rooflines.replicas[1] =
      (tri_replica_rooflines){.replica = 1, .ranks = 4, .measured = 3, .sum = {1e10, 2e11, 3, 4, 5.5}};
  keep_server(out, n, "floors reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_EXPERTS, .id = 2, .experts = str("{\"num_experts\":4}")};
  keep_server(out, n, "experts reply", &s);
  s = (tri_server_msg){
      .op = TRI_REPLY_EMBEDDING,
      .id = 9,
      .embed = {.values = floats2, .num_values = 2, .prompt_tokens = 4, .total_ms = 1.5, .cached = true}};
  keep_server(out, n, "embedding reply", &s);
  s = (tri_server_msg){.op = TRI_REPLY_SCORES,
                       .id = 10,
                       .embed = {.values = floats2,
                                 .num_values = 2,
                                 .num_labels = 1,
                                 .labels = names,
                                 .num_tokens = 2,
                                 .tokens = names,
                                 .activation = TRI_ACTIVATION_NONE}};
  keep_server(out, n, "scores reply", &s);
}

static void samples_from_groups(sample *out, int *n) {
  static tri_replica_msg g;
  g = (tri_replica_msg){.op = TRI_REPLICA_REGISTER,
                        .seq = 1,
                        .reg = {.version = str(TRIREME_VERSION),
                                .host = str("n"),
                                .replica = 1,
                                .rank = 2,
                                .world = 4,
                                .tp = 2,
                                .pp = 2,
                                .dp = 1,
                                .ep = 2,
                                .epoch = 3,
                                .pid = 99,
                                .model_hash = UINT64_MAX,
                                .weights_hash = 77,
                                .max_model_len = 2048,
                                .vocab_size = 5,
                                .kv_blocks = 6,
                                .block_size = 16,
                                .max_num_seqs = 8,
                                .max_num_batched_tokens = 512,
                                .layer_seconds = 0.125}};
  keep_group(out, n, "register", &g);
  static const uint32_t canary_ids[] = {7, 70000}, canary_millis[] = {12, 1000000000};
  g = (tri_replica_msg){.op = TRI_REPLICA_READY, .seq = 2, .ready = {1, 2, 3.5, 0.25, canary_ids, canary_millis, 2, 2}};
  keep_group(out, n, "ready", &g);
  g = (tri_replica_msg){
      .op = TRI_REPLICA_TOKENS, .seq = 3, .tokens = {.epoch = 1, .step = 2, .num = 6, .tokens = group_tokens}};
  keep_group(out, n, "group tokens", &g);
  tri_replica_result results[2] = {{UINT64_MAX, 9, floats2, 2}, {1, 9, floats2, 1}};
  g = (tri_replica_msg){
      .op = TRI_REPLICA_EMBED_RESULTS, .seq = 3, .embed_results = {.epoch = 1, .num = 2, .results = results}};
  keep_group(out, n, "embed_results", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_HEALTH,
                        .seq = 4,
                        .health = {1,
                                   2,
                                   2,
                                   3,
                                   4,
                                   5,
                                   6,
                                   true,
                                   7,
                                   8,
                                   28,
                                   9,
                                   10,
                                   11,
                                   12,
                                   13,
                                   14,
                                   15,
                                   ids4,
                                   4,
                                   {16, 17, 18, 19, 20, 21, 0},
                                   {22, 23, 24, 25, 26, 27},
                                   {0}}};
  keep_group(out, n, "health", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_FAILED, .seq = 5, .failed = {1, 2, 3, str("io"), str("disk"), str("f")}};
  keep_group(out, n, "failed", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_REFUSED, .seq = 5, .refused = {1, 2, str("io"), str("disk"), str("f")}};
  keep_group(out, n, "refused", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_ROOFLINES, .seq = 5, .rooflines = {1, 2, 3, {1e10, 2e11, 3, 4, 5.5}}};
  keep_group(out, n, "floors", &g);
  static const uint32_t of[] = {0, 1, 1, 0}, rows[] = {7, 1, 9, 0, 0, 0, 3, 0};
  g = (tri_replica_msg){.op = TRI_REPLICA_EXPERTS,
                        .seq = 5,
                        .experts = {.replica = 1,
                                    .rank = 2,
                                    .epoch = 3,
                                    .num_layers = 2,
                                    .first_slot = 4,
                                    .num_own = 2,
                                    .num_slots = 8,
                                    .expert_of = of,
                                    .num_expert_of = 4,
                                    .rows = rows,
                                    .num_rows = 8,
                                    .placement = 9,
                                    .earlier = rows,
                                    .num_earlier = 8,
                                    .hot = {3, 1000, 900, 5}}};
  keep_group(out, n, "experts", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_COUNT_EXPERTS, .seq = 5};
  keep_group(out, n, "count_experts", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_MEASURE, .seq = 5};
  keep_group(out, n, "measure", &g);
}

static void samples_to_groups(sample *out, int *n) {
  static tri_replica_msg g;
  g = (tri_replica_msg){.op = TRI_REPLICA_WELCOME, .seq = 6, .welcome = {false, str("no")}};
  keep_group(out, n, "welcome", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_ASSIGN, .seq = 7};
  g.assign = (tri_replica_assign){.job = 1,
                                  .epoch = 2,
                                  .seed = UINT64_MAX,
                                  .remaining_ms = -1,
                                  .token_ids = ids4,
                                  .num_token_ids = 4,
                                  .second_start = 3};
  tri_submit sub;
  fill_submit(&sub);
  g.assign.sampling = sub.sampling;
  keep_group(out, n, "assign", &g);
  g.assign.sampled = ids4;
  g.assign.num_sampled = 4;
  g.assign.sampled_counts = (const uint32_t[]){3, TRI_SAMPLED_ENDED, 0, 1};
  g.assign.num_sampled_counts = 4;
  g.assign.num_scored = 2;
  g.assign.sampling.n = 4;
  keep_group(out, n, "assign_drawn", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_ABORT, .seq = 8, .abort.job = 17};
  keep_group(out, n, "abort", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_DRAIN, .seq = 9};
  keep_group(out, n, "drain", &g);
  g = (tri_replica_msg){.op = TRI_REPLICA_LEASE, .seq = 10, .lease.time_ms = 123456789};
  keep_group(out, n, "lease", &g);
}

int make_samples(sample out[MAX_SAMPLES]) {
  int n = 0;
  client_samples(out, &n);
  server_samples(out, &n);
  samples_from_groups(out, &n);
  samples_to_groups(out, &n);
  ck_assert_int_lt(n, MAX_SAMPLES);
  return n;
}

void free_samples(sample *s, int n) {
  for (int i = 0; i < n; i++) tri_buf_free(&s[i].buf);
}

void add_case(Suite *s, const char *name, const TTest *const *tests, size_t n) {
  TCase *c = tcase_create(name);
  tcase_set_timeout(c, 120);
  for (size_t i = 0; i < n; i++) tcase_add_test(c, tests[i]);
  suite_add_tcase(s, c);
}
