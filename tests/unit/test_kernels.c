/* SPDX-License-Identifier: Apache-2.0 */
/* What the reference itself is checked against: answers worked out elsewhere. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/quantize.h"
#include "tests/unit/quantize_rows.h"

enum { EXPERTS = 16, TOKENS = 2 };

static tri_backend *reference(void) {
  tri_backend *be = NULL;
  tri_error err = {0};
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "ref"}, &be, &err), TRI_OK);
  return be;
}

/* The routers of Hugging Face transformers (Mixtral, OLMoE, gpt-oss, DeepSeek-V3, DeepSeek-V2, Phi-3.5-MoE), followed
 * step by step in double on the logits and biases below. */
static const struct {
  const char *name;
  tri_moe_route_args args;
  bool biased;
  int32_t experts[TOKENS][4];
  float weights[TOKENS][4];
} routers[] = {
    {"mixtral",
     {.score = TRI_MOE_SOFTMAX, .top_k = 2, .num_groups = 1, .renormalize = true, .scale = 1},
     false,
     {{4, 13}, {1, 10}},
     {{0.527316523f, 0.472683477f}, {0.527316523f, 0.472683477f}}},
    {"olmoe",
     {.score = TRI_MOE_SOFTMAX, .top_k = 4, .num_groups = 1, .scale = 1},
     false,
     {{4, 13, 6, 15}, {1, 10, 3, 12}},
     {{0.211334511f, 0.189439031f, 0.132249757f, 0.118547916f},
      {0.206993051f, 0.185547372f, 0.129532941f, 0.116112578f}}},
    {"gpt-oss",
     {.score = TRI_MOE_TOPK_SOFTMAX, .top_k = 4, .num_groups = 1, .scale = 1},
     false,
     {{4, 13, 6, 15}, {1, 10, 3, 12}},
     {{0.32434599f, 0.290741866f, 0.202970534f, 0.181941611f},
      {0.32434599f, 0.290741866f, 0.202970534f, 0.181941611f}}},
    {"deepseek-v3",
     {.score = TRI_MOE_SIGMOID,
      .top_k = 4,
      .num_groups = 4,
      .top_groups = 2,
      .group_best = 2,
      .renormalize = true,
      .scale = 2.5f},
     true,
     {{15, 4, 13, 12}, {12, 1, 14, 3}},
     {{0.653200527f, 0.72494818f, 0.713377096f, 0.408474197f},
      {0.622426751f, 0.693595915f, 0.546105581f, 0.637871752f}}},
    {"deepseek-v2",
     {.score = TRI_MOE_SOFTMAX, .top_k = 3, .num_groups = 4, .top_groups = 2, .group_best = 1, .scale = 16},
     false,
     {{4, 13, 6}, {1, 10, 3}},
     {{3.38135217f, 3.03102449f, 2.11599612f}, {3.31188881f, 2.96875795f, 2.07252706f}}},
    {"phi-3.5-moe", /* of which one more than it has is chosen */
     {.score = TRI_MOE_SPARSEMIXER, .top_k = 3, .num_groups = 1, .scale = 1, .jitter = 0.1f},
     false,
     {{4, 13, 6}, {1, 10, 3}},
     {{0.527316523f, 1, 0.527316523f}, {0.527316523f, 1, 0.527316523f}}},
};

START_TEST(routes_as_the_models_do) {
  float logits[TOKENS][EXPERTS], bias[EXPERTS], weights[TOKENS * 4];
  int32_t experts[TOKENS * 4];
  for (int e = 0; e < EXPERTS; e++) {
    bias[e] = (float)((e * 5 + 2) % 16 / 40.0 - 0.2);
    for (int t = 0; t < TOKENS; t++) logits[t][e] = (float)((e * 7 + 5 * t + 3) % 16 / 4.0 - 2 + e / 64.0);
  }
  tri_moe_route_args a = routers[_i].args;
  a.logits = (tri_mat){logits[0], TOKENS, EXPERTS, EXPERTS, TRI_F32};
  a.bias = routers[_i].biased ? bias : NULL;
  a.experts = experts, a.weights = weights;
  tri_backend *be = reference();
  ck_assert_int_eq(tri_run_moe_route(be, &a), TRI_OK);
  for (int i = 0; i < TOKENS * a.top_k; i++) {
    int t = i / a.top_k, c = i % a.top_k;
    ck_assert_msg(experts[i] == routers[_i].experts[t][c], "%s: expert %d", routers[_i].name, experts[i]);
    float want = routers[_i].weights[t][c];
    ck_assert_msg(fabsf(weights[i] - want) <= 3e-7f * want, "%s: %.9g, not %.9g", routers[_i].name, weights[i], want);
  }
  tri_backend_destroy(be);
}
END_TEST

/* All biased scores of the chosen groups below zero, which is what experts of the other groups must not be taken for.
 */
START_TEST(other_groups_stay_out_of_the_question) {
  float logits[4] = {1, 1, 0, 0}, bias[4] = {-3, -3, -4, -4}, weights[2];
  int32_t experts[2];
  tri_moe_route_args a = {.logits = {logits, 1, 4, 4}, .bias = bias, .score = TRI_MOE_SIGMOID, .top_k = 2, .scale = 1};
  a.num_groups = 2, a.top_groups = 1, a.group_best = 2, a.experts = experts, a.weights = weights;
  tri_backend *be = reference();
  ck_assert_int_eq(tri_run_moe_route(be, &a), TRI_OK);
  ck_assert(experts[0] == 0 && experts[1] == 1);
  a.top_k = 3; /* more than one group has */
  ck_assert_int_eq(tri_run_moe_route(be, &a), TRI_INVALID_ARGUMENT);
  tri_backend_destroy(be);
}
END_TEST

/* Three tokens, the second of them padding, over four experts, of which this rank has the last three. */
START_TEST(padding_goes_nowhere) {
  float logits[3][4] = {{0, 3, 2, 1}, {9, 9, 9, 9}, {4, 3, 1, 2}}, weights[6];
  int32_t experts[6], first[4], choice[6], row[6];
  const int32_t want_experts[6] = {1, 2, -1, -1, 0, 1}, want_first[4] = {0, 2, 3, 3},
                want_row[6] = {0, 2, -1, -1, -1, 1};
  const int64_t slots[3] = {17, -1, 0};
  tri_moe_route_args a = {.logits = {logits[0], 3, 4, 4}, .kv_slot = slots, .score = TRI_MOE_SOFTMAX, .top_k = 2};
  a.num_groups = 1, a.renormalize = true, a.scale = 1, a.experts = experts, a.weights = weights;
  a.first_expert = 1, a.num_experts = 3, a.map = (tri_expert_map){first, choice, row};
  tri_backend *be = reference();
  ck_assert_int_eq(tri_run_moe_route(be, &a), TRI_OK);
  ck_assert_mem_eq(experts, want_experts, sizeof experts);
  ck_assert_mem_eq(first, want_first, sizeof first);
  ck_assert_mem_eq(row, want_row, sizeof row);
  ck_assert(choice[0] == 0 && choice[1] == 5 && choice[2] == 1);
  ck_assert(weights[2] == 0 && weights[3] == 0);
  a.num_experts = 0;
  ck_assert_int_eq(tri_run_moe_route(be, &a), TRI_INVALID_ARGUMENT);
  tri_backend_destroy(be);
}
END_TEST

/* Such a token gets nothing on top of what is there. */
START_TEST(padding_has_no_experts) {
  float x[2] = {2, NAN}, up[1] = {3}, down[1] = {5}, weights[2] = {0.5f, NAN}, out[2] = {100, 7};
  int32_t first[2] = {0, 1}, choice[2] = {0, -7}, row[2] = {0, -1};
  tri_moe_experts_args a = {.x = {x, 2, 1, 1}, .weights = weights, .top_k = 1, .num_experts = 1, .accumulate = true};
  a.map = (tri_expert_map){first, choice, row}, a.out = (tri_mat){out, 2, 1, 1, TRI_F32};
  a.up = (tri_weight){.data = up, .n = 1, .k = 1}, a.down = (tri_weight){.data = down, .n = 1, .k = 1};
  tri_backend *be = reference();
  ck_assert_int_eq(tri_run_moe_experts(be, &a), TRI_OK);
  ck_assert(out[0] == 115 && out[1] == 7);
  a.accumulate = false;
  ck_assert_int_eq(tri_run_moe_experts(be, &a), TRI_OK);
  ck_assert(out[0] == 15 && out[1] == 0);
  tri_backend_destroy(be);
}
END_TEST

/* Whatever the logits are, the ids are those of experts: they become addresses. */
START_TEST(logits_that_are_no_numbers_choose_some_expert) {
  float logits[4] = {NAN, NAN, NAN, NAN}, weights[3];
  int32_t experts[3];
  tri_backend *be = reference();
  for (int score = TRI_MOE_SOFTMAX; score <= TRI_MOE_SPARSEMIXER; score++)
    for (int groups = 1; groups <= 2; groups++)
      for (int numbers = 0; numbers < 3; numbers++) {
        tri_moe_route_args a = {.logits = {logits, 1, 4, 4}, .score = (tri_moe_score)score, .top_k = 2, .scale = 1};
        logits[0] = numbers == 1 ? 1 : NAN, logits[3] = numbers == 2 ? INFINITY : NAN;
        a.num_groups = groups, a.top_groups = 1, a.group_best = 2, a.experts = experts, a.weights = weights;
        ck_assert_int_eq(tri_run_moe_route(be, &a), TRI_OK);
        ck_assert(experts[0] >= 0 && experts[0] < 4 && experts[1] >= 0 && experts[1] < 4 && experts[0] != experts[1]);
      }
  tri_backend_destroy(be);
}
END_TEST

enum { HEADS = 3, NOPE = 4, ROPE = 6, RANK = 5, VALUE = 2, LENGTH = 4, QUERY = NOPE + ROPE, ROW = RANK + ROPE };

/* Any numbers will do. */
static void fill(float *v, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; i++) v[i] = (float)((i * 37 + seed * 101) % 61) / 30 - 1;
}

/* Latent attention as DeepSeek-V2's paper writes it down (equations 9 to 19 without the query's own compression): keys
 * and values of every head are computed from the latents. up: [HEADS * (NOPE + VALUE), RANK], a head's keys first. */
static void attend_expanded(const float *q, const float *kv_a, const float *norm, const float *up, const float *co,
                            const float *si, double out[LENGTH][HEADS][VALUE]) {
  double latent[LENGTH][RANK], key_rope[LENGTH][ROPE];
  for (int t = 0; t < LENGTH; t++) {
    double square = 0;
    for (int i = 0; i < RANK; i++) square += (double)kv_a[t * ROW + i] * kv_a[t * ROW + i];
    for (int i = 0; i < RANK; i++) latent[t][i] = kv_a[t * ROW + i] / sqrt(square / RANK + 1e-6) * norm[i];
    for (int i = 0; i < ROPE; i++) {
      double c = co[t * ROPE / 2 + i / 2], s = si[t * ROPE / 2 + i / 2], x = kv_a[t * ROW + RANK + i];
      double other = kv_a[t * ROW + RANK + (i ^ 1)];
      key_rope[t][i] = i % 2 ? x * c + other * s : x * c - other * s;
    }
  }
  for (int t = 0; t < LENGTH; t++)
    for (int h = 0; h < HEADS; h++) {
      double p[LENGTH], sum = 0;
      for (int j = 0; j <= t; j++) {
        double score = 0;
        for (int i = 0; i < NOPE; i++)
          for (int r = 0; r < RANK; r++)
            score += q[t * HEADS * QUERY + h * QUERY + i] * up[(h * (NOPE + VALUE) + i) * RANK + r] * latent[j][r];
        for (int i = 0; i < ROPE; i++) {
          const float *x = q + t * HEADS * QUERY + h * QUERY + NOPE;
          double c = co[t * ROPE / 2 + i / 2], s = si[t * ROPE / 2 + i / 2];
          score += (i % 2 ? x[i] * c + x[i - 1] * s : x[i] * c - x[i + 1] * s) * key_rope[j][i];
        }
        sum += p[j] = exp(0.3 * score);
      }
      for (int v = 0; v < VALUE; v++) {
        out[t][h][v] = 0;
        for (int j = 0; j <= t; j++)
          for (int r = 0; r < RANK; r++)
            out[t][h][v] += p[j] / sum * up[(h * (NOPE + VALUE) + NOPE + v) * RANK + r] * latent[j][r];
      }
    }
}

START_TEST(absorbed_latent_attention_is_the_expanded_one) {
  float q[LENGTH * HEADS * QUERY], kv_a[LENGTH * ROW], norm[RANK], up[HEADS * (NOPE + VALUE) * RANK];
  float co[LENGTH * ROPE / 2], si[LENGTH * ROPE / 2], to_latent[HEADS * RANK * NOPE], to_value[HEADS * VALUE * RANK];
  float q_out[LENGTH * HEADS * ROW], mixed[LENGTH * HEADS * RANK], got[LENGTH * HEADS * VALUE], cache[2 * 2 * ROW];
  double want[LENGTH][HEADS][VALUE];
  fill(q, sizeof q / 4, 1), fill(kv_a, sizeof kv_a / 4, 2), fill(norm, RANK, 3), fill(up, sizeof up / 4, 4);
  for (int i = 0; i < LENGTH * ROPE / 2; i++) co[i] = cosf((float)i), si[i] = sinf((float)i);
  attend_expanded(q, kv_a, norm, up, co, si, want);
  for (int h = 0; h < HEADS; h++)
    for (int r = 0; r < RANK; r++) {
      for (int i = 0; i < NOPE; i++) to_latent[(h * RANK + r) * NOPE + i] = up[(h * (NOPE + VALUE) + i) * RANK + r];
      for (int v = 0; v < VALUE; v++)
        to_value[(h * VALUE + v) * RANK + r] = up[(h * (NOPE + VALUE) + NOPE + v) * RANK + r];
    }
  tri_kv_layer kv = {cache, NULL, TRI_F32, 2, 1, 2, ROW, RANK};
  int64_t slots[LENGTH] = {2, 3, 0, 1};
  int32_t table[2] = {1, 0}, block_start[2] = {0, 2}, start[2] = {0, LENGTH}, context = LENGTH;
  tri_batch batch = {.num_tokens = LENGTH, .num_seqs = 1, .max_context = LENGTH};
  batch.max_query = LENGTH, batch.num_single = LENGTH == 1, batch.seq_start = start, batch.context_len = &context,
  batch.block_table = table, batch.block_start = block_start;
  tri_mat queries = {q, LENGTH, HEADS * QUERY, HEADS * QUERY, TRI_F32},
          rows = {q_out, LENGTH, HEADS * ROW, HEADS * ROW, TRI_F32};
  tri_mat latents = {mixed, LENGTH, HEADS * RANK, HEADS * RANK, TRI_F32},
          values = {got, LENGTH, HEADS * VALUE, HEADS * VALUE, TRI_F32};
  tri_mla_append_args append = {.q = queries, .kv_a = {kv_a, LENGTH, ROW, ROW}, .num_heads = HEADS, .nope_dim = NOPE};
  append.rope_dim = ROPE, append.rank = RANK, append.norm = norm, append.norm_eps = 1e-6f, append.interleaved = true;
  append.cos = co, append.sin = si, append.kv_slot = slots, append.kv = kv, append.q_out = rows;
  tri_head_linear_args absorb = {.x = queries, .w = {to_latent, NULL, TRI_F32, HEADS * RANK, NOPE}, .out = rows};
  absorb.num_heads = HEADS, absorb.x_stride = QUERY, absorb.out_stride = ROW;
  tri_attention_args attend = {.q = rows, .kv = kv, .batch = &batch, .num_heads = HEADS, .heads_per_kv = HEADS};
  attend.scale = 0.3f, attend.causal = true, attend.out = latents;
  tri_head_linear_args value = {.x = latents, .w = {to_value, NULL, TRI_F32, HEADS * VALUE, RANK}, .out = values};
  value.num_heads = HEADS, value.x_stride = RANK, value.out_stride = VALUE;
  tri_backend *be = reference();
  ck_assert_int_eq(tri_run_mla_append(be, &append), TRI_OK);
  ck_assert_int_eq(tri_run_head_linear(be, &absorb), TRI_OK);
  ck_assert_int_eq(tri_run_attention(be, &attend), TRI_OK);
  ck_assert_int_eq(tri_run_head_linear(be, &value), TRI_OK);
  for (int i = 0; i < LENGTH * HEADS * VALUE; i++)
    ck_assert_msg(fabs(got[i] - (&want[0][0][0])[i]) < 1e-6, "%d: %g, not %g", i, got[i], (&want[0][0][0])[i]);
  tri_backend_destroy(be);
}
END_TEST

START_TEST(quantised_rows_are_within_half_a_step) {
  enum { N = 5, K = 700 };
  static float src[N * K];
  static uint16_t narrow[N * K];
  static int8_t q[N * K];
  float scale[N];
  static const tri_dtype types[] = {TRI_F32, TRI_F16, TRI_BF16};
  fill(src, N * K, 9);
  for (int i = 0; i < K; i++) src[2 * K + i] = 0, src[3 * K + i] *= 1e-3f;
  src[K + 650] = -20; /* one large element in the row's second half */
  for (int t = 0; t < 3; t++) {
    const void *from = src;
    for (size_t i = 0; i < N * K && types[t] != TRI_F32; i++) tri_store_f32(narrow, types[t], i, src[i]), from = narrow;
    ck_assert_int_eq(quantize_rows(from, types[t], N, K, q, scale), TRI_OK);
    for (int r = 0; r < N; r++) {
      int most = 0, wrong = 0;
      for (int i = 0; i < K; i++) {
        int v = q[r * K + i];
        most = abs(v) > most ? abs(v) : most;
        wrong += fabsf((float)v * scale[r] - tri_load_f32(from, types[t], (size_t)(r * K + i))) > 0.50001f * scale[r];
      }
      ck_assert_msg(wrong == 0 && most == (r == 2 ? 0 : 127), "row %d: %d wrong, most %d", r, wrong, most);
    }
  }
  ck_assert_int_eq(quantize_rows(src, TRI_I8, N, K, q, scale), TRI_INVALID_ARGUMENT);
  src[4 * K + 3] = INFINITY;
  ck_assert_int_eq(quantize_rows(src, TRI_F32, N, K, q, scale), TRI_INVALID_ARGUMENT);
  src[4 * K + 3] = NAN;
  ck_assert_int_eq(quantize_rows(src, TRI_F32, N, K, q, scale), TRI_INVALID_ARGUMENT);
}
END_TEST

/* int8 activations: NaN must not get lost on the way through integers. */
START_TEST(rows_that_are_no_numbers_stay_so) {
  float x[3 * 40], out[3 * 2], scale[2] = {0.5f, 0.25f};
  int8_t w[2 * 40];
  fill(x, 120, 1);
  for (int i = 0; i < 80; i++) w[i] = (int8_t)(i - 40);
  x[40 + 39] = NAN, x[80] = -INFINITY;
  tri_linear_args a = {.x = {x, 3, 40, 40}, .w = {w, scale, TRI_I8, 2, 40}, .out = {out, 3, 2, 2}};
  a.rounds_rows = true;
  for (int cpu = 0; cpu < 2; cpu++) {
    tri_backend *be = NULL;
    tri_error err = {0};
    ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = cpu ? "cpu" : "ref"}, &be, &err), TRI_OK);
    ck_assert_int_eq(tri_run_linear(be, &a), TRI_OK);
    ck_assert(isfinite(out[0]) && isfinite(out[1]));
    ck_assert(isnan(out[2]) && isnan(out[3]) && isnan(out[4]) && isnan(out[5]));
    tri_backend_destroy(be);
  }
}
END_TEST

/* Draws from rows that are no numbers are told from those of which the request forbids everything, whole and in two
 * parts, in which a part without a number is enough. */
START_TEST(draws_from_no_numbers_are_told) {
  enum { N = 300 };
  static const float below = -INFINITY;
  static const uint32_t none[(N + 31) / 32];
  const struct {
    float first, others; /* of the row's logits: the first one's, and those of the others */
    float temperature;
    bool masked, broken, broken_in_parts;
    uint32_t target;
  } cases[] = {{1, 2, 0, false, false, false, TRI_SAMPLE_NO_TARGET},
               {1, 2, 1, false, false, false, TRI_SAMPLE_NO_TARGET},
               {NAN, NAN, 0, false, true, true, TRI_SAMPLE_NO_TARGET},
               {NAN, NAN, 1, false, true, true, TRI_SAMPLE_NO_TARGET},
               {below, NAN, 1, true, false, false, TRI_SAMPLE_NO_TARGET},
               {1, NAN, 1, false, true, true, TRI_SAMPLE_NO_TARGET},
               {NAN, 2, 0, false, true, true, TRI_SAMPLE_NO_TARGET},
               {NAN, 2, 1, false, true, true, TRI_SAMPLE_NO_TARGET},
               {NAN, 2, 1, true, false, false, TRI_SAMPLE_NO_TARGET},
               {below, 2, 1, false, false, false, TRI_SAMPLE_NO_TARGET},
               {1, 2, 1, true, false, false, TRI_SAMPLE_NO_TARGET},
               {INFINITY, 2, 0, false, true, true, TRI_SAMPLE_NO_TARGET},
               {INFINITY, 2, 1, false, true, true, TRI_SAMPLE_NO_TARGET},
               {1, 2, 0, false, false, false, 7},
               {NAN, NAN, 0, false, true, true, 7},
               {NAN, 2, 0, false, true, true, 7},
               {INFINITY, 2, 0, false, true, true, 7}};
  for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
    const size_t k = i / 2;
    tri_backend *be = NULL;
    tri_error err = {0};
    ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = i % 2 ? "cpu" : "ref"}, &be, &err), TRI_OK);
    float x[N], again[N];
    for (int j = 0; j < N; j++) x[j] = again[j] = j ? cases[k].others : cases[k].first;
    tri_sample_params p = tri_sample_greedy();
    const tri_sample_params *params = &p;
    const uint32_t *history = NULL;
    int zero = 0;
    uint64_t counter = 0;
    tri_sample_result r = {0}, merged = {0};
    bool given = cases[k].target != TRI_SAMPLE_NO_TARGET;
    p.temperature = cases[k].temperature, p.top_k = 4, p.num_logprobs = given ? 0 : -1;
    if (cases[k].masked) p.mask = none;
    tri_sample_args a = {.logits = {x, 1, N, N, TRI_F32}, .params = &params, .history = &history, .results = &r};
    a.num_prompt = a.num_history = &zero, a.counter = &counter, a.target = &cases[k].target;
    ck_assert_int_eq(tri_run_sample(be, &a), TRI_OK);
    ck_assert_msg(r.broken == cases[k].broken, "case %zu of backend %zu", k, i % 2);
    tri_sample_candidate all[2 * 4];
    tri_sample_part_args part = {.rows = a, .width = 4, .candidates = all};
    part.rows.logits = (tri_mat){again, 1, N / 2, N / 2, TRI_F32};
    tri_sample_merge_args merge = {.rows = a, .num_parts = 2, .width = 4, .candidates = all};
    merge.rows.logits.data = NULL, merge.rows.results = &merged;
    if (!given) {
      ck_assert_int_eq(tri_run_sample_part(be, &part), TRI_OK);
      part.first_id = N / 2, part.candidates = all + 4, part.rows.logits.data = again + N / 2;
      ck_assert_int_eq(tri_run_sample_part(be, &part), TRI_OK);
      ck_assert_int_eq(tri_run_sample_merge(be, &merge), TRI_OK);
      ck_assert_msg(merged.broken == cases[k].broken_in_parts, "case %zu of backend %zu, in parts", k, i % 2);
      if (!r.broken) ck_assert_uint_eq(merged.token, r.token);
    }
    tri_backend_destroy(be);
  }
}
END_TEST

/* A backend without an op says which, where it plans and where it launches, and runs nobody else's code. */
START_TEST(missing_ops_are_refused_by_name) {
  tri_backend *be = reference();
  float x[4] = {1, 2, 3, 4};
  tri_softcap_args a = {.x = {x, 1, 4, 4, TRI_F32}, .scale = 2};
  tri_op_plan plan = {0};
  tri_backend_fill_unsupported(be);
  ck_assert_int_eq(be->ops.softcap_plan(be, &a, &plan), TRI_UNSUPPORTED);
  ck_assert_str_eq(be->failure, "backend ref has no op softcap");
  be->ops.softcap_launch(be, &plan, &a);
  ck_assert_int_eq(be->ops.event_query(be, TRI_EVENT_STEP), TRI_UNSUPPORTED);
  ck_assert_int_eq(be->ops.stream_sync(be), TRI_UNSUPPORTED);
  ck_assert(x[0] == 1 && x[3] == 4);
#define X(op) ck_assert(be->ops.op##_plan(be, NULL, &plan) == TRI_UNSUPPORTED && strstr(be->failure, #op));
  TRI_OP_LIST(X)
#undef X
  tri_backend_destroy(be);
}
END_TEST

Suite *suite_kernels(void) {
  Suite *s = suite_create("kernels");
  TCase *route = tcase_create("moe_route");
  tcase_add_loop_test(route, routes_as_the_models_do, 0, sizeof routers / sizeof *routers);
  tcase_add_test(route, other_groups_stay_out_of_the_question);
  tcase_add_test(route, padding_goes_nowhere);
  tcase_add_test(route, padding_has_no_experts);
  tcase_add_test(route, logits_that_are_no_numbers_choose_some_expert);
  suite_add_tcase(s, route);
  TCase *latent = tcase_create("latent_attention");
  tcase_add_test(latent, absorbed_latent_attention_is_the_expanded_one);
  suite_add_tcase(s, latent);
  TCase *int8 = tcase_create("int8");
  tcase_add_test(int8, quantised_rows_are_within_half_a_step);
  tcase_add_test(int8, rows_that_are_no_numbers_stay_so);
  suite_add_tcase(s, int8);
  TCase *sample = tcase_create("sample");
  tcase_add_test(sample, draws_from_no_numbers_are_told);
  suite_add_tcase(s, sample);
  TCase *table = tcase_create("table");
  tcase_add_test(table, missing_ops_are_refused_by_name);
  suite_add_tcase(s, table);
  return s;
}
