/* SPDX-License-Identifier: Apache-2.0 */
/* A check that streamed weights are those of their files. */
#ifndef TRI_TOOLS_BENCH_VERIFY_H
#define TRI_TOOLS_BENCH_VERIFY_H

#include "runtime/engine/engine.h"

/* Walks over all streamed parts twice, between two steps of an engine whose ring is the host's: what comes must be what
 * a plain read of the file gives, both times, and have a pack's checksums. Prints what it has seen. TRI_CORRUPT with
 * the part and the file. */
tri_status tri_bench_verify(tri_engine *e, bool json, tri_error *err);

#endif
