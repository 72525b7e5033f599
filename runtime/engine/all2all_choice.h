/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of a replica's data-parallel ranks: what it is made of, and which form is the fastest here. */
#ifndef TRI_RUNTIME_ENGINE_ALL2ALL_CHOICE_H
#define TRI_RUNTIME_ENGINE_ALL2ALL_CHOICE_H

#include "runtime/engine/engine.h"

/* Makes e->exchange where the replica has several shards. form: a tri_all2all_form for all sizes, or
 * TRI_ALL2ALL_FORMS: the one that is fastest here for a number of rows, measured now, the slowest rank counting.
 * Collective over the ranks of a stage. */
tri_status tri_engine_make_all2all(tri_engine *e, int form, tri_error *err);

/* The seconds that a form takes for so many rows of each data-parallel rank, on the slowest rank. */
typedef tri_status (*tri_all2all_timer)(void *ctx, tri_all2all_form form, int rows, double *seconds);
enum { TRI_ALL2ALL_TEXT = 256 };
/* Chooses the form of those whose bits are set that is fastest by that for each size, up to exchanges of max_rows;
 * text: what it has chosen, and how long that took. */
tri_status tri_all2all_choose(unsigned forms, int max_rows, tri_all2all_timer time, void *ctx, tri_all2all_choice *out,
                              char text[static TRI_ALL2ALL_TEXT]);

/* Bytes that it takes by itself, for rows of that type; 0 with one shard. False: they overflow. */
bool tri_engine_all2all_bytes(const tri_model_config *c, const tri_shard *s, const tri_limits *limits, bool device,
                              tri_dtype type, size_t *out);

#endif
