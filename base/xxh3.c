/* SPDX-License-Identifier: Apache-2.0 */
#include "base/xxh3.h"

#include <xxhash.h>

uint64_t tri_xxh3(const void *p, size_t n) { return XXH3_64bits(p, n); }
