/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of an engine: its ranks' agreement while it is made. */
#ifndef TRI_RUNTIME_ENGINE_ENGINE_IMPL_H
#define TRI_RUNTIME_ENGINE_ENGINE_IMPL_H

#include "runtime/engine/engine.h"

/* Collective. All ranks learn whether all succeeded, so that none waits for one that has left. */
tri_status tri_engine_agree(tri_replica *g, tri_status mine, tri_error *err);

/* Collective. Sets *all to what each rank tells of itself, which the caller frees. */
tri_status tri_engine_gather(tri_replica *g, const void *own, size_t bytes, void **all, tri_error *err);

/* Collective. Sets the limits, the same on all ranks, and the ledger that they have room by. */
tri_status tri_engine_set_limits(tri_engine *e, const tri_engine_config *config, tri_error *err);

/* engine_weights.c. Collective: finds what ranks of this host stream for each other. */
tri_status tri_engine_join_ranks(tri_engine *e, const tri_engine_config *config, tri_error *err);
/* Loads them; of those that are streamed, the first are there. */
tri_status tri_engine_load_weights(tri_engine *e, const tri_engine_config *config, tri_error *err);
/* Closes what ranks of this host read streamed weights through. */
void tri_engine_close_split(tri_engine *e);

/* The type of keys and values that this rank's cache gets (tri_kv_dtype of its weights and backend). */
tri_dtype tri_engine_kv_dtype(const tri_engine *e, const tri_engine_config *config);

#endif
