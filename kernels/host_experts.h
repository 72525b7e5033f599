/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are in host memory, and that the host's processors compute: what llama.cpp's
 * --cpu-moe does. A token reads few of a model's many experts, so that a host's memory reads those in less time than a
 * link takes to bring all of them, or those.
 *
 * A layer's experts are four pieces of work on the device's compute stream: the rows that they read go to pinned memory
 * with the choices, a tri_host_call has the host's backend compute them, and the results return. What
 * goes there is small compared with the weights that stay. Everything lies at fixed addresses and is made beforehand,
 * so that a step allocates nothing and can be recorded. */
#ifndef TRI_KERNELS_HOST_EXPERTS_H
#define TRI_KERNELS_HOST_EXPERTS_H

#include "kernels/backend.h"

typedef struct tri_host_experts tri_host_experts;

typedef struct tri_host_experts_config {
  tri_backend *backend; /* which has x, the map, the weights of the choices and the results in its memory */
  tri_backend *host;    /* which computes: of host memory, with a workspace of its own */
  /* [num_layers] Each as it will be launched with the most rows: weights of 16 bits, float32 or int8 and biases in the
   * host's memory, x and out without gaps between rows, x.dtype its own type or float32. up.data NULL: the experts of
   * this layer lie elsewhere. Their pointers to activations are not looked at. */
  const tri_moe_experts_args *layers;
  int num_layers, first_layer; /* first_layer: the number of layers[0] for under_way */
  _Atomic uint32_t *under_way; /* set to a layer's number while the host computes it, to idle after; may be NULL */
  uint32_t idle;
} tri_host_experts_config;

/* Takes pinned memory for a layer's rows, and room for what the host's ops ask for with any number of them.
 * TRI_UNSUPPORTED: rows with gaps, or experts that the host's backend cannot compute. backend and host outlive it. */
tri_status tri_host_experts_create(const tri_host_experts_config *config, tri_host_experts **out, tri_error *err);
/* Nothing that was launched may be under way. NULL is fine. */
void tri_host_experts_destroy(tri_host_experts *h);

/* Launches what moe_experts would with these args, which are layer's of config.layers but for their rows, where
 * activations lie, and x's type, the same in each launch: with float32 sums, also where x has 16 bits. What goes wrong
 * shows where a launch's failure does: TRI_CORRUPT is a map that is none, TRI_INVALID_ARGUMENT are other args. */
void tri_host_experts_launch(tri_host_experts *h, int layer, const tri_moe_experts_args *a);

#endif
