/* SPDX-License-Identifier: Apache-2.0 */
/* Resident memory is all that can be seen of what the library of the sockets holds. What is known to be held on purpose
 * (answers that are cached, jobs) is taken off; the rest above the cap is taken for clients' messages. Before anything
 * is closed the allocator gives back what is free: fragmentation is no attack. */
#include "coordinator/memory_watch.h"

#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"

enum {
  TRIM_TICKS = 5,      /* in which memory is given back after a rebind: the library frees some time after the close */
  PATIENCE_TICKS = 20, /* above the cap, whatever is closed */
  SOCKETS_SHARE = 4,   /* of the cap: less apart from the jobs is not what a rebind would free */
};

double tri_resident_mb(void) {
  long pages = 0, ignored;
  FILE *f = fopen("/proc/self/statm", "re");
  if (!f) return 0;
  if (fscanf(f, "%ld %ld", &ignored, &pages) != 2) pages = 0;
  fclose(f);
  return (double)pages * (double)sysconf(_SC_PAGESIZE) / 0x1p20;
}

void tri_memory_watch_begin(tri_memory_watch *w, double cap_mb) {
  *w = (tri_memory_watch){.base_mb = tri_resident_mb(), .cap_mb = cap_mb};
}

static double growth(const tri_memory_watch *w, double mb) { return mb - w->base_mb - w->kept_mb; }

/* Returns whether memory that is above the cap is that of jobs: closing connections would free little of it, so new
 * jobs are refused instead. */
static bool is_of_jobs(tri_memory_watch *w, double mb) {
  bool crowded = growth(w, mb) - w->jobs_mb < w->cap_mb / SOCKETS_SHARE;
  if (crowded && !w->is_crowded)
    tri_log(TRI_LOG_WARN, "coordinator", "%.0f MiB resident, %.0f before, %.0f of jobs: new jobs are refused", mb,
            w->base_mb, w->jobs_mb);
  w->is_crowded = crowded;
  if (crowded) w->ticks_above = 0;
  return crowded;
}

bool tri_memory_watch_tick(tri_memory_watch *w, double mb) {
  if (w->trims > 0) {
    w->trims--;
    malloc_trim(0);
  }
  if (growth(w, mb) >= w->cap_mb) { /* memory that is free already needs no victims */
    malloc_trim(0);
    mb = tri_resident_mb();
  }
  if (growth(w, mb) < w->cap_mb) {
    w->ticks_above = 0;
    w->is_crowded = false;
    return false;
  }
  if (is_of_jobs(w, mb)) return false;
  if (++w->ticks_above > PATIENCE_TICKS) {
    tri_log(TRI_LOG_WARN, "coordinator",
            "%.0f MiB resident, %.0f before, also after the client socket was reopened: counting from here", mb,
            w->base_mb);
    w->base_mb = mb - w->kept_mb;
    return false;
  }
  tri_log(TRI_LOG_WARN, "coordinator", "%.0f MiB resident, %.0f before: reopening the client socket", mb, w->base_mb);
  w->trims = TRIM_TICKS;
  return true;
}
