/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json/json.h"
#include "base/mem.h"
#include "runtime/model/expert_balance.h"
#include "runtime/model/expert_placement.h"
#include "runtime/model/layout.h"

Suite *suite_expert_balance(void);

enum { MOST = 12, MOST_SHARES = 32 };

/* The rows of the share that has the most. */
static double most_of(const uint64_t *rows, int experts, const int32_t *expert_of, int slots, int ep) {
  double shares[MOST_SHARES] = {0}, most = 0;
  tri_expert_share_rows(rows, experts, expert_of, slots, ep, shares);
  for (int s = 0; s < ep; s++)
    if (shares[s] > most) most = shares[s];
  return most;
}

/* Every expert has a slot, and no share an expert twice. */
static bool is_sound(int experts, const int32_t *expert_of, int slots, int ep) {
  for (int e = 0; e < experts; e++) {
    int n = 0;
    for (int s = 0; s < slots; s++) n += expert_of[s] == e;
    if (!n) return false;
  }
  for (int share = 0; share < ep; share++) {
    tri_range own = tri_range_part(slots, ep, share);
    for (int a = own.first; a < own.first + own.count; a++)
      for (int b = own.first; b < a; b++)
        if (expert_of[a] == expert_of[b]) return false;
  }
  return true;
}

/* The best of all placements, slot by slot, whoever gets the copies. */
static double brute_force(const uint64_t *rows, int experts, int32_t *expert_of, int slots, int ep, int at) {
  double best = 1e300;
  if (at == slots) return is_sound(experts, expert_of, slots, ep) ? most_of(rows, experts, expert_of, slots, ep) : best;
  for (int e = 0; e < experts; e++) {
    expert_of[at] = e;
    double found = brute_force(rows, experts, expert_of, slots, ep, at + 1);
    if (found < best) best = found;
  }
  return best;
}

START_TEST(close_to_the_best) {
  static const struct {
    int experts, slots, ep;
  } sizes[] = {{3, 3, 2}, {4, 4, 2}, {3, 4, 2}, {4, 5, 2}, {4, 6, 2}, {3, 6, 2}, {4, 6, 3}, {4, 4, 4}, {3, 7, 3}};
  uint64_t seed = (uint64_t)_i;
  double sum = 0, worst = 0;
  int n = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int round = 0; round < 8; round++) {
      int experts = sizes[i].experts, slots = sizes[i].slots, ep = sizes[i].ep;
      uint64_t rows[MOST];
      int32_t got[MOST], scratch[MOST];
      for (int e = 0; e < experts; e++) rows[e] = tri_splitmix64(&seed) % (round % 2 ? 1000 : 10) * (e % 3 ? 1 : 4);
      ck_assert_int_eq(tri_expert_rebalance(rows, experts, slots, ep, got), TRI_OK);
      ck_assert(is_sound(experts, got, slots, ep));
      double best = brute_force(rows, experts, scratch, slots, ep, 0), mine = most_of(rows, experts, got, slots, ep);
      ck_assert(mine >= best - 1e-9);
      double ratio = best > 0 ? mine / best : 1;
      if (ratio > worst) worst = ratio;
      sum += ratio;
      n++;
    }
  ck_assert_msg(worst <= 1.6 && sum / n <= 1.07, "worst %.3f, mean %.4f of the best", worst, sum / n);
}
END_TEST

/* Sizes of real models: every placement is sound, and one expert that has half of all rows is no obstacle. */
START_TEST(sound_at_all_sizes) {
  uint64_t seed = 5, rows[256];
  int32_t expert_of[512];
  for (int experts = 1; experts <= 9; experts++)
    for (int ep = 1; ep <= 4; ep++)
      for (int slots = experts; slots <= ep * experts; slots++) {
        for (int e = 0; e < experts; e++) rows[e] = tri_splitmix64(&seed) % 100;
        tri_status want = ep > slots ? TRI_OUT_OF_RANGE : TRI_OK;
        ck_assert_int_eq(tri_expert_rebalance(rows, experts, slots, ep, expert_of), want);
        if (want == TRI_OK)
          ck_assert_msg(is_sound(experts, expert_of, slots, ep), "%d experts, %d slots, %d shares", experts, slots, ep);
      }
  for (int e = 0; e < 256; e++) rows[e] = e == 77 ? 25500 : 100;
  ck_assert_int_eq(tri_expert_rebalance(rows, 256, 288, 32, expert_of), TRI_OK);
  ck_assert(is_sound(256, expert_of, 288, 32));
  double shares[32] = {0};
  tri_expert_share_rows(rows, 256, expert_of, 288, 32, shares);
  ck_assert_double_ge(tri_expert_balancedness(shares, 32), 0.95);
  ck_assert_int_eq(tri_expert_rebalance(rows, 4, 3, 2, expert_of), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_expert_rebalance(rows, 4, 9, 2, expert_of), TRI_OUT_OF_RANGE);
}
END_TEST

START_TEST(numbers_of_balance) {
  const uint64_t rows[] = {6, 2, 4};
  double shares[2] = {0};
  tri_expert_share_rows(rows, 3, (const int32_t[]){0, 1, 2, 0}, 4, 2, shares);
  ck_assert_double_eq(shares[0], 5);
  ck_assert_double_eq(shares[1], 7);
  ck_assert_double_eq(tri_expert_balancedness(shares, 2), 6.0 / 7);
  ck_assert_double_eq(tri_expert_balancedness((double[]){0, 0}, 2), 1);
}
END_TEST

static const char path[] = TRI_TEST_SCRATCH "/expert_counts.json";

static tri_status read(const char *text, tri_expert_counts *out, tri_error *err) {
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
  return tri_expert_counts_read(path, out, err);
}

/* Checks that the written text can be read as a location. */
/* Tells whether the experts of each router's group lie in shares of one host. */
static bool is_kept(const int32_t *expert_of, int slots, int ep, int size, const int32_t *host_of) {
  int host[64];
  for (int g = 0; g < 64; g++) host[g] = -1;
  for (int s = 0; s < slots; s++) {
    int g = expert_of[s] / size, here = host_of[tri_range_part_with(slots, ep, s)];
    if (host[g] >= 0 && host[g] != here) return false;
    host[g] = here;
  }
  return true;
}

/* Groups stay on one host, with about the balance that is had without it, copies or not. */
START_TEST(groups_on_hosts) {
  static const struct {
    int experts, slots, ep, groups, hosts;
  } sizes[] = {{64, 64, 8, 8, 2}, {64, 72, 8, 8, 2}, {256, 256, 16, 8, 2}, {256, 288, 32, 8, 4}, {60, 66, 12, 6, 3}};
  int kept = 0, n = 0;
  uint64_t seed = 7;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int round = 0; round < 8; round++, n++) {
      int experts = sizes[i].experts, slots = sizes[i].slots, ep = sizes[i].ep, groups = sizes[i].groups;
      uint64_t rows[256];
      int32_t near[288], far[288], host_of[32];
      for (int e = 0; e < experts; e++) rows[e] = 100 + tri_splitmix64(&seed) % 1000;
      for (int s = 0; s < ep; s++) host_of[s] = s * sizes[i].hosts / ep;
      ck_assert_int_eq(tri_expert_rebalance(rows, experts, slots, ep, far), TRI_OK);
      ck_assert_int_eq(tri_expert_rebalance_hosts(rows, experts, slots, ep, groups, host_of, near), TRI_OK);
      ck_assert(is_sound(experts, near, slots, ep));
      double cost = most_of(rows, experts, near, slots, ep) / most_of(rows, experts, far, slots, ep);
      ck_assert_msg(cost <= 1.0 / (1 - TRI_EXPERT_HOST_COST / 100.0) + 1e-9, "the busiest share has %.2f times", cost);
      kept += is_kept(near, slots, ep, experts / groups, host_of);
      ck_assert_int_eq(tri_expert_rebalance_hosts(rows, experts, slots, ep, 1, host_of, near), TRI_OK);
      ck_assert_mem_eq(near, far, (size_t)slots * sizeof *near); /* the router knows no groups */
      ck_assert_int_eq(tri_expert_rebalance_hosts(rows, experts, slots, ep, groups, NULL, near), TRI_OK);
      ck_assert_mem_eq(near, far, (size_t)slots * sizeof *near);
    }
  ck_assert_msg(kept >= n * 9 / 10, "groups stay on one host in %d of %d layers", kept, n);
}
END_TEST

/* One group has nearly all rows: it is spread over the hosts. And where a host has no room for whole groups. */
START_TEST(groups_apart) {
  static const int32_t two[] = {0, 0, 1, 1}, uneven[] = {0, 1, 1, 1};
  uint64_t rows[16];
  int32_t near[16], far[16];
  for (int e = 0; e < 16; e++) rows[e] = e < 4 ? 1000 : 10;
  ck_assert_int_eq(tri_expert_rebalance(rows, 16, 16, 4, far), TRI_OK);
  ck_assert_int_eq(tri_expert_rebalance_hosts(rows, 16, 16, 4, 4, two, near), TRI_OK);
  ck_assert_mem_eq(near, far, sizeof near);
  for (int e = 0; e < 16; e++) rows[e] = 1000;
  ck_assert_int_eq(tri_expert_rebalance(rows, 16, 16, 4, far), TRI_OK);
  ck_assert_int_eq(tri_expert_rebalance_hosts(rows, 16, 16, 4, 2, uneven, near), TRI_OK);
  ck_assert_mem_eq(near, far, sizeof near);
}
END_TEST

START_TEST(files) {
  tri_expert_counts c;
  tri_error err = {0};
  tri_buf out = {0};
  double balancedness;
  ck_assert_int_eq(read("{\"num_experts\": 3, \"rows\": [[9, 1, 1], [2, 2, 2]], \"layers\": []}", &c, &err), TRI_OK);
  ck_assert(c.num_layers == 2 && c.num_experts == 3 && c.rows[0] == 9 && c.rows[5] == 2);
  ck_assert_int_eq(tri_expert_rebalance_all(&c, 4, 2, NULL, &out, &balancedness, &err), TRI_OUT_OF_RANGE);
  ck_assert_str_eq(err.field, "num_redundant_experts");
  out.len = 0;
  ck_assert_int_eq(tri_expert_rebalance_all(&c, 1, 2, NULL, &out, &balancedness, &err), TRI_OK);
  ck_assert_double_eq_tol(balancedness, (5.5 + 3) / (5.5 + 3), 1e-12);
  FILE *f = fopen(path, "w");
  fwrite(out.data, 1, out.len, f);
  fclose(f);
  tri_model_config m = {.num_layers = 2, .moe = {.num_experts = 3}};
  m.layer_flags[0] = m.layer_flags[1] = TRI_LAYER_SPARSE;
  tri_expert_placement *p;
  err = (tri_error){0};
  ck_assert_msg(tri_expert_placement_read(&m, path, &p, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(tri_expert_most_copies(p), 2);
  tri_expert_placement_free(p);
  tri_expert_counts_free(&c);
  tri_buf_free(&out);
}
END_TEST

static const struct {
  const char *text, *why;
} wrong[] = {
    {"{", "malformed"},
    {"{\"rows\": [[1]]}", "no num_experts"},
    {"{\"num_experts\": 0, \"rows\": [[]]}", "no num_experts"},
    {"{\"num_experts\": 1}", "no rows of layers"},
    {"{\"num_experts\": 4, \"num_groups\": 3, \"rows\": [[1, 1, 1, 1]]}", "num_groups 3 does not divide"},
    {"{\"num_experts\": 1, \"rows\": []}", "no rows of layers"},
    {"{\"num_experts\": 2, \"rows\": [[1, 2], [1]]}", "rows of layer 1: they are 1, num_experts is 2"},
    {"{\"num_experts\": 2, \"rows\": [[1, -2]]}", "rows of layer 0, expert 1: no number"},
};

START_TEST(refused_files) {
  tri_expert_counts c;
  tri_error err = {0};
  ck_assert(read(wrong[_i].text, &c, &err) != TRI_OK);
  ck_assert_msg(strstr(err.message, _i ? wrong[_i].why : path) && strstr(err.message, path), "%s", err.message);
}
END_TEST

Suite *suite_expert_balance(void) {
  Suite *s = suite_create("expert_balance");
  TCase *c = tcase_create("expert_balance");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, close_to_the_best, 0, 20);
  tcase_add_test(c, sound_at_all_sizes);
  tcase_add_test(c, numbers_of_balance);
  tcase_add_test(c, groups_on_hosts);
  tcase_add_test(c, groups_apart);
  tcase_add_test(c, files);
  tcase_add_loop_test(c, refused_files, 0, (int)(sizeof wrong / sizeof *wrong));
  suite_add_tcase(s, c);
  return s;
}
