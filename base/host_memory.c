/* SPDX-License-Identifier: Apache-2.0 */
/* The host's memory that a process may still take. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- control groups ---- */

/* The files of a version, and the line of its memory.stat that tells what can be taken back at once. */
struct version {
  const char *folder, *limit, *used, *idle;
};
static const struct version first = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                     "total_inactive_file %lld"};
static const struct version second = {"", "memory.max", "memory.current", "inactive_file %lld"};

static FILE *open_in(const char *folder, const char *name) {
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%s/%s", folder, name);
  return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* Finds the first line of that form; -1: there is none. "max" is no number: no limit. */
static int64_t find_number(const char *folder, const char *name, const char *form) {
  char line[256];
  long long v = -1;
  FILE *f = open_in(folder, name);
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, form, &v) == 1) break;
  if (f) fclose(f);
  return v;
}

/* Returns limit - used, where pages of files that were not read lately count as free: the kernel takes them back
 * before it refuses memory. */
static int64_t room_of(const char *folder, const struct version *v) {
  int64_t limit = find_number(folder, v->limit, "%lld"), used = find_number(folder, v->used, "%lld");
  int64_t idle = find_number(folder, "memory.stat", v->idle);
  if (limit < 0 || used < 0) return INT64_MAX;
  if (idle > 0) used = used > idle ? used - idle : 0;
  return limit > used ? limit - used : 0;
}

/* Returns the least room of the group and of all above it. What lies outside of this namespace (..) is not to be seen.
 */
static int64_t least_room(const char *root, const struct version *v, char *path) {
  char folder[PATH_MAX];
  int64_t least = INT64_MAX;
  if (strstr(path, "..")) path[0] = '\0';
  for (bool up = true; up;) {
    int n = snprintf(folder, sizeof folder, "%s%s%s", root, v->folder, path);
    if (n < 0 || (size_t)n >= sizeof folder) return least;
    int64_t room = room_of(folder, v);
    if (room < least) least = room;
    char *end = strrchr(path, '/');
    up = end != NULL && path[0];
    if (end) *end = '\0';
  }
  return least;
}

/* Returns whether a list of controllers has the memory's. */
static bool has_memory(const char *controllers) {
  for (const char *at = controllers; (at = strstr(at, "memory")); at++)
    if ((at == controllers || at[-1] == ',') && (at[6] == ',' || !at[6])) return true;
  return false;
}

int64_t tri_control_group_room(const char *groups, const char *root) {
  char line[PATH_MAX];
  int64_t least = INT64_MAX;
  FILE *f = fopen(groups, "re");
  while (f && fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) continue;
    *path++ = '\0';
    controllers++;
    if (*controllers && !has_memory(controllers)) continue;
    int64_t room = least_room(root, *controllers ? &first : &second, path);
    if (room < least) least = room;
  }
  if (f) fclose(f);
  return least;
}

/* ---- all of it ---- */

int64_t tri_host_memory_available(void) {
  int64_t available = 0, room = tri_control_group_room("/proc/self/cgroup", "/sys/fs/cgroup");
  char line[128];
  FILE *f = fopen("/proc/meminfo", "re");
  while (f && fgets(line, sizeof line, f)) {
    long long kib;
    if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1) available = kib * 1024;
  }
  if (f) fclose(f);
  return room < available ? room : available;
}
