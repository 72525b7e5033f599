/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that must differ in something, as in their devices. Here, as the device's module has nothing of the program but
 * what that uses itself. */
#ifndef TRI_COMM_DISTINCT_H
#define TRI_COMM_DISTINCT_H

#include <string.h>

#include "comm/comm.h"
#include "base/mem.h"

/* Finds the first two ranks that give the same bytes; twins: -1 where there are none. Every rank calls it. */
static inline tri_status tri_comm_find_twins(tri_comm *c, const void *own, size_t bytes, int twins[2]) {
  char *all = tri_calloc((size_t)c->size, bytes);
  /* A rank without memory takes part, too: the others would wait for it. */
  tri_status st = tri_comm_agree(c, all ? TRI_OK : TRI_NO_MEMORY);
  twins[0] = twins[1] = -1;
  if (st == TRI_OK) st = tri_comm_all_gather(c, own, all, bytes);
  for (int r = 0; st == TRI_OK && r < c->size; r++)
    for (int s = 0; s < r && twins[0] < 0; s++)
      if (!memcmp(all + (size_t)r * bytes, all + (size_t)s * bytes, bytes)) {
        twins[0] = s;
        twins[1] = r;
      }
  tri_free(all);
  return st;
}

#endif
