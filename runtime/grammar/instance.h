/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up answers that fit a network, for people to look at. */
#ifndef TRI_RUNTIME_GRAMMAR_INSTANCE_H
#define TRI_RUNTIME_GRAMMAR_INSTANCE_H

#include "base/buf.h"
#include "runtime/grammar/configurations.h"

/* Takes random bytes, so many at most, and then the shortest way to an end. *seed is moved on. TRI_NO_CAPACITY: there
 * is no room for the configurations that it takes. */
tri_status tri_grammar_instance(tri_configs *c, uint64_t *seed, size_t random_bytes, tri_buf *out);

#endif
