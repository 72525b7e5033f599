/* SPDX-License-Identifier: Apache-2.0 */
/* trireme doctor: what is read of a host's files and of other programs' words, and what is made of it. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/wait.h"
#include "tools/doctor/doctor.h"

Suite *suite_doctor(void);

#define GIB ((int64_t)1 << 30)
#define ROOT TRI_TEST_SCRATCH "/doctor"

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  ck_assert(f != NULL);
  fputs(text, f);
  fclose(f);
}

static tri_findings found; /* of the last judgement */

static const tri_finding *judge(const tri_host_facts *h, int64_t model, const char *check) {
  found = (tri_findings){0};
  tri_judge_host(h, model, &found);
  for (int i = 0; i < found.count; i++)
    if (!strcmp(found.list[i].check, check)) return &found.list[i];
  ck_abort_msg("no finding %s", check);
}

static tri_host_facts good(void) {
  return (tri_host_facts){.cores = 16,
                          .online = 16,
                          .can_bind = true,
                          .memory = 64 * GIB,
                          .memory_available = 60 * GIB,
                          .memory_allowed = 50 * GIB,
                          .memlock = INT64_MAX,
                          .nofile = 65536,
                          .shm = 32 * GIB,
                          .shm_free = 32 * GIB};
}

START_TEST(reads_meminfo) {
  mkdir(ROOT, 0700);
  mkdir(ROOT "/proc", 0700);
  write_file(ROOT "/proc/meminfo",
             "MemTotal:       100 kB\nMemAvailable:    12345 kB\nHugePages_Total:       7\nOdd: x kB\n"
             "Negative: -5 kB\nNothing:\n");
  ck_assert_int_eq(tri_read_meminfo(ROOT, "MemAvailable"), 12345 * 1024);
  ck_assert_int_eq(tri_read_meminfo(ROOT, "MemTotal"), 100 * 1024);
  ck_assert_int_eq(tri_read_meminfo(ROOT, "HugePages_Total"), 7);
  static const char *const none[] = {"Mem", "Odd", "Negative", "Nothing", "Other"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) ck_assert_int_eq(tri_read_meminfo(ROOT, none[i]), -1);
  ck_assert_int_eq(tri_read_meminfo(ROOT "/other", "MemTotal"), -1);
  tri_host_facts facts;
  tri_gather_host(ROOT, &facts);
  ck_assert_int_eq(facts.memory, 100 * 1024);
  ck_assert_int_eq(facts.shm, -1);
  ck_assert(facts.cores > 0 && facts.online > 0 && facts.nofile > 0);
}
END_TEST

/* What mpirun fails of is a finding, with what to do. */
START_TEST(judges_the_launch) {
  tri_host_facts h = good();
  snprintf(h.name, sizeof h.name, "here");
  judge(&h, 0, "shm");
  for (int i = 0; i < found.count; i++)
    ck_assert(strcmp(found.list[i].check, "hostname") != 0 && strcmp(found.list[i].check, "slurm") != 0);
  memset(h.name, 'n', 63);
  const tri_finding *x = judge(&h, 0, "hostname");
  ck_assert_int_eq(x->level, TRI_LEVEL_FAIL);
  ck_assert_ptr_nonnull(strstr(x->value, "63 characters"));
  ck_assert_msg(!strncmp(x->advice, "Give it a shorter one", 21), "%s", x->advice);
  h.job = (tri_slurm_words){.id = "7"};
  x = judge(&h, 0, "slurm");
  ck_assert_int_eq(x->level, TRI_LEVEL_FAIL);
  ck_assert_msg(!strncmp(x->advice, "Unset the SLURM_ variables", 26), "%s", x->advice);
}
END_TEST

START_TEST(judges_hosts) {
  tri_host_facts h = good();
  static const char *const checks[] = {"cores", "memory", "memlock", "nofile", "shm"};
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
    const tri_finding *x = judge(&h, 10 * GIB, checks[i]);
    ck_assert_msg(x->level == TRI_LEVEL_OK && !x->advice[0] && x->value[0], "%s", checks[i]);
  }
  ck_assert_str_eq(judge(&h, 0, "memlock")->value, "unlimited");
  ck_assert_int_eq(judge(&h, 51 * GIB, "memory")->level, TRI_LEVEL_WARN);
  h.memory_allowed = GIB / 4;
  ck_assert_int_eq(judge(&h, 0, "memory")->level, TRI_LEVEL_FAIL);
  h.cores = 7;
  ck_assert_int_eq(judge(&h, 0, "cores")->level, TRI_LEVEL_WARN);
  h.cores = 16;
  h.can_bind = false;
  ck_assert(judge(&h, 0, "cores")->level == TRI_LEVEL_WARN && strstr(found.list[0].value, "not be bound"));
  h.nofile = 1023;
  ck_assert_int_eq(judge(&h, 0, "nofile")->level, TRI_LEVEL_FAIL);
  h.nofile = 1024;
  ck_assert_int_eq(judge(&h, 0, "nofile")->level, TRI_LEVEL_WARN);
  ck_assert_str_eq(judge(&h, 0, "nofile")->limit, "at least 4096");
  h.shm_free = (int64_t)63 << 20;
  ck_assert_int_eq(judge(&h, 0, "shm")->level, TRI_LEVEL_FAIL);
  h.shm_free = -1;
  ck_assert_int_eq(judge(&h, 0, "shm")->level, TRI_LEVEL_FAIL);
  h.memlock = 65536;
  ck_assert_int_eq(judge(&h, 0, "memlock")->level, TRI_LEVEL_WARN);
}
END_TEST

START_TEST(judges_disks) {
  found = (tri_findings){0};
  tri_judge_disk("/a", 400000000, 2, true, &found);
  tri_judge_disk("/b", 400000000, 2.1, false, &found);
  tri_judge_nvme("/c", 5 * GIB, 5 * GIB, &found);
  tri_judge_nvme("/d", 4 * GIB, 5 * GIB, &found);
  tri_judge_nvme("/e", -1, 0, &found);
  tri_judge_disk("/f", 1000000, 1, true, &found); /* a small file tells little */
  static const tri_level levels[] = {TRI_LEVEL_OK,   TRI_LEVEL_WARN, TRI_LEVEL_OK,
                                     TRI_LEVEL_WARN, TRI_LEVEL_FAIL, TRI_LEVEL_OK};
  for (int i = 0; i < 6; i++) ck_assert_int_eq(found.list[i].level, levels[i]);
  ck_assert_str_eq(found.list[0].value, "200 MB/s past the page cache, /a");
  ck_assert_int_eq(tri_findings_worst(&found, 1), TRI_LEVEL_FAIL);
}
END_TEST

START_TEST(reads_devices) {
  tri_device_facts d;
  ck_assert(tri_device_read("NVIDIA H100 80GB HBM3, 570.1.2, 81559, 4, 345, 1980, 0, 5, 5, 16, 16\n", &d));
  ck_assert_str_eq(d.name, "NVIDIA H100 80GB HBM3");
  ck_assert_str_eq(d.driver, "570.1.2");
  ck_assert(d.memory_mib == 81559 && d.used_mib == 4 && d.most_clock_mhz == 1980 && d.pcie_width == 16);
  found = (tri_findings){0};
  tri_judge_device(0, &d, &found);
  ck_assert(found.list[0].level == TRI_LEVEL_OK && !found.list[0].advice[0]);
  d.ecc_errors = 2;
  tri_judge_device(1, &d, &found);
  ck_assert_int_eq(found.list[1].level, TRI_LEVEL_FAIL);
  d.ecc_errors = -1;
  d.pcie_width = 8;
  tri_judge_device(2, &d, &found);
  ck_assert_int_eq(found.list[2].level, TRI_LEVEL_WARN);
  d.pcie_width = 16;
  d.used_mib = 5000;
  tri_judge_device(3, &d, &found);
  ck_assert_int_eq(found.list[3].level, TRI_LEVEL_WARN);
  ck_assert(tri_device_read("T4, 1, [N/A], 4, 345, 1980, [Not Supported], 5, 5, 16, [N/A]", &d));
  ck_assert(d.memory_mib == -1 && d.ecc_errors == -1 && d.most_pcie_width == -1);
  tri_judge_device(4, &d, &found);
  ck_assert_int_eq(found.list[4].level, TRI_LEVEL_OK);
  static const char *const wrong[] = {"", "No devices were found", "T4, 1, 2, 3",
                                      "T4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11", ", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_msg(!tri_device_read(wrong[i], &d), "%s", wrong[i]);
}
END_TEST

START_TEST(judges_mpirun) {
  static const struct {
    const char *version;
    tri_level level;
  } cases[] = {{"mpirun (Open MPI) 4.1.4", TRI_LEVEL_OK},
               {"mpirun (Open MPI) 5.0.1", TRI_LEVEL_WARN},
               {"HYDRA build details:", TRI_LEVEL_FAIL},
               {"", TRI_LEVEL_FAIL},
               {NULL, TRI_LEVEL_FAIL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    found = (tri_findings){0};
    tri_judge_mpirun(cases[i].version, &found);
    ck_assert_int_eq(found.list[0].level, cases[i].level);
  }
}
END_TEST

/* What one doctor prints another one reads, whatever the words. */
START_TEST(findings_go_through_json) {
  tri_findings all[2] = {{.host = "a\"b\\"}, {.host = "c"}}, back = {0};
  tri_error err = {0};
  char *text = NULL;
  size_t len = 0;
  tri_finding *x = tri_findings_add(&all[0], TRI_LEVEL_WARN, "check");
  snprintf(x->value, sizeof x->value, "line\none\ttwo \"three\"");
  snprintf(x->limit, sizeof x->limit, "limit");
  snprintf(x->advice, sizeof x->advice, "Do it.");
  tri_findings_add(&all[0], TRI_LEVEL_OK, "other");
  tri_findings_add(&all[1], TRI_LEVEL_FAIL, "third");
  FILE *f = open_memstream(&text, &len);
  tri_findings_print_json(all, 2, f);
  fclose(f);
  ck_assert(strstr(text, "{\"worst\":\"fail\",\"hosts\":[{\"host\":\"a\\\"b\\\\\"") == text);
  ck_assert_msg(tri_findings_read(text, len, &back, &err) == TRI_OK, "%s", err.message);
  ck_assert_str_eq(back.host, all[0].host);
  ck_assert_int_eq(back.count, 2);
  ck_assert_str_eq(back.list[0].value, all[0].list[0].value);
  ck_assert_str_eq(back.list[0].limit, "limit");
  ck_assert_str_eq(back.list[0].advice, "Do it.");
  ck_assert(back.list[0].level == TRI_LEVEL_WARN && back.list[1].level == TRI_LEVEL_OK);
  free(text);
  static const char *const wrong[] = {"", "{}", "{\"hosts\":[]}", "{\"hosts\":[{\"findings\":3}]}", "no"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert(tri_findings_read(wrong[i], strlen(wrong[i]), &back, &err) != TRI_OK);
  for (int i = 0; i < TRI_DOCTOR_MOST + 5; i++) tri_findings_add(&back, TRI_LEVEL_OK, "many");
  ck_assert_int_eq(back.count, TRI_DOCTOR_MOST);
}
END_TEST

static int list(const tri_doctor_options *o, const char *want) {
  char **names = NULL, *memory = NULL, text[256] = "";
  int count = 0;
  tri_error err = {0};
  tri_status st = tri_doctor_list_hosts(o, &names, &count, &memory, &err);
  for (int i = 0; st == TRI_OK && i < count; i++) sprintf(text + strlen(text), "%s,", names[i]);
  tri_free(names);
  tri_free(memory);
  if (st == TRI_OK) ck_assert_str_eq(text, want);
  return (int)st;
}

START_TEST(lists_hosts) {
  const char *path = TRI_TEST_SCRATCH "/doctor_hosts";
  ck_assert_int_eq(list(&(tri_doctor_options){0}, ""), TRI_OK);
  ck_assert_int_eq(list(&(tri_doctor_options){.hosts = "a:4,b,a:2"}, "a,b,"), TRI_OK);
  ck_assert_int_eq(list(&(tri_doctor_options){.hosts = "a:x"}, ""), TRI_USAGE);
  write_file(path, "# ours\na slots=4\n\n  b\tslots=2 # more\nc\na\n");
  ck_assert_int_eq(list(&(tri_doctor_options){.hostfile = path}, "a,b,c,"), TRI_OK);
  ck_assert_int_eq(list(&(tri_doctor_options){.hostfile = path, .hosts = "a"}, ""), TRI_USAGE);
  write_file(path, "# nobody\n");
  ck_assert_int_eq(list(&(tri_doctor_options){.hostfile = path}, ""), TRI_USAGE);
  unlink(path);
  ck_assert_int_eq(list(&(tri_doctor_options){.hostfile = path}, ""), TRI_NOT_FOUND);
}
END_TEST

START_TEST(runs_programs) {
  static const struct {
    const char *script;
    int code;
    const char *out;
  } cases[] = {{"echo one; echo two >&2; exit 3", 3, "one\ntwo\n"},
               {"exec no-such-program 2>/dev/null", 127, ""},
               {"kill -9 $$", -1, ""},
               {"yes | head -c 100000", 0, "y\ny\ny\ny\ny\ny\ny\n"},
               {"sleep 3600", -1, ""},
               {"exec >/dev/null 2>&1; sleep 3600", -1, ""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)cases[i].script, NULL}, out[16];
    tri_running run;
    tri_error err = {0};
    ck_assert_int_eq(tri_run_start(argv, &run, &err), TRI_OK);
    int64_t limit_ms = strstr(cases[i].script, "sleep") ? 300 : 60000;
    ck_assert_int_eq(tri_run_end(&run, tri_deadline_after_ms(limit_ms), out, sizeof out), cases[i].code);
    ck_assert_str_eq(out, cases[i].code == 0 ? "y\ny\ny\ny\ny\ny\ny\ny" : cases[i].out);
  }
}
END_TEST

Suite *suite_doctor(void) {
  Suite *s = suite_create("doctor");
  TCase *t = tcase_create("doctor");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, reads_meminfo);
  tcase_add_test(t, judges_hosts);
  tcase_add_test(t, judges_the_launch);
  tcase_add_test(t, judges_disks);
  tcase_add_test(t, reads_devices);
  tcase_add_test(t, judges_mpirun);
  tcase_add_test(t, findings_go_through_json);
  tcase_add_test(t, lists_hosts);
  tcase_add_test(t, runs_programs);
  suite_add_tcase(s, t);
  return s;
}
