/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's quarantine of hosts, and its folders. */
#include <check.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "coordinator/up/up.h"
#include "base/log.h"
#include "base/wait.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_up_hosts(void);

/* ---- other files of the supervisor ---- */

const char *tri_up_called = "up";
void tri_up_give_up(tri_up *u, int code, const char *fmt, ...) {
  (void)u;
  ck_abort_msg("given up: %d %s", code, fmt);
}

bool tri_up_tell(tri_up *u, const char *fmt, ...) {
  (void)u;
  (void)fmt;
  return false; /* there is no coordinator */
}

tri_status tri_up_spawn_replica(tri_up *u, int group, tri_error *err) {
  u->replicas[group].pid = 1;
  (void)err;
  return TRI_OK;
}

void tri_up_kill(pid_t pid, int64_t *killed_ns) {
  (void)pid;
  (void)killed_ns;
}

bool tri_up_is_stuck(const tri_up *u, pid_t pid, int64_t killed_ns, int64_t now, const char *name) {
  (void)u;
  (void)pid;
  (void)killed_ns;
  (void)now;
  (void)name;
  return false;
}

void tri_up_start_check(tri_up *u, int group, int64_t now) {
  (void)u;
  (void)group;
  (void)now;
}

static int num_quarantines; /* that were logged */

void __wrap_tri_log(tri_log_level level, const char *component, const char *fmt, ...) {
  char line[1000];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  (void)component;
  num_quarantines += level == TRI_LOG_ERROR && strstr(line, "The host is not used for") != NULL;
}

/* ---- hosts ---- */

enum { NUM_HOSTS = 3, WORLD = 4 };

/* Two groups of four ranks on three hosts: the first one's change from host to host. */
static tri_up *make_up(void) {
  static tri_host hosts[NUM_HOSTS] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
  static tri_place places[2 * WORLD] = {{.host = 0}, {.host = 1}, {.host = 0}, {.host = 1},
                                        {.host = 2}, {.host = 2}, {.host = 2}, {.host = 2}};
  static tri_up u;
  tri_error err = {0};
  tri_free(u.held_hosts);
  u = (tri_up){.called = "up", .layout = {.tp = WORLD, .pp = 1, .dp = 1, .replicas = 2}, .places = places};
  u.hosts.list = hosts;
  u.hosts.count = NUM_HOSTS;
  u.opts.max_restarts = 100;
  u.opts.quarantine_time = 600;
  for (int g = 0; g < 2; g++) {
    u.replicas[g].pid = 1;
    u.replicas[g].failed_rank = -1;
  }
  ck_assert_int_eq(tri_up_replicas_prepare(&u, &err), TRI_OK);
  num_quarantines = 0;
  return &u;
}

/* The first group ends; judged at once, or when its ranks have had the time to say why. */
static void end(tri_up *u, int code, int failed_rank) {
  u->replicas[0].pid = 1;
  u->replicas[0].failed_rank = failed_rank;
  tri_up_replica_ended(u, 0, code << 8);
  tri_up_replicas_check(u, tri_now_ns() + 60000000000LL);
}

/* A device of a group that says not of which rank: each of its hosts is left out, once. */
START_TEST(a_host_is_blamed_once) {
  tri_up *u = make_up();
  end(u, TRI_EXIT_DEVICE, -1);
  ck_assert_int_eq(num_quarantines, 2);
  ck_assert(u->held_hosts[0].until_ns && u->held_hosts[1].until_ns && !u->held_hosts[2].until_ns);
  u = make_up();
  end(u, TRI_EXIT_DEVICE, 3);
  ck_assert_int_eq(num_quarantines, 1);
  ck_assert(!u->held_hosts[0].until_ns && u->held_hosts[1].until_ns && !u->held_hosts[2].until_ns);
}
END_TEST

/* A start that has failed counts once for each host. */
START_TEST(failed_starts_of_a_host) {
  tri_up *u = make_up();
  for (int i = 1; i < 3; i++) {
    end(u, TRI_EXIT_FAILED, -1);
    ck_assert(u->held_hosts[0].failed_starts == i && u->held_hosts[1].failed_starts == i);
    ck_assert(!u->held_hosts[2].failed_starts && !num_quarantines);
  }
  end(u, TRI_EXIT_FAILED, -1);
  ck_assert_int_eq(num_quarantines, 2);
}
END_TEST

/* ---- folders ---- */

static int count_entries(const char *path) {
  int n = 0;
  DIR *dir = opendir(path);
  ck_assert_ptr_nonnull(dir);
  for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
  closedir(dir);
  return n;
}

/* A folder that cannot be opened, and so not be locked, does not stay. */
START_TEST(folder_without_a_descriptor) {
  char base[SCRATCH_BYTES];
  tri_up_folder f = {0};
  tri_error err = {0};
  struct rlimit had, none;
  scratch_make(base);
  ck_assert(!getrlimit(RLIMIT_NOFILE, &had));
  none = (struct rlimit){.rlim_cur = 0, .rlim_max = had.rlim_max};
  ck_assert(!setrlimit(RLIMIT_NOFILE, &none));
  tri_status st = tri_up_folder_make(base, &f, &err);
  ck_assert(!setrlimit(RLIMIT_NOFILE, &had));
  ck_assert_int_eq(st, TRI_IO);
  ck_assert(strstr(err.message, "cannot open ") && !f.path[0]);
  ck_assert_int_eq(count_entries(base), 0);
  tri_up_folder_remove(&f);
  ck_assert_int_eq(tri_up_folder_make(base, &f, &err), TRI_OK);
  ck_assert_int_eq(count_entries(base), 1);
  tri_up_folder_remove(&f);
  ck_assert_int_eq(count_entries(base), 0);
  scratch_remove(base);
}
END_TEST

Suite *suite_up_hosts(void) {
  Suite *s = suite_create("up_hosts");
  TCase *c = tcase_create("up_hosts");
  tcase_add_test(c, a_host_is_blamed_once);
  tcase_add_test(c, failed_starts_of_a_host);
  tcase_add_test(c, folder_without_a_descriptor);
  suite_add_tcase(s, c);
  return s;
}
