/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/host/topo.h"
#include "tools/doctor/doctor.h"

enum { MAX_CORES = 4096 };

/* The kernel writes kB and means KiB. */
int64_t tri_read_meminfo(const char *root, const char *name) {
  char path[PATH_MAX], line[256], unit[8] = "";
  long long value = -1;
  size_t len = strlen(name);
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  FILE *f = fopen(path, "re");
  if (!f) return -1;
  while (fgets(line, sizeof line, f)) {
    if (strncmp(line, name, len) || line[len] != ':') continue;
    int n = sscanf(line + len + 1, "%lld %7s", &value, unit);
    if (n < 1 || value < 0) value = -1;
    if (value > 0 && n == 2 && !strcmp(unit, "kB")) value *= 1024;
    break;
  }
  fclose(f);
  return value;
}

static int64_t limit_of(int resource) {
  struct rlimit r;
  if (getrlimit((__rlimit_resource_t)resource, &r)) return -1;
  return r.rlim_max == RLIM_INFINITY ? INT64_MAX : (int64_t)r.rlim_max;
}

/* Binds this process to all cores that it has, which changes nothing where it is permitted; threads of workers do it
 * likewise. */
static bool can_bind(int count) {
  int cores[MAX_CORES], shared;
  if (count > MAX_CORES || tri_topo_assign(0, 1, count, cores, &shared) != TRI_OK) return false;
  return cores[0] >= 0 && tri_topo_bind(cores, count);
}

void tri_gather_host(const char *root, tri_host_facts *out) {
  char path[PATH_MAX];
  struct statvfs shm;
  snprintf(path, sizeof path, "%s/dev/shm", root);
  bool has_shm = !statvfs(path, &shm);
  *out = (tri_host_facts){.cores = tri_topo_num_cores(),
                          .online = (int)sysconf(_SC_NPROCESSORS_ONLN),
                          .memory = tri_read_meminfo(root, "MemTotal"),
                          .memory_available = tri_read_meminfo(root, "MemAvailable"),
                          .memory_allowed = tri_host_memory_available(),
                          .memlock = limit_of(RLIMIT_MEMLOCK),
                          .nofile = limit_of(RLIMIT_NOFILE),
                          .shm = has_shm ? (int64_t)(shm.f_blocks * shm.f_frsize) : -1,
                          .shm_free = has_shm ? (int64_t)(shm.f_bavail * shm.f_frsize) : -1};
  out->can_bind = can_bind(out->cores);
  gethostname(out->name, sizeof out->name - 1);
  out->job = tri_slurm_words_read();
}
