/* SPDX-License-Identifier: Apache-2.0 */
/* A hash of a checkpoint's weights by which copies of it are distinguished from others: over the sizes and the headers
 * of its files and blocks of their data, evenly spread. It does not depend on paths and times, and reads few MiB of
 * files of any size. A change of less than a block in 512 may go unseen. */
#ifndef TRI_RUNTIME_MODEL_WEIGHTS_HASH_H
#define TRI_RUNTIME_MODEL_WEIGHTS_HASH_H

#include <stdint.h>

#include "base/status.h"

enum { TRI_WEIGHTS_HASH_BLOCK = 4096, TRI_WEIGHTS_HASH_BLOCKS = 512 };

/* Never 0. TRI_NOT_FOUND, TRI_CORRUPT or TRI_IO as tri_checkpoint_open. */
tri_status tri_weights_hash(const char *dir, uint64_t *out, tri_error *err);

#endif
