/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of hosts, and which rank is where. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/host/hosts.h"

Suite *suite_hosts(void);

START_TEST(test_lists) {
  static const struct {
    const char *text;
    int count;
    long long slots; /* of the last one */
  } cases[] = {{"a", 1, 1},        {"a:4", 1, 4},    {"a:4,b:2", 2, 2}, {"a:4,b", 2, 1}, {"a:1,a:2", 1, 3},
               {"a,ab,abc", 3, 1}, {"", -1, 0},      {",", -1, 0},      {":4", -1, 0},   {"a:", -1, 0},
               {"a:x", -1, 0},     {"a:0", -1, 0},   {"a:-1", -1, 0},   {"a:4x", -1, 0}, {"a:4:5", -1, 0},
               {"a:4,", -1, 0},    {"a:1,:1", -1, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_hosts h;
    tri_error err = {0};
    tri_status st = tri_hosts_parse(cases[i].text, &h, &err);
    ck_assert_msg(st == (cases[i].count < 0 ? TRI_USAGE : TRI_OK), "\"%s\": %s", cases[i].text, err.message);
    if (st == TRI_OK) ck_assert_int_eq(h.count, cases[i].count);
    if (st == TRI_OK) ck_assert_int_eq(h.list[h.count - 1].slots, cases[i].slots);
    tri_hosts_free(&h);
  }
}
END_TEST

/* Lists every host with its slots, as a launcher would be given them. */
static void check_slurm(const char *nodes, const char *tasks, const char *want) {
  tri_hosts h;
  tri_error err = {0};
  char text[TRI_HOSTS_TEXT] = "";
  tri_status st = tri_hosts_parse_slurm(nodes, tasks, &h, &err);
  ck_assert_msg(st == (want ? TRI_OK : TRI_USAGE), "\"%s\": %s", nodes, err.message);
  for (int i = 0; st == TRI_OK && i < h.count; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s:%lld ", h.list[i].name, h.list[i].slots);
  if (want) ck_assert_str_eq(text, want);
  tri_hosts_free(&h);
}

START_TEST(test_slurm) {
  check_slurm("n1", "4", "n1:4 ");
  check_slurm("n[1-3]", "4(x2),3", "n1:4 n2:4 n3:3 ");
  check_slurm("n[08-10,12],login,g-x[1]", "2,1(x9)", "n08:2 n09:1 n10:1 n12:1 login:1 g-x1:1 ");
  check_slurm("n[1-2]", "", "n1:1 n2:1 ");
  check_slurm("n[1-2]", "3", "n1:3 n2:1 ");
  check_slurm("n[1-2]", "3(x0),2", "n1:0 n2:0 ");
  check_slurm("", "4", NULL);
  check_slurm("n[", "4", NULL);
  check_slurm("n[1", "4", NULL);
  check_slurm("n[2-1]", "4", NULL);
  check_slurm("n[1-9999999]", "4", NULL);
  check_slurm("n[1-2]r[1-2]", "4", NULL);
  check_slurm("n[a]", "4", NULL);
}
END_TEST

START_TEST(test_groups) {
  static const struct {
    const char *hosts;
    int groups, ranks;
    bool more;
    const char *lists, *shares; /* of the groups */
  } cases[] = {
      {"a:1,b:1", 2, 1, false, "a:1 b:1 ", "1@0/1 1@0/1 "},
      {"a:8,b:8", 2, 8, false, "a:8 b:8 ", "8@0/8 8@0/8 "},
      {"a:8,b:8", 4, 4, false, "a:4 a:4 b:4 b:4 ", "4@0/8 4@4/8 4@0/8 4@4/8 "},
      {"a:3,b:1", 1, 4, false, "a:3,b:1 ", "3@0/3,1@0/1 "},
      {"a:3,b:4", 3, 2, false, "a:2 b:2 b:2 ", "2@0/2 2@0/4 2@2/4 "},
      {"a:2,b:4", 1, 4, false, "b:4 ", "4@0/4 "}, /* whole where that can be */
      {"a:3,b:3", 3, 2, false, "a:2 b:2 a:1,b:1 ", "2@0/3 2@0/3 1@2/3,1@2/3 "},
      {"a:2,b:2", 1, 5, false, NULL, NULL},
      {"a:2,b:2", 2, 3, false, NULL, NULL},
      {"a:1,b:1", 2, 2, true, "a:2 b:2 ", "2@0/2 2@0/2 "},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_hosts h;
    tri_error err = {0};
    tri_place places[64];
    char list[TRI_HOSTS_TEXT], shares[TRI_PLACES_TEXT], lists[256] = "", all[256] = "";
    ck_assert_int_eq(tri_hosts_parse(cases[i].hosts, &h, &err), TRI_OK);
    tri_status st = tri_hosts_place(&h, cases[i].groups, cases[i].ranks, cases[i].more, places);
    ck_assert_int_eq(st, cases[i].lists ? TRI_OK : TRI_NO_CAPACITY);
    for (int g = 0; st == TRI_OK && g < cases[i].groups; g++) {
      ck_assert(tri_hosts_list(&h, places + g * cases[i].ranks, cases[i].ranks, list));
      ck_assert(tri_hosts_shares(&h, places + g * cases[i].ranks, cases[i].ranks, shares));
      strcat(strcat(lists, list), " ");
      strcat(strcat(all, shares), " ");
    }
    if (st == TRI_OK) ck_assert_str_eq(lists, cases[i].lists);
    if (st == TRI_OK) ck_assert_str_eq(all, cases[i].shares);
    tri_hosts_free(&h);
  }
}
END_TEST

START_TEST(test_shares) {
  static const struct {
    const char *text;
    int rank, local_size;
    bool good;
    int first, count;
  } cases[] = {{"4@4/8", 0, 4, true, 4, 8},       {"4@4/8", 3, 4, true, 4, 8},       {"4@4/8", 4, 4, false, 0, 0},
               {"4@4/8", 0, 2, false, 0, 0}, /* the launcher has put them elsewhere */
               {"3@1/4,1@0/1", 3, 1, true, 0, 1}, {"3@1/4,1@0/1", 2, 3, true, 1, 4}, {"3@2/4", 0, 3, false, 0, 0},
               {"", 0, 1, false, 0, 0},           {"x", 0, 1, false, 0, 0},          {"0@0/1,1@0/1", 0, 1, false, 0, 0},
               {"-1@0/1", 0, 1, false, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int first = -1, count = -1;
    bool good = tri_hosts_read_share(cases[i].text, cases[i].rank, cases[i].local_size, &first, &count);
    ck_assert_msg(good == cases[i].good, "\"%s\" for rank %d", cases[i].text, cases[i].rank);
    if (good) ck_assert_int_eq(first, cases[i].first);
    if (good) ck_assert_int_eq(count, cases[i].count);
  }
}
END_TEST

Suite *suite_hosts(void) {
  Suite *s = suite_create("hosts");
  TCase *c = tcase_create("hosts");
  tcase_add_test(c, test_lists);
  tcase_add_test(c, test_slurm);
  tcase_add_test(c, test_groups);
  tcase_add_test(c, test_shares);
  suite_add_tcase(s, c);
  return s;
}
