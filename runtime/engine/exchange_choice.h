/* The exchange of a group's shards: what it is made of, and which form is the fastest here. */
#ifndef TRI_RUNTIME_ENGINE_EXCHANGE_CHOICE_H
#define TRI_RUNTIME_ENGINE_EXCHANGE_CHOICE_H

#include "runtime/engine/engine.h"

/* Makes e->exchange where the group has several shards. form: a tri_exchange_form for all sizes, or
 * TRI_EXCHANGE_FORMS: the one that is fastest here for a number of rows, measured now, the slowest rank counting.
 * Collective over the ranks of a stage. */
tri_status tri_engine_make_exchange(tri_engine *e, int form, tri_error *err);

/* Bytes that it takes by itself, for rows of that type; 0 with one shard. False: they overflow. */
bool tri_engine_exchange_bytes(const tri_model_config *c, const tri_shard *s, const tri_limits *limits, bool device,
                               tri_dtype type, size_t *out);

#endif
