/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions beside what docs/performance.md has measured, the table of docs/design/layouts.md. Constants come from
 * other measurements or from one sequence of three models; a row's limit is its error when it was written, and a
 * little: a change that moves predictions must look at all of them. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/cost/machine.h"

Suite *suite_cost_measured(void);

#define LLAMA(hidden, layers, ff, head_dim, tied)                                                                      \
  "{\"model_type\":\"llama\",\"hidden_size\":" hidden ",\"num_hidden_layers\":" layers                                 \
  ",\"num_attention_heads\":" head_dim ",\"num_key_value_heads\":8,\"intermediate_size\":" ff                          \
  ",\"vocab_size\":128256,\"max_position_embeddings\":131072,\"rope_theta\":500000.0,\"rms_norm_eps\":1e-5,"           \
  "\"hidden_act\":\"silu\",\"tie_word_embeddings\":" tied ",\"torch_dtype\":\"bfloat16\"}"

static const char llama_8b[] = LLAMA("4096", "32", "14336", "32", "false");
static const char llama_1b[] = LLAMA("2048", "16", "8192", "32", "true");
static const char llama_70b[] = LLAMA("8192", "80", "28672", "64", "false");
static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"n_embd\":768,\"n_layer\":12,\"n_head\":12,\"n_positions\":1024,\"vocab_size\":50257,"
    "\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-5,\"torch_dtype\":\"float16\"}";

/* sequences 0: a prompt of so many tokens. mixed: a mean over the steps of `bench serve`, whose requests of 128 tokens
 * in and out bring a prompt every 128 tokens each, in a step with the others' tokens. */
static const struct row {
  const char *name, *model;
  int tp, pp, sequences;
  bool mixed;
  double tokens, measured_ms, percent; /* keys of each sequence, or the prompt's; the largest error */
} rows[] = {
    {"8B, tp 1", llama_8b, 1, 1, 1, false, 192, 4.19, 4},
    {"8B, tp 1", llama_8b, 1, 1, 8, false, 192, 4.68, 10},
    {"8B, tp 1", llama_8b, 1, 1, 32, false, 192, 4.97, 11},
    {"8B, tp 1", llama_8b, 1, 1, 64, false, 192, 5.40, 10},
    {"8B, tp 1", llama_8b, 1, 1, 240, false, 640, 12.3, 3},
    {"8B, tp 1", llama_8b, 1, 1, 1, false, 120000, 8.1, 3},
    {"8B, tp 2", llama_8b, 2, 1, 1, false, 192, 2.60, 3},
    {"8B, tp 2", llama_8b, 2, 1, 8, true, 192, 3.14, 15},
    {"8B, tp 2", llama_8b, 2, 1, 64, true, 192, 4.15, 6},
    {"8B, tp 4", llama_8b, 4, 1, 1, false, 192, 1.73, 3},
    {"8B, tp 4", llama_8b, 4, 1, 64, true, 192, 3.21, 17},
    {"8B, pp 2", llama_8b, 1, 2, 1, false, 192, 4.27, 3},
    {"8B, pp 2", llama_8b, 1, 2, 64, false, 192, 5.27, 15},
    {"8B, tp 2 pp 2", llama_8b, 2, 2, 64, false, 192, 3.55, 19},
    {"70B, tp 2", llama_70b, 2, 1, 1, false, 192, 19.3, 5},
    {"70B, tp 2", llama_70b, 2, 1, 64, true, 192, 27.6, 4},
    {"70B, tp 4", llama_70b, 4, 1, 1, false, 192, 10.6, 4},
    {"70B, tp 4", llama_70b, 4, 1, 64, true, 192, 17.7, 8},
    {"70B, tp 2 pp 2", llama_70b, 2, 2, 64, false, 192, 21.3, 6},
    {"1B, tp 1", llama_1b, 1, 1, 1, false, 192, 0.91, 4},
    {"GPT-2", gpt2, 1, 1, 1, false, 524, 0.322, 7},
    {"8B, tp 1", llama_8b, 1, 1, 0, false, 2048, 53.2, 5},
    {"8B, tp 1", llama_8b, 1, 1, 0, false, 128, 5.42, 5},
    {"1B, tp 1", llama_1b, 1, 1, 0, false, 128, 1.265, 18},
    {"GPT-2", gpt2, 1, 1, 0, false, 374, 0.724, 50},
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

/* All was measured when a prompt's tokens all went through the whole of the last layer. */
static void compute_all_rows(tri_cost_share *s) {
  s->last_flops = 0;
  s->last_sparse = 0;
}

/* Returns the seconds of a step that a prompt shares with the tokens of the other sequences. */
static double step_with_prompt(const tri_cost_model *m, const struct row *r) {
  double tokens = r->sequences - 1 + 128;
  tri_cost_load l = {.tokens = tokens,
                     .all_tokens = tokens,
                     .sampled = r->sequences,
                     .sequences = r->sequences,
                     .context = r->tokens,
                     .queries = 1};
  tri_cost c = tri_cost_step(m, &l);
  return tri_cost_seconds(&c);
}

static double predict(const struct row *r) {
  tri_model_config c;
  tri_cost_share stages[2] = {{0}};
  tri_cost cost;
  tri_error err = {0};
  ck_assert_msg(tri_model_config_parse(r->model, strlen(r->model), NULL, 0, (tri_config_rules){0}, &c, &err) == TRI_OK,
                "%s", err.message);
  tri_parallel p = {.tp = r->tp, .pp = r->pp};
  for (p.pp_rank = 0; p.pp_rank < p.pp; p.pp_rank++) {
    tri_shard s;
    ck_assert_int_eq(tri_shard_make(&c, p, &s, &err), TRI_OK);
    ck_assert_int_eq(tri_cost_share_add(&c, &s, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, c.dtype, &stages[p.pp_rank], &err),
                     TRI_OK);
    compute_all_rows(&stages[p.pp_rank]);
  }
  tri_cost_model m = {.machine = tri_machine_make(tri_device_kind_of(NULL)->best, tri_device_kind_of(NULL), 8),
                      .p = p,
                      .hidden_size = (int)c.hidden_size,
                      .stages = stages};
  cost = tri_cost_prompt(&m, r->tokens);
  if (!r->sequences) return tri_cost_seconds(&cost) * 1e3;
  double decode = tri_cost_decode(&m, r->sequences, r->tokens, &cost), prompts = r->mixed ? r->sequences / 128.0 : 0;
  return ((1 - prompts) * decode + prompts * step_with_prompt(&m, r)) * 1e3;
}

START_TEST(measured) {
  const struct row *r = &rows[_i];
  double ms = predict(r), error = 100 * (ms / r->measured_ms - 1);
  printf("| %s, ", r->name);
  if (r->sequences)
    printf("%d x %.0f keys%s", r->sequences, r->tokens, r->mixed ? ", with prompts" : "");
  else
    printf("prompt of %.0f", r->tokens);
  printf(" | %.3g ms | %.3g ms | %+.0f%% |\n", r->measured_ms, ms, error);
  ck_assert_msg(fabs(error) <= r->percent, "%s: %.3g ms predicted, %.3g measured", r->name, ms, r->measured_ms);
}
END_TEST

/* One rank of machine A (docs/performance.md), whose ceilings are those of the same run: 200.2 MB in 6.8 ms, and a
 * prompt of 512 tokens in 509 ms. */
START_TEST(measured_on_a_cpu) {
  tri_model_config c;
  tri_shard s;
  tri_cost_share stage = {0};
  tri_error err = {0};
  ck_assert_msg(tri_model_config_load(TRI_SOURCE "/tests/data/configs/llama-100m", (tri_config_rules){0}, &c, &err) ==
                    TRI_OK,
                "%s", err.message);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1}, &s, &err), TRI_OK);
  ck_assert_int_eq(tri_cost_share_add(&c, &s, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, TRI_F32, &stage, &err), TRI_OK);
  compute_all_rows(&stage);
  tri_ceilings best = {200.2e6 / 6.8e-3, 512 * stage.dense_flops / 0.509};
  tri_cost_model m = {.machine = tri_machine_make(best, NULL, 1),
                      .p = {.tp = 1, .pp = 1},
                      .hidden_size = (int)c.hidden_size,
                      .stages = &stage};
  tri_cost cost, prompt = tri_cost_prompt(&m, 512);
  double decode = tri_cost_decode(&m, 1, 512, &cost), first = tri_cost_seconds(&prompt);
  printf("| llama-100m on machine A, 1 x 512 keys | 7.4 ms | %.3g ms | %+.0f%% |\n", decode * 1e3,
         100 * (decode / 7.4e-3 - 1));
  printf("| llama-100m on machine A, prompt of 512 | 603 ms | %.3g ms | %+.0f%% |\n", first * 1e3,
         100 * (first / 0.603 - 1));
  ck_assert(fabs(decode / 7.4e-3 - 1) < 0.08 && fabs(first / 0.603 - 1) < 0.05);
}
END_TEST

Suite *suite_cost_measured(void) {
  Suite *s = suite_create("cost_measured");
  TCase *t = tcase_create("measured");
  tcase_add_loop_test(t, measured, 0, NUM_ROWS);
  tcase_add_test(t, measured_on_a_cpu);
  suite_add_tcase(s, t);
  return s;
}
