/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for experts that are on a device in addition to a host that has all of them: so many slots for each layer
 * whose experts are the host's (tri_layer_experts_on_host). Which experts the slots have changes while a rank serves
 * (runtime/forward/hot_experts.h); where they lie does not. */
#ifndef TRI_RUNTIME_LOAD_HOT_WEIGHTS_H
#define TRI_RUNTIME_LOAD_HOT_WEIGHTS_H

#include "runtime/load/weights.h"

typedef struct tri_hot_weights {
  int slots;                 /* of each layer */
  tri_layer_weights *layers; /* [layers of the shard] the experts' weights alone, of `slots` experts; none of a layer
                                whose experts are not the host's */
  tri_backend *backend;
  void *memory;
  size_t bytes;
} tri_hot_weights;

/* Returns the bytes that so many slots of each layer take; 0 where no layer's experts are the host's. */
tri_status tri_hot_weights_bytes(const tri_shard *s, const tri_weight_map *m, int slots, size_t *out);
/* Returns the most slots of each layer, up to all of the shard's, that so many bytes have room for. */
int tri_hot_weights_fit(const tri_shard *s, const tri_weight_map *m, size_t room);

/* Takes that memory, zeroed. host: the weights whose experts are the host's. */
tri_status tri_hot_weights_create(tri_backend *be, const tri_model_config *c, const tri_shard *s,
                                  const tri_weights *host, int slots, tri_hot_weights **out);
void tri_hot_weights_destroy(tri_hot_weights *h); /* NULL is fine */

#endif
