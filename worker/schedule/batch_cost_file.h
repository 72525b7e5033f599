/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a cost table, so that a start need not measure again. The key says what it is good for: the model, its
 * types, the layout, the device and the version. */
#ifndef TRI_WORKER_SCHEDULE_BATCH_COST_FILE_H
#define TRI_WORKER_SCHEDULE_BATCH_COST_FILE_H

#include <limits.h>

#include "base/status.h"
#include "worker/schedule/batch_cost.h"

/* batch-cost-HASH.json among the user's caches (tri_cache_file), by the key. */
void tri_batch_cost_file_path(const char *key, char out[PATH_MAX]);

/* Takes the cells that the file has into a table made by tri_batch_cost_init. TRI_NOT_FOUND: there is no file, or it is
 * of another key. TRI_CORRUPT: it is malformed, and the table is as it was. */
tri_status tri_batch_cost_file_read(const char *path, const char *key, tri_batch_cost *c, tri_error *err);
/* Writes what was measured. */
tri_status tri_batch_cost_file_write(const char *path, const char *key, const tri_batch_cost *c, tri_error *err);

#endif
