/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts for N devices: all that are listed can be typed and made, and those of DeepSpeed-MoE are among them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/wait.h"
#include "runtime/step/limits.h"
#include "tools/plan/recommend.h"

Suite *suite_recommend(void);

/* Rajbhandari et al. 2022, "DeepSpeed-MoE", the table of configurations for inference: layers, hidden size, model
 * parallelism, expert parallelism, parameters. Every other layer has 128 experts of which a token takes one. Heads, and
 * the ids of a vocabulary, are ours. The table prints 30 layers for the third and 40 for the fourth: its own sizes, and
 * DeepSpeed's tutorial for the fourth, have them the other way round. */
static const struct paper {
  const char *name;
  int layers, hidden, heads, tp, ep, ranks;
  double billions;
} papers[] = {
    {"1.3B+MoE-128", 24, 2048, 16, 1, 128, 128, 52},  {"2.4B+MoE-128", 16, 3584, 28, 1, 128, 128, 107.7},
    {"8B+MoE-128", 40, 4096, 32, 4, 128, 128, 349},   {"24B+MoE-128", 30, 8192, 64, 8, 128, 256, 1064.9},
    {"47B+MoE-128", 58, 8192, 64, 8, 128, 256, 2024},
};
enum { NUM_PAPERS = sizeof papers / sizeof *papers };

static void make_paper(const struct paper *p, tri_model_config *c) {
  char text[1000];
  tri_error err = {0};
  int n =
      snprintf(text, sizeof text,
               "{\"model_type\":\"qwen3_moe\",\"hidden_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
               "\"num_key_value_heads\":%d,\"head_dim\":%d,\"intermediate_size\":%d,\"moe_intermediate_size\":%d,"
               "\"num_experts\":128,\"num_experts_per_tok\":1,\"norm_topk_prob\":true,\"decoder_sparse_step\":2,"
               "\"mlp_only_layers\":[],\"vocab_size\":51200,\"max_position_embeddings\":2048,\"hidden_act\":\"silu\","
               "\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":true,\"torch_dtype\":\"float16\"}",
               p->hidden, p->layers, p->heads, p->heads, p->hidden / p->heads, 4 * p->hidden, 4 * p->hidden);
  ck_assert_msg(tri_model_config_parse(text, (size_t)n, NULL, 0, (tri_config_rules){0}, c, &err) == TRI_OK, "%s",
                err.message);
  c->mlp.gated = false;
}

/* Parameters of matrices, from what one rank alone would have. */
static double billions(const tri_model_config *c) {
  tri_shard s;
  double n = 0;
  ck_assert_int_eq(tri_shard_make(c, (tri_parallel){.tp = 1, .pp = 1}, &s, NULL), TRI_OK);
  for (int id = 0; id < TRI_W_COUNT; id++) {
    for (int l = 0; l < (tri_weight_is_per_layer((tri_weight_id)id) ? c->num_layers : 1); l++) {
      tri_weight_shape w = tri_shard_weight_shape(c, &s, (tri_weight_id)id, l);
      if (!w.vector && tri_weight_in_layer(c, (tri_weight_id)id, l) && id != TRI_W_HEAD) n += (double)(w.n * w.k);
    }
  }
  return n * 1e-9;
}

START_TEST(the_papers_layouts) {
  const struct paper *p = &papers[_i];
  tri_model_config c;
  tri_serve_layout *list;
  tri_error err = {0};
  int count;
  make_paper(p, &c);
  ck_assert_msg(billions(&c) > 0.95 * p->billions && billions(&c) < 1.06 * p->billions, "%s: %.1f billion", p->name,
                billions(&c));
  ck_assert_int_eq(tri_candidates_make(&c, p->ranks, &list, &count, &err), TRI_OK);
  bool found = false;
  for (int i = 0; i < count; i++)
    found |= list[i].tp == p->tp && list[i].dp == p->ranks / p->tp && list[i].ep == p->ep && list[i].pp == 1;
  ck_assert_msg(found, "%s is not there", p->name);
  tri_free(list);
}
END_TEST

static const char *const models[] = {"llama", "mixtral_odd", "deepseek_v3_odd", "qwen3_moe_odd", "gpt2"};
enum { NUM_MODELS = sizeof models / sizeof *models };

static void open_model(const char *name, tri_model_config *c) {
  char dir[700];
  tri_error err = {0};
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, name);
  ck_assert_msg(tri_model_config_load(dir, (tri_config_rules){0}, c, &err) == TRI_OK, "%s", err.message);
}

/* Parses flags as a program would. */
static void type_flags(const char *flags, tri_serve_options *o) {
  static tri_option table[128];
  char text[TRI_LAYOUT_FLAGS], *argv[32] = {"test", "--model", "x"};
  int argc = 3;
  tri_options *opts;
  tri_error err = {0};
  size_t n = tri_serve_options_copy(table, TRI_FOR_PLAN, NULL, 0);
  tri_options_spec spec = {.program = "test", .options = table, .count = n};
  snprintf(text, sizeof text, "%s", flags);
  for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
  ck_assert_msg(tri_options_parse(&spec, o, argc, argv, &opts, &err) == TRI_OK, "%s: %s", flags, err.message);
  tri_options_free(opts);
}

/* Every rank's share is made, and the ones that sizes are taken from are not smaller. */
static void check_ranks(const tri_model_config *c, const tri_serve_layout *y, const char *flags) {
  tri_parallel p = {.tp = y->tp, .pp = y->pp, .dp = y->dp, .ep = y->ep};
  for (int r = 0; r < tri_serve_layout_world(y); r++) {
    tri_shard s;
    tri_error err = {0};
    p.tp_rank = r % p.tp;
    p.dp_rank = r / p.tp % p.dp;
    p.pp_rank = r / p.tp / p.dp;
    ck_assert_msg(tri_shard_make(c, p, &s, &err) == TRI_OK, "%s: %s", flags, err.message);
  }
}

START_TEST(every_layout_can_be_typed) {
  tri_model_config c;
  open_model(models[_i], &c);
  for (int devices = 1; devices <= 24; devices++) {
    tri_serve_layout *list;
    tri_error err = {0};
    int count;
    ck_assert_int_eq(tri_candidates_make(&c, devices, &list, &count, &err), TRI_OK);
    for (int i = 0; i < count; i++) {
      char flags[TRI_LAYOUT_FLAGS];
      tri_serve_options o = {0};
      tri_serve_layout got;
      tri_layout_flags(&list[i], flags);
      type_flags(flags, &o);
      ck_assert_msg(tri_serve_layout_make(&o, &got, &err) == TRI_OK, "%s: %s", flags, err.message);
      ck_assert_msg(!memcmp(&got, &list[i], sizeof got), "%s makes another layout", flags);
      ck_assert_int_eq(tri_serve_layout_world(&got) * got.replicas, devices);
      check_ranks(&c, &got, flags);
      for (int j = 0; j < i; j++) ck_assert_msg(memcmp(&list[i], &list[j], sizeof *list) != 0, "%s twice", flags);
    }
    tri_free(list);
  }
}
END_TEST

static tri_recommend_config config_of(const tri_model_config *c, int devices, int64_t memory) {
  tri_recommend_config config = {
      .model = c,
      .ledger = {.dtype = TRI_DTYPE_COUNT, .kv_dtype = TRI_F16, .memory = memory, .device = true},
      .machine = tri_machine_make(tri_device_kind_of("h200")->best, tri_device_kind_of("h200"), 8),
      .devices = devices,
      .context = 128,
      .prompt = 128};
  tri_limits_config lc = {.max_model_len = 128, .device = true};
  tri_error err = {0};
  ck_assert_msg(tri_limits_make(c, &lc, &config.limits, &err) == TRI_OK, "%s", err.message);
  return config;
}

/* The sizes that a layout is judged by are those of its largest rank, or a little more. */
START_TEST(memory_is_the_largest_ranks) {
  tri_model_config c;
  tri_recommendations r;
  tri_error err = {0};
  open_model(models[_i], &c);
  tri_recommend_config config = config_of(&c, 12, 0);
  ck_assert_msg(tri_recommend(&config, &r, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(r.fitting, r.count);
  for (int i = 0; i < r.count; i++) {
    const tri_serve_layout *y = &r.list[i].layout;
    tri_parallel p = {.tp = y->tp, .pp = y->pp, .dp = y->dp, .ep = y->ep};
    int64_t most = 0;
    for (int rank = 0; rank < tri_serve_layout_world(y); rank++) {
      tri_shard s;
      tri_ledger l;
      p.tp_rank = rank % p.tp;
      p.dp_rank = rank / p.tp % p.dp;
      p.pp_rank = rank / p.tp / p.dp;
      ck_assert_int_eq(tri_shard_make(&c, p, &s, &err), TRI_OK);
      ck_assert_int_eq(tri_ledger_make(&c, &s, NULL, &config.limits, p.pp, &config.ledger, &l, &err), TRI_OK);
      int64_t fixed = (int64_t)(l.weights + l.activations + l.workspace + l.reserve + l.all2all);
      if (fixed > most) most = fixed;
    }
    ck_assert_int_ge(r.list[i].memory, most);
    ck_assert_int_le(r.list[i].memory, most + (1 << 17));
    if (i) ck_assert(r.list[i - 1].one.seconds <= r.list[i].one.seconds);
    ck_assert(r.list[i].many.tokens_per_s <= r.list[r.best_throughput].many.tokens_per_s);
  }
  tri_recommendations_free(&r);
}
END_TEST

/* A model of two trillion parameters over 256 GPUs: what does not fit on one comes with what it lacks. */
START_TEST(many_devices) {
  static const int64_t memories[] = {40LL << 30, 1LL << 30};
  for (int i = 0; i < 2; i++) {
    tri_model_config c;
    tri_recommendations r;
    tri_error err = {0};
    make_paper(&papers[NUM_PAPERS - 1], &c);
    tri_recommend_config config = config_of(&c, 256, memories[i]);
    int64_t start = tri_now_ns();
    tri_status st = tri_recommend(&config, &r, &err);
    printf("256 GPUs, %lld GiB each: %d layouts, %d fit, %.2f s\n", (long long)memories[i] >> 30, r.count, r.fitting,
           (double)(tri_now_ns() - start) * 1e-9);
    ck_assert_int_eq(st, i ? TRI_NO_CAPACITY : TRI_OK);
    ck_assert(i ? r.fitting == 0 : r.fitting > 0 && r.fitting < r.count);
    ck_assert(r.list[r.count - 1].missing > r.list[r.fitting].missing && r.list[r.fitting].missing > 0);
    if (i) ck_assert_msg(strstr(err.message, "256 GPUs") && strstr(err.message, "lacks"), "%s", err.message);
    tri_recommendations_free(&r);
  }
}
END_TEST

Suite *suite_recommend(void) {
  Suite *s = suite_create("recommend");
  TCase *t = tcase_create("recommend");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, the_papers_layouts, 0, NUM_PAPERS);
  tcase_add_loop_test(t, every_layout_can_be_typed, 0, NUM_MODELS);
  tcase_add_loop_test(t, memory_is_the_largest_ranks, 0, NUM_MODELS);
  tcase_add_test(t, many_devices);
  suite_add_tcase(s, t);
  return s;
}
