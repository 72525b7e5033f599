/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of this host: found by name, by address and by where they lead, and handed to MPI and NCCL. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/wire/network.h"

Suite *suite_network(void);

START_TEST(by_list) {
  static const char *const of_loopback[] = {"lo", "nosuch0,lo", "127.0.0.0/8", "10.255.255.0/24,127.0.0.1/32", "lo,"};
  static const char *const nobody[] = {"nosuch0",
                                       "l",
                                       "lo0",
                                       "",
                                       ",",
                                       "127.0.0.0/0",
                                       "127.0.0.0/33",
                                       "127.0.0.2/32",
                                       "127.0.0/8",
                                       "a-name-that-is-longer-than-any-interface-may-have-and-than-the-room-for-it"};
  tri_network n;
  for (size_t i = 0; i < sizeof of_loopback / sizeof *of_loopback; i++) {
    ck_assert_msg(tri_network_find(of_loopback[i], &n), "%s", of_loopback[i]);
    ck_assert_str_eq(n.interface, "lo");
    ck_assert_str_eq(n.address, "127.0.0.1");
    ck_assert_str_eq(n.cidr, "127.0.0.0/8");
  }
  for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++)
    ck_assert_msg(!tri_network_find(nobody[i], &n), "%s", nobody[i]);
}
END_TEST

START_TEST(by_way) {
  tri_network any, way;
  char endpoint[64];
  ck_assert(!tri_network_towards("ipc:///tmp/x", &way));
  ck_assert(!tri_network_towards("tcp://name:5", &way));
  ck_assert(!tri_network_towards("tcp://127.0.0.1:5", &way)); /* this host: no network between hosts */
  if (!tri_network_find(NULL, &any)) return;
  ck_assert_str_ne(any.interface, "lo");
  snprintf(endpoint, sizeof endpoint, "tcp://%s:5", any.address);
  ck_assert(tri_network_towards(endpoint, &way));
  ck_assert_str_eq(way.interface, any.interface);
  ck_assert_str_eq(way.cidr, any.cidr);
}
END_TEST

static void expect_env(const char *name, const char *want) {
  const char *got = getenv(name);
  ck_assert_msg(want ? got && !strcmp(got, want) : !got, "%s is %s", name, got ? got : "not set");
}

START_TEST(use) {
  static const char *const names[] = {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude",
                                      "NCCL_SOCKET_IFNAME"};
  tri_error err = {0};
  for (int i = 0; i < 3; i++) unsetenv(names[i]);
  ck_assert_int_eq(tri_network_use("nosuch0", "", &err), TRI_USAGE);
  ck_assert_str_eq(err.field, "interface");
  ck_assert_int_eq(tri_network_use(NULL, "ipc:///tmp/x", &err), TRI_OK);
  for (int i = 0; i < 3; i++) expect_env(names[i], NULL);
  setenv(names[1], "docker0", 1); /* MPI takes one of both */
  ck_assert_int_eq(tri_network_use("127.0.0.0/8", "", &err), TRI_OK);
  expect_env(names[0], NULL);
  expect_env(names[2], "=lo");
  unsetenv(names[1]);
  setenv(names[2], "eth", 1);
  ck_assert_int_eq(tri_network_use("127.0.0.0/8", "", &err), TRI_OK);
  expect_env(names[0], "127.0.0.0/8");
  expect_env(names[2], "eth");
  for (int i = 0; i < 3; i++) unsetenv(names[i]);
}
END_TEST

Suite *suite_network(void) {
  Suite *s = suite_create("network");
  TCase *c = tcase_create("network");
  tcase_add_test(c, by_list);
  tcase_add_test(c, by_way);
  tcase_add_test(c, use);
  suite_add_tcase(s, c);
  return s;
}
