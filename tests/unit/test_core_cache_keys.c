/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of the response cache: which requests are the same, and which never hit. */
#include "tests/unit/core_cache_kit.h"

Suite *suite_core_cache_keys(void);

/* ---- what is another request ---- */

static const uint32_t other_ids[3] = {10, 11, 13};
static const uint32_t allowed[] = {7, 8, 9};
static const struct tri_wire_bias one_bias[] = {{5, 1}}, other_bias[] = {{5, 2}}, bias_of_other[] = {{6, 1}};

static void flip_ids(tri_submit *s) { s->token_ids = other_ids; }
static void flip_count(tri_submit *s) { s->num_token_ids = 2; }
static void flip_max_tokens(tri_submit *s) {
  s->sampling.has_max_tokens = true;
  s->sampling.max_tokens = 17;
}
static void flip_min_tokens(tri_submit *s) { s->sampling.min_tokens = 1; }
static void flip_temperature(tri_submit *s) { s->sampling.temperature = 0.5; }
static void flip_top_p(tri_submit *s) {
  s->sampling.has_top_p = true;
  s->sampling.top_p = 0.5;
}
static void flip_top_k(tri_submit *s) {
  s->sampling.has_top_k = true;
  s->sampling.top_k = 5;
}
static void flip_min_p(tri_submit *s) { s->sampling.min_p = 0.5; }
static void flip_repetition(tri_submit *s) {
  s->sampling.has_repetition_penalty = true;
  s->sampling.repetition_penalty = 1.5;
}
static void flip_presence(tri_submit *s) { s->sampling.presence_penalty = 1; }
static void flip_frequency(tri_submit *s) { s->sampling.frequency_penalty = 1; }
static void flip_n(tri_submit *s) { s->sampling.n = 1; }
static void flip_logprobs(tri_submit *s) { s->sampling.logprobs = 0; }
static void flip_alternatives(tri_submit *s) { s->sampling.logprobs = 3; }
static void flip_ignore_eos(tri_submit *s) { s->sampling.ignore_eos = true; }
static void flip_echo(tri_submit *s) { s->sampling.echo = true; }
static void flip_special(tri_submit *s) { s->sampling.skip_special_tokens = false; }
static void flip_include(tri_submit *s) { s->sampling.include_stop = true; }
static void flip_stop(tri_submit *s) { s->sampling.stop[0].s = "EOD"; }
static void flip_stop_cut(tri_submit *s) {
  s->sampling.stop[0].len = 2; /* "EN" and "DSTOP" are "END" and "STOP" side by side */
  s->sampling.stop[1] = (tri_wire_str){"DSTOP", 5};
}
static void flip_num_stop(tri_submit *s) { s->sampling.num_stop = 1; }
static void flip_stop_ids(tri_submit *s) { s->sampling.stop_token_ids[0] = 8; }
static void flip_num_stop_ids(tri_submit *s) { s->sampling.num_stop_token_ids = 0; }
static void flip_bias(tri_submit *s) { s->sampling.logit_bias = other_bias; }
static void flip_biased(tri_submit *s) { s->sampling.logit_bias = bias_of_other; }
static void flip_num_bias(tri_submit *s) { s->sampling.num_logit_bias = 0; }
static void flip_allowed(tri_submit *s) { s->sampling.num_allowed_token_ids--; }
static void flip_all_allowed(tri_submit *s) { s->sampling.num_allowed_token_ids = 0; }
static void flip_seed(tri_submit *s) { s->sampling.seed++; }
static void flip_salt(tri_submit *s) { s->cache_salt.s = "two"; }
static void flip_no_salt(tri_submit *s) { s->cache_salt = (tri_wire_str){0}; }
static void flip_cache(tri_submit *s) { s->cache = false; }

static tri_client_msg seeded(void) {
  tri_client_msg m = submit_msg(++next_id);
  tri_sampling *s = &m.submit.sampling;
  s->has_temperature = s->has_seed = true;
  s->temperature = 0.7;
  s->seed = UINT64_MAX - 1;
  s->n = 2;
  s->logprobs = 2;
  set_stop(&m, "END");
  set_stop(&m, "STOP");
  s->stop_token_ids[s->num_stop_token_ids++] = 7;
  s->logit_bias = one_bias;
  s->num_logit_bias = 1;
  s->allowed_token_ids = allowed;
  s->num_allowed_token_ids = 3;
  m.submit.cache_salt = (tri_wire_str){"one", 3};
  return m;
}

START_TEST(every_parameter_counts) {
  static void (*const flips[])(tri_submit *) = {
      flip_ids,      flip_count,        flip_max_tokens,   flip_min_tokens, flip_temperature, flip_top_p,
      flip_top_k,    flip_min_p,        flip_repetition,   flip_presence,   flip_frequency,   flip_n,
      flip_logprobs, flip_alternatives, flip_ignore_eos,   flip_echo,       flip_stop,        flip_stop_cut,
      flip_num_stop, flip_stop_ids,     flip_num_stop_ids, flip_bias,       flip_biased,      flip_num_bias,
      flip_seed,     flip_salt,         flip_no_salt,      flip_cache,      flip_allowed,     flip_all_allowed,
      flip_special,  flip_include};
  struct world *w = world_create_caching(CACHE);
  tri_client_msg base = seeded();
  answered(w, "a", &base, "hello");
  ck_assert(hits(w, &base));
  for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
    tri_client_msg m = seeded();
    flips[i](&m.submit);
    ck_assert_msg(!hits(w, &m), "flip %zu", i);
  }
  /* What changes nothing about the answer does not part requests. */
  tri_client_msg m = seeded();
  m.submit.sampling.priority = 3;
  m.submit.sampling.deadline_ms = 5000;
  m.submit.on_disconnect = TRI_DISCONNECT_CONTINUE;
  m.submit.stream = false;
  ck_assert(hits(w, &m));
  world_destroy(w);
}
END_TEST

/* A constraint is a part of what was asked for, and so is each byte of a schema. */
START_TEST(constraints_count) {
  static const tri_wire_constraint others[] = {
      {.kind = TRI_CONSTRAINT_JSON_SCHEMA, .text = {"{}", 2}, .frame.end = {"x", 1}},
      {.kind = TRI_CONSTRAINT_JSON_SCHEMA, .text = {"{ }", 3}},
      {.kind = TRI_CONSTRAINT_JSON_OBJECT},
      {.kind = TRI_CONSTRAINT_NONE}};
  struct world *w = world_create_caching(CACHE);
  tri_client_msg base = seeded();
  base.submit.sampling.num_allowed_token_ids = 0;
  base.submit.sampling.allowed_token_ids = NULL;
  base.submit.sampling.constraint = (tri_wire_constraint){.kind = TRI_CONSTRAINT_JSON_SCHEMA, .text = {"{}", 2}};
  w->tokenize_now = true; /* schemas are looked at by the tokenizer's threads */
  w->now_ids = base.submit.token_ids;
  w->num_now_ids = base.submit.num_token_ids;
  answered(w, "a", &base, "hello");
  base.id = ++next_id;
  ck_assert(hits(w, &base));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    tri_client_msg m = base;
    m.id = ++next_id;
    m.submit.sampling.constraint = others[i];
    ck_assert_msg(!hits(w, &m), "constraint %zu", i);
  }
  world_destroy(w);
}
END_TEST

static void beams(tri_submit *s, double length_penalty, tri_early_stopping early) {
  s->sampling.has_num_beams = s->sampling.has_length_penalty = s->sampling.has_early_stopping = true;
  s->sampling.num_beams = 3;
  s->sampling.length_penalty = length_penalty;
  s->sampling.early_stopping = early;
}

START_TEST(beam_searches) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = submit_msg(0);
  beams(&m.submit, 0.5, TRI_EARLY_TRUE);
  answered(w, "a", &m, "found");
  ck_assert(hits(w, &m));
  m.submit.sampling.has_seed = true; /* which has no effect */
  m.submit.sampling.seed = 99;
  ck_assert(hits(w, &m));
  beams(&m.submit, 0.6, TRI_EARLY_TRUE);
  ck_assert(!hits(w, &m));
  beams(&m.submit, 0.5, TRI_EARLY_NEVER);
  ck_assert(!hits(w, &m));
  beams(&m.submit, 0.5, TRI_EARLY_TRUE);
  m.submit.sampling.num_beams = 4;
  ck_assert(!hits(w, &m));
  world_destroy(w);
}
END_TEST

/* Without a seed each draws its own; at temperature 0 a seed has no effect, and the answer names the request's. */
START_TEST(seeds) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = submit_msg(0);
  answered(w, "a", &m, "drawn");
  ck_assert(!hits(w, &m));
  tri_client_msg cold = greedy();
  struct stream *first = answered(w, "a", &cold, "cold");
  uint64_t seed = first->seed;
  ck_assert(again(w, "b", &cold)->seed == seed);
  cold.submit.sampling.has_seed = true;
  cold.submit.sampling.seed = 5;
  struct stream *s = again(w, "b", &cold);
  ck_assert(s->cached && s->seed == 5);
  tri_response_cache_figures f = tri_response_cache_figures_of(w->core->jobs->cache);
  ck_assert(f.hits == 2 && f.misses == 1 && f.entries == 1); /* those that cannot hit are no misses */
  world_destroy(w);
}
END_TEST

/* Said or left open: what counts is what the coordinator makes of it. */
START_TEST(defaults_are_applied_first) {
  struct world *w = world_create_caching(CACHE);
  w->model.generation.temperature = 0;
  w->model.generation.top_p = 0.5;
  tri_client_msg open = submit_msg(0), said = greedy();
  said.submit.sampling.has_top_p = said.submit.sampling.has_max_tokens = said.submit.sampling.has_num_beams = true;
  said.submit.sampling.top_p = 0.5;
  said.submit.sampling.max_tokens = TRI_DEFAULT_MAX_TOKENS;
  answered(w, "a", &open, "x");
  ck_assert(hits(w, &said));
  said.submit.sampling.top_p = 1;
  ck_assert(!hits(w, &said));
  w->model.generation.top_p = 1; /* another model's */
  ck_assert(!hits(w, &open));
  world_destroy(w);
}
END_TEST

START_TEST(salts) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  answered(w, "a", &m, "everybody's");
  m.submit.cache_salt = (tri_wire_str){"", 0};
  ck_assert(hits(w, &m)); /* an empty one is none */
  m.submit.cache_salt = (tri_wire_str){"mine\0", 4};
  answered(w, "a", &m, "mine");
  ck_assert(hits(w, &m));
  m.submit.cache_salt.len = 5;
  ck_assert(!hits(w, &m));
  m.submit.cache_salt = (tri_wire_str){0};
  expect_text(again(w, "b", &m), 0, "everybody's");
  world_destroy(w);
}
END_TEST

START_TEST(other_models_and_tokenizers) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  tri_error err = {0};
  tri_tokenizer *other = NULL;
  ck_assert_int_eq(tri_tokenizer_load(TRI_SOURCE "/tests/models/abacus/tokenizer.json", &other, &err), TRI_OK);
  ck_assert(tri_tokenizer_hash(other) != tri_tokenizer_hash(tokenizer));
  answered(w, "a", &m, "x");
  w->core->cfg.model_hash++;
  ck_assert(!hits(w, &m));
  w->core->cfg.model_hash--;
  ck_assert(hits(w, &m));
  w->core->cfg.tokenizer = other;
  ck_assert(!hits(w, &m));
  w->core->cfg.tokenizer = NULL;
  ck_assert(!hits(w, &m));
  w->core->cfg.tokenizer = tokenizer;
  ck_assert(hits(w, &m));
  tri_tokenizer_destroy(other);
  world_destroy(w);
}
END_TEST

/* ---- encoders ---- */

static struct world *create_encoder(bool classifies) {
  struct world *w = world_create_caching(CACHE);
  w->model.encoder = true;
  w->model.hidden_size = 3;
  w->model.head.pooling = TRI_POOL_FIRST;
  w->model.head.has_classifier = classifies;
  w->model.head.num_labels = 3;
  return w;
}

static tri_client_msg embed_msg(tri_client_op op) {
  tri_client_msg m = {.op = op, .id = ++next_id};
  tri_embed_request_init(&m.embed);
  m.embed.token_ids = some_ids;
  m.embed.num_token_ids = 3;
  return m;
}

static struct stream *embedded(struct world *w, tri_client_msg *m) {
  const float v[] = {0, 3, -4};
  struct stream *s = again(w, "a", m);
  ck_assert(!s->done);
  tri_replica_result r = {.job = last_job(w), .values = v, .num_values = 3};
  tri_replica_msg g = {.op = TRI_REPLICA_EMBED_RESULTS, .embed_results = {.epoch = 1, .num = 1, .results = &r}};
  send_worker(w, 0, 1, 0, &g);
  ck_assert(s->done && !s->cached);
  return s;
}

START_TEST(embeddings) {
  struct world *w = create_encoder(false);
  tri_client_msg m = embed_msg(TRI_OP_EMBED);
  struct stream *a = embedded(w, &m), *b = again(w, "b", &m);
  ck_assert(b->done && b->cached && b->messages == 1 && b->num_values == 3);
  ck_assert(!memcmp(a->values, b->values, 3 * sizeof(float)));
  m.embed.has_normalize = true; /* false, as by default */
  ck_assert(hits(w, &m));
  m.embed.normalize = true;
  ck_assert(!hits(w, &m));
  a = embedded(w, &m);
  b = again(w, "b", &m);
  ck_assert(b->cached && fabsf(b->values[1] - 0.6f) < 1e-6f && !memcmp(a->values, b->values, 3 * sizeof(float)));
  m.embed.cache_salt = (tri_wire_str){"s", 1};
  ck_assert(!hits(w, &m));
  m.embed.cache_salt = (tri_wire_str){0};
  m.embed.token_ids = other_ids;
  ck_assert(!hits(w, &m));
  m.embed.token_ids = some_ids;
  m.embed.cache = false;
  ck_assert(!hits(w, &m));
  m.embed.cache = true;
  ck_assert(hits(w, &m));
  w->model.head.pooling = TRI_POOL_MEAN;
  ck_assert(!hits(w, &m));
  world_destroy(w);
}
END_TEST

static tri_client_msg pair_msg(struct world *w) {
  tri_client_msg m = embed_msg(TRI_OP_CLASSIFY);
  m.embed.token_ids = NULL;
  m.embed.num_token_ids = 0;
  m.embed.text = (tri_wire_str){"a", 1};
  w->model.embed.type_vocab_size = 2;
  return m;
}

START_TEST(scores) {
  struct world *w = create_encoder(true);
  tri_client_msg m = embed_msg(TRI_OP_CLASSIFY);
  struct stream *a = embedded(w, &m), *b = again(w, "b", &m);
  ck_assert(b->cached && !memcmp(a->values, b->values, 3 * sizeof(float)));
  m.embed.activation = TRI_ACTIVATION_SOFTMAX; /* the default */
  ck_assert(hits(w, &m));
  m.embed.activation = TRI_ACTIVATION_NONE;
  ck_assert(!hits(w, &m));
  /* The same tokens with another second text. */
  tri_client_msg pair = pair_msg(w);
  for (size_t second = 0; second < 3; second++) {
    struct stream *s = again(w, "p", &pair);
    int before = w->num_assigns;
    tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, second);
    ck_assert(s->cached == (second == 0) && w->num_assigns == before + (second != 0));
  }
  /* The same tokens embedded: ops never share. */
  w->model.head.has_classifier = false;
  tri_client_msg embed = embed_msg(TRI_OP_EMBED);
  ck_assert(!hits(w, &embed));
  world_destroy(w);
}
END_TEST

Suite *suite_core_cache_keys(void) {
  Suite *s = suite_create("core_cache_keys");
  TCase *t = add_case(s, "keys");
  tcase_add_test(t, every_parameter_counts);
  tcase_add_test(t, constraints_count);
  tcase_add_test(t, beam_searches);
  tcase_add_test(t, seeds);
  tcase_add_test(t, defaults_are_applied_first);
  tcase_add_test(t, salts);
  tcase_add_test(t, other_models_and_tokenizers);
  t = add_case(s, "encoders");
  tcase_add_test(t, embeddings);
  tcase_add_test(t, scores);
  return s;
}
