/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank runs: addresses and lists as the system writes them, the cores near a device, and who gets a device. */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host/topo.h"
#include "worker/process/rank_hardware.h"

Suite *suite_rank_hardware(void);

START_TEST(test_addresses) {
  static const struct {
    const char *text, *want;
  } cases[] = {{"0000:1b:00.0", "0000:1b:00.0"},
               {"0000:1B:00.0", "0000:1b:00.0"},
               {"00000000:AF:1F.7", "0000:af:1f.7"},
               {"0001:00:02.3", "0001:00:02.3"},
               {"0000FfFf:01:00.0", "ffff:01:00.0"},
               {"1b:00.0", "0000:1b:00.0"},
               {"", NULL},
               {":", NULL},
               {"1b00.0", NULL},
               {"0000:1b:00", NULL},
               {"0000:1b:00.", NULL},
               {"0000:1b:00.8", NULL},
               {"0000:1b:20.0", NULL},
               {"0000:1b:00.0 ", NULL},
               {" 0000:1b:00.0", NULL},
               {"0000:1b:00.00", NULL},
               {"0000:11b:00.0", NULL},
               {"00010000:1b:00.0", NULL},
               {"000000000:1b:00.0", NULL},
               {"0:0000:1b:00.0", NULL},
               {"-001:1b:00.0", NULL},
               {"0x01:1b:00.0", NULL},
               {"../../etc", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char out[TRI_PCI_ADDRESS] = "untouched";
    bool good = tri_topo_pci_address(cases[i].text, out);
    ck_assert_msg(good == (cases[i].want != NULL), "\"%s\" gives %s", cases[i].text, out);
    ck_assert_str_eq(out, good ? cases[i].want : "untouched");
  }
}
END_TEST

START_TEST(test_lists) {
  static const struct {
    const char *text;
    int count, numbers[8];
  } cases[] = {{"0-3,8-11", 8, {0, 1, 2, 3, 8, 9, 10, 11}},
               {"0-3,8-11\n", 8, {0, 1, 2, 3, 8, 9, 10, 11}},
               {"5", 1, {5}},
               {"7-7,9", 2, {7, 9}},
               {"", 0, {0}},
               {"\n", 0, {0}},
               {"0-8", -1, {0}}, /* one more than fits */
               {"0-3,8-12", -1, {0}},
               {"0-4294967295", -1, {0}},
               {"99999999999999999999", -1, {0}},
               {"0-", -1, {0}},
               {"-3", -1, {0}},
               {"3-1", -1, {0}},
               {"1,,2", -1, {0}},
               {"1,", -1, {0}},
               {"1 2", -1, {0}},
               {"all", -1, {0}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int out[8];
    int n = tri_topo_read_list(cases[i].text, out, 8);
    ck_assert_msg(n == cases[i].count, "\"%s\" has %d numbers", cases[i].text, n);
    for (int k = 0; k < n; k++) ck_assert_int_eq(out[k], cases[i].numbers[k]);
  }
}
END_TEST

static const char sysfs[] = TRI_TEST_SCRATCH "/place_sys";

static void write_list(const char *address, const char *list) {
  static const char *const levels[] = {"", "/bus", "/bus/pci", "/bus/pci/devices"};
  char path[512];
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    snprintf(path, sizeof path, "%s%s", sysfs, levels[i]);
    mkdir(path, 0700);
  }
  snprintf(path, sizeof path, "%s/bus/pci/devices/%s", sysfs, address);
  mkdir(path, 0700);
  strcat(path, "/local_cpulist");
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(list, f);
  fclose(f);
}

/* Only what this process may use counts, of whatever the device is near to. */
START_TEST(test_cores_near) {
  cpu_set_t allowed;
  int cores[4096], first = 0;
  char list[64];
  ck_assert_int_eq(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  while (!CPU_ISSET(first, &allowed)) first++;
  write_list("0000:1b:00.0", "0-1023\n");
  ck_assert_int_eq(tri_topo_cores_near(sysfs, "0000:1b:00.0", cores, 4096), CPU_COUNT(&allowed));
  ck_assert_int_eq(cores[0], first);
  snprintf(list, sizeof list, "%d,2000-2003\n", first);
  write_list("0000:1c:00.0", list);
  ck_assert_int_eq(tri_topo_cores_near(sysfs, "0000:1c:00.0", cores, 4096), 1);
  ck_assert_int_eq(cores[0], first);
  write_list("0000:1d:00.0", "2000-2003\n");
  write_list("0000:1e:00.0", "\n");
  write_list("0000:1f:00.0", "none\n");
  ck_assert_int_eq(tri_topo_cores_near(sysfs, "0000:1d:00.0", cores, 4096), 0);
  ck_assert_int_eq(tri_topo_cores_near(sysfs, "0000:1e:00.0", cores, 4096), 0);
  ck_assert_int_eq(tri_topo_cores_near(sysfs, "0000:1f:00.0", cores, 4096), 0);
  ck_assert_int_eq(tri_topo_cores_near(sysfs, "0000:20:00.0", cores, 4096), 0);
  ck_assert_int_eq(tri_topo_cores_near("/nonexistent", "0000:1b:00.0", cores, 4096), 0);
}
END_TEST

START_TEST(test_bind) {
  cpu_set_t before, after;
  int first = 0;
  ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
  while (!CPU_ISSET(first, &before)) first++;
  if (tri_topo_bind(&first, 1)) { /* a sandbox may forbid it */
    ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
    ck_assert_int_eq(CPU_COUNT(&after), 1);
    ck_assert(CPU_ISSET(first, &after));
  }
  ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
  ck_assert(!tri_topo_bind(&first, 0));
}
END_TEST

START_TEST(test_devices_differ) {
  char names[3][TRI_DEVICE_NAME] = {"GPU-a", "GPU-b", "GPU-c"};
  ck_assert(tri_rank_hardware_devices_differ(names[0], 3));
  strcpy(names[2], "GPU-a");
  ck_assert(!tri_rank_hardware_devices_differ(names[0], 3));
  ck_assert(tri_rank_hardware_devices_differ(names[0], 2));
  names[1][0] = 0;
  ck_assert(!tri_rank_hardware_devices_differ(names[0], 2));
  ck_assert(tri_rank_hardware_devices_differ(names[0], 1));
}
END_TEST

/* What --backend auto gives: never cuda where that could not do what is asked. */
START_TEST(test_auto) {
  for (int deterministic = 0; deterministic < 2; deterministic++) {
    tri_serve_options o = {.backend = "auto", .threads = 2, .dp = 1, .deterministic = deterministic};
    tri_comm_config cc = {.timeout_ms = 1000};
    tri_comm *world;
    tri_rank_hardware hardware;
    tri_error err = {0};
    ck_assert_int_eq(tri_comm_self_create(&cc, &world), TRI_OK);
    ck_assert_msg(tri_rank_hardware_take(&o, world, 0, 1, 0, &hardware, &err) == TRI_OK, "%s", err.message);
    ck_assert_int_eq(hardware.backend->device[0] != 0, !strcmp(hardware.backend->name, "cuda"));
    if (deterministic) ck_assert_str_eq(hardware.backend->name, "cpu");
    ck_assert(hardware.backend->deterministic == deterministic);
    ck_assert_ptr_eq(hardware.backend->pool, hardware.pool);
    ck_assert_int_eq(tri_pool_size(hardware.pool), 2);
    tri_backend_destroy(hardware.backend);
    tri_pool_destroy(hardware.pool);
    tri_comm_destroy(world);
  }
}
END_TEST

/* The core of a group's thread; -1: none of its own. */
static int core_of(tri_serve_options o) {
  tri_comm_config cc = {.timeout_ms = 1000};
  tri_comm *world;
  tri_rank_hardware hardware;
  tri_error err = {0};
  cpu_set_t set;
  int core = 0;
  ck_assert_int_eq(tri_comm_self_create(&cc, &world), TRI_OK);
  ck_assert_msg(tri_rank_hardware_take(&o, world, 0, 1, 0, &hardware, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(hardware.oversubscribed, o.dp * o.threads > hardware.cores);
  ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
  while (!CPU_ISSET(core, &set)) core++;
  tri_backend_destroy(hardware.backend);
  tri_pool_destroy(hardware.pool);
  tri_comm_destroy(world);
  return CPU_COUNT(&set) == 1 ? core : -1;
}

/* Groups of one host have cores of their own, and none where they want more than there are. */
START_TEST(test_groups) {
  cpu_set_t before;
  ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) < 2 || CPU_COUNT(&before) != sysconf(_SC_NPROCESSORS_CONF)) return;
  tri_serve_options o = {.backend = "cpu", .threads = 1, .dp = 2};
  int first = core_of(o);
  ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
  o.group = 1;
  int second = core_of(o);
  ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
  ck_assert(first >= 0 && second >= 0 && first != second);
  o.dp = CPU_COUNT(&before) + 1;
  ck_assert_int_eq(core_of(o), -1);
}
END_TEST

/* Two groups of four on hosts with eight devices each: none asks for a device that is not there. */
START_TEST(test_share) {
  tri_serve_options o = {.launch = TRI_LAUNCH_REPLICA, .dp = 2, .group = 1, .places = "4@0/4"};
  int index, count;
  tri_rank_hardware_share(&o, 2, 2, 4, &index, &count);
  ck_assert(index == 2 && count == 4);
  o.places = "2@6/8,2@0/2";
  tri_rank_hardware_share(&o, 1, 1, 2, &index, &count);
  ck_assert(index == 7 && count == 8);
  tri_rank_hardware_share(&o, 3, 1, 2, &index, &count);
  ck_assert(index == 1 && count == 2);
  tri_rank_hardware_share(&o, 3, 3, 4, &index, &count); /* the launcher has put all on one host */
  ck_assert(index == 7 && count == 8);
  o.places = NULL;
  tri_rank_hardware_share(&o, 0, 0, 4, &index, &count);
  ck_assert(index == 4 && count == 8);
  o.launch = TRI_LAUNCH_MPI; /* one group, whatever is said */
  o.group = 0;
  tri_rank_hardware_share(&o, 0, 3, 4, &index, &count);
  ck_assert(index == 3 && count == 4);
}
END_TEST

Suite *suite_rank_hardware(void) {
  Suite *s = suite_create("rank_hardware");
  TCase *c = tcase_create("hardware");
  tcase_add_test(c, test_addresses);
  tcase_add_test(c, test_lists);
  tcase_add_test(c, test_cores_near);
  tcase_add_test(c, test_bind);
  tcase_add_test(c, test_devices_differ);
  tcase_add_test(c, test_auto);
  tcase_add_test(c, test_share);
  tcase_add_test(c, test_groups);
  suite_add_tcase(s, c);
  return s;
}
