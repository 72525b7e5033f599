/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core with an encoder: what is let in, what comes back, and that nothing is kept of it. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "coordinator/core.h"
#include "coordinator/jobs/jobs_impl.h"
#include "base/log.h"
#include "base/mem.h"

Suite *suite_embed_jobs(void);

enum { HIDDEN = 3, MODEL_LEN = 64, MAX_REPLIES = 64, MAX_ASSIGNS = 16, MAX_QUEUE = 600 };
#define SECOND 1000000000LL

struct reply {
  uint64_t id;
  tri_server_op op;
  tri_embed_reply embed; /* values, labels and tokens below */
  float values[256];
  char labels[64], tokens[256]; /* with a blank behind each */
  char code[64], field[64], message[400];
};

struct world {
  tri_core *core;
  tri_model_config model;
  tri_labels labels;
  tri_tokenizer *tokenizer;
  int64_t now;
  struct reply replies[MAX_REPLIES];
  int num_replies;
  tri_replica_assign assigns[MAX_ASSIGNS];
  int num_assigns, aborts, again;
  bool closed;
  char text[64]; /* the last one that was tokenized */
};

static const tri_peer client = {.len = 1, .bytes = "c"},
                      leader = {.len = 1, .bytes = "w", .owner = {.kind = TRI_OWNER_KEY, .bytes = "key"}};

static void list(char *out, size_t cap, const tri_wire_str *s, uint32_t n) {
  size_t used = 0;
  for (uint32_t i = 0; i < n && used < cap; i++)
    used += (size_t)snprintf(out + used, cap - used, "%.*s ", (int)s[i].len, s[i].s);
}

static tri_status to_client(void *ctx, const tri_peer *to, const tri_server_msg *m) {
  struct world *w = ctx;
  (void)to;
  if (w->closed) return TRI_CLOSED;
  if (w->again && w->again--) return TRI_AGAIN;
  ck_assert_int_lt(w->num_replies, MAX_REPLIES);
  struct reply *r = &w->replies[w->num_replies++];
  *r = (struct reply){.id = m->id, .op = m->op};
  if (m->op == TRI_REPLY_ERROR) {
    snprintf(r->code, sizeof r->code, "%.*s", (int)m->error.code.len, m->error.code.s);
    snprintf(r->field, sizeof r->field, "%.*s", (int)m->error.field.len, m->error.field.s);
    snprintf(r->message, sizeof r->message, "%.*s", (int)m->error.message.len, m->error.message.s);
  }
  if (m->op != TRI_REPLY_EMBEDDING && m->op != TRI_REPLY_SCORES) return TRI_OK;
  r->embed = m->embed;
  if (m->embed.num_values <= 256) memcpy(r->values, m->embed.values, m->embed.num_values * sizeof(float));
  list(r->labels, sizeof r->labels, m->embed.labels, m->embed.num_labels);
  list(r->tokens, sizeof r->tokens, m->embed.tokens, m->embed.num_tokens);
  return TRI_OK;
}

static void answer(void *ctx, const tri_peer *to, const tri_server_msg *m) {
  while (to_client(ctx, to, m) == TRI_AGAIN) continue;
}

static tri_status look(void *ctx, const tri_peer *to) {
  (void)ctx, (void)to;
  return TRI_OK;
}

static tri_status to_worker(void *ctx, const tri_peer *to, tri_replica_msg *m) {
  struct world *w = ctx;
  (void)to;
  if (m->op == TRI_REPLICA_ASSIGN) w->assigns[w->num_assigns++ % MAX_ASSIGNS] = m->assign;
  w->aborts += m->op == TRI_REPLICA_ABORT;
  return TRI_OK;
}

static const uint32_t text_ids[] = {5, 300, 7};

static tri_status tokenize(void *ctx, uint64_t job, const tri_core_text *text, const uint32_t **ids, size_t *count,
                           size_t *second) {
  struct world *w = ctx;
  (void)job;
  snprintf(w->text, sizeof w->text, "%.*s", (int)text->text.len, text->text.s);
  if (text->text.len > 3 && !text->truncate_to) return TRI_TOO_LARGE;
  if (text->truncate_to) ck_assert_uint_eq(text->truncate_to, MODEL_LEN);
  *ids = text_ids;
  *count = text->text.len == 3 && !memcmp(text->text.s, "no ", 3) ? 0 : 3;
  *second = text->pair.s ? 2 : 0;
  return TRI_OK;
}

static void tokenize_stop(void *ctx, uint64_t job) {
  (void)ctx;
  (void)job;
}

static void rank_came(void *ctx, uint32_t group, uint64_t epoch, uint32_t rank) {
  (void)ctx, (void)group, (void)epoch, (void)rank;
}

static void replica_lost(void *ctx, const tri_core_loss *loss) { (void)ctx, (void)loss; }
static void note_group_ready(void *ctx, uint32_t group, uint64_t epoch) { (void)ctx, (void)group, (void)epoch; }

static void hang(void *ctx, uint32_t group, uint64_t epoch, const char *report, size_t len) {
  (void)ctx, (void)group, (void)epoch, (void)report, (void)len;
}

static tri_status draw(void *ctx, void *out, size_t len) {
  (void)ctx;
  memset(out, 1, len);
  return TRI_OK;
}

static void send_worker(struct world *w, const tri_replica_msg *m) { tri_core_worker(w->core, w->now, &leader, m); }

static void start(struct world *w, uint64_t epoch) {
  tri_replica_msg reg = {.op = TRI_REPLICA_REGISTER,
                         .reg = {.world = 1,
                                 .tp = 1,
                                 .pp = 1,
                                 .epoch = epoch,
                                 .max_model_len = MODEL_LEN,
                                 .kv_blocks = 3,
                                 .block_size = 16,
                                 .max_num_seqs = 4}};
  tri_replica_msg ready = {.op = TRI_REPLICA_READY, .ready = {.epoch = epoch}};
  send_worker(w, &reg);
  send_worker(w, &ready);
}

typedef enum kind { DECODER, EMBEDDER, CLASSIFIER, TOKEN_CLASSIFIER } kind;

static void load_labels(struct world *w, const char *config, int num_labels) {
  tri_error err = {0};
  mkdir(TRI_TEST_SCRATCH "/embed_jobs", 0700);
  FILE *f = fopen(TRI_TEST_SCRATCH "/embed_jobs/config.json", "w");
  ck_assert_ptr_nonnull(f);
  fputs(config, f);
  ck_assert_int_eq(fclose(f), 0);
  ck_assert_int_eq(tri_labels_load(TRI_TEST_SCRATCH "/embed_jobs", (size_t)num_labels, &w->labels, &err), TRI_OK);
}

static char *prompt_names[] = {"query", "document"}, *prompt_texts[] = {"find: ", ""};
static tri_prompts prompts = {.count = 2, .names = prompt_names, .texts = prompt_texts};

/* config: of a classifier, for its labels. tokenizer: a folder, or NULL. */
static struct world *create_with(kind k, const char *config, int num_labels, const char *tokenizer) {
  struct world *w = calloc(1, sizeof *w);
  tri_error err = {0};
  w->now = 1000 * SECOND;
  w->model = (tri_model_config){.vocab_size = 1000, .hidden_size = HIDDEN, .max_position_embeddings = MODEL_LEN};
  w->model.encoder = k != DECODER;
  w->model.head.has_classifier = k > EMBEDDER;
  w->model.head.sequence_head = k == CLASSIFIER;
  w->model.head.token_head = k == TOKEN_CLASSIFIER;
  w->model.head.has_pooler = k == EMBEDDER;
  w->model.head.pooling = TRI_POOL_FIRST;
  w->model.head.num_labels = num_labels;
  if (k > EMBEDDER) load_labels(w, config, num_labels);
  char path[500];
  snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json", TRI_TEST_DATA, tokenizer ? tokenizer : "");
  if (tokenizer) ck_assert_int_eq(tri_tokenizer_load(path, &w->tokenizer, &err), TRI_OK);
  tri_core_config c = {.model_name = "toy",
                       .model = &w->model,
                       .tokenizer = w->tokenizer,
                       .other_tokenizer = "spiece.model",
                       .labels = k > EMBEDDER ? &w->labels : NULL,
                       .prompts = k == EMBEDDER ? &prompts : NULL,
                       .pools_as_model = true,
                       .num_replicas = 1,
                       .replica_ranks = 1,
                       .rank_keys = &leader.owner.bytes,
                       .seed = 7,
                       .max_queue = MAX_QUEUE,
                       .max_prompt = 2 * MODEL_LEN, /* a group may have less */
                       .silence_ns = 400 * SECOND,
                       .watchdog_ns = 1000 * SECOND,
                       .lease_ns = SECOND,
                       .io = {w, to_client, answer, look, to_worker, tokenize, tokenize_stop, rank_came, replica_lost,
                              note_group_ready, hang, draw, NULL}};
  ck_assert_int_eq(tri_core_create(&c, w->now, &w->core), TRI_OK);
  start(w, 1);
  return w;
}

static struct world *create(kind k, const char *config, int num_labels, bool with_tokenizer) {
  return create_with(k, config, num_labels, with_tokenizer ? "bytelevel_bpe_gpt2" : NULL);
}

static void destroy(struct world *w) {
  tri_core_destroy(w->core);
  tri_labels_free(&w->labels);
  tri_tokenizer_destroy(w->tokenizer);
  free(w);
}

static const uint32_t zeros[MODEL_LEN + 1];

static struct reply *last(struct world *w) {
  ck_assert_int_gt(w->num_replies, 0);
  return &w->replies[w->num_replies - 1];
}

static void ask(struct world *w, tri_client_op op, uint64_t id, const tri_embed_request *e) {
  tri_client_msg m = {.op = op, .id = id, .embed = *e};
  tri_core_client(w->core, w->now, &client, &m);
}

static tri_embed_request of_ids(size_t n) { return (tri_embed_request){.token_ids = zeros, .num_token_ids = n}; }

static void result(struct world *w, uint64_t job, uint64_t epoch, const float *values, size_t n) {
  tri_replica_result r = {.job = job, .waited_ns = 3000000, .values = values, .num_values = n};
  tri_replica_msg m = {.op = TRI_REPLICA_EMBED_RESULTS, .embed_results = {.epoch = epoch, .num = 1, .results = &r}};
  send_worker(w, &m);
}

static uint64_t last_job(const struct world *w) { return w->assigns[(w->num_assigns - 1) % MAX_ASSIGNS].job; }

static void expect_error(struct world *w, uint64_t id, const char *code, const char *field) {
  const struct reply *r = last(w);
  ck_assert(r->op == TRI_REPLY_ERROR && r->id == id);
  ck_assert_str_eq(r->code, code);
  ck_assert_str_eq(r->field, field);
  ck_assert(r->message[0]);
}

static const float v345[] = {0, 3, -4};

START_TEST(test_embed) {
  struct world *w = create(EMBEDDER, NULL, 0, false);
  tri_embed_request e = of_ids(5);
  e.priority = -2;
  ask(w, TRI_OP_EMBED, 9, &e);
  ck_assert_int_eq(w->num_assigns, 1);
  ck_assert(w->assigns[0].num_token_ids == 5 && w->assigns[0].sampling.n == 1 && w->assigns[0].sampling.priority == -2);
  ck_assert_int_eq(w->num_replies, 0); /* one answer, and nothing before it */
  ck_assert(!tri_core_is_idle(w->core));
  w->now += 5000000;
  result(w, last_job(w), 1, v345, 3);
  const struct reply *r = last(w);
  ck_assert(r->embed.queue_ms == 3 && r->embed.total_ms == 5); /* with what it waited in its group */
  ck_assert(r->op == TRI_REPLY_EMBEDDING && r->id == 9 && r->embed.num_values == 3 && r->embed.prompt_tokens == 5);
  ck_assert(!memcmp(r->values, v345, sizeof v345));
  ck_assert(tri_core_is_idle(w->core));
  e.has_normalize = true;
  e.normalize = true;
  ask(w, TRI_OP_EMBED, 10, &e);
  result(w, last_job(w), 1, v345, 3);
  ck_assert(fabsf(last(w)->values[1] - 0.6f) < 1e-6f && fabsf(last(w)->values[2] + 0.8f) < 1e-6f);
  const float nothing[3] = {0};
  ask(w, TRI_OP_EMBED, 11, &e);
  result(w, last_job(w), 1, nothing, 3);
  ck_assert(last(w)->values[0] == 0 && last(w)->values[2] == 0); /* not NaN */
  ck_assert_int_eq(w->num_replies, 3);
  result(w, last_job(w), 1, v345, 3); /* a second result of one job has no owner */
  ck_assert_int_eq(w->num_replies, 3);
  destroy(w);
}
END_TEST

START_TEST(test_classify) {
  struct world *w = create(CLASSIFIER, "{\"id2label\":{\"0\":\"no\",\"2\":\"yes\"}}", 3, false);
  tri_embed_request e = of_ids(2);
  const float logits[] = {0, logf(2), logf(5)};
  ask(w, TRI_OP_CLASSIFY, 1, &e);
  result(w, last_job(w), 1, logits, 3);
  const struct reply *r = last(w);
  ck_assert(r->op == TRI_REPLY_SCORES && r->embed.num_labels == 3 && !r->embed.num_tokens);
  ck_assert_str_eq(r->labels, "no LABEL_1 yes ");
  ck_assert_int_eq(r->embed.activation, TRI_ACTIVATION_SOFTMAX);
  ck_assert(fabsf(r->values[0] - 0.125f) < 1e-6f && fabsf(r->values[2] - 0.625f) < 1e-6f);
  e.activation = TRI_ACTIVATION_SIGMOID;
  ask(w, TRI_OP_CLASSIFY, 2, &e);
  result(w, last_job(w), 1, logits, 3);
  ck_assert(last(w)->values[0] == 0.5f && fabsf(last(w)->values[2] - 5.f / 6) < 1e-6f);
  e.activation = TRI_ACTIVATION_NONE;
  ask(w, TRI_OP_CLASSIFY, 3, &e);
  result(w, last_job(w), 1, logits, 3);
  ck_assert(!memcmp(last(w)->values, logits, sizeof logits));
  destroy(w);
}
END_TEST

/* A pair of texts: its second type begins where the tokenizer says, for a model that tells types apart. */
START_TEST(test_pairs) {
  tri_embed_request e = {.text = {"abc", 3}, .text_pair = {"d", 1}};
  for (int types = 0; types < 3; types++) {
    struct world *w = create_with(CLASSIFIER, "{}", 2, "wordpiece_bert");
    w->model.embed.type_vocab_size = types;
    ask(w, TRI_OP_CLASSIFY, 1, &e);
    ck_assert_int_eq(w->num_assigns, 1);
    ck_assert_uint_eq(w->assigns[0].second_start, types == 2 ? 2 : 0);
    destroy(w);
  }
  struct world *w = create(CLASSIFIER, "{}", 2, true); /* no template for pairs */
  ask(w, TRI_OP_CLASSIFY, 1, &e);
  expect_error(w, 1, "unsupported", "text_pair");
  destroy(w);
}
END_TEST

START_TEST(test_default_activations) {
  static const struct {
    kind k;
    const char *config;
    int labels;
    tri_activation want;
  } cases[] = {
      {CLASSIFIER, "{}", 2, TRI_ACTIVATION_SOFTMAX},
      {CLASSIFIER, "{}", 1, TRI_ACTIVATION_SIGMOID},
      {CLASSIFIER, "{\"problem_type\":\"multi_label_classification\"}", 3, TRI_ACTIVATION_SIGMOID},
      {CLASSIFIER, "{\"problem_type\":\"single_label_classification\"}", 3, TRI_ACTIVATION_SOFTMAX},
      {CLASSIFIER, "{\"problem_type\":\"regression\"}", 1, TRI_ACTIVATION_NONE},
      {TOKEN_CLASSIFIER, "{}", 3, TRI_ACTIVATION_SOFTMAX},
  };
  const float logits[3] = {1, 2, 3};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct world *w = create(cases[i].k, cases[i].config, cases[i].labels, false);
    tri_embed_request e = of_ids(1);
    ask(w, TRI_OP_CLASSIFY, 1, &e);
    result(w, last_job(w), 1, logits, (size_t)cases[i].labels);
    ck_assert_msg(last(w)->embed.activation == cases[i].want, "case %zu", i);
    destroy(w);
  }
}
END_TEST

START_TEST(test_token_classification) {
  for (int with = 0; with < 2; with++) {
    struct world *w = create(TOKEN_CLASSIFIER, "{}", 2, with);
    tri_embed_request e = {.text = {"abc", 3}};
    if (!with) e = (tri_embed_request){.token_ids = text_ids, .num_token_ids = 3};
    const float logits[] = {0, 0, 1, 1, 100, -100};
    ask(w, TRI_OP_CLASSIFY, 1, &e);
    result(w, last_job(w), 1, logits, 6);
    const struct reply *r = last(w);
    ck_assert(r->op == TRI_REPLY_SCORES && r->embed.num_tokens == 3 && r->embed.num_values == 6);
    ck_assert(r->values[0] == 0.5f && r->values[3] == 0.5f && r->values[4] == 1 && r->values[5] < 1e-30f);
    if (!with) ck_assert_str_eq(r->tokens, "5 300 7 ");
    if (with) ck_assert_str_ne(r->tokens, "5 300 7 ");
    destroy(w);
  }
}
END_TEST

/* Of the wrong kind, too long, empty, with numbers that no token has, or another pooling than the one served. */
START_TEST(test_refused) {
  struct world *w = create(EMBEDDER, NULL, 0, true);
  tri_embed_request e = of_ids(MODEL_LEN);
  ask(w, TRI_OP_CLASSIFY, 1, &e);
  expect_error(w, 1, "unsupported", "op");
  tri_client_msg m = {.op = TRI_OP_SUBMIT, .id = 2};
  tri_submit_init(&m.submit);
  m.submit.token_ids = zeros;
  m.submit.num_token_ids = 1;
  tri_core_client(w->core, w->now, &client, &m);
  expect_error(w, 2, "unsupported", "op");
  ck_assert_ptr_nonnull(strstr(last(w)->message, "does not generate text"));
  ask(w, TRI_OP_EMBED, 3, &e); /* 64 tokens, three blocks of 16 */
  expect_error(w, 3, "no_capacity", "text");
  e = of_ids(MODEL_LEN + 1);
  ask(w, TRI_OP_EMBED, 4, &e);
  expect_error(w, 4, "no_capacity", "text");
  ck_assert_ptr_nonnull(strstr(last(w)->message, "max_model_len 64"));
  e = (tri_embed_request){.text = {"long", 4}};
  ask(w, TRI_OP_EMBED, 5, &e);
  expect_error(w, 5, "no_capacity", "text");
  e.text.s = "no ", e.text.len = 3;
  ask(w, TRI_OP_EMBED, 6, &e);
  expect_error(w, 6, "invalid_argument", "text");
  const uint32_t large = 1000;
  e = (tri_embed_request){.token_ids = &large, .num_token_ids = 1};
  ask(w, TRI_OP_EMBED, 7, &e);
  expect_error(w, 7, "out_of_range", "token_ids");
  e = of_ids(1);
  e.model = (tri_wire_str){"other", 5};
  ask(w, TRI_OP_EMBED, 8, &e);
  expect_error(w, 8, "not_found", "model");
  e = of_ids(1);
  e.has_pooling = true;
  e.pooling = TRI_POOL_MEAN;
  ask(w, TRI_OP_EMBED, 9, &e);
  expect_error(w, 9, "unsupported", "pooling");
  ck_assert_int_eq(w->num_assigns, 0);
  e.pooling = TRI_POOL_NONE;
  ask(w, TRI_OP_EMBED, 10, &e);
  ck_assert_int_eq(w->num_assigns, 1);
  tri_core_drain(w->core);
  ask(w, TRI_OP_EMBED, 11, &e);
  expect_error(w, 11, "draining", "");
  result(w, last_job(w), 1, v345, 3); /* what ran before is answered */
  ck_assert(last(w)->op == TRI_REPLY_EMBEDDING && last(w)->id == 10);
  destroy(w);

  w = create(DECODER, NULL, 0, true);
  e = of_ids(1);
  ask(w, TRI_OP_EMBED, 1, &e);
  expect_error(w, 1, "unsupported", "op");
  destroy(w);
  w = create(CLASSIFIER, "{}", 2, false);
  ask(w, TRI_OP_EMBED, 1, &e);
  expect_error(w, 1, "unsupported", "op");
  e = (tri_embed_request){.text = {"abc", 3}};
  ask(w, TRI_OP_CLASSIFY, 2, &e); /* no tokenizer */
  expect_error(w, 2, "unsupported", "text");
  ck_assert_ptr_nonnull(strstr(last(w)->message, "its spiece.model is not read"));
  destroy(w);
}
END_TEST

/* A model whose folder asks for vectors of length 1 makes them, unless a request wants none. */
START_TEST(test_normalize_of_the_model) {
  const struct {
    bool model, has, wish;
    float second; /* of v345 */
  } cases[] = {{false, false, false, 3},
               {false, true, true, 0.6f},
               {true, false, false, 0.6f},
               {true, true, false, 3},
               {true, true, true, 0.6f}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct world *w = create(EMBEDDER, NULL, 0, false);
    w->model.sentence.normalize = cases[i].model;
    tri_embed_request e = of_ids(1);
    e.has_normalize = cases[i].has;
    e.normalize = cases[i].wish;
    ask(w, TRI_OP_EMBED, 1, &e);
    result(w, last_job(w), 1, v345, 3);
    ck_assert_float_eq_tol(last(w)->values[1], cases[i].second, 1e-6f);
    destroy(w);
  }
}
END_TEST

static tri_wire_str wire(const char *s) { return (tri_wire_str){s, s ? strlen(s) : 0}; }

/* A prompt comes before a text: the one that is named, or the usual one. */
START_TEST(test_prompts) {
  struct world *w = create(EMBEDDER, NULL, 0, true);
  static const struct {
    const char *text, *name, *usual, *as;
  } cases[] = {
      {"x y", NULL, NULL, "x y"},       {"x y", "query", NULL, "find: x y"}, {"x y", "document", NULL, "x y"},
      {"x y", NULL, "to: ", "to: x y"}, {"x y", "", "to: ", "x y"},          {"x y", "query", "to: ", "find: x y"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_embed_request e = {.text = wire(cases[i].text), .prompt_name = wire(cases[i].name), .truncate = true};
    prompts.usual = cases[i].usual;
    ask(w, TRI_OP_EMBED, i, &e);
    ck_assert_str_eq(w->text, cases[i].as);
  }
  prompts.usual = NULL;
  tri_embed_request e = {.text = wire("x"), .prompt_name = wire("quer")};
  ask(w, TRI_OP_EMBED, 100, &e);
  expect_error(w, 100, "not_found", "prompt_name");
  destroy(w);
}
END_TEST

START_TEST(test_truncate) {
  struct world *w = create(EMBEDDER, NULL, 0, true);
  tri_embed_request e = {.text = {"long", 4}, .truncate = true};
  ask(w, TRI_OP_EMBED, 1, &e);
  ck_assert_int_eq(w->num_assigns, 1);
  e.truncate = false;
  ask(w, TRI_OP_EMBED, 2, &e);
  expect_error(w, 2, "no_capacity", "text");
  ck_assert_ptr_nonnull(strstr(last(w)->message, "truncate"));
  e = of_ids(3);
  e.truncate = true; /* the last of which may be special */
  ask(w, TRI_OP_EMBED, 3, &e);
  expect_error(w, 3, "invalid_argument", "truncate");
  destroy(w);
}
END_TEST

START_TEST(test_poolings) {
  struct world *w = create(EMBEDDER, NULL, 0, false);
  w->model.head.has_pooler = false; /* and its --pooling is still "model" */
  w->model.head.pooling = TRI_POOL_MEAN;
  tri_embed_request e = of_ids(1);
  const tri_pooling fine[] = {TRI_POOL_FIRST, TRI_POOL_NONE, TRI_POOL_MEAN};
  for (int i = 0; i < 3; i++) {
    e.has_pooling = i > 0;
    e.pooling = fine[i];
    ask(w, TRI_OP_EMBED, 11 + (uint64_t)i, &e);
  }
  ck_assert_int_eq(w->num_assigns, 3);
  e.pooling = TRI_POOL_FIRST;
  ask(w, TRI_OP_EMBED, 1, &e);
  expect_error(w, 1, "unsupported", "pooling");
  destroy(w);
}
END_TEST

/* What can never fit into an answer, and what does not fit beside the others. */
START_TEST(test_answers_are_bounded) {
  struct world *w = create(TOKEN_CLASSIFIER, "{}", 10000, false);
  tri_embed_request e = of_ids(30);
  ask(w, TRI_OP_CLASSIFY, 1, &e); /* 1.2 million bytes of numbers */
  expect_error(w, 1, "no_capacity", "text");
  ck_assert_ptr_nonnull(strstr(last(w)->message, "1000000"));
  e = of_ids(20);
  int accepted = -1;
  for (uint64_t i = 0; i < 290 && w->num_replies == 1; i++, accepted++)
    ask(w, TRI_OP_CLASSIFY, 2 + i, &e); /* about 0.97 MB each: 256 MiB are reached before max_queue */
  ck_assert(accepted > 200 && accepted < 289);
  expect_error(w, last(w)->id, "no_capacity", "");
  uint64_t job = last_job(w);
  float *logits = calloc(200000, sizeof *logits);
  result(w, job, 1, logits, 200000);
  ck_assert(last(w)->op == TRI_REPLY_SCORES && last(w)->embed.num_values == 200000);
  int replies = w->num_replies;
  ask(w, TRI_OP_CLASSIFY, 999, &e); /* its room is free again */
  ck_assert_int_eq(w->num_replies, replies);
  free(logits);
  destroy(w);
}
END_TEST

START_TEST(test_ends) {
  struct world *w = create(EMBEDDER, NULL, 0, false);
  tri_embed_request e = of_ids(1);
  ask(w, TRI_OP_EMBED, 1, &e); /* cancelled by its number */
  tri_client_msg cancel = {.op = TRI_OP_CANCEL, .id = 50, .cancel = {.target = 1}};
  tri_core_client(w->core, w->now, &client, &cancel);
  ck_assert_int_eq(w->aborts, 1);
  expect_error(w, 1, "aborted", "");
  ask(w, TRI_OP_EMBED, 2, &e); /* past its deadline, says the leader; or refused there */
  for (int i = 0; i < 2; i++) {
    tri_replica_token t = {.job = last_job(w),
                           .flags = TRI_TOKEN_LAST | TRI_TOKEN_NONE,
                           .reason = i ? TRI_FINISH_ERROR : TRI_FINISH_ABORT};
    tri_replica_msg m = {.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = 1, .num = 1, .tokens = &t}};
    send_worker(w, &m);
    expect_error(w, 2 + (uint64_t)i, i ? "internal" : "timeout", i ? "" : "deadline_ms");
    ask(w, TRI_OP_EMBED, 3 + (uint64_t)i, &e);
  }
  result(w, last_job(w), 2, v345, 3); /* of another life of the group */
  result(w, last_job(w), 1, v345, 2); /* not as many numbers as there must be */
  expect_error(w, 4, "internal", "");
  ask(w, TRI_OP_EMBED, 5, &e);
  tri_replica_token drawn = {.job = last_job(w), .token = 3};
  tri_replica_msg m = {.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = 1, .num = 1, .tokens = &drawn}};
  send_worker(w, &m); /* an encoder draws nothing */
  tri_replica_msg failed = {.op = TRI_REPLICA_FAILED, .failed = {.epoch = 1, .message = {"no disk", 7}}};
  send_worker(w, &failed);
  ck_assert(!tri_core_is_idle(w->core)); /* it waits, and runs again */
  start(w, 2);
  ck_assert_uint_eq(w->assigns[(w->num_assigns - 1) % MAX_ASSIGNS].epoch, 2);
  result(w, last_job(w), 2, v345, 3);
  ck_assert(last(w)->op == TRI_REPLY_EMBEDDING && last(w)->id == 5);
  ck_assert(tri_core_is_idle(w->core));
  destroy(w);
}
END_TEST

/* An answer with a number that is none is an error, is counted, and is not made into one of numbers. */
START_TEST(test_not_finite) {
  for (int i = 0; i < 4; i++) {
    bool scores = i % 2;
    struct world *w = create(scores ? CLASSIFIER : EMBEDDER, scores ? "{}" : NULL, scores ? 3 : 0, false);
    tri_embed_request e = of_ids(1);
    const float values[] = {0, i < 2 ? NAN : INFINITY, -4};
    ask(w, scores ? TRI_OP_CLASSIFY : TRI_OP_EMBED, 1, &e);
    result(w, last_job(w), 1, values, 3);
    expect_error(w, 1, "internal", "");
    ck_assert_ptr_nonnull(strstr(last(w)->message, "the numbers of the answer are not finite"));
    ck_assert_uint_eq(w->core->totals.not_finite, 1);
    ck_assert(tri_core_is_idle(w->core));
    destroy(w);
  }
}
END_TEST

/* A slow client gets its answer later, one that is gone not at all; nothing of either stays. */
START_TEST(test_slow_and_closed) {
  struct world *w = create(EMBEDDER, NULL, 0, false);
  tri_embed_request e = of_ids(1);
  ask(w, TRI_OP_EMBED, 1, &e);
  w->again = 1;
  result(w, last_job(w), 1, v345, 3);
  ck_assert(w->num_replies == 0 && !tri_core_is_idle(w->core));
  tri_core_tick(w->core, w->now += SECOND / 10);
  ck_assert(w->num_replies == 1 && last(w)->op == TRI_REPLY_EMBEDDING && tri_core_is_idle(w->core));
  tri_client_msg done = {.op = TRI_OP_CANCEL, .id = 59, .cancel = {.target = 1}};
  tri_core_client(w->core, w->now, &client, &done);
  expect_error(w, 59, "not_found", "target"); /* nobody can come back for an answer that has been sent */
  ask(w, TRI_OP_EMBED, 2, &e);
  w->closed = true;
  result(w, last_job(w), 1, v345, 3);
  ck_assert(tri_core_is_idle(w->core));
  w->closed = false;
  tri_client_msg status = {.op = TRI_OP_CANCEL, .id = 60, .cancel = {.target = 2}};
  tri_core_client(w->core, w->now, &client, &status);
  expect_error(w, 60, "not_found", "target"); /* forgotten */
  destroy(w);
}
END_TEST

Suite *suite_embed_jobs(void) {
  Suite *suite = suite_create("embed_jobs");
  TCase *t = tcase_create("embed_jobs");
  tri_log_setup(TRI_LOG_ERROR, "embed_jobs");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, test_embed);
  tcase_add_test(t, test_classify);
  tcase_add_test(t, test_pairs);
  tcase_add_test(t, test_default_activations);
  tcase_add_test(t, test_token_classification);
  tcase_add_test(t, test_refused);
  tcase_add_test(t, test_poolings);
  tcase_add_test(t, test_normalize_of_the_model);
  tcase_add_test(t, test_prompts);
  tcase_add_test(t, test_truncate);
  tcase_add_test(t, test_answers_are_bounded);
  tcase_add_test(t, test_ends);
  tcase_add_test(t, test_slow_and_closed);
  tcase_add_test(t, test_not_finite);
  suite_add_tcase(suite, t);
  return suite;
}
