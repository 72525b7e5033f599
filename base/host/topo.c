/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host/topo.h"

#include <ctype.h>
#include <hwloc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The topology is loaded anew for each question: questions are few and at start, and a process keeps no state of the
 * machine. */
struct machine {
  hwloc_topology_t topology;
  hwloc_cpuset_t allowed; /* a batch system or mpirun may have narrowed the cores that the process may use */
};

static void unload(struct machine *m) {
  hwloc_bitmap_free(m->allowed);
  hwloc_topology_destroy(m->topology);
}

static bool load(struct machine *m) {
  if (hwloc_topology_init(&m->topology)) return false;
  m->allowed = hwloc_bitmap_alloc();
  if (m->allowed && !hwloc_topology_load(m->topology) &&
      !hwloc_get_cpubind(m->topology, m->allowed, HWLOC_CPUBIND_PROCESS))
    return true;
  unload(m);
  return false;
}

int tri_topo_num_cores(void) {
  struct machine m;
  if (!load(&m)) return 1;
  int n = hwloc_get_nbobjs_inside_cpuset_by_type(m.topology, m.allowed, HWLOC_OBJ_CORE);
  if (n < 1) n = hwloc_bitmap_weight(m.allowed);
  unload(&m);
  return n > 0 ? n : 1;
}

/* Cores, not hardware threads: two threads of one core share its vector units. Process `index` takes the run of cores
 * that begins at index * threads.
 *
 * A process may see all cores, as its neighbours do, or those only that mpirun has bound it to: only in the first case
 * the share of each has to be cut out here. */
tri_status tri_topo_assign(int index, int count, int threads, int *cores, int *oversubscribed) {
  struct machine m;
  for (int i = 0; i < threads; i++) cores[i] = -1;
  *oversubscribed = 0;
  if (!load(&m)) return TRI_OK; /* no topology: no pinning */
  int n = hwloc_get_nbobjs_inside_cpuset_by_type(m.topology, m.allowed, HWLOC_OBJ_CORE);
  /* When mpirun bound each process by itself, the mask is this process's own share. */
  int total = 0, all = hwloc_get_nbobjs_by_type(m.topology, HWLOC_OBJ_CORE);
  int shared = n == all;
  total = shared ? count * threads : threads;
  if (n < 1 || total > n) {
    *oversubscribed = total > n;
  } else {
    int first = shared ? index * threads : 0;
    for (int i = 0; i < threads; i++) {
      hwloc_obj_t core =
          hwloc_get_obj_inside_cpuset_by_type(m.topology, m.allowed, HWLOC_OBJ_CORE, (unsigned)(first + i));
      if (core) cores[i] = hwloc_bitmap_first(core->cpuset);
    }
  }
  unload(&m);
  return TRI_OK;
}

bool tri_topo_pci_address(const char *text, char out[TRI_PCI_ADDRESS]) {
  unsigned part[4] = {0}; /* domain, bus, device, function */
  int colons = 0, n = 0, first;
  for (const char *p = text; *p; p++) colons += *p == ':';
  first = colons == 2 ? 0 : 1;
  if (colons < 1 || colons > 2 || strspn(text, "0123456789abcdefABCDEF:.") != strlen(text)) return false;
  int got = first ? sscanf(text, "%2x:%2x.%1x%n", &part[1], &part[2], &part[3], &n)
                  : sscanf(text, "%8x:%2x:%2x.%1x%n", &part[0], &part[1], &part[2], &part[3], &n);
  if (got != 4 - first || text[n] || part[0] > 0xffff || part[2] > 0x1f || part[3] > 7) return false;
  snprintf(out, TRI_PCI_ADDRESS, "%04x:%02x:%02x.%x", part[0], part[1], part[2], part[3]);
  return true;
}

static const char *read_number(const char *p, int *out) {
  char *end;
  if (!isdigit((unsigned char)*p)) return NULL;
  long n = strtol(p, &end, 10);
  if (n > INT_MAX - 1) return NULL;
  *out = (int)n;
  return end;
}

int tri_topo_read_list(const char *text, int *numbers, int cap) {
  int count = 0, low, high;
  for (const char *p = text; *p && *p != '\n';) {
    if (!(p = read_number(p, &low))) return -1;
    high = low;
    if (*p == '-' && !(p = read_number(p + 1, &high))) return -1;
    if (high < low || high - low >= cap - count) return -1;
    for (int i = low; i <= high; i++) numbers[count++] = i;
    if (*p == ',' && isdigit((unsigned char)p[1]))
      p++;
    else if (*p && *p != '\n')
      return -1;
  }
  return count;
}

int tri_topo_cores_near(const char *sysfs, const char *address, int *cores, int cap) {
  char path[PATH_MAX], text[4096] = "";
  struct machine m;
  int kept = 0;
  if (snprintf(path, sizeof path, "%s/bus/pci/devices/%s/local_cpulist", sysfs, address) >= (int)sizeof path) return 0;
  FILE *f = fopen(path, "r");
  bool some = f && fgets(text, sizeof text, f);
  if (f) fclose(f);
  int n = some ? tri_topo_read_list(text, cores, cap) : 0;
  if (n < 1 || !load(&m)) return 0;
  for (int i = 0; i < n; i++)
    if (hwloc_bitmap_isset(m.allowed, (unsigned)cores[i])) cores[kept++] = cores[i];
  unload(&m);
  return kept;
}

bool tri_topo_bind(const int *cores, int count) {
  struct machine m;
  if (!load(&m)) return false;
  hwloc_bitmap_zero(m.allowed);
  for (int i = 0; i < count; i++) hwloc_bitmap_set(m.allowed, (unsigned)cores[i]);
  bool bound = !hwloc_set_cpubind(m.topology, m.allowed, HWLOC_CPUBIND_PROCESS);
  unload(&m);
  return bound;
}
