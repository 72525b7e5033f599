/* SPDX-License-Identifier: Apache-2.0 */
/* Status and metrics of the coordinator. */
#ifndef TRI_COORDINATOR_STATS_STATS_H
#define TRI_COORDINATOR_STATS_STATS_H

#include "coordinator/core_config.h"

void report_status(tri_core *c, int64_t now, const tri_peer *to, uint64_t id);
void prometheus_reply(tri_core *c, const tri_peer *to, uint64_t id);

#endif
