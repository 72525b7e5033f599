/* SPDX-License-Identifier: Apache-2.0 */
/* From the launch of a replica to its last rank's registration only the supervisor can tell that nothing happens: its
 * ranks may not run yet, on whatever host. Progress is one more rank that is heard of. */
#include <stdio.h>
#include <string.h>

#include "coordinator/up/up.h"
#include "base/log.h"
#include "base/start_watch.h"
#include "base/wait.h"

/* A rank that can speak for itself does so first, as it knows more. */
enum { RANKS_FIRST_S = 2 };

void tri_up_start_begin(tri_up *u, int replica) {
  tri_up_replica *g = &u->replicas[replica];
  memset(g->here, 0, sizeof g->here);
  g->num_here = 0;
  g->progress_ns = tri_now_ns();
  g->say_s = tri_start_say_after(u->opts.serve.start_timeout);
}

void tri_up_start_came(tri_up *u, int replica, unsigned rank) {
  tri_up_replica *g = &u->replicas[replica];
  if (rank >= TRI_UP_MAX_RANKS || g->here[rank]) return;
  g->came = g->here[rank] = true;
  g->num_here++;
  g->progress_ns = tri_now_ns();
  g->say_s = tri_start_say_after(u->opts.serve.start_timeout);
}

/* Ranks that have not come: "0-2,5". */
static const char *missing(const tri_up_replica *g, int world, char *out, size_t cap) {
  size_t used = 0;
  out[0] = '\0';
  for (int first = 0, last; first < world && used + 32 < cap; first = last + 1) {
    last = first;
    if (g->here[first]) continue;
    while (last + 1 < world && !g->here[last + 1]) last++;
    const char *comma = used ? "," : "";
    int n = last > first ? snprintf(out + used, cap - used, "%s%d-%d", comma, first, last)
                         : snprintf(out + used, cap - used, "%s%d", comma, first);
    used += (size_t)n;
  }
  return out;
}

void tri_up_start_check(tri_up *u, int replica, int64_t now) {
  tri_up_replica *g = &u->replicas[replica];
  int world = tri_serve_layout_world(&u->layout);
  char which[200];
  if (g->pid <= 0 || g->ready || g->num_here >= world || g->kill_ns) return;
  double waited = (double)(now - g->progress_ns) / 1e9;
  bool over = waited >= u->opts.serve.start_timeout + RANKS_FIRST_S;
  if (waited < g->say_s && !over) return;
  g->say_s *= 2;
  tri_log(over ? TRI_LOG_ERROR : TRI_LOG_WARN, u->called,
          "replica %d: no progress for %.0f s in phase \"launch\": %d of %d ranks have connected, not rank %s; their "
          "launcher is pid %d%s",
          replica, waited, g->num_here, world, missing(g, world, which, sizeof which), (int)g->pid,
          over ? ". Giving up this start" : "");
  if (over) g->kill_ns = now;
}
