/* SPDX-License-Identifier: Apache-2.0 */
/* A line with the throughput, every ten seconds while there is work. */
#ifndef TRI_COORDINATOR_STATS_THROUGHPUT_H
#define TRI_COORDINATOR_STATS_THROUGHPUT_H

#include "coordinator/core_config.h"

enum { TRI_THROUGHPUT_LINE = 256 };

typedef struct tri_throughput {
  tri_core_load before; /* when the line was last due */
  int64_t since_ns;
} tri_throughput;

bool tri_throughput_is_due(const tri_throughput *t, int64_t now); /* ten seconds are over */
/* Begins the next ten seconds. Writes the line of those that are over; false: nothing was done in them and nothing
 * waits, which gets no line. */
bool tri_throughput_text(tri_throughput *t, const tri_core_load *load, int64_t now, char out[TRI_THROUGHPUT_LINE]);

#endif
