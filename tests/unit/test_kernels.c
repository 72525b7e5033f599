/* What the reference itself is checked against: answers worked out elsewhere. */
#include <check.h>
#include <math.h>

#include "kernels/backend.h"

enum { EXPERTS = 16, TOKENS = 2 };

static tri_backend *reference(void) {
  tri_backend *be = NULL;
  tri_error err = {0};
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "ref"}, &be, &err), TRI_OK);
  return be;
}

/* The routers of Hugging Face transformers (Mixtral, OLMoE, gpt-oss, DeepSeek-V3, DeepSeek-V2), followed step by step
 * in double on the logits and biases below. */
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
};

START_TEST(routes_as_the_models_do) {
  float logits[TOKENS][EXPERTS], bias[EXPERTS], weights[TOKENS * 4];
  int32_t experts[TOKENS * 4];
  for (int e = 0; e < EXPERTS; e++) {
    bias[e] = (float)((e * 5 + 2) % 16 / 40.0 - 0.2);
    for (int t = 0; t < TOKENS; t++) logits[t][e] = (float)((e * 7 + 5 * t + 3) % 16 / 4.0 - 2 + e / 64.0);
  }
  tri_moe_route_args a = routers[_i].args;
  a.logits = (tri_mat){logits[0], TOKENS, EXPERTS, EXPERTS};
  a.bias = routers[_i].biased ? bias : NULL;
  a.experts = experts, a.weights = weights;
  tri_backend *be = reference();
  ck_assert_int_eq(tri_run_moe_route(be, &a, NULL), TRI_OK);
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
  ck_assert_int_eq(tri_run_moe_route(be, &a, NULL), TRI_OK);
  ck_assert(experts[0] == 0 && experts[1] == 1);
  a.top_k = 3; /* more than one group has */
  ck_assert_int_eq(tri_run_moe_route(be, &a, NULL), TRI_INVALID_ARGUMENT);
  tri_backend_destroy(be);
}
END_TEST

/* Whatever the logits are, the ids are those of experts: they become addresses. */
START_TEST(logits_that_are_no_numbers_choose_some_expert) {
  float logits[4] = {NAN, NAN, NAN, NAN}, weights[3];
  int32_t experts[3];
  tri_backend *be = reference();
  for (int score = TRI_MOE_SOFTMAX; score <= TRI_MOE_TOPK_SOFTMAX; score++)
    for (int groups = 1; groups <= 2; groups++)
      for (int numbers = 0; numbers < 3; numbers++) {
        tri_moe_route_args a = {.logits = {logits, 1, 4, 4}, .score = (tri_moe_score)score, .top_k = 2, .scale = 1};
        logits[0] = numbers == 1 ? 1 : NAN, logits[3] = numbers == 2 ? INFINITY : NAN;
        a.num_groups = groups, a.top_groups = 1, a.group_best = 2, a.experts = experts, a.weights = weights;
        ck_assert_int_eq(tri_run_moe_route(be, &a, NULL), TRI_OK);
        ck_assert(experts[0] >= 0 && experts[0] < 4 && experts[1] >= 0 && experts[1] < 4 && experts[0] != experts[1]);
      }
  tri_backend_destroy(be);
}
END_TEST

Suite *suite_kernels(void) {
  Suite *s = suite_create("kernels");
  TCase *route = tcase_create("moe_route");
  tcase_add_loop_test(route, routes_as_the_models_do, 0, sizeof routers / sizeof *routers);
  tcase_add_test(route, other_groups_stay_out_of_the_question);
  tcase_add_test(route, logits_that_are_no_numbers_choose_some_expert);
  suite_add_tcase(s, route);
  return s;
}
