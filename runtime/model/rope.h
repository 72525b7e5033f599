/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position scaling: every kind that configs name, reduced to tables of inverse frequencies. */
#ifndef TRI_RUNTIME_MODEL_ROPE_H
#define TRI_RUNTIME_MODEL_ROPE_H

#include "base/json/json.h"
#include "runtime/model/config.h"

/* Reads `rope_parameters` or `rope_scaling` (+ `rope_theta`) of root into c->rope, and into c->local_rope where layers
 * with a window have a table of their own: either section may then have one for each kind of layer. c->head_dim,
 * partial_rotary_factor, rope_theta and max_position_embeddings must stand. Kinds: default, linear (Chen et al. 2023),
 * dynamic (NTK-aware, by length), yarn (Peng et al. 2023), longrope (Ding et al. 2024), llama3. An unknown kind is
 * refused by name, and so is a key that is known to change the result, with strict any that is not understood. */
tri_status tri_rope_read(tri_model_config *c, const tri_json *root, bool strict, tri_error *err);

#endif
