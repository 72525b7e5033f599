/* SPDX-License-Identifier: Apache-2.0 */
/* What mpirun fails of without saying so. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/host/mpirun_check.h"

Suite *suite_mpirun_check(void);

static char why[TRI_MPIRUN_WHY];

static void says(const char *words) {
  ck_assert_msg(strstr(why, words) != NULL, "no \"%s\" in: %s", words, why);
  ck_assert_uint_lt(strlen(why), sizeof why - 1); /* nothing was cut off */
}

/* Only what stands before the domain counts. */
START_TEST(names) {
  char name[256] = "";
  for (int len = 1; len <= 64; len++) {
    memset(name, 'n', (size_t)len);
    name[len] = '\0';
    ck_assert_int_eq(tri_mpirun_check_name(name, why), len <= 55 ? TRI_MPIRUN_STARTS : TRI_MPIRUN_FAILS);
  }
  says("64 characters");
  ck_assert_int_eq(tri_mpirun_check_name("pod.a-namespace-with-a-long-name-of-its-own.svc.cluster.example", why),
                   TRI_MPIRUN_STARTS);
  ck_assert_int_eq(tri_mpirun_check_name("", why), TRI_MPIRUN_STARTS);
}
END_TEST

START_TEST(shared_memory) {
  const int64_t mib = 1 << 20;
  ck_assert_int_eq(tri_mpirun_check_shm(64 * mib, 1, 2, why), TRI_MPIRUN_STARTS); /* Docker's */
  ck_assert_int_eq(tri_mpirun_check_shm(-1, 1, 2, why), TRI_MPIRUN_STARTS);
  ck_assert_int_eq(tri_mpirun_check_shm(8 * mib, 1, 2, why), TRI_MPIRUN_FAILS);
  says("8.0 MiB free, and 1 replica of 2 ranks need at least 8.2 MiB");
  ck_assert_int_eq(tri_mpirun_check_shm(16 * mib, 1, 4, why), TRI_MPIRUN_STARTS);
  ck_assert_int_eq(tri_mpirun_check_shm(16 * mib, 2, 2, why), TRI_MPIRUN_FAILS);
  says("2 replicas of 2 ranks");
  ck_assert_int_eq(tri_mpirun_check_shm(64 * mib, 1, 64, why), TRI_MPIRUN_FAILS);
  ck_assert_int_eq(tri_mpirun_check_shm(17 * mib, 1, 8, why), TRI_MPIRUN_STARTS); /* as these do in fact: */
  ck_assert_int_eq(tri_mpirun_check_shm(16 * mib, 1, 8, why), TRI_MPIRUN_FAILS);
  ck_assert_int_eq(tri_mpirun_check_shm(26 * mib, 1, 16, why), TRI_MPIRUN_STARTS);
  ck_assert_int_eq(tri_mpirun_check_shm(25 * mib, 1, 16, why), TRI_MPIRUN_FAILS);
}
END_TEST

START_TEST(slurm_jobs) {
  static const struct {
    tri_slurm_words job;
    tri_mpirun_verdict verdict;
    const char *words;
  } cases[] = {
      {{NULL, "a", "2", NULL, false}, TRI_MPIRUN_STARTS, NULL},
      {{"7", NULL, NULL, NULL, true}, TRI_MPIRUN_FAILS, "SLURM_NODELIST is not set"},
      {{"7", "here", NULL, NULL, true}, TRI_MPIRUN_FAILS, "SLURM_TASKS_PER_NODE is not set"},
      {{"7", "here", "2", NULL, false}, TRI_MPIRUN_STARTS, NULL},
      {{"7", "other,here", "2,2", NULL, true}, TRI_MPIRUN_STARTS, NULL},
      {{"7", "other,here", "2,2", NULL, false}, TRI_MPIRUN_FAILS, "srun, which is not in PATH"},
      {{"7", "node[1-2]", "2(x2)", NULL, false}, TRI_MPIRUN_FAILS, "job 7 on node[1-2]"},
      {{"7", "node[1-2]", "2(x2)", NULL, true}, TRI_MPIRUN_MAY_FAIL, "this host, here.example, is none of them"},
      {{"7", "node[1-2]", "2(x2)", "node2", true}, TRI_MPIRUN_STARTS, NULL},
      {{"7", "hereabouts", "2", NULL, true}, TRI_MPIRUN_MAY_FAIL, "unset the SLURM_ variables"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    why[0] = '\0';
    ck_assert_msg(tri_mpirun_check_slurm(&cases[i].job, "here.example", why) == cases[i].verdict, "%zu: %s", i, why);
    if (cases[i].words) says(cases[i].words);
  }
}
END_TEST

Suite *suite_mpirun_check(void) {
  Suite *s = suite_create("mpirun_check");
  TCase *c = tcase_create("mpirun_check");
  tcase_add_test(c, names);
  tcase_add_test(c, shared_memory);
  tcase_add_test(c, slurm_jobs);
  suite_add_tcase(s, c);
  return s;
}
