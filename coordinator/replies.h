/* SPDX-License-Identifier: Apache-2.0 */
/* Replies that say why something cannot be. */
#ifndef TRI_COORDINATOR_REPLIES_H
#define TRI_COORDINATOR_REPLIES_H

#include "coordinator/core_config.h"

/* Says how a job ended: as to_client. */
tri_status reply_error(const tri_core *c, const tri_peer *to, uint64_t id, const tri_error *err);
/* Says why there is no job, or no other answer. */
void answer_error(const tri_core *c, const tri_peer *to, uint64_t id, const tri_error *err);

#endif
